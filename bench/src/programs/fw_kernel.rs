//! Measures the kernel's firewall beside ours, what it costs to bring the packets taken off on both sides:
//! `cargo run --release -p tidegate-bench -- fw_kernel` (root, `nft`).
//!
//! The kernel's packets are made by a program in the kernel, as from the driver of a card ([`bench::inject`]), and go
//! up the stack of a router's namespace, through nftables, and out by a device without a carrier, which takes no time
//! over them. The same packets with another's Ethernet address, which the stack drops at once, are what is taken off.
//! Ours are those of `fw_mem`. Both count processor time of the one thread. The machine's limits on connections are
//! raised while the program runs, so that the kernel's table of a million has as many buckets.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use bench::firewall::{Kind, MASQUERADE, Tuple};
use bench::inject::{Addressing, Source, To};
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use lab::netns::Namespace;
use lab::topology::{Line, LineOptions};
use serde_json::json;

use super::fw_mem::{Established, Look, new_connections, rules_cost};

/// Measures the kernel's firewall beside ours.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Flows of the large table: a power of two.
    #[arg(long, default_value_t = 1 << 20)]
    flows: u32,
    /// Packets of one measurement of the kernel.
    #[arg(long, default_value_t = 200_000)]
    packets: u32,
}

/// A limit of the machine that is another while this lives.
pub(crate) struct Raised {
    path: String,
    before: String,
}

impl Raised {
    pub(crate) fn to(name: &str, value: u32) -> Result<Option<Self>> {
        let path = format!("/proc/sys/net/netfilter/{name}");
        let before = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        if before.trim().parse().is_ok_and(|before: u32| before >= value) {
            return Ok(None);
        }
        std::fs::write(&path, value.to_string()).with_context(|| path.clone())?;
        Ok(Some(Self { path, before }))
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(&self.path, self.before.trim()) {
            eprintln!("{} stays raised: {error}", self.path);
        }
    }
}

/// The server: a neighbour that is nowhere.
const SERVER: u32 = u32::from_be_bytes([10, 2, 0, 3]);
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0x99, 0x99];
const CLIENT: u32 = u32::from_be_bytes([10, 1, 0, 2]);
const OUTER: u32 = u32::from_be_bytes([10, 2, 0, 1]);

/// A namespace that routes under some rules.
struct Router {
    line: Line,
    left: u32,
    right: u32,
    packets: u32,
}

impl Router {
    fn new(prefix: &str, rules: &str, packets: u32) -> Result<Self> {
        let options = LineOptions {
            addresses: false,
            ..LineOptions::default()
        };
        let line = Line::new(prefix, options)?;
        lab::peer::route_by_kernel(&line)?;
        let mut links = line.node.links()?;
        links.add_neighbour(&line.right.node_device, SERVER.into_address(), NOBODY)?;
        let (left, right) = (&line.left.node_device, &line.right.node_device);
        let rules = rules.replace("\"inside\"", left).replace("\"outside\"", right);
        nft(&line.node, &rules)?;
        let index = |device: &str| -> Result<u32> { Ok(line.node.links()?.get(device)?.index) };
        let (left, right) = (index(left)?, index(right)?);
        // What leaves by the right meets a device without a carrier.
        line.right.namespace.links()?.set_down(&line.right.device)?;
        Ok(Self {
            line,
            left,
            right,
            packets,
        })
    }

    /// A source of packets of the clients, or of the servers.
    fn source(&self, kind: Kind, flows: u32) -> Result<Source> {
        let back = kind == Kind::UdpBack;
        let (side, index) = match back {
            true => (&self.line.right, self.right),
            false => (&self.line.left, self.left),
        };
        let addressing = Addressing {
            source_mac: side.mac,
            destination_mac: side.node_mac,
            client: if back { OUTER } else { CLIENT },
            is_forged: false,
            server: SERVER,
        };
        Source::new(kind, &addressing, flows, To::Stack(index))
    }

    /// Lets every one of the UDP flows be established.
    fn establish(&self, flows: u32) -> Result<Source> {
        let timeout = "net/netfilter/nf_conntrack_udp_timeout";
        for name in [timeout, "net/netfilter/nf_conntrack_udp_timeout_stream"] {
            self.line.node.set_sysctl(name, "3600")?;
        }
        let there = self.source(Kind::Udp, flows)?;
        let back = self.source(Kind::UdpBack, flows)?;
        self.line.node.run(|| {
            there.send(flows)?;
            back.send(flows)?;
            there.send(flows).map(|_| ())
        })??;
        let known = self.read("sys/net/netfilter/nf_conntrack_count")?;
        let known: u32 = known.trim().parse().context("a count")?;
        ensure!(known >= flows, "the kernel has {known} of {flows} connections");
        Ok(there)
    }

    fn read(&self, path: &str) -> Result<String> {
        let path = format!("/proc/{path}");
        let read = || std::fs::read_to_string(path.replace("/proc/net", "/proc/thread-self/net"));
        Ok(self.line.node.run(read)??)
    }

