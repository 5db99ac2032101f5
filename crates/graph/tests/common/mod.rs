//! A two-port wire for the tests: what one port receives leaves by the other.
#![expect(dead_code, reason = "each test program uses a part of these helpers")]

use std::time::Duration;

use graph::{
    Context, EdgeId, GraphBuilder, IdleConfig, Mesh, Mode, Node, Outlets, TxFull, Worker,
    WorkerHandle, WorkerPort, WorkerSetup,
};
use io::port::{self, DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue, WorkerId, mem};
use wire::{DropReason, Instant};

/// Sends what it gets by the other of two ports; drops frames whose first byte is 0xdd.
#[derive(Debug)]
pub(crate) struct Patch;

impl Node for Patch {
    fn name(&self) -> &str {
        "patch"
    }

    fn edges(&self) -> &[&'static str] {
        &["tx"]
    }

    fn process(&mut self, _cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        for mut frame in batch.drain() {
            if frame.data().first() == Some(&0xdd) {
                out.drop(frame, DropReason::NotForUs);
            } else {
                frame.tx_port = PortId(1 - frame.rx_port.0);
                out.push(EdgeId(0), frame);
            }
        }
    }
}

/// Opens an end of a link over a pool's region.
pub(crate) fn open(pool: &Pool, id: u16, end: mem::LinkEnd, workers: u16) -> Vec<Box<dyn Queue>> {
    let spec = PortSpec::new(PortId(id), format!("p{id}"), DriverSpec::Mem(end));
    port::open(&spec, pool.region(), workers).unwrap().queues
}

/// The far end of a port: a host with a pool of its own.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) pool: Pool,
    pub(crate) queue: Box<dyn Queue>,
    batch: Batch,
}

impl Host {
    pub(crate) fn new(end: mem::LinkEnd) -> Self {
        let pool = Pool::new(1024, 2048, HugePages::Never).unwrap();
        let queue = open(&pool, 9, end, 1).remove(0);
        Self {
            pool,
            queue,
            batch: Batch::new(),
        }
    }

    /// Sends frames with these bytes; returns how many the link took.
    pub(crate) fn send(&mut self, bytes: &[u8], frames: usize) -> usize {
        let mut sent = 0;
        for _ in 0..frames {
            let Some(mut frame) = self.pool.alloc() else {
                break;
            };
            assert!(frame.fill(bytes));
            self.batch.push(frame).unwrap();
            sent += self.queue.tx(&mut self.pool, &mut self.batch);
            if !self.batch.is_empty() {
                self.pool.free_batch(&mut self.batch);
                break;
            }
        }
        sent
    }

    /// Receives everything that is there; returns how many frames.
    pub(crate) fn receive(&mut self) -> usize {
        let mut received = 0;
        loop {
            let frames = self.queue.rx(&mut self.pool, &mut self.batch);
            received += frames;
            self.pool.free_batch(&mut self.batch);
            if frames == 0 {
                return received;
            }
        }
    }
}

/// What a test chooses.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) frames: u32,
    pub(crate) mode: Mode,
    pub(crate) tx_full: TxFull,
    pub(crate) depth: usize,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            frames: 512,
            mode: Mode::Hybrid,
            tx_full: TxFull::default(),
            depth: 256,
        }
    }
}

/// Makes one worker between two hosts.
pub(crate) fn wire(config: &Wire) -> (Worker, WorkerHandle, Host, Host) {
    let spec = mem::LinkSpec {
        depth: config.depth,
        ..mem::LinkSpec::default()
    };
    let (left_far, left) = mem::link(spec);
    let (right_far, right) = mem::link(spec);
    let pool = Pool::new(config.frames, 2048, HugePages::Never).unwrap();
    let port = |id, end| WorkerPort {
        queue: Some(open(&pool, id, end, 1).remove(0)),
        tx_via: WorkerId(0),
        spread: false,
        mode: config.mode,
        tx_full: config.tx_full,
    };
    let ports = vec![port(0, left), port(1, right)];
    let setup = WorkerSetup {
        pool,
        ports,
        graph: patch_graph(),
        mesh: graph::mesh(1, 1).unwrap().remove(0),
        spread: None,
        idle: IdleConfig::default(),
        cpu_time: None,
    };
    let (worker, handle) = Worker::new(setup, Instant::ZERO);
    (worker, handle, Host::new(left_far), Host::new(right_far))
}

pub(crate) fn patch_graph() -> graph::Graph {
    let mut builder = GraphBuilder::new();
    let patch = builder.add(Box::new(Patch));
    builder.connect(patch, "tx", builder.tx()).unwrap();
    builder.input(PortId(0), patch).unwrap();
    builder.input(PortId(1), patch).unwrap();
    builder.build(2).unwrap()
}

/// Makes a mesh of workers' rings.
pub(crate) fn meshes(workers: u16, depth: usize) -> Vec<Mesh> {
    graph::mesh(workers, depth).unwrap()
}

/// Calls `done` until it is true, for at most ten seconds.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(
            std::time::Instant::now() < deadline,
            "{what} did not happen in 10 s"
        );
        std::thread::sleep(Duration::from_micros(100));
    }
}
