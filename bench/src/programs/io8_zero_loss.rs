//! The experiment of IO-8: the highest rate without loss for each frame size, for our node over AF_XDP and
//! over AF_PACKET, the kernel's IPv4 forwarding, a forwarder on libpcap, and DPDK (testpmd's io forward over
//! net_af_xdp, which touches no packet; where it is installed):
//! `cargo run --release -p tidegate-bench -- io8_zero_loss` (as root).
//!
//! All stand in the same place between the same two ports of the same tester, with all receive work on
//! their own core, where it goes before the forwarding, as interrupts do; at 64 B also with the receive work
//! on the tester's core, as veth pairs do by default. A search begins at the rate that the frames of the size
//! before, or of the round before, passed at; its trials are short, and what it finds is confirmed by a
//! longer one. All takes about four minutes.
//! PF_RING, the other peer of the paper, cannot be had (docs/benchmarking.md).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use bench::{Options, Plot, Report, Series, Table, median, tidegate_program};
use clap::Parser;
use lab::dut::{NodeDriver, NodeOptions, NodeRole};
use lab::machine::pin_to_cpu;
use lab::need::find_program;
use lab::peer::testpmd;
use lab::rfc2544::{self, Limit, Throughput};
use lab::rig::{Dut, Rig, RigOptions};
use lab::traffic::FRAME_SIZES;
use serde_json::{Value, json};

/// The experiment of IO-8: the highest rate without loss.
#[derive(Debug, Parser)]
struct Arguments {
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Interleaved rounds at 64 B, of which figures are medians; the other sizes are measured in the first.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Frame sizes, bytes with FCS, with commas.
    #[arg(long, value_delimiter = ',', default_values_t = FRAME_SIZES)]
    sizes: Vec<u16>,
    /// Length of a trial of the search, milliseconds.
    #[arg(long, default_value_t = 150)]
    trial_ms: u64,
    /// Length of the trial that confirms what was found, milliseconds.
    #[arg(long, default_value_t = 500)]
    confirmation_ms: u64,
    /// Idle mode of our node.
    #[arg(long, default_value = "hybrid")]
    idle: String,
}

/// Devices under test; the first is compared with the others.
const DUTS: [(&str, &str); 5] = [
    ("af_xdp", "tidegate, AF_XDP"),
    ("af_packet", "tidegate, AF_PACKET"),
    ("kernel", "Linux IPv4 forwarding"),
    ("libpcap", "libpcap forwarder"),
    (TESTPMD, "DPDK testpmd, net_af_xdp"),
];
const TESTPMD: &str = "dpdk";

/// The devices that are here: testpmd may not be installed.
fn duts() -> &'static [(&'static str, &'static str)] {
    let missing = usize::from(find_program(testpmd::PROGRAM).is_none());
    &DUTS[..DUTS.len() - missing]
}

/// Where the receive work of the device under test is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Receive {
    OwnCore,
    TesterCore,
}

/// What is measured: a device, a place and a frame size.
type Key = (usize, Receive, u16);

fn dut(name: &str, arguments: &Arguments) -> Result<Dut> {
    let node = |driver| -> Result<Dut> {
        Ok(Dut::Node(NodeOptions {
            program: tidegate_program()?,
            driver,
            role: NodeRole::Router,
            cpus: vec![0],
            idle_mode: arguments.idle.clone(),
            more: String::new(),
        }))
    };
    match name {
        "af_xdp" => node(NodeDriver::AfXdp),
        "af_packet" => node(NodeDriver::AfPacket),
        "libpcap" => Ok(Dut::Libpcap),
        TESTPMD => Ok(Dut::Testpmd),
        _ => Ok(Dut::KernelRouter),
    }
}

/// Measures one device at these sizes.
fn measure(
    index: usize,
    receive: Receive,
    arguments: &Arguments,
    (tester_cpu, sizes): (usize, &[u16]),
    results: &mut BTreeMap<Key, Vec<Throughput>>,
) -> Result<()> {
    let mut options = rfc2544::Options {
        trial: Duration::from_millis(arguments.trial_ms),
        confirmation: Some(Duration::from_millis(arguments.confirmation_ms)),
        resolution: 0.02,
        confirmations: 1,
        ..rfc2544::Options::default()
    };
    let (name, title) = duts()[index];
    let mut rig = Rig::new(&RigOptions {
        receive_on_dut_cpu: receive == Receive::OwnCore,
        ..RigOptions::new(dut(name, arguments)?)
    })
    .context(title)?;
    pin_to_cpu(tester_cpu)?;
    if receive == Receive::OwnCore {
        rig.receive_before_forwarding()
            .context("let receiving go before forwarding")?;
    }
    for &size in sizes {
        let earlier = results.entry((index, receive, size)).or_default();
        let guess = earlier.last().map(|found| found.zero_loss_pps);
        options.guess_pps = guess.or(options.guess_pps);
        let found = rfc2544::measure_throughput(&options, &mut rig.device(size)?);
        options.guess_pps = Some(found.zero_loss_pps);
        earlier.push(found);
    }
    Ok(())
}

