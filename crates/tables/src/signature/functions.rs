//! Signature functions: a session's bucket bits and its 32-bit signature.

use super::key::SessionKey;
use core::fmt::Debug;

/// What a signature function gives: the bits that choose the bucket, and the signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyHash {
    /// Chooses the bucket.
    pub bucket: u32,
    /// Stands for the session inside of the bucket.
    pub signature: u32,
}

/// Turns a session key into bucket bits and a signature.
pub trait SignatureFunction: Clone + Debug + Send + Sync + 'static {
    /// Hashes a key.
    fn hash<K: SessionKey>(&self, key: &K) -> KeyHash;
}

/// The default: two or more folded 64 x 64 to 128-bit multiplications keyed per boot; bucket and signature
/// come from the two halves of one 64-bit value, so that neither tells of the other.
///
/// Fast and even, but without a formal promise against someone who sees timings: [`SipHash13`] has one.
#[derive(Clone, Copy, Debug)]
pub struct Keyed {
    key: [u64; 4],
}

impl Keyed {
    /// Makes the function from 256 bits of randomness (`getrandom` at boot; fixed in tests). The bits are
    /// stirred, so that a poor key gives an even hash as well, if no secret one.
    pub const fn new(key: [u64; 4]) -> Self {
        let mut stirred = [0; 4];
        let mut at = 0;
        let mut state = 0_u64;
        while at < 4 {
            // SplitMix64 (Steele, Lea and Flood 2014) over the words so far.
            state = (state ^ key[at]).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            stirred[at] = z ^ (z >> 31);
            state = stirred[at];
            at += 1;
        }
        Self { key: stirred }
    }

    /// Hashes words to 64 bits.
    #[inline(always)]
    pub fn hash_words(&self, words: &[u64]) -> u64 {
        let [k0, k1, k2, k3] = self.key;
        let mut state = k2;
        let mut pairs = words.chunks_exact(2);
        for pair in &mut pairs {
            state = fold(pair[0] ^ k0 ^ state.rotate_left(32), pair[1] ^ k1 ^ state);
        }
        if let [last] = pairs.remainder() {
            state = fold(last ^ k0, state ^ k1);
        }
        fold(state ^ k0, k3 | 1)
    }
}

/// The two halves of a 128-bit product, XORed.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl SignatureFunction for Keyed {
    #[inline(always)]
    fn hash<K: SessionKey>(&self, key: &K) -> KeyHash {
        let hash = self.hash_words(key.to_words().as_ref());
        KeyHash {
            bucket: (hash >> 32) as u32,
            signature: hash as u32,
        }
    }
}

/// SipHash-1-3 with a 128-bit key (Aumasson and Bernstein): for who wants a studied keyed hash, at some
/// 10 ns more a key.
#[derive(Clone, Copy, Debug)]
pub struct SipHash13 {
    key: [u64; 2],
}

