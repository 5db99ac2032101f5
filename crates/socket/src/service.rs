//! The host of a node: one graph node a worker, and the programs that use it.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::io::{WorkerId, cpu};
use control::api;
use graph::{Snapshot, Spread};
use stack::{Stack, StackConfig};
use tables::segment::{Segment, SegmentError};
use wire::{FlowSecret, MacAddr};

pub use crate::node::HostNode;

use crate::area::{Area, LAYOUT, Shape};
use crate::attachment::lock;
use crate::host::{limits, random, random_bytes};
use crate::node::{Attached, Attachments, Exit, HostCounters};

/// The routers that a host knows are its node, by these link-local addresses and this MAC address.
const ROUTER_V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 255, 254));
const ROUTER_V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfffe));
const ROUTER_MAC: MacAddr = MacAddr([2, b't', b'g', b'h', 0, 1]);
const HOST_MAC: MacAddr = MacAddr([2, b't', b'g', b'h', 0, 2]);
/// The most programs at a time.
const PROGRAMS_MAX: usize = 64;

/// What a node says of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Its addresses, which are the node's.
    pub addresses: Vec<IpAddr>,
    /// Sockets of a program, for each worker.
    pub sockets: u32,
    /// Bytes of a ring.
    pub ring_bytes: u32,
    /// Largest packet that it sends, bytes.
    pub mtu: u16,
    /// Workers of the node.
    pub workers: u16,
}

/// The host of a node.
#[derive(Debug)]
pub struct HostService {
    settings: ServiceSettings,
    shape: Shape,
    secret: [u8; 64],
    next: AtomicU64,
    programs: Mutex<Vec<Arc<Attached>>>,
    counters: Vec<Arc<HostCounters>>,
}

/// Why a program cannot have sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Enough have.
    #[error("{PROGRAMS_MAX} programs use the host already")]
    Full,
    /// There is no memory.
    #[error("no memory segment for the program")]
    Segment(#[from] SegmentError),
    /// There is no doorbell.
    #[error("no socket to wake workers by")]
    Bell(#[from] io::Error),
}

/// A program's part of a host, from the node's side; its files are removed when it is dropped.
#[derive(Debug)]
pub struct Program {
    id: u64,
    /// What the program is told.
    pub attachment: api::Attachment,
    segment: Segment,
}

impl Drop for Program {
    fn drop(&mut self) {
        // Somebody may have tidied up.
        let _ = self.segment.remove();
        for bell in &self.attachment.bells {
            let _ = std::fs::remove_file(bell);
        }
    }
}

impl HostService {
    /// Makes a host that nobody uses yet.
    pub fn new(settings: ServiceSettings) -> Self {
        let shape = Shape::new(settings.workers, settings.sockets, settings.ring_bytes);
        Self {
            counters: (0..shape.workers).map(|_| Arc::default()).collect(),
            settings,
            shape,
            secret: random_bytes(),
            next: AtomicU64::new(1),
            programs: Mutex::default(),
        }
    }

    /// Returns the key by which flows are spread over the workers.
    pub fn secret(&self) -> [u8; 64] {
        self.secret
    }

    /// Tells whether an address is one of the host's.
    pub fn has(&self, address: IpAddr) -> bool {
        self.settings.addresses.contains(&address)
    }

    /// Makes the graph node of a worker. It takes what is addressed to the host and sends by its edges `ip4` and
    /// `ip6` what is to be routed.
    pub fn graph_node(&self, worker: WorkerId) -> HostNode {
        let mut config = StackConfig::new(HOST_MAC, std::array::from_fn(|_| random()));
        config.mtu = self.settings.mtu;
        config.limits = limits(self.settings.sockets);
        // The node has verified them.
        config.verify_checksums = false;
        if self.shape.workers > 1 {
            let spread = Spread::new(FlowSecret::new(self.secret), self.shape.workers);
            config.owns_flow = Some(Box::new(move |key| spread.worker_of(key) == worker));
        }
        let now = cpu::now();
        let mut stack = Stack::new(config, now);
        for address in &self.settings.addresses {
            let (whole, router, any): (u8, _, IpAddr) = match address {
                IpAddr::V4(_) => (32, ROUTER_V4, std::net::Ipv4Addr::UNSPECIFIED.into()),
                IpAddr::V6(_) => (128, ROUTER_V6, std::net::Ipv6Addr::UNSPECIFIED.into()),
            };
            stack.add_address(*address, whole);
            stack.add_route(any, 0, Some(router));
            stack.set_neighbour(now, router, ROUTER_MAC);
        }
        let counters = self.counters.get(worker.index()).map(Arc::clone);
        HostNode::new(
            Exit::Router,
            stack,
            worker,
            self.shape.workers,
            None,
            counters.unwrap_or_default(),
        )
    }

    /// Makes the segment and doorbells for a program, named after `beside` (the control socket). Publish the
    /// [`snapshot`](Self::snapshot) next.
    ///
    /// # Errors
    /// Too many programs, or the system refuses.
    pub fn attach(&self, beside: &Path) -> Result<Program, AttachError> {
        let mut programs = lock(&self.programs);
        if programs.len() >= PROGRAMS_MAX {
            return Err(AttachError::Full);
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let shared = Path::new("/dev/shm");
        let directory = match shared.is_dir() {
            true => shared,
            false => beside.parent().unwrap_or(shared),
        };
        let path = directory.join(format!("tidegate-host-{}-{id}", std::process::id()));
        let segment = Segment::create(&path, self.shape.segment_bytes(), LAYOUT)?;
        let mut program = Program {
            id,
            attachment: api::Attachment {
                segment: path,
                bells: Vec::new(),
                sockets: self.shape.sockets,
                ring_bytes: self.shape.ring_bytes,
                mac: HOST_MAC.octets(),
                mtu: self.settings.mtu,
            },
            segment,
        };
        let area = Area::new(&program.segment, self.shape, true)?;
        let mut bells = Vec::new();
        for worker in 0..self.shape.workers {
            let path = bell_path(beside, id, worker);
            // One that a dead node left.
            let _ = std::fs::remove_file(&path);
            let bell = UnixDatagram::bind(&path)?;
            bell.set_nonblocking(true)?;
            program.attachment.bells.push(path);
            bells.push(bell);
        }
        programs.push(Arc::new(Attached {
            id,
            area: Arc::new(area),
            bells,
        }));
        Ok(program)
    }

    /// Ends a program's part: what it wrote is still sent. Publish the [`snapshot`](Self::snapshot) next.
    pub fn detach(&self, program: Program) {
        lock(&self.programs).retain(|attached| attached.id != program.id);
    }

    /// Returns what the graph nodes are to serve.
    pub fn snapshot(&self) -> Snapshot {
        Arc::new(Attachments(lock(&self.programs).clone()))
    }
}

fn bell_path(beside: &Path, id: u64, worker: u16) -> PathBuf {
    let mut name = beside.file_name().unwrap_or_default().to_owned();
    name.push(format!(".host-{id}-{worker}"));
    beside.with_file_name(name)
}
