//! A process whose two workers make, use and end connections on one segment is stopped at any instruction, many
//! times. What is in the segment then is what a kill at this instruction leaves (stores are visible, locks are
//! not there): each time, a copy of it is taken over and must be whole. The last time, it is really killed.

use alloc::string::String;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::println;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tables::memory::Memory;
use tables::segment::Segment;

use super::super::tests::{HOST, OUTER, PEER, Rig, small};
use super::tests::{KEY, START, rig_of};
use super::*;
use crate::nat::mapping::{Filtering, NatPolicy};

/// Where the child is to have its segment.
const PATH: &str = "TIDEGATE_RECOVERY_SEGMENT";
/// Connections that the child keeps alive all the time.
const MARKERS: u16 = 5;
const MARKER: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 9);

fn policy() -> TrackPolicy {
    TrackPolicy {
        per_source: 40,
        nat: NatPolicy {
            filtering: Filtering::Address,
            quarantine_s: 2,
            ..NatPolicy::default()
        },
        ..TrackPolicy::default()
    }
}

fn bytes() -> usize {
    Segment::OVERHEAD_BYTES + SharedMemory::segment_bytes(&small()) + 4096
}

fn memory(segment: &Segment) -> (SharedMemory, Memory<AtomicU64>) {
    let mut source = segment;
    let memory = SharedMemory::from_source(&mut source, &small()).unwrap();
    (memory, source.take("clock", 1).unwrap())
}

/// Not a test of its own: what the child does until it is killed.
#[test]
fn child() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let segment = Segment::create(path.as_ref(), bytes(), 1).unwrap();
    let (memory, clock) = memory(&segment);
    clock[0].store(START.as_ns(), Ordering::Relaxed);
    let (shared, _) = Shared::recover(&small(), policy(), KEY, memory, START);
    let shared = alloc::sync::Arc::new(shared);
    let mut markers = rig_of(&shared, 2, START);
    let mut refresh = |now| {
        markers.now = now;
        for n in 0..MARKERS {
            markers.out((MARKER, 7000 + n), (PEER, 53));
            markers.back((PEER, 53), (OUTER, 7000 + n)).unwrap();
        }
        markers.worker.maintain(now, 0);
    };
    refresh(START);
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::thread::scope(|scope| {
        for index in 0..2_u16 {
            let (shared, clock) = (&shared, &clock);
            scope.spawn(move || work(rig_of(shared, index, START), &clock[0]));
        }
        loop {
            refresh(Instant::from_ns(clock[0].load(Ordering::Relaxed)));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// One worker: hosts open connections by few ports, to many peers, in a time that runs fast.
fn work(mut rig: Rig, clock: &AtomicU64) {
    loop {
        let step = Duration::from_millis(3).as_nanos() as u64;
        rig.now = Instant::from_ns(clock.fetch_add(step, Ordering::Relaxed));
        let random = rig.worker.random();
        let host = Ipv4Addr::from_bits(HOST.to_bits() + (random & 7));
        let peer = Ipv4Addr::from_bits(PEER.to_bits() + (random >> 4 & 3));
        let (port, to) = (
            5000 + (random >> 8 & 15) as u16,
            50 + (random >> 16 & 7) as u16,
        );
        let frame = crate::testing::udp_frame(
            wire::Addresses::V4 {
                source: host,
                destination: peer,
            },
            (port, to),
            b"out",
        );
        // May be refused: too many connections of one source.
        let _ = rig.send(super::super::tests::INSIDE, frame);
        rig.worker.maintain(rig.now, 64);
    }
}

/// Takes a segment over, looks at all that must hold, and lets all connections end.
fn check(path: &Path) -> Recovery {
    let segment = Segment::recover(path, 1).unwrap();
    let (memory, clock) = memory(&segment);
    let now = Instant::from_ns(clock[0].load(Ordering::Relaxed));
    let (shared, recovery) = Shared::recover(&small(), policy(), KEY, memory, now);
    assert_eq!((recovery.torn, recovery.connections_ended), (0, 0));
    assert_eq!(recovery.nat.restored, 0, "mappings go after connections");
    let shared = alloc::sync::Arc::new(shared);
    let mut uses = std::collections::HashMap::<_, u16>::new();
    let mut sources = std::collections::HashMap::<_, u64>::new();
    for connection in shared.each::<Session4>() {
        let (record, original, reply) = shared.look::<Session4>(connection).unwrap();
        let [mapping, _] = mappings_of(&record.life(), &original, &reply);
        let (inner, outer) = mapping.unwrap();
        assert_eq!(shared.nat.outer_of(inner), Some(outer));
        assert_eq!(shared.nat.inner_of(outer), Some(inner));
        assert_eq!(shared.nat.admit(outer, unmapped(reply.source)), Some(inner));
        *uses.entry(inner).or_default() += 1;
        *sources.entry(source_id(&original)).or_default() += 1;
    }
    assert_eq!(shared.nat.uses(), uses);
    assert_eq!(shared.nat.ports_in_use(), recovery.nat.mappings);
    for (source, count) in sources {
        assert_eq!(shared.sources.get(source), count);
    }
    let mut rig = rig_of(&shared, 0, now);
    for n in 0..MARKERS {
        let back = rig.back((PEER, 53), (OUTER, 7000 + n));
        assert_eq!(back, Ok((MARKER, 7000 + n)), "a committed connection");
    }
    for _ in 0..3 {
        rig.now = rig.now + Duration::from_secs(700);
        rig.worker.maintain(rig.now, usize::MAX / 2);
        rig.worker.maintain(rig.now, usize::MAX / 2);
    }
    assert_eq!((shared.connections(), shared.nat.mappings()), (0, 0));
    assert_eq!(shared.nat.ports_in_use(), 0);
    recovery
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_at_any_instruction() {
    let rounds = std::env::var("TIDEGATE_KILLS").map_or(40, |rounds| rounds.parse().unwrap());
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("segment");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pipeline::recovery::kill::child", "--nocapture"])
        .env(PATH, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    // Kept open: the child's test runner may have more to say.
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    while !line.ends_with("ready\n") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child ended");
    }
    let pid = Pid::from_raw(child.0.id() as i32).unwrap();
    let copy = directory.path().join("copy");
    let mut half_done = 0;
    for round in 0..rounds {
        std::thread::sleep(Duration::from_micros(200 + round % 7 * 300));
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        let stopped = stopped.is_some_and(|(_, status)| status.stopped());
        assert!(stopped, "the child lives");
        std::fs::copy(&path, &copy).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        let recovery = check(&copy);
        half_done += recovery.unfinished + recovery.nat.counts_corrected + recovery.nat.removed;
    }
    assert!(half_done > 0, "no stop was in the middle of anything");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert!(check(&path).connections >= usize::from(MARKERS));
}
