//! Runs of neighbouring items out of an array: what the children, and the leaves, of a trie node are.

use alloc::collections::{BTreeMap, BTreeSet};

/// Tells which items of an array are free. A run is taken from the shortest free one that is long enough;
/// neighbours that are free become one.
#[derive(Debug)]
pub(super) struct Runs {
    /// Lengths of the free runs by where they start.
    free: BTreeMap<u32, u32>,
    /// The same, short ones first.
    by_len: BTreeSet<(u32, u32)>,
    in_use: usize,
}

impl Runs {
    /// Takes note of an array of `capacity` items whose first `used` are taken.
    pub(super) fn new(used: usize, capacity: usize) -> Self {
        let end = u32::try_from(capacity).unwrap_or(u32::MAX);
        let start = u32::try_from(used).unwrap_or(u32::MAX).min(end);
        let mut runs = Self {
            free: BTreeMap::new(),
            by_len: BTreeSet::new(),
            in_use: used,
        };
        runs.add(start, end - start);
        runs
    }

    /// Takes `len` neighbours and returns the first; `None` if there are no such.
    pub(super) fn take(&mut self, len: usize) -> Option<u32> {
        let wanted = u32::try_from(len).ok()?;
        if wanted == 0 {
            return Some(0);
        }
        let &(found, start) = self.by_len.range((wanted, 0)..).next()?;
        self.forget(start, found);
        self.add(start + wanted, found - wanted);
        self.in_use += len;
        Some(start)
    }

    /// Gives a run back.
    pub(super) fn give(&mut self, mut start: u32, len: usize) {
        self.in_use -= len;
        let mut len = len as u32;
        if let Some((&before, &its_len)) = self.free.range(..start).next_back()
            && before + its_len == start
        {
            self.forget(before, its_len);
            start = before;
            len += its_len;
        }
        if let Some(&after) = self.free.get(&(start + len)) {
            self.forget(start + len, after);
            len += after;
        }
        self.add(start, len);
    }

    /// Number of items that are taken.
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    fn add(&mut self, start: u32, len: u32) {
        if len > 0 {
            self.free.insert(start, len);
            self.by_len.insert((len, start));
        }
    }

    fn forget(&mut self, start: u32, len: u32) {
        self.free.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_never_overlap_and_grow_together(
            wanted in prop::collection::vec((1_usize..9, any::<bool>()), 1..200),
        ) {
            let mut runs = Runs::new(3, 100);
            let mut taken: Vec<(u32, usize)> = Vec::new();
            for (len, give) in wanted {
                if give && !taken.is_empty() {
                    let (start, len) = taken.swap_remove(len % taken.len());
                    runs.give(start, len);
                } else if let Some(start) = runs.take(len) {
                    let end = start + len as u32;
                    prop_assert!(start >= 3 && end <= 100);
                    prop_assert!(taken.iter().all(|&(at, n)| end <= at || at + n as u32 <= start));
                    taken.push((start, len));
                }
                let sum: usize = taken.iter().map(|run| run.1).sum();
                prop_assert_eq!(runs.in_use(), 3 + sum);
            }
            taken.into_iter().for_each(|(start, len)| runs.give(start, len));
            prop_assert_eq!(runs.take(0), Some(0));
            prop_assert_eq!(runs.take(97), Some(3));
            prop_assert_eq!(runs.take(1), None);
        }
    }
}
