//! An NDN forwarder in the middle of a line of namespaces, ours or NFD, with the tools of `tidegate ndn` as clients and
//! generators over AF_XDP at both ends.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use io::af_xdp::AfXdpSpec;
use io::port::{self, DriverSpec, PortSpec};
use io::{Batch, Frame, HugePages, Pool, PortId, Queue};
use lab::{Line, LineOptions, Side};
use serde_json::Value;
use wire::ndn::name::Name;
use wire::ndn::{DataFields, DigestSigner, Interest, InterestFields, Tlv};

use crate::tidegate_program;

/// Frames of a generator.
const FRAMES: u32 = 8192;
/// Interests that a generator has in flight.
const WINDOW: usize = 512;
/// Bytes of content of small packets.
pub const CONTENT_BYTES: usize = 100;
/// How long a process may take to start.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the shortest Ethernet frame without its checksum: NFD receives no shorter ones.
const FRAME_BYTES_MIN: usize = 60;
/// EtherType of NDN.
const ETHER_TYPE: [u8; 2] = [0x86, 0x24];
const UDP_PORT: u16 = 6363;
/// After that time what is in flight is lost.
const LOST: Duration = Duration::from_millis(50);
/// Transport of the UDP socket of both forwarders.
pub const UDP: &str = "udp://127.0.0.1:6363";

/// A process that ends with this.
#[derive(Debug)]
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Which forwarder.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// `tidegate run` with `[ndn]`, one worker.
    Ours,
    /// NFD, by the path of its program.
    Nfd(&'a Path),
}

/// A forwarder in the middle of a line. `/e` is served by a program on a Unix socket, `/m` leads to the right end.
#[derive(Debug)]
pub struct Rig {
    // ended first
    _server: Process,
    node: Process,
    directory: tempfile::TempDir,
    /// The namespaces.
    pub line: Line,
    program: PathBuf,
}

/// What a client reached, and what the forwarder's CPU time was for it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Exchanges, or bits of content, a second.
    pub rate: f64,
    /// CPU time of the forwarder an exchange, us.
    pub cpu_us: f64,
    /// CPU time of the client, of the time that passed.
    pub client_share: f64,
}

impl Rig {
    /// Starts a forwarder; `name` (short) is the line's.
    ///
    /// # Errors
    /// The kernel refuses a part, or the forwarder does not start.
    pub fn start(name: &str, kind: Kind<'_>) -> Result<Self> {
        let program = tidegate_program()?;
        let line = Line::new(name, LineOptions::default())?;
        let directory = tempfile::tempdir()?;
        line.node.links()?.set_up("lo")?;
        let (text, file) = match kind {
            Kind::Ours => (ours(&line, directory.path()), "node.toml"),
            Kind::Nfd(_) => (nfd(directory.path()), "nfd.conf"),
        };
        let file = directory.path().join(file);
        std::fs::write(&file, text)?;
        let mut node = match kind {
            Kind::Ours => {
                let mut node = line.node.command(&program);
                node.args(["--log", "error", "run", "-c"]);
                node
            }
            Kind::Nfd(path) => {
                let mut node = line.node.command(path);
                node.arg("--config").env("HOME", directory.path());
                node
            }
        };
        let node = node.arg(&file).stderr(Stdio::null()).spawn();
        let node = Process(node.with_context(|| format!("cannot start {kind:?}"))?);
        let start = Instant::now();
        while let Err(error) = tool(&program, &line, directory.path(), &["status"]) {
            ensure!(
                start.elapsed() < PATIENCE,
                "{kind:?} does not start: {error:#}"
            );
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
            node,
            directory,
            line,
            program,
        };
        let mac: Vec<String> = rig
            .line
            .right
            .mac
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let right = format!("ether://[{}]", mac.join(":"));
        let device = match kind {
            Kind::Ours => "dev://right".to_owned(),
            Kind::Nfd(_) => format!("dev://{}", rig.line.right.node_device),
        };
        let face = rig.tool(&["face", "create", &right, "--local", &device])?;
        let face = face["face_id"]
            .as_u64()
            .context("the new face has no number")?;
        rig.tool(&["route", "add", "/m", &face.to_string()])?;
        Ok(rig)
    }

    /// Runs `tidegate ndn` with these arguments against the forwarder, over its Unix socket if they name no other.
    ///
    /// # Errors
    /// It fails, or prints no JSON.
    pub fn tool(&self, arguments: &[&str]) -> Result<Value> {
        tool(&self.program, &self.line, self.directory.path(), arguments)
    }

