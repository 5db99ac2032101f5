//! Connections shared by two workers (LF-3, LF-4): the lock-free flow map beside its twins under a
//! reader-writer lock, a mutex and sharded mutexes, and beside a map a worker, which shares nothing. Packets of
//! both directions find their connection and refresh it; in the second load, as many connections come and go.

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use bench::flow_twins::{
    BURST, Global, Handle, Lines, LockFree, Locked, Own, Sharded, Twin, original, reply,
};
use bench::pages::{huge_allocator, huge_percent};
use bench::sessions::Random;
use bench::{Options, Report, Table, median, spread};
use io::cpu::{allowed, pin};
use serde_json::json;
use tables::signature::Session4;

const WORKERS: usize = 2;
/// Packets of one measurement, a worker.
const PACKETS: usize = 1 << 18;
/// Not a table: the memory accesses of one, without changes.
const LIMIT: &str = "lines_alone";
/// Packets after which the coarse clock has moved.
const TICK: usize = 1 << 14;

#[derive(Debug, clap::Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Connections in the tables.
    #[arg(long, default_value_t = 1_000_000)]
    connections: usize,
}

/// What the packets do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Find and refresh.
    Packets,
    /// Half of them find and refresh, a quarter ends a connection, a quarter begins one.
    Churn,
}

/// A subject: its name, and whether its workers meet only their own connections.
struct Subject {
    name: &'static str,
    own_only: bool,
    twin: Box<dyn Twin>,
}

/// Packets of random connections, both directions.
fn script(connections: usize, worker: Option<usize>, seed: u64) -> Vec<Session4> {
    let mut random = Random::new(seed);
    (0..PACKETS)
        .map(|_| {
            let n = match worker {
                Some(worker) => random.below(connections / WORKERS) * WORKERS + worker,
                None => random.below(connections),
            };
            match random.below(2) {
                0 => original(n),
                _ => reply(n),
            }
        })
        .collect()
}

/// Handles `PACKETS` packets as worker `index`; those that end and begin are of its own connections.
fn work(handle: &mut dyn Handle, keys: &[Session4], load: Load, clock: u64, own: &[usize]) {
    let mut own = own.iter().cycle();
    for (at, burst) in keys.chunks(BURST).enumerate() {
        let deadline = clock + (at * BURST / TICK) as u64;
        match load {
            Load::Packets => {
                assert_eq!(handle.packets(burst, deadline), burst.len());
            }
            Load::Churn => {
                // Some of these are just gone.
                handle.packets(&burst[..BURST / 2], deadline);
                for &n in own.by_ref().take(BURST / 4) {
                    assert!(handle.remove(n), "connection {n} is not there");
                    insert(handle, n, deadline);
                }
            }
        }
        handle.end();
    }
}

/// Inserts connection `n`. While the other worker has not had its processor for long, removed records wait for
/// it, and the map may be full of them: that wait is part of what is measured.
fn insert(handle: &mut dyn Handle, n: usize, deadline: u64) {
    let begin = Instant::now();
    while !handle.insert(n, deadline) {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "no room for connection {n}"
        );
        handle.end();
        std::thread::yield_now();
    }
}

/// Millions of packets a second, all workers together.
fn rate(subject: &Subject, workers: usize, load: Load, clock: u64, scripts: &Scripts) -> f64 {
    let cpus = allowed().unwrap_or_default();
    let barrier = Barrier::new(workers);
    let begin = Mutex::new(None::<Instant>);
    std::thread::scope(|scope| {
        for index in 0..workers {
            let (barrier, begin, cpus) = (&barrier, &begin, &cpus);
            scope.spawn(move || {
                if let Some(cpu) = cpus.get(cpus.len() - 1 - index % cpus.len()) {
                    let _ = pin(*cpu);
                }
                let mut handle = subject.twin.join(index);
                let keys = match subject.own_only {
                    true => &scripts.own[index],
                    false => &scripts.all[index],
                };
                barrier.wait();
                begin
                    .lock()
                    .expect("no panic inside")
                    .get_or_insert_with(Instant::now);
                work(&mut *handle, keys, load, clock, &scripts.numbers[index]);
            });
        }
    });
    let begin = begin.into_inner().expect("no panic inside");
    let seconds = begin.map_or(f64::NAN, |begin| begin.elapsed().as_secs_f64());
    (workers * PACKETS) as f64 / seconds / 1e6
}

struct Scripts {
    all: Vec<Vec<Session4>>,
    own: Vec<Vec<Session4>>,
    /// Each worker's own connections, in a random order.
    numbers: Vec<Vec<usize>>,
}

