//! The hybrid policy against simulated loads: a model of a core whose wake-ups and naps cost what they were
//! measured to cost, and packets at independent times.

use std::time::Duration;

use graph::fault::Random;
use graph::idle::hybrid::{Hybrid, HybridConfig};
use graph::idle::{Before, Decision, Pass, State};
use wire::Instant;

/// CPU time of a wake-up by interrupt and of a nap, and of a packet and an empty pass, nanoseconds.
const WAKE_NS: u64 = 17_000;
const NAP_NS: u64 = 14_000;
const PACKET_NS: u64 = 200;
const PASS_NS: u64 = 500;
/// Most time of empty passes that are made at once, nanoseconds.
const SPIN_NS: u64 = 5_000;

/// How late sleeps end, evenly spread, on a quiet machine and on one that others use too, nanoseconds.
const QUIET_NS: std::ops::Range<u64> = 15_000..25_000;
const NOISY_NS: std::ops::Range<u64> = 30_000..130_000;

/// A core, its worker and its load, in virtual time.
struct Model {
    hybrid: Hybrid,
    late_ns: std::ops::Range<u64>,
    random: Random,
    now_ns: u64,
    cpu_ns: u64,
    next_packet_ns: f64,
    latencies_ns: Vec<u64>,
}

/// What one run showed.
#[derive(Debug)]
struct Shown {
    cpu: f64,
    p99_us: u64,
    flips: u64,
    state: State,
}

impl Model {
    fn new(budget_us: u64, seed: u64) -> Self {
        let config = HybridConfig {
            latency_budget: Duration::from_micros(budget_us),
            ..HybridConfig::default()
        };
        Self {
            hybrid: Hybrid::new(config, Instant::ZERO),
            late_ns: QUIET_NS,
            random: Random::new(seed),
            now_ns: 0,
            cpu_ns: 0,
            next_packet_ns: f64::INFINITY,
            latencies_ns: Vec::new(),
        }
    }

