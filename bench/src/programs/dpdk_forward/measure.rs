//! The measurements.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bench::dpdk::{Device, Ours, Place, ROUTER_MACS, Work, waiting_router};
use bench::live::{End, Rig};
use bench::load::ThreadClock;
use bench::workers::ip4_frame;
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use graph::runner::{self, WorkerThread};
use graph::{Mode, WorkerCounters, WorkerHandle};
use lab::peer::testpmd::ForwardMode;
use lab::vdev::HugePages;
use serde_json::json;
use wire::MacAddr;

/// Huge pages (2 MiB) for us, testpmd and what is behind it.
const PAGES: u64 = 384;
/// How long a device may take until packets come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after its process an AF_XDP socket may still hold its queue.
const RELEASE: Duration = Duration::from_millis(300);
/// How long a worker without packets is watched.
const IDLE_WINDOW: Duration = Duration::from_secs(2);

/// Our driver `dpdk` beside testpmd.
#[derive(Debug, Parser)]
struct Arguments {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Interleaved rounds; figures are medians over them.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of one of our measurements, milliseconds; testpmd reports once a second.
    #[arg(long, default_value_t = 500)]
    window_ms: u64,
    /// Devices, with commas: net_null, net_ring, net_vhost, net_af_xdp.
    #[arg(long, value_delimiter = ',', default_values_t = Device::ALL.map(|(name, _)| name.to_owned()))]
    devices: Vec<String>,
    /// Forward between these devices until the input ends (`l2`, `l3`): a part of the program that it runs itself.
    #[arg(long, hide = true, requires = "vdev")]
    forward: Option<Work>,
    #[arg(long, hide = true)]
    vdev: Vec<String>,
    #[arg(long, hide = true, default_value_t = 0)]
    cpu: u16,
}

/// Forwards over net_af_xdp until the input ends; says so when it begins.
fn forward(work: Work, vdevs: &[String], cpu: u16) -> Result<()> {
    let mut ours = Ours::open(Device::AfXdp, vdevs, work)?;
    // Not before: DPDK's own threads are to be elsewhere.
    io::cpu::pin(cpu)?;
    // The devices are started here.
    for _ in 0..64 {
        ours.turn();
    }
    let ended = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        tell.store(true, Ordering::Relaxed);
    });
    println!("forwarding");
    while !ended.load(Ordering::Relaxed) {
        ours.turn();
    }
    Ok(())
}

/// What is measured over each device: who forwards, and what is done with a packet.
const SUBJECTS: [(&str, bool, Work); 4] = [
    ("ours, L2", true, Work::L2),
    ("testpmd, io", false, Work::L2),
    ("ours, L3", true, Work::L3),
    ("testpmd, macswap", false, Work::L3),
];

struct Bench {
    place: Place,
    window: Duration,
    /// The line of veth ports, if net_af_xdp is measured.
    rig: Option<Rig>,
}

impl Bench {
    fn vdevs(&self, device: Device, socket: &Path) -> Vec<String> {
        match device {
            Device::Null => vec!["net_null0,size=60,copy=0".into()],
            // The memory of a ring outlives its device, name and all.
            Device::Ring => vec![format!("net_ring{}", self.place.number())],
            Device::Vhost => vec![vhost(socket)],
            Device::AfXdp => {
                let sides = self.rig.iter().flat_map(|rig| [&rig.line.left, &rig.line.right]);
                let vdev = |(n, side): (usize, &lab::Side)| {
                    format!("net_af_xdp{n},iface={}", side.node_device)
                };
                sides.enumerate().map(vdev).collect()
            }
        }
    }

    /// Measures one subject once; millions of packets a second.
    fn measure(&self, device: Device, ours: bool, work: Work) -> Result<f64> {
        if device == Device::AfXdp {
            // The kernel takes the sockets of the one before away a moment after its end.
            std::thread::sleep(RELEASE);
        }
        let socket = self.place.socket();
        let vdevs = self.vdevs(device, &socket);
        match (device, ours) {
            (Device::AfXdp, _) => {
                let rig = self.rig.as_ref().context("no line")?;
                match ours {
                    true => self.ours_on_veth(rig, &vdevs, work),
                    false => self.testpmd_on_veth(rig, vdevs, work),
                }
            }
            (_, true) => self.ours(device, &vdevs, work, &socket),
            (_, false) => self.testpmd(device, vdevs, work, &socket),
        }
    }

