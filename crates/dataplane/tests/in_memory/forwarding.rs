//! The packet graph of a router, packet by packet, with a clock of the test's.

use crate::frames::{arp, to_node4, to_node6};
use crate::packets::{echo_request, ethernet, ipv4, ipv6, udp};
use crate::rig::{Rig, node_mac, peer_mac};
use flate2::read::GzDecoder;
use wire::checksum;

const ROUTER: &str = r#"
[[port]]
name = "left"
driver = "mem"
addresses = ["10.0.0.1/24", "2001:db8::1/64"]
[[port]]
name = "right"
driver = "mem"
mtu = 1300
addresses = ["10.0.1.1/24", "2001:db8:1::1/64"]
[[route]]
to = "172.16.0.0/12"
via = "10.0.1.2"
[[route]]
to = "192.168.0.0/16"
blackhole = true
[[neighbour]]
address = "10.0.1.2"
mac = "02:00:00:00:01:02"
port = "right"
[[neighbour]]
address = "10.0.0.2"
mac = "02:00:00:00:00:02"
port = "left"
[[neighbour]]
address = "2001:db8::2"
mac = "02:00:00:00:00:02"
port = "left"
[[neighbour]]
address = "2001:db8:1::2"
mac = "02:00:00:00:01:02"
port = "right"
"#;

const CLIENT: [u8; 4] = [10, 0, 0, 2];
const SERVER: [u8; 4] = [10, 0, 1, 2];
const BROADCAST: [u8; 6] = [0xff; 6];

fn six(last: &[u8]) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    address[5] = last[0];
    address[15] = last[1];
    address
}

/// Asserts that a frame into port 0 is dropped for `reason` and nothing is sent.
#[track_caller]
fn drops(rig: &mut Rig, frame: &[u8], reason: &str) {
    let count = |rig: &Rig| -> u64 {
        let of = rig.drops();
        of.iter()
            .filter(|(name, _)| *name == reason)
            .map(|(_, pkts)| pkts)
            .sum()
    };
    let before = count(rig);
    let sent = rig.exchange(0, frame);
    assert!(sent.iter().all(Vec::is_empty), "{reason}: {sent:02x?}");
    assert_eq!(count(rig), before + 1, "{reason}, but {:?}", rig.drops());
}

#[test]
fn a_packet_is_forwarded_with_new_addresses_ttl_and_checksum() {
    let mut rig = Rig::new(ROUTER);
    for to in [SERVER, [172, 16, 9, 9]] {
        let mut frame = to_node4(&ipv4(CLIENT, to, 17, 64, 0x4000, &[], &udp(20)));
        frame.extend([0xee; 6]); // padding does not go on
        let sent = rig.exchange(0, &frame);
        let wanted = ipv4(CLIENT, to, 17, 63, 0x4000, &[], &udp(20));
        let wanted = ethernet(peer_mac(1).0, node_mac(1).0, 0x0800, &wanted);
        assert_eq!(sent, [vec![], vec![wanted]]);
    }
    let packet = ipv6(six(&[0, 2]), six(&[1, 2]), 17, 9, &udp(20));
    let sent = rig.exchange(0, &to_node6(&packet));
    let mut wanted = to_node6(&packet);
    wanted[..6].copy_from_slice(&peer_mac(1).0);
    wanted[6..12].copy_from_slice(&node_mac(1).0);
    wanted[14 + 7] = 8;
    assert_eq!(sent, [vec![], vec![wanted]]);
    rig.finish();
}

