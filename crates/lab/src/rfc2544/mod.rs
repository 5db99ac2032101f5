//! The benchmark of RFC 2544 for any device between two ports: zero-loss throughput, latency at it, loss
//! against rate, back-to-back bursts.
//!
//! The algorithms here see a device only as a function from a plan to a trial, so that they are tested
//! against simulated devices with known limits.

mod report;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::traffic::{Latency, Load, Trial, TrialPlan};

pub use report::{Report, Step, run};

/// How often a rate that is not confirmed is lowered before the device is said to lose frames at any.
const STEPS_DOWN: u32 = 50;

/// Step away from a guessed rate until it is between bounds, as a share of the rate.
const GUESS: f64 = 0.1;

/// How carefully to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How long each trial sends. RFC 2544 section 24 wants 60 s for a final result.
    pub trial: Duration,
    /// How long each trial that confirms a result sends; `None`: as long as the others.
    pub confirmation: Option<Duration>,
    /// Where to begin the search, packets a second: a rate that a similar trial found, e.g. with frames of
    /// another size. `None` begins at the rate that comes through when everything is offered.
    pub guess_pps: Option<f64>,
    /// How long to wait for stragglers after the last arrival. RFC 2544 section 23 wants 2 s.
    pub drain: Duration,
    /// Stop searching when the bounds are this close, as a share of the upper one.
    pub resolution: f64,
    /// Further trials that must all pass at the rate found.
    pub confirmations: u32,
    /// How often a trial with loss is repeated before it counts: 0 after RFC 2544; a shared or virtual
    /// machine that stops a core now and then needs more. The report says how often it happened.
    pub retries: u32,
    /// Never offer more, packets a second.
    pub max_pps: Option<f64>,
    /// Longest burst to try for the back-to-back test, packets; 0 leaves the test out.
    pub max_burst_pkts: u64,
    /// Measure loss against rate.
    pub loss_curve: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            trial: Duration::from_millis(500),
            confirmation: None,
            guess_pps: None,
            drain: Duration::from_millis(20),
            resolution: 0.01,
            confirmations: 3,
            retries: 2,
            max_pps: None,
            max_burst_pkts: 65_536,
            loss_curve: true,
        }
    }
}

/// What bounded the zero-loss rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The device lost frames above it.
    Device,
    /// The tester (or the rate given as the highest) could not offer more: the device may be faster.
    Tester,
}

/// The result of the throughput test (RFC 2544 section 26.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Highest rate without loss, packets a second; 0 if there was loss at every rate.
    pub zero_loss_pps: f64,
    /// What bounded it.
    pub limit: Limit,
    /// The rate received when as much as possible was offered, packets a second.
    pub saturated_pps: f64,
    /// Trials made.
    pub trials: u32,
    /// Trials with loss that were repeated and then passed.
    pub forgiven_trials: u32,
    /// Latency in the last trial at the rate found.
    pub latency: Option<Latency>,
}

/// One point of the loss curve (RFC 2544 section 26.3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossPoint {
    /// The rate really offered, packets a second.
    pub offered_pps: f64,
    /// The share lost, 0 to 1.
    pub loss_ratio: f64,
}

/// The results for one frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeResult {
    /// Size, bytes with FCS (RFC 2544 section 9.1).
    pub size_bytes: u16,
    /// Throughput and latency.
    pub throughput: Throughput,
    /// The throughput in bits a second on a wire: size, preamble and gap.
    pub wire_bps: f64,
    /// The throughput as a share of what 10 Gbit/s Ethernet can carry (IO-8).
    pub share_of_10g: f64,
    /// Loss against rate, from the highest rate down.
    pub loss_curve: Vec<LossPoint>,
    /// Longest burst without loss, packets; `None` if not measured.
    pub back_to_back_pkts: Option<u64>,
}

/// What a device under test is here: it is offered a plan and shows a trial.
pub type Device<'a> = dyn FnMut(&TrialPlan) -> Trial + 'a;

/// Runs all tests for one frame size.
pub fn measure_size(size_bytes: u16, options: &Options, device: &mut Device<'_>) -> SizeResult {
    let mut search = Search::new(options, device);
    let throughput = search.throughput();
    let top_pps = search.top_pps;
    let loss_curve = if options.loss_curve {
        search.loss_curve(top_pps)
    } else {
        Vec::new()
    };
    let back_to_back_pkts = (options.max_burst_pkts > 0).then(|| search.back_to_back());
    let wire_bits =
        8.0 * (f64::from(size_bytes) + f64::from(crate::traffic::profile::WIRE_OVERHEAD_BYTES));
    let wire_bps = throughput.zero_loss_pps * wire_bits;
    SizeResult {
        size_bytes,
        throughput,
        wire_bps,
        share_of_10g: wire_bps / 1e10,
        loss_curve,
        back_to_back_pkts,
    }
}

