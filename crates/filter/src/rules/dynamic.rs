//! Sets that packets fill: shared by all workers, bounded, with times to live.

use core::sync::atomic::{AtomicU64, Ordering};

use alloc::vec::Vec;
use tables::quiescent::Domain;
use tables::signature::Keyed;
use tables::slots::{SlotKey, SlotMap, SlotRef, SlotWorker};

use super::key::{KEY_BYTES_MAX, PackedKey};
use super::program::ElementOp;
use super::state::quota_matches;

/// Words of a key.
const KEY_WORDS: usize = KEY_BYTES_MAX / 8;
/// Most elements of one set.
pub const ELEMENTS_MAX: u64 = 1 << 20;
/// Elements of a set that says no size (as nft).
pub const ELEMENTS_DEFAULT: u64 = 65_535;

// Words of an element's value.
/// When it expires, nanoseconds of the workers' clock; 0 for never.
const EXPIRES: usize = 0;
/// When its limit's bucket will be full.
const FULL_AT: usize = 1;
const PACKETS: usize = 2;
const BYTES: usize = 3;
const QUOTA: usize = 4;
/// Data of a map: high and low word.
const DATA: usize = 5;
const VALUE_WORDS: usize = 7;

/// A key of the shared map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetKey([u64; KEY_WORDS]);

impl SlotKey for SetKey {
    type Words = [u64; KEY_WORDS];
    type Record = [AtomicU64; KEY_WORDS + VALUE_WORDS];

    fn words(&self) -> Self::Words {
        self.0
    }
    fn from_key_words(words: &[u64]) -> Option<Self> {
        words.first_chunk().map(|words| Self(*words))
    }
}

/// What a set that packets fill is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicOptions {
    /// Most elements.
    pub elements: u64,
    /// Time to live; `None` for ever.
    pub timeout_ns: Option<u64>,
    /// Workers that may join.
    pub workers: usize,
    /// Key of the hash.
    pub hash_key: [u64; 4],
}

/// A set that packets fill.
#[derive(Debug)]
pub struct DynamicSet {
    map: SlotMap<SetKey>,
    timeout_ns: Option<u64>,
    key_bytes: u8,
}

/// One element, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicElement {
    /// The key.
    pub key: PackedKey,
    /// When it expires, nanoseconds; 0 for never.
    pub expires_ns: u64,
    /// Packets counted.
    pub packets: u64,
    /// Bytes counted.
    pub bytes: u64,
}

impl DynamicSet {
    /// Makes an empty set of keys of these widths.
    pub fn new(options: &DynamicOptions, widths: &[u16]) -> Self {
        let records = options.elements.clamp(1, ELEMENTS_MAX) as usize;
        // A few slots more, so that the elements that are promised fit whatever their hashes.
        let map = SlotMap::new(
            records,
            Keyed::new(options.hash_key),
            Domain::new(options.workers + 1),
        );
        let key_bytes = widths.iter().map(|bits| bits.div_ceil(8) as u8).sum();
        Self {
            map,
            timeout_ns: options.timeout_ns,
            key_bytes,
        }
    }

    pub(super) fn join(&self) -> Option<SlotWorker> {
        self.map.join()
    }

    /// Finds a live element.
    #[inline]
    pub(super) fn find(&self, key: &PackedKey, now_ns: u64) -> Option<SlotRef> {
        let found = self.map.find(&SetKey(key.words()))?;
        let expires = self
            .map
            .values(found)?
            .get(EXPIRES)?
            .load(Ordering::Relaxed);
        (expires == 0 || now_ns < expires).then_some(found)
    }

    /// Returns the data of an element.
    pub(super) fn data(&self, element: SlotRef) -> Option<u128> {
        let values = self.map.values(element)?;
        let word = |at: usize| {
            values
                .get(at)
                .map_or(0, |word| u128::from(word.load(Ordering::Relaxed)))
        };
        Some(word(DATA) << 64 | word(DATA + 1))
    }

