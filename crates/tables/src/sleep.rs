//! How a thread goes to sleep without losing a wake-up: arm, recheck, sleep.
//!
//! The flag alone, without the descriptor that the sleeper blocks on, so that loom can model it.

use crate::sync::atomic::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ASLEEP_HUNGRY: u32 = 2;

/// Tells those who bring work whether the owner sleeps.
///
/// The owner calls [`SleepFlag::arm`], *then* looks for work once more, and sleeps only if there is none.
/// Who brings work publishes it, *then* asks [`SleepFlag::must_wake`]. Of the two sequentially consistent
/// fences in these calls one comes first, so that either the owner sees the work or the bringer sees
/// that the owner sleeps (both may happen; then the signal is spurious).
#[derive(Debug)]
#[repr(transparent)]
pub struct SleepFlag {
    state: AtomicU32,
}

impl Default for SleepFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl SleepFlag {
    /// Makes the flag of an owner that is awake.
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(AWAKE),
        }
    }

    /// Announces that the owner is about to sleep. `hungry`: it also wants to be woken when somebody gives
    /// back what it lent ([`SleepFlag::must_wake_hungry`]).
    pub fn arm(&self, hungry: bool) {
        let state = if hungry { ASLEEP_HUNGRY } else { ASLEEP };
        self.state.store(state, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `must_wake` and `must_wake_hungry`.
        fence(Ordering::SeqCst);
    }

    /// Announces that the owner is awake.
    pub fn disarm(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// After publishing work: tells whether the caller must signal the owner. Of several callers in one
    /// sleep, one gets `true`.
    #[inline]
    pub fn must_wake(&self) -> bool {
        // SeqCst: pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
        let state = self.state.load(Ordering::Relaxed);
        state != AWAKE && self.claim(state)
    }

    /// After giving back what the owner lent: tells whether the owner sleeps for want of it and the caller
    /// must signal it.
    #[inline]
    pub fn must_wake_hungry(&self) -> bool {
        // SeqCst: pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Relaxed) == ASLEEP_HUNGRY && self.claim(ASLEEP_HUNGRY)
    }

    /// Takes on to signal this sleep: of several callers one gets `true`. Where the owner has woken or
    /// sleeps anew since the load, it has looked for work after this caller published.
    #[cold]
    fn claim(&self, state: u32) -> bool {
        self.state
            .compare_exchange(state, AWAKE, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn wakes_a_sleeper_once_and_nobody_else() {
        let flag = SleepFlag::new();
        assert!(!flag.must_wake());
        flag.arm(false);
        assert!(!flag.must_wake_hungry());
        assert!(flag.must_wake());
        assert!(!flag.must_wake());
        flag.arm(true);
        assert!(flag.must_wake_hungry());
        assert!(!flag.must_wake());
        flag.arm(true);
        flag.disarm();
        assert!(!flag.must_wake());
    }
}
