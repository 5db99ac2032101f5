//! One receive and one transmit queue: a socket with its four rings.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::AsFd;
use std::sync::Arc;

use super::attachment::Attachment;
use super::held::Held;
use super::partial::finish_partial;
use super::ring::{Consumer, Producer, RingKind};
use super::socket::{Kick, Socket};
use super::umem::Umem;
use crate::batch::{BATCH_MAX, Batch};
use crate::frame::Frame;
use crate::ids::{FrameIdx, PortId};
use crate::offload::finish_checksum;
use crate::pool::{PREFIX_BYTES, Pool, Region};
use crate::queue::{Arm, Capabilities, Queue, QueueStats};

/// Shortest frame that is sent: an Ethernet header.
const HEADER_BYTES: usize = 14;
/// Frames received in bursts that each found all posted frames used up, after which a port is taken to
/// be unable to keep up; and how many it posts then.
const OVERLOAD_PKTS: u32 = 16_384;
const OVERLOAD_DEPTH: u32 = BATCH_MAX as u32;
/// Most calls to send in a row; more than one only if the kernel drops frames, one a call.
const KICKS: usize = 16;
/// How often closing makes the kernel send what is still in the TX ring.
const CLOSE_KICKS: usize = 64;

/// What a queue is made of, once the socket is bound.
pub(super) struct Parts {
    pub(super) port: PortId,
    pub(super) queue: u32,
    pub(super) ring_entries: u32,
    pub(super) zero_copy: bool,
    pub(super) busy_poll: bool,
    pub(super) finish_partial: bool,
    pub(super) socket: Arc<Socket>,
    pub(super) umem: Arc<Umem>,
    pub(super) attachment: Arc<Attachment>,
    pub(super) capabilities: Capabilities,
}

/// The rings of an open queue.
#[derive(Debug)]
struct Rings {
    rx: Consumer<libc::xdp_desc>,
    tx: Producer<libc::xdp_desc>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
}

/// A queue of an AF_XDP port.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct XdpQueue {
    /// Before `socket`: a mapping keeps a socket alive. `None` after closing.
    rings: Option<Rings>,
    socket: Option<Arc<Socket>>,
    region: Arc<Region>,
    umem: Arc<Umem>,
    attachment: Option<Arc<Attachment>>,
    port: PortId,
    queue: u32,
    ring_entries: u32,
    /// Binary logarithm of the slot size, and the slot size less one: an address is a slot and an offset.
    slot_shift: u32,
    slot_mask: u64,
    held: Held,
    /// Frames in the kernel's hands for receiving, and for sending.
    posted: u32,
    sending: u32,
    /// Frames received since a burst last left posted frames over.
    overload: u32,
    /// The last call to send said that the interface is down.
    down: bool,
    zero_copy: bool,
    busy_poll: bool,
    finish_partial: bool,
    capabilities: Capabilities,
    stats: QueueStats,
    /// Calls made where only `&self` is at hand.
    stat_calls: AtomicU64,
    last_statistics: QueueStats,
}

impl XdpQueue {
    /// Maps the rings of a bound socket.
    pub(super) fn new(parts: Parts) -> std::io::Result<Self> {
        let offsets = parts.socket.ring_offsets()?;
        let fd = parts.socket.as_fd();
        let size = parts.ring_entries;
        let rings = Rings {
            rx: Consumer::map(fd, RingKind::Rx, &offsets.rx, size)?,
            tx: Producer::map(fd, RingKind::Tx, &offsets.tx, size)?,
            fill: Producer::map(fd, RingKind::Fill, &offsets.fr, size)?,
            completion: Consumer::map(fd, RingKind::Completion, &offsets.cr, size)?,
        };
        let region = Arc::clone(parts.umem.region());
        Ok(Self {
            rings: Some(rings),
            socket: Some(parts.socket),
            umem: parts.umem,
            attachment: Some(parts.attachment),
            port: parts.port,
            queue: parts.queue,
            ring_entries: size,
            slot_shift: region.frame_bytes().trailing_zeros(),
            slot_mask: u64::from(region.frame_bytes() - 1),
            held: Held::new(region.frames()),
            region,
            posted: 0,
            sending: 0,
            overload: 0,
            down: false,
            zero_copy: parts.zero_copy,
            busy_poll: parts.busy_poll,
            finish_partial: parts.finish_partial,
            capabilities: parts.capabilities,
            stats: QueueStats::default(),
            stat_calls: AtomicU64::new(0),
            last_statistics: QueueStats::default(),
        })
    }

