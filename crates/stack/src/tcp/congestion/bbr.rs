//! BBR (draft-cardwell-iccrg-bbr-congestion-control-00): paces at the measured bandwidth, keeps two
//! bandwidth-delay products in flight at most, and does not take random loss for congestion.
//!
//! Other than the draft, the round after a loss is not sent by packet conservation: what is in flight is bounded
//! by the model alone.

use super::{Ack, CongestionControl};

/// 2 / ln 2, in 1/1024.
const HIGH_GAIN: u64 = 2955;
const DRAIN_GAIN: u64 = 355;
const WINDOW_GAIN: u64 = 2048;
const CYCLE: [u64; 8] = [1280, 768, 1024, 1024, 1024, 1024, 1024, 1024];
const MIN_RTT_LIFE_NS: u64 = 10_000_000_000;
const PROBE_RTT_NS: u64 = 200_000_000;
const ROUNDS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// Model of the path: bottleneck bandwidth and round-trip propagation time.
#[derive(Debug)]
pub(crate) struct Bbr {
    mss: u32,
    window: u32,
    prior_window: u32,
    mode: Mode,
    /// Largest delivery rate of each of the last rounds, bytes/s.
    rates: [u64; ROUNDS],
    round: usize,
    round_ends_at: u64,
    full_rate: u64,
    full_rounds: u8,
    filled: bool,
    min_rtt_ns: u64,
    min_rtt_at: u64,
    probe_rtt_until: u64,
    cycle: usize,
    cycle_at: u64,
    pacing_gain: u64,
    window_gain: u64,
    pacing_rate: u64,
}

impl Bbr {
    pub(crate) const fn new(mss: u32, window: u32) -> Self {
        Self {
            mss,
            window,
            prior_window: 0,
            mode: Mode::Startup,
            rates: [0; ROUNDS],
            round: 0,
            round_ends_at: 0,
            full_rate: 0,
            full_rounds: 0,
            filled: false,
            min_rtt_ns: 0,
            min_rtt_at: 0,
            probe_rtt_until: 0,
            cycle: 2,
            cycle_at: 0,
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            pacing_rate: 0,
        }
    }

