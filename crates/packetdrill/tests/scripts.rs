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

macro_rules! directories {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() {
            run(stringify!($name));
        }
    )+

    #[test]
    fn every_directory_is_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
        let known = [$(stringify!($name)),+];
        for entry in std::fs::read_dir(root).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(known.contains(&name.to_str().unwrap()), "{name:?} is not run");
        }
    }
    };
}

directories!(
    rfc768
    rfc1122
    rfc1191
    rfc1337
    rfc2018
    rfc2883
    rfc3042
    rfc3168
    rfc3522
    rfc3708
    rfc4987
    rfc5482
    rfc5681
    rfc5927
    rfc5961
    rfc6191
    rfc6298
    rfc6582
    rfc6675
    rfc6928
    rfc6937
    rfc7323
    rfc7413
    rfc8201
    rfc8985
    rfc9293
    rfc9438
    sockets
);
