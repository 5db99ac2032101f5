//! NewReno (RFC 5681 with appropriate byte counting, RFC 3465).

use super::{Ack, CongestionControl};

/// Additive increase, multiplicative decrease.
#[derive(Debug)]
pub(crate) struct NewReno {
    mss: u32,
    window: u32,
    threshold: u32,
    /// Acknowledged bytes that have not grown the window yet.
    credit: u32,
    before: Option<(u32, u32)>,
}

impl NewReno {
    pub(crate) const fn new(mss: u32, window: u32, threshold: u32) -> Self {
        Self {
            mss,
            window,
            threshold,
            credit: 0,
            before: None,
        }
    }
}

impl CongestionControl for NewReno {
    fn on_ack(&mut self, ack: &Ack) {
        if ack.in_recovery || !ack.window_limited {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + ack.delivered).min(self.threshold.max(self.window));
            return;
        }
        self.credit += ack.delivered;
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window += self.mss;
        }
    }
    fn on_congestion(&mut self, _now_ns: u64, in_flight: u32) {
        self.before = Some((self.window, self.threshold));
        self.threshold = (in_flight / 2).max(2 * self.mss);
        self.window = self.threshold;
        self.credit = 0;
    }
    fn on_timeout(&mut self, now_ns: u64, in_flight: u32) {
        self.on_congestion(now_ns, in_flight);
        self.window = self.mss;
    }
    fn on_spurious(&mut self, _now_ns: u64) {
        if let Some((window, threshold)) = self.before.take() {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
        }
    }
    fn on_idle_restart(&mut self, _now_ns: u64, initial_window: u32) {
        self.threshold = self.threshold.max(self.window / 4 * 3);
        self.window = self.window.min(initial_window);
    }
    fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
    }
    fn window(&self) -> u32 {
        self.window
    }
    fn threshold(&self) -> u32 {
        self.threshold
    }
}
