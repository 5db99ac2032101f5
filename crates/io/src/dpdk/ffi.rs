//! The functions of `shim.c`, with its structures.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::NonNull;

use super::mbuf::Mbuf;

/// The card is to write the TCP checksum.
pub(super) const TX_TCP: u8 = 2;
/// The card is to write the UDP checksum.
pub(super) const TX_UDP: u8 = 4;
/// The packet whose checksum is to be written is IPv4, else IPv6.
pub(super) const TX_IPV4: u8 = 8;
/// The card is to cut the frame into segments.
pub(super) const TX_SEGMENT: u8 = 16;

/// What a port is and can do: `struct tg_facts`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct PortFacts {
    pub(super) mac: [u8; 6],
    pub(super) mtu: u16,
    pub(super) max_mtu: u16,
    pub(super) max_rx_queues: u16,
    pub(super) max_tx_queues: u16,
    /// Most descriptors of a receive queue.
    pub(super) rx_descriptors: u16,
    /// Most descriptors of a transmit queue.
    pub(super) tx_descriptors: u16,
    /// The card can write TCP and UDP checksums.
    pub(super) tx_checksums: u8,
    /// The card can cut TCP frames into segments, too.
    pub(super) tx_segments: u8,
    pub(super) rss: u8,
    /// Name of the poll-mode driver, ended by a zero.
    pub(super) driver: [u8; 32],
}

/// Counters of a port: `struct tg_counters`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct PortCounters {
    pub(super) missed: u64,
    pub(super) no_mbuf: u64,
    pub(super) rx_errors: u64,
    pub(super) tx_errors: u64,
}

/// A mempool: `struct tg_pool`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct MemPool {
    opaque: [u8; 0],
}

unsafe extern "C" {
    pub(super) fn tg_version() -> *const c_char;
    pub(super) fn tg_error(error: c_int) -> *const c_char;
    pub(super) fn tg_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(super) fn tg_memory(base: *mut c_void, bytes: usize, page_bytes: usize) -> c_int;
    pub(super) fn tg_pool_new(
        name: *const c_char,
        base: *mut c_void,
        frames: u32,
        frame_bytes: u32,
    ) -> *mut MemPool;
    pub(super) fn tg_pool_find(name: *const c_char) -> *mut MemPool;
    pub(super) fn tg_pool_recover(pool: NonNull<MemPool>) -> u32;
    pub(super) fn tg_pool_own(pool: NonNull<MemPool>);
    pub(super) fn tg_pool_level(pool: NonNull<MemPool>) -> u32;
    pub(super) fn tg_pool_put(
        pool: NonNull<MemPool>,
        slots: *const *mut u8,
        n: u32,
        shared: c_int,
    ) -> u32;
    pub(super) fn tg_pool_take(pool: NonNull<MemPool>, slots: *mut *mut u8, n: u32) -> u32;
    pub(super) fn tg_pool_reclaim(
        pool: NonNull<MemPool>,
        slots: *mut *mut u8,
        n: u32,
        next: *mut u32,
    ) -> u32;
    pub(super) fn tg_zone(
        name: *const c_char,
        bytes: usize,
        base: *mut *mut c_void,
        found_bytes: *mut usize,
    ) -> c_int;
    pub(super) fn tg_runtime_directory() -> *const c_char;
    pub(super) fn tg_port_plug(
        devargs: *const c_char,
        name: *const c_char,
        port: *mut u16,
    ) -> c_int;
    pub(super) fn tg_port_find(name: *const c_char, port: *mut u16) -> c_int;
    pub(super) fn tg_port_map(port: u16, base: *mut c_void, bytes: usize);
    pub(super) fn tg_port_facts(port: u16, facts: *mut PortFacts) -> c_int;
    pub(super) fn tg_port_configure(
        port: u16,
        queues: u16,
        mtu: u16,
        interrupts: *mut c_int,
        rx_descriptors: *mut u16,
        tx_descriptors: *mut u16,
    ) -> c_int;
    pub(super) fn tg_port_queue(
        port: u16,
        queue: u16,
        pool: NonNull<MemPool>,
        rx_descriptors: u16,
        tx_descriptors: u16,
    ) -> c_int;
    pub(super) fn tg_port_attached(port: u16) -> c_int;
    pub(super) fn tg_queue_ready(port: u16, queue: u16) -> c_int;
    pub(super) fn tg_port_start(port: u16) -> c_int;
    pub(super) fn tg_port_unplug(port: u16);
    pub(super) fn tg_port_counters(port: u16, counters: *mut PortCounters);
    pub(super) fn tg_port_link(port: u16) -> c_int;
    pub(super) fn tg_port_xstats(
        port: u16,
        names: *mut [u8; 64],
        values: *mut u64,
        n: c_int,
    ) -> c_int;
    pub(super) fn tg_rx(port: u16, queue: u16, mbufs: *mut NonNull<Mbuf>, n: u16) -> u16;
    pub(super) fn tg_free(mbuf: NonNull<Mbuf>);
    pub(super) fn tg_offload(
        mbuf: NonNull<Mbuf>,
        data: *mut u8,
        flags: u8,
        l2_bytes: u8,
        l3_bytes: u16,
        l4_bytes: u8,
        segment_bytes: u16,
    );
    pub(super) fn tg_tx_prepare(port: u16, queue: u16, mbufs: *mut NonNull<Mbuf>, n: u16) -> u16;
    pub(super) fn tg_tx(port: u16, queue: u16, mbufs: *mut NonNull<Mbuf>, n: u16) -> u16;
    pub(super) fn tg_tx_reclaim(port: u16, queue: u16);
    pub(super) fn tg_interrupt_fd(port: u16, queue: u16) -> c_int;
    pub(super) fn tg_interrupt_enable(port: u16, queue: u16) -> c_int;
    pub(super) fn tg_edges() -> c_int;
    pub(super) fn tg_edges_watch(edges: c_int, fd: c_int) -> c_int;
    pub(super) fn tg_interrupt_disable(port: u16, queue: u16, fd: c_int, edges: c_int);
}

/// Returns DPDK's words for an error number.
pub(super) fn error_text(error: c_int) -> String {
    // SAFETY: `rte_strerror` returns a string of a static or thread-local buffer for any number.
    let text = unsafe { tg_error(error) };
    // SAFETY: it ends with a zero, and nothing changes it while it is copied here.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Returns the directory of files of the processes that share DPDK's memory.
pub(super) fn runtime_directory() -> String {
    // SAFETY: DPDK has started: it returns a string that lives as long as the process.
    let text = unsafe { tg_runtime_directory() };
    // SAFETY: it ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Returns DPDK's name and version.
pub(super) fn version() -> String {
    // SAFETY: `rte_version` returns a constant string.
    let text = unsafe { tg_version() };
    // SAFETY: it ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
