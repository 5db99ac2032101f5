//! Takes over a table of a million sessions, as a node that is started again does: all are counted, all go on, each in
//! both directions: `cargo run --release -p tidegate-bench -- fw_takeover`.

use std::sync::Arc;

use bench::firewall::{Engine, Frames, Kind, MASQUERADE, Maker, Tuple, sizes};
use bench::{Options, Report, Table, median};
use clap::Parser;
use filter::pipeline::{BATCH_MAX, LAYOUT_VERSION, Recovery, Shared, SharedMemory, TrackPolicy};
use serde_json::json;
use tables::segment::Segment;

/// Takes over a table of many sessions.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Sessions: TCP connections through NAT.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1024..))]
    flows: u32,
}

const KEY: [u64; 4] = [1, 2, 3, 4];

/// Takes over what lies in the segment, or makes it; returns the engine, what was found, and how long that took,
/// milliseconds of processor time.
fn engine(segment: &Segment, flows: usize) -> (Engine, Recovery, f64) {
    let sizes = sizes(flows);
    let memory = SharedMemory::from_source(&mut &*segment, &sizes).expect("objects of these sizes");
    let begin = io::cpu::thread_time();
    let policy = TrackPolicy::default();
    let (shared, recovery) = Shared::recover(&sizes, policy, KEY, memory, io::cpu::now());
    let took = (io::cpu::thread_time() - begin).as_secs_f64() * 1e3;
    (Engine::with(MASQUERADE, Arc::new(shared), 0), recovery, took)
}

/// Sends one packet of a kind for each flow; returns how many pass.
fn send(engine: &mut Engine, flows: usize, kind: Kind) -> usize {
    let (maker, mut frames, mut passed) = (Maker::default(), Frames::default(), 0);
    for first in (0..flows).step_by(BATCH_MAX) {
        frames.len = 0;
        for flow in first..flows.min(first + BATCH_MAX) {
            maker.push(&mut frames, kind, &Tuple::shared(flow));
        }
        passed += engine.batch(&mut frames, io::cpu::now());
    }
    passed
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let flows = arguments.flows as usize;
    let bytes = Segment::OVERHEAD_BYTES + SharedMemory::segment_bytes(&sizes(flows));
    let segment = Segment::memfd("takeover", bytes, LAYOUT_VERSION.into()).expect("memory");
    let (mut first, ..) = engine(&segment, flows);
    for kind in [Kind::Syn, Kind::SynAck, Kind::Data(0), Kind::Acked(0)] {
        assert_eq!(send(&mut first, flows, kind), flows, "every connection opens");
    }
    drop(first);
    let (mut samples, mut lost, mut found) = (Vec::new(), 0, Recovery::default());
    for round in 0..arguments.options.rounds {
        // As after a kill: nobody has said good-bye, the tables lie as they were.
        let (mut next, recovery, took) = engine(&segment, flows);
        samples.push(took);
        let step = round as u32 + 1;
        for kind in [Kind::Data(step), Kind::Acked(step)] {
            lost += flows - send(&mut next, flows, kind);
        }
        lost += flows - recovery.connections;
        found = recovery;
    }
    let mut report = Report::new("fw_takeover");
    let mut table = Table::new(
        "Takeover of the firewall's tables",
        &["sessions", "mappings", "repaired", "lost", "ms", "ns a session"],
    );
    let ms = median(&samples);
    table.rows.push(vec![
        json!(found.connections),
        json!(found.nat.mappings),
        json!(found.repairs()),
        json!(lost),
        json!(ms),
        json!(ms * 1e6 / flows as f64),
    ]);
    report.table(table);
    report.figure("sessions", found.connections as f64);
    report.figure("lost", lost as f64);
    report.figure("takeover_ms", ms);
    report.note("lost: sessions that were not found, or packets of them that did not pass afterwards, over all rounds");
    report.print(&arguments.options);
}
