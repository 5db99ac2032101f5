//! Packets and frames for the tests, made by the workspace's own encoder and by etherparse.

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice, VlanId};
use kernel_cache::shared::layout::PortRow;
use wire::ndn::lp::{LpHeader, LpPacket};
use wire::ndn::name::Name;
use wire::ndn::{DataFields, DigestSigner, InterestFields, NameRef};

/// Address of the port under test.
pub(crate) const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Address of who asks.
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// UDP port of who asks.
pub(crate) const CLIENT_PORT: u16 = 40_000;

/// Returns the row of a port.
pub(crate) fn port_row(ifindex: u32, mac: [u8; 6], mtu: u32) -> PortRow {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&mac);
    PortRow {
        ifindex,
        frame_bytes_max: mtu + 14,
        mac: u64::from_le_bytes(bytes),
    }
}

/// Parses a name.
pub(crate) fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

/// Makes a Data packet.
pub(crate) fn data(uri: &str, content: &[u8], freshness_ms: u64) -> Vec<u8> {
    data_of((&name(uri)).into(), content, freshness_ms)
}

/// Makes a Data packet.
pub(crate) fn data_of(name: NameRef<'_>, content: &[u8], freshness_ms: u64) -> Vec<u8> {
    let mut buffer = vec![0; 9000];
    let fields = DataFields {
        freshness_ms,
        ..DataFields::new(name, content)
    };
    let length = fields.encode(&DigestSigner, &mut buffer).expect("fits");
    buffer.truncate(length);
    buffer
}

/// Makes an Interest; `flags` may hold `p` (CanBePrefix) and `f` (MustBeFresh).
pub(crate) fn interest(uri: &str, flags: &str) -> Vec<u8> {
    interest_of((&name(uri)).into(), flags)
}

/// Makes an Interest.
pub(crate) fn interest_of(name: NameRef<'_>, flags: &str) -> Vec<u8> {
    let fields = InterestFields {
        can_be_prefix: flags.contains('p'),
        must_be_fresh: flags.contains('f'),
        nonce: Some([1, 2, 3, 4]),
        lifetime_ms: Some(4000),
        hop_limit: Some(10),
        ..InterestFields::new(name)
    };
    let mut buffer = vec![0; 9000];
    let length = fields.encode(&mut buffer).expect("fits");
    buffer.truncate(length);
    buffer
}

/// Puts a packet into an LpPacket.
pub(crate) fn in_lp(packet: &[u8], token: Option<&[u8]>, mark: u64) -> Vec<u8> {
    let header = LpHeader {
        pit_token: token,
        congestion_mark: mark,
        ..LpHeader::default()
    };
    let mut buffer = vec![0; 9000];
    let length = header.encode(&[], packet, &mut buffer).expect("fits");
    buffer.truncate(length);
    buffer
}

/// How a packet is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Ethernet,
    Ipv4,
    Ipv6,
}

/// All carriers.
pub(crate) const CARRIERS: [Carrier; 3] = [Carrier::Ethernet, Carrier::Ipv4, Carrier::Ipv6];

/// Makes the frame in which a client sends a packet.
pub(crate) fn frame(carrier: Carrier, vlan: Option<u16>, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if carrier == Carrier::Ethernet {
        out.extend(PORT_MAC);
        out.extend(CLIENT_MAC);
        if let Some(vlan) = vlan {
            out.extend([0x81, 0x00]);
            out.extend(vlan.to_be_bytes());
        }
        out.extend([0x86, 0x24]);
        out.extend(packet);
        out.resize(out.len().max(60), 0);
        return out;
    }
    let builder = PacketBuilder::ethernet2(CLIENT_MAC, PORT_MAC);
    let (v4, v6) = (
        ([192, 0, 2, 2], [192, 0, 2, 1], 9),
        ([0x20; 16], [0x30; 16], 9),
    );
    let vlan = vlan.map(|vlan| VlanId::try_new(vlan).expect("a VLAN"));
    let builder = match (carrier, vlan) {
        (Carrier::Ipv4, None) => builder.ipv4(v4.0, v4.1, v4.2),
        (Carrier::Ipv4, Some(id)) => builder.single_vlan(id).ipv4(v4.0, v4.1, v4.2),
        (_, None) => builder.ipv6(v6.0, v6.1, v6.2),
        (_, Some(id)) => builder.single_vlan(id).ipv6(v6.0, v6.1, v6.2),
    };
    builder
        .udp(CLIENT_PORT, 6363)
        .write(&mut out, packet)
        .expect("fits");
    out.resize(out.len().max(60), 0);
    out
}

