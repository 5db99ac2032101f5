//! Inspected protocols through the engine: what is said is changed with the translation, and what is expected comes.

use alloc::vec;

use wire::tcp::{self, Flags, SackBlocks, TcpOption};

use super::*;
use crate::alg::Helper;
use crate::packet::{CtState, CtStatus, Hook, Packet};
use crate::testing::TcpFrame;
use crate::verdict::{Changes, Effects, Verdict};

const FTP: (Ipv4Addr, u16) = (PEER, 21);

/// Attaches a helper to every new connection.
struct Helped {
    stateful: Stateful,
    helper: Helper,
    /// States that the forward chain saw.
    states: Vec<CtState>,
}

impl Rules for Helped {
    fn epoch(&self) -> u32 {
        self.stateful.epoch
    }

    fn has(&self, stage: Stage, hook: Hook) -> bool {
        self.stateful.has(stage, hook)
    }

    fn judge(&mut self, stage: Stage, packet: &mut Packet<'_>, effects: &mut Effects) -> Verdict {
        if stage == Stage::Filter && packet.hook == Hook::Forward {
            self.states.push(packet.ct.state);
            if packet.ct.state == CtState::NEW && packet.layout.protocol == self.helper.protocol() {
                packet.ct.helper = self.helper.id();
                effects.changes |= Changes::CT_HELPER;
            }
        }
        self.stateful.judge(stage, packet, effects)
    }
}

fn helped(helper: Helper) -> Rig<Helped> {
    with_helper(Rig::new(TrackPolicy::default()), helper)
}

fn with_helper(Rig { worker, rules, now }: Rig, helper: Helper) -> Rig<Helped> {
    Rig {
        worker,
        rules: Helped {
            stateful: rules,
            helper,
            states: Vec::new(),
        },
        now,
    }
}

impl Rig<Helped> {
    /// The packet as it goes on, whether changed in place or sent anew.
    fn through(&mut self, iif: InterfaceId, frame: Vec<u8>) -> Vec<u8> {
        let frame = match self.send(iif, frame) {
            Ok(frame) => frame,
            Err(Fate::Consumed) => {
                let mut sent = self.emissions();
                assert_eq!(sent.len(), 1);
                sent.remove(0)
            }
            Err(fate) => panic!("{fate:?}"),
        };
        let layout = parse(&frame).unwrap();
        let state = wire::checksum::verify_transport(&layout, &frame);
        assert_eq!(state, wire::checksum::TransportChecksum::Good);
        frame
    }

    fn tcp(&mut self, from_client: bool, numbers: (u32, u32), payload: &[u8]) -> Vec<u8> {
        let frame = segment(from_client, Flags::ACK, numbers, payload);
        self.through(if from_client { INSIDE } else { OUTSIDE }, frame)
    }

    /// Opens the control connection: the client's next number is 1001, the server's 5001.
    fn open_ftp(&mut self) {
        for (from_client, flags, numbers) in [
            (true, Flags::SYN, (1000, 0)),
            (false, Flags::SYN | Flags::ACK, (5000, 1001)),
            (true, Flags::ACK, (1001, 5001)),
        ] {
            let iif = if from_client { INSIDE } else { OUTSIDE };
            self.through(iif, segment(from_client, flags, numbers, b""));
        }
    }

    fn expected(&self) -> Vec<FlowKey> {
        let mut keys = Vec::new();
        let expectations = self.worker.shared().expectations();
        expectations.each(|key, _| keys.push(*key));
        assert_eq!(keys.len(), expectations.count());
        keys
    }
}

/// A segment of the control connection between HOST:4000, seen as OUTER:4000, and the server.
fn segment(from_client: bool, flags: Flags, numbers: (u32, u32), payload: &[u8]) -> Vec<u8> {
    let (addresses, ports) = if from_client {
        (v4(HOST, FTP.0), (4000, FTP.1))
    } else {
        (v4(FTP.0, OUTER), (FTP.1, 4000))
    };
    TcpFrame {
        sequence: numbers.0,
        acknowledgement: numbers.1,
        payload,
        ..TcpFrame::new(addresses, ports, flags)
    }
    .frame()
}

