//! Configuration to plan: names become ids, texts become addresses.
//!
//! What can be known to be wrong before a port is opened is [`control::config::check`]'s to find, whether
//! the configuration came from a file or from a program.

mod resolve;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use control::Config;
use control::config::{self, Finding};
use control::config::{DpdkConfig, FirewallConfig, HostConfig};
use graph::fault::Faults;
use io::PortId;
use wire::MacAddr;

use crate::prefix::Prefix;

/// All that is wrong with a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.list())]
pub struct PlanError {
    /// What is wrong, table by table.
    pub problems: Vec<Finding>,
}

impl PlanError {
    fn list(&self) -> String {
        let lines: Vec<_> = self.problems.iter().map(Finding::to_string).collect();
        lines.join("; ")
    }
}

/// An index into [`Plan::interfaces`]: what has addresses, a routed port or a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

impl InterfaceId {
    /// Returns the value as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An index into [`Plan::bridges`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BridgeId(pub u16);

impl BridgeId {
    /// Returns the value as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An index into [`Plan::links`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u16);

impl LinkId {
    /// Returns the value as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a port does with the frames that it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// It is an interface of its own.
    Routed(InterfaceId),
    /// It belongs to a bridge.
    Bridged(BridgeId),
    /// It is an end of an impaired link.
    Linked(LinkId),
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: PortRole,
    /// MAC address, where the configuration sets it.
    pub mac: Option<MacAddr>,
    /// Largest IP packet, bytes, where the configuration sets it.
    pub mtu: Option<u16>,
}

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePlan {
    /// Its name.
    pub name: String,
    /// Its ports.
    pub ports: Vec<PortId>,
    /// The interface through which the node itself is on the bridge.
    pub interface: InterfaceId,
    /// Seconds after which a silent station is forgotten.
    pub ageing_s: u32,
}

/// An impaired link between two ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its ports.
    pub ends: [PortId; 2],
    /// What it does to packets, each way.
    pub faults: Faults,
    /// Where its pseudorandom numbers start.
    pub seed: u64,
}

/// What an interface sends through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// One port.
    Port(PortId),
    /// A bridge.
    Bridge(BridgeId),
}

/// An interface: what has addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Name of the port or bridge.
    pub name: String,
    /// What it sends through.
    pub link: Link,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<Prefix>,
}

/// Where a static route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To a router on an interface's link.
    Via {
        /// The router.
        gateway: IpAddr,
        /// The interface.
        interface: InterfaceId,
    },
    /// The destination itself is on the interface's link.
    OnLink(InterfaceId),
    /// Nowhere.
    Blackhole,
}

/// A static route. Several with one destination are one route with several next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Destination.
    pub to: Prefix,
    /// Where it leads.
    pub target: RouteTarget,
}

/// A static neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourPlan {
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: MacAddr,
    /// The interface that reaches it.
    pub interface: InterfaceId,
}

/// A configuration whose names are resolved and whose values make sense together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The ports, by [`PortId`].
    pub ports: Vec<PortPlan>,
    /// The bridges, by [`BridgeId`].
    pub bridges: Vec<BridgePlan>,
    /// The impaired links, by [`LinkId`].
    pub links: Vec<LinkPlan>,
    /// The interfaces, by [`InterfaceId`].
    pub interfaces: Vec<InterfacePlan>,
    /// The static routes.
    pub routes: Vec<RoutePlan>,
    /// The static neighbours.
    pub neighbours: Vec<NeighbourPlan>,
    /// The firewall, and which interface lies inside, if it has no file of rules.
    pub firewall: Option<(FirewallConfig, Option<InterfaceId>)>,
    /// Which nodes share DPDK with this one, if any do.
    pub dpdk: Option<DpdkConfig>,
    /// The TCP/IP host for programs; its addresses are resolved.
    pub host: Option<HostConfig>,
    /// Number of workers.
    pub workers: usize,
}

impl Plan {
    /// Checks a configuration and resolves its names. Opens nothing.
    ///
    /// # Errors
    /// Every problem that was found.
    pub fn new(config: &Config) -> Result<Self, PlanError> {
        let problems = config::check(config);
        if !problems.is_empty() {
            return Err(PlanError { problems });
        }
        let mut resolver = resolve::Resolver::default();
        resolver.ports(config);
        resolver.bridges(config);
        resolver.links(config);
        resolver.routes(config);
        resolver.neighbours(config);
        resolver.firewall(config);
        resolver.host(config);
        Ok(Self {
            dpdk: config.dpdk.clone(),
            workers: config.node.cpus.len().max(1),
            ..resolver.finish()
        })
    }

    /// Returns the interface that a port's frames belong to: its own, or its bridge's.
    pub fn interface_of(&self, port: PortId) -> Option<InterfaceId> {
        match self.ports.get(port.index())?.role {
            PortRole::Routed(interface) => Some(interface),
            PortRole::Bridged(bridge) => Some(self.bridges.get(bridge.index())?.interface),
            PortRole::Linked(_) => None,
        }
    }
}
