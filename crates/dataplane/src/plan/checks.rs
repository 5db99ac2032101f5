//! The checks, in the order of the file.

use std::collections::HashMap;
use std::net::IpAddr;

use control::Config;
use control::config::{DriverConfig, NeighbourConfig, PortConfig, RouteConfig};
use io::PortId;

use super::addresses::{is_link_local, not_a_host, not_an_interface_address};
use super::{
    BridgeId, BridgePlan, InterfaceId, InterfacePlan, Link, NeighbourPlan, Plan, PlanError,
    PortPlan, PortRole, Problem, RoutePlan, RouteTarget,
};
use wire::MacAddr;

use crate::prefix::Prefix;

/// Smallest MTU that IPv4 allows (RFC 791 3.2), bytes.
const MIN_MTU_V4_BYTES: u16 = 68;
/// Smallest MTU that IPv6 allows (RFC 8200 5), bytes.
const MIN_MTU_V6_BYTES: u16 = 1280;
/// What a frame needs beside the packet: headroom, Ethernet header and two VLAN tags, bytes.
const FRAME_OVERHEAD_BYTES: u32 = io::pool::HEADROOM_BYTES as u32 + 14 + 8;

/// A plan in the making, the problems found so far, and where each address was written.
#[derive(Default)]
pub(super) struct Check {
    plan: Plan,
    problems: Vec<Problem>,
    /// Ports and bridges that have addresses, by name.
    interfaces: HashMap<String, InterfaceId>,
    /// Port names that are members of a bridge.
    members: HashMap<String, String>,
    written: Vec<(String, InterfaceId, Prefix)>,
}

impl Check {
    fn problem(
        &mut self,
        path: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.problems.push(Problem {
            path: path.into(),
            message: message.into(),
            remedy: remedy.into(),
        });
    }

    pub(super) fn finish(self) -> Result<Plan, PlanError> {
        if self.problems.is_empty() {
            Ok(self.plan)
        } else {
            Err(PlanError {
                problems: self.problems,
            })
        }
    }

    pub(super) fn node(&mut self, config: &Config) {
        let node = &config.node;
        for (i, cpu) in node.cpus.iter().enumerate() {
            if node.cpus[..i].contains(cpu) {
                self.problem(
                    format!("node.cpus[{i}]"),
                    format!("CPU {cpu} is listed twice"),
                    "list each CPU once: a worker owns its core",
                );
            }
        }
        if !node.frame_bytes.is_power_of_two() || !(2048..=32768).contains(&node.frame_bytes) {
            self.problem(
                "node.frame_bytes",
                format!(
                    "{} is not a power of two from 2048 to 32768",
                    node.frame_bytes
                ),
                "write 2048, or 4096 for packets beyond 1770 bytes",
            );
        }
        if node.frames_per_worker < 256 {
            self.problem(
                "node.frames_per_worker",
                format!(
                    "{} frames are less than the rings hold",
                    node.frames_per_worker
                ),
                "write at least 256; 8192 is the default",
            );
        }
    }

    pub(super) fn ports(&mut self, config: &Config) {
        if config.port.is_empty() {
            self.problem(
                "port",
                "there are no ports",
                "add a [[port]] table with the name of a kernel interface",
            );
        }
        let bridged: HashMap<&str, usize> = config
            .bridge
            .iter()
            .enumerate()
            .flat_map(|(i, b)| b.ports.iter().map(move |p| (p.as_str(), i)))
            .collect();
        for (i, port) in config.port.iter().enumerate() {
            self.port(config, i, port);
            let role = match bridged.get(port.name.as_str()) {
                Some(&bridge) => PortRole::Bridged(BridgeId(bridge as u16)),
                None => {
                    let id = self.interface(&port.name, Link::Port(PortId(i as u16)));
                    self.interface_addresses(&format!("port[{i}]"), id, &port.addresses);
                    PortRole::Routed(id)
                }
            };
            if matches!(role, PortRole::Bridged(_)) && !port.addresses.is_empty() {
                self.problem(
                    format!("port[{i}].addresses"),
                    format!("port `{}` is in a bridge", port.name),
                    "give the addresses to the [[bridge]]",
                );
            }
            let mac = self.port_mac(i, port);
            self.plan.ports.push(PortPlan {
                name: port.name.clone(),
                role,
                mac,
                mtu: port.mtu,
            });
        }
    }

