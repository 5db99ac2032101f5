//! Contradictions that the schema cannot see: names, ranges, addresses, references.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::str::FromStr;

use wire::MacAddr;

use super::error::Problem;
use super::explain::{list, nearest};
use super::keys;
use super::locate::Places;
use super::schema::{Config, DriverConfig, PortConfig, RouteConfig};
use crate::address::{AddressError, InterfaceAddress, Prefix};

/// The longest path of a Unix socket, bytes (`sun_path` without its final zero).
const SOCKET_PATH_MAX_BYTES: usize = 107;
/// The longest name of a kernel interface, bytes (`IFNAMSIZ` without its final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;
/// Bytes of a frame that are not the IP packet: Ethernet with two tags, headroom.
const FRAME_OVERHEAD_BYTES: u32 = 256;
/// Smallest MTU of IPv4 (RFC 791 3.2) and of IPv6 (RFC 8200 5), bytes.
const IPV4_MTU_MIN: u16 = 68;
const IPV6_MTU_MIN: u16 = 1280;
const MTU_MAX: u16 = 32_000;

/// Checks a configuration that fits the schema; returns what is wrong, in the order of the file.
pub(super) fn validate(config: &Config, text: &str, places: &Places) -> Vec<Problem> {
    let mut checker = Checker {
        config,
        text,
        places,
        problems: Vec::new(),
    };
    checker.node();
    checker.idle();
    checker.names();
    for index in 0..config.port.len() {
        checker.port(index);
    }
    checker.bridges();
    checker.addresses();
    checker.routes();
    checker.neighbours();
    let mut problems = checker.problems;
    problems.sort_by_key(|problem| problem.offset_bytes);
    problems
}

