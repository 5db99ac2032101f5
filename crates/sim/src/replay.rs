//! Runs a scenario over seeds, and tells how to run a failing one again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs `scenario` with seeds 1 to `fixed`, and with as many fresh ones; with only the seed in the
/// environment variable `TIDEGATE_SEED`, if it is set. Before a failure goes on, prints the one command
/// that replays it.
///
/// # Panics
/// As the scenario does.
pub fn replayable(file: &str, test: &str, fixed: u64, scenario: impl Fn(u64)) {
    let chosen = std::env::var("TIDEGATE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = match chosen {
        Some(seed) => vec![seed],
        None => {
            let fresh = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_nanos() as u64);
            (1..=fixed)
                .chain((0..fixed).map(|n| fresh.wrapping_add(n)))
                .collect()
        }
    };
    for seed in seeds {
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| scenario(seed))) {
            eprintln!(
                "seed {seed} failed; replay it with:\n  TIDEGATE_SEED={seed} cargo test -p tidegate-sim --test {file} -- --exact {test} --nocapture"
            );
            resume_unwind(failure);
        }
    }
}
