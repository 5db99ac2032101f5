//! Names to ids, texts to addresses. The configuration has been checked: what does not resolve here was a
//! finding there.

use std::collections::HashMap;
use std::net::IpAddr;

use control::Config;
use control::config::{LinkConfig, RouteConfig};
use graph::fault::Faults;
use io::PortId;
use std::time::Duration;

use super::{
    BridgeId, BridgePlan, InterfaceId, InterfacePlan, Link, LinkId, LinkPlan, NeighbourPlan, Plan,
    PortPlan, PortRole, RoutePlan, RouteTarget,
};
use crate::prefix::Prefix;

/// What a frame has beside its payload: the Ethernet header, bytes.
const ETHERNET_BYTES: u32 = 14;

/// A plan in the making.
#[derive(Default)]
pub(super) struct Resolver {
    plan: Plan,
    /// Ports and bridges that have addresses, by name.
    interfaces: HashMap<String, InterfaceId>,
}

impl Resolver {
    pub(super) fn finish(self) -> Plan {
        self.plan
    }

    pub(super) fn firewall(&mut self, config: &Config) {
        self.plan.firewall = config.firewall.as_ref().map(|firewall| {
            let inside = firewall.inside.as_ref();
            let inside = inside.and_then(|name| self.interfaces.get(name).copied());
            (firewall.clone(), inside)
        });
    }

    /// Notes the host, with all of the node's addresses where the configuration names none.
    pub(super) fn host(&mut self, config: &Config) {
        let own = self.plan.interfaces.iter();
        let own = own.flat_map(|interface| interface.addresses.iter().map(|a| a.address));
        self.plan.host = config.host.clone().map(|mut host| {
            if host.addresses.is_empty() {
                host.addresses = own.filter(|address| !is_link_local(address)).collect();
            }
            host
        });
    }

    pub(super) fn ports(&mut self, config: &Config) {
        for (i, port) in config.port.iter().enumerate() {
            let bridge = config
                .bridge
                .iter()
                .position(|b| b.ports.contains(&port.name));
            let link = config
                .link
                .iter()
                .position(|l| l.ports.contains(&port.name));
            let role = match (bridge, link) {
                (Some(bridge), _) => PortRole::Bridged(BridgeId(bridge as u16)),
                (None, Some(link)) => PortRole::Linked(LinkId(link as u16)),
                (None, None) => {
                    let link = Link::Port(PortId(i as u16));
                    PortRole::Routed(self.interface(&port.name, link, &port.addresses))
                }
            };
            self.plan.ports.push(PortPlan {
                name: port.name.clone(),
                role,
                mac: port.mac.as_ref().and_then(|mac| mac.parse().ok()),
                mtu: port.mtu,
            });
        }
    }

    fn interface(&mut self, name: &str, link: Link, addresses: &[String]) -> InterfaceId {
        let id = InterfaceId(self.plan.interfaces.len() as u16);
        self.plan.interfaces.push(InterfacePlan {
            name: name.to_owned(),
            link,
            addresses: addresses.iter().filter_map(|a| a.parse().ok()).collect(),
        });
        self.interfaces.insert(name.to_owned(), id);
        id
    }

    pub(super) fn bridges(&mut self, config: &Config) {
        for (i, bridge) in config.bridge.iter().enumerate() {
            let link = Link::Bridge(BridgeId(i as u16));
            let interface = self.interface(&bridge.name, link, &bridge.addresses);
            self.plan.bridges.push(BridgePlan {
                name: bridge.name.clone(),
                ports: ports_of(config, &bridge.ports),
                interface,
                ageing_s: bridge.ageing_s,
            });
        }
    }

    pub(super) fn links(&mut self, config: &Config) {
        for link in &config.link {
            if let [a, b] = ports_of(config, &link.ports)[..] {
                self.plan.links.push(LinkPlan {
                    name: link.name.clone(),
                    ends: [a, b],
                    faults: faults(link),
                    seed: link.seed.into(),
                });
            }
        }
    }

    pub(super) fn routes(&mut self, config: &Config) {
        for route in &config.route {
            if let Ok(to) = route.to.parse()
                && let Some(target) = self.target(route)
            {
                self.plan.routes.push(RoutePlan { to, target });
            }
        }
    }

    fn target(&self, route: &RouteConfig) -> Option<RouteTarget> {
        if route.blackhole {
            return Some(RouteTarget::Blackhole);
        }
        let named = match &route.port {
            Some(name) => Some(self.interfaces.get(name).copied()?),
            None => None,
        };
        let Some(gateway) = route.via else {
            return named.map(RouteTarget::OnLink);
        };
        let interface = named.or_else(|| self.reaching(gateway))?;
        Some(RouteTarget::Via { gateway, interface })
    }

    fn reaching(&self, gateway: IpAddr) -> Option<InterfaceId> {
        let holds = |address: &Prefix| address.contains(&gateway);
        let reaches = |interface: &InterfacePlan| interface.addresses.iter().any(holds);
        let found = self.plan.interfaces.iter().position(reaches);
        found.map(|index| InterfaceId(index as u16))
    }

    pub(super) fn neighbours(&mut self, config: &Config) {
        for neighbour in &config.neighbour {
            if let Ok(mac) = neighbour.mac.parse()
                && let Some(&interface) = self.interfaces.get(&neighbour.port)
            {
                self.plan.neighbours.push(NeighbourPlan {
                    address: neighbour.address,
                    mac,
                    interface,
                });
            }
        }
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn ports_of(config: &Config, names: &[String]) -> Vec<PortId> {
    let named = |name: &String| config.port.iter().position(|port| port.name == *name);
    let found = names.iter().filter_map(named);
    found.map(|index| PortId(index as u16)).collect()
}

fn faults(link: &LinkConfig) -> Faults {
    let us = |us: u32| Duration::from_micros(us.into());
    Faults {
        drop_ppm: link.drop_ppm,
        duplicate_ppm: link.duplicate_ppm,
        corrupt_ppm: link.corrupt_ppm,
        reorder_ppm: link.reorder_ppm,
        reorder_by: us(link.reorder_us),
        delay: us(link.delay_us),
        jitter: us(link.jitter_us),
        mtu_bytes: link.mtu.map_or(0, |mtu| u32::from(mtu) + ETHERNET_BYTES),
        bandwidth_bps: link.rate_bps.unwrap_or(0),
        queue_pkts: link.queue_pkts as usize,
    }
}