fn syn(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    TcpFrame::new(v4(from.0, to.0), (from.1, to.1), Flags::SYN).frame()
}

fn payload(frame: &[u8]) -> &[u8] {
    let layout = parse(frame).unwrap();
    &frame[layout.payload.into()..layout.end.into()]
}

fn numbers(frame: &[u8]) -> (u32, u32) {
    let layout = parse(frame).unwrap();
    let view = tcp::View::new(&frame[layout.transport.into()..]).unwrap();
    (view.sequence(), view.acknowledgement())
}

/// `h1,h2,h3,h4,p1,p2` somewhere in a line.
fn endpoint(line: &[u8]) -> (Ipv4Addr, u16) {
    let text = core::str::from_utf8(line).unwrap();
    let digits = text.trim_start_matches("PORT ").trim_end();
    let values: Vec<u8> = digits.split(',').map(|one| one.parse().unwrap()).collect();
    let address = Ipv4Addr::new(values[0], values[1], values[2], values[3]);
    (address, u16::from_be_bytes([values[4], values[5]]))
}

#[test]
fn row_78_active_ftp_is_let_in_and_numbers_are_adjusted() {
    let mut rig = helped(Helper::Ftp);
    rig.open_ftp();
    let port = b"PORT 10,0,0,1,195,80\r\n";
    let sent = rig.tcp(true, (1001, 5001), port);
    assert_eq!(source_of(&sent), (OUTER, 4000));
    let (address, outer_port) = endpoint(payload(&sent));
    assert_eq!(address, OUTER);
    assert_eq!(rig.expected().len(), 1);
    let grown = payload(&sent).len() as u32 - port.len() as u32;
    assert!(grown > 0);
    // Sent again, it says the same with the same numbers; nothing more is expected.
    let again = rig.tcp(true, (1001, 5001), port);
    assert_eq!(
        (payload(&again), numbers(&again)),
        (payload(&sent), numbers(&sent))
    );
    assert_eq!((numbers(&again), rig.expected().len()), ((1001, 5001), 1));
    // What follows is further on for the server, and its acknowledgements are taken back for the client.
    let end = 1001 + port.len() as u32;
    let ack = rig.tcp(false, (5001, end + grown), b"200 ok\r\n");
    assert_eq!(numbers(&ack), (5001, end));
    let retr = rig.tcp(true, (end, 5009), b"RETR x\r\n");
    assert_eq!(
        (numbers(&retr), payload(&retr)),
        ((end + grown, 5009), &b"RETR x\r\n"[..])
    );
    // The first one once more: still as it was.
    let again = rig.tcp(true, (1001, 5009), port);
    assert_eq!(
        (payload(&again), numbers(&again)),
        (payload(&sent), (1001, 5009))
    );
    // Nobody but the server is expected.
    let stranger = rig.send(OUTSIDE, syn((OTHER_PEER, 20), (OUTER, outer_port)));
    assert_eq!(stranger, Err(Fate::Drop(DropReason::FirewallRule)));
    rig.rules.states.clear();
    let data = rig.through(OUTSIDE, syn((PEER, 20), (OUTER, outer_port)));
    assert_eq!(destination_of(&data), (HOST, 195 * 256 + 80));
    assert_eq!(
        (rig.rules.states.as_slice(), rig.expected().len()),
        (&[CtState::RELATED][..], 0)
    );
    let key = key_of(&syn((PEER, 20), (OUTER, outer_port)));
    let (connection, _) = rig.worker.shared().connection_of(&key, rig.now).unwrap();
    assert!(
        connection
            .status
            .contains(CtStatus::EXPECTED | CtStatus::DNAT)
    );
    // One connection for one command.
    let second = rig.send(OUTSIDE, syn((PEER, 21), (OUTER, outer_port)));
    assert_eq!(second, Err(Fate::Drop(DropReason::FirewallRule)));
    // The answer of the client leaves by the port that was announced.
    let mut answer = TcpFrame::new(
        v4(HOST, PEER),
        (195 * 256 + 80, 20),
        Flags::SYN | Flags::ACK,
    );
    answer.acknowledgement = 1;
    let answer = rig.through(INSIDE, answer.frame());
    assert_eq!(source_of(&answer), (OUTER, outer_port));
}

