use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// An Interest named /a.
const INTEREST: [u8; 7] = [5, 5, 7, 3, 8, 1, b'a'];

fn link(fields: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x64, fields.len() as u8];
    packet.extend_from_slice(fields);
    packet
}

#[test]
fn bare_packets_are_fragments() {
    let packet = LpPacket::parse(&INTEREST).unwrap();
    assert_eq!(packet.fragment, Some(&INTEREST[..]));
    assert!(packet.header.is_empty());
    assert_eq!(LpPacket::parse(&[7, 0]), Err(DecodeError::WrongType));
    assert_eq!(LpPacket::parse(&[]), Err(DecodeError::Truncated));
}

#[test]
fn idle_has_no_fragment() {
    for fields in [&[][..], &[0x50, 0]] {
        let bytes = link(fields);
        assert_eq!(LpPacket::parse(&bytes).unwrap().fragment, None);
    }
}

#[test]
fn fields_are_checked() {
    let rows: [(&[u8], Result<(), DecodeError>); 20] = [
        (&[0x51, 8, 0, 0, 0, 0, 0, 0, 0, 1], Ok(())),
        (&[0x51, 4, 0, 0, 0, 1], Err(DecodeError::ElementLength)),
        (&[0x52, 1, 3, 0x53, 1, 9], Ok(())),
        // In any order, but Fragment is last.
        (&[0x53, 1, 9, 0x52, 1, 3], Ok(())),
        (&[0x50, 1, 9, 0x52, 1, 3], Err(DecodeError::Critical)),
        (&[0x50, 1, 9, 0x50, 1, 3], Err(DecodeError::Critical)),
        (&[0x52, 1, 3, 0x52, 1, 3], Err(DecodeError::Critical)),
        (&[0x62, 0], Err(DecodeError::ElementLength)),
        (&[0x62, 1, 7], Ok(())),
        (&[0xfd, 3, 0x20, 0], Ok(())),
        (&[0xfd, 3, 0x20, 5, 0xfd, 3, 0x21, 1, 50], Ok(())),
        (&[0xfd, 3, 0x34, 0], Err(DecodeError::Missing)),
        (&[0xfd, 3, 0x44, 8, 0, 0, 0, 0, 0, 0, 0, 1], Ok(())),
        (&[0xfd, 3, 0x44, 1, 0], Err(DecodeError::ElementLength)),
        (&[0xfd, 3, 0x4c, 1, 0], Err(DecodeError::ElementLength)),
        // 956 is ignorable, 957 and 960 are not; 84 is unknown.
        (&[0xfd, 3, 0xbc, 0], Ok(())),
        (&[0xfd, 3, 0xbd, 0], Err(DecodeError::Critical)),
        (&[0xfd, 3, 0xc0, 0], Err(DecodeError::Critical)),
        (&[84, 0], Err(DecodeError::Critical)),
        (&[126, 0], Ok(())),
    ];
    for (fields, expected) in rows {
        let packet = link(fields);
        assert_eq!(LpPacket::parse(&packet).map(|_| ()), expected, "{fields:?}");
    }
    let token = [&[0x62, 33][..], &[1; 33]].concat();
    assert_eq!(
        LpPacket::parse(&link(&token)),
        Err(DecodeError::ElementLength)
    );
}

#[test]
fn nack_reasons() {
    for (number, reason) in [
        (50, NackReason::Congestion),
        (100, NackReason::Duplicate),
        (150, NackReason::NoRoute),
        (151, NackReason::None),
    ] {
        let packet = link(&[0xfd, 3, 0x20, 5, 0xfd, 3, 0x21, 1, number, 0x50, 1, 5]);
        assert_eq!(LpPacket::parse(&packet).unwrap().header.nack, Some(reason));
    }
    use NackReason::{Congestion, Duplicate, NoRoute, None};
    assert_eq!(NoRoute.less_severe(Duplicate), Duplicate);
    assert_eq!(Congestion.less_severe(None), Congestion);
}

