//! The disk tier (CS-11) beside foyer and fjall (with `--features disk-peers`): the names of CS-8, packets of 1 KB, a
//! tenth of them in memory, the rest on disk; inserts, reads of what is on disk, memory, and the time to open again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::cs::latency::Arrivals;
use bench::cs::names::Sites;
use bench::cs::store_config;
use bench::cs::workload::{Block, Catalogue, FRESHNESS_MS, Flat, MIXED};
use bench::sessions::Random;
use bench::{Options, Report, Table, median};
use clap::Parser;
use content_store::{ContentStore, DiskConfig, NewData, Worker};
use serde_json::json;
use wire::ndn::NameRef;

#[cfg(feature = "disk-peers")]
mod peers;

/// Packets after which all waits for the disk.
const SYNC_EVERY: usize = 2048;
/// Reads of a round, one at a time, and as many at once.
const READS: usize = 4000;
/// Reads under way at once.
const AT_ONCE: usize = 32;
/// How long one read may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Packets of 1 KB; a tenth of them fits into memory.
    #[arg(long, default_value_t = 200_000)]
    packets: u64,
    /// Where the files go; without it, a temporary directory.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// A list of site names, one a line (plain or gzip).
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Measures one of them and prints its figures alone: how this program starts itself, so that each has memory of its
    /// own.
    #[arg(long, value_name = "NAME", hide = true)]
    one: Option<String>,
}

/// Packets in memory, and on disk behind it.
trait Tiers {
    fn insert(&mut self, block: &Block<'_>) -> Result<()>;
    /// Waits until what left memory is on the disk.
    fn sync(&mut self) -> Result<()>;
    /// Reads a packet that is on disk; its length, if it is there.
    fn read(&mut self, name: &[u8]) -> Result<Option<usize>>;
    /// Reads many, [`AT_ONCE`] at once where that can be; returns how many are there.
    fn read_many(&mut self, names: &[&[u8]]) -> Result<usize>;
    /// Bytes of memory of the index, where it says so.
    fn index_bytes(&self) -> Option<u64>;
}

/// Opens tiers in a directory, with so many packets in memory and on disk at most.
type Open = fn(&Path, usize, usize) -> Result<Box<dyn Tiers>>;

struct Ours {
    store: ContentStore,
    worker: Worker,
    now: wire::Instant,
}

fn ours(directory: &Path, memory: usize, packets: usize) -> Result<Box<dyn Tiers>> {
    let store = ContentStore::new(&store_config(memory, 1))?;
    let bytes = (packets as u64 * 1400).max(1 << 20);
    let mut disk = DiskConfig::new(directory.join("log"), bytes, 0);
    disk.packets = packets;
    store.open_disk(&disk)?;
    let worker = store.join().context("the first worker")?;
    Ok(Box::new(Ours {
        store,
        worker,
        now: wire::Instant::from_ns(1),
    }))
}

impl Ours {
    fn poll(&mut self) -> (usize, usize) {
        let (mut found, mut length) = (0, 0);
        self.worker.poll_disk(self.now, |_, packet| {
            found += usize::from(packet.is_some());
            length = packet.map_or(0, <[u8]>::len);
        });
        (found, length)
    }
}

impl Tiers for Ours {
    fn insert(&mut self, block: &Block<'_>) -> Result<()> {
        let name = NameRef::new(block.name)?;
        let data = NewData::new(block.packet, name, FRESHNESS_MS);
        ensure!(self.worker.insert(&data, self.now).is_ok(), "an insertion is refused");
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.store.sync_disk().context("cannot synchronise")
    }

    fn read(&mut self, name: &[u8]) -> Result<Option<usize>> {
        if !self.worker.read_disk(NameRef::new(name)?) {
            return Ok(None);
        }
        let begin = Instant::now();
        while self.worker.disk_reads() > 0 {
            let (found, length) = self.poll();
            if found > 0 {
                return Ok(Some(length));
            }
            ensure!(begin.elapsed() < PATIENCE, "a read does not end");
            std::thread::yield_now();
        }
        Ok(None)
    }

