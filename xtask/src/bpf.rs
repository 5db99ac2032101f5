//! `cargo xtask bpf`: compiles the kernel's programs, which are Rust like the rest, with Debian's packages.
//!
//! The objects are committed beside their source, as a user's machine needs no compiler for BPF. rustc for BPF comes
//! as bitcode, LLVM makes the object of it: no linker, no clang.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{packages, workspace};

/// How `cargo xtask bpf` runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Write nothing; fail if a committed object is not what its source gives.
    #[arg(long)]
    check: bool,
}

/// Where the programs are, and which.
const FOLDER: &str = "crates/kernel-cache/bpf";
const PROGRAMS: &[&str] = &["xdp", "tc", "filter"];
/// Says with which compiler the objects were made.
const TOOLCHAIN: &str = "crates/kernel-cache/bpf/toolchain.txt";
const LLVM: &str = "/usr/lib/llvm-22/bin";
/// Without atomic instructions that return a value there is no compare-and-swap: Linux 5.12.
const CPU: &str = "v3";
const FEATURES: &str = "+allows-misaligned-mem-access";

/// Compiles all programs; writes the objects or compares them.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let rustc = packages::bpf_compiler()?;
    ensure!(
        Path::new(LLVM).join("llc").exists(),
        "there is no {LLVM}/llc; install the package llvm-22"
    );
    let root = workspace::root()?;
    let toolchain = versions(&rustc)?;
    let known = std::fs::read_to_string(root.join(TOOLCHAIN)).unwrap_or_default();
    if options.check && known != toolchain {
        println!(
            "bpf: NOT COMPARED: the objects were made by\n{known}and here is\n{toolchain}run `cargo xtask bpf` and commit"
        );
    }
    let mut same = true;
    for program in PROGRAMS {
        let object = compile(&rustc, program)?;
        let committed = root.join(FOLDER).join(format!("{program}.o"));
        if !options.check {
            std::fs::write(&committed, &object)
                .with_context(|| format!("cannot write {}", committed.display()))?;
            println!("bpf: wrote {FOLDER}/{program}.o, {} bytes", object.len());
        } else if known == toolchain {
            let equal = std::fs::read(&committed).is_ok_and(|bytes| bytes == object);
            let verdict = if equal { "is" } else { "is NOT" };
            println!("bpf: {FOLDER}/{program}.o {verdict} what its source gives");
            same &= equal;
        }
    }
    if !options.check {
        std::fs::write(root.join(TOOLCHAIN), toolchain).context(TOOLCHAIN)?;
    }
    Ok(same)
}

/// The versions that decide what an object looks like.
fn versions(rustc: &packages::BpfCompiler) -> Result<String> {
    let rustc = output(rustc.command().arg("--version"))?;
    let llc = output(Command::new(format!("{LLVM}/llc")).arg("--version"))?;
    let llvm = llc
        .lines()
        .find(|line| line.contains("LLVM version"))
        .unwrap_or_default();
    Ok(format!("{}\n{}\n", rustc.trim(), llvm.trim()))
}

/// Compiles one program to an object.
fn compile(rustc: &packages::BpfCompiler, program: &str) -> Result<Vec<u8>> {
    let root = workspace::root()?;
    let work = packages::bpf_folder()?;
    let file = |suffix: &str| work.join(format!("{program}.{suffix}"));
    let (bitcode, optimised, object) = (file("bc"), file("opt.bc"), file("o"));
    output(
        rustc
            .command()
            .current_dir(root.join(FOLDER))
            .args(["--edition", "2024", "--crate-type", "lib"])
            .args(["--crate-name", program, "--target", "bpfel-unknown-none"])
            .args(["-C", "opt-level=3", "-C", "panic=abort"])
            .args(["-C", "codegen-units=1", "-C", "debuginfo=0"])
            .args(["-C", "overflow-checks=off", "-C", "debug-assertions=off"])
            .arg(format!("-Ctarget-cpu={CPU}"))
            .arg(format!("-Ctarget-feature={FEATURES}"))
            .arg("--emit=llvm-bc")
            .arg("-o")
            .arg(&bitcode)
            .arg(format!("{program}.rs")),
    )?;
    output(
        Command::new(format!("{LLVM}/opt"))
            .arg("-O3")
            .arg(&bitcode)
            .arg("-o")
            .arg(&optimised),
    )?;
    output(
        Command::new(format!("{LLVM}/llc"))
            .args(["-march=bpfel", "-filetype=obj"])
            .arg(format!("-mcpu={CPU}"))
            .arg(format!("-mattr={FEATURES}"))
            .arg(&optimised)
            .arg("-o")
            .arg(&object),
    )?;
    only_maps_are_referred_to(&object)?;
    std::fs::read(&object).with_context(|| format!("cannot read {}", object.display()))
}

/// A check that could panic leaves a reference to a message or a call: such an object is refused here, not by a
/// user's kernel.
fn only_maps_are_referred_to(object: &PathBuf) -> Result<()> {
    let listing = output(
        Command::new(format!("{LLVM}/llvm-readelf"))
            .args(["--relocs", "--wide"])
            .arg(object),
    )?;
    for line in listing.lines().filter(|line| line.contains("R_BPF_")) {
        let symbol = line.split_whitespace().last().unwrap_or_default();
        if !symbol.starts_with("kc_") {
            bail!(
                "{}: refers to `{symbol}`, which is no map: a bounds check that was not optimised away?",
                object.display()
            );
        }
    }
    Ok(())
}

/// Runs a command and returns what it printed.
fn output(command: &mut Command) -> Result<String> {
    let done = command
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(
        done.status.success(),
        "{} failed:\n{}",
        command.get_program().display(),
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
