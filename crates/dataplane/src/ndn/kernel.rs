//! The part of the content store in the kernel's packet path: made and attached at start, filled by the manager.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::Config;
use control::api::{NdnKernelInfo, NdnKernelOutcome, NdnKernelPort};
use control::config::{DriverConfig, KernelCacheConfig, KernelCacheMode, PortConfig};
use io::af_packet::PacketFilter;
use io::bpf::Front;
use io::ethtool::Ethtool;
use io::interface::Interface;
use kernel_cache::shared::layout::PortRow;
use kernel_cache::{
    AttachError, Cache, Hook, KernelCache, LoadError, Mirror, Outcome, Port, Sizes,
};
use wire::Instant;
use wire::ndn::NameRef;

use super::lock;
use crate::forwarding::Forwarding;

/// How often a part of the kernel's cache is compared with the store.
const SWEEP: Duration = Duration::from_secs(1);
/// Slots of that part.
const SWEEP_SLOTS: u32 = 4096;
/// Packets that are promoted in one turn.
const TURN: usize = 256;

/// Why there is no cache in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelCacheError {
    /// It cannot be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It cannot be on an interface.
    #[error("{interface}: {source}")]
    Attach {
        /// The interface.
        interface: String,
        /// Why.
        source: AttachError,
    },
    /// An interface is not there.
    #[error("there is no interface {interface} in this network namespace")]
    NoInterface {
        /// Its name.
        interface: String,
    },
}

/// What a port's driver needs, so that the kernel answers beside it.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// For AF_XDP.
    pub(crate) front: Option<Front>,
    /// For AF_PACKET.
    pub(crate) filter: Option<PacketFilter>,
}

/// A port of the node, as it was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened<'a> {
    /// Its configuration.
    pub(crate) config: &'a PortConfig,
    /// Its place among the ports.
    pub(crate) index: usize,
    /// The kernel's interface.
    pub(crate) interface: Option<&'a str>,
    /// The driver.
    pub(crate) driver: &'static str,
    /// The driver's mode.
    pub(crate) mode: &'a str,
}

/// The cache of a node, with the ports on which it answers.
#[derive(Debug)]
pub(crate) struct Kernel {
    kernel: Mutex<KernelCache>,
    attached: Mutex<Vec<Port>>,
    /// Until the manager has it.
    cache: Mutex<Option<Cache>>,
    config: KernelCacheConfig,
    memory_bytes: u64,
    shown: Vec<NdnKernelPort>,
    /// Places of the node's ports and their interfaces.
    served: Vec<(usize, u32)>,
}

