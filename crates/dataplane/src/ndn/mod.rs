//! The named-data forwarder in the node: [`ndn`]'s engine on the workers, a thread for management beside them.
//!
//! ```text
//! eth-input (EtherType 0x8624) --> ndn -> tx          on each worker
//! UDP, TCP and Unix sockets <----> ndn                by a queue that only wakes the worker
//! ndn of a worker <--------------> ndn of the others  bounded rings
//! ndn <--------------------------> manager            commands down, events up
//! ```
//!
//! A name belongs to one worker ([`ndn::Partition`]); what another one received is handed over, Ethernet frames as
//! they are. Each worker sends datagrams and frames itself; a stream, and a link with reliability, belongs to one
//! worker. The content store is shared. The manager makes faces, so that all workers have the same ones, and holds
//! RIB, FIB and strategy choices as management shows them.

mod disk;
mod info;
mod kernel;
mod keys;
mod listen;
mod manager;
mod many;
mod message;
mod node;
mod outputs;
mod queue;
mod store;
mod transport;
mod websocket;

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::Config;
use control::api::NdnInfo;
use control::config::{CachePolicy, NdnConfig, UnsolicitedConfig};
use io::{Doorbell, PortId, Queue, WorkerId};
use ndn::mgmt::{Control, FaceChange, FaceRequest, KeyRing, Management, ManagementConfig};
use ndn::shared_store::SharedStore;
use ndn::strategy::{ChoiceError, StrategyChoice};
use ndn::{
    FaceId, FaceUri, FaceUriError, Faces, Fib, Forwarder, ForwarderConfig, NameHasher, NextHop,
    Partition, Persistency, Rng, UnsolicitedPolicy,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use wire::Instant;
use wire::ndn::name::Name;

pub use kernel::KernelCacheError;
pub(crate) use kernel::{Beside, Kernel, Opened};
pub use keys::{KeyError, PublicKey, read_certificate};

use crate::forwarding::Forwarding;
use crate::plan::{Plan, PortRole};
use disk::{LastSpill, disk_sync, last_spill};
use kernel::Filling;
use listen::Listener;
use manager::Manager;
use many::{EthernetPort, Many};
use message::{Commands, EVENTS_MAX, Ears, Inbox, Outbox, ToManager, ToWorker};
use node::{BELL_TOKEN, NdnNode, UDP_TOKEN};
use outputs::{Links, Outputs};
use queue::{Ready, SignalQueue};
use store::{HOT_MAX, Hot, NodeStore};
use transport::{Burst, Datagrams};

/// The modules of management.
const MODULES: [&str; 5] = ["faces", "fib", "rib", "cs", "strategy-choice"];
/// How long the manager may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a packet in the content store, where nothing else is said.
const BYTES_A_PACKET: u64 = 1536;

/// Why the forwarder does not start.
#[derive(Debug, thiserror::Error)]
pub enum NdnError {
    /// A socket cannot be made.
    #[error("cannot listen on {what}")]
    Listen {
        /// FaceUri.
        what: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A UDP group has no address to send from.
    #[error("the interface {interface} of `udp_multicast` is not there or has no IPv4 address")]
    NoAddress {
        /// The interface.
        interface: String,
    },
    /// The kernel gives no descriptors.
    #[error("the kernel gives no descriptor for the NDN forwarder")]
    Kernel(#[source] std::io::Error),
    /// There is no memory for the content store, or it is of an impossible size.
    #[error("the content store cannot be made: {0}")]
    Store(#[from] content_store::ConfigError),
    /// The disk tier of the content store cannot be used.
    #[error(transparent)]
    Disk(#[from] content_store::DiskError),
    /// A FaceUri cannot be used.
    #[error("`{uri}`: {source}")]
    FaceUri {
        /// The text.
        uri: String,
        /// What is wrong.
        source: FaceUriError,
    },
    /// A strategy cannot be chosen.
    #[error("the strategy `{strategy}` of `{prefix}`: {source}")]
    Strategy {
        /// Of which prefix.
        prefix: String,
        /// Its name.
        strategy: String,
        /// What is wrong.
        source: ChoiceError,
    },
    /// A name is none.
    #[error("`{0}` is not a name")]
    Name(String),
    /// A certificate cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The part of the content store in the kernel.
    #[error("the kernel's cache ([ndn.kernel_cache]): {0}")]
    KernelCache(#[from] KernelCacheError),
}

impl NdnError {
    /// Returns what to do about it, where there is one thing.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Listen { what, source } if what.starts_with("unix") => match source.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "stop the other forwarder, or write another path under `unix` in [ndn]".into()
                }
                _ => "run as root, or write a path that you may write to under `unix` in [ndn]"
                    .into(),
            },
            Self::Listen { .. } => {
                "stop the other program, or write other addresses under `tcp`, `udp` and `websocket` in [ndn]"
                    .into()
            }
            Self::NoAddress { .. } => "remove the interface from `udp_multicast` in [ndn]".into(),
            Self::KernelCache(KernelCacheError::Attach { .. }) => {
                "write another port or `mode` in [ndn.kernel_cache], or take the other program off"
                    .into()
            }
            Self::KernelCache(_) => {
                "run as root on Linux 6.6 or newer, or remove [ndn.kernel_cache]".into()
            }
            Self::Kernel(_) => "raise the limit of open files (`ulimit -n`)".into(),
            Self::Disk(content_store::DiskError::Small { has, .. }) => {
                format!("write `cache_disk_bytes = {has}` or less in [ndn]")
            }
            Self::Disk(content_store::DiskError::Foreign(_)) => {
                "write another `cache_disk` in [ndn]; if nobody needs what is there, remove the file, or run `wipefs -a` \
                 and `blkdiscard -z` on the device"
                    .into()
            }
            Self::Disk(_) => "write another `cache_disk` in [ndn], or remove it".into(),
            Self::Store(_) => "write other `cache_packets` or `cache_bytes` in [ndn]".into(),
            Self::FaceUri { .. } | Self::Strategy { .. } | Self::Name(_) | Self::Key(_) => {
                return None;
            }
        })
    }
}

/// The forwarder of a node, before and while it runs.
#[derive(Debug)]
pub struct Ndn {
    /// Each worker's part, until its graph is built.
    parts: Mutex<Vec<Option<Part>>>,
    queues: Mutex<Vec<SignalQueue>>,
    manager: Mutex<Option<Manager>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Arc<AtomicBool>,
    bell: Arc<Doorbell>,
    asked: manager::Asked,
    kernel: Option<Arc<Kernel>>,
    /// What is to be done once the workers ended.
    last: Mutex<Option<LastSpill>>,
}

/// What a worker's node is made of.
#[derive(Debug)]
struct Part {
    forwarder: Forwarder<NodeStore>,
    outputs: Outputs,
    inboxes: Vec<Inbox>,
    commands: Commands,
    ears: Arc<Ears>,
    ready: Ready,
    port: PortId,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all workers begin with.
struct Ground {
    partition: Partition,
    config: ForwarderConfig,
    store: content_store::ContentStore,
    seed: u64,
    now: Instant,
}

/// How one worker is reached.
struct Wires {
    epoll: Arc<Epoll>,
    ears: Arc<Ears>,
    ready: Ready,
}

impl Ndn {
    /// Makes the forwarder of a configuration, if it has one: opens its sockets and takes its memory.
    /// `signal_port` is the number of the port that wakes the workers, `seed` is random.
    ///
    /// # Errors
    /// [`NdnError`].
    pub(crate) fn prepare(
        config: &Config,
        plan: &Plan,
        forwarding: &Forwarding,
        workers: u16,
        signal_port: PortId,
        seed: u64,
        kernel: Option<Kernel>,
    ) -> Result<Option<Self>, NdnError> {
        let Some(ndn) = &config.ndn else {
            return Ok(None);
        };
        let now = io::cpu::now();
        let ground = ground(ndn, workers, seed, now)?;
        let refused = |error: std::io::Error| NdnError::Kernel(error);
        let (events, from_workers) = sync_channel(EVENTS_MAX);
        let bell = Arc::new(Doorbell::new().map_err(refused)?);
        let to_manager = ToManager {
            events,
            bell: Arc::clone(&bell),
        };
        let wires = (0..workers)
            .map(|_| wires().map_err(refused))
            .collect::<Result<Vec<_>, _>>()?;
        let ears: Vec<_> = wires.iter().map(|wires| Arc::clone(&wires.ears)).collect();
        let (udp, udp_addresses) = udp_sockets(ndn, workers)?;
        let kernel = kernel.map(Arc::new);
        let (filling, hot) = filling(kernel.as_ref(), &ground, &bell)
            .map_err(NdnError::Kernel)?
            .unzip();
        let mut parts = Vec::new();
        let mut queues = Vec::new();
        let mut to_workers = Vec::new();
        let meshes = message::mesh(&ears).into_iter().zip(udp);
        for (worker, ((mesh, sockets), wires)) in meshes.zip(wires).enumerate() {
            let (commands, incoming) = channel();
            to_workers.push(ToWorker {
                commands,
                ears: Arc::clone(&wires.ears),
            });
            queues.push(SignalQueue::new(
                signal_port,
                Arc::clone(&wires.epoll),
                Arc::clone(&wires.ears),
                Arc::clone(&wires.ready),
            ));
            let mut part = Part::new(worker, &ground, mesh, sockets, wires, &to_manager, incoming);
            if let Ok(part) = &mut part {
                part.forwarder.store_mut().hot = hot.clone();
            }
            let part = part.map_err(refused)?;
            parts.push(Some(Part {
                port: signal_port,
                ..part
            }));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let asked = manager::Asked::default();
        let many = many(ndn, &ground, to_workers, udp_addresses, filling).map_err(refused)?;
        let mut manager = Manager {
            management: management(config, ndn, &ground)?,
            many,
            partition: ground.partition.clone(),
            listeners: listeners(ndn)?,
            handshakes: websocket::Handshakes::default(),
            events: from_workers,
            bell: Arc::clone(&bell),
            stop: Arc::clone(&stop),
            asked: Arc::clone(&asked),
            wanted_faces: wanted_faces(config)?,
            wanted_routes: config.ndn_route.clone(),
            down: Vec::new(),
            retry_at: now,
            idle: Duration::from_secs(ndn.idle_s.into()),
            idle_look_at: now + Duration::from_secs(1),
            disk: disk_sync(ndn, &ground.store, now),
        };
        for listener in &manager.listeners {
            manager.many.channels.push(listener.uri());
        }
        strategies(config, &mut manager.many)?;
        if ndn.localhop {
            let hop = NextHop {
                face: FaceId::INTERNAL,
                cost: 0,
            };
            // An empty table has room.
            let _ = manager
                .many
                .add_next_hop(name("/localhop/nfd")?.as_ref(), hop, now);
        }
        for interface in &ndn.udp_multicast {
            let (face, socket, group) = listen::udp_group(interface)?;
            manager.many.add_group(face, socket, group, now);
        }
        ethernet_ports(ndn, plan, forwarding, &mut manager.many, now);
        Ok(Some(Self {
            parts: Mutex::new(parts),
            queues: Mutex::new(queues),
            manager: Mutex::new(Some(manager)),
            thread: Mutex::new(None),
            stop,
            bell,
            asked,
            kernel,
            last: Mutex::new(last_spill(ndn, &ground.store)),
        }))
    }

    /// Makes the node of a worker; `None` if it was made already.
    pub fn node(
        &self,
        worker: WorkerId,
        forwarding: &Arc<Forwarding>,
    ) -> Option<Box<dyn graph::Node>> {
        let part = lock(&self.parts).get_mut(worker.index())?.take()?;
        Some(Box::new(NdnNode {
            worker: worker.index(),
            port: part.port,
            forwarder: part.forwarder,
            outputs: part.outputs,
            inboxes: part.inboxes,
            commands: part.commands,
            ears: part.ears,
            ready: part.ready,
            burst: Some(Burst::new()),
            peers: HashMap::new(),
            forwarding: Arc::clone(forwarding),
            whole: Vec::new(),
            links_due: None,
        }))
    }

    /// Takes the queues that wake the workers, by worker.
    pub fn take_queues(&self) -> Vec<Box<dyn Queue>> {
        let queues = core::mem::take(&mut *lock(&self.queues));
        let boxed = queues
            .into_iter()
            .map(|queue| Box::new(queue) as Box<dyn Queue>);
        boxed.collect()
    }

    /// Starts management, once the workers run.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(&self) -> std::io::Result<()> {
        let Some(manager) = lock(&self.manager).take() else {
            return Ok(());
        };
        let thread = std::thread::Builder::new()
            .name("ndn-manager".into())
            .spawn(move || manager.run())?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Ends management; sockets that clients connect to are removed.
    pub fn stop(&self) {
        if let Some(kernel) = &self.kernel {
            kernel.detach();
        }
        // Release, partner the manager's loop.
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic there has been reported.
            let _ = thread.join();
        }
    }

    /// Writes what the content store has in memory to its disk tier, within the time that the configuration allows.
    /// Call it once the workers ended.
    pub(crate) fn spill(&self) {
        if let Some(spill) = lock(&self.last).take() {
            spill.run();
        }
    }

    /// Tells the kernel's cache what a new configuration changed of the ports.
    pub(crate) fn update(&self, forwarding: &Forwarding) {
        if let Some(kernel) = &self.kernel {
            kernel.update(forwarding);
        }
    }

    /// Reads the figures; `None` if management does not answer.
    pub fn info(&self) -> Option<NdnInfo> {
        if lock(&self.thread).is_none() {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        lock(&self.asked).push(reply);
        self.bell.ring();
        answer.recv_timeout(ANSWER_PATIENCE).ok()
    }
}

impl Part {
    fn new(
        worker: usize,
        ground: &Ground,
        (peers, inboxes): (Vec<Option<Outbox>>, Vec<Inbox>),
        sockets: Vec<UdpSocket>,
        wires: Wires,
        manager: &ToManager,
        commands: Commands,
    ) -> std::io::Result<Self> {
        let mut udp = Vec::new();
        for (index, socket) in sockets.into_iter().enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, UDP_TOKEN + index as u64);
            wires.epoll.add(socket.as_fd(), event)?;
            let is_ipv6 = socket.local_addr()?.is_ipv6();
            udp.push((Arc::new(socket), Datagrams::new(is_ipv6)));
        }
        let mut shared = join(&ground.store)?;
        if ground.store.disk_stats().is_some() {
            let waker = Waker::from(Arc::clone(&wires.ears));
            shared.worker_mut().wake_after_reads(waker);
        }
        let store = NodeStore { shared, hot: None };
        let forwarder = Forwarder::new(
            worker,
            ground.partition.clone(),
            ground.config.clone(),
            store,
            ground.now,
        );
        let outputs = Outputs {
            links: Links::new(ground.config.faces),
            udp,
            peers,
            manager: manager.clone(),
            epoll: wires.epoll,
            dirty: Vec::new(),
            ended: Vec::new(),
            has_timers: false,
            drops: Box::new([0; wire::DropReason::COUNT]),
            rng: Rng::new(ground.seed ^ worker as u64),
        };
        Ok(Self {
            forwarder,
            outputs,
            inboxes,
            commands,
            ears: wires.ears,
            ready: wires.ready,
            port: PortId(0),
        })
    }
}

fn join(store: &content_store::ContentStore) -> std::io::Result<SharedStore> {
    let mut store = SharedStore::join(store).ok_or_else(no_place)?;
    // Nobody waits for one that looks at nothing.
    store.offline();
    Ok(store)
}

/// Returns what fills the kernel's cache, and what the workers need for it.
fn filling(
    kernel: Option<&Arc<Kernel>>,
    ground: &Ground,
    bell: &Arc<Doorbell>,
) -> std::io::Result<Option<(Filling, Hot)>> {
    let Some((kernel, cache)) = kernel.and_then(|kernel| Some((kernel, kernel.take_cache()?)))
    else {
        return Ok(None);
    };
    let worker = ground.store.join().ok_or_else(no_place)?;
    let mirror = kernel_cache::Mirror::new(cache, worker);
    let (names, hot) = sync_channel(HOT_MAX);
    let sender = Hot {
        watch: mirror.watch(),
        names,
        bell: Arc::clone(bell),
    };
    let filling = Filling {
        kernel: Arc::clone(kernel),
        mirror,
        hot,
        sweep_at: ground.now,
    };
    Ok(Some((filling, sender)))
}

fn no_place() -> std::io::Error {
    std::io::Error::other("the content store has no place for a worker")
}

fn ground(ndn: &NdnConfig, workers: u16, seed: u64, now: Instant) -> Result<Ground, NdnError> {
    let mut rng = Rng::new(seed);
    let hasher = NameHasher::new([rng.next_u64(), rng.next_u64()]);
    let partition = Partition::new(
        workers.clamp(1, 64).into(),
        hasher,
        (ndn.pit_entries as usize).min(1 << 20),
    );
    let hash = content_store::NameHash::Keyed([rng.next_u64(), rng.next_u64()]);
    let packets = ndn.cache_packets as usize;
    let bytes = match ndn.cache_bytes {
        0 => u64::from(ndn.cache_packets) * BYTES_A_PACKET,
        bytes => bytes,
    };
    // The workers, management, and what fills the kernel's cache.
    let places = usize::from(workers) + 1 + usize::from(ndn.kernel_cache.is_some());
    let store = content_store::ContentStore::new(&content_store::Config {
        bytes: (bytes as usize).max(64 << 20),
        policy: policy(ndn.cache_policy),
        // The forwarder decides.
        unsolicited: content_store::UnsolicitedPolicy::AdmitAll,
        ..content_store::Config::for_packets(packets, places, hash)
    })?;
    if let Some(path) = &ndn.cache_disk {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let epoch = epoch.map_or(0, |since| since.as_nanos() as u64);
        let epoch = epoch.saturating_sub(io::cpu::now().as_ns());
        let disk = content_store::DiskConfig::new(path.clone(), ndn.cache_disk_bytes, epoch);
        store.open_disk(&disk)?;
    }
    let regions = ndn.regions.iter().map(|region| name(region));
    let config = ForwarderConfig {
        faces: ndn.faces as usize,
        pit_entries: ndn.pit_entries as usize,
        fib_prefixes: ndn.fib_prefixes as usize,
        unsolicited: match ndn.unsolicited {
            UnsolicitedConfig::DropAll => UnsolicitedPolicy::DropAll,
            UnsolicitedConfig::AdmitLocal => UnsolicitedPolicy::AdmitLocal,
            UnsolicitedConfig::AdmitNetwork => UnsolicitedPolicy::AdmitNetwork,
            UnsolicitedConfig::AdmitAll => UnsolicitedPolicy::AdmitAll,
        },
        regions: regions.collect::<Result<_, _>>()?,
        seed: rng.next_u64(),
        ..ForwarderConfig::default()
    };
    Ok(Ground {
        partition,
        config,
        store,
        seed: rng.next_u64(),
        now,
    })
}

fn name(uri: &str) -> Result<Name, NdnError> {
    uri.parse().map_err(|_| NdnError::Name(uri.to_owned()))
}

const fn policy(policy: CachePolicy) -> content_store::Policy {
    match policy {
        CachePolicy::S3Fifo => content_store::Policy::S3Fifo,
        CachePolicy::Fifo => content_store::Policy::Fifo,
        CachePolicy::Clock => content_store::Policy::Clock,
        CachePolicy::Lru => content_store::Policy::Lru,
        CachePolicy::PriorityFifo => content_store::Policy::PriorityFifo,
    }
}

fn wires() -> std::io::Result<Wires> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let ears = Ears::new()?;
    let event = EpollEvent::new(EpollFlags::EPOLLIN, BELL_TOKEN);
    epoll.add(ears.bell.as_fd(), event)?;
    Ok(Wires {
        epoll: Arc::new(epoll),
        ears: Arc::new(ears),
        ready: Ready::default(),
    })
}

