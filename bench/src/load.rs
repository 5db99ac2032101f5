//! Paced traffic into a worker over a ring in memory, with the latency of each packet, for the programs
//! that measure how workers wait.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use graph::{
    Context, Graph, GraphBuilder, IdleConfig, Mode, Node, Outlets, TxFull, Worker, WorkerHandle,
    WorkerPort, WorkerSetup,
};
use io::port::{self, DriverSpec, PortSpec};
use io::{BATCH_MAX, Batch, HugePages, Pool, PortId, Queue, WorkerId, mem};
use wire::Instant;

/// Frames of each side.
const FRAMES: u32 = 4096;
/// Time before a packet is due from which on the source does not sleep, nanoseconds.
const AWAKE_NS: f64 = 150_000.0;
/// A source that did not run for so long starts anew: a burst of all that was due meanwhile would show the
/// machine, not the worker.
const AWAY: Duration = Duration::from_millis(1);
/// Frames that the ring holds.
const DEPTH: usize = 2048;

/// Latencies in steps of 250 ns to 1 ms, and of 250 us to 1 s.
#[derive(Debug)]
pub struct Latencies {
    buckets: Vec<AtomicU32>,
}

const FINE: u64 = 4000;
const FINE_NS: u64 = 250;
const COARSE_NS: u64 = 250_000;

