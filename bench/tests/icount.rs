//! Instructions of hot functions under callgrind, against the ceilings of `bench/icount.toml`: the measure
//! of speed that a busy machine does not disturb.
//!
//! A subject runs `n` and `2n` times; the difference by `n` is its cost, start and end left out. It is the
//! release build that is counted (`cargo build --release -p tidegate-bench`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::need;

fn release_program() -> PathBuf {
    let debug = Path::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    let target = debug.ancestors().nth(2).unwrap();
    target.join("release/tidegate-bench")
}

/// Returns the instructions of `count` repetitions.
fn instructions(program: &Path, subject: &str, count: u64) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["icount", subject, &count.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{subject}: {text}");
    let (_, after) = text.split_once("Collected :").expect("callgrind's total");
    after.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn hot_functions_stay_below_their_ceilings() {
    let test = "hot_functions_stay_below_their_ceilings";
    let program = release_program();
    let release = "the release build of tidegate-bench";
    if !need::program(test, "valgrind")
        || !need::need(test, release, program.is_file())
        || !need::need(test, "x86-64", cfg!(target_arch = "x86_64"))
    {
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("icount.toml");
    let ceilings: BTreeMap<String, u64> =
        toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(!ceilings.is_empty());
    let mut over = Vec::new();
    for (subject, ceiling) in &ceilings {
        let n = 500;
        let once = instructions(&program, subject, n);
        let each = (instructions(&program, subject, 2 * n) - once) / n;
        println!("{subject}: {each} instructions, ceiling {ceiling}");
        if each > *ceiling {
            over.push(format!("{subject}: {each} > {ceiling}"));
        }
        // A ceiling far above says nothing: lower it when the code has become faster.
        if each * 2 < *ceiling {
            over.push(format!("{subject}: {each} is far below {ceiling}"));
        }
    }
    assert!(over.is_empty(), "{over:?}");
}
