//! The synchronisation primitives of this crate: those of `core`, or the instrumented ones of loom
//! (`--cfg loom`, weak memory and every interleaving of a small model) or of shuttle (`--cfg shuttle`,
//! random schedules of larger ones).

#[cfg(not(any(loom, shuttle)))]
pub(crate) use alloc::sync::Arc;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic;

#[cfg(loom)]
pub(crate) use loom::sync::{Arc, atomic};

#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::sync::{Arc, atomic};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// `core::cell::UnsafeCell` with loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Runs `f` on a pointer for reading.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Runs `f` on a pointer for writing.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
