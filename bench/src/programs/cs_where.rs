//! The comparison that the paper left open (CS-11): the content store in the kernel's packet path against the same store
//! in user space behind AF_XDP, AF_PACKET and UDP sockets. `tidegate bench cs --where` runs this (root).
//!
//! For each place a node (`tidegate run`, one worker on CPU 1) and a client on a veth pair, in namespaces. The client is
//! the same for all: it has its device by AF_XDP, runs on CPU 0, and asks for the same names: by UDP where the place is
//! `kernel` or `socket`, by Ethernet frames at the ports of `af_xdp` and `af_packet`. Throughput is with 512 Interests in
//! flight, latency with one. What the sender's core does for the receiving end (softirq) is the client's time.
//!
//! The hit rate a core: of a node, its rate by the processor time that it had for it. Of the kernel, what one core
//! reaches that makes the Interests (live frames), answers in the driver (XDP) and takes the Data; so the kernel's figure
//! bears the costs of a client, the node's does not.
//!
//! That each place did answer is counted: by the kernel's programs, by the node's content store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::cs::svg;
use bench::live_frames::{always, send};
use bench::ndn_rig::{self, Carrier, Process, Wire};
use bench::{Options, Plot, Report, Series, Table, median, tidegate_program};
use clap::{Parser, ValueEnum};
use control::api::NdnInfo;
use control::socket::Client;
use io::bpf::AttachMode;
use io::bpf::asm::XdpAction;
use lab::{Line, LineOptions};
use serde_json::{Value, json};
use wire::ndn::name::Name;

const CLIENT_CPU: u16 = 0;
const NODE_CPU: u16 = 1;
/// Bytes of a Data packet besides its content, about.
const OVERHEAD_BYTES: usize = 84;
/// Interests of a latency sample.
const ROUND_TRIPS: u64 = 2000;
/// How long filling may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Places to compare, with commas.
    #[arg(long = "where", value_delimiter = ',', default_value = "kernel,af_xdp,af_packet,socket")]
    places: Vec<Place>,
    /// Lengths of the Data packets, bytes, with commas; about: the name's length varies.
    #[arg(long, value_delimiter = ',', default_value = "128,1024")]
    bytes: Vec<usize>,
    /// Names of each length.
    #[arg(long, default_value_t = 1000)]
    names: u64,
    /// Where to write the plots as SVG.
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
}

/// Where the content store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Place {
    /// In the kernel's packet path.
    Kernel,
    /// In the node, whose port has AF_XDP sockets.
    AfXdp,
    /// In the node, whose port has packet sockets.
    AfPacket,
    /// In the node, behind UDP sockets.
    Socket,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::AfXdp => "af_xdp",
            Self::AfPacket => "af_packet",
            Self::Socket => "socket",
        }
    }
    fn carrier(self) -> Carrier {
        match self {
            Self::Kernel | Self::Socket => Carrier::Udp,
            Self::AfXdp | Self::AfPacket => Carrier::Ethernet,
        }
    }
    /// The part of the configuration in which the places differ.
    fn config(self, device: &str, xdp: bool) -> String {
        let port = |driver| {
            format!(
                "udp = []\nethernet = [\"p\"]\n[[port]]\nname = \"p\"\ninterface = \"{device}\"\ndriver = \"{driver}\"\n"
            )
        };
        let udp = "udp = [\"0.0.0.0:6363\"]\n";
        let mode = if xdp { "xdp" } else { "auto" };
        match self {
            Self::AfXdp => port("af_xdp"),
            Self::AfPacket => port("af_packet"),
            Self::Socket => udp.to_owned(),
            Self::Kernel => format!(
                "{udp}[ndn.kernel_cache]\ninterfaces = [\"{device}\"]\npackets = 16384\nmode = \"{mode}\"\n"
            ),
        }
    }
}

/// A node with its line, filled.
struct Rig {
    node: Process,
    directory: tempfile::TempDir,
    line: Line,
    program: PathBuf,
    place: Place,
}

