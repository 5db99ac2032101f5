//! Where frames to be sent go.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Takes frames from [`Stack::poll_transmit`](crate::Stack::poll_transmit).
pub trait TxSink {
    /// Returns a buffer of exactly `bytes` for the next frame, or `None` when no more is taken now.
    ///
    /// A buffer that is not committed is forgotten.
    fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]>;
    /// Sends the buffer that was reserved last, which the stack has filled.
    fn commit(&mut self);
}

/// Keeps frames in memory, buffers reused: for tests and links within a process.
#[derive(Debug, Default)]
pub struct FrameList {
    frames: VecDeque<Kept>,
    spare: Vec<Vec<u8>>,
    reserved: Option<Kept>,
    limit: usize,
}

/// A frame at the start of a buffer that may be longer.
#[derive(Debug, Default)]
struct Kept {
    buffer: Vec<u8>,
    bytes: usize,
}

impl Kept {
    fn as_slice(&self) -> &[u8] {
        self.buffer.get(..self.bytes).unwrap_or_default()
    }
}

impl FrameList {
    /// Makes a list that takes at most `limit` frames until they are taken out.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }
    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }
    /// Says whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
    /// Returns the frames, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.frames.iter().map(Kept::as_slice)
    }
    /// Takes the oldest frame; give it back by [`recycle`](Self::recycle).
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let mut kept = self.frames.pop_front()?;
        kept.buffer.truncate(kept.bytes);
        Some(kept.buffer)
    }
    /// Gives a buffer back for later frames.
    pub fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < self.limit {
            self.spare.push(frame);
        }
    }
    /// Forgets all frames and keeps their buffers.
    pub fn clear(&mut self) {
        while let Some(frame) = self.frames.pop_front() {
            self.recycle(frame.buffer);
        }
    }
}

impl TxSink for FrameList {
    fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.frames.len() >= self.limit {
            return None;
        }
        let mut buffer = match self.reserved.take() {
            Some(kept) => kept.buffer,
            None => self.spare.pop().unwrap_or_default(),
        };
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        self.reserved
            .insert(Kept { buffer, bytes })
            .buffer
            .get_mut(..bytes)
    }
    fn commit(&mut self) {
        if let Some(frame) = self.reserved.take() {
            self.frames.push_back(frame);
        }
    }
}