    /// Says which modes were tried before.
    pub(super) fn set_refused(&mut self, refused: &[String]) {
        refused.clone_into(&mut self.capabilities.refused);
    }

    /// Takes a slot back from the kernel; `None` if it was not given.
    #[inline]
    fn take(held: &mut Held, region: &Region, slot: u64) -> Option<Frame> {
        if !held.take(slot) {
            return None;
        }
        // SAFETY: `held` knew the slot, so it is one of this region (it was given as a `Frame` of it),
        // its `Frame` was consumed when it was given, and it left `held` just now.
        Some(unsafe { region.frame_at(FrameIdx(slot as u32)) })
    }

    /// Moves received frames to the batch.
    #[inline]
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let Some(rings) = &mut self.rings else {
            return 0;
        };
        let room = batch.room() as u32;
        let available = rings.rx.available(room);
        // A port whose every burst finds all posted frames used up loses packets all the time.
        let exhausted = available > 0 && available == room && rings.fill.unconsumed() == 0;
        self.overload = if exhausted {
            self.overload.saturating_add(available)
        } else {
            0
        };
        let slot_bytes = self.region.frame_bytes();
        let (mut received, mut bytes) = (0, 0);
        for _ in 0..available {
            let descriptor = rings.rx.read();
            let slot = descriptor.addr >> self.slot_shift;
            let offset = (descriptor.addr & self.slot_mask) as u32;
            if !self.held.take(slot) {
                self.stats.rx_invalid_pkts += 1;
                continue;
            }
            self.posted = self.posted.saturating_sub(1);
            let slot = FrameIdx(slot as u32);
            if offset < u32::from(PREFIX_BYTES) || descriptor.len > slot_bytes - offset {
                self.stats.rx_invalid_pkts += 1;
                // SAFETY: as below.
                pool.free(unsafe { self.region.frame_at(slot) });
                continue;
            }
            let (offset, len) = (offset as u16, descriptor.len as u16);
            // SAFETY: `held` knew the slot, so it is one of this region (it was given as a `Frame` of it),
            // its `Frame` was consumed when it was given, and it left `held` just now; the range is in it.
            let frame = unsafe { self.region.received_at(slot, offset, len, self.port) };
            prefetch(frame.data());
            batch.append(frame);
            received += 1;
            bytes += u64::from(descriptor.len);
        }
        if available > 0 {
            rings.rx.release();
            self.stats.rx_pkts += received as u64;
            self.stats.rx_bytes += bytes;
        }
        received
    }

    /// Takes back frames that have been sent.
    #[inline]
    fn reclaim(&mut self, pool: &mut Pool) {
        let Some(rings) = &mut self.rings else {
            return;
        };
        if self.sending == 0 {
            return;
        }
        let sent = rings.completion.available(self.ring_entries);
        if sent == 0 {
            return;
        }
        for _ in 0..sent {
            let slot = rings.completion.read() >> self.slot_shift;
            if let Some(frame) = Self::take(&mut self.held, &self.region, slot) {
                self.sending = self.sending.saturating_sub(1);
                pool.free(frame);
            }
        }
        rings.completion.release();
    }

    /// Posts free frames for receiving: as many as the ring takes, but no more than a quarter of the
    /// pool, and leaving an eighth of it free, so that one port starves neither the others nor what the
    /// node sends itself. A port that has none posted gets some of what there is, and one that cannot
    /// keep up a burst only: more would wait longer and be lost all the same, and a small set of frames
    /// stays in the caches.
    #[inline]
    fn post(&mut self, pool: &mut Pool) {
        let Some(rings) = &mut self.rings else {
            return;
        };
        let depth = if self.overload < OVERLOAD_PKTS {
            self.ring_entries
        } else {
            self.ring_entries.min(OVERLOAD_DEPTH)
        };
        let target = (pool.capacity() / 4).clamp(1, depth as usize);
        let missing = target.saturating_sub(self.posted as usize);
        let available = pool.available();
        let spare = if self.posted == 0 {
            available.div_ceil(2)
        } else {
            available.saturating_sub(pool.capacity() / 8)
        };
        let wanted = missing.min(spare) as u32;
        if wanted == 0 {
            return;
        }
        let wanted = wanted.min(rings.fill.free(wanted));
        let mut written = 0;
        for _ in 0..wanted {
            let Some(frame) = pool.alloc() else { break };
            let slot = self.region.index_of(frame.slot());
            let Some(slot) = slot.filter(|slot| self.held.give(slot.0)) else {
                // A pool of another region: its frames are no use here.
                pool.free(frame);
                break;
            };
            // From here on the bit in `held` is the token.
            rings.fill.write(u64::from(slot.0) << self.slot_shift);
            written += 1;
        }
        if written > 0 {
            self.posted += written;
            rings.fill.publish();
        }
    }

    /// Calls the kernel if it has frames of ours to send and does not do so by itself: once, but for
    /// frames that it drops.
    #[inline]
    fn kick(&mut self) {
        let (Some(rings), Some(socket)) = (&mut self.rings, &self.socket) else {
            return;
        };
        if rings.tx.unconsumed() == 0 || !rings.tx.needs_wakeup() {
            return;
        }
        for _ in 0..KICKS {
            self.stats.syscalls += 1;
            let kick = socket.kick_tx();
            self.down = kick == Kick::Down;
            if kick != Kick::Dropped {
                break;
            }
            // The kernel stops at a frame that the device's queue has no room for, and is past it.
            self.stats.tx_error_pkts += 1;
            if rings.tx.unconsumed() == 0 {
                break;
            }
        }
    }

    /// Tells whether the kernel still has frames to send that another call would move.
    fn wants_kick(&mut self) -> bool {
        match &mut self.rings {
            Some(rings) => !self.down && rings.tx.unconsumed() > 0 && rings.tx.needs_wakeup(),
            None => false,
        }
    }

    /// Puts a frame in the TX ring, or gives it back if it cannot be sent.
    #[inline]
    fn send(&mut self, frame: Frame) -> Result<(), Frame> {
        let Some(rings) = &mut self.rings else {
            return Err(frame);
        };
        let fits =
            (HEADER_BYTES..=usize::from(self.capabilities.max_frame_bytes)).contains(&frame.len());
        let slot = self.region.index_of(frame.slot()).filter(|_| fits);
        let Some(slot) = slot.filter(|slot| self.held.give(slot.0)) else {
            return Err(frame);
        };
        rings.tx.write(libc::xdp_desc {
            addr: (u64::from(slot.0) << self.slot_shift)
                + u64::from(PREFIX_BYTES)
                + frame.offset() as u64,
            len: frame.len() as u32,
            options: 0,
        });
        self.sending += 1;
        self.stats.tx_bytes += frame.len() as u64;
        // From here on the bit in `held` is the token.
        Ok(())
    }

    /// The kernel's counters in our terms.
    fn kernel_statistics(&self) -> Option<QueueStats> {
        let statistics = self.socket.as_ref()?.statistics().ok()?;
        self.stat_calls.fetch_add(1, Ordering::Relaxed);
        // In copy mode the kernel counts a frame that found the fill ring empty in both numbers.
        let no_frame = statistics
            .rx_fill_ring_empty_descs
            .min(statistics.rx_dropped);
        Some(QueueStats {
            rx_ring_full_pkts: statistics.rx_ring_full,
            rx_no_frame_pkts: if self.zero_copy {
                statistics.rx_fill_ring_empty_descs
            } else {
                no_frame
            },
            rx_invalid_pkts: statistics.rx_dropped - no_frame + statistics.rx_invalid_descs,
            tx_error_pkts: statistics.tx_invalid_descs,
            ..QueueStats::default()
        })
    }
}

