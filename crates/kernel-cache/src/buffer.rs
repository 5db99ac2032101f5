//! A frame in user space, for running the same code there.

use crate::shared::frame::Window;
use crate::shared::layout::Slab;
use crate::shared::reply::LpHead;
use crate::shared::{Packet, Reply};

/// A frame in memory that can grow up to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    bytes: Vec<u8>,
    room_bytes: usize,
}

impl Buffer {
    /// Makes a frame that can grow to `room_bytes`.
    pub fn new(frame: &[u8], room_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(room_bytes.max(frame.len()));
        bytes.extend(frame);
        Self { bytes, room_bytes }
    }

    /// Returns the frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn store(&mut self, at: usize, from: &[u8]) -> bool {
        let place = self.bytes.get_mut(at..at + from.len());
        place.map(|place| place.copy_from_slice(from)).is_some()
    }
}

impl Packet for Buffer {
    fn load(&self, window: &mut Window, length: usize) -> bool {
        let (Some(from), Some(to)) = (self.bytes.get(..length), window.get_mut(..length)) else {
            return false;
        };
        to.copy_from_slice(from);
        true
    }
    fn length(&self) -> usize {
        self.bytes.len()
    }
}

impl Reply for Buffer {
    fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.room_bytes;
        if fits {
            self.bytes.resize(length, 0);
        }
        fits
    }
    fn store_head(&mut self, window: &Window, length: usize) -> bool {
        window.get(..length).is_some_and(|from| self.store(0, from))
    }
    fn store_lp(&mut self, at: usize, lp: &LpHead, length: usize) -> bool {
        lp.get(..length).is_some_and(|from| self.store(at, from))
    }
    fn store_slab(&mut self, at: usize, slab: &Slab, from: usize, length: usize) -> bool {
        let Some(place) = self.bytes.get_mut(at..at + length) else {
            return false;
        };
        for (index, byte) in (from..).zip(place) {
            let Some(word) = slab.words.get(index / 8) else {
                return false;
            };
            *byte = (word.load() >> (index % 8 * 8)) as u8;
        }
        true
    }
}
