//! A core with one worker and its load in virtual time: what waiting costs and adds, by strategy.
//!
//! Packets come at independent times. A sleep ends late by what a distribution says, a nap and a wake-up
//! cost CPU time, and a host may take the core away: then nothing runs on it, whatever the worker does.

use std::ops::Range;
use std::time::Duration;

use graph::fault::Random;
use graph::idle::hybrid::{Hybrid, HybridConfig};
use graph::idle::{Before, Decision, Engine, IdleConfig, Mode, Pass, State};
use wire::Instant;

/// CPU time of a packet and of an empty pass, nanoseconds.
const PACKET_NS: u64 = 200;
const PASS_NS: u64 = 500;
/// Most time of empty passes that are made at once, nanoseconds.
const SPIN_NS: u64 = 20_000;
/// How often a worker tells the policy its CPU time, nanoseconds.
const CPU_TIME_NS: u64 = 20_000_000;
/// Packets that one pass takes at most.
const BATCH: u32 = 64;
/// Time asleep after which a wake-up costs 63 % of the way from its least to its most, nanoseconds.
const DEEP_NS: f64 = 60_000.0;

/// What sleeping costs and adds on some machine. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    /// How late most sleeps end, evenly spread.
    pub(crate) late_ns: Range<u64>,
    /// Parts of all sleeps that end later than that by more, each with the range of it.
    pub(crate) later: &'static [(f64, Range<u64>)],
    /// By how much more a wake-up by an interrupt is late.
    pub(crate) interrupt_ns: u64,
    /// CPU time of a nap, most of it before the thread sleeps.
    pub(crate) nap_ns: u64,
    /// CPU time of a wake-up by an interrupt after no sleep at all and after a long one.
    pub(crate) wake_ns: Range<u64>,
    /// How often a second the host takes the core away, and for how long.
    pub(crate) stalls: (f64, Range<u64>),
}

/// A quiet machine.
pub(crate) const QUIET: Machine = Machine {
    name: "quiet",
    late_ns: 15_000..25_000,
    later: &[],
    interrupt_ns: 0,
    nap_ns: 14_000,
    wake_ns: 17_000..17_001,
    stalls: (0.0, 0..1),
};

/// One that others use too.
pub(crate) const NOISY: Machine = Machine {
    name: "noisy",
    late_ns: 30_000..130_000,
    ..QUIET
};

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Strategy {
    Mode(Mode),
    /// Naps of fixed length, microseconds.
    Nap(u64),
    /// Within a latency budget.
    Hybrid(Duration),
}

impl Strategy {
    fn mode(self) -> Mode {
        match self {
            Self::Mode(mode) => mode,
            Self::Nap(_) => Mode::Interrupt,
            Self::Hybrid(_) => Mode::Hybrid,
        }
    }
}

/// A core, its worker and its load, in virtual time.
pub(crate) struct Core {
    pub(crate) machine: Machine,
    strategy: Strategy,
    engine: Engine,
    random: Random,
    now_ns: u64,
    cpu_ns: u64,
    /// When the policy is told the CPU time next.
    cpu_due_ns: u64,
    next_packet_ns: f64,
    /// When the host takes the core away next, and for how long.
    stall: (f64, u64),
    latencies_ns: Vec<u64>,
}

/// What one run showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Share of the core.
    pub(crate) cpu: f64,
    pub(crate) p99_us: u64,
    pub(crate) flips: u64,
    pub(crate) state: State,
    pub(crate) wakeups: u64,
}

impl Core {
    pub(crate) fn new(machine: &Machine, strategy: Strategy, seed: u64) -> Self {
        let mut config = IdleConfig::default();
        if let Strategy::Hybrid(latency_budget) = strategy {
            config.hybrid = HybridConfig {
                latency_budget,
                ..HybridConfig::default()
            };
        }
        let mut core = Self {
            machine: machine.clone(),
            strategy,
            engine: Engine::new(&[strategy.mode()], &config, Instant::ZERO),
            random: Random::new(seed),
            now_ns: 0,
            cpu_ns: 0,
            cpu_due_ns: 0,
            next_packet_ns: f64::INFINITY,
            stall: (0.0, 0),
            latencies_ns: Vec::new(),
        };
        core.stall = core.next_stall();
        core
    }

    /// The hybrid machine.
    ///
    /// # Panics
    /// In another mode.
    pub(crate) fn hybrid(&self) -> &Hybrid {
        self.engine.hybrid().expect("hybrid mode")
    }

    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn within(&mut self, range: &Range<u64>) -> u64 {
        range.start + self.random.below(range.end - range.start)
    }

    fn gap_ns(&mut self, rate_per_s: f64) -> f64 {
        -(1.0 - self.uniform()).ln() * 1e9 / rate_per_s
    }

    /// How late one sleep ends.
    pub(crate) fn late_ns(&mut self) -> u64 {
        let range = self.machine.late_ns.clone();
        let mut late_ns = self.within(&range);
        for (share, range) in self.machine.later {
            if self.uniform() < *share {
                late_ns += self.within(range);
            }
        }
        late_ns
    }

