//! The NDN forwarder beside NFD in one run: Unix and UDP sockets, fetches of a file, Ethernet frames, round trips; with
//! the same clients, in turns, each in the middle of a line of its own. NFD is a program that the user has.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use bench::ndn_rig::{Carrier, Kind, Rig, Sample, UDP, Wire};
use bench::{Options, Report, Table, median};
use clap::Parser;
use serde_json::json;
use wire::ndn::name::Name;

/// Names that are in the content store.
const NAMES: u64 = 1000;
/// Bytes of the file that is fetched: 6,250 segments of 8,000, which the content store has room for.
const FILE_BYTES: usize = 50_000_000;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// The forwarder to compare with: `nfd=PATH` of its program.
    #[arg(long, value_name = "KIND=PATH")]
    peer: Option<String>,
}

/// What is measured of both.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    says: &'static str,
    unit: &'static str,
}

const ROWS: [Row; 7] = [
    Row { name: "unix_hits", says: "Unix socket, content store hits, 100 B", unit: "exchanges/s" },
    Row { name: "udp_hits", says: "UDP socket, the same", unit: "exchanges/s" },
    Row { name: "unix_forwarded", says: "Unix socket, forwarded, 100 B", unit: "exchanges/s" },
    Row { name: "get_unix_cold", says: "a file over Unix sockets, 8,000 B, from its producer", unit: "bit/s" },
    Row { name: "get_unix_warm", says: "the same, from the content store", unit: "bit/s" },
    Row { name: "get_udp_cold", says: "consumer on UDP, from its producer", unit: "bit/s" },
    Row { name: "get_udp_warm", says: "the same, from the content store", unit: "bit/s" },
];

/// Takes a figure of a side.
type Of = fn(&Side) -> f64;

/// One forwarder's side of the run.
struct Side {
    rig: Rig,
    left: Wire,
    right: Wire,
    samples: Vec<Vec<Sample>>,
    ethernet_hits: Vec<f64>,
    ethernet_forwarded: Vec<f64>,
    pings: Vec<f64>,
}

impl Side {
    fn start(name: &str, kind: Kind<'_>) -> Result<Self> {
        let rig = Rig::start(name, kind)?;
        let left = rig.line.left.namespace.run(|| Wire::open(&rig.line.left, Carrier::Ethernet))??;
        let right = rig.line.right.namespace.run(|| Wire::open(&rig.line.right, Carrier::Ethernet))??;
        Ok(Self {
            rig,
            left,
            right,
            samples: vec![Vec::new(); ROWS.len()],
            ethernet_hits: Vec::new(),
            ethernet_forwarded: Vec::new(),
            pings: Vec::new(),
        })
    }

    /// One round of everything.
    fn round(&mut self, options: &Options, round: usize, file: &Path) -> Result<()> {
        let (rig, window) = (&self.rig, options.window());
        // Puts the names into the content store.
        rig.traffic(None, "/e", NAMES, window / 4)?;
        let forwarded = format!("/e/{round}");
        let file = file.to_str().context("the file's name is no UTF-8")?;
        let name = format!("/f/{round}");
        let first = [
            rig.traffic(None, "/e", NAMES, window)?,
            rig.traffic(Some(UDP), "/e", NAMES, window)?,
            rig.traffic(None, &forwarded, u64::from(u32::MAX), window)?,
        ];
        let producer = rig.serve(&["put", &name, file])?;
        // Until it serves.
        let begin = std::time::Instant::now();
        while rig.tool(&["peek", &name, "--prefix"]).is_err() {
            ensure!(begin.elapsed() < bench::ndn_rig::PATIENCE, "`put` does not serve {name}");
        }
        let mut fetches = Vec::new();
        for transport in [None, Some(UDP)] {
            rig.tool(&["cs", "erase", &name])?;
            fetches.push(rig.get(transport, &name)?);
            fetches.push(rig.get(transport, &name)?);
        }
        drop(producer);
        for (samples, sample) in self.samples.iter_mut().zip(first.into_iter().chain(fetches)) {
            samples.push(sample);
        }
        self.pings.push(rig.ping()?);
        let stop = AtomicBool::new(false);
        let (e, m): (Name, Name) = ("/e".parse()?, "/m".parse()?);
        let (left, right) = (&mut self.left, &mut self.right);
        self.ethernet_hits.push(left.ask(&e, 0, NAMES, window));
        std::thread::scope(|scope| {
            scope.spawn(|| right.answer(&stop));
            let forwarded = left.ask(&m, (round as u64) << 32, 1 << 32, window);
            stop.store(true, Ordering::Relaxed);
            self.ethernet_forwarded.push(forwarded);
        });
        Ok(())
    }