impl SipHash13 {
    /// Makes the function from 128 bits of randomness.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// Hashes words (as little-endian bytes) to 64 bits.
    pub fn hash_words(&self, words: &[u64]) -> u64 {
        let [k0, k1] = self.key;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let length = (words.len() as u64 * 8) << 56;
        for &word in words.iter().chain(core::iter::once(&length)) {
            v[3] ^= word;
            sip_round(&mut v);
            v[0] ^= word;
        }
        v[2] ^= 0xff;
        for _ in 0..3 {
            sip_round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline(always)]
fn sip_round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

impl SignatureFunction for SipHash13 {
    fn hash<K: SessionKey>(&self, key: &K) -> KeyHash {
        let hash = self.hash_words(key.to_words().as_ref());
        KeyHash {
            bucket: (hash >> 32) as u32,
            signature: hash as u32,
        }
    }
}

/// The paper's signature (TL-1), with bucket bits from the same XOR: weak, kept for comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xor;

impl SignatureFunction for Xor {
    #[inline(always)]
    fn hash<K: SessionKey>(&self, key: &K) -> KeyHash {
        let signature = key.xor_signature();
        KeyHash {
            // Spread, as the paper names no bucket function: equal XORs still share a bucket.
            bucket: signature.wrapping_mul(0x9e37_79b1),
            signature,
        }
    }
}

/// The paper's signature with a keyed bucket function.
#[derive(Clone, Copy, Debug)]
pub struct XorKeyedBucket(pub Keyed);

impl SignatureFunction for XorKeyedBucket {
    #[inline(always)]
    fn hash<K: SessionKey>(&self, key: &K) -> KeyHash {
        KeyHash {
            bucket: self.0.hash(key).bucket,
            signature: key.xor_signature(),
        }
    }
}

/// CRC32C for both, as hardware gives it: unkeyed, and bucket and signature share their bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc32c;

impl SignatureFunction for Crc32c {
    #[inline(always)]
    fn hash<K: SessionKey>(&self, key: &K) -> KeyHash {
        let crc = crc32c_words(u32::MAX, key.to_words().as_ref());
        KeyHash {
            bucket: crc,
            signature: crc,
        }
    }
}

/// CRC32C with two seeds: no more information than one, as the CRC is affine (shown in the benches).
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc32cTwoSeeds;

impl SignatureFunction for Crc32cTwoSeeds {
    #[inline(always)]
    fn hash<K: SessionKey>(&self, key: &K) -> KeyHash {
        let words = key.to_words();
        KeyHash {
            bucket: crc32c_words(u32::MAX, words.as_ref()),
            signature: crc32c_words(0x1234_5678, words.as_ref()),
        }
    }
}

/// The reflected Castagnoli polynomial (RFC 3720 appendix B.4).
const POLYNOMIAL: u32 = 0x82f6_3b78;

static CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ (if crc & 1 == 1 { POLYNOMIAL } else { 0 });
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC32C of words as little-endian bytes, by the hardware instruction where the target has it.
#[inline(always)]
fn crc32c_words(seed: u32, words: &[u64]) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse4.2"))]
    {
        words.iter().fold(seed, |crc, &word| {
            core::arch::x86_64::_mm_crc32_u64(u64::from(crc), word) as u32
        })
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.2")))]
    {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .fold(seed, |crc, byte| {
                CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8
            })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::key::Session4;
    use super::*;

    #[test]
    fn crc32c_matches_the_published_vector() {
        // RFC 3720 B.4: 32 bytes of zeros give aa 36 91 8a.
        assert_eq!(!crc32c_words(u32::MAX, &[0; 4]), 0x8a91_36aa);
    }

    #[test]
    fn siphash_matches_the_well_kept_crate() {
        use core::hash::Hasher;
        let ours = SipHash13::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let words = [1_u64, 0xffff_0000_1234_5678, 3];
        let mut theirs = siphasher::sip::SipHasher13::new_with_keys(
            0x0706_0504_0302_0100,
            0x0f0e_0d0c_0b0a_0908,
        );
        words
            .iter()
            .for_each(|word| theirs.write(&word.to_le_bytes()));
        assert_eq!(ours.hash_words(&words), theirs.finish());
    }

    #[test]
    fn xor_maps_swapped_ports_to_one_value() {
        let a = Session4 {
            source: 1,
            destination: 2,
            source_port: 3,
            destination_port: 4,
            protocol: 6,
        };
        let b = Session4 {
            source_port: 4,
            destination_port: 3,
            ..a
        };
        assert_eq!(Xor.hash(&a), Xor.hash(&b));
        let keyed = Keyed::new([1, 2, 3, 4]);
        assert_ne!(keyed.hash(&a), keyed.hash(&b));
        assert_ne!(keyed.hash(&a), Keyed::new([1, 2, 3, 8]).hash(&a));
    }

    /// Every half of the hash is even over sequential ports and addresses: chi-square of 1,024 cells
    /// within six standard deviations.
    #[test]
    fn keyed_halves_are_even_on_sequential_sessions() {
        let keyed = Keyed::new([
            0x243f_6a88_85a3_08d3,
            0x1319_8a2e_0370_7344,
            0xa409_3822_299f_31d0,
            0x082e_fa98_ec4e_6c89,
        ]);
        let mut cells = [[0_u32; 1024]; 4];
        let n = 1 << 18;
        for i in 0..n {
            let hash = keyed.hash(&Session4 {
                source: 0x0a00_0000 + i / 64,
                destination: 0xc0a8_0001,
                source_port: 1024 + (i % 64) as u16,
                destination_port: 80,
                protocol: 6,
            });
            cells[0][(hash.bucket >> 22) as usize] += 1;
            cells[1][(hash.bucket & 1023) as usize] += 1;
            cells[2][(hash.signature >> 22) as usize] += 1;
            cells[3][(hash.signature & 1023) as usize] += 1;
        }
        let mean = f64::from(n) / 1024.0;
        for cells in &cells {
            let chi2: f64 = cells
                .iter()
                .map(|&c| (f64::from(c) - mean).powi(2) / mean)
                .sum();
            assert!(
                (chi2 - 1023.0).abs() < 6.0 * (2.0_f64 * 1023.0).sqrt(),
                "chi-square {chi2}"
            );
        }
    }
}
