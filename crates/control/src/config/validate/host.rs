//! `[host]`.

use super::{Checker, interfaces};
use crate::address::InterfaceAddress;

impl Checker<'_> {
    pub(super) fn host(&mut self) {
        let config = self.config;
        let Some(host) = &config.host else {
            return;
        };
        let own: Vec<_> = interfaces(config)
            .flat_map(|(_, _, addresses)| addresses)
            .filter_map(|text| text.parse::<InterfaceAddress>().ok())
            .map(|address| address.address)
            .collect();
        for (index, address) in host.addresses.iter().enumerate() {
            if !own.contains(address) {
                self.problem(
                    &format!("host.addresses.{index}"),
                    format!("`{address}` is not an address of the node"),
                    "no port or bridge has it",
                    "give it to a port or bridge, or remove it here",
                );
            }
        }
        if own.is_empty() {
            self.problem(
                "host",
                "the node has no address for the host",
                "no port or bridge has one",
                "add `addresses = [\"192.0.2.1/24\"]` to a port",
            );
        }
        self.range("host.sockets", host.sockets, 1, 4096, "");
        if !host.ring_bytes.is_power_of_two() || !(4096..=1 << 26).contains(&host.ring_bytes) {
            self.problem(
                "host.ring_bytes",
                format!("`ring_bytes` cannot be {}", host.ring_bytes),
                "a power of two, 4096 to 67108864",
                "write for example `ring_bytes = 262144`",
            );
        }
    }
}
