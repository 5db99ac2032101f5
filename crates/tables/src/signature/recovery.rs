//! Recovery of a signature table whose owner was killed: the records are the truth, the index is rebuilt
//! from them.

use super::bucket::LANES;
use super::functions::SignatureFunction;
use super::key::SessionKey;
use super::records::Place;
use super::table::{HotCopy, Probes, Shape, SignatureTable, TAG, TableMemory, sane};

/// What [`SignatureTable::recover`] found and set right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Sessions kept.
    pub sessions: usize,
    /// Signatures that told of a session that was not committed, or of another one.
    pub signatures_cleared: usize,
    /// Committed sessions that had no (or a wrong) signature.
    pub signatures_restored: usize,
    /// Sessions found twice (a growth step was interrupted); one copy was removed.
    pub duplicates_removed: usize,
    /// Sessions found in a place that is not theirs, and moved.
    pub moved: usize,
}

impl<K: SessionKey, F: SignatureFunction> SignatureTable<K, F> {
    /// Makes a table of (or takes over the one in) `memory`: checks every slot, repairs what a killed
    /// owner left half done, and keeps every committed session. `function` and `shape` are those of the
    /// first owner. `None` if the memory has another shape.
    ///
    /// A session is committed when its `add` returned; half-added and half-removed ones go either way.
    /// Takes time linear in the records.
    pub fn recover(shape: Shape, function: F, memory: TableMemory<K>) -> Option<(Self, Repairs)> {
        let shape = sane(shape);
        if !memory.fits(shape) {
            return None;
        }
        let mut table = Self::assemble(shape, function, memory);
        let repairs = table.repair();
        Some((table, repairs))
    }

    fn repair(&mut self) -> Repairs {
        let mut repairs = Repairs::default();
        self.repair_signatures(&mut repairs);
        self.rebuild_conflicts();
        self.repair_places(&mut repairs);
        self.sessions = self.iter().count();
        repairs.sessions = self.sessions;
        repairs
    }

    /// Makes signatures tell what the records hold, and drops filter bits (they come back in the next
    /// step).
    fn repair_signatures(&mut self, repairs: &mut Repairs) {
        for index in 0..self.pool_start() {
            let bucket = &self.buckets[index / LANES];
            let lane = index % LANES;
            let told = bucket.get(lane) & TAG;
            let committed = self
                .records
                .is_committed(index)
                .then(|| self.records.key(index));
            let wanted = match committed.flatten() {
                Some(key) => self.home(&key).tag,
                None => 0,
            };
            if told != wanted && wanted == 0 {
                repairs.signatures_cleared += 1;
            } else if told != wanted {
                repairs.signatures_restored += 1;
            }
            bucket.set(lane, wanted);
        }
    }

    fn rebuild_conflicts(&mut self) {
        let pool_start = self.pool_start();
        let held: alloc::vec::Vec<_> = (0..self.shape.pool as usize)
            .map(|entry| {
                let key = self.records.key(pool_start + entry)?;
                let home = self.home(&key);
                Some((home.root, home.tag))
            })
            .collect();
        self.conflicts.reset(|entry| held[entry]);
    }

    /// Sets filter bits, removes doubles, and moves what lies in a bucket that is not its own.
    fn repair_places(&mut self, repairs: &mut Repairs) {
        for index in 0..self.records.0.len() {
            let Some(key) = self.records.key(index) else {
                continue;
            };
            let home = self.home(&key);
            let bucket = (index / LANES) as u32;
            let in_pool = index >= self.pool_start();
            if !in_pool && bucket == home.primary {
                continue;
            }
            if in_pool || bucket == self.second(home) {
                self.set_filter(home.primary, home.filter_bit());
                let first = self.find_at(home, &key.to_words(), &mut Probes::default());
                if first != Some(Place(index as u32)) {
                    repairs.duplicates_removed += 1;
                    self.clear(home, Place(index as u32));
                }
                continue;
            }
            let words = key.to_words();
            let there = self.find_at(home, &words, &mut Probes::default());
            let found = there.is_some();
            if found {
                repairs.duplicates_removed += 1;
            } else {
                let hot = HotCopy::of(self.records.hot(index));
                if self.place(home, &words, hot.words()).is_none() {
                    continue;
                }
                repairs.moved += 1;
            }
            self.erase(Place(index as u32));
        }
    }
}
