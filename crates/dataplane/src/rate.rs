//! A token bucket: so many a second, so many at once.

use wire::Instant;

const NS_PER_S: u64 = 1_000_000_000;

/// Allows `per_s` events a second and `burst` at once; private to a worker.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Time that one event costs, nanoseconds.
    cost_ns: u64,
    /// Most time that can be saved up, nanoseconds.
    burst_ns: u64,
    /// When the bucket was, or will be, empty.
    empty_at_ns: u64,
    refused: u64,
}

impl TokenBucket {
    /// Makes a full bucket.
    pub fn new(per_s: u32, burst: u32) -> Self {
        let cost_ns = NS_PER_S / u64::from(per_s.max(1));
        Self {
            cost_ns,
            burst_ns: cost_ns.saturating_mul(u64::from(burst.max(1))),
            empty_at_ns: 0,
            refused: 0,
        }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        // `now` is at most `burst_ns` behind what a full bucket could pay for.
        let now_ns = now.as_ns().saturating_add(self.burst_ns);
        let start = self.empty_at_ns.max(now_ns - self.burst_ns);
        let next = start.saturating_add(self.cost_ns);
        if next > now_ns {
            self.refused += 1;
            return false;
        }
        self.empty_at_ns = next;
        true
    }

    /// Returns how often there was none.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_burst_and_then_the_rate() {
        for start_s in [0, 1, 1000] {
            let start = Instant::ZERO + Duration::from_secs(start_s);
            let mut bucket = TokenBucket::new(1000, 50);
            assert_eq!((0..200).filter(|_| bucket.take(start)).count(), 50);
            assert_eq!(bucket.refused(), 150);
            let taken = (0..1000)
                .map(|ms| start + Duration::from_millis(ms))
                .flat_map(|now| [now; 3])
                .filter(|&now| bucket.take(now))
                .count();
            assert!((990..=1000).contains(&taken), "{taken} in a second");
            let later = start + Duration::from_secs(100);
            assert_eq!(
                (0..200).filter(|_| bucket.take(later)).count(),
                50,
                "no more than a burst is saved"
            );
        }
    }
}
