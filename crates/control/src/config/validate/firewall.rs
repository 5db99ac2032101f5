//! `[firewall]`.

use std::net::Ipv4Addr;

use super::Checker;
use crate::address::Prefix;
use crate::config::CgnConfig;

impl Checker<'_> {
    pub(super) fn firewall(&mut self) {
        let Some(firewall) = &self.config.firewall else {
            return;
        };
        let (inside, connections) = (firewall.inside.clone(), firewall.connections);
        match (inside, firewall.rules.is_some()) {
            (Some(_), true) => self.problem(
                "firewall.inside",
                "the firewall has both rules and an inside",
                "with a file of rules, they say what may pass",
                "remove `inside`",
            ),
            (None, false) => self.problem(
                "firewall",
                "the firewall does not know what may pass",
                "neither `rules` nor `inside`",
                "add `rules = \"/etc/tidegate/rules.nft\"`, or `inside = \"lan\"` for all that one side opens",
            ),
            (Some(inside), false) => {
                self.is_interface("firewall.inside", &inside);
            }
            (None, true) => {}
        }
        let state = firewall.state_file();
        if state.is_some_and(|path| !path.is_absolute()) {
            self.problem(
                "firewall.state",
                "`state` is neither an absolute path nor \"off\" nor \"dpdk\"",
                "a file in memory, such as one in /dev/shm or /run",
                "write for example `state = \"/run/tidegate/connections.state\"`",
            );
        }
        for (key, text, example, fits) in [
            (
                "nat64",
                firewall.nat64.clone(),
                "64:ff9b::/96",
                (|prefix| prefix.address().is_ipv6() && prefix.length() == 96)
                    as fn(Prefix) -> bool,
            ),
            (
                "nat64_clients",
                Some(firewall.nat64_clients.clone()),
                "100.127.0.0/16",
                |prefix| prefix.address().is_ipv4() && (8..=30).contains(&prefix.length()),
            ),
        ] {
            let is_right = |text: &str| text.parse::<Prefix>().is_ok_and(fits);
            if text.is_some_and(|text| !is_right(&text)) {
                self.problem(
                    &format!("firewall.{key}"),
                    format!("`{key}` is no prefix that can be used"),
                    "NAT64 takes an IPv6 prefix of 96 bits, and an IPv4 prefix of 8 to 30 bits for its hosts",
                    format!("write for example `{key} = \"{example}\"`"),
                );
            }
        }
        self.shared_connections();
        if let Some(guard) = &firewall.guard {
            self.range(
                "firewall.guard.hold_off_s",
                guard.hold_off_s,
                1,
                86_400,
                " seconds",
            );
        }
        if let Some(nptv6) = firewall.nptv6.clone() {
            self.is_interface("firewall.nptv6.port", &nptv6.port);
            let prefix = |text: &str| text.parse::<Prefix>().ok();
            let fits = match (prefix(&nptv6.inside), prefix(&nptv6.outside)) {
                (Some(inside), Some(outside)) => {
                    inside.address().is_ipv6()
                        && outside.address().is_ipv6()
                        && inside.length() == outside.length()
                        && (1..=112).contains(&inside.length())
                }
                _ => false,
            };
            if !fits {
                self.problem(
                    "firewall.nptv6.inside",
                    "the prefixes cannot be translated into each other",
                    "both are IPv6 prefixes of the same length, 1 to 112 bits",
                    "write for example `inside = \"fd00:1::/48\"` and `outside = \"2001:db8:1::/48\"`",
                );
            }
        }
        if let Some(cgn) = firewall.cgn.clone() {
            self.cgn(&cgn);
        }
        self.range("firewall.connections", connections, 1024, 1 << 26, "");
    }

    /// Connections that the nodes which share DPDK have in common.
    fn shared_connections(&mut self) {
        let firewall = self.config.firewall.as_ref();
        let Some(firewall) = firewall.filter(|firewall| firewall.is_shared()) else {
            return;
        };
        if self.config.dpdk.is_none() {
            self.problem(
                "firewall.state",
                "there is nobody to share connections with",
                "`state = \"dpdk\"` and no table `[dpdk]`",
                "add `[dpdk]` with a line such as `group = \"edge\"`, or remove `state`",
            );
        }
        if firewall.cgn.is_some() || firewall.nat64.is_some() {
            self.problem(
                "firewall.state",
                "nodes that share connections have neither `[firewall.cgn]` nor `nat64`",
                "subscribers' blocks and NAT64's hosts are each node's own",
                "remove these, or `state = \"dpdk\"`",
            );
        }
    }

    fn cgn(&mut self, cgn: &CgnConfig) {
        let ports = 65_536 - u32::from(cgn.first_port);
        let each = u32::from(cgn.block_ports);
        self.range("firewall.cgn.block_ports", each, 16, 16_384, " ports");
        self.range(
            "firewall.cgn.blocks",
            u32::from(cgn.blocks),
            1,
            32,
            " blocks",
        );
        self.range(
            "firewall.cgn.first_port",
            u32::from(cgn.first_port),
            1,
            49_152,
            "",
        );
        let (subscribers, outer) = match (cgn.subscribers, cgn.outer) {
            (None, None) => return,
            (Some(subscribers), Some(outer)) => (count(subscribers), count(outer)),
            _ => {
                self.problem(
                    "firewall.cgn",
                    "only one of `subscribers` and `outer` is there",
                    "ports are computed from both",
                    "add the other, or remove this one to have blocks given on demand",
                );
                return;
            }
        };
        for (key, count, most) in [
            ("subscribers", subscribers, 1 << 24),
            ("outer", outer, 4096),
        ] {
            if count == 0 || count > most {
                self.problem(
                    &format!("firewall.cgn.{key}"),
                    format!("`{key}` is no range of at most {most} addresses"),
                    "the first address, then the last one",
                    format!("write for example `{key} = [\"100.64.0.1\", \"100.64.0.254\"]`"),
                );
                return;
            }
        }
        let share = subscribers.div_ceil(outer);
        if ports / share == 0 {
            self.problem(
                "firewall.cgn.subscribers",
                "there are more subscribers than ports",
                format!("{share} subscribers share the {ports} ports of an outer address"),
                "give more outer addresses",
            );
        }
    }
}

/// Addresses of a range; 0 if it is none.
fn count([first, last]: [Ipv4Addr; 2]) -> u32 {
    let more = last.to_bits().checked_sub(first.to_bits());
    more.map_or(0, |more| more.saturating_add(1))
}
