//! What nodes pass: up to 64 frames.

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use crate::frame::Frame;

/// The most frames that a batch holds.
pub const BATCH_MAX: usize = 64;

/// Up to [`BATCH_MAX`] frames, in order.
///
/// Frames leave from the front without the rest moving up, and making a batch writes two words, not
/// the 4 KiB of its slots: both matter at 60 million frames a second.
///
/// A batch must be empty when it is dropped (its frames would be lost); debug builds check this.
pub struct Batch {
    /// Slots `head..tail` hold frames; `head <= tail <= BATCH_MAX`.
    head: usize,
    tail: usize,
    frames: [MaybeUninit<Frame>; BATCH_MAX],
}

impl Batch {
    /// Makes an empty batch.
    #[inline]
    pub const fn new() -> Self {
        Self {
            head: 0,
            tail: 0,
            frames: [const { MaybeUninit::uninit() }; BATCH_MAX],
        }
    }

    /// Returns how many more frames fit.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH_MAX - (self.tail - self.head)
    }

    /// Tells whether no more frames fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Appends a frame, or gives it back where the batch is full.
    ///
    /// # Errors
    /// The frame itself, if the batch is full.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.tail == BATCH_MAX {
            if self.head == 0 {
                return Err(frame);
            }
            self.compact();
        }
        self.frames[self.tail].write(frame);
        self.tail += 1;
        Ok(())
    }

    /// Appends a frame, where the caller has seen that there is room: the frame is written once, in its
    /// place.
    #[inline]
    pub(crate) fn append(&mut self, frame: Frame) {
        if self.tail == BATCH_MAX {
            debug_assert!(self.head > 0, "a frame is lost: the batch is full");
            if self.head == 0 {
                return;
            }
            self.compact();
        }
        self.frames[self.tail].write(frame);
        self.tail += 1;
    }

    /// Appends frames from `frames` until the batch is full or `frames` ends; returns how many. Takes no
    /// frame from `frames` that it does not append.
    #[inline]
    pub fn extend(&mut self, frames: &mut impl Iterator<Item = Frame>) -> usize {
        if self.head > 0 {
            self.compact();
        }
        // In a register: stored for each frame, it would be loaded again for the next.
        let mut tail = self.tail;
        for slot in &mut self.frames[tail..] {
            let Some(frame) = frames.next() else { break };
            slot.write(frame);
            tail += 1;
        }
        let added = tail - self.tail;
        self.tail = tail;
        added
    }

    /// Takes the last frame.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        if self.head == self.tail {
            return None;
        }
        self.tail -= 1;
        // SAFETY: the slot was in `head..tail`, so it holds a frame, and it is outside from now on.
        let frame = unsafe { self.frames[self.tail].assume_init_read() };
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
        Some(frame)
    }

    /// Takes the first `n` frames (all, if there are fewer), in order. What the iterator does not yield
    /// before it is dropped stays in the batch.
    #[inline]
    pub fn drain_front(&mut self, n: usize) -> Drain<'_> {
        let next = self.head;
        let end = next + n.min(self.len());
        // The frames are outside `head..tail` while the iterator owns them, so that forgetting it loses
        // frames but never yields one twice.
        self.head = end;
        Drain {
            batch: self,
            next,
            end,
        }
    }

    /// Lets the first `n` frames (all, if there are fewer) go, whose slots a driver has by their addresses.
    #[cfg(feature = "dpdk")]
    #[inline]
    pub(crate) fn release_front(&mut self, n: usize) {
        self.head += n.min(self.len());
        self.settle();
    }

    /// Takes all frames, in order.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        self.drain_front(BATCH_MAX)
    }

    /// Moves as many frames from the front of `other` as fit, in order; returns how many.
    #[inline]
    pub fn append_from(&mut self, other: &mut Batch) -> usize {
        let n = self.room().min(other.len());
        if self.tail + n > BATCH_MAX {
            self.compact();
        }
        let from = other.frames[other.head..other.head + n].as_ptr();
        let to = self.frames[self.tail..self.tail + n].as_mut_ptr();
        // SAFETY: both ranges have `n` slots by the slicing above, in two distinct batches; the frames
        // leave `other`'s range and enter ours below.
        unsafe { core::ptr::copy_nonoverlapping(from, to, n) };
        self.tail += n;
        other.head += n;
        other.settle();
        n
    }

    /// Moves the frames to the start of the slots.
    #[cold]
    fn compact(&mut self) {
        let n = self.tail - self.head;
        let base = self.frames.as_mut_ptr();
        // SAFETY: `head` is at most `BATCH_MAX`.
        let from = unsafe { base.add(self.head) };
        // SAFETY: `n` slots from `head` are inside the array, and so are `n` from its start; `copy`
        // allows the overlap.
        unsafe { core::ptr::copy(from, base, n) };
        self.head = 0;
        self.tail = n;
    }

    /// Starts over at the first slot if nothing is left.
    #[inline]
    fn settle(&mut self) {
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Deref for Batch {
    type Target = [Frame];

    #[inline]
    fn deref(&self) -> &[Frame] {
        let held = &self.frames[self.head..self.tail];
        // SAFETY: the slots `head..tail` hold frames, and `MaybeUninit<Frame>` has `Frame`'s layout.
        unsafe { core::slice::from_raw_parts(held.as_ptr().cast(), held.len()) }
    }
}

impl DerefMut for Batch {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Frame] {
        let held = &mut self.frames[self.head..self.tail];
        // SAFETY: as in `deref`; `&mut self` makes the borrow exclusive.
        unsafe { core::slice::from_raw_parts_mut(held.as_mut_ptr().cast(), held.len()) }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        debug_assert!(
            self.is_empty() || std::thread::panicking(),
            "{} frames were lost with their batch",
            self.len()
        );
    }
}

