//! Hosts and a node in one world.

use std::time::Duration;

use control::Config;
use dataplane::topology::Shared;
use graph::fault::Faults;
use wire::DropReason;

use crate::host::{Host, HostConfig, Probe};
use crate::link::HostId;
use crate::world::{Plan, World};

/// Most virtual time between two moments at which hosts do something.
const HOST_PACE_NS: u64 = 200_000;

/// The product's node with a host at each of its ports.
#[derive(Debug)]
pub struct Network {
    /// The world that they are in.
    pub world: World,
    /// The hosts, by port.
    pub hosts: Vec<Host>,
    /// What the node's workers share.
    pub shared: Shared,
    ends: Vec<HostId>,
    workers: u16,
}

impl Network {
    /// Builds the network: the node of `config`, whose port n leads to host n over a link with `faults`.
    ///
    /// # Panics
    /// If the configuration makes no sense, or has not a port for each host.
    pub fn new(
        seed: u64,
        config: &Config,
        hosts: impl IntoIterator<Item = HostConfig>,
        faults: Faults,
        plan: Plan,
    ) -> Self {
        let hosts: Vec<_> = hosts.into_iter().map(Host::new).collect();
        assert_eq!(hosts.len(), config.port.len(), "a host at each port");
        let mut world = World::new(seed);
        let (ends, ports) = hosts.iter().map(|_| world.link(faults)).unzip();
        let workers = plan.workers;
        let shared = world.node(ports, config, plan);
        Self {
            world,
            hosts,
            shared,
            ends,
            workers,
        }
    }

    /// Lets virtual time pass; hosts hear and speak now and then.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.speak();
            let pace = Duration::from_nanos(1 + self.world.random().below(HOST_PACE_NS));
            self.world.run_for(pace.min(end - self.world.now()));
            self.hear();
        }
        self.speak();
    }

    fn speak(&mut self) {
        for (host, &end) in self.hosts.iter_mut().zip(&self.ends) {
            host.handle_timeout(self.world.now());
            for frame in host.poll_transmit() {
                self.world.send(end, frame);
            }
        }
    }

    fn hear(&mut self) {
        for (host, &end) in self.hosts.iter_mut().zip(&self.ends) {
            for frame in self.world.received(end) {
                host.input(self.world.now(), &frame);
            }
        }
    }

    /// A host sends a probe.
    pub fn probe(&mut self, host: usize, probe: &Probe) {
        self.hosts[host].probe(self.world.now(), probe);
    }

    /// Two hosts change places: each goes to the other's port, and says so.
    pub fn swap(&mut self, one: usize, other: usize) {
        self.ends.swap(one, other);
        self.hosts[one].announce();
        self.hosts[other].announce();
    }

    /// Returns how many packets the node's workers dropped for a reason.
    pub fn drops(&mut self, reason: DropReason) -> u64 {
        let of = |world: &mut World, worker| -> u64 {
            let nodes = &world.handle(worker).counters().nodes;
            nodes.iter().map(|node| node.drops(reason)).sum()
        };
        (0..usize::from(self.workers))
            .map(|worker| of(&mut self.world, worker))
            .sum()
    }

    /// Ends the node and checks that every frame is home, and that every counter adds up.
    ///
    /// # Panics
    /// If not.
    pub fn finish(mut self) {
        // What hosts have yet to say is not said.
        self.hear();
        self.world.finish();
    }
}
