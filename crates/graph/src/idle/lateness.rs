//! How late sleeps end: a histogram that forgets, and what follows from it for a latency budget.

use core::ops::Range;
use core::time::Duration;

/// Bits of a lateness that choose the bucket in its octave: a bucket is 1/16 of its value wide.
const PART_BITS: u32 = 4;
/// Octaves: up to 2^20 ns, 1 ms; more counts as that: a stopped machine stops a worker that polls, too.
const OCTAVES: u32 = 20;
/// The latest sleeps that shares leave out: among few, they may be chance.
const CHANCE: u16 = 2;
/// Naps that are tried from the longest down.
const NAP_STEPS: u32 = 16;
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
            self.halve();
        }
    }

    /// Takes half of the weight of all. What is left of a bucket goes on to the next: a tail of single
    /// sleeps stays a tail.
    fn halve(&mut self) {
        let mut rest = 0;
        self.total = 0;
        for bucket in self.buckets.iter_mut() {
            let count = u32::from(*bucket) + rest;
            rest = count % 2;
            *bucket = (count / 2) as u16;
            self.total += count / 2;
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
    /// independent times wait longer than `budget_ns`, and that share. Where there is none, returns the nap
    /// with the smallest share: sleeps that end very late are not made rarer by shorter naps, which only
    /// are more.
    pub(super) fn longest_nap_ns(&self, budget_ns: f64, share: f64, max_ns: f64) -> (f64, f64) {
        let max_ns = max_ns.min(budget_ns).max(0.0);
        let mut least = (max_ns, self.share_over(max_ns, budget_ns));
        if least.1 <= share {
            return least;
        }
        // From long to short: the share need not fall all the way.
        let mut above_ns = max_ns;
        for step in (0..NAP_STEPS).rev() {
            let nap_ns = max_ns * f64::from(step) / f64::from(NAP_STEPS);
            let over = self.share_over(nap_ns, budget_ns);
            if over <= share {
                return self.refined(nap_ns..above_ns, budget_ns, share);
            }
            if over < least.1 {
                least = (nap_ns, over);
            }
            above_ns = nap_ns;
        }
        least
    }

    /// Returns the longest nap between one that keeps the share over the budget and a longer one that does
    /// not, to a 1/16 of their distance, and its share.
    fn refined(&self, naps_ns: Range<f64>, budget_ns: f64, share: f64) -> (f64, f64) {
        let Range { mut start, mut end } = naps_ns;
        for _ in 0..4 {
            let nap_ns = f64::midpoint(start, end);
            if self.share_over(nap_ns, budget_ns) <= share {
                start = nap_ns;
            } else {
                end = nap_ns;
            }
        }
        (start, self.share_over(start, budget_ns))
    }

    /// Returns the share of packets that come at independent times and wait longer than `budget_ns` if a
    /// worker naps for `nap_ns`: those that come in the first part of a sleep that ends late.
    pub(super) fn share_over(&self, nap_ns: f64, budget_ns: f64) -> f64 {
        let (mut over_ns, mut all_ns) = (0.0, 1.0);
        for (late_ns, count) in self.seen() {
            let asleep_ns = nap_ns + late_ns;
            over_ns += count * (asleep_ns - budget_ns).max(0.0);
            all_ns += count * asleep_ns;
        }
        over_ns / all_ns
    }

    /// Returns the same for a worker that sleeps until the first packet comes and then works for `awake_ns`,
    /// at `pkts_per_ns`: the first one waits for as long as the wake-up takes, and those that come
    /// meanwhile for the rest of it.
    pub(super) fn wait_share_over(&self, budget_ns: f64, pkts_per_ns: f64, awake_ns: f64) -> f64 {
        let (mut over, mut all) = (0.0, 1e-9);
        for (late_ns, count) in self.seen() {
            if late_ns > budget_ns {
                over += count * (1.0 + pkts_per_ns * (late_ns - budget_ns));
            }
            all += count * (1.0 + pkts_per_ns * (late_ns + awake_ns));
        }
        over / all
    }

    /// Lateness and weight of all buckets that hold something, but for the latest sleeps.
    fn seen(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let mut chance = CHANCE;
        let buckets = self.buckets.iter().enumerate().rev();
        buckets.filter_map(move |(index, &count)| {
            let left = count.saturating_sub(chance);
            chance -= count - left;
            (left > 0).then(|| (middle_ns(index), f64::from(left)))
        })
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
        for us in (from_us..to_us).cycle().take(10_000) {
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
        let (nap_ns, predicted) = lateness.longest_nap_ns(300e3, 0.01, 1e6);
        // Counts packets at every microsecond of sleeps of all latenesses.
        let (mut over, mut all) = (0, 0);
        for late_us in 20..120 {
            let asleep_us = nap_ns as u64 / 1000 + late_us;
            over += asleep_us.saturating_sub(300);
            all += asleep_us;
        }
        let share = over as f64 / all as f64;
        assert!((0.007..0.013).contains(&share), "{share} at {nap_ns} ns");
        assert!((share - predicted).abs() < 0.002, "{share}, {predicted}");
        assert_eq!(lateness.longest_nap_ns(300e3, 0.01, 50e3), (50e3, 0.0));
        let (_, share) = lateness.longest_nap_ns(60e3, 0.01, 1e6);
        assert!(
            share > 0.1,
            "no nap meets a budget that sleeps end later than"
        );
    }

    #[test]
    fn rare_late_sleeps_do_not_shorten_naps() {
        let mut lateness = Lateness::new(Duration::ZERO);
        for nap in 0..8000 {
            let us = if nap % 400 == 0 { 700 } else { 30 };
            lateness.record(Duration::from_micros(us), 1 << 15);
        }
        // One in 400 is late by more than the budget: of naps of 250 us 0.6 % of packets, of 20 us 1.8 %.
        assert!(lateness.share_over(20e3, 360e3) > 0.015);
        let (nap_ns, share) = lateness.longest_nap_ns(360e3, 0.006, 1e6);
        assert!((200e3..330e3).contains(&nap_ns), "{nap_ns}");
        assert!(share <= 0.006, "{share}");
        let (nap_ns, share) = lateness.longest_nap_ns(360e3, 0.001, 1e6);
        assert!(nap_ns > 200e3 && share < 0.006, "{share} at {nap_ns}");
    }

    #[test]
    fn what_waits_for_a_late_wake_up_depends_on_the_rate() {
        let mut lateness = Lateness::new(Duration::ZERO);
        for nap in 0..30_000 {
            let us = if nap % 250 == 0 { 1000 } else { 30 };
            lateness.record(Duration::from_micros(us), 1 << 15);
        }
        // A packet a wake-up: one in 250. At 100 kpps 91 more packets wait in each late one.
        let seldom = lateness.wait_share_over(100e3, 1e-9, 10e3);
        assert!((0.0039..0.0041).contains(&seldom), "{seldom}");
        let often = lateness.wait_share_over(100e3, 1e-4, 10e3);
        let expected = (1.0 + 90.0) / (250.0 + 249.0 * 4.0 + 101.0);
        assert!((often / expected - 1.0).abs() < 0.05, "{often}, {expected}");
    }

    #[test]
    fn a_tail_of_single_sleeps_outlives_forgetting() {
        let mut lateness = Lateness::new(Duration::ZERO);
        for nap in 0..100_000_u64 {
            // 2 %, each in a bucket of its own.
            let us = if nap % 50 == 0 { 300 + nap % 700 } else { 20 };
            lateness.record(Duration::from_micros(us), 256);
        }
        let tail_ns = lateness.tail_ns().unwrap();
        assert!(tail_ns > 290e3, "{tail_ns}");
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
