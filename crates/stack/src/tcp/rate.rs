//! Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation).

use super::scoreboard::Sent;

/// Counts what was delivered and measures at what rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateSampler {
    /// Bytes delivered in all.
    pub(crate) delivered: u64,
    /// When the last of them was, ns.
    pub(crate) delivered_at: u64,
    /// When the first segment of the current flight was sent, ns.
    pub(crate) first_sent_at: u64,
    /// Delivered bytes at which samples are no longer limited by the application; 0: they are not now.
    pub(crate) app_limited_until: u64,
    sample: Sample,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    prior_delivered: u64,
    prior_at: u64,
    send_ns: u64,
    sent_at: u64,
    app_limited: bool,
}

/// A finished sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    pub(crate) bytes_per_s: u64,
    pub(crate) prior_delivered: u64,
    pub(crate) app_limited: bool,
}

impl RateSampler {
    /// Hears that a segment is sent while `in_flight` bytes are on their way.
    pub(crate) fn on_send(&mut self, now_ns: u64, in_flight: u32) {
        if in_flight == 0 {
            self.first_sent_at = now_ns;
            self.delivered_at = now_ns;
        }
    }
    /// Hears that a segment was delivered.
    pub(crate) fn on_delivered(&mut self, sent: &Sent, app_limited: bool, now_ns: u64) {
        self.delivered += u64::from(sent.bytes());
        self.delivered_at = now_ns;
        if sent.delivered >= self.sample.prior_delivered || self.sample.prior_at == 0 {
            self.sample = Sample {
                prior_delivered: sent.delivered,
                prior_at: sent.delivered_at.max(1),
                send_ns: sent.sent_at.saturating_sub(sent.first_sent_at),
                sent_at: sent.sent_at,
                app_limited,
            };
        }
    }
    /// Ends the sample of one acknowledgement.
    pub(crate) fn finish(&mut self, min_rtt_ns: u64) -> Rate {
        let sample = core::mem::take(&mut self.sample);
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        if sample.prior_at == 0 {
            return Rate::default();
        }
        self.first_sent_at = sample.sent_at;
        let ack_ns = self.delivered_at.saturating_sub(sample.prior_at);
        let interval = sample.send_ns.max(ack_ns);
        let bytes = self.delivered - sample.prior_delivered;
        let mut rate = Rate {
            bytes_per_s: 0,
            prior_delivered: sample.prior_delivered,
            app_limited: sample.app_limited,
        };
        // An interval shorter than the least round trip overestimates.
        if interval > 0 && interval >= min_rtt_ns {
            rate.bytes_per_s = (u128::from(bytes) * 1_000_000_000 / u128::from(interval)) as u64;
        }
        rate
    }
}
