//! Opens a port: plugs the device in, configures it, and sets up a queue for each worker.

use std::ffi::CString;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::ffi::{self, PortFacts};
use super::mempool::PortPools;
use super::process::Role;
use super::queue::{DpdkQueue, LEVEL_TARGET};
use super::{DeviceStatus, DpdkSpec, eal, mempool};
use crate::interface::Link;
use crate::pool::{PREFIX_BYTES, Region};
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Capabilities, Interrupt, Offloads, Queue};

/// Room that DPDK's drivers leave in front of a received frame, bytes (`RTE_PKTMBUF_HEADROOM`).
const MBUF_HEADROOM_BYTES: u32 = 128;
/// An Ethernet header with two VLAN tags, bytes.
const LINK_BYTES: u32 = 22;
/// Most extended statistics that are read of a device.
const EXTENDED_MAX: usize = 512;

/// Held while devices are plugged in, started, asked and unplugged: DPDK leaves that to who calls it.
static DEVICES: Mutex<()> = Mutex::new(());

/// What the queues of a port share.
#[derive(Debug)]
pub(super) struct Shared {
    /// DPDK's number of the port.
    pub(super) port: u16,
    /// Queues that have given the driver its first frames.
    pub(super) primed: AtomicU16,
    /// Queues that are not closed.
    pub(super) open: AtomicU16,
    /// Queues of this process.
    pub(super) queues: u16,
    /// Another process owns the device.
    pub(super) is_guest: bool,
    /// [`WAITING`], [`RUNNING`] or [`FAILED`].
    pub(super) state: AtomicU8,
    /// Why the device did not start.
    pub(super) fault: OnceLock<String>,
    /// Slots that each queue gives the driver before it starts.
    pub(super) start_slots: u32,
    /// One for each queue, also those of other processes.
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
        let _held = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Stops the device and unplugs it; no queue of it is used any more.
    pub(super) fn unplug(&self) {
        let _held = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the port exists until here, and nobody uses it.
        unsafe { ffi::tg_port_unplug(self.port) };
    }

