//! Measures AF_XDP forwarding between two veth ports beside DPDK's testpmd over net_af_xdp:
//! `cargo run --release -p tidegate-bench --bin io_xdp_forward` (root; Debian package `dpdk-dev`).
//!
//! One line of three namespaces for both: a generator that lets the kernel redirect copies of one
//! 64-byte frame into the first veth pair (`BPF_PROG_TEST_RUN` with live frames, CPU 0), the forwarder
//! in the middle (CPU 1), and an XDP program at the end that counts and drops. The generator is several
//! times faster than any forwarder, so that the rate is what the forwarder's core can do. Both run in
//! real time while they are measured, in turns A B, B A, ...; what the generator's call costs besides
//! the packets is not in the rate.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bench::{Options, Report, Table, median, rounds};
use io::af_xdp::{AfXdpSpec, Place};
use io::bpf::{AttachMode, Link, Map, MapKind, Program, asm};
use io::port::{DriverSpec, OpenPort, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue, cpu};
use lab::peer::testpmd::{Testpmd, TestpmdOptions};
use lab::{Line, LineOptions};
use serde_json::json;

/// Bytes of a frame without FCS: 64 on the wire.
const FRAME_BYTES: usize = 60;
const GENERATOR_CPU: u16 = 0;
const FORWARDER_CPU: u16 = 1;
/// What the generator offers at least on machines like ours, packets a second: for the length of a run.
const OFFERED_PPS: u64 = 2_500_000;
/// Frames of the node: as a worker has by default.
const POOL_FRAMES: u32 = 8192;
/// Generator runs a sample.
const RUNS: usize = 2;

type Failure = Box<dyn Error>;

/// The topology with its two ends.
struct Rig {
    line: Line,
    generator: Program,
    counter: Map,
    _sink: (Program, Link),
    packets: u32,
}

impl Rig {
    fn new(options: &Options) -> Result<Self, Failure> {
        let plain = LineOptions {
            addresses: false,
            ..LineOptions::default()
        };
        let line = Line::new("xf", plain)?;
        let index = |side: &lab::Side| -> Result<u32, Failure> {
            Ok(side.namespace.links()?.get(&side.device)?.index)
        };
        let generator = redirect_to(index(&line.left)?)?;
        let counter = Map::create(MapKind::Array, "bench_count", 8, 1)?;
        let sink = count_and_drop(&counter)?;
        let sink_index = index(&line.right)?;
        let link = line
            .right
            .namespace
            .run(|| sink.attach_xdp(sink_index, AttachMode::Native))??;
        let packets = OFFERED_PPS * options.window_ms / 1000;
        Ok(Self {
            line,
            generator,
            counter,
            _sink: (sink, link),
            packets: packets.min(u64::from(u32::MAX)) as u32,
        })
    }

    /// Runs the generator and returns what reached the end, packets a second.
    fn measure(&self, forwarder: i32) -> Result<f64, Failure> {
        let frame = frame(self.line.left.node_mac, self.line.left.mac);
        let mut rates = Vec::new();
        for _ in 0..RUNS {
            let before = self.counter.get_u64(0)?;
            cpu::set_real_time(forwarder, true)?;
            let each = self.line.left.namespace.run(|| {
                cpu::pin(GENERATOR_CPU)?;
                cpu::set_real_time(0, true)?;
                let each = self.generator.run_live(&frame, LOOPBACK, self.packets, 64);
                cpu::set_real_time(0, false)?;
                each.map_err(std::io::Error::other)
            });
            cpu::set_real_time(forwarder, false)?;
            let seconds = each??.as_secs_f64() * f64::from(self.packets);
            std::thread::sleep(Duration::from_millis(20));
            rates.push((self.counter.get_u64(0)? - before) as f64 / seconds);
            // Real-time threads may have 95 % of each second.
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(median(&rates))
    }
}

/// Index of `lo`: the interface that the generator's packets seem to come from.
const LOOPBACK: u32 = 1;

fn frame(destination: [u8; 6], source: [u8; 6]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x25, 0xbb, 10, 1, 0, 2, 10, 2, 0, 2,
    ]);
    frame[34..42].copy_from_slice(&[0x10, 0, 0x20, 0, 0, 26, 0, 0]);
    frame
}

fn redirect_to(ifindex: u32) -> Result<Program, Failure> {
    let mut asm = asm::Asm::new();
    asm.mov_imm(asm::Reg::R1, ifindex as i32)
        .mov_imm(asm::Reg::R2, 0)
        .call(asm::Helper::Redirect)
        .exit();
    Ok(Program::load_xdp("bench_send", &asm.finish()?)?)
}

