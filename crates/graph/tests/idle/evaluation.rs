//! The claim of the hybrid policy in virtual time: within its latency budget, it takes no more than 1.1
//! times the CPU of the cheapest static strategy that meets the budget, at any steady load, whatever
//! sleeping costs on the machine.

use std::time::Duration;

use graph::idle::Mode;

use super::virtual_core::{Core, Machine, NOISY, QUIET, Shown, Strategy};

/// A virtual machine, as measured: half of all sleeps end 25 us late, 5 % by 50 us and more, 1 % by 100 us
/// and more; wake-ups by another core take longer, and cost more after a long sleep.
const VIRTUAL: Machine = Machine {
    name: "virtual",
    late_ns: 18_000..32_000,
    later: &[(0.1, 0..40_000), (0.03, 30_000..130_000)],
    interrupt_ns: 20_000,
    nap_ns: 36_000,
    wake_ns: 10_000..26_000,
    stalls: (0.0, 0..1),
};

/// The same, where the host takes the core away five times a second.
const STOLEN: Machine = Machine {
    name: "stolen",
    stalls: (5.0, 200_000..1_500_000),
    ..VIRTUAL
};

/// The same, where single sleeps end very late: no shorter nap helps against them.
const OUTLIERS: Machine = Machine {
    name: "outliers",
    later: &[
        (0.1, 0..40_000),
        (0.03, 30_000..130_000),
        (0.0025, 400_000..1_000_000),
    ],
    ..VIRTUAL
};

const LOADS_PPS: [f64; 4] = [1e3, 1e4, 1e5, 2.5e5];
const SEEDS: u64 = 3;
const SETTLE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);
/// Most changes of state in a window.
const FLIPS: u64 = 2;

const POLL: Strategy = Strategy::Mode(Mode::Poll);
const PAPER: Strategy = Strategy::Mode(Mode::Paper);
const STATIC: [Strategy; 5] = [
    POLL,
    Strategy::Mode(Mode::Interrupt),
    Strategy::Nap(50),
    Strategy::Nap(100),
    Strategy::Nap(200),
];

/// Runs one strategy until it has settled and a window longer.
fn settled(machine: &Machine, strategy: Strategy, rate_pps: f64, seed: u64) -> Shown {
    let mut core = Core::new(machine, strategy, seed);
    core.run(rate_pps, SETTLE);
    core.run(rate_pps, WINDOW)
}

/// How late wake-ups are: the 50th and the 99th percentile.
fn wakes(machine: &Machine) -> [Duration; 2] {
    let mut core = Core::new(machine, POLL, 1);
    let mut late: Vec<u64> = (0..10_000)
        .map(|_| core.late_ns() + machine.interrupt_ns)
        .collect();
    late.sort_unstable();
    [late[5_000], late[9_900]].map(Duration::from_nanos)
}

/// Runs the static strategies; polling, which is the same with any seed, for less long.
fn static_strategies(machine: &Machine, rate_pps: f64, seed: u64) -> [(Strategy, Shown); 5] {
    STATIC.map(|strategy| {
        let shown = if strategy == POLL {
            Core::new(machine, POLL, seed).run(rate_pps, Duration::from_millis(500))
        } else {
            settled(machine, strategy, rate_pps, seed)
        };
        (strategy, shown)
    })
}

/// Compares the hybrid policy with the static strategies at all loads and several budgets: two, as the
/// program `idle_policy` of the benchmarks chooses them, of which sleeping meets one and does not meet the other,
/// and a wider one.
fn evaluate(machine: &Machine) {
    let [median, tail] = wakes(machine);
    let budgets = [median / 2, tail * 5 / 2, tail * 4];
    let mut failures = Vec::new();
    for rate_pps in LOADS_PPS {
        for seed in 1..=SEEDS {
            let shown = static_strategies(machine, rate_pps, seed);
            for budget in budgets {
                if budget == budgets[0] && seed > 1 {
                    continue;
                }
                let budget_us = budget.as_micros() as u64;
                let ours = settled(machine, Strategy::Hybrid(budget), rate_pps, seed);
                let (strategy, least) = shown
                    .iter()
                    .filter(|(strategy, shown)| *strategy == POLL || shown.p99_us <= budget_us)
                    .min_by(|a, b| a.1.cpu.total_cmp(&b.1.cpu))
                    .expect("polling");
                let ratio = ours.cpu / least.cpu;
                let line = format!(
                    "{rate_pps} pps, {budget_us} us, seed {seed}: {ratio:.3}x; {ours:?}; {strategy:?}: {least:?}"
                );
                println!("{line}");
                if ratio > 1.1 || ours.p99_us > budget_us || ours.flips > FLIPS {
                    failures.push(line);
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}: {failures:#?}", machine.name);
}

#[test]
fn naps_within_a_budget_cost_a_fraction_of_the_paper_policy() {
    let [_, tail] = wakes(&VIRTUAL);
    let budget = tail * 5 / 2;
    for rate_pps in [1e5, 2.5e5] {
        let ours = settled(&VIRTUAL, Strategy::Hybrid(budget), rate_pps, 1);
        let paper = settled(&VIRTUAL, PAPER, rate_pps, 1);
        println!("{rate_pps} pps: ours {ours:?}, the paper's {paper:?}");
        assert!(
            ours.cpu * 1.5 < paper.cpu,
            "{rate_pps} pps: {ours:?}, {paper:?}"
        );
        assert!(
            ours.flips < paper.flips.max(1),
            "{rate_pps} pps: {ours:?}, {paper:?}"
        );
    }
}

#[test]
fn the_cheapest_within_the_budget_on_a_quiet_machine() {
    evaluate(&QUIET);
}

#[test]
fn the_cheapest_within_the_budget_on_a_noisy_machine() {
    evaluate(&NOISY);
}

#[test]
fn the_cheapest_within_the_budget_on_a_virtual_machine() {
    evaluate(&VIRTUAL);
}

#[test]
fn the_cheapest_within_the_budget_where_the_host_takes_the_core_away() {
    evaluate(&STOLEN);
}

#[test]
fn the_cheapest_within_the_budget_where_single_sleeps_end_very_late() {
    evaluate(&OUTLIERS);
}
