//! Measures AF_XDP forwarding between two veth ports beside DPDK's testpmd over net_af_xdp:
//! `cargo run --release -p tidegate-bench -- io_xdp_forward` (root; Debian package `dpdk-dev`).
//!
//! One line of three namespaces for both: a generator that lets the kernel redirect copies of one
//! 64-byte frame into the first veth pair (`BPF_PROG_TEST_RUN` with live frames, CPU 0), the forwarder
//! in the middle (CPU 1, rings of 2,048 frames), and at the end a kernel that counts the frames and,
//! their EtherType being unknown to it, drops them. The generator is several times faster than any
//! forwarder, so that the rate is what the forwarder's core can do. They are measured
//! in turns A B, B A, ...; what the generator's call costs besides the packets is not in the rate.
//!
//! Two more comparisons are in the report: an XDP program at the end, which counts and drops (the veth
//! driver then copies every frame once more, on the forwarder's core), and testpmd with rings of 512,
//! which suit the caches better and hold a quarter of the burst.

use std::cell::RefCell;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bench::live::{End, FORWARDER_CPU, GENERATOR_CPU, Rig};
use bench::{Options, Report, Table, median, rounds};
use io::af_xdp::{AfXdpSpec, Place};
use io::port::{DriverSpec, OpenPort, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue, cpu};
use lab::peer::testpmd::{Testpmd, TestpmdOptions};
use serde_json::json;

/// Bytes of a frame without FCS: 64 on the wire.
const FRAME_BYTES: usize = 60;
/// Frames of the node: as a worker has by default.
const POOL_FRAMES: u32 = 8192;
/// Entries of every ring, ours and testpmd's.
const RING_ENTRIES: u32 = 2048;

type Failure = Box<dyn Error>;