/// The UDP sockets of each worker, and the addresses that they have.
type UdpSockets = (Vec<Vec<UdpSocket>>, Vec<SocketAddr>);

fn udp_sockets(ndn: &NdnConfig, workers: u16) -> Result<UdpSockets, NdnError> {
    let mut by_worker: Vec<Vec<UdpSocket>> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for &address in &ndn.udp {
        let sockets = listen::udp(address, workers)?;
        let bound = sockets.first().and_then(|socket| socket.local_addr().ok());
        addresses.push(bound.unwrap_or(address));
        for (socket, of_worker) in sockets.into_iter().zip(&mut by_worker) {
            of_worker.push(socket);
        }
    }
    Ok((by_worker, addresses))
}

fn listeners(ndn: &NdnConfig) -> Result<Vec<Listener>, NdnError> {
    let unix = ndn.unix.iter().map(|path| Listener::unix(path));
    let tcp = ndn.tcp.iter().map(|address| Listener::tcp(*address));
    let websocket = ndn.websocket.iter();
    let websocket = websocket.map(|address| Listener::websocket(*address));
    unix.chain(tcp).chain(websocket).collect()
}

fn many(
    ndn: &NdnConfig,
    ground: &Ground,
    workers: Vec<ToWorker>,
    udp: Vec<SocketAddr>,
    kernel: Option<Filling>,
) -> std::io::Result<Many> {
    let hasher = ground.partition.hasher();
    let mut fib = Fib::new(ndn.fib_prefixes as usize + 2, hasher);
    if let Ok(prefix) = "/localhost/nfd".parse::<Name>() {
        // An empty table has room.
        let _ = fib.add(prefix.as_ref(), FaceId::INTERNAL, 0);
    }
    Ok(Many {
        workers,
        faces: Faces::new(ndn.faces as usize, ground.now),
        fib,
        choice: StrategyChoice::new(ground.config.strategy_choices, hasher),
        store: join(&ground.store)?,
        kernel,
        channels: udp
            .iter()
            .map(|address| FaceUri::Udp(*address).to_string())
            .collect(),
        udp,
        ports: Vec::new(),
        status: Many::status_of_nothing(),
        link_drops: Vec::new(),
        events: Vec::new(),
        next_worker: 0,
    })
}

