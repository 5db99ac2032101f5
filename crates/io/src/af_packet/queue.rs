//! The queue over one pair of packet sockets.

use std::io;
use std::os::fd::AsFd;

use super::socket::{PacketSocket, Ring, RxHeader};
use crate::batch::Batch;
use crate::frame::{Frame, FrameFlags};
use crate::ids::PortId;
use crate::offload;
use crate::pool::Pool;
use crate::queue::{Arm, Capabilities, Queue, QueueStats};
use crate::segment::{SuperFrame, VNET_HEADER_BYTES, VnetHeader, insert_tag};

/// Empty polls with a frame waiting behind the one that should come next, after which the queue counts as
/// stalled and steps over. The kernel fills slots out of order for microseconds only.
const STALL_POLLS: u32 = 100_000;

/// Times in a row that a busy device may refuse the same frame before it and those behind it are given up.
const REFUSALS_MAX: u32 = 64;

/// A queue of an `af_packet` port.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct PacketQueue {
    port: PortId,
    rx_socket: PacketSocket,
    rx: Option<Ring>,
    rx_next: usize,
    tx_socket: PacketSocket,
    tx: Option<Ring>,
    tx_next: usize,
    /// The kernel may not have taken all that is in the transmit ring.
    unsent: bool,
    /// A super-frame whose segments did not all fit the last batch.
    super_frame: SuperFrame,
    /// The VLAN tag and the time of the super-frame.
    super_tag: Option<(u16, u16)>,
    super_timestamp_ns: u64,
    stalled_polls: u32,
    /// How often in a row the kernel refused the frame of slot `refused_at`.
    refusals: u32,
    refused_at: usize,
    /// The last wake-up brought no frame: the socket may have an error that wakes again and again.
    woken_for_nothing: bool,
    capabilities: Capabilities,
    stats: QueueStats,
}

impl PacketQueue {
    pub(super) fn new(
        port: PortId,
        rx_socket: PacketSocket,
        rx: Ring,
        tx_socket: PacketSocket,
        tx: Ring,
        capabilities: Capabilities,
    ) -> Self {
        Self {
            port,
            rx_socket,
            rx: Some(rx),
            rx_next: 0,
            tx_socket,
            tx: Some(tx),
            tx_next: 0,
            unsent: false,
            super_frame: SuperFrame::new(),
            super_tag: None,
            super_timestamp_ns: 0,
            stalled_polls: 0,
            refusals: 0,
            refused_at: 0,
            woken_for_nothing: false,
            capabilities,
            stats: QueueStats::default(),
        }
    }

    /// Takes one frame out of its slot.
    fn take(&mut self, ring: &Ring, header: &RxHeader, pool: &mut Pool, batch: &mut Batch) {
        let slot = self.rx_next;
        if header.status & libc::TP_STATUS_LOSING != 0 {
            self.stats.rx_ring_full_pkts += self.rx_socket.drops();
            self.stats.syscalls += 1;
        }
        if header.len != header.captured {
            self.take_long(header);
            return;
        }
        let vnet = header
            .offset
            .checked_sub(VNET_HEADER_BYTES)
            .and_then(|at| ring.bytes(slot, at, VNET_HEADER_BYTES))
            .and_then(VnetHeader::parse);
        let (Some(vnet), Some(bytes)) = (vnet, ring.bytes(slot, header.offset, header.len)) else {
            self.stats.rx_invalid_pkts += 1;
            return;
        };
        if vnet.is_super_frame() {
            self.super_tag = header.tag;
            self.super_timestamp_ns = header.timestamp_ns;
            if !self.super_frame.start_with(bytes, &vnet) {
                self.stats.rx_invalid_pkts += 1;
            }
            return;
        }
        let Some(mut frame) = pool.alloc() else {
            self.stats.rx_no_frame_pkts += 1;
            return;
        };
        let mut usable = frame.fill(bytes);
        if let Some((start, field)) = vnet.partial_checksum() {
            usable &= offload::complete(frame.data_mut(), start, header.len, field);
        }
        if !usable {
            self.stats.rx_invalid_pkts += 1;
            pool.free(frame);
            return;
        }
        if vnet.checksum_good() || header.status & libc::TP_STATUS_CSUM_VALID != 0 {
            frame.flags |= FrameFlags::CHECKSUM_GOOD;
        }
        frame.timestamp_ns = header.timestamp_ns;
        deliver(self.port, frame, header.tag, pool, batch, &mut self.stats);
    }

