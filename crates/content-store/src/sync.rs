//! The synchronisation primitives of this crate (those of `core`, or loom's or shuttle's instrumented ones)
//! and the two locks that it has: a bit of a word, and the sequence lock of an inner node.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic;
#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::sync::atomic;

/// Plain atomics also under a model checker: for words that a lock of this crate guards, and for counters and settings
/// that order nothing. A model without them has fewer schedules to search.
pub(crate) mod unmodelled {
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64};
}

use atomic::{AtomicU64, Ordering};

/// Spins before a waiting thread yields to the system.
#[cfg(not(any(loom, shuttle)))]
const SPINS_BEFORE_YIELD: u32 = 64;

/// Waits a moment for the holder of a lock; the holder runs a bounded number of steps, but may have been
/// preempted, so that after some spins the thread yields.
#[inline]
pub(crate) fn relax(spins: &mut u32) {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(all(shuttle, not(loom)))]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    {
        #[cfg(feature = "std")]
        if *spins >= SPINS_BEFORE_YIELD {
            std::thread::yield_now();
        }
        let _ = SPINS_BEFORE_YIELD;
        core::hint::spin_loop();
    }
    *spins = spins.saturating_add(1);
}

/// Sets `bit` of `word` when it is clear, waiting for that.
#[inline]
pub(crate) fn lock_bit(word: &AtomicU64, bit: u64) {
    let mut spins = 0;
    loop {
        let seen = word.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `unlock_bit`: we see what the last holder wrote.
        if seen & bit == 0
            && word
                .compare_exchange(seen, seen | bit, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
        relax(&mut spins);
    }
}

/// Clears `bit` of `word`.
#[inline]
pub(crate) fn unlock_bit(word: &AtomicU64, bit: u64) {
    // Release: pairs with the acquire in `lock_bit`.
    word.fetch_and(!bit, Ordering::Release);
}

/// A value behind a spin lock, for what is touched rarely.
#[derive(Debug)]
pub(crate) struct SpinLock<T> {
    lock: AtomicU64,
    value: core::cell::UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time, and `T: Send`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            lock: AtomicU64::new(0),
            value: core::cell::UnsafeCell::new(value),
        }
    }

    /// Runs `f` on the value, alone. `f` must not panic (the lock would stay taken).
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        lock_bit(&self.lock, 1);
        // SAFETY: we hold the lock, so that no other reference to the value is alive.
        let result = f(unsafe { &mut *self.value.get() });
        unlock_bit(&self.lock, 1);
        result
    }
}
