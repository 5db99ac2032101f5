//! Neighbour discovery for IPv6 (RFC 4861): messages, options, and the checks that every message must pass.

use core::net::Ipv6Addr;

use crate::bytes::{be16, be32, chunk};
use crate::emit::{Addresses, BufferTooShort, length_u16};
use crate::{DropReason, Layout, LayoutFlags, MacAddr, icmpv4, ip_protocol, ipv6};

/// Type of a router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// Type of a router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Type of a neighbour solicitation.
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// Type of a neighbour advertisement.
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Type of a redirect.
pub const REDIRECT: u8 = 137;
/// The hop limit of every message: proof that no router forwarded it (RFC 4861 6.1, 7.1).
pub const HOP_LIMIT: u8 = 255;

/// Returns the group that the owner of `address` listens to: ff02::1:ffXX:XXXX (RFC 4291 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | a as u16,
        (b as u16) << 8 | c as u16,
    )
}

/// A message of neighbour discovery, with its options still packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A host asks for routers.
    RouterSolicitation {
        /// What follows the fixed part.
        options: Options<'a>,
    },
    /// A router presents itself.
    RouterAdvertisement {
        /// Hop limit that hosts should use; 0 for "not said".
        hop_limit: u8,
        /// Addresses are to be had from DHCPv6.
        managed: bool,
        /// Other configuration is to be had from DHCPv6.
        other: bool,
        /// How long the router may serve as the default one, seconds; 0 for "not at all".
        lifetime_s: u16,
        /// How long a neighbour counts as reachable, milliseconds; 0 for "not said".
        reachable_ms: u32,
        /// Time between solicitations, milliseconds; 0 for "not said".
        retransmit_ms: u32,
        /// What follows the fixed part.
        options: Options<'a>,
    },
    /// Who has the target address?
    NeighbourSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// What follows the fixed part.
        options: Options<'a>,
    },
    /// The sender has it.
    NeighbourAdvertisement {
        /// The sender is a router.
        router: bool,
        /// The message answers a solicitation.
        solicited: bool,
        /// The message replaces what is cached.
        overrides: bool,
        /// The address spoken of.
        target: Ipv6Addr,
        /// What follows the fixed part.
        options: Options<'a>,
    },
    /// There is a better first hop.
    Redirect {
        /// The better first hop.
        target: Ipv6Addr,
        /// For this destination.
        destination: Ipv6Addr,
        /// What follows the fixed part.
        options: Options<'a>,
    },
}

impl<'a> Message<'a> {
    /// Reads a message and makes the checks of RFC 4861 6.1.1, 6.1.2, 7.1.1, 7.1.2 and 8.1 but for the
    /// checksum ([`crate::checksum::verify_transport`]).
    ///
    /// `None` if the packet is ICMPv6 but no neighbour discovery, or not ICMPv6 at all.
    ///
    /// # Errors
    /// [`DropReason::NeighbourDiscovery`].
    pub fn validate(layout: &Layout, frame: &'a [u8]) -> Option<Result<Self, DropReason>> {
        if layout.protocol != ip_protocol::ICMPV6
            || !layout
                .flags
                .contains(LayoutFlags::IPV6 | LayoutFlags::TRANSPORT)
        {
            return None;
        }
        let message = frame.get(usize::from(layout.transport)..usize::from(layout.end))?;
        let &kind = message.first()?;
        if !(ROUTER_SOLICITATION..=REDIRECT).contains(&kind) {
            return None;
        }
        Some(Self::checked(layout, frame, message).ok_or(DropReason::NeighbourDiscovery))
    }

    fn checked(layout: &Layout, frame: &[u8], message: &'a [u8]) -> Option<Self> {
        let (source, destination) = layout.ipv6_addresses(frame)?;
        let hop_limit = frame.get(usize::from(layout.network) + ipv6::HOP_LIMIT)?;
        // RFC 6980: no message of neighbour discovery may be a fragment.
        if *hop_limit != HOP_LIMIT || layout.flags.contains(LayoutFlags::FRAGMENT) {
            return None;
        }
        let this = Self::parse(message)?;
        let mut has_source_address = false;
        for option in this.options() {
            has_source_address |= matches!(option.ok()?, NdpOption::SourceLinkLayer(_));
        }
        let valid = match this {
            Self::RouterSolicitation { .. } => !(source.is_unspecified() && has_source_address),
            Self::RouterAdvertisement { .. } => source.is_unicast_link_local(),
            Self::NeighbourSolicitation { target, .. } => {
                !target.is_multicast()
                    && (!source.is_unspecified()
                        || (destination == solicited_node(target) && !has_source_address))
            }
            Self::NeighbourAdvertisement {
                target, solicited, ..
            } => {
                let solicited_by_group = solicited && destination.is_multicast();
                !target.is_multicast() && !solicited_by_group
            }
            Self::Redirect {
                target,
                destination,
                ..
            } => {
                source.is_unicast_link_local()
                    && !destination.is_multicast()
                    && (target.is_unicast_link_local() || target == destination)
            }
        };
        valid.then_some(this)
    }

