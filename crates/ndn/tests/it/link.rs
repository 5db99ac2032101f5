//! The link protocol between two ends, over links that lose, repeat and reorder.

use std::time::Duration;

use ndn::link::{LinkConfig, LinkService, ReassemblyConfig, ReliabilityConfig};
use ndn::{FaceConfig, Rng};
use proptest::prelude::*;
use wire::ndn::lp::{LpHeader, LpPacket};
use wire::{DropReason, Instant};

fn config(mtu: usize, reliability: bool) -> LinkConfig {
    LinkConfig {
        mtu,
        reliability: reliability.then(ReliabilityConfig::default),
        congestion: None,
        reassembly: ReassemblyConfig::default(),
    }
}

fn frames(
    link: &mut LinkService,
    now: Instant,
    header: &LpHeader<'_>,
    packet: &[u8],
) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    link.send(now, header, packet, 0, &mut |frame| {
        out.push(frame.to_vec())
    })
    .unwrap();
    out
}

/// PIT token and packet.
type Delivered = (Vec<u8>, Vec<u8>);

fn receive(
    link: &mut LinkService,
    now: Instant,
    frame: &[u8],
) -> Result<Vec<Delivered>, DropReason> {
    let mut got = Vec::new();
    link.receive(
        now,
        0,
        frame,
        &mut |header, packet| {
            got.push((
                header.pit_token.unwrap_or_default().to_vec(),
                packet.to_vec(),
            ))
        },
        &mut |_| {},
    )?;
    Ok(got)
}

/// An element of `length` bytes that looks like Data from outside: the link protocol sees no more.
fn packet(length: usize) -> Vec<u8> {
    let mut packet = match length {
        0..255 => vec![6, (length - 2) as u8],
        _ => {
            let value = (length - 4) as u16;
            [&[6, 253][..], &value.to_be_bytes()].concat()
        }
    };
    packet.resize(length, 7);
    packet
}

#[test]
fn fragments_in_any_order_become_the_packet_with_its_header() {
    let now = Instant::ZERO;
    let mut sender = LinkService::new(&config(1200, false), u64::MAX - 1);
    let mut receiver = LinkService::new(&config(1200, false), 0);
    let header = LpHeader {
        pit_token: Some(b"tok"),
        ..LpHeader::default()
    };
    let whole = packet(5000);
    let mut all = frames(&mut sender, now, &header, &whole);
    assert!(all.len() == 5 && all.iter().all(|frame| frame.len() <= 1200));
    all.rotate_left(2);
    let last = all.pop().unwrap();
    for frame in &all {
        assert_eq!(receive(&mut receiver, now, frame), Ok(vec![]));
        assert_eq!(
            receive(&mut receiver, now, frame),
            Err(DropReason::NdnFragment),
            "twice"
        );
    }
    assert_eq!(
        receive(&mut receiver, now, &last),
        Ok(vec![(b"tok".to_vec(), whole)])
    );
}

#[test]
fn reassembly_is_bounded_in_packets_bytes_and_time() {
    let now = Instant::ZERO;
    let mut receiver = LinkService::new(&config(1200, false), 0);
    let fragment = |sequence, index, count, length: usize| {
        let header = LpHeader {
            sequence: Some(sequence),
            frag_index: index,
            frag_count: Some(count),
            ..LpHeader::default()
        };
        let mut out = vec![0; length + 100];
        let length = header.encode(&[], &vec![5; length], &mut out).unwrap();
        out.truncate(length);
        out
    };
    for (index, count) in [(2, 2), (0, 401), (9, 0)] {
        let frame = fragment(7, index, count, 10);
        assert_eq!(
            receive(&mut receiver, now, &frame),
            Err(DropReason::NdnFragment)
        );
    }
    for n in 0..64 {
        assert_eq!(
            receive(&mut receiver, now, &fragment(1000 * n, 0, 2, 10)),
            Ok(vec![])
        );
    }
    assert_eq!(
        receive(&mut receiver, now, &fragment(99_000, 0, 2, 10)),
        Err(DropReason::NdnReassemblyFull)
    );
    // Siblings must agree on their count.
    assert_eq!(
        receive(&mut receiver, now, &fragment(1, 1, 3, 10)),
        Err(DropReason::NdnFragment)
    );
    assert_eq!(
        receiver.poll_timeout(),
        Some(now + Duration::from_millis(500))
    );
    receiver.handle_timeout(now + Duration::from_millis(500), &mut |_| {});
    assert_eq!(receiver.counters().reassembly_timeouts, 64);
    assert_eq!(
        receive(&mut receiver, now, &fragment(5, 0, 3, 8000)),
        Ok(vec![])
    );
    assert_eq!(
        receive(&mut receiver, now, &fragment(6, 1, 3, 801)),
        Err(DropReason::NdnTooLong)
    );
}