#[test]
fn what_is_expected_outlives_its_process_with_its_port() {
    use crate::pipeline::recovery::tests::{KEY, START, rig_of};
    use crate::pipeline::{Recovery, SharedMemory};
    use tables::segment::Segment;

    let sizes = small();
    let bytes = Segment::OVERHEAD_BYTES + SharedMemory::segment_bytes(&sizes);
    let file = Segment::memfd("expected", bytes, 1).unwrap();
    let open = || -> (Rig<Helped>, Recovery) {
        let memory = SharedMemory::from_source(&mut &file, &sizes).unwrap();
        let policy = TrackPolicy::default();
        let (shared, recovery) = Shared::recover(&sizes, policy, KEY, memory, START);
        let rig = rig_of(&alloc::sync::Arc::new(shared), 0, START);
        (with_helper(rig, Helper::Ftp), recovery)
    };
    let (mut rig, _) = open();
    rig.open_ftp();
    let sent = rig.tcp(true, (1001, 5001), b"PORT 10,0,0,1,195,80\r\n");
    let (_, outer_port) = endpoint(payload(&sent));
    drop(rig);
    let (mut rig, recovery) = open();
    assert_eq!((recovery.expectations, recovery.repairs()), (1, 0));
    assert_eq!((recovery.nat.mappings, rig.expected().len()), (2, 1));
    let data = rig.through(OUTSIDE, syn((PEER, 20), (OUTER, outer_port)));
    assert_eq!(destination_of(&data), (HOST, 195 * 256 + 80));
    assert_eq!(rig.rules.states, [CtState::RELATED]);
    assert!(rig.expected().is_empty());
    // What waits too long gives its mapping back, whoever it was that asked for it.
    rig.tcp(true, (1023, 5001), b"PORT 10,0,0,1,195,81\r\n");
    rig.tcp(true, (1045, 5001), b"PORT 10,0,0,1,195,81\r\n");
    drop(rig);
    let (mut rig, recovery) = open();
    assert_eq!((recovery.expectations, recovery.nat.mappings), (1, 3));
    for _ in 0..2 {
        // Beyond the quarantine of its port as well.
        rig.now = rig.now + core::time::Duration::from_secs(700);
        rig.worker.maintain(rig.now, usize::MAX / 2);
        rig.worker.maintain(rig.now, usize::MAX / 2);
    }
    assert!(rig.expected().is_empty());
    let inner = crate::nat::mapping::Endpoint {
        address: HOST.to_bits(),
        port: 195 * 256 + 81,
        space: crate::nat::mapping::PortSpace::Tcp,
    };
    assert_eq!(rig.worker.shared().nat().outer_of(inner), None);
}

#[test]
fn row_78_two_commands_add_up_and_selective_acknowledgements_follow() {
    let mut rig = helped(Helper::Ftp);
    rig.open_ftp();
    let port = b"PORT 10,0,0,1,4,1\r\n";
    let first = rig.tcp(true, (1001, 5001), port);
    let grown = payload(&first).len() as u32 - port.len() as u32;
    let end = 1001 + port.len() as u32;
    rig.tcp(false, (5001, end + grown), b"200 ok\r\n");
    let eprt = b"EPRT |1|10.0.0.1|1026|\r\n";
    let second = rig.tcp(true, (end, 5009), eprt);
    assert_eq!(payload(&second), b"EPRT |1|203.0.113.1|1026|\r\n");
    assert_eq!(numbers(&second), (end + grown, 5009));
    let more = grown + payload(&second).len() as u32 - eprt.len() as u32;
    let end = end + eprt.len() as u32;
    // The server has what comes after a gap: in its own numbers.
    let third = rig.tcp(true, (end + 6, 5009), b"NOOP\r\n");
    assert_eq!(numbers(&third).0, end + 6 + more);
    let block = (end + 6 + more, end + 12 + more);
    let mut ack = TcpFrame::new(v4(PEER, OUTER), (21, 4000), Flags::ACK);
    let sack = [TcpOption::Sack(SackBlocks::new(&[block]))];
    (ack.sequence, ack.acknowledgement, ack.options) = (5009, end + more, &sack);
    let ack = rig.through(OUTSIDE, ack.frame());
    assert_eq!(numbers(&ack), (5009, end));
    let layout = parse(&ack).unwrap();
    let view = tcp::View::new(&ack[layout.transport.into()..]).unwrap();
    let blocks = view.options().find_map(|option| match option {
        Ok(TcpOption::Sack(blocks)) => Some(blocks),
        _ => None,
    });
    assert_eq!(blocks.unwrap().as_slice(), &[(end + 6, end + 12)]);
}

