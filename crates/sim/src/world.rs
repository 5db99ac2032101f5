//! Workers, links and hosts in virtual time.

use std::sync::Arc;
use std::time::Duration;

use control::Config;
use dataplane::{PortFacts, topology};
use graph::fault::{FaultLink, Faults, Random};
use graph::{
    Graph, GraphBuilder, IdleConfig, Mode, Next, NodeCounters, Spread, TxFull, Wake, Worker,
    WorkerHandle, WorkerPort, WorkerSetup,
};
use io::wait::{PollSet, Woken};
use io::{HugePages, Pool, PortId, WorkerId};
use wire::{DropReason, FlowSecret, Instant, MacAddr};

use crate::link::{Balance, HostId, Link, SharedLink, SimQueue, lock};

/// A port of the node, not yet given to a worker.
#[derive(Debug)]
pub struct Port(SharedLink);

/// What the workers are like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many; all ports have one queue, so that more than one share flows in software.
    pub workers: u16,
    /// Frames of each.
    pub frames: u32,
    /// How ports wait.
    pub mode: Mode,
    /// Frames that a ring between two workers holds.
    pub handoff_depth: usize,
}

impl Default for Plan {
    /// One hybrid worker with 512 frames.
    fn default() -> Self {
        Self {
            workers: 1,
            frames: 512,
            mode: Mode::Hybrid,
            handoff_depth: 64,
        }
    }
}

/// What a worker does until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Running,
    /// A nap that began and is to end then.
    Napping(Instant, Instant),
    /// A sleep, and the timer that ends it.
    Sleeping(Option<Instant>),
    Stopped,
}

#[derive(Debug)]
struct SimWorker {
    worker: Worker,
    handle: WorkerHandle,
    set: PollSet,
    doing: Doing,
    /// The host took the CPU away until then.
    stalled_until: Instant,
}

/// Everything, and the clock.
#[derive(Debug)]
pub struct World {
    now: Instant,
    random: Random,
    links: Vec<SharedLink>,
    workers: Vec<SimWorker>,
    /// Chance of a stall at each step, of a million.
    stall_ppm: u32,
}

impl World {
    /// Makes an empty world.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::from_ns(1),
            random: Random::new(seed),
            links: Vec::new(),
            workers: Vec::new(),
            stall_ppm: 0,
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the world's random numbers, for the scenario's choices.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Makes a host and the port at the other end of its link.
    pub fn link(&mut self, faults: Faults) -> (HostId, Port) {
        let seed = self.random.next_u64();
        let link = Arc::new(std::sync::Mutex::new(Link::new(faults, seed)));
        lock(&link).advance(self.now);
        self.links.push(Arc::clone(&link));
        (HostId(self.links.len() - 1), Port(link))
    }

    /// Lets the host of the machine take a worker's CPU away for up to a millisecond, so many times of a
    /// million steps.
    pub fn stall(&mut self, ppm: u32) {
        self.stall_ppm = ppm;
    }

    /// Changes the faults of all links.
    pub fn set_faults(&mut self, faults: Faults) {
        for link in &self.links {
            lock(link).set_faults(faults);
        }
    }

    /// Makes the node's workers; `graph` makes the graph of each for the number of ports.
    ///
    /// # Panics
    /// If there is no memory for frames.
    pub fn worker(&mut self, ports: Vec<Port>, graph: impl Fn(usize) -> Graph, plan: Plan) {
        self.workers(ports, |_, _, ports| graph(ports), plan);
    }

    /// Makes the product's node of a configuration, whose ports are `ports` in their order; returns what
    /// its workers share. Port n has the MAC address [`port_mac`] of n.
    ///
    /// # Panics
    /// If the configuration makes no sense.
    pub fn node(&mut self, ports: Vec<Port>, config: &Config, plan: Plan) -> topology::Shared {
        let facts: Vec<_> = (0..ports.len() as u16)
            .map(|port| PortFacts {
                mac: port_mac(port),
                mtu: 1500,
            })
            .collect();
        let secret = self.random.next_u64();
        let shared = topology::shared(config, &facts, secret).expect("a right configuration");
        let count = plan.workers;
        let graph = |worker, frames, _| {
            topology::graph(&shared, worker, count, frames).expect("a graph of the node")
        };
        self.workers(ports, graph, plan);
        shared
    }

