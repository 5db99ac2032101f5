//! The hybrid policy: polling, timed naps or sleep, whichever meets a latency budget at the least CPU.
//!
//! Three states. **Poll** costs a core and adds no latency. **Nap** sleeps a fixed time with interrupts
//! off: it costs the same at any load, and adds at most the nap and the lateness of its timer. **Wait**
//! sleeps until an interrupt: free while idle, but each wake-up costs, and adds the wake's latency. The
//! machine keeps what it needs to compare them:
//!
//! * how late sleeps end (a histogram): seen at every nap, and, since a wake-up by interrupt takes the same
//!   way through scheduler and idle states as one by timer, also what a wake-up adds. In Poll and Wait a
//!   rare short nap, a probe, keeps it up to date: at start, and only while packets come;
//! * the nap's length: the longest after which no more than one packet in a hundred has waited longer than
//!   the budget, bounded by what a ring can hold at the rate seen. Where sleeps that end very late make
//!   that many already, shorter naps would only make more of them: it is the length with the fewest;
//! * the share of packets that wait too long for wake-ups by interrupt, which grows with the rate, as more
//!   packets wait for one late wake-up;
//! * the CPU time of a wake-up and of a nap, learned from the thread's own CPU time;
//! * how often interrupts would come: counted in Wait, estimated from the share of naps that found
//!   something in Nap, from the passes that found something in Poll.
//!
//! A change that saves CPU waits for a dwell time and for a gain of 8 %; a change that keeps the budget
//! or follows a large step is made within milliseconds. A change that is soon taken back doubles these
//! times (up to 64-fold), so that no steady load makes the machine flap.

use core::time::Duration;

use wire::Instant;

use super::lateness::Lateness;
use super::{Before, Decision, Pass, State};

/// Configuration of the hybrid policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridConfig {
    /// Added latency that the operator accepts, 99th percentile.
    pub latency_budget: Duration,
    /// First guess at how late a sleep ends on this machine, 99th percentile; what is seen replaces it.
    pub wake: Duration,
    /// Shortest nap that is worth its cost.
    pub nap_min: Duration,
    /// Longest nap.
    pub nap_max: Duration,
    /// Packets that may gather during a nap: half of the smallest receive ring.
    pub backlog_pkts: u32,
    /// Shortest stay before a change that only saves CPU.
    pub dwell: Duration,
}

impl Default for HybridConfig {
    /// A budget of 100 us; at first wake-ups as on a busy virtual machine, 60 us.
    fn default() -> Self {
        Self {
            latency_budget: Duration::from_micros(100),
            wake: Duration::from_micros(60),
            nap_min: Duration::from_micros(20),
            nap_max: Duration::from_millis(1),
            backlog_pkts: 512,
            dwell: Duration::from_millis(500),
        }
    }
}

