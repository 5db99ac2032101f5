//! Looks for a lost wake-up: `cargo run --release -p tidegate-bench -- idle_transitions`.
//!
//! One packet is in flight at a time: the source sends the next one when the worker has taken the last,
//! after a random delay of up to a few microseconds, so that it meets the worker anywhere between its last
//! look and its sleep. The worker runs in interrupt mode: each packet is a transition to sleep, or a sleep
//! that the recheck prevents. A packet that is not taken within a second is a lost wake-up.

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::load::{Target, pair};
use bench::{Options, Report};
use clap::Parser;
use graph::fault::Random;
use graph::{IdleConfig, Mode, runner};

/// Looks for a lost wake-up.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Transitions to make, at least.
    #[arg(long, default_value_t = 10_000_000)]
    transitions: u64,
    /// Time to go on for, at least, seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Most delay before the next packet, nanoseconds.
    #[arg(long, default_value_t = 4_000)]
    delay_ns: u64,
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let cpus = io::cpu::allowed().unwrap_or_default();
    let (mut source, target) = pair(Mode::Interrupt, IdleConfig::default());
    let Target {
        worker, mut handle, ..
    } = target;
    let thread = runner::spawn(worker, cpus.get(1).copied()).expect("a thread");
    if let Some(&cpu) = cpus.first() {
        // Unpinned, the race is met less often; it is looked for all the same.
        let _ = io::cpu::pin(cpu);
    }
    let counters = Arc::clone(handle.counters());
    let mut random = Random::new(1);
    let (start, mut sent, mut lost) = (Instant::now(), 0_u64, 0_u64);
    let transitions = || counters.wakeups_packet.get() + counters.arm_ready.get();
    while transitions() < arguments.transitions
        || start.elapsed() < Duration::from_secs(arguments.seconds)
    {
        let until = io::cpu::now() + Duration::from_nanos(random.below(arguments.delay_ns + 1));
        while io::cpu::now() < until {
            spin_loop();
        }
        source.send_one();
        sent += 1;
        let patience = Instant::now();
        while counters.rx_pkts.get() < sent {
            spin_loop();
            if patience.elapsed() > Duration::from_secs(1) {
                lost += 1;
                // Wakes it, if it can be woken at all.
                source.send_one();
                sent += 1;
            }
        }
    }
    let elapsed = start.elapsed();
    let made = transitions();
    handle.drain().expect("the worker reads its mailbox");
    let report = thread.join().expect("the worker ends");
    assert_eq!(report.home, report.frames, "frames are missing");
    let mut out = Report::new("idle_transitions");
    out.figure("lost_wakeups", lost as f64);
    out.figure("transitions", made as f64);
    out.figure("sleeps", counters.wakeups_packet.get() as f64);
    out.figure("prevented_by_recheck", counters.arm_ready.get() as f64);
    out.figure("seconds", elapsed.as_secs_f64());
    out.print(&arguments.options);
}
