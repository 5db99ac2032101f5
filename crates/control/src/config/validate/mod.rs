//! Contradictions that the schema cannot see: names, ranges, addresses, references.

mod dpdk;
mod firewall;
mod host;
mod joins;
mod ndn;
mod ports;
mod routes;

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;

use super::error::{Finding, Problem};
use super::explain::{list, nearest};
use super::keys;
use super::locate::Places;
use super::schema::Config;
use crate::address::{AddressError, InterfaceAddress};

/// The longest path of a Unix socket, bytes (`sun_path` without its final zero).
const SOCKET_PATH_MAX_BYTES: usize = 107;
/// Bytes of a frame that are not the IP packet: headroom, Ethernet header, two VLAN tags.
const FRAME_OVERHEAD_BYTES: u32 = 256 + 14 + 8;

/// Checks a configuration that fits the schema; returns what is wrong, in the order of the file.
pub(super) fn validate(config: &Config, text: &str, places: &Places) -> Vec<Problem> {
    let mut problems: Vec<_> = check(config)
        .into_iter()
        .map(|found| {
            let span = match found.path.as_str() {
                NO_PORT => text.len()..text.len(),
                path => places.of(path),
            };
            Problem::new(text, span, found.message, found.label, found.remedy)
        })
        .collect();
    problems.sort_by_key(|problem| problem.offset_bytes);
    problems
}

/// The path of the finding that there is no port at all.
const NO_PORT: &str = "port";

/// Checks a configuration that fits the schema; a path has dots: `port.0.addresses.1`.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut checker = Checker {
        config,
        found: Vec::new(),
    };
    checker.node();
    checker.idle();
    checker.dpdk();
    checker.names();
    for index in 0..config.port.len() {
        checker.port(index);
    }
    checker.bridges();
    checker.links();
    checker.addresses();
    checker.routes();
    checker.neighbours();
    checker.firewall();
    checker.ndn();
    checker.host();
    checker.found
}

struct Checker<'a> {
    config: &'a Config,
    found: Vec<Finding>,
}

impl Checker<'_> {
    fn problem(
        &mut self,
        path: &str,
        message: impl Into<String>,
        label: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.found.push(Finding {
            path: path.to_owned(),
            message: message.into(),
            label: label.into(),
            remedy: remedy.into(),
        });
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

    /// Tells whether `name` is a port or bridge that packets can leave by; reports at `path` if not.
    fn is_interface(&mut self, path: &str, name: &str) -> bool {
        let config = self.config;
        if config.bridge.iter().any(|bridge| bridge.name == name) {
            return true;
        }
        if !config.port.iter().any(|port| port.name == name) {
            let known: Vec<_> = interfaces(config).map(|(_, name, _)| name).collect();
            self.unknown_name(path, "port or bridge", name, &known);
            return false;
        }
        if let Some(bridge) = config.bridge.iter().find(|b| has(&b.ports, name)) {
            self.problem(
                path,
                format!("port `{name}` belongs to bridge `{}`", bridge.name),
                "packets leave by the bridge",
                format!("write `{}`", bridge.name),
            );
            return false;
        }
        if let Some(link) = config.link.iter().find(|link| has(&link.ports, name)) {
            self.problem(
                path,
                format!("port `{name}` belongs to link `{}`", link.name),
                "a link's ports send only what the other one receives",
                "write another port",
            );
            return false;
        }
        true
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
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

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Tells whether the address could be a neighbour's on every link, whatever the link's prefixes.
fn is_on_any_link(address: IpAddr) -> bool {
    address.is_ipv6() && is_link_local(address)
}

/// Says why no host has this address, if so.
fn not_a_host(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("the unspecified address");
    }
    if address.is_multicast() {
        return Some("a multicast address");
    }
    if address.is_loopback() {
        return Some("a loopback address");
    }
    match address {
        IpAddr::V4(v4) if v4.is_broadcast() => Some("the broadcast address"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 || v4.octets()[0] >= 240 => {
            Some("an address of a reserved block")
        }
        _ => None,
    }
}