/// What the node makes has a header that somebody wrote as soon as a capture may see it.
#[test]
fn what_the_node_makes_is_captured_with_its_ethernet_header() {
    let mut rig = Rig::new(ROUTER);
    let back = |kind: u16| ethernet(peer_mac(0).0, node_mac(0).0, kind, &[]);
    let ping = to_node4(&ipv4(
        CLIENT,
        [10, 0, 0, 1],
        1,
        64,
        0,
        &[],
        &echo_request(20),
    ));
    let late = to_node4(&ipv4(CLIENT, SERVER, 17, 1, 0, &[], &udp(20)));
    let long = to_node4(&ipv4(CLIENT, SERVER, 17, 64, 0, &[], &udp(1400)));
    let made = rig.captured("ip4-output", |rig| {
        for frame in [&ping, &late, &long] {
            rig.exchange(0, frame);
        }
    });
    let headers: Vec<_> = made.iter().map(|frame| frame[..14].to_vec()).collect();
    // A fragment is on its way as the packet was.
    let on = ethernet(node_mac(0).0, peer_mac(0).0, 0x0800, &[]);
    assert_eq!(headers, [back(0x0800), back(0x0800), on.clone(), on]);
    let late = to_node6(&ipv6(six(&[0, 2]), six(&[1, 2]), 17, 1, &udp(20)));
    let made = rig.captured("ip6-output", |rig| drop(rig.exchange(0, &late)));
    assert_eq!(made.len(), 1);
    assert_eq!(made[0][..14], back(0x86dd));
    rig.finish();
}

#[test]
fn a_priority_tag_is_taken_off() {
    let mut rig = Rig::new(ROUTER);
    let packet = ipv4(CLIENT, SERVER, 17, 64, 0, &[], &udp(20));
    let tagged = |vlan: u8| {
        let tag = [&[0xe0, vlan, 8, 0][..], &packet].concat();
        ethernet(node_mac(0).0, peer_mac(0).0, 0x8100, &tag)
    };
    let sent = rig.exchange(0, &tagged(0));
    assert_eq!(sent[1].len(), 1);
    assert_eq!(sent[1][0].len(), 14 + packet.len());
    drops(&mut rig, &tagged(5), "vlan_unknown");
    rig.finish();
}

#[test]
fn what_may_not_be_forwarded_is_dropped_without_a_word() {
    let mut rig = Rig::new(ROUTER);
    let from_to = |from, to| to_node4(&ipv4(from, to, 17, 64, 0, &[], &udp(20)));
    for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        drops(&mut rig, &from_to(source, SERVER), "ipv4_source");
    }
    for destination in [[127, 0, 0, 1], [0, 1, 2, 3], [10, 0, 1, 255], [10, 0, 1, 0]] {
        drops(
            &mut rig,
            &from_to(CLIENT, destination),
            "link_local_forward",
        );
    }
    drops(
        &mut rig,
        &from_to([169, 254, 1, 1], SERVER),
        "link_local_forward",
    );
    drops(
        &mut rig,
        &from_to(CLIENT, [192, 168, 1, 1]),
        "route_blackhole",
    );
    let broadcast = ethernet(
        BROADCAST,
        peer_mac(0).0,
        0x0800,
        &ipv4(CLIENT, SERVER, 17, 64, 0, &[], &udp(20)),
    );
    drops(&mut rig, &broadcast, "link_local_forward");
    let other = ethernet(
        [2, 9, 9, 9, 9, 9],
        peer_mac(0).0,
        0x0800,
        &ipv4(CLIENT, SERVER, 17, 64, 0, &[], &udp(20)),
    );
    drops(&mut rig, &other, "not_for_us");
    let source_route = [0x83, 7, 4, 10, 0, 1, 2, 0];
    drops(
        &mut rig,
        &to_node4(&ipv4(CLIENT, SERVER, 17, 64, 0, &source_route, &udp(20))),
        "ipv4_options",
    );
    let mut wrong = from_to(CLIENT, SERVER);
    wrong[24] ^= 1;
    drops(&mut rig, &wrong, "ipv4_checksum");
    let link_local = |last| {
        let mut address = [0; 16];
        (address[0], address[1], address[15]) = (0xfe, 0x80, last);
        address
    };
    let six_to = |from, to| to_node6(&ipv6(from, to, 17, 64, &udp(20)));
    drops(
        &mut rig,
        &six_to(six(&[0, 2]), link_local(9)),
        "link_local_forward",
    );
    drops(&mut rig, &six_to([0; 16], six(&[1, 2])), "ipv6_source");
    rig.finish();
}

