//! The flow key of a packet, and the keyed symmetric hash that chooses the worker.

use core::net::{IpAddr, Ipv6Addr};

use crate::bytes::{be16, chunk};
use crate::numbers::ip_protocol;
use crate::{Layout, LayoutFlags, ipv4, ipv6};

/// One direction of a conversation: addresses, ports, protocol. IPv4 addresses are stored as
/// IPv4-mapped IPv6 addresses (RFC 4291 2.5.5.2), so that one key type serves both families.
///
/// | packet | `source_port` | `destination_port` | `protocol` |
/// | --- | --- | --- | --- |
/// | TCP, UDP | source port | destination port | 6, 17 |
/// | ICMP query or reply (echo, timestamp, information, address mask) | identifier | type of the *query* and code | 1, 58 |
/// | other ICMP | 0 | type and code | 1, 58 |
/// | any fragment, the first one included | 0 | 0 | 44 |
/// | other protocols | 0 | 0 | its number |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Source address, network order.
    pub source: [u8; 16],
    /// Destination address, network order.
    pub destination: [u8; 16],
    /// Source port, or ICMP identifier, host order; 0 where there is none.
    pub source_port: u16,
    /// Destination port, or ICMP type and code, host order; 0 where there is none.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl FlowKey {
    /// Reads the key of a frame that passed validation; `None` if the frame is not IP.
    ///
    /// With a layout of another frame the key is meaningless, or `None`, but nothing panics.
    #[inline(always)]
    pub fn from_layout(layout: &Layout, frame: &[u8]) -> Option<Self> {
        let network = usize::from(layout.network);
        let mut key = if layout.flags.contains(LayoutFlags::IPV4) {
            let header = chunk::<{ ipv4::HEADER_BYTES }>(frame, network)?;
            Self {
                source: mapped(chunk(header, ipv4::SOURCE)?),
                destination: mapped(chunk(header, ipv4::DESTINATION)?),
                ..Self::default()
            }
        } else if layout.flags.contains(LayoutFlags::IPV6) {
            let header = chunk::<{ ipv6::HEADER_BYTES }>(frame, network)?;
            Self {
                source: *chunk(header, ipv6::SOURCE)?,
                destination: *chunk(header, ipv6::DESTINATION)?,
                ..Self::default()
            }
        } else {
            return None;
        };
        if layout.flags.contains(LayoutFlags::FRAGMENT) {
            key.protocol = ip_protocol::FRAGMENT;
            return Some(key);
        }
        key.protocol = layout.protocol;
        if layout.flags.contains(LayoutFlags::TRANSPORT) {
            let header = chunk::<8>(frame, layout.transport.into())?;
            (key.source_port, key.destination_port) = match layout.protocol {
                ip_protocol::TCP | ip_protocol::UDP => (be16!(header, 0), be16!(header, 2)),
                _ => icmp_ports(layout.protocol, header),
            };
        }
        Some(key)
    }

    /// Reads the key of the packet that an ICMP error quotes: it belongs to the flow whose sender
    /// caused the error, so its [`reversed`](Self::reversed) key is the direction the error travels in.
    ///
    /// `None` if the frame is no ICMP error, or quotes no IP header, a later fragment, or less than the
    /// ports. The quoted checksum is not checked, as the quote may be cut (RFC 1812 4.3.2.3).
    pub fn from_icmp_quote(layout: &Layout, frame: &[u8]) -> Option<Self> {
        if !layout.flags.contains(LayoutFlags::ICMP_ERROR) {
            return None;
        }
        let quote = frame.get(usize::from(layout.payload)..usize::from(layout.end))?;
        let (mut key, transport) = if layout.flags.contains(LayoutFlags::IPV4) {
            quoted_ipv4(quote)?
        } else {
            quoted_ipv6(quote)?
        };
        (key.source_port, key.destination_port) = match key.protocol {
            ip_protocol::TCP | ip_protocol::UDP => {
                let ports = transport.first_chunk::<4>()?;
                (be16!(ports, 0), be16!(ports, 2))
            }
            ip_protocol::ICMP | ip_protocol::ICMPV6 => {
                icmp_ports(key.protocol, transport.first_chunk::<8>()?)
            }
            _ => (0, 0),
        };
        Some(key)
    }

    /// Returns the key of the other direction.
    #[inline]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        let (source_port, destination_port) = if self.is_icmp() {
            (self.source_port, self.destination_port)
        } else {
            (self.destination_port, self.source_port)
        };
        Self {
            source: self.destination,
            destination: self.source,
            source_port,
            destination_port,
            protocol: self.protocol,
        }
    }

    /// Returns the source address; an IPv4-mapped one as IPv4.
    pub const fn source_ip(&self) -> IpAddr {
        Ipv6Addr::from_octets(self.source).to_canonical()
    }

    /// Returns the destination address; an IPv4-mapped one as IPv4.
    pub const fn destination_ip(&self) -> IpAddr {
        Ipv6Addr::from_octets(self.destination).to_canonical()
    }

    /// Says whether the ports are an ICMP identifier and type.
    #[inline]
    pub(crate) const fn is_icmp(&self) -> bool {
        matches!(self.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6)
    }
}

/// The secret key of [`flow_hash`]: 64 bytes, drawn once when the node starts.
#[derive(Clone)]
pub struct FlowSecret([u64; 8]);

impl FlowSecret {
    /// Takes 64 bytes from a cryptographic random generator.
    pub fn new(random: [u8; 64]) -> Self {
        let (words, _) = random.as_chunks::<8>();
        let mut key = [0; 8];
        for (to, from) in key.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*from);
        }
        Self(key)
    }
}

