//! Token buckets: one word each, updated by compare-and-swap (the virtual scheduling form of GCRA, ITU-T
//! I.371 annex A, which is a token bucket counted in time).

use crate::memory::{Memory, Pages};
use crate::sync::atomic::{AtomicU64, Ordering};

/// What a bucket lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds in which one token comes, times 256 (so that fast rates are exact enough).
    interval_256ths_ns: u64,
    /// Nanoseconds that a full bucket is worth.
    burst_ns: u64,
}

impl Rate {
    /// Tokens (packets, bytes) a second, and how many may come at once after a pause (one at least).
    ///
    /// The rate is exact to one part in `256e9 / per_second`; zero a second is one token in 2.3 years.
    pub fn new(per_second: u64, burst: u64) -> Self {
        let interval_256ths_ns = 256_000_000_000_u64
            .checked_div(per_second)
            .unwrap_or(u64::MAX);
        let burst_ns = tokens_ns(interval_256ths_ns, burst.max(1));
        Self {
            interval_256ths_ns,
            burst_ns,
        }
    }
}

fn tokens_ns(interval_256ths_ns: u64, tokens: u64) -> u64 {
    let ns = u128::from(interval_256ths_ns) * u128::from(tokens) / 256;
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Buckets by index, shared by threads or processes; all start full. Hash a key to an index for buckets a
/// source, and take the collisions into account: two keys in one bucket share its rate.
#[derive(Debug)]
pub struct TokenBuckets {
    /// The time at which each bucket will be full again, ns.
    full_at: Memory<AtomicU64>,
}

impl TokenBuckets {
    /// Makes `buckets` buckets.
    pub fn new(buckets: usize, pages: Pages) -> Self {
        Self::with_memory(Memory::zeroed(buckets, pages))
    }

    /// Makes buckets of zeroed `memory`, or attaches to those that others use.
    pub fn with_memory(memory: Memory<AtomicU64>) -> Self {
        Self { full_at: memory }
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.full_at.len()
    }

    /// True without buckets.
    pub fn is_empty(&self) -> bool {
        self.full_at.is_empty()
    }

    /// Takes `tokens` from bucket `index` (modulo their number) at `now_ns`; false, and nothing is taken,
    /// if it has fewer. Of workers that race for the last token one gets it. Without buckets, false.
    #[inline]
    pub fn take(&self, index: usize, rate: Rate, now_ns: u64, tokens: u64) -> bool {
        if self.full_at.is_empty() {
            return false;
        }
        let word = &self.full_at[index % self.full_at.len()];
        let cost = tokens_ns(rate.interval_256ths_ns, tokens);
        // Relaxed: the word is the whole state.
        let mut full_at = word.load(Ordering::Relaxed);
        loop {
            let next = full_at.max(now_ns).saturating_add(cost);
            if next.saturating_sub(now_ns) > rate.burst_ns {
                return false;
            }
            match word.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => full_at = now,
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn burst_then_rate() {
        let buckets = TokenBuckets::new(4, Pages::Normal);
        let rate = Rate::new(1000, 5);
        let taken = (0..10)
            .filter(|_| buckets.take(1, rate, 1_000_000, 1))
            .count();
        assert_eq!(taken, 5);
        assert!(!buckets.take(1, rate, 1_500_000, 1));
        assert!(buckets.take(1, rate, 2_000_000, 1));
        assert!(!buckets.take(1, rate, 2_000_000, 1));
        assert!(buckets.take(2, rate, 0, 5));
        assert!(!buckets.take(3, rate, u64::MAX / 2, 6));
        let never = Rate::new(0, 2);
        assert!(buckets.take(0, never, 0, 2));
        assert!(!buckets.take(0, never, 1 << 55, 1));
        assert!(!TokenBuckets::new(0, Pages::Normal).take(0, rate, 0, 1));
    }

    proptest! {
        /// Over any time, at most `burst + rate x time` tokens go (and, when asked often, no fewer than
        /// one less).
        #[test]
        fn never_above_the_rate(
            per_second in 1_u64..2_000_000,
            burst in 1_u64..50,
            gaps in prop::collection::vec(0_u64..5_000_000, 1..300),
        ) {
            let buckets = TokenBuckets::new(1, Pages::Normal);
            let rate = Rate::new(per_second, burst);
            let (mut now, mut taken) = (0, 0);
            for gap in gaps {
                now += gap;
                taken += u64::from(buckets.take(0, rate, now, 1));
                let bound = burst as f64 + now as f64 * per_second as f64 / 1e9 * 1.0001;
                prop_assert!(taken as f64 <= bound + 1.0);
            }
        }
    }
}