    /// Fetches a frame that did not fit its slot through the socket and plans its cut.
    fn take_long(&mut self, header: &RxHeader) {
        if header.status & libc::TP_STATUS_COPY == 0 {
            // The socket's buffer was full: only the start of the frame is there.
            self.stats.rx_ring_full_pkts += 1;
            return;
        }
        self.stats.syscalls += 1;
        self.super_tag = header.tag;
        self.super_timestamp_ns = header.timestamp_ns;
        let buffer = self.super_frame.buffer();
        let received = self.rx_socket.receive(buffer).unwrap_or(0);
        let vnet = VnetHeader::parse(buffer);
        let cuttable = received.checked_sub(VNET_HEADER_BYTES).zip(vnet);
        if !cuttable
            .is_some_and(|(len, vnet)| self.super_frame.start(VNET_HEADER_BYTES, len, &vnet))
        {
            self.stats.rx_invalid_pkts += 1;
        }
    }

    /// Delivers segments of the super-frame, if there is one, while the batch has room.
    #[inline]
    fn cut(&mut self, pool: &mut Pool, batch: &mut Batch) {
        if !self.super_frame.is_pending() {
            return;
        }
        let (port, tag, timestamp_ns) = (self.port, self.super_tag, self.super_timestamp_ns);
        let stats = &mut self.stats;
        self.super_frame
            .cut(pool, batch, stats, |mut frame, pool, batch, stats| {
                frame.timestamp_ns = timestamp_ns;
                deliver(port, frame, tag, pool, batch, stats);
            });
    }

    /// Counts empty polls while the frame after next is there, and steps over a slot that never comes.
    #[cold]
    fn watch(&mut self, ring: &Ring) {
        let after = ring.after(self.rx_next);
        if ring.status(after) & libc::TP_STATUS_USER == 0 {
            self.stalled_polls = 0;
            return;
        }
        self.stalled_polls += 1;
        if self.stalled_polls >= STALL_POLLS {
            self.stalled_polls = 0;
            self.stats.stalls += 1;
            self.rx_next = after;
        }
    }

    /// Tells the kernel to send; remembers whether it took everything.
    fn flush(&mut self) {
        let Some(ring) = &self.tx else { return };
        self.stats.syscalls += 1;
        let result = self.tx_socket.kick();
        self.unsent = ring.status(ring.before(self.tx_next)) & libc::TP_STATUS_SEND_REQUEST != 0;
        match result {
            Err(error) if self.unsent => self.refused(&error),
            _ => self.refusals = 0,
        }
    }

