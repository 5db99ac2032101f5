//! Many producers, one consumer: each slot carries the position that may use it next, so that producers
//! meet at one compare-and-swap and the consumer at none (Vyukov's bounded queue, with one consumer).
//!
//! Not lock-free in the strict sense: a producer that stalls between taking a position and filling it hides
//! later values from the consumer until it goes on. Workers never wait for it: they see an empty ring.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, UnsafeCell};
use alloc::boxed::Box;
use core::fmt;
use core::mem::MaybeUninit;
use crossbeam_utils::CachePadded;

struct Slot<T> {
    /// `position`: free for the producer of that position. `position + 1`: holds its value.
    turn: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Shared<T> {
    tail: CachePadded<AtomicUsize>,
    /// How far the consumer has read; written when the consumer is dropped.
    head: CachePadded<AtomicUsize>,
    mask: usize,
    slots: Box<[Slot<T>]>,
}

// SAFETY: a slot's value is reached by the one whose turn it is: the producer that took its position, then
// the consumer; the release stores of `turn` hand it over.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: the values inside may move between threads as `T: Send`, and nothing else is tied to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Takes the value at `position`, if its producer has filled it.
    ///
    /// # Safety
    /// The caller is the consumer (or the last owner), and `position` was not taken before.
    unsafe fn take(&self, position: usize) -> Option<T> {
        let slot = &self.slots[position & self.mask];
        // Acquire: pairs with the release store in `push`: the value is there.
        if slot.turn.load(Ordering::Acquire) != position.wrapping_add(1) {
            return None;
        }
        let value = slot.value.with(|value| {
            // SAFETY: the turn says that the slot holds the value of this position, and it is ours.
            let value = unsafe { value.read() };
            // SAFETY: the producer initialised it before it passed the turn on.
            unsafe { value.assume_init() }
        });
        // Release: pairs with the acquire load in `push`: our read comes before the next write.
        slot.turn
            .store(position.wrapping_add(self.slots.len()), Ordering::Release);
        Some(value)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let mut position = self.head.load(Ordering::Relaxed);
        // SAFETY: no handle is left, and `head` is what the consumer published last, when it was dropped.
        while let Some(value) = unsafe { self.take(position) } {
            drop(value);
            position = position.wrapping_add(1);
        }
    }
}