impl Queue for XdpQueue {
    #[inline]
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let before = batch.len();
        let received = self.receive(pool, batch);
        if self.finish_partial {
            for frame in &mut batch[before..] {
                finish_partial(frame.data_mut());
            }
        }
        self.reclaim(pool);
        self.post(pool);
        self.kick();
        if (self.busy_poll && received == 0) || self.zero_copy {
            let wanted = self.busy_poll && received == 0;
            if let (Some(rings), Some(socket)) = (&self.rings, &self.socket)
                && (wanted || rings.fill.needs_wakeup())
            {
                self.stats.syscalls += 1;
                socket.kick_rx();
            }
        }
        received
    }

    #[inline]
    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        if batch.is_empty() {
            return 0;
        }
        self.reclaim(pool);
        let Some(rings) = &mut self.rings else {
            return 0;
        };
        // The kernel reserves room for a completion before it sends.
        let room = rings
            .tx
            .free(batch.len() as u32)
            .min(self.ring_entries - self.sending.min(self.ring_entries));
        let mut taken = 0;
        let mut written = 0;
        for mut frame in batch.drain_front(room as usize) {
            taken += 1;
            finish_checksum(&mut frame);
            match self.send(frame) {
                Ok(()) => written += 1,
                Err(frame) => {
                    self.stats.tx_error_pkts += 1;
                    pool.free(frame);
                }
            }
        }
        if written > 0
            && let Some(rings) = &mut self.rings
        {
            rings.tx.publish();
            self.stats.tx_pkts += written;
        }
        self.kick();
        taken
    }

    fn arm(&mut self) -> Arm<'_> {
        if self.wants_kick() {
            // Nothing else would make the kernel go on with them.
            self.kick();
            if self.wants_kick() {
                return Arm::Ready;
            }
        }
        let (Some(rings), Some(socket)) = (&mut self.rings, &self.socket) else {
            return Arm::Unsupported;
        };
        if rings.rx.available(1) > 0 {
            return Arm::Ready;
        }
        if self.posted == 0 {
            // The kernel has no frame to receive into, and will not wake us for want of one.
            return Arm::Unsupported;
        }
        // `poll(2)` looks at the RX ring after it has registered the sleeper, so that a frame that
        // arrives from here on is not missed; in zero-copy mode it also wakes the driver.
        Arm::Armed(socket.as_fd())
    }

    fn disarm(&mut self) {
        // Level semantics: nothing to consume.
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        let kernel = self.kernel_statistics().unwrap_or(self.last_statistics);
        QueueStats {
            rx_ring_full_pkts: kernel.rx_ring_full_pkts,
            rx_no_frame_pkts: kernel.rx_no_frame_pkts,
            rx_invalid_pkts: self.stats.rx_invalid_pkts + kernel.rx_invalid_pkts,
            tx_error_pkts: self.stats.tx_error_pkts + kernel.tx_error_pkts,
            syscalls: self.stats.syscalls + self.stat_calls.load(Ordering::Relaxed),
            ..self.stats
        }
    }

    fn close(&mut self, pool: &mut Pool) -> usize {
        if let Some(attachment) = &self.attachment {
            attachment.remove(self.queue);
        }
        for _ in 0..CLOSE_KICKS {
            if !self.wants_kick() {
                break;
            }
            self.kick();
            self.reclaim(pool);
        }
        self.reclaim(pool);
        if let Some(kernel) = self.kernel_statistics() {
            self.last_statistics = kernel;
        }
        // A mapping would keep the socket alive.
        self.rings = None;
        let released = self
            .socket
            .take()
            .is_none_or(|socket| self.umem.close(socket));
        self.attachment = None;
        self.posted = 0;
        self.sending = 0;
        if !released || self.zero_copy {
            // The device may still write to these by DMA.
            return self.held.count() as usize;
        }
        // In copy mode nobody reaches the frames of a closed socket: the kernel has waited for
        // receivers that were copying, and what is on its way was copied when it was sent.
        for slot in self.held.take_all() {
            // SAFETY: the slot left `held`, as in `take`, and the kernel has let go of it, as above.
            let frame = unsafe { self.region.frame_at(FrameIdx(slot)) };
            pool.free(frame);
        }
        0
    }
}

/// Starts loading the first bytes of a frame: they come from the receiving core's cache, and all of a
/// burst's can be on their way at once.
#[inline]
fn prefetch(data: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect but on the cache, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = data;
    }
}
