//! How late sleeps end: a histogram that forgets, and what follows from it for a latency budget.

use core::time::Duration;

/// Bits of a lateness that choose the bucket in its octave: a bucket is 1/16 of its value wide.
const PART_BITS: u32 = 4;
/// Octaves: up to 2^20 ns, 1 ms; more counts as that: a stopped machine stops a worker that polls, too.
const OCTAVES: u32 = 20;
const BUCKETS: usize = ((OCTAVES - PART_BITS + 1) << PART_BITS) as usize;

/// Latenesses of naps, newer ones weighing more.
#[derive(Clone, Debug)]
pub(super) struct Lateness {
    buckets: Box<[u16; BUCKETS]>,
    total: u32,
    mean_ns: f64,
}

impl Lateness {
    /// Starts with the mean as a guess, and no naps.
    pub(super) fn new(mean: Duration) -> Self {
        Self {
            buckets: Box::new([0; BUCKETS]),
            total: 0,
            mean_ns: mean.as_nanos() as f64,
        }
    }

    /// Takes a nap's lateness. At `memory` naps (up to 2^15) all that were seen lose half of their weight.
    pub(super) fn record(&mut self, late: Duration, memory: u32) {
        let late_ns = late.as_nanos().min(u128::from(u64::MAX)) as u64;
        self.mean_ns += (late_ns.min(1_000_000) as f64 - self.mean_ns) / 64.0;
        if let Some(bucket) = self.buckets.get_mut(bucket_of(late_ns)) {
            *bucket = bucket.saturating_add(1);
            self.total += 1;
        }
        while self.total >= memory {
            for bucket in self.buckets.iter_mut() {
                *bucket /= 2;
            }
            self.total = self.buckets.iter().copied().map(u32::from).sum();
        }
    }

    /// Returns the weight of all naps seen.
    pub(super) fn weight(&self) -> u32 {
        self.total
    }

    /// Returns the mean of the last naps, nanoseconds.
    pub(super) fn mean_ns(&self) -> f64 {
        self.mean_ns
    }

    /// Returns the 99th percentile, nanoseconds; `None` before the first nap.
    pub(super) fn tail_ns(&self) -> Option<f64> {
        let above = self.total / 100;
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate().rev() {
            seen += u32::from(count);
            if seen > above {
                return Some(middle_ns(index));
            }
        }
        None
    }

    /// Returns the longest nap, up to `max_ns`, in which no more than `share` of packets that come at
    /// independent times wait longer than `budget_ns`: those that come in the first part of a sleep that
    /// ends late. 0 if there is none.
    pub(super) fn longest_nap_ns(&self, budget_ns: f64, share: f64, max_ns: f64) -> f64 {
        let meets = |nap_ns: f64| {
            let (mut over_ns, mut all_ns) = (0.0, 0.0);
            for (index, &count) in self.buckets.iter().enumerate() {
                if count > 0 {
                    let asleep_ns = nap_ns + middle_ns(index);
                    over_ns += f64::from(count) * (asleep_ns - budget_ns).max(0.0);
                    all_ns += f64::from(count) * asleep_ns;
                }
            }
            over_ns <= all_ns * share
        };
        let (mut low_ns, mut high_ns) = (0.0, max_ns.min(budget_ns).max(0.0));
        if meets(high_ns) {
            return high_ns;
        }
        for _ in 0..10 {
            let nap_ns = f64::midpoint(low_ns, high_ns);
            if meets(nap_ns) {
                low_ns = nap_ns;
            } else {
                high_ns = nap_ns;
            }
        }
        low_ns
    }
}

/// Returns the bucket of a lateness.
fn bucket_of(late_ns: u64) -> usize {
    let late_ns = late_ns.min((1 << OCTAVES) - 1);
    let octave = u64::BITS - (late_ns >> PART_BITS).leading_zeros();
    let shift = octave.saturating_sub(1);
    ((u64::from(octave) << PART_BITS) + (late_ns >> shift & ((1 << PART_BITS) - 1))) as usize
}

/// Returns the middle of a bucket, nanoseconds.
fn middle_ns(bucket: usize) -> f64 {
    let (octave, part) = (bucket >> PART_BITS, bucket & ((1 << PART_BITS) - 1));
    if octave == 0 {
        return part as f64 + 0.5;
    }
    ((part | 1 << PART_BITS) as f64 + 0.5) * f64::from(1_u32 << (octave - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(from_us: u64, to_us: u64) -> Lateness {
        let mut lateness = Lateness::new(Duration::ZERO);
        for us in from_us..to_us {
            lateness.record(Duration::from_micros(us), 1 << 15);
        }
        lateness
    }

    #[test]
    fn a_bucket_is_near_its_values() {
        for late_ns in (0..20_u64).chain((5..20).map(|bits| (1 << bits) + 12345 % (1 << bits))) {
            let middle = middle_ns(bucket_of(late_ns));
            let error = (middle - late_ns as f64).abs();
            assert!(error <= 0.5 + late_ns as f64 / 32.0, "{late_ns}: {middle}");
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
        assert!((0..1_200_000).is_sorted_by_key(bucket_of));
    }

    #[test]
    fn the_tail_is_the_99th_percentile() {
        assert_eq!(Lateness::new(Duration::ZERO).tail_ns(), None);
        let tail_ns = uniform(0, 1000).tail_ns().unwrap();
        assert!((950e3..1030e3).contains(&tail_ns), "{tail_ns}");
        let mut rare = Lateness::new(Duration::ZERO);
        for nap in 0..1000 {
            rare.record(
                Duration::from_micros(if nap % 200 == 0 { 900 } else { 10 }),
                1 << 15,
            );
        }
        assert!(
            rare.tail_ns().unwrap() < 11e3,
            "one in 200 is above the 99th percentile"
        );
    }

    #[test]
    fn the_nap_leaves_just_the_share_over_the_budget() {
        let lateness = uniform(20, 120);
        let nap_ns = lateness.longest_nap_ns(300e3, 0.01, 1e6);
        // Counts packets at every microsecond of sleeps of all latenesses.
        let (mut over, mut all) = (0, 0);
        for late_us in 20..120 {
            let asleep_us = nap_ns as u64 / 1000 + late_us;
            over += asleep_us.saturating_sub(300);
            all += asleep_us;
        }
        let share = over as f64 / all as f64;
        assert!((0.007..0.013).contains(&share), "{share} at {nap_ns} ns");
        assert_eq!(lateness.longest_nap_ns(300e3, 0.01, 50e3), 50e3);
        assert!(lateness.longest_nap_ns(60e3, 0.01, 1e6) < 1e3);
    }

    #[test]
    fn old_naps_are_forgotten() {
        let mut lateness = uniform(500, 1000);
        for _ in 0..5000 {
            lateness.record(Duration::from_micros(10), 512);
        }
        assert!(lateness.tail_ns().unwrap() < 11e3);
        assert!(lateness.weight() < 512);
    }
}
