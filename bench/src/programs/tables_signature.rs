//! Session lookup (TL-7): the signature table beside hashbrown, the paper's chained table and the paper's
//! signature table, and if asked for beside DPDK's rte_hash; hit and miss, batches of 1, 8 and 32, all on huge
//! or all on normal pages; sessions chosen by someone who does not know the hash key; and how near the figures
//! are to the memory's own latency.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bench::chained::Chained;
use bench::pages::{huge_allocator, huge_percent};
use bench::rte_hash::RteHash;
use bench::sessions::{Pool, Random};
use bench::{Options, Plot, Report, Series, Table, median, rounds, spread};
use clap::Parser;
use hashbrown::HashMap;
use io::cpu::thread_time;
use serde_json::json;
use tables::memory::{Memory, Pages, prefetch};
use tables::signature::{
    Keyed, PaperTable, Place, Session4, Shape, SignatureFunction, SignatureTable,
};

/// Lookups of one measurement.
const QUERIES: usize = 1 << 18;
/// Sessions looked up at a time by the batched find.
const BATCHES: [usize; 5] = [32, 16, 8, 4, 1];

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Sessions in the tables.
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    sessions: Vec<usize>,
    /// Pages of all tables.
    #[arg(long, value_enum, default_value = "huge")]
    pages: PageSize,
    /// Measure DPDK's rte_hash as well (Debian's libdpdk-dev; on huge pages, root).
    #[arg(long)]
    rte_hash: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PageSize {
    Huge,
    Normal,
}

impl PageSize {
    fn pages(self) -> Pages {
        match self {
            Self::Huge => Pages::Huge,
            Self::Normal => Pages::Normal,
        }
    }

    /// For tables.
    fn name(self) -> &'static str {
        match self {
            Self::Huge => "2 MiB",
            Self::Normal => "4 KiB",
        }
    }
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
    let lines = (bytes / 64).max(16);
    let memory = Memory::<[AtomicU64; 8]>::zeroed(lines, pages);
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

/// What no lookup that reads a line of index and then the line of a record can beat on this machine: for each
/// of 32, two random lines of memory of the same sizes, the second one asked for once the first is there.
struct Limit {
    index: Memory<[AtomicU64; 8]>,
    records: Memory<[AtomicU64; 8]>,
    lines: Vec<(u32, u32)>,
}

impl Limit {
    fn new(table: &SignatureTable<Session4, Keyed>, records: usize, pages: Pages) -> Self {
        let mut random = Random::new(17);
        let limit = Self {
            index: Memory::zeroed(table.buckets(), pages),
            records: Memory::zeroed(records, pages),
            lines: (0..QUERIES)
                .map(|_| (random.below(table.buckets()) as u32, random.below(records) as u32))
                .collect(),
        };
        // Every page is the process's own: untouched ones are all one page of zeros.
        for line in limit.index.iter().chain(limit.records.iter()) {
            line[0].store(1, Relaxed);
        }
        limit
    }

