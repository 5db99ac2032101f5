//! What of a content store is in the kernel: what is asked for again, and nothing that the store would not give.
//!
//! Two sides. Each worker of the store has a [`Watch`]: it names what was hot, and after each insertion lets what the
//! kernel has of that name answer nothing more, without a lock and at once. One thread has the [`Mirror`], which
//! alone puts packets into the kernel's cache and takes them out.
//!
//! A worker changes the store and then withdraws the name, which counts a number up at the name's slot. The mirror
//! gives a packet its slot, notes that number, and then asks the store whether the packet is still the one of its
//! name; only then does it answer, and only while the number stands. A full barrier is between the two steps of
//! either side, so that one of them sees the other: what was replaced is never answered again.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use content_store::Worker;
use wire::ndn::{Data, NameRef};

use crate::cache::{Cache, Refusal, hash_of, is_cacheable};
use crate::memory::Arrays;
use crate::shared::Memory;
use crate::shared::insert::withdraw;
use crate::shared::layout::{DATA_BYTES_MAX, Facts, NONE};
use crate::shared::lookup::find;

/// A store's worker's part.
#[derive(Clone, Debug)]
pub struct Watch {
    memory: Arc<Arrays>,
}

impl Watch {
    /// True if the packet could be in the kernel and is not: worth a promotion. `packet` is what answered.
    pub fn is_missing(&self, name: &NameRef<'_>, packet: &[u8]) -> bool {
        if packet.len() > DATA_BYTES_MAX || !is_cacheable(name) {
            return false;
        }
        let slot = find(&*self.memory, hash_of(&self.memory, name.value()));
        let node = self.memory.node(slot).filter(|_| slot != NONE);
        !node.is_some_and(|node| node.is_served(Facts(node.facts.load())))
    }

    /// Lets the kernel answer nothing under exactly this name any more: call it after every insertion into the store,
    /// whatever became of it. Tells whether the kernel had a packet of that name.
    pub fn withdraw(&self, name: &NameRef<'_>) -> bool {
        if !is_cacheable(name) {
            return false;
        }
        fence(Ordering::SeqCst);
        withdraw(&*self.memory, hash_of(&self.memory, name.value()))
    }
}

/// What became of a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promoted {
    /// The kernel answers with it.
    Done,
    /// The store has it no more, or another one came meanwhile.
    Gone,
    /// The kernel's cache does not take it.
    Refused(Refusal),
}

/// What the mirror did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounts {
    /// Packets that were put into the kernel.
    pub promoted: u64,
    /// Promotions that came to nothing, as the store had the packet no more.
    pub gone: u64,
    /// Packets that the kernel's cache did not take.
    pub refused: u64,
    /// Packets that were taken out, as the store had them no more or had others.
    pub removed: u64,
}

/// Fills the kernel's cache from a store.
#[derive(Debug)]
pub struct Mirror {
    cache: Cache,
    worker: Worker,
    counts: MirrorCounts,
    /// Where [`Mirror::sweep`] goes on.
    next: u32,
}

impl Mirror {
    /// Fills `cache` from the store that `worker` has joined.
    pub fn new(cache: Cache, mut worker: Worker) -> Self {
        worker.offline();
        Self {
            cache,
            worker,
            counts: MirrorCounts::default(),
            next: 1,
        }
    }

    /// Returns what a worker of the store needs.
    pub fn watch(&self) -> Watch {
        Watch {
            memory: self.cache.share(),
        }
    }

    /// Returns what is in the kernel.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns what was done.
    pub fn counts(&self) -> MirrorCounts {
        self.counts
    }

    /// Puts the store's packet of exactly this name into the kernel.
    pub fn promote(&mut self, name: &NameRef<'_>) -> Promoted {
        self.worker.online();
        let done = self.try_promote(name);
        self.worker.quiescent();
        self.worker.offline();
        match done {
            Promoted::Done => self.counts.promoted += 1,
            Promoted::Gone => self.counts.gone += 1,
            Promoted::Refused(_) => self.counts.refused += 1,
        }
        done
    }

    fn try_promote(&mut self, name: &NameRef<'_>) -> Promoted {
        let Some(hit) = self.worker.peek(*name) else {
            return Promoted::Gone;
        };
        let data = match Data::parse(hit.packet()) {
            Ok(data) => data,
            Err(error) => return Promoted::Refused(error.into()),
        };
        let fresh_until_ns = hit.fresh_until().map_or(0, |until| until.as_ns());
        // The view keeps its bytes, so that another packet has another address.
        let is_current = || {
            let now = self.worker.peek(*name);
            now.is_some_and(|now| core::ptr::eq(now.packet(), hit.packet()))
        };
        let stored = self
            .cache
            .insert_if(hit.packet(), &data, fresh_until_ns, is_current);
        match stored {
            Ok(Some(_)) => Promoted::Done,
            Ok(None) => Promoted::Gone,
            Err(refusal) => Promoted::Refused(refusal),
        }
    }

    /// Takes out all at and below a name: call it after an erasure in the store. Returns how many.
    pub fn erase(&mut self, prefix: &NameRef<'_>) -> usize {
        let removed = if prefix.is_empty() {
            let all = self.cache.len();
            self.cache.clear();
            all
        } else {
            self.cache.remove_prefix(prefix)
        };
        self.counts.removed += removed as u64;
        removed
    }

    /// Compares `slots` slots with the store, going round: a packet that the store has no more (it was evicted) is
    /// taken out; one that was asked for in the kernel counts as used in the store, too. Returns how many went.
    pub fn sweep(&mut self, slots: u32) -> usize {
        let all = self.cache.memory().config().data_slots;
        self.worker.online();
        let mut gone = Vec::new();
        for _ in 0..slots.min(all) {
            let slot = self.next;
            self.next = if slot >= all { 1 } else { slot + 1 };
            let Some(name) = self.cache.name_of(slot) else {
                continue;
            };
            let Ok(name_ref) = NameRef::new(&name) else {
                continue;
            };
            let is_there = if self.cache.was_touched(slot) {
                self.worker.touch(name_ref)
            } else {
                self.worker.peek(name_ref).is_some()
            };
            if !is_there {
                gone.push(name);
            }
        }
        self.worker.quiescent();
        self.worker.offline();
        let mut removed = 0;
        for name in &gone {
            if let Ok(name) = NameRef::new(name) {
                removed += usize::from(self.cache.remove(&name));
            }
        }
        self.counts.removed += removed as u64;
        removed
    }
}