/// Checks an ICMP error in `frame` about `about` (the packet as it was received).
#[track_caller]
fn is_error(frame: &[u8], from: [u8; 4], kind: u8, code: u8, rest: [u8; 4], about: &[u8]) {
    let layout = wire::parse(frame).expect("the error is a right packet");
    assert_eq!(
        checksum::verify_transport(&layout, frame),
        checksum::TransportChecksum::Good
    );
    assert_eq!(frame[..6], peer_mac(0).0);
    assert_eq!((&frame[26..30], &frame[30..34]), (&from[..], &CLIENT[..]));
    assert_eq!(frame[34..36], [kind, code]);
    assert_eq!(frame[38..42], rest);
    let quote = &frame[42..];
    assert_eq!(quote, &about[..quote.len()], "the quote is the packet");
    assert!(
        quote.len() == about.len() || 14 + 576 == frame.len(),
        "{} of {}",
        quote.len(),
        about.len()
    );
}

#[test]
fn senders_are_told_why() {
    let mut rig = Rig::new(ROUTER);
    let near = [10, 0, 0, 1];
    let cases = [
        (
            ipv4(CLIENT, SERVER, 17, 1, 0, &[], &udp(600)),
            near,
            (11, 0),
            [0; 4],
        ),
        (
            ipv4(CLIENT, [9, 9, 9, 9], 17, 64, 0, &[], &udp(20)),
            near,
            (3, 0),
            [0; 4],
        ),
        (
            ipv4(CLIENT, SERVER, 17, 64, 0x4000, &[], &udp(1400)),
            near,
            (3, 4),
            [0, 0, 5, 0x14],
        ),
        (
            ipv4(CLIENT, [10, 0, 1, 1], 17, 64, 0, &[], &udp(20)),
            [10, 0, 1, 1],
            (3, 3),
            [0; 4],
        ),
        (
            ipv4(CLIENT, near, 99, 64, 0, &[], &[0; 20]),
            near,
            (3, 2),
            [0; 4],
        ),
    ];
    for (packet, from, (kind, code), rest) in cases {
        let sent = rig.exchange(0, &to_node4(&packet));
        assert_eq!(
            (sent[0].len(), sent[1].len()),
            (1, 0),
            "type {kind} code {code}"
        );
        is_error(&sent[0][0], from, kind, code, rest, &packet);
    }
    rig.finish();
}

#[test]
fn senders_are_not_told_where_the_rules_forbid_it() {
    let mut rig = Rig::new(ROUTER);
    let error = [&[3, 1, 0xfc, 0xfe, 0, 0, 0, 0][..], &[0; 28]].concat();
    for (packet, reason) in [
        (ipv4(CLIENT, SERVER, 1, 1, 0, &[], &error), "ttl_exceeded"),
        (
            ipv4(CLIENT, SERVER, 17, 1, 0x00b9, &[], &[0; 32]),
            "ttl_exceeded",
        ),
        (
            ipv4([10, 0, 0, 255], SERVER, 17, 1, 0, &[], &udp(20)),
            "ttl_exceeded",
        ),
        (
            ipv4(CLIENT, [10, 0, 0, 255], 17, 64, 0, &[], &udp(20)),
            "port_unreachable",
        ),
    ] {
        drops(&mut rig, &to_node4(&packet), reason);
    }
    rig.finish();
}

#[test]
fn errors_are_limited() {
    let mut rig = Rig::new(ROUTER);
    let frame = to_node4(&ipv4(CLIENT, SERVER, 17, 1, 0, &[], &udp(20)));
    let mut sent = 0;
    for _ in 0..200 {
        sent += rig.exchange(0, &frame)[0].len();
    }
    assert_eq!(sent, 50, "the burst, in no time");
    rig.wait(1);
    assert_eq!(rig.exchange(0, &frame)[0].len(), 1);
    assert_eq!(rig.node("icmp-error").dropped_pkts(), 201);
    rig.finish();
}

