//! Packed keys: what sets with concatenations are indexed by.

use alloc::vec::Vec;

/// Longest concatenation, bytes: two IPv6 addresses, two ports, and a word.
pub const KEY_BYTES_MAX: usize = 40;
/// Most parts of a concatenation.
pub const KEY_PARTS_MAX: usize = 8;

/// The numbers of a concatenation, one after another, each in whole bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackedKey {
    words: [u64; KEY_BYTES_MAX / 8],
    bytes: u8,
}

impl PackedKey {
    /// Appends a number of `bits`. What does not fit is cut: compilation refuses longer keys.
    #[inline]
    pub fn push(&mut self, value: u128, bits: u16) {
        for shift in (0..bits.div_ceil(8)).rev() {
            let byte = (value >> (shift * 8)) as u8;
            let at = usize::from(self.bytes);
            if let Some(word) = self.words.get_mut(at / 8) {
                *word |= u64::from(byte) << (at % 8 * 8);
            }
            self.bytes = self.bytes.saturating_add(1);
        }
    }

    /// Packs numbers of the given widths.
    pub fn of(parts: &[(u128, u16)]) -> Self {
        let mut key = Self::default();
        for (value, bits) in parts {
            key.push(*value, *bits);
        }
        key
    }

    /// Returns the key as words, for the shared map.
    pub const fn words(&self) -> [u64; KEY_BYTES_MAX / 8] {
        self.words
    }

    /// Makes a key again of its words and length.
    pub fn from_words(words: &[u64], bytes: u8) -> Self {
        let mut key = Self {
            bytes,
            ..Self::default()
        };
        for (to, from) in key.words.iter_mut().zip(words) {
            *to = *from;
        }
        key
    }

    /// Takes the key apart again.
    pub fn parts(&self, widths: &[u16]) -> Vec<u128> {
        let mut at = 0_usize;
        let mut parts = Vec::new();
        for bits in widths {
            let mut value = 0_u128;
            for _ in 0..bits.div_ceil(8) {
                let word = self.words.get(at / 8).copied().unwrap_or(0);
                value = value << 8 | u128::from(word >> (at % 8 * 8) & 0xff);
                at += 1;
            }
            parts.push(value);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks() {
        let key = PackedKey::of(&[(0x0a00_0001, 32), (443, 16), (6, 8), (u128::MAX, 128)]);
        assert_eq!(
            key.parts(&[32, 16, 8, 128]),
            [0x0a00_0001, 443, 6, u128::MAX]
        );
        assert_ne!(
            key,
            PackedKey::of(&[(0x0a00_0001, 32), (442, 16), (6, 8), (u128::MAX, 128)])
        );
    }
}
