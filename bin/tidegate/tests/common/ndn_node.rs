//! A node that is a named-data forwarder, with its sockets in a directory.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Run, finish, tidegate, wait_until};
use lab::netns::Namespace;
use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is ended with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A forwarder, with its sockets in a directory.
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) directory: PathBuf,
}

impl Node {
    /// Starts one in a namespace, or in that of the test; `more` goes behind `[ndn]` with its sockets.
    pub(crate) fn start(
        directory: &Path,
        namespace: Option<&Namespace>,
        node: &str,
        more: &str,
    ) -> Self {
        std::fs::create_dir_all(directory).unwrap();
        let text = format!(
            "[node]\nframes_per_worker = 2048\ncontrol_socket = \"{0}/control.sock\"\n{node}\n\
             [ndn]\nunix = [\"{0}/nfd.sock\"]\n{more}",
            directory.display(),
        );
        let file = directory.join("node.toml");
        std::fs::write(&file, text).unwrap();
        let program = env!("CARGO_BIN_EXE_tidegate");
        let mut command = match namespace {
            Some(namespace) => namespace.command(program),
            None => Command::new(program),
        };
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let child = command
            .args(["run", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let node = Self {
            process: Process(child),
            directory: directory.to_owned(),
        };
        let is_there = wait_until(PATIENCE, || {
            node.directory.join("control.sock").exists() && node.run(&["status"]).code == 0
        });
        let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert!(is_there, "the node does not answer: {log}");
        node
    }

    pub(crate) fn transport(&self) -> String {
        format!("unix://{}/nfd.sock", self.directory.display())
    }

    /// Prepares `tidegate ndn` with arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tidegate();
        command
            .env("NDN_CLIENT_TRANSPORT", self.transport())
            .arg("ndn")
            .args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        finish(&mut self.command(arguments))
    }

    /// Runs what must succeed; returns stdout.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        run.stdout
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[&["--json"], arguments].concat());
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?}: {text}"))
    }

    /// Reads all that the node counts.
    pub(crate) fn stats(&self) -> Value {
        let mut stats = tidegate();
        stats
            .args(["stats", "--json", "--socket"])
            .arg(self.directory.join("control.sock"));
        let run = finish(&mut stats);
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// Starts a server, waits until it serves, and returns the name that it serves.
    pub(crate) fn serve(&self, arguments: &[&str], stdin: Option<&[u8]>) -> (Process, String) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(stdin.unwrap_or_default()).unwrap();
        drop(input);
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let name = line.split(' ').nth(1).unwrap_or_default().trim().to_owned();
        assert!(name.starts_with('/'), "{arguments:?}: {line}");
        (Process(child), name)
    }

    /// Fetches an object through this node and compares it with a file.
    pub(crate) fn get(&self, name: &str, original: &[u8]) {
        let copy = self.directory.join("copy");
        self.ok(&["get", name, "-o", copy.to_str().unwrap()]);
        let fetched = std::fs::read(&copy).unwrap();
        assert_eq!(fetched.len(), original.len());
        assert!(fetched == original, "every byte arrives");
    }
}

/// Bytes that compress badly and are the same each time.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.push((state >> 24) as u8);
    }
    out
}

pub(crate) const LOOPBACK: &str =
    "tcp = [\"127.0.0.1:0\"]\nudp = [\"127.0.0.1:0\"]\nlocalhop = true\n";

/// Finds the address of a channel.
pub(crate) fn channel(node: &Node, scheme: &str) -> String {
    let channels = node.json(&["face", "channels"]);
    let mut all = channels
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str);
    let found = all.find(|uri| uri.starts_with(scheme));
    found.unwrap().to_owned()
}