struct Checker<'a> {
    config: &'a Config,
    text: &'a str,
    places: &'a Places,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn problem(
        &mut self,
        path: &str,
        message: impl Into<String>,
        label: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.problems.push(Problem::new(
            self.text,
            self.places.of(path),
            message,
            label,
            remedy,
        ));
    }

    /// Reads an address of any kind; reports what is wrong with it.
    fn read<T: FromStr<Err = AddressError>>(&mut self, path: &str, text: &str) -> Option<T> {
        let error = match text.parse() {
            Ok(address) => return Some(address),
            Err(error) => error,
        };
        let key = keys::at_path(path).map(|(_, key)| key);
        let remedy = match (&error, key) {
            (AddressError::HostBits { meant, .. }, Some(key)) => {
                format!("write `{} = \"{meant}\"`", key.name)
            }
            (_, Some(key)) => format!("write for example `{}`", key.example),
            (_, None) => "write an address".to_owned(),
        };
        let label = key.map_or_else(String::new, |key| {
            format!("`{}` is: {}", key.name, key.kind)
        });
        self.problem(path, error.to_string(), label, remedy);
        None
    }

    fn range(&mut self, path: &str, value: u32, low: u32, high: u32, unit: &str) {
        if !(low..=high).contains(&value) {
            let key = path.rsplit('.').next().unwrap_or(path);
            let near = value.clamp(low, high);
            self.problem(
                path,
                format!("{value} is out of range for `{key}`"),
                format!("{low} to {high}{unit}"),
                format!("write `{key} = {near}` or a value in the range"),
            );
        }
    }

    fn node(&mut self) {
        let node = &self.config.node;
        if node.name.is_empty() {
            self.problem(
                "node.name",
                "the node's name is empty",
                "empty",
                "write a name, or remove the key",
            );
        }
        let mut seen = HashMap::new();
        for (index, cpu) in node.cpus.iter().enumerate() {
            if seen.insert(cpu, index).is_some() {
                self.problem(
                    &format!("node.cpus.{index}"),
                    format!("CPU {cpu} is given twice"),
                    "a CPU runs one worker",
                    format!("remove one {cpu}"),
                );
            }
        }
        self.range(
            "node.frames_per_worker",
            node.frames_per_worker,
            256,
            1 << 20,
            " frames",
        );
        if !node.frame_bytes.is_power_of_two() || !(2048..=32768).contains(&node.frame_bytes) {
            let near = node.frame_bytes.clamp(2048, 32768).next_power_of_two();
            self.problem(
                "node.frame_bytes",
                format!("{} is not a size of frames", node.frame_bytes),
                "2048, 4096, 8192, 16384 or 32768 bytes",
                format!("write `frame_bytes = {near}`"),
            );
        }
        let socket = &node.control_socket;
        let length = socket.as_os_str().len();
        if !socket.is_absolute() {
            self.problem(
                "node.control_socket",
                "the control socket's path is relative",
                "must begin with `/`",
                "write `control_socket = \"/run/tidegate/control.sock\"`",
            );
        } else if length > SOCKET_PATH_MAX_BYTES {
            self.problem(
                "node.control_socket",
                "the control socket's path is too long for the kernel",
                format!("{length} bytes; at most {SOCKET_PATH_MAX_BYTES}"),
                "write a shorter path, such as \"/run/tidegate/control.sock\"",
            );
        }
    }

    fn idle(&mut self) {
        let idle = &self.config.idle;
        self.range(
            "idle.latency_budget_us",
            idle.latency_budget_us,
            1,
            1_000_000,
            " microseconds",
        );
        self.range(
            "idle.window_us",
            idle.window_us,
            1,
            1_000_000,
            " microseconds",
        );
        self.range(
            "idle.window_pkts",
            idle.window_pkts,
            1,
            u32::MAX,
            " packets",
        );
        self.range(
            "idle.interrupts_per_ms",
            idle.interrupts_per_ms,
            1,
            u32::MAX,
            "",
        );
    }

    /// Names of ports and bridges: one name space.
    fn names(&mut self) {
        let config = self.config;
        let ports = config.port.iter().map(|port| &port.name);
        let bridges = config.bridge.iter().map(|bridge| &bridge.name);
        let named = ports
            .enumerate()
            .map(|(index, name)| (format!("port.{index}.name"), "port", name))
            .chain(
                bridges
                    .enumerate()
                    .map(|(index, name)| (format!("bridge.{index}.name"), "bridge", name)),
            );
        let mut seen = HashMap::new();
        for (path, kind, name) in named {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                let fixed: String = name.chars().filter(|c| plain(*c)).collect();
                let fixed = if fixed.is_empty() { kind } else { &fixed };
                self.problem(
                    &path,
                    format!("`{name}` cannot name a {kind}"),
                    "letters, digits, `-`, `_` and `.` only",
                    format!("write `name = \"{fixed}\"`"),
                );
            } else if let Some(first) = seen.insert(name, kind) {
                self.problem(
                    &path,
                    format!("the name `{name}` is given twice"),
                    format!("a {first} above has it already"),
                    format!("give this {kind} a name of its own"),
                );
            }
        }
        if config.port.is_empty() {
            self.problems.push(Problem::new(
                self.text,
                self.text.len()..self.text.len(),
                "the node has no port",
                "the file ends here",
                "add a table `[[port]]` with a line such as `name = \"eth0\"`",
            ));
        }
    }

    fn port(&mut self, index: usize) {
        let port = &self.config.port[index];
        let path = |key: &str| format!("port.{index}.{key}");
        if uses_interface(port) {
            let interface = interface(port);
            let key = if port.interface.is_some() {
                "interface"
            } else {
                "name"
            };
            if let Some(fault) = interface_name_fault(interface) {
                self.problem(
                    &path(key),
                    format!("`{interface}` cannot be an interface of the kernel"),
                    fault,
                    "write `interface = \"eth0\"` with a name that `ip link` lists",
                );
            }
            let twin = self.config.port[..index]
                .iter()
                .find(|other| uses_interface(other) && self::interface(other) == interface);
            if let Some(twin) = twin.filter(|twin| twin.name != port.name) {
                self.problem(
                    &path(key),
                    format!("interface `{interface}` belongs to two ports"),
                    format!("port `{}` has it already", twin.name),
                    "give each port an interface of its own",
                );
            }
        }
        match (port.driver, &port.file) {
            (DriverConfig::Pcap, None) => self.problem(
                &path("driver"),
                format!("port `{}` replays no file", port.name),
                "driver `pcap` needs the key `file`",
                "add a line such as `file = \"trace.pcapng\"`",
            ),
            (driver, Some(_)) if driver != DriverConfig::Pcap => self.problem(
                &path("file"),
                format!("port `{}` has a file and does not replay one", port.name),
                "only driver `pcap` takes `file`",
                "write `driver = \"pcap\"`, or remove `file`",
            ),
            _ => {}
        }
        if let Some(mac) = &port.mac {
            self.unicast_mac(&path("mac"), mac);
        }
        if let Some(mtu) = port.mtu {
            self.mtu(index, mtu);
        }
    }

    fn mtu(&mut self, index: usize, mtu: u16) {
        let path = format!("port.{index}.mtu");
        self.range(
            &path,
            mtu.into(),
            IPV4_MTU_MIN.into(),
            MTU_MAX.into(),
            " bytes",
        );
        let frame_bytes = self.config.node.frame_bytes;
        let needed = u32::from(mtu) + FRAME_OVERHEAD_BYTES;
        if needed > frame_bytes && mtu <= MTU_MAX {
            self.problem(
                &path,
                format!("packets of {mtu} bytes do not fit a frame of {frame_bytes} bytes"),
                format!("a frame must hold the packet and {FRAME_OVERHEAD_BYTES} bytes"),
                format!(
                    "write `frame_bytes = {}` under `[node]`",
                    needed.next_power_of_two()
                ),
            );
        }
        let ipv6 = self.config.port[index]
            .addresses
            .iter()
            .find(|address| address.contains(':'));
        if let Some(address) = ipv6.filter(|_| (IPV4_MTU_MIN..IPV6_MTU_MIN).contains(&mtu)) {
            self.problem(
                &path,
                format!("an MTU of {mtu} is too small for IPv6"),
                format!("`{address}` needs at least {IPV6_MTU_MIN} (RFC 8200 section 5)"),
                format!("write `mtu = {IPV6_MTU_MIN}` or more, or remove the IPv6 address"),
            );
        }
    }

    fn unicast_mac(&mut self, path: &str, mac: &str) {
        let Ok(mac) = mac.parse::<MacAddr>() else {
            self.problem(
                path,
                format!("`{mac}` is not a MAC address"),
                "`mac` is: MAC address",
                "write for example `mac = \"02:00:00:00:00:01\"`",
            );
            return;
        };
        let fault = if mac.is_group() {
            "the first byte is odd: a group of stations"
        } else if mac == MacAddr::ZERO {
            "all zeros: nobody"
        } else {
            return;
        };
        self.problem(
            path,
            format!("`{mac}` is not the address of one station"),
            fault,
            "write `mac = \"02:00:00:00:00:01\"` or another address with an even first byte",
        );
    }

    fn bridges(&mut self) {
        let config = self.config;
        let mut owner: HashMap<&str, &str> = HashMap::new();
        for (index, bridge) in config.bridge.iter().enumerate() {
            self.range(
                &format!("bridge.{index}.ageing_s"),
                bridge.ageing_s,
                10,
                1_000_000,
                " seconds",
            );
            if bridge.ports.is_empty() {
                self.problem(
                    &format!("bridge.{index}.ports"),
                    format!("bridge `{}` has no port", bridge.name),
                    "empty",
                    "name the ports that it joins",
                );
            }
            for (member, name) in bridge.ports.iter().enumerate() {
                let path = format!("bridge.{index}.ports.{member}");
                let Some(at) = config.port.iter().position(|port| port.name == *name) else {
                    let known: Vec<_> = config.port.iter().map(|port| port.name.as_str()).collect();
                    self.unknown_name(&path, "port", name, &known);
                    continue;
                };
                if let Some(other) = owner.insert(name, &bridge.name) {
                    self.problem(
                        &path,
                        format!("port `{name}` belongs to two bridges"),
                        format!("bridge `{other}` has it already"),
                        "remove it from one of them",
                    );
                } else if !config.port[at].addresses.is_empty() {
                    self.problem(
                        &format!("port.{at}.addresses"),
                        format!(
                            "port `{name}` has addresses and belongs to bridge `{}`",
                            bridge.name
                        ),
                        "a bridge's ports have no addresses of their own",
                        format!("move the addresses to bridge `{}`", bridge.name),
                    );
                }
            }
        }
    }

    fn unknown_name(&mut self, path: &str, kind: &str, name: &str, known: &[&str]) {
        let remedy = match nearest(name, known) {
            Some(meant) => format!("write `{meant}`"),
            None if known.is_empty() => format!("add a table `[[port]]` with `name = \"{name}\"`"),
            None => format!("write {}", list(known)),
        };
        self.problem(
            path,
            format!("there is no {kind} `{name}`"),
            "not in this file",
            remedy,
        );
    }

    /// Addresses of ports and bridges: each usable, none twice, no link on two ports.
    fn addresses(&mut self) {
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
        let loopback = ip.is_loopback();
        let fault = if ip.is_unspecified() {
            "the unspecified address"
        } else if ip.is_multicast() {
            "a multicast address"
        } else if loopback {
            "a loopback address"
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
                    && !loopback
                    && !ip.is_unspecified()
                    && !ip.is_multicast() =>
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

    fn routes(&mut self) {
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
            self.route(index, route, to);
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
            && !self.has_interface(port)
        {
            self.unknown_interface(&path("port"), port);
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
            && !is_link_local(via)
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
        } else if is_link_local(via) && route.port.is_none() {
            self.problem(
                &path,
                format!("the next hop `{via}` could be on any link"),
                "a link-local address",
                "add a line such as `port = \"wan\"` to say which",
            );
        }
    }

    fn neighbours(&mut self) {
        let config = self.config;
        let mut seen: HashMap<(IpAddr, &str), usize> = HashMap::new();
        for (index, neighbour) in config.neighbour.iter().enumerate() {
            let path = |key: &str| format!("neighbour.{index}.{key}");
            self.unicast_mac(&path("mac"), &neighbour.mac);
            if !self.has_interface(&neighbour.port) {
                self.unknown_interface(&path("port"), &neighbour.port);
                continue;
            }
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

    fn has_interface(&self, name: &str) -> bool {
        interfaces(self.config).any(|(_, known, _)| known == name)
    }

    fn unknown_interface(&mut self, path: &str, name: &str) {
        let known: Vec<_> = interfaces(self.config).map(|(_, name, _)| name).collect();
        self.unknown_name(path, "port or bridge", name, &known);
    }
}

/// The ports and bridges: path in the file, name, addresses.
fn interfaces(config: &Config) -> impl Iterator<Item = (String, &str, &[String])> {
    let ports = config.port.iter().enumerate().map(|(index, port)| {
        (
            format!("port.{index}"),
            port.name.as_str(),
            &port.addresses[..],
        )
    });
    let bridges = config.bridge.iter().enumerate().map(|(index, bridge)| {
        (
            format!("bridge.{index}"),
            bridge.name.as_str(),
            &bridge.addresses[..],
        )
    });
    ports.chain(bridges)
}

/// The addresses that are right; the others have been reported.
fn readable(addresses: &[String]) -> impl Iterator<Item = InterfaceAddress> {
    addresses.iter().filter_map(|address| address.parse().ok())
}

fn uses_interface(port: &PortConfig) -> bool {
    matches!(
        port.driver,
        DriverConfig::Auto | DriverConfig::AfXdp | DriverConfig::AfPacket | DriverConfig::Tap
    )
}

fn interface(port: &PortConfig) -> &str {
    port.interface.as_deref().unwrap_or(&port.name)
}

fn interface_name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        Some("empty".to_owned())
    } else if name.len() > INTERFACE_NAME_MAX_BYTES {
        Some(format!(
            "{} bytes; at most {INTERFACE_NAME_MAX_BYTES}",
            name.len()
        ))
    } else if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        Some("`/`, `:` and blanks are not allowed".to_owned())
    } else {
        None
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
