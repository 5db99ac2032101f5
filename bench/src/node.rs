//! The node's own worker and packet graph between two hosts over links in memory: what the programs
//! measure is what the product runs, only the wires are missing.

use std::sync::Arc;

use anyhow::{Context, Result};
use dataplane::neighbour::Key;
use dataplane::prefix::mapped;
use dataplane::topology::Shared;
use dataplane::{Forwarding, Plan, PortFacts};
use graph::{IdleConfig, Mode, TxFull, Worker, WorkerHandle, WorkerPort, WorkerSetup};
use io::port::{self, DriverSpec, OpenPort, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue, WorkerId, mem};
use wire::{Instant, MacAddr};

/// A node with a bridge over both ports.
pub const BRIDGE: &str = r#"
[[port]]
name = "left"
driver = "mem"
[[port]]
name = "right"
driver = "mem"
[[bridge]]
name = "bridge"
ports = ["left", "right"]
"#;

/// A node that routes between 10.1.0.0/24 on the left and 10.2.0.0/24 on the right; the hosts are
/// 10.1.0.2 and 10.2.0.2 with the MAC addresses of [`HOST_MACS`].
pub const ROUTER: &str = r#"
[[port]]
name = "left"
driver = "mem"
mac = "02:00:00:00:01:01"
addresses = ["10.1.0.1/24"]
[[port]]
name = "right"
driver = "mem"
mac = "02:00:00:00:02:01"
addresses = ["10.2.0.1/24"]
[[neighbour]]
address = "10.1.0.2"
mac = "02:00:00:00:01:02"
port = "left"
[[neighbour]]
address = "10.2.0.2"
mac = "02:00:00:00:02:02"
port = "right"
"#;

/// MAC addresses of the left and the right host.
pub const HOST_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 2, 2]];
/// MAC addresses of the router's left and right port.
pub const ROUTER_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1]];

/// The size of things.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Frames of the node.
    pub node_frames: u32,
    /// Frames of each host.
    pub host_frames: u32,
    /// Frames that a link holds in each direction.
    pub depth: usize,
}

/// A worker and the two hosts at its ports.
#[derive(Debug)]
pub struct MemNode {
    /// The worker, to be stepped or given a thread ([`graph::runner`]).
    pub worker: Worker,
    /// The control side's handle to it.
    pub handle: WorkerHandle,
    /// What is behind the left port.
    pub left: Host,
    /// What is behind the right port.
    pub right: Host,
}

impl MemNode {
    /// Makes a node of one worker from a configuration with two `mem` ports.
    ///
    /// # Errors
    /// The configuration is wrong, or there is no memory.
    pub fn new(configuration: &str, sizes: Sizes, mode: Mode) -> Result<Self> {
        let config = control::config::parse("bench", configuration)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let plan = Plan::new(&config).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let spec = mem::LinkSpec {
            depth: sizes.depth,
            ..mem::LinkSpec::default()
        };
        let (left_host, left) = mem::link(spec);
        let (right_host, right) = mem::link(spec);
        let pool = Pool::new(sizes.node_frames, 2048, HugePages::Auto)?;
        let ports = [open(&pool, 0, left)?, open(&pool, 1, right)?];
        let facts = ports.each_ref().map(|port| PortFacts {
            mac: MacAddr(port.mac),
            mtu: port.mtu,
        });
        let forwarding = Arc::new(Forwarding::new(&plan, &facts, 1));
        let shared = Shared::new(&plan, forwarding, 1)?;
        for neighbour in &plan.neighbours {
            let key = Key::new(neighbour.interface, mapped(&neighbour.address));
            let table = &shared.neighbours;
            table.set_permanent(&key, neighbour.mac, Instant::ZERO);
        }
        let graph = dataplane::topology::graph(&shared, WorkerId(0), 1, pool.capacity())?;
        let ports = ports.map(|mut port| WorkerPort {
            queue: Some(port.queues.remove(0)),
            tx_via: WorkerId(0),
            spread: false,
            mode,
            tx_full: TxFull::default(),
        });
        let setup = WorkerSetup {
            pool,
            ports: ports.into(),
            graph,
            mesh: graph::mesh(1, 1)?.pop().context("a mesh of one")?,
            spread: None,
            idle: IdleConfig::default(),
            cpu_time: None,
        };
        let (worker, handle) = Worker::new(setup, Instant::ZERO);
        Ok(Self {
            worker,
            handle,
            left: Host::new(left_host, sizes.host_frames)?,
            right: Host::new(right_host, sizes.host_frames)?,
        })
    }
}

