//! A host of its own: a port, workers with threads, addresses.

use std::any::Any;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::io::af_packet::AfPacketSpec;
use ::io::port::{DriverSpec, OpenError, PortSpec};
use ::io::tap::TapSpec;
use ::io::{HugePages, Interface, Pool, PortId, RegionError, WorkerId, cpu};
use control::socket::{Client, ClientError, Held};
use graph::runner::{self, WorkerThread};
use graph::{
    Graph, GraphBuilder, GraphError, IdleConfig, Mode, Spread, TxFull, Worker, WorkerHandle,
    WorkerPort, WorkerSetup,
};
use stack::{Limits, Stack, StackConfig, TcpConfig};
use tables::segment::{Access, Segment, SegmentError};
use wire::{FlowSecret, MacAddr};

use crate::area::{Area, LAYOUT, Lane, Shape, WORKERS_MAX};
use crate::attachment::{Attachment, Bell};
use crate::node::{Attached, Exit, HostCounters, HostNode};

/// Frames that wait between two workers, each way.
const HANDOFF_DEPTH: usize = 1024;
/// How long connections may take to end after the last socket is gone.
const LINGER: Duration = Duration::from_secs(2);
/// How long a worker may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes before and after a packet in a slot: headroom, Ethernet header with tags.
const SLOT_OVERHEAD_BYTES: u32 = 256 + 22;

/// A running TCP/IP host, for which sockets are made. Clones are the same host; it stops when the last of them
/// and the last socket are gone.
///
/// ```
/// use std::io::{Read, Write};
/// use io::mem;
/// use io::port::DriverSpec;
/// use socket::{Host, TcpListener, TcpStream};
///
/// let (left, right) = mem::link(mem::LinkSpec::default());
/// let server = Host::builder(DriverSpec::Mem(left)).address("192.0.2.1/24").start()?;
/// let client = Host::builder(DriverSpec::Mem(right)).address("192.0.2.2/24").start()?;
///
/// let listener = TcpListener::bind(&server, "192.0.2.1:7")?;
/// let mut to_server = TcpStream::connect(&client, "192.0.2.1:7")?;
/// let (mut to_client, peer) = listener.accept()?;
/// assert_eq!(peer, to_server.local_addr()?);
/// to_server.write_all(b"hello")?;
/// let mut bytes = [0; 5];
/// to_client.read_exact(&mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) attachment: Arc<Attachment>,
    mac: MacAddr,
    mtu: u16,
    mode: Arc<str>,
}