impl Kernel {
    /// Takes the memory of the cache that a configuration asks for, if it does.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn load(config: &Config) -> Result<Option<Self>, KernelCacheError> {
        let wanted = config.ndn.as_ref().and_then(|ndn| ndn.kernel_cache.clone());
        let Some(config) = wanted else {
            return Ok(None);
        };
        let bytes = match config.bytes {
            0 => u64::MAX,
            bytes => bytes,
        };
        let sizes = Sizes::within(config.packets, bytes);
        let (kernel, cache) = KernelCache::load(sizes)?;
        Ok(Some(Self {
            kernel: Mutex::new(kernel),
            attached: Mutex::new(Vec::new()),
            cache: Mutex::new(Some(cache)),
            config,
            memory_bytes: sizes.bytes(),
            shown: Vec::new(),
            served: Vec::new(),
        }))
    }

    /// Returns what the driver of a port needs before it is opened.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn beside(&self, port: &PortConfig) -> Result<Beside, KernelCacheError> {
        let interface = port.interface.as_ref().unwrap_or(&port.name);
        // Where there is none, the driver says so.
        let Ok(found) = Interface::get(interface) else {
            return Ok(Beside::default());
        };
        if !self.config.ports.contains(&port.name) {
            return Ok(Beside::default());
        }
        let mut kernel = lock(&self.kernel);
        let (mode, driver) = (self.config.mode, port.driver);
        let is_xdp = driver != DriverConfig::AfPacket && mode != KernelCacheMode::Tc;
        let is_packet = driver != DriverConfig::AfXdp && mode != KernelCacheMode::Xdp;
        let front = is_xdp.then(|| kernel.front(&row(&found)));
        let front = front.transpose().map_err(at(interface))?;
        let filter = is_packet.then(|| kernel.packet_filter()).transpose()?;
        Ok(Beside { front, filter })
    }

    /// Attaches the programs, now that the ports are open.
    ///
    /// # Errors
    /// The kernel's refusal; somebody else's program.
    pub(crate) fn attach(
        &mut self,
        ports: &[Opened<'_>],
        forwarding: &Forwarding,
    ) -> Result<(), KernelCacheError> {
        for port in ports {
            let (true, Some(interface)) = (
                self.config.ports.contains(&port.config.name),
                port.interface,
            ) else {
                continue;
            };
            let found = interface_of(interface)?;
            let mut row = row(&found);
            if let Some(known) = forwarding.ports().get(port.index) {
                row = PortRow::new(found.index, known.mac.0, known.mtu.into());
            }
            self.served.push((port.index, found.index));
            let (mode, why) = if port.driver == "af_xdp" {
                let added = lock(&self.kernel).add_port(&row);
                added.map_err(at(interface))?;
                let why = format!("in front of the port's AF_XDP sockets ({})", port.mode);
                ("af_xdp", why)
            } else if self.config.mode == KernelCacheMode::Xdp {
                self.attach_xdp(interface, &row)?
            } else {
                let hook = Hook::Ingress;
                self.attach_one(interface, &row, hook)?;
                let why = "a filter keeps from the packet sockets what is answered";
                (hook.name(), why.to_owned())
            };
            self.show(&port.config.name, mode, why);
        }
        for interface in self.config.interfaces.clone() {
            let row = row(&interface_of(&interface)?);
            let (mode, why) = match self.config.mode {
                KernelCacheMode::Xdp => self.attach_xdp(&interface, &row)?,
                KernelCacheMode::Tc => {
                    self.attach_one(&interface, &row, Hook::Ingress)?;
                    (Hook::Ingress.name(), "the configuration says so".to_owned())
                }
                KernelCacheMode::Auto => self.attach_best(&interface, &row)?,
            };
            self.show(&interface, mode, why);
        }
        Ok(())
    }

    fn show(&mut self, name: &str, mode: &str, why: String) {
        tracing::info!(port = name, mode, why, "the kernel answers Interests");
        self.shown.push(NdnKernelPort {
            name: name.to_owned(),
            mode: mode.to_owned(),
            why,
        });
    }

    fn attach_one(
        &self,
        interface: &str,
        row: &PortRow,
        hook: Hook,
    ) -> Result<(), KernelCacheError> {
        let port = lock(&self.kernel)
            .attach(row, hook)
            .map_err(at(interface))?;
        lock(&self.attached).push(port);
        Ok(())
    }

    /// In the driver, or else behind it.
    fn attach_xdp(
        &self,
        interface: &str,
        row: &PortRow,
    ) -> Result<(&'static str, String), KernelCacheError> {
        match self.attach_one(interface, row, Hook::Native) {
            Ok(()) => Ok((Hook::Native.name(), "the configuration says so".to_owned())),
            Err(KernelCacheError::Attach {
                source: AttachError::Bpf(error),
                ..
            }) => {
                self.attach_one(interface, row, Hook::Generic)?;
                Ok((Hook::Generic.name(), format!("not in the driver: {error}")))
            }
            Err(error) => Err(error),
        }
    }

    /// In the driver where its frames have room, else at TC.
    fn attach_best(
        &self,
        interface: &str,
        row: &PortRow,
    ) -> Result<(&'static str, String), KernelCacheError> {
        let driver = Ethtool::open(interface).and_then(|tool| tool.driver());
        let why = if driver.is_ok_and(|driver| driver == "veth") {
            "frames of a veth device have no room for replies in XDP".to_owned()
        } else {
            match self.attach_one(interface, row, Hook::Native) {
                Ok(()) => {
                    return Ok((Hook::Native.name(), "the driver has XDP".to_owned()));
                }
                Err(KernelCacheError::Attach { source, .. }) => {
                    format!("not in the driver: {source}")
                }
                Err(error) => return Err(error),
            }
        };
        self.attach_one(interface, row, Hook::Ingress)?;
        Ok((Hook::Ingress.name(), why))
    }

    /// Takes new addresses and lengths of frames of the node's ports.
    pub(crate) fn update(&self, forwarding: &Forwarding) {
        let mut kernel = lock(&self.kernel);
        for (index, ifindex) in &self.served {
            if let Some(port) = forwarding.ports().get(*index) {
                let row = PortRow::new(*ifindex, port.mac.0, port.mtu.into());
                if let Err(error) = kernel.add_port(&row) {
                    tracing::warn!(%error, "the kernel's cache keeps the old address of a port");
                }
            }
        }
    }

    /// Takes the programs off the interfaces.
    pub(super) fn detach(&self) {
        lock(&self.attached).clear();
    }

    /// Gives the cache to who fills it; once.
    pub(super) fn take_cache(&self) -> Option<Cache> {
        lock(&self.cache).take()
    }
}