    fn read_many(&mut self, names: &[&[u8]]) -> Result<usize> {
        let mut found = 0;
        let mut begin = Instant::now();
        let mut names = names.iter();
        loop {
            while self.worker.disk_reads() < AT_ONCE
                && let Some(name) = names.next()
            {
                self.worker.read_disk(NameRef::new(name)?);
            }
            if self.worker.disk_reads() == 0 {
                return Ok(found);
            }
            let before = self.worker.disk_reads();
            found += self.poll().0;
            if self.worker.disk_reads() < before {
                begin = Instant::now();
            }
            ensure!(begin.elapsed() < PATIENCE, "a read does not end");
            std::thread::yield_now();
        }
    }

    fn index_bytes(&self) -> Option<u64> {
        self.store.disk_stats().map(|stats| stats.index_bytes)
    }
}

/// Memory of this process, bytes.
fn resident_bytes() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    Ok(pages.context("/proc/self/statm is of another kind")? * 4096.0)
}

/// What was measured of one of them, by name.
type Figures = BTreeMap<&'static str, f64>;

/// One round of one of them, in an empty directory.
fn measure(open: Open, directory: &Path, catalogue: &Catalogue, random: &mut Random) -> Result<Figures> {
    let packets = catalogue.blocks() as usize;
    let memory = packets / 10;
    let mut figures = Figures::new();
    let resident = resident_bytes()?;
    let mut tiers = open(directory, memory, packets * 2)?;
    let mut arrivals = Arrivals::new(catalogue);
    let mut order: Vec<Vec<u8>> = Vec::with_capacity(packets);
    let mut time = Duration::ZERO;
    loop {
        let mut arriving = Flat::default();
        arrivals.packets(SYNC_EVERY, &mut arriving);
        if arriving.is_empty() {
            break;
        }
        let blocks: Vec<Block<'_>> = arriving.iter().map(Block::of).collect();
        order.extend(blocks.iter().map(|block| block.name.to_vec()));
        let begin = Instant::now();
        for block in &blocks {
            tiers.insert(block)?;
        }
        tiers.sync()?;
        time += begin.elapsed();
    }
    figures.insert("inserts_per_s", packets as f64 / time.as_secs_f64());
    let names: usize = order.iter().map(|name| name.capacity() + size_of::<Vec<u8>>()).sum();
    let grown = resident_bytes()? - resident - names as f64;
    figures.insert("resident_bytes_per_packet", grown / packets as f64);
    if let Some(bytes) = tiers.index_bytes() {
        // Made for twice as many.
        figures.insert("index_bytes_per_packet", bytes as f64 / (packets * 2) as f64);
    }
    // What is certainly on disk, each once: a read brings it into memory again.
    let mut old: Vec<&[u8]> = order[..packets - 2 * memory].iter().map(Vec::as_slice).collect();
    random.shuffle(&mut old);
    let (one, many) = old.split_at(READS.min(old.len() / 2));
    let many = &many[..READS.min(many.len())];
    let mut times = Vec::with_capacity(one.len());
    let mut found = 0;
    for name in one {
        let begin = Instant::now();
        let length = tiers.read(name)?;
        times.push(begin.elapsed().as_nanos() as f64 / 1e3);
        found += usize::from(length.is_some_and(|length| length > 1024));
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    figures.insert("read_p50_us", at(0.5));
    figures.insert("read_p99_us", at(0.99));
    figures.insert("found_percent", 100.0 * found as f64 / one.len() as f64);
    let begin = Instant::now();
    let found = tiers.read_many(many)?;
    figures.insert("reads_per_s", found as f64 / begin.elapsed().as_secs_f64());
    tiers.sync()?;
    drop(tiers);
    let begin = Instant::now();
    let mut tiers = open(directory, memory, packets * 2)?;
    let probe = tiers.read(one.first().context("packets on disk")?)?;
    figures.insert("recovery_ms", begin.elapsed().as_secs_f64() * 1e3);
    figures.insert("recovered_probe", f64::from(u8::from(probe.is_some())));
    Ok(figures)
}

/// Measures one of them in a process of its own.
fn in_a_process(name: &str, arguments: &Arguments, base: &Path) -> Result<BTreeMap<String, f64>> {
    let mut child = std::process::Command::new(std::env::current_exe()?);
    child.args(["cs_disk", "--one", name, "--packets", &arguments.packets.to_string()]);
    child.arg("--directory").arg(base);
    if let Some(names) = &arguments.names {
        child.arg("--names").arg(names);
    }
    let output = child.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default()).context("it prints no figures")
}

