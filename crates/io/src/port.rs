//! Opens a port: all its queues, for all workers, with one driver.
//!
//! ```
//! use io::port::{DriverSpec, PortSpec};
//! use io::{Batch, HugePages, Pool, PortId, mem};
//!
//! let mut pool = Pool::new(64, 2048, HugePages::Auto)?;
//! let (left, right) = mem::link(mem::LinkSpec::default());
//! let spec = |id, end| PortSpec::new(PortId(id), "wire", DriverSpec::Mem(end));
//! let mut a = io::port::open(&spec(0, left), pool.region(), 1)?;
//! let mut b = io::port::open(&spec(1, right), pool.region(), 1)?;
//!
//! let mut frame = pool.alloc().ok_or("pool is empty")?;
//! frame.fill(b"dddddd ssssss tt hello");
//! let mut batch = Batch::new();
//! batch.push(frame).map_err(|_| "batch is full")?;
//! a.queues[0].tx(&mut pool, &mut batch);
//! assert_eq!(b.queues[0].rx(&mut pool, &mut batch), 1);
//! pool.free_batch(&mut batch);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::sync::Arc;

use crate::ids::PortId;
use crate::interface::{Link, MacAddress};
use crate::pool::Region;
use crate::queue::Queue;
use crate::{af_packet, af_xdp, dpdk, mem, null, pcap, tap};

/// A port to open.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// The port's index in the node; received frames carry it as `rx_port`.
    pub id: PortId,
    /// The port's name in the configuration, for messages.
    pub name: String,
    /// The driver and its settings.
    pub driver: DriverSpec,
}

impl PortSpec {
    /// Names a port and its driver.
    pub fn new(id: PortId, name: impl Into<String>, driver: DriverSpec) -> Self {
        Self {
            id,
            name: name.into(),
            driver,
        }
    }
}

/// A driver and its settings.
#[derive(Clone, Debug)]
pub enum DriverSpec {
    /// One end of a link inside this process.
    Mem(mem::LinkEnd),
    /// AF_XDP on a kernel interface.
    AfXdp(af_xdp::AfXdpSpec),
    /// AF_XDP on a kernel interface, or AF_PACKET where it is refused; [`OpenPort::refused`] says why.
    Auto(af_xdp::AfXdpSpec),
    /// An endless source that is also a sink: the driver's cost is nearly nothing.
    Null(null::NullSpec),
    /// A kernel interface through mapped rings of packet sockets.
    AfPacket(af_packet::AfPacketSpec),
    /// An interface that this process creates.
    Tap(tap::TapSpec),
    /// Capture files.
    Pcap(pcap::PcapSpec),
    /// A device of DPDK.
    Dpdk(dpdk::DpdkSpec),
}

/// An open port.
#[derive(Debug)]
pub struct OpenPort {
    /// The port's index in the node.
    pub id: PortId,
    /// The port's name in the configuration.
    pub name: String,
    /// One queue a worker, in the order of the workers, where the driver can have as many; else fewer
    /// (at least one): the workers that have none get their share by software RSS.
    pub queues: Vec<Box<dyn Queue>>,
    /// The MAC address that the node should use on this port.
    pub mac: MacAddress,
    /// Largest packet that can be sent, bytes, without the Ethernet header.
    pub mtu: u16,
    /// The link at the time of opening; [`crate::interface::Interface::get`] tells it later.
    pub link: Link,
    /// The kernel's interface, where there is one.
    pub interface: Option<String>,
    /// The driver's name as in the configuration.
    pub driver: &'static str,
    /// The mode in force, e.g. `native copy need_wakeup`.
    pub mode: String,
    /// Drivers and modes that were tried before and refused, with the reason, in order.
    pub refused: Vec<String>,
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The interface is not there.
    #[error(
        "port {port}: there is no interface {interface} in this network namespace (`ip link` lists them)"
    )]
    NoInterface {
        /// The port's name.
        port: String,
        /// The interface's name.
        interface: String,
    },
    /// The kernel says that this user may not.
    #[error("port {port}: {doing} is not permitted (run as root, or in `unshare -Urn`)")]
    NotPermitted {
        /// The port's name.
        port: String,
        /// What was refused.
        doing: &'static str,
    },
    /// The kernel refused for another reason.
    #[error("port {port}: {doing} failed")]
    Os {
        /// The port's name.
        port: String,
        /// What was refused.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused every mode of AF_XDP.
    #[error("port {port}: AF_XDP on {interface} is refused in every mode: {}", reasons.join("; "))]
    EveryModeRefused {
        /// The port's name.
        port: String,
        /// The interface's name.
        interface: String,
        /// Why, a reason a mode, in order.
        reasons: Vec<String>,
    },
    /// The settings cannot work.
    #[error("port {port}: {reason}")]
    Unusable {
        /// The port's name.
        port: String,
        /// What is wrong and what would be right.
        reason: String,
    },
}

