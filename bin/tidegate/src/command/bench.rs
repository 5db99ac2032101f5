//! `tidegate bench`: measures this node, or any device between two interfaces.

use std::io::IsTerminal;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use lab::dut::{NodeDriver, NodeOptions, NodeRole};
use lab::rfc2544::{self, Limit, Options, Report};
use lab::rig::{Dut, External, Rig, RigError, RigOptions, TesterDriver};
use lab::traffic::{FRAME_SIZES, Load};

use crate::cli::Global;
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Zero-loss throughput, latency, loss and bursts after RFC 2544.
    ///
    /// Built-in devices run in network namespaces of their own (root). `--dut external` tests whatever
    /// is between two interfaces of this machine. Sizes count the 4 bytes of frame check sequence, as
    /// the RFC does: 64 means 60 bytes in memory. PF_RING, the other peer of the paper, cannot be had
    /// here; docs/benchmarking.md says why.
    Rfc2544(Rfc2544Args),
    /// The experiments of CS-8 and CS-9 on the content store: times of Interests and Data packets by size of
    /// the cache, throughput by threads, beside the paper's own design, an ordered set and a plain trie.
    ///
    /// The opponents are in the program `tidegate-bench`, which must lie beside this one. The sizes of the paper
    /// need 2.5 KB of memory a block, twice: 20 GB for 4,000,000 blocks.
    ///
    /// With --where: one content store in the kernel's packet path and in a node behind AF_XDP, AF_PACKET and UDP
    /// sockets; rate, latency and processor time of its hits on a veth pair (root; docs/kernel-cache.md).
    Cs(CsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CsArgs {
    /// A list of site names, one a line (plain or gzip), that files are named after.
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Sizes of the cache, blocks of 1 KB, with commas.
    #[arg(long, value_delimiter = ',', default_value = "250000,500000,1000000")]
    blocks: Vec<u64>,
    /// Designs to compare with: paper, set, trie, quick, moka, dashmap, papaya.
    #[arg(long, value_delimiter = ',', default_value = "paper,set,trie")]
    against: Vec<String>,
    /// Where to write the figures as SVG.
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
    /// Compare places instead: kernel, af_xdp, af_packet, socket, with commas.
    #[arg(long = "where", value_name = "PLACES", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["names", "blocks", "against"])]
    places: Vec<String>,
    /// Lengths of the Data packets of --where, bytes, with commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "128,1024",
        requires = "places"
    )]
    bytes: Vec<u32>,
}

