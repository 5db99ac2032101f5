//! The NDN forwarder as a node (`tidegate run` with `[ndn]`, one worker) under load: Unix and UDP sockets with the
//! traffic tool, Ethernet faces over AF_XDP on veth devices with a generator here, and round trips.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bench::{Options, Report, Table, median, tidegate_program};
use clap::Parser;
use io::af_xdp::AfXdpSpec;
use io::port::{self, DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue};
use lab::{Line, LineOptions, Side};
use serde_json::{Value, json};
use wire::ndn::name::Name;
use wire::ndn::{DataFields, DigestSigner, Interest, InterestFields, Tlv};

/// Frames of a generator.
const FRAMES: u32 = 8192;
/// Interests that a generator has in flight.
const WINDOW: usize = 512;
/// Names that are in the content store.
const NAMES: u64 = 1000;
/// Bytes of content.
const CONTENT_BYTES: usize = 100;
/// How long a process may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
/// EtherType of NDN.
const ETHER_TYPE: [u8; 2] = [0x86, 0x24];

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node in the middle of a line.
struct Rig {
    // ended first
    _server: Process,
    _node: Process,
    directory: tempfile::TempDir,
    line: Line,
    program: PathBuf,
}

impl Rig {
    fn start() -> Result<Self> {
        let program = tidegate_program()?;
        let line = Line::new("tgq", LineOptions::default())?;
        let directory = tempfile::tempdir()?;
        let port = |name: &str, side: &Side| {
            format!(
                "[[port]]\nname = \"{name}\"\ninterface = \"{}\"\n",
                side.node_device
            )
        };
        let text = format!(
            "[node]\ncontrol_socket = \"{0}/control.sock\"\n{1}{2}[ndn]\nunix = [\"{0}/nfd.sock\"]\ntcp = []\n\
             udp = [\"127.0.0.1:6363\"]\nethernet = [\"left\", \"right\"]\n",
            directory.path().display(),
            port("left", &line.left),
            port("right", &line.right),
        );
        let file = directory.path().join("node.toml");
        std::fs::write(&file, text)?;
        line.node.links()?.set_up("lo")?;
        let node = line
            .node
            .command(&program)
            .args(["--log", "error", "run", "-c"])
            .arg(&file)
            .spawn()?;
        let node = Process(node);
        let start = Instant::now();
        while tool(&program, &line, directory.path(), &["status"]).is_err() {
            ensure!(start.elapsed() < PATIENCE, "the node does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut server = command(&program, &line, directory.path());
        let size = CONTENT_BYTES.to_string();
        let server = server
            .args(["traffic", "server", "/e", "-x", "3600000", "-s", &size])
            .stderr(Stdio::null())
            .spawn()?;
        let rig = Self {
            _server: Process(server),
            _node: node,
            directory,
            line,
            program,
        };
        let mac: Vec<String> = rig.line.right.mac.iter().map(|b| format!("{b:02x}")).collect();
        let right = format!("ether://[{}]", mac.join(":"));
        rig.tool(&["face", "create", &right, "--local", "dev://right"])?;
        rig.tool(&["route", "add", "/m", &right])?;
        Ok(rig)
    }

    fn tool(&self, arguments: &[&str]) -> Result<Value> {
        tool(&self.program, &self.line, self.directory.path(), arguments)
    }

    /// Exchanges a second that the traffic tool reaches.
    fn traffic(&self, transport: Option<&str>, prefix: &str, names: u64, time: Duration) -> Result<f64> {
        let (names, seconds) = (names.to_string(), time.as_secs_f64().to_string());
        let mut arguments = vec!["traffic", "client", prefix, "--names", &names];
        arguments.extend(["--seconds", &seconds]);
        if let Some(transport) = transport {
            arguments.extend(["--transport", transport]);
        }
        let found = self.tool(&arguments)?;
        found["exchanges_per_s"].as_f64().context("no figure")
    }
}

fn command(program: &Path, line: &Line, directory: &Path) -> Command {
    let mut command = line.node.command(program);
    let socket = format!("unix://{}/nfd.sock", directory.display());
    command.env("NDN_CLIENT_TRANSPORT", socket).args(["--json", "ndn"]);
    command
}

fn tool(program: &Path, line: &Line, directory: &Path, arguments: &[&str]) -> Result<Value> {
    let output = command(program, line, directory).args(arguments).output()?;
    if !output.status.success() {
        bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A side's device by AF_XDP.
struct Wire {
    pool: Pool,
    queue: Box<dyn Queue>,
    header: [u8; 14],
    mode: String,
}

impl Wire {
    /// Opens it; call it in the side's namespace.
    fn open(side: &Side) -> Result<Self> {
        let pool = Pool::new(FRAMES, 2048, HugePages::Never)?;
        let spec = PortSpec::new(PortId(0), "wire", DriverSpec::Auto(AfXdpSpec::new(&side.device)));
        let mut port = port::open(&spec, pool.region(), 1)?;
        let mut header = [0; 14];
        header[..6].copy_from_slice(&side.node_mac);
        header[6..12].copy_from_slice(&side.mac);
        header[12..].copy_from_slice(&ETHER_TYPE);
        Ok(Self {
            pool,
            queue: port.queues.remove(0),
            header,
            mode: format!("{} {}", port.driver, port.mode),
        })
    }

    /// Adds a frame to a batch that is to be sent; false without room.
    fn push(&mut self, batch: &mut Batch, packet: &[u8]) -> bool {
        let Some(mut frame) = self.pool.alloc() else {
            return false;
        };
        if !frame.set_len(14 + packet.len()) {
            self.pool.free(frame);
            return false;
        }
        let data = frame.data_mut();
        data[..14].copy_from_slice(&self.header);
        data[14..].copy_from_slice(packet);
        match batch.push(frame) {
            Ok(()) => true,
            Err(frame) => {
                self.pool.free(frame);
                false
            }
        }
    }

    /// Asks for names for some time; returns the Data a second that came.
    fn ask(&mut self, prefix: &Name, first: u64, names: u64, time: Duration) -> f64 {
        let (mut sent, mut got, mut lost) = (0_u64, 0_u64, 0_u64);
        let mut waiting = Batch::new();
        let mut received = Batch::new();
        let mut packet = [0; 200];
        let start = Instant::now();
        let mut last = start;
        while start.elapsed() < time {
            self.queue.rx(&mut self.pool, &mut received);
            for frame in received.drain() {
                let is_data = frame.data().get(12..15).is_some_and(|b| b == [0x86, 0x24, 6]);
                got += u64::from(is_data);
                last = if is_data { Instant::now() } else { last };
                self.pool.free(frame);
            }
            // What does not come for long is lost.
            if last.elapsed() > Duration::from_millis(50) {
                lost = sent - got;
                last = Instant::now();
            }
            while (sent - got.min(sent) - lost.min(sent - got.min(sent))) < WINDOW as u64 {
                let name = prefix.with_generic((first + sent % names).to_string().as_bytes());
                let fields = InterestFields {
                    nonce: Some((sent as u32).wrapping_mul(2_654_435_761).to_be_bytes()),
                    ..InterestFields::new(name.as_ref())
                };
                let length = fields.encode(&mut packet).unwrap_or(0);
                if !self.push(&mut waiting, &packet[..length]) {
                    break;
                }
                sent += 1;
                if waiting.len() == io::BATCH_MAX {
                    break;
                }
            }
            self.queue.tx(&mut self.pool, &mut waiting);
        }
        self.pool.free_batch(&mut waiting);
        got as f64 / start.elapsed().as_secs_f64()
    }

    /// Answers all Interests until told to stop.
    fn answer(&mut self, stop: &AtomicBool) {
        let mut received = Batch::new();
        let mut waiting = Batch::new();
        let mut packet = [0; 600];
        let content = [7; CONTENT_BYTES];
        while !stop.load(Ordering::Relaxed) {
            if self.queue.rx(&mut self.pool, &mut received) == 0 {
                std::thread::yield_now();
            }
            for frame in received.drain() {
                let payload = frame.data().get(14..).unwrap_or_default();
                let interest = Tlv::read(payload).and_then(|outer| Interest::parse(outer.bytes));
                let length = interest.ok().and_then(|interest| {
                    let fields = DataFields::new(interest.name, &content);
                    fields.encode(&DigestSigner, &mut packet).ok()
                });
                if let Some(length) = length {
                    self.push(&mut waiting, &packet[..length]);
                }
                self.pool.free(frame);
            }
            self.queue.tx(&mut self.pool, &mut waiting);
        }
        self.pool.free_batch(&mut waiting);
    }
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    let window = arguments.options.window();
    let mut report = Report::new("ndn_node");
    let rig = Rig::start()?;
    let udp = Some("udp://127.0.0.1:6363");
    // Puts the names into the content store.
    rig.traffic(None, "/e", NAMES, Duration::from_secs(1))?;
    let (mut unix_hits, mut udp_hits, mut forwarded) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..arguments.options.rounds {
        unix_hits.push(rig.traffic(None, "/e", NAMES, window)?);
        udp_hits.push(rig.traffic(udp, "/e", NAMES, window)?);
        let prefix = format!("/e/{round}");
        forwarded.push(rig.traffic(None, &prefix, u64::from(u32::MAX), window)?);
    }
    let (left, right) = (&rig.line.left, &rig.line.right);
    let stop = Arc::new(AtomicBool::new(false));
    let (ethernet_hits, ethernet_misses, mode) = std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            right.namespace.run(|| -> Result<()> {
                Wire::open(right)?.answer(&stop);
                Ok(())
            })
        });
        let consumer = left.namespace.run(|| -> Result<(Vec<f64>, Vec<f64>, String)> {
            let mut wire = Wire::open(left)?;
            let (e, m): (Name, Name) = ("/e".parse()?, "/m".parse()?);
            let (mut hits, mut misses) = (Vec::new(), Vec::new());
            wire.ask(&e, 0, NAMES, Duration::from_millis(200));
            for round in 0..arguments.options.rounds as u64 {
                hits.push(wire.ask(&e, 0, NAMES, window));
                misses.push(wire.ask(&m, round << 32, 1 << 32, window));
            }
            Ok((hits, misses, wire.mode))
        });
        stop.store(true, Ordering::Relaxed);
        let ended = producer.join().map_err(|_| anyhow::anyhow!("the producer panicked"))?;
        ended??;
        consumer?
    })?;
    let mut pingserver = command(&rig.program, &rig.line, rig.directory.path());
    let pingserver = pingserver.args(["pingserver", "/p"]).stderr(Stdio::null()).spawn()?;
    let _pingserver = Process(pingserver);
    let start = Instant::now();
    let ping = loop {
        match rig.tool(&["ping", "/p", "-c", "500", "-i", "1", "-w", "500", "-q"]) {
            Ok(ping) => break ping,
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => {}
        }
    };
    report.figure("unix_hits_per_s", median(&unix_hits));
    report.figure("udp_hits_per_s", median(&udp_hits));
    report.figure("unix_forwarded_per_s", median(&forwarded));
    report.figure("ethernet_hits_per_s", median(&ethernet_hits));
    report.figure("ethernet_forwarded_per_s", median(&ethernet_misses));
    report.figure("ping_p50_us", ping["rtt_us"]["p50"].as_f64().unwrap_or(f64::NAN));
    let mut table = Table::new(
        "One worker, 100 B of content, exchanges a second",
        &["faces", "content store hits", "forwarded"],
    );
    for (faces, hits, misses) in [
        ("Unix socket", Some(&unix_hits), Some(&forwarded)),
        ("UDP socket", Some(&udp_hits), None),
        ("Ethernet", Some(&ethernet_hits), Some(&ethernet_misses)),
    ] {
        let cell = |samples: Option<&Vec<f64>>| samples.map_or(Value::Null, |s| json!(median(s)));
        table.rows.push(vec![json!(faces), cell(hits), cell(misses)]);
    }
    report.table(table);
    report.note(format!("Ethernet by {mode} on veth; clients, generator and node share the machine's cores"));
    report.print(&arguments.options);
    Ok(())
}
