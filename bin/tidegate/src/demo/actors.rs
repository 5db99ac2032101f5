//! Child processes inside the demo's namespaces, and what they report.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lab::Namespace;

use super::programs::{self, Line};

/// A running program of the demo. It is killed when this is dropped, and by the kernel if the demo
/// dies.
#[derive(Debug)]
pub(super) struct Actor {
    child: Child,
    lines: mpsc::Receiver<Line>,
}

impl Actor {
    /// Starts one of the demo's own programs inside a namespace.
    pub(super) fn start(namespace: &Namespace, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = namespace.command("/proc/self/exe");
        command.arg(programs::WORD).args(arguments);
        Self::spawn(command).with_context(|| format!("cannot start {}", arguments.join(" ")))
    }

    /// Starts a ping by the system's `program`, or without one by the demo's own.
    pub(super) fn ping(
        namespace: &Namespace,
        program: Option<&Path>,
        to: IpAddr,
        interval: Duration,
        count: u16,
    ) -> anyhow::Result<Self> {
        let (to, count) = (to.to_string(), count.to_string());
        let Some(program) = program else {
            let interval = interval.as_millis().to_string();
            let arguments = ["ping", &to, "--interval-ms", &interval, "--count", &count];
            return Self::start(namespace, &arguments);
        };
        let mut command = namespace.command(program);
        command.env("LC_ALL", "C").arg("-n");
        command.args(["-i", &format!("{:.3}", interval.as_secs_f64())]);
        command.args(["-c", &count, "-W", "1", &to]);
        Self::spawn(command).with_context(|| format!("cannot start {}", program.display()))
    }

    /// Starts a server and waits until it listens.
    pub(super) fn server(
        namespace: &Namespace,
        program: &str,
        listen: SocketAddr,
    ) -> anyhow::Result<Self> {
        let mut actor = Self::start(namespace, &[program, &listen.to_string()])?;
        let line = actor.lines.recv_timeout(Duration::from_secs(5));
        if line == Ok(Line::Ready) {
            return Ok(actor);
        }
        actor.kill();
        bail!("{program} did not start: {}", actor.last_words());
    }

    fn spawn(mut command: Command) -> std::io::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Some(line) = programs::parse(&text)
                        && sender.send(line).is_err()
                    {
                        return;
                    }
                }
            });
        }
        Ok(Self { child, lines })
    }

    /// Returns the next report, if there is one now.
    pub(super) fn next_line(&mut self) -> Option<Line> {
        self.lines.try_recv().ok()
    }

    /// Waits until the program has ended and all its reports are there, but no longer than `patience`.
    pub(super) fn finish(&mut self, patience: Duration) -> anyhow::Result<Vec<Line>> {
        let deadline = Instant::now() + patience;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => lines.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.kill();
                    break;
                }
            }
        }
        Ok(lines)
    }

    /// Kills the program.
    pub(super) fn kill(&mut self) {
        // it may have ended by itself
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns what the program said on stderr; call it after its end.
    pub(super) fn last_words(&mut self) -> String {
        let words = self.child.stderr.take().map(std::io::read_to_string);
        words
            .and_then(Result::ok)
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill();
    }
}
