//! One producer, one consumer: two indices, each written by one side, each cached by the other.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, UnsafeCell};
use alloc::boxed::Box;
use core::fmt;
use core::mem::MaybeUninit;
use crossbeam_utils::CachePadded;

/// What both sides share. Slots with positions in `head..tail` hold values.
struct Shared<T> {
    /// Position of the next slot to read; written by the consumer alone.
    head: CachePadded<AtomicUsize>,
    /// Position of the next slot to write; written by the producer alone.
    tail: CachePadded<AtomicUsize>,
    /// Number of slots less one; the number of slots is a power of two.
    mask: usize,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is reached by one side at a time: the producer writes positions outside `head..tail`,
// the consumer reads positions inside, and the release stores of `tail` and `head` hand them over.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: the values inside may move between threads as `T: Send`, and nothing else is tied to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Writes the slot of `position`.
    ///
    /// # Safety
    /// The caller is the producer, and `position` is outside `head..tail` as published.
    unsafe fn write(&self, position: usize, value: T) {
        self.slots[position & self.mask].with_mut(|slot| {
            // SAFETY: the slot is valid memory of this ring, and by the contract nobody else reaches it.
            unsafe { slot.write(MaybeUninit::new(value)) }
        });
    }

    /// Moves the value out of the slot of `position`.
    ///
    /// # Safety
    /// The caller is the consumer, and `position` is inside `head..tail` and was not read before.
    unsafe fn read(&self, position: usize) -> T {
        self.slots[position & self.mask].with(|slot| {
            // SAFETY: by the contract the slot was written and published, and nobody else reaches it.
            let value = unsafe { slot.read() };
            // SAFETY: the producer initialised the slot before it published the position.
            unsafe { value.assume_init() }
        })
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Relaxed: the last handle is gone, and the reference count ordered its stores before us.
        let mut head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: `head..tail` holds values, and no handle is left to read them.
            drop(unsafe { self.read(head) });
            head = head.wrapping_add(1);
        }
    }
}

/// Makes a ring for at least `capacity` values (rounded up to a power of two) and returns its two ends.
///
/// Memory is taken here once; neither end allocates later.
///
/// # Panics
/// If `capacity` is zero or above half of the address space.
pub fn spsc<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity > 0, "a ring needs room for one value");
    assert!(capacity <= usize::MAX / 4, "ring capacity out of range");
    let len = capacity.next_power_of_two();
    let shared = Arc::new(Shared {
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: CachePadded::new(AtomicUsize::new(0)),
        mask: len - 1,
        slots: (0..len)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
    });
    let producer = Producer {
        shared: Arc::clone(&shared),
        tail: 0,
        published: 0,
        cached_head: 0,
    };
    let consumer = Consumer {
        shared,
        head: 0,
        published: 0,
        cached_tail: 0,
    };
    (producer, consumer)
}

/// The writing end of an SPSC ring.
pub struct Producer<T: Send> {
    shared: Arc<Shared<T>>,
    /// Next position to write.
    tail: usize,
    /// What `shared.tail` holds.
    published: usize,
    /// A past value of `shared.head`: the ring has at least the room that it tells.
    cached_head: usize,
}

