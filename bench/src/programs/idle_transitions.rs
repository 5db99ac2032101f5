//! Looks for a lost wake-up: `cargo run --release -p tidegate-bench -- idle_transitions`.
//!
//! One packet is in flight at a time to each of several workers on one core: a source on another core sends
//! the next one when the worker has taken the last, after a random delay of up to a few microseconds, so
//! that it meets the worker anywhere between its last look and its sleep. The workers run in interrupt
//! mode: each packet is a transition to sleep, or a sleep that the recheck prevents. There are several
//! because a wake-up takes a virtual machine tens of microseconds, mostly of waiting. A packet that is not
//! taken within a second is a lost wake-up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::load::{Source, Target, pair};
use bench::{Options, Report};
use clap::Parser;
use graph::fault::Random;
use graph::runner::{self, WorkerThread};
use graph::{IdleConfig, Mode, WorkerCounters, WorkerHandle};

/// Looks for a lost wake-up.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Transitions to make, at least.
    #[arg(long, default_value_t = 10_000_000)]
    transitions: u64,
    /// Time to go on for, at least, seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Workers.
    #[arg(long, default_value_t = 32)]
    workers: usize,
    /// Most delay before the next packet, nanoseconds.
    #[arg(long, default_value_t = 4_000)]
    delay_ns: u64,
}

/// A worker, the packet on its way to it, and the time of the next.
struct Pair {
    source: Source,
    handle: WorkerHandle,
    thread: WorkerThread,
    counters: Arc<WorkerCounters>,
    sent: u64,
    /// When the last packet was sent, or when the next one is due.
    at: wire::Instant,
    in_flight: bool,
}

/// How long a packet may be on its way.
const PATIENCE: Duration = Duration::from_secs(1);

impl Pair {
    fn start(cpu: Option<u16>) -> Self {
        let (source, target) = pair(Mode::Interrupt, IdleConfig::default());
        let Target { worker, handle, .. } = target;
        Self {
            source,
            counters: Arc::clone(handle.counters()),
            handle,
            thread: runner::spawn(worker, cpu).expect("a thread"),
            sent: 0,
            at: io::cpu::now(),
            in_flight: false,
        }
    }

    /// Looks after the packet; returns how many wake-ups were lost.
    fn look(&mut self, random: &mut Random, delay_ns: u64) -> u64 {
        let now = io::cpu::now();
        if self.in_flight {
            if self.counters.rx_pkts.get() >= self.sent {
                self.in_flight = false;
                self.at = now + Duration::from_nanos(random.below(delay_ns + 1));
            } else if now - self.at > PATIENCE {
                // Wakes it, if it can be woken at all.
                self.send(now);
                return 1;
            }
        } else if now >= self.at {
            self.send(now);
            self.in_flight = true;
        }
        0
    }

    fn send(&mut self, now: wire::Instant) {
        self.source.send_one();
        self.sent += 1;
        self.at = now;
    }

    fn transitions(&self) -> u64 {
        self.counters.wakeups_packet.get() + self.counters.arm_ready.get()
    }

    fn stop(mut self) {
        self.handle.drain().expect("the worker reads its mailbox");
        let report = self.thread.join().expect("the worker ends");
        assert_eq!(report.home, report.frames, "frames are missing");
    }
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let mut out = Report::new("idle_transitions");
    let cpus = io::cpu::allowed().unwrap_or_default();
    let mut pairs: Vec<Pair> = (0..arguments.workers)
        .map(|_| Pair::start(cpus.get(1).copied()))
        .collect();
    if let Some(&cpu) = cpus.first() {
        // Unpinned, the race is met less often; it is looked for all the same.
        let _ = io::cpu::pin(cpu);
    }
    let mut random = Random::new(1);
    let (start, mut lost) = (Instant::now(), 0_u64);
    while pairs.iter().map(Pair::transitions).sum::<u64>() < arguments.transitions
        || start.elapsed() < Duration::from_secs(arguments.seconds)
    {
        for _ in 0..64 {
            for pair in &mut pairs {
                lost += pair.look(&mut random, arguments.delay_ns);
            }
        }
    }
    let elapsed = start.elapsed();
    let sum = |count: fn(&Pair) -> u64| pairs.iter().map(count).sum::<u64>() as f64;
    out.figure("lost_wakeups", lost as f64);
    out.figure("transitions", sum(Pair::transitions));
    out.figure("sleeps", sum(|pair| pair.counters.wakeups_packet.get()));
    out.figure("prevented_by_recheck", sum(|pair| pair.counters.arm_ready.get()));
    out.figure("seconds", elapsed.as_secs_f64());
    pairs.into_iter().for_each(Pair::stop);
    out.print(&arguments.options);
}
