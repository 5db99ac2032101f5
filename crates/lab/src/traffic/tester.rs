//! The tester: sends on one port, receives on another, in one thread.

use std::time::{Duration, Instant};

use io::{Batch, Pool, Queue};
use serde::{Deserialize, Serialize};

use crate::traffic::{Account, Latency, Pacer, Profile};

/// Longest burst that a late sender makes up for, packets.
const BACKLOG_PKTS: u64 = 128;

/// A port of the tester: a queue and the frames for it.
#[derive(Debug)]
pub struct Endpoint {
    /// Sends and receives.
    pub queue: Box<dyn Queue>,
    /// Where its frames come from.
    pub pool: Pool,
}

/// How much to offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A constant rate, packets a second.
    Rate(f64),
    /// As fast as the sending driver takes frames.
    Unpaced,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialPlan {
    /// How much to offer.
    pub load: Load,
    /// For how long to send.
    pub duration: Duration,
    /// How many frames to send at most.
    pub max_pkts: u64,
    /// How long to wait for frames that are still on the way after the last one arrived.
    pub drain: Duration,
}

impl TrialPlan {
    /// Plans `duration` of `load` and 20 ms of drain.
    pub fn new(load: Load, duration: Duration) -> Self {
        Self {
            load,
            duration,
            max_pkts: u64::MAX,
            drain: Duration::from_millis(20),
        }
    }

    /// Plans a burst of `pkts` frames back to back, and 20 ms of drain.
    pub fn burst(pkts: u64) -> Self {
        Self {
            max_pkts: pkts,
            ..Self::new(Load::Unpaced, Duration::from_secs(10))
        }
    }
}

/// What a trial showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The rate asked for, packets a second; `None` for unpaced.
    pub asked_pps: Option<f64>,
    /// The rate really sent, packets a second.
    pub offered_pps: f64,
    /// Frames sent.
    pub sent_pkts: u64,
    /// Different frames received.
    pub received_pkts: u64,
    /// Frames sent that did not arrive.
    pub lost_pkts: u64,
    /// Frames that arrived again.
    pub duplicate_pkts: u64,
    /// Frames that arrived after a later one of their flow.
    pub reordered_pkts: u64,
    /// Frames received that were not of the trial.
    pub foreign_pkts: u64,
    /// Of the lost ones, those that the tester's own drivers lost, as far as they know.
    pub tester_lost_pkts: u64,
    /// Latency percentiles of the frames received.
    pub latency: Option<Latency>,
}

impl Trial {
    /// Returns the share of frames lost, 0 to 1.
    pub fn loss_ratio(&self) -> f64 {
        self.lost_pkts as f64 / self.sent_pkts.max(1) as f64
    }
}

/// Where the tester's time comes from: nanoseconds since any epoch, never backwards.
struct Clock(Box<dyn Fn() -> u64 + Send>);

impl core::fmt::Debug for Clock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Clock")
    }
}

/// Sends test frames on one endpoint and accounts for them on another.
#[derive(Debug)]
pub struct Tester {
    tx: Endpoint,
    rx: Endpoint,
    clock: Clock,
    trial: u8,
    tx_batch: Batch,
    rx_batch: Batch,
}

impl Tester {
    /// Makes a tester that sends on `tx` and receives on `rx`.
    pub fn new(tx: Endpoint, rx: Endpoint) -> Self {
        let epoch = Instant::now();
        Self::with_clock(tx, rx, move || epoch.elapsed().as_nanos() as u64)
    }

    /// Makes a tester with a clock of its own, e.g. a virtual one; it is read about twice a burst.
    pub fn with_clock(
        tx: Endpoint,
        rx: Endpoint,
        clock_ns: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        Self {
            tx,
            rx,
            clock: Clock(Box::new(clock_ns)),
            trial: 0,
            tx_batch: Batch::new(),
            rx_batch: Batch::new(),
        }
    }

    /// Sends `count` frames of `profile` from the *receiving* side, so that a device under test learns
    /// where its stations are (RFC 2544 section 23), and forgets what arrives.
    pub fn teach(&mut self, profile: &Profile, count: u64) {
        core::mem::swap(&mut self.tx, &mut self.rx);
        self.run(profile, &TrialPlan::burst(count));
        core::mem::swap(&mut self.tx, &mut self.rx);
    }