/// Interval at which costs are learned and fast changes decided.
const FAST: Duration = Duration::from_millis(20);
/// Wake-ups in Wait to each of which belongs one probe: a nap of the shortest length in place of a sleep.
const PROBE_WAKES: u32 = 64;
/// Shortest interval of such probes in Poll, and the share of the time that they may take, as a divisor.
const PROBE_EVERY: Duration = Duration::from_millis(20);
const PROBE_SHARE: u32 = 400;
/// Naps from which on the lateness counts as known: as many are made at the start.
const KNOWN: u32 = 192;
/// Naps after which all that were seen lose half of their weight: in Nap, where they are many, and elsewhere.
const MEMORY: (u32, u32) = (8192, 512);
/// Least and most CPU time that a nap or a wake-up may seem to take, nanoseconds.
const COST_NS: (f64, f64) = (1_000.0, 200_000.0);
/// Share of packets that a 99th percentile lets wait for longer than the budget.
const OVER_BUDGET: f64 = 0.01;
/// Part of it that a nap's length is chosen for.
const NAP_OVER: f64 = 0.5;
/// Part of what a state is left at up to which it is entered.
const ENTER_OVER: f64 = 0.85;
/// Doubt about what few sleeps show: this by the root of their number, less what many leave (8,192).
const DOUBT: (f64, f64) = (32.0, 0.35);
/// Share of the budget that is kept back: lateness changes faster than it is learned.
const MARGIN: f64 = 1.0 / 32.0;
/// Share of the budget that a wake-up may take, in Wait, and for a change to Wait.
const WAIT_SHARE: (f64, f64) = (1.0, 0.8);
/// Interval at which a budget that only polling or napping meets is held against the rate.
const RATE: Duration = Duration::from_millis(60);
/// Wake-ups in [`RATE`] from which on such a budget is kept (200 a second).
const RATE_WAKES: u32 = 12;
/// Packet arrivals in four times [`RATE`] below which it is given up (50 a second).
const RATE_HITS: u32 = 12;
/// Passes that find packets without a break for so long mean overload, in Wait.
const OVERLOAD: Duration = Duration::from_micros(200);
/// The same in Nap, where it is not urgent (a busy worker does not nap): longer than a ring takes that
/// filled while the host had the CPU away.
const OVERLOAD_NAP: Duration = Duration::from_millis(5);
/// Most that one pass counts for in that: when the host takes the CPU away in between, a pass looks long.
const OVERLOAD_PASS: Duration = Duration::from_micros(20);
/// Share of idle time in Poll, in percent, from which on another state is looked at.
const IDLE_PERCENT: u64 = 40;
/// Gain in CPU that a change must bring.
const GAIN: f64 = 1.08;
/// Ratio of costs that calls for a change without a dwell time.
const LARGE_GAIN: f64 = 2.0;
/// Most doublings of the dwell times.
const LEVEL_MAX: u32 = 6;
/// A change taken back within this time doubles the dwell times.
const SOON: Duration = Duration::from_secs(10);
/// After this time without a change the dwell times are the shortest again.
const CALM: Duration = Duration::from_secs(60);

/// What was counted since some moment.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    start: Instant,
    pkts: u64,
    /// Passes that found packets.
    hits: u32,
    naps: u32,
    /// Naps after which there were packets.
    nap_hits: u32,
    /// Sleeps that an interrupt ended.
    wakes: u32,
    /// Time between an empty pass and the next pass.
    idle_ns: u64,
}

impl Window {
    fn at(start: Instant) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    fn count(&mut self, pass: &Pass, idle: Duration) {
        let hit = pass.pkts > 0;
        self.pkts += u64::from(pass.pkts);
        self.hits += u32::from(hit);
        self.idle_ns += idle.as_nanos() as u64;
        match pass.before {
            Before::Nap { .. } => {
                self.naps += 1;
                self.nap_hits += u32::from(hit);
            }
            Before::Interrupt => self.wakes += 1,
            Before::Pass | Before::Other => {}
        }
    }
}

/// What was slept since the CPU time was told last.
#[derive(Clone, Copy, Debug, Default)]
struct Sleeps {
    start: Instant,
    /// The CPU time then; `None` if the state changed since.
    cpu: Option<Duration>,
    naps: u32,
    wakes: u32,
    /// Time in naps.
    asleep: Duration,
}

/// The machine.
#[derive(Debug)]
pub struct Hybrid {
    config: HybridConfig,
    state: State,
    since: Instant,
    /// The state before this one.
    from: State,
    flips: u64,
    level: u32,
    nap: Duration,
    /// Share of packets that such naps would let wait for longer than the budget.
    nap_over: f64,
    /// The same for sleeps until an interrupt, at the budget and at the part of it for a change to Wait.
    wait_over: (f64, f64),
    late: Lateness,
    /// Time from the last look of a pass to the start of the nap after it.
    before_nap_ns: f64,
    /// The 99th percentile of that, or the first guess.
    tail_ns: f64,
    /// Enough naps were seen.
    is_known: bool,
    wake_cost_ns: f64,
    nap_cost_ns: f64,
    rate_pps: f64,
    fast: Window,
    slow: Window,
    rate: Window,
    /// Length of the run of passes that found packets, `None` after an empty one.
    busy: Option<Duration>,
    last_pkts: Instant,
    last_pass: Instant,
    last_nap: Instant,
    /// Wake-ups since then.
    wakes: u32,
    /// Interval of probes in Poll.
    probe_every: Duration,
    sleeps: Sleeps,
    cpu: Duration,
    /// It was told since the last pass.
    cpu_is_new: bool,
}

