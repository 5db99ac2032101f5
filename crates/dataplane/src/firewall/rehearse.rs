//! A node's firewall without the node: the configuration's interfaces and routes, its rules or others, no port open.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use control::Config;
use control::config::FirewallConfig;
use filter::packet::{AddressType, Fib, FibQuery, InterfaceId};
use filter::pipeline::{InterfaceFacts, Join};
use filter::rehearsal::{Account, Rehearsal, Surroundings};
use filter::rules::{Interfaces, Ruleset};
use filter::verdict::RuleId;
use wire::{
    Addresses, FlowKey, Instant, Layout, MacAddr, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, tcp, udp,
};

use super::policy;
use super::routes::{Routes, facts};
use super::rules::{RulesError, compile_text, load_rules};
use crate::forwarding::{Forwarding, PortFacts};
use crate::plan::{Plan, PlanError};

/// Why a configuration's firewall cannot be rehearsed.
#[derive(Debug, thiserror::Error)]
pub enum RehearseError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The rules are wrong.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// It has no firewall.
    #[error("the configuration has no [firewall], and no file of rules was given")]
    NoFirewall,
    /// The rules are in use.
    #[error(transparent)]
    Join(#[from] Join),
}

/// The firewall of a configuration, with tables of its own.
#[derive(Debug)]
pub struct Rehearsed {
    forwarding: Forwarding,
    facts: Vec<InterfaceFacts>,
    interfaces: Interfaces,
    rehearsal: Rehearsal,
    start: Instant,
}

impl Rehearsed {
    /// Makes it with the configuration's rules, or with those of `rules`.
    ///
    /// # Errors
    /// What is wrong with the configuration or the rules.
    pub fn new(config: &Config, rules: Option<&Path>) -> Result<Self, RehearseError> {
        let config = with_rules(config, rules).ok_or(RehearseError::NoFirewall)?;
        let plan = Plan::new(&config)?;
        let facts: Vec<_> = (0..config.port.len())
            .map(|port| PortFacts {
                mac: MacAddr([2, 0, 0, 0, 0, port as u8]),
                mtu: 1500,
            })
            .collect();
        Self::over(&config, &plan, Forwarding::new(&plan, &facts, 1))
    }

    /// Makes it over a node's routes and interfaces as they are now.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn over(
        config: &Config,
        plan: &Plan,
        forwarding: Forwarding,
    ) -> Result<Self, RehearseError> {
        let firewall = config.firewall.as_ref().ok_or(RehearseError::NoFirewall)?;
        let ruleset = match load_rules(config, plan, None)? {
            Some(rules) => Arc::clone(&rules.ruleset),
            None => Arc::new(compile_text("[firewall]", &as_rules(firewall), plan)?),
        };
        let interfaces = ruleset.interfaces().clone();
        Ok(Self {
            facts: self::facts(&forwarding),
            forwarding,
            interfaces,
            rehearsal: Rehearsal::new(ruleset, policy(firewall))?,
            start: io::cpu::now(),
        })
    }

    /// The rules.
    pub fn ruleset(&self) -> &Arc<Ruleset> {
        self.rehearsal.ruleset()
    }

    /// The engine.
    pub fn rehearsal(&self) -> &Rehearsal {
        &self.rehearsal
    }

    /// Finds an interface of the node by its name.
    pub fn interface(&self, name: &str) -> Option<InterfaceId> {
        let id = self.interfaces.find(name)?;
        self.interfaces.get(id).map(|_| id)
    }

    /// Names of the node's interfaces.
    pub fn interface_names(&self) -> impl Iterator<Item = &str> {
        let present = self
            .interfaces
            .iter()
            .filter(|(_, interface)| interface.present);
        present.map(|(_, interface)| interface.name.as_str())
    }

    /// The name of an interface, empty for none.
    pub fn interface_name(&self, id: InterfaceId) -> &str {
        self.interfaces.name(id)
    }

    /// Returns the interface that an address lies behind: where a packet from it comes in.
    pub fn interface_towards(&self, address: [u8; 16]) -> Option<InterfaceId> {
        let answer = Routes {
            forwarding: &self.forwarding,
            nat64: None,
        }
        .lookup(&FibQuery {
            address,
            mark: None,
            interface: None,
        });
        (answer.kind == AddressType::Unicast).then_some(answer.interface)
    }

    /// Lets the packet through that would begin a flow, by the interface that its source lies behind; `None` if no
    /// route leads there.
    pub(crate) fn begin(&mut self, key: &FlowKey) -> Option<Account> {
        let iif = self.interface_towards(key.source)?;
        let mut frame = first_packet(key)?;
        let layout = wire::parse(&frame).ok()?;
        Some(self.pass(&mut frame, layout, iif, 0, 0))
    }

    /// The rule that decided about a packet: file, line (0 for a policy), text.
    pub fn responsible(&self, account: &Account) -> Option<(String, u32, String)> {
        match account.decisive()?.rule? {
            RuleId::POLICY => Some((String::new(), 0, String::from("policy"))),
            id => {
                let info = self.ruleset().rule(id)?;
                Some((info.file.clone(), info.line, info.text.clone()))
            }
        }
    }

    /// Lets a packet through, `after_ns` after the rehearsal's begin; it is translated in place.
    pub fn pass(
        &mut self,
        frame: &mut [u8],
        layout: Layout,
        iif: InterfaceId,
        after_ns: u64,
        unix_ns: u64,
    ) -> Account {
        let around = Surroundings {
            now: self.start + std::time::Duration::from_nanos(after_ns),
            unix_ns,
            fib: &Routes {
                forwarding: &self.forwarding,
                nat64: None,
            },
            interfaces: &self.facts,
        };
        self.rehearsal.pass(frame, layout, iif, &around)
    }

    /// The time of [`pass`](Self::pass) with `after_ns`.
    pub fn at(&self, after_ns: u64) -> Instant {
        self.start + std::time::Duration::from_nanos(after_ns)
    }

    /// Finds the connection of a packet, and which way the packet goes in it.
    pub fn connection_of(
        &self,
        key: &FlowKey,
        after_ns: u64,
    ) -> Option<(filter::pipeline::Connection, filter::packet::CtDirection)> {
        let now = self.at(after_ns);
        self.rehearsal.shared().connection_of(key, now)
    }
}