    /// Decides about frames that the kernel does not send now: it leaves the first in its slot, to be tried
    /// again, and the others behind it. A busy device gets time; without a link they are given up, so that
    /// the worker can sleep and nothing stale is sent when the link comes back.
    #[cold]
    fn refused(&mut self, error: &io::Error) {
        let Some(ring) = &mut self.tx else { return };
        let mut first = self.tx_next;
        let mut waiting = 0;
        while waiting < ring.slots()
            && ring.status(ring.before(first)) & libc::TP_STATUS_SEND_REQUEST != 0
        {
            first = ring.before(first);
            waiting += 1;
        }
        if first != self.refused_at {
            self.refused_at = first;
            self.refusals = 0;
        }
        self.refusals += 1;
        let gone = matches!(
            error.raw_os_error(),
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)
        );
        if !gone && self.refusals < REFUSALS_MAX {
            return;
        }
        // The kernel takes the slot at which it stopped when it is asked again: that is where we go on.
        let mut slot = first;
        for _ in 0..waiting {
            ring.hand_over(slot, libc::TP_STATUS_AVAILABLE);
            slot = ring.after(slot);
        }
        self.tx_next = first;
        self.stats.tx_error_pkts += waiting as u64;
        self.unsent = false;
        self.refusals = 0;
    }

    /// Copies frames from the front of the batch to free slots; returns how many it consumed.
    fn enqueue(&mut self, ring: &mut Ring, pool: &mut Pool, batch: &mut Batch) -> usize {
        const BUSY: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        let longest = usize::from(self.capabilities.max_frame_bytes);
        let mut free = 0;
        let mut slot = self.tx_next;
        while free < batch.len() && ring.status(slot) & BUSY == 0 {
            free += 1;
            slot = ring.after(slot);
        }
        for mut frame in batch.drain_front(free) {
            offload::finish_checksum(&mut frame);
            let head = VnetHeader::plain(frame.len() as u16);
            if frame.len() <= longest && ring.send(self.tx_next, &head, frame.data()) {
                self.tx_next = ring.after(self.tx_next);
                self.stats.tx_pkts += 1;
                self.stats.tx_bytes += frame.len() as u64;
            } else {
                self.stats.tx_error_pkts += 1;
            }
            pool.free(frame);
        }
        free
    }
}

/// Puts a VLAN tag back and appends the frame to the batch, which has room.
#[inline]
fn deliver(
    port: PortId,
    mut frame: Frame,
    tag: Option<(u16, u16)>,
    pool: &mut Pool,
    batch: &mut Batch,
    stats: &mut QueueStats,
) {
    if let Some((tpid, tci)) = tag
        && !insert_tag(&mut frame, tpid, tci)
    {
        stats.rx_invalid_pkts += 1;
        pool.free(frame);
        return;
    }
    frame.rx_port = port;
    stats.rx_pkts += 1;
    stats.rx_bytes += frame.len() as u64;
    if let Err(frame) = batch.push(frame) {
        // Not reached: the callers look for room.
        pool.free(frame);
    }
}

