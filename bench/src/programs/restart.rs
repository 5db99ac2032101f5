//! Kills a forwarding node without warning and starts it again: how long until packets pass, and what the
//! dead one left: `cargo run --release -p tidegate-bench -- restart` (as root).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::{Options, Report, Table, median, tidegate_program};
use lab::dut::{NodeDriver, NodeOptions, NodeProcess, NodeRole};
use lab::rig::{Dut, Rig, RigOptions};
use lab::traffic::TrialPlan;
use serde_json::json;

/// Kills after which what is left is counted; they are not timed.
const LOOKED_AT: usize = 3;

/// Counts what a killed node left in its namespace and on the machine.
fn leftovers(rig: &Rig, devices_before: usize, files_before: usize) -> Result<usize> {
    // The worker's core is the other one.
    lab::machine::pin_to_cpu(1)?;
    let line = rig.line().context("the rig has namespaces")?;
    let devices = line.node.links()?.list()?;
    let indices: Vec<u32> = devices.iter().map(|device| device.index).collect();
    let programs = line.node.run(|| {
        let attached = |&&index: &&u32| !matches!(io::af_xdp::attached_xdp(index), Ok(None));
        indices.iter().filter(attached).count()
    })?;
    let devices = devices.len();
    Ok(programs + devices.abs_diff(devices_before) + shared_files().abs_diff(files_before))
}

/// Counts the node's files in shared memory and its named network namespaces.
fn shared_files() -> usize {
    ["/dev/shm", "/run/netns"]
        .iter()
        .filter_map(|directory| std::fs::read_dir(Path::new(directory)).ok())
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("tidegate"))
        .count()
}

pub(crate) fn main() -> Result<()> {
    let options = bench::parse::<Options>();
    let node_options = NodeOptions {
        program: tidegate_program()?,
        driver: NodeDriver::AfXdp,
        role: NodeRole::Router,
        cpus: vec![0],
        idle_mode: "hybrid".into(),
        more: String::new(),
    };
    let files_before = shared_files();
    let mut report = Report::new("restart");
    let mut rig = Rig::new(&RigOptions {
        receive_on_dut_cpu: false,
        ..RigOptions::new(Dut::Node(node_options.clone()))
    })?;
    let line = rig.line().context("the rig has namespaces")?;
    let devices = line.node.links()?.list()?.len();
    let probe = TrialPlan {
        drain: Duration::from_millis(1),
        ..TrialPlan::burst(1)
    };
    let (mut restarts_ms, mut left) = (Vec::new(), 0);
    let (mut dead_ms, mut ready_ms) = (Vec::new(), Vec::new());
    let ms_since = |start: Instant| start.elapsed().as_secs_f64() * 1000.0;
    let timed = options.rounds.max(3);
    for round in 0..timed + LOOKED_AT {
        // The node is at rest, as is what the kernel does behind the last one's death.
        std::thread::sleep(Duration::from_millis(100));
        let node = rig.take_node().context("the device is a node")?;
        let start = Instant::now();
        let killed = node.kill()?;
        let dead = ms_since(start);
        if round >= timed {
            // Looking takes tens of milliseconds: not in a round that is timed.
            left += leftovers(&rig, devices, files_before)?;
        }
        let line = rig.line().context("the rig has namespaces")?;
        let node = NodeProcess::restart(&line.node, &node_options, killed)?;
        let ready = ms_since(start);
        rig.replace_node(node);
        while rig.trial(64, &probe)?.received_pkts == 0 {
            ensure!(
                start.elapsed() < Duration::from_secs(10),
                "nothing passes after a restart"
            );
        }
        if round < timed {
            restarts_ms.push(ms_since(start));
            dead_ms.push(dead);
            ready_ms.push(ready);
        }
    }
    let worst = restarts_ms.iter().copied().fold(0.0, f64::max);
    report.figure("worst_restart_ms", worst);
    report.figure("median_restart_ms", median(&restarts_ms));
    report.figure("leftovers", left as f64);
    let mut table = Table::new(
        "A node killed and started again, AF_XDP",
        &["what", "value"],
    );
    table.rows = vec![
        vec![json!("kills"), json!(timed + LOOKED_AT)],
        vec![
            json!("kill to its end, median, ms"),
            json!(median(&dead_ms)),
        ],
        vec![
            json!("kill to the next one's readiness, median, ms"),
            json!(median(&ready_ms)),
        ],
        vec![
            json!("kill to first packet, median, ms"),
            json!(median(&restarts_ms)),
        ],
        vec![json!("kill to first packet, slowest, ms"), json!(worst)],
        vec![json!("XDP programs, devices and files left"),
            json!(left),],
    ];
    report.table(table);
    report.print(&options);
    Ok(())
}
