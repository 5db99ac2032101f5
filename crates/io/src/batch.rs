//! What nodes pass: up to 64 frames.

use core::ops::{Deref, DerefMut};

use std::vec::Drain;

use crate::frame::Frame;

/// The most frames that a batch holds.
pub const BATCH_MAX: usize = 64;

/// Up to [`BATCH_MAX`] frames, in order.
///
/// The frames lie in one allocation of fixed size, made by [`Batch::new`]: a data path makes its batches
/// at start and swaps them ([`core::mem::swap`] moves three words, not the frames).
///
/// A batch must be empty when it is dropped (its frames would be lost); debug builds check this.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<Frame>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Makes an empty batch; allocates its room.
    pub fn new() -> Self {
        Self {
            frames: Vec::with_capacity(BATCH_MAX),
        }
    }

    /// Returns how many more frames fit.
    pub fn room(&self) -> usize {
        BATCH_MAX.saturating_sub(self.frames.len())
    }

    /// Tells whether no more frames fit.
    pub fn is_full(&self) -> bool {
        self.frames.len() >= BATCH_MAX
    }

    /// Appends a frame, or gives it back where the batch is full.
    ///
    /// # Errors
    /// The frame itself, if the batch is full.
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.is_full() {
            return Err(frame);
        }
        self.frames.push(frame);
        Ok(())
    }

    /// Takes the last frame.
    pub fn pop(&mut self) -> Option<Frame> {
        self.frames.pop()
    }

    /// Takes the first `n` frames (all, if there are fewer), in order.
    pub fn drain_front(&mut self, n: usize) -> Drain<'_, Frame> {
        let n = n.min(self.frames.len());
        self.frames.drain(..n)
    }

    /// Takes all frames, in order.
    pub fn drain(&mut self) -> Drain<'_, Frame> {
        self.frames.drain(..)
    }

    /// Moves as many frames from the front of `other` as fit, in order; returns how many.
    pub fn append_from(&mut self, other: &mut Batch) -> usize {
        let n = self.room().min(other.len());
        if n == other.len() && self.frames.is_empty() {
            core::mem::swap(self, other);
        } else {
            self.frames.extend(other.frames.drain(..n));
        }
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
