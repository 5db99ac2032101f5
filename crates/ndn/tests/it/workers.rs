//! Several workers: every pending and every cached match is found, whichever worker has it.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use ndn::store::StoreInfo;
use ndn::{
    ContentStore, FaceConfig, FaceId, Forwarder, ForwarderConfig, Handoff, MemoryStore, NameHasher,
    NextHop, Partition, Rng,
};
use wire::Instant;
use wire::ndn::lp::LpHeader;
use wire::ndn::{Data, Interest, NameRef};

use crate::support::{HandedOff, Kept, data, interest, name};

/// One store for all workers, as the real one is.
#[derive(Clone)]
struct Shared(Rc<RefCell<MemoryStore>>);

impl ContentStore for Shared {
    type Ahead = ();
    fn look_ahead(&self, _: NameRef<'_>) {}
    fn look_closer(&self, (): &()) -> bool {
        true
    }
    fn find<R>(
        &mut self,
        interest: &Interest<'_>,
        (): &(),
        now: Instant,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        self.0.borrow_mut().find(interest, &(), now, found)
    }
    fn insert(&mut self, data: &Data<'_>, now: Instant) {
        self.0.borrow_mut().insert(data, now);
    }
    fn erase(&mut self, prefix: NameRef<'_>, limit: u64) -> u64 {
        self.0.borrow_mut().erase(prefix, limit)
    }
    fn configure(&mut self, capacity: Option<u64>, admit: Option<bool>, serve: Option<bool>) {
        self.0.borrow_mut().configure(capacity, admit, serve);
    }
    fn info(&self) -> StoreInfo {
        self.0.borrow().info()
    }
}

struct Node {
    workers: Vec<Forwarder<Shared>>,
    partition: Partition,
    /// Handoffs that are on their way.
    rings: VecDeque<HandedOff>,
    app: FaceId,
    net: FaceId,
    now: Instant,
}

impl Node {
    fn new(workers: usize) -> Self {
        let partition = Partition::new(workers, NameHasher::new([5, 6]), 256);
        let store = Shared(Rc::new(RefCell::new(MemoryStore::new(1000))));
        let now = Instant::from_ns(1_000_000_000);
        let mut faces = (FaceId(0), FaceId(0));
        let workers = (0..workers)
            .map(|worker| {
                let config = ForwarderConfig::default();
                let mut forwarder =
                    Forwarder::new(worker, partition.clone(), config, store.clone(), now);
                let app = FaceConfig::local("fd://1", "unix:///run/nfd/nfd.sock");
                let net = FaceConfig::network("udp4://192.0.2.1:6363", "udp4://192.0.2.2:6363");
                faces.0 = forwarder.add_face(app, now).unwrap();
                faces.1 = forwarder.add_face(net, now).unwrap();
                let hop = NextHop {
                    face: faces.1,
                    cost: 1,
                };
                forwarder
                    .add_next_hop(NameRef::EMPTY, hop, now, &mut Kept::default())
                    .unwrap();
                forwarder
            })
            .collect();
        Self {
            workers,
            partition,
            rings: VecDeque::new(),
            app: faces.0,
            net: faces.1,
            now,
        }
    }

    /// A packet arrives and is handed to the worker of its name; returns what left.
    fn input(&mut self, face: FaceId, packet: &[u8]) -> Vec<crate::support::Sent> {
        let owner = self.partition.owner_of_packet(packet).unwrap();
        let mut sink = Kept::default();
        let header = LpHeader::default();
        let _ = self.workers[owner].input(self.now, face, &header, packet, &mut sink);
        self.rings.extend(sink.handed_off);
        sink.sent
    }