/// Why a host does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The port cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no memory for frames.
    #[error(transparent)]
    Frames(#[from] RegionError),
    /// The memory of the sockets cannot be had.
    #[error("the memory of the host's sockets cannot be had")]
    Sockets(#[from] SegmentError),
    /// A thread or descriptor cannot be had.
    #[error("a worker cannot be started")]
    Worker(#[from] io::Error),
    /// The graph is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The node cannot be used.
    #[error(transparent)]
    Node(#[from] ClientError),
    /// The settings make no sense.
    #[error("{0}")]
    Unusable(String),
}

/// The settings of a host, before it [starts](HostBuilder::start).
#[derive(Debug)]
pub struct HostBuilder {
    driver: DriverSpec,
    workers: u16,
    addresses: Vec<String>,
    routes: Vec<(String, Option<IpAddr>)>,
    sockets: u32,
    ring_bytes: u32,
    frames: u32,
    mtu: Option<u16>,
    mac: Option<MacAddr>,
    mode: Mode,
    tcp: TcpConfig,
    is_automatic: bool,
    uses_dhcp: bool,
}

impl Host {
    /// Begins a host on a kernel interface by AF_PACKET: it needs no support of the device. The kernel sees the
    /// frames, too, and keeps the addresses that it has on the interface; the host needs others.
    pub fn on_interface(interface: &str) -> HostBuilder {
        Self::builder(DriverSpec::AfPacket(AfPacketSpec::new(interface)))
    }

    /// Begins a host at the other end of a TAP interface that is created.
    pub fn on_tap(interface: &str) -> HostBuilder {
        Self::builder(DriverSpec::Tap(TapSpec::new(interface)))
    }

    /// Begins a host on a port of any driver.
    pub fn builder(driver: DriverSpec) -> HostBuilder {
        HostBuilder {
            driver,
            workers: 1,
            addresses: Vec::new(),
            routes: Vec::new(),
            sockets: 1024,
            ring_bytes: 256 << 10,
            frames: 8192,
            mtu: None,
            mac: None,
            mode: Mode::Hybrid,
            tcp: TcpConfig::default(),
            is_automatic: false,
            uses_dhcp: false,
        }
    }

    /// Uses the host of a running node (`[host]` in its configuration), by its control socket. The node's workers
    /// and this process share a memory segment; nothing is copied through the kernel.
    ///
    /// # Errors
    /// No node answers there, it has no host, or it runs as another user.
    pub fn attach(control_socket: impl AsRef<Path>) -> Result<Self, HostError> {
        let client = Client::connect(control_socket.as_ref())?;
        let (there, held) = client.attach()?;
        let segment = Segment::attach(&there.segment, LAYOUT, Access::ReadWrite)?;
        let workers = there.bells.len().min(WORKERS_MAX.into()) as u16;
        let shape = Shape::new(workers, there.sockets, there.ring_bytes);
        let area = Arc::new(Area::new(&segment, shape, false)?);
        let mut bells = Vec::new();
        for path in &there.bells {
            let bell = UnixDatagram::unbound()?;
            bell.connect(path)?;
            bell.set_nonblocking(true)?;
            bells.push(bell);
        }
        let session = Session::start(held, Arc::clone(&area))?;
        let bell = Bell::Remote(bells);
        Ok(Self {
            attachment: Arc::new(Attachment::new(area, bell, Some(Box::new(session)))),
            mac: MacAddr(there.mac),
            mtu: there.mtu,
            mode: "attached".into(),
        })
    }

    /// Returns the MAC address of the host.
    pub fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Returns the largest packet that it sends, bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Returns the driver's mode in force.
    pub fn mode(&self) -> &str {
        &self.mode
    }
}

impl HostBuilder {
    /// Gives the host an address with the length of its network's prefix, e.g. `192.0.2.1/24` or `2001:db8::1/64`.
    #[must_use]
    pub fn address(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// Sends what is not on the link to a router.
    #[must_use]
    pub fn gateway(self, router: IpAddr) -> Self {
        let all = if router.is_ipv4() {
            "0.0.0.0/0"
        } else {
            "::/0"
        };
        self.route(all, Some(router))
    }

    /// Adds a route to a network, by a router or on the link.
    #[must_use]
    pub fn route(mut self, network: &str, router: Option<IpAddr>) -> Self {
        self.routes.push((network.to_owned(), router));
        self
    }

    /// Runs so many workers, a thread each; flows are spread over them.
    #[must_use]
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = workers;
        self
    }

    /// Makes room for so many sockets a worker (4,096 at most).
    #[must_use]
    pub fn sockets(mut self, sockets: u32) -> Self {
        self.sockets = sockets;
        self
    }

    /// Gives each socket rings of so many bytes each way (rounded up to a power of two); memory is used as it is
    /// touched. The longest datagram must fit.
    #[must_use]
    pub fn ring_bytes(mut self, bytes: u32) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Gives each worker so many frames.
    #[must_use]
    pub fn frames(mut self, frames: u32) -> Self {
        self.frames = frames;
        self
    }

    /// Sends no larger packets, bytes.
    #[must_use]
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// Uses another MAC address than the port's (the interface must be promiscuous for it).
    #[must_use]
    pub fn mac(mut self, mac: MacAddr) -> Self {
        self.mac = Some(mac);
        self
    }

    /// Waits for packets so: by default as [`Mode::Hybrid`] decides.
    #[must_use]
    pub fn wait_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Changes what TCP does.
    #[must_use]
    pub fn tcp(mut self, tcp: TcpConfig) -> Self {
        self.tcp = tcp;
        self
    }

    /// Takes IPv6 addresses from routers (SLAAC), on one worker.
    #[must_use]
    pub fn autoconfiguration(mut self) -> Self {
        self.is_automatic = true;
        self
    }

    /// Asks for an IPv4 address by DHCP, on one worker.
    #[must_use]
    pub fn dhcp(mut self) -> Self {
        self.uses_dhcp = true;
        self
    }

    /// Opens the port and starts the workers.
    ///
    /// # Errors
    /// What is wrong with the settings, or what the kernel refused.
    pub fn start(self) -> Result<Host, HostError> {
        if self.workers == 0 || self.workers > WORKERS_MAX {
            let text = format!("{} workers: give 1 to {WORKERS_MAX}", self.workers);
            return Err(HostError::Unusable(text));
        }
        if (self.is_automatic || self.uses_dhcp) && self.workers > 1 {
            let text = "DHCP and SLAAC work with one worker; give addresses by hand";
            return Err(HostError::Unusable(text.into()));
        }
        let addresses = self.parsed_addresses()?;
        let routes = self.parsed_routes()?;
        let pools = Pool::split(
            self.frames,
            self.workers,
            self.frame_bytes(),
            HugePages::Auto,
        )?;
        let region = Arc::clone(pools[0].region());
        let spec = PortSpec::new(PortId(0), "host", self.driver.clone());
        let port = ::io::port::open(&spec, &region, self.workers)?;
        let room = region.room_bytes().saturating_sub(22).min(u16::MAX.into()) as u16;
        let mtu = self.mtu.unwrap_or(port.mtu).min(port.mtu).min(room);
        let mac = self.mac.unwrap_or(MacAddr(port.mac));
        let shape = Shape::new(self.workers, self.sockets, self.ring_bytes);
        let attached = Arc::new(Attached {
            id: 0,
            area: Arc::new(Area::private(shape)?),
            bells: Vec::new(),
        });
        let meshes = graph::mesh(self.workers, HANDOFF_DEPTH)?;
        let bells = Arc::clone(meshes[0].bells());
        let secret = random_bytes();
        let owners = port.queues.len().max(1) as u16;
        let mut running = Running::default();
        let mut queues = port.queues.into_iter();
        for (pool, mesh) in pools.into_iter().zip(meshes) {
            let id = mesh.id();
            let counters = Arc::new(HostCounters::default());
            let stack = self.stack(mac, mtu, id, secret, &addresses, &routes);
            let spread =
                (self.workers > 1).then(|| Spread::new(FlowSecret::new(secret), self.workers));
            let mut node = HostNode::new(
                Exit::Port,
                stack,
                id,
                self.workers,
                spread,
                Arc::clone(&counters),
            );
            node.attach(&attached);
            let setup = WorkerSetup {
                pool,
                ports: vec![WorkerPort {
                    queue: queues.next(),
                    tx_via: WorkerId(id.0 % owners),
                    spread: owners < self.workers,
                    mode: self.mode,
                    tx_full: TxFull::default(),
                }],
                graph: graph_of(node)?,
                mesh,
                spread: (owners < self.workers)
                    .then(|| Spread::new(FlowSecret::new(secret), self.workers)),
                idle: IdleConfig::default(),
                cpu_time: Some(cpu::thread_time),
            };
            let (worker, handle) = Worker::new(setup, cpu::now());
            running.threads.push(runner::spawn(worker, None)?);
            running.handles.push(handle);
            running.counters.push(counters);
        }
        let keeps: Box<dyn Any + Send + Sync> = Box::new(std::sync::Mutex::new(running));
        let area = Arc::clone(&attached.area);
        Ok(Host {
            attachment: Arc::new(Attachment::new(area, Bell::Local(bells), Some(keeps))),
            mac,
            mtu,
            mode: port.mode.into(),
        })
    }

    fn stack(
        &self,
        mac: MacAddr,
        mtu: u16,
        worker: WorkerId,
        secret: [u8; 64],
        addresses: &[(IpAddr, u8)],
        routes: &[(IpAddr, u8, Option<IpAddr>)],
    ) -> Stack {
        let mut config = StackConfig::new(mac, std::array::from_fn(|_| random()));
        config.mtu = mtu;
        config.tcp = self.tcp.clone();
        config.ipv6_autoconfiguration = self.is_automatic;
        config.dhcp = self.uses_dhcp;
        config.limits = limits(self.sockets);
        if self.workers > 1 {
            let spread = Spread::new(FlowSecret::new(secret), self.workers);
            config.owns_flow = Some(Box::new(move |key| spread.worker_of(key) == worker));
        }
        let mut stack = Stack::new(config, cpu::now());
        for (ip, prefix) in addresses {
            stack.add_address(*ip, *prefix);
        }
        for (network, prefix, router) in routes {
            stack.add_route(*network, *prefix, *router);
        }
        stack
    }

    fn parsed_addresses(&self) -> Result<Vec<(IpAddr, u8)>, HostError> {
        self.addresses.iter().map(|text| prefix(text)).collect()
    }

    fn parsed_routes(&self) -> Result<Vec<(IpAddr, u8, Option<IpAddr>)>, HostError> {
        let parse = |(text, router): &(String, Option<IpAddr>)| {
            prefix(text).map(|(network, length)| (network, length, *router))
        };
        self.routes.iter().map(parse).collect()
    }

    /// Chooses slots that hold a packet of the interface.
    fn frame_bytes(&self) -> u32 {
        let interface = match &self.driver {
            DriverSpec::AfPacket(spec) => Some(spec.interface.as_str()),
            DriverSpec::AfXdp(spec) | DriverSpec::Auto(spec) => Some(spec.interface.as_str()),
            _ => None,
        };
        let theirs = interface
            .and_then(|name| Interface::get(name).ok())
            .map_or(1500, |interface| interface.mtu);
        let mtu = self.mtu.map_or(theirs, u32::from).clamp(1280, 32_000);
        (mtu + SLOT_OVERHEAD_BYTES)
            .next_power_of_two()
            .clamp(2048, 32_768)
    }
}

/// Sizes a stack for so many sockets: of these, all may be connections, and as many half open.
pub(crate) fn limits(sockets: u32) -> Limits {
    let sockets = sockets.clamp(1, 4096);
    Limits {
        connections: 4 * sockets.max(256),
        listeners: sockets.max(64),
        udp_sockets: sockets.max(64),
        ..Limits::default()
    }
}

/// Makes the graph of one worker: frames to the host, its frames to the port.
fn graph_of(node: HostNode) -> Result<Graph, GraphError> {
    let mut builder = GraphBuilder::new();
    let tx = builder.tx();
    let host = builder.add(Box::new(node));
    builder.connect(host, "out", tx)?;
    builder.input(PortId(0), host)?;
    builder.build(1)
}

/// Reads an address with the length of its prefix.
fn prefix(text: &str) -> Result<(IpAddr, u8), HostError> {
    let parsed = text.split_once('/').and_then(|(ip, length)| {
        let ip: IpAddr = ip.parse().ok()?;
        let length: u8 = length.parse().ok()?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        (length <= most).then_some((ip, length))
    });
    parsed.ok_or_else(|| {
        HostError::Unusable(format!(
            "{text:?} is no address with a prefix length; write e.g. 192.0.2.1/24"
        ))
    })
}

/// What a program has of a node: its sockets are there as long as this is.
#[derive(Debug)]
struct Session {
    held: Arc<Held>,
}

impl Session {
    /// Watches whether the node is still there.
    fn start(held: Held, area: Arc<Area>) -> io::Result<Self> {
        let held = Arc::new(held);
        let watched = Arc::clone(&held);
        let thread = std::thread::Builder::new().name("socket-node".into());
        thread.spawn(move || {
            watched.wait();
            area.lanes.iter().for_each(Lane::end);
        })?;
        Ok(Self { held })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.held.close();
    }
}

/// The threads of a host; stops them when dropped.
#[derive(Debug, Default)]
struct Running {
    handles: Vec<WorkerHandle>,
    threads: Vec<WorkerThread>,
    counters: Vec<Arc<HostCounters>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let wait = |limit: Duration, done: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !done() && start.elapsed() < limit {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // What was written is still sent.
        wait(LINGER, &|| {
            let open = |counters: &Arc<HostCounters>| counters.connections.load(Ordering::Relaxed);
            self.counters.iter().map(open).sum::<u64>() == 0
        });
        for handle in &mut self.handles {
            // One that does not read its messages is given up below.
            let _ = handle.drain();
        }
        wait(STOP_PATIENCE, &|| {
            self.threads.iter().all(WorkerThread::is_finished)
        });
        for thread in self.threads.drain(..).filter(WorkerThread::is_finished) {
            thread.join();
        }
    }
}

/// Returns a number that nobody outside can guess: the standard library seeds its hash maps from the kernel's
/// randomness.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

pub(crate) fn random_bytes() -> [u8; 64] {
    let mut bytes = [0; 64];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random().to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let (end, _other) = ::io::mem::link(::io::mem::LinkSpec::default());
        let start = |change: &dyn Fn(HostBuilder) -> HostBuilder| {
            let builder = Host::builder(DriverSpec::Mem(end.clone()));
            change(builder).start().unwrap_err().to_string()
        };
        assert!(start(&|b| b.workers(0)).contains("1 to 32"));
        assert!(start(&|b| b.workers(2).dhcp()).contains("one worker"));
        for text in ["192.0.2.1", "192.0.2.1/33", "x/24", "::1/129"] {
            assert!(start(&|b| b.address(text)).contains(text));
        }
        let text = Host::on_interface("tg-no-such")
            .start()
            .unwrap_err()
            .to_string();
        assert!(text.contains("tg-no-such"), "{text}");
    }
}
