//! Lookup: exact by hash, then a bounded walk of the names below a prefix. No lock, nothing shared is written
//! but the mark that an entry was asked for.

use super::Memory;
use super::bounded::{Word, opaque};
use super::hash::{self, NameWords};
use super::interest::Interest;
use super::layout::{BUCKET_ENTRIES, Bucket, Facts, NAME_AT, NAME_WORDS, NONE, Slab};

/// Nodes that one lookup visits at most.
pub const STEPS_MAX: usize = 64;

/// Why nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Miss {
    /// There is no such Data.
    Absent = 0,
    /// There is, but none that is fresh.
    Stale,
    /// The walk was longer than [`STEPS_MAX`].
    Steps,
    /// A writer was at work on the entry.
    Raced,
}

/// A packet that answers; it is valid as long as its node has this generation.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Found {
    /// Slot of the node.
    pub slot: Word,
    /// Generation of the node when it was looked at.
    pub generation: Word,
    /// What the node said then ([`Facts`]).
    pub facts: Word,
    /// 1 if its name is the one asked for, 0 if it is one below it.
    pub exact: Word,
    /// The time, if it matters.
    now_ns: Word,
    /// 1 if stale Data was passed by.
    stale: Word,
}

/// Returns the slot of the entry with this hash, or [`NONE`].
#[inline(always)]
pub fn find<M: Memory>(memory: &M, hash: u64) -> u32 {
    let mask = memory.config().bucket_mask;
    let Some(first) = memory.bucket(hash::first_bucket(hash, mask)) else {
        return NONE;
    };
    let slot = scan(memory, first, hash);
    if slot != NONE || first.lock.load() >> 32 == 0 {
        return slot;
    }
    match memory.bucket(hash::second_bucket(hash, mask)) {
        Some(second) => scan(memory, second, hash),
        None => NONE,
    }
}

/// Looks through a bucket, in which no two entries have one tag. Without branches.
#[inline(always)]
fn scan<M: Memory>(memory: &M, bucket: &Bucket, hash: u64) -> u32 {
    let mut slot = 0;
    let mut index = 0;
    while index < BUCKET_ENTRIES {
        let entry = bucket.entries[index].load();
        // All ones if the tags are equal: both are below 2^32.
        let other = (entry >> 32) ^ hash::tag(hash);
        let equal = 0_u64.wrapping_sub(opaque((other.wrapping_sub(1) >> 63) as usize) as u64);
        slot |= entry & equal;
        index += 1;
    }
    match memory.node(slot as u32) {
        Some(node) if node.hash.load() == hash => slot as u32,
        _ => NONE,
    }
}

/// Looks an Interest up. `words` are those of its name, `hash` their hash.
///
/// # Errors
/// Why nothing was found.
#[inline(always)]
pub fn lookup<M: Memory>(
    memory: &M,
    interest: &Interest,
    words: &NameWords,
    hash: u64,
    found: &Found,
) -> Result<(), Miss> {
    found.now_ns.store(0);
    found.stale.store(0);
    found.exact.store(1);
    found.slot.store(u64::from(find(memory, hash)));
    if interest.must_be_fresh.load() != 0 {
        found.now_ns.store(memory.now_ns());
        // Slot 0 is never fresh.
        let node = memory.node(found.slot.load() as u32).ok_or(Miss::Raced)?;
        if node.fresh_until_ns.load() <= found.now_ns.load() {
            found.stale.store(u64::from(found.slot.load() != 0));
            found.slot.store(0);
        }
    }
    if found.slot.load() == 0 {
        found.exact.store(0);
        let root = if interest.can_be_prefix.load() != 0 {
            find(memory, hash::of_prefix(hash))
        } else {
            NONE
        };
        if root == NONE {
            return Err(nothing(found));
        }
        walk(memory, root, interest, found)?;
    }
    candidate(memory, interest, words, found)
}

/// Says why nothing was found.
#[inline(always)]
fn nothing(found: &Found) -> Miss {
    if found.stale.load() != 0 {
        Miss::Stale
    } else {
        Miss::Absent
    }
}

/// Walks the names below `root` for the first Data, depth first, by links alone.
#[inline(always)]
fn walk<M: Memory>(memory: &M, root: u32, interest: &Interest, found: &Found) -> Result<(), Miss> {
    let mut at = root;
    let mut upwards = false;
    let mut left = STEPS_MAX;
    while left > 0 {
        left = opaque(left) - 1;
        let node = memory.node(at).ok_or(Miss::Raced)?;
        if !upwards {
            let facts = Facts(node.facts.load());
            if node.is_served(facts) {
                if interest.must_be_fresh.load() == 0
                    || node.fresh_until_ns.load() > found.now_ns.load()
                {
                    found.slot.store(u64::from(at));
                    return Ok(());
                }
                found.stale.store(1);
            } else if facts.is_prefix() {
                let child = node.first_child();
                if child != NONE {
                    at = child;
                    continue;
                }
            }
        }
        if at == root {
            return Err(nothing(found));
        }
        let sibling = node.next();
        upwards = sibling == NONE;
        at = if upwards { node.parent() } else { sibling };
    }
    Err(Miss::Steps)
}

/// Checks that the packet of the slot has the name that was asked for, or one that starts with it.
#[inline(always)]
fn candidate<M: Memory>(
    memory: &M,
    interest: &Interest,
    words: &NameWords,
    found: &Found,
) -> Result<(), Miss> {
    let slot = found.slot.load() as u32;
    let node = memory.node(slot).ok_or(Miss::Raced)?;
    let slab = memory.slab(slot).ok_or(Miss::Raced)?;
    found.generation.store(node.generation.load());
    if found.generation.load() & 1 == 1 {
        return Err(Miss::Raced);
    }
    memory.read_barrier();
    found.facts.store(node.facts.load());
    let facts = Facts(found.facts.load());
    let (stored_bytes, name_bytes) = (facts.name_bytes(), interest.name_bytes.number());
    if !node.is_served(facts)
        || stored_bytes < name_bytes
        || (found.exact.load() != 0) != (stored_bytes == name_bytes)
        || !starts_with(slab, words, interest)
    {
        return Err(Miss::Absent);
    }
    // Again, as another packet may have come into the slot since the first look.
    if interest.must_be_fresh.load() != 0 && node.fresh_until_ns.load() <= found.now_ns.load() {
        return Err(Miss::Stale);
    }
    memory.read_barrier();
    if node.generation.load() != found.generation.load() {
        return Err(Miss::Raced);
    }
    if node.touched.load() == 0 {
        node.touched.store(1);
    }
    Ok(())
}

/// Compares the start of the stored name with the name that was asked for.
#[inline(always)]
fn starts_with(slab: &Slab, words: &NameWords, interest: &Interest) -> bool {
    let mut index = 0;
    while index < NAME_WORDS {
        let offset = index * 8;
        let name_bytes = interest.name_bytes.number();
        if offset >= name_bytes {
            break;
        }
        let mut differ = slab.words[NAME_AT / 8 + index].load() ^ words[index];
        if name_bytes - offset < 8 {
            differ &= hash::word_mask(name_bytes, offset);
        }
        if differ != 0 {
            return false;
        }
        index += 1;
    }
    true
}

/// Tells whether the packet that was found is still the one in its slot; ask after copying it.
#[inline(always)]
pub fn still_there<M: Memory>(memory: &M, found: &Found) -> bool {
    memory.read_barrier();
    memory
        .node(found.slot.load() as u32)
        .is_some_and(|node| node.generation.load() == found.generation.load())
}
