//! Addresses, routes and neighbours.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::{Checker, interfaces, is_link_local, is_on_any_link, not_a_host, readable};
use crate::address::{InterfaceAddress, Prefix};
use crate::config::schema::{NeighbourConfig, RouteConfig};

impl Checker<'_> {
    /// Addresses of ports and bridges: each usable, none twice, no link on two ports.
    pub(super) fn addresses(&mut self) {
        let mut seen: Vec<(InterfaceAddress, &str)> = Vec::new();
        for (path, name, addresses) in interfaces(self.config) {
            for (index, address) in addresses.iter().enumerate() {
                let path = format!("{path}.addresses.{index}");
                let Some(address) = self.read::<InterfaceAddress>(&path, address) else {
                    continue;
                };
                self.host_address(&path, address);
                // each link has the same link-local prefix (RFC 4291 2.5.6)
                if is_link_local(address.address) {
                    continue;
                }
                let same = seen
                    .iter()
                    .find(|(other, _)| other.address == address.address);
                let overlap = seen.iter().find(|(other, owner)| {
                    *owner != name
                        && (other.prefix().contains(address.address)
                            || address.prefix().contains(other.address))
                });
                if let Some((_, owner)) = same {
                    self.problem(
                        &path,
                        format!("the address `{}` is given twice", address.address),
                        format!("`{owner}` has it already"),
                        "remove one of the two",
                    );
                } else if let Some((other, owner)) = overlap {
                    self.problem(
                        &path,
                        format!("`{}` is a link of two ports", address.prefix()),
                        format!("`{owner}` has `{other}` already"),
                        "give each port a prefix of its own, or join the ports by a bridge",
                    );
                }
                seen.push((address, name));
            }
        }
    }

    fn host_address(&mut self, path: &str, address: InterfaceAddress) {
        let ip = address.address;
        let fault = if let Some(fault) = not_a_host(ip) {
            fault
        } else if address.length == 0 {
            "a prefix length of 0 puts every address on this link"
        } else if address.broadcast().is_some_and(|broadcast| ip == broadcast) {
            "the broadcast address of its link"
        } else if address.broadcast().is_some() && ip == address.prefix().address() {
            "the address of the link itself, not of a host on it"
        } else {
            return;
        };
        let remedy = match ip {
            IpAddr::V4(v4)
                if address.broadcast().is_some()
                    && address.length > 0
                    && not_a_host(ip).is_none() =>
            {
                let first = match address.prefix().address() {
                    IpAddr::V4(network) => network.to_bits() + 1,
                    IpAddr::V6(_) => v4.to_bits(),
                };
                format!(
                    "write a host's address, such as `\"{}/{}\"`",
                    std::net::Ipv4Addr::from_bits(first),
                    address.length
                )
            }
            _ => "write a host's address, such as `\"192.0.2.1/24\"`".to_owned(),
        };
        self.problem(
            path,
            format!("`{address}` cannot be an address of the node"),
            fault,
            remedy,
        );
    }

    pub(super) fn routes(&mut self) {
        let config = self.config;
        let mut seen = HashSet::new();
        for (index, route) in config.route.iter().enumerate() {
            let path = format!("route.{index}.to");
            let Some(to) = self.read::<Prefix>(&path, &route.to) else {
                continue;
            };
            if !seen.insert((to, route.via, &route.port, route.blackhole)) {
                self.problem(
                    &path,
                    format!("the route to `{to}` is given twice"),
                    "the same next hop stands above",
                    "remove one of the two",
                );
            }
            self.destination(&path, to);
            let both =
                |other: &RouteConfig| other.to == route.to && other.blackhole != route.blackhole;
            if config.route[..index].iter().any(both) {
                self.problem(
                    &path,
                    format!("routes to `{to}` both discard and forward"),
                    "a route above says otherwise",
                    "remove one of the two",
                );
            }
            self.route(index, route, to);
        }
    }

    fn destination(&mut self, path: &str, to: Prefix) {
        if to.address().is_multicast() {
            self.problem(
                path,
                format!("`{to}` is multicast"),
                "the node routes unicast packets only",
                "write a unicast prefix, or remove the route",
            );
        }
        let link = interfaces(self.config).find_map(|(_, name, addresses)| {
            readable(addresses)
                .any(|address| address.prefix() == to)
                .then_some(name)
        });
        if let Some(name) = link {
            self.problem(
                path,
                format!("`{to}` is the link of `{name}`"),
                "the node has this route already",
                "remove the route",
            );
        }
    }

    fn route(&mut self, index: usize, route: &RouteConfig, to: Prefix) {
        let path = |key: &str| format!("route.{index}.{key}");
        if route.blackhole {
            if route.via.is_some() || route.port.is_some() {
                let key = if route.via.is_some() { "via" } else { "port" };
                self.problem(
                    &path(key),
                    format!("the route to `{to}` both discards and forwards"),
                    format!("a blackhole takes no `{key}`"),
                    format!("remove `{key}`, or remove `blackhole`"),
                );
            }
            return;
        }
        if let Some(port) = &route.port
            && !self.is_interface(&path("port"), port)
        {
            return;
        }
        match route.via {
            Some(via) => self.next_hop(index, route, to, via),
            None if route.port.is_none() => self.problem(
                &path("to"),
                format!("the route to `{to}` leads nowhere"),
                "needs `via`, `port` or `blackhole`",
                "add a line such as `via = \"192.0.2.254\"` below it",
            ),
            None => {}
        }
    }

    fn next_hop(&mut self, index: usize, route: &RouteConfig, to: Prefix, via: IpAddr) {
        let path = format!("route.{index}.via");
        if via.is_ipv4() != to.address().is_ipv4() {
            self.problem(
                &path,
                format!("the route to `{to}` goes by an address of the other IP version"),
                format!("`{via}` is IPv{}", if via.is_ipv4() { 4 } else { 6 }),
                "write a next hop of the destination's IP version",
            );
            return;
        }
        if let Some(fault) = not_a_host(via) {
            self.problem(
                &path,
                format!("`{via}` cannot be a next hop"),
                fault,
                "write the address of the next router",
            );
            return;
        }
        let links: Vec<_> = interfaces(self.config)
            .filter(|(_, name, _)| route.port.as_deref().is_none_or(|port| port == *name))
            .flat_map(|(_, name, addresses)| {
                readable(addresses).map(move |address| (name, address))
            })
            .collect();
        if let Some((name, _)) = links.iter().find(|(_, address)| address.address == via) {
            self.problem(
                &path,
                format!("the next hop `{via}` is the node itself"),
                format!("an address of `{name}`"),
                "write the address of the next router",
            );
        } else if !links
            .iter()
            .any(|(_, address)| address.prefix().contains(via))
            && !is_on_any_link(via)
        {
            let on = route.port.as_ref().map_or_else(
                || "no port has a link with it".to_owned(),
                |port| format!("`{port}` has no link with it"),
            );
            let remedy = match links
                .iter()
                .find(|(_, link)| link.address.is_ipv4() == via.is_ipv4())
            {
                Some((name, link)) => format!(
                    "write a next hop in `{}`, the link of `{name}`",
                    link.prefix()
                ),
                None => format!("give a port an address on the link of `{via}`"),
            };
            self.problem(
                &path,
                format!("the next hop `{via}` cannot be reached"),
                on,
                remedy,
            );
        } else if is_on_any_link(via) && route.port.is_none() {
            self.problem(
                &path,
                format!("the next hop `{via}` could be on any link"),
                "a link-local address",
                "add a line such as `port = \"wan\"` to say which",
            );
        }
    }

    pub(super) fn neighbours(&mut self) {
        let config = self.config;
        let mut seen: HashMap<(IpAddr, &str), usize> = HashMap::new();
        for (index, neighbour) in config.neighbour.iter().enumerate() {
            let path = |key: &str| format!("neighbour.{index}.{key}");
            self.unicast_mac(&path("mac"), &neighbour.mac);
            if !self.is_interface(&path("port"), &neighbour.port) {
                continue;
            }
            self.neighbour_address(&path("address"), neighbour);
            let key = (neighbour.address, neighbour.port.as_str());
            if seen.insert(key, index).is_some() {
                self.problem(
                    &path("address"),
                    format!("the neighbour `{}` is given twice", neighbour.address),
                    format!("on `{}` already", neighbour.port),
                    "remove one of the two",
                );
            }
            let own = interfaces(config)
                .flat_map(|(_, _, addresses)| readable(addresses))
                .any(|address| address.address == neighbour.address);
            if own {
                self.problem(
                    &path("address"),
                    format!("the neighbour `{}` is the node itself", neighbour.address),
                    "an address of a port",
                    "write the address of the other host",
                );
            }
        }
    }

    fn neighbour_address(&mut self, path: &str, neighbour: &NeighbourConfig) {
        let address = neighbour.address;
        if let Some(fault) = not_a_host(address) {
            self.problem(
                path,
                format!("`{address}` cannot be a neighbour"),
                fault,
                "write a host's address",
            );
            return;
        }
        let config = self.config;
        let name = neighbour.port.as_str();
        let on_link = interfaces(config)
            .filter(|(_, known, _)| *known == name)
            .flat_map(|(_, _, addresses)| readable(addresses))
            .any(|link| link.prefix().contains(address));
        let routed = config.route.iter().any(|route| {
            let on_link = route.via.is_none() && !route.blackhole;
            let to = route.to.parse::<Prefix>();
            on_link
                && route.port.as_deref() == Some(name)
                && to.is_ok_and(|to| to.contains(address))
        });
        if !on_link && !routed && !is_on_any_link(address) {
            self.problem(
                path,
                format!("the neighbour `{address}` is not on the link of `{name}`"),
                "no address and no route of it holds this",
                "write the port or bridge whose prefix holds the address",
            );
        }
    }
}
