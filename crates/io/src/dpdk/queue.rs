//! A queue of a `dpdk` port.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ffi;
use super::mbuf::{self, Mbuf};
use super::mempool::{self, WorkerPool};
use super::open::{FAILED, RUNNING, Shared};
use crate::batch::{BATCH_MAX, Batch};
use crate::frame::{Frame, FrameFlags};
use crate::ids::PortId;
use crate::offload;
use crate::pool::{PREFIX_BYTES, Pool, Region};
use crate::queue::{Arm, Capabilities, Interrupt, Offloads, Queue, QueueStats};

/// Free slots below which a worker gives the drivers more: two bursts.
const LEVEL_LOW: u32 = 128;
/// What it fills up to.
pub(super) const LEVEL_TARGET: u32 = 256;
/// Free slots above which it takes some back: sent frames gather here.
const LEVEL_HIGH: u32 = 512;

/// A receive and a transmit queue of a DPDK port.
#[derive(Debug)]
pub(super) struct DpdkQueue {
    port: PortId,
    dpdk_port: u16,
    number: u16,
    mempool: WorkerPool,
    shared: Arc<Shared>,
    region: Arc<Region>,
    /// Bytes of a frame's buffer.
    capacity: u16,
    /// First frames that are still to be given to the driver.
    to_prime: u32,
    running: bool,
    closed: bool,
    /// Frames that `arm` found.
    pending: Batch,
    /// The driver's descriptor that is armed.
    armed: Option<i32>,
    /// What a sleeper waits for in its place, where the interrupt is [`Interrupt::Edge`]: readable once for each
    /// signal.
    edges: Option<OwnedFd>,
    capabilities: Capabilities,
    stats: QueueStats,
}

/// Mbufs that pass between a driver and a batch.
type Burst = [MaybeUninit<NonNull<Mbuf>>; BATCH_MAX];

impl DpdkQueue {
    pub(super) fn new(
        port: PortId,
        number: u16,
        mempool: WorkerPool,
        shared: &Arc<Shared>,
        region: &Arc<Region>,
        capabilities: Capabilities,
    ) -> Self {
        Self {
            port,
            dpdk_port: shared.port,
            number,
            mempool,
            shared: Arc::clone(shared),
            capacity: region.frame_bytes() as u16 - PREFIX_BYTES,
            region: Arc::clone(region),
            to_prime: shared.start_slots,
            running: false,
            closed: false,
            pending: Batch::new(),
            armed: None,
            edges: None,
            capabilities,
            stats: QueueStats::default(),
        }
    }

    /// Gives the driver its first frames; the last queue to do so starts the device. Tells whether it runs.
    #[cold]
    fn begin(&mut self, pool: &mut Pool) -> bool {
        if self.closed {
            return false;
        }
        self.mempool.own();
        if self.shared.is_guest {
            // SAFETY: the port exists.
            self.running = unsafe { ffi::tg_queue_ready(self.dpdk_port, self.number) } != 0;
            return self.running;
        }
        while self.to_prime > 0 {
            let given = self.give(pool, self.to_prime, true);
            if given == 0 {
                // The pool is empty: on with it when frames have come back.
                return false;
            }
            self.to_prime -= given;
            if self.to_prime == 0 {
                // AcqRel: the last queue sees what the others have given, since each adds to the count after.
                let before = self.shared.primed.fetch_add(1, Ordering::AcqRel);
                if before + 1 == self.shared.queues {
                    self.shared.start();
                }
            }
        }
        // Acquire: pairs with the Release in `Shared::start`.
        match self.shared.state.load(Ordering::Acquire) {
            RUNNING => {
                self.running = true;
                self.probe_interrupt();
            }
            FAILED => {
                let why = self.shared.fault.get().map_or("closed", String::as_str);
                if !self.capabilities.mode.ends_with(why) {
                    self.capabilities.mode.push_str(", FAILED: ");
                    self.capabilities.mode.push_str(why);
                }
            }
            _ => {}
        }
        self.running
    }

