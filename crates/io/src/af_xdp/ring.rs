//! The four rings that an AF_XDP socket shares with the kernel: single producer, single consumer.
//!
//! The kernel maps each ring's producer index, consumer index, flags and entries into one area; one
//! side writes the producer index and the entries, the other the consumer index. The index of the
//! other side is read only when the cached copy does not suffice, so that its cache line moves once a
//! burst.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which ring of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingKind {
    Rx,
    Tx,
    Fill,
    Completion,
}

impl RingKind {
    /// Offset that selects the ring in `mmap(2)`.
    fn page_offset(self) -> libc::off_t {
        match self {
            Self::Rx => libc::XDP_PGOFF_RX_RING,
            Self::Tx => libc::XDP_PGOFF_TX_RING,
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
        }
    }
}

/// What a ring carries: plain data that the kernel reads and writes.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// A mapped ring.
#[derive(Debug)]
struct Mapped<T> {
    area: NonNull<u8>,
    area_bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
}

impl<T: Entry> Mapped<T> {
    /// Maps a ring of `size` entries (a power of two, as it was set on the socket).
    fn new(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let area_bytes = offsets.desc as usize + size as usize * size_of::<T>();
        // SAFETY: asks for a new mapping at an address of the kernel's choice.
        let area = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                area_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                kind.page_offset(),
            )
        };
        if area == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let area = NonNull::new(area.cast::<u8>()).ok_or(io::ErrorKind::AddrInUse)?;
        // SAFETY: the kernel's offsets are inside the ring's mapping, of the size that it wants.
        let at = |offset: u64| unsafe { area.add(offset as usize) };
        Ok(Self {
            area,
            area_bytes,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc).cast(),
            size,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: an aligned 32-bit word in the mapping, which lives as long as `self`; both sides
        // access it atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `producer`.
        let flags = unsafe { self.flags.as_ref() };
        // Relaxed: callers put a fence between publishing entries and asking.
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The entry that a (running) index names.
    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is below `size`, the number of entries that follow.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; no reference into it outlives `self`.
        unsafe { libc::munmap(self.area.as_ptr().cast(), self.area_bytes) };
    }
}

// SAFETY: the mapping has no thread affinity, and one owner uses our side of the ring at a time.
unsafe impl<T: Entry> Send for Mapped<T> {}

/// Our side of a ring that the kernel consumes: fill or TX.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Mapped<T>,
    /// Index of the next entry to write; entries from the published index on are ours.
    next: u32,
    /// The kernel's index as last read.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Mapped::new(socket, kind, offsets, size)?;
        Ok(Self {
            ring,
            next: 0,
            consumed: 0,
        })
    }

    /// Returns how many entries can be written, at least `wanted` if there are as many.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.ring.size - self.next.wrapping_sub(self.consumed);
        if free >= wanted {
            return free;
        }
        // Acquire: pairs with the kernel's release of consumed entries, before we write over them.
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size - self.next.wrapping_sub(self.consumed)
    }

    /// Writes the next entry. The caller has seen that one is free.
    #[inline]
    pub(super) fn write(&mut self, value: T) {
        let entry = self.ring.entry(self.next);
        // SAFETY: the entry is inside the mapping, and ours until it is published.
        unsafe { entry.write(value) };
        self.next = self.next.wrapping_add(1);
    }

    /// Gives the entries written so far to the kernel.
    #[inline]
    pub(super) fn publish(&self) {
        // Release: pairs with the kernel's acquire of the producer index.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Returns how many published entries the kernel has not consumed yet.
    #[inline]
    pub(super) fn unconsumed(&mut self) -> u32 {
        if self.next != self.consumed {
            // Acquire: as in `free`.
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        self.next.wrapping_sub(self.consumed)
    }

    /// Tells whether the kernel wants a system call to go on with this ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag and then looks at the ring once more; we publish and then look at
        // the flag. Both need store-load order, or each could miss the other.
        fence(Ordering::SeqCst);
        self.ring.needs_wakeup()
    }
}

