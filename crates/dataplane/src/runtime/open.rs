//! From the configuration to open ports and memory for frames.

use std::sync::Arc;

use control::Config;
use control::config::{DpdkConfig, DriverConfig, HugePagesConfig, PortConfig};
use io::af_packet::AfPacketSpec;
use io::af_xdp::AfXdpSpec;
use io::dpdk::process::{self, SharedFrames, SharingError};
use io::dpdk::{DeviceStatus, DpdkSpec};
use io::interface::{Link, MacAddress};
use io::pcap::PcapSpec;
use io::port::{DriverSpec, OpenPort, PortSpec};
use io::tap::TapSpec;
use io::{Capabilities, HugePages, PageKind, Pool, PortId, Queue, Region};
use wire::MacAddr;

use super::StartError;
use super::watch::Source;
use super::workers::Links;
use crate::forwarding::PortFacts;
use crate::ndn::{Beside, Kernel, NdnError, Opened};

/// An open port as listings show it; the workers have its queues. Unlike these, it may be shared by
/// threads.
#[derive(Debug)]
pub(super) struct OpenedPort {
    pub(super) id: PortId,
    pub(super) mac: MacAddress,
    pub(super) mtu: u16,
    pub(super) interface: Option<String>,
    pub(super) driver: &'static str,
    pub(super) mode: String,
    pub(super) refused: Vec<String>,
    /// What each queue can do, in order.
    pub(super) queues: Vec<Capabilities>,
    link: Link,
}

/// The queues of a port, one a worker.
pub(super) type PortQueues = Vec<Box<dyn Queue>>;

impl OpenedPort {
    fn split(port: OpenPort) -> (Self, PortQueues) {
        let queues = port.queues.iter();
        let opened = Self {
            id: port.id,
            mac: port.mac,
            mtu: port.mtu,
            interface: port.interface,
            driver: port.driver,
            mode: port.mode,
            refused: port.refused,
            queues: queues.map(|queue| queue.capabilities().clone()).collect(),
            link: port.link,
        };
        (opened, port.queues)
    }

    /// Returns what the forwarding tables need to know.
    pub(super) fn facts(&self) -> PortFacts {
        PortFacts {
            mac: MacAddr(self.mac),
            mtu: self.mtu,
        }
    }

    /// Returns what the kernel's cache needs to know.
    pub(super) fn beside<'a>(&'a self, config: &'a PortConfig) -> Opened<'a> {
        Opened {
            config,
            index: self.id.index(),
            interface: self.interface.as_deref(),
            driver: self.driver,
            mode: &self.mode,
        }
    }

    /// Returns what was known of the port when it was opened.
    pub(super) fn first_status(&self) -> DeviceStatus {
        DeviceStatus {
            link: self.link,
            ..DeviceStatus::default()
        }
    }

    /// Tells who knows the state of the port.
    pub(super) fn source(&self, config: &PortConfig) -> Source {
        let device = config.device.clone();
        Source {
            interface: self.interface.clone(),
            device: device.filter(|_| self.driver == "dpdk"),
        }
    }
}

/// Maps the memory for frames, one pool a worker; the kernel fills it in while the ports are opened.
pub(super) fn pools(config: &Config, workers: u16) -> Result<Vec<Pool>, StartError> {
    let node = &config.node;
    if let Some(dpdk) = &config.dpdk {
        return shared_pools(dpdk, config, workers).map_err(|source| StartError::Sharing {
            group: dpdk.group.clone(),
            source,
        });
    }
    let huge = match node.huge_pages {
        HugePagesConfig::Auto => HugePages::Auto,
        HugePagesConfig::Require => HugePages::Require,
        HugePagesConfig::Never => HugePages::Never,
    };
    Ok(Pool::split_early(
        node.frames_per_worker,
        workers,
        node.frame_bytes,
        huge,
    )?)
}

