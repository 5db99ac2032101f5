//! Ways to keep counters that two or more threads update (LF-5, LF-6): locks, compare-and-swap, and a row a thread.
//! The lock-free ones are of `tables`, or one instruction; their twins under locks live here only.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

use tables::counter_table::CounterTable;
use tables::counters::Counters;
use tables::quiescent::Domain;
use tables::signature::Keyed;
use tables::slots::SlotWorker;

/// Counters: one a UDP port.
pub const PORTS: usize = 65_536;

/// A way to keep counters that many threads update.
pub trait Shared: Send + Sync {
    /// Runs `updates` on `ports` (cycled) as worker `worker`; `work` runs before each.
    fn run(&self, worker: usize, ports: &[u16], updates: usize, work: u32);
    /// The sum over all counters.
    fn total(&self) -> u64;
}

/// Stands for the part of a packet's way that shares nothing: about 2 ns a unit.
#[inline(always)]
pub fn private_work(units: u32) {
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

/// Makes one of each, by name.
pub fn schemes() -> Vec<(&'static str, Box<dyn Shared>)> {
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