/// A flow in words: protocol, and both ends.
pub fn flow_text(key: &FlowKey) -> String {
    let (source, destination) = (key.source_ip(), key.destination_ip());
    let end = |ip: IpAddr, port: u16| SocketAddr::new(ip, port).to_string();
    match key.protocol {
        ip_protocol::TCP | ip_protocol::UDP => format!(
            "{} {} > {}",
            if key.protocol == ip_protocol::TCP {
                "tcp"
            } else {
                "udp"
            },
            end(source, key.source_port),
            end(destination, key.destination_port)
        ),
        ip_protocol::ICMP => format!("icmp {source} > {destination} id {}", key.source_port),
        ip_protocol::ICMPV6 => format!("icmpv6 {source} > {destination} id {}", key.source_port),
        ip_protocol::FRAGMENT => format!("fragment {source} > {destination}"),
        number => format!("protocol {number} {source} > {destination}"),
    }
}

/// Writes the packet that begins a flow: a SYN, a datagram, an echo request, or a bare header.
fn first_packet(key: &FlowKey) -> Option<Vec<u8>> {
    let bytes = match key.protocol {
        ip_protocol::TCP => tcp::HEADER_BYTES,
        ip_protocol::UDP | ip_protocol::ICMP | ip_protocol::ICMPV6 => 8,
        _ => 0,
    };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let (start, addresses) = match (key.source_ip(), key.destination_ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([0x08, 0x00]);
            frame.resize(14 + ipv4::HEADER_BYTES + bytes, 0);
            let header = ipv4::Repr::new(source, destination, key.protocol, bytes as u16);
            header.emit(frame.get_mut(14..)?).ok()?;
            let addresses = Addresses::V4 {
                source,
                destination,
            };
            (14 + ipv4::HEADER_BYTES, addresses)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd]);
            frame.resize(14 + ipv6::HEADER_BYTES + bytes, 0);
            let header = ipv6::Repr::new(source, destination, key.protocol, bytes as u16);
            header.emit(frame.get_mut(14..)?).ok()?;
            let addresses = Addresses::V6 {
                source,
                destination,
            };
            (14 + ipv6::HEADER_BYTES, addresses)
        }
        _ => return None,
    };
    let segment = frame.get_mut(start..)?;
    let (identifier, sequence) = (key.source_port, 1);
    match (key.protocol, addresses) {
        (ip_protocol::TCP, _) => {
            let syn = tcp::Repr {
                source_port: key.source_port,
                destination_port: key.destination_port,
                sequence: 1,
                acknowledgement: 0,
                flags: tcp::Flags::SYN,
                window: 65_535,
                urgent: 0,
                options: &[],
            };
            syn.emit(segment, &addresses).ok()?
        }
        (ip_protocol::UDP, _) => {
            let datagram = udp::Repr {
                source_port: key.source_port,
                destination_port: key.destination_port,
            };
            datagram.emit(segment, &addresses).ok()?
        }
        (ip_protocol::ICMP, _) => {
            let echo = icmpv4::Repr::EchoRequest {
                identifier,
                sequence,
            };
            echo.emit(segment).ok()?
        }
        (
            ip_protocol::ICMPV6,
            Addresses::V6 {
                source,
                destination,
            },
        ) => {
            let echo = icmpv6::Repr::EchoRequest {
                identifier,
                sequence,
            };
            echo.emit(segment, source, destination).ok()?
        }
        _ => 0,
    };
    Some(frame)
}

