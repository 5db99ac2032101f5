//! What nodes pass: up to 64 frames.

use core::ops::{Deref, DerefMut};

use arrayvec::ArrayVec;

use crate::frame::Frame;

/// The most frames that a batch holds.
pub const BATCH_MAX: usize = 64;

/// Up to [`BATCH_MAX`] frames, in order.
///
/// A batch must be empty when it is dropped (its frames would be lost); debug builds check this.
#[derive(Debug, Default)]
pub struct Batch {
    frames: ArrayVec<Frame, BATCH_MAX>,
}

impl Batch {
    /// Makes an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many more frames fit.
    pub fn room(&self) -> usize {
        self.frames.remaining_capacity()
    }

    /// Tells whether no more frames fit.
    pub fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// Appends a frame, or gives it back where the batch is full.
    ///
    /// # Errors
    /// The frame itself, if the batch is full.
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        self.frames.try_push(frame).map_err(|full| full.element())
    }

    /// Takes the last frame.
    pub fn pop(&mut self) -> Option<Frame> {
        self.frames.pop()
    }

    /// Takes the first `n` frames (all, if there are fewer), in order.
    pub fn drain_front(&mut self, n: usize) -> arrayvec::Drain<'_, Frame, BATCH_MAX> {
        let n = n.min(self.frames.len());
        self.frames.drain(..n)
    }

    /// Takes all frames, in order.
    pub fn drain(&mut self) -> arrayvec::Drain<'_, Frame, BATCH_MAX> {
        self.frames.drain(..)
    }

    /// Moves as many frames from the front of `other` as fit, in order; returns how many.
    pub fn append_from(&mut self, other: &mut Batch) -> usize {
        let n = self.room().min(other.len());
        self.frames.extend(other.frames.drain(..n));
        n
    }
}

impl Deref for Batch {
    type Target = [Frame];

    fn deref(&self) -> &[Frame] {
        &self.frames
    }
}

impl DerefMut for Batch {
    fn deref_mut(&mut self) -> &mut [Frame] {
        &mut self.frames
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        debug_assert!(
            self.frames.is_empty() || std::thread::panicking(),
            "{} frames were lost with their batch",
            self.frames.len()
        );
    }
}
