//! The hybrid policy against simulated loads: settling, learning, steps and overload.

use std::time::Duration;

use graph::idle::State;

use super::virtual_core::{Core, NOISY, QUIET, Strategy};

const SECOND: Duration = Duration::from_secs(1);

fn model(budget_us: u64, seed: u64) -> Core {
    let budget = Duration::from_micros(budget_us);
    Core::new(&QUIET, Strategy::Hybrid(budget), seed)
}

#[test]
fn an_idle_worker_waits_and_costs_nothing() {
    let mut model = model(100, 1);
    model.run(0.0, Duration::from_millis(50));
    let shown = model.run(0.0, 10 * SECOND);
    assert_eq!((shown.state, shown.flips), (State::Wait, 0));
    assert!(shown.cpu < 1e-6 && shown.wakeups == 0, "{shown:?}");
}

#[test]
fn steady_loads_settle_in_the_cheapest_state_that_meets_the_budget() {
    for (rate_pps, state, cpu) in [
        (1e3, State::Wait, 0.025),
        (1e5, State::Nap, 0.18),
        (2.5e5, State::Nap, 0.22),
    ] {
        for seed in 0..3 {
            let mut model = model(100, seed);
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
            let mut model = model(budget_us, exponent as u64);
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
        let mut model = model(100, 8);
        model.machine = NOISY;
        model.run(rate_pps, 2 * SECOND);
        let shown = model.run(rate_pps, 3 * SECOND);
        let lateness = model.hybrid().lateness().as_micros();
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
    let mut model = model(100, 8);
    model.machine = NOISY;
    model.run(1e3, 2 * SECOND);
    assert_eq!(model.hybrid().state(), State::Poll);
    model.machine = QUIET;
    model.run(1e3, 90 * SECOND);
    let shown = model.run(1e3, 2 * SECOND);
    assert_eq!((shown.state, shown.flips), (State::Wait, 0));
    assert!(shown.p99_us <= 100, "{shown:?}");
}

#[test]
fn a_machine_that_gets_noisy_while_the_worker_waits_is_noticed() {
    let mut model = model(100, 9);
    model.run(1e3, 5 * SECOND);
    let quiet = model.run(1e3, 5 * SECOND);
    assert_eq!((quiet.state, quiet.flips), (State::Wait, 0));
    model.machine = NOISY;
    model.run(1e3, 30 * SECOND);
    let shown = model.run(1e3, 2 * SECOND);
    assert_eq!(shown.state, State::Poll, "{shown:?}");
    assert!(shown.p99_us <= 100, "{shown:?}");
}

#[test]
fn a_budget_that_no_sleep_meets_is_met_by_polling() {
    let mut model = model(20, 5);
    model.run(1e5, SECOND);
    let shown = model.run(1e5, SECOND);
    assert_eq!(shown.state, State::Poll, "{shown:?}");
    assert!(shown.p99_us <= 1, "{shown:?}");
    model.run(0.0, 3 * SECOND);
    assert_eq!(model.hybrid().state(), State::Wait);
}

#[test]
fn overload_leads_to_polling_within_milliseconds_and_its_end_back() {
    let mut model = model(100, 6);
    model.run(0.0, SECOND);
    let shown = model.run(6e6, Duration::from_millis(2));
    assert_eq!((shown.state, shown.flips), (State::Poll, 1));
    model.run(0.0, SECOND);
    assert_eq!(model.hybrid().state(), State::Wait);
}

#[test]
fn a_step_of_the_load_costs_two_changes_at_most() {
    let mut model = model(100, 7);
    model.run(0.0, SECOND);
    for step in 0..60 {
        for rate_pps in [2.5e5, 0.0] {
            let shown = model.run(rate_pps, Duration::from_millis(300));
            assert!(shown.flips <= 2, "step {step} to {rate_pps} pps: {shown:?}");
        }
    }
}

#[test]
fn silence_ends_polling_though_no_sleep_meets_the_budget() {
    let mut core = Core::new(&NOISY, Strategy::Hybrid(Duration::from_micros(50)), 1);
    assert_eq!(core.run(1e4, Duration::from_secs(2)).state, State::Poll);
    // 60 ms of 600, and what a probe takes.
    let silent = core.run(0.0, Duration::from_millis(600));
    assert!(silent.cpu < 0.15, "{silent:?}");
    assert_eq!(core.run(1e4, Duration::from_secs(2)).state, State::Poll);
}
