//! Floods a masquerading node with SYNs at ten times the load of flows that it knows:
//! `cargo run --release -p tidegate-bench -- fw_flood` (root). Is there state for them, and what is left of the flows'
//! goodput?
//!
//! The tester of RFC 2544 sends the flows over veth in turns without and with the flood, which a program in the kernel
//! makes ([`bench::inject`]): each SYN has another forged source, and a route back. The guard has one threshold, of new
//! connections a second to one destination. Both loads are measured, the SYNs where they reach the node's device: a
//! round counts only if both were what was asked for, and without such rounds the program fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::firewall::{Kind, masquerade_between};
use bench::inject::{Addressing, Source, To};
use bench::{Options, Report, Table, median, tidegate_program};
use clap::Parser;
use lab::dut::{NodeDriver, NodeOptions, NodeRole};
use lab::rig::{Dut, Rig, RigOptions};
use lab::traffic::{Load, Pacer, Trial, TrialPlan};
use serde_json::json;

/// Floods a masquerading node with SYNs at ten times the load of flows that it knows.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Packets a second of the flows.
    #[arg(long, default_value_t = 10_000.0)]
    rate: f64,
    /// SYNs for each of them.
    #[arg(long, default_value_t = 10.0)]
    times: f64,
}

/// The flows: fewer than the guard's threshold, since each is a new connection once.
const FLOWS: u32 = 256;
const THRESHOLD: u32 = 1000;
/// SYNs at a time, of the 256 that the ring of a veth pair takes.
const PORTION: u32 = 64;
/// SYNs that a thread which was kept from running makes up for.
const BACKLOG: u64 = 1024;
/// Share of a load that has to be reached.
const REACHED: f64 = 0.95;
/// Tries for each round.
const TRIES: usize = 4;

/// What the thread that floods is told.
#[derive(Debug, Default)]
struct Flood {
    attacks: AtomicBool,
    ends: AtomicBool,
}

