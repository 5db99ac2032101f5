//! Reclamation by quiescent states (QSBR): a worker reports once a loop that it holds no reference, and
//! what was unlinked before the slowest report may be reused. Nothing is paid a packet.
//!
//! The memory that is reused here is never unmapped and holds atomics only, so that a reader that breaks
//! the contract reads a wrong value, not a dangling one.

use crate::memory::Memory;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use alloc::collections::VecDeque;
use core::fmt;
use crossbeam_utils::CachePadded;

/// Local epoch of a slot that nobody has taken.
const VACANT: u64 = 0;
/// Local epoch of a participant that is offline.
const OFFLINE: u64 = u64::MAX;

/// A grace period: it ends when every online participant has reported after the epoch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// What the memory of a [`Domain`] is made of: one word on a cache line of its own.
pub type EpochWord = CachePadded<AtomicU64>;

/// The participants of one reclamation scheme: word 0 is the global epoch, then one word a participant,
/// each on a cache line of its own.
#[derive(Debug, Clone)]
pub struct Domain {
    words: Arc<Memory<EpochWord>>,
    /// Words of the participants that join by this handle: from the first to before the last.
    places: (usize, usize),
}

impl Domain {
    /// Makes a domain for up to `participants` workers.
    pub fn new(participants: usize) -> Self {
        Self::with_memory(Memory::heap(participants + 1))
    }

    /// Makes (or attaches to) a domain in `memory`, which has room for one participant less than words.
    ///
    /// # Panics
    /// If `memory` is empty.
    pub fn with_memory(memory: Memory<EpochWord>) -> Self {
        assert!(!memory.is_empty(), "a domain needs its epoch word");
        // Epoch 0 is the zeroed word; a live domain starts at 1. Relaxed: nothing is published yet.
        let _ = memory[0].compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        Self {
            places: (1, memory.len()),
            words: Arc::new(memory),
        }
    }

    /// Returns a handle by which participants take these places only, numbered from 0: those of one of several
    /// processes, so that others know which ones its death leaves behind.
    #[must_use]
    pub fn section(&self, places: core::ops::Range<usize>) -> Self {
        let end = self.words.len();
        Self {
            words: Arc::clone(&self.words),
            places: ((places.start + 1).min(end), (places.end + 1).min(end)),
        }
    }

