//! What came back of what was sent: loss, duplicates, reordering, latency.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::traffic::Stamp;

/// Frames that the window of sequence numbers spans: an older one cannot be told from a duplicate.
const WINDOW_PKTS: u64 = 1 << 20;
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// The receiver's account of one trial.
#[derive(Clone, Debug)]
pub struct Account {
    trial: u8,
    /// One bit a sequence number from `base` on, in a ring.
    seen: Vec<u64>,
    base: u64,
    /// The highest sequence number received in each flow, plus one.
    next_in_flow: Vec<u64>,
    latency_ns: Histogram<u64>,
    unique_pkts: u64,
    duplicate_pkts: u64,
    reordered_pkts: u64,
    too_late_pkts: u64,
    foreign_pkts: u64,
}

impl Account {
    /// Opens the account of trial number `trial` with `flows` flows.
    pub fn new(trial: u8, flows: usize) -> Self {
        Self {
            trial,
            seen: vec![0; (WINDOW_PKTS / 64) as usize],
            base: 0,
            next_in_flow: vec![0; flows],
            latency_ns: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("bounds and precision are constants that fit"),
            unique_pkts: 0,
            duplicate_pkts: 0,
            reordered_pkts: 0,
            too_late_pkts: 0,
            foreign_pkts: 0,
        }
    }

    /// Enters a received frame.
    pub fn receive(&mut self, data: &[u8], now_ns: u64) {
        let stamp = Stamp::read(data).filter(|s| s.trial == self.trial);
        let Some(stamp) = stamp.filter(|s| usize::from(s.flow) < self.next_in_flow.len()) else {
            self.foreign_pkts += 1;
            return;
        };
        if !self.slide_to(stamp.sequence) {
            return;
        }
        let slot = stamp.sequence % WINDOW_PKTS;
        let word = &mut self.seen[(slot / 64) as usize];
        let bit = 1 << (slot % 64);
        if *word & bit != 0 {
            self.duplicate_pkts += 1;
            return;
        }
        *word |= bit;
        self.unique_pkts += 1;
        // RFC 4737 section 3: reordered if a later one of the same flow came before.
        let next = &mut self.next_in_flow[usize::from(stamp.flow)];
        if stamp.sequence < *next {
            self.reordered_pkts += 1;
        } else {
            *next = stamp.sequence + 1;
        }
        self.latency_ns
            .saturating_record(now_ns.saturating_sub(stamp.sent_ns).max(1));
    }

    /// Makes `sequence` lie in the window; tells whether it can.
    fn slide_to(&mut self, sequence: u64) -> bool {
        if sequence < self.base {
            self.too_late_pkts += 1;
            return false;
        }
        let end = self.base + WINDOW_PKTS;
        if sequence >= end {
            // Forget in whole words; a jump over the whole window forgets all of it.
            let base = (sequence - WINDOW_PKTS + 1).next_multiple_of(64);
            for word in (self.base / 64)..(base / 64).min(end / 64) {
                self.seen[(word % (WINDOW_PKTS / 64)) as usize] = 0;
            }
            self.base = base;
        }
        true
    }

    /// Returns how many different test frames arrived.
    pub fn unique_pkts(&self) -> u64 {
        self.unique_pkts
    }
    /// Returns how many arrived again.
    pub fn duplicate_pkts(&self) -> u64 {
        self.duplicate_pkts
    }
    /// Returns how many arrived after a later one of the same flow (RFC 4737).
    pub fn reordered_pkts(&self) -> u64 {
        self.reordered_pkts
    }
    /// Returns how many arrived more than 2^20 frames late; they count as lost.
    pub fn too_late_pkts(&self) -> u64 {
        self.too_late_pkts
    }
    /// Returns how many frames were not of this trial.
    pub fn foreign_pkts(&self) -> u64 {
        self.foreign_pkts
    }
    /// Returns the latency percentiles so far; `None` before the first frame.
    pub fn latency(&self) -> Option<Latency> {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile| us(self.latency_ns.value_at_quantile(quantile));
        (!self.latency_ns.is_empty()).then(|| Latency {
            min_us: us(self.latency_ns.min()),
            p50_us: at(0.50),
            p90_us: at(0.90),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: us(self.latency_ns.max()),
        })
    }
}

/// Percentiles of the time from handing a frame to the sending driver to taking it from the receiving
/// one, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Shortest.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
    /// Longest.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Profile;
    use io::{HugePages, Pool};

    /// Enters the frames with these numbers, each sent at 1000 ns and received at 3000 ns.
    fn account(flows: u32, sequences: &[u64]) -> Account {
        let profile = Profile::new(
            64,
            ([2; 6], [4; 6]),
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            flows,
            1,
        )
        .unwrap();
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        let mut account = Account::new(3, flows as usize);
        let mut frame = pool.alloc().unwrap();
        for &sequence in sequences {
            assert!(profile.write(&mut frame, 3, sequence));
            Profile::stamp(&mut frame, 1000);
            account.receive(frame.data(), 3000);
        }
        pool.free(frame);
        account
    }

    #[test]
    fn duplicates_and_gaps_are_told_apart() {
        let account = account(1, &[0, 1, 1, 4, 5, 0]);
        assert_eq!(account.unique_pkts(), 4);
        assert_eq!(account.duplicate_pkts(), 2);
        assert_eq!(account.reordered_pkts(), 0);
    }

    #[test]
    fn reordering_counts_within_a_flow_only() {
        // Two flows: even and odd numbers. 3 before 2 is no reordering, 4 before 2 is.
        assert_eq!(account(2, &[0, 1, 3, 2]).reordered_pkts(), 0);
        assert_eq!(account(2, &[0, 1, 4, 3, 2]).reordered_pkts(), 1);
    }

    #[test]
    fn the_window_slides_and_forgets() {
        let far = WINDOW_PKTS * 3 + 17;
        let account = account(1, &[0, WINDOW_PKTS - 1, WINDOW_PKTS + 63, far, far, 5]);
        assert_eq!(account.unique_pkts(), 4);
        assert_eq!(account.duplicate_pkts(), 1);
        assert_eq!(account.too_late_pkts(), 1);
    }

    #[test]
    fn a_reused_slot_of_the_window_is_not_a_duplicate() {
        let numbers: Vec<u64> = (0..WINDOW_PKTS * 2 + 100).step_by(63).collect();
        let account = account(1, &numbers);
        assert_eq!(account.unique_pkts(), numbers.len() as u64);
        assert_eq!(account.duplicate_pkts(), 0);
    }

    #[test]
    fn latency_is_the_time_between_the_stamps() {
        let latency = account(1, &[0, 1, 2]).latency().unwrap();
        assert!((latency.p50_us - 2.0).abs() < 0.01, "{latency:?}");
        assert_eq!(Account::new(0, 1).latency(), None);
    }

    #[test]
    fn frames_of_others_are_foreign() {
        let mut account = Account::new(9, 1);
        account.receive(&[0; 60], 1);
        account.receive(b"short", 1);
        assert_eq!((account.foreign_pkts(), account.unique_pkts()), (2, 0));
    }
}
