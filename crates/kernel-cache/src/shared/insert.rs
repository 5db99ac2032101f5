//! Insertion and removal by any number of writers. A writer tries a lock and never waits: who comes second gives
//! up, which a cache may.
//!
//! The first bucket of a hash guards all entries with that hash, also those in its second bucket, so that no
//! name is ever there twice.

use super::Memory;
use super::hash;
use super::layout::{BUCKET_ENTRIES, Bucket, Facts, NONE, Node};
use super::lookup::find;

const LOCKED: u64 = 1;
/// One entry more in second buckets.
const ELSEWHERE: u64 = 1 << 32;

/// What a node is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the name; that of a prefix node is salted.
    pub hash: u64,
    /// As [`Node::facts`].
    pub facts: Facts,
    /// As [`Node::fresh_until_ns`].
    pub fresh_until_ns: u64,
}

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The entry is in the slot that was offered.
    Added,
    /// There was one of this name, in this slot; it was overwritten.
    Replaced(u32),
    /// Both buckets are full, or have an entry of the same tag.
    Full,
    /// Another writer was at work.
    Busy,
}

/// Locks a bucket if nobody has it; returns its word.
#[inline(always)]
fn try_lock(bucket: &Bucket) -> Option<u64> {
    let word = bucket.lock.load();
    (word & LOCKED == 0 && bucket.lock.replace(word, word | LOCKED)).then_some(word)
}

/// Unlocks a bucket that has `word` from now on.
#[inline(always)]
fn unlock(bucket: &Bucket, was: u64, word: u64) {
    // Nobody else changes a locked word.
    let _ = bucket.lock.replace(was | LOCKED, word);
}

/// Returns the index of the entry, or of a free place for 0.
#[inline(always)]
fn position(bucket: &Bucket, slot: u32) -> Option<usize> {
    let mut index = 0;
    while index < BUCKET_ENTRIES {
        if bucket.entries[index].load() as u32 == slot {
            return Some(index);
        }
        index += 1;
    }
    None
}

/// Tells whether an entry of the bucket has this tag.
#[inline(always)]
fn has_tag(bucket: &Bucket, tag: u64) -> bool {
    let mut index = 0;
    while index < BUCKET_ENTRIES {
        let entry = bucket.entries[index].load();
        if entry != 0 && entry >> 32 == tag {
            return true;
        }
        index += 1;
    }
    false
}

/// Makes the node's generation odd. Returns it, or `None` if another writer is there.
#[inline(always)]
fn begin(node: &Node) -> Option<u64> {
    let generation = node.generation.load();
    if generation & 1 == 1
        || !node
            .generation
            .replace(generation, generation.wrapping_add(1))
    {
        return None;
    }
    Some(generation)
}

/// Makes the generation even again, another one than before.
#[inline(always)]
fn end(node: &Node, generation: u64) {
    let _ = node
        .generation
        .replace(generation.wrapping_add(1), generation.wrapping_add(2));
}

/// Writes an entry over what the node was.
#[inline(always)]
fn write(node: &Node, entry: &Entry) {
    node.hash.store(entry.hash);
    node.fresh_until_ns.store(entry.fresh_until_ns);
    node.facts.store(entry.facts.0);
}

/// Inserts an entry into `slot`, which must be free. `fill` writes the packet's bytes into the slab of the slot
/// that it is given.
#[inline(always)]
pub fn insert<M: Memory>(memory: &M, slot: u32, entry: &Entry, fill: impl FnOnce(u32)) -> Inserted {
    let mask = memory.config().bucket_mask;
    let Some(first) = memory.bucket(hash::first_bucket(entry.hash, mask)) else {
        return Inserted::Busy;
    };
    let Some(word) = try_lock(first) else {
        return Inserted::Busy;
    };
    let existing = find(memory, entry.hash);
    let mut word_after = word;
    let done = if existing == NONE {
        add(memory, first, &mut word_after, slot, entry, fill)
    } else {
        match memory
            .node(existing)
            .and_then(|node| begin(node).map(|generation| (node, generation)))
        {
            Some((node, generation)) => {
                write(node, entry);
                fill(existing);
                end(node, generation);
                Inserted::Replaced(existing)
            }
            None => Inserted::Busy,
        }
    };
    unlock(first, word, word_after);
    done
}

