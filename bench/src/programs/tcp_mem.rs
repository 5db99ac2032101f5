//! Measures the stack in memory, both ends on one core: `cargo run --release -p tidegate-bench -- tcp_mem`.
//!
//! Two hosts whose frames go from one to the other without a driver, MTU 1500, checksums computed and checked; time is a number
//! that the loop advances. smoltcp does the same work in the same run, rounds interleaved, with buffers of the same size and
//! bursts of the same length. Time is the thread's CPU time: others on the machine count only for what they push out of the
//! caches.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use io::cpu::thread_time;
use serde_json::json;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use stack::{FrameList, ListenerHandle, Modules, Stack, StackConfig, TcpHandle};
use wire::{Instant, MacAddr};

/// Measures the stack in memory, both ends on one core.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Idle sessions.
    #[arg(long, default_value_t = 1_000_000)]
    idle: u32,
    /// Leave out what needs the idle sessions.
    #[arg(long)]
    no_idle: bool,
    /// Instead, the bulk transfer with each of TCP's modules left out, beside one with all that are on by default.
    #[arg(long)]
    modules: bool,
    /// Only the bulk transfer of ours, this many megabytes, once: for instruction counts.
    #[arg(long)]
    only_bulk_mb: Option<usize>,
}

const SERVER_PORTS: u16 = 40;
/// Send and receive buffer of a connection of either stack, bytes.
const BUFFER_BYTES: u32 = 1 << 20;
/// Frames that go over at once: a burst of the node's drivers.
const BURST: usize = 64;
/// Idle sessions beside which smoltcp is measured: what its users have had to give up at.
const SMOLTCP_IDLE: usize = 10_000;
/// Connections with requests.
const ACTIVE: usize = 32;

/// Two hosts and the frames between them.
struct Pair {
    hosts: [Stack; 2],
    frames: FrameList,
    now_ns: u64,
    listeners: Vec<ListenerHandle>,
}

fn server(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], port))
}

impl Pair {
    fn new(sessions: u32) -> Result<Self> {
        Self::with_modules(sessions, Modules::default())
    }
    fn with_modules(sessions: u32, modules: Modules) -> Result<Self> {
        let host = |n: u8| {
            let mut config = StackConfig::new(MacAddr([2, 0, 0, 0, 0, n]), [n.into(), 2, 3, 4]);
            config.limits.sessions_ipv4 = sessions;
            config.limits.sessions_ipv6 = 16;
            config.limits.connections = sessions;
            config.limits.time_wait = sessions;
            config.tcp.modules = modules;
            config.tcp.time_wait = Duration::from_secs(1);
            (config.tcp.send_buffer, config.tcp.send_buffer_max) = (BUFFER_BYTES, BUFFER_BYTES);
            (config.tcp.receive_buffer, config.tcp.receive_buffer_max) = (BUFFER_BYTES, BUFFER_BYTES);
            config.tcp.ephemeral_ports = (1024, 65_535);
            let mut stack = Stack::new(config, Instant::ZERO);
            stack.add_address([192, 0, 2, n].into(), 24);
            stack
        };
        let mut pair = Self { hosts: [host(1), host(2)], frames: FrameList::new(BURST), now_ns: 1_000_000_000, listeners: Vec::new() };
        for port in 0..SERVER_PORTS {
            pair.listeners.push(pair.hosts[1].tcp_listen(server(1000 + port), 65_535)?);
        }
        Ok(pair)
    }
    fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns)
    }
    /// Moves what one host has to send to the other; returns the frames.
    fn carry(&mut self, from: usize) -> usize {
        let now = self.now();
        let mut total = 0;
        loop {
            self.hosts[from].poll_transmit(now, &mut self.frames);
            let mut burst = [&[][..]; BURST];
            let count = self.frames.len();
            for (to, frame) in burst.iter_mut().zip(self.frames.iter()) {
                *to = frame;
            }
            self.hosts[1 - from].input(now, &burst[..count]);
            self.frames.clear();
            total += count;
            if count < BURST {
                return total;
            }
        }
    }
    fn turn(&mut self) -> usize {
        self.now_ns += 10_000;
        let frames = self.carry(0) + self.carry(1);
        let now = self.now();
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(now));
        frames
    }
    fn connect(&mut self, port: usize) -> Result<(TcpHandle, TcpHandle)> {
        let now = self.now();
        let client = self.hosts[0].tcp_connect(now, server(1000 + port as u16), None)?;
        for _ in 0..10 {
            self.turn();
            if let Ok((accepted, _)) = self.hosts[1].tcp_accept(self.listeners[port]) {
                self.turn();
                return Ok((client, accepted));
            }
        }
        anyhow::bail!("no connection")
    }
}

