//! One owned buffer that holds one Ethernet frame, and what is known about it.

use core::ptr::NonNull;

use crate::ids::PortId;

bitflags::bitflags! {
    /// What a driver or a node knows about a frame.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FrameFlags: u16 {
        /// The receiver vouches for the transport checksum.
        const CHECKSUM_GOOD = 1 << 0;
        /// The transport checksum field holds only the pseudo-header sum; who sends must finish it.
        const CHECKSUM_PARTIAL = 1 << 1;
        /// `flow_hash` is valid.
        const FLOW_HASH = 1 << 2;
        /// The frame was made by this node, not received.
        const LOCAL = 1 << 3;
        /// The frame has been to the worker that owns its flow.
        const HANDED_OFF = 1 << 4;
    }
}

/// One owned frame: a slot of a [`crate::Region`], the bytes in use, and metadata carried with them.
///
/// A frame is a token: exactly one exists for a slot that is in use. It has no destructor (the fast
/// path pays nothing); give it back with [`crate::Pool::free`] or to a [`crate::Queue`]. A lost frame
/// is lost memory, never unsoundness, and the conservation checkers of the tests find it.
///
/// At most 64 bytes: one cache line.
#[derive(Debug)]
#[repr(C)]
#[must_use = "a frame that is dropped is lost to its pool"]
pub struct Frame {
    // What `CompactFrame` carries comes first and has its layout, so that expanding one is a 16-byte copy:
    // a wide load soon after narrow stores to the same bytes would wait for the store buffer.
    /// First byte of the slot.
    slot: NonNull<u8>,
    offset: u16,
    len: u16,
    capacity: u16,
    /// What is known about the frame.
    pub flags: FrameFlags,
    /// When the frame was received, nanoseconds of the driver's clock; 0 if the driver does not know.
    pub timestamp_ns: u64,
    /// Keyed hash of the flow key, valid with [`FrameFlags::FLOW_HASH`].
    pub flow_hash: u32,
    /// Scratch for the node graph: what one node tells the next (e.g. the next hop's index).
    pub mark: u32,
    /// The port that received the frame.
    pub rx_port: PortId,
    /// The port that is to send the frame, once a node has chosen it.
    pub tx_port: PortId,
    /// Where the headers are, once the validating pass has run.
    pub layout: wire::Layout,
    /// TCP payload bytes of each segment that the card is to cut this frame into, 0 for a frame that is sent
    /// as it is. Only for a queue with [`crate::Offloads::SEGMENT_IPV4`] or
    /// `SEGMENT_IPV6`, together with [`FrameFlags::CHECKSUM_PARTIAL`].
    pub segment_bytes: u16,
}

const _: () = assert!(
    core::mem::size_of::<Frame>() <= 64,
    "a frame fits a cache line"
);

// SAFETY: a `Frame` is the only handle to its slot, so moving it to another thread moves the memory
// with it; the slot's memory is shared mapped memory without thread affinity.
unsafe impl Send for Frame {}

impl Frame {
    /// Makes the handle for a slot, empty, with its data to start at `headroom`.
    ///
    /// # Safety
    /// `slot` points to `capacity` bytes that stay mapped, readable and writable for as long as the
    /// handle exists (the [`crate::Pool`] leaks its region rather than unmap it under a live frame),
    /// and no other handle to the slot exists.
    #[inline]
    pub(crate) unsafe fn new(slot: NonNull<u8>, capacity: u16, headroom: u16) -> Self {
        CompactFrame {
            slot,
            offset: headroom.min(capacity),
            len: 0,
            capacity,
            flags: FrameFlags::empty(),
        }
        .expand(PortId(0))
    }

    /// Makes the handle for a slot that holds a received frame.
    ///
    /// # Safety
    /// As [`Frame::new`]; and `offset + len` is at most `capacity`.
    #[inline]
    pub(crate) unsafe fn received(
        slot: NonNull<u8>,
        capacity: u16,
        offset: u16,
        len: u16,
        rx_port: PortId,
    ) -> Self {
        CompactFrame {
            slot,
            offset,
            len,
            capacity,
            flags: FrameFlags::empty(),
        }
        .expand(rx_port)
    }

    /// Returns the handle without its metadata: what a ring or a wire carries.
    #[inline]
    pub fn compact(self) -> CompactFrame {
        CompactFrame {
            slot: self.slot,
            offset: self.offset,
            len: self.len,
            capacity: self.capacity,
            flags: FrameFlags::empty(),
        }
    }

    /// Returns the address of the slot's first byte, for drivers.
    #[inline]
    pub fn slot(&self) -> NonNull<u8> {
        self.slot
    }