#[test]
fn hop_limits_and_sizes_of_ipv6() {
    let mut rig = Rig::new(ROUTER);
    for (hops, data, (kind, code), number) in [(1, 20, (3, 0), 0_u32), (64, 1400, (2, 0), 1300)] {
        let packet = ipv6(six(&[0, 2]), six(&[1, 2]), 17, hops, &udp(data));
        let frame = to_node6(&packet);
        let sent = rig.exchange(0, &frame);
        assert_eq!((sent[0].len(), sent[1].len()), (1, 0));
        let error = &sent[0][0];
        let layout = wire::parse(error).expect("a right packet");
        assert_eq!(
            checksum::verify_transport(&layout, error),
            checksum::TransportChecksum::Good
        );
        assert_eq!((error[54], error[55]), (kind, code));
        assert_eq!(error[58..62], number.to_be_bytes());
        assert_eq!(error[22..38], six(&[0, 1]));
        let quote = &error[62..];
        assert_eq!(quote, &frame[14..14 + quote.len()]);
        assert!(error.len() <= 14 + 1280);
    }
    rig.finish();
}

#[test]
fn fragments_make_up_the_packet() {
    let mut rig = Rig::new(ROUTER);
    let options = [0x94, 4, 0, 0, 7, 4, 4, 0]; // router alert (copied) and record route (not)
    let payload: Vec<u8> = (0..1400).map(|i| (i * 7) as u8).collect();
    // A fragment itself: offset 80, more to come.
    let packet = ipv4(CLIENT, SERVER, 99, 64, 0x2000 | 10, &options, &payload);
    let sent = rig.exchange(0, &to_node4(&packet));
    assert_eq!((sent[0].len(), sent[1].len()), (0, 2));
    let mut joined: Vec<u8> = Vec::new();
    for (i, frame) in sent[1].iter().enumerate() {
        let layout = wire::parse(frame).expect("a right packet");
        assert!(usize::from(layout.end - layout.network) <= 1300);
        let field = u16::from_be_bytes([frame[20], frame[21]]);
        assert_eq!(usize::from(field & 0x1fff) * 8, 80 + joined.len());
        assert_eq!(field & 0x2000, 0x2000, "more fragments follow the packet");
        assert_eq!(frame[22], 63);
        let header = usize::from(layout.transport - layout.network);
        assert_eq!(
            header,
            if i == 0 { 28 } else { 24 },
            "only copied options go on"
        );
        joined.extend(&frame[layout.transport.into()..layout.end.into()]);
    }
    assert_eq!(joined, payload);
    let whole = ipv4(CLIENT, SERVER, 17, 64, 0, &[], &udp(1400));
    let sent = rig.exchange(0, &to_node4(&whole));
    let field = |frame: &[u8]| u16::from_be_bytes([frame[20], frame[21]]);
    assert_eq!(
        sent[1].iter().map(|f| field(f)).collect::<Vec<_>>(),
        [0x2000, 1280 / 8]
    );
    rig.finish();
}

#[test]
fn the_node_answers_echo_requests() {
    let mut rig = Rig::new(ROUTER);
    let sent = rig.exchange(
        0,
        &to_node4(&ipv4(
            CLIENT,
            [10, 0, 1, 1],
            1,
            3,
            0x4000,
            &[],
            &echo_request(56),
        )),
    );
    let mut reply = echo_request(56);
    (reply[0], reply[2], reply[3]) = (0, 0, 0);
    let sum = checksum::checksum(&reply);
    reply[2..4].copy_from_slice(&sum.to_be_bytes());
    let wanted = ipv4([10, 0, 1, 1], CLIENT, 1, 64, 0, &[], &reply);
    assert_eq!(
        sent[0],
        [ethernet(peer_mac(0).0, node_mac(0).0, 0x0800, &wanted)]
    );
    let mut request = echo_request(56);
    request[0] = 128;
    let sent = rig.exchange(
        0,
        &to_node6(&ipv6(six(&[0, 2]), six(&[0, 1]), 58, 64, &request)),
    );
    let layout = wire::parse(&sent[0][0]).expect("a right packet");
    assert_eq!(
        checksum::verify_transport(&layout, &sent[0][0]),
        checksum::TransportChecksum::Good
    );
    assert_eq!(sent[0][0][54], 129);
    let mut wrong = to_node4(&ipv4(
        CLIENT,
        [10, 0, 0, 1],
        1,
        64,
        0,
        &[],
        &echo_request(56),
    ));
    wrong[60] ^= 1;
    drops(&mut rig, &wrong, "transport_checksum");
    drops(
        &mut rig,
        &to_node4(&ipv4(
            CLIENT,
            [10, 0, 0, 255],
            1,
            64,
            0,
            &[],
            &echo_request(56),
        )),
        "rate_limited",
    );
    rig.finish();
}