    /// Finds out whether the driver has receive interrupts, which it says only when it runs.
    fn probe_interrupt(&mut self) {
        if self.capabilities.interrupt != Interrupt::Edge {
            return;
        }
        // SAFETY: the port runs.
        let error = unsafe { ffi::tg_interrupt_enable(self.dpdk_port, self.number) };
        if error != libc::ENOTSUP {
            // SAFETY: as above; no signal is taken.
            unsafe { ffi::tg_interrupt_disable(self.dpdk_port, self.number, -1, -1) };
            // SAFETY: it makes a descriptor that nobody else has, or none.
            let edges = unsafe { ffi::tg_edges() };
            // SAFETY: as above.
            self.edges = (edges >= 0).then(|| unsafe { OwnedFd::from_raw_fd(edges) });
        }
        if self.edges.is_none() {
            self.capabilities.interrupt = Interrupt::None;
        }
    }

    /// Gives up to `n` of the pool's frames (64 at most) to the drivers; returns how many.
    fn give(&mut self, pool: &mut Pool, n: u32, shared: bool) -> u32 {
        let mut slots = [core::ptr::null_mut(); BATCH_MAX];
        let mut count = 0;
        while count < slots.len().min(n as usize) {
            let Some(frame) = (pool.available() > 0).then(|| pool.alloc()).flatten() else {
                break;
            };
            // From here on the address is the token.
            slots[count] = frame.slot().as_ptr();
            count += 1;
        }
        let given = self.mempool.put(&slots[..count], shared);
        for slot in &slots[given as usize..count] {
            // Not reached: the mempool has room for all slots of the worker's part.
            if let Some(frame) = self.frame(*slot) {
                pool.free(frame);
            }
        }
        given
    }

    /// Makes the handle of a free slot that the drivers gave back; `None` for a null.
    #[inline]
    fn frame(&self, slot: *mut u8) -> Option<Frame> {
        let slot = NonNull::new(slot)?;
        // SAFETY: the slot is an object of a mempool over the region, whose `Frame` was consumed when it was
        // given to the drivers, who gave it back just now.
        Some(unsafe { Frame::received(slot, self.capacity, 0, 0, self.port) })
    }

    /// Keeps as many free slots with the drivers as they may take in a burst or two.
    #[inline]
    fn balance(&mut self, pool: &mut Pool) {
        let level = self.mempool.level();
        if level < LEVEL_LOW {
            if self.give(pool, LEVEL_TARGET - level, false) == 0 {
                // SAFETY: the port runs.
                unsafe { ffi::tg_tx_reclaim(self.dpdk_port, self.number) };
            }
        } else if level > LEVEL_HIGH {
            self.take_back(pool, BATCH_MAX);
        }
    }

    /// Takes up to `n` free slots (64 at most) back from the drivers; returns how many.
    fn take_back(&mut self, pool: &mut Pool, n: usize) -> usize {
        let mut slots = [core::ptr::null_mut(); BATCH_MAX];
        let taken = self.mempool.take(&mut slots[..n.min(BATCH_MAX)]) as usize;
        for slot in &slots[..taken] {
            if let Some(frame) = self.frame(*slot) {
                pool.free(frame);
            }
        }
        taken
    }

