//! Times of the content store and of its opponents on the CS-8 names, measured in turns: exact, prefix, miss,
//! and a Data packet's eviction, copy and insertion; alone and in batches.

use std::path::PathBuf;

use bench::cs::latency::{Kind, Scene, Subject, fill, measure};
use bench::cs::limit::{Chase, lines_alone};
use bench::cs::names::Sites;
use bench::cs::workload::{Catalogue, MIXED};
use bench::cs::{Cache, Ours, opponent, store_config};
use bench::pages::{huge_allocator, huge_percent};
use bench::sessions::Random;
use bench::{Options, Report, Table, median};
use clap::Parser;
use serde_json::json;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Blocks of 1 KB that the caches hold.
    #[arg(long, default_value_t = 250_000)]
    blocks: u64,
    /// Opponents, with commas: paper, set, trie, quick, moka, dashmap, papaya.
    #[arg(long, value_delimiter = ',', default_value = "paper")]
    against: Vec<String>,
    /// A list of site names, one a line (plain or gzip).
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Hash names by the fast function, not the keyed one.
    #[arg(long)]
    fast_hash: bool,
    /// Ask for normal pages.
    #[arg(long)]
    normal_pages: bool,
    /// Give the opponents huge pages too, by the C library's allocator; by themselves they are on normal ones.
    #[arg(long)]
    huge_allocator: bool,
}

pub(crate) fn main() -> anyhow::Result<()> {
    let arguments: Arguments = bench::parse();
    if arguments.huge_allocator {
        huge_allocator();
    }
    let mut report = Report::new("cs_latency");
    let sites = Sites::read(arguments.names.as_deref())?;
    let scene = Scene::new(&sites, &MIXED, arguments.blocks);
    // Each round of each opponent's measurement takes 2 x 16 windows of 256 blocks.
    let rounds = arguments.options.rounds;
    let needed = (rounds * 2 * 16 * 256) as u64;
    let mut config = store_config(arguments.blocks as usize, 2);
    if arguments.fast_hash {
        config.hash = content_store::NameHash::Fast([1, 2]);
    }
    if arguments.normal_pages {
        config.pages = content_store::Pages::Normal;
    }
    let mut table = Table::new(
        &format!("ns an operation, {} blocks of 1 KB", arguments.blocks),
        &[
            "cache",
            "exact",
            "batch of 32",
            "uniform",
            "uniform, batch",
            "miss",
            "prefix",
            "mix",
            "Data",
            "Data, batch",
            "lost",
        ],
    );
    for (number, name) in arguments.against.iter().enumerate() {
        // A fresh store for every opponent, as the insertions change what is stored.
        let ours = Ours::new("ours", &config);
        fill(&mut *ours.access(), &scene.stored, |_| {});
        if number == 0 {
            // The process is hardly more than our store now.
            report.figure("store_huge_percent", huge_percent());
        }
        let theirs = opponent(name, arguments.blocks as usize)?;
        fill(&mut *theirs.access(), &scene.stored, |_| {});
        let arriving = Catalogue::new(&sites, &MIXED, needed, 1000);
        let mut subjects = [Subject::new(&ours), Subject::new(&*theirs)];
        measure(&mut subjects, &scene, &arriving, rounds);
        if number == 0 {
            limit(&ours, rounds, &mut report);
        }
        let [ours_measured, theirs_measured] = &subjects;
        for subject in subjects.iter().skip(usize::from(number > 0)) {
            let mut row = vec![json!(subject.cache.name())];
            row.extend(Kind::ALL.iter().map(|kind| json!(subject.median(*kind))));
            row.push(json!(subject.lost));
            table.rows.push(row);
        }
        for kind in Kind::ALL {
            let (our_ns, their_ns) = (ours_measured.median(kind), theirs_measured.median(kind));
            if number == 0 {
                report.figure(&format!("{}_ns", kind.name()), our_ns);
            }
            report.figure(&format!("{name}_{}_ns", kind.name()), their_ns);
            report.figure(&format!("{name}_{}_ratio", kind.name()), their_ns / our_ns);
        }
        if number == 0 {
            report.note(format!("huge pages: {}", ours.store.has_huge_pages()));
            let stats = ours.store.stats();
            report.figure("prefixes", stats.prefixes as f64);
        }
    }
    report.table(table);
    report.print(&arguments.options);
    Ok(())
}

/// What one dependent read takes in memory of the size of the table and of the packets: a lookup that nothing was asked
/// for in advance waits for one of each.
fn limit(ours: &Ours, rounds: usize, report: &mut Report) {
    let [table, _, _] = ours.store.memory_bytes();
    let packets = ours.store.stats().bytes as usize;
    // A smaller circle over as many pages would wait as long; 1 GiB is enough to be far outside of all caches.
    let mut chases = [table, packets.min(1 << 30)].map(Chase::new);
    let mut samples = [Vec::new(), Vec::new()];
    let mut batches = Vec::new();
    let mut random = Random::new(11);
    for _ in 0..rounds {
        for (chase, samples) in chases.iter_mut().zip(&mut samples) {
            samples.push(chase.measure());
        }
        batches.push(lines_alone(&chases[0], &chases[1], &mut random));
    }
    report.figure("lines_alone_batch_ns", median(&batches));
    let [in_table, in_packets] = samples.map(|samples| median(&samples));
    report.figure("dependent_read_table_ns", in_table);
    report.figure("dependent_read_packets_ns", in_packets);
    report.figure("two_dependent_reads_ns", in_table + in_packets);
    report.figure("huge_percent", huge_percent());
}