/// Iterator of [`Batch::drain`] and [`Batch::drain_front`].
pub struct Drain<'a> {
    batch: &'a mut Batch,
    /// Slots `next..end` hold the frames still to be yielded.
    next: usize,
    end: usize,
}

impl fmt::Debug for Drain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("left", &(self.end - self.next))
            .finish_non_exhaustive()
    }
}

impl Iterator for Drain<'_> {
    type Item = Frame;

    #[inline]
    fn next(&mut self) -> Option<Frame> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: the slot holds a frame that this iterator owns; `next` moves past it, once.
        let frame = unsafe { self.batch.frames[self.next].assume_init_read() };
        self.next += 1;
        Some(frame)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline]
    fn drop(&mut self) {
        self.batch.head = self.next;
        self.batch.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugePages, Pool};

    fn filled(pool: &mut Pool, lengths: core::ops::Range<usize>) -> Batch {
        let mut batch = Batch::new();
        for len in lengths {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.set_len(len));
            batch.push(frame).unwrap();
        }
        batch
    }

    fn lengths(batch: &Batch) -> Vec<usize> {
        batch.iter().map(Frame::len).collect()
    }

    #[test]
    fn frames_leave_in_order_from_the_front_and_the_rest_stays() {
        let mut pool = Pool::new(128, 2048, HugePages::Never).unwrap();
        let mut batch = filled(&mut pool, 0..64);
        assert!(batch.is_full());
        let extra = pool.alloc().unwrap();
        let extra = batch.push(extra).unwrap_err();
        for (i, frame) in batch.drain_front(10).enumerate() {
            assert_eq!(frame.len(), i);
            pool.free(frame);
        }
        assert_eq!(batch.room(), 10);
        batch.push(extra).unwrap();
        assert_eq!(batch[0].len(), 10, "compacted, in order");
        assert_eq!(batch.len(), 55);
        assert_eq!(batch.pop().map(|f| (f.len(), pool.free(f)).0), Some(0));
        pool.free_batch(&mut batch);
        assert_eq!(pool.available(), 128);
        assert!(batch.pop().is_none());
    }

    #[test]
    fn an_unfinished_drain_keeps_the_rest() {
        let mut pool = Pool::new(64, 2048, HugePages::Never).unwrap();
        let mut batch = filled(&mut pool, 0..8);
        {
            let mut drain = batch.drain_front(6);
            assert_eq!(drain.len(), 6);
            pool.free(drain.next().unwrap());
            pool.free(drain.next().unwrap());
        }
        assert_eq!(lengths(&batch), [2, 3, 4, 5, 6, 7]);
        pool.free_batch(&mut batch);
        assert_eq!(pool.available(), 64);
    }

    #[test]
    fn extend_takes_what_fits_and_no_more() {
        let mut pool = Pool::new(256, 2048, HugePages::Never).unwrap();
        let mut batch = filled(&mut pool, 0..10);
        for frame in batch.drain_front(4) {
            pool.free(frame);
        }
        let mut more: Vec<Frame> = Vec::new();
        for len in 100..200 {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.set_len(len));
            more.push(frame);
        }
        let mut more = more.into_iter();
        assert_eq!(batch.extend(&mut more), 58);
        assert_eq!(lengths(&batch), (4..10).chain(100..158).collect::<Vec<_>>());
        assert_eq!(batch.extend(&mut more), 0);
        assert_eq!(more.len(), 42);
        more.for_each(|frame| pool.free(frame));
        pool.free_batch(&mut batch);
        assert_eq!(pool.available(), 256);
    }

    #[test]
    fn append_moves_what_fits_from_the_front() {
        let mut pool = Pool::new(256, 2048, HugePages::Never).unwrap();
        let mut a = filled(&mut pool, 0..60);
        let mut b = filled(&mut pool, 100..110);
        assert_eq!(a.append_from(&mut b), 4);
        assert_eq!((a.len(), b.len()), (64, 6));
        for frame in a.drain_front(30) {
            pool.free(frame);
        }
        assert_eq!(a.append_from(&mut b), 6);
        assert!(b.is_empty());
        assert_eq!(
            lengths(&a),
            (30..60).chain(100..110).collect::<Vec<_>>(),
            "order survives the compaction"
        );
        pool.free_batch(&mut a);
        assert_eq!(pool.available(), 256);
    }
}
