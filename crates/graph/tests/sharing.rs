//! No cache line that one worker writes for a packet is any other worker's: where the counters, frames and
//! rings of two workers of one node lie.

mod common;

use std::collections::HashMap;

use graph::{IdleConfig, Mode, TxFull, Worker, WorkerCounters, WorkerHandle, WorkerPort};
use io::{HugePages, Pool, mem};
use wire::Instant;

use common::{Host, open, patch_graph};

/// A cache line; two, as processors fetch them in pairs.
const LINES_BYTES: usize = 128;
const WORKERS: u16 = 2;
const PKTS: usize = 100;

/// Two workers of one node, each with its own queue of two ports.
fn node() -> (Vec<(Worker, WorkerHandle)>, [Vec<Host>; 2]) {
    let mut queues = Vec::new();
    let mut hosts = [Vec::new(), Vec::new()];
    let pools = Pool::split(256, WORKERS, 2048, HugePages::Never).unwrap();
    for (id, hosts) in (0..2).zip(&mut hosts) {
        for _ in 0..WORKERS {
            let (far, near) = mem::link(mem::LinkSpec::default());
            hosts.push(Host::new(far));
            queues.push(open(&pools[0], id, near, 1).remove(0));
        }
    }
    // As the hosts: port by port, one a worker.
    let mut second = queues.split_off(usize::from(WORKERS));
    let workers = pools
        .into_iter()
        .zip(graph::mesh(WORKERS, 64).unwrap())
        .map(|(pool, mesh)| {
            let port = |queue| WorkerPort {
                queue: Some(queue),
                tx_via: mesh.id(),
                spread: false,
                mode: Mode::Poll,
                tx_full: TxFull::default(),
            };
            let ports = vec![port(queues.remove(0)), port(second.remove(0))];
            let setup = graph::WorkerSetup {
                pool,
                ports,
                graph: patch_graph(),
                mesh,
                spread: None,
                idle: IdleConfig::default(),
                cpu_time: None,
            };
            Worker::new(setup, Instant::ZERO)
        })
        .collect();
    (workers, hosts)
}

/// Returns the address ranges that a worker's counters take.
fn counter_ranges(counters: &WorkerCounters) -> Vec<(usize, usize)> {
    fn range<T>(value: &T) -> (usize, usize) {
        (std::ptr::from_ref(value) as usize, size_of::<T>())
    }
    let nodes = counters.nodes.iter();
    let edges = nodes.clone().flat_map(|node| node.edges.iter().map(range));
    let mut ranges = vec![range(counters)];
    ranges.extend(counters.ports.iter().map(range));
    ranges.extend(edges);
    ranges.extend(nodes.map(range));
    ranges
}

#[test]
fn what_a_worker_counts_is_in_lines_of_its_own() {
    let (mut workers, mut hosts) = node();
    let mut owners = HashMap::new();
    for (owner, (_, handle)) in workers.iter().enumerate() {
        for (start, bytes) in counter_ranges(handle.counters()) {
            assert_eq!(
                start % LINES_BYTES,
                0,
                "{start:#x} shares a line with what is before"
            );
            assert_eq!(
                bytes % LINES_BYTES,
                0,
                "{bytes} bytes share a line with what is behind"
            );
            for lines in start / LINES_BYTES..(start + bytes) / LINES_BYTES {
                assert_eq!(
                    owners.insert(lines, owner),
                    None,
                    "two counters in one line"
                );
            }
        }
    }
    assert!(owners.len() > 20, "{} pairs of lines", owners.len());
    // They are what is written: every packet of a worker is in its counters, and in no other's.
    for worker in 0..workers.len() {
        assert_eq!(hosts[0][worker].send(b"a frame of one worker", PKTS), PKTS);
        for step in 0..20 {
            workers[worker].0.step(Instant::from_ns(step * 1000));
        }
        assert_eq!(hosts[1][worker].receive(), PKTS);
        for (other, (_, handle)) in workers.iter().enumerate() {
            let counters = handle.counters();
            let expected = if other <= worker { PKTS as u64 } else { 0 };
            let node: u64 = counters.nodes[0].pkts.get();
            assert_eq!((counters.rx_pkts.get(), node), (expected, expected));
        }
    }
}

#[test]
fn frames_of_two_pools_are_in_lines_of_their_own() {
    let mut pools = Pool::split(64, WORKERS, 2048, HugePages::Never).unwrap();
    let mut owners = HashMap::new();
    for (owner, pool) in pools.iter_mut().enumerate() {
        let mut frames = Vec::new();
        while let Some(frame) = pool.alloc() {
            let slot = frame.slot().as_ptr() as usize;
            assert_eq!(slot % LINES_BYTES, 0);
            for lines in slot / LINES_BYTES..(slot + 2048) / LINES_BYTES {
                assert_eq!(owners.insert(lines, owner), None);
            }
            frames.push(frame);
        }
        for frame in frames {
            pool.free(frame);
        }
    }
    assert_eq!(owners.len(), 2 * 64 * 2048 / LINES_BYTES);
}
