//! Kill -9 of a writer in a loop, with a second process attached: no torn entry is ever read, and recovery
//! loses no committed entry. The writer changes a flow map and a signature table in a memory segment and keeps
//! a journal of what was committed; each next writer recovers both and checks them against the journal.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench::sessions::Random;
use bench::{Options, Report};
use clap::Parser;
use crossbeam_utils::CachePadded;
use tables::flow_map::{FlowMap, FlowReader};
use tables::memory::Memory;
use tables::quiescent::Domain;
use tables::segment::{Access, Segment, SegmentError};
use tables::signature::{Keyed, Session4, SessionKey, Shape, SignatureTable, TableMemory};
use tables::slots::SlotMemory;

/// Changes with the layout below.
const LAYOUT: u64 = 0x6b69_6c6c_0001;
const CONNECTIONS: usize = 4096;
const HASH: Keyed = Keyed::new([3, 1, 4, 1]);
const SHAPE: Shape = Shape {
    buckets: 300,
    buckets_max: 420,
    pool: 64,
    primary_fill: 10,
};

/// States of a key in the journal; between them, a change is going on.
const ABSENT: u64 = 0;
const PRESENT: u64 = 1;
const CHANGING: u64 = 2;

/// Errors of this program: whatever went wrong, in one line.
type Result<T> = core::result::Result<T, Box<dyn core::error::Error>>;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Writers to kill.
    #[arg(long, default_value_t = 1000)]
    kills: u64,
    /// What this process is (used by the program itself).
    #[arg(long, value_enum, hide = true)]
    role: Option<Role>,
    /// The segment (used by the program itself).
    #[arg(long, hide = true)]
    segment: Option<PathBuf>,
    /// Seed of a writer's choices (used by the program itself).
    #[arg(long, default_value_t = 0, hide = true)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Role {
    Writer,
    Reader,
}

fn session(n: usize) -> Session4 {
    Session4 {
        source: 0x0a00_0000 + n as u32,
        destination: 0x0808_0808,
        source_port: 1024,
        destination_port: 53,
        protocol: 17,
    }
}

fn reply(n: usize) -> Session4 {
    Session4 {
        source: 0x0808_0808,
        destination: 0xc633_6401,
        source_port: 53,
        destination_port: 1024 + n as u16,
        protocol: 17,
    }
}

/// The words of a connection: all derived from one number, so that a mixture shows.
fn words(stamp: u64) -> [u64; 5] {
    core::array::from_fn(|at| Random::new(stamp + at as u64).next_u64() ^ stamp)
}

fn is_whole(value: &[u64; 5], key: &Session4) -> bool {
    // The first word gives the stamp's rest away only together with the others: search is not needed, as
    // the stamp is kept in the last word.
    let stamp = value[4];
    let [a, b, c, d, _] = words(stamp);
    value[..4] == [a, b, c, d] && stamp as u32 == key.source
}

/// A stamp names key and version.
fn stamped(n: usize, version: u64) -> [u64; 5] {
    let stamp = version << 32 | u64::from(session(n).source);
    let mut value = words(stamp);
    value[4] = stamp;
    value
}

/// The objects of the segment.
struct Objects {
    flows: SlotMemory<Session4>,
    table: TableMemory<Session4>,
    /// State of every key: of the flow map, then of the signature table.
    journal: Memory<AtomicU64>,
    domain: Memory<CachePadded<AtomicU64>>,
}

impl Objects {
    fn reserve(segment: &Segment) -> core::result::Result<(), SegmentError> {
        let buckets = SlotMemory::<Session4>::buckets_for(2 * CONNECTIONS);
        let pool = SHAPE.pool as usize;
        segment.reserve::<tables::slots::SlotLine>("flow words", buckets)?;
        let records = SlotMemory::<Session4>::records_in(buckets);
        segment.reserve::<<Session4 as SessionKey>::Record>("flow records", records)?;
        segment.reserve::<AtomicU64>("table header", 1)?;
        segment
            .reserve::<tables::signature::Bucket>("table buckets", SHAPE.buckets_max as usize)?;
        segment.reserve::<<Session4 as SessionKey>::Record>("table records", SHAPE.records())?;
        segment
            .reserve::<std::sync::atomic::AtomicU32>("conflict heads", pool.next_power_of_two())?;
        segment.reserve::<AtomicU64>("conflict entries", pool)?;
        segment.reserve::<CachePadded<AtomicU64>>("domain", 4)?;
        segment.reserve::<AtomicU64>("journal", 2 * CONNECTIONS)?;
        Ok(())
    }

