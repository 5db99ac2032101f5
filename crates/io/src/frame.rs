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
/// 64 bytes: one cache line.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to its pool"]
pub struct Frame {
    /// First byte of the slot.
    slot: NonNull<u8>,
    /// When the frame was received, nanoseconds of the driver's clock; 0 if the driver does not know.
    pub timestamp_ns: u64,
    /// Keyed hash of the flow key, valid with [`FrameFlags::FLOW_HASH`].
    pub flow_hash: u32,
    offset: u16,
    len: u16,
    capacity: u16,
    /// What is known about the frame.
    pub flags: FrameFlags,
    /// The port that received the frame.
    pub rx_port: PortId,
    /// The port that is to send the frame, once a node has chosen it.
    pub tx_port: PortId,
    /// Where the headers are, once the validating pass has run.
    pub layout: wire::Layout,
    /// Scratch for the node graph: what one node tells the next (e.g. the next hop's index).
    pub mark: u32,
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
    pub(crate) unsafe fn new(slot: NonNull<u8>, capacity: u16, headroom: u16) -> Self {
        Self {
            slot,
            timestamp_ns: 0,
            flow_hash: 0,
            offset: headroom.min(capacity),
            len: 0,
            capacity,
            flags: FrameFlags::empty(),
            rx_port: PortId(0),
            tx_port: PortId(0),
            layout: wire::Layout::default(),
            mark: 0,
        }
    }

    /// Returns the address of the slot's first byte, for drivers.
    pub fn slot(&self) -> NonNull<u8> {
        self.slot
    }

    /// Returns the length of the frame, bytes.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame is a packet, not a collection"
    )]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns where the data starts in the slot, bytes.
    pub fn offset(&self) -> usize {
        usize::from(self.offset)
    }

    /// Returns the size of the slot, bytes.
    pub fn capacity(&self) -> usize {
        usize::from(self.capacity)
    }

    /// Returns how many bytes can be prepended.
    pub fn headroom(&self) -> usize {
        usize::from(self.offset)
    }

    /// Returns how many bytes can be appended.
    pub fn tailroom(&self) -> usize {
        usize::from(self.capacity - self.offset - self.len)
    }

    /// Returns the frame's bytes.
    pub fn data(&self) -> &[u8] {
        // SAFETY: `offset <= capacity` by the invariant kept in `set_range`, so this stays in the slot.
        let start = unsafe { self.slot.add(usize::from(self.offset)) };
        // SAFETY: `offset + len <= capacity`; the slot is mapped and only this handle reaches it. The
        // mapping is zero-filled at start, so that every byte is initialised.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), usize::from(self.len)) }
    }

    /// Returns the frame's bytes for writing.
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `data`.
        let start = unsafe { self.slot.add(usize::from(self.offset)) };
        // SAFETY: as in `data`; `&mut self` makes the borrow exclusive.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), usize::from(self.len)) }
    }

    /// Chooses which bytes of the slot are the frame, and tells whether they fit (if not, nothing
    /// changes). The bytes keep whatever the slot holds.
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
    pub fn set_len(&mut self, len: usize) -> bool {
        self.set_range(self.offset(), len)
    }

    /// Grows the frame by `n` bytes at the front and tells whether there was headroom.
    pub fn push_front(&mut self, n: usize) -> bool {
        n <= self.headroom() && self.set_range(self.offset() - n, self.len() + n)
    }

    /// Cuts `n` bytes off the front and tells whether the frame was long enough.
    pub fn pull_front(&mut self, n: usize) -> bool {
        n <= self.len() && self.set_range(self.offset() + n, self.len() - n)
    }

    /// Replaces the content by `bytes`, starting at the current offset; tells whether they fit.
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
    }
}
