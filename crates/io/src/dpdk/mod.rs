//! Driver `dpdk`: devices that a poll-mode driver of DPDK moves packets for, cards and virtual ones alike.
//!
//! It is in the program by the cargo feature `dpdk` (DPDK 22.11 or newer, by pkg-config). A slot of the frame
//! region is an object of a DPDK mempool, so that a frame is an `rte_mbuf` without a copy, also when another
//! driver received it. DPDK is started when the first port is opened, with arguments that the machine
//! suggests: nothing is written to disk, no device is taken that was not named, and without huge pages it
//! runs in normal memory.

use crate::interface::Link;

#[cfg(feature = "dpdk")]
#[expect(unsafe_code, reason = "starts DPDK's environment, once")]
mod eal;
#[cfg(feature = "dpdk")]
#[expect(unsafe_code, reason = "declares the functions of the C shim")]
mod ffi;
#[cfg(feature = "dpdk")]
#[expect(
    unsafe_code,
    reason = "reads and writes the fields of the mbuf in front of a frame"
)]
mod mbuf;
#[cfg(feature = "dpdk")]
#[expect(
    unsafe_code,
    reason = "gives slots of the region to DPDK and takes them back"
)]
mod mempool;
#[cfg(feature = "dpdk")]
#[expect(unsafe_code, reason = "calls DPDK to set a port up")]
mod open;
#[cfg(feature = "dpdk")]
#[expect(unsafe_code, reason = "finds memory that several processes share")]
pub mod process;
#[cfg(not(feature = "dpdk"))]
#[path = "absent.rs"]
pub mod process;
#[cfg(feature = "dpdk")]
#[expect(unsafe_code, reason = "calls DPDK to receive, send and sleep")]
mod queue;
mod sharing;

#[cfg(feature = "dpdk")]
pub(crate) use open::open;
#[cfg(feature = "dpdk")]
pub use open::status;

/// Settings of a `dpdk` port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkSpec {
    /// PCI address (`0000:03:00.0`) or virtual device with its arguments (`net_tap0,iface=tap0`), as DPDK
    /// writes them.
    pub device: String,
    /// Largest packet, bytes; default: the device's.
    pub mtu: Option<u16>,
    /// Descriptors of each receive and transmit queue; the device may round them.
    pub descriptors: u16,
}

impl DpdkSpec {
    /// Returns the usual settings for a device.
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            mtu: None,
            descriptors: 1024,
        }
    }
}

/// What a device tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Whether it has a link.
    pub link: Link,
    /// Its extended statistics (xstats) by the names that its driver gives them, most recent values.
    pub counters: Vec<(String, u64)>,
}

/// Says that there is no such device: the program has no DPDK in it.
#[cfg(not(feature = "dpdk"))]
pub fn status(_device: &str) -> Option<DeviceStatus> {
    None
}

/// Says that the program has no DPDK in it.
#[cfg(not(feature = "dpdk"))]
pub(crate) fn open(
    spec: &crate::port::PortSpec,
    settings: &DpdkSpec,
    _region: &std::sync::Arc<crate::pool::Region>,
    _workers: u16,
) -> Result<crate::port::OpenPort, crate::port::OpenError> {
    Err(crate::port::OpenError::unusable(
        &spec.name,
        format!(
            "{} needs a program with DPDK in it (`cargo build --release --features dpdk`, with libdpdk-dev)",
            settings.device
        ),
    ))
}
