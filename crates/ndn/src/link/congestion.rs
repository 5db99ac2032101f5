//! Congestion marks when a queue stays long (NFD's GenericLinkService, after CoDel, RFC 8289).

use core::time::Duration;

use wire::Instant;

/// Decides which packets get a congestion mark.
#[derive(Clone, Debug)]
pub struct CongestionMarker {
    interval: Duration,
    threshold_bytes: u64,
    next_mark: Option<Instant>,
    marked: u32,
}

impl CongestionMarker {
    /// Marks when a queue is longer than `threshold_bytes` for `interval`.
    pub const fn new(interval: Duration, threshold_bytes: u64) -> Self {
        Self {
            interval,
            threshold_bytes,
            next_mark: None,
            marked: 0,
        }
    }

    /// Tells whether the packet that is sent now gets a mark, given the bytes that wait before it. Marks come
    /// at intervals that shrink with the square root of their number.
    pub fn is_due(&mut self, queued_bytes: u64, now: Instant) -> bool {
        if queued_bytes <= self.threshold_bytes {
            self.next_mark = None;
            self.marked = 0;
            return false;
        }
        match self.next_mark {
            None => {
                self.next_mark = Some(now + self.interval);
                false
            }
            Some(when) if now < when => false,
            Some(when) => {
                self.marked = self.marked.saturating_add(1);
                let divisor = self.marked.saturating_add(1).isqrt().max(1);
                self.next_mark = Some(when + self.interval / divisor);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_a_standing_queue_more_and_more_often() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut marker = CongestionMarker::new(Duration::from_millis(100), 1000);
        let marks = |marker: &mut CongestionMarker, from: u64, to: u64| {
            (from..to).filter(|&ms| marker.is_due(1001, at(ms))).count()
        };
        assert_eq!(marks(&mut marker, 0, 100), 0);
        assert_eq!(marks(&mut marker, 100, 101), 1);
        let early = marks(&mut marker, 101, 600);
        let late = marks(&mut marker, 600, 1100);
        assert!(late > early && early >= 5, "{early} {late}");
        // A short queue ends it, and a burst below the interval is not marked.
        assert!(!marker.is_due(1000, at(1100)));
        assert_eq!(marks(&mut marker, 1101, 1200), 0);
    }
}
