//! Session lookup (TL-7): the signature table beside hashbrown, the paper's chained table and the paper's
//! signature table; hit and miss, batches of 1, 8 and 32, with and without huge pages; sessions chosen by
//! someone who does not know the hash key; and how near the figures are to the memory's own latency.

use std::hint::black_box;
use std::time::Instant;

use bench::chained::Chained;
use bench::sessions::{Pool, Random};
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use hashbrown::HashMap;
use io::cpu::thread_time;
use serde_json::json;
use tables::memory::Pages;
use tables::signature::{
    Keyed, PaperTable, Place, Session4, Shape, SignatureFunction, SignatureTable,
};

/// Lookups of one measurement.
const QUERIES: usize = 1 << 18;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Sessions in the tables.
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    sessions: Vec<usize>,
    /// Leave out the row of normal pages.
    #[arg(long)]
    huge_only: bool,
}

/// Random 256 bits for a boot: from the addresses that the system gives (no secret here, only a change).
fn boot_key() -> Keyed {
    let mut random = Random::new(std::process::id().into());
    Keyed::new(core::array::from_fn(|_| random.next_u64()))
}

/// Nanoseconds of this thread an operation, over all of `keys` in chunks of `batch`.
fn time(keys: &[Session4], batch: usize, mut find: impl FnMut(&[Session4]) -> u64) -> f64 {
    let begin = thread_time();
    let mut sum = 0;
    for chunk in keys.chunks(batch) {
        sum += find(chunk);
    }
    black_box(sum);
    (thread_time() - begin).as_nanos() as f64 / keys.len() as f64
}

fn find_ours<F: SignatureFunction>(table: &SignatureTable<Session4, F>, keys: &[Session4]) -> u64 {
    let mut places = [None; 32];
    if let [key] = keys {
        places[0] = table.find(key);
    } else {
        table.find_batch(keys, &mut places[..keys.len()]);
    }
    places[..keys.len()]
        .iter()
        .flatten()
        .map(|place: &Place| place.index() as u64)
        .sum()
}

/// Queries: sessions of the table, and sessions that are not in it, in random order.
struct Queries {
    hits: Vec<Session4>,
    misses: Vec<Session4>,
}

fn queries(sessions: &[Session4]) -> Queries {
    let mut random = Random::new(99);
    let hits: Vec<_> = (0..QUERIES)
        .map(|_| sessions[random.below(sessions.len())])
        .collect();
    let misses = hits
        .iter()
        .map(|key| Session4 {
            protocol: 17,
            ..*key
        })
        .collect();
    Queries { hits, misses }
}

/// A dependent random read over `bytes`: the machine's latency, ns.
fn latency_ns(bytes: usize, pages: Pages) -> f64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let lines = (bytes / 64).max(16);
    let memory = tables::memory::Memory::<[AtomicU64; 8]>::zeroed(lines, pages);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    Random::new(5).shuffle(&mut order);
    for pair in order.windows(2) {
        memory[pair[0] as usize][0].store(pair[1].into(), Relaxed);
    }
    memory[order[lines - 1] as usize][0].store(order[0].into(), Relaxed);
    let mut at = 0;
    let steps = 1 << 18;
    let mut best = f64::MAX;
    for _ in 0..3 {
        let begin = thread_time();
        for _ in 0..steps {
            at = memory[at as usize][0].load(Relaxed);
        }
        best = best.min((thread_time() - begin).as_nanos() as f64 / f64::from(steps));
    }
    black_box(at);
    best
}