    /// Starts `tidegate ndn` with these arguments, to run beside.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(&self, arguments: &[&str]) -> Result<Process> {
        let mut server = command(&self.program, &self.line, self.directory.path());
        let server = server
            .args(arguments)
            .stderr(Stdio::null())
            .stdout(Stdio::null());
        Ok(Process(server.spawn()?))
    }

    /// A file in the rig's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Exchanges that the traffic tool reaches in some time.
    ///
    /// # Errors
    /// The tool fails.
    pub fn traffic(
        &self,
        transport: Option<&str>,
        prefix: &str,
        names: u64,
        time: Duration,
    ) -> Result<Sample> {
        let (names, seconds) = (names.to_string(), time.as_secs_f64().to_string());
        let mut arguments = vec!["traffic", "client", prefix, "--names", &names];
        arguments.extend(["--seconds", &seconds]);
        self.sample(transport, arguments, "exchanges_per_s", "data")
    }

    /// Goodput of a fetch in segments.
    ///
    /// # Errors
    /// The tool fails.
    pub fn get(&self, transport: Option<&str>, name: &str) -> Result<Sample> {
        let copy = self.path("copy");
        let copy = copy.to_str().context("the directory's name is no UTF-8")?;
        self.sample(
            transport,
            vec!["get", name, "-o", copy],
            "goodput_bps",
            "segments",
        )
    }

    fn sample<'a>(
        &self,
        transport: Option<&'a str>,
        mut arguments: Vec<&'a str>,
        rate: &str,
        exchanges: &str,
    ) -> Result<Sample> {
        if let Some(transport) = transport {
            arguments.extend(["--transport", transport]);
        }
        let (start, node, client) = (Instant::now(), cpu_us(self.node.0.id())?, children_us()?);
        let found = self.tool(&arguments)?;
        let node = cpu_us(self.node.0.id())? - node;
        let client = children_us()? - client;
        let figure = |key: &str| found[key].as_f64().context("no figure");
        Ok(Sample {
            rate: figure(rate)?,
            cpu_us: node / figure(exchanges)?.max(1.0),
            client_share: client / 1e6 / start.elapsed().as_secs_f64(),
        })
    }

    /// Round trip to a server on the same forwarder, p50 in us.
    ///
    /// # Errors
    /// The tool fails.
    pub fn ping(&self) -> Result<f64> {
        let ping = self.tool(&["ping", "/p", "-c", "500", "-i", "1", "-w", "500", "-q"])?;
        ping["rtt_us"]["p50"].as_f64().context("no figure")
    }

    /// Starts the server of [`ping`](Self::ping), and waits until it answers.
    ///
    /// # Errors
    /// It does not.
    pub fn pingserver(&self) -> Result<Process> {
        let server = self.serve(&["pingserver", "/p"])?;
        let start = Instant::now();
        loop {
            match self.tool(&["ping", "/p", "-c", "3", "-i", "1", "-w", "500", "-q"]) {
                Ok(ping) if ping["received"].as_u64() > Some(0) => return Ok(server),
                Ok(_) => {}
                Err(error) if start.elapsed() > PATIENCE => return Err(error),
                Err(_) => {}
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "the server of pings does not answer"
            );
        }
    }
}

/// CPU time of all threads of a process, us.
///
/// # Errors
/// It has ended.
pub fn cpu_us(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended.
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
        sum += ns.unwrap_or(0.0) / 1e3;
    }
    Ok(sum)
}

/// CPU time of the children of this process that ended, us (in ticks of 10 ms).
fn children_us() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    // Fields 16 and 17 of proc(5), counted from the third.
    let ticks = ticks(13)
        .zip(ticks(14))
        .context("/proc/self/stat is of another kind")?;
    Ok((ticks.0 + ticks.1) * 10_000.0)
}

fn ours(line: &Line, directory: &Path) -> String {
    let port = |name: &str, side: &Side| {
        format!(
            "[[port]]\nname = \"{name}\"\ninterface = \"{}\"\n",
            side.node_device
        )
    };
    format!(
        "[node]\ncontrol_socket = \"{0}/control.sock\"\n{1}{2}[ndn]\nunix = [\"{0}/nfd.sock\"]\ntcp = []\n\
         udp = [\"127.0.0.1:6363\"]\nethernet = [\"left\", \"right\"]\n",
        directory.display(),
        port("left", &line.left),
        port("right", &line.right),
    )
}