/// Runs the program that has the opponents.
fn content_store(global: &Global, args: &CsArgs) -> Result<(), Failure> {
    let program = std::env::current_exe()
        .map(|here| here.with_file_name("tidegate-bench"))
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    if !program.is_file() {
        return Err(Failure::message(
            Exit::NotFound,
            format!(
                "{} is not there; build it: cargo build --release -p tidegate-bench",
                program.display()
            ),
        ));
    }
    let mut command = std::process::Command::new(program);
    if args.places.is_empty() {
        let sizes: Vec<String> = args.blocks.iter().map(u64::to_string).collect();
        command.args(["cs_experiment", "--blocks", &sizes.join(",")]);
        command.args(["--against", &args.against.join(",")]);
    } else {
        let sizes: Vec<String> = args.bytes.iter().map(u32::to_string).collect();
        command.args(["cs_where", "--where", &args.places.join(",")]);
        command.args(["--bytes", &sizes.join(",")]);
    }
    if let Some(names) = &args.names {
        command.arg("--names").arg(names);
    }
    if let Some(plots) = &args.plots {
        command.arg("--plots").arg(plots);
    }
    if global.json {
        command.arg("--json");
    }
    let status = command
        .status()
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failed))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Rfc2544Args {
    /// The device under test.
    #[arg(long, value_enum, default_value = "tidegate")]
    dut: DutName,
    /// Packet driver of the tidegate under test.
    #[arg(
        long,
        value_enum,
        default_value = "af-xdp",
        help_heading = "Device under test"
    )]
    driver: DriverName,
    /// What the tidegate under test does.
    #[arg(
        long,
        value_enum,
        default_value = "router",
        help_heading = "Device under test"
    )]
    role: RoleName,
    /// Idle mode of the tidegate under test: hybrid, poll, interrupt, paper.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "hybrid",
        help_heading = "Device under test"
    )]
    idle: String,
    /// CPU of a built-in device under test.
    #[arg(
        long,
        value_name = "CPU",
        default_value_t = 0,
        help_heading = "Device under test"
    )]
    dut_cpu: usize,
    /// Let the tester's CPU receive for the device under test, as veth pairs do by default.
    #[arg(long, help_heading = "Device under test")]
    receive_on_tester: bool,

    /// Interface to send on (external).
    #[arg(long, value_name = "INTERFACE", help_heading = "External device")]
    #[arg(required_if_eq("dut", "external"))]
    tx: Option<String>,
    /// Interface to receive on (external).
    #[arg(long, value_name = "INTERFACE", help_heading = "External device")]
    #[arg(required_if_eq("dut", "external"))]
    rx: Option<String>,
    /// Destination MAC address of frames: a router's; without it the receiving interface's.
    #[arg(long, value_name = "MAC", value_parser = parse_mac, help_heading = "External device")]
    mac: Option<[u8; 6]>,
    /// Source address of packets (external).
    #[arg(
        long,
        value_name = "IP",
        default_value = "198.18.0.2",
        help_heading = "External device"
    )]
    source: Ipv4Addr,
    /// Destination address of packets (external).
    #[arg(
        long,
        value_name = "IP",
        default_value = "198.19.0.2",
        help_heading = "External device"
    )]
    destination: Ipv4Addr,

    /// Frame sizes, bytes, with commas.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = FRAME_SIZES)]
    sizes: Vec<u16>,
    /// Seconds of a trial; RFC 2544 wants 60 for a final result.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = parse_seconds)]
    trial: Duration,
    /// Width at which the search ends, as a share of the rate.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    resolution: f64,
    /// Trials that confirm the rate found.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    confirmations: u32,
    /// Repetitions of a trial with loss before it counts; 0 after the RFC.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    retries: u32,
    /// Highest rate to offer, packets a second.
    #[arg(long, value_name = "PPS")]
    max_rate: Option<f64>,
    /// Longest burst of the back-to-back test, packets; 0 leaves it out.
    #[arg(long, value_name = "PACKETS", default_value_t = 65_536)]
    max_burst: u64,
    /// Leave out loss against rate.
    #[arg(long)]
    no_loss_curve: bool,
    /// Flows, each with pseudorandom ports (RFC 4814).
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    flows: u32,
    /// Seed of the flows.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Driver of the tester's own ports.
    #[arg(long, value_enum, default_value = "auto")]
    tester_driver: TesterDriverName,
    /// CPU of the tester; without it the last one.
    #[arg(long, value_name = "CPU")]
    tester_cpu: Option<usize>,
}