    fn port(&mut self, config: &Config, i: usize, port: &PortConfig) {
        let earlier = &config.port[..i];
        if port.name.is_empty() {
            self.problem(
                format!("port[{i}].name"),
                "the name is empty",
                "name the port",
            );
        } else if earlier.iter().any(|p| p.name == port.name) {
            self.problem(
                format!("port[{i}].name"),
                format!("there is already a port `{}`", port.name),
                "give each port a name of its own",
            );
        }
        let interface = |p: &PortConfig| p.interface.clone().unwrap_or_else(|| p.name.clone());
        let on_kernel =
            |p: &PortConfig| !matches!(p.driver, DriverConfig::Pcap | DriverConfig::Mem);
        if let Some(other) = earlier
            .iter()
            .find(|p| on_kernel(p) && on_kernel(port) && interface(p) == interface(port))
            .filter(|p| p.name != port.name)
        {
            self.problem(
                format!("port[{i}].interface"),
                format!(
                    "port `{}` has interface `{}` already",
                    other.name,
                    interface(port)
                ),
                "give each port an interface of its own",
            );
        }
        match (port.driver, &port.file) {
            (DriverConfig::Pcap, None) => self.problem(
                format!("port[{i}].file"),
                "the pcap driver needs a file",
                "add `file = \"capture.pcap\"`",
            ),
            (DriverConfig::Pcap, Some(_)) | (_, None) => {}
            (_, Some(_)) => self.problem(
                format!("port[{i}].file"),
                "only the pcap driver reads a file",
                "remove the key, or set `driver = \"pcap\"`",
            ),
        }
        self.port_mtu(config, i, port);
    }

    fn port_mtu(&mut self, config: &Config, i: usize, port: &PortConfig) {
        let Some(mtu) = port.mtu else { return };
        let has_v6 = port.addresses.iter().any(|a| a.contains(':'));
        let least = if has_v6 {
            MIN_MTU_V6_BYTES
        } else {
            MIN_MTU_V4_BYTES
        };
        if mtu < least {
            self.problem(
                format!("port[{i}].mtu"),
                format!("{mtu} is less than the {least} bytes that the port's addresses need"),
                format!("write at least {least}"),
            );
        }
        let most = config.node.frame_bytes.saturating_sub(FRAME_OVERHEAD_BYTES);
        if u32::from(mtu) > most {
            self.problem(
                format!("port[{i}].mtu"),
                format!(
                    "packets of {mtu} bytes do not fit frames of {}",
                    config.node.frame_bytes
                ),
                format!("raise node.frame_bytes, or write at most {most}"),
            );
        }
    }

    fn port_mac(&mut self, i: usize, port: &PortConfig) -> Option<MacAddr> {
        let path = format!("port[{i}].mac");
        self.unicast_mac(path, port.mac.as_deref()?)
    }

    fn unicast_mac(&mut self, path: String, text: &str) -> Option<MacAddr> {
        let remedy =
            "write six pairs of hexadecimal digits, the first one even, e.g. 02:00:00:00:00:01";
        match text.parse::<MacAddr>() {
            Ok(mac) if mac.is_group() => {
                self.problem(path, format!("`{text}` is a group address"), remedy);
                None
            }
            Ok(mac) if mac == MacAddr::ZERO => {
                self.problem(path, "the address is all zeros", remedy);
                None
            }
            Ok(mac) => Some(mac),
            Err(_) => {
                self.problem(path, format!("`{text}` is not a MAC address"), remedy);
                None
            }
        }
    }

    fn interface(&mut self, name: &str, link: Link) -> InterfaceId {
        let id = InterfaceId(self.plan.interfaces.len() as u16);
        self.plan.interfaces.push(InterfacePlan {
            name: name.to_owned(),
            link,
            addresses: Vec::new(),
        });
        self.interfaces.entry(name.to_owned()).or_insert(id);
        id
    }

