//! CUBIC (RFC 9438) with HyStart++ (RFC 9406). Integers only: the stack needs no floating point.

use super::hystart::{Growth, HyStart};
use super::{Ack, CongestionControl};

/// Multiplicative decrease, in 1/1024 (RFC 9438 4.6: 0.7).
const BETA_1024: u64 = 717;
/// Reno-friendly increase, in 1/1024: 3 (1 - beta) / (1 + beta) (RFC 9438 4.3).
const ALPHA_1024: u64 = 542;

/// The window grows as a cubic function of the time since the last reduction.
#[derive(Debug)]
pub(crate) struct Cubic {
    mss: u32,
    window: u32,
    threshold: u32,
    /// Window before the last reduction, bytes; 0 before the first.
    window_max: u32,
    /// When the current growth began; 0: not yet.
    epoch_ns: u64,
    /// Time from there to the plateau, ms.
    k_ms: u64,
    /// The window of the plateau, bytes.
    origin: u32,
    /// What Reno would have, in 1/1024 bytes.
    friendly_1024: u64,
    /// Increase owed, in 1/1024 bytes.
    credit_1024: u64,
    /// Window when Reno's estimate reached the old maximum: alpha is 1 from there.
    window_prior: u32,
    hystart: Option<HyStart>,
    before: Option<(u32, u32, u32, u64)>,
}

impl Cubic {
    pub(crate) fn new(mss: u32, window: u32, threshold: u32, hystart: bool) -> Self {
        Self {
            mss,
            window,
            threshold,
            window_max: 0,
            epoch_ns: 0,
            k_ms: 0,
            origin: 0,
            friendly_1024: 0,
            credit_1024: 0,
            window_prior: 0,
            hystart: hystart.then(HyStart::new),
            before: None,
        }
    }

    /// Begins congestion avoidance (RFC 9438 4.2): K = cbrt((W_max - cwnd) / C), C = 0.4.
    fn begin_epoch(&mut self, now_ns: u64) {
        self.epoch_ns = now_ns.max(1);
        self.friendly_1024 = u64::from(self.window) << 10;
        self.credit_1024 = 0;
        if self.window >= self.window_max {
            self.k_ms = 0;
            self.origin = self.window;
        } else {
            let segments_1000 =
                u64::from(self.window_max - self.window) * 1000 / u64::from(self.mss.max(1));
            // K in ms: cbrt(segments / 0.4) * 1000 = cbrt(segments * 2.5e9).
            self.k_ms = cube_root(segments_1000 * 2_500_000);
            self.origin = self.window_max;
        }
    }

    /// W_cubic at `t_ms` after the epoch began, bytes (RFC 9438 4.2).
    fn cubic_window(&self, t_ms: u64) -> u64 {
        let distance = t_ms.abs_diff(self.k_ms).min(1_000_000);
        // C (t - K)^3 segments, t in s: 0.4 d^3 / 10^9, in bytes.
        let delta = u128::from(distance).pow(3) * 4 * u128::from(self.mss) / 10_000_000_000;
        let delta = u64::try_from(delta).unwrap_or(u64::MAX / 2);
        if t_ms < self.k_ms {
            u64::from(self.origin).saturating_sub(delta)
        } else {
            u64::from(self.origin) + delta
        }
    }

    fn avoid_congestion(&mut self, ack: &Ack) {
        if self.epoch_ns == 0 {
            self.begin_epoch(ack.now_ns);
        }
        let t_ms = (ack.now_ns.saturating_sub(self.epoch_ns) + ack.srtt_ns) / 1_000_000;
        let window = u64::from(self.window);
        let delivered = u64::from(ack.delivered);
        // RFC 9438 4.3: the Reno-friendly region.
        let alpha = if self.friendly_1024 >> 10 >= u64::from(self.window_prior) {
            1024
        } else {
            ALPHA_1024
        };
        self.friendly_1024 += alpha * delivered * u64::from(self.mss) / window.max(1);
        let friendly = self.friendly_1024 >> 10;
        let target = self.cubic_window(t_ms).clamp(window, window + window / 2);
        // 4.4, 4.5: towards the target within one round trip.
        self.credit_1024 += ((target - window) << 10) * delivered / window.max(1);
        let grown = window + (self.credit_1024 >> 10);
        self.credit_1024 &= 1023;
        self.window = u32::try_from(grown.max(friendly)).unwrap_or(u32::MAX / 2);
    }