/// What was found for every device, place and frame size.
struct Found {
    results: BTreeMap<Key, Vec<Throughput>>,
    sizes: Vec<u16>,
}

impl Found {
    /// Measures all devices in turns.
    fn measure(arguments: &Arguments, tester_cpu: usize) -> Result<Self> {
        let mut results = BTreeMap::new();
        for round in 0..arguments.rounds {
            let mut order: Vec<usize> = (0..duts().len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                for receive in [Receive::OwnCore, Receive::TesterCore] {
                    eprintln!("round {}, {}, {receive:?}", round + 1, duts()[index].1);
                    let sizes: &[u16] = match receive {
                        Receive::OwnCore if round == 0 => &arguments.sizes,
                        _ => &[64],
                    };
                    // A thread of its own, since it is pinned, and a device's processes end with it.
                    let result = std::thread::scope(|scope| {
                        let results = &mut results;
                        scope
                            .spawn(move || {
                                measure(index, receive, arguments, (tester_cpu, sizes), results)
                            })
                            .join()
                    });
                    result.map_err(|_| anyhow::anyhow!("the tester panicked"))??;
                }
            }
        }
        Ok(Self {
            results,
            sizes: arguments.sizes.clone(),
        })
    }

    fn of(&self, key: Key) -> impl Iterator<Item = &Throughput> {
        self.results.get(&key).into_iter().flatten()
    }

    fn kpps(&self, key: Key) -> f64 {
        let rates: Vec<f64> = self.of(key).map(|found| found.zero_loss_pps).collect();
        median(&rates) / 1000.0
    }

    /// Tells whether the tester was the limit in most rounds: the device may be faster.
    fn tester_limited(&self, key: Key) -> bool {
        let limited = self.of(key).filter(|found| found.limit == Limit::Tester);
        limited.count() * 2 > self.of(key).count()
    }

    fn cell(&self, key: Key) -> Value {
        let kpps = self.kpps(key);
        match self.tester_limited(key) {
            true => json!(format!("{kpps:.0} or more")),
            false => json!(format!("{kpps:.0}")),
        }
    }

    fn table(&self, place: &str, receive: Receive, sizes: &[u16]) -> Table {
        let mut columns = vec!["size, B".to_owned()];
        columns.extend(duts().iter().map(|(_, title)| format!("{title}, kpps")));
        columns.push("AF_XDP on a wire, Mbit/s".into());
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let title = format!("Highest rate without loss, receiving {place}");
        let mut table = Table::new(&title, &columns);
        for &size in sizes {
            let mut row = vec![json!(size)];
            row.extend((0..duts().len()).map(|index| self.cell((index, receive, size))));
            let wire_mbps = self.kpps((0, receive, size)) * 8.0 * f64::from(size + 20) / 1e3;
            row.push(json!(format!("{wire_mbps:.0}")));
            table.rows.push(row);
        }
        table
    }

    /// Adds the figures for 64 B. A ratio to a peer for which the tester was the limit would flatter us:
    /// it is left out, and its claim has no figure.
    fn figures(&self, report: &mut Report, receive: Receive, suffix: &str) {
        let ours = self.kpps((0, receive, 64));
        for (index, (name, _)) in duts().iter().enumerate() {
            let kpps = self.kpps((index, receive, 64));
            report.figure(&format!("{name}_64_kpps{suffix}"), kpps);
            if index == 0 {
                continue;
            }
            if self.tester_limited((index, receive, 64)) {
                report.note(format!(
                    "{name}{suffix}: the tester was the limit, so no ratio to it"
                ));
            } else {
                report.figure(&format!("af_xdp_to_{name}_64{suffix}"), ours / kpps);
            }
        }
    }

    fn plot(&self) -> Plot {
        let series = duts().iter().enumerate().map(|(index, (_, title))| {
            let point = |&size: &u16| (f64::from(size), self.kpps((index, Receive::OwnCore, size)));
            Series {
                name: (*title).to_owned(),
                points: self.sizes.iter().map(point).collect(),
            }
        });
        Plot {
            title: "Highest rate without loss by frame size".into(),
            x: "frame size, bytes with FCS".into(),
            y: "kpps".into(),
            log_x: false,
            log_y: false,
            series: series.collect(),
        }
    }
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    let mut report = Report::new("io8_zero_loss");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    anyhow::ensure!(cpus >= 2, "the tester and the device need a core each");
    let found = Found::measure(&arguments, cpus - 1)?;
    let own = found.table("on the forwarder's core", Receive::OwnCore, &found.sizes);
    report.table(own);
    report.table(found.table("on the tester's core", Receive::TesterCore, &[64]));
    found.figures(&mut report, Receive::OwnCore, "");
    found.figures(&mut report, Receive::TesterCore, "_tester_core");
    report.plot(found.plot());
    if duts().len() < DUTS.len() {
        report.note("no column for DPDK: dpdk-testpmd is not installed (Debian package dpdk-dev)");
    }
    report.note("PF_RING cannot be had: its kernel module is not in Debian");
    report.print(&Options {
        json: arguments.json,
        ..Options::default()
    });
    Ok(())
}
