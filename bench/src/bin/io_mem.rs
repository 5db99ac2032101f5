//! Measures the in-memory L2 forward of one core: `cargo run --release -p tidegate-bench --bin io_mem`.
//!
//! Every row is one forward a frame: receive a burst, work, send. Rounds of all rows are interleaved, so
//! that what disturbs the machine disturbs all; a row's figure is the median of its rounds. The `limit`
//! row is the same work on bare indices and arrays: no pool, no metadata, no driver.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use io::port::{self, DriverSpec, PortSpec};
use io::{BATCH_MAX, Batch, HugePages, Pool, PortId, Queue, mem, null};
use serde::Serialize;

/// Bytes of a frame without FCS: 64 on the wire.
const FRAME_BYTES: usize = 60;
/// Bytes of a slot.
const SLOT_BYTES: usize = 2048;

#[derive(Serialize)]
struct Report {
    bench: &'static str,
    frames: u32,
    frame_bytes: usize,
    burst: usize,
    rounds: usize,
    round_ms: u64,
    pages: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    what: &'static str,
    mpps_median: f64,
    mpps_min: f64,
    mpps_max: f64,
}

/// Something that forwards frames for a given time and returns how many.
trait Forwarder {
    fn run(&mut self, until: Instant) -> u64;
}

/// Calls `burst` in blocks of a thousand between two looks at the clock.
fn clocked(until: Instant, mut burst: impl FnMut() -> usize) -> u64 {
    let mut frames = 0;
    while Instant::now() < until {
        for _ in 0..256 {
            frames += burst() as u64;
        }
    }
    frames
}

fn swap_macs(bytes: &mut [u8]) {
    if let Some((destination, rest)) = bytes.split_first_chunk_mut::<6>()
        && let Some(source) = rest.first_chunk_mut::<6>()
    {
        core::mem::swap(destination, source);
    }
}

/// Two queues and what is done in between.
struct Queues {
    rx: Box<dyn Queue>,
    tx: Option<Box<dyn Queue>>,
    pool: Pool,
    batch: Batch,
    swap: bool,
}

impl Forwarder for Queues {
    fn run(&mut self, until: Instant) -> u64 {
        clocked(until, || {
            self.rx.rx(&mut self.pool, &mut self.batch);
            if self.swap {
                for frame in self.batch.iter_mut() {
                    swap_macs(frame.data_mut());
                }
            }
            let tx = self.tx.as_mut().unwrap_or(&mut self.rx);
            let sent = tx.tx(&mut self.pool, &mut self.batch);
            self.pool.free_batch(&mut self.batch);
            sent
        })
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.rx.close(&mut self.pool);
        if let Some(tx) = &mut self.tx {
            tx.close(&mut self.pool);
        }
    }
}

fn open(pool: &Pool, id: u16, driver: DriverSpec) -> Box<dyn Queue> {
    let spec = PortSpec::new(PortId(id), "bench", driver);
    port::open(&spec, pool.region(), 1)
        .map(|mut port| port.queues.remove(0))
        .expect("an in-memory port opens")
}

fn new_pool(frames: u32) -> Pool {
    Pool::new(frames, SLOT_BYTES as u32, HugePages::Auto).expect("memory for frames")
}

/// All frames circle: what is sent on one end of a link is received on the other.
fn mem_forward(frames: u32) -> Queues {
    let mut pool = new_pool(frames);
    let (left, right) = mem::link(mem::LinkSpec {
        depth: frames as usize,
        ..mem::LinkSpec::default()
    });
    let rx = open(&pool, 0, DriverSpec::Mem(left));
    let mut tx = open(&pool, 1, DriverSpec::Mem(right));
    let mut batch = Batch::new();
    while pool.alloc_batch(BATCH_MAX, &mut batch) > 0 {
        for frame in batch.iter_mut() {
            frame.set_len(FRAME_BYTES);
        }
        tx.tx(&mut pool, &mut batch);
    }
    Queues {
        rx,
        tx: Some(tx),
        pool,
        batch,
        swap: true,
    }
}

