//! The table as a whole: limits, fullness, fragments, reload.

use super::*;
use crate::rules::{Judge, NoTrace};
use crate::testing::TcpFrame;
use crate::track::tcp::Pickup;
use wire::ipv4;
use wire::tcp::Flags;

#[test]
fn row_47_and_89_a_source_has_its_share_of_connections() {
    let mut rig = Rig::new(TrackPolicy {
        per_source: 10,
        ..TrackPolicy::default()
    });
    for port in 0..10 {
        rig.out((HOST, 5000 + port), (PEER, 53));
    }
    let frame = udp_frame(v4(HOST, PEER), (6000, 53), b"x");
    let fate = rig.send(INSIDE, frame.clone());
    assert_eq!(fate, Err(Fate::Drop(DropReason::CtSourceLimit)));
    rig.out((OTHER_HOST, 5000), (PEER, 53));
    rig.wait(Duration::from_secs(125));
    assert!(rig.send(INSIDE, frame).is_ok());
}

#[test]
fn row_88_a_full_table_refuses_the_new_and_keeps_the_old() {
    let mut rig = Rig::with_sizes(
        TrackPolicy::default(),
        &Sizes {
            connections4: 64,
            ..small()
        },
    );
    let outer = rig.out((HOST, 5000), (PEER, 53));
    let mut refused = 0;
    for port in 0..1000 {
        let frame = udp_frame(v4(OTHER_HOST, PEER), (2000 + port, 53), b"x");
        rig.worker.maintain(rig.now, 0);
        match rig.send(INSIDE, frame) {
            Ok(_) => {}
            Err(fate) => {
                assert_eq!(fate, Fate::Drop(DropReason::CtTableFull));
                refused += 1;
            }
        }
    }
    assert!(refused > 800, "{refused}");
    assert_eq!(rig.back((PEER, 53), outer), Ok((HOST, 5000)));
    assert_eq!(rig.out((HOST, 5000), (PEER, 53)), outer);
    // Refused flows hold no mapping: those that are there have one each.
    rig.wait(Duration::from_secs(500));
    assert_eq!(rig.worker.shared().nat().mappings(), 0);
}

#[test]
fn row_64_pickup_in_mid_stream() {
    for (pickup, taken) in [
        (Pickup::None, false),
        (Pickup::Strict, true),
        (Pickup::Loose, true),
    ] {
        let mut rig = Rig::new(TrackPolicy {
            pickup,
            ..TrackPolicy::default()
        });
        rig.rules.masquerade = false;
        let segment = TcpFrame {
            sequence: 5000,
            acknowledgement: 7000,
            payload: b"data",
            ..TcpFrame::new(v4(HOST, PEER), (5000, 80), Flags::ACK)
        };
        assert_eq!(
            rig.send(INSIDE, segment.frame()).is_ok(),
            taken,
            "{pickup:?}"
        );
        // Far out of any window: only the loose one lets it pass.
        let far = TcpFrame {
            sequence: 7000_u32.wrapping_add(1 << 31),
            acknowledgement: 5004,
            payload: b"data",
            ..TcpFrame::new(v4(PEER, HOST), (80, 5000), Flags::ACK)
        };
        let passed = rig.send(OUTSIDE, far.frame()).is_ok();
        assert_eq!(passed, pickup == Pickup::Loose, "{pickup:?}");
    }
}

#[test]
fn row_60_a_segment_out_of_window_is_never_let_out_untranslated() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let syn = TcpFrame::new(v4(HOST, PEER), (5000, 80), Flags::SYN);
    rig.send(INSIDE, syn.frame()).unwrap();
    let stray = TcpFrame {
        sequence: 1 << 30,
        acknowledgement: 1,
        ..TcpFrame::new(v4(HOST, PEER), (5000, 80), Flags::ACK)
    };
    let fate = rig.send(INSIDE, stray.frame());
    assert!(matches!(fate, Err(Fate::Drop(_))), "{fate:?}");
    assert_eq!(rig.worker.tally.invalid, 1);
}

/// A datagram in fragments of `step` bytes.
pub(super) fn fragments(
    addresses: Addresses,
    ports: (u16, u16),
    bytes: usize,
    step: usize,
) -> Vec<Vec<u8>> {
    let whole = udp_frame(addresses, ports, &alloc::vec![7; bytes]);
    let Addresses::V4 {
        source,
        destination,
    } = addresses
    else {
        unreachable!("IPv4")
    };
    let data = &whole[34..];
    data.chunks(step)
        .enumerate()
        .map(|(n, chunk)| {
            let mut frame = whole[..14].to_vec();
            frame.resize(34, 0);
            let header = ipv4::Repr {
                identification: 77,
                dont_fragment: false,
                more_fragments: (n + 1) * step < data.len(),
                fragment_offset_bytes: (n * step) as u16,
                ..ipv4::Repr::new(source, destination, 17, chunk.len() as u16)
            };
            header.emit(&mut frame[14..]).unwrap();
            frame.extend_from_slice(chunk);
            frame
        })
        .collect()
}

/// Puts fragments together again.
fn whole(mut parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.sort_by_key(|frame| u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff);
    let data: Vec<u8> = parts
        .iter()
        .flat_map(|frame| frame[34..].to_vec())
        .collect();
    let view = ipv4::View::new(&parts[0][14..]).unwrap();
    let addresses = v4(view.source(), view.destination());
    framed_with(addresses, &data)
}

fn framed_with(addresses: Addresses, data: &[u8]) -> Vec<u8> {
    crate::testing::framed(addresses, 17, data.len(), |bytes| {
        bytes.copy_from_slice(data)
    })
}

