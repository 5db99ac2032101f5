//! Loads rulesets of others into the kernel and into the node: which of those that `nft` loads does the node take as
//! they are? `cargo run --release -p tidegate-bench -- fw_rulesets --directory DIR` (root, `nft`); DIR holds files that
//! end in `.nft`, such as people have made public. Each goes into an empty namespace with devices of the usual names,
//! and into `tidegate check` with ports of these names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use bench::{Options, Report, Table, tidegate_program};
use clap::Parser;
use lab::netns::Namespace;
use serde_json::json;

/// Loads rulesets of others into the kernel and into the node.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Directory of rulesets; its files that end in `.nft` are read.
    #[arg(long, default_value = "../peers/rulesets")]
    directory: PathBuf,
}

/// Devices that rulesets are written for.
const DEVICES: [&str; 24] = [
    "eth0", "eth1", "eth2", "eth3", "enp1s0", "enp2s0", "enp3s0", "ens3", "ens18", "wlan0", "wlan1",
    "wg0", "wg1", "tun0", "tun1", "tap0", "br0", "br-lan", "docker0", "virbr0", "ppp0", "wan", "lan",
    "lo",
];

/// A namespace with the devices.
fn with_devices() -> Result<Namespace> {
    let namespace = Namespace::new("rulesets")?;
    let mut links = namespace.links()?;
    for name in DEVICES.iter().filter(|name| **name != "lo") {
        links.add_bridge(name)?;
    }
    Ok(namespace)
}

/// What the kernel says, beginning without rules: how many rules it loaded.
fn rules_in_kernel(namespace: &Namespace, file: &Path) -> Result<Option<usize>> {
    let quiet = |arguments: &[&OsStr]| {
        let mut command = namespace.command("nft");
        command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
        command.output().context("nft")
    };
    quiet(&["flush", "ruleset"].map(OsStr::new))?;
    if !quiet(&[OsStr::new("-f"), file.as_os_str()])?.status.success() {
        return Ok(None);
    }
    let listed = quiet(&["-j", "list", "ruleset"].map(OsStr::new))?;
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout)?;
    let items = listed["nftables"].as_array().context("a list")?;
    Ok(Some(items.iter().filter(|item| item.get("rule").is_some()).count()))
}

/// What the node says: nothing if it takes the rules, else its first line.
fn refused_by_node(program: &Path, directory: &Path, file: &Path) -> Result<Option<String>> {
    let mut configuration = String::from("[node]\nname = \"rulesets\"\n");
    for name in DEVICES.iter().filter(|name| **name != "lo") {
        configuration.push_str(&format!("[[port]]\nname = \"{name}\"\ndriver = \"mem\"\n"));
    }
    let rules = file.canonicalize()?;
    configuration.push_str(&format!("[firewall]\nrules = \"{}\"\n", rules.display()));
    let path = directory.join("node.toml");
    std::fs::write(&path, configuration)?;
    let mut command = std::process::Command::new(program);
    let output = command.args(["check", "--color", "never", "-c"]).arg(&path).output()?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(Some(first.trim().replace(&*rules.display().to_string(), "")))
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    ensure!(lab::netns::is_root(), "needs root: it makes network namespaces");
    let program = tidegate_program()?;
    let listed = std::fs::read_dir(&arguments.directory).with_context(|| {
        format!("no rulesets in {}: name their --directory", arguments.directory.display())
    })?;
    let mut files: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "nft"));
    files.sort();
    ensure!(!files.is_empty(), "no .nft file in {}", arguments.directory.display());

    let scratch = std::env::temp_dir().join(format!("tidegate-rulesets-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let namespace = with_devices()?;
    let (mut loaded, mut taken, mut rules) = (0, 0, 0);
    let mut table = Table::new("Rulesets that nft loads and the node does not", &["ruleset", "why"]);
    let measured = files.iter().try_for_each(|file| -> Result<()> {
        // A file without a rule says nothing.
        let Some(count @ 1..) = rules_in_kernel(&namespace, file)? else {
            return Ok(());
        };
        loaded += 1;
        rules += count;
        match refused_by_node(&program, &scratch, file)? {
            None => taken += 1,
            Some(why) => {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                table.rows.push(vec![json!(name), json!(why)]);
            }
        }
        Ok(())
    });
    std::fs::remove_dir_all(&scratch)?;
    measured?;
    let mut report = Report::new("fw_rulesets");
    report.figure("files", files.len() as f64);
    report.figure("kernel_loads", f64::from(loaded));
    report.figure("kernel_rules", rules as f64);
    report.figure("node_loads", f64::from(taken));
    report.figure("percent", 100.0 * f64::from(taken) / f64::from(loaded.max(1)));
    report.table(table);
    report.note("counted are the files that nft loads and that have a rule");
    report.print(&arguments.options);
    Ok(())
}
