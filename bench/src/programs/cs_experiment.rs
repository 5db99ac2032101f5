//! The experiments of the paper (CS-8, CS-9) on our store and the designs that it is compared with: figures 6, 7
//! and 8 as tables, JSON and SVG. `tidegate bench cs` runs this.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use bench::cs::decoded;
use bench::cs::latency::{Kind, Scene, Subject, fill, measure};
use bench::cs::names::Sites;
use bench::cs::throughput::{self, Load};
use bench::cs::workload::{Catalogue, MIXED};
use bench::cs::{Cache, GlobalLock, Ours, limit, opponent, store_config, svg};
use bench::{Options, Plot, Report, Series, Table, median};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Sizes of the cache, blocks of 1 KB, with commas; the paper has 250,000 to 4,000,000.
    #[arg(long, value_delimiter = ',', default_value = "250000,500000,1000000,2000000,4000000")]
    blocks: Vec<u64>,
    /// Designs to compare with in figures 6 and 7, with commas: paper, set, trie, quick, moka, dashmap, papaya.
    #[arg(long, value_delimiter = ',', default_value = "paper,set,trie")]
    against: Vec<String>,
    /// Threads of figure 8, at most.
    #[arg(long)]
    threads: Option<usize>,
    /// A list of site names, one a line (plain or gzip).
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// Where to write the figures as SVG.
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
}