/// The 99.9th percentile of the time of a batch of 32, ns of wall clock (disturbances included).
fn tail_ns(table: &SignatureTable<Session4, Keyed>, keys: &[Session4]) -> f64 {
    let mut times: Vec<u64> = keys
        .chunks_exact(32)
        .map(|chunk| {
            let begin = Instant::now();
            black_box(find_ours(table, chunk));
            begin.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    times[times.len() * 999 / 1000] as f64
}

/// Runs everything at one size; figures carry `suffix`.
fn measure(count: usize, arguments: &Arguments, report: &mut Report, suffix: &str) {
    let sessions = Pool::Random.sessions(count);
    let Queries { hits, misses } = queries(&sessions);
    let key = boot_key();
    let mut rows = Table::new(
        &format!("Session lookup, {suffix} sessions, ns of one core a lookup"),
        &["table", "pages", "batch", "hit", "miss"],
    );
    let mut hashbrown: HashMap<Session4, u32, foldhash::fast::RandomState> =
        HashMap::with_capacity_and_hasher(count, foldhash::fast::RandomState::default());
    let mut chained = Chained::new(count, key);
    let shape = Shape::for_sessions(count as u32);
    let mut huge = SignatureTable::with_pages(shape, key, Pages::Huge);
    for (at, session) in sessions.iter().enumerate() {
        hashbrown.insert(*session, at as u32);
        chained.add(session);
        huge.add(session).expect("the table is sized for it");
    }
    let normal = (!arguments.huge_only).then(|| {
        let mut normal = SignatureTable::with_pages(shape, key, Pages::Normal);
        for session in &sessions {
            normal.add(session).expect("the table is sized for it");
        }
        normal
    });
    let buckets = (count as f64 / 12.8) as u32;
    let mut paper = PaperTable::new(buckets, count as u32 / 16, key, Pages::Huge);
    for session in &sessions {
        paper.add(session).expect("the pool takes the overflow");
    }

    let hash = |keys: &[Session4]| {
        keys.iter()
            .map(|k| u64::from(*hashbrown.get(k).unwrap_or(&0)))
            .sum()
    };
    let chain = |keys: &[Session4]| keys.iter().filter_map(|k| chained.find(k)).sum();
    let chain_batch = |keys: &[Session4]| {
        let mut found = [None; 32];
        chained.find_batch(keys, &mut found);
        found[..keys.len()].iter().flatten().sum()
    };
    let paper_batch = |keys: &[Session4]| {
        let mut found = [None; 32];
        paper.find_batch(keys, &mut found[..keys.len()]);
        found[..keys.len()]
            .iter()
            .flatten()
            .map(|place: &Place| place.index() as u64)
            .sum()
    };
    let ours = |keys: &[Session4]| find_ours(&huge, keys);
    let ours_normal = |keys: &[Session4]| normal.as_ref().map_or(0, |table| find_ours(table, keys));

    type Subject<'a> = (
        &'static str,
        &'static str,
        usize,
        Box<dyn Fn(&[Session4]) -> u64 + 'a>,
    );
    let mut subjects: Vec<Subject<'_>> = vec![
        ("ours", "2 MiB", 32, Box::new(ours)),
        ("ours", "2 MiB", 8, Box::new(ours)),
        ("ours", "2 MiB", 1, Box::new(ours)),
        ("hashbrown", "4 KiB", 1, Box::new(hash)),
        ("chained", "4 KiB", 1, Box::new(chain)),
        ("chained", "4 KiB", 32, Box::new(chain_batch)),
        (
            "paper's layout, our hash",
            "2 MiB",
            32,
            Box::new(paper_batch),
        ),
    ];
    if normal.is_some() {
        for batch in [32, 8, 1] {
            subjects.push(("ours", "4 KiB", batch, Box::new(ours_normal)));
        }
    }
    let mut runs: Vec<Box<dyn FnMut() -> f64 + '_>> = Vec::new();
    for keys in [&hits, &misses] {
        for (_, _, batch, find) in &subjects {
            runs.push(Box::new(move || time(keys, *batch, find)));
        }
    }
    let mut borrowed: Vec<&mut dyn FnMut() -> f64> =
        runs.iter_mut().map(|run| &mut **run as _).collect();
    let samples = rounds(arguments.options.rounds, &mut borrowed);
    let ns: Vec<f64> = samples.iter().map(|samples| median(samples)).collect();
    let (hit, miss) = ns.split_at(subjects.len());
    for (at, (name, pages, batch, _)) in subjects.iter().enumerate() {
        rows.rows.push(vec![
            json!(name),
            json!(pages),
            json!(batch),
            json!(hit[at]),
            json!(miss[at]),
        ]);
    }
    report.table(rows);
    report.figure(&format!("find32_ns_{suffix}"), hit[0]);
    report.figure(&format!("miss32_ns_{suffix}"), miss[0]);
    report.figure(&format!("to_hashbrown_{suffix}"), hit[3] / hit[0]);
    report.figure(&format!("to_chained_{suffix}"), hit[4] / hit[0]);
    report.figure(&format!("to_chained_batched_{suffix}"), hit[5] / hit[0]);
    report.figure(&format!("to_paper_layout_{suffix}"), hit[6] / hit[0]);
    report.figure(&format!("batch32_p999_ns_{suffix}"), tail_ns(&huge, &hits));
    let index = latency_ns(huge.index_bytes(), Pages::Huge);
    let record = latency_ns(shape.records() * 64, Pages::Huge);
    report.figure(&format!("two_dependent_misses_ns_{suffix}"), index + record);
    report.figure(
        &format!("find32_to_two_misses_{suffix}"),
        hit[0] / (index + record),
    );
    report.figure(
        &format!("find1_to_two_misses_{suffix}"),
        hit[2] / (index + record),
    );
    report.figure(
        &format!("index_bytes_per_session_{suffix}"),
        huge.index_bytes() as f64 / count as f64,
    );
    let occupancy = huge.occupancy();
    report.figure(
        &format!("overflow_percent_{suffix}"),
        occupancy.conflicts as f64 * 100.0 / count as f64,
    );
}

