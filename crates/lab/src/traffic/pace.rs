//! When the next frames are due.

/// Says how many frames are due at a time, for a constant rate.
///
/// A sender that was kept from running does not make up for it with one long burst, which would measure
/// the device under test at another rate than asked for: beyond `backlog_pkts` the frames are skipped,
/// and the rate really offered is lower (it is measured, never assumed).
#[derive(Clone, Debug)]
pub struct Pacer {
    rate_pps: f64,
    start_ns: u64,
    backlog_pkts: u64,
    sent_pkts: u64,
    skipped_pkts: u64,
}

impl Pacer {
    /// Starts at `start_ns` with `rate_pps` packets a second.
    pub fn new(rate_pps: f64, start_ns: u64, backlog_pkts: u64) -> Self {
        Self {
            rate_pps,
            start_ns,
            backlog_pkts,
            sent_pkts: 0,
            skipped_pkts: 0,
        }
    }

    /// Returns how many frames are due at `now_ns` and not yet sent.
    pub fn due(&mut self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        let scheduled = (elapsed_ns as f64 * self.rate_pps / 1e9) as u64;
        let due = scheduled.saturating_sub(self.sent_pkts + self.skipped_pkts);
        if due > self.backlog_pkts {
            self.skipped_pkts += due - self.backlog_pkts;
        }
        due.min(self.backlog_pkts)
    }

    /// Notes that `pkts` of them were sent.
    pub fn sent(&mut self, pkts: u64) {
        self.sent_pkts += pkts;
    }

    /// Returns how many were skipped since the sender came too late.
    pub fn skipped_pkts(&self) -> u64 {
        self.skipped_pkts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_caller_sends_exactly_the_rate() {
        let mut pacer = Pacer::new(123_456.7, 5_000, 64);
        let mut sent = 0;
        for step in 0..=10_000_000u64 / 777 {
            let due = pacer.due(5_000 + step * 777);
            pacer.sent(due);
            sent += due;
        }
        assert!((1233..=1235).contains(&sent), "{sent} in 10 ms");
        assert_eq!(pacer.skipped_pkts(), 0);
    }

    #[test]
    fn a_stall_is_skipped_not_made_up_for() {
        let mut pacer = Pacer::new(1e6, 0, 64);
        assert_eq!(pacer.due(10_000), 10);
        pacer.sent(10);
        assert_eq!(pacer.due(5_000_000), 64, "5 ms late");
        pacer.sent(64);
        assert_eq!(pacer.skipped_pkts(), 5_000 - 10 - 64);
        assert_eq!(pacer.due(5_010_000), 10, "then the rate again");
    }
}
