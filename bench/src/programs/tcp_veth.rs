//! Measures TCP over veth: our stack at both ends, at one, and the kernel's at both, in one run:
//! `cargo run --release -p tidegate-bench -- tcp_veth`.
//!
//! Each pair has a wire of its own. All offloads are off: every segment of every subject is a packet with a checksum.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use io::af_packet::AfPacketSpec;
use io::af_xdp::AfXdpSpec;
use lab::netns::Namespace;
use lab::topology::{Line, LineOptions};
use serde_json::json;
use socket::{DriverSpec, Host};

/// Measures TCP over veth, with our stack and the kernel's at either end.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Driver of our hosts: af_packet or af_xdp.
    #[arg(long, default_value = "af_packet")]
    driver: String,
    /// MTU of the wire.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Seconds of each run of wrk.
    #[arg(long, default_value_t = 2)]
    wrk_s: u32,
}

/// One end of a wire.
enum End {
    Kernel(Namespace2),
    Ours(Host),
}

/// A namespace by reference to its line.
struct Namespace2(Arc<Line>, bool);

impl Namespace2 {
    fn namespace(&self) -> &Namespace {
        if self.1 { &self.0.left.namespace } else { &self.0.node }
    }
}

/// A connection of either stack.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A listener of either stack.
enum Listener {
    Kernel(std::net::TcpListener),
    Ours(socket::TcpListener),
}

impl Listener {
    fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Kernel(listener) => Box::new(listener.accept()?.0),
            Self::Ours(listener) => Box::new(listener.accept()?.0),
        })
    }
}

impl End {
    fn listen(&self, at: SocketAddr) -> Result<Listener> {
        Ok(match self {
            Self::Kernel(end) => {
                let bound = end.namespace().run(|| std::net::TcpListener::bind(at))?;
                Listener::Kernel(bound?)
            }
            Self::Ours(host) => Listener::Ours(socket::TcpListener::bind(host, at)?),
        })
    }

    fn connect(&self, to: SocketAddr) -> Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Kernel(end) => {
                let opened = end.namespace().run(|| std::net::TcpStream::connect(to))?;
                Box::new(opened?)
            }
            Self::Ours(host) => Box::new(socket::TcpStream::connect(host, to)?),
        })
    }
}

/// Two ends with a wire between.
struct Wire {
    line: Arc<Line>,
    left: End,
    right: End,
}

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const CHUNK: usize = 65_536;

impl Wire {
    /// Makes a wire; `ours` says at which ends our stack is.
    fn new(prefix: &str, ours: [bool; 2], arguments: &Arguments) -> Result<Self> {
        let options = LineOptions {
            mtu: arguments.mtu,
            addresses: false,
            ..LineOptions::default()
        };
        let line = Arc::new(Line::new(prefix, options)?);
        let side = &line.left;
        line.node.disable_send_offloads(&side.node_device)?;
        let end = |is_left: bool, is_ours: bool| -> Result<End> {
            let (namespace, device, address) = match is_left {
                true => (&side.namespace, &side.device, LEFT),
                false => (&line.node, &side.node_device, RIGHT),
            };
            if !is_ours {
                let ip = IpAddr::V4(address);
                namespace.links()?.add_address(device, ip, 24)?;
                return Ok(End::Kernel(Namespace2(Arc::clone(&line), is_left)));
            }
            let driver = match arguments.driver.as_str() {
                "af_xdp" => DriverSpec::AfXdp(AfXdpSpec::new(device)),
                _ => DriverSpec::AfPacket(AfPacketSpec::new(device)),
            };
            let start = || {
                Host::builder(driver)
                    .address(&format!("{address}/24"))
                    .ring_bytes(1 << 20)
                    .start()
            };
            Ok(End::Ours(namespace.run(start)??))
        };
        let (left, right) = (end(true, ours[0])?, end(false, ours[1])?);
        Ok(Self { line, left, right })
    }