impl Latencies {
    fn new() -> Self {
        Self {
            buckets: (0..2 * FINE).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Counts one.
    #[inline]
    pub fn record(&self, latency: Duration) {
        let ns = latency.as_nanos() as u64;
        let bucket = match ns / FINE_NS {
            fine if fine < FINE => fine,
            _ => (FINE + ns / COARSE_NS).min(2 * FINE - 1),
        };
        // One writer.
        let count = &self.buckets[bucket as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Forgets all.
    pub fn reset(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
    }

    /// Returns how many were counted.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter().map(|b| b.load(Ordering::Relaxed));
        counts.map(u64::from).sum()
    }

    /// Returns a quantile, microseconds; NaN of nothing.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        let total = self.count();
        if total == 0 {
            return f64::NAN;
        }
        let rank = (total as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (index, bucket) in (0..).zip(&self.buckets) {
            seen += u64::from(bucket.load(Ordering::Relaxed));
            if seen >= rank {
                let ns = match index {
                    fine if fine < FINE => (fine + 1) * FINE_NS,
                    coarse => (coarse - FINE + 1) * COARSE_NS,
                };
                return ns as f64 / 1e3;
            }
        }
        f64::NAN
    }
}

/// Reads the stamp in each packet.
#[derive(Debug)]
struct Sink {
    latencies: Arc<Latencies>,
}

impl Node for Sink {
    fn name(&self) -> &str {
        "sink"
    }

    fn edges(&self) -> &[&'static str] {
        &[]
    }

    fn process(&mut self, _cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        let now = io::cpu::now();
        for frame in batch.drain() {
            if let Some(stamp) = frame.data().first_chunk::<8>() {
                let sent = Instant::from_ns(u64::from_ne_bytes(*stamp));
                self.latencies.record(now - sent);
            }
            out.consume(frame);
        }
    }
}

fn sink_graph(latencies: &Arc<Latencies>) -> Graph {
    let mut builder = GraphBuilder::new();
    let sink = builder.add(Box::new(Sink {
        latencies: Arc::clone(latencies),
    }));
    builder.input(PortId(0), sink).expect("one input");
    builder.build(1).expect("a complete graph")
}

/// A worker that takes what a [`Source`] sends, and what is known about it.
#[derive(Debug)]
pub struct Target {
    /// The worker, to be run on a thread.
    pub worker: Worker,
    /// The control side.
    pub handle: WorkerHandle,
    /// Latency of each packet, from the source's stamp to the node that reads it.
    pub latencies: Arc<Latencies>,
}

/// Makes a source and the worker that it sends to.
pub fn pair(mode: Mode, idle: IdleConfig) -> (Source, Target) {
    let (near, far) = mem::link(mem::LinkSpec {
        depth: DEPTH,
        ..mem::LinkSpec::default()
    });
    let pool = Pool::new(FRAMES, 2048, HugePages::Never).expect("memory for frames");
    let latencies = Arc::new(Latencies::new());
    let setup = WorkerSetup {
        ports: vec![WorkerPort {
            queue: Some(open(&pool, near)),
            tx_via: WorkerId(0),
            spread: false,
            mode,
            tx_full: TxFull::default(),
        }],
        pool,
        graph: sink_graph(&latencies),
        mesh: graph::mesh(1, 1).expect("a doorbell").remove(0),
        spread: None,
        idle,
        cpu_time: Some(io::cpu::thread_time),
    };
    let (worker, handle) = Worker::new(setup, io::cpu::now());
    let target = Target {
        worker,
        handle,
        latencies,
    };
    (Source::new(far), target)
}

fn open(pool: &Pool, end: mem::LinkEnd) -> Box<dyn Queue> {
    let spec = PortSpec::new(PortId(0), "bench", DriverSpec::Mem(end));
    port::open(&spec, pool.region(), 1)
        .map(|mut port| port.queues.remove(0))
        .expect("an in-memory port opens")
}

/// Sends stamped packets at a rate, at independent times (exponential gaps), as many small senders do.
#[derive(Debug)]
pub struct Source {
    pool: Pool,
    queue: Box<dyn Queue>,
    batch: Batch,
    random: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets for which the ring had no room.
    pub refused: u64,
}

impl Source {
    fn new(end: mem::LinkEnd) -> Self {
        let pool = Pool::new(FRAMES, 2048, HugePages::Never).expect("memory for frames");
        let queue = open(&pool, end);
        Self {
            pool,
            queue,
            batch: Batch::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            sent: 0,
            refused: 0,
        }
    }

    /// Sends `rate_pps` for `time` and returns; `f64::INFINITY` sends as fast as the ring takes. What was due
    /// while the machine had the core away for long is not made up for.
    pub fn send(&mut self, rate_pps: f64, time: Duration) {
        let start = io::cpu::now();
        if rate_pps == 0.0 {
            std::thread::sleep(time);
            return;
        }
        let gap_ns = 1e9 / rate_pps;
        let mut next_ns = start.as_ns() as f64 + self.gap(gap_ns);
        let mut last = start;
        loop {
            let now = io::cpu::now();
            if now - start >= time {
                return;
            }
            let early_ns = next_ns - now.as_ns() as f64;
            if early_ns > 2.0 * AWAKE_NS {
                // Others may have the core until shortly before the next packet.
                let left = (time - (now - start)).as_nanos() as f64;
                let sleep_ns = (early_ns - AWAKE_NS).min(left);
                std::thread::sleep(Duration::from_nanos(sleep_ns as u64));
                last = io::cpu::now();
                continue;
            }
            if now - last > AWAY {
                next_ns = now.as_ns() as f64 + self.gap(gap_ns);
            }
            last = now;
            while next_ns <= now.as_ns() as f64 && !self.batch.is_full() {
                next_ns += self.gap(gap_ns);
                let Some(mut frame) = self.pool.alloc() else {
                    self.refused += 1;
                    break;
                };
                frame.set_len(60);
                frame.data_mut()[..8].copy_from_slice(&now.as_ns().to_ne_bytes());
                // The batch is not full.
                let _ = self.batch.push(frame);
            }
            self.flush();
        }
    }

    fn flush(&mut self) {
        let sent = self.queue.tx(&mut self.pool, &mut self.batch);
        self.sent += sent as u64;
        if !self.batch.is_empty() {
            self.refused += self.batch.len() as u64;
            self.pool.free_batch(&mut self.batch);
        }
    }

    /// Sends one packet now.
    pub fn send_one(&mut self) {
        if let Some(mut frame) = self.pool.alloc() {
            frame.set_len(60);
            frame.data_mut()[..8].copy_from_slice(&io::cpu::now().as_ns().to_ne_bytes());
            let _ = self.batch.push(frame);
        }
        self.flush();
    }

    /// Sends a full batch, as far as there are frames and room.
    pub fn send_burst(&mut self) {
        self.pool.alloc_batch(BATCH_MAX, &mut self.batch);
        let now = io::cpu::now();
        for frame in self.batch.iter_mut() {
            frame.set_len(60);
            frame.data_mut()[..8].copy_from_slice(&now.as_ns().to_ne_bytes());
        }
        self.flush();
    }

    fn gap(&mut self, mean_ns: f64) -> f64 {
        if !mean_ns.is_finite() || mean_ns == 0.0 {
            return 0.0;
        }
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        -mean_ns * (1.0 - uniform).ln()
    }
}

/// Reads how long threads were on a CPU, from outside.
#[derive(Debug)]
pub struct ThreadClock {
    path: String,
}

impl ThreadClock {
    /// Finds a thread of this process by its name, within a second.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn of(name: &str) -> Self {
        for _ in 0..1000 {
            for task in fs::read_dir("/proc/self/task").expect("/proc").flatten() {
                let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                if comm.trim() == name {
                    let path = task.path().join("schedstat").display().to_string();
                    return Self { path };
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no thread is called {name}");
    }

    /// Returns the time on a CPU so far.
    pub fn read(&self) -> Duration {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let ns = text
            .split_whitespace()
            .next()
            .and_then(|ns| ns.parse().ok());
        Duration::from_nanos(ns.unwrap_or(0))
    }
}
