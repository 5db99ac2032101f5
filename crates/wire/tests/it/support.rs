//! Random frames, reproducible from a seed, and the captures of the shared data set.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::tcp::{Flags, SackBlocks, TcpOption};
use wire::{Addresses, MacAddr, arp, ether_type, ethernet, icmpv4, icmpv6, ip_protocol};
use wire::{ipv4, ipv6, ndp, tcp, udp};

/// SplitMix64: enough randomness for tests, the same on every machine.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    pub(crate) fn ipv4(&mut self) -> Ipv4Addr {
        match self.below(8) {
            0 => self.pick(&[
                Ipv4Addr::BROADCAST,
                Ipv4Addr::UNSPECIFIED,
                Ipv4Addr::LOCALHOST,
            ]),
            1 => Ipv4Addr::new(224, 0, 0, self.next() as u8),
            _ => Ipv4Addr::from_bits(self.next() as u32),
        }
    }
    pub(crate) fn ipv6(&mut self) -> Ipv6Addr {
        let low = u128::from(self.next());
        Ipv6Addr::from_bits(match self.below(4) {
            0 => 0xfe80 << 112 | low,
            1 => 0xff02 << 112 | low & 0xff,
            _ => 0x2001_0db8 << 96 | low,
        })
    }
}

/// Makes a frame that is mostly well-formed; about half of them are then damaged.
pub(crate) fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = sound_frame(rng);
    if rng.one_in(2) {
        damage(rng, &mut frame);
    }
    frame
}

/// Makes a frame of which every length and checksum is right, though its contents may be refused:
/// too many tags, too many extension headers, impossible fragments, random options.
pub(crate) fn sound_frame(rng: &mut Rng) -> Vec<u8> {
    let (mut kind, packet) = match rng.below(20) {
        0 => (ether_type::ARP, arp_packet(rng)),
        1 => (rng.next() as u16, {
            let length = rng.below(80);
            rng.bytes(length)
        }),
        2..=10 => (ether_type::IPV6, ipv6_packet(rng)),
        _ => (ether_type::IPV4, ipv4_packet(rng)),
    };
    let tags = rng.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 3]);
    let mut body = packet;
    for _ in 0..tags {
        let mut tagged = (rng.next() as u16).to_be_bytes().to_vec();
        tagged.extend(kind.to_be_bytes());
        tagged.extend(body);
        body = tagged;
        kind = rng.pick(&[0x8100, 0x88a8, 0x9100]);
    }
    let mut header = [0; ethernet::HEADER_BYTES];
    let mut source = rng.next().to_be_bytes();
    source[0] &= !1;
    let destination = match rng.below(8) {
        0 => MacAddr::BROADCAST,
        1 => MacAddr([1, 0, 0x5e, 0, 0, 1]),
        _ => MacAddr([2, 0, 0, 0, 0, 9]),
    };
    let source = MacAddr(*source.first_chunk().unwrap());
    ethernet::Repr {
        destination,
        source,
        ether_type: kind,
    }
    .emit(&mut header)
    .unwrap();
    let mut frame = header.to_vec();
    frame.extend(body);
    match rng.below(3) {
        0 if frame.len() < 60 => frame.resize(60, 0),
        1 => {
            let length = rng.below(20);
            frame.extend(rng.bytes(length));
        }
        _ => {}
    }
    frame
}