    fn ours(&self, device: Device, vdevs: &[String], work: Work, socket: &Path) -> Result<f64> {
        let mut ours = Ours::open(device, vdevs, work)?;
        let (place, window) = (&self.place, self.window);
        let measured = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                io::cpu::pin(place.forward_cpu as u16)?;
                let _behind = match device {
                    Device::Vhost => {
                        ours.listen(socket)?;
                        Some(place.behind(socket, ForwardMode::FlowGen)?)
                    }
                    _ => None,
                };
                ours.measure(window)
            });
            thread.join()
        });
        measured.map_err(|_| anyhow!("the forwarder panicked"))?
    }

    fn testpmd(
        &self,
        device: Device,
        vdevs: Vec<String>,
        work: Work,
        socket: &Path,
    ) -> Result<f64> {
        let first = device == Device::Ring;
        let mut testpmd = self.place.testpmd(None, vdevs, mode(work), first)?;
        testpmd.wait_until_forwarding()?;
        let _behind = match device {
            Device::Vhost => Some(self.place.behind(socket, ForwardMode::FlowGen)?),
            _ => None,
        };
        // The first report may be of a time without packets.
        Ok(median(&testpmd.rates_pps(2)?[1..]) / 1e6)
    }

    /// Runs our forwarder in a process of its own: net_af_xdp gives its sockets back with its process only.
    fn ours_on_veth(&self, rig: &Rig, vdevs: &[String], work: Work) -> Result<f64> {
        let mut command = rig.line.node.command(std::env::current_exe()?);
        command.args(["dpdk_forward", "--forward", work.name(), "--cpu"]);
        command.arg(self.place.forward_cpu.to_string());
        for vdev in vdevs {
            command.args(["--vdev", vdev]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let measured = child
            .stdout
            .take()
            .context("no output")
            .and_then(|output| {
                let mut line = String::new();
                BufReader::new(output).read_line(&mut line)?;
                anyhow::ensure!(!line.is_empty(), "our forwarder does not run");
                Ok(rig.measure(End::Kernel)? / 1e6)
            });
        // It closes its devices when its input ends.
        drop(child.stdin.take());
        child.wait()?;
        measured
    }

    fn testpmd_on_veth(&self, rig: &Rig, vdevs: Vec<String>, work: Work) -> Result<f64> {
        let node = Some(&rig.line.node);
        let mut testpmd = self.place.testpmd(node, vdevs, mode(work), false)?;
        testpmd.wait_until_forwarding()?;
        Ok(rig.measure(End::Kernel)? / 1e6)
    }

    /// Measures the router's worker over net_vhost at full load; millions of packets a second.
    fn under_load(&self, mode: Mode) -> Result<f64> {
        let socket = self.place.socket();
        let running = Running::start(&self.place, &socket, mode)?;
        let _behind = self.place.behind(&socket, ForwardMode::FlowGen)?;
        let sent = || running.counters.tx_pkts.get();
        let start = Instant::now();
        while sent() == 0 {
            ensure!(start.elapsed() < PATIENCE, "no packet comes");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(200));
        let (before, start) = (sent(), Instant::now());
        std::thread::sleep(self.window);
        Ok((sent() - before) as f64 / start.elapsed().as_secs_f64() / 1e6)
    }

    /// Measures what a worker under the hybrid policy costs to whose device nothing comes; percent of a core.
    fn idle_percent(&self) -> Result<f64> {
        let socket = self.place.socket();
        let running = Running::start(&self.place, &socket, Mode::Hybrid)?;
        let _behind = self.place.behind(&socket, ForwardMode::Io)?;
        std::thread::sleep(Duration::from_millis(500));
        let (before, start) = (running.clock.read(), Instant::now());
        std::thread::sleep(IDLE_WINDOW);
        let busy = running.clock.read() - before;
        Ok(100.0 * busy.as_secs_f64() / start.elapsed().as_secs_f64())
    }
}

fn vhost(socket: &Path) -> String {
    format!("net_vhost0,iface={},queues=1", socket.display())
}

fn mode(work: Work) -> ForwardMode {
    match work {
        Work::L2 => ForwardMode::Io,
        Work::L3 => ForwardMode::MacSwap,
    }
}

/// A worker on a thread of its own, as in the node; it ends when dropped.
struct Running {
    handle: WorkerHandle,
    thread: Option<WorkerThread>,
    counters: Arc<WorkerCounters>,
    clock: ThreadClock,
}

impl Running {
    /// Starts the router over a vhost device, and waits until that listens.
    fn start(place: &Place, socket: &Path, mode: Mode) -> Result<Self> {
        let (worker, handle) = waiting_router(Device::Vhost, &vhost(socket), mode)?;
        let counters = Arc::clone(worker.counters());
        let name = format!("worker-{}", worker.id());
        let thread = runner::spawn(worker, Some(place.forward_cpu as u16))?;
        let running = Self {
            handle,
            thread: Some(thread),
            counters,
            clock: ThreadClock::of(&name),
        };
        let start = Instant::now();
        while !socket.exists() {
            ensure!(start.elapsed() < PATIENCE, "the device does not listen");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A worker that does not listen ends with the process.
        if self.handle.drain().is_ok()
            && let Some(thread) = self.thread.take()
        {
            thread.join();
        }
    }
}

/// Calls `subject`, keeps the first failure, and gives no figure then.
fn kept(failure: &std::cell::RefCell<Option<anyhow::Error>>, result: Result<f64>) -> f64 {
    result.unwrap_or_else(|error| {
        failure.borrow_mut().get_or_insert(error);
        f64::NAN
    })
}

/// The median of the ratios of each round.
fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    median(&ratios)
}

pub(super) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    if let Some(work) = arguments.forward {
        return forward(work, &arguments.vdev, arguments.cpu);
    }
    let devices = arguments
        .devices
        .iter()
        .map(|name| {
            let known = Device::ALL.iter().find(|(known, _)| known == name);
            known.copied().with_context(|| format!("there is no device `{name}` here"))
        })
        .collect::<Result<Vec<_>>>()?;
    let missing = PAGES.saturating_sub(HugePages::free());
    // Refused without root: all run on normal pages then.
    let _pages = HugePages::reserve(missing).ok();
    // DPDK starts here, on a thread that may use all cores.
    let _ = io::dpdk::status("net_null0");
    let veth = devices.iter().any(|(_, device)| *device == Device::AfXdp);
    let window = Duration::from_millis(arguments.window_ms);
    let frame = ip4_frame(MacAddr(ROUTER_MACS[0]), [10, 32, 0, 1]);
    let bench = Bench {
        place: Place::new()?,
        window,
        rig: veth.then(|| Rig::new(window, |_| frame)).transpose()?,
    };
    let mut report = Report::new("dpdk_forward");
    let mut table = Table::new(
        "Forwarding over DPDK's devices, one core, 64 B, bursts of 64, Mpps",
        &["device", SUBJECTS[0].0, SUBJECTS[1].0, "ratio", SUBJECTS[2].0, SUBJECTS[3].0, "ratio"],
    );
    for &(name, device) in &devices {
        let failure = std::cell::RefCell::new(None);
        let mut subjects = SUBJECTS.map(|(_, ours, work)| {
            let (bench, failure) = (&bench, &failure);
            move || kept(failure, bench.measure(device, ours, work))
        });
        let [a, b, c, d] = &mut subjects;
        let samples = rounds(arguments.rounds, &mut [a, b, c, d]);
        if let Some(error) = failure.take() {
            return Err(error.context(name));
        }
        let (l2, l3) = (ratio(&samples[0], &samples[1]), ratio(&samples[2], &samples[3]));
        report.figure(&format!("{name}_l2_ratio"), l2);
        report.figure(&format!("{name}_l3_ratio"), l3);
        let mpps = |at: usize| json!(median(&samples[at]));
        table.rows.push(vec![
            json!(name), mpps(0), mpps(1), json!(l2), mpps(2), mpps(3), json!(l3),
        ]);
    }
    report.table(table);
    if devices.iter().any(|(_, device)| *device == Device::Vhost) {
        let failure = std::cell::RefCell::new(None);
        let samples = rounds(
            arguments.rounds,
            &mut [
                &mut || kept(&failure, bench.under_load(Mode::Hybrid)),
                &mut || kept(&failure, bench.under_load(Mode::Poll)),
                &mut || kept(&failure, bench.idle_percent()),
            ],
        );
        if let Some(error) = failure.take() {
            return Err(error.context("the hybrid policy over net_vhost"));
        }
        report.figure("vhost_hybrid_mpps", median(&samples[0]));
        report.figure("vhost_poll_mpps", median(&samples[1]));
        report.figure("vhost_hybrid_to_poll", ratio(&samples[0], &samples[1]));
        report.figure("vhost_idle_percent", median(&samples[2]));
    }
    report.print(&Options {
        json: arguments.json,
        ..Options::default()
    });
    Ok(())
}