#[test]
fn a_mtu_without_room_is_refused() {
    let packet = [6; 1000];
    for mtu in 0..25 {
        let plan = Fragments::new(LpHeader::default(), &packet, mtu, 0, 0);
        assert_eq!(plan.map(|_| ()), Err(UnfitMtu), "{mtu}");
    }
    // 400 fragments at most.
    assert!(Fragments::new(LpHeader::default(), &[0; 8800], 23, 0, 0).is_err());
    assert!(Fragments::new(LpHeader::default(), &[0; 8800], 22 + 23, 0, 0).is_ok());
}

fn any_header() -> impl Strategy<Value = (LpHeader<'static>, Vec<u64>)> {
    (
        proptest::option::of(any::<u64>()),
        proptest::option::of(1..=32_usize),
        proptest::option::of(prop_oneof![
            Just(NackReason::None),
            Just(NackReason::NoRoute)
        ]),
        proptest::option::of(any::<u64>()),
        proptest::option::of(any::<u64>()),
        any::<(bool, u64, bool, bool)>(),
        proptest::collection::vec(any::<u64>(), 0..4),
    )
        .prop_map(|(tx, token, nack, incoming, next, flags, acks)| {
            let (no_cache, congestion_mark, non_discovery, announce) = flags;
            let header = LpHeader {
                tx_sequence: tx,
                pit_token: token.map(|n| &[7; 32][..n]),
                nack,
                incoming_face: incoming,
                next_hop_face: next,
                no_cache,
                congestion_mark,
                non_discovery,
                prefix_announcement: announce.then_some(&[6, 0][..]),
                ..LpHeader::default()
            };
            (header, acks)
        })
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), lp in any::<bool>()) {
        if lp && bytes.len() > 1 {
            bytes[0] = 0x64;
            bytes[1] = (bytes.len() - 2) as u8;
        }
        if let Ok(packet) = LpPacket::parse(&bytes) {
            prop_assert!(packet.acks().count() <= bytes.len());
        }
    }

    #[test]
    fn what_is_written_is_read((header, acks) in any_header(), length in 0..600_usize) {
        let fragment = vec![5; length];
        let mut out = [0; 2000];
        let written = header.encode(&acks, &fragment, &mut out).unwrap();
        if header.is_empty() && acks.is_empty() {
            return Ok(());
        }
        let packet = LpPacket::parse(&out[..written]).unwrap();
        prop_assert_eq!(packet.header, header);
        prop_assert_eq!(packet.acks().collect::<Vec<_>>(), acks);
        prop_assert_eq!(packet.fragment.unwrap_or_default(), &fragment[..]);
    }

    #[test]
    fn fragments_fit_the_mtu_and_add_up(
        (header, _) in any_header(), length in 1..8800_usize, mtu in 200..9000_usize, reserved in 0..30_usize,
        sequence in any::<u64>(),
    ) {
        let packet: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let mut plan = Fragments::new(header, &packet, mtu, reserved, sequence).unwrap();
        let count = plan.count();
        let mut out = vec![0; mtu];
        let mut whole = Vec::new();
        let mut index = 0;
        while let Some((fields, part)) = plan.next_parts() {
            let written = fields.encode(&[], part, &mut out).unwrap();
            prop_assert!(written + reserved <= mtu || (count == 1 && reserved == 0));
            if count > 1 {
                let read = LpPacket::parse(&out[..written]).unwrap();
                prop_assert_eq!(read.header.sequence, Some(sequence.wrapping_add(index)));
                prop_assert_eq!(read.header.frag_index, index);
                prop_assert_eq!(read.header.frag_count, Some(count as u64));
                prop_assert_eq!(read.header.pit_token, if index == 0 { header.pit_token } else { None });
            }
            whole.extend_from_slice(part);
            index += 1;
        }
        prop_assert_eq!(index as usize, count);
        prop_assert_eq!(whole, packet);
    }
}
