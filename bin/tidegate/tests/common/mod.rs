//! Runs the command and looks at what it says.
#![expect(dead_code, reason = "each test program uses a part of it")]

use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A finished run of `tidegate`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Makes a command that knows nothing of the caller's environment.
pub(crate) fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for name in [
        "TIDEGATE_SOCKET",
        "TIDEGATE_LOG",
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs `tidegate` with arguments.
pub(crate) fn run(arguments: &[&str]) -> Run {
    finish(tidegate().args(arguments))
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Run {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the command starts");
    Run {
        code: status.code().expect("the command was not killed"),
        stdout: String::from_utf8(stdout).expect("the output is UTF-8"),
        stderr: String::from_utf8(stderr).expect("the messages are UTF-8"),
    }
}

/// Waits until `done` holds, for at most `patience`; tells whether it did.
pub(crate) fn wait_until(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lists the processes whose environment holds `mark`.
pub(crate) fn processes_with(mark: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .windows(mark.len())
            .any(|window| window == mark.as_bytes())
        {
            found.push(pid);
        }
    }
    found
}
