//! HyStart++ (RFC 9406): slow start ends when the round-trip time grows, before loss.

use super::Ack;
use crate::tcp::seq::Seq;

const MIN_RTT_THRESH_NS: u64 = 4_000_000;
const MAX_RTT_THRESH_NS: u64 = 16_000_000;
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u32 = 5;

/// What slow start shall do with an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Grow by all that was acknowledged.
    Full,
    /// Conservative slow start: grow by a part of it.
    Part(u32),
    /// End slow start: the window becomes the threshold.
    Exit,
}

/// Round-trip times of the current and the last round.
#[derive(Debug)]
pub(super) struct HyStart {
    window_end: Seq,
    started: bool,
    last_min_ns: u64,
    current_min_ns: u64,
    samples: u32,
    /// Baseline of conservative slow start, if in it.
    css_baseline_ns: Option<u64>,
    css_rounds: u32,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            window_end: Seq(0),
            started: false,
            last_min_ns: u64::MAX,
            current_min_ns: u64::MAX,
            samples: 0,
            css_baseline_ns: None,
            css_rounds: 0,
        }
    }
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Growth {
        let round_ends = !self.started || Seq(ack.acknowledged).at_or_after(self.window_end);
        if round_ends {
            if self.started && self.css_baseline_ns.is_some() {
                self.css_rounds += 1;
                if self.css_rounds >= CSS_ROUNDS {
                    return Growth::Exit;
                }
            }
            self.started = true;
            self.window_end = Seq(ack.next);
            self.last_min_ns = self.current_min_ns;
            self.current_min_ns = u64::MAX;
            self.samples = 0;
        }
        if ack.rtt_ns > 0 {
            self.current_min_ns = self.current_min_ns.min(ack.rtt_ns);
            self.samples += 1;
        }
        match self.css_baseline_ns {
            None => {
                if self.samples >= N_RTT_SAMPLE
                    && self.last_min_ns != u64::MAX
                    && self.current_min_ns != u64::MAX
                {
                    let thresh = (self.last_min_ns / MIN_RTT_DIVISOR)
                        .clamp(MIN_RTT_THRESH_NS, MAX_RTT_THRESH_NS);
                    if self.current_min_ns >= self.last_min_ns + thresh {
                        self.css_baseline_ns = Some(self.current_min_ns);
                        self.css_rounds = 0;
                        return Growth::Part(ack.delivered / CSS_GROWTH_DIVISOR);
                    }
                }
                Growth::Full
            }
            Some(baseline) => {
                if self.samples >= N_RTT_SAMPLE && self.current_min_ns < baseline {
                    self.css_baseline_ns = None;
                    return Growth::Full;
                }
                Growth::Part(ack.delivered / CSS_GROWTH_DIVISOR)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(hystart: &mut HyStart, number: u32, rtt_ns: u64) -> Growth {
        let mut growth = Growth::Full;
        for i in 0..10 {
            growth = hystart.on_ack(&Ack {
                rtt_ns,
                delivered: 1000,
                acknowledged: number * 10_000 + i * 1000,
                next: number * 10_000 + 10_000,
                ..Ack::default()
            });
            if growth == Growth::Exit {
                break;
            }
        }
        growth
    }

    #[test]
    fn growing_delay_ends_slow_start_after_five_rounds() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 0, 20_000_000), Growth::Full);
        assert_eq!(round(&mut hystart, 1, 21_000_000), Growth::Full);
        assert_eq!(round(&mut hystart, 2, 26_000_000), Growth::Part(250));
        for number in 3..7 {
            assert_eq!(
                round(&mut hystart, number, 27_000_000),
                Growth::Part(250),
                "{number}"
            );
        }
        assert_eq!(round(&mut hystart, 7, 27_000_000), Growth::Exit);
    }

    #[test]
    fn a_blip_is_forgiven() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 20_000_000);
        assert_eq!(round(&mut hystart, 1, 30_000_000), Growth::Part(250));
        assert_eq!(round(&mut hystart, 2, 20_000_000), Growth::Full);
    }
}