/// A host at the far end of a link, with frames of its own.
#[derive(Debug)]
pub struct Host {
    /// Its queue.
    pub queue: Box<dyn Queue>,
    /// Its frames.
    pub pool: Pool,
    batch: Batch,
}

impl Host {
    fn new(end: mem::LinkEnd, frames: u32) -> Result<Self> {
        let pool = Pool::new(frames, 2048, HugePages::Auto)?;
        let queue = open(&pool, 0, end)?.queues.remove(0);
        Ok(Self {
            queue,
            pool,
            batch: Batch::new(),
        })
    }

    /// Sends up to `count` copies (at most a batch) of `bytes`; returns how many the link took.
    pub fn send(&mut self, bytes: &[u8], count: usize) -> usize {
        while self.batch.len() < count.min(io::BATCH_MAX) {
            let Some(mut frame) = self.pool.alloc() else {
                break;
            };
            if !frame.fill(bytes) {
                self.pool.free(frame);
                break;
            }
            if let Err(frame) = self.batch.push(frame) {
                self.pool.free(frame);
                break;
            }
        }
        let sent = self.queue.tx(&mut self.pool, &mut self.batch);
        self.pool.free_batch(&mut self.batch);
        sent
    }

    /// Receives one burst, shows each frame to `look`, and gives the frames back; returns how many.
    pub fn receive(&mut self, mut look: impl FnMut(&[u8])) -> usize {
        let received = self.queue.rx(&mut self.pool, &mut self.batch);
        for frame in self.batch.iter() {
            look(frame.data());
        }
        self.pool.free_batch(&mut self.batch);
        // Sends nothing, but takes back what the other end has copied.
        self.queue.tx(&mut self.pool, &mut self.batch);
        received
    }

    /// Closes the port; returns how many of the host's frames are missing.
    pub fn close(mut self) -> usize {
        self.queue.close(&mut self.pool);
        self.pool.capacity() - self.pool.available()
    }
}

fn open(pool: &Pool, id: u16, end: mem::LinkEnd) -> Result<OpenPort> {
    let spec = PortSpec::new(PortId(id), format!("port {id}"), DriverSpec::Mem(end));
    Ok(port::open(&spec, pool.region(), 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::traffic::Profile;

    #[test]
    fn both_nodes_forward() {
        let sizes = Sizes {
            node_frames: 256,
            host_frames: 256,
            depth: 256,
        };
        for (configuration, to) in [(BRIDGE, HOST_MACS[1]), (ROUTER, ROUTER_MACS[0])] {
            let mut node = MemNode::new(configuration, sizes, Mode::Poll).unwrap();
            let ips = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
            let frame = Profile::new(64, (HOST_MACS[0], to), ips, 1, 1)
                .unwrap()
                .example();
            assert_eq!(node.left.send(&frame, 5), 5);
            let mut received = 0;
            for step in 1..100 {
                node.worker.step(Instant::from_ns(step * 1000));
                // The router also sends frames of its own.
                let datagram = |data: &[u8]| data.get(23) == Some(&17);
                node.right
                    .receive(|data| received += u32::from(datagram(data)));
            }
            let drops: Vec<_> = node
                .handle
                .counters()
                .nodes
                .iter()
                .flat_map(|n| n.all_drops().map(|d| (n.name.clone(), d)))
                .collect();
            assert_eq!(received, 5, "{drops:?}");
            assert_eq!(node.handle.counters().dropped_pkts(), 0);
        }
    }
}