/// The cache as the manager has it.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) kernel: Arc<Kernel>,
    pub(super) mirror: Mirror,
    /// Names of packets that were asked for again.
    pub(super) hot: Receiver<Vec<u8>>,
    pub(super) sweep_at: Instant,
}

impl Filling {
    /// Promotes what is hot; true if something was.
    pub(super) fn promote(&mut self) -> bool {
        let mut any = false;
        for _ in 0..TURN {
            let Ok(name) = self.hot.try_recv() else {
                break;
            };
            any = true;
            if let Ok(name) = NameRef::new(&name) {
                self.mirror.promote(&name);
            }
        }
        any
    }

    /// Compares a part with the store if it is time.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP;
            self.mirror.sweep(SWEEP_SLOTS);
        }
    }

    /// Returns the figures.
    pub(super) fn info(&self) -> NdnKernelInfo {
        let (cache, counts) = (self.mirror.cache(), self.mirror.counts());
        let kernel = lock(&self.kernel.kernel);
        let frames = kernel.outcomes().unwrap_or_default();
        let outcomes = || Outcome::ALL.into_iter().zip(frames);
        let sum = |wanted: fn(Outcome) -> bool| -> u64 {
            let found = outcomes().filter(|(outcome, _)| wanted(*outcome));
            found.map(|(_, frames)| frames).sum()
        };
        NdnKernelInfo {
            ports: self.kernel.shown.clone(),
            packets: cache.len() as u64,
            capacity_packets: cache.capacity() as u64,
            memory_bytes: self.kernel.memory_bytes,
            hits: sum(Outcome::is_hit),
            misses: sum(Outcome::is_miss),
            run_ns: kernel
                .runs()
                .ok()
                .and_then(|(runs, ns)| ns.checked_div(runs)),
            promoted: counts.promoted,
            removed: counts.removed,
            evicted: cache.evicted(),
            refused: counts.refused,
            outcomes: outcomes()
                .filter(|(_, frames)| *frames > 0)
                .map(|(outcome, frames)| {
                    let (name, text) = outcome.describe();
                    NdnKernelOutcome {
                        outcome: name.to_owned(),
                        text: text.to_owned(),
                        frames,
                    }
                })
                .collect(),
        }
    }
}

fn row(interface: &Interface) -> PortRow {
    PortRow::new(interface.index, interface.mac, interface.mtu)
}

fn interface_of(name: &str) -> Result<Interface, KernelCacheError> {
    Interface::get(name).map_err(|_| KernelCacheError::NoInterface {
        interface: name.to_owned(),
    })
}

fn at(interface: &str) -> impl Fn(AttachError) -> KernelCacheError {
    let interface = interface.to_owned();
    move |source| KernelCacheError::Attach {
        interface: interface.clone(),
        source,
    }
}
