//! A host outside the node: small, sans-io, and strict about what it is sent.
//!
//! It resolves addresses by ARP and neighbour discovery, sends numbered UDP probes and echo requests,
//! puts IPv4 fragments together, answers what asks for its address, and notes ICMP errors by the number of
//! the probe that they quote.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use wire::checksum::{TransportChecksum, verify_transport};
use wire::{
    Addresses, Instant, Layout, LayoutFlags, MacAddr, arp, ether_type, icmpv4, icmpv6, ip_protocol,
    ipv4, ipv6, ndp, udp,
};

const ETHERNET_BYTES: usize = 14;
/// Time between questions for an address, and how many are asked (RFC 4861 10).
const RETRANSMIT: Duration = Duration::from_secs(1);
const QUESTIONS: u8 = 3;
/// Packets that wait for an address.
const WAITING_MAX: usize = 64;
/// Datagrams whose fragments are kept.
const PARTIAL_MAX: usize = 256;
/// Where probes go.
const PROBE_PORT: u16 = 5000;

/// An address of a host, the length of its link's prefix, and the router to all else.
#[derive(Clone, Copy, Debug)]
pub struct Family<A> {
    /// The host's address.
    pub address: A,
    /// Bits of the prefix that is on the link.
    pub length: u8,
    /// The router.
    pub gateway: Option<A>,
}

/// What a host is made of.
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// Its MAC address.
    pub mac: MacAddr,
    /// IPv4.
    pub v4: Family<Ipv4Addr>,
    /// IPv6.
    pub v6: Family<Ipv6Addr>,
}

/// A UDP datagram to send, whose data starts with a number and goes on with bytes that follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its number.
    pub number: u32,
    /// Where to.
    pub to: IpAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Routers may not fragment it (IPv4).
    pub dont_fragment: bool,
    /// Length of the IP packet, bytes; at least that of the headers and the number.
    pub bytes: usize,
}

/// A probe that arrived as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its number.
    pub number: u32,
    /// Who sent it.
    pub from: IpAddr,
    /// TTL or hop limit on arrival.
    pub ttl: u8,
    /// It came in fragments.
    pub fragmented: bool,
}

/// An ICMP error about a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The number of the probe that it quotes.
    pub number: u32,
    /// Who sent it.
    pub from: IpAddr,
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

#[derive(Debug)]
struct Asked {
    next: Instant,
    questions: u8,
    packets: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Partial {
    pieces: BTreeMap<usize, Vec<u8>>,
    total: Option<usize>,
    ttl: u8,
}

/// A host. Feed it with frames and time, and send what it has to say.
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    link_local: Ipv6Addr,
    known: BTreeMap<IpAddr, MacAddr>,
    asked: BTreeMap<IpAddr, Asked>,
    partial: BTreeMap<(Ipv4Addr, u16), Partial>,
    identification: u16,
    out: Vec<Vec<u8>>,
    /// Probes that arrived whole.
    pub delivered: Vec<Delivered>,
    /// Errors about probes.
    pub errors: Vec<IcmpError>,
    /// Sequence numbers of echo requests that were answered with the right data.
    pub replies: Vec<u16>,
    /// Unicast IP packets to the host's MAC address with another host's IP address, or frames to another
    /// host's MAC address.
    pub foreign: u64,
    /// Packets for the host that were damaged.
    pub damaged: u64,
}

impl Host {
    /// Makes a host that knows nobody.
    pub fn new(config: HostConfig) -> Self {
        Self {
            link_local: config.mac.to_link_local(),
            config,
            known: BTreeMap::new(),
            asked: BTreeMap::new(),
            partial: BTreeMap::new(),
            identification: 1,
            out: Vec::new(),
            delivered: Vec::new(),
            errors: Vec::new(),
            replies: Vec::new(),
            foreign: 0,
            damaged: 0,
        }
    }

