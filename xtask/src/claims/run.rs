//! Builds and runs the programs behind the claims.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Claim, Outputs, RESULTS, result_file};
use crate::{packages, workspace};

/// Longest time that one program may take.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Returns what this machine lacks for a claim, if anything.
pub(super) fn unmet_need(claim: &Claim) -> Option<String> {
    claim
        .needs
        .iter()
        .find(|need| match need.as_str() {
            "root" => !packages::is_root(),
            program => !on_path(program),
        })
        .cloned()
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .any(|directory| directory.join(program).is_file())
}

/// Runs each program of the claims once and returns what it printed.
pub(super) fn programs(claims: &[Claim], save: bool) -> Result<Outputs> {
    build()?;
    let mut outputs = Outputs::new();
    for claim in claims.iter().filter(|claim| unmet_need(claim).is_none()) {
        if outputs.contains_key(&claim.command) {
            continue;
        }
        eprintln!("running {}", claim.command);
        let started = Instant::now();
        let output = run(&claim.command).map_err(|error| format!("{error:#}"));
        eprintln!("  {} s", started.elapsed().as_secs());
        if let Ok(output) = &output {
            keep(&claim.command, output, save)?;
        }
        outputs.insert(claim.command.clone(), output);
    }
    Ok(outputs)
}

/// Builds the node without and the bench programs with DPDK, where it is installed, and with the opponents of the disk
/// tier: in two steps, so that the node which they start is the one that users have.
fn build() -> Result<()> {
    let bench = [
        "-p",
        "tidegate-bench",
        "--features",
        "tidegate-bench/disk-peers",
    ];
    let bench = [&bench[..], packages::dpdk_features()].concat();
    for arguments in [&["-p", "tidegate"], &bench[..]] {
        let status = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
            .args(["build", "--release", "--quiet", "--bins"])
            .args(arguments)
            .current_dir(workspace::root()?)
            .status()
            .context("cannot start cargo")?;
        ensure!(
            status.success(),
            "the programs behind the claims do not build"
        );
    }
    Ok(())
}

/// Returns the directory of the programs: where cargo puts what it builds in release mode.
fn directory() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(workspace::root()?.join(target).join("release"))
}

fn run(command: &str) -> Result<Value> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let program = *words.first().context("the command is empty")?;
    let (binary, arguments) = match program {
        "tidegate" => ("tidegate", &words[1..]),
        _ => ("tidegate-bench", &words[..]),
    };
    let path = directory()?.join(binary);
    let log = tempfile(&path, "stdout")?;
    let mut child = Command::new(&path)
        .args(arguments)
        .current_dir(workspace::root()?)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&log)?)
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > TIMEOUT {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("no result after {} s", TIMEOUT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let text = std::fs::read_to_string(&log)?;
    ensure!(status.success(), "{program} ended with {status}");
    serde_json::from_str(&text).with_context(|| format!("{program} did not print JSON"))
}

/// Names a file beside the programs, for what one of them prints.
fn tempfile(program: &Path, kind: &str) -> Result<PathBuf> {
    let directory = directory()?.join("claims");
    std::fs::create_dir_all(&directory)?;
    let name = program.file_name().context("a program has a name")?;
    Ok(directory.join(format!("{}.{kind}", name.to_string_lossy())))
}

/// Writes a result beside the programs, and to `bench/results` if it is to be saved.
fn keep(command: &str, output: &Value, save: bool) -> Result<()> {
    let text = serde_json::to_string_pretty(output)? + "\n";
    let mut directories = vec![directory()?.join("claims")];
    if save {
        directories.push(workspace::root()?.join(RESULTS));
    }
    for directory in directories {
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join(result_file(command)), &text)?;
    }
    Ok(())
}