/// Sends `bytes` from host 0 to host 1; returns ns a data segment.
fn bulk(pair: &mut Pair, client: TcpHandle, accepted: TcpHandle, bytes: usize) -> f64 {
    let data = vec![5; 65_536];
    let mut sink = vec![0; 65_536];
    let (mut sent, mut received) = (0, 0);
    let start = thread_time();
    while received < bytes {
        let now = pair.now();
        while sent < bytes {
            match pair.hosts[0].tcp_send(now, client, &data[..data.len().min(bytes - sent)]) {
                Ok(taken) => sent += taken,
                Err(_) => break,
            }
        }
        pair.now_ns += 10_000;
        pair.carry(0);
        let now = pair.now();
        while let Ok(taken) = pair.hosts[1].tcp_recv(now, accepted, &mut sink) {
            received += taken;
        }
        pair.carry(1);
        pair.hosts.iter_mut().for_each(|host| host.handle_timeout(now));
    }
    (thread_time() - start).as_nanos() as f64 / (bytes as f64 / 1448.0)
}

/// Requests and answers of 64 bytes over all `active` connections at once; returns requests a second.
fn requests(pair: &mut Pair, active: &[(TcpHandle, TcpHandle)], window_ms: u64) -> f64 {
    let mut buffer = [0; 64];
    let mut done = 0_u64;
    let start = thread_time();
    while (thread_time() - start).as_millis() < u128::from(window_ms) {
        for _ in 0..16 {
            let now = pair.now();
            for (client, _) in active {
                done += u64::from(pair.hosts[0].tcp_send(now, *client, &[1; 64]).is_ok());
            }
            pair.now_ns += 10_000;
            pair.carry(0);
            let now = pair.now();
            for (_, accepted) in active {
                if pair.hosts[1].tcp_recv(now, *accepted, &mut buffer).is_ok() {
                    let _ = pair.hosts[1].tcp_send(now, *accepted, &[2; 64]);
                }
            }
            pair.carry(1);
            for (client, _) in active {
                let _ = pair.hosts[0].tcp_recv(now, *client, &mut buffer);
            }
            let now = pair.now();
            pair.hosts.iter_mut().for_each(|host| host.handle_timeout(now));
        }
    }
    done as f64 / (thread_time() - start).as_secs_f64()
}

/// Connections of one request and one answer each, 64 at a time; returns connections a second.
fn short_connections(pair: &mut Pair, window_ms: u64) -> f64 {
    let mut buffer = [0; 64];
    let mut done = 0_u64;
    let start = thread_time();
    let mut port = 0;
    while (thread_time() - start).as_millis() < u128::from(window_ms) {
        port = (port + 1) % usize::from(SERVER_PORTS);
        let now = pair.now();
        let clients: Vec<TcpHandle> =
            (0..64).filter_map(|_| pair.hosts[0].tcp_connect(now, server(1000 + port as u16), None).ok()).collect();
        pair.turn();
        let now = pair.now();
        for client in &clients {
            let _ = pair.hosts[0].tcp_send(now, *client, &[1; 64]);
        }
        pair.turn();
        let now = pair.now();
        while let Ok((accepted, _)) = pair.hosts[1].tcp_accept(pair.listeners[port]) {
            let _ = pair.hosts[1].tcp_recv(now, accepted, &mut buffer);
            let _ = pair.hosts[1].tcp_send(now, accepted, &[2; 64]);
            let _ = pair.hosts[1].tcp_close(now, accepted);
        }
        pair.turn();
        let now = pair.now();
        for client in clients {
            done += u64::from(pair.hosts[0].tcp_recv(now, client, &mut buffer) == Ok(64));
            let _ = pair.hosts[0].tcp_close(now, client);
        }
        pair.turn();
        pair.turn();
        // TIME_WAIT lasts a second of the loop's time.
        pair.now_ns += 1_000_000;
        while pair.hosts[0].poll_event().is_some() || pair.hosts[1].poll_event().is_some() {}
    }
    done as f64 / (thread_time() - start).as_secs_f64()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// One end of smoltcp's link.
#[derive(Default)]
struct End {
    received: std::collections::VecDeque<Vec<u8>>,
    sent: std::collections::VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

struct Take(Vec<u8>);
struct Give<'a>(&'a mut End);

impl RxToken for Take {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Give<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = self.0.spare.pop().unwrap_or_default();
        frame.resize(len, 0);
        let result = f(&mut frame);
        self.0.sent.push_back(frame);
        result
    }
}

