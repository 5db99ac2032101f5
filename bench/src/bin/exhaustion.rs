//! Shows what happens when a node has no memory left for packets, and that no frame is ever lost to the
//! books: `cargo run --release -p tidegate-bench --bin exhaustion`.
//!
//! Source, node and sink are joined by `mem` links, each with frames of its own. Every so often somebody
//! holds all of the node's free frames: what arrives then must be counted, nothing may stall, and traffic
//! must pass again within a millisecond of the frames' return (IO-2, transition 6). In the end frames
//! sent must equal frames received and frames counted as refused, and every pool must be full.

use std::time::Instant;

use bench::{Options, Report, Table, median};
use clap::Parser;
use io::port::{self, DriverSpec, PortSpec};
use io::{Batch, Frame, HugePages, Pool, PortId, Queue, mem};
use serde_json::json;

const FRAME_BYTES: usize = 60;
const BURST: usize = 32;
const NODE_FRAMES: u32 = 1024;

/// Shows what happens when a node has no memory left for packets.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Frames to forward in all.
    #[arg(long, default_value_t = 100_000_000)]
    frames: u64,
    /// How often to take the node's memory away.
    #[arg(long, default_value_t = 200)]
    exhaustions: u64,
}

/// A port and the frames for it.
struct End {
    queue: Box<dyn Queue>,
    pool: Pool,
    batch: Batch,
}

impl End {
    fn new(link: mem::LinkEnd, frames: u32) -> Self {
        let pool = Pool::new(frames, 2048, HugePages::Auto).expect("memory for frames");
        Self {
            queue: open(link, &pool),
            pool,
            batch: Batch::new(),
        }
    }

    /// Tells how many frames are missing from the pool once the port is closed.
    fn close(mut self) -> u64 {
        let kept = self.queue.close(&mut self.pool);
        self.pool.free_batch(&mut self.batch);
        (kept + self.pool.capacity() - self.pool.available()) as u64
    }
}

fn open(link: mem::LinkEnd, pool: &Pool) -> Box<dyn Queue> {
    let spec = PortSpec::new(PortId(0), "bench", DriverSpec::Mem(link));
    let mut port = port::open(&spec, pool.region(), 1).expect("a mem port opens");
    port.queues.remove(0)
}

/// Source, node and sink.
struct Chain {
    source: End,
    node: End,
    node_tx: Box<dyn Queue>,
    sink: End,
    sent: u64,
    received: u64,
    slowest_turn_us: f64,
}

impl Chain {
    fn new() -> Self {
        let (source, node_rx) = mem::link(mem::LinkSpec::default());
        let (node_tx, sink) = mem::link(mem::LinkSpec::default());
        let node = End::new(node_rx, NODE_FRAMES);
        Self {
            source: End::new(source, NODE_FRAMES),
            node_tx: open(node_tx, &node.pool),
            node,
            sink: End::new(sink, NODE_FRAMES),
            sent: 0,
            received: 0,
            slowest_turn_us: 0.0,
        }
    }

    fn send(&mut self) {
        let source = &mut self.source;
        source.pool.alloc_batch(BURST, &mut source.batch);
        for frame in source.batch.iter_mut() {
            frame.set_len(FRAME_BYTES);
        }
        self.sent += source.queue.tx(&mut source.pool, &mut source.batch) as u64;
        source.pool.free_batch(&mut source.batch);
    }

    fn forward(&mut self) {
        let node = &mut self.node;
        node.queue.rx(&mut node.pool, &mut node.batch);
        self.node_tx.tx(&mut node.pool, &mut node.batch);
    }

    fn receive(&mut self) -> usize {
        let sink = &mut self.sink;
        let received = sink.queue.rx(&mut sink.pool, &mut sink.batch);
        sink.pool.free_batch(&mut sink.batch);
        // Gives frames that the sink has copied back to the node.
        sink.queue.tx(&mut sink.pool, &mut sink.batch);
        self.received += received as u64;
        received
    }

    fn turn(&mut self) -> usize {
        self.send();
        self.forward();
        self.receive()
    }

    /// Takes the node's memory away, offers frames, gives the memory back; returns the time from there to
    /// the next frame received, microseconds.
    fn exhaust(&mut self) -> f64 {
        let mut held: Vec<Frame> = Vec::with_capacity(NODE_FRAMES as usize);
        for _ in 0..8 {
            // A few turns, since frames are also on their way.
            held.extend(core::iter::from_fn(|| self.node.pool.alloc()));
            let start = Instant::now();
            self.turn();
            self.slowest_turn_us = self.slowest_turn_us.max(us_since(start));
        }
        for frame in held {
            self.node.pool.free(frame);
        }
        let start = Instant::now();
        while self.turn() == 0 && us_since(start) < 1e6 {}
        us_since(start)
    }

    /// Lets everything that is on its way arrive; returns what every counter says about refusals.
    fn settle(&mut self) -> u64 {
        for _ in 0..16 {
            self.forward();
            self.receive();
        }
        self.refused()
    }

    fn refused(&self) -> u64 {
        let node = self.node.queue.stats();
        let sink = self.sink.queue.stats();
        node.rx_no_frame_pkts + node.rx_ring_full_pkts + sink.rx_no_frame_pkts
    }

    /// Ends it all; returns how many frames are missing from the pools.
    fn close(mut self) -> u64 {
        self.node_tx.close(&mut self.node.pool);
        self.node.close() + self.source.close() + self.sink.close()
    }
}

fn us_since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1000.0
}

fn main() {
    let arguments = Arguments::parse();
    let mut chain = Chain::new();
    let mut recoveries_us = Vec::new();
    let every = arguments.frames / (arguments.exhaustions + 1);
    let started = Instant::now();
    for round in 1..=arguments.exhaustions + 1 {
        while chain.sent < round * every {
            chain.turn();
        }
        if round <= arguments.exhaustions {
            recoveries_us.push(chain.exhaust());
        }
    }
    while chain.received < arguments.frames {
        chain.turn();
    }
    let seconds = started.elapsed().as_secs_f64();
    let refused = chain.settle();
    let (sent, received, slowest) = (chain.sent, chain.received, chain.slowest_turn_us);
    let missing = chain.close();
    let uncounted = sent.abs_diff(received + refused);

    let mut report = Report::new("exhaustion");
    let worst = recoveries_us.iter().copied().fold(0.0, f64::max);
    report.figure("worst_recovery_us", worst);
    report.figure("slowest_turn_us", slowest);
    report.figure("forwarded_pkts", received as f64);
    report.figure("refused_pkts", refused as f64);
    report.figure("uncounted_pkts", uncounted as f64);
    report.figure("unaccounted_pkts", (uncounted + missing) as f64);
    report.figure("forward_mpps", received as f64 / seconds / 1e6);
    let mut table = Table::new("Memory taken away and given back", &["what", "value"]);
    table.rows = vec![
        vec![
            json!("times the memory was taken away"),
            json!(recoveries_us.len()),
        ],
        vec![json!("frames sent"), json!(sent)],
        vec![json!("frames received"), json!(received)],
        vec![json!("frames refused and counted"), json!(refused)],
        vec![
            json!("frames missing from the pools in the end"),
            json!(missing),
        ],
        vec![
            json!("next frame after the return, median, us"),
            json!(median(&recoveries_us)),
        ],
        vec![
            json!("next frame after the return, slowest, us"),
            json!(worst),
        ],
        vec![json!("slowest turn without memory, us"), json!(slowest)],
    ];
    report.table(table);
    report.print(&arguments.options);
}
