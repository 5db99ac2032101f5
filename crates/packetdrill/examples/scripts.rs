//! Runs scripts of packetdrill's language against the stack, in virtual time:
//! `cargo run -p tidegate-packetdrill --example scripts -- DIRECTORY-OR-FILE...`.
//!
//! What the stack sends after a script's last line does not count, as with packetdrill itself.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use packetdrill::Error;

fn main() -> ExitCode {
    let mut scripts = Vec::new();
    for argument in std::env::args_os().skip(1) {
        collect(Path::new(&argument), &mut scripts);
    }
    scripts.sort();
    let mut out = std::io::stdout().lock();
    let (mut parsed, mut supported, mut passed) = (0, 0, 0);
    for path in &scripts {
        let text = std::fs::read(path).unwrap_or_default();
        let script = packetdrill::parse(&String::from_utf8_lossy(&text));
        parsed += usize::from(script.is_ok());
        let result = script.and_then(|script| packetdrill::run(&script, false));
        supported += usize::from(!matches!(
            result,
            Err(Error::Unsupported { .. } | Error::Syntax { .. })
        ));
        passed += usize::from(result.is_ok());
        // A closed pipe ends the list, not the count.
        let _ = match result {
            Ok(()) => writeln!(out, "ok   {}", path.display()),
            Err(error) => writeln!(out, "FAIL {}: {error}", path.display()),
        };
    }
    let all = scripts.len();
    let _ = writeln!(
        out,
        "{passed} of {all} scripts pass; {parsed} can be read, {supported} ask for nothing that is not supported"
    );
    if passed == all {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn collect(path: &Path, to: &mut Vec<PathBuf>) {
    if let Ok(entries) = std::fs::read_dir(path) {
        entries
            .flatten()
            .for_each(|entry| collect(&entry.path(), to));
    } else if path.extension().is_some_and(|extension| extension == "pkt") {
        to.push(path.to_owned());
    }
}
