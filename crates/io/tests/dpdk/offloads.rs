//! What a device does for who sends: net_tap writes checksums and cuts segments, and a kernel looks at them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use io::af_packet::AfPacketSpec;
use io::port::DriverSpec;
use io::raw::RawPort;
use io::{Batch, FrameFlags, HugePages, Offloads, Pool};

use crate::common::{exec, namespace, needs};
use crate::{begin, queue};

/// An Ethernet frame with TCP (`tcp`) or UDP whose checksum holds the sum of the pseudo-header only.
fn partial(tcp: bool, ipv6: bool, payload: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let network = match ipv6 {
        true => link.ipv6([0xfd; 16], [0xfe; 16], 64),
        false => link.ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64),
    };
    let mut bytes = Vec::new();
    let (header, protocol) = match tcp {
        true => {
            let tcp = network.tcp(4000, 4001, 1_000_000, 4096).psh().ack(7);
            tcp.write(&mut bytes, payload).unwrap();
            (20, 6_u32)
        }
        false => {
            network.udp(4000, 4001).write(&mut bytes, payload).unwrap();
            (8, 17)
        }
    };
    let transport = bytes.len() - payload.len() - header;
    let addresses = if ipv6 { 22..54 } else { 26..34 };
    let words = bytes[addresses].chunks(2);
    let words = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum::<u32>() + protocol + (header + payload.len()) as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let field = transport + if tcp { 16 } else { 6 };
    bytes[field..field + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    bytes
}

/// Checks the checksums of a frame with TCP or UDP; returns the TCP sequence number (0 for UDP) and the
/// payload.
fn whole(bytes: &[u8]) -> Option<(u32, Vec<u8>)> {
    let packet = SlicedPacket::from_ethernet(bytes).ok()?;
    let (tcp, udp) = match packet.transport? {
        TransportSlice::Tcp(tcp) if tcp.destination_port() == 4001 => (Some(tcp), None),
        TransportSlice::Udp(udp) if udp.destination_port() == 4001 => (None, Some(udp)),
        _ => return None,
    };
    let addresses = match packet.net? {
        etherparse::NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            Ok((header.source, header.destination))
        }
        etherparse::NetSlice::Ipv6(ip) => Err((ip.header().source(), ip.header().destination())),
        etherparse::NetSlice::Arp(_) => return None,
    };
    if let Some(tcp) = tcp {
        let header = tcp.to_header();
        let checksum = match addresses {
            Ok((from, to)) => header.calc_checksum_ipv4_raw(from, to, tcp.payload()),
            Err((from, to)) => header.calc_checksum_ipv6_raw(from, to, tcp.payload()),
        };
        assert_eq!(header.checksum, checksum.unwrap());
        return Some((header.sequence_number, tcp.payload().to_vec()));
    }
    let udp = udp?;
    let header = udp.to_header();
    let checksum = match addresses {
        Ok((from, to)) => header.calc_checksum_ipv4_raw(from, to, udp.payload()),
        Err((from, to)) => header.calc_checksum_ipv6_raw(from, to, udp.payload()),
    };
    assert_eq!(header.checksum, checksum.unwrap());
    Some((0, udp.payload().to_vec()))
}

#[test]
fn a_tap_cuts_segments_and_writes_checksums_as_asked() {
    let test = "a_tap_cuts_segments_and_writes_checksums_as_asked";
    if !needs(test, &["ip"]) {
        return;
    }
    let mut pool = Pool::new(8192, 16_384, HugePages::Auto).unwrap();
    let end = namespace("offloads");
    let opened = end.run(|| {
        let mut queue = queue(pool.region(), "net_tap_offloads,iface=dtap");
        begin(&mut *queue, &mut pool);
        queue
    });
    let mut queue = opened.unwrap();
    exec(&end, "ip link set dtap up");
    let able = Offloads::CHECKSUM | Offloads::SEGMENT_IPV4;
    assert_eq!(queue.capabilities().offloads, able);
    let mut seen = end
        .run(|| RawPort::with_driver("seen", DriverSpec::AfPacket(AfPacketSpec::new("dtap"))))
        .unwrap()
        .unwrap();
    let payload: Vec<u8> = (0..12_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    for (tcp, ipv6, length, segment) in [
        (true, false, 12_000, 1400),
        (true, false, 700, 1400), // one segment is enough
        (true, true, 500, 0),
        (false, false, 501, 0),
        (false, true, 500, 0),
    ] {
        let mut frame = pool.alloc().unwrap();
        assert!(frame.fill(&partial(tcp, ipv6, &payload[..length])));
        frame.flags |= FrameFlags::CHECKSUM_PARTIAL;
        frame.segment_bytes = segment;
        let mut batch = Batch::new();
        assert!(batch.push(frame).is_ok());
        assert_eq!(queue.tx(&mut pool, &mut batch), 1);
        let mut parts = BTreeMap::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while parts.values().map(Vec::len).sum::<usize>() < length && Instant::now() < deadline {
            if let Some(bytes) = seen.receive(Duration::from_millis(100))
                && let Some((sequence, part)) = whole(bytes)
            {
                parts.insert(sequence, part);
            }
        }
        let expected = if tcp && segment > 0 {
            segment.into()
        } else {
            length
        };
        let longest = parts.values().map(Vec::len).max();
        assert_eq!(
            longest,
            Some(expected.min(length)),
            "tcp {tcp}, ipv6 {ipv6}"
        );
        assert_eq!(parts.len(), length.div_ceil(expected));
        assert_eq!(
            parts.into_values().flatten().collect::<Vec<_>>(),
            payload[..length]
        );
    }
    // Longer than the MTU, and nobody said how to cut it, or nobody can: DPDK's library has no TSO for IPv6.
    for (ipv6, segment) in [(false, 0), (true, 1400)] {
        let mut frame = pool.alloc().unwrap();
        assert!(frame.fill(&partial(true, ipv6, &payload[..4000])));
        frame.flags |= FrameFlags::CHECKSUM_PARTIAL;
        frame.segment_bytes = segment;
        let mut batch = Batch::new();
        assert!(batch.push(frame).is_ok());
        assert_eq!(queue.tx(&mut pool, &mut batch), 1);
    }
    assert_eq!((queue.stats().tx_error_pkts, queue.stats().tx_pkts), (2, 5));
    assert_eq!(queue.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity(), "frames are conserved");
}

#[test]
fn what_a_device_counts_and_its_link_can_be_asked() {
    let mut pool = crate::pool();
    let device = "net_ring_asked";
    assert_eq!(io::dpdk::status(device), None, "not plugged in yet");
    let mut queue = queue(pool.region(), device);
    let mut batch = crate::numbered(&mut pool, 9);
    queue.rx(&mut pool, &mut Batch::new());
    assert_eq!(queue.tx(&mut pool, &mut batch), 9);
    let status = io::dpdk::status(device).unwrap();
    assert_eq!(status.link, io::Link::Up);
    let sent = status
        .counters
        .iter()
        .find(|(name, _)| name == "tx_good_packets");
    assert_eq!(sent.map(|(_, value)| *value), Some(9), "{status:?}");
    queue.close(&mut pool);
    assert_eq!(io::dpdk::status(device), None, "unplugged");
    assert_eq!(pool.available(), pool.capacity());
}