impl OpenError {
    /// Names what the kernel refused for a port.
    pub fn os(port: &str, doing: &'static str, source: io::Error) -> Self {
        let port = port.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { port, doing },
            _ => Self::Os {
                port,
                doing,
                source,
            },
        }
    }

    /// Says what is wrong with a port's settings.
    pub fn unusable(port: &str, reason: impl Into<String>) -> Self {
        Self::Unusable {
            port: port.to_owned(),
            reason: reason.into(),
        }
    }
}

/// Opens every queue of a port for `workers` workers whose pools are parts of `region`.
///
/// # Errors
/// What is missing, not permitted or refused; each with a remedy where there is one.
pub fn open(spec: &PortSpec, region: &Arc<Region>, workers: u16) -> Result<OpenPort, OpenError> {
    let workers = workers.max(1);
    match &spec.driver {
        DriverSpec::Mem(end) => mem::open(spec, end, region, workers),
        DriverSpec::AfXdp(xdp) => af_xdp::open(spec, xdp, region, workers),
        DriverSpec::Null(null) => null::open(spec, null, region, workers),
        DriverSpec::Tap(settings) => tap::open(spec, settings, region, workers),
        DriverSpec::Pcap(settings) => pcap::open(spec, settings, region),
        DriverSpec::AfPacket(settings) => {
            af_packet::open(spec, settings, region, workers, Vec::new())
        }
        DriverSpec::Dpdk(settings) => dpdk::open(spec, settings, region, workers),
        DriverSpec::Auto(xdp) => open_auto(spec, xdp, region, workers),
    }
}

/// Opens a port by AF_XDP, or by AF_PACKET where that is refused. AF_PACKET cannot leave packets to the
/// kernel, so that a filter makes the refusal an error.
fn open_auto(
    spec: &PortSpec,
    xdp: &af_xdp::AfXdpSpec,
    region: &Arc<Region>,
    workers: u16,
) -> Result<OpenPort, OpenError> {
    let refused = match af_xdp::open(spec, xdp, region, workers) {
        // port and interface are known where this is shown
        Err(OpenError::EveryModeRefused { reasons, .. })
            if xdp.filter == af_xdp::Filter::Everything =>
        {
            reasons
                .iter()
                .map(|reason| format!("af_xdp {reason}"))
                .collect()
        }
        Err(error @ (OpenError::Unusable { .. } | OpenError::NotPermitted { .. }))
            if xdp.filter == af_xdp::Filter::Everything =>
        {
            vec![format!("af_xdp: {error}")]
        }
        result => return result,
    };
    let settings = af_packet::AfPacketSpec {
        promiscuous: xdp.promiscuous,
        filter: xdp.packet_filter.clone(),
        ..af_packet::AfPacketSpec::new(&xdp.interface)
    };
    af_packet::open(spec, &settings, region, workers, refused)
}
