//! The one driver trait: a receive and a transmit queue of one port, owned by one worker.

use std::os::fd::BorrowedFd;

use crate::batch::Batch;
use crate::pool::Pool;

/// What [`Queue::arm`] found.
#[derive(Debug)]
pub enum Arm<'a> {
    /// Frames are waiting: receive before sleeping. The interrupt is not armed.
    Ready,
    /// The interrupt is armed: sleep until this descriptor is readable, then [`Queue::disarm`].
    Armed(BorrowedFd<'a>),
    /// The driver cannot wake a sleeper: nap for a bounded time instead.
    Unsupported,
}

/// How a driver can wake a sleeping worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// It cannot.
    None,
    /// The descriptor stays readable while frames wait.
    Level,
    /// The descriptor becomes readable once for new frames.
    Edge,
}

bitflags::bitflags! {
    /// Work on frames that a card takes over.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Offloads: u8 {
        /// It writes the checksums of frames with [`crate::FrameFlags::CHECKSUM_PARTIAL`]. Without, the driver
        /// does.
        const CHECKSUM = 1 << 0;
        /// It cuts frames with TCP over IPv4 that have [`crate::Frame::segment_bytes`] into segments (TSO).
        /// Without, a frame longer than [`Capabilities::max_frame_bytes`] is not sent, and counted in
        /// [`QueueStats::tx_error_pkts`].
        const SEGMENT_IPV4 = 1 << 1;
        /// The same for TCP over IPv6.
        const SEGMENT_IPV6 = 1 << 2;
    }
}

/// What a queue can do, fixed when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The driver's name as in the configuration: `mem`, `pcap`, `tap`, `af_packet`, `af_xdp`, `dpdk`.
    pub driver: &'static str,
    /// The mode in force, e.g. `native copy need_wakeup`; one line for `doctor` and `stats`.
    pub mode: String,
    /// How the driver wakes a sleeper.
    pub interrupt: Interrupt,
    /// Largest frame that can be received and sent, bytes.
    pub max_frame_bytes: u16,
    /// Frames are received into and sent from the pool's region without a copy in user space.
    pub zero_copy: bool,
    /// The queue hashes flows to queues (hardware or kernel RSS), so that software need not.
    pub rss: bool,
    /// What the card does for who sends; software does the rest.
    pub offloads: Offloads,
    /// Modes that were tried before and refused, with the reason, in order.
    pub refused: Vec<String>,
}

/// Counters of a queue since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Frames received.
    pub rx_pkts: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    /// Frames that the driver or the kernel lost before the node saw them: ring full.
    pub rx_ring_full_pkts: u64,
    /// Frames lost for want of a free frame in the pool.
    pub rx_no_frame_pkts: u64,
    /// Frames that were longer than a slot or otherwise unusable.
    pub rx_invalid_pkts: u64,
    /// Frames sent.
    pub tx_pkts: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Frames that the kernel refused after the queue had taken them.
    pub tx_error_pkts: u64,
    /// Times that the watchdog found the queue not moving although frames waited, and set it going.
    pub stalls: u64,
    /// System calls made to receive, to send or to kick.
    pub syscalls: u64,
}

/// A receive and a transmit queue of one port, owned by one worker.
///
/// All calls are bounded and none blocks. Frames that the driver holds (posted for receiving, or
/// being sent) belong to it until `rx`, `tx` or `close` gives them back to the pool. Drivers that several
/// workers use at once align their queues to two cache lines (`repr(align(128))`): workers write no line
/// that another one has something in.
pub trait Queue: Send + core::fmt::Debug {
    /// Appends received frames to `batch`, as many as are there and fit; returns how many. Also
    /// reclaims what has been sent and posts free frames for receiving.
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize;

    /// Takes frames from the front of `batch` and sends them; returns how many it took. What it does
    /// not take stays in `batch`, in order. Kicks the kernel at most once (but past each frame
    /// that it drops, a bounded number of times).
    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize;

    /// Prepares to sleep: arms the interrupt, then looks once more for frames (so that no wake-up is
    /// lost).
    fn arm(&mut self) -> Arm<'_>;

    /// Ends a sleep, or a preparation for one: turns the interrupt off and consumes its signal.
    fn disarm(&mut self);

    /// Returns what the queue can do.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the counters.
    fn stats(&self) -> QueueStats;

    /// Stops receiving and gives every frame that the driver holds back to `pool`. Frames that the
    /// kernel cannot give back are counted in the result; their memory is not reused.
    fn close(&mut self, pool: &mut Pool) -> usize;
}
