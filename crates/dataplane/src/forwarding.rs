//! The published snapshot: interfaces, routes and next hops as the nodes read them.
//!
//! Built by the control thread from a [`Plan`] and what the opened ports turned out to be, handed to
//! each worker's nodes by [`graph::Node::reload`], never changed after.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use io::PortId;
use wire::{FlowSecret, MacAddr};

use crate::fib::{self, Fib4, Fib6};
use crate::firewall::{FileRules, GuardSettings};
use crate::plan::{BridgeId, InterfaceId, Link, LinkPlan, Plan, PortRole, RouteTarget};
use crate::prefix::{Prefix, mapped};

/// What opening a port told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Its MAC address, unless the configuration sets another.
    pub mac: MacAddr,
    /// Largest IP packet, bytes, unless the configuration sets less.
    pub mtu: u16,
}

/// A port as the nodes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// MAC address.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// What it does with received frames.
    pub role: PortRole,
    /// The interface that its frames belong to.
    pub interface: InterfaceId,
    /// The MAC address of that interface: the port's, or its bridge's.
    pub host_mac: MacAddr,
}

/// An interface as the nodes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// MAC address: the port's, or that of the bridge's first port.
    pub mac: MacAddr,
    /// Largest IP packet, bytes: the port's, or the least of the bridge's ports.
    pub mtu: u16,
    /// What it sends through.
    pub link: Link,
    /// IPv4 addresses and prefix lengths, in the order of the configuration.
    pub v4: Vec<(Ipv4Addr, u8)>,
    /// IPv6 addresses and prefix lengths, in the order of the configuration.
    pub v6: Vec<(Ipv6Addr, u8)>,
    /// The IPv6 link-local address, made from the MAC address (RFC 4291 2.8); used if `v6` is not empty
    /// and has none.
    pub link_local: Ipv6Addr,
}

/// A bridge as the nodes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Its ports.
    pub ports: Vec<PortId>,
    /// The node's own interface on it.
    pub interface: InterfaceId,
    /// Seconds after which a silent station is forgotten.
    pub ageing_s: u32,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The address is the node's own.
    Local,
    /// The address is a directed broadcast of a link of the node.
    Broadcast(InterfaceId),
    /// Discards.
    Blackhole,
    /// To one of `count` next hops from `first` on.
    Forward {
        /// Index of the first.
        first: u32,
        /// How many, at least one.
        count: u32,
    },
}

impl Route {
    /// Chooses one of `count` next hops from `first` on by the flow's hash, so that a flow keeps its
    /// path; returns its index.
    #[inline]
    pub fn choose(first: u32, count: u32, flow_hash: impl FnOnce() -> u32) -> u32 {
        if count == 1 {
            return first;
        }
        // Scales the hash to the count; both factors are 32 bits wide.
        first + ((u64::from(flow_hash()) * u64::from(count)) >> 32) as u32
    }
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The interface that sends it.
    pub interface: InterfaceId,
    /// The router, in IPv4-mapped form for IPv4; `None`: the destination itself is on the link.
    pub gateway: Option<[u8; 16]>,
}

/// Why a destination has a route, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// The configuration.
    Static,
    /// The network of an interface's address.
    Connected,
    /// An address of the node.
    Local,
}

/// A route with its destination, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// Destination.
    pub to: Prefix,
    /// Why it is there.
    pub source: RouteSource,
    /// What it does.
    pub route: Route,
}

/// Everything that the nodes look up; read-only.
#[derive(Clone, Debug)]
pub struct Forwarding {
    /// Counts the configurations put in force, from 1.
    pub generation: u64,
    ports: Vec<Port>,
    interfaces: Vec<Interface>,
    bridges: Vec<Bridge>,
    links: Vec<LinkPlan>,
    fib4: Fib4,
    fib6: Fib6,
    /// What each of `routes` does: all that the data path reads.
    actions: Vec<Route>,
    routes: Vec<RouteEntry>,
    next_hops: Vec<NextHop>,
    flow_secret: FlowSecret,
    /// The firewall's rules, if they come from a file.
    pub rules: Option<Arc<FileRules>>,
    /// The thresholds and blocklists of the firewall's guard, if it has one.
    pub guard: Option<Arc<GuardSettings>>,
}

/// Key of the hash that chooses among several next hops: the same in every node and after every restart, so
/// that flows keep their paths. Nothing but the choice of a path hangs on it.
const PATH_KEY: [u8; 64] = *b"Which of several paths a flow takes, today and after a restart.\n";

impl Forwarding {
    /// Adds the settings of the firewall's guard.
    #[must_use]
    pub fn with_guard(mut self, guard: Option<Arc<GuardSettings>>) -> Self {
        self.guard = guard;
        self
    }

    /// Adds the firewall's rules, so that routes and rules change together.
    #[must_use]
    pub fn with_rules(mut self, rules: Option<Arc<FileRules>>) -> Self {
        self.rules = rules;
        self
    }

