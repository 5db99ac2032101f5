//! `cargo xtask test`: every level of tests, a line for each, and a loud list of what was skipped.

mod tally;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::{packages, workspace};
use tally::Tally;

/// How `cargo xtask test` runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the levels whose name contains this.
    #[arg(long)]
    level: Option<String>,
    /// Do not install Debian packages.
    #[arg(long)]
    no_install: bool,
    /// Print everything that the tests print.
    #[arg(long)]
    verbose: bool,
    /// The seed of the property tests: one tree, one result. `cargo xtask soak` tries others.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One level: a command, and what it shows.
struct Level {
    /// A file without which the level cannot be built.
    needs: Option<&'static str>,
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const LOOM: &[(&str, &str)] = &[
    ("RUSTFLAGS", "--cfg loom"),
    ("CARGO_TARGET_DIR", "target/loom"),
    ("LOOM_MAX_PREEMPTIONS", "2"),
];

const SHUTTLE: &[(&str, &str)] = &[
    ("RUSTFLAGS", "--cfg shuttle"),
    ("CARGO_TARGET_DIR", "target/shuttle"),
];

/// On a stable compiler too; without address randomisation, which the tool does not bear everywhere. The
/// suppressions are for the standard library, which is not instrumented.
const TSAN: &[(&str, &str)] = &[
    ("RUSTC_BOOTSTRAP", "1"),
    (
        "RUSTFLAGS",
        "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
    ),
    ("CARGO_TARGET_DIR", "target/tsan"),
    ("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "setarch -R"),
    ("TSAN_OPTIONS", "suppressions=tests/tsan.supp"),
];

const LEVELS: &[Level] = &[
    level("format", &["fmt", "--all", "--", "--check"]),
    level("tidy", &["xtask", "tidy"]),
    level(
        "lint",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    level("build", &["build", "--release", "-p", "tidegate"]),
    level(
        "build of the bench programs, in which instructions are counted",
        &["build", "--release", "-p", "tidegate-bench"],
    ),
    level(
        "unit and integration",
        &[
            "test",
            "--workspace",
            "--no-fail-fast",
            "--",
            "--show-output",
        ],
    ),
    Level {
        needs: Some("/usr/include/dpdk/rte_ethdev.h"),
        ..level(
            "DPDK (feature `dpdk`)",
            &[
                "test",
                "-p",
                "tidegate-io",
                "-p",
                "tidegate-dataplane",
                "-p",
                "tidegate",
                "--features",
                "tidegate-io/dpdk,tidegate-dataplane/dpdk,tidegate/dpdk",
                "--test",
                "dpdk*",
                "--",
                "--show-output",
                "--test-threads=1",
            ],
        )
    },
    Level {
        needs: Some("/usr/lib/llvm-22/bin/llc"),
        ..level(
            "the kernel's programs are what their source gives",
            &["xtask", "bpf", "--check"],
        )
    },
    level(
        "the kernel's programs on Debian's oldest and newest kernels (QEMU)",
        &["xtask", "kernels"],
    ),
    Level {
        needs: None,
        name: "models (loom)",
        arguments: &[
            "test",
            "--release",
            "-p",
            "tidegate-tables",
            "-p",
            "tidegate-content-store",
            "--test",
            "loom_*",
            "--",
            "--show-output",
        ],
        environment: LOOM,
    },
    Level {
        needs: None,
        name: "random schedules (shuttle)",
        arguments: &[
            "test",
            "--release",
            "-p",
            "tidegate-tables",
            "-p",
            "tidegate-content-store",
            "--test",
            "shuttle_*",
            "--",
            "--show-output",
        ],
        environment: SHUTTLE,
    },
    Level {
        needs: Some("/usr/bin/setarch"),
        name: "data races (ThreadSanitizer)",
        arguments: &[
            "test",
            "-p",
            "tidegate-tables",
            "--target",
            "x86_64-unknown-linux-gnu",
            "--lib",
            "--test",
            "slots",
            "--",
            "--test-threads=1",
            "--skip",
            "lpm",
            "--skip",
            "agrees",
        ],
        environment: TSAN,
    },
    Level {
        needs: None,
        name: "docs",
        arguments: &[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
    },
];

const fn level(name: &'static str, arguments: &'static [&'static str]) -> Level {
    Level {
        name,
        arguments,
        environment: &[],
        needs: None,
    }
}

/// Runs the levels, prints the summary, and tells whether all passed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    let mut tally = Tally::default();
    if !options.no_install {
        tally.skipped.extend(packages::ensure());
    }
    if !packages::is_root() {
        tally
            .skipped
            .push("not root: tests that make network namespaces are left out".into());
    }
    let wanted = options.level.as_deref().unwrap_or_default();
    for level in LEVELS.iter().filter(|level| level.name.contains(wanted)) {
        println!("== {}", level.name);
        if let Some(file) = level.needs.filter(|file| !Path::new(file).exists()) {
            println!("SKIPPED {}: there is no {file}", level.name);
            tally
                .skipped
                .push(format!("{}: there is no {file}", level.name));
            continue;
        }
        let started = Instant::now();
        let passed = run_level(level, options, &mut tally)?;
        let seconds = started.elapsed().as_secs();
        println!(
            "== {}: {} in {seconds} s",
            level.name,
            if passed { "passed" } else { "FAILED" }
        );
        if !passed {
            tally.failed_levels.push(level.name.to_owned());
        }
    }
    Ok(tally.report(strict))
}

/// Runs one level; its output is shown as far as it says something, and counted.
fn run_level(level: &Level, options: &Options, tally: &mut Tally) -> Result<bool> {
    let verbose = options.verbose;
    let mut child = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(level.arguments)
        .env("PROPTEST_RNG_SEED", options.seed.to_string())
        .envs(level.environment.iter().copied())
        .current_dir(workspace::root()?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start cargo {}", level.arguments.join(" ")))?;
    let stdout = child.stdout.take().context("stdout was piped")?;
    let mut kept = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if tally.count(&line) || verbose {
            println!("{line}");
        } else {
            kept.push(line);
        }
    }
    let passed = child.wait()?.success();
    if !passed && !verbose {
        for line in kept {
            println!("{line}");
        }
    }
    Ok(passed)
}