/// Adds an entry that is not there; the first bucket is locked.
#[inline(always)]
fn add<M: Memory>(
    memory: &M,
    first: &Bucket,
    word: &mut u64,
    slot: u32,
    entry: &Entry,
    fill: impl FnOnce(u32),
) -> Inserted {
    let tagged = hash::tag(entry.hash) << 32 | u64::from(slot);
    // Readers tell the entries of a bucket by their tags.
    if has_tag(first, hash::tag(entry.hash)) {
        return Inserted::Full;
    }
    if let Some(place) = position(first, NONE) {
        if !occupy(memory, slot, entry, fill) {
            return Inserted::Busy;
        }
        first.entries[place].store(tagged);
        return Inserted::Added;
    }
    let mask = memory.config().bucket_mask;
    let index = hash::second_bucket(entry.hash, mask);
    if index == hash::first_bucket(entry.hash, mask) {
        return Inserted::Full;
    }
    let Some(second) = memory.bucket(index) else {
        return Inserted::Busy;
    };
    let Some(second_word) = try_lock(second) else {
        return Inserted::Busy;
    };
    let done = match position(second, NONE) {
        None => Inserted::Full,
        Some(_) if has_tag(second, hash::tag(entry.hash)) => Inserted::Full,
        Some(_) if !occupy(memory, slot, entry, fill) => Inserted::Busy,
        Some(place) => {
            second.entries[place].store(tagged);
            *word += ELSEWHERE;
            Inserted::Added
        }
    };
    unlock(second, second_word, second_word);
    done
}

/// Writes an entry into a free slot; false if it is not free.
#[inline(always)]
fn occupy<M: Memory>(memory: &M, slot: u32, entry: &Entry, fill: impl FnOnce(u32)) -> bool {
    let Some(node) = memory.node(slot) else {
        return false;
    };
    let Some(generation) = begin(node) else {
        return false;
    };
    let free = node.facts.load() == 0;
    if free {
        write(node, entry);
        node.touched.store(0);
        fill(slot);
    }
    end(node, generation);
    free
}

/// Removes the entry with this hash from `slot`. False if it is not there or another writer is at work.
#[inline(always)]
pub fn remove<M: Memory>(memory: &M, hash: u64, slot: u32) -> bool {
    let mask = memory.config().bucket_mask;
    let Some(first) = memory.bucket(hash::first_bucket(hash, mask)) else {
        return false;
    };
    let Some(node) = memory.node(slot) else {
        return false;
    };
    let Some(word) = try_lock(first) else {
        return false;
    };
    let mut word_after = word;
    let mut done = false;
    if node.hash.load() == hash && slot != NONE {
        if let Some(place) = position(first, slot) {
            done = vacate(node, first, place);
        } else if let Some(second) = memory.bucket(hash::second_bucket(hash, mask))
            && word >= ELSEWHERE
            && let Some(second_word) = try_lock(second)
        {
            if let Some(place) = position(second, slot) {
                done = vacate(node, second, place);
                if done {
                    word_after -= ELSEWHERE;
                }
            }
            unlock(second, second_word, second_word);
        }
    }
    unlock(first, word, word_after);
    done
}

/// Lets what is there with this hash answer nothing from now on; it keeps its slot. Never waits, and is never in vain:
/// who is quicker has withdrawn it, too. False if there is nothing.
#[inline(always)]
pub fn withdraw<M: Memory>(memory: &M, hash: u64) -> bool {
    let slot = find(memory, hash);
    let Some(node) = memory.node(slot).filter(|_| slot != NONE) else {
        return false;
    };
    let withdrawals = node.withdrawals.load();
    let _ = node
        .withdrawals
        .replace(withdrawals, withdrawals.wrapping_add(1));
    true
}

/// Frees a node and its place in a bucket.
#[inline(always)]
fn vacate(node: &Node, bucket: &Bucket, place: usize) -> bool {
    let Some(generation) = begin(node) else {
        return false;
    };
    bucket.entries[place].store(0);
    node.facts.store(0);
    node.hash.store(0);
    end(node, generation);
    true
}