    /// Builds the snapshot; `facts` has one entry a port of the plan, in order.
    pub fn new(plan: &Plan, facts: &[PortFacts], generation: u64) -> Self {
        let mut ports = ports(plan, facts);
        let interfaces = interfaces(plan, &ports);
        for port in &mut ports {
            let interface: Option<&Interface> = interfaces.get(port.interface.index());
            port.host_mac = interface.map_or(port.mac, |interface| interface.mac);
        }
        let bridges = plan
            .bridges
            .iter()
            .map(|bridge| Bridge {
                ports: bridge.ports.clone(),
                interface: bridge.interface,
                ageing_s: bridge.ageing_s,
            })
            .collect();
        let mut next_hops = Vec::new();
        let routes = routes(plan, &mut next_hops);
        let numbered: Vec<_> = (0..).zip(&routes).map(|(i, r)| (r.to, i)).collect();
        let (fib4, fib6) = fib::build_both(&numbered);
        Self {
            generation,
            ports,
            interfaces,
            bridges,
            links: plan.links.clone(),
            fib4,
            fib6,
            actions: routes.iter().map(|entry| entry.route).collect(),
            routes,
            next_hops,
            rules: None,
            guard: None,
            flow_secret: FlowSecret::new(PATH_KEY),
        }
    }

    /// Returns the ports, by id.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }
    /// Returns the interfaces, by id.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }
    /// Returns the bridges, by id.
    pub fn bridges(&self) -> &[Bridge] {
        &self.bridges
    }
    /// Returns the impaired links, by id.
    pub fn links(&self) -> &[LinkPlan] {
        &self.links
    }
    /// Returns the routes with what they do, for listings.
    pub fn routes(&self) -> &[RouteEntry] {
        &self.routes
    }
    /// Returns the next hops that routes refer to.
    pub fn next_hops(&self) -> &[NextHop] {
        &self.next_hops
    }

    /// Returns the key of the hash that chooses among several next hops.
    #[inline]
    pub fn flow_secret(&self) -> &FlowSecret {
        &self.flow_secret
    }

    /// Returns an interface, if there is one of that id.
    #[inline]
    pub fn interface(&self, id: InterfaceId) -> Option<&Interface> {
        self.interfaces.get(id.index())
    }

    /// Returns a bridge, if there is one of that id.
    #[inline]
    pub fn bridge(&self, id: BridgeId) -> Option<&Bridge> {
        self.bridges.get(id.index())
    }

    /// Returns the interface that frames received by a port belong to.
    #[inline]
    pub fn interface_of(&self, port: PortId) -> Option<InterfaceId> {
        self.ports.get(port.index()).map(|port| port.interface)
    }

    /// Finds the route of an IPv4 destination.
    #[inline]
    pub fn route4(&self, destination: &[u8; 4]) -> Option<Route> {
        let index = self.fib4.lookup(destination)?;
        self.actions.get(index as usize).copied()
    }

    /// Finds the route of an IPv6 destination that is not link-local.
    #[inline]
    pub fn route6(&self, destination: &[u8; 16]) -> Option<Route> {
        let index = self.fib6.lookup(destination)?;
        self.actions.get(index as usize).copied()
    }

    /// Returns a next hop by its index.
    #[inline]
    pub fn next_hop(&self, index: u32) -> Option<&NextHop> {
        self.next_hops.get(index as usize)
    }

    /// Tells whether the IPv4 address is one of the node's own.
    pub fn is_local4(&self, address: &[u8; 4]) -> bool {
        self.route4(address) == Some(Route::Local)
    }

    /// Tells whether the IPv6 address is one of the node's own, on `interface` if it is link-local.
    pub fn is_local6(&self, address: &[u8; 16], interface: InterfaceId) -> bool {
        let address6 = Ipv6Addr::from(*address);
        if address6.is_unicast_link_local() {
            return self
                .interface(interface)
                .is_some_and(|i| i.has_link_local(&address6));
        }
        self.route6(address) == Some(Route::Local)
    }
}

impl Interface {
    /// Tells whether the interface has IPv6.
    pub fn has_v6(&self) -> bool {
        !self.v6.is_empty()
    }

    /// Tells whether `address` is the interface's link-local address.
    pub fn has_link_local(&self, address: &Ipv6Addr) -> bool {
        self.has_v6() && (self.link_local == *address || self.v6.iter().any(|(a, _)| a == address))
    }

    /// Chooses the IPv4 source address for packets to `to` over this interface: the one whose network
    /// holds it, else the first (RFC 1122 3.3.4.3).
    pub fn source4(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let holds = |&&(a, length): &&(Ipv4Addr, u8)| {
            Prefix::new(IpAddr::V4(a), length).contains(&IpAddr::V4(to))
        };
        self.v4
            .iter()
            .find(holds)
            .or(self.v4.first())
            .map(|&(a, _)| a)
    }