/// Checks everything in a reply but the packet that it carries, which it returns.
pub(crate) fn reply_payload(carrier: Carrier, vlan: Option<u16>, reply: &[u8]) -> Vec<u8> {
    assert_eq!(reply[..6], CLIENT_MAC, "destination");
    assert_eq!(reply[6..12], PORT_MAC, "source");
    assert!(reply.len() >= 60, "{} bytes", reply.len());
    let parsed = SlicedPacket::from_ethernet(reply).expect("a frame");
    let tags: Vec<u16> = parsed.vlan_ids().iter().map(|id| id.value()).collect();
    assert_eq!(tags, vlan.into_iter().collect::<Vec<u16>>());
    if carrier == Carrier::Ethernet {
        let start = if vlan.is_some() { 18 } else { 14 };
        assert_eq!(reply[start - 2..start], [0x86, 0x24]);
        return reply[start..].to_vec();
    }
    let net = parsed.net.clone().expect("a network layer");
    let Some(TransportSlice::Udp(udp)) = &parsed.transport else {
        panic!("no UDP: {parsed:?}");
    };
    assert_eq!(
        (udp.source_port(), udp.destination_port()),
        (6363, CLIENT_PORT)
    );
    let header = udp.to_header();
    let payload = udp.payload();
    if let Some(ipv4) = net.ipv4_ref() {
        let ip = ipv4.header().to_header();
        assert_eq!(
            (ip.source, ip.destination),
            ([192, 0, 2, 1], [192, 0, 2, 2])
        );
        assert_eq!(
            ip.calc_header_checksum(),
            ip.header_checksum,
            "IPv4 checksum"
        );
        let sum = header.calc_checksum_ipv4(&ip, payload).expect("fits");
        assert_eq!(header.checksum, sum, "UDP checksum");
        assert_eq!(ip.time_to_live, 64);
    } else if let Some(ipv6) = net.ipv6_ref() {
        let ip = ipv6.header().to_header();
        assert_eq!((ip.source, ip.destination), ([0x30; 16], [0x20; 16]));
        let sum = header.calc_checksum_ipv6(&ip, payload).expect("fits");
        assert_eq!(header.checksum, sum, "UDP checksum");
        assert_eq!(ip.hop_limit, 64);
    }
    payload.to_vec()
}

/// Returns the network packet of a link packet, without padding, and its header fields that matter here.
pub(crate) fn network_packet(link: &[u8]) -> (Vec<u8>, Option<Vec<u8>>, u64) {
    let length = wire::ndn::Tlv::read(link).expect("an element").bytes.len();
    assert!(link[length..].iter().all(|byte| *byte == 0), "padding");
    let packet = LpPacket::parse(&link[..length]).expect("a link packet");
    (
        packet.fragment.expect("a fragment").to_vec(),
        packet.header.pit_token.map(<[u8]>::to_vec),
        packet.header.congestion_mark,
    )
}

/// Makes the Ethernet frame in which one address sends another a packet.
pub(crate) fn frame_between(from: [u8; 6], to: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let mut out = frame(Carrier::Ethernet, None, packet);
    out[..6].copy_from_slice(&to);
    out[6..12].copy_from_slice(&from);
    out
}