    /// `graph` gets the worker, the frames of its pool and the number of ports.
    fn workers(
        &mut self,
        ports: Vec<Port>,
        graph: impl Fn(WorkerId, usize, usize) -> Graph,
        plan: Plan,
    ) {
        let pools = Pool::split(plan.frames, plan.workers, 2048, HugePages::Never)
            .expect("memory for frames");
        let meshes = graph::mesh(plan.workers, plan.handoff_depth).expect("doorbells");
        let mut secret = [0; 64];
        for chunk in secret.chunks_mut(8) {
            chunk.copy_from_slice(&self.random.next_u64().to_le_bytes());
        }
        let secret = FlowSecret::new(secret);
        for (index, (pool, mesh)) in (0..).zip(pools.into_iter().zip(meshes)) {
            let ports: Vec<WorkerPort> = (0..)
                .zip(&ports)
                .map(|(id, port)| {
                    // Port n belongs to worker n, round and round.
                    let owner = id % plan.workers;
                    WorkerPort {
                        queue: (owner == index)
                            .then(|| Box::new(SimQueue::new(PortId(id), Arc::clone(&port.0))) as _),
                        tx_via: WorkerId(owner),
                        spread: plan.workers > 1,
                        mode: plan.mode,
                        tx_full: TxFull::default(),
                    }
                })
                .collect();
            let setup = WorkerSetup {
                graph: graph(WorkerId(index), pool.capacity(), ports.len()),
                pool,
                ports,
                mesh,
                spread: Some(Spread::new(secret.clone(), plan.workers)),
                idle: IdleConfig::default(),
                cpu_time: None,
            };
            let (worker, handle) = Worker::new(setup, self.now);
            self.workers.push(SimWorker {
                worker,
                handle,
                set: PollSet::with_capacity(8),
                doing: Doing::Running,
                stalled_until: Instant::ZERO,
            });
        }
    }

    /// Returns a worker's handle.
    pub fn handle(&mut self, worker: usize) -> &mut WorkerHandle {
        &mut self.workers[worker].handle
    }

    /// A host sends a frame.
    pub fn send(&mut self, host: HostId, bytes: Vec<u8>) {
        let mut link = lock(&self.links[host.0]);
        link.advance(self.now);
        link.send(bytes);
    }

    /// Takes the frames that a host has received.
    pub fn received(&mut self, host: HostId) -> Vec<Vec<u8>> {
        core::mem::take(&mut lock(&self.links[host.0]).received)
    }