    /// Chooses the IPv6 source address for packets to `to` over this interface: a link-local one for
    /// link-local destinations, else the one with the longest common prefix (RFC 6724 5, rules 2 and 8).
    pub fn source6(&self, to: Ipv6Addr) -> Option<Ipv6Addr> {
        if !self.has_v6() {
            return None;
        }
        if to.is_unicast_link_local() {
            let own = self.v6.iter().map(|&(a, _)| a);
            return own
                .filter(Ipv6Addr::is_unicast_link_local)
                .chain([self.link_local])
                .next();
        }
        self.v6
            .iter()
            .map(|&(a, _)| a)
            .filter(|a| !a.is_unicast_link_local())
            .max_by_key(|a| (a.to_bits() ^ to.to_bits()).leading_zeros())
            .or(Some(self.link_local))
    }
}

fn ports(plan: &Plan, facts: &[PortFacts]) -> Vec<Port> {
    plan.ports
        .iter()
        .zip(facts)
        .enumerate()
        .map(|(i, (port, facts))| Port {
            mac: port.mac.unwrap_or(facts.mac),
            mtu: port.mtu.map_or(facts.mtu, |mtu| mtu.min(facts.mtu)),
            role: port.role,
            interface: plan.interface_of(PortId(i as u16)).unwrap_or_default(),
            host_mac: MacAddr::ZERO,
        })
        .collect()
}

fn interfaces(plan: &Plan, ports: &[Port]) -> Vec<Interface> {
    plan.interfaces
        .iter()
        .map(|interface| {
            let members: Vec<PortId> = match interface.link {
                Link::Port(port) => vec![port],
                Link::Bridge(bridge) => plan.bridges[bridge.index()].ports.clone(),
            };
            let members = members.iter().filter_map(|port| ports.get(port.index()));
            let mac = members
                .clone()
                .map(|port| port.mac)
                .next()
                .unwrap_or_default();
            Interface {
                mac,
                mtu: members.map(|port| port.mtu).min().unwrap_or(u16::MAX),
                link: interface.link,
                v4: interface
                    .addresses
                    .iter()
                    .filter_map(|a| match a.address {
                        IpAddr::V4(v4) => Some((v4, a.length)),
                        IpAddr::V6(_) => None,
                    })
                    .collect(),
                v6: interface
                    .addresses
                    .iter()
                    .filter_map(|a| match a.address {
                        IpAddr::V6(v6) => Some((v6, a.length)),
                        IpAddr::V4(_) => None,
                    })
                    .collect(),
                link_local: mac.to_link_local(),
            }
        })
        .collect()
}

/// Lists all routes: static ones first, so that of equal prefixes a connected or local one wins.
fn routes(plan: &Plan, next_hops: &mut Vec<NextHop>) -> Vec<RouteEntry> {
    let mut routes: Vec<RouteEntry> = Vec::new();
    for (i, route) in plan.routes.iter().enumerate() {
        if plan.routes[..i]
            .iter()
            .any(|earlier| earlier.to == route.to)
        {
            continue; // its next hops were taken with the first of that destination
        }
        let first = next_hops.len() as u32;
        for same in plan.routes[i..].iter().filter(|r| r.to == route.to) {
            match same.target {
                RouteTarget::Via { gateway, interface } => next_hops.push(NextHop {
                    interface,
                    gateway: Some(mapped(&gateway)),
                }),
                RouteTarget::OnLink(interface) => next_hops.push(NextHop {
                    interface,
                    gateway: None,
                }),
                RouteTarget::Blackhole => {}
            }
        }
        let count = next_hops.len() as u32 - first;
        routes.push(RouteEntry {
            to: route.to,
            source: RouteSource::Static,
            route: match count {
                0 => Route::Blackhole,
                count => Route::Forward { first, count },
            },
        });
    }
    for (i, interface) in plan.interfaces.iter().enumerate() {
        let id = InterfaceId(i as u16);
        for address in &interface.addresses {
            connected(&mut routes, next_hops, id, address);
        }
    }
    routes
}

fn connected(
    routes: &mut Vec<RouteEntry>,
    next_hops: &mut Vec<NextHop>,
    interface: InterfaceId,
    address: &Prefix,
) {
    let host = |address| Prefix::new(address, u8::MAX);
    // A link-local network is on every link: its addresses are looked up on the interface, not here.
    let link_local = matches!(address.address, IpAddr::V6(a) if a.is_unicast_link_local());
    if !link_local && address.length < host(address.address).length {
        routes.push(RouteEntry {
            to: address.network(),
            source: RouteSource::Connected,
            route: Route::Forward {
                first: next_hops.len() as u32,
                count: 1,
            },
        });
        next_hops.push(NextHop {
            interface,
            gateway: None,
        });
    }
    if let Some(broadcast) = address.broadcast() {
        for end in [address.network().address, IpAddr::V4(broadcast)] {
            routes.push(RouteEntry {
                to: host(end),
                source: RouteSource::Connected,
                route: Route::Broadcast(interface),
            });
        }
    }
    if !link_local {
        routes.push(RouteEntry {
            to: host(address.address),
            source: RouteSource::Local,
            route: Route::Local,
        });
    }
}