impl<T: Send> Producer<T> {
    /// Number of values that the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.mask + 1
    }

    /// Number of values that could be pushed now.
    pub fn free(&mut self) -> usize {
        self.refresh();
        self.room()
    }

    /// Pushes one value.
    ///
    /// # Errors
    /// Gives the value back if the ring is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.room() == 0 {
            self.refresh();
            if self.room() == 0 {
                return Err(value);
            }
        }
        // SAFETY: this is the only producer (`&mut self`), and there is room at `tail`.
        unsafe { self.shared.write(self.tail, value) };
        self.tail = self.tail.wrapping_add(1);
        self.publish();
        Ok(())
    }

    /// Pushes values from `items` until the ring is full or `items` ends, publishes them at once, and
    /// returns how many were pushed. Takes no value from `items` that it does not push.
    pub fn push_batch(&mut self, items: &mut impl Iterator<Item = T>) -> usize {
        self.refresh();
        // The position is in a register and only stored for each value: loaded again for the next, it would
        // have to wait for the store. If `items` panics, what it gave is published by the next push or drop.
        let start = self.tail;
        let end = start.wrapping_add(self.room());
        let mut tail = start;
        while tail != end {
            let Some(value) = items.next() else { break };
            // SAFETY: this is the only producer (`&mut self`), and there is room at `tail`.
            unsafe { self.shared.write(tail, value) };
            tail = tail.wrapping_add(1);
            self.tail = tail;
        }
        self.publish();
        tail.wrapping_sub(start)
    }

    /// True when the consumer is gone: nothing pushed will be read.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.shared) < 2
    }

    fn room(&self) -> usize {
        self.capacity() - self.tail.wrapping_sub(self.cached_head)
    }

    fn refresh(&mut self) {
        // Acquire: pairs with the release store in `Consumer::publish`; the consumer's reads of the
        // slots come before our writes to them.
        self.cached_head = self.shared.head.load(Ordering::Acquire);
    }

    fn publish(&mut self) {
        if self.published != self.tail {
            // Release: pairs with the acquire load in `Consumer::refresh`; our writes to the slots
            // come before the consumer's reads.
            self.shared.tail.store(self.tail, Ordering::Release);
            self.published = self.tail;
        }
    }
}

impl<T: Send> Drop for Producer<T> {
    fn drop(&mut self) {
        self.publish();
    }
}

impl<T: Send> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("capacity", &self.capacity())
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

/// The reading end of an SPSC ring.
pub struct Consumer<T: Send> {
    shared: Arc<Shared<T>>,
    /// Next position to read.
    head: usize,
    /// What `shared.head` holds.
    published: usize,
    /// A past value of `shared.tail`: the ring has at least the values that it tells.
    cached_tail: usize,
}

impl<T: Send> Consumer<T> {
    /// Number of values that the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.mask + 1
    }

    /// Number of values that wait now.
    pub fn len(&mut self) -> usize {
        self.refresh();
        self.available()
    }

    /// True when no value waits now. The recheck before a worker blocks.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Pops the oldest value.
    pub fn pop(&mut self) -> Option<T> {
        if self.available() == 0 {
            self.refresh();
            if self.available() == 0 {
                return None;
            }
        }
        let value = self.take();
        self.publish();
        Some(value)
    }

    /// Pops up to `max` values: an iterator over those that wait now, oldest first. Their slots return to
    /// the producer together, when the iterator is dropped; what it did not yield stays in the ring.
    pub fn pop_batch(&mut self, max: usize) -> Drain<'_, T> {
        self.refresh();
        let next = self.head;
        let end = next.wrapping_add(self.available().min(max));
        Drain {
            consumer: self,
            next,
            end,
        }
    }

    /// True when the producer is gone; values may still wait.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.shared) < 2
    }

    fn available(&self) -> usize {
        self.cached_tail.wrapping_sub(self.head)
    }

    fn take(&mut self) -> T {
        // SAFETY: this is the only consumer (`&mut self`), callers saw `available() > 0`, and `head` moves
        // on at once, so that no position is read twice.
        let value = unsafe { self.shared.read(self.head) };
        self.head = self.head.wrapping_add(1);
        value
    }

    fn refresh(&mut self) {
        // Acquire: pairs with the release store in `Producer::publish`; the producer's writes to the
        // slots come before our reads.
        self.cached_tail = self.shared.tail.load(Ordering::Acquire);
    }

    fn publish(&mut self) {
        if self.published != self.head {
            // Release: pairs with the acquire load in `Producer::refresh`; our reads of the slots come
            // before the producer's next writes to them.
            self.shared.head.store(self.head, Ordering::Release);
            self.published = self.head;
        }
    }
}

impl<T: Send> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.publish();
    }
}

impl<T: Send> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("capacity", &self.capacity())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