    fn gap_ns(&mut self, rate_pps: f64) -> f64 {
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - uniform).ln() * 1e9 / rate_pps
    }

    fn late_ns(&mut self) -> u64 {
        self.late_ns.start + self.random.below(self.late_ns.end - self.late_ns.start)
    }

    fn run(&mut self, rate_pps: f64, time: Duration) -> Shown {
        let start_ns = self.now_ns;
        let end_ns = start_ns + time.as_nanos() as u64;
        let (cpu_before, flips) = (self.cpu_ns, self.hybrid.flips());
        self.latencies_ns.clear();
        self.next_packet_ns = if rate_pps > 0.0 {
            start_ns as f64 + self.gap_ns(rate_pps)
        } else {
            f64::INFINITY
        };
        let mut before = Before::Pass;
        while self.now_ns < end_ns {
            let mut pkts = 0;
            while self.next_packet_ns <= self.now_ns as f64 && pkts < 64 {
                pkts += 1;
                self.latencies_ns
                    .push(self.now_ns - self.next_packet_ns as u64);
                self.next_packet_ns += self.gap_ns(rate_pps);
            }
            self.hybrid.cpu_time(Duration::from_nanos(self.cpu_ns));
            let decision = self.hybrid.pass(&Pass {
                now: Instant::from_ns(self.now_ns),
                pkts,
                exhausted: false,
                before,
            });
            self.work(PASS_NS + u64::from(pkts) * PACKET_NS);
            before = Before::Pass;
            match decision {
                _ if pkts > 0 => {}
                Decision::Spin => {
                    // Many empty passes at once, up to the next packet.
                    let next_ns = (self.next_packet_ns as u64).saturating_sub(self.now_ns);
                    self.work(next_ns.min(SPIN_NS));
                }
                Decision::Nap(length) => {
                    let late = Duration::from_nanos(self.late_ns());
                    self.work(NAP_NS); // going to sleep, mostly
                    self.now_ns += (length + late).as_nanos() as u64;
                    before = Before::Nap { late };
                }
                Decision::Block => {
                    if self.next_packet_ns >= end_ns as f64 {
                        self.now_ns = end_ns;
                        continue;
                    }
                    let wake_ns = self.late_ns();
                    self.now_ns = self.now_ns.max(self.next_packet_ns as u64) + wake_ns;
                    self.cpu_ns += WAKE_NS;
                    before = Before::Interrupt;
                }
            }
        }
        self.latencies_ns.sort_unstable();
        let p99 = self.latencies_ns.len() * 99 / 100;
        Shown {
            cpu: (self.cpu_ns - cpu_before) as f64 / (self.now_ns - start_ns) as f64,
            p99_us: self.latencies_ns.get(p99).map_or(0, |ns| ns / 1000),
            flips: self.hybrid.flips() - flips,
            state: self.hybrid.state(),
        }
    }

    fn work(&mut self, ns: u64) {
        self.now_ns += ns;
        self.cpu_ns += ns;
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_idle_worker_waits_and_costs_nothing() {
    let mut model = Model::new(100, 1);
    model.run(0.0, Duration::from_millis(50));
    let shown = model.run(0.0, 10 * SECOND);
    assert_eq!((shown.state, shown.flips), (State::Wait, 0));
    assert!(shown.cpu < 1e-6, "{shown:?}");
}

#[test]
fn steady_loads_settle_in_the_cheapest_state_that_meets_the_budget() {
    for (rate_pps, state, cpu) in [
        (1e3, State::Wait, 0.025),
        (1e5, State::Nap, 0.18),
        (2.5e5, State::Nap, 0.22),
    ] {
        for seed in 0..3 {
            let mut model = Model::new(100, seed);
            model.run(rate_pps, 3 * SECOND);
            let shown = model.run(rate_pps, 3 * SECOND);
            assert_eq!(shown.state, state, "{rate_pps} pps: {shown:?}");
            assert!(shown.cpu < cpu, "{rate_pps} pps: {shown:?}");
            assert!(shown.p99_us <= 100, "{rate_pps} pps: {shown:?}");
        }
    }
}

#[test]
fn no_steady_load_makes_it_flap() {
    for exponent in 0..10 {
        let rate_pps = 100.0 * 2.5_f64.powi(exponent);
        for budget_us in [35, 100, 250] {
            let mut model = Model::new(budget_us, exponent as u64);
            model.run(rate_pps, SECOND);
            let shown = model.run(rate_pps, 3 * SECOND);
            assert!(
                shown.flips <= 3,
                "{rate_pps} pps, {budget_us} us: {shown:?}"
            );
        }
    }
}

#[test]
fn how_late_sleeps_end_is_learned_and_the_budget_holds() {
    for rate_pps in [1e3, 1e4, 5e4] {
        let mut model = Model::new(100, 8);
        model.late_ns = NOISY_NS;
        model.run(rate_pps, 2 * SECOND);
        let shown = model.run(rate_pps, 3 * SECOND);
        let lateness = model.hybrid.lateness().as_micros();
        assert!(
            (115..=130).contains(&lateness),
            "{rate_pps} pps: {lateness} us, {shown:?}"
        );
        assert_eq!(shown.state, State::Poll, "{rate_pps} pps: {shown:?}");
        assert!(shown.p99_us <= 100, "{rate_pps} pps: {shown:?}");
        assert!(shown.flips <= 5, "{rate_pps} pps: {shown:?}");
    }
}

#[test]
fn a_machine_that_gets_quiet_while_the_worker_polls_is_noticed() {
    let mut model = Model::new(100, 8);
    model.late_ns = NOISY_NS;
    model.run(1e3, 2 * SECOND);
    assert_eq!(model.hybrid.state(), State::Poll);
    model.late_ns = QUIET_NS;
    model.run(1e3, 90 * SECOND);
    let shown = model.run(1e3, 2 * SECOND);
    assert_eq!((shown.state, shown.flips), (State::Wait, 0));
    assert!(shown.p99_us <= 100, "{shown:?}");
}

#[test]
fn a_machine_that_gets_noisy_while_the_worker_waits_is_noticed() {
    let mut model = Model::new(100, 9);
    model.run(1e3, 5 * SECOND);
    let quiet = model.run(1e3, 5 * SECOND);
    assert_eq!((quiet.state, quiet.flips), (State::Wait, 0));
    model.late_ns = NOISY_NS;
    model.run(1e3, 30 * SECOND);
    let shown = model.run(1e3, 2 * SECOND);
    assert_eq!(shown.state, State::Poll, "{shown:?}");
    assert!(shown.p99_us <= 100, "{shown:?}");
}

#[test]
fn a_budget_that_no_sleep_meets_is_met_by_polling() {
    let mut model = Model::new(20, 5);
    model.run(1e5, SECOND);
    let shown = model.run(1e5, SECOND);
    assert_eq!(shown.state, State::Poll, "{shown:?}");
    assert!(shown.p99_us <= 1, "{shown:?}");
    model.run(0.0, 3 * SECOND);
    assert_eq!(model.hybrid.state(), State::Wait);
}

#[test]
fn overload_leads_to_polling_within_milliseconds_and_its_end_back() {
    let mut model = Model::new(100, 6);
    model.run(0.0, SECOND);
    let shown = model.run(6e6, Duration::from_millis(2));
    assert_eq!((shown.state, shown.flips), (State::Poll, 1));
    model.run(0.0, SECOND);
    assert_eq!(model.hybrid.state(), State::Wait);
}

#[test]
fn a_step_of_the_load_costs_two_changes_at_most() {
    let mut model = Model::new(100, 7);
    model.run(0.0, SECOND);
    for step in 0..60 {
        for rate_pps in [2.5e5, 0.0] {
            let shown = model.run(rate_pps, Duration::from_millis(300));
            assert!(shown.flips <= 2, "step {step} to {rate_pps} pps: {shown:?}");
        }
    }
}