    /// Nanoseconds a lookup.
    fn time(&self) -> f64 {
        let begin = thread_time();
        let mut sum = 0;
        for chunk in self.lines.chunks(32) {
            for &(bucket, _) in chunk {
                prefetch(&self.index[bucket as usize]);
            }
            for &(bucket, record) in chunk {
                let nothing = self.index[bucket as usize][0].load(Relaxed) - 1;
                prefetch(&self.records[record as usize + nothing as usize]);
            }
            for &(_, record) in chunk {
                sum += self.records[record as usize][0].load(Relaxed);
            }
        }
        black_box(sum);
        (thread_time() - begin).as_nanos() as f64 / self.lines.len() as f64
    }
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

/// The tables of one measurement.
struct Tables {
    ours: SignatureTable<Session4, Keyed>,
    /// Ours on huge pages, as it asks for them by itself, where the other tables are on normal ones.
    ours_huge: Option<SignatureTable<Session4, Keyed>>,
    hashbrown: HashMap<Session4, u32, foldhash::fast::RandomState>,
    /// With the session's state as the value, as many bytes as our records have for it.
    hashbrown_state: HashMap<Session4, [u64; 6], foldhash::fast::RandomState>,
    chained: Chained,
    paper: PaperTable<Session4, Keyed>,
}

impl Tables {
    fn of(sessions: &[Session4], pages: Pages) -> Self {
        let count = sessions.len();
        let key = boot_key();
        let buckets = (count as f64 / 12.8) as u32;
        let shape = Shape::for_sessions(count as u32);
        let mut tables = Self {
            ours: SignatureTable::with_pages(shape, key, pages),
            ours_huge: (pages == Pages::Normal)
                .then(|| SignatureTable::with_pages(shape, key, Pages::Huge)),
            hashbrown: HashMap::with_capacity_and_hasher(count, Default::default()),
            hashbrown_state: HashMap::with_capacity_and_hasher(count, Default::default()),
            chained: Chained::new(count, key),
            paper: PaperTable::new(buckets, count as u32 / 16, key, pages),
        };
        for (at, session) in sessions.iter().enumerate() {
            tables.hashbrown.insert(*session, at as u32);
            tables.hashbrown_state.insert(*session, [at as u64; 6]);
            tables.chained.add(session);
            for ours in core::iter::once(&mut tables.ours).chain(&mut tables.ours_huge) {
                ours.add(session).expect("the table is sized for it");
            }
            tables.paper.add(session).expect("the pool takes the overflow");
        }
        tables
    }

    fn in_hashbrown(&self, keys: &[Session4]) -> u64 {
        keys.iter()
            .map(|key| u64::from(*self.hashbrown.get(key).unwrap_or(&0)))
            .sum()
    }

    fn in_hashbrown_state(&self, keys: &[Session4]) -> u64 {
        keys.iter()
            .map(|key| self.hashbrown_state.get(key).map_or(0, |state| state[0]))
            .sum()
    }

    /// Each lookup waits for the one before, as where a packet is handled before the next is looked up.
    fn in_hashbrown_in_turn(&self, keys: &[Session4]) -> u64 {
        let mut last = 0;
        for key in keys {
            // Zero, which the compiler does not know.
            let nothing = black_box(last) & 1 << 63;
            let key = Session4 {
                source: key.source ^ nothing as u32 ^ (nothing >> 32) as u32,
                ..*key
            };
            last = u64::from(*self.hashbrown.get(&key).unwrap_or(&0));
        }
        last
    }

    fn in_chained(&self, keys: &[Session4]) -> u64 {
        match keys {
            [key] => self.chained.find(key).unwrap_or(0),
            keys => {
                let mut found = [None; 32];
                self.chained.find_batch(keys, &mut found);
                found[..keys.len()].iter().flatten().sum()
            }
        }
    }

    fn in_paper(&self, keys: &[Session4]) -> u64 {
        let mut found = [None; 32];
        self.paper.find_batch(keys, &mut found[..keys.len()]);
        found[..keys.len()]
            .iter()
            .flatten()
            .map(|place: &Place| place.index() as u64)
            .sum()
    }
}

const OURS: &str = "ours";
const OURS_HUGE: &str = "ours on pages of 2 MiB";
const HASHBROWN: &str = "hashbrown";
const HASHBROWN_STATE: &str = "hashbrown with 48 bytes of state";
const IN_TURN: &str = "hashbrown, each waits for the last";
const CHAINED: &str = "chained";
const PAPER: &str = "paper's layout, our hash";
const LIMIT: &str = "two random lines, nothing else: the limit";

/// A table's name, how many sessions it is asked for at a time, and how.
type Subject<'a> = (&'static str, usize, Box<dyn Fn(&[Session4]) -> u64 + 'a>);

impl Tables {
    /// Ours in batches of 32 comes first.
    fn subjects(&self) -> Vec<Subject<'_>> {
        let mut subjects: Vec<Subject<'_>> = Vec::new();
        for batch in BATCHES {
            subjects.push((OURS, batch, Box::new(|keys| find_ours(&self.ours, keys))));
        }
        let huge = self.ours_huge.as_ref().unwrap_or(&self.ours);
        subjects.push((OURS_HUGE, 32, Box::new(|keys| find_ours(huge, keys))));
        subjects.push((HASHBROWN, 1, Box::new(|keys| self.in_hashbrown(keys))));
        subjects.push((HASHBROWN_STATE, 1, Box::new(|keys| self.in_hashbrown_state(keys))));
        subjects.push((IN_TURN, 32, Box::new(|keys| self.in_hashbrown_in_turn(keys))));
        subjects.push((CHAINED, 1, Box::new(|keys| self.in_chained(keys))));
        subjects.push((CHAINED, 32, Box::new(|keys| self.in_chained(keys))));
        subjects.push((PAPER, 32, Box::new(|keys| self.in_paper(keys))));
        subjects
    }
}