impl Device for End {
    type RxToken<'a> = Take;
    type TxToken<'a> = Give<'a>;
    fn receive(&mut self, _: SmolInstant) -> Option<(Take, Give<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Take(frame), Give(self)))
    }
    fn transmit(&mut self, _: SmolInstant) -> Option<Give<'_>> {
        (self.sent.len() < BURST).then_some(Give(self))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// Two smoltcp hosts with connections.
struct SmolPair {
    ends: [End; 2],
    interfaces: [Interface; 2],
    sets: [SocketSet<'static>; 2],
    /// Of each connection, the client's socket; the server's have the same numbers.
    handles: Vec<SocketHandle>,
    now_us: i64,
}

impl SmolPair {
    fn new(connections: usize, buffer_bytes: u32) -> Result<Self> {
        let mut ends = [End::default(), End::default()];
        let mut interface = |n: usize| {
            let mac = EthernetAddress([2, 0, 0, 0, 0, n as u8 + 1]);
            let mut interface = Interface::new(Config::new(mac.into()), &mut ends[n], SmolInstant::ZERO);
            interface.update_ip_addrs(|list| {
                let _ = list.push(IpCidr::new(IpAddress::v4(192, 0, 2, n as u8 + 1), 24));
            });
            interface
        };
        let mut interfaces = [interface(0), interface(1)];
        let mut sets = [SocketSet::new(Vec::new()), SocketSet::new(Vec::new())];
        let socket = || {
            let buffer = || tcp::SocketBuffer::new(vec![0; buffer_bytes as usize]);
            let mut socket = tcp::Socket::new(buffer(), buffer());
            socket.set_ack_delay(None);
            socket.set_nagle_enabled(false);
            socket
        };
        let mut handles = Vec::with_capacity(connections);
        for n in 0..connections {
            let (client, accepted) = (sets[0].add(socket()), sets[1].add(socket()));
            sets[1].get_mut::<tcp::Socket<'_>>(accepted).listen(80)?;
            let server = (IpAddress::v4(192, 0, 2, 2), 80);
            sets[0].get_mut::<tcp::Socket<'_>>(client).connect(
                interfaces[0].context(),
                server,
                1024 + n as u16,
            )?;
            handles.push(client);
        }
        let mut pair = Self { ends, interfaces, sets, handles, now_us: 0 };
        // A burst a turn; each connection takes three.
        (0..10 + connections / 8).for_each(|_| pair.turn());
        let Self { sets, handles, .. } = &mut pair;
        let all = handles.iter().all(|handle| {
            sets.iter_mut()
                .all(|set| set.get_mut::<tcp::Socket<'_>>(*handle).may_send())
        });
        ensure!(all, "smoltcp did not connect");
        Ok(pair)
    }
    fn turn(&mut self) {
        self.now_us += 10;
        let now = SmolInstant::from_micros(self.now_us);
        for host in 0..2 {
            self.interfaces[host].poll(now, &mut self.ends[host], &mut self.sets[host]);
            let [a, b] = &mut self.ends;
            let (from, to) = if host == 0 { (a, b) } else { (b, a) };
            to.received.append(&mut from.sent);
        }
    }
    fn bulk(&mut self, bytes: usize) -> f64 {
        let data = vec![5; 65_536];
        let mut sink = vec![0; 65_536];
        let (mut sent, mut received) = (0, 0);
        let start = thread_time();
        while received < bytes {
            let handle = self.handles[0];
            let socket = self.sets[0].get_mut::<tcp::Socket<'_>>(handle);
            while sent < bytes && socket.can_send() {
                sent += socket.send_slice(&data[..data.len().min(bytes - sent)]).unwrap_or(0);
            }
            self.turn();
            let socket = self.sets[1].get_mut::<tcp::Socket<'_>>(handle);
            while socket.can_recv() {
                received += socket.recv_slice(&mut sink).unwrap_or(0);
            }
        }
        (thread_time() - start).as_nanos() as f64 / (bytes as f64 / 1460.0)
    }
    /// As [`requests`] of ours, over the last connections.
    fn requests(&mut self, window_ms: u64) -> f64 {
        let mut buffer = [0; 64];
        let mut done = 0_u64;
        let active = self.handles[self.handles.len() - ACTIVE..].to_vec();
        let start = thread_time();
        while (thread_time() - start).as_millis() < u128::from(window_ms) {
            for handle in &active {
                let socket = self.sets[0].get_mut::<tcp::Socket<'_>>(*handle);
                done += u64::from(socket.send_slice(&[1; 64]) == Ok(64));
            }
            self.turn();
            for handle in &active {
                let socket = self.sets[1].get_mut::<tcp::Socket<'_>>(*handle);
                if matches!(socket.recv_slice(&mut buffer), Ok(1..)) {
                    let _ = socket.send_slice(&[2; 64]);
                }
            }
            self.turn();
            for handle in &active {
                let socket = self.sets[0].get_mut::<tcp::Socket<'_>>(*handle);
                let _ = socket.recv_slice(&mut buffer);
            }
        }
        done as f64 / (thread_time() - start).as_secs_f64()
    }
}

/// Measures what each module costs a bulk transfer that loses nothing: transfers with and without it, interleaved.
fn modules(options: &Options) -> Result<Report> {
    let all = Modules::default();
    let mut report = Report::new("tcp_mem");
    let columns = ["left out", "ns a data segment", "of that with all"];
    let mut table = Table::new("In memory, both ends, MTU 1500: modules of TCP left out", &columns);
    // All of them off at once comes last.
    let each = all.iter_names().map(|(name, module)| (name.to_lowercase(), module));
    for (name, module) in each.chain([("all".to_owned(), all)]) {
        let mut pairs = [Pair::with_modules(1000, all)?, Pair::with_modules(1000, all.difference(module))?];
        let bytes = (options.window_ms as usize) << 20;
        let mut run = Vec::new();
        for pair in &mut pairs {
            let (client, accepted) = pair.connect(0)?;
            bulk(pair, client, accepted, 32 << 20);
            run.push(move || bulk(pair, client, accepted, bytes));
        }
        let [with, without] = run.as_mut_slice() else { continue };
        let samples = rounds(options.rounds, &mut [with, without]);
        let ratios: Vec<f64> = samples[0].iter().zip(&samples[1]).map(|(with, without)| without / with).collect();
        let (ns, ratio) = (median(&samples[1]), median(&ratios));
        table.rows.push(vec![json!(name), json!(ns), json!(ratio)]);
        report.figure(&format!("without_{name}_ratio"), ratio);
    }
    report.table(table);
    Ok(report)
}

pub(crate) fn main() -> Result<()> {
    let arguments = bench::parse::<Arguments>();
    if arguments.modules {
        modules(&arguments.options)?.print(&arguments.options);
        return Ok(());
    }
    if let Some(megabytes) = arguments.only_bulk_mb {
        let mut pair = Pair::new(1000)?;
        let (client, accepted) = pair.connect(0)?;
        println!("{:.1} ns a segment", bulk(&mut pair, client, accepted, megabytes << 20));
        return Ok(());
    }
    let window_ms = arguments.options.window_ms;
    let mut report = Report::new("tcp_mem");
    let mut pair = Pair::new(100_000)?;
    let (client, accepted) = pair.connect(0)?;
    let mut smol = SmolPair::new(1, BUFFER_BYTES)?;
    let bytes = (window_ms as usize) << 20;
    bulk(&mut pair, client, accepted, 32 << 20);
    smol.bulk(32 << 20);
    let mut ours = || bulk(&mut pair, client, accepted, bytes);
    let mut theirs = || smol.bulk(bytes);
    let samples = rounds(arguments.options.rounds, &mut [&mut ours, &mut theirs]);
    let (ours, theirs) = (median(&samples[0]), median(&samples[1]));
    let mut table = Table::new("In memory, both ends, MTU 1500, checksums", &["what", "value", "unit"]);
    let mut row = |what: &str, value: f64, unit: &str| table.rows.push(vec![json!(what), json!(value), json!(unit)]);
    row("bulk, ours", ours, "ns a data segment");
    row("bulk, smoltcp", theirs, "ns a data segment");
    report.figure("bulk_ns", ours);
    report.figure("smoltcp_bulk_ns", theirs);
    report.figure("bulk_ratio", ours / theirs);

    let mut pair = Pair::new(1_000_000)?;
    let mut short: Vec<f64> = (0..arguments.options.rounds).map(|_| short_connections(&mut pair, window_ms)).collect();
    short.sort_by(f64::total_cmp);
    row("short connections", median(&short), "1/s");
    report.figure("short_connections_per_s", median(&short));

    if !arguments.no_idle {
        let before = resident_bytes();
        let mut loaded = Pair::new(arguments.idle + 1000)?;
        let mut empty = Pair::new(1000)?;
        for n in 0..arguments.idle as usize {
            loaded.connect(n % usize::from(SERVER_PORTS))?;
            if n % 1024 == 0 {
                while loaded.hosts[0].poll_event().is_some() || loaded.hosts[1].poll_event().is_some() {}
            }
        }
        loaded.now_ns += 10_000_000_000;
        loaded.turn();
        let each = (resident_bytes() - before) as f64 / f64::from(arguments.idle) / 2.0;
        row("memory of an idle session, one end, all-in", each, "bytes");
        report.figure("idle_session_bytes", each);
        report.figure("idle_sessions", f64::from(arguments.idle));
        let mut actives = [Vec::new(), Vec::new()];
        for n in 0..ACTIVE {
            actives[0].push(empty.connect(n)?);
            actives[1].push(loaded.connect(n)?);
        }
        let [few, many] = actives;
        let mut smol_empty = SmolPair::new(ACTIVE, 256)?;
        let mut smol_loaded = SmolPair::new(SMOLTCP_IDLE + ACTIVE, 256)?;
        let mut smol_alone = || smol_empty.requests(window_ms);
        let mut smol_crowded = || smol_loaded.requests(window_ms);
        let mut alone = || requests(&mut empty, &few, window_ms);
        let mut crowded = || requests(&mut loaded, &many, window_ms);
        let subjects: &mut [&mut dyn FnMut() -> f64] =
            &mut [&mut alone, &mut crowded, &mut smol_alone, &mut smol_crowded];
        let samples = rounds(arguments.options.rounds, subjects);
        let [alone, crowded, smol_alone, smol_crowded] = [0, 1, 2, 3].map(|n| median(&samples[n]));
        row("requests of 64 B, no idle sessions", alone, "1/s");
        row("requests of 64 B, with the idle sessions", crowded, "1/s");
        row("requests of 64 B, smoltcp, no idle sessions", smol_alone, "1/s");
        row("requests of 64 B, smoltcp, with 10,000 idle sessions", smol_crowded, "1/s");
        report.figure("requests_per_s", alone);
        report.figure("requests_with_idle_per_s", crowded);
        report.figure("requests_with_idle_ratio", crowded / alone);
        report.figure("smoltcp_requests_per_s", smol_alone);
        report.figure("smoltcp_requests_with_10k_idle_ratio", smol_crowded / smol_alone);
    }
    report.table(table);
    report.print(&arguments.options);
    Ok(())
}
