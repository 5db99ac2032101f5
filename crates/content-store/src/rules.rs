//! Rules for prefixes: how many packets below one the store keeps, and whether they are kept from eviction.

use crate::hash::PrefixHash;
use crate::sync::SpinLock;
use crate::sync::atomic::Ordering;
use crate::sync::unmodelled::AtomicU64;
use alloc::vec::Vec;

/// Rules of a store at most.
pub const RULES_MAX: usize = 64;

/// What a rule asks of the packets below its prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Packets at most: for a further one the leftmost below the prefix leaves. `None` is no limit.
    pub quota_packets: Option<u64>,
    /// Kept from eviction (not from replacement, erasure or their own quota).
    pub pinned: bool,
}

/// One rule as stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) hash: PrefixHash,
    /// Components of the prefix.
    pub(crate) components: usize,
    pub(crate) rule: Rule,
    pub(crate) in_force: bool,
}

/// The rules of a store and their counts of packets.
#[derive(Debug)]
pub(crate) struct Rules {
    entries: SpinLock<Vec<Entry>>,
    /// Number of rules in force; inserts look no further while it is 0.
    in_force: AtomicU64,
    counts: [AtomicU64; RULES_MAX],
}

impl Rules {
    pub(crate) fn new() -> Self {
        Self {
            entries: SpinLock::new(Vec::with_capacity(RULES_MAX)),
            in_force: AtomicU64::new(0),
            counts: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.in_force.load(Ordering::Relaxed) > 0
    }

    /// Sets the rule of a prefix, or takes it out of force (its number stays with the packets that it
    /// counted). False if there are too many.
    pub(crate) fn set(&self, hash: PrefixHash, components: usize, rule: Option<Rule>) -> bool {
        self.entries.with(|entries| {
            let new = Entry {
                hash,
                components,
                rule: rule.unwrap_or_default(),
                in_force: rule.is_some(),
            };
            let number = entries.iter().position(|entry| entry.hash == hash);
            // A rule out of force that counts no packet any more gives its number up.
            let number = number.or_else(|| {
                (entries.len() == RULES_MAX).then_some(())?;
                let mut all = entries.iter().zip(&self.counts);
                all.position(|(entry, count)| !entry.in_force && count.load(Ordering::Relaxed) == 0)
            });
            let len = entries.len();
            match number.and_then(|number| entries.get_mut(number)) {
                Some(entry) => *entry = new,
                None if !new.in_force => {}
                None if len < RULES_MAX => entries.push(new),
                None => return false,
            }
            let in_force = entries.iter().filter(|entry| entry.in_force).count();
            self.in_force.store(in_force as u64, Ordering::Relaxed);
            true
        })
    }

    /// The rule of the longest prefix that has one, of the prefixes with these hashes (by components).
    pub(crate) fn of(&self, hashes: &[PrefixHash]) -> Option<(usize, Entry)> {
        self.entries.with(|entries| {
            let applies = entries.iter().enumerate().filter(|(_, entry)| {
                entry.in_force && hashes.get(entry.components) == Some(&entry.hash)
            });
            applies
                .max_by_key(|(_, entry)| entry.components)
                .map(|(number, entry)| (number, *entry))
        })
    }

    pub(crate) fn count(&self, number: usize) -> u64 {
        self.counts
            .get(number)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, number: usize, change: i64) {
        if let Some(count) = self.counts.get(number) {
            count.fetch_add(change as u64, Ordering::Relaxed);
        }
    }
}
