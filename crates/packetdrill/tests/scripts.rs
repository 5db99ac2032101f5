//! Runs the scripts of `scripts/`: one directory a standard.

use std::path::{Path, PathBuf};
use std::time::Instant;

fn collect(directory: &Path, to: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, to);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            to.push(path);
        }
    }
}

fn run(directory: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scripts")
        .join(directory);
    let mut scripts = Vec::new();
    collect(&root, &mut scripts);
    scripts.sort();
    assert!(!scripts.is_empty(), "{} has no scripts", root.display());
    let began = Instant::now();
    let mut failures = Vec::new();
    for script in &scripts {
        let text = std::fs::read_to_string(script).unwrap();
        if let Err(error) = packetdrill::check(&text) {
            failures.push(format!("{}: {error}", script.display()));
        }
    }
    let (failed, all) = (failures.len(), scripts.len());
    assert!(
        failures.is_empty(),
        "{failed} of {all} fail\n{}",
        failures.join("\n")
    );
    eprintln!("{all} scripts of {directory} in {:?}", began.elapsed());
}

#[test]
fn rfc9293() {
    run("rfc9293");
}