    fn lookup(segment: &Segment) -> core::result::Result<Self, SegmentError> {
        Ok(Self {
            flows: SlotMemory {
                lines: segment.lookup("flow words")?,
                records: segment.lookup("flow records")?,
            },
            table: TableMemory {
                header: segment.lookup("table header")?,
                buckets: segment.lookup("table buckets")?,
                records: segment.lookup("table records")?,
                conflict_heads: segment.lookup("conflict heads")?,
                conflict_entries: segment.lookup("conflict entries")?,
            },
            journal: segment.lookup("journal")?,
            domain: segment.lookup("domain")?,
        })
    }
}

/// Recovers, checks against the journal, reports one line, then changes things until it is killed.
fn writer(path: &Path, seed: u64) -> Result<()> {
    let segment = Segment::recover(path, LAYOUT)?;
    let objects = Objects::lookup(&segment)?;
    // No worker is left: the participants of the last owner are gone.
    objects
        .domain
        .iter()
        .skip(1)
        .for_each(|word| word.store(0, Ordering::Relaxed));
    let domain = Domain::with_memory(objects.domain);
    let journal = objects.journal;
    let (flows, flow_repairs) = FlowMap::recover(objects.flows, HASH, domain);
    let (mut table, table_repairs) =
        SignatureTable::recover(SHAPE, HASH, objects.table).ok_or("the table has another shape")?;
    let mut faults = 0_u64;
    for n in 0..CONNECTIONS {
        let flow = flows.find(&session(n));
        let back = flows.find(&reply(n));
        let held = flow.and_then(|flow| {
            let values = flows.values(flow.connection)?;
            Some(core::array::from_fn::<u64, 5, _>(|at| {
                values[at].load(Ordering::Relaxed)
            }))
        });
        let whole = held.is_none_or(|value| is_whole(&value, &session(n)));
        let both = flow.map(|f| f.connection) == back.map(|b| b.connection);
        let there = flow.is_some();
        let committed = settle(&journal[n], there);
        faults += u64::from(!whole || !both || !committed);
        let in_table = table.find(&session(n)).is_some();
        faults += u64::from(!settle(&journal[CONNECTIONS + n], in_table));
    }
    let mut out = std::io::stdout().lock();
    let repaired = flow_repairs.unfinished
        + flow_repairs.dead
        + table_repairs.signatures_cleared
        + table_repairs.signatures_restored
        + table_repairs.duplicates_removed
        + table_repairs.moved;
    writeln!(
        out,
        "{faults} {} {repaired} {}",
        flow_repairs.live + table.len(),
        flow_repairs.torn
    )?;
    out.flush()?;
    let mut worker = flows.join().ok_or("no place in the domain")?;
    let mut random = Random::new(seed);
    let mut version = seed << 16;
    loop {
        let n = random.below(CONNECTIONS);
        let state = journal[n].swap(CHANGING, Ordering::SeqCst);
        if state == PRESENT {
            let flow = flows.find(&session(n)).ok_or("a committed flow is gone")?;
            flows.remove(&mut worker, flow.connection);
            journal[n].store(ABSENT, Ordering::SeqCst);
        } else {
            version += 1;
            flows.insert(
                &mut worker,
                &session(n),
                Some(&reply(n)),
                &stamped(n, version),
            )?;
            journal[n].store(PRESENT, Ordering::SeqCst);
        }
        worker.quiescent();
        flows.reclaim(&mut worker);
        let n = random.below(CONNECTIONS);
        let state = journal[CONNECTIONS + n].swap(CHANGING, Ordering::SeqCst);
        if state == PRESENT {
            table
                .remove(&session(n))
                .ok_or("a committed session is gone")?;
            journal[CONNECTIONS + n].store(ABSENT, Ordering::SeqCst);
        } else {
            table.add(&session(n))?;
            journal[CONNECTIONS + n].store(PRESENT, Ordering::SeqCst);
        }
        if random.below(2048) == 0 {
            table.grow(|_, _, _| {});
        }
    }
}

