//! Properties: what is emitted is parsed again as the same, checksums agree with the naive sum, updates by
//! difference agree with the full one.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::support::{Rng, naive_checksum, sound_frame};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::checksum::{self, Sum};
use wire::tcp::{Flags, SackBlocks, TcpOption};
use wire::{Addresses, BufferTooShort, FlowKey, FlowSecret, MacAddr, Toeplitz, arp, ethernet};
use wire::{flow_hash, icmpv4, icmpv6, ipv4, ipv6, parse, tcp, toeplitz, udp, vlan};

fn ipv4_address() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

fn ipv6_address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from_bits)
}

proptest! {
    #[test]
    fn ethernet_and_vlan(a: [u8; 6], b: [u8; 6], ether_type: u16, id in 0u16..4096,
                         priority in 0u8..8, drop_eligible: bool) {
        let repr = ethernet::Repr { destination: MacAddr(a), source: MacAddr(b), ether_type };
        let mut bytes = [0xee; 20];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(14));
        prop_assert_eq!(ethernet::Repr::parse(&ethernet::View::new(&bytes).unwrap()), repr);
        prop_assert_eq!(&bytes[14..], &[0xee; 6]);
        prop_assert_eq!(repr.emit(&mut bytes[..13]), Err(BufferTooShort));
        let tag = vlan::Repr { id, priority, drop_eligible, ether_type };
        prop_assert_eq!(tag.emit(&mut bytes), Ok(4));
        prop_assert_eq!(vlan::Repr::parse(&vlan::View::new(&bytes).unwrap()), tag);
    }

    #[test]
    fn arp_packets(operation: u16, a: [u8; 6], b: [u8; 6], s in ipv4_address(), t in ipv4_address()) {
        let repr = arp::Repr {
            operation: operation.into(),
            sender_mac: MacAddr(a),
            sender_ip: s,
            target_mac: MacAddr(b),
            target_ip: t,
        };
        let mut bytes = [0; 28];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(28));
        prop_assert_eq!(arp::Repr::parse(&arp::View::new(&bytes).unwrap()), repr);
        prop_assert_eq!(repr.emit(&mut bytes[..27]), Err(BufferTooShort));
    }

    #[test]
    fn ipv4_headers(source in ipv4_address(), destination in ipv4_address(), protocol: u8, ttl: u8,
                    tos: u8, identification: u16, dont_fragment: bool, more_fragments: bool,
                    offset in 0u16..8192, options in vec(any::<u8>(), 0..=40),
                    payload_bytes in 0u16..2000) {
        let repr = ipv4::Repr {
            source, destination, protocol, ttl, tos, identification, dont_fragment, more_fragments,
            fragment_offset_bytes: offset << 3, options: &options, payload_bytes,
        };
        let mut packet = vec![0xee; repr.bytes() + usize::from(payload_bytes)];
        prop_assert_eq!(repr.emit(&mut packet), Ok(repr.bytes()));
        let view = ipv4::View::new(&packet).unwrap();
        prop_assert!(view.checksum_is_valid());
        prop_assert_eq!(naive_checksum(&packet[..repr.bytes()]), 0);
        let mut padded = options.clone();
        padded.resize(options.len().next_multiple_of(4), 0);
        prop_assert_eq!(ipv4::Repr::parse(&view), ipv4::Repr { options: &padded, ..repr });
        prop_assert_eq!(view.payload().len(), usize::from(payload_bytes));
        let short = repr.bytes() - 1;
        prop_assert_eq!(repr.emit(&mut packet[..short]), Err(BufferTooShort));
    }

    #[test]
    fn ipv6_headers(source in ipv6_address(), destination in ipv6_address(), next_header: u8,
                    hop_limit: u8, traffic_class: u8, flow_label in 0u32..1 << 20,
                    payload_bytes in 0u16..2000, identification: u32, offset in 0u16..8192, more: bool) {
        let repr = ipv6::Repr {
            source, destination, next_header, hop_limit, traffic_class, flow_label, payload_bytes,
        };
        let mut packet = vec![0xee; 40 + usize::from(payload_bytes)];
        prop_assert_eq!(repr.emit(&mut packet), Ok(40));
        prop_assert_eq!(ipv6::Repr::parse(&ipv6::View::new(&packet).unwrap()), repr);
        prop_assert_eq!(repr.emit(&mut packet[..39]), Err(BufferTooShort));
        let fragment = ipv6::FragmentHeader {
            next_header, offset_bytes: offset << 3, more, identification,
        };
        let mut header = [0xee; 8];
        prop_assert_eq!(fragment.emit(&mut header), Ok(8));
        prop_assert_eq!(ipv6::FragmentHeader::parse(&header), fragment);
    }

    #[test]
    fn tcp_segments(ports: [u16; 2], sequence: u32, acknowledgement: u32, flags: u16, window: u16,
                    urgent: u16, mss: u16, shift: u8, times: [u32; 2], blocks in vec(any::<(u32, u32)>(), 1..5),
                    cookie in vec(any::<u8>(), 0..17), which in vec(0usize..9, 0..6),
                    data in vec(any::<u8>(), 0..100)) {
        let all = [
            TcpOption::MaximumSegmentSize(mss),
            TcpOption::WindowScale(shift),
            TcpOption::SackPermitted,
            TcpOption::Sack(SackBlocks::new(&blocks)),
            TcpOption::Timestamps { value: times[0], echo: times[1] },
            TcpOption::UserTimeout(mss),
            TcpOption::FastOpen(&cookie),
            TcpOption::FastOpenExperimental(&cookie),
            TcpOption::Other { kind: 200, data: &cookie },
        ];
        let options: Vec<_> = which.iter().map(|i| all[*i]).collect();
        let repr = tcp::Repr {
            source_port: ports[0], destination_port: ports[1], sequence, acknowledgement,
            flags: Flags::from_bits_truncate(flags), window, urgent, options: &options,
        };
        let mut segment = vec![0xee; repr.bytes()];
        segment.extend(&data);
        let (source, destination) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let addresses = Addresses::V4 { source, destination };
        if repr.bytes() > 60 {
            prop_assert_eq!(repr.emit(&mut segment, &addresses), Err(BufferTooShort));
            return Ok(());
        }
        prop_assert_eq!(repr.emit(&mut segment, &addresses), Ok(repr.bytes()));
        let view = tcp::View::new(&segment).unwrap();
        prop_assert_eq!(view.source_port(), ports[0]);
        prop_assert_eq!(view.destination_port(), ports[1]);
        prop_assert_eq!(view.sequence(), sequence);
        prop_assert_eq!(view.acknowledgement(), acknowledgement);
        prop_assert_eq!(view.flags(), repr.flags);
        prop_assert_eq!((view.window(), view.urgent()), (window, urgent));
        prop_assert_eq!(view.payload(), &data[..]);
        let again: Result<Vec<_>, _> = view.options().collect();
        prop_assert_eq!(again.as_deref(), Ok(&options[..]));
        prop_assert!(addresses.pseudo_header(6, segment.len() as u16).add_bytes(&segment).is_valid());
    }

    #[test]
    fn udp_and_icmp(ports: [u16; 2], data in vec(any::<u8>(), 0..100), kind: u8, code: u8, rest: u32,
                    source in ipv6_address(), destination in ipv6_address()) {
        let addresses = Addresses::V6 { source, destination };
        let mut bytes = vec![0xee; 8];
        bytes.extend(&data);
        let repr = udp::Repr { source_port: ports[0], destination_port: ports[1] };
        prop_assert_eq!(repr.emit(&mut bytes, &addresses), Ok(bytes.len()));
        let view = udp::View::new(&bytes).unwrap();
        prop_assert_eq!(udp::Repr::parse(&view), repr);
        prop_assert_eq!(view.payload(), &data[..]);
        prop_assert_ne!(view.checksum(), 0);
        prop_assert!(addresses.pseudo_header(17, bytes.len() as u16).add_bytes(&bytes).is_valid());

        icmpv4::Repr::Other { kind, code, rest }.emit(&mut bytes).unwrap();
        let view = icmpv4::View::new(&bytes).unwrap();
        prop_assert!(view.checksum_is_valid());
        prop_assert_eq!((view.kind(), view.code(), view.rest()), (kind, code, rest));
        let named = icmpv4::Repr::parse(&view);
        named.emit(&mut bytes).unwrap();
        prop_assert_eq!(icmpv4::Repr::parse(&icmpv4::View::new(&bytes).unwrap()), named);

        icmpv6::Repr::Other { kind, code, rest }.emit(&mut bytes, source, destination).unwrap();
        let view = icmpv6::View::new(&bytes).unwrap();
        prop_assert!(view.checksum_is_valid_between(source, destination));
        let named = icmpv6::Repr::parse(&view);
        named.emit(&mut bytes, source, destination).unwrap();
        prop_assert_eq!(icmpv6::Repr::parse(&icmpv6::View::new(&bytes).unwrap()), named);
    }

    #[test]
    fn checksum_is_the_naive_one(bytes in vec(any::<u8>(), 0..2000), from in 0usize..9, cut in 0usize..2000) {
        let bytes = bytes.get(from..).unwrap_or_default();
        prop_assert_eq!(checksum::checksum(bytes), naive_checksum(bytes));
        // In parts, cut at an even offset.
        let (a, b) = bytes.split_at((cut & !1).min(bytes.len() & !1));
        prop_assert_eq!(Sum::of(a).add_bytes(b).checksum(), naive_checksum(bytes));
        prop_assert_eq!(Sum::of(b).add(Sum::of(a)).checksum(), naive_checksum(bytes));
    }

    #[test]
    fn an_update_is_a_full_checksum(mut header: [u8; 40], word in 0usize..20, new: u16, edge in 0usize..4) {
        header[0] |= 0x40;
        let word = word * 2;
        let new = [new, 0, 0xffff, 0x0001][edge];
        // The first word stays what makes the sum non-zero, as the version of an IP header does.
        prop_assume!(word != 0);
        let before = naive_checksum(&header);
        let old = u16::from_be_bytes([header[word], header[word + 1]]);
        header[word..word + 2].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(checksum::update_u16(before, old, new), naive_checksum(&header));
        prop_assert_eq!(
            checksum::update_bytes(before, &old.to_be_bytes(), &new.to_be_bytes()),
            naive_checksum(&header)
        );
    }

    #[test]
    fn mac_addresses_as_text(octets: [u8; 6]) {
        let mac = MacAddr(octets);
        prop_assert_eq!(mac.to_string().parse(), Ok(mac));
    }

    #[test]
    fn both_directions_hash_alike(seed: u64, random in vec(any::<u8>(), 64)) {
        let frame = sound_frame(&mut Rng::new(seed));
        let secret = FlowSecret::new(random.try_into().unwrap());
        if let Some(key) = parse(&frame).ok().and_then(|layout| FlowKey::from_layout(&layout, &frame)) {
            prop_assert_eq!(flow_hash(&key, &secret), flow_hash(&key.reversed(), &secret));
            prop_assert_eq!(key.reversed().reversed(), key);
            let symmetric = Toeplitz::new(&toeplitz::SYMMETRIC_KEY);
            prop_assert_eq!(symmetric.hash_flow(&key), symmetric.hash_flow(&key.reversed()));
        }
    }
}