fn count_and_drop(counter: &Map) -> Result<Program, Failure> {
    use asm::{Alu, Reg, Width};
    let mut asm = asm::Asm::new();
    asm.load_map_value(Reg::R1, counter.raw_fd(), 0)
        .load(Width::U64, Reg::R2, Reg::R1, 0)
        .alu_imm(Alu::Add, Reg::R2, 1)
        .store(Width::U64, Reg::R1, 0, Reg::R2)
        .exit_with(asm::XdpAction::Drop);
    Ok(Program::load_xdp("bench_count", &asm.finish()?)?)
}

/// Our forwarder: one thread that passes frames between two ports, both ways, and never sleeps.
struct Ours {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    id: i32,
    mode: String,
}

impl Ours {
    fn start(rig: &Rig) -> Result<Self, Failure> {
        let pool = Pool::new(POOL_FRAMES, 2048, HugePages::Auto)?;
        let open = |id, device: &str| -> Result<OpenPort, Failure> {
            let spec = AfXdpSpec {
                place: Place::Native,
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
        let id = Arc::new(AtomicI32::new(0));
        let (its_stop, its_id) = (Arc::clone(&stop), Arc::clone(&id));
        let thread = std::thread::spawn(move || forward(left, right, pool, &its_stop, &its_id));
        while id.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Self {
            stop,
            thread: Some(thread),
            id: id.load(Ordering::Relaxed),
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
    id: &AtomicI32,
) {
    if let Err(error) = cpu::pin(FORWARDER_CPU) {
        eprintln!("not pinned: {error}");
    }
    id.store(cpu::thread_id(), Ordering::Relaxed);
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

fn measure_ours(rig: &Rig, mode: &mut String) -> Result<f64, Failure> {
    let ours = Ours::start(rig)?;
    ours.mode.clone_into(mode);
    rig.measure(ours.id)
}

fn measure_testpmd(rig: &Rig) -> Result<f64, Failure> {
    let vdev = |n: u8, device: &str| format!("net_af_xdp{n},iface={device}");
    let options = TestpmdOptions {
        vdevs: [
            vdev(0, &rig.line.left.node_device),
            vdev(1, &rig.line.right.node_device),
        ],
        forward_cpu: usize::from(FORWARDER_CPU),
        main_cpu: usize::from(GENERATOR_CPU),
        mbufs: 16_384,
        extra: ["--burst=64", "--rxd=2048", "--txd=2048"]
            .map(str::to_owned)
            .to_vec(),
    };
    let mut testpmd = Testpmd::start(Some(&rig.line.node), &options)?;
    testpmd.wait_until_forwarding()?;
    let thread = testpmd
        .forwarding_thread()
        .ok_or("testpmd has no forwarding thread")?;
    rig.measure(thread)
}

fn main() -> Result<(), Failure> {
    let options = Options::from_command_line();
    let rig = Rig::new(&options)?;
    let mut failure = None;
    let mut mode = String::new();
    let mut keep = |result: Result<f64, Failure>| {
        result.unwrap_or_else(|error| {
            failure.get_or_insert(error);
            f64::NAN
        })
    };
    let keep = std::cell::RefCell::new(&mut keep);
    let mut ours = || (keep.borrow_mut())(measure_ours(&rig, &mut mode));
    let mut theirs = || (keep.borrow_mut())(measure_testpmd(&rig));
    let samples = rounds(options.rounds, &mut [&mut ours, &mut theirs]);
    if let Some(error) = failure {
        return Err(error);
    }
    let ratios: Vec<f64> = samples[0]
        .iter()
        .zip(&samples[1])
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    let mut report = Report::new("io_xdp_forward");
    report.figure("af_xdp_mpps", median(&samples[0]) / 1e6);
    report.figure("testpmd_mpps", median(&samples[1]) / 1e6);
    report.figure("ratio_to_testpmd", median(&ratios));
    let mut table = Table::new(
        "AF_XDP forward between two veth ports, 64 B, one core",
        &["round", "tidegate, Mpps", "testpmd, Mpps", "ratio"],
    );
    for (round, ratio) in ratios.iter().enumerate() {
        table.rows.push(vec![
            json!(round + 1),
            json!(samples[0][round] / 1e6),
            json!(samples[1][round] / 1e6),
            json!(ratio),
        ]);
    }
    report.table(table);
    report.note(format!("mode: {mode}"));
    report.print(&options);
    Ok(())
}
