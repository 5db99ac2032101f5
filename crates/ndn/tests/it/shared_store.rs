//! The forwarder over the real content store, two workers that share it.

use content_store::{Config, NameHash};
use ndn::shared_store::SharedStore;
use ndn::{
    ContentStore as _, FaceConfig, Forwarder, ForwarderConfig, NameHasher, NextHop, Partition,
};
use wire::Instant;
use wire::ndn::NameRef;
use wire::ndn::lp::LpHeader;

use crate::support::{Kept, data, interest, name};

#[test]
fn what_one_worker_caches_the_other_serves() {
    let now = Instant::from_ns(1_000_000_000);
    let mut config = Config::for_packets(1000, 2, NameHash::Keyed([1, 2]));
    config.bytes = 8 << 20;
    let store = content_store::ContentStore::new(&config).unwrap();
    let partition = Partition::new(2, NameHasher::new([3, 4]), 256);
    let mut faces = None;
    let mut workers: Vec<_> = (0..2)
        .map(|worker| {
            let shared = SharedStore::join(&store).unwrap();
            let config = ForwarderConfig::default();
            let mut forwarder = Forwarder::new(worker, partition.clone(), config, shared, now);
            let app = forwarder
                .add_face(FaceConfig::local("fd://1", "unix://x"), now)
                .unwrap();
            let net = FaceConfig::network("udp4://192.0.2.1:6363", "udp4://192.0.2.2:6363");
            let net = forwarder.add_face(net, now).unwrap();
            faces = Some((app, net));
            let hop = NextHop { face: net, cost: 1 };
            forwarder
                .add_next_hop(NameRef::EMPTY, hop, now, &mut Kept::default())
                .unwrap();
            forwarder
        })
        .collect();
    let (app, net) = faces.unwrap();
    for n in 0..100_u32 {
        let uri = format!("/a/{n}/b");
        for (face, packet) in [(app, interest(&uri, n, |_| {})), (net, data(&uri, 1000))] {
            let owner = partition.owner_of_packet(&packet).unwrap();
            let mut sink = Kept::default();
            let header = LpHeader::default();
            workers[owner]
                .input(now, face, &header, &packet, &mut sink)
                .unwrap();
            assert_eq!(sink.sent.len(), 1);
        }
        // By a prefix that the other worker may own.
        let ask = interest(&format!("/a/{n}"), 1000 + n, |i| {
            i.can_be_prefix = true;
            i.must_be_fresh = true;
        });
        let owner = partition.owner_of_packet(&ask).unwrap();
        let mut sink = Kept::default();
        let header = LpHeader::default();
        workers[owner]
            .input(now, app, &header, &ask, &mut sink)
            .unwrap();
        assert!(sink.sent[0].is_data());
        for worker in &mut workers {
            worker.handle_timeout(now, &mut Kept::default());
        }
    }
    assert_eq!(workers[0].store_mut().erase(name("/a").as_ref(), 30), 30);
    workers[1]
        .store_mut()
        .configure(Some(10), Some(false), Some(true));
    let info = workers[0].store().info();
    assert_eq!((info.capacity, info.admit, info.serve), (10, false, true));
    assert_eq!(info.hits, 100);
}
