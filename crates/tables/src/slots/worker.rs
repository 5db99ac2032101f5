//! A worker's part of a slot map: its place among the readers, and the slots that it removed.

use super::word::Word;
use crate::quiescent::{Domain, Epoch, Limbo, Participant};

/// One thread's handle: reports quiescent states and keeps what it removed until nobody can hold it.
///
/// Used with one map; not shared between threads.
#[derive(Debug)]
pub struct SlotWorker {
    participant: Participant,
    domain: Domain,
    retired: Limbo<(u32, Word)>,
}

impl SlotWorker {
    pub(crate) fn join(domain: &Domain, capacity: usize) -> Option<Self> {
        Some(Self {
            participant: domain.join()?,
            domain: domain.clone(),
            retired: Limbo::with_capacity(capacity),
        })
    }

    /// This worker's place in its domain.
    pub fn participant(&self) -> &Participant {
        &self.participant
    }

    /// Reports that this worker holds no reference into the map: once a loop, before
    /// [`SlotMap::reclaim`](super::SlotMap::reclaim).
    #[inline]
    pub fn quiescent(&self) {
        self.participant.quiescent();
    }

    /// Number of removed records that wait for their grace period.
    pub fn retired(&self) -> usize {
        self.retired.len()
    }

    pub(crate) fn retire(&mut self, slot: u32, word: Word, epoch: Epoch) {
        self.retired.push(epoch, (slot, word));
    }

    pub(crate) fn pop_retired(&mut self) -> Option<(u32, Word)> {
        self.retired.pop(&self.domain)
    }
}