fn scripts(connections: usize) -> Scripts {
    let each = |own: bool| {
        (0..WORKERS)
            .map(|worker| script(connections, own.then_some(worker), worker as u64))
            .collect()
    };
    let numbers = (0..WORKERS).map(|worker| {
        let mut numbers: Vec<usize> = (worker..connections).step_by(WORKERS).collect();
        Random::new(9).shuffle(&mut numbers);
        numbers
    });
    Scripts {
        all: each(false),
        own: each(true),
        numbers: numbers.collect(),
    }
}

fn subjects(connections: usize) -> Vec<Subject> {
    let subject = |name, twin| Subject {
        name,
        own_only: false,
        twin,
    };
    let mut subjects = vec![
        subject(
            "flow_map_batched",
            Box::new(LockFree::new(connections, WORKERS, true)) as Box<dyn Twin>,
        ),
        subject(
            "flow_map",
            Box::new(LockFree::new(connections, WORKERS, false)),
        ),
        subject("rwlock", Box::new(Locked::new(connections, false))),
        subject("rwlock_a_burst", Box::new(Locked::new(connections, true))),
        subject("mutex", Box::new(Global::new(connections))),
        subject("sharded_64", Box::new(Sharded::new(connections, 64))),
        subject(LIMIT, Box::new(Lines::new(connections))),
    ];
    subjects.push(Subject {
        name: "map_a_worker",
        own_only: true,
        twin: Box::new(Own::new(connections, WORKERS)),
    });
    for subject in &subjects {
        // With one map a worker, each has its own half.
        for worker in 0..WORKERS {
            let mut handle = subject.twin.join(worker);
            for n in (worker..connections).step_by(WORKERS) {
                assert!(handle.insert(n, 0), "no room for connection {n}");
            }
            handle.end();
        }
    }
    subjects
}

fn measure(load: Load, subjects: &[Subject], scripts: &Scripts, arguments: &Arguments, report: &mut Report) {
    let name = match load {
        Load::Packets => "packets",
        Load::Churn => "churn",
    };
    let mut samples = vec![[const { Vec::new() }; 2]; subjects.len()];
    let mut clock = 1;
    for round in 0..arguments.options.rounds {
        for step in 0..subjects.len() {
            let at = match round % 2 {
                0 => step,
                _ => subjects.len() - 1 - step,
            };
            if load == Load::Churn && subjects[at].name == LIMIT {
                continue;
            }
            for workers in [1, 2] {
                clock += 1000;
                let rate = rate(&subjects[at], workers, load, clock, scripts);
                samples[at][workers - 1].push(rate);
            }
        }
    }
    let mut table = Table::new(
        &format!(
            "{} connections, {}, Mpackets/s",
            arguments.connections,
            match load {
                Load::Packets => "each packet finds and refreshes its connection",
                Load::Churn => "half of the packets find, a quarter ends, a quarter begins a connection",
            }
        ),
        &["table", "1 worker", "2 workers", "speed-up", "spread of 2 workers"],
    );
    let rate_of = |wanted: &str| {
        let at = subjects.iter().position(|subject| subject.name == wanted);
        at.map_or(f64::NAN, |at| median(&samples[at][1]))
    };
    let measured = subjects.iter().zip(&samples);
    for (subject, [one, two]) in measured.filter(|(_, [one, _])| !one.is_empty()) {
        let (name_of, speedup) = (subject.name, median(two) / median(one));
        table.rows.push(vec![
            json!(name_of),
            json!(median(one)),
            json!(median(two)),
            json!(speedup),
            json!(spread(two)),
        ]);
        report.figure(&format!("{name_of}_{name}_1_mpps"), median(one));
        report.figure(&format!("{name_of}_{name}_2_mpps"), median(two));
        report.figure(&format!("{name_of}_{name}_speedup"), speedup);
        report.figure(
            &format!("to_{name_of}_{name}"),
            rate_of("flow_map_batched") / median(two),
        );
    }
    report.table(table);
    let limit = rate_of(LIMIT) / rate_of("rwlock");
    report.figure(&format!("limit_to_rwlock_{name}"), limit);
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    huge_allocator();
    let mut report = Report::new("tables_flows");
    let subjects = subjects(arguments.connections);
    let scripts = scripts(arguments.connections);
    for load in [Load::Packets, Load::Churn] {
        measure(load, &subjects, &scripts, &arguments, &mut report);
    }
    report.figure("huge_percent", huge_percent());
    report.note("a refresh writes only when the coarse clock has moved, in every table; the maps of the twins are hashbrown's with foldhash; all tables lie on huge pages");
    report.note("lines_alone is no table: the lines of memory that a packet needs of the flow map, and nothing else");
    report.note("map_a_worker shares nothing, and can be used only where both directions of a connection reach one worker");
    report.print(&arguments.options);
}
