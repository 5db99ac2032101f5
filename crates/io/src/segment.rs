//! Cuts a super-frame (TCP segmentation offload, UDP segmentation offload, receive coalescing) into the
//! frames that a wire would carry.
//!
//! A kernel stack hands TCP segments of up to 64 KiB to an interface that can cut them, and a veth claims
//! that it can: what arrives at the other end is the uncut segment, with a partial checksum. A forwarder
//! must cut it, or the next hop drops it.

use wire::checksum::Sum;

use crate::batch::Batch;
use crate::frame::{Frame, FrameFlags};
use crate::offload::{be16, ipv6_transport, network};
use crate::pool::Pool;
use crate::queue::QueueStats;

/// Bytes of a `struct virtio_net_hdr`, which precedes frames where `PACKET_VNET_HDR` is set.
pub(crate) const VNET_HEADER_BYTES: usize = 10;

/// The checksum field holds the pseudo-header's sum.
const NEEDS_CHECKSUM: u8 = 1;
/// The receiver vouches for the checksum.
const CHECKSUM_VALID: u8 = 2;

const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What the kernel says about a frame's offloads (Linux `struct virtio_net_hdr`, native byte order).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl VnetHeader {
    /// Reads the header; `None` if the bytes are too few.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<VNET_HEADER_BYTES>()?;
        let word = |at: usize| u16::from_ne_bytes([b[at], b[at + 1]]);
        Some(Self {
            flags: b[0],
            gso_type: b[1],
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        })
    }

    /// Returns the header that asks the kernel for nothing, and to copy `linear_bytes` of the frame out of
    /// the sender's memory.
    pub(crate) fn plain(linear_bytes: u16) -> [u8; VNET_HEADER_BYTES] {
        let mut bytes = [0; VNET_HEADER_BYTES];
        bytes[2..4].copy_from_slice(&linear_bytes.to_ne_bytes());
        bytes
    }

    /// Returns where the checksum starts and where it is stored, if it has to be finished.
    pub(crate) fn partial_checksum(&self) -> Option<(usize, usize)> {
        (self.flags & NEEDS_CHECKSUM != 0).then(|| {
            let start = usize::from(self.checksum_start);
            (start, start + usize::from(self.checksum_offset))
        })
    }

    /// Tells whether the kernel vouches for the checksum, or made it.
    pub(crate) fn checksum_good(&self) -> bool {
        self.flags & (NEEDS_CHECKSUM | CHECKSUM_VALID) != 0
    }

    /// Tells whether the frame has to be cut.
    pub(crate) fn is_super_frame(&self) -> bool {
        self.gso_type & !GSO_ECN != 0
    }
}

/// How to cut one super-frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segmenter {
    network: usize,
    transport: usize,
    /// Bytes that every segment repeats: Ethernet, network and transport headers.
    header: usize,
    /// Payload bytes a segment.
    size: usize,
    payload: usize,
    ipv6: bool,
    udp: bool,
}

impl Segmenter {
    /// Plans the cut. `None` if the headers are not those of plain TCP or UDP over IP that the kernel
    /// announced (tunnels, and super-frames above 64 KiB, are not cut).
    pub(crate) fn new(packet: &[u8], vnet: &VnetHeader) -> Option<Self> {
        let (ether_type, network) = network(packet)?;
        let (protocol, transport, ipv6) = match ether_type {
            0x0800 => {
                let header = usize::from(*packet.get(network)? & 0x0f) * 4;
                (*packet.get(network + 9)?, network + header, false)
            }
            0x86dd => {
                let (protocol, transport) = ipv6_transport(packet, network)?;
                (protocol, transport, true)
            }
            _ => return None,
        };
        let (kind, udp, header) = match protocol {
            TCP => {
                let header = usize::from(*packet.get(transport + 12)? >> 4) * 4;
                let kind = if ipv6 { GSO_TCP6 } else { GSO_TCP4 };
                (kind, false, transport + header.max(20))
            }
            UDP => (GSO_UDP, true, transport + 8),
            _ => return None,
        };
        let minimum = network + if ipv6 { 40 } else { 20 };
        let inner_is_outer = vnet
            .partial_checksum()
            .is_none_or(|(start, _)| start == transport);
        let payload = packet.len().checked_sub(header)?;
        let size = usize::from(vnet.gso_size);
        let plausible = vnet.gso_type & !GSO_ECN == kind
            && inner_is_outer
            && transport >= minimum
            && size > 0
            && payload > 0;
        plausible.then_some(Self {
            network,
            transport,
            header,
            size,
            payload,
            ipv6,
            udp,
        })
    }