#[test]
fn row_17_and_18_fragments_are_translated_in_any_order() {
    for order in [[0, 1, 2], [2, 0, 1], [2, 1, 0], [1, 2, 0]] {
        let mut rig = Rig::filtering(Filtering::AddressAndPort);
        let parts = fragments(v4(HOST, PEER), (5000, 53), 2900, 1480);
        let more = fragments(v4(HOST, PEER), (5000, 53), 4000, 1480);
        assert_eq!((parts.len(), more.len()), (2, 3));
        let mut out = Vec::new();
        for at in order {
            match rig.send(INSIDE, more[at].clone()) {
                Ok(frame) => out.push(frame),
                Err(fate) => assert_eq!(fate, Fate::Consumed),
            }
            out.extend(rig.emissions());
        }
        assert_eq!(out.len(), 3, "{order:?}");
        let datagram = whole(out);
        assert_eq!(source_of(&datagram), (OUTER, 5000));
        let layout = parse(&datagram).unwrap();
        let sum = wire::checksum::verify_transport(&layout, &datagram);
        assert_eq!(sum, wire::checksum::TransportChecksum::Good);
        assert_eq!(layout.payload(&datagram), &[7; 4000]);
    }
}

#[test]
fn verdicts_are_replayed_until_the_rules_change() {
    struct Changing(Stateful, u32, bool);
    impl Rules for Changing {
        fn epoch(&self) -> u32 {
            self.1
        }
        fn has(&self, stage: Stage, hook: crate::packet::Hook) -> bool {
            self.0.has(stage, hook)
        }
        fn judge(
            &mut self,
            stage: Stage,
            packet: &mut crate::packet::Packet<'_>,
            effects: &mut crate::verdict::Effects,
        ) -> crate::verdict::Verdict {
            if self.2 {
                return crate::verdict::Verdict::Drop;
            }
            self.0.judge(stage, packet, effects)
        }
    }
    let rig = Rig::filtering(Filtering::AddressAndPort);
    let mut rig = Rig {
        worker: rig.worker,
        rules: Changing(rig.rules, 1, false),
        now: rig.now,
    };
    let outer = rig.out((HOST, 5000), (PEER, 53));
    for _ in 0..3 {
        rig.back((PEER, 53), outer).unwrap();
    }
    assert_eq!(rig.worker.tally.replays, 2);
    // Row 93: under new rules, which keep the state, the next packet is judged anew.
    rig.rules.2 = true;
    assert!(rig.back((PEER, 53), outer).is_ok());
    rig.rules.1 = 2;
    assert_eq!(rig.back((PEER, 53), outer), DROPPED);
    rig.rules.2 = false;
    rig.rules.1 = 3;
    assert_eq!(rig.back((PEER, 53), outer), Ok((HOST, 5000)));
    assert_eq!(rig.worker.shared().connections(), 1);
}

#[cfg(feature = "lang")]
#[test]
fn a_ruleset_in_nft_syntax_filters_and_masquerades() {
    use crate::rules::{Judge, NoTrace};
    let text = "
        table inet filter {
            chain forward {
                type filter hook forward priority 0; policy drop;
                ct state established,related accept
                iifname lan udp dport 53 accept
            }
        }
        table ip nat {
            chain postrouting {
                type nat hook postrouting priority 100;
                oifname wan masquerade
            }
        }";
    let options = crate::lang::Options {
        interfaces: crate::rules::Interfaces::ethernet(&["lan", "wan"]),
        workers: 1,
        ..crate::lang::Options::default()
    };
    let ruleset = crate::lang::load(text, options).unwrap();
    let mut rule_worker = ruleset.worker(0).unwrap();
    let rig = Rig::filtering(Filtering::AddressAndPort);
    let mut rig = Rig {
        worker: rig.worker,
        rules: Judge {
            ruleset: &ruleset,
            worker: &mut rule_worker,
            tracer: NoTrace,
            epoch: 1,
        },
        now: rig.now,
    };
    let outer = rig.out((HOST, 5000), (PEER, 53));
    assert_eq!(outer, (OUTER, 5000));
    assert_eq!(rig.back((PEER, 53), outer), Ok((HOST, 5000)));
    // No chain at input: what nobody asked for is the node's own.
    assert_eq!(rig.back((PEER, 54), outer), Ok(outer));
    let other = udp_frame(v4(HOST, PEER), (5000, 54), b"x");
    let refused = Err(Fate::Drop(DropReason::FirewallRule));
    assert_eq!(rig.send(INSIDE, other), refused);
}

#[test]
fn row_48_and_52_rules_leave_destinations_untranslated_and_nothing_tells_them() {
    let text = "table ip nat {
        chain postrouting {
            type nat hook postrouting priority srcnat
            ip daddr 198.51.100.8 accept
            masquerade
        }
    }";
    let ruleset = crate::lang::load(text, crate::lang::Options::default()).unwrap();
    let mut worker = ruleset.worker(0).unwrap();
    let Rig {
        worker: engine,
        now,
        ..
    } = Rig::new(TrackPolicy::default());
    let mut rig = Rig {
        worker: engine,
        rules: Judge {
            ruleset: &ruleset,
            worker: &mut worker,
            tracer: NoTrace,
            epoch: 1,
        },
        now,
    };
    assert_eq!(rig.out((HOST, 5000), (PEER, 53)).0, OUTER);
    assert_eq!(rig.out((HOST, 5001), (OTHER_PEER, 53)), (HOST, 5001));
    // No rule asks for a log: none is written, of neither.
    assert_eq!((rig.worker.logs.len(), rig.worker.tally.logs), (0, 0));
}