    /// Packets that the namespace has forwarded.
    fn forwarded(&self) -> Result<u64> {
        let text = self.read("net/snmp")?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, values) = lines.next().zip(lines.next()).context("two lines of Ip")?;
        let mut pairs = names.split(' ').zip(values.split(' '));
        let value = pairs.find(|pair| pair.0 == "ForwDatagrams");
        value.and_then(|pair| pair.1.parse().ok()).context("ForwDatagrams")
    }

    /// Nanoseconds of processor time a packet, all of which have to be forwarded, or none.
    fn cost(&self, source: &Source, forwards: bool) -> Result<f64> {
        let before = self.forwarded()?;
        let each = self.line.node.run(|| -> Result<f64> {
            io::cpu::pin(0)?;
            // What a call costs besides the packets is not in the difference of two.
            let mut spent = [0.0; 2];
            for (spent, packets) in spent.iter_mut().zip([self.packets / 10, self.packets]) {
                let start = io::cpu::thread_time();
                source.send(packets)?;
                *spent = (io::cpu::thread_time() - start).as_nanos() as f64;
            }
            Ok((spent[1] - spent[0]) / f64::from(self.packets - self.packets / 10))
        })??;
        let forwarded = self.forwarded()? - before;
        let wanted = u64::from(self.packets + self.packets / 10);
        let right = if forwards { forwarded == wanted } else { forwarded == 0 };
        ensure!(right, "the kernel forwarded {forwarded} of {wanted}");
        Ok(each)
    }
}

trait IntoAddress {
    fn into_address(self) -> std::net::IpAddr;
}

impl IntoAddress for u32 {
    fn into_address(self) -> std::net::IpAddr {
        std::net::Ipv4Addr::from(self).into()
    }
}

pub(crate) fn nft(namespace: &Namespace, rules: &str) -> Result<()> {
    let mut command = namespace.command("nft");
    let mut child = command
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("nft")?;
    let mut input = child.stdin.take().context("its input")?;
    input.write_all(rules.as_bytes())?;
    drop(input);
    ensure!(child.wait()?.success(), "nft refuses the rules");
    Ok(())
}

/// Rules that no packet of the sources fits.
fn list(count: usize) -> String {
    let mut text = String::from("table ip t { chain forward { type filter hook forward priority 0; policy accept\n");
    for n in 0..count {
        let (high, low) = (n / 250, n % 250);
        text.push_str(&format!("ip saddr 172.16.{high}.{low} tcp dport {} accept\n", 2000 + n));
    }
    text.push_str("}\n}\n");
    text
}