    /// Appends a burst to the batch; returns how many frames.
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let mut mbufs: Burst = [const { MaybeUninit::uninit() }; BATCH_MAX];
        let room = batch.room() as u16;
        let first = mbufs.as_mut_ptr().cast();
        // SAFETY: the port runs, this is its queue's one user, and there is room for 64 mbufs.
        let got = unsafe { ffi::tg_rx(self.dpdk_port, self.number, first, room) };
        let (mut bytes, before) = (0, batch.len());
        for mbuf in &mbufs[..usize::from(got)] {
            // SAFETY: the driver wrote the first `got`.
            let mbuf = unsafe { mbuf.assume_init() };
            // SAFETY: the driver gave it just now.
            let Some(frame) = (unsafe { mbuf::received(mbuf, self.capacity, self.port) }) else {
                self.stats.rx_invalid_pkts += 1;
                // SAFETY: as above; it was not made a frame.
                unsafe { ffi::tg_free(mbuf) };
                continue;
            };
            bytes += frame.len() as u64;
            batch.append(frame);
        }
        let delivered = batch.len() - before;
        self.stats.rx_pkts += delivered as u64;
        self.stats.rx_bytes += bytes;
        delivered
    }

    /// Describes frames at the front of the batch to the driver, up to the first that cannot be sent; returns how
    /// many, and whether the card is to do something for any of them.
    #[inline]
    fn describe(&self, batch: &mut Batch, mbufs: &mut Burst) -> (usize, bool) {
        let longest = usize::from(self.capabilities.max_frame_bytes);
        let mut offloads = false;
        let mut count = 0;
        for (frame, place) in batch.iter_mut().zip(mbufs) {
            if !self.region.contains(frame) {
                break;
            }
            // SAFETY: it is a slot of the region.
            let mbuf = unsafe { mbuf::describe(frame) };
            place.write(mbuf);
            let partial = frame.flags.contains(FrameFlags::CHECKSUM_PARTIAL);
            if partial || frame.len() > longest {
                let flags = if partial {
                    self.offload(frame, mbuf)
                } else {
                    0
                };
                if frame.len() > longest && flags & ffi::TX_SEGMENT == 0 {
                    // SAFETY: it was described just now, to nobody.
                    unsafe { mbuf::keep(mbuf) };
                    break;
                }
                offloads |= flags != 0;
            }
            count += 1;
        }
        (count, offloads)
    }

    /// Asks the card for the checksum of the frame, and for segments, or writes the checksum if it cannot;
    /// returns what it is asked for.
    #[cold]
    fn offload(&self, frame: &mut Frame, mbuf: NonNull<Mbuf>) -> u8 {
        let offloads = self.capabilities.offloads;
        let able = offloads.contains(Offloads::CHECKSUM);
        let Some(partial) = offload::partial(frame).filter(|_| able) else {
            offload::finish_checksum(frame);
            return 0;
        };
        let mut flags = match (partial.tcp, partial.ipv4) {
            (true, true) => ffi::TX_TCP | ffi::TX_IPV4,
            (true, false) => ffi::TX_TCP,
            (false, true) => ffi::TX_UDP | ffi::TX_IPV4,
            (false, false) => ffi::TX_UDP,
        };
        let headers = usize::from(partial.l2_bytes)
            + usize::from(partial.l3_bytes)
            + usize::from(partial.l4_bytes);
        let segment = usize::from(frame.segment_bytes);
        let cuts = match partial.ipv4 {
            true => Offloads::SEGMENT_IPV4,
            false => Offloads::SEGMENT_IPV6,
        };
        let cut = offloads.contains(cuts)
            && partial.tcp
            && partial.l4_bytes >= 20
            && segment > 0
            && frame.len() > headers + segment
            && headers + segment <= usize::from(self.capabilities.max_frame_bytes);
        if cut {
            flags |= ffi::TX_SEGMENT;
        }
        let data = frame.data_mut().as_mut_ptr();
        // SAFETY: the mbuf is the frame's, and nobody else has it; `partial` found all headers of these lengths
        // inside of its data (20 bytes of TCP: the frame is longer than `headers`).
        unsafe {
            ffi::tg_offload(
                mbuf,
                data,
                flags,
                partial.l2_bytes,
                partial.l3_bytes,
                partial.l4_bytes,
                if cut { frame.segment_bytes } else { 0 },
            );
        }
        flags
    }

    /// Gives all frames back to the process that owns the device. Returns how many it has that were this
    /// process's, once the last of its ports is closed: all of them.
    fn leave(&mut self, pool: &mut Pool) -> usize {
        while self.give(pool, BATCH_MAX as u32, true) > 0 {}
        match mempool::port_closed(&self.region, |_| {}) {
            true => pool.capacity() - pool.available(),
            false => 0,
        }
    }

    /// Counts and frees the first frame of the batch, which cannot be sent.
    #[cold]
    fn drop_first(&mut self, pool: &mut Pool, batch: &mut Batch) {
        for frame in batch.drain_front(1) {
            pool.free(frame);
        }
        self.stats.tx_error_pkts += 1;
    }
}