fn management(
    config: &Config,
    ndn: &NdnConfig,
    ground: &Ground,
) -> Result<Management<KeyRing<PublicKey>>, NdnError> {
    let mut keys = KeyRing::new();
    if config.ndn_key.is_empty() {
        for module in MODULES {
            keys.allow_anyone(module);
        }
    }
    for key in &config.ndn_key {
        if key.certificate.as_os_str() == "any" {
            key.modules
                .iter()
                .for_each(|module| keys.allow_anyone(module));
            continue;
        }
        let (name, public_key) = read_certificate(&key.certificate)?;
        let modules: Vec<&str> = key.modules.iter().map(String::as_str).collect();
        keys.allow(name, public_key, &modules);
    }
    let management = ManagementConfig {
        version: format!("tidegate {}", env!("CARGO_PKG_VERSION")),
        start_unix_ms: manager::unix_ms(),
        routes: ground.config.fib_prefixes,
        localhop: ndn.localhop,
    };
    Ok(Management::new(management, keys))
}

fn wanted_faces(config: &Config) -> Result<Vec<FaceRequest>, NdnError> {
    let uris = config.ndn_face.iter().map(|face| &face.remote);
    for uri in uris.chain(config.ndn_route.iter().map(|route| &route.face)) {
        uri.parse::<FaceUri>().map_err(|source| NdnError::FaceUri {
            uri: uri.clone(),
            source,
        })?;
    }
    let requests = config.ndn_face.iter().map(|face| FaceRequest {
        remote_uri: face.remote.clone(),
        local_uri: face.local.clone(),
        change: FaceChange {
            persistency: face.permanent.then_some(Persistency::Permanent),
            reliability: Some(face.reliability),
            congestion_marking: Some(face.congestion_marking),
            mtu: face.mtu.map(u32::from),
            ..FaceChange::default()
        },
    });
    Ok(requests.collect())
}

