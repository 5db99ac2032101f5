//! The forwarder over the real content store, two workers that share it.

use std::time::{Duration, Instant as Clock};

use content_store::{Config, DiskConfig, NameHash};
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

/// A forwarder over a store of few packets in memory with a disk tier in a file.
fn with_disk(file: &std::path::Path, now: Instant) -> (Forwarder<SharedStore>, [ndn::FaceId; 3]) {
    let mut config = Config::for_packets(64, 1, NameHash::Keyed([1, 2]));
    config.bytes = 8 << 20;
    let store = content_store::ContentStore::new(&config).unwrap();
    store
        .open_disk(&DiskConfig::new(file.to_owned(), 4 << 20, 0))
        .unwrap();
    let shared = SharedStore::join(&store).unwrap();
    let partition = Partition::new(1, NameHasher::new([3, 4]), 256);
    let mut forwarder = Forwarder::new(0, partition, ForwarderConfig::default(), shared, now);
    let app = FaceConfig::local("fd://1", "unix://x");
    let net = FaceConfig::network("udp4://192.0.2.1:6363", "udp4://192.0.2.2:6363");
    let faces = [app.clone(), app, net].map(|config| forwarder.add_face(config, now).unwrap());
    let hop = NextHop {
        face: faces[2],
        cost: 1,
    };
    forwarder
        .add_next_hop(NameRef::EMPTY, hop, now, &mut Kept::default())
        .unwrap();
    (forwarder, faces)
}

fn ask(
    forwarder: &mut Forwarder<SharedStore>,
    now: Instant,
    face: ndn::FaceId,
    packet: &[u8],
) -> Kept {
    let mut sink = Kept::default();
    // What is dropped shows in the counters.
    let _ = forwarder.input(now, face, &LpHeader::default(), packet, &mut sink);
    sink
}

/// Waits until the store's reads under way have ended.
fn reads(forwarder: &mut Forwarder<SharedStore>, now: Instant) -> Kept {
    let begin = Clock::now();
    let mut sink = Kept::default();
    while forwarder.store_mut().worker_mut().disk_reads() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "a read ends");
        forwarder.handle_reads(now, &mut sink);
        std::thread::yield_now();
    }
    sink
}

#[test]
fn what_left_memory_is_answered_from_disk_and_what_is_not_there_is_forwarded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let now = Instant::from_ns(1_000_000_000);
    let count = 400_u32;
    let uri = |n: u32| format!("/a/{n}/b");
    {
        let (mut forwarder, [app, _, net]) = with_disk(&file, now);
        for n in 0..count {
            ask(&mut forwarder, now, app, &interest(&uri(n), n, |_| {}));
            ask(&mut forwarder, now, net, &data(&uri(n), 5000));
        }
        forwarder.store().store().sync_disk().unwrap();
    }
    // Another process finds what was there; memory is empty.
    let (mut forwarder, [app, app2, net]) = with_disk(&file, now);
    let recovered = forwarder.store().store().disk_stats().unwrap().recovered;
    assert!(recovered > 200, "{recovered}");
    let first = ask(&mut forwarder, now, app, &interest(&uri(1), 1000, |_| {}));
    let second = ask(&mut forwarder, now, app2, &interest(&uri(1), 1001, |_| {}));
    assert!(first.sent.is_empty() && second.sent.is_empty(), "both wait");
    let answers = reads(&mut forwarder, now).sent;
    let mut to: Vec<_> = answers.iter().map(|sent| sent.face).collect();
    to.sort();
    assert_eq!(to, [app, app2]);
    assert!(
        answers
            .iter()
            .all(|sent| sent.packet == data(&uri(1), 5000))
    );
    assert!(forwarder.pit().is_empty());
    let counters = forwarder.counters();
    assert_eq!(
        (
            counters.store_reads,
            counters.store_hits,
            counters.store_misses,
            counters.unsatisfied
        ),
        (1, 1, 0, 0)
    );
    // Now it is in memory.
    let again = ask(&mut forwarder, now, app, &interest(&uri(1), 1002, |_| {}));
    assert!(again.sent[0].is_data());

    // What is stale there does not answer who wants it fresh: the Interest goes on.
    let later = now + Duration::from_secs(10);
    let fresh = interest(&uri(2), 1003, |i| i.must_be_fresh = true);
    assert!(ask(&mut forwarder, later, app, &fresh).sent.is_empty());
    let sent = reads(&mut forwarder, later).sent;
    assert_eq!((sent.len(), sent[0].face), (1, net));
    assert_eq!(sent[0].interest().nonce, Some(1003_u32.to_be_bytes()));
    let answer = ask(&mut forwarder, later, net, &data(&uri(2), 9000)).sent;
    assert_eq!((answer.len(), answer[0].face), (1, app));

    // What never was there is forwarded at once; damage is found and is as if nothing was there.
    let unknown = interest("/nowhere", 1004, |_| {});
    assert_eq!(ask(&mut forwarder, later, app, &unknown).sent[0].face, net);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, vec![0x55; bytes.len()]).unwrap();
    let damaged = interest(&uri(3), 1005, |_| {});
    assert!(ask(&mut forwarder, later, app, &damaged).sent.is_empty());
    assert_eq!(reads(&mut forwarder, later).sent[0].face, net);
}
