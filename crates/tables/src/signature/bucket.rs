//! One bucket: 16 signatures of 32 bits on a cache line, compared at once (TL-2).
//!
//! The vector code reads the lanes with plain loads: whoever calls it holds the table by `&` while only
//! `&mut` changes it, so that no other thread writes meanwhile.

use crate::memory::Plain;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Signatures in a bucket.
pub(crate) const LANES: usize = 16;

/// A bucket: a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Bucket([AtomicU32; LANES]);

// SAFETY: an array of atomic integers that fills its alignment: every pattern of bits is valid.
unsafe impl Plain for Bucket {
    fn zeroed() -> Self {
        Self(Plain::zeroed())
    }
}

impl Bucket {
    #[inline(always)]
    pub(crate) fn get(&self, lane: usize) -> u32 {
        // Relaxed: one owner; readers in other processes take a lane as a hint and check the record.
        self.0[lane].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, lane: usize, value: u32) {
        // Relaxed: as in `get`.
        self.0[lane].store(value, Ordering::Relaxed);
    }

    /// Lanes whose bits under `mask` equal `signature` (bit `j` of the result: lane `j`), and the top bit
    /// of every lane.
    #[inline(always)]
    pub(crate) fn compare(&self, signature: u32, mask: u32) -> (u16, u16) {
        #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
        {
            sse2::compare(&self.0, signature, mask)
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
        {
            self.compare_scalar(signature, mask)
        }
    }

    /// The scalar twin of [`compare`](Self::compare).
    #[cfg(any(test, loom, shuttle, not(target_arch = "x86_64")))]
    #[inline]
    pub(crate) fn compare_scalar(&self, signature: u32, mask: u32) -> (u16, u16) {
        let (mut equal, mut top) = (0, 0);
        for lane in 0..LANES {
            let value = self.get(lane);
            equal |= u16::from(value & mask == signature) << lane;
            top |= ((value >> 31) as u16) << lane;
        }
        (equal, top)
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
mod sse2 {
    use super::{AtomicU32, LANES};
    use core::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
    };

    /// SSE2 is part of x86-64: no detection. 13 instructions for the line, 5 more for the top bits. Written
    /// out, as closures (`array::map`) are not inlined here and cost 40 ns a line.
    #[inline(always)]
    pub(super) fn compare(lanes: &[AtomicU32; LANES], signature: u32, mask: u32) -> (u16, u16) {
        let start = lanes.as_ptr().cast::<__m128i>();
        let (a, b) = (load(start, 0), load(start, 1));
        let (c, d) = (load(start, 2), load(start, 3));
        // SAFETY: SSE2 is there on x86-64.
        unsafe { compare_vectors(a, b, c, d, signature, mask) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn compare_vectors(
        a: __m128i,
        b: __m128i,
        c: __m128i,
        d: __m128i,
        signature: u32,
        mask: u32,
    ) -> (u16, u16) {
        let wanted = _mm_set1_epi32(signature.cast_signed());
        let mask = _mm_set1_epi32(mask.cast_signed());
        let equal = narrow(
            _mm_cmpeq_epi32(_mm_and_si128(a, mask), wanted),
            _mm_cmpeq_epi32(_mm_and_si128(b, mask), wanted),
            _mm_cmpeq_epi32(_mm_and_si128(c, mask), wanted),
            _mm_cmpeq_epi32(_mm_and_si128(d, mask), wanted),
        );
        // Saturation keeps the sign.
        (equal, narrow(a, b, c, d))
    }

    #[inline(always)]
    fn load(start: *const __m128i, quarter: usize) -> __m128i {
        // SAFETY: `compare` gives an array of four vectors.
        let place = unsafe { start.add(quarter) };
        // SAFETY: in bounds, aligned (`Bucket` is), and not written meanwhile (see the module).
        unsafe { _mm_load_si128(place) }
    }

    /// The sign of each lane.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn narrow(a: __m128i, b: __m128i, c: __m128i, d: __m128i) -> u16 {
        let bytes = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
        _mm_movemask_epi8(bytes) as u16
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn vector_and_scalar_compare_agree(
            lanes in prop::array::uniform16(prop_oneof![0_u32..4, any::<u32>(), Just(1 << 31)]),
            pick in 0_usize..16,
            any in any::<u32>(),
            mask in prop_oneof![Just(u32::MAX), Just(u32::MAX >> 1)],
        ) {
            let bucket = Bucket::zeroed();
            for (lane, &value) in lanes.iter().enumerate() {
                bucket.set(lane, value);
            }
            for signature in [lanes[pick] & mask, any & mask, 0] {
                let got = bucket.compare(signature, mask);
                prop_assert_eq!(got, bucket.compare_scalar(signature, mask));
                for (lane, &value) in lanes.iter().enumerate() {
                    prop_assert_eq!(got.0 >> lane & 1 == 1, value & mask == signature);
                    prop_assert_eq!(got.1 >> lane & 1 == 1, value >> 31 == 1);
                }
            }
        }
    }
}