#[test]
fn row_78_a_command_in_pieces_leaves_as_one() {
    let mut rig = helped(Helper::Ftp);
    rig.open_ftp();
    let port = b"PORT 10,0,0,1,4,1\r\n";
    for (at, piece) in [(0, &port[..3]), (0, &port[..3]), (3, &port[3..12])] {
        // The client is told that it came; the server sees nothing yet.
        let ack = rig.tcp(true, (1001 + at, 5001), piece);
        assert_eq!((source_of(&ack), destination_of(&ack)), (FTP, (HOST, 4000)));
        assert_eq!(numbers(&ack), (5001, 1001 + at + piece.len() as u32));
        assert!(payload(&ack).is_empty());
    }
    for _ in 0..2 {
        let sent = rig.tcp(true, (1013, 5001), &port[12..]);
        assert_eq!(
            (numbers(&sent), payload(&sent)),
            ((1001, 5001), &b"PORT 203,0,113,1,4,1\r\n"[..])
        );
    }
    assert_eq!(rig.expected().len(), 1);
    let noop = rig.tcp(true, (1001 + port.len() as u32, 5001), b"NOOP\r\n");
    assert_eq!(numbers(&noop).0, 1001 + port.len() as u32 + 3);
}

#[test]
fn row_78_passive_ftp_is_related_and_follows_its_master() {
    let mut rig = helped(Helper::Ftp);
    rig.open_ftp();
    let answer = b"227 Entering Passive Mode (198,51,100,7,200,1)\r\n";
    let sent = rig.tcp(false, (5001, 1001), answer);
    assert_eq!(payload(&sent), answer);
    rig.rules.states.clear();
    let data = rig.through(INSIDE, syn((HOST, 4001), (PEER, 51201)));
    assert_eq!(
        (source_of(&data), destination_of(&data)),
        ((OUTER, 4001), (PEER, 51201))
    );
    assert_eq!(
        (rig.rules.states.as_slice(), rig.expected().len()),
        (&[CtState::RELATED][..], 0)
    );
    // An extended one has no address.
    rig.tcp(
        false,
        (5001 + answer.len() as u32, 1001),
        b"229 Entering (|||51202|)\r\n",
    );
    rig.rules.states.clear();
    rig.through(INSIDE, syn((HOST, 4002), (PEER, 51202)));
    assert_eq!(rig.rules.states, [CtState::RELATED]);
    // Nobody asked for this one.
    rig.rules.states.clear();
    rig.through(INSIDE, syn((HOST, 4003), (PEER, 51203)));
    assert_eq!(rig.rules.states, [CtState::NEW]);
}

#[test]
fn row_85_what_is_expected_is_bounded_and_given_up() {
    let mut rig = helped(Helper::Ftp);
    rig.open_ftp();
    let mut sequence = 5001;
    let mut refused = 0;
    for port in 0..40_u32 {
        let line = alloc::format!("227 (198,51,100,7,100,{port})\r\n");
        let frame = segment(false, Flags::ACK, (sequence, 1001), line.as_bytes());
        match rig.send(OUTSIDE, frame) {
            Ok(_) => sequence += line.len() as u32,
            Err(fate) => {
                assert_eq!(fate, Fate::Drop(DropReason::AlgMalformed));
                refused += 1;
                break;
            }
        }
    }
    assert_eq!((rig.expected().len(), refused), (16, 1));
    // A command of somebody inside uses a mapping; that one is given back as well.
    let before = rig.worker.shared().nat().mappings();
    rig.wait(Duration::from_secs(70));
    assert_eq!((rig.expected().len(), before), (0, 1));
    let mut rig = helped(Helper::Ftp);
    rig.open_ftp();
    rig.tcp(true, (1001, 5001), b"PORT 10,0,0,1,4,1\r\n");
    assert_eq!(rig.worker.shared().nat().mappings(), 2);
    rig.wait(Duration::from_secs(200));
    assert_eq!(
        (rig.expected().len(), rig.worker.shared().nat().mappings()),
        (0, 1)
    );
}