    /// Sends from left to right for so long; returns Gbit/s of data that arrived.
    fn bulk(&self, port: u16, window: Duration) -> Result<f64> {
        let at = SocketAddr::new(RIGHT.into(), port);
        let listener = self.right.listen(at)?;
        let mut sender = self.left.connect(at)?;
        let mut receiver = listener.accept()?;
        let (stop, got) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = vec![0; CHUNK];
                while let Ok(n @ 1..) = receiver.read(&mut bytes) {
                    got.fetch_add(n as u64, Ordering::Relaxed);
                }
            });
            scope.spawn(|| {
                let bytes = vec![7; CHUNK];
                // It blocks while the receiver is behind.
                while sender.write(&bytes).is_ok() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                drop(sender);
            });
            std::thread::sleep(window / 4); // slow start
            let (start, before) = (Instant::now(), got.load(Ordering::Relaxed));
            std::thread::sleep(window);
            let bits = (got.load(Ordering::Relaxed) - before) as f64 * 8.0;
            let rate = bits / start.elapsed().as_nanos() as f64;
            stop.store(true, Ordering::Relaxed);
            Ok(rate)
        })
    }

    /// Lets wrk ask the right end from the kernel on the left, a connection a request; returns requests a second.
    fn short(&self, seconds: u32) -> Result<f64> {
        let listener = self.right.listen((RIGHT, 80).into())?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        if let Ok(stream) = listener.accept() {
                            // A client may go at any time.
                            let _ = answer(stream);
                        }
                    }
                });
            }
            let duration = format!("{seconds}s");
            let url = format!("http://{RIGHT}/");
            let mut wrk: Command = self.line.left.namespace.command("wrk");
            wrk.args(["-t1", "-c32", "-d", &duration, "-H", "Connection: close", &url]);
            let output = wrk.output().context("wrk")?;
            stop.store(true, Ordering::Relaxed);
            for _ in 0..4 {
                // Lets the threads that accept see that it is over.
                drop(self.left.connect((RIGHT, 80).into())?);
            }
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
            rate.and_then(|rate| rate.trim().parse().ok())
                .with_context(|| format!("wrk says {text}"))
        })
    }
}

/// Answers one request and closes.
fn answer(mut stream: Box<dyn Stream>) -> std::io::Result<()> {
    let mut bytes = [0; 2048];
    let n = stream.read(&mut bytes)?;
    if bytes[..n].ends_with(b"\r\n\r\n") {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n",
        )?;
    }
    Ok(())
}

pub(crate) fn main() -> Result<()> {
    let arguments: Arguments = bench::parse();
    ensure!(lab::netns::is_root(), "needs root: it makes network namespaces");
    let mut report = Report::new("tcp_veth");
    let subjects = [
        ("kernel_kernel", [false, false]),
        ("ours_ours", [true, true]),
        ("kernel_ours", [false, true]),
        ("ours_kernel", [true, false]),
    ];
    let mut wires = Vec::new();
    for (at, (_, ours)) in subjects.iter().enumerate() {
        wires.push(Wire::new(&format!("tgb{at}"), *ours, &arguments)?);
    }
    let window = arguments.options.window();
    let port = AtomicU64::new(1000);
    let mut runs: Vec<Box<dyn FnMut() -> f64 + '_>> = Vec::new();
    for wire in &wires {
        let port = &port;
        runs.push(Box::new(move || {
            let port = port.fetch_add(1, Ordering::Relaxed) as u16;
            wire.bulk(port, window).unwrap_or_else(|error| {
                eprintln!("{error:#}");
                f64::NAN
            })
        }));
    }
    let mut references: Vec<&mut dyn FnMut() -> f64> = Vec::new();
    for run in &mut runs {
        references.push(&mut **run);
    }
    let samples = rounds(arguments.options.rounds, &mut references);
    let mut table = Table::new(
        "One flow over veth, no offloads",
        &["sender", "receiver", "Gbit/s", "of kernel to kernel"],
    );
    let name = |ours: bool| if ours { arguments.driver.as_str() } else { "kernel" };
    let reference = median(&samples[0]);
    for ((subject, ours), samples) in subjects.iter().zip(&samples) {
        let rate = median(samples);
        report.figure(&format!("{subject}_gbps"), rate);
        report.figure(&format!("{subject}_ratio"), rate / reference);
        let row = vec![json!(name(ours[0])), json!(name(ours[1])), json!(rate), json!(rate / reference)];
        table.rows.push(row);
    }
    report.table(table);
    short_connections(&wires, &arguments, &mut report)?;
    report.print(&arguments.options);
    Ok(())
}

fn short_connections(wires: &[Wire], arguments: &Arguments, report: &mut Report) -> Result<()> {
    if lab::need::find_program("wrk").is_none() {
        report.note("wrk is not installed: no short connections");
        return Ok(());
    }
    let kernel = wires[0].short(arguments.wrk_s)?;
    let ours = wires[2].short(arguments.wrk_s)?;
    report.figure("short_kernel_per_s", kernel);
    report.figure("short_ours_per_s", ours);
    report.figure("short_ratio", ours / kernel);
    Ok(())
}
