//! Measures the node with masquerade beside the kernel's nftables over veth:
//! `cargo run --release -p tidegate-bench -- fw_veth` (root, `nft`).
//!
//! Three namespaces in a line for each subject. On the left the kernel makes packets of many flows and puts them into
//! the wire as a card's driver would ([`bench::inject`]); in the middle the node over AF_XDP or the kernel forwards
//! them; on the right they are counted and thrown away, being for another's Ethernet address. Packets go in portions
//! that fit every ring, the next when the last has arrived, so that nothing is lost. What is measured is the processor
//! time of those who forward: the kernel's thread that receives for the middle (where the kernel forwards, it does all
//! of that too), and the node's process. The same without a firewall is beside it.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::firewall::{Kind, masquerade_between};
use bench::inject::{Addressing, Source, To};
use bench::{Options, Report, Table, median, rounds, tidegate_program};
use clap::Parser;
use lab::dut::{NodeDriver, NodeOptions, NodeProcess, NodeRole};
use lab::links::Links;
use lab::topology::{Line, LineOptions};
use serde_json::json;

use super::fw_kernel::{Raised, nft};

/// Measures the node with masquerade beside the kernel's nftables over veth.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Flows of the large table: a power of two.
    #[arg(long, default_value_t = 1 << 17)]
    flows: u32,
    /// Packets of one measurement.
    #[arg(long, default_value_t = 16_384)]
    packets: u32,
}

/// Packets on their way at a time. The shortest ring is the one inside a veth pair, of 256; the places of up to 16
/// frames that were taken are given back together, so that it may hold fewer.
const PORTION: u32 = 128;
/// How long a portion may take, and the first one, whose way has to be ready.
const PATIENCE: Duration = Duration::from_secs(1);
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// Where those who forward run; the generator runs on the other.
const FORWARDER_CPU: u16 = 1;
const GENERATOR_CPU: u16 = 0;

const SERVER: [u8; 4] = [10, 2, 0, 3];
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0x99, 0x99];

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Node,
    Kernel,
}

/// A line with a forwarder, and its sources of packets.
struct Subject {
    line: Line,
    /// The devices of the right side, whose counters tell what has arrived.
    right: RefCell<Links>,
    node: Option<NodeProcess>,
    /// The kernel's threads that receive in the middle.
    threads: Vec<i32>,
    one: Source,
    many: Source,
    fresh: Source,
}

/// Which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    One,
    Many,
    New,
}

impl Subject {
    fn new(who: Who, prefix: &str, rules: Option<&Path>, arguments: &Arguments) -> Result<Self> {
        let options = LineOptions {
            addresses: false,
            ..LineOptions::default()
        };
        let line = Line::new(prefix, options)?;
        let node = match who {
            Who::Node => Some(start_node(&line, rules)?),
            Who::Kernel => {
                lab::peer::route_by_kernel(&line)?;
                let right = &line.right.node_device;
                line.node.links()?.add_neighbour(right, SERVER.into(), NOBODY)?;
                if rules.is_some() {
                    // A flow's next turn may be later than 30 s after the one before.
                    let timeout = "net/netfilter/nf_conntrack_udp_timeout";
                    line.node.set_sysctl(timeout, "3600")?;
                    nft(&line.node, &masquerade_between(&line.left.node_device, right))?;
                }
                None
            }
        };
        // After the node, whose program makes the device's threads anew.
        let threads = line
            .node
            .receive_on_cpu(&line.left.node_device, usize::from(FORWARDER_CPU))?;
        let index = line.left.namespace.links()?.get(&line.left.device)?.index;
        let addressing = Addressing {
            source_mac: line.left.mac,
            destination_mac: line.left.node_mac,
            client: u32::from_be_bytes([10, 1, 0, 2]),
            is_forged: false,
            server: u32::from_be_bytes(SERVER),
        };
        let source = |kind, flows| Source::new(kind, &addressing, flows, To::Interface(index));
        let subject = Self {
            one: source(Kind::Udp, 1)?,
            many: source(Kind::Udp, arguments.flows)?,
            fresh: source(Kind::Syn, 1 << 23)?,
            right: RefCell::new(line.right.namespace.links()?),
            line,
            node,
            threads,
        };
        subject.wait_until_alive().with_context(|| prefix.to_owned())?;
        Ok(subject)
    }

