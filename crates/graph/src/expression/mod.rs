//! Filter expressions of captures: a subset of the pcap filter language (pcap-filter(7)).
//!
//! `host A`, `net P`, `port N` and `portrange N-M`, each with `src`, `dst`, `src or dst`, `src and dst`, and
//! with a protocol before; `ether host|src|dst MAC`, `ether proto N`, `ip proto N`, `ip6 proto N`; the names
//! `ip`, `ip6`, `arp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6`, `igmp`; `vlan [ID]`, `broadcast`, `multicast`,
//! `less N`, `greater N`; `and`, `or`, `not`, parentheses. As there, `and` and `or` bind equally and from
//! the left, and an address or number without a keyword takes the keyword before it.
//!
//! Unlike there, VLAN tags hide nothing: `vlan 5 and tcp` and `tcp and vlan 5` are the same, and `tcp` finds
//! tagged packets too; and extension headers of IPv6 are followed.

mod facts;
mod parse;

use std::net::IpAddr;

use wire::MacAddr;

use facts::Facts;

/// Why a text is not an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} at column {column} of the filter")]
pub struct ExpressionError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong: a lowercase fragment.
    pub message: String,
    /// What to do about it: a lowercase fragment in the imperative.
    pub remedy: String,
}

/// A filter expression, ready to be asked about frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// In postfix order; never empty, never deeper than [`DEPTH_MAX`].
    ops: Vec<Op>,
}

/// Operands on the stack at once, at most.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Test(Test),
    Not,
    And,
    Or,
}

/// Which end of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    #[default]
    Either,
    Both,
}

impl Side {
    fn of<T>(self, ends: Option<(T, T)>, test: impl Fn(T) -> bool) -> bool {
        ends.is_some_and(|(source, destination)| match self {
            Self::Source => test(source),
            Self::Destination => test(destination),
            Self::Either => test(source) || test(destination),
            Self::Both => test(source) && test(destination),
        })
    }
}

/// Network protocols that an address test looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Network {
    #[default]
    Any,
    Ip,
    Ip6,
    Arp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    /// An address in a prefix.
    Address {
        network: Network,
        side: Side,
        address: IpAddr,
        length: u8,
    },
    Mac(Side, MacAddr),
    EtherType(u16),
    /// The IP protocol, of IPv4, of IPv6, or of either.
    Protocol(Network, u8),
    /// A port in a range, of one transport protocol or of any.
    Port(Option<u8>, Side, u16, u16),
    Vlan(Option<u16>),
    Broadcast,
    Multicast(Network),
    AtMost(usize),
    AtLeast(usize),
}

impl Test {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        match *self {
            Self::Address {
                network,
                side,
                address,
                length,
            } => {
                facts.is_of(network)
                    && side.of(facts.addresses, |other| is_in(other, address, length))
            }
            Self::Mac(side, mac) => side.of(facts.macs, |other| other == mac),
            Self::EtherType(kind) => facts.ether_type == Some(kind),
            Self::Protocol(network, protocol) => {
                facts.is_of(network) && facts.protocol == Some(protocol)
            }
            Self::Port(protocol, side, low, high) => {
                protocol.is_none_or(|wanted| facts.protocol == Some(wanted))
                    && side.of(facts.ports, |port| (low..=high).contains(&port))
            }
            Self::Vlan(None) => facts.vlan_tags > 0,
            Self::Vlan(Some(id)) => facts.vlans[..facts.vlan_tags].contains(&id),
            Self::Broadcast => Side::Destination.of(facts.macs, MacAddr::is_broadcast),
            Self::Multicast(Network::Any | Network::Arp) => {
                Side::Destination.of(facts.macs, MacAddr::is_group)
            }
            Self::Multicast(network) => {
                facts.is_of(network)
                    && Side::Destination.of(facts.addresses, |address| address.is_multicast())
            }
            Self::AtMost(bytes) => facts.frame.len() <= bytes,
            Self::AtLeast(bytes) => facts.frame.len() >= bytes,
        }
    }
}

fn is_in(address: IpAddr, prefix: IpAddr, length: u8) -> bool {
    match (address, prefix) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let host_bits = 32 - u32::from(length.min(32));
            (a.to_bits() ^ b.to_bits())
                .checked_shr(host_bits)
                .unwrap_or(0)
                == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let host_bits = 128 - u32::from(length.min(128));
            (a.to_bits() ^ b.to_bits())
                .checked_shr(host_bits)
                .unwrap_or(0)
                == 0
        }
        _ => false,
    }
}

impl Expression {
    /// Reads an expression of up to 4,096 bytes.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        parse::parse(text).map(|ops| Self { ops })
    }

    /// Tells whether the expression holds for a frame, whatever its bytes. Takes time in proportion to the
    /// expression's length; allocates nothing.
    pub fn matches(&self, frame: &[u8]) -> bool {
        let facts = Facts::of(frame);
        // The lowest bit is the top of the stack.
        let mut stack = 0_u128;
        for op in &self.ops {
            match op {
                Op::Test(test) => stack = stack << 1 | u128::from(test.holds(&facts)),
                Op::Not => stack ^= 1,
                Op::And => stack = stack >> 1 & (stack & 1 | !1),
                Op::Or => stack = stack >> 1 | stack & 1,
            }
        }
        stack & 1 == 1
    }
}

#[cfg(test)]
mod tests;
