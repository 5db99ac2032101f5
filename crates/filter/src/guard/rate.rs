//! Rates by sketches: a count-min sketch a worker, halved every second, summed over workers when asked.
//!
//! A count that is halved each second lies between one and two times the rate of a steady sender; so a key is above a
//! limit when its count is above twice that. What a count-min sketch says is never too little, and too much by more
//! than `error` times all that was counted (at most two seconds' worth) with probability `failure` at most (Cormode and
//! Muthukrishnan 2005): a key that keeps to its limit is dropped by mistake only if all traffic times `error` is more
//! than the limit leaves.

use tables::signature::Keyed;
use tables::sketch::{CountMin, CountMinWriter};
use wire::Instant;

/// Counts by source and by destination, shared by all workers.
#[derive(Debug)]
pub struct Rates {
    sources: CountMin,
    destinations: CountMin,
}

/// A worker's rows.
#[derive(Debug)]
pub struct RatesWorker {
    sources: (CountMin, CountMinWriter),
    destinations: (CountMin, CountMinWriter),
    second: u64,
}

impl Rates {
    /// Makes sketches whose estimates are at most `error` times the whole above the truth, but for a share of
    /// `failure`.
    pub fn new(error: f64, failure: f64, workers: usize, hash: Keyed) -> Self {
        let sketch = || CountMin::new(error, failure, workers, hash);
        Self {
            sources: sketch(),
            destinations: sketch(),
        }
    }

    /// Makes worker `index`'s rows.
    pub fn join(&self, index: usize) -> Option<RatesWorker> {
        let rows = |sketch: &CountMin| Some((sketch.clone(), sketch.writer(index)?));
        Some(RatesWorker {
            sources: rows(&self.sources)?,
            destinations: rows(&self.destinations)?,
            second: 0,
        })
    }
}

impl RatesWorker {
    /// Counts one for a source and a destination, each with its limit a second (0: none, not counted). Returns who is
    /// above: true for the source, and what was measured.
    #[inline]
    pub fn count(
        &mut self,
        source: (u64, u64),
        destination: (u64, u64),
        now: Instant,
    ) -> Option<(bool, u64)> {
        if source.1 == 0 && destination.1 == 0 {
            return None;
        }
        self.age(now);
        let mut over = None;
        for (is_source, (id, limit), (sketch, writer)) in [
            (false, destination, &self.destinations),
            (true, source, &self.sources),
        ] {
            if limit > 0 {
                writer.add(id, 1);
                let measured = sketch.estimate(id) / 2;
                if measured > limit {
                    over = Some((is_source, measured));
                }
            }
        }
        over
    }

    /// Halves the counts once a second; after a long silence, all is forgotten.
    fn age(&mut self, now: Instant) {
        let second = now.as_ns() / 1_000_000_000;
        let passed = second.saturating_sub(self.second).min(64);
        self.second = second.max(self.second);
        for _ in 0..passed {
            self.sources.1.halve();
            self.destinations.1.halve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_90_estimates_are_never_below_and_within_the_bound() {
        let rates = Rates::new(1e-3, 0.01, 1, Keyed::new([4, 3, 2, 1]));
        let mut worker = rates.join(0).unwrap();
        let now = Instant::from_ns(5_000_000_000);
        let mut exact = std::collections::HashMap::new();
        let mut total = 0_u64;
        for n in 0..200_000_u64 {
            // A skewed mix of 2,000 sources.
            let source = (n * n % 2000) & (n % 64 * 37 % 2048);
            worker.count((source, u64::MAX), (0, 0), now);
            *exact.entry(source).or_insert(0_u64) += 1;
            total += 1;
        }
        let mut beyond = 0;
        for (&source, &count) in &exact {
            let estimate = worker.sources.0.estimate(source);
            assert!(estimate >= count);
            beyond += usize::from(estimate > count + total / 1000);
        }
        assert!(beyond * 100 <= exact.len(), "{beyond} of {}", exact.len());
    }
}