/// Finds the highest rate without loss.
pub fn measure_throughput(options: &Options, device: &mut Device<'_>) -> Throughput {
    Search::new(options, device).throughput()
}

/// The state of one search.
struct Search<'a, 'd> {
    options: &'a Options,
    device: &'a mut Device<'d>,
    /// The highest rate that could be offered.
    top_pps: f64,
    trials: u32,
    forgiven: u32,
}

impl<'a, 'd> Search<'a, 'd> {
    fn new(options: &'a Options, device: &'a mut Device<'d>) -> Self {
        Self {
            options,
            device,
            top_pps: 0.0,
            trials: 0,
            forgiven: 0,
        }
    }

    fn trial(&mut self, load: Load) -> Trial {
        self.trial_of(load, self.options.trial)
    }

    fn trial_of(&mut self, load: Load, time: Duration) -> Trial {
        let load = match (load, self.options.max_pps) {
            (Load::Unpaced, Some(max)) => Load::Rate(max),
            (load, _) => load,
        };
        let plan = TrialPlan {
            drain: self.options.drain,
            ..TrialPlan::new(load, time)
        };
        self.trials += 1;
        (self.device)(&plan)
    }

    /// Runs a trial at `pps`, again if there was loss or the tester fell behind, up to the number of
    /// retries; returns the last.
    fn forgiving_trial(&mut self, pps: f64, time: Duration) -> Trial {
        let mut trial = self.trial_of(Load::Rate(pps), time);
        for _ in 0..self.options.retries {
            let lost = !passed(&trial);
            if !lost && !self.fell_behind(&trial, pps) {
                break;
            }
            trial = self.trial_of(Load::Rate(pps), time);
            self.forgiven += u32::from(lost && passed(&trial));
        }
        trial
    }

    /// Tells whether the tester itself did not offer `pps`.
    fn fell_behind(&self, trial: &Trial, pps: f64) -> bool {
        trial.offered_pps < pps * (1.0 - self.options.resolution)
    }

    fn throughput(&mut self) -> Throughput {
        let saturated = self.trial(Load::Unpaced);
        self.top_pps = saturated.offered_pps;
        let saturated_pps = saturated.offered_pps * (1.0 - saturated.loss_ratio());
        let mut limit = Limit::Device;
        let (mut low, mut high) = (0.0, self.top_pps);
        // A guess far below what came through would take many trials, or send nothing in one.
        let least_pps = (saturated_pps / 4.0).max(1.0);
        let guess_pps = self.options.guess_pps.filter(|&guess| guess >= least_pps);
        let mut next = guess_pps.unwrap_or(saturated_pps).min(high);
        if passed(&saturated) {
            // Unpaced bursts are harder than a paced rate, but say nothing about a rate that holds.
            limit = Limit::Tester;
        }
        while high - low > self.options.resolution * high && high >= 1.0 {
            let trial = self.forgiving_trial(next, self.options.trial);
            if !passed(&trial) {
                high = next;
            } else if self.fell_behind(&trial, next) {
                // Nothing lost, but the tester did not keep up: this is its limit, not the device's.
                low = trial.offered_pps.max(low);
                limit = Limit::Tester;
                break;
            } else {
                low = next;
                // The device may lose nothing at the top either.
                limit = if next >= self.top_pps {
                    Limit::Tester
                } else {
                    Limit::Device
                };
            }
            // A tester much faster than the device must not jump far above what came through.
            next = (low + high) / 2.0;
            if low > 0.0 {
                next = next.min(low * 2.0);
            }
            // Near a guess there are bounds on both sides soon.
            if guess_pps.is_some() && low == 0.0 {
                next = next.max(high * (1.0 - GUESS));
            } else if guess_pps.is_some() && high == self.top_pps {
                next = next.min(low * (1.0 + GUESS));
            }
        }
        self.confirm(low, limit, saturated_pps)
    }

