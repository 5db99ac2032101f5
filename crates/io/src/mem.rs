//! Driver `mem`: two ports of one process, joined by rings.
//!
//! A frame crosses without a copy when both ends live in one region; else the receiver copies it into a
//! frame of its own and the sender gets its frame back. Ends may be polled by different threads. An
//! eventfd doorbell is the interrupt. It is the reference for speed and for tests.
//!
//! Of two ends in different regions, close the one that receives first: frames on their way to an end
//! that outlives their owner cannot go home (their memory stays mapped, and the close that finds them
//! counts them).

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use tables::ring::{Consumer, Producer, spsc};

use crate::batch::{BATCH_MAX, Batch};
use crate::doorbell::Doorbell;
use crate::frame::{CompactFrame, Frame};
use crate::ids::PortId;
use crate::interface::{Link, MacAddress};
use crate::offload;
use crate::pool::{Pool, Region};
use crate::port::{OpenError, OpenPort, PortSpec};
use crate::queue::{Arm, Capabilities, Interrupt, Queue, QueueStats};

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Pairs of queues; frames sent on queue `n` of one end are received on queue `n` of the other.
    pub queues: u16,
    /// Frames that each direction of a queue can hold (rounded up to a power of two).
    pub depth: usize,
    /// Largest packet, bytes, without the Ethernet header.
    pub mtu: u16,
}

impl Default for LinkSpec {
    /// One queue of 1,024 frames, 1,500 bytes.
    fn default() -> Self {
        Self {
            queues: 1,
            depth: 1024,
            mtu: 1500,
        }
    }
}

/// One end of a link: what a [`crate::port::DriverSpec::Mem`] opens, once.
#[derive(Clone, Debug)]
pub struct LinkEnd {
    spec: LinkSpec,
    side: u8,
    parts: Arc<Mutex<Option<Vec<Parts>>>>,
}

/// Makes a link and returns its two ends.
pub fn link(spec: LinkSpec) -> (LinkEnd, LinkEnd) {
    let depth = spec.depth.max(1);
    let (left, right) = (0..spec.queues.max(1)).map(|_| wire(depth)).unzip();
    let end = |side, parts| LinkEnd {
        spec,
        side,
        parts: Arc::new(Mutex::new(Some(parts))),
    };
    (end(0, left), end(1, right))
}

/// One end of one pair of queues.
#[derive(Debug)]
struct Parts {
    rx: Consumer<CompactFrame>,
    tx: Producer<CompactFrame>,
    /// Frames of the sender's region that this end has copied, on their way back.
    give_back: Producer<CompactFrame>,
    /// Our frames that the other end has copied.
    come_back: Consumer<CompactFrame>,
    shared: Arc<Shared>,
}

/// What both ends of a pair of queues see.
#[derive(Debug, Default)]
struct Shared {
    /// By side; set before that side drains its rings for the last time.
    closed: [CachePadded<AtomicBool>; 2],
    /// By side: the doorbell that this side sleeps on, once it is open.
    bells: [std::sync::OnceLock<Doorbell>; 2],
    /// By side: the receiving ring of a side that has closed, so that the other can take out of it what it
    /// put in since.
    parked: Mutex<[Option<Consumer<CompactFrame>>; 2]>,
}

/// Makes the rings between two queues.
fn wire(depth: usize) -> (Parts, Parts) {
    let shared = Arc::new(Shared::default());
    let (to_right, from_left) = spsc(depth);
    let (to_left, from_right) = spsc(depth);
    // Sending first takes back what came back, then fills the ring: at most one depth is in the ring, and at
    // most one was taken out of it in between.
    let (left_back, left_returns) = spsc(2 * depth);
    let (right_back, right_returns) = spsc(2 * depth);
    let left = Parts {
        rx: from_right,
        tx: to_right,
        give_back: left_back,
        come_back: right_returns,
        shared: Arc::clone(&shared),
    };
    let right = Parts {
        rx: from_left,
        tx: to_left,
        give_back: right_back,
        come_back: left_returns,
        shared,
    };
    (left, right)
}