/// Makes a ring for at least `capacity` values (rounded up to a power of two, two at least).
///
/// # Panics
/// If `capacity` is zero or above a quarter of the address space.
pub fn mpsc<T: Send>(capacity: usize) -> (MpscProducer<T>, MpscConsumer<T>) {
    assert!(capacity > 0, "a ring needs room for one value");
    assert!(capacity <= usize::MAX / 4, "ring capacity out of range");
    // With one slot, "free for position 1" and "holds the value of position 0" would be one number.
    let len = capacity.next_power_of_two().max(2);
    let shared = Arc::new(Shared {
        tail: CachePadded::new(AtomicUsize::new(0)),
        head: CachePadded::new(AtomicUsize::new(0)),
        mask: len - 1,
        slots: (0..len)
            .map(|position| Slot {
                turn: AtomicUsize::new(position),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect(),
    });
    let consumer = MpscConsumer {
        shared: Arc::clone(&shared),
        head: 0,
    };
    (MpscProducer { shared }, consumer)
}

/// A writing end of an MPSC ring; clones write to the same ring.
pub struct MpscProducer<T: Send> {
    shared: Arc<Shared<T>>,
}

impl<T: Send> MpscProducer<T> {
    /// Number of values that the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Pushes one value.
    ///
    /// # Errors
    /// Gives the value back if the ring is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        let shared = &*self.shared;
        let mut position = shared.tail.load(Ordering::Relaxed);
        loop {
            let slot = &shared.slots[position & shared.mask];
            // Acquire: pairs with the release store in `take`: the consumer's read is done.
            let turn = slot.turn.load(Ordering::Acquire);
            let ahead = turn.wrapping_sub(position).cast_signed();
            if ahead < 0 {
                return Err(value);
            }
            if ahead > 0 {
                position = shared.tail.load(Ordering::Relaxed);
                continue;
            }
            // Relaxed: the position decides who writes; the turn publishes what.
            let taken = shared.tail.compare_exchange_weak(
                position,
                position.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => {
                    slot.value.with_mut(|place| {
                        // SAFETY: the turn was ours, and the position is ours alone since the swap.
                        unsafe { place.write(MaybeUninit::new(value)) }
                    });
                    // Release: pairs with the acquire load in `take`.
                    slot.turn.store(position.wrapping_add(1), Ordering::Release);
                    return Ok(());
                }
                Err(now) => position = now,
            }
        }
    }

    /// Pushes values from `items` until the ring is full or `items` ends, and returns how many, and the
    /// one that did not fit, if it had to be taken from `items`.
    pub fn push_batch(&self, items: &mut impl Iterator<Item = T>) -> (usize, Option<T>) {
        let mut pushed = 0;
        for item in items {
            if let Err(back) = self.push(item) {
                return (pushed, Some(back));
            }
            pushed += 1;
        }
        (pushed, None)
    }
}

impl<T: Send> Clone for MpscProducer<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T: Send> fmt::Debug for MpscProducer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpscProducer")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// The reading end of an MPSC ring.
pub struct MpscConsumer<T: Send> {
    shared: Arc<Shared<T>>,
    head: usize,
}

impl<T: Send> MpscConsumer<T> {
    /// Number of values that the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Pops the oldest value.
    pub fn pop(&mut self) -> Option<T> {
        // SAFETY: this is the only consumer (`&mut self`), and `head` moves on with every value.
        let value = unsafe { self.shared.take(self.head) }?;
        self.head = self.head.wrapping_add(1);
        Some(value)
    }

    /// Pops up to `max` values, oldest first, as the iterator is advanced.
    pub fn pop_batch(&mut self, max: usize) -> impl Iterator<Item = T> + '_ {
        core::iter::from_fn(|| self.pop()).take(max)
    }

    /// True when no value waits now. The recheck before a worker blocks.
    pub fn is_empty(&self) -> bool {
        let slot = &self.shared.slots[self.head & self.shared.mask];
        // Acquire: as in `take`.
        slot.turn.load(Ordering::Acquire) != self.head.wrapping_add(1)
    }

    /// True when all producers are gone; values may still wait.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.shared) < 2
    }
}

impl<T: Send> Drop for MpscConsumer<T> {
    fn drop(&mut self) {
        // Relaxed: read by the last owner's drop, which the reference count orders after us.
        self.shared.head.store(self.head, Ordering::Relaxed);
    }
}

impl<T: Send> fmt::Debug for MpscConsumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpscConsumer")
            .field("capacity", &self.capacity())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn full_ring_gives_the_value_back_and_drops_what_is_left() {
        let marker = alloc::sync::Arc::new(());
        let (tx, mut rx) = mpsc(2);
        assert!(tx.push(marker.clone()).is_ok());
        assert!(tx.push(marker.clone()).is_ok());
        assert!(tx.push(marker.clone()).is_err());
        assert!(rx.pop().is_some());
        let mut more = (0..2).map(|_| marker.clone());
        let (pushed, back) = tx.push_batch(&mut more);
        assert_eq!((pushed, back.is_some()), (1, true));
        drop((tx, back));
        assert!(rx.is_closed() && !rx.is_empty());
        drop(rx);
        assert_eq!(alloc::sync::Arc::strong_count(&marker), 1);
    }

    #[test]
    fn producers_keep_their_own_order() {
        const EACH: u64 = 50_000;
        let (tx, mut rx) = mpsc(128);
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let tx = tx.clone();
                std::thread::spawn(move || {
                    for at in 0..EACH {
                        while tx.push((thread, at)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0; 3];
        while next.iter().sum::<u64>() < 3 * EACH {
            let before = next;
            for (thread, at) in rx.pop_batch(64) {
                assert_eq!(at, next[thread as usize]);
                next[thread as usize] += 1;
            }
            if before == next {
                std::thread::yield_now();
            }
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(rx.is_empty());
    }
}
