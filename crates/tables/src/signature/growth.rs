//! Growth of the default signature table by linear hashing: one bucket is split at a time.

use super::bucket::LANES;
use super::functions::SignatureFunction;
use super::key::SessionKey;
use super::records::Place;
use super::table::{FILTER, GROWTH_LOAD, Home, HotCopy, SignatureTable, TAG};
use crate::sync::atomic::Ordering;

impl<K: SessionKey, F: SignatureFunction> SignatureTable<K, F> {
    /// Splits one bucket in two, if there is room to grow; `moved` hears of every session that goes from
    /// one place to another (16 and the sessions of one chain of conflicts at most). About a microsecond.
    /// To be called after each `add` while [`wants_growth`](Self::wants_growth), or from an idle loop.
    pub fn grow(&mut self, mut moved: impl FnMut(&K, Place, Place)) -> bool {
        if self.count >= self.shape.buckets_max {
            return false;
        }
        let new = self.count;
        let old = new - (self.shape.buckets << self.level);
        for lane in 0..LANES {
            let filter = self.buckets[old as usize].get(lane) & FILTER;
            self.buckets[new as usize].set(lane, filter);
        }
        self.count += 1;
        self.level = (self.count / self.shape.buckets).ilog2();
        self.header[0].store(u64::from(self.count), Ordering::Relaxed);
        for lane in 0..LANES {
            let from = old as usize * LANES + lane;
            let tag = self.buckets[old as usize].get(lane) & TAG;
            let Some(key) = self.records.key(from).filter(|_| tag != 0) else {
                continue;
            };
            let home = self.home(&key);
            if home.primary == old || self.second(home) == old && home.primary != new {
                continue;
            }
            let to = self.fill(new, lane, home.tag, &key.to_words(), self.records.hot(from));
            self.erase(Place(from as u32));
            moved(&key, Place(from as u32), to);
        }
        let root = new % self.shape.buckets;
        self.relieve(root, &mut moved);
        for primary in [old, new] {
            for tag in 0..LANES as u32 {
                self.tidy_filter(Home { root, primary, tag });
            }
        }
        true
    }

    /// Brings sessions of a chain of conflicts into buckets that have room now.
    fn relieve(&mut self, root: u32, moved: &mut impl FnMut(&K, Place, Place)) {
        let mut at = 0;
        loop {
            let listed = self.conflicts.chain(root).nth(at);
            let Some((entry, _)) = listed else { break };
            let from = self.pool_start() + entry;
            let Some(key) = self.records.key(from) else {
                break;
            };
            let home = self.home(&key);
            let hot = HotCopy::of(self.records.hot(from));
            match self.place_in_bucket(home, &key.to_words(), hot.words()) {
                Some(to) => {
                    self.clear(home, Place(from as u32));
                    moved(&key, Place(from as u32), to);
                }
                None => at += 1,
            }
        }
    }

    /// True when the table holds more sessions than it is meant to, and may grow.
    pub fn wants_growth(&self) -> bool {
        self.count < self.shape.buckets_max
            && self.sessions as f64 > self.count as f64 * LANES as f64 * GROWTH_LOAD
    }
}