#[test]
fn the_node_asks_waits_and_gives_up() {
    let mut rig = Rig::new(ROUTER);
    let target = [10, 0, 1, 77];
    let packet = |n: u8| ipv4(CLIENT, target, 17, 64, 0, &[], &udp(usize::from(n)));
    let sent = rig.exchange(0, &to_node4(&packet(20)));
    let question = arp(
        BROADCAST,
        1,
        (node_mac(1).0, [10, 0, 1, 1]),
        ([0; 6], target),
    );
    assert_eq!(sent, [vec![], vec![question.clone()]]);
    assert_eq!(
        rig.exchange(0, &to_node4(&packet(21))),
        [[[0_u8; 0]; 0]; 2],
        "one question is enough"
    );
    rig.wait(1);
    assert_eq!(rig.received(1), [question]);
    let mac = [2, 7, 7, 7, 7, 7];
    let answer = arp(
        node_mac(1).0,
        2,
        (mac, target),
        (node_mac(1).0, [10, 0, 1, 1]),
    );
    let sent = rig.exchange(1, &answer);
    let lengths: Vec<_> = sent[1].iter().map(Vec::len).collect();
    assert_eq!(lengths, [14 + 20 + 8 + 20, 14 + 20 + 8 + 21], "in order");
    assert!(sent[1].iter().all(|frame| frame[..6] == mac));
    // Another one never answers: three questions, then the sender is told.
    let packet = ipv4(CLIENT, [10, 0, 1, 78], 17, 64, 0, &[], &udp(20));
    rig.exchange(0, &to_node4(&packet));
    rig.wait(3);
    assert_eq!(rig.received(1).len(), 2, "questions two and three");
    let told = rig.received(0);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0][34..36], [3, 1]);
    rig.finish();
}

#[test]
fn the_queue_of_waiting_packets_is_bounded() {
    let mut rig = Rig::new(ROUTER);
    for n in 0..20 {
        rig.exchange(
            0,
            &to_node4(&ipv4(CLIENT, [10, 0, 1, 77], 17, 64, 0, &[], &udp(n))),
        );
    }
    assert_eq!(rig.drops(), [("neighbour_queue_full", 12)]);
    rig.wait(4);
    assert_eq!(rig.received(0).len(), 8);
    rig.finish();
}

#[test]
fn questions_are_answered_for_the_link_s_own_addresses_only() {
    let mut rig = Rig::new(ROUTER);
    let peer = (peer_mac(0).0, CLIENT);
    let near = [10, 0, 0, 1];
    let sent = rig.exchange(0, &arp(BROADCAST, 1, peer, ([0; 6], near)));
    assert_eq!(
        sent[0],
        [arp(peer_mac(0).0, 2, (node_mac(0).0, near), peer)]
    );
    assert!(rig.exchange(0, &arp(BROADCAST, 1, peer, ([0; 6], [10, 0, 1, 1])))[0].is_empty());
    // A probe (RFC 5227) has no sender; it is answered so that the prober learns of the conflict.
    let probe = (peer_mac(0).0, [0; 4]);
    assert_eq!(
        rig.exchange(0, &arp(BROADCAST, 1, probe, ([0; 6], near)))[0].len(),
        1
    );
    rig.finish();
}

