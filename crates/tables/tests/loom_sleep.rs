//! Loom models of going to sleep: no wake-up is lost, and the naive order loses one. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --test loom_sleep --release`.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use tables::ring::{Consumer, Producer, spsc};
use tables::sleep::SleepFlag;

/// The flag and what it guards: an eventfd, for which loom's `Notify` stands.
#[derive(Default)]
struct Bell {
    flag: SleepFlag,
    event: Notify,
}

impl Bell {
    fn ring(&self) {
        if self.flag.must_wake() {
            self.event.notify();
        }
    }
}

/// Publishes one item at a time, ringing after each.
fn produce(mut ring: Producer<u32>, bell: &Bell, items: u32) {
    for item in 0..items {
        ring.push(item).unwrap();
        bell.ring();
    }
}

/// Arm, recheck, sleep: as a worker does.
fn consume(ring: &mut Consumer<u32>, bell: &Bell, items: u32) {
    let mut next = 0;
    while next < items {
        if let Some(item) = ring.pop() {
            assert_eq!(item, next);
            next += 1;
            continue;
        }
        bell.flag.arm(false);
        if ring.is_empty() {
            bell.event.wait();
        }
        bell.flag.disarm();
    }
}

#[test]
fn no_wake_up_is_lost() {
    const ITEMS: u32 = 2;
    loom::model(|| {
        let bell = Arc::new(Bell::default());
        let (producer, mut consumer) = spsc(4);
        let ringer = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || produce(producer, &bell, ITEMS))
        };
        consume(&mut consumer, &bell, ITEMS);
        ringer.join().unwrap();
    });
}

/// Two producers (another worker's ring and the control side's mailbox), one sleeper; up to two
/// preemptions, which keeps the model to seconds.
#[test]
fn no_wake_up_is_lost_with_two_producers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let bell = Arc::new(Bell::default());
        let mut rings = Vec::new();
        let mut ringers = Vec::new();
        for _ in 0..2 {
            let (producer, consumer) = spsc(2);
            rings.push(consumer);
            let bell = Arc::clone(&bell);
            ringers.push(thread::spawn(move || produce(producer, &bell, 1)));
        }
        let mut seen = 0;
        while seen < 2 {
            let before = seen;
            seen += rings.iter_mut().filter_map(Consumer::pop).count();
            if seen > before {
                continue;
            }
            bell.flag.arm(false);
            if rings.iter_mut().all(|ring| ring.is_empty()) {
                bell.event.wait();
            }
            bell.flag.disarm();
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
    });
}

/// A worker without frames sleeps until another gives some back.
#[test]
fn a_hungry_sleeper_is_woken_by_what_comes_back() {
    loom::model(|| {
        let bell = Arc::new(Bell::default());
        let (mut home, mut returned) = spsc(2);
        let peer = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || {
                home.push(7_u32).unwrap();
                if bell.flag.must_wake_hungry() {
                    bell.event.notify();
                }
            })
        };
        loop {
            if let Some(frame) = returned.pop() {
                assert_eq!(frame, 7);
                break;
            }
            bell.flag.arm(true);
            if returned.is_empty() {
                bell.event.wait();
            }
            bell.flag.disarm();
        }
        peer.join().unwrap();
    });
}

/// Look, then arm, then sleep: loom finds the interleaving in which work published between the look and
/// the arming rings for nobody, and the sleeper never wakes. (A counter stands for the ring, and the
/// objects are leaked: destructors cannot run in a model that has failed.)
#[test]
#[should_panic(expected = "deadlock")]
fn the_naive_order_loses_a_wake_up() {
    loom::model(|| {
        let (bell, published) = &*Box::leak(Box::new((Bell::default(), AtomicU32::new(0))));
        let ringer = thread::spawn(move || {
            published.store(1, Ordering::Release);
            bell.ring();
        });
        core::mem::forget(ringer);
        if published.load(Ordering::Acquire) == 0 {
            bell.flag.arm(false);
            bell.event.wait();
        }
    });
}
