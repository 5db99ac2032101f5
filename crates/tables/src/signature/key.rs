//! Session keys: the addresses, ports and protocol of a session as whole words.

use crate::memory::Plain;
use crate::sync::atomic::AtomicU64;
use core::fmt::Debug;

/// Set in the last word of every key, so that a zeroed record is no key.
pub(crate) const PRESENT: u64 = 1 << 63;

/// What a signature table can be keyed by.
pub trait SessionKey: Copy + Eq + Debug + Send + Sync + 'static {
    /// The key as words; the last one is never zero.
    type Words: Copy + AsRef<[u64]>;
    /// The hot record: the key's words, then words for the caller.
    type Record: Plain + Debug + AsRef<[AtomicU64]>;

    /// Returns the key as words.
    fn to_words(&self) -> Self::Words;
    /// Makes a key from the words that [`to_words`](Self::to_words) gave.
    fn from_words(words: &[u64]) -> Option<Self>;
    /// Source address XOR destination address XOR source port XOR destination port (TL-1); IPv6
    /// addresses fold to 32 bits.
    fn xor_signature(&self) -> u32;
}

/// An IPv4 session: two words of key and six for the caller in a record of one cache line.
// In the order of its fields a session is its words (but for the mark), so that the batched find loads them
// whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session4 {
    /// Source address, host order.
    pub source: u32,
    /// Destination address, host order.
    pub destination: u32,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
}

#[inline(always)]
fn ports_word(source_port: u16, destination_port: u16, protocol: u8) -> u64 {
    PRESENT | u64::from(protocol) << 32 | u64::from(destination_port) << 16 | u64::from(source_port)
}

impl SessionKey for Session4 {
    type Words = [u64; 2];
    type Record = [AtomicU64; 8];

    #[inline(always)]
    fn to_words(&self) -> [u64; 2] {
        [
            u64::from(self.destination) << 32 | u64::from(self.source),
            ports_word(self.source_port, self.destination_port, self.protocol),
        ]
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let &[addresses, ports] = words else {
            return None;
        };
        (ports & PRESENT != 0).then_some(Self {
            source: addresses as u32,
            destination: (addresses >> 32) as u32,
            source_port: ports as u16,
            destination_port: (ports >> 16) as u16,
            protocol: (ports >> 32) as u8,
        })
    }

    #[inline(always)]
    fn xor_signature(&self) -> u32 {
        self.source
            ^ self.destination
            ^ u32::from(self.source_port)
            ^ u32::from(self.destination_port)
    }
}

/// An IPv6 session: five words of key and eleven for the caller in a record of two cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session6 {
    /// Source address, host order.
    pub source: u128,
    /// Destination address, host order.
    pub destination: u128,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl SessionKey for Session6 {
    type Words = [u64; 5];
    type Record = [AtomicU64; 16];

    #[inline(always)]
    fn to_words(&self) -> [u64; 5] {
        [
            (self.source >> 64) as u64,
            self.source as u64,
            (self.destination >> 64) as u64,
            self.destination as u64,
            ports_word(self.source_port, self.destination_port, self.protocol),
        ]
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let &[
            source_high,
            source_low,
            destination_high,
            destination_low,
            ports,
        ] = words
        else {
            return None;
        };
        (ports & PRESENT != 0).then_some(Self {
            source: u128::from(source_high) << 64 | u128::from(source_low),
            destination: u128::from(destination_high) << 64 | u128::from(destination_low),
            source_port: ports as u16,
            destination_port: (ports >> 16) as u16,
            protocol: (ports >> 32) as u8,
        })
    }

    #[inline(always)]
    fn xor_signature(&self) -> u32 {
        let folded = self.source ^ self.destination;
        (folded >> 96) as u32
            ^ (folded >> 64) as u32
            ^ (folded >> 32) as u32
            ^ folded as u32
            ^ u32::from(self.source_port)
            ^ u32::from(self.destination_port)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn words_carry_the_whole_key() {
        let key = Session4 {
            source: 0x0a00_0001,
            destination: 0xc0a8_0102,
            source_port: 65_535,
            destination_port: 80,
            protocol: 6,
        };
        assert_eq!(Session4::from_words(&key.to_words()), Some(key));
        assert_eq!(Session4::from_words(&[0, 0]), None);
        assert_eq!(Session4::from_words(&[0]), None);
        assert_eq!(key.xor_signature(), 0x0a00_0001 ^ 0xc0a8_0102 ^ 65_535 ^ 80);
        let key = Session6 {
            source: 0x2001_0db8 << 96 | 1,
            destination: 0x2001_0db8 << 96 | 2,
            source_port: 1,
            destination_port: 443,
            protocol: 6,
        };
        assert_eq!(Session6::from_words(&key.to_words()), Some(key));
        assert_eq!(key.xor_signature(), 1 ^ 2 ^ 1 ^ 443);
    }
}
