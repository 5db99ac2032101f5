//! What the store costs and withstands: bytes a packet, allocations, one fresh packet among stale siblings,
//! hostile names.

use std::hint::black_box;

use bench::allocations;
use bench::cs::latency::{Arrivals, Scene, fill};
use bench::cs::names::{Sites, push};
use bench::cs::workload::{Block, Catalogue, FRESHNESS_MS, Flat, MIXED};
use bench::cs::{Cache, Ours, store_config};
use bench::{Options, Report, median};
use clap::Parser;
use content_store::{ContentStore, NewData, Query, Worker};
use io::cpu::thread_time;
use wire::Instant;
use wire::ndn::NameRef;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Blocks that the store holds.
    #[arg(long, default_value_t = 250_000)]
    blocks: u64,
    /// Stale siblings of the one fresh packet.
    #[arg(long, default_value_t = 400_000)]
    siblings: u32,
}

pub(crate) fn main() -> anyhow::Result<()> {
    let arguments: Arguments = bench::parse();
    let mut report = Report::new("cs_limits");
    memory(&arguments, &mut report)?;
    stale_siblings(&arguments, &mut report);
    hostile_names(&arguments, &mut report);
    report.print(&arguments.options);
    Ok(())
}

/// Index bytes a packet: table, queues, headers; then inner nodes and chunks; and the slab's rounding.
fn memory(arguments: &Arguments, report: &mut Report) -> anyhow::Result<()> {
    const HEADER: f64 = 40.0;
    let sites = Sites::read(None)?;
    let scene = Scene::new(&sites, &MIXED, arguments.blocks);
    let mut config = store_config(arguments.blocks as usize, 2);
    // Room for twice the prefixes that there are, as someone who knows the traffic would give it.
    config.prefixes = arguments.blocks as usize / 64;
    let ours = Ours::new("ours", &config);
    fill(&mut *ours.access(), &scene.stored, |_| {});
    let stats = ours.store.stats();
    let packets = stats.packets as f64;
    let [table, queues, _] = ours.store.memory_bytes();
    let index = table as f64 / packets + queues as f64 / packets + HEADER;
    // Inner nodes of 48 bytes and a component of up to 24, chunks of 256.
    let trie = (stats.prefixes as f64 * 80.0 + stats.chunks as f64 * 256.0) / packets;
    let mut bytes = 0_u64;
    let mut arrivals = Arrivals::new(&scene.stored);
    let mut flat = Flat::default();
    loop {
        flat.clear();
        arrivals.packets(1024, &mut flat);
        if flat.is_empty() {
            break;
        }
        bytes += flat.iter().map(|packet| packet.len() as u64).sum::<u64>();
    }
    let in_arena = stats.bytes as f64 / packets;
    report.figure("index_bytes", index);
    report.figure("index_and_trie_bytes", index + trie);
    report.figure("rounding_bytes", in_arena - bytes as f64 / packets - HEADER - trie);
    report.figure("prefixes_per_packet", stats.prefixes as f64 / packets);
    // Allocations while a full store works.
    let arriving = Catalogue::new(&sites, &MIXED, 20_000, 1000);
    let mut arrivals = Arrivals::new(&arriving);
    let mut access = ours.access();
    let mut insert = |count: usize| {
        let mut flat = Flat::default();
        arrivals.packets(count, &mut flat);
        let blocks: Vec<Block<'_>> = flat.iter().map(Block::of).collect();
        let before = allocations::of_this_thread();
        for block in &blocks {
            access.insert(block);
            black_box(access.get(block.name));
        }
        (allocations::of_this_thread() - before) as f64 / count as f64
    };
    insert(4096);
    report.figure("allocations_per_packet", insert(8192));
    report.note(
        "index bytes: the whole table, rings and ghosts, and a header of 40 bytes, by packets held; the trie: its \
         inner nodes and chunks; rounding to size classes is apart",
    );
    Ok(())
}

fn small_store(packets: usize) -> (ContentStore, Worker) {
    let mut config = store_config(packets, 1);
    config.bytes = (packets * 512).max(8 << 20);
    config.prefixes = packets;
    let store = ContentStore::new(&config).expect("sizes in range");
    let worker = store.join().expect("first worker");
    (store, worker)
}

