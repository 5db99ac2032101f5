//! Round-trip time and retransmission timeout (RFC 6298), in microseconds.

use super::tcb::Tcb;
use crate::config::TcpConfig;

/// Clock granularity G of RFC 6298, us.
const GRANULARITY_US: u32 = 1000;

/// Smoothed round-trip time of a connection; zero before the first sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    pub(crate) srtt_us: u32,
    pub(crate) var_us: u32,
    /// Timeouts in a row: each doubles the timeout (RFC 6298 5.5).
    pub(crate) backoff: u8,
}

impl Rtt {
    /// Takes a sample (never of a segment that was sent twice: Karn's rule).
    pub(crate) fn sample(&mut self, us: u32) {
        let us = us.max(1);
        if self.srtt_us == 0 {
            self.srtt_us = us;
            self.var_us = us / 2;
        } else {
            let error = self.srtt_us.abs_diff(us);
            self.var_us = self.var_us - self.var_us / 4 + error / 4;
            self.srtt_us = (self.srtt_us - self.srtt_us / 8 + us / 8).max(1);
        }
        self.backoff = 0;
    }
    /// Returns the timeout, backed off.
    pub(crate) fn rto_us(&self, config: &TcpConfig) -> u64 {
        let max = config.rto_max.as_micros() as u64;
        (self.rto_once_us(config) << self.backoff.min(20)).min(max)
    }
    /// Returns the timeout without back-off.
    pub(crate) fn rto_once_us(&self, config: &TcpConfig) -> u64 {
        let min = config.rto_min.as_micros() as u64;
        let max = config.rto_max.as_micros() as u64;
        if self.srtt_us == 0 {
            return 1_000_000.clamp(min.min(max), max);
        }
        // As Linux: the floor holds for the variance, so that the timeout never falls to the round trip.
        let margin = u64::from(self.var_us.saturating_mul(4).max(GRANULARITY_US)).max(min);
        (u64::from(self.srtt_us) + margin).min(max)
    }
}

impl Tcb {
    /// Returns the retransmission timeout, ns.
    pub(crate) fn rto_ns(&self, config: &TcpConfig) -> u64 {
        self.rtt.rto_us(config) * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_rfc_6298() {
        let config = TcpConfig {
            rto_min: core::time::Duration::ZERO,
            ..TcpConfig::default()
        };
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto_us(&config), 1_000_000); // 2.1
        rtt.sample(100_000);
        assert_eq!((rtt.srtt_us, rtt.var_us), (100_000, 50_000)); // 2.2
        assert_eq!(rtt.rto_us(&config), 300_000);
        rtt.sample(180_000);
        assert_eq!((rtt.srtt_us, rtt.var_us), (110_000, 57_500)); // 2.3
        rtt.backoff = 1;
        assert_eq!(rtt.rto_us(&config), 680_000); // 5.5
        rtt.backoff = 60;
        assert_eq!(rtt.rto_us(&config), 120_000_000);
        let floor = TcpConfig::default();
        let mut rtt = Rtt::default();
        (0..100).for_each(|_| rtt.sample(100));
        assert!((200_000..201_000).contains(&rtt.rto_us(&floor)));
    }
}