    fn set_up(&self) -> Result<(), String> {
        for (queue, pool) in (0..).zip(&self.pools) {
            let (rx, tx) = (self.rx_descriptors, self.tx_descriptors);
            // SAFETY: the port is configured with a queue for each mempool, which are never freed.
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
    let _held = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let pools = mempool::pools(region, workers).map_err(unusable)?;
    let is_guest = eal::role() == Some(Role::Secondary);
    let found = match is_guest {
        true => find(&settings.device),
        false => plug(&settings.device),
    };
    let port = found.map_err(|reason| {
        mempool::port_closed(region, |_| {});
        unusable(reason)
    })?;
    // SAFETY: DPDK knows this memory (`mempool::pools`); devices without DMA refuse, which is no fault.
    unsafe { ffi::tg_port_map(port, region.base().as_ptr().cast(), region.bytes()) };
    let made = configure(port, settings, region, &pools).map_err(|reason| {
        if !is_guest {
            // SAFETY: the port exists and nobody else knows of it.
            unsafe { ffi::tg_port_unplug(port) };
        }
        mempool::port_closed(region, |_| {});
        unusable(reason)
    })?;
    let memory = if eal.huge_pages {
        ""
    } else {
        ", no huge pages"
    };
    let driver = text(&made.facts.driver);
    let offloads = made.offloads();
    let mut mode = format!("{driver}, {}{memory}", eal.version);
    for (offload, name) in [
        (Offloads::CHECKSUM, ", checksums by the card"),
        (Offloads::SEGMENT_IPV4, ", TSO"),
    ] {
        if offloads.contains(offload) {
            mode.push_str(name);
        }
    }
    if is_guest {
        mode.push_str(", of another process");
    }
    let queues = made.queues(spec, &mode, region, &pools);
    Ok(OpenPort {
        id: spec.id,
        name: spec.name.clone(),
        queues,
        mac: made.facts.mac,
        mtu: made.mtu,
        link: link(port),
        interface: kernel_interface(&settings.device),
        driver: "dpdk",
        mode,
        refused: Vec::new(),
    })
}

/// Returns the kernel's interface behind a device: these drivers say that its link is up whatever it is.
fn kernel_interface(device: &str) -> Option<String> {
    let mut words = device.split(',');
    let name = words.next()?;
    let has_one = name.starts_with("net_af_packet") || name.starts_with("net_af_xdp");
    let interface = words.find_map(|word| word.strip_prefix("iface="))?;
    has_one.then(|| interface.to_owned())
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

/// Finds a device that the primary process has plugged in; returns its port.
fn find(device: &str) -> Result<u16, String> {
    let name = device.split(',').next().unwrap_or_default();
    let c_name = CString::new(name).map_err(|_| format!("`{name}` holds a zero byte"))?;
    let mut port = 0;
    // SAFETY: the string ends with a zero, and there is room for the number.
    let error = unsafe { ffi::tg_port_find(c_name.as_ptr(), &raw mut port) };
    if error != 0 {
        return Err(format!(
            "the primary process has no device `{name}` (open it there first)"
        ));
    }
    // SAFETY: the port exists.
    match unsafe { ffi::tg_port_attached(port) } {
        0 => Err(format!(
            "the primary process had not started `{name}` when this one joined (start this one again)"
        )),
        _ => Ok(port),
    }
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
    pools: &PortPools,
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
    let able = facts.max_rx_queues.min(facts.max_tx_queues);
    let asked = pools.all.len() as u16;
    let (mut rx, mut tx) = (settings.descriptors, settings.descriptors);
    if eal::role() == Some(Role::Secondary) {
        return Ok(Configured {
            port,
            mtu: facts.mtu,
            interrupt: Interrupt::None,
            facts,
            queues: asked,
            rx_descriptors: rx,
            tx_descriptors: tx,
        });
    }
    if pools.own < asked && able < asked {
        return Err(format!(
            "the device has {able} queues, and {asked} are needed for workers and guests (take fewer guests)"
        ));
    }
    let queues = asked.min(able).max(1);
    let mut interrupts = 0;
    // SAFETY: there is room for what is returned.
    let error = unsafe {
        ffi::tg_port_configure(
            port,
            queues,
            mtu,
            &raw mut interrupts,
            &raw mut rx,
            &raw mut tx,
        )
    };
    failed("configuring the device", error)?;
    let wanted = pools.ports * start_slots(&facts, rx);
    let frames = region.frames() / u32::from(asked);
    if wanted + LEVEL_TARGET > frames {
        return Err(format!(
            "{} devices like this one take {wanted} of a worker's {frames} frames (set frames_per_worker to {})",
            pools.ports,
            2 * wanted
        ));
    }
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

/// Returns how many slots a driver may take when it starts, and for the first bursts.
fn start_slots(facts: &PortFacts, descriptors: u16) -> u32 {
    // net_af_xdp fills a ring of 2,048, whatever its descriptors.
    let least = match text(&facts.driver).as_str() {
        "net_af_xdp" => 2048,
        _ => 0,
    };
    u32::from(descriptors).max(least) + LEVEL_TARGET
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

/// Asks for the state of the link.
fn link(port: u16) -> Link {
    // SAFETY: it takes any number.
    match unsafe { ffi::tg_port_link(port) } {
        0 => Link::Down,
        1 => Link::Up,
        _ => Link::Unknown,
    }
}

impl Configured {
    fn offloads(&self) -> Offloads {
        let mut offloads = Offloads::empty();
        offloads.set(Offloads::CHECKSUM, self.facts.tx_checksums != 0);
        let segments = self.facts.tx_segments != 0;
        offloads.set(Offloads::SEGMENT_IPV4, segments);
        // net_tap cuts with DPDK's own GSO library, which has no TCP over IPv6.
        let ipv6 = segments && text(&self.facts.driver) != "net_tap";
        offloads.set(Offloads::SEGMENT_IPV6, ipv6);
        offloads
    }

    fn queues(
        &self,
        spec: &PortSpec,
        mode: &str,
        region: &Arc<Region>,
        pools: &PortPools,
    ) -> Vec<Box<dyn Queue>> {
        let own = pools.own.min(self.queues);
        let shared = Arc::new(Shared {
            port: self.port,
            primed: AtomicU16::new(0),
            open: AtomicU16::new(own),
            queues: own,
            is_guest: eal::role() == Some(Role::Secondary),
            state: AtomicU8::new(WAITING),
            fault: OnceLock::new(),
            start_slots: start_slots(&self.facts, self.rx_descriptors),
            pools: pools.all[..usize::from(self.queues)].to_vec(),
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
            offloads: self.offloads(),
            refused: Vec::new(),
        };
        let queue = |(number, pool): (u16, &mempool::WorkerPool)| {
            Box::new(DpdkQueue::new(
                spec.id,
                number,
                *pool,
                &shared,
                region,
                capabilities.clone(),
            )) as Box<dyn Queue>
        };
        let numbered = (0..self.queues).zip(&pools.all);
        let (first, own) = (pools.first.into(), own.into());
        numbered.skip(first).take(own).map(queue).collect()
    }
}

/// Reads a string of C.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// Asks a device that a port has opened what it counts and whether it has a link; `None` if there is no such
/// device (any more).
pub fn status(device: &str) -> Option<DeviceStatus> {
    let name = CString::new(device.split(',').next()?).ok()?;
    eal::start().ok()?;
    // The device is not unplugged meanwhile.
    let _held = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut port = 0;
    // SAFETY: the string ends with a zero, and there is room for the number.
    let error = unsafe { ffi::tg_port_find(name.as_ptr(), &raw mut port) };
    if error != 0 {
        return None;
    }
    let mut names = vec![[0; 64]; EXTENDED_MAX];
    let mut values = vec![0; EXTENDED_MAX];
    let room = EXTENDED_MAX as core::ffi::c_int;
    // SAFETY: there is room for `room` names and values.
    let count = unsafe { ffi::tg_port_xstats(port, names.as_mut_ptr(), values.as_mut_ptr(), room) };
    let count = usize::try_from(count).unwrap_or(0).min(EXTENDED_MAX);
    let named = names.iter().zip(values).take(count);
    Some(DeviceStatus {
        link: link(port),
        counters: named.map(|(name, value)| (text(name), value)).collect(),
    })
}
