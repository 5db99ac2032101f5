//! The pipelines: what is forwarded, aggregated, answered, remembered and dropped.

use ndn::{ContentStore as _, FaceConfig, ForwarderConfig, Incoming, LinkType, UnsolicitedPolicy};
use wire::DropReason;
use wire::ndn::lp::{LpHeader, NackReason};
use wire::ndn::{Data, InterestFields, NameRef};

use crate::support::{Bench, Kept, MS, data, interest, name};

#[test]
fn an_interest_goes_up_and_data_comes_down() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 10);
    let header = LpHeader {
        pit_token: Some(b"token"),
        ..LpHeader::default()
    };
    let ask = interest("/a/b", 1, |i| i.hop_limit = Some(5));
    let (kept, result) = bench.input_with(bench.app, header, &ask);
    assert_eq!(result, Ok(()));
    assert_eq!(kept.sent.len(), 1);
    assert_eq!(kept.sent[0].face, bench.net[0]);
    assert_eq!(kept.sent[0].interest().hop_limit, Some(4));
    assert_eq!(kept.sent[0].interest().nonce, Some(1_u32.to_be_bytes()));
    assert_eq!(kept.sent[0].token, b"");
    let answer = data("/a/b", 0);
    let sent = bench.input(bench.net[0], &answer);
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].face, &sent[0].token[..]),
        (bench.app, &b"token"[..])
    );
    assert_eq!(sent[0].packet, answer);
    assert!(bench.forwarder.pit().is_empty());
    assert_eq!(bench.forwarder.counters().satisfied, 1);
}

#[test]
fn a_burst_does_what_its_packets_do_one_by_one() {
    let packets = |bench: &Bench| {
        let mut packets = Vec::new();
        for number in 0..20_u32 {
            let uri = format!("/a/{}", number % 7);
            packets.push((bench.app, interest(&uri, number, |_| {})));
            packets.push((
                bench.app2,
                interest("/a", number, |i| i.can_be_prefix = true),
            ));
            packets.push((bench.net[0], data(&uri, 1000)));
            packets.push((bench.app, interest(&uri, 100 + number, |_| {})));
            packets.push((bench.net[1], data("/b", 0)));
            packets.push((bench.net[2], b"no packet".to_vec()));
        }
        packets
    };
    let (mut alone, mut burst) = (Bench::new(), Bench::new());
    let mut expected = Vec::new();
    let mut reasons = Vec::new();
    for bench in [&mut alone, &mut burst] {
        bench.route("/a", bench.net[0], 10);
    }
    for (face, packet) in packets(&alone) {
        let (kept, result) = alone.input_with(face, LpHeader::default(), &packet);
        expected.extend(kept.sent);
        reasons.extend(result.err());
    }
    let packets = packets(&burst);
    let incoming: Vec<_> = packets
        .iter()
        .map(|(face, packet)| Incoming {
            face: *face,
            header: LpHeader::default(),
            packet,
        })
        .collect();
    let mut kept = Kept::default();
    let mut dropped = Vec::new();
    burst
        .forwarder
        .input_burst(burst.now, &incoming, &mut kept, |_, reason| {
            dropped.push(reason);
        });
    assert_eq!(kept.sent, expected);
    assert_eq!(dropped, reasons);
    assert!(dropped.contains(&DropReason::NdnMalformed) && expected.len() > 40);
}

#[test]
fn a_hint_without_a_route_goes_where_all_else_goes() {
    let mut bench = Bench::new();
    bench.route("/", bench.net[1], 0);
    bench.route("/a/b/c", bench.net[0], 0);
    let elsewhere = name("/elsewhere/far");
    let hint = [elsewhere.as_ref()];
    let wanted = name("/a/b/c/d");
    let fields = InterestFields {
        forwarding_hint: &hint,
        nonce: Some([1; 4]),
        ..InterestFields::new(wanted.as_ref())
    };
    let mut ask = vec![0; 200];
    let length = fields.encode(&mut ask).unwrap();
    ask.truncate(length);
    let sent = bench.input(bench.app, &ask);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].face, bench.net[1]);
}

#[test]
fn a_nonce_is_added_where_it_is_missing() {
    let mut bench = Bench::new();
    bench.route("/", bench.net[0], 0);
    let sent = bench.input(bench.app, &interest("/a", 1, |i| i.nonce = None));
    assert!(sent[0].interest().nonce.is_some());
}