#[test]
fn row_13_and_26_without_a_rule_nothing_is_inspected() {
    let mut rig = Rig::new(TrackPolicy::default());
    for (from_client, flags, numbers) in [
        (true, Flags::SYN, (1000, 0)),
        (false, Flags::SYN | Flags::ACK, (5000, 1001)),
    ] {
        let iif = if from_client { INSIDE } else { OUTSIDE };
        rig.send(iif, segment(from_client, flags, numbers, b""))
            .unwrap();
    }
    let port = b"PORT 10,0,0,1,4,1\r\n";
    let frame = segment(true, Flags::ACK, (1001, 5001), port);
    assert_eq!(payload(&rig.send(INSIDE, frame).unwrap()), port);
    let request = b"\0\x01file\0octet\0";
    let read = udp_frame(v4(HOST, PEER), (5000, 69), request);
    assert_eq!(payload(&rig.send(INSIDE, read).unwrap()), request);
    assert_eq!(rig.back((PEER, 777), (OUTER, 5000)), DROPPED);
    assert_eq!(rig.worker.shared().expectations().count(), 0);
}

#[test]
fn row_79_tftp_answers_from_a_new_port() {
    let mut rig = helped(Helper::Tftp);
    let read = udp_frame(v4(HOST, PEER), (5000, 69), b"\0\x01file\0octet\0");
    let sent = rig.through(INSIDE, read.clone());
    let outer = source_of(&sent);
    // Asked again, expected once.
    rig.through(INSIDE, read);
    assert_eq!(rig.expected().len(), 1);
    let stranger = udp_frame(v4(OTHER_PEER, OUTER), (777, outer.1), b"\0\x03\0\x01data");
    assert_eq!(
        rig.send(OUTSIDE, stranger),
        Err(Fate::Drop(DropReason::FirewallRule))
    );
    let data = udp_frame(v4(PEER, OUTER), (777, outer.1), b"\0\x03\0\x01data");
    let data = rig.through(OUTSIDE, data);
    assert_eq!(destination_of(&data), (HOST, 5000));
    let ack = udp_frame(v4(HOST, PEER), (5000, 777), b"\0\x04\0\x01");
    assert_eq!(source_of(&rig.through(INSIDE, ack)), outer);
    // The mapping of both is given back when both have ended.
    rig.wait(Duration::from_secs(600));
    assert_eq!(rig.worker.shared().nat().mappings(), 0);
}

