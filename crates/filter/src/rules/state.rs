//! State of rules that changes with packets: limits, quotas, generators; counters are a worker's own.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A limit: a bucket of time. One packet (or byte) costs the time in which one more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    /// Packets or bytes a unit of time.
    pub rate: u64,
    /// The unit of time, nanoseconds.
    pub unit_ns: u64,
    /// What a full bucket holds, nanoseconds.
    pub full_ns: u64,
    /// Bytes are counted, not packets.
    pub bytes: bool,
    /// Matches above the rate, not below.
    pub over: bool,
}

impl Limit {
    /// Makes a limit of `rate` packets a unit, with a burst (the kernel's default is 5).
    pub fn packets(rate: u64, unit_ns: u64, burst: Option<u64>, over: bool) -> Self {
        let burst = burst.filter(|burst| *burst > 0).unwrap_or(5);
        let full_ns = (unit_ns / rate.max(1)).saturating_mul(burst);
        Self {
            rate: rate.max(1),
            unit_ns,
            full_ns,
            bytes: false,
            over,
        }
    }

    /// Makes a limit of `rate` bytes a unit; the bucket holds a unit's bytes and the burst.
    pub fn bytes(rate: u64, unit_ns: u64, burst: u64, over: bool) -> Self {
        let rate = rate.max(1);
        let full = u128::from(unit_ns) * (u128::from(rate) + u128::from(burst)) / u128::from(rate);
        Self {
            rate,
            unit_ns,
            full_ns: u64::try_from(full).unwrap_or(u64::MAX),
            bytes: true,
            over,
        }
    }

    fn cost_ns(self, bytes: u64) -> u64 {
        if self.bytes {
            let cost = u128::from(self.unit_ns) * u128::from(bytes) / u128::from(self.rate);
            u64::try_from(cost).unwrap_or(u64::MAX)
        } else {
            self.unit_ns / self.rate
        }
    }

    /// Takes a packet of `bytes` from the bucket `full_at` (the time at which it will be full again) at
    /// `now_ns`; true if the statement matches. Of packets that race for the last token one gets it.
    pub fn matches(self, full_at: &AtomicU64, now_ns: u64, bytes: u64) -> bool {
        let cost = self.cost_ns(bytes);
        // Relaxed: the word is the whole state.
        let mut at = full_at.load(Ordering::Relaxed);
        loop {
            let next = at.max(now_ns).saturating_add(cost);
            if next.saturating_sub(now_ns) > self.full_ns {
                return self.over;
            }
            match full_at.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return !self.over,
                Err(now) => at = now,
            }
        }
    }
}

/// A quota of bytes.
#[derive(Debug, Default)]
pub struct Quota {
    /// Bytes.
    pub bytes: u64,
    /// Matches above, not below.
    pub over: bool,
    used: AtomicU64,
}

impl Quota {
    /// Makes a quota of which `used` bytes are gone.
    pub fn new(bytes: u64, used: u64, over: bool) -> Self {
        Self {
            bytes,
            over,
            used: AtomicU64::new(used),
        }
    }

    /// Counts a packet; true if the statement matches.
    pub fn matches(&self, bytes: u64) -> bool {
        quota_matches(&self.used, self.bytes, self.over, bytes)
    }

    /// Returns the bytes used.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Counts `bytes` against a quota kept in `used`.
pub(super) fn quota_matches(used: &AtomicU64, quota: u64, over: bool, bytes: u64) -> bool {
    // Relaxed: the word is the whole state.
    let used = used
        .fetch_add(bytes, Ordering::Relaxed)
        .saturating_add(bytes);
    (used >= quota) == over
}

/// State that all workers share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Limits, with their buckets.
    pub limits: Vec<(Limit, AtomicU64)>,
    /// Quotas.
    pub quotas: Vec<Quota>,
    /// Generators that count up.
    pub generators: Vec<AtomicU32>,
}

impl Shared {
    /// Returns the next number of a generator, below `modulus`.
    pub(super) fn next(&self, generator: u32, modulus: u32) -> u32 {
        let Some(word) = self.generators.get(generator as usize) else {
            return 0;
        };
        let step = |at: u32| Some(if at + 1 < modulus { at + 1 } else { 0 });
        // Relaxed: the word is the whole state. What was there is what is returned.
        word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step)
            .unwrap_or(0)
            % modulus.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_packets_and_bytes() {
        let limit = Limit::packets(10, 1_000_000_000, Some(3), false);
        let bucket = AtomicU64::new(0);
        let now = 5_000_000_000;
        let passed = (0..10).filter(|_| limit.matches(&bucket, now, 100)).count();
        assert_eq!(passed, 3);
        assert!(limit.matches(&bucket, now + 100_000_000, 100));
        assert!(!limit.matches(&bucket, now + 100_000_000, 100));
        let over = Limit {
            over: true,
            ..limit
        };
        assert!(over.matches(&bucket, now + 100_000_000, 100));
        let bytes = Limit::bytes(1000, 1_000_000_000, 500, false);
        let bucket = AtomicU64::new(0);
        assert!(bytes.matches(&bucket, now, 1500));
        assert!(!bytes.matches(&bucket, now, 1));
    }

    #[test]
    fn quota_until_and_over() {
        let until = Quota::new(250, 0, false);
        assert!(until.matches(100) && until.matches(100));
        assert!(!until.matches(100) && !until.matches(1));
        let over = Quota::new(250, 200, true);
        assert!(!over.matches(49));
        assert!(over.matches(1));
        assert_eq!(over.used(), 250);
    }

    #[test]
    fn generator_counts_round() {
        let shared = Shared {
            generators: Vec::from([AtomicU32::new(0)]),
            ..Shared::default()
        };
        let numbers: Vec<u32> = (0..5).map(|_| shared.next(0, 3)).collect();
        assert_eq!(numbers, [0, 1, 2, 0, 1]);
    }
}