    /// Repeats the trial at the rate found; steps down while a repetition loses frames.
    fn confirm(&mut self, found_pps: f64, limit: Limit, saturated_pps: f64) -> Throughput {
        let (mut pps, mut limit, mut latency) = (found_pps, limit, None);
        let time = self.options.confirmation.unwrap_or(self.options.trial);
        'rates: for _ in 0..STEPS_DOWN {
            if pps < 1.0 {
                break;
            }
            for _ in 0..self.options.confirmations.max(1) {
                let trial = self.forgiving_trial(pps, time);
                if !passed(&trial) {
                    pps *= 1.0 - self.options.resolution * 2.0;
                    limit = Limit::Device;
                    continue 'rates;
                }
                latency = trial.latency;
            }
            return self.result(pps, limit, saturated_pps, latency);
        }
        self.result(0.0, Limit::Device, saturated_pps, None)
    }

    fn result(
        &self,
        zero_loss_pps: f64,
        limit: Limit,
        saturated_pps: f64,
        latency: Option<Latency>,
    ) -> Throughput {
        Throughput {
            zero_loss_pps,
            limit,
            saturated_pps,
            trials: self.trials,
            forgiven_trials: self.forgiven,
            latency,
        }
    }

    /// Measures loss from the highest rate down in tenths, until two rates in a row lose nothing.
    fn loss_curve(&mut self, top_pps: f64) -> Vec<LossPoint> {
        let mut points = Vec::new();
        let mut clean = 0;
        for tenth in (1..=10).rev() {
            let trial = self.trial(Load::Rate(top_pps * f64::from(tenth) / 10.0));
            points.push(LossPoint {
                offered_pps: trial.offered_pps,
                loss_ratio: trial.loss_ratio(),
            });
            clean = if passed(&trial) { clean + 1 } else { 0 };
            if clean == 2 {
                break;
            }
        }
        points
    }

    /// Finds the longest burst at full speed that loses nothing (RFC 2544 section 26.4).
    fn back_to_back(&mut self) -> u64 {
        let (mut low, mut high) = (0, self.options.max_burst_pkts + 1);
        let mut next = self.options.max_burst_pkts;
        while high - low > (self.options.max_burst_pkts / 256).max(1) {
            let plan = TrialPlan {
                drain: self.options.drain,
                ..TrialPlan::burst(next)
            };
            let retries = self.options.retries;
            let pass = (0..=retries).any(|_| passed(&(self.device)(&plan)));
            if pass {
                low = next;
            } else {
                high = next;
            }
            next = (low + high) / 2;
        }
        low
    }
}