    fn bandwidth(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }
    /// Bandwidth-delay product times a gain, bytes, and room for what is aggregated on the way.
    fn target(&self, gain: u64) -> u32 {
        if self.min_rtt_ns == 0 || self.bandwidth() == 0 {
            return self.window;
        }
        let product = u128::from(self.bandwidth()) * u128::from(self.min_rtt_ns) / 1_000_000_000;
        let bytes = product * u128::from(gain) / 1024;
        u32::try_from(bytes).unwrap_or(u32::MAX / 4) + 3 * self.mss
    }
    fn update_bandwidth(&mut self, ack: &Ack) -> bool {
        let round_starts = ack.prior_delivered >= self.round_ends_at && ack.delivered > 0;
        if round_starts {
            self.round_ends_at = ack.total_delivered;
            self.round = (self.round + 1) % ROUNDS;
            if let Some(rate) = self.rates.get_mut(self.round) {
                *rate = 0;
            }
        }
        if ack.delivery_rate > 0
            && (!ack.app_limited || ack.delivery_rate >= self.bandwidth())
            && let Some(rate) = self.rates.get_mut(self.round)
        {
            *rate = (*rate).max(ack.delivery_rate);
        }
        round_starts
    }
    fn check_filled(&mut self, ack: &Ack, round_starts: bool) {
        if self.filled || !round_starts || ack.app_limited {
            return;
        }
        let bandwidth = self.bandwidth();
        if bandwidth >= self.full_rate + self.full_rate / 4 {
            self.full_rate = bandwidth;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.filled = self.full_rounds >= 3;
    }
    fn update_mode(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.filled {
            self.mode = Mode::Drain;
            self.pacing_gain = DRAIN_GAIN;
            self.window_gain = HIGH_GAIN;
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.target(1024) {
            self.probe_bandwidth(ack.now_ns);
        }
        if self.mode == Mode::ProbeBandwidth {
            let elapsed = ack.now_ns.saturating_sub(self.cycle_at) > self.min_rtt_ns;
            let over = match self.pacing_gain {
                1025.. => {
                    elapsed
                        && (ack.lost > 0 || ack.prior_in_flight >= self.target(self.pacing_gain))
                }
                ..=1023 => elapsed || ack.prior_in_flight <= self.target(1024),
                _ => elapsed,
            };
            if over {
                self.cycle = (self.cycle + 1) % CYCLE.len();
                self.cycle_at = ack.now_ns;
                self.pacing_gain = CYCLE.get(self.cycle).copied().unwrap_or(1024);
            }
        }
    }
    fn probe_bandwidth(&mut self, now_ns: u64) {
        self.mode = Mode::ProbeBandwidth;
        self.window_gain = WINDOW_GAIN;
        // Any phase but the draining one; a fixed one, as randomness is not at hand here.
        self.cycle = 2;
        self.cycle_at = now_ns;
        self.pacing_gain = 1024;
    }
    fn update_min_rtt(&mut self, ack: &Ack) {
        let expired = self.min_rtt_ns > 0 && ack.now_ns > self.min_rtt_at + MIN_RTT_LIFE_NS;
        if ack.rtt_ns > 0 && (self.min_rtt_ns == 0 || ack.rtt_ns <= self.min_rtt_ns || expired) {
            self.min_rtt_ns = ack.rtt_ns;
            self.min_rtt_at = ack.now_ns;
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.pacing_gain = 1024;
            self.window_gain = 1024;
            self.prior_window = self.prior_window.max(self.window);
            self.probe_rtt_until = 0;
        }
        if self.mode == Mode::ProbeRtt {
            if self.probe_rtt_until == 0 && ack.in_flight <= 4 * self.mss {
                self.probe_rtt_until = ack.now_ns + PROBE_RTT_NS.max(self.min_rtt_ns);
            } else if self.probe_rtt_until > 0 && ack.now_ns > self.probe_rtt_until {
                self.min_rtt_at = ack.now_ns;
                self.window = self.window.max(core::mem::take(&mut self.prior_window));
                if self.filled {
                    self.probe_bandwidth(ack.now_ns);
                } else {
                    self.mode = Mode::Startup;
                    self.pacing_gain = HIGH_GAIN;
                    self.window_gain = HIGH_GAIN;
                }
            }
        }
    }
    fn set_pacing_rate(&mut self, ack: &Ack) {
        let bandwidth = match self.bandwidth() {
            0 if ack.srtt_ns > 0 => u64::from(self.window) * 1_000_000_000 / ack.srtt_ns,
            bandwidth => bandwidth,
        };
        // One per cent less, so that queues drain.
        let rate = bandwidth / 1024 * self.pacing_gain / 100 * 99;
        if self.filled || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }
    fn set_window(&mut self, ack: &Ack) {
        let target = self.target(self.window_gain);
        if self.filled {
            self.window = (self.window + ack.delivered).min(target);
        } else if self.window < target || ack.total_delivered < 10 * u64::from(self.mss) {
            self.window += ack.delivered;
        }
        self.window = self.window.max(4 * self.mss);
        if self.mode == Mode::ProbeRtt {
            self.window = self.window.min(4 * self.mss);
        }
    }
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, ack: &Ack) {
        let round_starts = self.update_bandwidth(ack);
        self.check_filled(ack, round_starts);
        self.update_mode(ack);
        self.update_min_rtt(ack);
        self.set_pacing_rate(ack);
        self.set_window(ack);
    }
    fn on_congestion(&mut self, _now_ns: u64, _in_flight: u32) {}
    fn on_timeout(&mut self, _now_ns: u64, _in_flight: u32) {
        self.prior_window = self.prior_window.max(self.window);
        self.window = self.mss;
    }
    fn on_spurious(&mut self, _now_ns: u64) {
        self.window = self.window.max(core::mem::take(&mut self.prior_window));
    }
    fn on_recovered(&mut self, _now_ns: u64) {
        if self.mode != Mode::ProbeRtt {
            self.window = self.window.max(core::mem::take(&mut self.prior_window));
        }
    }
    fn on_idle_restart(&mut self, now_ns: u64, _initial_window: u32) {
        self.cycle_at = now_ns;
    }
    fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
    }
    fn window(&self) -> u32 {
        self.window
    }
    fn threshold(&self) -> u32 {
        u32::MAX / 4
    }
    fn pacing_rate(&self) -> Option<u64> {
        (self.pacing_rate > 0).then_some(self.pacing_rate)
    }
    fn owns_recovery(&self) -> bool {
        true
    }
}
