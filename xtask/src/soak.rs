//! `cargo xtask soak`: the property tests, again and again, each time with another seed.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace;

/// How `cargo xtask soak` runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Start no round after so many minutes.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Only this package.
    #[arg(long, short)]
    package: Option<String>,
    /// Run one round with the seed that a failure named.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs rounds until the time is over or one fails, and tells whether all passed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let packages = match &options.package {
        Some(package) => vec![package.clone()],
        None => with_property_tests()?,
    };
    ensure!(!packages.is_empty(), "no package uses proptest");
    let started = Instant::now();
    let minutes = Duration::from_secs(60 * options.minutes);
    // Successive numbers are as good as any: proptest hashes its seed.
    let first = match options.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    for (seed, round) in (first..).zip(1..) {
        let mut test = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        test.args(["test", "-q", "--lib", "--tests"])
            .env("PROPTEST_RNG_SEED", seed.to_string())
            .current_dir(workspace::root()?);
        for package in &packages {
            test.args(["-p", package]);
        }
        let passed = test.status().context("cannot start cargo test")?.success();
        if !passed {
            println!("soak: FAILED in round {round}; again: cargo xtask soak --seed {seed}");
            return Ok(false);
        }
        if options.seed.is_some() || started.elapsed() >= minutes {
            println!("soak: {round} rounds passed, the last with seed {seed}");
            break;
        }
    }
    Ok(true)
}

/// The packages of the workspace that have property tests.
fn with_property_tests() -> Result<Vec<String>> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .no_deps()
        .current_dir(workspace::root()?)
        .exec()?;
    let mut packages: Vec<String> = metadata
        .packages
        .iter()
        .filter(|package| package.dependencies.iter().any(|it| it.name == "proptest"))
        .map(|package| package.name.to_string())
        .collect();
    packages.sort();
    Ok(packages)
}