/// Inserts a packet that is its name and little more.
fn insert(worker: &mut Worker, name: &[u8], freshness_ms: u64, now: Instant) {
    let mut packet = vec![6, 253];
    packet.extend_from_slice(&(name.len() as u16 + 4).to_be_bytes());
    packet.extend_from_slice(&[7, 253]);
    packet.extend_from_slice(&(name.len() as u16).to_be_bytes());
    let at = packet.len();
    packet.extend_from_slice(name);
    let view = NameRef::new(&packet[at..]).unwrap_or_default();
    let _ = worker.insert(&NewData::new(&packet, view, freshness_ms), now);
}

fn time(count: usize, mut run: impl FnMut()) -> f64 {
    let samples: Vec<f64> = (0..count)
        .map(|_| {
            let begin = thread_time();
            run();
            (thread_time() - begin).as_nanos() as f64
        })
        .collect();
    median(&samples)
}

/// One CanBePrefix and MustBeFresh Interest over many stale siblings, one of which is fresh.
fn stale_siblings(arguments: &Arguments, report: &mut Report) {
    let count = arguments.siblings;
    let (_store, mut worker) = small_store(count as usize + 1000);
    let name = |number: u32| {
        let mut name = Vec::new();
        push(&mut name, 8, b"news");
        push(&mut name, 8, b"latest");
        push(&mut name, 50, &number.to_be_bytes());
        name
    };
    for number in 0..count {
        insert(&mut worker, &name(number), FRESHNESS_MS, Instant::from_ns(1));
    }
    let now = Instant::from_ns(1_000_000_000_000);
    insert(&mut worker, &name(count / 2), 3_600_000, now);
    let prefix = name(0);
    let view = NameRef::new(&prefix).unwrap_or_default().prefix(2);
    let query = Query {
        must_be_fresh: true,
        ..Query::prefix(view)
    };
    let mut hits = 0;
    let ns = time(101, || hits += usize::from(worker.lookup(&query, now).is_some()));
    report.figure("fresh_among_stale_us", if hits == 101 { ns / 1e3 } else { f64::NAN });
    let begin = thread_time();
    let nothing = worker.lookup(&query, Instant::from_ns(u64::MAX / 2)).is_none();
    let ns = (thread_time() - begin).as_nanos() as f64;
    report.figure("none_fresh_us", if nothing { ns / 1e3 } else { f64::NAN });
}

/// A million names below one prefix that share their first eight bytes; names of 200 components.
fn hostile_names(arguments: &Arguments, report: &mut Report) {
    let count = 1_000_000;
    let (_store, mut worker) = small_store(count + 1000);
    let now = Instant::from_ns(1);
    let name = |number: usize| {
        let mut name = Vec::new();
        push(&mut name, 8, b"wide");
        push(&mut name, 8, format!("the same first bytes {number:07}").as_bytes());
        name
    };
    let mut at = 0;
    let batch = 1000;
    let insert_ns = time(count / batch, || {
        for _ in 0..batch {
            // A stride, so that insertions fall everywhere.
            insert(&mut worker, &name(at * 7_919 % count), 0, now);
            at += 1;
        }
    }) / batch as f64;
    report.figure("million_siblings_insert_ns", insert_ns);
    let rounds = arguments.options.rounds * 10;
    let prefix = name(0);
    let view = NameRef::new(&prefix).unwrap_or_default().prefix(1);
    let mut found = 0;
    let ns = time(rounds, || found += usize::from(worker.lookup(&Query::prefix(view), now).is_some()));
    report.figure("million_siblings_prefix_ns", if found == rounds { ns } else { f64::NAN });
    let mut deep = Vec::new();
    for level in 0..200_u8 {
        push(&mut deep, 8, &[level]);
    }
    insert(&mut worker, &deep, 0, now);
    let view = NameRef::new(&deep).unwrap_or_default();
    let exact = time(rounds, || {
        black_box(worker.lookup(&Query::exact(view), now).is_some());
    });
    let prefix = time(rounds, || {
        black_box(worker.lookup(&Query::prefix(view.prefix(1)), now).is_some());
    });
    report.figure("deep_name_exact_ns", exact);
    report.figure("deep_name_prefix_ns", prefix);
}
