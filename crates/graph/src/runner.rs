//! Threads and clocks around workers.

use std::io;
use std::thread::JoinHandle;

use ::io::cpu;
use ::io::wait::{PollSet, Woken};
use wire::Instant;

use crate::worker::{DrainReport, Next, Sleep, Wake, Worker};

/// A running worker's thread.
#[derive(Debug)]
pub struct WorkerThread {
    /// The CPU that it is pinned to, if that was asked for and allowed.
    pub cpu: Option<u16>,
    thread: JoinHandle<DrainReport>,
}

impl WorkerThread {
    /// Waits for the worker to end (tell it by [`crate::WorkerHandle::drain`]) and returns how it did;
    /// `None` if it panicked.
    pub fn join(self) -> Option<DrainReport> {
        self.thread.join().ok()
    }

    /// Tells whether the worker has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts a worker's thread, pinned to `cpu` if given; where the kernel does not allow that, it runs
/// unpinned and says so in [`WorkerThread::cpu`].
///
/// # Errors
/// No thread can be made.
pub fn spawn(worker: Worker, cpu: Option<u16>) -> io::Result<WorkerThread> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name(format!("worker-{}", worker.id()))
        .spawn(move || {
            let pinned = cpu.filter(|&cpu| cpu::pin(cpu).is_ok());
            // The starter waits for it.
            let _ = tell.send(pinned);
            run(worker)
        })?;
    Ok(WorkerThread {
        cpu: told.recv().ok().flatten(),
        thread,
    })
}

/// Runs a worker on this thread until it ends.
pub fn run(mut worker: Worker) -> DrainReport {
    // Without it naps are up to 50 us late: they still work.
    let _ = cpu::set_timer_slack_ns(1);
    let mut set = PollSet::with_capacity(16);
    loop {
        match worker.step(cpu::now()) {
            Next::Again => core::hint::spin_loop(),
            Next::Nap(length) => {
                let start = cpu::now();
                std::thread::sleep(length);
                worker.napped(length, start, cpu::now());
            }
            Next::Block(until) => block(&mut worker, &mut set, until),
            Next::Stopped => break,
        }
    }
    worker.report().unwrap_or(DrainReport {
        frames: 0,
        home: 0,
        kept_by_drivers: 0,
        dropped_pkts: 0,
    })
}

fn block(worker: &mut Worker, set: &mut PollSet, until: Option<Instant>) {
    let now = cpu::now();
    let Some(sleep) = worker.arm(set, now) else {
        return;
    };
    let timer = until.map(|until| until - now);
    let timeout = match sleep {
        Sleep::Block => timer,
        Sleep::Nap(length) => Some(timer.map_or(length, |timer| timer.min(length))),
    };
    let bell = 1 << (set.len() - 1).min(63);
    let wake = match set.wait(timeout) {
        Woken::Readable(bits) if bits != bell => Wake::Packet,
        Woken::Readable(_) | Woken::Interrupted => Wake::Message,
        Woken::TimedOut => Wake::Timer,
    };
    worker.woke(wake, cpu::now());
}