/// Makes memory for the frames of this node and its guests in DPDK's, or finds a guest's part of it.
fn shared_pools(
    dpdk: &DpdkConfig,
    config: &Config,
    workers: u16,
) -> Result<Vec<Pool>, SharingError> {
    if let Some(guest) = dpdk.guest {
        return process::join(&dpdk.group, guest).map(|pool| vec![pool]);
    }
    let frames = SharedFrames {
        frames_per_worker: config.node.frames_per_worker,
        frame_bytes: config.node.frame_bytes,
        workers,
        guests: dpdk.guests,
    };
    process::host(&dpdk.group, frames)
}

/// Returns the kind of pages in force, and why better ones were refused.
pub(super) fn pages(kind: PageKind) -> (&'static str, Option<&'static str>) {
    let refused = "no huge pages are reserved (write a number to /proc/sys/vm/nr_hugepages)";
    match kind {
        PageKind::Huge => ("huge 2 MiB", None),
        PageKind::Transparent => (
            "normal 4 KiB, merged by the kernel where it can",
            Some(refused),
        ),
        PageKind::Normal => ("normal 4 KiB", Some(refused)),
    }
}

/// Opens all ports.
pub(super) fn ports(
    config: &Config,
    links: &Links,
    region: &Arc<Region>,
    workers: u16,
    kernel: Option<&Kernel>,
) -> Result<(Vec<OpenedPort>, Vec<PortQueues>), StartError> {
    config
        .port
        .iter()
        .enumerate()
        .map(|(i, port)| {
            let beside = kernel.map(|kernel| kernel.beside(port)).transpose();
            let beside = beside.map_err(NdnError::from)?.unwrap_or_default();
            let driver = driver(config, port, links, beside)?;
            let spec = PortSpec::new(PortId(i as u16), &*port.name, driver);
            let port = io::port::open(&spec, region, workers)?;
            Ok(OpenedPort::split(port))
        })
        .collect()
}

/// Entries of a queue's rings: as many as leave half of a worker's frames for packets inside the node.
pub(super) fn ring_entries(config: &Config) -> u32 {
    let rings = config.port.len().max(1) as u32 * 2;
    let share = config.node.frames_per_worker / 2 / rings;
    // The largest power of two that is not more than the share.
    (1 << share.max(1).ilog2()).clamp(64, 2048)
}

fn driver(
    config: &Config,
    port: &PortConfig,
    links: &Links,
    beside: Beside,
) -> Result<DriverSpec, StartError> {
    let interface = port.interface.as_ref().unwrap_or(&port.name);
    let xdp = |packet_filter| AfXdpSpec {
        ring_entries: ring_entries(config),
        front: beside.front,
        packet_filter,
        ..AfXdpSpec::new(interface)
    };
    Ok(match port.driver {
        DriverConfig::Auto => DriverSpec::Auto(xdp(beside.filter)),
        DriverConfig::AfXdp => DriverSpec::AfXdp(xdp(None)),
        DriverConfig::AfPacket => DriverSpec::AfPacket(AfPacketSpec {
            filter: beside.filter,
            ..AfPacketSpec::new(interface)
        }),
        DriverConfig::Tap => DriverSpec::Tap(TapSpec {
            mtu: port.mtu,
            ..TapSpec::new(interface)
        }),
        DriverConfig::Pcap => DriverSpec::Pcap(pcap(port)),
        DriverConfig::Dpdk => DriverSpec::Dpdk(DpdkSpec {
            mtu: port.mtu,
            descriptors: ring_entries(config) as u16,
            ..DpdkSpec::new(port.device.clone().unwrap_or_default())
        }),
        DriverConfig::Mem => match links.get(&port.name) {
            Some(end) => DriverSpec::Mem(end.clone()),
            None => {
                return Err(StartError::MemDriver {
                    port: port.name.clone(),
                });
            }
        },
    })
}

/// A file that is there is replayed, once and as fast as the node takes it; one that is not is recorded.
fn pcap(port: &PortConfig) -> PcapSpec {
    let file = port.file.clone().unwrap_or_default();
    if file.exists() {
        return PcapSpec::replay(file);
    }
    PcapSpec {
        record: Some(file),
        ..PcapSpec::default()
    }
}