/// What is compared, with the names of its figures.
fn contestants() -> Vec<(&'static str, Open)> {
    vec![
        ("ours", ours),
        #[cfg(feature = "disk-peers")]
        ("foyer", peers::foyer),
        #[cfg(feature = "disk-peers")]
        ("fjall", peers::fjall),
    ]
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    ensure!(arguments.packets >= 1000, "--packets {} are too few; give 1000 or more", arguments.packets);
    let sites = Sites::read(arguments.names.as_deref())?;
    let catalogue = Catalogue::new(&sites, &MIXED, arguments.packets, 0);
    let mut report = Report::new("cs_disk");
    let base = match &arguments.directory {
        Some(path) => tempfile::tempdir_in(path),
        None => tempfile::tempdir(),
    };
    let base = base.context("cannot make a directory for the files")?;
    let all = contestants();
    if let Some(wanted) = &arguments.one {
        let found = all.iter().find(|(name, _)| name == wanted);
        let (_, open) = found.with_context(|| format!("there is no `{wanted}` in this build"))?;
        let figures = measure(*open, base.path(), &catalogue, &mut Random::new(9))?;
        println!("{}", json!(figures));
        return Ok(());
    }
    let mut samples: Vec<Vec<BTreeMap<String, f64>>> = vec![Vec::new(); all.len()];
    for _ in 0..arguments.options.rounds.min(3) {
        for ((name, _), samples) in all.iter().zip(&mut samples) {
            let figures = in_a_process(name, &arguments, base.path());
            samples.push(figures.with_context(|| format!("{name} fails"))?);
        }
    }
    let keys = [
        "inserts_per_s",
        "reads_per_s",
        "read_p50_us",
        "read_p99_us",
        "found_percent",
        "index_bytes_per_packet",
        "resident_bytes_per_packet",
        "recovery_ms",
    ];
    let mut columns = vec!["tier"];
    columns.extend(keys);
    let title = format!("{} packets of 1 KB, a tenth in memory, the rest on disk", arguments.packets);
    let mut table = Table::new(&title, &columns);
    let figure = |which: usize, key: &str| {
        let values: Vec<f64> = samples[which].iter().filter_map(|f| f.get(key).copied()).collect();
        (!values.is_empty()).then(|| median(&values))
    };
    for (which, (name, _)) in all.iter().enumerate() {
        let mut row = vec![json!(name)];
        for key in keys {
            let value = figure(which, key);
            if let Some(value) = value {
                report.figure(&format!("{name}_{key}"), value);
            }
            row.push(json!(value));
        }
        table.rows.push(row);
        for key in ["inserts_per_s", "reads_per_s"] {
            if which > 0
                && let Some((mine, their)) = figure(0, key).zip(figure(which, key))
            {
                report.figure(&format!("{name}_{key}_ratio"), mine / their);
            }
        }
    }
    report.table(table);
    if all.len() == 1 {
        eprintln!("foyer and fjall are SKIPPED: build with --features disk-peers");
        report.note("foyer and fjall are SKIPPED: build with --features disk-peers; ours alone");
    }
    report.note(format!(
        "After each {SYNC_EVERY} packets all wait for the disk: ours and fjall synchronise the file, foyer waits until it has \
         written. Resident memory holds the tenth in memory too. Reads come from the kernel's page cache where that holds the file. Reads at once: {AT_ONCE} \
         of ours and foyer's, one of fjall's, which has no other call."
    ));
    report.print(&arguments.options);
    Ok(())
}