pub(crate) fn main() -> anyhow::Result<()> {
    let arguments: Arguments = bench::parse();
    let sites = Sites::read(arguments.names.as_deref())?;
    let mut report = Report::new("cs_experiment");
    let steps: u64 = arguments.blocks.iter().sum::<u64>() * (1 + arguments.against.len() as u64);
    let bar = ProgressBar::new(steps);
    bar.set_style(ProgressStyle::with_template("{bar:40} {percent:>3} % {elapsed} {msg}")?);
    let mut plots = latencies(&arguments, &sites, &bar, &mut report)?;
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    plots.push(scaling(&arguments, &sites, threads, &bar, &mut report)?);
    bar.finish_and_clear();
    if let Some(directory) = &arguments.plots {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        for (number, plot) in plots.iter().enumerate() {
            let path = directory.join(format!("figure-{}.svg", number + 6));
            fs::write(&path, svg::draw(plot))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    for plot in plots {
        report.plot(plot);
    }
    report.print(&arguments.options);
    Ok(())
}

fn series(plot: &mut Plot, name: &str, point: (f64, f64)) {
    match plot.series.iter_mut().find(|series| series.name == name) {
        Some(series) => series.points.push(point),
        None => plot.series.push(Series {
            name: name.to_owned(),
            points: vec![point],
        }),
    }
}

/// Figures 6 and 7: mean time of an Interest and of a Data packet, by size.
fn latencies(
    arguments: &Arguments,
    sites: &Sites,
    bar: &ProgressBar,
    report: &mut Report,
) -> anyhow::Result<Vec<Plot>> {
    let plot = |title: &str, y: &str| Plot {
        title: title.to_owned(),
        x: "blocks of 1 KB in the cache, millions".to_owned(),
        y: y.to_owned(),
        log_x: true,
        log_y: false,
        series: Vec::new(),
    };
    let mut interests = plot("Time of an Interest (Fig. 6)", "ns, 99 % exact, 1 % by prefix");
    let mut data = plot("Time of a Data packet (Fig. 7)", "ns, evict, copy and insert");
    let rounds = arguments.options.rounds;
    let (mut decoded, mut batches) = (Vec::new(), Vec::new());
    let mut table = Table::new(
        "Time of an operation, ns",
        &["blocks", "cache", "Interest", "exact", "batch of 32", "prefix", "Data", "Data, batch"],
    );
    for &blocks in &arguments.blocks {
        let scene = Scene::new(sites, &MIXED, blocks);
        for (number, name) in arguments.against.iter().enumerate() {
            let ours = Ours::new("ours", &store_config(blocks as usize, 2));
            let theirs = opponent(name, blocks as usize)?;
            for cache in [&ours as &dyn Cache, &*theirs] {
                bar.set_message(format!("filling {} with {blocks} blocks", cache.name()));
                let counts = number == 0 || cache.name() != "ours";
                fill(&mut *cache.access(), &scene.stored, |done| {
                    if counts {
                        bar.inc(done);
                    }
                });
            }
            if number == 0 {
                let (ns, lost) = decoded::measure(&mut *ours.access(), &scene, rounds);
                anyhow::ensure!(lost == 0, "{lost} blocks that are stored were not found");
                decoded.push(ns);
            }
            bar.set_message(format!("measuring ours and {} with {blocks} blocks", theirs.name()));
            let arriving = Catalogue::new(sites, &MIXED, (rounds * 2 * 16 * 256) as u64, 1000);
            let mut subjects = [Subject::new(&ours), Subject::new(&*theirs)];
            measure(&mut subjects, &scene, &arriving, rounds);
            for subject in subjects.iter().skip(usize::from(number > 0)) {
                let name = subject.cache.name();
                let at = blocks as f64 / 1e6;
                series(&mut interests, name, (at, subject.median(Kind::Mix)));
                series(&mut data, name, (at, subject.median(Kind::Insert)));
                if name == "ours" {
                    batches.push(subject.median(Kind::ExactBatch));
                }
                let kinds = [
                    Kind::Mix,
                    Kind::Exact,
                    Kind::ExactBatch,
                    Kind::Prefix,
                    Kind::Insert,
                    Kind::InsertBatch,
                ];
                let mut row = vec![json!(blocks), json!(name)];
                row.extend(kinds.iter().map(|kind| json!(subject.median(*kind))));
                table.rows.push(row);
            }
        }
    }
    report.table(table);
    if let (Some(ns), Some(first), Some(last)) = (decoded.last(), batches.first(), batches.last()) {
        report.figure("decoded_batch_ns", *ns);
        report.figure("exact_batch_growth", last / first);
    }
    Ok(vec![interests, data])
}

/// Figure 8: operations a second by threads; locks a slot against one global lock.
fn scaling(
    arguments: &Arguments,
    sites: &Sites,
    threads: usize,
    bar: &ProgressBar,
    report: &mut Report,
) -> anyhow::Result<Plot> {
    let blocks = arguments.blocks.iter().copied().max().unwrap_or(250_000);
    let scene = Scene::new(sites, &MIXED, blocks);
    let ours = Ours::new("ours", &store_config(blocks as usize, threads + 1));
    let global = GlobalLock::new(&store_config(blocks as usize, 1));
    let caches: [&dyn Cache; 2] = [&ours, &global];
    for cache in caches {
        bar.set_message(format!("filling {} for figure 8", cache.name()));
        fill(&mut *cache.access(), &scene.stored, |_| {});
    }
    let mut plot = Plot {
        title: "Throughput by threads (Fig. 8)".to_owned(),
        x: "threads".to_owned(),
        y: "millions of operations a second, half lookups, half Data".to_owned(),
        log_x: false,
        log_y: false,
        series: Vec::new(),
    };
    let mut table = Table::new(
        &format!("Millions of operations a second, {blocks} blocks"),
        &["cache", "threads", "lookups", "lookups, batches", "Data, batches", "mix"],
    );
    let window = arguments.options.window();
    let mut run = 0;
    let mut figures: Vec<(usize, usize, Vec<f64>)> = Vec::new();
    for count in 1..=threads {
        for (which, cache) in caches.iter().enumerate() {
            let mut row = Vec::new();
            for load in [Load::Lookups, Load::LookupBatches, Load::Mix, Load::Inserts] {
                bar.set_message(format!("{} on {count} threads: {}", cache.name(), load.name()));
                let samples: Vec<f64> = (0..arguments.options.rounds.min(3))
                    .map(|_| {
                        run += 1;
                        throughput::measure(*cache, &scene, load, count, window, run)
                    })
                    .collect();
                row.push(median(&samples));
            }
            series(&mut plot, cache.name(), (count as f64, row[2]));
            table.rows.push(vec![
                json!(cache.name()),
                json!(count),
                json!(row[0]),
                json!(row[1]),
                json!(row[3]),
                json!(row[2]),
            ]);
            figures.push((which, count, row));
        }
    }
    report.table(table);
    let figure = |which: usize, count: usize, load: usize| {
        let found = figures.iter().find(|(at, threads, _)| (*at, *threads) == (which, count));
        found.map_or(f64::NAN, |(_, _, row)| row[load])
    };
    for (load, name) in ["lookups", "lookup_batches", "mix", "inserts"].iter().enumerate() {
        report.figure(&format!("{name}_1_mops"), figure(0, 1, load));
        report.figure(&format!("{name}_2_mops"), figure(0, 2, load));
        report.figure(&format!("{name}_scaling"), figure(0, 2, load) / figure(0, 1, load));
        report.figure(&format!("global_{name}_scaling"), figure(1, 2, load) / figure(1, 1, load));
    }
    tails(&ours, &scene, arguments, bar, report);
    model(&mut plot, threads, report);
    report.note(
        "Data packets of lookups after inserts: what was inserted evicts what the requests ask for, so that \
         a part of the mix's lookups misses",
    );
    Ok(plot)
}

/// The slowest lookups alone, and beside a thread that inserts as fast as it can.
fn tails(ours: &Ours, scene: &Scene, arguments: &Arguments, bar: &ProgressBar, report: &mut Report) {
    bar.set_message("the slowest lookups");
    let window = arguments.options.window();
    let [mut alone, mut beside] = [Vec::new(), Vec::new()];
    for round in 0..arguments.options.rounds.min(5) as u64 {
        alone.push(throughput::tail(ours, scene, 0, window, 0));
        beside.push(throughput::tail(ours, scene, 1, window, 900 + round));
    }
    let (alone, beside) = (median(&alone), median(&beside));
    report.figure("p999_alone_ns", alone);
    report.figure("p999_writer_ns", beside);
    report.figure("p999_writer_ratio", beside / alone);
}

/// Threads for which the paper has figures and this machine may have no processors.
const MODELLED: [usize; 3] = [4, 8, 16];

/// Continues figure 8 where there are no more processors, and says that this is a model.
///
/// One operation of one thread takes `t`; beside others it waits for `w` lines that they wrote in the time between,
/// as measured with two threads. So n threads do n / (t + 2 w (n - 1) / n). Under one lock nothing overlaps: an
/// operation takes its `t` and one transfer of the lock's line. Memory bandwidth is taken to suffice.
fn model(plot: &mut Plot, threads: usize, report: &mut Report) {
    let transfer_ns = limit::transfer_ns();
    report.figure("line_transfer_ns", transfer_ns);
    let measured = |name: &str, count: usize| {
        let series = plot.series.iter().find(|series| series.name == name);
        let points = series.map(|series| series.points.as_slice()).unwrap_or_default();
        let point = points.iter().find(|point| point.0 == count as f64);
        point.map_or(f64::NAN, |point| 1e3 / point.1)
    };
    let (one, two) = (measured("ours", 1), measured("ours", 2));
    let waits = (2.0 * two - one).max(0.0);
    let locked = measured("ours, global lock", 1) + transfer_ns;
    if !(one > 0.0 && waits.is_finite() && locked > 0.0) {
        report.note("no model of figure 8: it needs two processors");
        return;
    }
    report.figure("waits_per_operation_ns", waits);
    for count in MODELLED.into_iter().filter(|count| *count > threads) {
        let n = count as f64;
        let ours = n / (one + 2.0 * waits * (n - 1.0) / n) * 1e3;
        let global = 1e3 / locked;
        series(plot, "ours (model)", (n, ours));
        series(plot, "ours, global lock (model)", (n, global));
        report.figure(&format!("model_mix_{count}_mops"), ours);
        report.figure(&format!("model_global_mix_{count}_mops"), global);
    }
    report.note(
        "figure 8 beyond the processors of this machine is a model: from the time of one operation alone, what two \
         threads lose to each other, and the transfer of a cache line, all measured in this run",
    );
}
