//! Names that were evicted lately: fingerprints in a table that new ones overwrite.

use crate::sync::atomic::{AtomicU32, Ordering};
use tables::memory::{Memory, Pages};

/// Fingerprints of names, one a slot.
#[derive(Debug)]
pub(crate) struct Ghost {
    slots: Memory<AtomicU32>,
}

impl Ghost {
    pub(crate) fn new(names: usize, pages: Pages) -> Self {
        Self {
            slots: Memory::zeroed(names.max(1), pages),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU32>()
    }

    /// The bucket half of a name's hash tells the slot (spread again) and is the fingerprint.
    fn slot(&self, bucket_part: u32) -> Option<&AtomicU32> {
        let spread = bucket_part.wrapping_mul(0x9e37_79b1) ^ bucket_part >> 15;
        let at = ((u64::from(spread) * self.slots.len() as u64) >> 32) as usize;
        self.slots.get(at)
    }

    pub(crate) fn insert(&self, bucket_part: u32) {
        if let Some(slot) = self.slot(bucket_part) {
            slot.store(bucket_part | 1, Ordering::Relaxed);
        }
    }

    /// True if the name was evicted lately; forgets it.
    pub(crate) fn take(&self, bucket_part: u32) -> bool {
        self.slot(bucket_part).is_some_and(|slot| {
            let is_it = slot.load(Ordering::Relaxed) == bucket_part | 1;
            if is_it {
                slot.store(0, Ordering::Relaxed);
            }
            is_it
        })
    }
}