    /// Takes a free place as an online participant, or `None` if there is none.
    pub fn join(&self) -> Option<Participant> {
        for index in self.places.0..self.places.1 {
            // Relaxed: the claim protects nothing by itself; `online` below has the fence.
            let free = self.words[index].compare_exchange(
                VACANT,
                OFFLINE,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if free.is_ok() {
                let participant = Participant {
                    domain: self.clone(),
                    index,
                };
                participant.online();
                return Some(participant);
            }
        }
        None
    }

    /// Begins a grace period for what the caller unlinked before this call.
    pub fn begin(&self) -> Epoch {
        // AcqRel: the release half pairs with the acquire load in `Participant::quiescent`: who sees this
        // epoch sees what was unlinked before it. The acquire half orders writers among themselves.
        Epoch(self.words[0].fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// True when every participant that was online at `epoch` has reported since: nobody holds what was
    /// unlinked before it. One pass over the participants; to be called now and then.
    pub fn has_passed(&self, epoch: Epoch) -> bool {
        // SeqCst fence: pairs with the one in `Participant::online`. Either we see the participant
        // online, or it sees what was unlinked before `begin`.
        fence(Ordering::SeqCst);
        self.words[1..].iter().all(|word| {
            // Acquire: pairs with the release store in `Participant::quiescent`; the reader's reads of
            // what was unlinked come before our reuse.
            let local = word.load(Ordering::Acquire);
            local == VACANT || local >= epoch.0
        })
    }

    /// Frees the place of a participant whose process died without leaving (recovery only).
    pub fn evict(&self, index: usize) {
        if let Some(word) = self.words.get(index).filter(|_| index > 0) {
            // Release: pairs with the acquire load in `has_passed`, as in `Participant::offline`.
            word.store(VACANT, Ordering::Release);
        }
    }

    /// Frees all places of this handle's [`section`](Self::section), whose process died without leaving.
    pub fn evict_section(&self) {
        for index in self.places.0..self.places.1 {
            self.evict(index);
        }
    }
}

/// A worker's place in a [`Domain`]; leaves when dropped.
#[derive(Debug)]
pub struct Participant {
    domain: Domain,
    index: usize,
}

impl Participant {
    /// Which place this is, for [`Domain::evict`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// Reports that this worker holds no reference into the shared tables: once a loop.
    #[inline]
    pub fn quiescent(&self) {
        // Acquire: pairs with the AcqRel add in `Domain::begin`: what was unlinked before the epoch that
        // we report is not reached by later reads.
        let epoch = self.domain.words[0].load(Ordering::Acquire);
        // Release: pairs with the acquire load in `Domain::has_passed`: earlier reads are done.
        self.domain.words[self.index].store(epoch, Ordering::Release);
    }

    /// Reports that this worker will not read until [`online`](Self::online): before it blocks.
    pub fn offline(&self) {
        // Release: pairs with the acquire load in `Domain::has_passed`: earlier reads are done.
        self.domain.words[self.index].store(OFFLINE, Ordering::Release);
    }

    /// Comes back after [`offline`](Self::offline): before the first read.
    pub fn online(&self) {
        // Acquire: as in `quiescent`.
        let epoch = self.domain.words[0].load(Ordering::Acquire);
        self.domain.words[self.index].store(epoch, Ordering::Relaxed);
        // SeqCst fence: pairs with the one in `Domain::has_passed`, see there.
        fence(Ordering::SeqCst);
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        // Release: pairs with the acquire load in `Domain::has_passed`: earlier reads are done.
        self.domain.words[self.index].store(VACANT, Ordering::Release);
    }
}

/// Things that wait for their grace period, oldest first; owned by one writer, memory taken at start.
pub struct Limbo<T> {
    waiting: VecDeque<(Epoch, T)>,
}

impl<T> Limbo<T> {
    /// Makes a limbo that holds `capacity` things before it allocates again.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(capacity),
        }
    }

    /// Number of things that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps `thing`, which was unlinked before `epoch` began.
    pub fn push(&mut self, epoch: Epoch, thing: T) {
        self.waiting.push_back((epoch, thing));
    }

    /// Returns the oldest thing if its grace period has passed.
    pub fn pop(&mut self, domain: &Domain) -> Option<T> {
        let (epoch, _) = self.waiting.front()?;
        if !domain.has_passed(*epoch) {
            return None;
        }
        self.waiting.pop_front().map(|(_, thing)| thing)
    }
}

impl<T> fmt::Debug for Limbo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limbo")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn grace_period_waits_for_the_slowest() {
        let domain = Domain::new(2);
        let a = domain.join().unwrap();
        let b = domain.join().unwrap();
        assert!(domain.join().is_none());
        let mut limbo = Limbo::with_capacity(4);
        limbo.push(domain.begin(), "old bucket");
        assert_eq!(limbo.pop(&domain), None);
        a.quiescent();
        assert_eq!(limbo.pop(&domain), None);
        b.quiescent();
        assert_eq!(limbo.pop(&domain), Some("old bucket"));
        let epoch = domain.begin();
        a.quiescent();
        b.offline();
        assert!(domain.has_passed(epoch));
        b.online();
        assert!(domain.has_passed(epoch));
        let epoch = domain.begin();
        a.quiescent();
        assert!(!domain.has_passed(epoch));
        drop(b);
        assert!(domain.has_passed(epoch));
    }

    #[test]
    fn processes_have_sections_and_a_dead_one_is_evicted() {
        let domain = Domain::new(3);
        let (ours, theirs) = (domain.section(0..1), domain.section(1..3));
        let participant = ours.join().unwrap();
        assert!(ours.join().is_none(), "the others' places are not taken");
        let dead = [theirs.join().unwrap(), theirs.join().unwrap()];
        assert!(dead.iter().all(|dead| dead.index() > 1));
        core::mem::forget(dead);
        let epoch = ours.begin();
        participant.quiescent();
        assert!(!ours.has_passed(epoch), "the dead never report");
        domain.section(1..3).evict_section();
        assert!(ours.has_passed(epoch));
        assert!(theirs.join().is_some());
        drop(participant);
        assert!(ours.join().is_some());
    }

    #[test]
    fn a_dead_participant_can_be_evicted() {
        let domain = Domain::new(1);
        let dead = domain.join().unwrap();
        let index = dead.index();
        core::mem::forget(dead);
        let epoch = domain.begin();
        assert!(!domain.has_passed(epoch));
        domain.evict(0);
        domain.evict(index);
        assert!(domain.has_passed(epoch));
        assert!(domain.join().is_some());
    }
}