impl Queue for DpdkQueue {
    #[inline]
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        if !self.running && !self.begin(pool) {
            return 0;
        }
        self.balance(pool);
        if !self.pending.is_empty() {
            return batch.append_from(&mut self.pending);
        }
        self.receive(batch)
    }

    #[inline]
    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        if !self.running && !self.begin(pool) {
            return 0;
        }
        let mut dropped = 0;
        let mut mbufs: Burst = [const { MaybeUninit::uninit() }; BATCH_MAX];
        let (count, offloads) = loop {
            let described = self.describe(batch, &mut mbufs);
            if described.0 > 0 || batch.is_empty() {
                break described;
            }
            self.drop_first(pool, batch);
            dropped += 1;
        };
        let first = mbufs.as_mut_ptr().cast();
        let mut ready = count as u16;
        if offloads {
            // SAFETY: the port runs, this is its queue's one user, and the first `count` mbufs are frames of the
            // region that the batch owns.
            ready = unsafe { ffi::tg_tx_prepare(self.dpdk_port, self.number, first, ready) };
        }
        // SAFETY: as above.
        let sent = unsafe { ffi::tg_tx(self.dpdk_port, self.number, first, ready) };
        let refused = sent == ready && usize::from(ready) < count;
        let sent = usize::from(sent);
        for mbuf in &mbufs[sent..count] {
            // SAFETY: the first `count` were described.
            let mbuf = unsafe { mbuf.assume_init() };
            // SAFETY: the driver did not take it.
            unsafe { mbuf::keep(mbuf) };
        }
        let bytes: usize = batch[..sent].iter().map(Frame::len).sum();
        // The driver has the slots now: the tokens go.
        batch.release_front(sent);
        self.stats.tx_pkts += sent as u64;
        self.stats.tx_bytes += bytes as u64;
        if refused {
            // The driver can never take it.
            self.drop_first(pool, batch);
            dropped += 1;
        }
        sent + dropped
    }

    fn arm(&mut self) -> Arm<'_> {
        if !self.pending.is_empty() {
            return Arm::Ready;
        }
        if !self.running || self.capabilities.interrupt == Interrupt::None {
            return Arm::Unsupported;
        }
        // SAFETY: the port runs.
        let fd = unsafe { ffi::tg_interrupt_fd(self.dpdk_port, self.number) };
        // SAFETY: as above.
        let error = unsafe { ffi::tg_interrupt_enable(self.dpdk_port, self.number) };
        let pollable = self.capabilities.interrupt == Interrupt::Level;
        let edges = self.edges.as_ref().map(AsRawFd::as_raw_fd);
        // SAFETY: it takes any descriptor; `edges` is an epoll descriptor.
        let watched = edges.is_none_or(|edges| unsafe { ffi::tg_edges_watch(edges, fd) } == 0);
        if fd < 0 || (error != 0 && !pollable) || !watched {
            // e.g. a vhost device to which nobody is connected
            return Arm::Unsupported;
        }
        self.armed = Some(fd);
        let mut found = Batch::new();
        if self.receive(&mut found) > 0 {
            self.pending.append_from(&mut found);
            self.disarm();
            return Arm::Ready;
        }
        Arm::Armed(match &self.edges {
            Some(edges) => edges.as_fd(),
            // SAFETY: the device keeps the descriptor open while the port is, and `close` needs `&mut self`.
            None => unsafe { BorrowedFd::borrow_raw(fd) },
        })
    }

    fn disarm(&mut self) {
        if let Some(fd) = self.armed.take() {
            let edges = self.edges.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            // SAFETY: the port runs; `fd` is the descriptor that it was armed with.
            unsafe { ffi::tg_interrupt_disable(self.dpdk_port, self.number, fd, edges) };
        }
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.stats;
        if self.number == 0 && !self.shared.is_guest && !self.closed {
            let mut counters = ffi::PortCounters::default();
            // SAFETY: there is room for the counters.
            unsafe { ffi::tg_port_counters(self.dpdk_port, &raw mut counters) };
            stats.rx_ring_full_pkts += counters.missed;
            stats.rx_no_frame_pkts += counters.no_mbuf;
            stats.rx_invalid_pkts += counters.rx_errors;
            stats.tx_error_pkts += counters.tx_errors;
        }
        stats
    }

    fn close(&mut self, pool: &mut Pool) -> usize {
        if self.closed {
            return 0;
        }
        self.disarm();
        self.stats = self.stats();
        self.closed = true;
        self.running = false;
        // The calling thread is the one that uses the mempool from now on.
        self.mempool.own();
        if self.shared.is_guest {
            return self.leave(pool);
        }
        // AcqRel: the last one to close comes after all that the others did with the port.
        let last = self.shared.open.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.shared.state.store(FAILED, Ordering::Relaxed);
            self.shared.unplug();
        }
        pool.free_batch(&mut self.pending);
        while self.take_back(pool, BATCH_MAX) > 0 {}
        if last {
            mempool::port_closed(&self.region, |slot| {
                if let Some(frame) = self.frame(slot) {
                    pool.free(frame);
                }
            });
        }
        // What other ports or queues still hold comes back with the last of them.
        0
    }
}
