//! Shows what a node does when it has no memory left for packets, and that no frame is ever lost to the
//! books: `cargo run --release -p tidegate-bench -- exhaustion`.
//!
//! A worker of the product, on a thread of its own, bridges between two hosts over links in memory. Every
//! so often the right host stops receiving: all of the node's frames gather in the link, and what arrives
//! then must be refused and counted, without a stall. When the host receives again, a packet sent from
//! then on must come through within a millisecond (IO-2, transition 6). In the end the frames sent must
//! equal those received and those counted as refused, and every pool must be full again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::node::{BRIDGE, HOST_MACS, MemNode, Sizes};
use bench::{Options, Report, Table, median};
use clap::Parser;
use graph::{Mode, runner};
use lab::traffic::Profile;
use serde_json::json;

const SIZES: Sizes = Sizes {
    node_frames: 1024,
    host_frames: 4096,
    // More than the node has frames: they run out before the link is full.
    depth: 4096,
};
const BURST: usize = 64;
/// Nothing takes longer than this, or the program has found a stall.
const PATIENCE: Duration = Duration::from_secs(10);

/// Shows what a node does when it has no memory left for packets.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Frames to forward in all.
    #[arg(long, default_value_t = 100_000_000)]
    frames: u64,
    /// How often to take the node's memory away.
    #[arg(long, default_value_t = 200)]
    exhaustions: u64,
}

/// The two hosts and what they have seen.
struct Traffic {
    node: MemNodeEnds,
    plain: Vec<u8>,
    marked: Vec<u8>,
    sent: u64,
    received: u64,
}

/// A running node's hosts and counters.
struct MemNodeEnds {
    left: bench::node::Host,
    right: bench::node::Host,
    handle: graph::WorkerHandle,
}

impl Traffic {
    fn send(&mut self, marked: bool, count: usize) -> usize {
        let frame = if marked { &self.marked } else { &self.plain };
        let sent = self.node.left.send(frame, count);
        self.sent += sent as u64;
        sent
    }

    /// Receives one burst; tells how many frames, and whether a marked one was among them.
    fn receive(&mut self) -> (usize, bool) {
        let mut marked = false;
        let marked_frame = &self.marked;
        let received = self
            .node
            .right
            .receive(|data| marked |= data == marked_frame);
        // Takes back what the node has copied.
        self.node.left.receive(|_| ());
        self.received += received as u64;
        (received, marked)
    }

    fn refused(&self) -> u64 {
        let counters = self.node.handle.counters();
        let ports = counters.ports.iter();
        let by_ports: u64 = ports
            .map(|port| port.rx_no_frame_pkts.get() + port.rx_invalid_pkts.get())
            .sum();
        let hosts = [&self.node.left, &self.node.right].map(|host| {
            let stats = host.queue.stats();
            stats.rx_no_frame_pkts + stats.rx_invalid_pkts
        });
        by_ports + counters.dropped_pkts() + hosts.iter().sum::<u64>()
    }

    /// Takes the node's memory away and gives it back; returns the time from there until a packet sent
    /// after it is received, microseconds.
    fn exhaust(&mut self) -> Result<f64> {
        let before = self.refused();
        let start = Instant::now();
        while self.refused() < before + 256 {
            self.send(false, BURST);
            self.node.left.receive(|_| ());
            ensure!(
                start.elapsed() < PATIENCE,
                "no frame was counted as refused"
            );
        }
        let backlog = Instant::now();
        while self.receive().0 > 0 {
            ensure!(backlog.elapsed() < PATIENCE, "the backlog has no end");
        }
        let start = Instant::now();
        loop {
            self.send(true, 1);
            if self.receive().1 {
                return Ok(start.elapsed().as_nanos() as f64 / 1000.0);
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "nothing passes after the memory's return"
            );
        }
    }
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    let MemNode {
        worker,
        handle,
        left,
        right,
    } = MemNode::new(BRIDGE, SIZES, Mode::Hybrid)?;
    let thread = runner::spawn(worker, None)?;
    let example = |seed| -> Result<Vec<u8>> {
        let ips = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let macs = (HOST_MACS[0], HOST_MACS[1]);
        Ok(Profile::new(64, macs, ips, 1, seed)?.example())
    };
    let mut traffic = Traffic {
        node: MemNodeEnds {
            left,
            right,
            handle,
        },
        plain: example(1)?,
        marked: example(2)?,
        sent: 0,
        received: 0,
    };
    let mut recoveries_us = Vec::new();
    let every = arguments.frames.div_ceil(arguments.exhaustions + 1);
    let started = Instant::now();
    for round in 1..=arguments.exhaustions + 1 {
        let mut progress = Instant::now();
        while traffic.received < round * every {
            traffic.send(false, BURST);
            if traffic.receive().0 > 0 {
                progress = Instant::now();
            }
            ensure!(progress.elapsed() < PATIENCE, "the node has stalled");
        }
        if round <= arguments.exhaustions {
            recoveries_us.push(traffic.exhaust()?);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let forwarded = traffic.received;
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(50) {
        if traffic.receive().0 > 0 {
            quiet = Instant::now();
        }
    }
    traffic.node.handle.drain()?;
    let end = thread.join().context("the worker panicked")?;
    let (sent, received, refused) = (traffic.sent, traffic.received, traffic.refused());
    let missing = end.frames - end.home + traffic.node.left.close() + traffic.node.right.close();
    let uncounted = sent.abs_diff(received + refused);

    let mut report = Report::new("exhaustion");
    let worst = recoveries_us.iter().copied().fold(0.0, f64::max);
    report.figure("worst_recovery_us", worst);
    report.figure("median_recovery_us", median(&recoveries_us));
    report.figure("forwarded_pkts", forwarded as f64);
    report.figure("refused_pkts", refused as f64);
    report.figure("uncounted_pkts", uncounted as f64);
    report.figure("unaccounted_pkts", (uncounted + missing as u64) as f64);
    report.figure("forward_mpps", forwarded as f64 / seconds / 1e6);
    let mut table = Table::new("Memory taken away and given back", &["what", "value"]);
    let rows = [
        (
            "times the memory was taken away",
            json!(recoveries_us.len()),
        ),
        ("frames sent", json!(sent)),
        ("frames received", json!(received)),
        ("frames refused and counted", json!(refused)),
        ("frames missing from the pools in the end", json!(missing)),
        (
            "first packet after the return, median, us",
            json!(median(&recoveries_us)),
        ),
        ("first packet after the return, slowest, us", json!(worst)),
    ];
    table.rows = rows.map(|(what, value)| vec![json!(what), value]).into();
    report.table(table);
    report.print(&arguments.options);
    Ok(())
}