/// Sessions picked by someone who knows the algorithm but not the key: those that share the first 1/64 of
/// the buckets under a key of their own, and those that share one XOR signature.
fn attack(arguments: &Arguments, report: &mut Report) {
    let count = 1_000_000;
    let mut random = Random::new(7);
    let guess = Keyed::new(core::array::from_fn(|_| random.next_u64()));
    let mut chosen = Vec::with_capacity(count);
    let mut at = 0_u64;
    while chosen.len() < count / 2 {
        let session = Session4 {
            source: (at >> 16) as u32 | 0x0a00_0000,
            source_port: at as u16,
            destination: 0xc0a8_0101,
            destination_port: 443,
            protocol: 6,
        };
        if guess.hash(&session).bucket >> 26 == 0 {
            chosen.push(session);
        }
        at += 1;
    }
    for at in 0..(count - chosen.len()) as u32 {
        // Address and port change together: one XOR signature for all.
        let session = Session4 {
            source: 0x0b00_0000 ^ (at & 0xffff),
            source_port: at as u16,
            destination: 0xc0a8_0000 ^ (at >> 16),
            destination_port: (at >> 16) as u16,
            protocol: 6,
        };
        chosen.push(session);
    }
    let key = boot_key();
    let shape = Shape::for_sessions(count as u32);
    let tables = [Pool::Random.sessions(count), chosen].map(|sessions| {
        let mut table = SignatureTable::<Session4, _>::new(shape, key);
        let overflow = sessions.iter().filter(|s| table.add(s).is_err()).count();
        (table, queries(&sessions).hits, overflow)
    });
    let [random, chosen] = &tables;
    let mut subjects: [Box<dyn FnMut() -> f64>; 2] = [
        Box::new(|| time(&random.1, 32, |keys| find_ours(&random.0, keys))),
        Box::new(|| time(&chosen.1, 32, |keys| find_ours(&chosen.0, keys))),
    ];
    let mut borrowed: Vec<&mut dyn FnMut() -> f64> =
        subjects.iter_mut().map(|run| &mut **run as _).collect();
    let samples = rounds(arguments.options.rounds.max(5), &mut borrowed);
    report.figure(
        "chosen_to_random_rate",
        median(&samples[0]) / median(&samples[1]),
    );
    report.figure("chosen_refused", chosen.2 as f64);
    report.figure("chosen_overflow", chosen.0.occupancy().conflicts as f64);
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let mut report = Report::new("tables_signature");
    for &count in &arguments.sessions {
        let suffix = match count {
            count if count % 1_000_000 == 0 => format!("{}m", count / 1_000_000),
            count => format!("{}k", count / 1000),
        };
        measure(count, &arguments, &mut report, &suffix);
    }
    attack(&arguments, &mut report);
    report.note("hashbrown's and the chained table's arrays come from the allocator; hashbrown's value is a number, so its hit has not touched the session's block yet, ours has");
    report.print(&arguments.options);
}
