use alloc::sync::Arc;
use alloc::vec::Vec;

use tables::memory::{Memory, Plain};
use tables::segment::{Segment, SegmentError};

use super::super::tests::{HOST, INSIDE, OTHER_HOST, OUTER, PEER, Rig, small};
use super::super::{Stateful, Worker};
use super::*;
use crate::nat::mapping::{Filtering, MappingRequest, NatPolicy};

pub(in crate::pipeline) const KEY: [u64; 4] = [5, 6, 7, 8];

/// A segment in a memory file; each process that looks into it maps it again.
struct File(Segment);

impl File {
    fn new() -> Self {
        let bytes = Segment::OVERHEAD_BYTES + SharedMemory::segment_bytes(&small());
        Self(Segment::memfd("recovery", bytes, 1).unwrap())
    }

    fn memory(&self) -> SharedMemory {
        SharedMemory::from_source(&mut &self.0, &small()).unwrap()
    }

    /// An engine that takes over what is there.
    fn rig(&self, policy: TrackPolicy, now: Instant) -> (Rig, Recovery) {
        let (shared, recovery) = Shared::recover(&small(), policy, KEY, self.memory(), now);
        (rig_of(&Arc::new(shared), 0, now), recovery)
    }
}

/// A worker of the tables, as a router that masquerades.
pub(in crate::pipeline) fn rig_of(shared: &Arc<Shared>, index: u16, now: Instant) -> Rig {
    Rig {
        worker: Worker::new(Arc::clone(shared), index, 7).unwrap(),
        rules: Stateful {
            inside: INSIDE,
            masquerade: true,
            random: false,
            epoch: 1,
        },
        now,
    }
}

fn policy() -> TrackPolicy {
    TrackPolicy {
        per_source: 100,
        nat: NatPolicy {
            filtering: Filtering::Address,
            ..NatPolicy::default()
        },
        ..TrackPolicy::default()
    }
}

pub(in crate::pipeline) const START: Instant = Instant::from_ns(1_000_000_000_000);

#[test]
fn the_segment_is_as_long_as_it_is_said() {
    /// Reserves in a segment and notes where the last object ends.
    struct Counting<'a>(&'a Segment, usize);
    impl Source for Counting<'_> {
        type Error = SegmentError;
        fn take<T: Plain>(&mut self, name: &str, len: usize) -> Result<Memory<T>, SegmentError> {
            self.1 += (size_of::<T>() * len).next_multiple_of(4096);
            self.0.take(name, len)
        }
    }
    let file = File::new();
    let mut source = Counting(&file.0, 0);
    SharedMemory::from_source(&mut source, &small()).unwrap();
    assert_eq!(source.1, SharedMemory::segment_bytes(&small()));
}

#[test]
fn connections_mappings_ports_and_counts_outlive_their_process() {
    let file = File::new();
    let (mut rig, first) = file.rig(policy(), START);
    assert_eq!(first, Recovery::default());
    let outer: Vec<_> = (0..20)
        .map(|n| rig.out((HOST, 5000 + n), (PEER, 53)).1)
        .collect();
    rig.out((OTHER_HOST, 5000), (PEER, 53));
    drop(rig);
    let (mut rig, second) = file.rig(policy(), START);
    let nat = NatRepairs {
        mappings: 21,
        ..NatRepairs::default()
    };
    let wanted = Recovery {
        connections: 21,
        nat,
        ..Recovery::default()
    };
    assert_eq!(second, wanted);
    // Answers find their way, also from another port of an address that was asked.
    for (n, &outer) in (0..).zip(&outer) {
        assert_eq!(rig.back((PEER, 53), (OUTER, outer)), Ok((HOST, 5000 + n)));
        assert_eq!(rig.back((PEER, 99), (OUTER, outer)), Ok((HOST, 5000 + n)));
    }
    // The same endpoint keeps its mapping, and nobody else gets its port.
    assert_eq!(rig.out((HOST, 5000), (PEER, 54)).1, outer[0]);
    let other = rig.out((OTHER_HOST, 5001), (PEER, 53)).1;
    assert!(!outer.contains(&other));
    let shared = Arc::clone(rig.worker.shared());
    assert_eq!(shared.sources.get(u64::from(HOST.to_bits())), 21);
    // All goes when its time has come.
    for _ in 0..3 {
        rig.now = rig.now + core::time::Duration::from_secs(700);
        rig.worker.maintain(rig.now, usize::MAX / 2);
        rig.worker.maintain(rig.now, usize::MAX / 2);
    }
    assert_eq!((shared.connections(), shared.nat.mappings()), (0, 0));
    assert_eq!(shared.nat.ports_in_use(), 0);
    assert_eq!(shared.sources.get(u64::from(HOST.to_bits())), 0);
}

#[test]
fn what_was_half_done_is_set_right() {
    let file = File::new();
    let (mut rig, _) = file.rig(policy(), START);
    rig.out((HOST, 5000), (PEER, 53));
    rig.out((HOST, 5001), (PEER, 53));
    // As killed after a mapping was made or used, before its connection was.
    let space = PortSpace::Udp;
    let endpoint = |port| Endpoint {
        address: HOST.to_bits(),
        port,
        space,
    };
    for port in [5000, 6000] {
        let request = MappingRequest {
            inner: endpoint(port),
            first: OUTER.to_bits(),
            last: OUTER.to_bits(),
            ports: None,
            random: false,
        };
        let shared = Arc::clone(rig.worker.shared());
        let nat = &mut rig.worker.nat;
        shared.nat.acquire(nat, &request, 0, START).unwrap();
    }
    // As killed between the two records of a mapping.
    rig.worker.shared.nat.forget_inner(endpoint(5001));
    drop(rig);
    let (mut rig, recovery) = file.rig(policy(), START);
    let wanted = NatRepairs {
        mappings: 3,
        counts_corrected: 2,
        restored: 1,
        removed: 0,
    };
    assert_eq!((recovery.connections, recovery.nat), (2, wanted));
    assert_eq!(rig.back((PEER, 53), (OUTER, 5001)), Ok((HOST, 5001)));
    assert_eq!(rig.worker.shared.nat.ports_in_use(), 3);
    // The mapping of no connection leaves its port after the quarantine, the others with their connections.
    rig.now = rig.now + core::time::Duration::from_secs(121);
    rig.worker.maintain(rig.now, usize::MAX / 2);
    assert_eq!(rig.worker.shared.nat.outer_of(endpoint(6000)), None);
}
