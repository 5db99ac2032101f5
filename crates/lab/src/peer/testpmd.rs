//! DPDK's testpmd, from Debian's `dpdk-dev`, as a yardstick.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::need::find_program;
use crate::netns::Namespace;
use crate::vdev::HugePages;

/// The program's name.
pub const PROGRAM: &str = "dpdk-testpmd";

/// Why testpmd does not run.
#[derive(Debug, thiserror::Error)]
pub enum TestpmdError {
    /// It is not installed.
    #[error("{PROGRAM} is not there (install the Debian package dpdk-dev)")]
    NotInstalled,
    /// It could not be started.
    #[error("cannot start {PROGRAM}: {0}")]
    Start(std::io::Error),
    /// It ended or said nothing useful in time; the last lines that it printed.
    #[error("{PROGRAM} did not forward; it said: {0}")]
    Silent(String),
}

/// What testpmd does with packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardMode {
    /// Passes them on untouched.
    #[default]
    Io,
    /// Swaps the Ethernet addresses of each.
    MacSwap,
    /// Drops what it receives and sends UDP packets of 1,024 flows from 10.254.0.0 to 10.253.0.0/22 and MAC
    /// address [`FLOWGEN_MAC`].
    FlowGen,
    /// Drops what it receives.
    RxOnly,
}

impl ForwardMode {
    const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::MacSwap => "macswap",
            Self::FlowGen => "flowgen",
            Self::RxOnly => "rxonly",
        }
    }
}

/// To whom [`ForwardMode::FlowGen`] sends (`cfg_ether_dst` in its source).
pub const FLOWGEN_MAC: [u8; 6] = [0, 1, 2, 3, 4, 1];

/// How to run testpmd.
#[derive(Clone, Debug, Default)]
pub struct TestpmdOptions {
    /// Virtual devices, e.g. `net_null0` or `net_af_xdp0,iface=d0`: pairs of them, between which it forwards, or
    /// one, which gets back what it gave.
    pub vdevs: Vec<String>,
    /// What is done with packets.
    pub mode: ForwardMode,
    /// The core that forwards.
    pub forward_cpu: usize,
    /// The core for everything else.
    pub main_cpu: usize,
    /// Packet buffers.
    pub mbufs: u32,
    /// Further arguments, e.g. `--burst=64`.
    pub extra: Vec<String>,
}

/// A running testpmd; it is stopped when dropped.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    ports: usize,
    lines: Receiver<String>,
    recent: Vec<String>,
}

impl Testpmd {
    /// Starts testpmd, in `namespace` if there is one.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(
        namespace: Option<&Namespace>,
        options: &TestpmdOptions,
    ) -> Result<Self, TestpmdError> {
        let program = find_program(PROGRAM).ok_or(TestpmdError::NotInstalled)?;
        let mut command = match namespace {
            Some(namespace) => namespace.command(&program),
            None => Command::new(&program),
        };
        command
            .args(arguments(options))
            .stdin(Stdio::piped()) // it ends when its input does
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(TestpmdError::Start)?;
        let (send, lines) = mpsc::channel();
        let outputs: [Option<Box<dyn std::io::Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as _),
            child.stderr.take().map(|err| Box::new(err) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let send = send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self {
            child,
            ports: options.vdevs.len(),
            lines,
            recent: Vec::new(),
        })
    }

    /// Waits until testpmd forwards.
    ///
    /// # Errors
    /// It does not within ten seconds.
    pub fn wait_until_forwarding(&mut self) -> Result<(), TestpmdError> {
        let last = format!("NIC statistics for port {}", self.ports.saturating_sub(1));
        self.wait_for(Duration::from_secs(10), |line| {
            line.contains(&last).then_some(())
        })
    }

    /// Waits for `periods` reports of testpmd, one a second, leaves out the first, and returns the rates
    /// sent on all ports together, packets a second.
    ///
    /// # Errors
    /// It says nothing for five seconds.
    pub fn rates_pps(&mut self, periods: usize) -> Result<Vec<f64>, TestpmdError> {
        let mut rates = Vec::new();
        for _ in 0..=periods {
            let mut sum = 0.0;
            for _ in 0..self.ports {
                sum += self.wait_for(Duration::from_secs(5), |line| {
                    line.trim()
                        .strip_prefix("Tx-pps:")
                        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
                })?;
            }
            rates.push(sum);
        }
        rates.remove(0);
        Ok(rates)
    }

    fn wait_for<T>(
        &mut self,
        timeout: Duration,
        mut find: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, TestpmdError> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                let last = self.recent.len().saturating_sub(8);
                return Err(TestpmdError::Silent(self.recent[last..].join(" / ")));
            };
            let found = find(&line);
            if !line.trim().is_empty() {
                self.recent.push(line);
            }
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // A signal ends it in order (its XDP programs are detached); then by force. An error means that
        // it has ended.
        let _ = crate::sys::terminate(self.child.id());
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn arguments(options: &TestpmdOptions) -> Vec<String> {
    let memory: &[&str] = if HugePages::free() >= 64 {
        // one file, as virtio-user wants it
        &["--in-memory", "--single-file-segments"]
    } else {
        &["--no-huge", "-m", "256"]
    };
    let cpus = format!("{},{}", options.main_cpu, options.forward_cpu);
    let mut arguments: Vec<String> = ["--no-pci", "--no-telemetry", "-l", &cpus, "--main-lcore"]
        .map(str::to_owned)
        .to_vec();
    arguments.push(options.main_cpu.to_string());
    arguments.extend(memory.iter().map(|&word| word.to_owned()));
    arguments.extend(options.vdevs.iter().map(|vdev| format!("--vdev={vdev}")));
    arguments.extend(
        [
            "--",
            "--nb-cores=1",
            "--auto-start",
            "--stats-period=1",
            "--no-lsc-interrupt",
        ]
        .map(str::to_owned),
    );
    arguments.push(format!("--forward-mode={}", options.mode.name()));
    arguments.push(format!("--total-num-mbufs={}", options.mbufs));
    arguments.extend(options.extra.iter().cloned());
    arguments
}