/// Runs everything at one size; figures carry `suffix`.
fn measure(count: usize, arguments: &Arguments, report: &mut Report, suffix: &str) {
    let sessions = Pool::Random.sessions(count);
    let Queries { hits, misses } = queries(&sessions);
    let (pages, page_name) = (arguments.pages.pages(), arguments.pages.name());
    let tables = Tables::of(&sessions, pages);
    let mut rte_hash = None;
    if arguments.rte_hash {
        let huge = arguments.pages == PageSize::Huge;
        match RteHash::start(&sessions, &hits, &misses, huge) {
            Ok(started) => rte_hash = Some(RefCell::new(started)),
            Err(error) => {
                eprintln!("SKIPPED rte_hash: {error:#}");
                report.note(format!("rte_hash was not measured: {error:#}"));
            }
        }
    }
    drop(sessions);
    let limit = Limit::new(
        &tables.ours,
        Shape::for_sessions(count as u32).records(),
        pages,
    );
    let subjects = tables.subjects();
    let mut runs: Vec<Box<dyn FnMut() -> f64 + '_>> = Vec::new();
    for (keys, is_hit) in [(&hits, true), (&misses, false)] {
        for (_, batch, find) in &subjects {
            runs.push(Box::new(move || time(keys, *batch, find)));
        }
        let (rte_hash, limit) = (&rte_hash, &limit);
        runs.push(Box::new(move || limit.time()));
        runs.push(Box::new(move || {
            rte_hash
                .as_ref()
                .and_then(|table| table.borrow_mut().lookup_ns(is_hit).ok())
                .unwrap_or(f64::NAN)
        }));
    }
    let mut borrowed: Vec<&mut dyn FnMut() -> f64> =
        runs.iter_mut().map(|run| &mut **run as _).collect();
    let samples = rounds(arguments.options.rounds, &mut borrowed);
    let ns: Vec<f64> = samples.iter().map(|samples| median(samples)).collect();
    let (hit, miss) = ns.split_at(subjects.len() + 2);
    let mut rows = Table::new(
        &format!("Session lookup, {suffix} sessions, pages of {page_name}, ns of one core a lookup"),
        &["table", "batch", "hit", "miss"],
    );
    let names = subjects
        .iter()
        .map(|(name, batch, _)| (*name, *batch))
        .chain([(LIMIT, 32)])
        .chain(rte_hash.as_ref().map(|_| ("rte_hash", 32)));
    for (at, (name, batch)) in names.enumerate() {
        rows.rows
            .push(vec![json!(name), json!(batch), json!(hit[at]), json!(miss[at])]);
    }
    report.table(rows);
    let mut figure = |name: &str, value: f64| report.figure(&format!("{name}_{suffix}"), value);
    // Where a subject's figure is.
    let at = |wanted: &str, batch: usize| {
        subjects
            .iter()
            .position(|(name, of, _)| *name == wanted && *of == batch)
            .expect("a subject")
    };
    let (hashbrown, state) = (at(HASHBROWN, 1), at(HASHBROWN_STATE, 1));
    let limit_at = subjects.len();
    for batch in [32, 8, 1] {
        figure(&format!("find{batch}_ns"), hit[at(OURS, batch)]);
        figure(&format!("miss{batch}_ns"), miss[at(OURS, batch)]);
    }
    figure("find32_spread", spread(&samples[0]));
    figure("to_hashbrown", hit[hashbrown] / hit[0]);
    figure("to_hashbrown_miss", miss[hashbrown] / miss[0]);
    figure("to_hashbrown_state", hit[state] / hit[0]);
    figure("limit32_ns", hit[limit_at]);
    figure("limit_to_hashbrown", hit[hashbrown] / hit[limit_at]);
    figure("limit_to_hashbrown_state", hit[state] / hit[limit_at]);
    figure("to_chained", hit[at(CHAINED, 1)] / hit[0]);
    figure("to_chained_batched", hit[at(CHAINED, 32)] / hit[0]);
    figure("to_paper_layout", hit[at(PAPER, 32)] / hit[0]);
    figure("to_hashbrown_as_it_comes", hit[hashbrown] / hit[at(OURS_HUGE, 32)]);
    figure("to_hashbrown_in_turn", hit[at(IN_TURN, 32)] / hit[0]);
    figure("to_rte_hash", hit[limit_at + 1] / hit[0]);
    figure("to_rte_hash_miss", miss[limit_at + 1] / miss[0]);
    if let Some(table) = &rte_hash {
        let bytes = table.borrow().heap_bytes as f64;
        figure("rte_hash_bytes_per_session", bytes / count as f64);
    }
    let tail = tail_ns(&tables.ours, &hits);
    figure("batch32_p999_ns", tail);
    let index = latency_ns(tables.ours.index_bytes(), pages);
    let records = Shape::for_sessions(count as u32).records() * 64;
    let two_misses = index + latency_ns(records, pages);
    figure("two_dependent_misses_ns", two_misses);
    figure("find32_to_two_misses", hit[0] / two_misses);
    figure("find1_to_two_misses", hit[at(OURS, 1)] / two_misses);
    let index_bytes = tables.ours.index_bytes() as f64;
    figure("index_bytes_per_session", index_bytes / count as f64);
    let conflicts = tables.ours.occupancy().conflicts as f64;
    figure("overflow_percent", conflicts * 100.0 / count as f64);
    figure("huge_percent", huge_percent());
    let mut near = Table::new(
        &format!("How near that is to the memory, {suffix} sessions, pages of {page_name}"),
        &["what", "ns", "of two dependent misses"],
    );
    for (name, ns) in [
        ("two dependent misses: a read of the index's memory, then one of the records'", two_misses),
        ("a find, one at a time", hit[at(OURS, 1)]),
        ("a find in batches of 32", hit[0]),
        (LIMIT, hit[limit_at]),
        ("a batch of 32, 99.9th percentile, wall clock", tail),
    ] {
        near.rows.push(vec![json!(name), json!(ns), json!(ns / two_misses)]);
    }
    report.table(near);
    let by_batch = |name: &str, ns: &[f64]| Series {
        name: name.to_owned(),
        points: BATCHES
            .iter()
            .rev()
            .map(|&batch| (batch as f64, ns[at(OURS, batch)]))
            .collect(),
    };
    let flat = |name: &str, ns: f64| Series {
        name: name.to_owned(),
        points: vec![(1.0, ns), (32.0, ns)],
    };
    report.plot(Plot {
        title: format!("Session lookup by batch, {suffix} sessions, pages of {page_name}"),
        x: "sessions looked up at a time".to_owned(),
        y: "ns of one core a lookup".to_owned(),
        log_x: false,
        log_y: false,
        series: vec![
            by_batch("ours, hit", hit),
            by_batch("ours, miss", miss),
            flat("hashbrown, hit", hit[hashbrown]),
            flat("hashbrown, miss", miss[hashbrown]),
            flat("two lines, limit", hit[limit_at]),
            flat("two waits", two_misses),
        ],
    });
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
    if arguments.pages == PageSize::Huge {
        huge_allocator();
    }
    let mut report = Report::new("tables_signature");
    for &count in &arguments.sessions {
        let suffix = match count {
            count if count % 1_000_000 == 0 => format!("{}m", count / 1_000_000),
            count => format!("{}k", count / 1000),
        } + if arguments.pages == PageSize::Huge { "" } else { "_4k" };
        measure(count, &arguments, &mut report, &suffix);
    }
    attack(&arguments, &mut report);
    report.note("hashbrown's and rte_hash's value is a number: their hit has not touched the session's block yet, ours has");
    report.note("huge_percent is how much of the process's memory lies on huge pages");
    report.print(&arguments.options);
}
