//! Updates of shared counters by two threads (LF-5 and LF-6 without the network): lock-free against locks
//! against per-core counters, at the paper's contention (both threads on one counter) and spread over 65,536
//! ports; Amdahl's estimate beside the measured speed-up, and a model of more cores.

use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use bench::sessions::Random;
use bench::shared_counters::{PORTS, Shared, private_work, schemes};
use bench::{Options, Plot, Report, Series, Table, median};
use io::cpu::{allowed, pin, thread_time};
use serde_json::json;

/// What a run gave.
struct Run {
    /// Of one thread, by its own clock: waiting for a lock while off the processor is not in it.
    cpu_ns: f64,
    /// Of all threads together, by the wall clock: updates a second.
    rate: f64,
}

/// Runs `threads` workers, pinned, each with `updates`.
fn run(shared: &dyn Shared, threads: usize, ports: &[u16], updates: usize, work: u32) -> Run {
    let cpus = allowed().unwrap_or_default();
    let before = shared.total();
    let barrier = Barrier::new(threads);
    let begin = Mutex::new(None::<Instant>);
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|worker| {
                let (barrier, begin, cpus) = (&barrier, &begin, &cpus);
                scope.spawn(move || {
                    if let Some(cpu) = cpus.get(worker) {
                        let _ = pin(*cpu);
                    }
                    barrier.wait();
                    begin
                        .lock()
                        .expect("no panic inside")
                        .get_or_insert_with(Instant::now);
                    let start = thread_time();
                    shared.run(worker, ports, updates, work);
                    thread_time() - start
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("no panic inside"))
            .collect()
    });
    let begin = begin
        .into_inner()
        .expect("no panic inside")
        .unwrap_or_else(Instant::now);
    let wall = begin.elapsed().as_secs_f64();
    let done = (threads * updates) as u64;
    assert_eq!(shared.total() - before, done, "updates were lost");
    Run {
        cpu_ns: times.iter().map(|time| time.as_nanos() as f64).sum::<f64>() / done as f64,
        rate: done as f64 / wall,
    }
}

/// Cases: all updates on one counter, or spread.
fn measure(name: &str, ports: &[u16], options: &Options, report: &mut Report) {
    const UPDATES: usize = 500_000;
    let subjects = schemes();
    for (_, shared) in &subjects {
        // First touches and the keyed table's inserts are not what is measured.
        run(&**shared, 1, ports, PORTS, 0);
    }
    let mut samples = vec![[const { Vec::new() }; 3]; subjects.len()];
    let mut rates = vec![[const { Vec::new() }; 2]; subjects.len()];
    for round in 0..options.rounds {
        for step in 0..subjects.len() {
            let at = if round % 2 == 0 {
                step
            } else {
                subjects.len() - 1 - step
            };
            let shared = &*subjects[at].1;
            let one = run(shared, 1, ports, UPDATES, 0);
            let two = run(shared, 2, ports, UPDATES, 0);
            let working = run(shared, 2, ports, UPDATES, WORK);
            let working_one = run(shared, 1, ports, UPDATES, WORK);
            samples[at][0].push(one.cpu_ns);
            samples[at][1].push(two.cpu_ns);
            samples[at][2].push(working.cpu_ns);
            rates[at][0].push(working_one.rate);
            rates[at][1].push(working.rate);
        }
    }
    let mut table = Table::new(
        &format!(
            "Shared counters, {name}: ns of a thread an update, and what a second thread brings"
        ),
        &[
            "scheme",
            "1 thread",
            "2 threads",
            "Amdahl's estimate",
            "measured speed-up",
            "model: 16 cores, Mupdates/s",
        ],
    );
    let work_ns = private_work_ns();
    let mut modelled = Vec::new();
    for (at, (scheme, _)) in subjects.iter().enumerate() {
        let [one, two, _] = &samples[at];
        let (one, two) = (median(one), median(two));
        // LF-6: the update is the part that may not run in parallel; the work before it is.
        let serial = one / (one + work_ns);
        let amdahl = 1.0 / (serial + (1.0 - serial) / 2.0);
        let measured = median(&rates[at][1]) / median(&rates[at][0]);
        let model = |cores: f64| {
            // A shared line (or lock) serves one update in the time that it takes when contended; what does
            // not contend scales with the cores.
            let contended = two > one * 1.5;
            match contended {
                true => (cores * 1e3 / (one + work_ns)).min(2e3 / two),
                false => cores * 1e3 / (two + work_ns),
            }
        };
        modelled.push(Series {
            name: (*scheme).to_owned(),
            points: (0..=4).map(|at| 2.0_f64.powi(at)).map(|n| (n, model(n))).collect(),
        });
        table.rows.push(vec![
            json!(scheme),
            json!(one),
            json!(two),
            json!(amdahl),
            json!(measured),
            json!(model(16.0)),
        ]);
        report.figure(&format!("{scheme}_one_ns_{name}"), one);
        report.figure(&format!("{scheme}_two_ns_{name}"), two);
        report.figure(&format!("{scheme}_speedup_{name}"), measured);
        report.figure(&format!("{scheme}_amdahl_{name}"), amdahl);
    }
    report.table(table);
    report.plot(Plot {
        title: format!("A model, not a measurement: shared counters on more cores, {name}"),
        x: "cores".to_owned(),
        y: "million updates a second".to_owned(),
        log_x: true,
        log_y: true,
        series: modelled,
    });
    let of = |scheme: &str| {
        let at = subjects.iter().position(|(name, _)| *name == scheme);
        at.map_or(f64::NAN, |at| median(&samples[at][1]))
    };
    report.figure(
        &format!("cas_to_rwlock_{name}"),
        of("rwlock_spin") / of("cas"),
    );
    report.figure(
        &format!("fetch_add_to_rwlock_{name}"),
        of("rwlock_spin") / of("fetch_add"),
    );
    report.figure(
        &format!("per_core_to_rwlock_{name}"),
        of("rwlock_spin") / of("per_core"),
    );
    report.figure(
        &format!("counter_table_to_rwlock_{name}"),
        of("rwlock_spin") / of("counter_table"),
    );
}

/// Units of private work before each update: about what forwarding a packet costs.
const WORK: u32 = 50;

fn private_work_ns() -> f64 {
    let begin = thread_time();
    for _ in 0..100_000 {
        private_work(WORK);
    }
    (thread_time() - begin).as_nanos() as f64 / 100_000.0
}

pub(crate) fn main() {
    let options = bench::parse::<Options>();
    let mut report = Report::new("tables_counters");
    let mut random = Random::new(3);
    let spread: Vec<u16> = (0..PORTS).map(|_| random.next_u64() as u16).collect();
    measure("one", &[53], &options, &mut report);
    measure("spread", &spread, &options, &mut report);
    report.note("the column for 16 cores is a model, not a measurement: contended schemes keep the rate of two threads, others scale with the cores");
    report.note("2 cores of a shared machine: a lock holder may lose its processor, which the paper's 8 dedicated cores did not see");
    report.print(&options);
}