    /// Returns the length of the frame, bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame is a packet, not a collection"
    )]
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns where the data starts in the slot, bytes.
    #[inline]
    pub fn offset(&self) -> usize {
        usize::from(self.offset)
    }

    /// Returns the size of the slot, bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        usize::from(self.capacity)
    }

    /// Returns how many bytes can be prepended.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.offset)
    }

    /// Returns how many bytes can be appended.
    #[inline]
    pub fn tailroom(&self) -> usize {
        usize::from(self.capacity - self.offset - self.len)
    }

    /// Returns the frame's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `offset <= capacity` by the invariant kept in `set_range`, so this stays in the slot.
        let start = unsafe { self.slot.add(usize::from(self.offset)) };
        // SAFETY: `offset + len <= capacity`; the slot is mapped and only this handle reaches it. The
        // mapping is zero-filled at start, so that every byte is initialised.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), usize::from(self.len)) }
    }

    /// Returns the frame's bytes for writing.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `data`.
        let start = unsafe { self.slot.add(usize::from(self.offset)) };
        // SAFETY: as in `data`; `&mut self` makes the borrow exclusive.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), usize::from(self.len)) }
    }

    /// Chooses which bytes of the slot are the frame, and tells whether they fit (if not, nothing
    /// changes). The bytes keep whatever the slot holds.
    #[inline]
    pub fn set_range(&mut self, offset: usize, len: usize) -> bool {
        let capacity = usize::from(self.capacity);
        if offset > capacity || len > capacity - offset {
            return false;
        }
        // Both fit a u16 because the capacity does.
        self.offset = offset as u16;
        self.len = len as u16;
        true
    }

    /// Sets the length, keeping the start; tells whether it fits.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> bool {
        self.set_range(self.offset(), len)
    }

    /// Grows the frame by `n` bytes at the front and tells whether there was headroom.
    #[inline]
    pub fn push_front(&mut self, n: usize) -> bool {
        n <= self.headroom() && self.set_range(self.offset() - n, self.len() + n)
    }

    /// Cuts `n` bytes off the front and tells whether the frame was long enough.
    #[inline]
    pub fn pull_front(&mut self, n: usize) -> bool {
        n <= self.len() && self.set_range(self.offset() + n, self.len() - n)
    }

    /// Replaces the content by `bytes`, starting at the current offset; tells whether they fit.
    #[inline]
    pub fn fill(&mut self, bytes: &[u8]) -> bool {
        let fits = self.set_len(bytes.len());
        if fits {
            self.data_mut().copy_from_slice(bytes);
        }
        fits
    }

    /// Forgets what was known about the frame's content; the bytes stay.
    pub fn reset_metadata(&mut self) {
        self.timestamp_ns = 0;
        self.flow_hash = 0;
        self.flags = FrameFlags::empty();
        self.layout = wire::Layout::default();
        self.mark = 0;
        self.segment_bytes = 0;
    }
}

/// A [`Frame`] without its metadata: the slot and the bytes in use, 16 bytes.
///
/// It is the same token in another shape, so that a ring between two ports moves a quarter of the
/// memory, and what one node knew about a frame does not pass over a wire.
#[derive(Debug)]
#[repr(C)]
#[must_use = "a frame that is dropped is lost to its pool"]
pub struct CompactFrame {
    slot: NonNull<u8>,
    offset: u16,
    len: u16,
    capacity: u16,
    /// Always empty.
    flags: FrameFlags,
}

// SAFETY: as for `Frame`, of which it is another shape.
unsafe impl Send for CompactFrame {}

impl CompactFrame {
    /// Returns the frame, received by `rx_port`, with no other metadata.
    #[inline]
    pub fn expand(self, rx_port: PortId) -> Frame {
        Frame {
            slot: self.slot,
            offset: self.offset,
            len: self.len,
            capacity: self.capacity,
            flags: self.flags,
            timestamp_ns: 0,
            flow_hash: 0,
            mark: 0,
            rx_port,
            tx_port: PortId(0),
            layout: wire::Layout::default(),
            segment_bytes: 0,
        }
    }

    /// Returns the address of the slot's first byte.
    #[inline]
    pub fn slot(&self) -> NonNull<u8> {
        self.slot
    }

    /// Returns the length of the frame, bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame is a packet, not a collection"
    )]
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugePages, Pool};

    #[test]
    fn ranges_never_leave_the_slot() {
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        let mut frame = pool.alloc().unwrap();
        assert_eq!((frame.offset(), frame.len()), (256, 0));
        assert_eq!(frame.tailroom(), 2048 - 256);
        assert!(!frame.set_len(2048 - 256 + 1));
        assert!(frame.set_len(2048 - 256));
        assert!(!frame.set_range(2049, 0));
        assert!(!frame.set_range(usize::MAX, usize::MAX));
        assert!(!frame.push_front(257));
        assert!(frame.push_front(256));
        assert_eq!((frame.headroom(), frame.len()), (0, 2048));
        assert!(!frame.pull_front(2049));
        assert!(frame.pull_front(2048));
        assert_eq!(frame.data(), b"");
        pool.free(frame);
    }

    #[test]
    fn a_compact_frame_is_the_same_bytes_without_the_metadata() {
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        let mut frame = pool.alloc().unwrap();
        assert!(frame.fill(b"abc"));
        frame.mark = 7;
        frame.flags = FrameFlags::LOCAL;
        assert_eq!(core::mem::size_of::<CompactFrame>(), 16);
        let frame = frame.compact().expand(PortId(3));
        assert_eq!(frame.data(), b"abc");
        assert_eq!((frame.mark, frame.flags), (0, FrameFlags::empty()));
        assert_eq!(frame.rx_port, PortId(3));
        pool.free(frame);
        assert_eq!(pool.available(), 1);
    }
}