#[test]
fn neighbour_solicitations_are_checked_and_answered() {
    let mut rig = Rig::new(ROUTER);
    let mut group = [0; 16];
    group[..2].copy_from_slice(&[0xff, 2]);
    (group[11], group[12], group[15]) = (1, 0xff, 1);
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(six(&[0, 1]));
    message.extend([1, 1]);
    message.extend(peer_mac(0).0);
    let ask = |hops| {
        let mut frame = to_node6(&ipv6(six(&[0, 9]), group, 58, hops, &message));
        frame[..6].copy_from_slice(&[0x33, 0x33, 0xff, 0, 0, 1]);
        frame
    };
    let sent = rig.exchange(0, &ask(255));
    let answer = &sent[0][0];
    let layout = wire::parse(answer).expect("a right packet");
    assert_eq!(
        checksum::verify_transport(&layout, answer),
        checksum::TransportChecksum::Good
    );
    assert_eq!(
        (answer[54], answer[58], answer[21]),
        (136, 0xe0, 255),
        "router, solicited, override"
    );
    assert_eq!(answer[62..78], six(&[0, 1]));
    assert_eq!(answer[80..86], node_mac(0).0);
    drops(&mut rig, &ask(254), "neighbour_discovery");
    rig.finish();
}

/// Every capture beside the workspace, and every prefix of some of its frames, and noise.
#[test]
fn captures_and_noise_are_accounted_for() {
    let defaults = "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.0.1.2\"\n\
                    [[route]]\nto = \"::/0\"\nvia = \"2001:db8:1::2\"\n";
    let mut rig = Rig::new(&format!("{ROUTER}{defaults}"));
    let mut frames = captures();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for n in 0..20_000 {
        let length = (random() % 200) as usize + 1;
        let mut noise: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        if n % 2 == 0 && length > 34 {
            noise[..6].copy_from_slice(&node_mac(0).0);
            let kind: [u8; 2] = [[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0]][(random() % 4) as usize];
            noise[12..14].copy_from_slice(&kind);
            noise[14] = if kind == [8, 0] { 0x45 } else { 0x60 };
        }
        frames.push(noise);
    }
    let mut outside = 0;
    for (n, mut frame) in frames.into_iter().enumerate() {
        // The captures were taken elsewhere: make them for this node, mostly.
        if n % 4 != 0 && frame.len() > 6 {
            frame[..6].copy_from_slice(&node_mac(0).0);
        }
        frame.truncate(1600);
        for sent in rig.exchange(n % 2, &frame) {
            outside += sent.len();
        }
        if n % 1000 == 0 {
            rig.wait(1);
        }
    }
    rig.wait(10);
    assert!(
        outside > 100,
        "some of it was forwarded or answered: {outside}"
    );
    rig.finish();
}

/// Reads the frames of the classic little-endian captures in `../shared/data/pcaps`, if they are there.
fn captures() -> Vec<Vec<u8>> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = here.ancestors().map(|up| up.join("shared/data/pcaps"));
    let Some(folder) = folders.into_iter().find(|folder| folder.is_dir()) else {
        lab::need::need(
            "captures_and_noise_are_accounted_for",
            "../shared/data/pcaps",
            false,
        );
        return Vec::new();
    };
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("an entry").path();
        let name = path.to_string_lossy().into_owned();
        if !name.ends_with(".pcap") && !name.ends_with(".pcap.gz") {
            continue;
        }
        let mut bytes = std::fs::read(&path).expect("the file can be read");
        if name.ends_with(".gz") {
            let packed = core::mem::take(&mut bytes);
            std::io::Read::read_to_end(&mut GzDecoder::new(&packed[..]), &mut bytes)
                .expect("a whole gzip file");
        }
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
        };
        let mut at = 24;
        while let Some(length) = word(at + 8) {
            let Some(frame) = bytes.get(at + 16..at + 16 + length as usize) else {
                break;
            };
            frames.push(frame.iter().copied().take(1600).collect());
            at += 16 + length as usize;
        }
    }
    assert!(frames.len() > 100, "{} frames", frames.len());
    frames
}
