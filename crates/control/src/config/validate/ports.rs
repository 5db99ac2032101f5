//! Ports: names, interfaces, files, MTU and MAC addresses.

use std::collections::HashMap;

use wire::MacAddr;

use super::{Checker, FRAME_OVERHEAD_BYTES, NO_PORT};
use crate::config::schema::{DriverConfig, PortConfig};

/// The longest name of a kernel interface, bytes (`IFNAMSIZ` without its final zero).
const INTERFACE_NAME_MAX_BYTES: usize = 15;
/// Smallest MTU of IPv4 (RFC 791 3.2) and of IPv6 (RFC 8200 5), bytes.
const IPV4_MTU_MIN: u16 = 68;
const IPV6_MTU_MIN: u16 = 1280;
const MTU_MAX: u16 = 32_000;

impl Checker<'_> {
    /// Names of ports, bridges and links: one name space.
    pub(super) fn names(&mut self) {
        let config = self.config;
        let ports = config.port.iter().map(|port| &port.name);
        let bridges = config.bridge.iter().map(|bridge| &bridge.name);
        let links = config.link.iter().map(|link| &link.name);
        let named = ports
            .enumerate()
            .map(|(index, name)| (format!("port.{index}.name"), "port", name))
            .chain(
                bridges
                    .enumerate()
                    .map(|(index, name)| (format!("bridge.{index}.name"), "bridge", name)),
            )
            .chain(
                links
                    .enumerate()
                    .map(|(index, name)| (format!("link.{index}.name"), "link", name)),
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
        if config.port.is_empty() && config.ndn.is_none() {
            self.problem(
                NO_PORT,
                "the node has no port",
                "the file ends here",
                "add a table `[[port]]` with a line such as `name = \"eth0\"`",
            );
        }
    }

    pub(super) fn port(&mut self, index: usize) {
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
        match (port.driver, &port.device) {
            (DriverConfig::Dpdk, None) => self.problem(
                &path("driver"),
                format!("port `{}` has no device", port.name),
                "driver `dpdk` needs the key `device`",
                "add a line such as `device = \"0000:03:00.0\"` (`dpdk-devbind.py --status` lists them)",
            ),
            (DriverConfig::Dpdk, Some(_)) | (_, None) => {}
            (_, Some(_)) => self.problem(
                &path("device"),
                format!("port `{}` has a device and does not use DPDK", port.name),
                "only driver `dpdk` takes `device`",
                "write `driver = \"dpdk\"`, or remove `device`",
            ),
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

    pub(super) fn unicast_mac(&mut self, path: &str, mac: &str) {
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