    /// Sends single packets until one arrives.
    fn wait_until_alive(&self) -> Result<()> {
        let before = self.arrived()?;
        let end = Instant::now() + FIRST_PATIENCE;
        while self.arrived()? == before {
            let log = || self.node.as_ref().map(NodeProcess::log).unwrap_or_default();
            ensure!(Instant::now() < end, "no packet comes through; {}", log());
            self.portion(&self.one, 1)?;
            std::thread::sleep(Duration::from_millis(10));
        }
        // What is still on its way is not to be counted later.
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    fn arrived(&self) -> Result<u64> {
        let link = self.right.borrow_mut().get(&self.line.right.device)?;
        Ok(link.counters.rx_pkts)
    }

    /// Puts packets into the wire.
    fn portion(&self, source: &Source, packets: u32) -> Result<()> {
        self.line.left.namespace.run(|| {
            io::cpu::pin(GENERATOR_CPU)?;
            source.send(packets).map(|_| ())
        })?
    }

    /// Processor time of those who forward.
    fn spent(&self) -> Result<Duration> {
        let mut paths: Vec<String> =
            self.threads.iter().map(|id| format!("/proc/{id}/schedstat")).collect();
        if let Some(node) = &self.node {
            for task in std::fs::read_dir(format!("/proc/{}/task", node.pid()))? {
                paths.push(task?.path().join("schedstat").display().to_string());
            }
        }
        let mut spent = Duration::ZERO;
        for path in paths {
            let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
            let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
            spent += Duration::from_nanos(ns.context(path)?);
        }
        Ok(spent)
    }

    /// Sends so many packets and waits for each portion; returns how many arrived.
    fn send(&self, load: Load, packets: u32) -> Result<u64> {
        let source = match load {
            Load::One => &self.one,
            Load::Many => &self.many,
            Load::New => &self.fresh,
        };
        let before = self.arrived()?;
        let mut sent = 0;
        while sent < packets {
            let portion = PORTION.min(packets - sent);
            let goal = self.arrived()? + u64::from(portion);
            self.portion(source, portion)?;
            sent += portion;
            let end = Instant::now() + PATIENCE;
            while self.arrived()? < goal && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(self.arrived()? - before)
    }

    /// Packets a second of processor time.
    fn rate(&self, load: Load, packets: u32) -> Result<f64> {
        let before = self.spent()?;
        let arrived = self.send(load, packets)?;
        let spent = self.spent()? - before;
        ensure!(
            arrived * 100 >= u64::from(packets) * 99,
            "{arrived} of {packets} packets arrived"
        );
        Ok(arrived as f64 / spent.as_secs_f64())
    }
}

fn start_node(line: &Line, rules: Option<&Path>) -> Result<NodeProcess> {
    let mac = NOBODY.map(|byte| format!("{byte:02x}")).join(":");
    let server = std::net::Ipv4Addr::from(SERVER);
    let mut more =
        format!("[[neighbour]]\naddress = \"{server}\"\nmac = \"{mac}\"\nport = \"right\"\n");
    if let Some(rules) = rules {
        let path = rules.display();
        more.push_str(&format!(
            "[firewall]\nrules = \"{path}\"\nconnections = 2000000\nstate = \"off\"\n"
        ));
    }
    let options = NodeOptions {
        program: tidegate_program()?,
        driver: NodeDriver::AfXdp,
        role: NodeRole::Router,
        cpus: vec![usize::from(FORWARDER_CPU)],
        idle_mode: "interrupt".into(),
        more,
    };
    Ok(NodeProcess::start(line, &options)?)
}

/// What is measured: a name, who, with a firewall, under which load.
const ROWS: [(&str, &str, usize, Load); 10] = [
    ("node_1", "tidegate, masquerade, 1 flow", 0, Load::One),
    ("kernel_1", "nftables, masquerade, 1 flow", 1, Load::One),
    ("node_many", "tidegate, masquerade, many flows", 0, Load::Many),
    ("kernel_many", "nftables, masquerade, many flows", 1, Load::Many),
    ("node_new", "tidegate, masquerade, SYNs of new connections", 0, Load::New),
    ("kernel_new", "nftables, masquerade, SYNs of new connections", 1, Load::New),
    ("node_plain_1", "tidegate, no firewall, 1 flow", 2, Load::One),
    ("kernel_plain_1", "kernel, no firewall, 1 flow", 3, Load::One),
    ("node_plain_many", "tidegate, no firewall, many flows", 2, Load::Many),
    ("kernel_plain_many", "kernel, no firewall, many flows", 3, Load::Many),
];

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    ensure!(lab::netns::is_root(), "needs root: it makes network namespaces");
    let total = arguments.flows + arguments.packets * (arguments.options.rounds as u32 + 1);
    let _raised = [
        Raised::to("nf_conntrack_max", 2 * total.next_power_of_two())?,
        Raised::to("nf_conntrack_buckets", total.next_power_of_two())?,
    ];
    let rules = tempfile::NamedTempFile::new()?;
    std::fs::write(&rules, masquerade_between("left", "right"))?;
    let subjects = [
        Subject::new(Who::Node, "fvn", Some(rules.path()), &arguments)?,
        Subject::new(Who::Kernel, "fvk", Some(rules.path()), &arguments)?,
        Subject::new(Who::Node, "fvo", None, &arguments)?,
        Subject::new(Who::Kernel, "fvl", None, &arguments)?,
    ];
    for subject in &subjects {
        // Each flow has its connection before it is measured.
        for (load, packets) in [(Load::One, PORTION), (Load::Many, arguments.flows)] {
            let arrived = subject.send(load, packets)?;
            ensure!(
                arrived * 100 >= u64::from(packets) * 99,
                "{load:?}: {arrived} of {packets} packets arrived by {}",
                subject.line.right.device
            );
        }
    }
    let mut runs: Vec<_> = ROWS
        .iter()
        .map(|(name, _, at, load)| {
            let (subject, packets) = (&subjects[*at], arguments.packets);
            move || {
                subject.rate(*load, packets).unwrap_or_else(|error| {
                    eprintln!("{name}: {error:#}");
                    f64::NAN
                })
            }
        })
        .collect();
    let mut turns: Vec<&mut dyn FnMut() -> f64> = runs.iter_mut().map(|run| run as _).collect();
    let samples = rounds(arguments.options.rounds, &mut turns);

    let mut report = Report::new("fw_veth");
    let title = format!(
        "Over veth, 64 B, a second of processor time of the forwarder; many flows are {}",
        arguments.flows
    );
    let mut table = Table::new(&title, &["what", "packets/s", "lowest", "highest"]);
    for (row, samples) in ROWS.iter().zip(&samples) {
        let low = samples.iter().copied().fold(f64::MAX, f64::min);
        let high = samples.iter().copied().fold(0.0, f64::max);
        table.rows.push(vec![json!(row.1), json!(median(samples)), json!(low), json!(high)]);
        report.figure(&format!("{}_pps", row.0), median(samples));
    }
    report.table(table);
    // Of each round, then the median: both of a pair have met the same disturbance.
    for (at, pair) in ROWS.iter().zip(&samples).collect::<Vec<_>>().chunks_exact(2).map(|pair| (pair[0].0.0, pair)) {
        let ratios: Vec<f64> = pair[0].1.iter().zip(pair[1].1).map(|(ours, theirs)| ours / theirs).collect();
        report.figure(&at.replace("node", "ratio"), median(&ratios));
    }
    report.note(
        "without a firewall the node's cost is the driver's: veth copies each frame into the node's memory and out of it, \
         each with a system call a burst",
    );
    report.print(&arguments.options);
    Ok(())
}