fn null_forward(frames: u32, burst: usize, copy: bool, swap: bool) -> Queues {
    let pool = new_pool(frames);
    let spec = null::NullSpec {
        templates: vec![vec![0; FRAME_BYTES]],
        copy,
        burst,
    };
    Queues {
        rx: open(&pool, 0, DriverSpec::Null(spec)),
        tx: None,
        pool,
        batch: Batch::new(),
        swap,
    }
}

/// The same circle on bare indices.
struct Limit {
    slots: Vec<[u8; SLOT_BYTES]>,
    ring: Vec<u32>,
    head: usize,
    burst: usize,
}

impl Limit {
    fn new(frames: u32, burst: usize) -> Self {
        Self {
            slots: vec![[0; SLOT_BYTES]; frames as usize],
            ring: (0..frames.next_power_of_two())
                .map(|i| i % frames)
                .collect(),
            head: 0,
            burst,
        }
    }
}

impl Forwarder for Limit {
    fn run(&mut self, until: Instant) -> u64 {
        let mask = self.ring.len() - 1;
        clocked(until, || {
            for i in 0..self.burst {
                // Out of the ring and into it again, at the same place.
                let place = &mut self.ring[(self.head + i) & mask];
                let index = black_box(*place);
                swap_macs(&mut self.slots[index as usize]);
                *place = index;
            }
            self.head += self.burst;
            self.burst
        })
    }
}

fn argument(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|a| a != name);
    match (arguments.next(), arguments.next()) {
        (Some(_), Some(value)) => value.parse().unwrap_or_else(|_| {
            eprintln!("io_mem: {name} wants a number, not {value}");
            std::process::exit(2)
        }),
        _ => default,
    }
}

fn main() {
    let frames = argument("--frames", 4096) as u32;
    let rounds = argument("--rounds", 9) as usize;
    let round_ms = argument("--round-ms", 50);
    let burst = (argument("--burst", 32) as usize).clamp(1, BATCH_MAX);
    let mem = mem_forward(frames);
    let pages = format!("{:?}", mem.pool.region().pages());
    let mut forwarders: Vec<(&str, &str, Box<dyn Forwarder>)> = vec![
        (
            "limit",
            "MAC swap over indices in an array: no pool, metadata or driver",
            Box::new(Limit::new(frames, burst)),
        ),
        ("mem_l2", "mem port to mem port, MAC swap", Box::new(mem)),
        (
            "null_io",
            "null port to null port, frames untouched (testpmd io over net_null)",
            Box::new(null_forward(frames, burst, false, false)),
        ),
        (
            "null_l2",
            "null port to null port, MAC swap",
            Box::new(null_forward(frames, burst, false, true)),
        ),
        (
            "null_copy_l2",
            "as null_l2, each received frame copied from a template (net_null copy=1)",
            Box::new(null_forward(frames, burst, true, true)),
        ),
    ];
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..=rounds {
        for (name, _, forwarder) in &mut forwarders {
            let start = Instant::now();
            let frames = forwarder.run(start + Duration::from_millis(round_ms));
            let mpps = frames as f64 / start.elapsed().as_secs_f64() / 1e6;
            // The first round warms up.
            if round > 0 {
                figures.entry(name).or_default().push(mpps);
            }
        }
    }
    let rows = forwarders
        .iter()
        .map(|(name, what, _)| row(name, what, figures.remove(name).unwrap_or_default()))
        .collect();
    let report = Report {
        bench: "io_mem",
        frames,
        frame_bytes: FRAME_BYTES,
        burst,
        rounds,
        round_ms,
        pages,
        rows,
    };
    println!(
        "{}",
        serde_json::to_string_pretty(&report).expect("a report is JSON")
    );
}

fn row(name: &'static str, what: &'static str, mut mpps: Vec<f64>) -> Row {
    mpps.sort_by(f64::total_cmp);
    let at = |i: usize| mpps.get(i).copied().unwrap_or(0.0);
    Row {
        name,
        what,
        mpps_median: at(mpps.len() / 2),
        mpps_min: at(0),
        mpps_max: at(mpps.len().saturating_sub(1)),
    }
}