    /// Runs one trial. Spins on the calling thread: pin it to a core of its own.
    pub fn run(&mut self, profile: &Profile, plan: &TrialPlan) -> Trial {
        self.trial = self.trial.wrapping_add(1);
        let lost_before = self.own_loss();
        let mut account = Account::new(self.trial, profile.flows());
        let start_ns = self.now_ns();
        let end_ns = start_ns.saturating_add(plan.duration.as_nanos() as u64);
        let mut pacer = match plan.load {
            Load::Rate(pps) => Some(Pacer::new(pps, start_ns, BACKLOG_PKTS)),
            Load::Unpaced => None,
        };
        let (mut built, mut now_ns, mut last_sent_ns) = (0, start_ns, start_ns);
        while now_ns < end_ns && built - (self.tx_batch.len() as u64) < plan.max_pkts {
            let due = pacer.as_mut().map_or(u64::MAX, |p| p.due(now_ns));
            let wanted = due.min(plan.max_pkts - built);
            let added = self.build(profile, built, wanted);
            built += added;
            if added > 0 {
                last_sent_ns = now_ns;
            }
            if let Some(pacer) = &mut pacer {
                pacer.sent(added);
            }
            self.send(now_ns);
            (_, now_ns) = self.receive(&mut account);
        }
        // What the driver did not take was not sent; its numbers are the last ones.
        let sent = built - self.tx_batch.len() as u64;
        self.tx.pool.free_batch(&mut self.tx_batch);
        // Up to the last burst, so that a stall after it does not count; a single burst has no rate
        // but that of the whole loop.
        let sending_ns = match last_sent_ns - start_ns {
            0 => (now_ns - start_ns).max(1),
            ns => ns,
        };
        self.drain(&mut account, sent, plan.drain);
        Trial {
            asked_pps: match plan.load {
                Load::Rate(pps) => Some(pps),
                Load::Unpaced => None,
            },
            offered_pps: sent as f64 * 1e9 / sending_ns as f64,
            sent_pkts: sent,
            received_pkts: account.unique_pkts(),
            lost_pkts: sent.saturating_sub(account.unique_pkts()),
            duplicate_pkts: account.duplicate_pkts(),
            reordered_pkts: account.reordered_pkts(),
            foreign_pkts: account.foreign_pkts(),
            tester_lost_pkts: self.own_loss() - lost_before,
            latency: account.latency(),
        }
    }

    /// Gives every frame back and closes both queues; returns how many frames the kernel kept.
    pub fn close(mut self) -> usize {
        self.tx.queue.close(&mut self.tx.pool) + self.rx.queue.close(&mut self.rx.pool)
    }

    fn now_ns(&self) -> u64 {
        (self.clock.0)()
    }

    /// Returns how many frames the tester's own drivers lost so far.
    fn own_loss(&self) -> u64 {
        let rx = self.rx.queue.stats();
        self.tx.queue.stats().tx_error_pkts + rx.rx_ring_full_pkts + rx.rx_no_frame_pkts
    }

    /// Fills the batch with up to `wanted` more frames; returns how many.
    fn build(&mut self, profile: &Profile, first: u64, wanted: u64) -> u64 {
        let mut added = 0;
        while added < wanted && !self.tx_batch.is_full() {
            let Some(mut frame) = self.tx.pool.alloc() else {
                break;
            };
            if !profile.write(&mut frame, self.trial, first + added) {
                self.tx.pool.free(frame);
                break;
            }
            if let Err(frame) = self.tx_batch.push(frame) {
                self.tx.pool.free(frame);
                break;
            }
            added += 1;
        }
        added
    }

    fn send(&mut self, now_ns: u64) {
        for frame in self.tx_batch.iter_mut() {
            Profile::stamp(frame, now_ns);
        }
        // Also when there is nothing to send: the driver takes back what has been sent.
        self.tx.queue.tx(&mut self.tx.pool, &mut self.tx_batch);
    }

    /// Receives one burst; returns its length and the time after it.
    fn receive(&mut self, account: &mut Account) -> (usize, u64) {
        let received = self.rx.queue.rx(&mut self.rx.pool, &mut self.rx_batch);
        let now_ns = self.now_ns();
        for frame in self.rx_batch.iter() {
            account.receive(frame.data(), now_ns);
        }
        self.rx.pool.free_batch(&mut self.rx_batch);
        (received, now_ns)
    }

    /// Waits until all frames arrived, or none for the time `quiet`.
    fn drain(&mut self, account: &mut Account, sent: u64, quiet: Duration) {
        let quiet_ns = quiet.as_nanos() as u64;
        let mut last_ns = self.now_ns();
        let mut seen = account.unique_pkts();
        loop {
            self.send(0);
            let (received, now_ns) = self.receive(account);
            if account.unique_pkts() != seen {
                seen = account.unique_pkts();
                last_ns = now_ns;
            }
            // After the last frame its duplicates may follow.
            if (seen >= sent && received == 0) || now_ns - last_ns > quiet_ns {
                break;
            }
        }
        // What arrived on the sending side is nobody's business; bounded, since it may go on.
        for _ in 0..256 {
            if self.tx.queue.rx(&mut self.tx.pool, &mut self.rx_batch) == 0 {
                break;
            }
            self.tx.pool.free_batch(&mut self.rx_batch);
        }
    }
}