/// Opens one end.
pub(crate) fn open(
    spec: &PortSpec,
    end: &LinkEnd,
    region: &Arc<Region>,
    workers: u16,
) -> Result<OpenPort, OpenError> {
    if end.spec.queues > workers {
        return Err(OpenError::unusable(
            &spec.name,
            format!(
                "the link has {} queues for {workers} workers; make it with no more",
                end.spec.queues
            ),
        ));
    }
    let parts = end
        .parts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
        .ok_or_else(|| OpenError::unusable(&spec.name, "this end of the link is open already"))?;
    let mut queues: Vec<Box<dyn Queue>> = Vec::with_capacity(parts.len());
    for parts in parts {
        let bell =
            Doorbell::new().map_err(|e| OpenError::os(&spec.name, "making an eventfd", e))?;
        // Set once: an end opens once.
        let _ = parts.shared.bells[usize::from(end.side)].set(bell);
        queues.push(Box::new(MemQueue {
            side: usize::from(end.side),
            port: spec.id,
            base: region.base().as_ptr() as usize,
            bytes: region.frames() as usize * region.frame_bytes() as usize,
            parts: Some(parts),
            capabilities: Capabilities {
                driver: "mem",
                mode: "rings in this process".into(),
                interrupt: Interrupt::Level,
                max_frame_bytes: region.room_bytes().min(u32::from(u16::MAX)) as u16,
                zero_copy: true,
                rss: false,
                offloads: crate::Offloads::empty(),
                refused: Vec::new(),
            },
            stats: QueueStats::default(),
        }));
    }
    Ok(OpenPort {
        id: spec.id,
        name: spec.name.clone(),
        queues,
        mac: mac(spec.id, end.side),
        mtu: end.spec.mtu,
        link: Link::Up,
        interface: None,
        driver: "mem",
        mode: "rings in this process".into(),
        refused: Vec::new(),
    })
}

/// Returns a locally administered address that differs by port and side.
fn mac(id: PortId, side: u8) -> MacAddress {
    let [high, low] = id.0.to_be_bytes();
    [0x02, b't', b'g', side, high, low]
}

/// A queue of a `mem` port.
#[derive(Debug)]
#[repr(align(128))]
struct MemQueue {
    side: usize,
    port: PortId,
    /// Where our region is: its frames pass as they are.
    base: usize,
    bytes: usize,
    /// `None` after closing.
    parts: Option<Parts>,
    capabilities: Capabilities,
    stats: QueueStats,
}

impl MemQueue {
    /// Copies a frame of another region into one of ours and sends theirs back; `None` (counted) if the
    /// pool is empty or the frame is too long for a slot of ours.
    #[cold]
    fn copy_in(
        theirs: CompactFrame,
        give_back: &mut Producer<CompactFrame>,
        stats: &mut QueueStats,
        pool: &mut Pool,
    ) -> Option<CompactFrame> {
        let theirs = theirs.expand(PortId(0));
        let mut ours = pool.alloc();
        match &mut ours {
            None => stats.rx_no_frame_pkts += 1,
            Some(copy) => {
                if !copy.fill(theirs.data()) {
                    stats.rx_invalid_pkts += 1;
                    if let Some(copy) = ours.take() {
                        pool.free(copy);
                    }
                }
            }
        }
        // There is room: see `wire`. (If there were none, the frame would be lost to its pool, which keeps
        // its memory mapped.)
        let _ = give_back.push(theirs.compact());
        ours.map(Frame::compact)
    }
}