/// Compares the journal with what is there; a change that was going on takes either state.
fn settle(journal: &AtomicU64, there: bool) -> bool {
    let found = if there { PRESENT } else { ABSENT };
    let said = journal.swap(found, Ordering::SeqCst);
    said == CHANGING || said == found
}

/// Reads every slot and looks keys up, over and over, until its input ends; reports what it saw.
fn reader(path: &Path) -> Result<()> {
    let segment = Segment::attach(path, LAYOUT, Access::ReadOnly)?;
    let flows = FlowReader::<Session4>::new(
        segment.view("flow words")?,
        segment.view("flow records")?,
        HASH,
    );
    println!("attached");
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = std::sync::Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    let (mut read, mut torn) = (0_u64, 0_u64);
    let mut value = [0; 5];
    while !ended.load(Ordering::Relaxed) {
        for slot in 0..flows.slots() {
            if let Some(key) = flows.read_slot(slot, &mut value) {
                read += 1;
                torn += u64::from(!is_whole(&value, &key));
            }
        }
        for n in 0..CONNECTIONS {
            if flows.read(&reply(n), &mut value).is_some() {
                read += 1;
                torn += u64::from(!is_whole(&value, &session(n)));
            }
        }
    }
    println!("{read} {torn}");
    Ok(())
}

fn spawn(role: &str, path: &Path, seed: u64) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["tables_kill", "--role", role, "--seed", &seed.to_string(), "--segment"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

fn line(from: &mut impl BufRead) -> std::io::Result<Vec<u64>> {
    let mut text = String::new();
    from.read_line(&mut text)?;
    Ok(text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

/// Kills `--kills` writers and reports; fails if anything was torn or lost.
fn parent(arguments: &Arguments) -> Result<ExitCode> {
    let path = PathBuf::from(format!("/dev/shm/tidegate-kill-{}", std::process::id()));
    let segment = Segment::create(&path, 8 << 20, LAYOUT)?;
    Objects::reserve(&segment)?;
    let mut watcher = spawn("reader", &path, 0)?;
    let mut watched = BufReader::new(watcher.stdout.take().ok_or("no output")?);
    line(&mut watched)?;
    drop(segment);
    let mut random = Random::new(arguments.kills);
    let (mut faults, mut torn, mut repaired, mut kills, mut entries) = (0, 0, 0, 0, 0);
    for seed in 1..=arguments.kills {
        let mut child = spawn("writer", &path, seed)?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let report = line(&mut output)?;
        std::thread::sleep(Duration::from_micros(random.below(4000) as u64));
        let ended = child.try_wait()?;
        child.kill()?;
        child.wait()?;
        let &[fault, live, repairs, torn_slots] = report.as_slice() else {
            return Err(format!("writer {seed} reported nothing").into());
        };
        if ended.is_some() {
            return Err(format!("writer {seed} ended by itself").into());
        }
        kills += 1;
        faults += fault;
        torn += torn_slots;
        repaired += repairs;
        entries += live;
    }
    drop(watcher.stdin.take());
    let seen = line(&mut watched)?;
    watcher.wait()?;
    std::fs::remove_file(&path)?;
    let &[read, torn_read] = seen.as_slice() else {
        return Err("the reader reported nothing".into());
    };
    let mut report = Report::new("tables_kill");
    report.figure("kills", kills as f64);
    report.figure("committed_entries_lost", faults as f64);
    report.figure("torn_slots_recovered", torn as f64);
    report.figure("torn_reads", torn_read as f64);
    report.figure("reads", read as f64);
    report.figure("half_done_changes_repaired", repaired as f64);
    report.figure("live_entries_mean", entries as f64 / kills as f64);
    report.print(&arguments.options);
    Ok(if faults + torn + torn_read == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

pub(crate) fn main() -> ExitCode {
    let arguments = bench::parse::<Arguments>();
    let path = arguments.segment.clone().unwrap_or_default();
    let done = match arguments.role {
        Some(Role::Writer) => writer(&path, arguments.seed).map(|()| ExitCode::SUCCESS),
        Some(Role::Reader) => reader(&path).map(|()| ExitCode::SUCCESS),
        None => parent(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("tables_kill: {error}");
        ExitCode::FAILURE
    })
}