fn frame(destination: [u8; 6], source: [u8; 6]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    // IEEE 802, local experimental EtherType 1.
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Our forwarder: one thread that passes frames between two ports, both ways, and never sleeps.
struct Ours {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    mode: String,
}

impl Ours {
    fn start(rig: &Rig) -> Result<Self, Failure> {
        let pool = Pool::new(POOL_FRAMES, 2048, HugePages::Auto)?;
        let open = |id, device: &str| -> Result<OpenPort, Failure> {
            let spec = AfXdpSpec {
                place: Place::Native,
                ring_entries: RING_ENTRIES,
                ..AfXdpSpec::new(device)
            };
            let port = PortSpec::new(PortId(id), device, DriverSpec::AfXdp(spec));
            let region = pool.region();
            Ok(rig.line.node.run(|| io::port::open(&port, region, 1))??)
        };
        let mut left = open(0, &rig.line.left.node_device)?;
        let mut right = open(1, &rig.line.right.node_device)?;
        let mode = left.mode;
        let (left, right) = (left.queues.remove(0), right.queues.remove(0));
        let stop = Arc::new(AtomicBool::new(false));
        let its_stop = Arc::clone(&stop);
        let thread = std::thread::spawn(move || forward(left, right, pool, &its_stop));
        Ok(Self {
            stop,
            thread: Some(thread),
            mode,
        })
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

fn forward(
    mut left: Box<dyn Queue>,
    mut right: Box<dyn Queue>,
    mut pool: Pool,
    stop: &AtomicBool,
) {
    if let Err(error) = cpu::pin(FORWARDER_CPU) {
        eprintln!("not pinned: {error}");
    }
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        left.rx(&mut pool, &mut batch);
        right.tx(&mut pool, &mut batch);
        pool.free_batch(&mut batch);
        right.rx(&mut pool, &mut batch);
        left.tx(&mut pool, &mut batch);
        pool.free_batch(&mut batch);
    }
    left.close(&mut pool);
    right.close(&mut pool);
}

fn measure_ours(rig: &Rig, end: End, mode: &RefCell<String>) -> Result<f64, Failure> {
    let ours = Ours::start(rig)?;
    ours.mode.clone_into(&mut mode.borrow_mut());
    Ok(rig.measure(end)?)
}

fn measure_testpmd(rig: &Rig, end: End, ring_entries: u32) -> Result<f64, Failure> {
    let vdev = |n: u8, device: &str| format!("net_af_xdp{n},iface={device}");
    let options = TestpmdOptions {
        vdevs: vec![
            vdev(0, &rig.line.left.node_device),
            vdev(1, &rig.line.right.node_device),
        ],
        forward_cpu: usize::from(FORWARDER_CPU),
        main_cpu: usize::from(GENERATOR_CPU),
        mbufs: 16_384,
        extra: vec![
            "--burst=64".to_owned(),
            format!("--rxd={ring_entries}"),
            format!("--txd={ring_entries}"),
        ],
        ..TestpmdOptions::default()
    };
    let mut testpmd = Testpmd::start(Some(&rig.line.node), &options)?;
    testpmd.wait_until_forwarding()?;
    Ok(rig.measure(end)?)
}

/// Measures all subjects in turns; one vector of samples for each.
fn measure_all(rig: &Rig, count: usize, mode: &RefCell<String>) -> Result<Vec<Vec<f64>>, Failure> {
    let failure = RefCell::new(None);
    let keep = |result: Result<f64, Failure>| {
        result.unwrap_or_else(|error| {
            failure.borrow_mut().get_or_insert(error);
            f64::NAN
        })
    };
    let mut ours = || keep(measure_ours(rig, End::Kernel, mode));
    let mut theirs = || keep(measure_testpmd(rig, End::Kernel, RING_ENTRIES));
    let mut small = || keep(measure_testpmd(rig, End::Kernel, 512));
    let mut ours_program = || keep(measure_ours(rig, End::Program, mode));
    let mut theirs_program = || keep(measure_testpmd(rig, End::Program, RING_ENTRIES));
    let samples = rounds(
        count,
        &mut [
            &mut ours,
            &mut theirs,
            &mut small,
            &mut theirs_program,
            &mut ours_program,
        ],
    );
    failure.into_inner().map_or(Ok(samples), Err)
}

pub(crate) fn main() -> Result<(), Failure> {
    let options = bench::parse::<Options>();
    let rig = Rig::new(options.window(), |line| {
        frame(line.left.node_mac, line.left.mac)
    })?;
    let mode = RefCell::new(String::new());
    let samples = measure_all(&rig, options.rounds, &mode)?;
    let ratio = |ours: usize, theirs: usize| {
        let pairs = samples[ours].iter().zip(&samples[theirs]);
        median(
            &pairs
                .map(|(ours, theirs)| ours / theirs)
                .collect::<Vec<_>>(),
        )
    };
    let mut report = Report::new("io_xdp_forward");
    report.figure("af_xdp_mpps", median(&samples[0]) / 1e6);
    report.figure("testpmd_mpps", median(&samples[1]) / 1e6);
    report.figure("ratio_to_testpmd", ratio(0, 1));
    report.figure("ratio_to_testpmd_512", ratio(0, 2));
    report.figure("ratio_to_testpmd_program_end", ratio(4, 3));
    report.figure("offered_mpps", rig.offered_pps() / 1e6);
    let mut table = Table::new(
        "AF_XDP forward between two veth ports, 64 B, one core, Mpps",
        &[
            "round",
            "tidegate",
            "testpmd",
            "testpmd, rings of 512",
            "testpmd, program at the end",
            "tidegate, program at the end",
        ],
    );
    for round in 0..options.rounds {
        let mut row = vec![json!(round + 1)];
        row.extend(samples.iter().map(|rates| json!(rates[round] / 1e6)));
        table.rows.push(row);
    }
    report.table(table);
    report.note(format!("mode: {}", mode.borrow()));
    report.print(&options);
    Ok(())
}