impl Rig {
    fn start(place: Place, xdp: bool, arguments: &Arguments) -> Result<Self> {
        let program = tidegate_program()?;
        let line = Line::new("tgw", LineOptions::default())?;
        let left = &line.left;
        let mut links = line.node.links()?;
        links.set_up("lo")?;
        if place.carrier() == Carrier::Udp {
            links.add_address(&left.node_device, left.node_address(), 24)?;
            // The client's device gives all frames to the client, who does not answer ARP.
            links.add_neighbour(&left.node_device, left.address(), left.mac)?;
        }
        let directory = tempfile::tempdir()?;
        let place_config = place.config(&left.node_device, xdp);
        let text = format!(
            "[node]\ncontrol_socket = \"{0}/control.sock\"\ncpus = [{NODE_CPU}]\n[ndn]\nunix = [\"{0}/nfd.sock\"]\ntcp = []\n{place_config}",
            directory.path().display(),
        );
        let file = directory.path().join("node.toml");
        fs::write(&file, text)?;
        let node = start(&program, &line, directory.path(), &file)?;
        let rig = Self { node, directory, line, program, place };
        for &bytes in &arguments.bytes {
            rig.fill(bytes, arguments)?;
        }
        Ok(rig)
    }

    fn tool(&self, arguments: &[&str]) -> Result<Value> {
        ndn_rig::tool(&self.program, &self.line, self.directory.path(), arguments)
    }

    /// Figures of the node; by its control socket, as the datasets of NDN management are answers of a second's freshness.
    fn figures(&self) -> Result<NdnInfo> {
        let stats = Client::connect(&self.directory.path().join("control.sock"))?.stats()?;
        stats.ndn.context("the node has no NDN forwarder")
    }

    /// Hits of the kernel's part, and of the content store in user space.
    fn hits(&self) -> Result<[u64; 2]> {
        let figures = self.figures()?;
        Ok([figures.kernel.map_or(0, |kernel| kernel.hits), figures.store.hits])
    }

    /// Fails if this many answers are not counted as hits where they should have been.
    fn check(&self, before: [u64; 2], answers: f64) -> Result<()> {
        let now = self.hits()?;
        let [kernel, node] = [0, 1].map(|at| (now[at] - before[at]) as f64);
        let (here, elsewhere) = if self.place == Place::Kernel { (kernel, node) } else { (node, kernel) };
        let name = self.place.name();
        ensure!(
            here > 0.99 * answers && elsewhere < 0.01 * answers,
            "{name}: of {answers:.0} answers the kernel counts {kernel}, the node {node}",
        );
        Ok(())
    }

    /// Brings the names of one length into the content store and, where that is the place, into the kernel.
    fn fill(&self, bytes: usize, arguments: &Arguments) -> Result<()> {
        let (prefix, names) = (prefix(bytes), arguments.names.to_string());
        let content = bytes.saturating_sub(OVERHEAD_BYTES).to_string();
        let server = ndn_rig::command(&self.program, &self.line, self.directory.path())
            .args(["traffic", "server", &prefix, "-x", "3600000", "-s", &content])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let _server = Process(server);
        let start = Instant::now();
        let wanted = arguments.names * (1 + arguments.bytes.iter().position(|b| *b == bytes).unwrap_or(0) as u64);
        loop {
            let asked = ["traffic", "client", &prefix, "--names", &names, "--seconds", "0.5"];
            let found = self.tool(&asked)?;
            let answered = found["data"].as_u64().unwrap_or(0);
            let is_filled = self.figures()?.kernel.is_none_or(|kernel| kernel.packets >= wanted);
            if answered >= arguments.names && is_filled {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "filling took too long: {found}");
        }
    }
}