impl core::fmt::Debug for FlowSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FlowSecret(..)")
    }
}

/// Hashes a flow key so that both directions get the same value, the same on every platform.
///
/// Both halves are usable: `as u32` chooses the worker, the rest indexes tables. ICMP type and code
/// do not count, so that a query and its reply, and solicitation and advertisement, meet.
/// About 4 ns. All fragments of a datagram hash alike: by their addresses.
///
/// # What it promises against attackers
/// The key (its two ends in order) is compressed by NH, the universal hash of UMAC (Black et al., 1999,
/// theorem 3; RFC 4418): for any two different conversations that an attacker chooses without knowing
/// the secret, the 128-bit sums are equal with probability at most 2^-64. A multiply and fold of that sum
/// follows; it is measured to spread well, and nothing is proven about it. So an attacker who never
/// sees hash values cannot aim many flows at one worker or one bucket. It is **not** a pseudorandom
/// function: never send a hash, or anything computed from a few of its bits, to a peer (use SipHash for
/// cookies and ports), and bound the work per bucket for those who measure time.
#[inline]
pub fn flow_hash(key: &FlowKey, secret: &FlowSecret) -> u64 {
    let source = u128::from_be_bytes(key.source);
    let destination = u128::from_be_bytes(key.destination);
    let (source_port, destination_port) = if key.is_icmp() {
        (key.source_port, key.source_port)
    } else {
        (key.source_port, key.destination_port)
    };
    // The ends in order, by masks: the direction of a packet is a branch that mispredicts.
    let swap = (source, source_port) > (destination, destination_port);
    let address_difference = (source ^ destination) & u128::from(swap).wrapping_neg();
    let port_difference = (source_port ^ destination_port) & u16::from(swap).wrapping_neg();
    let (low, high) = (
        source ^ address_difference,
        destination ^ address_difference,
    );
    let ports = u64::from(source_port ^ port_difference) << 32
        | u64::from(destination_port ^ port_difference) << 16
        | u64::from(key.protocol);

    let k = &secret.0;
    let nh = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let add = |word: u64, index: usize| word.wrapping_add(k[index]);
    let sum = nh(add((low >> 64) as u64, 0), add(low as u64, 1))
        .wrapping_add(nh(add((high >> 64) as u64, 2), add(high as u64, 3)))
        .wrapping_add(nh(add(ports, 4), k[5]));
    let mixed = nh((sum >> 64) as u64 ^ k[6], sum as u64 ^ k[7]);
    (mixed >> 64) as u64 ^ mixed as u64
}

#[inline]
fn mapped(address: &[u8; 4]) -> [u8; 16] {
    // By way of an integer: an array made byte by byte is slow to read back as one number.
    (0xffff_0000_0000 | u128::from(u32::from_be_bytes(*address))).to_be_bytes()
}

/// Returns (identifier, type and code), with the type of a reply replaced by that of its query.
#[inline]
fn icmp_ports(protocol: u8, header: &[u8; 8]) -> (u16, u16) {
    let [kind, code, _, _, id_high, id_low, ..] = *header;
    let query = match (protocol, kind) {
        (ip_protocol::ICMP, 0) => 8,
        (ip_protocol::ICMP, 8 | 13 | 15 | 17) => kind,
        (ip_protocol::ICMP, 14 | 16 | 18) => kind - 1,
        (ip_protocol::ICMPV6, 128 | 129) => 128,
        _ => return (0, u16::from_be_bytes([kind, code])),
    };
    (
        u16::from_be_bytes([id_high, id_low]),
        u16::from_be_bytes([query, code]),
    )
}

fn quoted_ipv4(quote: &[u8]) -> Option<(FlowKey, &[u8])> {
    let header = quote.first_chunk::<{ ipv4::HEADER_BYTES }>()?;
    let transport = quote.get(usize::from(header[0] & 0xf) * 4..)?;
    let offset = be16!(header, ipv4::FLAGS_FRAGMENT) & ipv4::FRAGMENT_OFFSET_MASK;
    if header[0] >> 4 != 4 || header[0] & 0xf < 5 || offset != 0 {
        return None;
    }
    let key = FlowKey {
        source: mapped(chunk(header, ipv4::SOURCE)?),
        destination: mapped(chunk(header, ipv4::DESTINATION)?),
        protocol: header[ipv4::PROTOCOL],
        ..FlowKey::default()
    };
    Some((key, transport))
}

fn quoted_ipv6(quote: &[u8]) -> Option<(FlowKey, &[u8])> {
    let (header, mut transport) = quote.split_first_chunk::<{ ipv6::HEADER_BYTES }>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let mut protocol = header[ipv6::NEXT_HEADER];
    for _ in 0..crate::parse::EXTENSION_HEADERS_MAX {
        if !ipv6::is_extension_header(protocol) {
            break;
        }
        let &[next, length, high, low] = transport.first_chunk::<4>()?;
        if protocol == ip_protocol::FRAGMENT && u16::from_be_bytes([high, low]) & 0xfff8 != 0 {
            return None;
        }
        transport = transport.get(ipv6::extension_header_bytes(protocol, length)..)?;
        protocol = next;
    }
    let key = FlowKey {
        source: *chunk(header, ipv6::SOURCE)?,
        destination: *chunk(header, ipv6::DESTINATION)?,
        protocol,
        ..FlowKey::default()
    };
    Some((key, transport))
}