    /// Adds an element, or finds it; `None` if the set is full.
    pub(super) fn add(
        &self,
        worker: &mut SlotWorker,
        key: &PackedKey,
        data: u128,
        timeout_ns: Option<u64>,
        refresh: bool,
        now_ns: u64,
    ) -> Option<SlotRef> {
        let expires = timeout_ns
            .or(self.timeout_ns)
            .map_or(0, |timeout| now_ns.saturating_add(timeout).max(1));
        let set_key = SetKey(key.words());
        if let Some(found) = self.find(key, now_ns) {
            if refresh
                && let Some(word) = self
                    .map
                    .values(found)
                    .and_then(|values| values.get(EXPIRES))
            {
                word.store(expires, Ordering::Relaxed);
            }
            return Some(found);
        }
        // What is found now is expired: it makes room for its successor.
        if let Some(expired) = self.map.find(&set_key) {
            self.map.remove_ref(worker, expired);
        }
        let value = [expires, 0, 0, 0, 0, (data >> 64) as u64, data as u64];
        match self.map.insert(worker, &set_key, &value) {
            Ok(added) => Some(added),
            Err(tables::slots::InsertError::Exists(found)) => Some(found),
            Err(_) => None,
        }
    }

    pub(super) fn remove(&self, worker: &mut SlotWorker, key: &PackedKey) {
        self.map.remove(worker, &SetKey(key.words()));
    }

    /// Runs the statements of an element; false if one of them ends the rule.
    pub(super) fn run(&self, element: SlotRef, ops: &[ElementOp], bytes: u64, now_ns: u64) -> bool {
        let Some(values) = self.map.values(element) else {
            return true;
        };
        for op in ops {
            let matches = match op {
                ElementOp::Counter => {
                    for (at, n) in [(PACKETS, 1), (BYTES, bytes)] {
                        if let Some(word) = values.get(at) {
                            word.fetch_add(n, Ordering::Relaxed);
                        }
                    }
                    true
                }
                ElementOp::Limit(limit) => values
                    .get(FULL_AT)
                    .is_none_or(|word| limit.matches(word, now_ns, bytes)),
                ElementOp::Quota { bytes: quota, over } => values
                    .get(QUOTA)
                    .is_none_or(|word| quota_matches(word, *quota, *over, bytes)),
            };
            if !matches {
                return false;
            }
        }
        true
    }

    /// Removes expired elements among `slots` and frees what nobody can hold any more; returns how many.
    pub(super) fn sweep(
        &self,
        worker: &mut SlotWorker,
        slots: core::ops::Range<usize>,
        now_ns: u64,
    ) -> usize {
        let removed = self.map.sweep(worker, slots, |_, values| {
            let expires = values
                .get(EXPIRES)
                .map_or(0, |word| word.load(Ordering::Relaxed));
            expires != 0 && expires <= now_ns
        });
        worker.quiescent();
        self.map.reclaim(worker);
        removed
    }

    /// Number of slots, to be swept in shares.
    pub fn slots(&self) -> usize {
        self.map.slots()
    }

    /// Lists live elements (control side; allocates).
    pub fn list(&self, now_ns: u64) -> Vec<DynamicElement> {
        let mut elements = Vec::new();
        let Some(mut worker) = self.map.join() else {
            return elements;
        };
        let mut refs = Vec::new();
        self.map
            .sweep(&mut worker, 0..self.map.slots(), |found, _| {
                refs.push(found);
                false
            });
        for found in refs {
            let Some((key, values)) = self.map.key(found).zip(self.map.values(found)) else {
                continue;
            };
            let word = |at: usize| {
                values
                    .get(at)
                    .map_or(0, |word| word.load(Ordering::Relaxed))
            };
            if word(EXPIRES) == 0 || now_ns < word(EXPIRES) {
                elements.push(DynamicElement {
                    key: PackedKey::from_words(&key.0, self.key_bytes),
                    expires_ns: word(EXPIRES),
                    packets: word(PACKETS),
                    bytes: word(BYTES),
                });
            }
        }
        elements
    }
}
