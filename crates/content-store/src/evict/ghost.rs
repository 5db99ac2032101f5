//! Names that were evicted lately: fingerprints in a table that new ones overwrite.

use crate::sync::atomic::{AtomicU16, Ordering};
use tables::memory::{Memory, Pages};

/// Fingerprints of names, one a slot.
#[derive(Debug)]
pub(crate) struct Ghost {
    slots: Memory<AtomicU16>,
}

impl Ghost {
    pub(crate) fn new(names: usize, pages: Pages) -> Self {
        Self {
            slots: Memory::zeroed(names.max(1), pages),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU16>()
    }

    /// The slot of a name by the bucket half of its hash, spread again, and its fingerprint: never 0, and the same
    /// for another name of the slot once in 65,535 times.
    fn slot(&self, bucket_part: u32) -> Option<(&AtomicU16, u16)> {
        let spread = bucket_part.wrapping_mul(0x9e37_79b1) ^ bucket_part >> 15;
        let at = u64::from(spread) * self.slots.len() as u64;
        let slot = self.slots.get((at >> 32) as usize)?;
        // What the division left over is independent of the slot.
        Some((slot, ((at as u32) >> 16).max(1) as u16))
    }

    pub(crate) fn insert(&self, bucket_part: u32) {
        if let Some((slot, fingerprint)) = self.slot(bucket_part) {
            slot.store(fingerprint, Ordering::Relaxed);
        }
    }

    /// True if the name was evicted lately; forgets it.
    pub(crate) fn take(&self, bucket_part: u32) -> bool {
        self.slot(bucket_part).is_some_and(|(slot, fingerprint)| {
            let is_it = slot.load(Ordering::Relaxed) == fingerprint;
            if is_it {
                slot.store(0, Ordering::Relaxed);
            }
            is_it
        })
    }
}
