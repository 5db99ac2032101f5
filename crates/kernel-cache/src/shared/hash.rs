//! The hash of names: keyed, eight bytes a step, of operations that BPF has (no wide multiplication, no vectors).

use super::layout::NAME_WORDS;

/// The words of a name, zeros behind its end.
pub type NameWords = [u64; NAME_WORDS];

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const PREFIX_SALT: u64 = 0x5bf0_3635_d5d2_8c4b;

/// Starts the hash of a name of `length` bytes.
#[inline(always)]
pub fn start(seed: u64, length: usize) -> u64 {
    seed ^ (length as u64).wrapping_mul(MULTIPLIER)
}

/// Takes in a word.
#[inline(always)]
pub fn step(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 32)
}

/// Spreads what was taken in over all bits.
#[inline(always)]
pub fn finish(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Returns the hash under which the prefix node of a name is found, from that of the name.
#[inline(always)]
pub fn of_prefix(hash: u64) -> u64 {
    finish(hash ^ PREFIX_SALT)
}

/// Returns the mask of the bytes of the word at `at` that belong to a name of `length` bytes.
#[inline(always)]
pub fn word_mask(length: usize, at: usize) -> u64 {
    let left = length.wrapping_sub(at);
    if left >= 8 {
        u64::MAX
    } else {
        (1 << (left * 8)) - 1
    }
}

/// Returns the first bucket of a hash.
#[inline(always)]
pub fn first_bucket(hash: u64, mask: u32) -> u32 {
    hash as u32 & mask
}

/// Returns the second bucket of a hash, for when the first is full.
#[inline(always)]
pub fn second_bucket(hash: u64, mask: u32) -> u32 {
    (hash as u32 ^ ((hash >> 32) as u32 | 1).wrapping_mul(0x9e37_79b9)) & mask
}

/// Returns the tag of a hash.
#[inline(always)]
pub fn tag(hash: u64) -> u64 {
    hash >> 32
}
