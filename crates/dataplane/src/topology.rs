//! From a snapshot to the packet graph of a worker; also the small graphs that benches measure.

use std::sync::Arc;
use std::time::Duration;

use control::Config;
use graph::fault::FaultCounters;
use graph::{Graph, GraphBuilder, GraphError};
use io::{PortId, WorkerId};
use socket::service::{HostService, ServiceSettings};
use wire::Instant;

use crate::bridge::{Bridge, BridgeOutput, StationTable};
use crate::firewall::{Firewall, FirewallNode, StateError, load_guard, load_rules};
use crate::forwarding::{Forwarding, PortFacts};
use crate::ndn::Ndn;
use crate::neighbour::{Key, Resolve, Table, machine};
use crate::nodes::eth_input::EthInput;
use crate::nodes::fragment::Ip4Fragment;
use crate::nodes::icmp_error::IcmpError;
use crate::nodes::ip4::{Ip4Forward, Ip4Output};
use crate::nodes::ip6::{Ip6Forward, Ip6Output};
use crate::nodes::link::ImpairedLink;
use crate::nodes::local::Local;
use crate::plan::{BridgeId, LinkId, Plan, PortRole};
use crate::prefix::mapped;
use crate::reassembly::Reassemble;
use crate::runtime::StartError;

/// Neighbours that a node remembers, at most.
pub const NEIGHBOURS_MAX: usize = 8192;
/// Stations that a bridge remembers, at most.
pub const STATIONS_MAX: usize = 16_384;

/// What the workers of a node share: the published snapshot and the two tables that are learnt.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The snapshot in force at the start.
    pub forwarding: Arc<Forwarding>,
    /// The neighbour table.
    pub neighbours: Arc<Table>,
    /// The stations of each bridge, by id.
    pub stations: Vec<Arc<StationTable>>,
    /// What each impaired link does to what goes to each of its ends, by id.
    pub links: Vec<Arc<[FaultCounters; 2]>>,
    /// The firewall, if there is one.
    pub firewall: Option<Arc<Firewall>>,
    /// The named-data forwarder, if there is one.
    pub ndn: Option<Arc<Ndn>>,
    /// The host for programs, if there is one.
    pub host: Option<Arc<HostService>>,
    /// The bridges' names, by id.
    bridges: Vec<String>,
}

impl Shared {
    /// Makes empty tables for a plan; those of its firewall may be a former node's. `secret` keys their hashes and
    /// should be random.
    ///
    /// # Errors
    /// The firewall's tables cannot lie where the configuration says.
    pub fn new(plan: &Plan, forwarding: Arc<Forwarding>, secret: u64) -> Result<Self, StateError> {
        let reachable_ns = Duration::as_nanos(&machine::REACHABLE) as u64;
        Ok(Self {
            forwarding,
            neighbours: Arc::new(Table::new(NEIGHBOURS_MAX, secret, reachable_ns)),
            stations: plan
                .bridges
                .iter()
                .map(|bridge| Arc::new(StationTable::new(STATIONS_MAX, bridge.ageing_s, secret)))
                .collect(),
            links: plan.links.iter().map(|_| Arc::default()).collect(),
            firewall: Firewall::of(plan, secret)?.map(Arc::new),
            ndn: None,
            host: None,
            bridges: plan
                .bridges
                .iter()
                .map(|bridge| bridge.name.clone())
                .collect(),
        })
    }
}

impl Shared {
    /// Adds the host of the plan, if it has one, to a node of `workers` workers.
    #[must_use]
    pub fn with_host(mut self, plan: &Plan, workers: u16) -> Self {
        let interfaces = self.forwarding.interfaces();
        let with_address = interfaces.iter().filter(|i| !i.v4.is_empty() || i.has_v6());
        let mtu = with_address.map(|interface| interface.mtu).min();
        self.host = plan.host.as_ref().map(|host| {
            Arc::new(HostService::new(ServiceSettings {
                addresses: host.addresses.clone(),
                sockets: host.sockets,
                ring_bytes: host.ring_bytes,
                mtu: mtu.unwrap_or(1500),
                workers,
            }))
        });
        self
    }

    /// Notes the neighbours of the configuration.
    pub fn set_neighbours(&self, plan: &Plan, now: Instant) {
        for neighbour in &plan.neighbours {
            let key = Key::new(neighbour.interface, mapped(&neighbour.address));
            if !self.neighbours.set_permanent(&key, neighbour.mac, now) {
                tracing::warn!(address = %neighbour.address, "the neighbour table has no room for a static neighbour");
            }
        }
    }
}

/// Builds the shared tables for a configuration without opening anything: what tests, simulators and
/// benches start from. `facts` has one entry a port.
///
/// # Errors
/// What is wrong with the configuration, or with its file of rules.
pub fn shared(config: &Config, facts: &[PortFacts], secret: u64) -> Result<Shared, StartError> {
    let plan = Plan::new(config)?;
    let rules = load_rules(config, &plan, None)?;
    let guard = load_guard(config, None)?;
    let forwarding = Forwarding::new(&plan, facts, 1);
    let forwarding = Arc::new(forwarding.with_rules(rules).with_guard(guard));
    let shared = Shared::new(&plan, forwarding, secret)?;
    shared.set_neighbours(&plan, Instant::ZERO);
    Ok(shared)
}