impl Queue for MemQueue {
    #[inline]
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let Some(parts) = &mut self.parts else {
            return 0;
        };
        // A worker without frames does not send, so its frames must come home here, too.
        if pool.available() < BATCH_MAX {
            for frame in parts.come_back.pop_batch(usize::MAX) {
                pool.free(frame.expand(PortId(0)));
            }
        }
        let (base, size, port) = (self.base, self.bytes, self.port);
        let (give_back, stats) = (&mut parts.give_back, &mut self.stats);
        let mut bytes = 0;
        let mut frames = parts.rx.pop_batch(batch.room()).filter_map(|compact| {
            let ours = (compact.slot().as_ptr() as usize).wrapping_sub(base) < size;
            let compact = if ours {
                compact
            } else {
                Self::copy_in(compact, give_back, stats, pool)?
            };
            bytes += compact.len() as u64;
            Some(compact.expand(port))
        });
        let received = batch.extend(&mut frames);
        drop(frames);
        self.stats.rx_pkts += received as u64;
        self.stats.rx_bytes += bytes;
        received
    }

    #[inline]
    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let Some(parts) = &mut self.parts else {
            return 0;
        };
        for frame in parts.come_back.pop_batch(usize::MAX) {
            pool.free(frame.expand(PortId(0)));
        }
        let other = 1 - self.side;
        // Relaxed: a late answer only puts frames where `close` finds them.
        if parts.shared.closed[other].load(Ordering::Relaxed) {
            let lost = batch.len();
            self.stats.tx_error_pkts += lost as u64;
            pool.free_batch(batch);
            return lost;
        }
        for frame in batch.iter_mut() {
            offload::finish_checksum(frame);
        }
        let mut bytes = 0;
        let mut frames = batch.drain().map(|frame| {
            bytes += frame.len() as u64;
            frame.compact()
        });
        let sent = parts.tx.push_batch(&mut frames);
        drop(frames);
        self.stats.tx_pkts += sent as u64;
        self.stats.tx_bytes += bytes;
        if sent > 0
            && let Some(bell) = parts.shared.bells[other].get()
        {
            self.stats.syscalls += u64::from(bell.ring());
        }
        sent
    }

    fn arm(&mut self) -> Arm<'_> {
        let Some(parts) = &mut self.parts else {
            return Arm::Unsupported;
        };
        let Some(bell) = parts.shared.bells[self.side].get() else {
            return Arm::Unsupported;
        };
        bell.prepare();
        if parts.rx.is_empty() {
            Arm::Armed(bell.as_fd())
        } else {
            bell.cancel();
            self.stats.syscalls += 1;
            Arm::Ready
        }
    }

    fn disarm(&mut self) {
        if let Some(bell) = self
            .parts
            .as_ref()
            .and_then(|parts| parts.shared.bells[self.side].get())
        {
            bell.cancel();
            self.stats.syscalls += 1;
        }
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn close(&mut self, pool: &mut Pool) -> usize {
        let Some(mut parts) = self.parts.take() else {
            return 0;
        };
        // Under the lock, so that of two ends that close at once the second sees all that the first left.
        let mut parked = parts
            .shared
            .parked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        parts.shared.closed[self.side].store(true, Ordering::Relaxed);
        let other_closed = parts.shared.closed[1 - self.side].load(Ordering::Relaxed);
        let ours = (self.base, self.bytes);
        let mut lost = 0;
        let mut take = |frame: CompactFrame| {
            let frame = frame.expand(PortId(0));
            if (frame.slot().as_ptr() as usize).wrapping_sub(ours.0) < ours.1 {
                pool.free(frame);
                return;
            }
            // Theirs: it goes home if somebody is still there to take it.
            lost += usize::from(other_closed || parts.give_back.push(frame.compact()).is_err());
        };
        parts.come_back.pop_batch(usize::MAX).for_each(&mut take);
        parts.rx.pop_batch(usize::MAX).for_each(&mut take);
        if let Some(mut theirs) = parked[1 - self.side].take() {
            theirs.pop_batch(usize::MAX).for_each(&mut take);
        } else {
            parked[self.side] = Some(parts.rx);
        }
        lost
    }
}