    /// Reads the fixed part of a message with code 0, from its ICMPv6 header on; `None` if it is cut or
    /// another ICMPv6 message.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let (header, rest) = message.split_first_chunk::<8>()?;
        if header[icmpv4::CODE] != 0 {
            return None;
        }
        let flags = header[4];
        match header[icmpv4::TYPE] {
            ROUTER_SOLICITATION => Some(Self::RouterSolicitation {
                options: Options { rest },
            }),
            ROUTER_ADVERTISEMENT => {
                let (times, rest) = rest.split_first_chunk::<8>()?;
                Some(Self::RouterAdvertisement {
                    hop_limit: flags,
                    managed: header[5] & 0x80 != 0,
                    other: header[5] & 0x40 != 0,
                    lifetime_s: be16!(header, 6),
                    reachable_ms: be32!(times, 0),
                    retransmit_ms: be32!(times, 4),
                    options: Options { rest },
                })
            }
            NEIGHBOUR_SOLICITATION => {
                let (target, rest) = split_address(rest)?;
                Some(Self::NeighbourSolicitation {
                    target,
                    options: Options { rest },
                })
            }
            NEIGHBOUR_ADVERTISEMENT => {
                let (target, rest) = split_address(rest)?;
                Some(Self::NeighbourAdvertisement {
                    router: flags & 0x80 != 0,
                    solicited: flags & 0x40 != 0,
                    overrides: flags & 0x20 != 0,
                    target,
                    options: Options { rest },
                })
            }
            REDIRECT => {
                let (target, rest) = split_address(rest)?;
                let (destination, rest) = split_address(rest)?;
                Some(Self::Redirect {
                    target,
                    destination,
                    options: Options { rest },
                })
            }
            _ => None,
        }
    }

    /// Walks the options.
    pub const fn options(&self) -> Options<'a> {
        match *self {
            Self::RouterSolicitation { options }
            | Self::RouterAdvertisement { options, .. }
            | Self::NeighbourSolicitation { options, .. }
            | Self::NeighbourAdvertisement { options, .. }
            | Self::Redirect { options, .. } => options,
        }
    }
}

fn split_address(bytes: &[u8]) -> Option<(Ipv6Addr, &[u8])> {
    let (octets, rest) = bytes.split_first_chunk()?;
    Some((Ipv6Addr::from_octets(*octets), rest))
}

/// One option of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpOption<'a> {
    /// Type 1: the MAC address of the sender.
    SourceLinkLayer(MacAddr),
    /// Type 2: the MAC address of the target.
    TargetLinkLayer(MacAddr),
    /// Type 3: a prefix of the link.
    Prefix {
        /// Length of the prefix, bits.
        prefix_length: u8,
        /// Addresses of the prefix are on the link.
        on_link: bool,
        /// Hosts may make addresses from the prefix.
        autonomous: bool,
        /// How long the prefix is valid, seconds; all ones for ever.
        valid_s: u32,
        /// How long its addresses are preferred, seconds; all ones for ever.
        preferred_s: u32,
        /// The prefix; bits beyond the length mean nothing.
        prefix: Ipv6Addr,
    },
    /// Type 4: the packet that caused a redirect, as far as it fits.
    RedirectedPacket(&'a [u8]),
    /// Type 5: the MTU of the link, bytes.
    Mtu(u32),
    /// Any other option, or one whose length is not that of its type on Ethernet: to be ignored.
    Other {
        /// Its type.
        kind: u8,
        /// What follows type and length.
        data: &'a [u8],
    },
}