#[test]
fn interests_for_one_name_are_aggregated() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 10);
    assert_eq!(bench.input(bench.app, &interest("/a", 1, |_| {})).len(), 1);
    let second = interest("/a", 2, |_| {});
    assert_eq!(
        bench.dropped(bench.app2, &second),
        Some(DropReason::NdnSuppressed)
    );
    assert_eq!(bench.forwarder.pit().len(), 1);
    // Another CanBePrefix or MustBeFresh is another entry.
    assert_eq!(
        bench
            .input(bench.app2, &interest("/a", 3, |i| i.can_be_prefix = true))
            .len(),
        1
    );
    assert_eq!(
        bench
            .input(bench.app2, &interest("/a", 4, |i| i.must_be_fresh = true))
            .len(),
        1
    );
    assert_eq!(bench.forwarder.pit().len(), 3);
    let sent = bench.input(bench.net[0], &data("/a", 0));
    let mut faces: Vec<_> = sent.iter().map(|sent| sent.face).collect();
    faces.sort();
    assert_eq!(faces, [bench.app, bench.app2]);
    assert!(bench.forwarder.pit().is_empty());
}

#[test]
fn data_satisfies_every_kind_of_match() {
    let mut bench = Bench::new();
    bench.route("/", bench.net[0], 10);
    let answer = data("/a/b/c", 0);
    let digest = Data::parse(&answer).unwrap().implicit_digest();
    let full = name("/a/b/c").with_implicit_digest(&digest).to_string();
    let wrong = name("/a/b/c").with_implicit_digest(&[1; 32]).to_string();
    let exact_only = [
        ("/a/b/c", false, true),
        (&full, false, true),
        (&full, true, true),
    ];
    let others = [
        ("/a", true, true),
        ("/a/b", true, true),
        ("/a/b", false, false),
        (&wrong, false, false),
        ("/a/b/c/d", true, false),
    ];
    for (nonce, (uri, can_be_prefix, fits)) in exact_only.into_iter().chain(others).enumerate() {
        let ask = interest(uri, nonce as u32, |i| i.can_be_prefix = can_be_prefix);
        assert_eq!(bench.input(bench.app, &ask).len(), 1);
        let got = bench.input(bench.net[0], &answer).len();
        assert_eq!(got == 1, fits, "{uri}");
        bench.forwarder.store_mut().erase(NameRef::EMPTY, 10);
        bench.advance(5000 * MS);
    }
    // A face that waits in several entries gets the Data once.
    for (nonce, uri) in ["/a", "/a/b", "/a/b/c"].into_iter().enumerate() {
        bench.input(
            bench.app,
            &interest(uri, 90 + nonce as u32, |i| i.can_be_prefix = true),
        );
    }
    assert_eq!(bench.input(bench.net[0], &answer).len(), 1);
    assert!(bench.forwarder.pit().is_empty());
}

#[test]
fn the_content_store_answers() {
    let mut bench = Bench::new();
    bench.route("/", bench.net[0], 10);
    bench.input(bench.app, &interest("/a/b", 1, |_| {}));
    bench.input(bench.net[0], &data("/a/b", 1000));
    for (nonce, uri, prefix) in [(2, "/a/b", false), (3, "/a", true)] {
        let ask = interest(uri, nonce, |i| {
            i.must_be_fresh = true;
            i.can_be_prefix = prefix;
        });
        let sent = bench.input(bench.app2, &ask);
        assert!(sent[0].is_data() && sent[0].face == bench.app2);
    }
    assert!(bench.forwarder.pit().is_empty());
    bench.advance(1001 * MS);
    let stale = bench.input(bench.app, &interest("/a/b", 4, |i| i.must_be_fresh = true));
    assert!(!stale[0].is_data());
    assert_eq!(bench.forwarder.counters().store_hits, 2);
    assert!(bench.input(bench.app, &interest("/a/b", 5, |_| {}))[0].is_data());
}

#[test]
fn unsolicited_data_is_dropped_unless_the_policy_admits_it() {
    use UnsolicitedPolicy::{AdmitAll, AdmitLocal, AdmitNetwork, DropAll};
    for (policy, local, network) in [
        (DropAll, false, false),
        (AdmitLocal, true, false),
        (AdmitNetwork, false, true),
        (AdmitAll, true, true),
    ] {
        let config = ForwarderConfig {
            unsolicited: policy,
            ..ForwarderConfig::default()
        };
        let mut bench = Bench::with(config);
        for (face, uri, admitted) in [(bench.app, "/a", local), (bench.net[0], "/b", network)] {
            let dropped = bench.dropped(face, &data(uri, 0));
            assert_eq!(dropped.is_none(), admitted);
            let hit = bench.input(bench.app2, &interest(uri, 1, |_| {}));
            assert_eq!(hit.iter().any(|sent| sent.is_data()), admitted);
        }
    }
}