/// Builds the packet graph of one worker of `workers`, whose pool has `pool_frames` frames.
///
/// # Errors
/// More bridges than a graph has room for.
pub fn graph(
    shared: &Shared,
    worker: WorkerId,
    workers: u16,
    pool_frames: usize,
) -> Result<Graph, GraphError> {
    let forwarding = || Arc::clone(&shared.forwarding);
    let neighbours = || Arc::clone(&shared.neighbours);
    let mut b = GraphBuilder::new();
    let tx = b.tx();
    let eth_input = b.add(Box::new(EthInput::new(forwarding(), shared.ndn.is_some())));
    let ip4 = b.add(Box::new(Ip4Forward::new(forwarding(), neighbours())));
    let ip6 = b.add(Box::new(Ip6Forward::new(forwarding(), neighbours())));
    let local = b.add(Box::new(Local::new(forwarding(), shared.host.clone())));
    let reassemble = b.add(Box::new(Reassemble::new(pool_frames)));
    let fragment = b.add(Box::new(Ip4Fragment));
    let error = b.add(Box::new(IcmpError::new(forwarding())));
    let out4 = b.add(Box::new(Ip4Output::new(forwarding(), neighbours())));
    let out6 = b.add(Box::new(Ip6Output::new(forwarding(), neighbours())));
    let resolve = Resolve::new(forwarding(), neighbours(), worker, workers, pool_frames);
    let resolve = b.add(Box::new(resolve));
    let bridge_output = BridgeOutput::new(forwarding(), shared.stations.clone());
    let bridge_output = b.add(Box::new(bridge_output));

    // With a firewall, all packets pass it: those that came in, and those that the node sends.
    let firewall = match &shared.firewall {
        Some(firewall) => {
            let node = FirewallNode::new(firewall, forwarding(), worker)?;
            let node = b.add(Box::new(node));
            b.connect(node, "ip4", ip4)?;
            b.connect(node, "ip6", ip6)?;
            b.connect(node, "out4", out4)?;
            b.connect(node, "out6", out6)?;
            Some(node)
        }
        None => None,
    };
    b.connect(eth_input, "ip4", firewall.unwrap_or(ip4))?;
    b.connect(eth_input, "ip6", firewall.unwrap_or(ip6))?;
    b.connect(eth_input, "arp", resolve)?;
    for node in [ip4, ip6, out4, out6] {
        b.connect(node, "tx", tx)?;
        b.connect(node, "bridge", bridge_output)?;
        b.connect(node, "resolve", resolve)?;
        b.connect(node, "error", error)?;
    }
    for node in [ip4, ip6] {
        b.connect(node, "local", local)?;
    }
    for node in [ip4, out4] {
        b.connect(node, "fragment", fragment)?;
    }
    b.connect(local, "ip4", firewall.unwrap_or(out4))?;
    b.connect(local, "ip6", firewall.unwrap_or(out6))?;
    b.connect(local, "error", error)?;
    b.connect(local, "discovery", resolve)?;
    b.connect(local, "reassemble", reassemble)?;
    if let Some(host) = &shared.host {
        let host = b.add(Box::new(host.graph_node(worker)));
        b.connect(local, "host", host)?;
        b.connect(host, "ip4", firewall.unwrap_or(out4))?;
        b.connect(host, "ip6", firewall.unwrap_or(out6))?;
    }
    b.connect(reassemble, "ip4", firewall.unwrap_or(out4))?;
    b.connect(reassemble, "ip6", firewall.unwrap_or(out6))?;
    b.connect(reassemble, "error", error)?;
    b.connect(fragment, "out", out4)?;
    b.connect(error, "ip4", firewall.unwrap_or(out4))?;
    b.connect(error, "ip6", firewall.unwrap_or(out6))?;
    b.connect(resolve, "tx", tx)?;
    b.connect(resolve, "bridge", bridge_output)?;
    b.connect(resolve, "error", error)?;
    b.connect(bridge_output, "tx", tx)?;

    let mut bridges = Vec::new();
    for (i, (name, stations)) in shared.bridges.iter().zip(&shared.stations).enumerate() {
        let id = BridgeId(i as u16);
        let node = Bridge::new(id, name, forwarding(), Arc::clone(stations));
        let node = b.add(Box::new(node));
        b.connect(node, "tx", tx)?;
        b.connect(node, "host", eth_input)?;
        bridges.push(node);
    }
    let mut links = Vec::new();
    for (i, (plan, counters)) in shared
        .forwarding
        .links()
        .iter()
        .zip(&shared.links)
        .enumerate()
    {
        let id = LinkId(i as u16);
        let owner = WorkerId(id.0 % workers.max(1));
        let node = ImpairedLink::new(id, plan, owner, Arc::clone(counters));
        let node = b.add(Box::new(node));
        b.connect(node, "out", tx)?;
        links.push(node);
    }
    let ports = shared.forwarding.ports();
    for (i, port) in ports.iter().enumerate() {
        let node = match port.role {
            PortRole::Routed(_) => eth_input,
            PortRole::Bridged(bridge) => bridges.get(bridge.index()).copied().unwrap_or(eth_input),
            PortRole::Linked(link) => links.get(link.index()).copied().unwrap_or(eth_input),
        };
        b.input(PortId(i as u16), node)?;
    }
    let mut ports = ports.len();
    if let Some(ndn) = &shared.ndn {
        let node = ndn
            .node(worker, &shared.forwarding)
            .ok_or(GraphError::TooManyNodes {
                nodes: worker.index(),
            })?;
        let node = b.add(node);
        b.connect(eth_input, "ndn", node)?;
        b.connect(node, "tx", tx)?;
        // Behind the ports of the configuration, the one that wakes the worker for the forwarder's sockets.
        b.input(PortId(ports as u16), node)?;
        ports += 1;
    }
    b.build(ports)
}