    fn reduce(&mut self, in_flight: u32) {
        self.before = Some((self.window, self.threshold, self.window_max, self.epoch_ns));
        let window = self.window;
        self.window_prior = window;
        // 4.7: fast convergence.
        self.window_max = if window < self.window_max {
            (u64::from(window) * (1024 + BETA_1024) / 2048) as u32
        } else {
            window
        };
        // 4.6: of what is in flight, where the application did not fill the window.
        let base = window.min(in_flight.max(2 * self.mss).saturating_add(self.mss));
        self.threshold = ((u64::from(base) * BETA_1024 / 1024) as u32).max(2 * self.mss);
        self.epoch_ns = 0;
        self.hystart = None;
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, ack: &Ack) {
        if ack.in_recovery || !ack.window_limited {
            return;
        }
        if self.window >= self.threshold {
            self.avoid_congestion(ack);
            return;
        }
        let growth = self
            .hystart
            .as_mut()
            .map_or(Growth::Full, |hystart| hystart.on_ack(ack));
        match growth {
            Growth::Full => self.window = (self.window + ack.delivered).min(self.threshold),
            Growth::Part(bytes) => self.window = (self.window + bytes).min(self.threshold),
            Growth::Exit => {
                self.threshold = self.window;
                self.hystart = None;
            }
        }
    }
    fn on_congestion(&mut self, _now_ns: u64, in_flight: u32) {
        self.reduce(in_flight);
        self.window = self.threshold;
    }
    fn on_timeout(&mut self, _now_ns: u64, in_flight: u32) {
        self.reduce(in_flight);
        self.window = self.mss;
    }
    fn on_spurious(&mut self, _now_ns: u64) {
        if let Some((window, threshold, window_max, epoch_ns)) = self.before.take() {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
            self.window_max = window_max;
            self.epoch_ns = epoch_ns;
        }
    }
    fn on_idle_restart(&mut self, _now_ns: u64, initial_window: u32) {
        self.threshold = self.threshold.max(self.window / 4 * 3);
        self.window = self.window.min(initial_window);
        self.epoch_ns = 0;
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

/// Integer cube root, rounded down.
fn cube_root(value: u64) -> u64 {
    let mut root = 0_u64;
    let mut bit = 1 << 21;
    while bit > 0 {
        let next = root | bit;
        if u128::from(next).pow(3) <= u128::from(value) {
            root = next;
        }
        bit >>= 1;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for root in [0_u64, 1, 2, 10, 1625, 99_999, 2_000_000] {
            assert_eq!(cube_root(root.pow(3)), root);
            assert_eq!(cube_root(root.pow(3) + root), root);
            if root > 0 {
                assert_eq!(cube_root(root.pow(3) - 1), root - 1);
            }
        }
    }

    /// RFC 9438 4.2 with real numbers, as the oracle of the integers.
    #[test]
    fn grows_as_the_cubic_function() {
        let mss = 1448;
        let mut cubic = Cubic::new(mss, 1000 * mss, 0, false);
        cubic.on_congestion(0, 1000 * mss);
        assert_eq!(cubic.window(), (1000_u64 * 1448 * 717 / 1024) as u32);
        let (window_max, start) = (1000.0, f64::from(cubic.window()) / f64::from(mss));
        let k = ((window_max - start) / 0.4_f64).cbrt();
        let rtt_ns = 100_000_000;
        let mut now_ns = 1_000_000_000_u64;
        let began = now_ns;
        for _ in 0..150 {
            // A window's worth of acknowledgements in one round trip.
            let acks = cubic.window() / mss;
            for _ in 0..acks {
                now_ns += rtt_ns / u64::from(acks);
                cubic.on_ack(&Ack {
                    now_ns,
                    delivered: mss,
                    srtt_ns: rtt_ns,
                    window_limited: true,
                    ..Ack::default()
                });
            }
            let t = (now_ns - began) as f64 / 1e9;
            let expected = 0.4 * (t - k).powi(3) + window_max;
            let window = f64::from(cubic.window()) / f64::from(mss);
            assert!(
                (window / expected - 1.0).abs() < 0.03,
                "at {t:.1} s {window:.0}, not {expected:.0}"
            );
        }
    }
}
