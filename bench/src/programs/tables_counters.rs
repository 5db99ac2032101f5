//! Updates of shared counters by two threads (LF-5 and LF-6 without the network): lock-free against locks
//! against per-core counters, at the paper's contention (both threads on one counter) and spread over 65,536
//! ports; Amdahl's estimate beside the measured speed-up, and a model of more cores.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, RwLock};
use std::time::{Duration, Instant};

use bench::sessions::Random;
use bench::{Options, Plot, Report, Series, Table, median};
use io::cpu::{allowed, pin, thread_time};
use serde_json::json;
use tables::counter_table::CounterTable;
use tables::counters::Counters;
use tables::quiescent::Domain;
use tables::signature::Keyed;
use tables::slots::SlotWorker;

/// Counters: one a UDP port.
const PORTS: usize = 65_536;

/// A way to keep counters that many threads update; the twins of the lock-free ones live here only.
trait Shared: Sync {
    /// Runs `updates` on `ports` (cycled) as worker `worker`; `work` runs before each.
    fn run(&self, worker: usize, ports: &[u16], updates: usize, work: u32);
    /// The sum over all counters.
    fn total(&self) -> u64;
}

/// Stands for the part of a packet's way that shares nothing: about 2 ns a unit.
#[inline(always)]
fn private_work(units: u32) {
    let mut x = 1_u64;
    for _ in 0..units {
        x = black_box(x.wrapping_mul(3));
    }
}

fn each(ports: &[u16], updates: usize, work: u32, mut update: impl FnMut(usize)) {
    for port in ports.iter().cycle().take(updates) {
        private_work(work);
        update(usize::from(*port));
    }
}

/// One lock for all counters, as the paper's twin (`rte_rwlock_write_lock` around the update).
struct GlobalRwLock(RwLock<Vec<u64>>);
impl Shared for GlobalRwLock {
    fn run(&self, _: usize, ports: &[u16], updates: usize, work: u32) {
        each(ports, updates, work, |port| {
            self.0.write().expect("no panic inside")[port] += 1
        });
    }
    fn total(&self) -> u64 {
        self.0.read().expect("no panic inside").iter().sum()
    }
}

/// A spinning reader-writer lock taken for writing, as DPDK's is: it does not sleep.
struct SpinRwLock {
    state: AtomicUsize,
    counters: Vec<AtomicU64>,
}
impl Shared for SpinRwLock {
    fn run(&self, _: usize, ports: &[u16], updates: usize, work: u32) {
        const WRITER: usize = 1;
        each(ports, updates, work, |port| {
            let mut spins = 0_u32;
            // Acquire: pairs with the release store below.
            while self
                .state
                .compare_exchange_weak(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                std::hint::spin_loop();
                spins += 1;
                if spins.is_multiple_of(1 << 14) {
                    // The holder may not be running at all on a shared machine.
                    std::thread::yield_now();
                }
            }
            let counter = &self.counters[port];
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // Release: pairs with the acquire exchange above.
            self.state.store(0, Ordering::Release);
        });
    }
    fn total(&self) -> u64 {
        self.counters
            .iter()
            .map(|c| c.load(Ordering::Relaxed))
            .sum()
    }
}

struct GlobalMutex(Mutex<Vec<u64>>);
impl Shared for GlobalMutex {
    fn run(&self, _: usize, ports: &[u16], updates: usize, work: u32) {
        each(ports, updates, work, |port| {
            self.0.lock().expect("no panic inside")[port] += 1
        });
    }
    fn total(&self) -> u64 {
        self.0.lock().expect("no panic inside").iter().sum()
    }
}

struct LockPerSlot(Vec<Mutex<u64>>);
impl Shared for LockPerSlot {
    fn run(&self, _: usize, ports: &[u16], updates: usize, work: u32) {
        each(ports, updates, work, |port| {
            *self.0[port].lock().expect("no panic inside") += 1
        });
    }
    fn total(&self) -> u64 {
        self.0
            .iter()
            .map(|c| *c.lock().expect("no panic inside"))
            .sum()
    }
}

/// The paper's lock-free update: a 64-bit compare-and-swap in a loop (LF-3).
struct CompareAndSwap(Vec<AtomicU64>);
impl Shared for CompareAndSwap {
    fn run(&self, _: usize, ports: &[u16], updates: usize, work: u32) {
        each(ports, updates, work, |port| {
            let counter = &self.0[port];
            let mut seen = counter.load(Ordering::Relaxed);
            while let Err(now) =
                counter.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                seen = now;
            }
        });
    }
    fn total(&self) -> u64 {
        self.0.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }
}

struct FetchAdd(Vec<AtomicU64>);
impl Shared for FetchAdd {
    fn run(&self, _: usize, ports: &[u16], updates: usize, work: u32) {
        each(ports, updates, work, |port| {
            self.0[port].fetch_add(1, Ordering::Relaxed);
        });
    }
    fn total(&self) -> u64 {
        self.0.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }
}

/// The counter table: found by key, made on demand.
struct Keyed64(CounterTable);
impl Shared for Keyed64 {
    fn run(&self, _: usize, ports: &[u16], updates: usize, work: u32) {
        let mut worker: SlotWorker = self.0.join().expect("a place for every worker");
        each(ports, updates, work, |port| {
            self.0
                .add(&mut worker, port as u64, 1)
                .expect("room for every port");
        });
    }
    fn total(&self) -> u64 {
        (0..PORTS as u64).map(|port| self.0.get(port)).sum()
    }
}

/// A row of counters a worker, summed on read: the sharded twin.
struct PerCore(Counters);
impl Shared for PerCore {
    fn run(&self, worker: usize, ports: &[u16], updates: usize, work: u32) {
        let row = self.0.row(worker).expect("a row for every worker");
        each(ports, updates, work, |port| row.add(port, 1));
    }
    fn total(&self) -> u64 {
        (0..PORTS).map(|port| self.0.sum(port)).sum()
    }
}

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

fn subjects() -> Vec<(&'static str, Box<dyn Shared>)> {
    let atomics = || (0..PORTS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let keyed = CounterTable::new(PORTS, Keyed::new([1, 2, 3, 4]), Domain::new(2));
    vec![
        (
            "rwlock_spin",
            Box::new(SpinRwLock {
                state: AtomicUsize::new(0),
                counters: atomics(),
            }),
        ),
        (
            "rwlock_std",
            Box::new(GlobalRwLock(RwLock::new(vec![0; PORTS]))),
        ),
        ("mutex", Box::new(GlobalMutex(Mutex::new(vec![0; PORTS])))),
        (
            "lock_per_slot",
            Box::new(LockPerSlot((0..PORTS).map(|_| Mutex::new(0)).collect())),
        ),
        ("cas", Box::new(CompareAndSwap(atomics()))),
        ("fetch_add", Box::new(FetchAdd(atomics()))),
        ("counter_table", Box::new(Keyed64(keyed))),
        ("per_core", Box::new(PerCore(Counters::new(2, PORTS)))),
    ]
}

/// Cases: all updates on one counter, or spread.
fn measure(name: &str, ports: &[u16], options: &Options, report: &mut Report) {
    const UPDATES: usize = 500_000;
    let subjects = subjects();
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