#[test]
fn data_marked_no_cache_by_a_local_application_is_not_cached() {
    let mut bench = Bench::new();
    bench
        .forwarder
        .face_mut(bench.app)
        .unwrap()
        .config
        .local_fields = true;
    for (from, cached) in [(bench.app, false), (bench.net[0], true)] {
        bench.route("/a", from, 1);
        bench.input(bench.app2, &interest("/a", from.0, |_| {}));
        let header = LpHeader {
            no_cache: true,
            ..LpHeader::default()
        };
        assert_eq!(bench.input_with(from, header, &data("/a", 0)).1, Ok(()));
        let sent = bench.input(bench.app2, &interest("/a", 77 + from.0, |_| {}));
        assert_eq!(sent[0].is_data(), cached);
        bench.advance(5000 * MS);
        assert!(bench.forwarder.remove_next_hop(name("/a").as_ref(), from));
    }
}

#[test]
fn loops_are_found_while_pending_and_after() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 1);
    let ask = interest("/a", 7, |i| i.lifetime_ms = Some(100));
    bench.input(bench.app, &ask);
    // It comes back by another face, and by the face that it left by.
    for face in [bench.net[1], bench.net[0]] {
        let (kept, result) = bench.input_with(face, LpHeader::default(), &ask);
        assert_eq!(result, Err(DropReason::NdnLoop));
        assert_eq!(kept.sent[0].nack, Some(NackReason::Duplicate));
    }
    // From the same point-to-point face it is a retransmission.
    assert_eq!(
        bench.dropped(bench.app, &ask),
        Some(DropReason::NdnSuppressed)
    );
    bench.advance(102 * MS);
    assert!(bench.forwarder.pit().is_empty());
    assert_eq!(bench.dropped(bench.net[1], &ask), Some(DropReason::NdnLoop));
    // The dead nonce list forgets after 6 s, when others come.
    bench.advance(6000 * MS);
    bench.input(bench.app, &interest("/a", 8, |i| i.lifetime_ms = Some(100)));
    bench.advance(6200 * MS);
    assert_ne!(bench.dropped(bench.net[1], &ask), Some(DropReason::NdnLoop));
}

#[test]
fn a_multi_access_face_gets_no_nacks() {
    let mut bench = Bench::new();
    let config = FaceConfig {
        link_type: LinkType::MultiAccess,
        ..FaceConfig::network("udp4://224.0.23.170:56363", "netdev://eth0")
    };
    let group = bench.forwarder.add_face(config, bench.now).unwrap();
    assert!(
        bench
            .input(group, &interest("/nowhere", 1, |_| {}))
            .is_empty()
    );
    bench.route("/a", bench.net[0], 1);
    let ask = interest("/a", 2, |_| {});
    bench.input(group, &ask);
    // On such a face the same nonce again is a loop.
    assert_eq!(bench.dropped(group, &ask), Some(DropReason::NdnLoop));
}

#[test]
fn hop_limits_count_down() {
    let mut bench = Bench::new();
    bench.route("/", bench.net[0], 1);
    let zero = interest("/a", 1, |i| i.hop_limit = Some(0));
    assert_eq!(
        bench.dropped(bench.app, &zero),
        Some(DropReason::NdnHopLimit)
    );
    let one = interest("/b", 2, |i| i.hop_limit = Some(1));
    assert_eq!(
        bench.dropped(bench.net[1], &one),
        Some(DropReason::NdnHopLimit)
    );
    // Applications on this machine still get it.
    bench.route("/c", bench.app, 1);
    let sent = bench.input(bench.net[1], &interest("/c", 3, |i| i.hop_limit = Some(1)));
    assert_eq!(sent[0].interest().hop_limit, Some(0));
}

#[test]
fn pending_interests_end_and_are_counted() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 1);
    bench.input(bench.app, &interest("/a", 1, |i| i.lifetime_ms = Some(50)));
    bench.advance(20 * MS);
    // Another Interest makes it last longer.
    bench.input(
        bench.app2,
        &interest("/a", 2, |i| i.lifetime_ms = Some(100)),
    );
    bench.advance(80 * MS);
    assert_eq!(bench.forwarder.pit().len(), 1);
    let sent = bench.input(bench.net[0], &data("/a", 0));
    let faces: Vec<_> = sent.iter().map(|sent| sent.face).collect();
    assert_eq!(faces, [bench.app2]);
    bench.input(
        bench.app,
        &interest("/a/x", 3, |i| i.lifetime_ms = Some(50)),
    );
    let next = bench.forwarder.poll_timeout().unwrap();
    assert!(next <= bench.now + 52 * MS);
    bench.advance(52 * MS);
    assert!(bench.forwarder.pit().is_empty());
    assert_eq!(bench.forwarder.counters().unsatisfied, 1);
    assert_eq!(bench.forwarder.poll_timeout(), None);
}

