//! The tester over an in-memory link whose faults and rate are known exactly, in virtual time: a busy
//! machine changes nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use io::{Arm, Batch, Capabilities, HugePages, Interrupt, Pool, Queue, QueueStats};
use lab::rfc2544::{Limit, Options, measure_throughput};
use lab::traffic::{Endpoint, Load, Profile, Tester, TrialPlan};

/// What the link does to the frames, by their order.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    drop_every: u64,
    duplicate_every: u64,
    /// Swap this frame with the one after it.
    swap_every: u64,
    /// Frames that the link holds; more are lost.
    capacity: usize,
    /// Frames the link lets through a second; 0 is no limit.
    rate_pps: u64,
}

#[derive(Debug, Default)]
struct Wire {
    faults: Faults,
    frames: VecDeque<Vec<u8>>,
    held: Option<Vec<u8>>,
    count: u64,
    released: u64,
    /// Virtual time, shared with the tester.
    now_ns: Arc<AtomicU64>,
}

/// Virtual nanoseconds that pass between two looks at the clock.
const TICK_NS: u64 = 500;

#[derive(Debug)]
struct End {
    send: Arc<Mutex<Wire>>,
    receive: Arc<Mutex<Wire>>,
    capabilities: Capabilities,
}

fn every(n: u64, count: u64) -> bool {
    n > 0 && count.is_multiple_of(n)
}

impl Wire {
    fn put(&mut self, frame: Vec<u8>) {
        self.count += 1;
        if every(self.faults.drop_every, self.count) {
            return;
        }
        if self.frames.len() >= self.faults.capacity {
            return;
        }
        if every(self.faults.swap_every, self.count) {
            self.held = Some(frame);
            return;
        }
        if every(self.faults.duplicate_every, self.count) {
            self.frames.push_back(frame.clone());
        }
        self.frames.push_back(frame);
        self.frames.extend(self.held.take());
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        if self.faults.rate_pps > 0 {
            let now_ns = self.now_ns.load(Ordering::Relaxed);
            let allowed =
                (u128::from(now_ns) * u128::from(self.faults.rate_pps) / 1_000_000_000) as u64;
            // An idle link saves up nothing.
            if self.frames.is_empty() {
                self.released = allowed;
            }
            if self.released >= allowed {
                return None;
            }
        }
        self.released += 1;
        self.frames.pop_front()
    }
}

impl Queue for End {
    fn rx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut wire = self.receive.lock().unwrap();
        let mut count = 0;
        while !batch.is_full() {
            let Some(bytes) = wire.take() else { break };
            let mut frame = pool.alloc().unwrap();
            assert!(frame.fill(&bytes));
            batch.push(frame).unwrap();
            count += 1;
        }
        count
    }

    fn tx(&mut self, pool: &mut Pool, batch: &mut Batch) -> usize {
        let mut wire = self.send.lock().unwrap();
        let count = batch.len();
        for frame in batch.drain() {
            wire.put(frame.data().to_vec());
            pool.free(frame);
        }
        count
    }

    fn arm(&mut self) -> Arm<'_> {
        Arm::Unsupported
    }
    fn disarm(&mut self) {}
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
    fn close(&mut self, _pool: &mut Pool) -> usize {
        0
    }
}

fn tester(faults: Faults) -> Tester {
    let now_ns = Arc::new(AtomicU64::new(0));
    let there = Arc::new(Mutex::new(Wire {
        faults,
        now_ns: Arc::clone(&now_ns),
        ..Wire::default()
    }));
    let back = Arc::new(Mutex::new(Wire::default()));
    let end = |send: &Arc<Mutex<Wire>>, receive: &Arc<Mutex<Wire>>| Endpoint {
        queue: Box::new(End {
            send: Arc::clone(send),
            receive: Arc::clone(receive),
            capabilities: Capabilities {
                driver: "test",
                mode: "faulty".into(),
                interrupt: Interrupt::None,
                max_frame_bytes: 1514,
                zero_copy: false,
                rss: false,
                offloads: io::Offloads::empty(),
                refused: Vec::new(),
            },
        }),
        pool: Pool::new(256, 2048, HugePages::Never).unwrap(),
    };
    Tester::with_clock(end(&there, &back), end(&back, &there), move || {
        now_ns.fetch_add(TICK_NS, Ordering::Relaxed)
    })
}