/// Walks the options of a message; an option of length zero or past the end yields
/// [`DropReason::NeighbourDiscovery`] once (RFC 4861 4.6, 6.1, 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    /// Starts at the first option; `bytes` ends with the packet.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    /// Returns the first source link-layer address.
    pub fn source_link_layer(self) -> Option<MacAddr> {
        self.flatten().find_map(|option| match option {
            NdpOption::SourceLinkLayer(mac) => Some(mac),
            _ => None,
        })
    }
    /// Returns the first target link-layer address.
    pub fn target_link_layer(self) -> Option<MacAddr> {
        self.flatten().find_map(|option| match option {
            NdpOption::TargetLinkLayer(mac) => Some(mac),
            _ => None,
        })
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<NdpOption<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, length) = match *self.rest {
            [] => return None,
            [kind, length, ..] => (kind, usize::from(length) * 8),
            [_] => (0, 0),
        };
        // A length of zero would never end: the message is to be dropped.
        let split = if length == 0 {
            None
        } else {
            self.rest.split_at_checked(length)
        };
        let Some((option, rest)) = split else {
            self.rest = &[];
            return Some(Err(DropReason::NeighbourDiscovery));
        };
        self.rest = rest;
        let data = option.get(2..).unwrap_or_default();
        Some(Ok(
            parse_option(kind, data).unwrap_or(NdpOption::Other { kind, data })
        ))
    }
}

/// Reads what follows type and length; `None` if the type is unknown, or the length is not that of the
/// type on Ethernet (RFC 2464 6), so that the option is to be ignored.
fn parse_option(kind: u8, data: &[u8]) -> Option<NdpOption<'_>> {
    match (kind, data.len()) {
        (1, 6) => Some(NdpOption::SourceLinkLayer(MacAddr(*data.first_chunk()?))),
        (2, 6) => Some(NdpOption::TargetLinkLayer(MacAddr(*data.first_chunk()?))),
        (3, 30) => {
            let fixed = data.first_chunk::<30>()?;
            Some(NdpOption::Prefix {
                prefix_length: fixed[0],
                on_link: fixed[1] & 0x80 != 0,
                autonomous: fixed[1] & 0x40 != 0,
                valid_s: be32!(fixed, 2),
                preferred_s: be32!(fixed, 6),
                prefix: Ipv6Addr::from_octets(*chunk(fixed, 14)?),
            })
        }
        (4, _) => Some(NdpOption::RedirectedPacket(data.get(6..)?)),
        (5, 6) => Some(NdpOption::Mtu(be32!(data.first_chunk::<6>()?, 2))),
        _ => None,
    }
}

/// What the node itself sends: solicitations, and advertisements of its own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr {
    /// Who has the target address?
    NeighbourSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// MAC address of the sender; `None` in duplicate address detection.
        source_mac: Option<MacAddr>,
    },
    /// The sender has it.
    NeighbourAdvertisement {
        /// The sender is a router.
        router: bool,
        /// The message answers a solicitation.
        solicited: bool,
        /// The message replaces what is cached.
        overrides: bool,
        /// The address spoken of.
        target: Ipv6Addr,
        /// MAC address of the target.
        target_mac: Option<MacAddr>,
    },
}

impl Repr {
    /// Returns the length of the message, options included.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::NeighbourSolicitation {
                source_mac: None, ..
            }
            | Self::NeighbourAdvertisement {
                target_mac: None, ..
            } => 24,
            _ => 32,
        }
    }
    /// Writes the message, checksum included, to the start of `bytes`; returns its length.
    ///
    /// The packet's hop limit must be [`HOP_LIMIT`].
    ///
    /// # Errors
    /// [`BufferTooShort`] for less than [`Repr::bytes`].
    pub fn emit(
        &self,
        bytes: &mut [u8],
        source: Ipv6Addr,
        destination: Ipv6Addr,
    ) -> Result<usize, BufferTooShort> {
        let message = bytes.get_mut(..self.bytes()).ok_or(BufferTooShort)?;
        let (kind, flags, target, option) = match *self {
            Self::NeighbourSolicitation { target, source_mac } => (
                NEIGHBOUR_SOLICITATION,
                0,
                target,
                source_mac.map(|mac| (1, mac)),
            ),
            Self::NeighbourAdvertisement {
                router,
                solicited,
                overrides,
                target,
                target_mac,
            } => {
                let flags =
                    u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(overrides) << 5;
                (
                    NEIGHBOUR_ADVERTISEMENT,
                    flags,
                    target,
                    target_mac.map(|mac| (2, mac)),
                )
            }
        };
        if let Some(body) = crate::bytes::chunk_mut::<16>(message, 8) {
            *body = target.octets();
        }
        if let (Some((kind, MacAddr([a, b, c, d, e, f]))), Some(slot)) =
            (option, crate::bytes::chunk_mut::<8>(message, 24))
        {
            *slot = [kind, 1, a, b, c, d, e, f];
        }
        let length = length_u16(message)?;
        let sum = Addresses::V6 {
            source,
            destination,
        }
        .pseudo_header(ip_protocol::ICMPV6, length);
        icmpv4::emit_with(message, kind, 0, u32::from(flags) << 24, sum)
    }
}