/// What is measured, in the order of the table.
const ROWS: [(&str, &str, &str); 16] = [
    ("kernel_limit", "kernel: packets made and dropped at once", "ns/packet"),
    ("kernel_plain", "kernel: forwarded, no rules", "ns/packet"),
    ("kernel_1", "kernel: state and NAT, 1 flow", "ns/packet"),
    ("kernel_many", "kernel: state and NAT, many flows", "ns/packet"),
    ("kernel_syn_limit", "kernel: SYNs made and dropped at once", "ns/packet"),
    ("kernel_new", "kernel: SYNs of new connections, state and NAT", "ns/packet"),
    ("kernel_list_10", "kernel: 10 linear rules", "ns/packet"),
    ("kernel_list_1000", "kernel: 1,000 linear rules", "ns/packet"),
    ("ours_1", "ours: state and NAT, 1 flow", "ns/packet"),
    ("ours_1_limit", "  only made and parsed", "ns/packet"),
    ("ours_many", "ours: state and NAT, many flows", "ns/packet"),
    ("ours_many_limit", "  only made and parsed", "ns/packet"),
    ("ours_new", "ours: SYNs of new connections, state and NAT", "1/s"),
    ("ours_list_10", "ours: 10 rules", "ns/packet"),
    ("ours_list_1000", "ours: 1,000 rules", "ns/packet"),
    ("ours_new_limit", "  SYNs only made and parsed", "ns/packet"),
];

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    ensure!(lab::netns::is_root(), "needs root: it makes network namespaces");
    let (flows, packets) = (arguments.flows, arguments.packets);
    let connections = flows + 2 * packets * (arguments.options.rounds as u32 + 1);
    let _raised = [
        Raised::to("nf_conntrack_max", connections.next_power_of_two())?,
        Raised::to("nf_conntrack_buckets", connections.next_power_of_two())?,
    ];

    let router = |prefix: &str, rules: &str| Router::new(prefix, rules, packets);
    let plain = router("fwp", "")?;
    let (one, many, new) = (
        router("fw1", MASQUERADE)?,
        router("fwm", MASQUERADE)?,
        router("fwn", MASQUERADE)?,
    );
    let (short, long) = (router("fws", &list(10))?, router("fwl", &list(1000))?);
    let elsewhere = |kind| -> Result<Source> {
        let addressing = Addressing {
            source_mac: plain.line.left.mac,
            destination_mac: NOBODY,
            client: CLIENT,
            is_forged: false,
            server: SERVER,
        };
        Source::new(kind, &addressing, flows, To::Stack(plain.left))
    };
    let (nothing, no_syns) = (elsewhere(Kind::Udp)?, elsewhere(Kind::Syn)?);
    let through = plain.source(Kind::Udp, flows)?;
    let (first, all) = (one.establish(1)?, many.establish(flows)?);
    let fresh = new.source(Kind::Syn, 1 << 23)?;
    let (few_rules, many_rules) = (short.source(Kind::Syn, flows)?, long.source(Kind::Syn, flows)?);

    let kernel = |router: &Router, source: &Source, forwards| {
        router.cost(source, forwards).unwrap_or_else(|error| {
            eprintln!("{error:#}");
            f64::NAN
        })
    };
    let mut ours_one = Established::new(1, 1_000_000, true);
    let mut ours_many = Established::new(flows, flows, true);
    let mut ours_one_limit = Established::new(1, 1_000_000, true);
    let mut ours_many_limit = Established::new(1024, flows, true);
    let mut ours_new_limit = Established::new(1024, flows, false);
    let samples = rounds(
        arguments.options.rounds,
        &mut [
            &mut || kernel(&plain, &nothing, false),
            &mut || kernel(&plain, &through, true),
            &mut || kernel(&one, &first, true),
            &mut || kernel(&many, &all, true),
            &mut || kernel(&plain, &no_syns, false),
            &mut || kernel(&new, &fresh, true),
            &mut || kernel(&short, &few_rules, true),
            &mut || kernel(&long, &many_rules, true),
            &mut || ours_one.pass(),
            &mut || ours_one_limit.limit(),
            &mut || ours_many.pass(),
            &mut || ours_many_limit.limit(),
            &mut new_connections(MASQUERADE, Tuple::shared, flows),
            &mut rules_cost(Look::List, 10, 1_000_000),
            &mut rules_cost(Look::List, 1000, 1_000_000),
            &mut || ours_new_limit.limit(),
        ],
    );
    report(&arguments, &samples);
    Ok(())
}

fn report(arguments: &Arguments, samples: &[Vec<f64>]) {
    let figure = |name: &str| {
        let at = ROWS.iter().position(|row| row.0 == name);
        at.and_then(|at| samples.get(at)).map_or(f64::NAN, |samples| median(samples))
    };
    let net = |name: &str, limit: &str| figure(name) - figure(limit);
    let mut report = Report::new("fw_kernel");
    let title = format!(
        "The kernel's nftables and the engine, one core, 64 B; many flows are {}",
        arguments.flows
    );
    let mut table = Table::new(&title, &["what", "unit", "median", "lowest", "highest"]);
    for (row, samples) in ROWS.iter().zip(samples) {
        let low = samples.iter().copied().fold(f64::MAX, f64::min);
        let high = samples.iter().copied().fold(0.0, f64::max);
        let cells = vec![json!(row.1), json!(row.2), json!(median(samples)), json!(low), json!(high)];
        table.rows.push(cells);
    }
    report.table(table);
    let kernel = ["kernel_1", "kernel_many"].map(|name| net(name, "kernel_limit"));
    let ours = [net("ours_1", "ours_1_limit"), net("ours_many", "ours_many_limit")];
    report.figure("kernel_1_ns", kernel[0]);
    report.figure("kernel_many_ns", kernel[1]);
    report.figure("kernel_firewall_1_ns", net("kernel_1", "kernel_plain"));
    report.figure("kernel_firewall_many_ns", net("kernel_many", "kernel_plain"));
    report.figure("ours_1_ns", ours[0]);
    report.figure("ours_many_ns", ours[1]);
    report.figure("ratio_1", kernel[0] / ours[0]);
    report.figure("ratio_many", kernel[1] / ours[1]);
    let kernel_new = 1e9 / net("kernel_new", "kernel_syn_limit");
    let ours_new = 1e9 / (1e9 / figure("ours_new") - figure("ours_new_limit"));
    report.figure("kernel_new_per_s", kernel_new);
    report.figure("ours_new_per_s", ours_new);
    report.figure("ratio_new", ours_new / kernel_new);
    let kernel_rules = ["kernel_list_10", "kernel_list_1000"].map(|name| net(name, "kernel_syn_limit"));
    report.figure("kernel_list_1000_to_10", kernel_rules[1] / kernel_rules[0]);
    report.figure("ours_list_1000_to_10", figure("ours_list_1000") / figure("ours_list_10"));
    report.note(
        "the kernel's figures have its routing and the hand-over to a device in them, ours a look-up of the route; \
         kernel_firewall_* take off all of forwarding without rules instead",
    );
    report.print(&arguments.options);
}
