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

    /// Lanes whose bits under `mask` equal `signature` (bit `j` of the result: lane `j`).
    #[inline(always)]
    pub(crate) fn compare(&self, signature: u32, mask: u32) -> u16 {
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
    pub(crate) fn compare_scalar(&self, signature: u32, mask: u32) -> u16 {
        (0..LANES).fold(0, |equal, lane| {
            equal | u16::from(self.get(lane) & mask == signature) << lane
        })
    }
}

/// A way to compare: a value of it says that the processor has what it needs.
pub(crate) trait Compare: Copy {
    /// What [`Bucket::compare`] gives.
    fn compare(self, bucket: &Bucket, signature: u32, mask: u32) -> u16;
}

/// The compare that every processor of the target has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Compare for Portable {
    #[inline(always)]
    fn compare(self, bucket: &Bucket, signature: u32, mask: u32) -> u16 {
        bucket.compare(signature, mask)
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std", not(any(loom, shuttle))))]
pub(crate) use wide::{Avx2, Avx512};

/// Wider vectors, where the processor has them: one or two for a bucket.
#[cfg(all(target_arch = "x86_64", feature = "std", not(any(loom, shuttle))))]
mod wide {
    use super::{Bucket, Compare};
    use core::arch::x86_64::{
        __m256i, __m512i, _mm_movemask_epi8, _mm_packs_epi16, _mm256_and_si256,
        _mm256_castsi256_si128, _mm256_cmpeq_epi32, _mm256_extracti128_si256, _mm256_load_si256,
        _mm256_packs_epi32, _mm256_permute4x64_epi64, _mm256_set1_epi32, _mm512_load_si512,
        _mm512_set1_epi32, _mm512_testn_epi32_mask, _mm512_xor_si512,
    };
    use std::arch::is_x86_feature_detected as has;

    /// AVX2, and the bit instructions that came with it.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        /// Asks the processor (once: the answer is kept).
        #[inline]
        pub(crate) fn detect() -> Option<Self> {
            (has!("avx2") && has!("bmi1") && has!("bmi2")).then_some(Self(()))
        }
    }

    impl Compare for Avx2 {
        #[inline(always)]
        fn compare(self, bucket: &Bucket, signature: u32, mask: u32) -> u16 {
            let start = bucket.0.as_ptr().cast::<__m256i>();
            // SAFETY: a bucket is two aligned vectors, not written meanwhile (see the module); `self` says
            // that the processor has AVX2.
            unsafe { compare_halves(start, signature, mask) }
        }
    }

    /// # Safety
    /// Two aligned vectors are at `start`, and nobody writes them.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn compare_halves(start: *const __m256i, signature: u32, mask: u32) -> u16 {
        // SAFETY: as the caller promises.
        let low = unsafe { _mm256_load_si256(start) };
        // SAFETY: as above: inside of the two vectors.
        let second = unsafe { start.add(1) };
        // SAFETY: as above.
        let high = unsafe { _mm256_load_si256(second) };
        let wanted = _mm256_set1_epi32(signature.cast_signed());
        let mask = _mm256_set1_epi32(mask.cast_signed());
        let low = _mm256_cmpeq_epi32(_mm256_and_si256(low, mask), wanted);
        let high = _mm256_cmpeq_epi32(_mm256_and_si256(high, mask), wanted);
        // Packing works on halves: put their quarters in order.
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
        let (low, high) = (
            _mm256_castsi256_si128(words),
            _mm256_extracti128_si256::<1>(words),
        );
        _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u16
    }

    /// AVX-512F, and the bit instructions of AVX2's time.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx512(());

    impl Avx512 {
        /// Asks the processor (once: the answer is kept).
        #[inline]
        pub(crate) fn detect() -> Option<Self> {
            (has!("avx512f") && has!("bmi1") && has!("bmi2")).then_some(Self(()))
        }
    }

    impl Compare for Avx512 {
        #[inline(always)]
        fn compare(self, bucket: &Bucket, signature: u32, mask: u32) -> u16 {
            let start = bucket.0.as_ptr().cast::<__m512i>();
            // SAFETY: a bucket is one aligned vector, not written meanwhile (see the module); `self` says
            // that the processor has AVX-512F.
            unsafe { compare_line(start, signature, mask) }
        }
    }

    /// # Safety
    /// An aligned vector is at `start`, and nobody writes it.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn compare_line(start: *const __m512i, signature: u32, mask: u32) -> u16 {
        // SAFETY: as the caller promises.
        let lanes = unsafe { _mm512_load_si512(start) };
        let differ = _mm512_xor_si512(lanes, _mm512_set1_epi32(signature.cast_signed()));
        _mm512_testn_epi32_mask(differ, _mm512_set1_epi32(mask.cast_signed()))
    }
}

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
mod sse2 {
    use super::{AtomicU32, LANES};
    use core::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
    };

    /// SSE2 is part of x86-64: no detection. Written out, as closures (`array::map`) are not inlined here
    /// and cost 40 ns a line.
    #[inline(always)]
    pub(super) fn compare(lanes: &[AtomicU32; LANES], signature: u32, mask: u32) -> u16 {
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
    ) -> u16 {
        let wanted = _mm_set1_epi32(signature.cast_signed());
        let mask = _mm_set1_epi32(mask.cast_signed());
        let a = _mm_cmpeq_epi32(_mm_and_si128(a, mask), wanted);
        let b = _mm_cmpeq_epi32(_mm_and_si128(b, mask), wanted);
        let c = _mm_cmpeq_epi32(_mm_and_si128(c, mask), wanted);
        let d = _mm_cmpeq_epi32(_mm_and_si128(d, mask), wanted);
        let bytes = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
        _mm_movemask_epi8(bytes) as u16
    }

    #[inline(always)]
    fn load(start: *const __m128i, quarter: usize) -> __m128i {
        // SAFETY: `compare` gives an array of four vectors.
        let place = unsafe { start.add(quarter) };
        // SAFETY: in bounds, aligned (`Bucket` is), and not written meanwhile (see the module).
        unsafe { _mm_load_si128(place) }
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
                let scalar = bucket.compare_scalar(signature, mask);
                for (lane, &value) in lanes.iter().enumerate() {
                    prop_assert_eq!(scalar >> lane & 1 == 1, value & mask == signature);
                }
                prop_assert_eq!(Portable.compare(&bucket, signature, mask), scalar);
                #[cfg(all(target_arch = "x86_64", feature = "std"))]
                {
                    let avx2 = Avx2::detect().map(|avx2| avx2.compare(&bucket, signature, mask));
                    prop_assert!(avx2.is_none_or(|equal| equal == scalar));
                    let avx512 = Avx512::detect().map(|avx512| avx512.compare(&bucket, signature, mask));
                    prop_assert!(avx512.is_none_or(|equal| equal == scalar));
                }
            }
        }
    }
}