    fn next_stall(&mut self) -> (f64, u64) {
        let (rate, range) = self.machine.stalls.clone();
        if rate == 0.0 {
            return (f64::INFINITY, 0);
        }
        let length_ns = self.within(&range);
        (self.now_ns as f64 + self.gap_ns(rate), length_ns)
    }

    /// Lets the thread run for so long; it stands still while the host has the core.
    fn work(&mut self, ns: u64) {
        self.cpu_ns += ns;
        let mut end_ns = self.now_ns + ns;
        while self.stall.0 < end_ns as f64 {
            end_ns += self.stall.1;
            self.now_ns = self.stall.0 as u64 + self.stall.1;
            self.stall = self.next_stall();
        }
        self.now_ns = end_ns;
    }

    /// Lets the thread sleep until some time, or until the host gives the core back after it.
    fn sleep_until(&mut self, until_ns: u64) {
        self.now_ns = self.now_ns.max(until_ns);
        while self.stall.0 < self.now_ns as f64 {
            let back_ns = self.stall.0 as u64 + self.stall.1;
            self.now_ns = self.now_ns.max(back_ns);
            self.stall = self.next_stall();
        }
    }

    /// Runs at a rate for a while, in packets a second.
    pub(crate) fn run(&mut self, rate_pps: f64, time: Duration) -> Shown {
        let start_ns = self.now_ns;
        let end_ns = start_ns + time.as_nanos() as u64;
        let (cpu_before, flips) = (self.cpu_ns, self.engine.flips());
        self.latencies_ns.clear();
        self.next_packet_ns = f64::INFINITY;
        if rate_pps > 0.0 {
            self.next_packet_ns = start_ns as f64 + self.gap_ns(rate_pps);
        }
        let (mut before, mut wakeups) = (Before::Pass, 0);
        while self.now_ns < end_ns {
            let now_ns = self.now_ns;
            let mut pkts = 0;
            while self.next_packet_ns <= now_ns as f64 && pkts < BATCH {
                pkts += 1;
                self.latencies_ns.push(now_ns - self.next_packet_ns as u64);
                self.next_packet_ns += self.gap_ns(rate_pps);
            }
            if now_ns >= self.cpu_due_ns {
                self.cpu_due_ns = now_ns + CPU_TIME_NS;
                self.engine.cpu_time(Duration::from_nanos(self.cpu_ns));
            }
            let pass = Pass {
                now: Instant::from_ns(now_ns),
                pkts,
                exhausted: false,
                before,
            };
            let decision = match (self.strategy, self.engine.pass(&pass, &[pkts])) {
                (Strategy::Nap(us), Decision::Block) => Decision::Nap(Duration::from_micros(us)),
                (_, decision) => decision,
            };
            self.work(PASS_NS + u64::from(pkts) * PACKET_NS);
            before = Before::Pass;
            match decision {
                // Many empty passes at once, up to the next packet.
                Decision::Spin if pkts == 0 => {
                    let next_ns = (self.next_packet_ns as u64).saturating_sub(self.now_ns);
                    self.work(next_ns.min(SPIN_NS));
                }
                Decision::Spin => {}
                Decision::Nap(length) => {
                    wakeups += 1;
                    before = self.nap(length);
                }
                Decision::Block if self.next_packet_ns >= end_ns as f64 => {
                    self.sleep_until(end_ns);
                }
                Decision::Block => {
                    wakeups += 1;
                    before = self.block();
                }
            }
        }
        self.latencies_ns.sort_unstable();
        let p99 = self.latencies_ns.len() * 99 / 100;
        Shown {
            cpu: (self.cpu_ns - cpu_before) as f64 / (self.now_ns - start_ns) as f64,
            p99_us: self.latencies_ns.get(p99).map_or(0, |ns| ns / 1000),
            flips: self.engine.flips() - flips,
            state: self.engine.state(),
            wakeups,
        }
    }

    fn nap(&mut self, length: Duration) -> Before {
        let start_ns = self.now_ns;
        let due_ns = start_ns + length.as_nanos() as u64;
        // The timer runs already while the thread goes to sleep.
        self.work(self.machine.nap_ns);
        let late_ns = self.late_ns();
        self.sleep_until(due_ns + late_ns);
        Before::Nap {
            late: Duration::from_nanos(self.now_ns - due_ns),
        }
    }

    fn block(&mut self) -> Before {
        let Range { start, end } = self.machine.wake_ns;
        self.work(start / 4);
        if self.next_packet_ns <= self.now_ns as f64 {
            return Before::Pass; // the look after arming found it
        }
        self.work(start / 4);
        let asleep_ns = (self.next_packet_ns - self.now_ns as f64).max(0.0);
        let depth = 1.0 - (-asleep_ns / DEEP_NS).exp();
        let late_ns = (self.late_ns() + self.machine.interrupt_ns) as f64;
        let rung_ns = self.next_packet_ns.max(self.now_ns as f64);
        self.sleep_until((rung_ns + late_ns) as u64);
        // Of the way back, all is in the lateness.
        self.cpu_ns += start / 2 + ((end - start) as f64 * depth) as u64;
        Before::Interrupt
    }
}