fn profile(flows: u32) -> Profile {
    Profile::new(
        128,
        ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
        ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        flows,
        7,
    )
    .unwrap()
}

#[test]
fn a_clean_link_loses_nothing() {
    let mut tester = tester(Faults {
        capacity: 1000,
        ..Faults::default()
    });
    for _ in 0..300 {
        let trial = tester.run(&profile(100), &TrialPlan::burst(100));
        assert_eq!((trial.sent_pkts, trial.received_pkts), (100, 100));
        assert_eq!((trial.lost_pkts, trial.duplicate_pkts), (0, 0));
        assert_eq!((trial.reordered_pkts, trial.foreign_pkts), (0, 0));
    }
    assert_eq!(tester.close(), 0);
}

#[test]
fn every_fault_is_counted_as_what_it_is() {
    let faults = Faults {
        capacity: 1 << 20,
        ..Faults::default()
    };
    let run = |faults: Faults| tester(faults).run(&profile(1), &TrialPlan::burst(10_000));
    let trial = run(Faults {
        drop_every: 10,
        ..faults
    });
    assert_eq!((trial.sent_pkts, trial.lost_pkts), (10_000, 1_000));
    assert_eq!((trial.duplicate_pkts, trial.reordered_pkts), (0, 0));
    let trial = run(Faults {
        duplicate_every: 7,
        ..faults
    });
    assert_eq!((trial.lost_pkts, trial.duplicate_pkts), (0, 10_000 / 7));
    let trial = run(Faults {
        swap_every: 11,
        ..faults
    });
    assert_eq!((trial.lost_pkts, trial.reordered_pkts), (0, 10_000 / 11));
}

#[test]
fn frames_of_an_earlier_trial_are_foreign() {
    let faults = Faults {
        capacity: 1 << 20,
        rate_pps: 100_000,
        ..Faults::default()
    };
    let mut tester = tester(faults);
    let plan = TrialPlan {
        drain: Duration::ZERO,
        ..TrialPlan::burst(2_000)
    };
    let first = tester.run(&profile(1), &plan);
    assert!(first.lost_pkts > 0, "the link is slow: {first:?}");
    let patient = TrialPlan {
        drain: Duration::from_secs(2),
        ..TrialPlan::burst(10)
    };
    let second = tester.run(&profile(1), &patient);
    assert_eq!(second.received_pkts, 10);
    assert_eq!(second.foreign_pkts, first.lost_pkts);
}

#[test]
fn the_offered_rate_is_what_was_asked_for() {
    let mut tester = tester(Faults {
        capacity: 1 << 20,
        ..Faults::default()
    });
    for pps in [1_000.0, 50_000.0, 1_234_567.0] {
        let plan = TrialPlan::new(Load::Rate(pps), Duration::from_millis(500));
        let trial = tester.run(&profile(10), &plan);
        let error = (trial.offered_pps - pps).abs() / pps;
        assert!(error < 0.001, "{trial:?}");
        assert_eq!(trial.lost_pkts, 0);
        // The link is as fast as the tester looks: one tick.
        let latency = trial.latency.unwrap();
        assert!(
            latency.p99_us <= 2.0 * TICK_NS as f64 / 1000.0,
            "{latency:?}"
        );
    }
}

#[test]
fn the_search_finds_the_rate_of_a_link() {
    let faults = Faults {
        capacity: 64,
        rate_pps: 40_000,
        ..Faults::default()
    };
    let mut tester = tester(faults);
    let profile = profile(10);
    let options = Options {
        retries: 0,
        max_pps: Some(400_000.0),
        trial: Duration::from_millis(250),
        ..Options::default()
    };
    let found = measure_throughput(&options, &mut |plan| tester.run(&profile, plan));
    assert_eq!(found.limit, Limit::Device);
    // A trial of 250 ms passes 64 frames more than the rate: they wait in the link at the end.
    let most = 40_000.0 + 64.0 / 0.25;
    assert!(
        (40_000.0 * 0.989..=most * 1.001).contains(&found.zero_loss_pps),
        "{found:?}"
    );
}