    /// Returns how many frames come out.
    pub(crate) fn count(&self) -> usize {
        self.payload.div_ceil(self.size)
    }

    /// Writes the `n`th segment of `packet` to `frame`, complete with lengths and checksums; tells whether
    /// it fits. `packet` is the one that the plan was made for.
    pub(crate) fn write(&self, packet: &[u8], n: usize, frame: &mut Frame) -> bool {
        let from = self.header + n * self.size;
        let to = packet.len().min(from + self.size);
        let (Some(headers), Some(payload)) = (packet.get(..self.header), packet.get(from..to))
        else {
            return false;
        };
        if !frame.set_len(headers.len() + payload.len()) {
            return false;
        }
        let (head, body) = frame.data_mut().split_at_mut(headers.len());
        head.copy_from_slice(headers);
        body.copy_from_slice(payload);
        self.fix(frame.data_mut(), n).is_some()
    }

    /// Corrects the headers of the `n`th segment. `None` is not reached: `new` saw all these bytes.
    fn fix(&self, bytes: &mut [u8], n: usize) -> Option<()> {
        let network_len = bytes.len() - self.network;
        let transport_len = bytes.len() - self.transport;
        let ip = bytes.get_mut(self.network..self.transport)?;
        let addresses = if self.ipv6 {
            put16(ip, 4, network_len - 40)?;
            Sum::of(ip.get(8..40)?)
        } else {
            put16(ip, 2, network_len)?;
            let id = usize::from(be16(ip, 4)?) + n;
            put16(ip, 4, id)?;
            put16(ip, 10, 0)?;
            let checksum = Sum::of(ip).checksum();
            put16(ip, 10, checksum.into())?;
            Sum::of(ip.get(12..20)?)
        };
        let protocol = if self.udp { UDP } else { TCP };
        let pseudo = addresses
            .add_u16(protocol.into())
            .add_u16(transport_len as u16);
        let transport = bytes.get_mut(self.transport..)?;
        let field = if self.udp {
            put16(transport, 4, transport_len)?;
            6
        } else {
            self.fix_tcp(transport, n)?;
            16
        };
        put16(transport, field, 0)?;
        // For UDP zero means "none" (RFC 768); for TCP both zeros are equal.
        let checksum = pseudo.add_bytes(transport).udp_checksum();
        put16(transport, field, checksum.into())
    }

    /// Moves the sequence number on; FIN and PSH stay on the last segment, CWR on the first (RFC 3168 6.1.2).
    fn fix_tcp(&self, tcp: &mut [u8], n: usize) -> Option<()> {
        let sequence = tcp.get_mut(4..8)?.first_chunk_mut::<4>()?;
        let moved = u32::from_be_bytes(*sequence).wrapping_add((n * self.size) as u32);
        *sequence = moved.to_be_bytes();
        let flags = tcp.get_mut(13)?;
        if n + 1 < self.count() {
            *flags &= !0b0000_1001;
        }
        if n > 0 {
            *flags &= !0b1000_0000;
        }
        Some(())
    }
}

/// The longest super-frame: 64 KiB of IP, the headers below it, and a vnet header.
pub(crate) const SUPER_FRAME_BYTES: usize = (64 << 10) + 64;

/// A super-frame that is being cut: its segments may take more than one batch.
#[derive(Debug)]
pub(crate) struct SuperFrame {
    bytes: Box<[u8]>,
    len: usize,
    plan: Option<Segmenter>,
    next: usize,
}