    /// One handoff arrives.
    fn step(&mut self) -> Vec<crate::support::Sent> {
        let Some(handed_off) = self.rings.pop_front() else {
            return Vec::new();
        };
        let mut sink = Kept::default();
        let handoff = Handoff {
            ingress: handed_off.ingress,
            header: LpHeader::default(),
            packet: &handed_off.packet,
            is_solicited: handed_off.is_solicited,
        };
        self.workers[handed_off.worker]
            .input_handoff(self.now, &handoff, &mut sink)
            .unwrap();
        self.rings.extend(sink.handed_off);
        sink.sent
    }
}

#[test]
fn prefix_interests_find_pending_and_cached_data_on_any_worker() {
    for workers in 1..=5 {
        let mut node = Node::new(workers);
        for n in 0..200_u32 {
            let uri = format!("/site/{n}/file/seg={n}");
            for (depth, at) in [(1, 0), (2, 1), (3, 2)] {
                let prefix = name(&uri).as_ref().prefix(depth).to_string();
                let ask = interest(&prefix, n * 4 + at, |i| i.can_be_prefix = true);
                if depth > 1 {
                    let sent = node.input(node.app, &ask);
                    assert!(sent.iter().all(|sent| sent.face == node.net), "{prefix}");
                }
            }
            // Nobody asked for exactly this name.
            let mut sent = node.input(node.net, &data(&uri, 0));
            while !node.rings.is_empty() {
                sent.extend(node.step());
            }
            assert!(
                !sent.is_empty() && sent.iter().all(|sent| sent.is_data()),
                "{uri}"
            );
            let pending: usize = node.workers.iter().map(|w| w.pit().len()).sum();
            assert_eq!(pending, 0, "{uri} with {workers} workers");
            // Cached now, for whoever asks, by any prefix.
            let ask = interest(&format!("/site/{n}"), n * 4 + 3, |i| i.can_be_prefix = true);
            assert!(node.input(node.app, &ask)[0].is_data());
        }
    }
}

#[test]
fn data_that_nobody_asked_for_is_cached_by_no_worker() {
    let mut node = Node::new(4);
    // Counters collide here: the filter has few.
    for n in 0..300_u32 {
        node.input(
            node.app,
            &interest(&format!("/wait/{n}"), n, |i| i.can_be_prefix = true),
        );
    }
    for n in 0..200 {
        let sent = node.input(node.net, &data(&format!("/other/{n}/x"), 0));
        assert!(sent.is_empty());
        while !node.rings.is_empty() {
            assert!(node.step().is_empty());
        }
    }
    assert_eq!(node.workers[0].store().info().packets, 0);
}

/// Interests and Data in random order, with handoffs delayed at random: whoever waits when all is delivered
/// has no match in the store.
#[test]
fn no_interleaving_leaves_a_match_unseen() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut node = Node::new(2 + rng.below(3) as usize);
        let mut waiting: BTreeSet<String> = BTreeSet::new();
        for step in 0..60_u32 {
            let uri = format!("/{}/{}/{}", rng.below(2), rng.below(2), rng.below(3));
            let sent = match rng.below(3) {
                0 => node.input(node.net, &data(&uri, 0)),
                1 => node.step(),
                _ => {
                    let depth = 1 + rng.below(3) as usize;
                    let prefix = name(&uri).as_ref().prefix(depth).to_string();
                    let sent = node.input(
                        node.app,
                        &interest(&prefix, step, |i| i.can_be_prefix = true),
                    );
                    if !sent.iter().any(|sent| sent.is_data()) {
                        waiting.insert(prefix);
                    }
                    sent
                }
            };
            let _ = sent;
        }
        while !node.rings.is_empty() {
            node.step();
        }
        for worker in &node.workers {
            for id in worker.pit().ids() {
                let pending = worker.pit().get(id).unwrap().packet().to_vec();
                let ask = Interest::parse(&pending).unwrap();
                let mut store = worker.store().clone();
                let cached = store.find(&ask, &(), node.now, |packet| {
                    Data::parse(packet).unwrap().name.to_string()
                });
                assert_eq!(cached, None, "seed {seed}: {} waits", ask.name);
                assert!(waiting.contains(&ask.name.to_string()));
            }
        }
    }
}