fn strategies(config: &Config, many: &mut Many) -> Result<(), NdnError> {
    for choice in &config.ndn_strategy {
        let full = if choice.strategy.starts_with('/') {
            choice.strategy.clone()
        } else {
            format!("/localhost/nfd/strategy/{}", choice.strategy)
        };
        let (prefix, strategy) = (name(&choice.prefix)?, name(&full)?);
        many.set_strategy(prefix.as_ref(), strategy.as_ref())
            .map_err(|source| NdnError::Strategy {
                prefix: choice.prefix.clone(),
                strategy: choice.strategy.clone(),
                source,
            })?;
    }
    Ok(())
}

/// Makes the faces to the Ethernet groups of the ports that have such faces.
fn ethernet_ports(
    ndn: &NdnConfig,
    plan: &Plan,
    forwarding: &Forwarding,
    many: &mut Many,
    now: Instant,
) {
    for (index, port) in plan.ports.iter().enumerate() {
        let is_routed = matches!(port.role, PortRole::Routed(_));
        if !is_routed || !ndn.ethernet.contains(&port.name) {
            continue;
        }
        let id = PortId(index as u16);
        many.ports.push(EthernetPort {
            port: id,
            name: port.name.clone(),
            mtu: forwarding.ports().get(index).map_or(1500, |port| port.mtu),
        });
        many.channels
            .push(FaceUri::Device(port.name.clone()).to_string());
        many.add_ethernet_group(id, now);
    }
}