/// The configuration with another file of rules; `None` if there is no firewall then.
fn with_rules(config: &Config, rules: Option<&Path>) -> Option<Config> {
    let mut config = config.clone();
    if let Some(rules) = rules {
        let old = config.firewall.take();
        config.firewall = Some(FirewallConfig {
            rules: Some(rules.to_owned()),
            inside: None,
            ..old.unwrap_or_default()
        });
    }
    config.firewall.is_some().then_some(config)
}

/// What a `[firewall]` without a file of rules does, as rules.
fn as_rules(firewall: &FirewallConfig) -> String {
    let inside = firewall.inside.as_deref().unwrap_or_default();
    let chain = |hook: &str| {
        format!(
            "chain {hook} {{\ntype filter hook {hook} priority filter; policy drop\n\
             ct state established,related accept\n\
             ct state new iifname \"{inside}\" accept\n\
             ct state new ct status dnat accept\n}}\n"
        )
    };
    let mut text = format!(
        "table inet firewall {{\n{}{}",
        chain("input"),
        chain("forward")
    );
    if firewall.masquerade {
        text.push_str(&format!(
            "chain postrouting {{\ntype nat hook postrouting priority srcnat\n\
             iifname \"{inside}\" oifname != \"{inside}\" masquerade\n}}\n"
        ));
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::pipeline::Fate;
    use filter::verdict::Verdict;
    use wire::DropReason;

    const NODE: &str = r#"
[[port]]
name = "lan"
driver = "mem"
addresses = ["10.0.0.1/24"]
[[port]]
name = "wan"
driver = "mem"
addresses = ["203.0.113.1/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.254"
[firewall]
inside = "lan"
"#;

    fn udp_frame(from: [u8; 4], to: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8];
        frame[12] = 8;
        let header = ipv4::Repr::new(from.into(), to.into(), ip_protocol::UDP, 8);
        header.emit(&mut frame[14..]).unwrap();
        let addresses = Addresses::V4 {
            source: from.into(),
            destination: to.into(),
        };
        let header = udp::Repr {
            source_port: ports.0,
            destination_port: ports.1,
        };
        header.emit(&mut frame[34..], &addresses).unwrap();
        frame
    }

    #[test]
    fn the_first_packet_of_a_flow_reads_back() {
        let address = |last: u8| {
            let v4 = crate::prefix::mapped(&IpAddr::V4([192, 0, 2, last].into()));
            let v6 = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into());
            [v4, v6.octets()]
        };
        for family in 0..2 {
            for protocol in [6, 17, [1, 58][family], 47] {
                let mut key = FlowKey {
                    source: address(1)[family],
                    destination: address(2)[family],
                    protocol,
                    ..FlowKey::default()
                };
                if protocol != 47 {
                    key.source_port = 4000;
                    key.destination_port = match protocol {
                        1 => 8 << 8,
                        58 => 128 << 8,
                        _ => 80,
                    };
                }
                let frame = first_packet(&key).unwrap();
                let layout = wire::parse(&frame).unwrap();
                assert_eq!(FlowKey::from_layout(&layout, &frame), Some(key));
            }
        }
    }

    #[test]
    fn a_node_is_rehearsed_without_ports() {
        let config = control::config::parse("node.toml", NODE).unwrap();
        let mut node = Rehearsed::new(&config, None).unwrap();
        let pass = |node: &mut Rehearsed, mut frame: Vec<u8>| {
            let layout = wire::parse(&frame).unwrap();
            let key = FlowKey::from_layout(&layout, &frame).unwrap();
            let iif = node.interface_towards(key.source).unwrap();
            let name = node.interface_name(iif).to_owned();
            (node.pass(&mut frame, layout, iif, 0, 0), name)
        };
        let peer = [198, 51, 100, 7];
        let (out, iif) = pass(&mut node, udp_frame([10, 0, 0, 2], peer, (4000, 53)));
        assert_eq!((out.fate, iif.as_str()), (Fate::Accept, "lan"));
        assert_eq!(out.after.unwrap().source_ip().to_string(), "203.0.113.1");
        assert_eq!(out.translations().count(), 1);
        let (_, direction) = out.connection.unwrap();
        assert_eq!(direction, filter::packet::CtDirection::Original);
        let (back, iif) = pass(&mut node, udp_frame(peer, [203, 0, 113, 1], (53, 4000)));
        assert_eq!((back.fate, iif.as_str()), (Fate::Accept, "wan"));
        assert_eq!(back.after.unwrap().destination_ip().to_string(), "10.0.0.2");
        let (other, _) = pass(&mut node, udp_frame(peer, [203, 0, 113, 1], (54, 4000)));
        assert_eq!(other.fate, Fate::Drop(DropReason::FirewallRule));
        let decisive = other.decisive().unwrap();
        assert_eq!(decisive.verdict, Verdict::Drop);
        assert!(
            decisive.lines.iter().any(|line| line.contains("policy")),
            "{decisive:?}"
        );
    }
}
