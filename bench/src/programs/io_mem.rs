//! Measures the in-memory L2 forward of one core: `cargo run --release -p tidegate-bench -- io_mem`.
//!
//! Every row is one forward a frame: receive a burst, work, send. Rounds of all rows are interleaved, so
//! that what disturbs the machine disturbs all; a row's figure is the median of its rounds. The `limit`
//! row is the same work on bare indices and arrays: no pool, no metadata, no driver.

use std::time::Duration;

use bench::memory::{Forwarder, Limit, measure_mpps, mem_forward, null_forward};
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use serde_json::json;

/// Measures the in-memory L2 forward of one core.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Frames that circle.
    #[arg(long, default_value_t = 4096)]
    frames: u32,
    /// Frames a burst.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    burst: u16,
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let (frames, burst) = (arguments.frames, usize::from(arguments.burst));
    let window = arguments.options.window();
    let mem = mem_forward(frames);
    let pages = mem.pages();
    let mut subjects: Vec<(&str, &str, Box<dyn Forwarder>)> = vec![
        (
            "limit",
            "MAC swap over indices in an array: no pool, metadata or driver",
            Box::new(Limit::new(frames, burst)),
        ),
        ("mem_l2", "mem port to mem port, MAC swap", Box::new(mem)),
        (
            "null_io",
            "null port to null port, frames untouched (testpmd io over net_null)",
            Box::new(null_forward(frames, burst, false, false)),
        ),
        (
            "null_l2",
            "null port to null port, MAC swap",
            Box::new(null_forward(frames, burst, false, true)),
        ),
        (
            "null_copy_l2",
            "as null_l2, each received frame copied from a template (net_null copy=1)",
            Box::new(null_forward(frames, burst, true, true)),
        ),
    ];
    for (_, _, forwarder) in &mut subjects {
        measure_mpps(forwarder.as_mut(), Duration::from_millis(20)); // warms up
    }
    let mut measured: Vec<Box<dyn FnMut() -> f64 + '_>> = subjects
        .iter_mut()
        .map(|(_, _, forwarder)| Box::new(|| measure_mpps(forwarder.as_mut(), window)) as _)
        .collect();
    let mut turns: Vec<&mut dyn FnMut() -> f64> =
        measured.iter_mut().map(|f| f.as_mut() as _).collect();
    let samples = rounds(arguments.options.rounds, &mut turns);
    drop(measured);

    let mut report = Report::new("io_mem");
    let title = format!("In-memory forward, one core, {frames} frames of 60 B, bursts of {burst}");
    let mut table = Table::new(&title, &["what", "Mpps, median", "lowest", "highest"]);
    for ((name, what, _), samples) in subjects.iter().zip(&samples) {
        let low = samples.iter().copied().fold(f64::MAX, f64::min);
        let high = samples.iter().copied().fold(0.0, f64::max);
        let cells = vec![json!(what), json!(median(samples)), json!(low), json!(high)];
        table.rows.push(cells);
        report.figure(&format!("{name}_mpps"), median(samples));
    }
    report.figure("l2_forward_mpps", median(&samples[1]));
    report.figure("empty_loop_mpps", median(&samples[0]));
    report.table(table);
    report.note(format!("frames live in {pages} pages"));
    report.print(&arguments.options);
}
