//! Prefixes that were erased: what lies in the log before the place where that is noted, and below the prefix, is gone.
//!
//! The index knows hashes of full names only, so that a prefix cannot be taken out of it; whoever read a packet asks
//! here. A prefix is forgotten when the log has gone round and nothing older than it is left.

use super::lock;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::vec::Vec;
use wire::ndn::NameRef;

/// Prefixes at most; one more erases the whole log instead.
const PREFIXES_MAX: usize = 1024;

/// A place in the log, as all laps count: the number of a segment, and the byte in it.
pub(super) type Position = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Blocks that the log's thread has to write before the rule may be noted: they may hold what was erased.
    after_blocks: u64,
    /// Where the log notes it; until then it holds for all that is there.
    noted_at: Option<Position>,
}

/// The prefixes.
#[derive(Debug, Default)]
pub(super) struct Erased {
    /// How many there are, so that reads without any take no lock.
    count: AtomicUsize,
    rules: Mutex<BTreeMap<Vec<u8>, Rule>>,
}

impl Erased {
    /// Erases a prefix, which the log is to note once its thread wrote `after_blocks` blocks.
    pub(super) fn add(&self, prefix: &[u8], after_blocks: u64) {
        let rule = Rule {
            after_blocks,
            noted_at: None,
        };
        self.insert(&mut lock(&self.rules), prefix, rule);
    }

    /// Takes over what the log noted when its thread had written so many blocks. A prefix that was erased again since,
    /// with what may be in later blocks, still has to be noted.
    pub(super) fn noted(&self, prefix: &[u8], at: Position, blocks: u64) {
        let is_newer = |rule: &Rule| rule.noted_at.is_none() && rule.after_blocks > blocks;
        let mut rules = lock(&self.rules);
        if rules.get(prefix).is_some_and(is_newer) {
            return;
        }
        let rule = Rule {
            after_blocks: 0,
            noted_at: Some(at),
        };
        self.insert(&mut rules, prefix, rule);
    }

    fn insert(&self, rules: &mut BTreeMap<Vec<u8>, Rule>, prefix: &[u8], rule: Rule) {
        let is_new = !rules.contains_key(prefix);
        let prefix = if is_new && rules.len() >= PREFIXES_MAX {
            &[][..]
        } else {
            prefix
        };
        if prefix.is_empty() {
            // Holds for all that the others hold for.
            rules.clear();
        }
        rules.insert(prefix.to_vec(), rule);
        self.count.store(rules.len(), Ordering::Release);
    }

    /// The prefixes that the log may note after so many blocks.
    pub(super) fn due(&self, blocks: u64) -> Vec<Vec<u8>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let rules = lock(&self.rules);
        let due = rules
            .iter()
            .filter(|(_, rule)| rule.noted_at.is_none() && rule.after_blocks <= blocks);
        due.map(|(prefix, _)| prefix.clone()).collect()
    }

    /// True if a packet of this name, which lies here, was erased.
    pub(super) fn covers(&self, name: NameRef<'_>, at: Position) -> bool {
        // Acquire: pairs with the release in `insert`.
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let rules = lock(&self.rules);
        let ends = core::iter::once(0).chain(name.components().map(|component| component.end));
        ends.filter_map(|end| name.value().get(..end))
            .filter_map(|prefix| rules.get(prefix))
            .any(|rule| rule.noted_at.is_none_or(|noted| at < noted))
    }

    /// Forgets the prefixes that nothing older is left of, now that segments below this number are overwritten.
    pub(super) fn forget_before(&self, oldest: u64) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut rules = lock(&self.rules);
        rules.retain(|_, rule| rule.noted_at.is_none_or(|(sequence, _)| sequence >= oldest));
        self.count.store(rules.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AB: &[u8] = b"\x08\x01a\x08\x01b";

    fn covers(erased: &Erased, name: &[u8], at: Position) -> bool {
        erased.covers(NameRef::new(name).unwrap(), at)
    }

    #[test]
    fn a_prefix_holds_for_what_lies_before_it_until_that_is_overwritten() {
        let erased = Erased::default();
        assert!(!covers(&erased, AB, (1, 64)));
        erased.add(&AB[..3], 2);
        assert!(erased.due(1).is_empty(), "a block may hold what was erased");
        assert_eq!(erased.due(2), [&AB[..3]]);
        assert!(covers(&erased, AB, (9, 64)), "not noted: all that is there");
        erased.noted(&AB[..3], (5, 128), 2);
        assert!(erased.due(2).is_empty());
        assert!(covers(&erased, AB, (5, 64)));
        assert!(covers(&erased, &AB[..3], (4, 4096)));
        assert!(!covers(&erased, AB, (5, 144)), "came later");
        assert!(!covers(&erased, &AB[3..], (1, 64)), "of another prefix");
        erased.forget_before(5);
        assert!(covers(&erased, AB, (5, 64)));
        erased.forget_before(6);
        assert!(!covers(&erased, AB, (5, 64)));
    }

    #[test]
    fn a_prefix_that_is_erased_again_while_it_is_noted_holds_for_what_came_between() {
        let erased = Erased::default();
        erased.add(&AB[..3], 1);
        assert_eq!(erased.due(1), [&AB[..3]]);
        // Before the log's thread is done with it; a block came between.
        erased.add(&AB[..3], 2);
        erased.noted(&AB[..3], (5, 128), 1);
        assert!(covers(&erased, AB, (5, 144)));
        erased.noted(&AB[..3], (5, 256), 2);
        assert!(covers(&erased, AB, (5, 144)));
        assert!(!covers(&erased, AB, (5, 272)));
    }

    #[test]
    fn too_many_prefixes_erase_all() {
        let erased = Erased::default();
        for number in 0..=PREFIXES_MAX as u16 {
            let [high, low] = number.to_be_bytes();
            erased.add(&[8, 2, high, low], 0);
        }
        assert_eq!(erased.due(0), [Vec::new()]);
        assert!(covers(&erased, AB, (1, 64)));
        erased.noted(&[], (1, 128), 0);
        assert!(!covers(&erased, AB, (1, 144)));
    }
}