/// Cuts, flips and overwrites; now and then mends the IPv4 checksum, so that later checks are reached.
pub(crate) fn damage(rng: &mut Rng, frame: &mut Vec<u8>) {
    let length = frame.len().max(1);
    match rng.below(4) {
        0 => frame.truncate(rng.below(length)),
        1 => {
            for _ in 0..=rng.below(3) {
                let at = rng.below(length);
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
        _ => {
            // Headers are where it matters.
            for _ in 0..=rng.below(2) {
                let at = rng.below(length.min(80));
                if let Some(byte) = frame.get_mut(at) {
                    *byte = rng.pick(&[
                        0, 1, 4, 5, 6, 17, 44, 58, 0x45, 0x46, 0x4f, 0x60, 0x7f, 0xff,
                    ]);
                }
            }
        }
    }
    if !rng.one_in(3) {
        mend_ipv4_checksum(frame);
    }
}

/// Writes the right header checksum into an untagged IPv4 frame whose header is whole.
pub(crate) fn mend_ipv4_checksum(frame: &mut [u8]) {
    if frame.len() < 34 || frame[12..14] != [8, 0] {
        return;
    }
    let length = usize::from(frame[14] & 0xf) * 4;
    if let Some(header) = frame[14..].get_mut(..length.max(20)) {
        header[10..12].fill(0);
        let sum = naive_checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// RFC 1071 as it reads, to compare the fast one with.
pub(crate) fn naive_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn arp_packet(rng: &mut Rng) -> Vec<u8> {
    let mut packet = vec![0; arp::PACKET_BYTES];
    let request = arp::Repr::request(MacAddr([2, 0, 0, 0, 0, 1]), rng.ipv4(), rng.ipv4());
    let repr = if rng.one_in(2) {
        request
    } else {
        request.reply(MacAddr([2, 0, 0, 0, 0, 2]))
    };
    repr.emit(&mut packet).unwrap();
    packet
}

fn ipv4_packet(rng: &mut Rng) -> Vec<u8> {
    let (source, destination) = (rng.ipv4(), rng.ipv4());
    let addresses = Addresses::V4 {
        source,
        destination,
    };
    let (protocol, mut payload) = transport(rng, &addresses);
    let options = match rng.below(10) {
        0 => vec![148, 4, 0, 0],
        1 => vec![1, 7, 7, 4, 192, 0, 2, 1, 0],
        2 => vec![131, 3, 4, 1, 1, 1],
        3 => {
            let length = rng.below(41);
            rng.bytes(length)
        }
        _ => Vec::new(),
    };
    let is_fragment = rng.one_in(6);
    let more_fragments = is_fragment && rng.one_in(2);
    if more_fragments && rng.one_in(2) {
        let cut = payload.len() / 8 * 8;
        payload.truncate(cut);
    }
    let repr = ipv4::Repr {
        ttl: rng.next() as u8,
        tos: rng.next() as u8,
        identification: rng.next() as u16,
        dont_fragment: rng.one_in(2),
        more_fragments,
        fragment_offset_bytes: if is_fragment {
            rng.pick(&[0, 0, 8, 16, 1480, 65_528])
        } else {
            0
        },
        options: &options,
        ..ipv4::Repr::new(source, destination, protocol, payload.len() as u16)
    };
    let mut packet = vec![0; repr.bytes()];
    repr.emit(&mut packet).unwrap();
    packet.extend(payload);
    packet
}

fn ipv6_packet(rng: &mut Rng) -> Vec<u8> {
    let (source, destination) = (rng.ipv6(), rng.ipv6());
    let addresses = Addresses::V6 {
        source,
        destination,
    };
    let (mut next, mut payload) = transport(rng, &addresses);
    let mut headers = if rng.one_in(2) { 0 } else { rng.below(4) };
    if rng.one_in(20) {
        headers = 6 + rng.below(5);
    }
    for left in (0..headers).rev() {
        let kind = if left == 0 && rng.one_in(2) {
            ip_protocol::HOP_BY_HOP
        } else {
            rng.pick(&[
                ip_protocol::ROUTING,
                ip_protocol::FRAGMENT,
                ip_protocol::AUTHENTICATION,
                ip_protocol::DESTINATION_OPTIONS,
            ])
        };
        let mut header = extension_header(rng, kind, next);
        header.extend(payload);
        payload = header;
        next = kind;
    }
    let repr = ipv6::Repr {
        hop_limit: rng.pick(&[255, 64, 1, 0]),
        traffic_class: rng.next() as u8,
        flow_label: rng.next() as u32 & 0xf_ffff,
        ..ipv6::Repr::new(source, destination, next, payload.len() as u16)
    };
    let mut packet = vec![0; ipv6::HEADER_BYTES];
    repr.emit(&mut packet).unwrap();
    packet.extend(payload);
    packet
}

fn extension_header(rng: &mut Rng, kind: u8, next: u8) -> Vec<u8> {
    if kind == ip_protocol::FRAGMENT {
        let mut header = vec![0; ipv6::FRAGMENT_HEADER_BYTES];
        let repr = ipv6::FragmentHeader {
            next_header: next,
            offset_bytes: rng.pick(&[0, 0, 0, 8, 1448, 0xfff8]),
            more: rng.one_in(2),
            identification: rng.next() as u32,
        };
        repr.emit(&mut header).unwrap();
        return header;
    }
    let length = if rng.one_in(16) {
        rng.below(256)
    } else {
        rng.below(3)
    } as u8;
    let bytes = match kind {
        ip_protocol::AUTHENTICATION => (usize::from(length.max(1)) + 2) * 4,
        _ => (usize::from(length) + 1) * 8,
    };
    let length = if kind == ip_protocol::AUTHENTICATION {
        length.max(1)
    } else {
        length
    };
    let mut header = rng.bytes(bytes);
    header[0] = next;
    header[1] = length;
    if kind == ip_protocol::ROUTING && rng.one_in(2) {
        header[3] = 0;
    }
    header
}

/// Makes a transport header and data: (protocol, bytes).
fn transport(rng: &mut Rng, addresses: &Addresses) -> (u8, Vec<u8>) {
    let data_length = if rng.one_in(8) {
        rng.below(1400)
    } else {
        rng.below(64)
    };
    let data = rng.bytes(data_length);
    match rng.below(10) {
        0..=2 => (ip_protocol::UDP, udp_datagram(rng, &data, addresses)),
        3..=5 => (ip_protocol::TCP, tcp_segment(rng, &data, addresses)),
        6..=8 => icmp_message(rng, data, addresses),
        _ => (rng.pick(&[2, 41, 47, 50, 51, 59, 89, 132, 135, 255]), data),
    }
}

fn udp_datagram(rng: &mut Rng, data: &[u8], addresses: &Addresses) -> Vec<u8> {
    let mut datagram = vec![0; udp::HEADER_BYTES];
    datagram.extend(data);
    let repr = udp::Repr {
        source_port: rng.next() as u16,
        destination_port: rng.next() as u16,
    };
    repr.emit(&mut datagram, addresses).unwrap();
    datagram
}

fn tcp_segment(rng: &mut Rng, data: &[u8], addresses: &Addresses) -> Vec<u8> {
    let cookie = rng.bytes(8);
    let digest = rng.bytes(16);
    let all = [
        TcpOption::NoOperation,
        TcpOption::MaximumSegmentSize(rng.next() as u16),
        TcpOption::WindowScale(rng.below(15) as u8),
        TcpOption::SackPermitted,
        TcpOption::Sack(SackBlocks::new(
            &[(rng.next() as u32, rng.next() as u32); 2],
        )),
        TcpOption::Timestamps {
            value: rng.next() as u32,
            echo: rng.next() as u32,
        },
        TcpOption::Md5(digest.first_chunk().unwrap()),
        TcpOption::UserTimeout(rng.next() as u16),
        TcpOption::Authentication(&cookie),
        TcpOption::FastOpen(&cookie),
        TcpOption::FastOpenExperimental(&cookie),
        TcpOption::Other {
            kind: 77,
            data: &cookie,
        },
    ];
    let mut options = Vec::new();
    for _ in 0..rng.below(6) {
        let option = rng.pick(&all);
        let bytes: usize = options.iter().chain([&option]).map(TcpOption::bytes).sum();
        if bytes <= tcp::OPTIONS_BYTES_MAX {
            options.push(option);
        }
    }
    let repr = tcp::Repr {
        source_port: rng.next() as u16,
        destination_port: rng.next() as u16,
        sequence: rng.next() as u32,
        acknowledgement: rng.next() as u32,
        flags: Flags::from_bits_truncate(rng.next() as u16),
        window: rng.next() as u16,
        urgent: rng.next() as u16,
        options: &options,
    };
    let mut segment = vec![0; repr.bytes()];
    segment.extend(data);
    repr.emit(&mut segment, addresses).unwrap();
    segment
}

fn icmp_message(rng: &mut Rng, data: Vec<u8>, addresses: &Addresses) -> (u8, Vec<u8>) {
    let (code, rest) = (rng.below(16) as u8, rng.next() as u32);
    let mut message = vec![0; icmpv4::HEADER_BYTES];
    message.extend(data);
    match *addresses {
        Addresses::V4 { .. } => {
            let kind = rng.pick(&[0, 3, 4, 5, 8, 11, 12, 13, 14, 200]);
            icmpv4::Repr::Other { kind, code, rest }
                .emit(&mut message)
                .unwrap();
            (ip_protocol::ICMP, message)
        }
        Addresses::V6 {
            source,
            destination,
        } if rng.one_in(2) => {
            let repr = if rng.one_in(2) {
                ndp::Repr::NeighbourSolicitation {
                    target: rng.ipv6(),
                    source_mac: Some(MacAddr([2, 0, 0, 0, 0, 1])).filter(|_| rng.one_in(2)),
                }
            } else {
                ndp::Repr::NeighbourAdvertisement {
                    router: rng.one_in(2),
                    solicited: rng.one_in(2),
                    overrides: rng.one_in(2),
                    target: rng.ipv6(),
                    target_mac: Some(MacAddr([2, 0, 0, 0, 0, 1])).filter(|_| rng.one_in(2)),
                }
            };
            let mut message = vec![0; repr.bytes()];
            repr.emit(&mut message, source, destination).unwrap();
            (ip_protocol::ICMPV6, message)
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let kind = rng.pick(&[1, 2, 3, 4, 128, 129, 133, 134, 137, 143]);
            let repr = icmpv6::Repr::Other { kind, code, rest };
            repr.emit(&mut message, source, destination).unwrap();
            (ip_protocol::ICMPV6, message)
        }
    }
}
