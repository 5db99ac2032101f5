//! Opens a port: plugs the device in, configures it, and sets up a queue for each worker.

use std::ffi::CString;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use super::ffi::{self, PortFacts};
use super::queue::DpdkQueue;
use super::{DpdkSpec, eal, mempool};
use crate::interface::Link;
use crate::pool::{PREFIX_BYTES, Region};
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Capabilities, Interrupt, Queue};

/// Room that DPDK's drivers leave in front of a received frame, bytes (`RTE_PKTMBUF_HEADROOM`).
const MBUF_HEADROOM_BYTES: u32 = 128;
/// An Ethernet header with two VLAN tags, bytes.
const LINK_BYTES: u32 = 22;
/// Most extended statistics that are read of a device.
const EXTENDED_MAX: usize = 512;

/// What the queues of a port share.
#[derive(Debug)]
pub(super) struct Shared {
    /// DPDK's number of the port.
    pub(super) port: u16,
    /// Queues that have given the driver its first frames.
    pub(super) primed: AtomicU16,
    /// Queues that are not closed.
    pub(super) open: AtomicU16,
    /// All queues of the port.
    pub(super) queues: u16,
    /// [`WAITING`], [`RUNNING`] or [`FAILED`].
    pub(super) state: AtomicU8,
    /// Why the device did not start.
    pub(super) fault: OnceLock<String>,
    pools: Vec<mempool::WorkerPool>,
    rx_descriptors: u16,
    tx_descriptors: u16,
}

/// Not all queues have given frames.
pub(super) const WAITING: u8 = 0;
/// The port has been started.
pub(super) const RUNNING: u8 = 1;
/// The device refused to start, or the port is closed.
pub(super) const FAILED: u8 = 2;

impl Shared {
    /// Sets the queues up and starts the device; called by the queue that was the last to give frames, since
    /// drivers fill their rings here.
    pub(super) fn start(&self) {
        let state = match self.set_up() {
            Ok(()) => RUNNING,
            Err(reason) => {
                let _ = self.fault.set(reason);
                FAILED
            }
        };
        // Release: pairs with the Acquire in `DpdkQueue::begin`.
        self.state.store(state, Ordering::Release);
    }

    fn set_up(&self) -> Result<(), String> {
        for (queue, pool) in (0..self.queues).zip(&self.pools) {
            let (rx, tx) = (self.rx_descriptors, self.tx_descriptors);
            // SAFETY: the port is configured with `queues` queues; mempools are never freed.
            let error = unsafe { ffi::tg_port_queue(self.port, queue, pool.0, rx, tx) };
            failed("setting a queue up", error)?;
        }
        // SAFETY: the port exists and its queues have been set up.
        let error = unsafe { ffi::tg_port_start(self.port) };
        failed("starting the device", error)
    }
}

/// Turns an error number of DPDK's into a message; 0 is none.
fn failed(doing: &str, error: core::ffi::c_int) -> Result<(), String> {
    match error {
        0 => Ok(()),
        _ => Err(format!("{doing}: {}", ffi::error_text(error))),
    }
}

/// Plugs the device in and opens as many queues of it as it has, up to one a worker.
pub(crate) fn open(
    spec: &PortSpec,
    settings: &DpdkSpec,
    region: &Arc<Region>,
    workers: u16,
) -> Result<OpenPort, OpenError> {
    let unusable = |reason: String| OpenError::unusable(&spec.name, reason);
    let eal = eal::start().map_err(|reason| unusable(reason.to_owned()))?;
    let pools = mempool::pools(region, workers).map_err(unusable)?;
    let port = plug(&settings.device).map_err(|reason| {
        mempool::port_closed(region, |_| {});
        unusable(reason)
    })?;
    // SAFETY: DPDK knows this memory (`mempool::pools`); devices without DMA refuse, which is no fault.
    unsafe { ffi::tg_port_map(port, region.base().as_ptr().cast(), region.bytes()) };
    let made = configure(port, settings, region, &pools).map_err(|reason| {
        // SAFETY: the port exists and nobody else knows of it.
        unsafe { ffi::tg_port_unplug(port) };
        mempool::port_closed(region, |_| {});
        unusable(reason)
    })?;
    let memory = if eal.huge_pages {
        ""
    } else {
        ", no huge pages"
    };
    let driver = text(&made.facts.driver);
    let mode = format!("{driver}, {}{memory}", eal.version);
    let queues = made.queues(spec, &mode, region, &pools);
    Ok(OpenPort {
        id: spec.id,
        name: spec.name.clone(),
        queues,
        mac: made.facts.mac,
        mtu: made.mtu,
        link: if made.facts.link_up == 0 {
            Link::Down
        } else {
            Link::Up
        },
        interface: None,
        driver: "dpdk",
        mode,
        refused: Vec::new(),
    })
}

/// Plugs a device in and returns its port.
fn plug(device: &str) -> Result<u16, String> {
    let name = device.split(',').next().unwrap_or_default();
    let zero = |_| format!("the device `{device}` holds a zero byte");
    let (devargs, c_name) = (
        CString::new(device).map_err(zero)?,
        CString::new(name).map_err(zero)?,
    );
    let mut port = 0;
    // SAFETY: both strings end with a zero, and there is room for the number.
    let error = unsafe { ffi::tg_port_plug(devargs.as_ptr(), c_name.as_ptr(), &raw mut port) };
    if error == 0 {
        return Ok(port);
    }
    let remedy = if name.starts_with("net_") {
        "`dpdk-testpmd --vdev=...` takes the same text"
    } else {
        "bind it to vfio-pci: `dpdk-devbind.py --status` shows what it is bound to"
    };
    let reason = ffi::error_text(error);
    Err(format!(
        "DPDK has no device `{device}`: {reason} ({remedy})"
    ))
}