    fn interface_addresses(&mut self, table: &str, id: InterfaceId, addresses: &[String]) {
        for (j, text) in addresses.iter().enumerate() {
            let path = format!("{table}.addresses[{j}]");
            let prefix = match text.parse::<Prefix>() {
                Ok(prefix) => prefix,
                Err(error) => {
                    let message = format!("`{text}`: {error}");
                    self.problem(path, message, "write an address and its prefix length, e.g. 192.0.2.1/24 or 2001:db8::1/64");
                    continue;
                }
            };
            if let Some(reason) = not_an_interface_address(&prefix) {
                self.problem(
                    path,
                    format!("`{text}`: {reason}"),
                    "write a host's address",
                );
                continue;
            }
            self.written.push((path, id, prefix));
            self.plan.interfaces[id.index()].addresses.push(prefix);
        }
    }

    pub(super) fn bridges(&mut self, config: &Config) {
        for (i, bridge) in config.bridge.iter().enumerate() {
            if bridge.name.is_empty() {
                self.problem(
                    format!("bridge[{i}].name"),
                    "the name is empty",
                    "name the bridge",
                );
            } else if self.interfaces.contains_key(&bridge.name)
                || config.port.iter().any(|p| p.name == bridge.name)
            {
                self.problem(
                    format!("bridge[{i}].name"),
                    format!("there is already a port or bridge `{}`", bridge.name),
                    "give it a name of its own",
                );
            }
            if !(10..=1_000_000).contains(&bridge.ageing_s) {
                self.problem(
                    format!("bridge[{i}].ageing_s"),
                    format!("{} s is outside of 10 to 1000000 s", bridge.ageing_s),
                    "write 300, the value that IEEE 802.1D recommends",
                );
            }
            let ports = self.bridge_ports(config, i);
            let interface = self.interface(&bridge.name, Link::Bridge(BridgeId(i as u16)));
            self.interface_addresses(&format!("bridge[{i}]"), interface, &bridge.addresses);
            self.plan.bridges.push(BridgePlan {
                name: bridge.name.clone(),
                ports,
                interface,
                ageing_s: bridge.ageing_s,
            });
        }
    }

    fn bridge_ports(&mut self, config: &Config, i: usize) -> Vec<PortId> {
        let bridge = &config.bridge[i];
        if bridge.ports.is_empty() {
            self.problem(
                format!("bridge[{i}].ports"),
                format!("bridge `{}` has no ports", bridge.name),
                "list the names of its ports",
            );
        }
        let mut ports = Vec::new();
        for (j, name) in bridge.ports.iter().enumerate() {
            let path = format!("bridge[{i}].ports[{j}]");
            let Some(port) = config.port.iter().position(|p| p.name == *name) else {
                let remedy = known_names("a port", config.port.iter().map(|p| p.name.as_str()));
                self.problem(path, format!("there is no port `{name}`"), remedy);
                continue;
            };
            if let Some(other) = self.members.get(name) {
                let message = format!("port `{name}` is in bridge `{other}` already");
                self.problem(path, message, "put each port in at most one bridge");
                continue;
            }
            self.members.insert(name.clone(), bridge.name.clone());
            ports.push(PortId(port as u16));
        }
        ports
    }

    /// Each address once, and each network on one link.
    pub(super) fn addresses(&mut self) {
        let written = std::mem::take(&mut self.written);
        for (i, (path, interface, prefix)) in written.iter().enumerate() {
            let link_local = is_link_local(&prefix.address);
            for (other_path, other_interface, other) in &written[..i] {
                if other.address == prefix.address && !(link_local && other_interface != interface)
                {
                    self.problem(
                        path,
                        format!("`{prefix}` has the address of {other_path}"),
                        "give each interface an address of its own",
                    );
                } else if other_interface != interface && other.overlaps(prefix) && !link_local {
                    self.problem(
                        path,
                        format!("`{prefix}` overlaps `{other}` of {other_path}, on another link"),
                        "give each link a network of its own",
                    );
                }
            }
        }
    }