/// NFD's configuration: its Content Store as large as ours, UDP without multicast, Ethernet on all devices.
fn nfd(directory: &Path) -> String {
    const TEXT: &str = "log
{
  default_level NONE
}
tables
{
  cs_max_packets 65536
}
face_system
{
  unix
  {
    path DIRECTORY/nfd.sock
  }
  udp
  {
    listen yes
    port 6363
    mcast no
  }
  ether
  {
    listen yes
    mcast no
  }
}
authorizations
{
  authorize
  {
    certfile any
    privileges
    {
      faces
      fib
      cs
      strategy-choice
    }
  }
}
rib
{
  localhost_security
  {
    trust-anchor
    {
      type any
    }
  }
}
";
    TEXT.replace("DIRECTORY", &directory.display().to_string())
}

/// Returns a command line of `tidegate ndn` beside a forwarder, over its Unix socket in `directory`.
pub fn command(program: &Path, line: &Line, directory: &Path) -> Command {
    let mut command = line.node.command(program);
    let socket = format!("unix://{}/nfd.sock", directory.display());
    command
        .env("NDN_CLIENT_TRANSPORT", socket)
        .env("HOME", directory)
        .args(["--json", "ndn"]);
    command
}

/// Runs `tidegate ndn` so and returns what it printed.
///
/// # Errors
/// It fails, or prints no JSON.
pub fn tool(program: &Path, line: &Line, directory: &Path, arguments: &[&str]) -> Result<Value> {
    let output = command(program, line, directory).args(arguments).output()?;
    if !output.status.success() {
        bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What carries NDN packets between a side and the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Ethernet frames.
    Ethernet,
    /// UDP datagrams over IPv4, without a checksum (RFC 768 allows that).
    Udp,
}

/// A side's device by AF_XDP.
#[derive(Debug)]
pub struct Wire {
    pool: Pool,
    queue: Box<dyn Queue>,
    /// Headers of a frame to the node; lengths and checksum are filled in.
    headers: Vec<u8>,
    carrier: Carrier,
    /// Driver and mode.
    pub mode: String,
}

impl Wire {
    /// Opens it; call it in the side's namespace.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn open(side: &Side, carrier: Carrier) -> Result<Self> {
        let pool = Pool::new(FRAMES, 2048, HugePages::Never)?;
        let spec = PortSpec::new(
            PortId(0),
            "wire",
            DriverSpec::Auto(AfXdpSpec::new(&side.device)),
        );
        let mut port = port::open(&spec, pool.region(), 1)?;
        Ok(Self {
            pool,
            queue: port.queues.remove(0),
            headers: headers(side, carrier)?,
            carrier,
            mode: format!("{} {}", port.driver, port.mode),
        })
    }

    /// Adds a frame to a batch that is to be sent; false without room.
    fn push(&mut self, batch: &mut Batch, packet: &[u8]) -> bool {
        let Some(mut frame) = self.pool.alloc() else {
            return false;
        };
        if !frame.set_len(frame_bytes(&self.headers, packet)) {
            self.pool.free(frame);
            return false;
        }
        write_frame(frame.data_mut(), &self.headers, self.carrier, packet);
        match batch.push(frame) {
            Ok(()) => true,
            Err(frame) => {
                self.pool.free(frame);
                false
            }
        }
    }

    /// True of a frame with a bare Data packet.
    fn is_data(&self, frame: &Frame) -> bool {
        let (at, data) = (self.headers.len(), frame.data());
        data.get(12..14) == self.headers.get(12..14) && data.get(at) == Some(&6)
    }

    /// Asks for names for some time; returns the Data a second that came.
    pub fn ask(&mut self, prefix: &Name, first: u64, names: u64, time: Duration) -> f64 {
        let (mut sent, mut got, mut lost) = (0_u64, 0_u64, 0_u64);
        let mut waiting = Batch::new();
        let mut received = Batch::new();
        let start = Instant::now();
        let mut last = start;
        while start.elapsed() < time {
            self.queue.rx(&mut self.pool, &mut received);
            for frame in received.drain() {
                let is_data = self.is_data(&frame);
                got += u64::from(is_data);
                last = if is_data { Instant::now() } else { last };
                self.pool.free(frame);
            }
            // What does not come for long is lost.
            if last.elapsed() > LOST {
                lost = sent.saturating_sub(got);
                last = Instant::now();
            }
            while (sent - got.min(sent) - lost.min(sent - got.min(sent))) < WINDOW as u64 {
                let packet = interest(prefix, first + sent % names, sent);
                if !self.push(&mut waiting, &packet) {
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

    /// Asks for one name after the other; returns the times from sending to the Data, ns, without those that got none.
    pub fn round_trips(&mut self, prefix: &Name, names: u64, count: u64) -> Vec<f64> {
        let mut waiting = Batch::new();
        let mut received = Batch::new();
        let mut times = Vec::new();
        for number in 0..count {
            let packet = interest(prefix, number % names, number | 1 << 31);
            let started = Instant::now();
            self.push(&mut waiting, &packet);
            self.queue.tx(&mut self.pool, &mut waiting);
            let mut is_there = false;
            while !is_there && started.elapsed() < LOST {
                self.queue.rx(&mut self.pool, &mut received);
                is_there = received.iter().any(|frame| self.is_data(frame));
                self.pool.free_batch(&mut received);
            }
            if is_there {
                times.push(started.elapsed().as_nanos() as f64);
            }
        }
        self.pool.free_batch(&mut waiting);
        times
    }

    /// Answers all Interests until told to stop.
    pub fn answer(&mut self, stop: &AtomicBool) {
        let mut received = Batch::new();
        let mut waiting = Batch::new();
        let mut packet = [0; 600];
        let content = [7; CONTENT_BYTES];
        while !stop.load(Ordering::Relaxed) {
            if self.queue.rx(&mut self.pool, &mut received) == 0 {
                std::thread::yield_now();
            }
            for frame in received.drain() {
                let payload = frame.data().get(self.headers.len()..).unwrap_or_default();
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

/// Makes the Interest for the name of a number below a prefix; `turn` gives it a nonce.
fn interest(prefix: &Name, number: u64, turn: u64) -> Vec<u8> {
    let name = prefix.with_generic(number.to_string().as_bytes());
    let fields = InterestFields {
        nonce: Some((turn as u32).wrapping_mul(2_654_435_761).to_be_bytes()),
        ..InterestFields::new(name.as_ref())
    };
    let mut packet = vec![0; 300];
    let length = fields.encode(&mut packet).unwrap_or(0);
    packet.truncate(length);
    packet
}

/// Makes the frame in which a side asks the node for a name.
///
/// # Errors
/// The side has no IPv4 address.
pub fn request(side: &Side, carrier: Carrier, prefix: &Name, number: u64) -> Result<Vec<u8>> {
    let (headers, packet) = (headers(side, carrier)?, interest(prefix, number, 0));
    let mut frame = vec![0; frame_bytes(&headers, &packet)];
    write_frame(&mut frame, &headers, carrier, &packet);
    Ok(frame)
}

fn headers(side: &Side, carrier: Carrier) -> Result<Vec<u8>> {
    let mut headers = [side.node_mac, side.mac].concat();
    if carrier == Carrier::Ethernet {
        headers.extend(ETHER_TYPE);
        return Ok(headers);
    }
    let (IpAddr::V4(from), IpAddr::V4(to)) = (side.address(), side.node_address()) else {
        bail!("the sides have IPv4 addresses");
    };
    headers.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    headers.extend(from.octets());
    headers.extend(to.octets());
    headers.extend([UDP_PORT, UDP_PORT].map(u16::to_be_bytes).concat());
    headers.extend([0; 4]);
    Ok(headers)
}

/// Bytes of the frame with a packet: short ones are padded as on a wire.
fn frame_bytes(headers: &[u8], packet: &[u8]) -> usize {
    (headers.len() + packet.len()).max(FRAME_BYTES_MIN)
}

fn write_frame(frame: &mut [u8], headers: &[u8], carrier: Carrier, packet: &[u8]) {
    let end = headers.len() + packet.len();
    frame[..headers.len()].copy_from_slice(headers);
    frame[headers.len()..end].copy_from_slice(packet);
    frame[end..].fill(0);
    if carrier == Carrier::Ethernet {
        return;
    }
    let ip_bytes = (20 + 8 + packet.len()) as u16;
    frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip_bytes - 20).to_be_bytes());
    let words = frame[14..34].as_chunks::<2>().0.iter();
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}