/// A device under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DutName {
    /// This program, as a node.
    Tidegate,
    /// The kernel's IPv4 forwarding.
    Kernel,
    /// The kernel's bridge.
    Bridge,
    /// A forwarder on libpcap.
    Libpcap,
    /// Whatever is between --tx and --rx.
    External,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DriverName {
    /// AF_XDP.
    AfXdp,
    /// AF_PACKET.
    AfPacket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoleName {
    /// Routes IPv4.
    Router,
    /// Bridges.
    Bridge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TesterDriverName {
    /// AF_XDP, or AF_PACKET where it is refused.
    Auto,
    /// AF_PACKET.
    AfPacket,
}

pub(crate) fn run(global: &Global, bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Rfc2544(args) => rfc2544(global, args),
        Bench::Cs(args) => content_store(global, args),
    }
}

fn rfc2544(global: &Global, args: &Rfc2544Args) -> Result<(), Failure> {
    check(args)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let tester_cpu = args.tester_cpu.unwrap_or(cpus - 1);
    let mut rig = Rig::new(&rig_options(args)?).map_err(explain)?;
    lab::machine::pin_to_cpu(tester_cpu).map_err(|error| {
        let message = format!("the tester cannot run on CPU {tester_cpu}: {error}");
        Failure::message(Exit::Usage, message).remedy("choose another by --tester-cpu")
    })?;
    let options = Options {
        trial: args.trial,
        resolution: args.resolution,
        confirmations: args.confirmations,
        retries: args.retries,
        max_pps: args.max_rate,
        max_burst_pkts: args.max_burst,
        loss_curve: !args.no_loss_curve,
        ..Options::default()
    };
    let bar = progress_bar(args.sizes.len());
    let report = rfc2544::run(
        &mut rig,
        &describe(args),
        args.flows,
        &args.sizes,
        &options,
        &mut |step| {
            bar.set_position(step.index as u64);
            let load = match step.plan.load {
                Load::Rate(pps) => format!("{}pps", output::si(pps)),
                Load::Unpaced => "full speed".to_owned(),
            };
            let lost = step.trial.lost_pkts;
            bar.set_message(format!("{} B at {load}: {lost} lost", step.size_bytes));
        },
    )
    .map_err(explain)?;
    bar.finish_and_clear();
    if global.json {
        output::print_json(&report)
    } else {
        output::print(&text(&report))
    }
}

fn check(args: &Rfc2544Args) -> Result<(), Failure> {
    let usage = |message: &str| Err(Failure::message(Exit::Usage, message));
    if !(0.0001..=0.5).contains(&args.resolution) {
        return usage("--resolution must be from 0.0001 to 0.5");
    }
    if args
        .max_rate
        .is_some_and(|rate| rate.is_nan() || rate < 1.0)
    {
        return usage("--max-rate must be at least 1");
    }
    if args.dut != DutName::External && !lab::netns::is_root() {
        return Err(Failure::message(
            Exit::Refused,
            "only root can make the network namespaces for a built-in device",
        )
        .remedy(
            "sudo tidegate bench rfc2544, or inside `unshare -Urn` with --tester-driver af-packet",
        ));
    }
    Ok(())
}

fn rig_options(args: &Rfc2544Args) -> Result<RigOptions, Failure> {
    let dut = match args.dut {
        DutName::Tidegate => Dut::Node(NodeOptions {
            program: std::env::current_exe()?,
            driver: match args.driver {
                DriverName::AfXdp => NodeDriver::AfXdp,
                DriverName::AfPacket => NodeDriver::AfPacket,
            },
            role: match args.role {
                RoleName::Router => NodeRole::Router,
                RoleName::Bridge => NodeRole::Bridge,
            },
            cpus: vec![args.dut_cpu],
            idle_mode: args.idle.clone(),
            more: String::new(),
        }),
        DutName::Kernel => Dut::KernelRouter,
        DutName::Bridge => Dut::KernelBridge,
        DutName::Libpcap => Dut::Libpcap,
        DutName::External => Dut::External(External {
            tx: args.tx.clone().unwrap_or_default(),
            rx: args.rx.clone().unwrap_or_default(),
            destination_mac: args.mac,
            ip: (args.source, args.destination),
        }),
    };
    Ok(RigOptions {
        tester: match args.tester_driver {
            TesterDriverName::Auto => TesterDriver::Auto,
            TesterDriverName::AfPacket => TesterDriver::AfPacket,
        },
        dut_cpu: args.dut_cpu,
        receive_on_dut_cpu: !args.receive_on_tester,
        flows: args.flows,
        seed: args.seed,
        ..RigOptions::new(dut)
    })
}

fn describe(args: &Rfc2544Args) -> String {
    match args.dut {
        DutName::Tidegate => {
            let driver = match args.driver {
                DriverName::AfXdp => "AF_XDP",
                DriverName::AfPacket => "AF_PACKET",
            };
            let role = match args.role {
                RoleName::Router => "IPv4 router",
                RoleName::Bridge => "bridge",
            };
            format!("tidegate, {role} over {driver}, idle mode {}", args.idle)
        }
        DutName::Kernel => "Linux IPv4 forwarding".into(),
        DutName::Bridge => "Linux bridge".into(),
        DutName::Libpcap => "libpcap forwarder".into(),
        DutName::External => "external device".into(),
    }
}

fn progress_bar(sizes: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(sizes as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} sizes {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        ">size",
        ">zero loss",
        ">wire",
        ">of 10G",
        "limit",
        ">p50",
        ">p99",
        ">p99.9",
        ">max",
        ">saturated",
        ">burst",
    ]);
    for size in &report.sizes {
        let found = &size.throughput;
        let us = |pick: fn(&lab::traffic::Latency) -> f64| {
            let latency = found.latency.as_ref();
            latency.map_or("-".to_owned(), |l| format!("{:.1} us", pick(l)))
        };
        table.row([
            format!("{} B", size.size_bytes),
            format!("{}pps", output::si(found.zero_loss_pps)),
            output::bits_per_second(size.wire_bps / 8.0),
            output::percent(size.share_of_10g),
            match found.limit {
                Limit::Device => "device".into(),
                Limit::Tester => "tester".into(),
            },
            us(|l| l.p50_us),
            us(|l| l.p99_us),
            us(|l| l.p99_9_us),
            us(|l| l.max_us),
            format!("{}pps", output::si(found.saturated_pps)),
            size.back_to_back_pkts
                .map_or("-".into(), |pkts| pkts.to_string()),
        ]);
    }
    let mut text = format!(
        "{}\ntester: {}\n{}\n\n{}",
        report.dut,
        report.tester,
        report.machine_line,
        table.render(0)
    );
    if report.sizes.iter().any(|size| !size.loss_curve.is_empty()) {
        text.push_str("\nloss against offered rate:\n");
    }
    for size in report.sizes.iter().filter(|s| !s.loss_curve.is_empty()) {
        let points = size.loss_curve.iter().map(|point| {
            let rate = output::si(point.offered_pps);
            format!("{rate}pps {}", output::percent(point.loss_ratio))
        });
        let points: Vec<String> = points.collect();
        text.push_str(&format!("  {} B: {}\n", size.size_bytes, points.join(", ")));
    }
    for note in &report.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn explain(error: RigError) -> Failure {
    let exit = match &error {
        RigError::Netns(error) if error.source.kind() == std::io::ErrorKind::PermissionDenied => {
            Exit::Refused
        }
        RigError::Interface(..) => Exit::NotFound,
        RigError::Profile(_) => Exit::Usage,
        _ => Exit::Failed,
    };
    let failure = Failure::new(exit, error);
    match exit {
        Exit::Refused => failure.remedy(
            "run it as root; --receive-on-tester does without the right to pin kernel threads",
        ),
        _ => failure,
    }
}

fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = parts
            .next()
            .and_then(|part| u8::from_str_radix(part, 16).ok())
            .ok_or("must be six hexadecimal numbers with colons")?;
    }
    match parts.next() {
        None => Ok(mac),
        Some(_) => Err("must be six hexadecimal numbers with colons".into()),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    if (0.01..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("must be 0.01 to 3600 seconds".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_and_seconds_are_read() {
        assert_eq!(parse_mac("02:00:0a:ff:00:01"), Ok([2, 0, 10, 255, 0, 1]));
        assert!(parse_mac("02:00:0a:ff:00").is_err());
        assert!(parse_mac("02:00:0a:ff:00:01:02").is_err());
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_seconds("0").is_err());
        assert!(parse_seconds("x").is_err());
    }
}