    /// Returns what the host was made of.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// Takes the frames that the host has to send.
    pub fn poll_transmit(&mut self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.out)
    }

    /// Tells the link who the host is: a gratuitous ARP request.
    pub fn announce(&mut self) {
        let own = self.config.v4.address;
        self.send_arp(
            MacAddr::BROADCAST,
            &arp::Repr::request(self.config.mac, own, own),
        );
    }

    /// Sends a probe.
    pub fn probe(&mut self, now: Instant, probe: &Probe) {
        let header = match probe.to {
            IpAddr::V4(_) => ipv4::HEADER_BYTES,
            IpAddr::V6(_) => ipv6::HEADER_BYTES,
        };
        let data_bytes = probe.bytes.saturating_sub(header + udp::HEADER_BYTES);
        let mut datagram = vec![0; udp::HEADER_BYTES];
        datagram.extend(data(probe.number, data_bytes));
        let addresses = match probe.to {
            IpAddr::V4(destination) => Addresses::V4 {
                source: self.config.v4.address,
                destination,
            },
            IpAddr::V6(destination) => Addresses::V6 {
                source: self.config.v6.address,
                destination,
            },
        };
        let ports = udp::Repr {
            // Flows are spread over workers by their ports.
            source_port: 1024 + (probe.number % 997) as u16,
            destination_port: PROBE_PORT,
        };
        ports
            .emit(&mut datagram, &addresses)
            .expect("room was made");
        let (ttl, whole) = (probe.ttl, probe.dont_fragment);
        self.packet(now, probe.to, ip_protocol::UDP, ttl, whole, &datagram);
    }

    /// Sends an echo request with `data_bytes` bytes of data.
    pub fn ping(&mut self, now: Instant, to: IpAddr, sequence: u16, data_bytes: usize) {
        let mut message = vec![0; 8];
        message.extend(data(sequence.into(), data_bytes));
        let identifier = u16::from_be_bytes([self.config.mac.0[4], self.config.mac.0[5]]);
        let protocol = match to {
            IpAddr::V4(_) => {
                let request = icmpv4::Repr::EchoRequest {
                    identifier,
                    sequence,
                };
                request.emit(&mut message).expect("room was made");
                ip_protocol::ICMP
            }
            IpAddr::V6(to) => {
                let request = icmpv6::Repr::EchoRequest {
                    identifier,
                    sequence,
                };
                let own = self.config.v6.address;
                request.emit(&mut message, own, to).expect("room was made");
                ip_protocol::ICMPV6
            }
        };
        self.packet(now, to, protocol, 64, false, &message);
    }

    fn packet(
        &mut self,
        now: Instant,
        to: IpAddr,
        protocol: u8,
        ttl: u8,
        dont_fragment: bool,
        payload: &[u8],
    ) {
        let length = payload.len() as u16;
        let mut packet;
        let next_hop = match to {
            IpAddr::V4(to) => {
                let own = self.config.v4;
                packet = vec![0; ipv4::HEADER_BYTES];
                let header = ipv4::Repr {
                    ttl,
                    dont_fragment,
                    identification: self.identification,
                    ..ipv4::Repr::new(own.address, to, protocol, length)
                };
                header.emit(&mut packet).expect("room was made");
                self.identification = self.identification.wrapping_add(1);
                let bits = 32 - u32::from(own.length);
                let on_link = (own.address.to_bits() ^ to.to_bits()) >> bits == 0;
                IpAddr::V4(own.gateway.filter(|_| !on_link).unwrap_or(to))
            }
            IpAddr::V6(to) => {
                let own = self.config.v6;
                packet = vec![0; ipv6::HEADER_BYTES];
                let header = ipv6::Repr {
                    hop_limit: ttl,
                    ..ipv6::Repr::new(own.address, to, protocol, length)
                };
                header.emit(&mut packet).expect("room was made");
                let bits = 128 - u32::from(own.length);
                let on_link = (own.address.to_bits() ^ to.to_bits()) >> bits == 0;
                IpAddr::V6(own.gateway.filter(|_| !on_link).unwrap_or(to))
            }
        };
        packet.extend(payload);
        self.send_to(now, next_hop, packet);
    }

    fn send_to(&mut self, now: Instant, next_hop: IpAddr, packet: Vec<u8>) {
        if let Some(&mac) = self.known.get(&next_hop) {
            self.frame(mac, kind_of(next_hop), &packet);
            return;
        }
        let asked = self.asked.entry(next_hop).or_insert(Asked {
            next: now,
            questions: 0,
            packets: Vec::new(),
        });
        if asked.packets.len() < WAITING_MAX {
            asked.packets.push(packet);
        }
        self.handle_timeout(now);
    }

    /// Asks again for addresses that were not told.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut questions = Vec::new();
        self.asked.retain(|address, asked| {
            if asked.next > now {
                return true;
            }
            if asked.questions == QUESTIONS {
                return false;
            }
            asked.questions += 1;
            asked.next = now + RETRANSMIT;
            questions.push(*address);
            true
        });
        for address in questions {
            self.ask(address);
        }
    }

    fn ask(&mut self, address: IpAddr) {
        let (mac, own6) = (self.config.mac, self.config.v6.address);
        match address {
            IpAddr::V4(address) => {
                let request = arp::Repr::request(mac, self.config.v4.address, address);
                self.send_arp(MacAddr::BROADCAST, &request);
            }
            IpAddr::V6(target) => {
                let question = ndp::Repr::NeighbourSolicitation {
                    target,
                    source_mac: Some(mac),
                };
                let group = ndp::solicited_node(target);
                let to = MacAddr::from_ipv6_multicast(group);
                self.send_discovery(to, own6, group, &question);
            }
        }
    }

    fn send_arp(&mut self, to: MacAddr, repr: &arp::Repr) {
        let mut packet = vec![0; arp::PACKET_BYTES];
        repr.emit(&mut packet).expect("room was made");
        self.frame(to, ether_type::ARP, &packet);
    }

    fn send_discovery(
        &mut self,
        to: MacAddr,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        repr: &ndp::Repr,
    ) {
        let mut packet = vec![0; ipv6::HEADER_BYTES + repr.bytes()];
        let length = repr.bytes() as u16;
        let header = ipv6::Repr {
            hop_limit: ndp::HOP_LIMIT,
            ..ipv6::Repr::new(source, destination, ip_protocol::ICMPV6, length)
        };
        header.emit(&mut packet).expect("room was made");
        let message = &mut packet[ipv6::HEADER_BYTES..];
        repr.emit(message, source, destination)
            .expect("room was made");
        self.frame(to, ether_type::IPV6, &packet);
    }

    fn frame(&mut self, to: MacAddr, kind: u16, packet: &[u8]) {
        let mut frame = [&to.0[..], &self.config.mac.0, &kind.to_be_bytes(), packet].concat();
        frame.resize(frame.len().max(60), 0);
        self.out.push(frame);
    }

    /// Takes a frame from the link.
    pub fn input(&mut self, now: Instant, frame: &[u8]) {
        let Ok(layout) = wire::parse(frame) else {
            self.damaged += 1;
            return;
        };
        let for_us = frame.first_chunk() == Some(&self.config.mac.0);
        if !for_us && !layout.flags.contains(LayoutFlags::L2_GROUP) {
            self.foreign += 1;
        } else if layout.flags.contains(LayoutFlags::ARP) {
            self.arp(now, &frame[usize::from(layout.network)..]);
        } else if let Some((source, to)) = layout.ipv4_addresses(frame) {
            self.ipv4(&layout, frame, source, to);
        } else if let Some((source, to)) = layout.ipv6_addresses(frame) {
            self.ipv6(now, &layout, frame, source, to);
        }
    }

    fn arp(&mut self, now: Instant, packet: &[u8]) {
        let Ok(view) = arp::View::new(packet) else {
            return;
        };
        let repr = arp::Repr::parse(&view);
        let own = self.config.v4.address;
        let asked = self.asked.contains_key(&IpAddr::V4(repr.sender_ip));
        let known = self.known.contains_key(&IpAddr::V4(repr.sender_ip));
        if repr.target_ip == own || asked || known {
            self.learn(now, IpAddr::V4(repr.sender_ip), repr.sender_mac);
        }
        if repr.operation == arp::Operation::Request && repr.target_ip == own {
            self.send_arp(repr.sender_mac, &repr.reply(self.config.mac));
        }
    }

    fn learn(&mut self, now: Instant, address: IpAddr, mac: MacAddr) {
        self.known.insert(address, mac);
        if let Some(asked) = self.asked.remove(&address) {
            for packet in asked.packets {
                self.send_to(now, address, packet);
            }
        }
    }

    fn ipv4(&mut self, layout: &Layout, frame: &[u8], source: Ipv4Addr, to: Ipv4Addr) {
        if to != self.config.v4.address {
            self.foreign += u64::from(!layout.flags.contains(LayoutFlags::L3_GROUP));
            return;
        }
        let Ok(view) = ipv4::View::new(layout.packet(frame)) else {
            return;
        };
        if !layout.flags.contains(LayoutFlags::FRAGMENT) {
            if verify_transport(layout, frame) == TransportChecksum::Bad {
                self.damaged += 1;
                return;
            }
            let payload = &frame[usize::from(layout.transport)..usize::from(layout.end)];
            self.transport(source.into(), view.ttl(), layout.protocol, payload, false);
            return;
        }
        let Some((whole, ttl)) = self.reassemble(source, &view, view.payload()) else {
            return;
        };
        // The checksum covers the pseudo-header, so that a whole packet is made for it.
        let mut again = vec![0; ETHERNET_BYTES + ipv4::HEADER_BYTES];
        again[12..14].copy_from_slice(&ether_type::IPV4.to_be_bytes());
        let header = ipv4::Repr::new(source, to, view.protocol(), whole.len() as u16);
        let written = header.emit(&mut again[ETHERNET_BYTES..]);
        written.expect("room was made");
        again.extend(&whole);
        match wire::parse(&again) {
            Ok(layout) if verify_transport(&layout, &again) != TransportChecksum::Bad => {
                self.transport(source.into(), ttl, view.protocol(), &whole, true);
            }
            _ => self.damaged += 1,
        }
    }

    fn reassemble(
        &mut self,
        source: Ipv4Addr,
        view: &ipv4::View<'_>,
        piece: &[u8],
    ) -> Option<(Vec<u8>, u8)> {
        let key = (source, view.identification());
        if self.partial.len() > PARTIAL_MAX {
            self.partial.clear();
        }
        let partial = self.partial.entry(key).or_default();
        let offset = usize::from(view.fragment_offset_bytes());
        partial.pieces.insert(offset, piece.to_vec());
        partial.ttl = view.ttl();
        if !view.more_fragments() {
            partial.total = Some(offset + piece.len());
        }
        let mut whole = Vec::new();
        for (&offset, piece) in &partial.pieces {
            if offset != whole.len() {
                return None;
            }
            whole.extend(piece);
        }
        let ttl = partial.ttl;
        if partial.total != Some(whole.len()) {
            return None;
        }
        self.partial.remove(&key);
        Some((whole, ttl))
    }

    fn ipv6(
        &mut self,
        now: Instant,
        layout: &Layout,
        frame: &[u8],
        source: Ipv6Addr,
        to: Ipv6Addr,
    ) {
        if verify_transport(layout, frame) == TransportChecksum::Bad {
            self.damaged += 1;
            return;
        }
        if let Some(Ok(message)) = ndp::Message::validate(layout, frame) {
            self.discovery(now, &message, source);
            return;
        }
        if to != self.config.v6.address && to != self.link_local {
            self.foreign += u64::from(!to.is_multicast());
            return;
        }
        let hops = frame[usize::from(layout.network) + 7];
        let payload = &frame[usize::from(layout.transport)..usize::from(layout.end)];
        self.transport(source.into(), hops, layout.protocol, payload, false);
    }

    fn discovery(&mut self, now: Instant, message: &ndp::Message<'_>, source: Ipv6Addr) {
        let mac = self.config.mac;
        match *message {
            ndp::Message::NeighbourSolicitation { target, options } => {
                if target != self.config.v6.address && target != self.link_local {
                    return;
                }
                let Some(asker) = options.source_link_layer() else {
                    return;
                };
                self.learn(now, source.into(), asker);
                let answer = ndp::Repr::NeighbourAdvertisement {
                    router: false,
                    solicited: true,
                    overrides: true,
                    target,
                    target_mac: Some(mac),
                };
                self.send_discovery(asker, target, source, &answer);
            }
            ndp::Message::NeighbourAdvertisement {
                target, options, ..
            } => {
                let address = IpAddr::V6(target);
                let wanted = self.asked.contains_key(&address) || self.known.contains_key(&address);
                if let Some(mac) = options.target_link_layer().filter(|_| wanted) {
                    self.learn(now, address, mac);
                }
            }
            _ => {}
        }
    }

    fn transport(&mut self, from: IpAddr, ttl: u8, protocol: u8, payload: &[u8], fragmented: bool) {
        match protocol {
            ip_protocol::UDP => {
                let Some(number) = payload.get(8..).and_then(number_of) else {
                    self.damaged += 1;
                    return;
                };
                self.delivered.push(Delivered {
                    number,
                    from,
                    ttl,
                    fragmented,
                });
            }
            ip_protocol::ICMP | ip_protocol::ICMPV6 => self.icmp(from, payload),
            _ => {}
        }
    }

    fn icmp(&mut self, from: IpAddr, message: &[u8]) {
        let &[kind, code, _, _, _, _, high, low, ref rest @ ..] = message else {
            return;
        };
        let is_reply = kind == if from.is_ipv4() { 0 } else { 129 };
        if is_reply {
            let sequence = u16::from_be_bytes([high, low]);
            if rest == data(sequence.into(), rest.len()) {
                self.replies.push(sequence);
            } else {
                self.damaged += 1;
            }
            return;
        }
        let header = match rest.first() {
            Some(first) if from.is_ipv4() => usize::from(first & 0xf) * 4,
            _ => ipv6::HEADER_BYTES,
        };
        let quoted = rest.get(header + udp::HEADER_BYTES..);
        if let Some(&number) = quoted.and_then(|data| data.first_chunk::<4>()) {
            self.errors.push(IcmpError {
                number: u32::from_be_bytes(number),
                from,
                kind,
                code,
            });
        }
    }
}

const fn kind_of(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => ether_type::IPV4,
        IpAddr::V6(_) => ether_type::IPV6,
    }
}

/// The data of the probe `number`: the number, then bytes that follow from it and from their place.
fn data(number: u32, bytes: usize) -> Vec<u8> {
    let mut data = number.to_be_bytes().to_vec();
    data.extend((4..bytes).map(|at| (at as u32 ^ number) as u8));
    data.truncate(bytes);
    data
}

/// Returns the number of a probe whose data are as they were sent.
fn number_of(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(*bytes.first_chunk()?);
    (bytes == data(number, bytes.len())).then_some(number)
}
