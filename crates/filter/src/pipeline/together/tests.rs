use alloc::sync::Arc;
use core::time::Duration;

use tables::memory::{Memory, Plain};
use tables::segment::{Segment, SegmentError};

use super::super::recovery::tests::{KEY, START, rig_of};
use super::super::tests::{HOST, INSIDE, OTHER_HOST, OUTER, PEER, Rig, small, v4};
use super::*;
use crate::testing::udp_frame;

const PARTICIPANTS: usize = 4;
const FIRST: Range<usize> = 0..2;
const SECOND: Range<usize> = 2..4;

/// Reserves in a segment and notes where the last object ends.
struct Counting<'a>(&'a Segment, usize);

impl Source for Counting<'_> {
    type Error = SegmentError;
    fn take<T: Plain>(&mut self, name: &str, len: usize) -> Result<Memory<T>, SegmentError> {
        self.1 += (size_of::<T>() * len).next_multiple_of(4096);
        self.0.take(name, len)
    }
}

fn segment() -> Segment {
    let tables = SharedMemory::segment_bytes(&small());
    let bytes = Segment::OVERHEAD_BYTES + tables + Coordination::segment_bytes(PARTICIPANTS);
    let segment = Segment::memfd("together", bytes, 1).unwrap();
    let mut source = Counting(&segment, 0);
    Coordination::from_source(&mut source, PARTICIPANTS).unwrap();
    assert_eq!(source.1, Coordination::segment_bytes(PARTICIPANTS));
    segment
}

/// The engine of a process that has these places.
fn process(mut segment: &Segment, places: Range<usize>) -> Rig {
    let memory = SharedMemory::from_source(&mut segment, &small()).unwrap();
    let coordination = Coordination::from_source(&mut segment, PARTICIPANTS).unwrap();
    let policy = TrackPolicy::default();
    let shared = Shared::beside_others(policy, KEY, memory, coordination, places, START);
    rig_of(&Arc::new(shared), 0, START)
}

#[test]
fn what_one_process_expects_the_others_let_in() {
    use crate::alg::expectation::{Added, Expectation};
    use crate::track::timeout::Tick;

    let segment = segment();
    let (mut first, second) = (process(&segment, FIRST), process(&segment, SECOND));
    first.out((HOST, 5000), (PEER, 53));
    let [ours, theirs] = [&first, &second].map(|rig| Arc::clone(rig.worker.shared()));
    let master = ours.each::<tables::signature::Session4>().next().unwrap();
    let mut handles = [&ours, &theirs].map(|shared| shared.expectations().join().unwrap());
    let now = Tick::of(START);
    let expectation = Expectation {
        deadline: now,
        master,
        is_ipv4: true,
        by_reply: false,
        port: 7000,
        is_mapped: false,
        address: HOST.to_bits(),
    };
    let mapped = |address: core::net::Ipv4Addr| crate::track::key::mapped(address.to_bits());
    let key = wire::FlowKey {
        source: mapped(PEER),
        source_port: 0,
        destination: mapped(OUTER),
        destination_port: 7000,
        protocol: wire::ip_protocol::UDP,
    };
    let added = ours
        .expectations()
        .add(&mut handles[0], &key, expectation, now);
    assert_eq!(added, Added::New);
    assert_eq!(theirs.expectations().count(), 1);
    let from = wire::FlowKey {
        source_port: 99,
        ..key
    };
    let found = theirs.expectations().find(&from, now).unwrap();
    assert_eq!(
        (found.expectation.port, found.expectation.master),
        (7000, master)
    );
    assert!(theirs.expectations().take(&mut handles[1], &found));
    assert_eq!(ours.expectations().count(), 0);
    assert_eq!(ours.expectations().find(&from, now), None);
}

#[test]
fn processes_have_connections_mappings_and_ports_in_common() {
    let segment = segment();
    let (mut first, mut second) = (process(&segment, FIRST), process(&segment, SECOND));
    second.rules.epoch = 2;
    // What one opens, the other passes on, in both directions and as the same endpoint.
    let (_, outer) = first.out((HOST, 5000), (PEER, 53));
    assert_eq!(second.back((PEER, 53), (OUTER, outer)), Ok((HOST, 5000)));
    assert_eq!(second.out((HOST, 5000), (PEER, 53)).1, outer);
    assert_eq!(second.out((HOST, 5000), (PEER, 54)).1, outer);
    assert_eq!(first.worker.shared().connections(), 2);
    // No port is given out twice, also of addresses that the other has numbered.
    let other = second.out((OTHER_HOST, 5000), (PEER, 53)).1;
    assert_ne!(other, outer);
    assert_eq!(
        first.back((PEER, 53), (OUTER, other)),
        Ok((OTHER_HOST, 5000))
    );
    // Either ends all of them when their time has come.
    for _ in 0..3 {
        for rig in [&mut first, &mut second] {
            rig.now = rig.now + Duration::from_secs(700);
            rig.worker.maintain(rig.now, usize::MAX / 2);
        }
    }
    let shared = second.worker.shared();
    assert_eq!((shared.connections(), shared.nat().mappings()), (0, 0));
    assert_eq!(shared.nat().ports_in_use(), 0);
}

#[test]
fn the_places_of_a_dead_process_are_freed_and_taken_again() {
    let segment = segment();
    let mut first = process(&segment, FIRST);
    let mut dead = process(&segment, SECOND);
    let (_, outer) = dead.out((HOST, 5000), (PEER, 53));
    // As killed: it leaves no place.
    core::mem::forget(dead);
    // While it counts as there, what is removed is not used again.
    let slots = first.worker.shared().flows4.slots();
    let refused = |rig: &mut Rig| {
        let mut opened = 0;
        while opened < 2 * slots {
            let port = 1 + (opened % 60_000) as u16;
            let frame = udp_frame(v4(OTHER_HOST, PEER), (port, 53), b"out");
            if rig.send(INSIDE, frame).is_err() {
                break;
            }
            rig.now = rig.now + Duration::from_secs(700);
            rig.worker.maintain(rig.now, usize::MAX / 2);
            rig.worker.maintain(rig.now, usize::MAX / 2);
            opened += 1;
        }
        opened < 2 * slots
    };
    assert_eq!(first.back((PEER, 53), (OUTER, outer)), Ok((HOST, 5000)));
    assert!(refused(&mut first));
    first.worker.shared().evict(SECOND);
    first.worker.maintain(first.now, usize::MAX / 2);
    assert!(!refused(&mut first));
    // Its successor has its places.
    let mut second = process(&segment, SECOND);
    second.now = first.now;
    let (_, outer) = second.out((HOST, 6000), (PEER, 53));
    assert_eq!(first.back((PEER, 53), (OUTER, outer)), Ok((HOST, 6000)));
}