impl SuperFrame {
    /// Takes the memory for the longest one.
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; SUPER_FRAME_BYTES].into(),
            len: 0,
            plan: None,
            next: 0,
        }
    }

    /// Returns the memory, to receive into. What is being cut is forgotten.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        self.plan = None;
        &mut self.bytes
    }

    /// Plans the cut of the `len` bytes from `start` of the buffer; tells whether they can be cut.
    pub(crate) fn start(&mut self, start: usize, len: usize, vnet: &VnetHeader) -> bool {
        let plan = self
            .bytes
            .get(start..)
            .and_then(|bytes| bytes.get(..len))
            .filter(|_| vnet.is_super_frame())
            .and_then(|packet| Segmenter::new(packet, vnet));
        if plan.is_some() {
            self.bytes.copy_within(start..start + len, 0);
        }
        self.plan = plan;
        self.len = len;
        self.next = 0;
        plan.is_some()
    }

    /// Copies `packet` and plans its cut; tells whether it can be cut.
    pub(crate) fn start_with(&mut self, packet: &[u8], vnet: &VnetHeader) -> bool {
        let Some(to) = self.bytes.get_mut(..packet.len()) else {
            return false;
        };
        to.copy_from_slice(packet);
        self.start(0, packet.len(), vnet)
    }

    /// Tells whether segments are left.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.plan.is_some()
    }

    /// Forgets what is left.
    pub(crate) fn clear(&mut self) {
        self.plan = None;
    }

    /// Appends segments to the batch while there are any and it has room; `deliver` finishes each. Counts
    /// those that are lost.
    pub(crate) fn cut(
        &mut self,
        pool: &mut Pool,
        batch: &mut Batch,
        stats: &mut QueueStats,
        mut deliver: impl FnMut(Frame, &mut Pool, &mut Batch, &mut QueueStats),
    ) {
        let Some(plan) = self.plan else { return };
        let packet = self.bytes.get(..self.len).unwrap_or_default();
        while self.next < plan.count() {
            if batch.is_full() {
                return;
            }
            let n = self.next;
            self.next += 1;
            let Some(mut frame) = pool.alloc() else {
                stats.rx_no_frame_pkts += 1;
                continue;
            };
            if !plan.write(packet, n, &mut frame) {
                stats.rx_invalid_pkts += 1;
                pool.free(frame);
                continue;
            }
            frame.flags |= FrameFlags::CHECKSUM_GOOD;
            deliver(frame, pool, batch, stats);
        }
        self.plan = None;
    }
}

/// Writes the low 16 bits of a number, big-endian.
fn put16(bytes: &mut [u8], at: usize, value: usize) -> Option<()> {
    let to = bytes.get_mut(at..)?.first_chunk_mut::<2>()?;
    *to = (value as u16).to_be_bytes();
    Some(())
}