impl Queue for PacketQueue {
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let Some(mut ring) = self.rx.take() else {
            return 0;
        };
        let before = batch.len();
        self.cut(pool, batch);
        while !batch.is_full() {
            let Some(header) = ring.received(self.rx_next) else {
                break;
            };
            self.take(&ring, &header, pool, batch);
            ring.hand_over(self.rx_next, libc::TP_STATUS_KERNEL);
            self.rx_next = ring.after(self.rx_next);
            self.cut(pool, batch);
        }
        if batch.len() == before {
            self.watch(&ring);
        } else {
            self.woken_for_nothing = false;
        }
        self.rx = Some(ring);
        if self.unsent {
            self.flush();
        }
        batch.len() - before
    }

    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let Some(mut ring) = self.tx.take() else {
            return 0;
        };
        let taken = self.enqueue(&mut ring, pool, batch);
        self.tx = Some(ring);
        if taken > 0 || self.unsent {
            self.flush();
        }
        taken
    }

    fn arm(&mut self) -> Arm<'_> {
        if self.unsent {
            self.flush();
        }
        let waiting = self.super_frame.is_pending()
            || self
                .rx
                .as_ref()
                .is_some_and(|ring| ring.received(self.rx_next).is_some());
        if waiting || self.unsent {
            return Arm::Ready;
        }
        if self.woken_for_nothing {
            // A link that went down is an error of the socket, which is readable until somebody asks.
            self.rx_socket.take_error();
            self.stats.syscalls += 1;
        }
        Arm::Armed(self.rx_socket.as_fd())
    }

    /// Turns nothing off: the descriptor is readable while frames wait, whether or not anybody looks.
    fn disarm(&mut self) {
        self.woken_for_nothing = true;
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn close(&mut self, _pool: &mut Pool) -> usize {
        if self.unsent {
            self.flush();
        }
        self.stats.rx_ring_full_pkts += self.rx_socket.drops();
        // Every frame was copied: the rings hold none of the pool's.
        self.rx = None;
        self.tx = None;
        self.super_frame.clear();
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Interrupt;
    use crate::{HugePages, PortId};

    /// A queue on sockets that are bound to nothing, so that the kernel leaves the rings alone.
    fn unbound() -> io::Result<PacketQueue> {
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        let open = |option| {
            let socket = PacketSocket::new()?;
            socket.set(libc::PACKET_VERSION, &version)?;
            let ring = socket.ring(option, 2048, 32)?;
            io::Result::Ok((socket, ring))
        };
        let (rx_socket, rx) = open(libc::PACKET_RX_RING)?;
        let (tx_socket, tx) = open(libc::PACKET_TX_RING)?;
        let capabilities = Capabilities {
            driver: "af_packet",
            mode: "test".into(),
            interrupt: Interrupt::Level,
            max_frame_bytes: 1522,
            zero_copy: false,
            rss: false,
            offloads: crate::Offloads::empty(),
            refused: Vec::new(),
        };
        Ok(PacketQueue::new(
            PortId(0),
            rx_socket,
            rx,
            tx_socket,
            tx,
            capabilities,
        ))
    }

    /// Returns the queue for a test, or says why the test is skipped; in CI that is a failure.
    fn queue_for(test: &str) -> Option<PacketQueue> {
        unbound()
            .inspect_err(|error| {
                println!("SKIPPED {test}: {error}");
                assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{error}");
            })
            .ok()
    }

    #[test]
    fn the_watchdog_steps_over_a_slot_that_never_comes() {
        let Some(mut queue) = queue_for("the_watchdog_steps_over_a_slot_that_never_comes") else {
            return;
        };
        let mut pool = Pool::new(8, 2048, HugePages::Never).unwrap();
        let mut batch = Batch::new();
        // The kernel fills the second slot and never the first.
        let ring = queue.rx.as_mut().unwrap();
        ring.hand_over(1, libc::TP_STATUS_USER);
        for _ in 0..STALL_POLLS - 1 {
            assert_eq!(queue.rx(&mut pool, &mut batch), 0);
        }
        assert_eq!((queue.stats.stalls, queue.rx_next), (0, 0));
        queue.rx(&mut pool, &mut batch);
        assert_eq!((queue.stats.stalls, queue.rx_next), (1, 1));
        // It goes on with the second slot, whose frame (nothing but zeroes here) is counted.
        queue.rx(&mut pool, &mut batch);
        assert_eq!((queue.stats.rx_invalid_pkts, queue.rx_next), (1, 2));
        assert_eq!(pool.available(), 8);
    }

    #[test]
    fn a_slot_that_is_late_is_waited_for() {
        let Some(mut queue) = queue_for("a_slot_that_is_late_is_waited_for") else {
            return;
        };
        let mut pool = Pool::new(8, 2048, HugePages::Never).unwrap();
        let mut batch = Batch::new();
        for round in 0..3 {
            let next = queue.rx_next;
            let ring = queue.rx.as_mut().unwrap();
            ring.hand_over(next + 1, libc::TP_STATUS_USER);
            for _ in 0..STALL_POLLS / 2 {
                queue.rx(&mut pool, &mut batch);
            }
            let ring = queue.rx.as_mut().unwrap();
            ring.hand_over(next, libc::TP_STATUS_USER);
            queue.rx(&mut pool, &mut batch);
            queue.rx(&mut pool, &mut batch);
            assert_eq!(queue.rx_next, next + 2, "round {round}");
        }
        assert_eq!(queue.stats.stalls, 0);
        assert_eq!(queue.stats.rx_invalid_pkts, 6);
    }
}