/// A trial passes if frames were sent and every one arrived.
fn passed(trial: &Trial) -> bool {
    trial.sent_pkts > 0 && trial.lost_pkts == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that forwards up to `limit_pps`, buffers `buffer_pkts`, behind a tester that can offer
    /// up to `tester_pps`.
    fn simulated(
        limit_pps: f64,
        buffer_pkts: f64,
        tester_pps: f64,
    ) -> impl FnMut(&TrialPlan) -> Trial {
        move |plan| {
            let (asked, pps) = match plan.load {
                Load::Rate(pps) => (Some(pps), pps.min(tester_pps)),
                Load::Unpaced => (None, tester_pps),
            };
            let sent = (pps * plan.duration.as_secs_f64()).min(plan.max_pkts as f64);
            let excess = (sent * (1.0 - limit_pps / pps) - buffer_pkts).max(0.0);
            Trial {
                asked_pps: asked,
                offered_pps: pps,
                sent_pkts: sent as u64,
                received_pkts: sent as u64 - excess as u64,
                lost_pkts: excess as u64,
                ..Trial::default()
            }
        }
    }

    #[test]
    fn the_search_finds_a_known_limit_within_the_resolution() {
        for limit in [10_000.0, 333_333.0, 876_543.0, 990_000.0] {
            let options = Options::default();
            let found = measure_throughput(&options, &mut simulated(limit, 0.0, 1e6));
            let error = (limit - found.zero_loss_pps) / limit;
            assert!((-0.0001..=0.0102).contains(&error), "{limit}: {found:?}");
            assert!(found.trials < 30, "{limit}: {found:?}");
            assert_eq!(found.limit, Limit::Device, "{limit}");
        }
    }

    #[test]
    fn a_good_guess_saves_trials_and_a_bad_one_does_no_harm() {
        let found = |guess_pps| {
            let options = Options {
                guess_pps,
                confirmations: 1,
                ..Options::default()
            };
            measure_throughput(&options, &mut simulated(300_000.0, 0.0, 2e6))
        };
        let without = found(None);
        for guess_pps in [1.0, 1e4, 270e3, 299e3, 320e3, 1.5e6, 1e9] {
            let with = found(Some(guess_pps));
            let error = (300e3 - with.zero_loss_pps) / 300e3;
            assert!((-0.0001..=0.0102).contains(&error), "{guess_pps}: {with:?}");
            assert_eq!(with.limit, Limit::Device, "{guess_pps}");
        }
        let good = found(Some(290e3));
        assert!(good.trials < without.trials, "{good:?}, {without:?}");
    }

    #[test]
    fn confirmations_may_be_longer() {
        let mut device = simulated(300_000.0, 0.0, 2e6);
        let options = Options {
            trial: Duration::from_millis(100),
            confirmation: Some(Duration::from_secs(1)),
            confirmations: 1,
            ..Options::default()
        };
        let mut times = Vec::new();
        measure_throughput(&options, &mut |plan: &TrialPlan| {
            times.push(plan.duration);
            device(plan)
        });
        assert_eq!(times.pop(), Some(Duration::from_secs(1)));
        assert!(times.iter().all(|&time| time == Duration::from_millis(100)));
    }

    #[test]
    fn a_device_faster_than_the_tester_is_said_to_be() {
        let options = Options::default();
        let found = measure_throughput(&options, &mut simulated(5e6, 0.0, 1e6));
        assert_eq!(found.limit, Limit::Tester);
        assert!((found.zero_loss_pps - 1e6).abs() < 1e4, "{found:?}");
    }

    #[test]
    fn a_device_that_always_loses_gets_zero() {
        let mut always = simulated(1e6, 0.0, 1e6);
        let found = measure_throughput(&Options::default(), &mut |plan: &TrialPlan| Trial {
            lost_pkts: 1,
            ..always(plan)
        });
        assert_eq!(found.zero_loss_pps, 0.0);
        assert_eq!(found.limit, Limit::Device);
    }

    #[test]
    fn rare_loss_is_forgiven_and_reported_or_not_forgiven() {
        let run = |retries| {
            let mut device = simulated(500_000.0, 0.0, 1e6);
            let mut count = 0;
            let options = Options {
                retries,
                ..Options::default()
            };
            measure_throughput(&options, &mut |plan: &TrialPlan| {
                count += 1;
                let mut trial = device(plan);
                trial.lost_pkts += u64::from(count % 3 == 0);
                trial
            })
        };
        let forgiving = run(2);
        assert!(forgiving.zero_loss_pps > 480_000.0, "{forgiving:?}");
        assert!(forgiving.forgiven_trials > 0);
        let strict = run(0);
        assert!(strict.zero_loss_pps < forgiving.zero_loss_pps, "{strict:?}");
        assert_eq!(strict.forgiven_trials, 0);
    }

    #[test]
    fn a_rate_that_is_not_confirmed_is_lowered() {
        let mut device = simulated(500_000.0, 0.0, 1e6);
        let mut seen = 0;
        // Passes the search, then loses in one of the confirmations.
        let found = measure_throughput(
            &Options {
                retries: 0,
                ..Options::default()
            },
            &mut |plan: &TrialPlan| {
                let mut trial = device(plan);
                if trial.offered_pps > 490_000.0 && trial.lost_pkts == 0 {
                    seen += 1;
                    trial.lost_pkts = u64::from(seen > 2);
                }
                trial
            },
        );
        assert!(
            (450_000.0..=490_000.0).contains(&found.zero_loss_pps),
            "{found:?}"
        );
    }

    #[test]
    fn bursts_and_loss_curve_show_buffer_and_rate() {
        let options = Options {
            max_burst_pkts: 10_000,
            ..Options::default()
        };
        let result = measure_size(64, &options, &mut simulated(500_000.0, 1_000.0, 1e6));
        // At 1 Mpps half of a burst is served while it arrives: twice the buffer passes.
        let burst = result.back_to_back_pkts.unwrap();
        assert!((1_950..=2_002).contains(&burst), "{burst}");
        assert!(result.loss_curve.len() >= 7, "{:?}", result.loss_curve);
        assert!(result.loss_curve[0].loss_ratio > 0.45);
        assert_eq!(result.loss_curve.last().unwrap().loss_ratio, 0.0);
        let expected = result.throughput.zero_loss_pps * 84.0 * 8.0;
        assert!((result.wire_bps - expected).abs() < 1.0);
    }
}