/// Iterator of [`Consumer::pop_batch`].
#[derive(Debug)]
pub struct Drain<'a, T: Send> {
    consumer: &'a mut Consumer<T>,
    /// Positions `next..end` hold the values still to be yielded. `next` is the consumer's `head`, kept here
    /// for the reason that `push_batch` gives.
    next: usize,
    end: usize,
}

impl<T: Send> Iterator for Drain<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: this is the only consumer (`&mut`), `pop_batch` saw a value at the position, and `head` moves
        // on at once, so that it is not read twice even if the iterator is forgotten.
        let value = unsafe { self.consumer.shared.read(self.next) };
        self.next = self.next.wrapping_add(1);
        self.consumer.head = self.next;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.wrapping_sub(self.next);
        (left, Some(left))
    }
}

impl<T: Send> ExactSizeIterator for Drain<'_, T> {}

impl<T: Send> Drop for Drain<'_, T> {
    fn drop(&mut self) {
        self.consumer.publish();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn full_ring_gives_the_value_back() {
        let (mut tx, mut rx) = spsc(2);
        assert_eq!(tx.push(1), Ok(()));
        assert_eq!(tx.push(2), Ok(()));
        assert_eq!(tx.push(3), Err(3));
        assert_eq!(rx.pop(), Some(1));
        assert_eq!(tx.push(3), Ok(()));
        assert_eq!(rx.pop_batch(8).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(rx.pop(), None);
    }

    #[test]
    fn push_batch_takes_only_what_fits() {
        let (mut tx, mut rx) = spsc(4);
        let mut items = 0..10;
        assert_eq!(tx.push_batch(&mut items), 4);
        assert_eq!(items.next(), Some(4));
        assert_eq!(rx.pop_batch(3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(tx.free(), 3);
        assert_eq!(rx.len(), 1);
    }

    #[test]
    fn values_left_in_the_ring_are_dropped_once() {
        let marker = alloc::sync::Arc::new(());
        let (mut tx, mut rx) = spsc(8);
        for _ in 0..6 {
            assert!(tx.push(alloc::sync::Arc::clone(&marker)).is_ok());
        }
        drop(rx.pop());
        let mut drain = rx.pop_batch(8);
        drop(drain.next());
        core::mem::forget(drain);
        assert_eq!(alloc::sync::Arc::strong_count(&marker), 5);
        drop(tx);
        assert!(rx.is_closed());
        drop(rx);
        assert_eq!(alloc::sync::Arc::strong_count(&marker), 1);
    }

    #[test]
    fn two_threads_keep_order() {
        const N: usize = 200_000;
        let (mut tx, mut rx) = spsc(64);
        let writer = std::thread::spawn(move || {
            let mut items = 0..N;
            while !items.is_empty() {
                if tx.push_batch(&mut items) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < N {
            let before = expected;
            for value in rx.pop_batch(32) {
                assert_eq!(value, expected);
                expected += 1;
            }
            if before == expected {
                std::thread::yield_now();
            }
        }
        writer.join().unwrap();
        assert!(rx.is_empty());
    }

    proptest! {
        #[test]
        fn behaves_like_a_bounded_queue(
            capacity in 1_usize..9,
            ops in prop::collection::vec((any::<bool>(), 0_usize..6), 1..200),
        ) {
            let (mut tx, mut rx) = spsc(capacity);
            let mut model = VecDeque::new();
            let mut next = 0_u32;
            for (push, n) in ops {
                if push {
                    let room = tx.capacity() - model.len();
                    let mut items = (next..).take(n);
                    prop_assert_eq!(tx.push_batch(&mut items), n.min(room));
                    for _ in 0..n.min(room) {
                        model.push_back(next);
                        next += 1;
                    }
                } else {
                    let got: Vec<_> = rx.pop_batch(n).collect();
                    let want: Vec<_> = (0..n).map_while(|_| model.pop_front()).collect();
                    prop_assert_eq!(got, want);
                }
                prop_assert_eq!(rx.len(), model.len());
            }
        }
    }
}