impl Hybrid {
    /// Makes the machine; like the paper's it starts by polling.
    pub fn new(config: HybridConfig, now: Instant) -> Self {
        let mut hybrid = Self {
            config,
            state: State::Poll,
            since: now,
            from: State::Poll,
            flips: 0,
            level: 0,
            nap: config.nap_min,
            nap_over: 0.0,
            wait_over: (0.0, 0.0),
            before_nap_ns: 1_000.0,
            late: Lateness::new(Duration::from_micros(10)),
            tail_ns: config.wake.as_nanos() as f64,
            is_known: false,
            wake_cost_ns: 17_000.0,
            nap_cost_ns: 14_000.0,
            rate_pps: 0.0,
            fast: Window::at(now),
            slow: Window::at(now),
            rate: Window::at(now),
            busy: None,
            last_pkts: now,
            last_pass: now,
            last_nap: now,
            wakes: 0,
            probe_every: PROBE_EVERY,
            sleeps: Sleeps::default(),
            cpu: Duration::ZERO,
            cpu_is_new: false,
        };
        hybrid.choose_nap();
        hybrid
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns how often the state changed.
    pub fn flips(&self) -> u64 {
        self.flips
    }

    /// Returns the length of a nap now.
    pub fn nap(&self) -> Duration {
        self.nap
    }

    /// Returns the CPU time of a wake-up and of a nap as learned so far.
    pub fn costs(&self) -> (Duration, Duration) {
        (
            Duration::from_nanos(self.wake_cost_ns as u64),
            Duration::from_nanos(self.nap_cost_ns as u64),
        )
    }

    /// Returns how late sleeps end, 99th percentile, as learned so far.
    pub fn lateness(&self) -> Duration {
        Duration::from_nanos(self.tail_ns as u64)
    }

    /// Tells the CPU time of the thread so far; call it right before [`Hybrid::pass`].
    pub fn cpu_time(&mut self, cpu: Duration) {
        self.cpu = cpu;
        self.cpu_is_new = true;
    }

    /// Takes what a pass found and decides what to do if it was nothing.
    #[inline]
    pub fn pass(&mut self, pass: &Pass) -> Decision {
        let now = pass.now;
        let gap = now - self.last_pass;
        let idle = if self.busy.is_some() {
            Duration::ZERO
        } else {
            gap
        };
        self.last_pass = now;
        match pass.before {
            Before::Nap { late } => {
                let memory = if self.state == State::Nap {
                    MEMORY.0
                } else {
                    MEMORY.1
                };
                self.late.record(late, memory);
                if self.state == State::Nap {
                    let awake_ns = gap.saturating_sub(self.nap + late).as_nanos() as f64;
                    self.before_nap_ns += (awake_ns - self.before_nap_ns) / 64.0;
                }
                self.is_known |= self.late.weight() >= KNOWN;
                let asked = match self.state {
                    State::Nap => self.nap,
                    State::Poll | State::Wait => self.config.nap_min,
                };
                self.sleeps.naps += 1;
                self.sleeps.asleep += asked + late;
                self.last_nap = now;
                self.wakes = 0;
            }
            Before::Interrupt => {
                self.sleeps.wakes += 1;
                self.wakes += 1;
            }
            Before::Pass | Before::Other => {}
        }
        self.fast.count(pass, idle);
        if pass.pkts > 0 {
            self.last_pkts = now;
            let busy = match self.busy {
                Some(busy) => busy + gap.min(OVERLOAD_PASS),
                None => Duration::ZERO,
            };
            self.busy = Some(busy);
            let overload = match self.state {
                State::Poll => Duration::MAX,
                State::Nap => self.scaled(OVERLOAD_NAP),
                State::Wait => self.scaled(OVERLOAD),
            };
            if busy > overload {
                self.change(State::Poll, now);
            }
        } else {
            self.busy = None;
        }
        if core::mem::take(&mut self.cpu_is_new) {
            self.learn_costs(now);
        }
        if now - self.fast.start >= FAST {
            self.review(now);
        }
        match self.state {
            State::Nap => Decision::Nap(self.nap),
            _ if self.is_probe_due(now) => Decision::Nap(self.config.nap_min),
            State::Poll => Decision::Spin,
            State::Wait => Decision::Block,
        }
    }

    /// Tells whether a nap is to show how late sleeps end now. It holds up packets: in Poll far fewer than
    /// would show in a 99th percentile.
    fn is_probe_due(&self, now: Instant) -> bool {
        match self.state {
            State::Poll => !self.is_known || now - self.last_nap >= self.probe_every,
            State::Nap => false,
            State::Wait => self.wakes >= PROBE_WAKES,
        }
    }

    /// Doubles a time once a level.
    fn scaled(&self, time: Duration) -> Duration {
        time * (1 << self.level)
    }

    #[cold]
    fn review(&mut self, now: Instant) {
        let fast = self.fast;
        self.learn_rate(&fast, now);
        self.fast = Window::at(now);
        for window in [&mut self.slow, &mut self.rate] {
            window.pkts += fast.pkts;
            window.hits += fast.hits;
            window.naps += fast.naps;
            window.nap_hits += fast.nap_hits;
            window.wakes += fast.wakes;
            window.idle_ns += fast.idle_ns;
        }
        if let Some(tail_ns) = self.late.tail_ns() {
            self.tail_ns = tail_ns;
            let asleep = self.config.nap_min + self.lateness();
            self.probe_every = PROBE_EVERY.max(asleep * PROBE_SHARE);
        }
        self.choose_nap();
        let next = self
            .follow_step(&fast, now)
            .or_else(|| self.keep_budget(now))
            .or_else(|| self.save_cpu(now));
        if let Some(next) = next {
            self.change(next, now);
        }
    }

    fn learn_rate(&mut self, fast: &Window, now: Instant) {
        let elapsed_ns = (now - fast.start).as_nanos() as f64;
        let rate_pps = fast.pkts as f64 * 1e9 / elapsed_ns;
        // Up at once, down slowly: a nap must never be too long for the ring.
        self.rate_pps = rate_pps.max(self.rate_pps * 0.8 + rate_pps * 0.2);
    }

    /// Learns what a nap or a wake-up costs from the CPU time between two passes before which it was told.
    #[cold]
    fn learn_costs(&mut self, now: Instant) {
        let next = Sleeps {
            start: now,
            cpu: Some(self.cpu),
            ..Sleeps::default()
        };
        let sleeps = core::mem::replace(&mut self.sleeps, next);
        let Some(cpu) = sleeps.cpu else {
            return;
        };
        let spent_ns = self.cpu.saturating_sub(cpu).as_nanos() as f64;
        let (cost_ns, events, spent_ns, weight) = match self.state {
            // What the time awake does not explain went into naps: probes, of which there are many at the
            // start.
            State::Poll => {
                let awake = (now - sleeps.start).saturating_sub(sleeps.asleep);
                let naps_ns = spent_ns - awake.as_nanos() as f64;
                (&mut self.nap_cost_ns, sleeps.naps, naps_ns, 0.5)
            }
            State::Nap => (&mut self.nap_cost_ns, sleeps.naps, spent_ns, 0.1),
            State::Wait => {
                let events = sleeps.naps + sleeps.wakes;
                (&mut self.wake_cost_ns, events, spent_ns, 0.1)
            }
        };
        if events >= 10 && spent_ns > 0.0 {
            let seen_ns = (spent_ns / f64::from(events)).clamp(COST_NS.0, COST_NS.1);
            *cost_ns += (seen_ns - *cost_ns) * weight;
        }
    }

    /// A large step of the load: seen within milliseconds.
    fn follow_step(&self, fast: &Window, now: Instant) -> Option<State> {
        let without_pkts = now - self.last_pkts;
        // Without any traffic no budget is at stake.
        let silent = without_pkts > self.scaled(RATE);
        let quiet = without_pkts > self.scaled(FAST) && self.wait_meets_budget();
        match self.state {
            State::Wait => {
                let large =
                    self.wait_cost(rate_of(fast.wakes, fast, now)) > self.nap_cost() * LARGE_GAIN;
                let settled = self.level == 0 || now - self.since >= self.scaled(FAST);
                (large && settled && fast.wakes > 10 && self.nap_meets_budget())
                    .then_some(State::Nap)
            }
            State::Nap | State::Poll => (quiet || silent).then_some(State::Wait),
        }
    }

    /// A budget that sleeping does not meet: poll or nap while there is traffic at all.
    fn keep_budget(&mut self, now: Instant) -> Option<State> {
        if self.wait_meets_budget() {
            return None;
        }
        let best = if self.nap_meets_budget() {
            State::Nap
        } else {
            State::Poll
        };
        let rate = self.rate;
        let elapsed = now - rate.start;
        if self.state == State::Wait {
            if elapsed < RATE {
                return None;
            }
            self.rate = Window::at(now);
            return (rate.wakes >= RATE_WAKES).then_some(best);
        }
        if elapsed < self.scaled(4 * RATE) {
            return (self.state == State::Nap && best == State::Poll).then_some(best);
        }
        self.rate = Window::at(now);
        let few = u64::from(rate.hits) < u64::from(RATE_HITS) << self.level;
        few.then_some(State::Wait)
    }

    /// After a dwell time: the state that costs least, of those that meet the budget.
    fn save_cpu(&mut self, now: Instant) -> Option<State> {
        let slow = self.slow;
        if now - slow.start < self.scaled(self.config.dwell) {
            return None;
        }
        self.slow = Window::at(now);
        let elapsed_ns = (now - slow.start).as_nanos() as u64;
        let (cost, wakes) = match self.state {
            State::Wait => {
                let wakes = rate_of(slow.wakes, &slow, now);
                (self.wait_cost(wakes), wakes)
            }
            State::Nap => (self.nap_cost(), self.wakes_from_naps(&slow, now)),
            State::Poll if slow.idle_ns * 100 < elapsed_ns * IDLE_PERCENT => return None,
            State::Poll => (1.0, self.absorbed(rate_of(slow.hits, &slow, now))),
        };
        let wait = (State::Wait, self.wait_cost(wakes), self.wait_meets_budget());
        let nap = (State::Nap, self.nap_cost(), self.nap_meets_budget());
        let (best, best_cost, _) = [wait, nap]
            .into_iter()
            .filter(|&(_, _, meets)| meets)
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        (best != self.state && cost > best_cost * GAIN).then_some(best)
    }

    fn change(&mut self, next: State, now: Instant) {
        let stay = now - self.since;
        if stay > CALM {
            self.level = 0;
        } else if next == self.from && stay < SOON {
            self.level = (self.level + 1).min(LEVEL_MAX);
        }
        self.from = self.state;
        self.state = next;
        self.since = now;
        self.flips += 1;
        self.choose_nap();
        self.fast = Window::at(now);
        self.slow = self.fast;
        self.rate = self.fast;
        self.sleeps.cpu = None;
    }

    /// Chooses the nap that the budget allows, at the lateness and the rate seen, and tells what share of
    /// packets it and sleeps until an interrupt would let wait for longer.
    fn choose_nap(&mut self) {
        let budget_ns = self.config.latency_budget.as_nanos() as f64;
        let left_ns = budget_ns * (1.0 - MARGIN) - self.before_nap_ns;
        let ring_ns =
            f64::from(self.config.backlog_pkts) * 1e9 / self.rate_pps.max(1.0) - self.tail_ns;
        let max_ns = ring_ns.min(self.config.nap_max.as_nanos() as f64);
        let nap_ns = if self.is_known {
            let share = OVER_BUDGET * NAP_OVER;
            let (nap_ns, over) = self.late.longest_nap_ns(left_ns, share, max_ns);
            self.nap_over = over;
            let (pkts_per_ns, awake_ns) = (self.rate_pps / 1e9, self.wake_cost_ns);
            let wait_over = |budget_ns| self.late.wait_share_over(budget_ns, pkts_per_ns, awake_ns);
            self.wait_over = (
                wait_over(budget_ns * WAIT_SHARE.0),
                wait_over(budget_ns * WAIT_SHARE.1),
            );
            nap_ns
        } else {
            max_ns.min(left_ns - self.tail_ns)
        };
        self.nap = Duration::from_nanos(nap_ns.max(1_000.0) as u64);
    }

    /// Returns the share of late packets from which on the state is left: more where few sleeps were seen,
    /// since a few late ones may be chance, and to poll for nothing costs most.
    fn over_to_leave(&self) -> f64 {
        OVER_BUDGET * (1.0 + (self.doubt() - DOUBT.1).max(0.0))
    }

    /// Returns the share of late packets up to which a state is entered: less, so that what follows does not
    /// take it back at once, but with the same allowance for chance. Without it, one late sleep among the
    /// first few keeps a worker polling for seconds on a machine where it could sleep.
    fn over_to_enter(&self) -> f64 {
        self.over_to_leave() * ENTER_OVER
    }

    /// Returns the relative error of a share that the sleeps seen tell.
    fn doubt(&self) -> f64 {
        DOUBT.0 / f64::from(self.late.weight().max(1)).sqrt()
    }

    fn nap_meets_budget(&self) -> bool {
        // Once napping, less is enough: lateness wavers.
        let (least, over) = if self.state == State::Nap {
            (self.config.nap_min / 2, self.over_to_leave())
        } else {
            (
                self.config.nap_min + self.config.latency_budget / 16,
                self.over_to_enter(),
            )
        };
        self.nap >= least && self.nap_over <= over
    }

    fn wait_meets_budget(&self) -> bool {
        let waits = self.state == State::Wait;
        if self.is_known {
            return if waits {
                self.wait_over.0 <= self.over_to_leave()
            } else {
                self.wait_over.0 <= self.over_to_enter()
                    && self.wait_over.1 <= OVER_BUDGET * (1.0 + self.doubt())
            };
        }
        let share = if waits { WAIT_SHARE.0 } else { WAIT_SHARE.1 };
        self.tail_ns <= self.config.latency_budget.as_nanos() as f64 * share
    }

    /// Returns the share of a core that naps cost.
    fn nap_cost(&self) -> f64 {
        let asleep_ns = self.nap.as_nanos() as f64 + self.late.mean_ns();
        self.nap_cost_ns / (self.nap_cost_ns + asleep_ns)
    }

    /// Returns the share of a core that so many wake-ups a second cost.
    fn wait_cost(&self, wakes_per_s: f64) -> f64 {
        (wakes_per_s * self.wake_cost_ns / 1e9).min(1.0)
    }

    /// Estimates the wake-ups a second that Wait would see: the share of naps that found nothing tells the
    /// arrivals in a nap, if they are independent; evenly spaced packets tell them by their number.
    fn wakes_from_naps(&self, window: &Window, now: Instant) -> f64 {
        if window.naps == 0 {
            return f64::MAX; // never came to nap
        }
        let naps = f64::from(window.naps);
        let empty = (naps - f64::from(window.nap_hits)).max(0.5) / naps;
        let arrivals = (-empty.ln()).min(window.pkts as f64 / naps);
        self.absorbed(arrivals * rate_of(window.naps, window, now))
    }

    /// Returns the wake-ups a second for so many arrivals a second: those that come while the worker is
    /// awake, or on its way, wake nobody.
    fn absorbed(&self, arrivals_per_s: f64) -> f64 {
        let wake_ns = self.wake_cost_ns + self.late.mean_ns();
        arrivals_per_s / (1.0 + arrivals_per_s * wake_ns / 1e9)
    }
}

/// Returns events a second.
fn rate_of(events: u32, window: &Window, now: Instant) -> f64 {
    f64::from(events) * 1e9 / (now - window.start).as_nanos().max(1) as f64
}