#[test]
fn acknowledgements_ride_along_or_go_alone() {
    let mut now = Instant::ZERO;
    let mut a = LinkService::new(&config(1200, true), 100);
    let mut b = LinkService::new(&config(1200, true), 900);
    let sent = frames(&mut a, now, &LpHeader::default(), &packet(200));
    assert_eq!(
        LpPacket::parse(&sent[0]).unwrap().header.tx_sequence,
        Some(100)
    );
    assert_eq!(receive(&mut b, now, &sent[0]).unwrap().len(), 1);
    assert_eq!(
        receive(&mut b, now, &sent[0]),
        Err(DropReason::NdnDuplicateFrame)
    );
    let reply = frames(&mut b, now, &LpHeader::default(), &packet(100));
    let acks: Vec<u64> = LpPacket::parse(&reply[0]).unwrap().acks().collect();
    assert_eq!(acks, [100, 100]);
    receive(&mut a, now, &reply[0]).unwrap();
    assert_eq!(a.reliability().unwrap().in_flight(), 0);
    // Nothing to ride along with: an IDLE packet after 5 ms.
    now = now + Duration::from_millis(5);
    assert_eq!(a.poll_timeout(), Some(now));
    let mut idle = Vec::new();
    a.handle_timeout(now, &mut |frame| idle.push(frame.to_vec()));
    assert_eq!(idle.len(), 1);
    assert_eq!(LpPacket::parse(&idle[0]).unwrap().fragment, None);
    receive(&mut b, now, &idle[0]).unwrap();
    assert_eq!(b.reliability().unwrap().in_flight(), 0);
}

#[test]
fn three_later_acknowledgements_mean_loss_and_four_losses_the_end() {
    let mut now = Instant::ZERO;
    let mut a = LinkService::new(&config(1200, true), 0);
    for _ in 0..4 {
        frames(&mut a, now, &LpHeader::default(), &packet(100));
    }
    let mut out = [0; 100];
    let length = LpHeader::default()
        .encode(&[1, 2, 3], &[], &mut out)
        .unwrap();
    let mut resent = Vec::new();
    a.receive(now, 0, &out[..length], &mut |_, _| {}, &mut |frame| {
        resent.push(frame.to_vec())
    })
    .unwrap();
    assert_eq!(resent.len(), 1);
    assert_eq!(
        LpPacket::parse(&resent[0]).unwrap().header.tx_sequence,
        Some(4)
    );
    // No answer any more: three retransmissions in all, then it is given up.
    let mut count = 0;
    for _ in 0..10 {
        now = now + Duration::from_secs(2);
        a.handle_timeout(now, &mut |_| count += 1);
    }
    assert_eq!(count, 2);
    assert_eq!(
        (a.reliability().unwrap().given_up(), a.poll_timeout()),
        (1, None)
    );
}

#[test]
fn a_standing_queue_gets_marks() {
    let face = FaceConfig::network("udp4://192.0.2.1:6363", "udp4://192.0.2.2:6363");
    let mut link = LinkService::new(&LinkConfig::of_face(&face), 0);
    let mut marks = 0;
    for ms in 0..300 {
        let now = Instant::ZERO + Duration::from_millis(ms);
        link.send(
            now,
            &LpHeader::default(),
            &packet(50),
            70_000,
            &mut |frame| {
                marks += LpPacket::parse(frame).unwrap().header.congestion_mark;
            },
        )
        .unwrap();
    }
    assert!(marks >= 2 && marks == link.counters().marked);
}

proptest! {
    /// With reliability, everything arrives over a link that loses a fifth, repeats and reorders. What is sent
    /// again needlessly arrives again: its TxSequence is new.
    #[test]
    fn a_lossy_link_delivers(seed in any::<u64>(), mtu in 300..1500_usize, lengths in proptest::collection::vec(prop_oneof![50..255_usize, 257..4000_usize], 1..12)) {
        let mut rng = Rng::new(seed);
        let mut now = Instant::ZERO;
        let reliable = LinkConfig {
            reliability: Some(ReliabilityConfig { retx_max: 50, ..ReliabilityConfig::default() }),
            reassembly: ReassemblyConfig { timeout: Duration::from_secs(100), ..ReassemblyConfig::default() },
            ..config(mtu, true)
        };
        let mut ends = [LinkService::new(&reliable, 1), LinkService::new(&reliable, 1 << 40)];
        let mut wires: [Vec<Vec<u8>>; 2] = Default::default();
        let mut got: Vec<Vec<u8>> = Vec::new();
        for (n, &length) in lengths.iter().enumerate() {
            let mut whole = packet(length);
            *whole.last_mut().unwrap() = n as u8;
            wires[1].extend(frames(&mut ends[0], now, &LpHeader::default(), &whole));
        }
        for _ in 0..20_000 {
            if wires.iter().all(Vec::is_empty) {
                let Some(next) = ends.iter().filter_map(|end| end.poll_timeout()).min() else { break };
                now = next.max(now);
                for (at, end) in ends.iter_mut().enumerate() {
                    end.handle_timeout(now, &mut |frame| wires[1 - at].push(frame.to_vec()));
                }
                continue;
            }
            let to = if wires[0].is_empty() || (!wires[1].is_empty() && rng.below(2) == 0) { 1 } else { 0 };
            let at = rng.below(wires[to].len() as u64) as usize;
            let frame = if rng.below(10) == 0 { wires[to][at].clone() } else { wires[to].swap_remove(at) };
            if rng.below(5) == 0 {
                continue;
            }
            let mut back = Vec::new();
            let _ = ends[to].receive(now, 0, &frame, &mut |_, packet| got.push(packet.to_vec()), &mut |frame| back.push(frame.to_vec()));
            wires[1 - to].extend(back);
        }
        let mut arrived: Vec<_> = got.iter().map(|packet| (*packet.last().unwrap(), packet.len())).collect();
        arrived.sort();
        arrived.dedup();
        let expected: Vec<_> = lengths.iter().enumerate().map(|(n, &length)| (n as u8, length)).collect();
        prop_assert_eq!(arrived, expected);
        prop_assert_eq!(ends[0].reliability().unwrap().in_flight(), 0);
    }
}