/// Our side of a ring that the kernel produces: RX or completion.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Mapped<T>,
    /// Index of the next entry to read.
    next: u32,
    /// The kernel's index as last read.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Mapped::new(socket, kind, offsets, size)?;
        Ok(Self {
            ring,
            next: 0,
            produced: 0,
        })
    }

    /// Returns how many entries can be read, up to `wanted`.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        let mut available = self.produced.wrapping_sub(self.next);
        if available < wanted {
            // Acquire: pairs with the kernel's release of the entries before their index.
            self.produced = self.ring.producer().load(Ordering::Acquire);
            available = self.produced.wrapping_sub(self.next);
        }
        // Not more than the ring has, whatever is in the shared word.
        available.min(wanted).min(self.ring.size)
    }

    /// Reads the next entry. The caller has seen that one is available.
    #[inline]
    pub(super) fn read(&mut self) -> T {
        let entry = self.ring.entry(self.next);
        self.next = self.next.wrapping_add(1);
        // SAFETY: inside the mapping; the kernel wrote it before the index that `available` acquired,
        // and does not touch it until `release`. Every bit pattern is a value of `T`.
        unsafe { entry.read() }
    }

    /// Gives the entries read so far back to the kernel.
    #[inline]
    pub(super) fn release(&self) {
        // Release: our reads are done before the kernel may write again.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A pair of ring ends over the same memory, a file in place of the kernel's rings.
    fn pair(size: u32) -> (Producer<u64>, Consumer<u64>) {
        let file = tempfile();
        let offsets = libc::xdp_ring_offset {
            producer: 0,
            consumer: 64,
            flags: 128,
            desc: 192,
        };
        (
            Producer::map(file.as_fd(), RingKind::Rx, &offsets, size).unwrap(),
            Consumer::map(file.as_fd(), RingKind::Rx, &offsets, size).unwrap(),
        )
    }

    fn tempfile() -> std::fs::File {
        use std::os::fd::FromRawFd;
        // SAFETY: makes a new anonymous file; the name is a C string.
        let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { std::fs::File::from_raw_fd(fd) };
        file.set_len(4096).unwrap();
        file
    }

    #[test]
    fn entries_come_out_in_order_across_the_wrap() {
        let (mut producer, mut consumer) = pair(8);
        let mut expected = 0..;
        let mut value = 0;
        for burst in [3u32, 8, 5, 1, 8, 7] {
            assert!(producer.free(burst) >= burst);
            for _ in 0..burst {
                producer.write(value);
                value += 1;
            }
            assert_eq!(consumer.available(8), 0, "not before it is published");
            producer.publish();
            assert_eq!(producer.unconsumed(), burst);
            assert_eq!(consumer.available(8), burst);
            for _ in 0..burst {
                assert_eq!(Some(consumer.read()), expected.next());
            }
            consumer.release();
            assert_eq!(producer.unconsumed(), 0);
        }
    }

    #[test]
    fn a_full_ring_has_no_room_until_entries_are_released() {
        let (mut producer, mut consumer) = pair(4);
        (0..4).for_each(|value| producer.write(value));
        producer.publish();
        assert_eq!(producer.free(1), 0);
        assert_eq!(consumer.available(2), 2);
        consumer.read();
        assert_eq!(producer.free(1), 0, "read is not released");
        consumer.release();
        assert_eq!(producer.free(1), 1);
    }

    #[test]
    fn indices_wrap_at_32_bits() {
        let (mut producer, mut consumer) = pair(4);
        let start = u32::MAX - 1;
        producer.next = start;
        producer.consumed = start;
        consumer.next = start;
        consumer.produced = start;
        producer.publish();
        consumer.release();
        for value in 0..4 {
            assert!(producer.free(1) > 0);
            producer.write(value);
        }
        producer.publish();
        assert_eq!((producer.free(1), consumer.available(8)), (0, 4));
        assert_eq!((0..4).map(|_| consumer.read()).sum::<u64>(), 6);
    }
}