    pub(super) fn routes(&mut self, config: &Config) {
        for (i, route) in config.route.iter().enumerate() {
            let Some(to) = self.route_destination(i, &route.to) else {
                continue;
            };
            let Some(target) = self.route_target(config, i, route, &to) else {
                continue;
            };
            let new = RoutePlan { to, target };
            if self.plan.routes.contains(&new) {
                self.problem(
                    format!("route[{i}].to"),
                    format!("the same route to `{to}` is there already"),
                    "remove one of them",
                );
                continue;
            }
            let blackhole = target == RouteTarget::Blackhole;
            if self
                .plan
                .routes
                .iter()
                .any(|r| r.to == to && (blackhole || r.target == RouteTarget::Blackhole))
            {
                self.problem(
                    format!("route[{i}].blackhole"),
                    format!("`{to}` is both discarded and forwarded"),
                    "remove one of the routes",
                );
                continue;
            }
            self.plan.routes.push(new);
        }
    }

    fn route_destination(&mut self, i: usize, text: &str) -> Option<Prefix> {
        let path = format!("route[{i}].to");
        let to = match text.parse::<Prefix>() {
            Ok(to) => to,
            Err(error) => {
                let message = format!("`{text}`: {error}");
                self.problem(
                    path,
                    message,
                    "write a prefix, e.g. 198.51.100.0/24 or 0.0.0.0/0",
                );
                return None;
            }
        };
        if !to.is_network() {
            let remedy = format!("write `{}`", to.network());
            self.problem(
                path,
                format!("`{text}` has bits set after its prefix length"),
                remedy,
            );
            return None;
        }
        if to.length > 0 && to.address.is_multicast() {
            let message = format!("`{text}` is multicast, which the node does not route");
            self.problem(path, message, "write a unicast prefix");
            return None;
        }
        if let Some(interface) = self
            .plan
            .interfaces
            .iter()
            .find(|interface| interface.addresses.iter().any(|a| a.network() == to))
        {
            let message = format!("`{text}` is the link of `{}` already", interface.name);
            self.problem(path, message, "remove the route");
            return None;
        }
        Some(to)
    }

    fn route_target(
        &mut self,
        config: &Config,
        i: usize,
        route: &RouteConfig,
        to: &Prefix,
    ) -> Option<RouteTarget> {
        if route.blackhole {
            let other = match (&route.via, &route.port) {
                (Some(_), _) => Some("via"),
                (_, Some(_)) => Some("port"),
                _ => None,
            };
            if let Some(key) = other {
                self.problem(
                    format!("route[{i}].{key}"),
                    "a blackhole leads nowhere",
                    format!("remove `{key}` or `blackhole`"),
                );
                return None;
            }
            return Some(RouteTarget::Blackhole);
        }
        let interface = match &route.port {
            Some(name) => Some(self.named_interface(config, format!("route[{i}].port"), name)?),
            None => None,
        };
        match (route.via, interface) {
            (Some(gateway), interface) => self.route_gateway(i, to, gateway, interface),
            (None, Some(interface)) => Some(RouteTarget::OnLink(interface)),
            (None, None) => {
                self.problem(
                    format!("route[{i}]"),
                    format!("the route to `{to}` leads nowhere"),
                    "add `via`, `port` or `blackhole = true`",
                );
                None
            }
        }
    }

