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
/// All fragments of a datagram hash alike: by their addresses.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{icmpv4, parse};
    use std::vec;
    use std::vec::Vec;

    fn secret(seed: u8) -> FlowSecret {
        let mut state = u32::from(seed) + 1;
        FlowSecret::new(core::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }))
    }

    fn key(source: u32, destination: u32, source_port: u16, destination_port: u16) -> FlowKey {
        FlowKey {
            source: mapped(&source.to_be_bytes()),
            destination: mapped(&destination.to_be_bytes()),
            source_port,
            destination_port,
            protocol: ip_protocol::TCP,
        }
    }

    /// Sorts of flows that weak hashes crowd: neighbours in one field, all else equal.
    fn populations() -> Vec<(&'static str, Vec<FlowKey>)> {
        let n = 1u32 << 16;
        let (client, server) = (0xc000_0200, 0xc633_6402);
        vec![
            (
                "source ports",
                (0..n).map(|i| key(client, server, i as u16, 443)).collect(),
            ),
            (
                "sources",
                (0..n).map(|i| key(client + i, server, 1024, 443)).collect(),
            ),
            (
                "sources, high",
                (0..n)
                    .map(|i| key(client ^ i << 16, server, 1024, 443))
                    .collect(),
            ),
            (
                "pairs",
                (0..n)
                    .map(|i| key(client + (i >> 8), server + (i & 0xff), 9, 9))
                    .collect(),
            ),
            // Equal under XOR of the four fields (TL-1): one signature for all.
            (
                "xor",
                (0..n)
                    .map(|i| key(client ^ i, server ^ i, 1024, 443))
                    .collect(),
            ),
        ]
    }

    #[test]
    fn flows_spread_over_workers_and_buckets() {
        for seed in 0..2 {
            let secret = secret(seed);
            for (name, keys) in populations() {
                for shift in [0, 8, 24, 32, 48, 56] {
                    let mut buckets = [0u32; 256];
                    for key in &keys {
                        buckets[(flow_hash(key, &secret) >> shift) as usize & 0xff] += 1;
                    }
                    // Chi-squared with 255 degrees of freedom: above 380 once in about 10^6 draws.
                    let expected = keys.len() as f64 / 256.0;
                    let chi: f64 = buckets
                        .iter()
                        .map(|n| (f64::from(*n) - expected).powi(2) / expected)
                        .sum();
                    assert!(chi < 380.0, "{name}, shift {shift}, secret {seed}: {chi}");
                }
            }
        }
    }

    #[test]
    fn no_two_of_these_flows_collide() {
        let secret = secret(9);
        let mut hashes: Vec<u64> = populations()
            .iter()
            .flat_map(|(_, keys)| keys)
            .map(|k| flow_hash(k, &secret))
            .collect();
        let unique: std::collections::HashSet<_> = populations()
            .into_iter()
            .flat_map(|(_, keys)| keys)
            .map(ordered)
            .collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), unique.len());
    }

    fn ordered(key: FlowKey) -> FlowKey {
        key.min(key.reversed())
    }

    #[test]
    fn each_input_bit_moves_half_of_the_output() {
        let secret = secret(3);
        let base = key(0x0a01_0203, 0x0a03_0201, 12345, 80);
        let hash = flow_hash(&base, &secret);
        let mut least = 64;
        for bit in 0..32 + 16 {
            let mut changed = base;
            match bit {
                0..32 => changed.source[12 + bit / 8] ^= 1 << (bit % 8),
                _ => changed.source_port ^= 1 << (bit - 32),
            }
            least = least.min((flow_hash(&changed, &secret) ^ hash).count_ones());
        }
        assert!(least >= 16, "one bit moves only {least} of 64");
    }

    #[test]
    fn the_hash_is_the_same_on_every_platform() {
        let secret = FlowSecret::new(core::array::from_fn(|i| i as u8));
        let hash = flow_hash(&key(0xc000_0201, 0xc633_6402, 1111, 53), &secret);
        assert_eq!(hash, 13_255_261_379_193_970_673);
        assert_ne!(
            hash,
            flow_hash(
                &key(0xc000_0201, 0xc633_6402, 1111, 53),
                &super::tests::secret(1)
            )
        );
    }

    /// Puts `message` in an IPv4 packet from 10.0.0.1 to 10.0.0.2.
    fn icmp_frame(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        frame[12..14].copy_from_slice(&[8, 0]);
        let (a, b) = (
            core::net::Ipv4Addr::new(10, 0, 0, 1),
            core::net::Ipv4Addr::new(10, 0, 0, 2),
        );
        let repr = ipv4::Repr::new(a, b, ip_protocol::ICMP, message.len() as u16);
        repr.emit(&mut frame[14..]).unwrap();
        frame.extend_from_slice(message);
        frame
    }

    #[test]
    fn a_ping_and_its_answer_are_two_directions_of_one_flow() {
        let mut message = [0; 16];
        icmpv4::Repr::EchoRequest {
            identifier: 77,
            sequence: 1,
        }
        .emit(&mut message)
        .unwrap();
        let mut frame = icmp_frame(&message);
        let layout = parse(&frame).unwrap();
        let request = FlowKey::from_layout(&layout, &frame).unwrap();
        assert_eq!(
            (request.source_port, request.destination_port),
            (77, 8 << 8)
        );
        assert!(icmpv4::echo_reply_in_place(&layout, &mut frame));
        let reply = FlowKey::from_layout(&parse(&frame).unwrap(), &frame).unwrap();
        assert_eq!(reply, request.reversed());
    }

    #[test]
    fn an_error_finds_the_flow_that_it_speaks_of() {
        let mut inner = icmp_frame(&[0x04, 0x57, 0, 53, 0, 8, 0, 0]).split_off(14);
        inner[ipv4::PROTOCOL] = ip_protocol::UDP;
        let mut message = [&[0; 8], &inner[..]].concat();
        icmpv4::Repr::DestinationUnreachable { code: 3, mtu: 0 }
            .emit(&mut message)
            .unwrap();
        let frame = icmp_frame(&message);
        let layout = parse(&frame).unwrap();
        assert!(layout.flags.contains(LayoutFlags::ICMP_ERROR));
        let quoted = FlowKey::from_icmp_quote(&layout, &frame).unwrap();
        let expected = FlowKey {
            protocol: ip_protocol::UDP,
            ..key(0x0a00_0001, 0x0a00_0002, 1111, 53)
        };
        assert_eq!(quoted, expected);
        // Cut inside the ports: no key.
        let cut = icmp_frame(&message[..message.len() - 5]);
        assert_eq!(FlowKey::from_icmp_quote(&parse(&cut).unwrap(), &cut), None);
    }

    #[test]
    fn fragments_of_one_datagram_hash_alike() {
        let mut frame = icmp_frame(&[8; 64]);
        let mut keys = Vec::new();
        for field in [0x2000u16, 0x2008, 0x0010] {
            frame[20..22].copy_from_slice(&field.to_be_bytes());
            let sum = crate::checksum::ipv4_header_20(frame[14..34].first_chunk().unwrap());
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            keys.push(FlowKey::from_layout(&parse(&frame).unwrap(), &frame).unwrap());
        }
        assert!(
            keys.iter()
                .all(|key| *key == keys[0] && key.protocol == ip_protocol::FRAGMENT)
        );
    }
}