#[test]
fn row_84_a_name_is_answered_once() {
    let mut rig = helped(Helper::Dns);
    let message = |id: u8, answer: u8| vec![0, id, 1 | answer << 7, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let ask = |id| udp_frame(v4(HOST, PEER), (5000, 53), &message(id, 0));
    let tell = |id| udp_frame(v4(PEER, OUTER), (53, 5000), &message(id, 1));
    rig.through(INSIDE, ask(1));
    assert_eq!(
        rig.send(OUTSIDE, tell(2)),
        Err(Fate::Drop(DropReason::AlgMalformed))
    );
    rig.through(INSIDE, ask(2));
    rig.through(OUTSIDE, tell(2));
    rig.wait(Duration::from_secs(10));
    rig.through(OUTSIDE, tell(1));
    assert_eq!(
        rig.send(OUTSIDE, tell(1)),
        Err(Fate::Drop(DropReason::AlgMalformed))
    );
    rig.wait(Duration::from_secs(3));
    assert_eq!(rig.worker.shared().connections(), 0);
    let odd = udp_frame(v4(HOST, PEER), (5001, 53), b"short");
    assert_eq!(
        rig.send(INSIDE, odd),
        Err(Fate::Drop(DropReason::AlgMalformed))
    );
}

#[test]
fn addresses_of_others_open_nothing() {
    let mut rig = helped(Helper::Ftp);
    rig.open_ftp();
    let bounce = b"PORT 10,0,0,2,4,1\r\n";
    let sent = rig.tcp(true, (1001, 5001), bounce);
    assert_eq!((payload(&sent), rig.expected().len()), (&bounce[..], 0));
}

#[test]
fn row_80_a_call_through_masquerade() {
    let mut rig = helped(Helper::Sip);
    // Somebody else has the port already: the phone is seen at another.
    rig.out((OTHER_HOST, 5060), (OTHER_PEER, 9));
    let body = "v=0\r\no=a 1 1 IN IP4 10.0.0.1\r\nc=IN IP4 10.0.0.1\r\nm=audio 4000 RTP/AVP 0\r\n";
    let invite = alloc::format!(
        "INVITE sip:b@198.51.100.7 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1:5060\r\nContact: <sip:a@10.0.0.1>\r\n\
         Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let sent = rig.through(
        INSIDE,
        udp_frame(v4(HOST, PEER), (5060, 5060), invite.as_bytes()),
    );
    let (_, port) = source_of(&sent);
    assert_ne!(port, 5060);
    let text = core::str::from_utf8(payload(&sent)).unwrap();
    assert!(text.contains(&alloc::format!("Via: SIP/2.0/UDP 203.0.113.1:{port}\r\n")));
    assert!(text.contains(&alloc::format!("<sip:a@203.0.113.1:{port}>")));
    assert!(!text.contains("10.0.0.1"), "{text}");
    let (head, changed) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.ends_with(&alloc::format!("Content-Length: {}", changed.len())));
    // The answer finds the phone, and says where its media wait.
    let answer = alloc::format!(
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 203.0.113.1:{port};rport={port}\r\nContent-Type: application/sdp\r\n\r\n\
         c=IN IP4 198.51.100.7\r\nm=audio 6000 RTP/AVP 0\r\n"
    );
    let told = rig.through(
        OUTSIDE,
        udp_frame(v4(PEER, OUTER), (5060, port), answer.as_bytes()),
    );
    let text = core::str::from_utf8(payload(&told)).unwrap();
    assert!(
        text.contains("Via: SIP/2.0/UDP 10.0.0.1:5060;rport=5060\r\n"),
        "{text}"
    );
    // RTP and RTCP of both directions.
    assert_eq!(rig.expected().len(), 4);
    rig.rules.states.clear();
    for at in 0..2 {
        let media = rig.through(
            OUTSIDE,
            udp_frame(v4(PEER, OUTER), (6000 + at, 4000 + at), b"m"),
        );
        assert_eq!(destination_of(&media), (HOST, 4000 + at));
    }
    assert_eq!(rig.rules.states, [CtState::RELATED; 2]);
    let stranger = udp_frame(v4(OTHER_PEER, OUTER), (6000, 4000), b"m");
    assert_eq!(
        rig.send(OUTSIDE, stranger),
        Err(Fate::Drop(DropReason::FirewallRule))
    );
    // What the phone sends leaves by the port that was announced.
    let media = rig.through(INSIDE, udp_frame(v4(HOST, PEER), (4000, 6000), b"m"));
    assert_eq!(source_of(&media), (OUTER, 4000));
}

#[test]
fn row_81_a_stream_through_masquerade() {
    let mut rig = helped(Helper::Rtsp);
    rig.out((OTHER_HOST, 50_000), (OTHER_PEER, 9));
    rig.open_ftp();
    let setup = b"SETUP rtsp://s/a RTSP/1.0\r\nTransport: RTP/AVP;client_port=50000-50001\r\n\r\n";
    let sent = rig.tcp(true, (1001, 5001), setup);
    let text = core::str::from_utf8(payload(&sent)).unwrap();
    let (_, ports) = text.trim_end().split_once("client_port=").unwrap();
    let (first, second) = ports.split_once('-').unwrap();
    let (first, second): (u16, u16) = (first.parse().unwrap(), second.parse().unwrap());
    assert!(first != 50_000 && second == first + 1);
    rig.rules.states.clear();
    for (outer, inner) in [(first, 50_000), (second, 50_001)] {
        let media = udp_frame(v4(PEER, OUTER), (6970, outer), b"rtp");
        assert_eq!(destination_of(&rig.through(OUTSIDE, media)), (HOST, inner));
    }
    assert_eq!(rig.rules.states, [CtState::RELATED; 2]);
}
