//! Measures our in-memory forward against DPDK's testpmd between two net_null devices, in turns on the same
//! core: `cargo run --release -p tidegate-bench -- dpdk_null`.
//!
//! testpmd gets huge pages: where none are free, this program reserves 128 of 2 MiB and gives them back.

use std::process::ExitCode;
use std::time::Duration;

use bench::memory::{Queues, measure_mpps, null_forward};
use bench::{Options, Report, Table, median, rounds};
use lab::machine::pin_to_cpu;
use lab::vdev::HugePages;
use lab::peer::testpmd::{Testpmd, TestpmdError, TestpmdOptions};
use serde_json::json;

const FRAMES: u32 = 4096;
const BURST: usize = 32;
const PAGES: u64 = 128;

/// Measures testpmd once; millions of frames a second on both ports together.
fn testpmd_mpps(cpus: [usize; 2], copy: bool) -> Result<f64, TestpmdError> {
    let vdev = |index: u8| format!("net_null{index},size=60,copy={}", u8::from(copy));
    let mut testpmd = Testpmd::start(
        None,
        &TestpmdOptions {
            vdevs: vec![vdev(0), vdev(1)],
            forward_cpu: cpus[1],
            main_cpu: cpus[0],
            mbufs: FRAMES,
            extra: vec![format!("--burst={BURST}"), "--mbcache=128".into()],
            ..TestpmdOptions::default()
        },
    )?;
    testpmd.wait_until_forwarding()?;
    Ok(median(&testpmd.rates_pps(1)?) / 1e6)
}

/// Our own driver over the same devices, where the program has it.
#[cfg(feature = "dpdk")]
fn over_dpdk() -> Option<Queues> {
    let devices = ["net_null_a,size=60,copy=0", "net_null_b,size=60,copy=0"];
    Some(bench::memory::dpdk_forward(devices, FRAMES, false))
}

#[cfg(not(feature = "dpdk"))]
fn over_dpdk() -> Option<Queues> {
    None
}

pub(crate) fn main() -> ExitCode {
    let options = bench::parse::<Options>();
    // Refused without root: testpmd then runs on normal pages, and the note says so.
    let missing = PAGES.saturating_sub(HugePages::free());
    let pages = HugePages::reserve(missing).ok();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let forward_cpu = cpus - 1;
    if let Err(error) = pin_to_cpu(forward_cpu) {
        eprintln!("dpdk_null: cannot run on CPU {forward_cpu}: {error}");
        return ExitCode::FAILURE;
    }
    let (samples, failed) = {
        let mut ours = [false, true].map(|copy| null_forward(FRAMES, BURST, copy, false));
        let mut over_dpdk = over_dpdk();
        for forwarder in ours.iter_mut().chain(&mut over_dpdk) {
            measure_mpps(forwarder, Duration::from_millis(20)); // warms up
        }
        let [io, copy] = &mut ours;
        let failure = std::cell::RefCell::new(None);
        let theirs = |copy: bool| {
            let failure = &failure;
            move || {
                testpmd_mpps([0, forward_cpu], copy).unwrap_or_else(|error| {
                    *failure.borrow_mut() = Some(error);
                    f64::NAN
                })
            }
        };
        let window = options.window();
        let samples = rounds(
            options.rounds,
            &mut [
                &mut || measure_mpps(io, window),
                &mut theirs(false),
                &mut || measure_mpps(copy, window),
                &mut theirs(true),
                &mut || {
                    let forwarder = over_dpdk.as_mut();
                    forwarder.map_or(f64::NAN, |forwarder| measure_mpps(forwarder, window))
                },
            ],
        );
        (samples, failure.into_inner())
    };
    drop(pages);
    if let Some(error) = failed {
        eprintln!("dpdk_null: {error}");
        return ExitCode::FAILURE;
    }
    let mut report = Report::new("dpdk_null");
    let mut table = Table::new(
        "In-memory forward against DPDK, one core, 4,096 frames of 60 B, bursts of 32",
        &["", "ours, Mpps", "testpmd over net_null, Mpps", "ratio"],
    );
    let mut rows = vec![
        ("frames untouched (io)", 0, 1, "ratio_to_testpmd"),
        ("each frame copied", 2, 3, "copy_ratio_to_testpmd"),
    ];
    if cfg!(feature = "dpdk") {
        rows.push(("our driver `dpdk` over net_null", 4, 1, "driver_ratio_to_testpmd"));
    }
    for (what, ours, theirs, ratio) in rows {
        let (ours, theirs) = (median(&samples[ours]), median(&samples[theirs]));
        report.figure(ratio, ours / theirs);
        let cells = vec![
            json!(what),
            json!(ours),
            json!(theirs),
            json!(ours / theirs),
        ];
        table.rows.push(cells);
    }
    report.table(table);
    report.print(&options);
    ExitCode::SUCCESS
}
