//! One worker, stepped by hand with a clock of the test's, whose ports are links inside this process.

use std::sync::Arc;
use std::time::Duration;

use control::Config;
use dataplane::{PortFacts, topology};
use graph::{
    IdleConfig, Mode, NodeCounters, TxFull, Worker, WorkerCounters, WorkerHandle, WorkerPort,
    WorkerSetup,
};
use io::port::{DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue, WorkerId, mem};
use wire::{Instant, MacAddr};

/// Frames that the worker has.
const FRAMES: u32 = 512;

pub(crate) struct Rig {
    worker: Worker,
    handle: WorkerHandle,
    peers: Vec<Box<dyn Queue>>,
    pool: Pool,
    pub(crate) shared: topology::Shared,
    pub(crate) now: Instant,
    sent: u64,
}

/// The MAC address of the node's port.
pub(crate) fn node_mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, port, 1])
}

/// The MAC address of the station on the other end of a port's link.
pub(crate) fn peer_mac(port: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, port, 2])
}

impl Rig {
    /// Builds the worker of a configuration.
    pub(crate) fn new(config: &str) -> Self {
        let config: Config = toml::from_str(config).expect("the configuration is TOML");
        let facts: Vec<_> = (0..config.port.len() as u8)
            .map(|port| PortFacts {
                mac: node_mac(port),
                mtu: 1500,
            })
            .collect();
        let shared = topology::shared(&config, &facts, 0x1357_9bdf_0246_8ace).expect("a plan");
        let pool = |frames| Pool::new(frames, 2048, HugePages::Never).expect("a pool");
        let (node_pool, peer_pool) = (pool(FRAMES), pool(4096));
        let mut ports = Vec::new();
        let mut peers = Vec::new();
        for port in 0..config.port.len() {
            let (inner, outer) = mem::link(mem::LinkSpec::default());
            let open = |end, pool: &Pool| {
                let spec = PortSpec::new(PortId(port as u16), "link", DriverSpec::Mem(end));
                let mut open = io::port::open(&spec, pool.region(), 1).expect("a port");
                open.queues.remove(0)
            };
            ports.push(WorkerPort {
                queue: Some(open(inner, &node_pool)),
                tx_via: WorkerId(0),
                spread: false,
                mode: Mode::Interrupt,
                tx_full: TxFull::default(),
            });
            peers.push(open(outer, &peer_pool));
        }
        let graph =
            topology::graph(&shared, WorkerId(0), 1, node_pool.capacity()).expect("a graph");
        let setup = WorkerSetup {
            pool: node_pool,
            ports,
            graph,
            mesh: graph::mesh(1, 16).expect("a mesh").remove(0),
            spread: None,
            idle: IdleConfig::default(),
            cpu_time: None,
        };
        let now = Instant::ZERO + Duration::from_secs(1);
        let (worker, handle) = Worker::new(setup, now);
        let mut rig = Self {
            worker,
            handle,
            peers,
            pool: peer_pool,
            shared,
            now,
            sent: 0,
        };
        // What the node says about itself at its start is not what the tests look at.
        rig.run();
        for port in 0..rig.peers.len() {
            rig.received(port);
        }
        rig
    }

    /// Sends a frame into a port of the node.
    pub(crate) fn send(&mut self, port: usize, bytes: &[u8]) {
        let mut frame = self.pool.alloc().expect("the test's pool has a frame");
        assert!(frame.fill(bytes), "{} bytes fit", bytes.len());
        let mut batch = Batch::new();
        batch.push(frame).expect("an empty batch has room");
        assert_eq!(
            self.peers[port].tx(&mut self.pool, &mut batch),
            1,
            "the link has room"
        );
        self.sent += 1;
    }

    /// Lets the worker do all that there is to do now.
    pub(crate) fn run(&mut self) {
        for _ in 0..4 {
            self.worker.step(self.now);
        }
    }

    /// Lets time pass, a second at a time.
    pub(crate) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            self.run();
        }
    }

    /// Takes the frames that a port of the node sent.
    pub(crate) fn received(&mut self, port: usize) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        let mut frames = Vec::new();
        while self.peers[port].rx(&mut self.pool, &mut batch) > 0 {
            for frame in batch.drain() {
                frames.push(frame.data().to_vec());
                self.pool.free(frame);
            }
        }
        frames
    }

    /// Sends a frame and returns what each port sent then.
    pub(crate) fn exchange(&mut self, port: usize, bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        self.send(port, bytes);
        self.run();
        (0..self.peers.len())
            .map(|port| self.received(port))
            .collect()
    }

    /// Runs `f` with a capture at a stage; returns the frames that entered it.
    pub(crate) fn captured(&mut self, stage: &str, f: impl FnOnce(&mut Self)) -> Vec<Vec<u8>> {
        let nodes = &self.counters().nodes;
        let at = nodes.iter().position(|node| node.name == stage);
        let filter = graph::capture::Filter {
            stages: 1 << at.expect("the stage"),
            ..Default::default()
        };
        self.handle.capture(Some(filter)).expect("room");
        self.run();
        f(self);
        let mut frames = Vec::new();
        self.handle
            .captured()
            .drain(|record| frames.push(record.data.clone()));
        self.handle.capture(None).expect("room");
        self.run();
        frames
    }

    pub(crate) fn counters(&self) -> &Arc<WorkerCounters> {
        self.handle.counters()
    }

    /// Returns the counters of a node.
    pub(crate) fn node(&self, name: &str) -> &NodeCounters {
        let found = self.counters().nodes.iter().find(|node| node.name == name);
        found.unwrap_or_else(|| panic!("there is a node {name}"))
    }

    /// Returns how many frames were dropped, by reason.
    pub(crate) fn drops(&self) -> Vec<(&'static str, u64)> {
        let mut drops: Vec<(&'static str, u64)> = Vec::new();
        for (reason, pkts) in self
            .counters()
            .nodes
            .iter()
            .flat_map(NodeCounters::all_drops)
        {
            drops.push((reason.name(), pkts));
        }
        drops
    }

    /// Ends the worker and checks that every frame went somewhere that counts it, and that all memory is
    /// back.
    pub(crate) fn finish(mut self) {
        self.run();
        assert_eq!(
            self.counters().rx_pkts.get(),
            self.sent,
            "every frame was received"
        );
        for node in self.counters().nodes.iter() {
            let on: u64 = node.edges.iter().map(|edge| edge.pkts.get()).sum();
            let out = on + node.dropped_pkts() + node.consumed_pkts.get();
            // These make frames of their own: copies, questions, errors, fragments. Or hold them.
            let makes = [
                "resolve",
                "icmp-error",
                "ip4-fragment",
                "bridge-output",
                "tx",
            ];
            if !makes.contains(&node.name.as_str()) && !node.name.starts_with("bridge-") {
                assert_eq!(
                    out,
                    node.pkts.get(),
                    "{} accounts for every frame",
                    node.name
                );
            }
        }
        let errors = self.node("icmp-error");
        assert_eq!(
            errors.pkts.get(),
            errors.dropped_pkts(),
            "what errors are about is dropped"
        );
        self.end();
    }

    /// Ends the worker and checks that all memory is back.
    pub(crate) fn end(&mut self) {
        self.handle.drain().expect("the mailbox has room");
        for _ in 0..2000 {
            self.worker.step(self.now);
            // Frames on their way out come home when the peer takes them.
            for port in 0..self.peers.len() {
                self.received(port);
            }
        }
        let report = self.worker.report().expect("the worker ended");
        assert_eq!(report.home, report.frames, "{report:?}");
    }
}