/// Puts a VLAN tag that the kernel took out back behind the addresses; tells whether there was headroom.
pub(crate) fn insert_tag(frame: &mut Frame, tpid: u16, tci: u16) -> bool {
    if frame.len() < 12 || !frame.push_front(4) {
        return false;
    }
    let bytes = frame.data_mut();
    bytes.copy_within(4..16, 0);
    bytes[12..14].copy_from_slice(&tpid.to_be_bytes());
    bytes[14..16].copy_from_slice(&tci.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugePages, Pool};

    fn vnet(gso_type: u8, size: u16, start: u16, offset: u16) -> VnetHeader {
        VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type,
            gso_size: size,
            checksum_start: start,
            checksum_offset: offset,
        }
    }

    fn super_frame(ipv6: bool, udp: bool, payload: usize) -> Vec<u8> {
        let transport: &[u8] = if udp {
            &[0x12, 0x34, 0, 53, 0, 0, 0, 0]
        } else {
            // Ports, sequence 0xffffff00, acknowledgement, 24 bytes with FIN PSH ACK CWR, one option word.
            &[
                0x12,
                0x34,
                0,
                80,
                0xff,
                0xff,
                0xff,
                0,
                0,
                0,
                0,
                1,
                0x60,
                0b1001_1001,
                1,
                1,
                0,
                0,
                0,
                0,
                1,
                1,
                1,
                1,
            ]
        };
        let len = (transport.len() + payload) as u16;
        let mut bytes = vec![2; 12];
        if ipv6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([if udp { UDP } else { TCP }, 64]);
            bytes.extend([0xfd; 32]);
        } else {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((20 + len).to_be_bytes());
            bytes.extend([0xff, 0xff, 0x40, 0, 64, if udp { UDP } else { TCP }, 0, 0]);
            bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        bytes.extend(transport);
        bytes.extend((0..payload).map(|i| (i % 251) as u8));
        bytes
    }

    /// Checks lengths and checksums with another implementation and returns the payload.
    fn checked(frame: &[u8], udp: bool) -> Vec<u8> {
        let packet = etherparse::PacketHeaders::from_ethernet_slice(frame).unwrap();
        let net = packet.net.unwrap();
        let payload = packet.payload.slice().to_vec();
        if let Some((ip, _)) = net.ipv4_ref() {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        }
        let transport = packet.transport.unwrap();
        let mut expected = transport.clone();
        match &net {
            etherparse::NetHeaders::Ipv4(ip, _) => {
                expected.update_checksum_ipv4(ip, &payload).unwrap();
            }
            etherparse::NetHeaders::Ipv6(ip, _) => {
                expected.update_checksum_ipv6(ip, &payload).unwrap();
            }
            etherparse::NetHeaders::Arp(_) => panic!("not IP"),
        }
        assert_eq!(transport, expected);
        let is_udp = matches!(transport, etherparse::TransportHeader::Udp(_));
        assert_eq!(is_udp, udp);
        payload
    }

    #[test]
    fn segments_verify_and_join_to_the_whole() {
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        for (ipv6, udp) in [(false, false), (true, false), (false, true), (true, true)] {
            for (payload, size) in [(10_000, 1448), (2896, 1448), (1, 1448), (1449, 1448)] {
                let packet = super_frame(ipv6, udp, payload);
                let start = if ipv6 { 54 } else { 34 };
                let kind = match (udp, ipv6) {
                    (true, _) => GSO_UDP,
                    (_, true) => GSO_TCP6,
                    _ => GSO_TCP4,
                };
                let vnet = vnet(kind | GSO_ECN, size as u16, start, if udp { 6 } else { 16 });
                assert!(vnet.is_super_frame());
                let plan = Segmenter::new(&packet, &vnet).unwrap();
                assert_eq!(plan.count(), payload.div_ceil(size));
                let mut joined = Vec::new();
                for n in 0..plan.count() {
                    let mut frame = pool.alloc().unwrap();
                    assert!(plan.write(&packet, n, &mut frame));
                    joined.extend(checked(frame.data(), udp));
                    if !udp {
                        let tcp = &frame.data()[usize::from(start)..];
                        let sequence = 0xffff_ff00_u32.wrapping_add((n * size) as u32);
                        assert_eq!(tcp[4..8], sequence.to_be_bytes());
                        assert_eq!(tcp[13] & 9 != 0, n + 1 == plan.count(), "FIN and PSH");
                        assert_eq!(tcp[13] & 0x80 != 0, n == 0, "CWR");
                    }
                    if !ipv6 {
                        let id = 0xffff_u16.wrapping_add(n as u16);
                        assert_eq!(frame.data()[18..20], id.to_be_bytes());
                    }
                    pool.free(frame);
                }
                assert_eq!(joined, packet[packet.len() - payload..]);
            }
        }
    }

    #[test]
    fn what_was_not_announced_is_not_cut() {
        let packet = super_frame(false, false, 5000);
        let good = vnet(GSO_TCP4, 1448, 34, 16);
        assert!(Segmenter::new(&packet, &good).is_some());
        for bad in [
            vnet(GSO_TCP6, 1448, 34, 16),
            vnet(GSO_UDP, 1448, 34, 16),
            vnet(GSO_TCP4, 0, 34, 16),
            // A tunnel: the checksum is that of an inner header.
            vnet(GSO_TCP4, 1448, 84, 16),
        ] {
            assert!(Segmenter::new(&packet, &bad).is_none(), "{bad:?}");
        }
        for len in 0..58 {
            assert!(Segmenter::new(&packet[..len], &good).is_none(), "{len}");
        }
    }

    #[test]
    fn random_bytes_are_never_cut_outside_their_bounds() {
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        let mut state = 7_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as u8
        };
        for round in 0..20_000 {
            let len = usize::from(next()) * 2;
            let mut packet: Vec<u8> = (0..len).map(|_| next()).collect();
            if round % 2 == 0 && len > 24 {
                packet[12..14].copy_from_slice(&[8, 0]);
                packet[23] = if round % 4 == 0 { TCP } else { UDP };
            }
            let header: [u8; VNET_HEADER_BYTES] = core::array::from_fn(|_| next());
            let mut vnet = VnetHeader::parse(&header).unwrap();
            vnet.gso_type = [GSO_TCP4, GSO_TCP6, GSO_UDP][round % 3];
            vnet.flags = 0;
            let Some(plan) = Segmenter::new(&packet, &vnet) else {
                continue;
            };
            for n in 0..plan.count().min(4) {
                let mut frame = pool.alloc().unwrap();
                plan.write(&packet, n, &mut frame);
                pool.free(frame);
            }
        }
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let mut pool = Pool::new(1, 2048, HugePages::Never).unwrap();
        let mut frame = pool.alloc().unwrap();
        frame.fill(b"ddddddssssssttpayload");
        assert!(insert_tag(&mut frame, 0x8100, 0x2005));
        assert_eq!(frame.data(), b"ddddddssssss\x81\x00\x20\x05ttpayload");
        frame.set_range(0, 20);
        assert!(!insert_tag(&mut frame, 0x8100, 5), "no headroom");
        pool.free(frame);
    }
}
