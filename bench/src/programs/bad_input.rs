//! Feeds the node captures of real and broken traffic, the same with bits flipped and bytes cut off, and
//! random bytes: nothing may panic, and every frame must end in a counter:
//! `cargo run --release -p tidegate-bench -- bad_input`.
//!
//! What is accounted for: the frames that the host sent are those that the node received; in every stage
//! of the packet graph, what entered left by an edge, was dropped with a reason, or was consumed (a stage
//! that makes frames of its own may give out more than entered); and in the end every frame of every pool
//! is free again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bench::node::{BRIDGE, MemNode, ROUTER, ROUTER_MACS, Sizes};
use bench::{Options, Report, Table};
use clap::Parser;
use flate2::read::GzDecoder;
use graph::{Mode, Next, NodeCounters};
use io::pcap::Capture;
use serde_json::json;
use wire::Instant;

const SIZES: Sizes = Sizes {
    node_frames: 1024,
    host_frames: 1024,
    depth: 512,
};
/// Stages that only pass on, drop or consume what they get.
const PASSIVE: [&str; 4] = ["eth-input", "ip4-forward", "ip6-forward", "tx"];

/// Feeds the node broken traffic and counts what becomes of it.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Directory of captures; its files that end in `.pcap` or `.pcap.gz` are read.
    #[arg(long, default_value = "../shared/data/pcaps")]
    captures: PathBuf,
    /// Frames of random bytes.
    #[arg(long, default_value_t = 1_000_000)]
    random: u64,
    /// Broken copies of each captured frame.
    #[arg(long, default_value_t = 100)]
    copies: u64,
    /// Seed of what is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// xorshift64*: the same frames everywhere for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.below(1514);
        let mut bytes: Vec<u8> = (0..length).map(|_| self.next() as u8).collect();
        // Half of them look like a protocol at least to the first look.
        if let Some(ethertype) = bytes.get_mut(12..14) {
            let known: [[u8; 2]; 4] = [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]];
            if self.next().is_multiple_of(2) {
                ethertype.copy_from_slice(&known[self.below(4)]);
            }
        }
        self.address(&mut bytes);
        bytes
    }

    /// Addresses half of the frames to the router, so that they get past its first look.
    fn address(&mut self, bytes: &mut [u8]) {
        if self.next().is_multiple_of(2)
            && let Some(destination) = bytes.first_chunk_mut::<6>()
        {
            *destination = ROUTER_MACS[0];
        }
    }

    fn broken(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        if self.next().is_multiple_of(4) {
            bytes.truncate(self.below(frame.len()));
        }
        self.address(&mut bytes);
        for _ in 0..self.below(8) {
            let at = self.below(bytes.len().min(100));
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (self.next() % 8);
            }
        }
        bytes
    }
}

fn captured(directory: &Path) -> Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .with_context(|| format!("no captures in {} (--captures)", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".pcap") || name.ends_with(".pcap.gz")
        })
        .collect();
    files.sort();
    let mut frames = Vec::new();
    for file in &files {
        let bytes = std::fs::File::open(file)?;
        let capture = if file.extension().is_some_and(|end| end == "gz") {
            Capture::read(GzDecoder::new(bytes))
        } else {
            Capture::read(bytes)
        }
        .with_context(|| file.display().to_string())?;
        frames.extend(capture.packets().map(|packet| packet.data.to_vec()));
    }
    ensure!(
        !frames.is_empty(),
        "no captured frame in {}",
        directory.display()
    );
    Ok(frames)
}

/// A node, and what was sent to it.
struct Feed {
    node: MemNode,
    now_ns: u64,
    sent: u64,
}

impl Feed {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        if self.node.left.send(bytes, 1) == 0 {
            self.step();
            ensure!(self.node.left.send(bytes, 1) == 1, "the node has stalled");
        }
        self.sent += 1;
        if self.sent.is_multiple_of(32) {
            self.step();
        }
        Ok(())
    }

    fn step(&mut self) -> Next {
        self.now_ns += 10_000;
        let next = self.node.worker.step(Instant::from_ns(self.now_ns));
        while self.node.left.receive(|_| ()) + self.node.right.receive(|_| ()) > 0 {}
        next
    }

    /// Ends the node; returns frames that no counter explains, and frames missing from the pools.
    fn end(mut self) -> Result<(u64, u64)> {
        for _ in 0..1000 {
            self.step();
        }
        self.node.handle.drain()?;
        let mut steps = 0;
        while self.step() != Next::Stopped {
            steps += 1;
            ensure!(steps < 1_000_000, "the node does not stop");
        }
        let counters = self.node.handle.counters();
        let invalid: u64 = counters.ports.iter().map(|p| p.rx_invalid_pkts.get()).sum();
        let mut unexplained = self.sent.abs_diff(counters.rx_pkts.get() + invalid);
        for stage in counters.nodes.iter() {
            unexplained += lost_in(stage, counters.tx_pkts.get());
        }
        let end = self
            .node
            .worker
            .report()
            .context("the worker has stopped")?;
        let hosts = self.node.left.close() + self.node.right.close();
        Ok((unexplained, (end.frames - end.home + hosts) as u64))
    }
}

/// Returns how many frames entered a stage and did not leave it, or left a passive one from nowhere.
fn lost_in(stage: &NodeCounters, sent: u64) -> u64 {
    let edges: u64 = stage.edges.iter().map(|edge| edge.pkts.get()).sum();
    let sent = if stage.name == "tx" { sent } else { 0 };
    let out = edges + sent + stage.dropped_pkts() + stage.consumed_pkts.get();
    if PASSIVE.contains(&stage.name.as_str()) {
        stage.pkts.get().abs_diff(out)
    } else {
        stage.pkts.get().saturating_sub(out)
    }
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    let captured = captured(&arguments.captures)?;
    let mut report = Report::new("bad_input");
    let columns = ["node", "frames", "not explained", "missing from pools"];
    let mut table = Table::new(
        "Captures, broken copies of them, and random bytes",
        &columns,
    );
    let (mut frames, mut unaccounted) = (0, 0);
    for (name, configuration) in [("router", ROUTER), ("bridge", BRIDGE)] {
        let mut random = Random(arguments.seed | 1);
        let mut feed = Feed {
            node: MemNode::new(configuration, SIZES, Mode::Poll)?,
            now_ns: 0,
            sent: 0,
        };
        for frame in &captured {
            feed.send(frame)?;
            for _ in 0..arguments.copies {
                feed.send(&random.broken(frame))?;
            }
        }
        for _ in 0..arguments.random {
            feed.send(&random.bytes())?;
        }
        let sent = feed.sent;
        let (unexplained, missing) = feed.end()?;
        let cells = vec![json!(name), json!(sent), json!(unexplained), json!(missing)];
        table.rows.push(cells);
        frames += sent;
        unaccounted += unexplained + missing;
    }
    report.figure("frames", frames as f64);
    report.figure("captured_frames", captured.len() as f64);
    report.figure("unaccounted_pkts", unaccounted as f64);
    report.table(table);
    report.print(&arguments.options);
    Ok(())
}