    fn route_gateway(
        &mut self,
        i: usize,
        to: &Prefix,
        gateway: IpAddr,
        interface: Option<InterfaceId>,
    ) -> Option<RouteTarget> {
        let path = format!("route[{i}].via");
        if gateway.is_ipv4() != to.address.is_ipv4() {
            let message = format!("`{gateway}` is not of the family of `{to}`");
            self.problem(path, message, "write a next hop of the same family");
            return None;
        }
        if let Some(reason) = not_a_host(&gateway) {
            self.problem(
                path,
                format!("`{gateway}`: {reason}"),
                "write a router's address",
            );
            return None;
        }
        let own = |a: &Prefix| a.address == gateway;
        if let Some(mine) = self
            .plan
            .interfaces
            .iter()
            .find(|n| n.addresses.iter().any(own))
        {
            let message = format!("`{gateway}` is the node's own address on `{}`", mine.name);
            self.problem(path, message, "write another router's address");
            return None;
        }
        if is_link_local(&gateway) && gateway.is_ipv6() {
            return match interface {
                Some(interface) => Some(RouteTarget::Via { gateway, interface }),
                None => {
                    let message = format!("`{gateway}` is link-local and the route names no port");
                    self.problem(path, message, "add `port`");
                    None
                }
            };
        }
        let reaches = |n: &InterfacePlan| n.addresses.iter().any(|a| a.contains(&gateway));
        let found = match interface {
            Some(id) => reaches(&self.plan.interfaces[id.index()]).then_some(id),
            None => self
                .plan
                .interfaces
                .iter()
                .position(reaches)
                .map(|n| InterfaceId(n as u16)),
        };
        if found.is_none() {
            let on = interface.map_or_else(
                || "any link of the node".to_owned(),
                |id| format!("the link of `{}`", self.plan.interfaces[id.index()].name),
            );
            self.problem(
                path,
                format!("`{gateway}` is not on {on}"),
                "write a next hop inside an interface's network, or give an interface an address there",
            );
        }
        found.map(|interface| RouteTarget::Via { gateway, interface })
    }

    fn named_interface(
        &mut self,
        config: &Config,
        path: String,
        name: &str,
    ) -> Option<InterfaceId> {
        if let Some(&id) = self.interfaces.get(name) {
            return Some(id);
        }
        match self.members.get(name) {
            Some(bridge) => {
                let remedy = format!("write `{bridge}`");
                self.problem(
                    path,
                    format!("port `{name}` is in bridge `{bridge}`"),
                    remedy,
                );
            }
            None => {
                let names = config.port.iter().map(|p| p.name.as_str());
                let names = names.chain(config.bridge.iter().map(|b| b.name.as_str()));
                let remedy = known_names("a port or bridge", names);
                self.problem(path, format!("there is no port or bridge `{name}`"), remedy);
            }
        }
        None
    }

    pub(super) fn neighbours(&mut self, config: &Config) {
        for (i, neighbour) in config.neighbour.iter().enumerate() {
            let mac = self.unicast_mac(format!("neighbour[{i}].mac"), &neighbour.mac);
            let port = format!("neighbour[{i}].port");
            let interface = self.named_interface(config, port, &neighbour.port);
            let (Some(mac), Some(interface)) = (mac, interface) else {
                continue;
            };
            if self.neighbour_address(i, neighbour, interface) {
                self.plan.neighbours.push(NeighbourPlan {
                    address: neighbour.address,
                    mac,
                    interface,
                });
            }
        }
    }

    fn neighbour_address(
        &mut self,
        i: usize,
        neighbour: &NeighbourConfig,
        interface: InterfaceId,
    ) -> bool {
        let path = format!("neighbour[{i}].address");
        let address = neighbour.address;
        let link = &self.plan.interfaces[interface.index()];
        let (message, remedy) = if let Some(reason) = not_a_host(&address) {
            (format!("`{address}`: {reason}"), "write a host's address")
        } else if link.addresses.iter().any(|a| a.address == address) {
            (
                format!("`{address}` is the node's own address"),
                "remove the neighbour",
            )
        } else if !self.on_link(&address, interface) {
            let message = format!("`{address}` is not on the link of `{}`", link.name);
            (
                message,
                "write the port or bridge whose network holds the address",
            )
        } else if self
            .plan
            .neighbours
            .iter()
            .any(|n| n.address == address && n.interface == interface)
        {
            (
                format!("`{address}` is there already"),
                "remove one of them",
            )
        } else {
            return true;
        };
        self.problem(path, message, remedy);
        false
    }

    fn on_link(&self, address: &IpAddr, interface: InterfaceId) -> bool {
        let link = &self.plan.interfaces[interface.index()];
        let route =
            |r: &RoutePlan| r.target == RouteTarget::OnLink(interface) && r.to.contains(address);
        (is_link_local(address) && address.is_ipv6())
            || link.addresses.iter().any(|a| a.contains(address))
            || self.plan.routes.iter().any(route)
    }
}

fn known_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|n| format!("`{n}`")).collect();
    if names.is_empty() {
        format!("define {what} with this name")
    } else {
        format!("write the name of {what}: {}", names.join(", "))
    }
}