/// Starts a node and waits until it answers.
fn start(program: &Path, line: &Line, directory: &Path, config: &Path) -> Result<Process> {
    let mut node = line.node.command(program);
    let node = node.args(["--log", "error", "run", "-c"]).arg(config);
    let mut node = Process(node.spawn()?);
    let start = Instant::now();
    while ndn_rig::tool(program, line, directory, &["status"]).is_err() {
        ensure!(node.0.try_wait()?.is_none(), "the node ended at its start");
        ensure!(start.elapsed() < PATIENCE, "the node does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(node)
}

fn prefix(bytes: usize) -> String {
    format!("/e/{bytes}")
}

/// What one place showed with one length of packets.
#[derive(Debug, Default)]
struct Samples {
    per_s: Vec<f64>,
    /// Processor time of the node an answer, ns.
    node_ns: Vec<f64>,
    /// That of the client.
    client_ns: Vec<f64>,
    /// Answers a second of a core.
    per_core: Vec<f64>,
    p50_ns: Vec<f64>,
    p99_ns: Vec<f64>,
}

/// Measures a place by sockets and ports.
fn measure(rig: &Rig, arguments: &Arguments, samples: &mut [Samples]) -> Result<()> {
    let pid = rig.node.0.id();
    let window = arguments.options.window();
    let side = &rig.line.left;
    let carrier = rig.place.carrier();
    side.namespace.run(|| -> Result<()> {
        io::cpu::pin(CLIENT_CPU)?;
        let mut wire = Wire::open(side, carrier)?;
        for (&bytes, samples) in arguments.bytes.iter().zip(samples) {
            let prefix: Name = prefix(bytes).parse()?;
            wire.ask(&prefix, 0, arguments.names, Duration::from_millis(50));
            let mut times = wire.round_trips(&prefix, arguments.names, ROUND_TRIPS);
            ensure!(!times.is_empty(), "no answer from {}", rig.place.name());
            times.sort_by(f64::total_cmp);
            samples.p50_ns.push(times[times.len() / 2]);
            samples.p99_ns.push(times[times.len() * 99 / 100]);

            let hits = rig.hits()?;
            let before = (ndn_rig::cpu_us(pid)?, thread_s()?);
            let rate = wire.ask(&prefix, 0, arguments.names, window);
            let node_s = (ndn_rig::cpu_us(pid)? - before.0) / 1e6;
            let client_s = thread_s()? - before.1;
            let answers = rate * window.as_secs_f64();
            rig.check(hits, answers)?;
            samples.per_s.push(rate);
            samples.node_ns.push(node_s * 1e9 / answers);
            samples.client_ns.push(client_s * 1e9 / answers);
            if rig.place != Place::Kernel {
                samples.per_core.push(answers / node_s);
            }
        }
        Ok(())
    })?
}

/// Processor time of this thread, s.
fn thread_s() -> Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns: f64 = text.split_whitespace().next().context("schedstat")?.parse()?;
    Ok(ns / 1e9)
}

/// Measures the kernel alone on one core: live frames, answered in the driver.
fn measure_driver(rig: &Rig, arguments: &Arguments, samples: &mut [Samples]) -> Result<()> {
    let side = &rig.line.left;
    let device = || -> Result<_> { Ok(side.namespace.links()?.get(&side.device)?) };
    let near = device()?.index;
    let drops = always(XdpAction::Drop)?;
    let _link = side.namespace.run(|| drops.attach_xdp(near, AttachMode::Native))??;
    for (&bytes, samples) in arguments.bytes.iter().zip(samples) {
        let frame = ndn_rig::request(side, Carrier::Udp, &prefix(bytes).parse()?, 0)?;
        let hits = rig.hits()?;
        let before = device()?.counters.rx_pkts;
        let window = arguments.options.window();
        let (ns, sent) = send(&side.namespace, near, &frame, CLIENT_CPU, window)?;
        let back = device()?.counters.rx_pkts - before;
        // All but a few that were on their way.
        let share = back as f64 / sent as f64;
        ensure!(share > 0.99, "{back} of {sent} live frames were answered");
        rig.check(hits, sent as f64)?;
        samples.per_core.push(share * 1e9 / ns);
    }
    Ok(())
}

pub(crate) fn main() -> Result<()> {
    let arguments: Arguments = bench::parse();
    let mut report = Report::new("cs_where");
    let places = &arguments.places;
    let mut samples: Vec<Vec<Samples>> = places
        .iter()
        .map(|_| arguments.bytes.iter().map(|_| Samples::default()).collect())
        .collect();
    for _ in 0..arguments.options.rounds {
        for (place, samples) in places.iter().zip(&mut samples) {
            measure(&Rig::start(*place, false, &arguments)?, &arguments, samples)?;
            if *place == Place::Kernel {
                measure_driver(&Rig::start(*place, true, &arguments)?, &arguments, samples)?;
            }
        }
    }
    let mut table = Table::new(
        "One content store in four places: hits on a veth pair, one client",
        &[
            "where", "Data, B", "hits/s", "hits/s of a core", "p50, us", "p99, us", "node, ns a hit",
            "client, ns a hit",
        ],
    );
    for (place, of_place) in places.iter().zip(&samples) {
        for (bytes, samples) in arguments.bytes.iter().zip(of_place) {
            let name = |what: &str| format!("{}_{bytes}_{what}", place.name());
            let (p50, p99) = (median(&samples.p50_ns) / 1e3, median(&samples.p99_ns) / 1e3);
            let (per_s, per_core) = (median(&samples.per_s), median(&samples.per_core));
            report.figure(&name("per_s"), per_s);
            report.figure(&name("per_core_per_s"), per_core);
            report.figure(&name("p50_us"), p50);
            report.figure(&name("p99_us"), p99);
            let (node_ns, client_ns) = (median(&samples.node_ns), median(&samples.client_ns));
            table.rows.push(vec![
                json!(place.name()),
                json!(bytes),
                json!(per_s),
                json!(per_core),
                json!(p50),
                json!(p99),
                json!(node_ns),
                json!(client_ns),
            ]);
        }
    }
    report.table(table);
    compare(&arguments, &samples, &mut report);
    let plots = [
        plot(&arguments, &samples, "Hits a second of a core", "hits/s", |s| median(&s.per_core)),
        plot(&arguments, &samples, "Round trip, median", "us", |s| median(&s.p50_ns) / 1e3),
        plot(&arguments, &samples, "Processor time a hit, node and client", "ns", |s| {
            median(&s.node_ns) + median(&s.client_ns)
        }),
    ];
    if let Some(directory) = &arguments.plots {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        for (plot, name) in plots.iter().zip(["rate", "latency", "processor"]) {
            let path = directory.join(format!("where-{name}.svg"));
            fs::write(&path, svg::draw(plot)).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    for plot in plots {
        report.plot(plot);
    }
    report.note("hits/s: one client with 512 Interests in flight, which often is what limits them");
    report.note("a core of the kernel makes the Interests and takes the Data as well; a node's core does neither");
    report.print(&arguments.options);
    Ok(())
}

/// The kernel against the UDP sockets.
fn compare(arguments: &Arguments, samples: &[Vec<Samples>], report: &mut Report) {
    let of = |place: Place| arguments.places.iter().position(|p| *p == place).map(|at| &samples[at]);
    let (Some(kernel), Some(socket)) = (of(Place::Kernel), of(Place::Socket)) else {
        return;
    };
    for ((bytes, kernel), socket) in arguments.bytes.iter().zip(kernel).zip(socket) {
        let rate = median(&kernel.per_core) / median(&socket.per_core);
        let latency = median(&kernel.p50_ns) / median(&socket.p50_ns);
        report.figure(&format!("kernel_to_socket_{bytes}_rate"), rate);
        report.figure(&format!("kernel_to_socket_{bytes}_latency"), latency);
    }
}

fn plot(
    arguments: &Arguments,
    samples: &[Vec<Samples>],
    title: &str,
    y: &str,
    value: impl Fn(&Samples) -> f64,
) -> Plot {
    let series = arguments.places.iter().zip(samples).map(|(place, samples)| Series {
        name: place.name().to_owned(),
        points: arguments.bytes.iter().zip(samples).map(|(b, s)| (*b as f64, value(s))).collect(),
    });
    Plot {
        title: title.to_owned(),
        x: "Data packet, bytes".to_owned(),
        y: y.to_owned(),
        log_x: true,
        log_y: true,
        series: series.collect(),
    }
}