/// Sends SYNs at a rate while it is told to.
fn flood(source: &Source, pps: f64, told: &Flood) -> Result<()> {
    let epoch = Instant::now();
    let now_ns = || epoch.elapsed().as_nanos() as u64;
    let pause = Duration::from_secs_f64(f64::from(PORTION) / pps);
    let mut pacer = None;
    while !told.ends.load(Ordering::Relaxed) {
        if !told.attacks.load(Ordering::Relaxed) {
            pacer = None;
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let pacer = pacer.get_or_insert_with(|| Pacer::new(pps, now_ns(), BACKLOG));
        if pacer.due(now_ns()) < PORTION.into() {
            std::thread::sleep(pause);
            continue;
        }
        source.send(PORTION)?;
        pacer.sent(PORTION.into());
    }
    Ok(())
}

/// What a round showed.
#[derive(Clone, Copy, Debug)]
struct Round {
    quiet: f64,
    flooded: f64,
    flows_pps: f64,
    syns_pps: f64,
}

/// The part of the packets sent that arrived.
fn goodput(trial: &Trial) -> f64 {
    trial.received_pkts as f64 / trial.sent_pkts.max(1) as f64
}

/// Packets that have reached the node's device on the left.
fn reached(rig: &Rig) -> Result<u64> {
    let line = rig.line().context("the rig has namespaces")?;
    Ok(line.node.links()?.get(&line.left.node_device)?.counters.rx_pkts)
}

/// A trial without the flood, then one with it; adds the time of the flood to `attacked`.
fn round(rig: &mut Rig, plan: &TrialPlan, told: &Flood, attacked: &mut Duration) -> Result<Round> {
    let quiet = goodput(&rig.trial(64, plan)?);
    let start = Instant::now();
    told.attacks.store(true, Ordering::Relaxed);
    // It has begun, and the guard has seen it.
    std::thread::sleep(Duration::from_millis(200));
    let (begin, first) = (Instant::now(), reached(rig)?);
    let trial = rig.trial(64, plan);
    let (took, last) = (begin.elapsed(), reached(rig)?);
    told.attacks.store(false, Ordering::Relaxed);
    // What is on its way is of the attack.
    std::thread::sleep(Duration::from_millis(50));
    *attacked += start.elapsed();
    let trial = trial?;
    let syns = (last - first).saturating_sub(trial.sent_pkts);
    Ok(Round {
        quiet,
        flooded: goodput(&trial),
        flows_pps: trial.offered_pps,
        syns_pps: syns as f64 / took.as_secs_f64(),
    })
}

/// Connections that the node knows.
fn connections(rig: &Rig) -> Result<u64> {
    let node = rig.node().context("the device is a node")?;
    let mut command = std::process::Command::new(tidegate_program()?);
    command.arg("--socket").arg(node.control_socket());
    let output = command.args(["session", "ls", "-p", "tcp", "--json"]).output()?;
    let said: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("what session ls says")?;
    said["matched"].as_u64().context("a number of connections")
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    ensure!(lab::netns::is_root(), "needs root: it makes network namespaces");
    let rules = tempfile::NamedTempFile::new()?;
    std::fs::write(&rules, masquerade_between("left", "right"))?;
    let more = format!(
        "[[route]]\nto = \"198.18.0.0/15\"\nvia = \"10.1.0.2\"\n\
         [firewall]\nrules = \"{}\"\nstate = \"off\"\n\
         [firewall.guard]\ndestination_connections_per_s = {THRESHOLD}\n",
        rules.path().display()
    );
    let node = NodeOptions {
        program: tidegate_program()?,
        driver: NodeDriver::AfXdp,
        role: NodeRole::Router,
        cpus: vec![0],
        idle_mode: "hybrid".into(),
        more,
    };
    let mut rig = Rig::new(&RigOptions {
        flows: FLOWS,
        receive_on_dut_cpu: false,
        ..RigOptions::new(Dut::Node(node))
    })?;
    let line = rig.line().context("the rig has namespaces")?;
    let index = line.left.namespace.links()?.get(&line.left.device)?.index;
    let addressing = Addressing {
        source_mac: line.left.mac,
        destination_mac: line.left.node_mac,
        client: u32::from_be_bytes([198, 18, 0, 0]),
        is_forged: true,
        server: u32::from_be_bytes([10, 2, 0, 2]),
    };
    let source = Source::new(Kind::Syn, &addressing, 1 << 23, To::Interface(index))?;
    let (told, pps) = (Arc::new(Flood::default()), arguments.rate * arguments.times);
    let its = Arc::clone(&told);
    // A thread stays in the namespace of who started it.
    let spawn = || std::thread::spawn(move || flood(&source, pps, &its));
    let attack = line.left.namespace.run(spawn)?;
    let plan = TrialPlan::new(Load::Rate(arguments.rate), 2 * arguments.options.window());
    rig.trial(64, &plan)?;
    let before = connections(&rig)?;
    let wanted = arguments.options.rounds.max(1);
    let (mut kept, mut attacked, mut windows) = (Vec::new(), Duration::ZERO, 0);
    let mut last = None;
    for _ in 0..wanted * TRIES {
        if kept.len() == wanted || attack.is_finished() {
            break;
        }
        let round = round(&mut rig, &plan, &told, &mut attacked)?;
        windows += 1;
        last = Some(round);
        let is_right = round.flows_pps >= REACHED * arguments.rate
            && round.syns_pps >= REACHED * arguments.times * round.flows_pps;
        if is_right {
            kept.push(round);
        }
    }
    told.ends.store(true, Ordering::Relaxed);
    attack.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
    ensure!(
        kept.len() == wanted,
        "{} of {wanted} rounds at {} packets/s and {} times as many SYNs; the last one was {last:.0?}: \
         try a lower --rate, or when the machine has less to do",
        kept.len(),
        arguments.rate,
        arguments.times
    );
    let state = connections(&rig)?.saturating_sub(before);
    // Each attack meets one second more than it lasts, at its ends.
    let let_in = u64::from(THRESHOLD) * (attacked.as_secs_f64().ceil() as u64 + windows);
    let syns = median(&kept.iter().map(|round| round.syns_pps).collect::<Vec<_>>()) * attacked.as_secs_f64();
    let ratios: Vec<f64> = kept.iter().map(|round| round.flooded / round.quiet).collect();
    let times: Vec<f64> = kept.iter().map(|round| round.syns_pps / round.flows_pps).collect();

    let mut report = Report::new("fw_flood");
    report.figure("goodput_percent", 100.0 * median(&ratios));
    report.figure("times", median(&times));
    report.figure("state", state as f64);
    report.figure("state_beyond_threshold", state.saturating_sub(let_in) as f64);
    let columns = ["round", "arrived without, %", "with the flood, %", "flows, packets/s", "SYNs/s"];
    let mut table = Table::new("Known flows under a flood of SYNs, 64 B, over AF_XDP", &columns);
    for (at, round) in kept.iter().enumerate() {
        let (quiet, flooded) = (100.0 * round.quiet, 100.0 * round.flooded);
        table.rows.push(vec![
            json!(at + 1),
            json!(quiet),
            json!(flooded),
            json!(round.flows_pps),
            json!(round.syns_pps),
        ]);
    }
    report.table(table);
    report.note(format!(
        "{state} connections more than before, for some {syns:.0} SYNs in {:.1} s: below the threshold of {THRESHOLD} a \
         second they are let in, as any are, at most {let_in}",
        attacked.as_secs_f64()
    ));
    report.print(&arguments.options);
    Ok(())
}
