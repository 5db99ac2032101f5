//! The NDN forwarder as a node (`tidegate run` with `[ndn]`, one worker) under load: Unix and UDP sockets with the
//! traffic tool, Ethernet faces over AF_XDP on veth devices with a generator here, and round trips.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use bench::ndn_rig::{Carrier, Kind, Rig, UDP, Wire};
use bench::{Options, Report, Table, median};
use clap::Parser;
use serde_json::{Value, json};
use wire::ndn::name::Name;

/// Names that are in the content store.
const NAMES: u64 = 1000;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    let window = arguments.options.window();
    let mut report = Report::new("ndn_node");
    let rig = Rig::start("tgq", Kind::Ours)?;
    // Puts the names into the content store.
    rig.traffic(None, "/e", NAMES, Duration::from_secs(1))?;
    let (mut unix_hits, mut udp_hits, mut forwarded) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..arguments.options.rounds {
        unix_hits.push(rig.traffic(None, "/e", NAMES, window)?.rate);
        udp_hits.push(rig.traffic(Some(UDP), "/e", NAMES, window)?.rate);
        let prefix = format!("/e/{round}");
        forwarded.push(rig.traffic(None, &prefix, u64::from(u32::MAX), window)?.rate);
    }
    let (left, right) = (&rig.line.left, &rig.line.right);
    let stop = Arc::new(AtomicBool::new(false));
    let (ethernet_hits, ethernet_misses, mode) = std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            right.namespace.run(|| -> Result<()> {
                Wire::open(right, Carrier::Ethernet)?.answer(&stop);
                Ok(())
            })
        });
        let consumer = left.namespace.run(|| -> Result<(Vec<f64>, Vec<f64>, String)> {
            let mut wire = Wire::open(left, Carrier::Ethernet)?;
            let (e, m): (Name, Name) = ("/e".parse()?, "/m".parse()?);
            let (mut hits, mut misses) = (Vec::new(), Vec::new());
            wire.ask(&e, 0, NAMES, Duration::from_millis(200));
            for round in 0..arguments.options.rounds as u64 {
                hits.push(wire.ask(&e, 0, NAMES, window));
                misses.push(wire.ask(&m, round << 32, 1 << 32, window));
            }
            Ok((hits, misses, wire.mode))
        });
        stop.store(true, Ordering::Relaxed);
        let ended = producer.join().map_err(|_| anyhow::anyhow!("the producer panicked"))?;
        ended??;
        consumer?
    })?;
    let _pingserver = rig.pingserver()?;
    let ping = rig.ping()?;
    report.figure("unix_hits_per_s", median(&unix_hits));
    report.figure("udp_hits_per_s", median(&udp_hits));
    report.figure("unix_forwarded_per_s", median(&forwarded));
    report.figure("ethernet_hits_per_s", median(&ethernet_hits));
    report.figure("ethernet_forwarded_per_s", median(&ethernet_misses));
    report.figure("ping_p50_us", ping);
    let mut table = Table::new(
        "One worker, 100 B of content, exchanges a second",
        &["faces", "content store hits", "forwarded"],
    );
    for (faces, hits, misses) in [
        ("Unix socket", Some(&unix_hits), Some(&forwarded)),
        ("UDP socket", Some(&udp_hits), None),
        ("Ethernet", Some(&ethernet_hits), Some(&ethernet_misses)),
    ] {
        let cell = |samples: Option<&Vec<f64>>| samples.map_or(Value::Null, |s| json!(median(s)));
        table.rows.push(vec![json!(faces), cell(hits), cell(misses)]);
    }
    report.table(table);
    report.note(format!("Ethernet by {mode} on veth; clients, generator and node share the machine's cores"));
    report.print(&arguments.options);
    Ok(())
}