/// A configured port.
struct Configured {
    port: u16,
    facts: PortFacts,
    mtu: u16,
    interrupt: Interrupt,
    queues: u16,
    rx_descriptors: u16,
    tx_descriptors: u16,
}

fn configure(
    port: u16,
    settings: &DpdkSpec,
    region: &Region,
    pools: &[mempool::WorkerPool],
) -> Result<Configured, String> {
    let mut facts = PortFacts::default();
    // SAFETY: there is room for the facts.
    let error = unsafe { ffi::tg_port_facts(port, &raw mut facts) };
    failed("asking the device what it can do", error)?;
    let mtu = settings.mtu.unwrap_or(facts.mtu);
    let room = region.frame_bytes() - u32::from(PREFIX_BYTES) - MBUF_HEADROOM_BYTES;
    let needed = u32::from(mtu) + LINK_BYTES;
    if needed > room {
        return Err(format!(
            "packets of {mtu} bytes do not fit (set frame_bytes to {})",
            (needed + region.frame_bytes() - room).next_power_of_two()
        ));
    }
    let queues = (pools.len() as u16)
        .min(facts.max_rx_queues)
        .min(facts.max_tx_queues)
        .max(1);
    let mut interrupts = 0;
    let (mut rx, mut tx) = (settings.descriptors, settings.descriptors);
    // SAFETY: there is room for what is returned.
    let error = unsafe {
        ffi::tg_port_configure(
            port,
            queues,
            mtu,
            1,
            &raw mut interrupts,
            &raw mut rx,
            &raw mut tx,
        )
    };
    failed("configuring the device", error)?;
    Ok(Configured {
        port,
        mtu,
        interrupt: interrupt(&facts, interrupts != 0),
        facts,
        queues,
        rx_descriptors: rx,
        tx_descriptors: tx,
    })
}

/// Says how the driver wakes a sleeper as far as it is known before the device runs: by a descriptor that is
/// readable while frames wait (`net_tap`), or by an interrupt; [`DpdkQueue`] finds out whether there is one.
fn interrupt(facts: &PortFacts, configured: bool) -> Interrupt {
    match text(&facts.driver).as_str() {
        "net_tap" => Interrupt::Level,
        _ if configured => Interrupt::Edge,
        _ => Interrupt::None,
    }
}

impl Configured {
    fn queues(
        &self,
        spec: &PortSpec,
        mode: &str,
        region: &Arc<Region>,
        pools: &[mempool::WorkerPool],
    ) -> Vec<Box<dyn Queue>> {
        let shared = Arc::new(Shared {
            port: self.port,
            primed: AtomicU16::new(0),
            open: AtomicU16::new(self.queues),
            queues: self.queues,
            state: AtomicU8::new(WAITING),
            fault: OnceLock::new(),
            pools: pools.to_vec(),
            rx_descriptors: self.rx_descriptors,
            tx_descriptors: self.tx_descriptors,
        });
        let capabilities = Capabilities {
            driver: "dpdk",
            mode: mode.to_owned(),
            interrupt: self.interrupt,
            max_frame_bytes: (u32::from(self.mtu) + LINK_BYTES).min(u32::from(u16::MAX)) as u16,
            zero_copy: true,
            rss: self.facts.rss != 0 && self.queues > 1,
            refused: Vec::new(),
        };
        let queue = |(number, pool): (u16, &mempool::WorkerPool)| {
            Box::new(DpdkQueue::new(
                spec.id,
                number,
                *pool,
                &shared,
                region,
                self.rx_descriptors,
                self.facts.tx_checksums != 0,
                capabilities.clone(),
            )) as Box<dyn Queue>
        };
        (0..self.queues).zip(pools).map(queue).collect()
    }
}

/// Reads a string of C.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// Reads the extended statistics of a device that a port has opened, by the driver's names. Empty if there
/// is no such device.
pub fn extended_stats(device: &str) -> Vec<(String, u64)> {
    let name = device.split(',').next().unwrap_or_default();
    let Ok(name) = CString::new(name) else {
        return Vec::new();
    };
    if eal::start().is_err() {
        return Vec::new();
    }
    let mut port = 0;
    // SAFETY: the string ends with a zero, and there is room for the number.
    let error = unsafe { ffi::tg_port_find(name.as_ptr(), &raw mut port) };
    if error != 0 {
        return Vec::new();
    }
    let mut names = vec![[0; 64]; EXTENDED_MAX];
    let mut values = vec![0; EXTENDED_MAX];
    let room = EXTENDED_MAX as core::ffi::c_int;
    // SAFETY: there is room for `room` names and values.
    let count = unsafe { ffi::tg_port_xstats(port, names.as_mut_ptr(), values.as_mut_ptr(), room) };
    let count = usize::try_from(count).unwrap_or(0).min(EXTENDED_MAX);
    let named = names.iter().zip(values).take(count);
    named.map(|(name, value)| (text(name), value)).collect()
}
