//! Measures forwarding through the packet graph in memory, one and two workers:
//! `cargo run --release -p tidegate-bench -- graph_forward`.
//!
//! `l2` swaps MAC addresses in a graph of one node, between two rings; `ip` is the whole router: parse,
//! longest-prefix match, TTL and checksum, rewrite, between two endless sources that copy each frame.
//! The clock is read once a pass, as a real worker does.

use std::sync::Barrier;
use std::time::Duration;

use bench::allocations;
use bench::memory::{Limit, measure_mpps};
use bench::workers::{IpVersion, circle, router, step_for};
use bench::{Options, Report, Table, median, rounds};
use graph::{Worker, WorkerHandle};
use serde_json::json;

/// Frames a worker.
const FRAMES: u32 = 4096;
/// Flows from each port of the router.
const FLOWS: u16 = 1024;

type Made = (Worker, WorkerHandle);

/// Lets `count` threads, each pinned to a core of its own, measure what `make` makes at the same time;
/// returns the sum.
fn together<T>(
    count: u16,
    make: impl Fn() -> T + Sync,
    measure: impl Fn(&mut T) -> f64 + Sync,
) -> f64 {
    let cpus = io::cpu::allowed().unwrap_or_default();
    let barrier = Barrier::new(usize::from(count));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..usize::from(count))
            .map(|index| {
                let cpu = cpus.get(index).copied();
                let (barrier, make, measure) = (&barrier, &make, &measure);
                scope.spawn(move || {
                    if let Some(cpu) = cpu {
                        // Unpinned, the figure is lower; it is measured all the same.
                        let _ = io::cpu::pin(cpu);
                    }
                    let mut subject = make();
                    barrier.wait();
                    measure(&mut subject)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a measuring thread"))
            .sum()
    })
}

fn workers(count: u16, make: fn() -> Made, window: Duration) -> f64 {
    together(
        count,
        || {
            let mut made = make();
            step_for(&mut made.0, Duration::from_millis(20)); // warms up
            made
        },
        |made| {
            let mpps = step_for(&mut made.0, window);
            end(made);
            mpps
        },
    )
}

/// Drains a worker, so that it gives back its frames.
fn end((worker, handle): &mut Made) {
    handle.drain().expect("an empty mailbox");
    while worker.step(io::cpu::now()) != graph::Next::Stopped {}
    let report = worker.report().expect("the worker stopped");
    assert_eq!(report.home, report.frames, "frames are missing");
}

fn allocations_per_pkt(make: fn() -> Made) -> f64 {
    let mut made = make();
    step_for(&mut made.0, Duration::from_millis(20));
    let before = allocations::of_this_thread();
    let pkts = made.0.counters().tx_pkts.get();
    step_for(&mut made.0, Duration::from_millis(200));
    let allocated = allocations::of_this_thread() - before;
    let pkts = made.0.counters().tx_pkts.get() - pkts;
    end(&mut made);
    allocated as f64 / pkts as f64
}

pub(crate) fn main() {
    let options = bench::parse::<Options>();
    let window = options.window();
    let l2: fn() -> Made = || circle(FRAMES);
    let ip: fn() -> Made = || router(FRAMES, FLOWS, IpVersion::V4);
    let ip6: fn() -> Made = || router(FRAMES, FLOWS, IpVersion::V6);
    let limit = |count| {
        together(
            count,
            || Limit::new(FRAMES, 64),
            |limit| measure_mpps(limit, window),
        )
    };
    let samples = rounds(
        options.rounds,
        &mut [
            &mut || limit(1),
            &mut || workers(1, l2, window),
            &mut || workers(1, ip, window),
            &mut || limit(2),
            &mut || workers(2, l2, window),
            &mut || workers(2, ip, window),
            &mut || workers(1, ip6, window),
        ],
    );
    let ratio = |two: usize, one: usize| median(&samples[two]) / median(&samples[one]);
    let names = [
        "empty loop, 1 core",
        "L2, 1 worker",
        "IPv4, 1 worker",
        "empty loops, 2 cores",
        "L2, 2 workers",
        "IPv4, 2 workers",
        "IPv6, 1 worker",
    ];
    let title = format!("Forwarding through the graph in memory, {FRAMES} frames of 60 B a worker");
    let mut table = Table::new(&title, &["what", "Mpps, median", "lowest", "highest"]);
    for (name, samples) in names.iter().zip(&samples) {
        let low = samples.iter().copied().fold(f64::MAX, f64::min);
        let high = samples.iter().copied().fold(0.0, f64::max);
        let cells = vec![json!(name), json!(median(samples)), json!(low), json!(high)];
        table.rows.push(cells);
    }
    let mut report = Report::new("graph_forward");
    report.table(table);
    report.figure("empty_loop_mpps", median(&samples[0]));
    report.figure("l2_forward_mpps", median(&samples[1]));
    report.figure("ip_forward_mpps", median(&samples[2]));
    report.figure("ip6_forward_mpps", median(&samples[6]));
    report.figure("two_empty_loops_ratio", ratio(3, 0));
    report.figure("two_workers_ratio", ratio(4, 1));
    report.figure("two_ip_workers_ratio", ratio(5, 2));
    let allocations = [l2, ip, ip6].map(allocations_per_pkt);
    let allocations = allocations.into_iter().fold(0.0, f64::max);
    report.figure("allocations_per_pkt", allocations);
    report.print(&options);
}