    fn of(&self, row: usize, figure: impl Fn(&Sample) -> f64) -> f64 {
        let samples = self.samples.get(row).map(Vec::as_slice).unwrap_or_default();
        median(&samples.iter().map(figure).collect::<Vec<_>>())
    }
}

/// The path of NFD that was given, if one was.
fn peer(text: Option<&str>) -> Result<Option<PathBuf>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let path = text.strip_prefix("nfd=").with_context(|| {
        format!("`--peer {text}` is not known; write `--peer nfd=/usr/local/bin/nfd`")
    })?;
    let path = PathBuf::from(path);
    // A name alone is looked for on the PATH.
    let is_name = path.components().count() == 1;
    ensure!(is_name || path.is_file(), "there is no program {}; give the path of nfd", path.display());
    Ok(Some(path))
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    let options = &arguments.options;
    let mut report = Report::new("ndn_peer");
    let nfd = peer(arguments.peer.as_deref())?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("file");
    std::fs::write(&file, vec![b'a'; FILE_BYTES])?;
    let mut ours = Side::start("tgq", Kind::Ours)?;
    let mut theirs = nfd.as_deref().map(|path| Side::start("tgp", Kind::Nfd(path))).transpose()?;
    if theirs.is_none() {
        report.note("NFD is SKIPPED: give its program by --peer nfd=PATH; figures are ours alone");
        eprintln!("NFD is SKIPPED: give its program by --peer nfd=PATH");
    }
    let _servers = [Some(&ours), theirs.as_ref()]
        .into_iter()
        .flatten()
        .map(|side| side.rig.pingserver())
        .collect::<Result<Vec<_>>>()?;
    for round in 0..options.rounds {
        ours.round(options, round, &file)?;
        if let Some(theirs) = &mut theirs {
            theirs.round(options, round, &file)?;
        }
    }
    let mut table = Table::new(
        "Our node (one worker) beside NFD, the same clients on the same machine; CPU is the forwarder's an exchange",
        &["what", "unit", "ours", "NFD", "ours, CPU us", "NFD, CPU us", "our client's CPU"],
    );
    for (at, row) in ROWS.iter().enumerate() {
        let (rate, cpu) = (ours.of(at, |s| s.rate), ours.of(at, |s| s.cpu_us));
        let share = ours.of(at, |s| s.client_share);
        report.figure(&format!("ours_{}", row.name), rate);
        report.figure(&format!("ours_{}_cpu_us", row.name), cpu);
        report.figure(&format!("ours_{}_client_share", row.name), share);
        let mut cells = vec![json!(row.says), json!(row.unit), json!(rate)];
        let their = theirs.as_ref().map(|side| (side.of(at, |s| s.rate), side.of(at, |s| s.cpu_us)));
        if let Some((their_rate, their_cpu)) = their {
            report.figure(&format!("nfd_{}", row.name), their_rate);
            report.figure(&format!("nfd_{}_cpu_us", row.name), their_cpu);
            report.figure(&format!("{}_ratio", row.name), rate / their_rate);
            report.figure(&format!("{}_cpu_ratio", row.name), their_cpu / cpu);
        }
        cells.push(json!(their.map(|(rate, _)| rate)));
        cells.push(json!(cpu));
        cells.push(json!(their.map(|(_, cpu)| cpu)));
        cells.push(json!(format!("{:.0} %", share * 100.0)));
        table.rows.push(cells);
    }
    let singles: [(&str, &str, Of); 3] = [
        ("ethernet_hits", "Ethernet frames, content store hits", |s| median(&s.ethernet_hits)),
        ("ethernet_forwarded", "Ethernet frames, forwarded", |s| median(&s.ethernet_forwarded)),
        ("ping_p50_us", "round trip over Unix sockets, p50", |s| median(&s.pings)),
    ];
    for (name, says, of) in singles {
        let mine = of(&ours);
        let their = theirs.as_ref().map(of);
        report.figure(&format!("ours_{name}"), mine);
        if let Some(their) = their {
            report.figure(&format!("nfd_{name}"), their);
            report.figure(&format!("{name}_ratio"), mine / their);
        }
        let unit = if name == "ping_p50_us" { "us" } else { "exchanges/s" };
        let mut cells = vec![json!(says), json!(unit), json!(mine), json!(their)];
        cells.extend([json!(null), json!(null), json!(null)]);
        table.rows.push(cells);
    }
    report.table(table);
    let mode = &ours.left.mode;
    report.note(format!(
        "The generator of Ethernet frames is {mode} on veth for both; our node receives them by AF_XDP, NFD by libpcap. \
         A client with a CPU share near 100 % is the limit of the goodput."
    ));
    report.print(options);
    Ok(())
}