    /// Lets virtual time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end && self.step(end) {}
        self.now = self.now.max(end);
        self.arrive();
    }

    /// One worker takes one step, or time goes on to the next event; `false` if nothing is left to happen
    /// before `end`.
    fn step(&mut self, end: Instant) -> bool {
        self.arrive();
        self.wake();
        let now = self.now;
        let ready: Vec<usize> = (0..self.workers.len())
            .filter(|&index| {
                let worker = &self.workers[index];
                worker.doing == Doing::Running && worker.stalled_until <= now
            })
            .collect();
        if ready.is_empty() {
            return match self.next_event() {
                Some(next) if next < end => {
                    self.now = next.max(self.now + Duration::from_nanos(1));
                    true
                }
                _ => false,
            };
        }
        let chosen = ready[self.random.below(ready.len() as u64) as usize];
        self.step_worker(chosen);
        // A step takes from 200 ns to 5 us.
        let took = 200 + self.random.below(4_800);
        self.now = self.now + Duration::from_nanos(took);
        true
    }

    fn step_worker(&mut self, index: usize) {
        let stall = self.random.chance(self.stall_ppm);
        let stall_ns = self.random.below(1_000_000);
        // A nap or a wake-up is late by up to 50 us.
        let late = Duration::from_nanos(self.random.below(50_000));
        let now = self.now;
        let sim = &mut self.workers[index];
        if stall {
            sim.stalled_until = now + Duration::from_nanos(stall_ns);
            return;
        }
        sim.doing = match sim.worker.step(now) {
            Next::Again => Doing::Running,
            Next::Nap(length) => Doing::Napping(now, now + length + late),
            Next::Block(until) => match sim.worker.arm(&mut sim.set, now) {
                None => Doing::Running,
                Some(_) => Doing::Sleeping(until.map(|until| until + late)),
            },
            Next::Stopped => Doing::Stopped,
        };
    }

    /// Ends naps and sleeps that are over.
    fn wake(&mut self) {
        let now = self.now;
        let interrupt = self.links.iter().any(|link| lock(link).has_interrupt());
        for sim in &mut self.workers {
            match sim.doing {
                Doing::Napping(start, end) if end <= now => {
                    sim.worker.napped(Duration::from_micros(1), start, now);
                    sim.doing = Doing::Running;
                }
                Doing::Sleeping(until) => {
                    // The doorbell is the last descriptor, and the only real one.
                    let rung = matches!(sim.set.wait(Some(Duration::ZERO)), Woken::Readable(bits)
                        if bits >> (sim.set.len() - 1) & 1 == 1);
                    let wake = if rung {
                        Wake::Message
                    } else if interrupt {
                        Wake::Packet
                    } else if until.is_some_and(|until| until <= now) {
                        Wake::Timer
                    } else {
                        continue;
                    };
                    sim.worker.woke(wake, now);
                    sim.doing = Doing::Running;
                }
                _ => {}
            }
        }
    }

    fn arrive(&mut self) {
        for link in &self.links {
            lock(link).advance(self.now);
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let links = self
            .links
            .iter()
            .filter_map(|link| lock(link).poll_timeout());
        let workers = self.workers.iter().filter_map(|sim| match sim.doing {
            Doing::Running => Some(sim.stalled_until),
            Doing::Napping(_, end) => Some(end),
            Doing::Sleeping(until) => until,
            Doing::Stopped => None,
        });
        links.chain(workers).min()
    }

    /// Drains the workers and checks that every frame is home, that no packet is unaccounted for, and that
    /// the counters add up.
    ///
    /// # Panics
    /// If they do not.
    pub fn finish(mut self) {
        self.run_for(Duration::from_millis(20));
        for sim in &mut self.workers {
            sim.handle.drain().expect("room in the mailbox");
        }
        let end = self.now + Duration::from_secs(1);
        while self.workers.iter().any(|sim| sim.doing != Doing::Stopped) {
            assert!(self.now < end, "a worker does not stop");
            self.step(end);
        }
        self.run_for(Duration::from_secs(1));
        let mut total = Balance::default();
        for link in &self.links {
            let link = lock(link).balance();
            total.offered_by_host += link.offered_by_host;
            total.lost_to_node += link.lost_to_node;
            total.added_to_node += link.added_to_node;
            total.offered_by_node += link.offered_by_node;
            total.under_way += link.under_way;
        }
        let (mut received, mut sent, mut dropped, mut consumed) = (0, 0, 0, 0);
        let (mut made, mut given, mut taken) = (0, 0, 0);
        for sim in &self.workers {
            let report = sim.worker.report().expect("the worker stopped");
            assert_eq!(report.home, report.frames, "frames are missing: {report:?}");
            let counters = sim.worker.counters();
            received += counters.rx_pkts.get();
            sent += counters.tx_pkts.get();
            dropped += counters.dropped_pkts();
            given += counters.handoff_out_pkts.get();
            taken += counters.handoff_in_pkts.get();
            for node in counters.nodes.iter() {
                consumed += node.consumed_pkts.get();
                made += frames_made(node);
            }
            let by_nodes: u64 = counters.ports.iter().map(|port| port.tx_pkts.get()).sum();
            assert_eq!(
                counters.tx_pkts.get(),
                by_nodes,
                "sent by worker and by queues"
            );
        }
        assert_eq!(
            sent, total.offered_by_node,
            "sent by workers, taken by links"
        );
        assert_eq!(
            total.offered_by_host + total.added_to_node - total.lost_to_node,
            received + total.under_way,
            "sent by hosts, received by workers: {total:?}"
        );
        assert_eq!(given, taken, "handed over = taken over");
        assert_eq!(
            received + made,
            sent + dropped + consumed,
            "received + made = sent + dropped + consumed"
        );
    }
}

/// Returns the MAC address that [`World::node`] gives a port.
pub fn port_mac(port: u16) -> MacAddr {
    let [high, low] = port.to_be_bytes();
    MacAddr([2, 0, 0, 0xaa, high, low])
}

/// Returns how many frames a node made, and checks that it lost none of those that it was given.
fn frames_made(node: &NodeCounters) -> u64 {
    if node.name == "tx" {
        return 0;
    }
    let on: u64 = node.edges.iter().map(|edge| edge.pkts.get()).sum();
    let out = on + node.dropped_pkts() + node.consumed_pkts.get();
    // What waited in the inbox when the worker ended was dropped without having been looked at.
    let unseen = node.drops(DropReason::Shutdown);
    let makes = ["resolve", "icmp-error", "ip4-fragment", "bridge-output"];
    let made = out.checked_sub(node.pkts.get()).unwrap_or_else(|| {
        panic!(
            "{} was given {} and let go of {out}",
            node.name,
            node.pkts.get()
        )
    });
    let may = makes.contains(&&*node.name)
        || node.name.starts_with("bridge-")
        || node.name.starts_with("link-");
    assert!(may || made <= unseen, "{} made {made} frames", node.name);
    if may { made } else { 0 }
}

/// Makes a graph that joins ports 0 and 1 by a link without faults.
///
/// # Panics
/// If there are not two ports.
pub fn patch(ports: usize) -> Graph {
    let mut builder = GraphBuilder::new();
    let ends = [PortId(0), PortId(1)];
    let node = FaultLink::new("patch", ends, Faults::default(), 0);
    let node = builder.add(Box::new(node));
    let tx = builder.tx();
    builder.connect(node, "out", tx).expect("the edge exists");
    for port in ends {
        builder.input(port, node).expect("one input a port");
    }
    builder.build(ports).expect("two ports")
}