#[test]
fn a_full_pit_refuses_and_recovers() {
    let config = ForwarderConfig {
        pit_entries: 4,
        ..ForwarderConfig::default()
    };
    let mut bench = Bench::with(config);
    bench.route("/", bench.net[0], 1);
    for n in 0..10_u32 {
        let ask = interest(&format!("/flood/{n}"), n, |i| i.lifetime_ms = Some(100));
        let dropped = bench.dropped(bench.net[1], &ask);
        assert_eq!(dropped, (n >= 4).then_some(DropReason::NdnPitFull), "{n}");
    }
    bench.advance(102 * MS);
    assert_eq!(bench.dropped(bench.app, &interest("/a", 50, |_| {})), None);
    assert_eq!(bench.forwarder.counters().drops(DropReason::NdnPitFull), 6);
}

#[test]
fn malformed_packets_are_dropped_with_a_reason() {
    let mut bench = Bench::new();
    let long = [&[5, 253, 0x22, 0x5d][..], &[0; 8797]].concat();
    let rows: [(&[u8], DropReason); 6] = [
        (&[], DropReason::NdnMalformed),
        (&[9, 9], DropReason::NdnMalformed),
        (&[5, 2, 7, 0], DropReason::NdnMalformed),
        (
            &[5, 255, 255, 255, 255, 255, 255, 255, 255, 255],
            DropReason::NdnMalformed,
        ),
        (&[6, 5, 7, 3, 8, 1, b'a'], DropReason::NdnMalformed),
        (&long, DropReason::NdnTooLong),
    ];
    for (packet, reason) in rows {
        assert_eq!(bench.dropped(bench.app, packet), Some(reason));
    }
    let nobody = ndn::FaceId(9999);
    assert_eq!(
        bench.dropped(nobody, &interest("/a", 1, |_| {})),
        Some(DropReason::NdnFaceDown)
    );
}

#[test]
fn forwarding_hints_choose_the_route_and_are_stripped_in_their_region() {
    let config = ForwarderConfig {
        regions: vec![name("/isp/home")],
        ..ForwarderConfig::default()
    };
    let mut bench = Bench::with(config);
    bench.route("/far", bench.net[0], 1);
    bench.route("/a", bench.net[1], 1);
    let (unknown, far, isp) = (name("/unknown"), name("/far"), name("/isp"));
    let hints = [unknown.as_ref(), far.as_ref()];
    let build = |hints: &[NameRef<'_>]| {
        let a = name("/a");
        let fields = wire::ndn::InterestFields {
            nonce: Some([1; 4]),
            forwarding_hint: hints,
            ..wire::ndn::InterestFields::new(a.as_ref())
        };
        let mut out = vec![0; 500];
        let length = fields.encode(&mut out).unwrap();
        out.truncate(length);
        out
    };
    let sent = bench.input(bench.app, &build(&hints));
    assert_eq!(sent[0].face, bench.net[0]);
    assert!(!sent[0].interest().forwarding_hint.is_empty());
    bench.advance(5000 * MS);
    bench.advance(7000 * MS);
    let mut bench2 = Bench::with(ForwarderConfig {
        regions: vec![name("/isp/home")],
        ..ForwarderConfig::default()
    });
    bench2.route("/a", bench2.net[1], 1);
    let sent = bench2.input(bench2.app, &build(&[isp.as_ref()]));
    assert_eq!(sent[0].face, bench2.net[1]);
    assert!(sent[0].interest().forwarding_hint.is_empty());
}

#[test]
fn a_removed_face_leaves_no_trace() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 1);
    bench.input(bench.app, &interest("/a", 1, |_| {}));
    assert!(bench.forwarder.remove_face(bench.app).is_some());
    assert!(bench.forwarder.remove_face(bench.net[0]).is_some());
    assert!(bench.forwarder.fib().get(name("/a").as_ref()).is_none());
    assert_eq!(
        bench.dropped(bench.net[0], &data("/a", 0)),
        Some(DropReason::NdnFaceDown)
    );
    bench.advance(5000 * MS);
    assert!(bench.forwarder.pit().is_empty());
}

#[test]
fn an_application_may_choose_the_next_hop() {
    let mut bench = Bench::new();
    bench.route("/a", bench.net[0], 1);
    let header = LpHeader {
        next_hop_face: Some(u64::from(bench.net[2].0)),
        ..LpHeader::default()
    };
    let sent = bench
        .input_with(bench.app, header, &interest("/a", 1, |_| {}))
        .0
        .sent;
    assert_eq!(sent[0].face, bench.net[0], "the face has no local fields");
    bench
        .forwarder
        .face_mut(bench.app)
        .unwrap()
        .config
        .local_fields = true;
    let sent = bench
        .input_with(bench.app, header, &interest("/a/b", 2, |_| {}))
        .0
        .sent;
    assert_eq!(sent[0].face, bench.net[2]);
    let sent = bench.input(bench.net[2], &data("/a/b", 0));
    assert_eq!(sent[0].incoming_face, Some(u64::from(bench.net[2].0)));
}
