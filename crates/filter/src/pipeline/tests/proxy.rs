//! The SYN proxy (RFC 4987 3.6 and 3.8): no state before the client has proved itself, then translated numbers.

use super::*;
use crate::guard::{Guard, GuardPolicy};
use crate::nat::rewrite::set_window;
use crate::packet::{CtState, CtStatus, Packet};
use crate::testing::TcpFrame;
use crate::track::tcp::TcpState;
use crate::verdict::{Effects, Synproxy, Verdict};
use tables::signature::Keyed;
use wire::tcp::{Flags, SackBlocks, TcpOption, View};

/// Connections from inside, masqueraded, each answered by the node first.
struct Proxying {
    rules: Stateful,
    options: Synproxy,
}

impl Rules for Proxying {
    fn epoch(&self) -> u32 {
        self.rules.epoch()
    }
    fn has(&self, stage: Stage, hook: Hook) -> bool {
        self.rules.has(stage, hook)
    }
    fn judge(&mut self, stage: Stage, packet: &mut Packet<'_>, effects: &mut Effects) -> Verdict {
        if stage == Stage::Filter && packet.ct.state == CtState::NEW {
            effects.synproxy = Some(self.options);
        }
        self.rules.judge(stage, packet, effects)
    }
}

const ALL: Synproxy = Synproxy {
    mss: 1460,
    window_scale: Some(7),
    timestamps: true,
    sack: true,
};
const CLIENT: (Ipv4Addr, u16) = (HOST, 5000);
const SERVER: (Ipv4Addr, u16) = (PEER, 80);
/// First numbers and clocks.
const CLIENT_FIRST: u32 = 0xffff_ff00;
const SERVER_FIRST: u32 = 77;
const CLIENT_CLOCK: u32 = 1111;
const SERVER_CLOCK: u32 = 0xffff_fff0;

fn proxying(options: Synproxy) -> Rig<Proxying> {
    let rig = Rig::new(TrackPolicy::default());
    Rig {
        worker: rig.worker,
        rules: Proxying {
            rules: rig.rules,
            options,
        },
        now: rig.now,
    }
}

/// What a segment says.
#[derive(Debug)]
struct Said {
    key: FlowKey,
    sequence: u32,
    ack: u32,
    flags: Flags,
    window: u16,
    mss: Option<u16>,
    scale: Option<u8>,
    sack_permitted: bool,
    stamps: Option<(u32, u32)>,
    blocks: Vec<(u32, u32)>,
    payload: Vec<u8>,
}

fn said(frame: &[u8]) -> Said {
    let layout = parse(frame).unwrap();
    let state = wire::checksum::verify_transport(&layout, frame);
    assert_eq!(state, wire::checksum::TransportChecksum::Good);
    let view = View::new(&frame[layout.transport.into()..layout.end.into()]).unwrap();
    let mut said = Said {
        key: key_of(frame),
        sequence: view.sequence(),
        ack: view.acknowledgement(),
        flags: view.flags(),
        window: view.window(),
        mss: None,
        scale: None,
        sack_permitted: false,
        stamps: None,
        blocks: Vec::new(),
        payload: view.payload().to_vec(),
    };
    for option in view.options() {
        match option.unwrap() {
            TcpOption::MaximumSegmentSize(mss) => said.mss = Some(mss),
            TcpOption::WindowScale(scale) => said.scale = Some(scale),
            TcpOption::SackPermitted => said.sack_permitted = true,
            TcpOption::Timestamps { value, echo } => said.stamps = Some((value, echo)),
            TcpOption::Sack(blocks) => said.blocks = blocks.as_slice().to_vec(),
            other => panic!("{other:?}"),
        }
    }
    said
}

fn segment(
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    flags: Flags,
    (sequence, acknowledgement): (u32, u32),
    options: &[TcpOption<'_>],
    payload: &[u8],
) -> Vec<u8> {
    TcpFrame {
        sequence,
        acknowledgement,
        options,
        payload,
        ..TcpFrame::new(v4(from.0, to.0), (from.1, to.1), flags)
    }
    .frame()
}

fn syn(options: &[TcpOption<'_>]) -> Vec<u8> {
    segment(CLIENT, SERVER, Flags::SYN, (CLIENT_FIRST, 0), options, b"")
}

const OFFER: [TcpOption<'_>; 4] = [
    TcpOption::MaximumSegmentSize(1400),
    TcpOption::SackPermitted,
    TcpOption::Timestamps {
        value: CLIENT_CLOCK,
        echo: 0,
    },
    TcpOption::WindowScale(9),
];

const fn stamps(value: u32, echo: u32) -> TcpOption<'static> {
    TcpOption::Timestamps { value, echo }
}

/// Sends the SYN; returns the cookie's SYN-ACK.
fn ask<R: Rules>(rig: &mut Rig<R>, options: &[TcpOption<'_>]) -> Said {
    let asked = rig.send(INSIDE, syn(options));
    assert_eq!(asked, Err(Fate::Drop(DropReason::GuardSynCookie)));
    let [cookie] = &rig.emissions()[..] else {
        panic!("one SYN-ACK")
    };
    let cookie = said(cookie);
    assert_eq!(cookie.flags, Flags::SYN | Flags::ACK);
    assert_eq!(
        (cookie.ack, cookie.window),
        (CLIENT_FIRST.wrapping_add(1), 0)
    );
    assert_eq!(cookie.key.destination, mapped(HOST.to_bits()));
    assert_eq!(rig.worker.shared().connections(), 0, "no state");
    cookie
}

/// The client's answer to a cookie.
fn proof(cookie: &Said) -> Vec<u8> {
    let option = cookie
        .stamps
        .map(|(clock, _)| stamps(CLIENT_CLOCK + 1, clock));
    let numbers = (
        CLIENT_FIRST.wrapping_add(1),
        cookie.sequence.wrapping_add(1),
    );
    segment(CLIENT, SERVER, Flags::ACK, numbers, option.as_slice(), b"")
}

/// Answers the cookie; returns what the server gets, and where its answer goes.
fn prove<R: Rules>(rig: &mut Rig<R>, cookie: &Said) -> (Said, (Ipv4Addr, u16)) {
    assert_eq!(rig.send(INSIDE, proof(cookie)), Err(Fate::Consumed));
    let [sent] = &rig.emissions()[..] else {
        panic!("one SYN")
    };
    let outer = source_of(sent);
    assert_eq!(outer.0, OUTER, "masqueraded");
    assert_eq!(rig.worker.shared().connections(), 1);
    (said(sent), outer)
}

fn server_answers(outer: (Ipv4Addr, u16), flags: Flags, options: &[TcpOption<'_>]) -> Vec<u8> {
    let numbers = (SERVER_FIRST, CLIENT_FIRST.wrapping_add(1));
    segment(SERVER, outer, flags, numbers, options, b"")
}

#[test]
fn row_86_numbers_stamps_blocks_and_windows_are_translated_for_the_life_of_the_flow() {
    let mut rig = proxying(ALL);
    let cookie = ask(&mut rig, &OFFER);
    assert_eq!((cookie.mss, cookie.scale), (Some(1460), Some(7)));
    assert!(cookie.sack_permitted);
    let (clock, echo) = cookie.stamps.unwrap();
    assert_eq!(echo, CLIENT_CLOCK);
    let (sent, outer) = prove(&mut rig, &cookie);
    assert_eq!((sent.flags, sent.sequence), (Flags::SYN, CLIENT_FIRST));
    assert_eq!((sent.mss, sent.scale), (Some(1400), Some(9)));
    assert!(sent.sack_permitted);
    assert_eq!(sent.stamps, Some((CLIENT_CLOCK + 1, 0)));

    // The server announces another scale than the node did.
    let mut options = OFFER;
    options[2] = stamps(SERVER_CLOCK, CLIENT_CLOCK + 1);
    options[3] = TcpOption::WindowScale(10);
    let answer = server_answers(outer, Flags::SYN | Flags::ACK, &options);
    assert_eq!(rig.send(OUTSIDE, answer.clone()), Err(Fate::Consumed));
    let [to_server, to_client] = &rig.emissions()[..] else {
        panic!("two ACKs")
    };
    let (to_server, to_client) = (said(to_server), said(to_client));
    assert_eq!((to_server.flags, to_client.flags), (Flags::ACK, Flags::ACK));
    let next = CLIENT_FIRST.wrapping_add(1);
    assert_eq!(
        (to_server.sequence, to_server.ack),
        (next, SERVER_FIRST + 1)
    );
    assert_eq!(to_server.stamps, Some((CLIENT_CLOCK + 1, SERVER_CLOCK)));
    assert_eq!(to_server.key.destination_port, 80);
    let due = cookie.sequence.wrapping_add(1);
    assert_eq!((to_client.sequence, to_client.ack), (due, next));
    assert_eq!(to_client.stamps, Some((clock, CLIENT_CLOCK + 1)));
    assert_eq!(to_client.window, 1000 >> 7, "a SYN's window has no scale");
    assert_eq!(to_client.key.destination_port, 5000);

    // Data of the server, a tick later, with a window in its own scale.
    let numbers = (SERVER_FIRST + 1, next);
    let option = [stamps(SERVER_CLOCK.wrapping_add(100), CLIENT_CLOCK + 1)];
    let flags = Flags::ACK | Flags::PSH;
    let data = segment(SERVER, outer, flags, numbers, &option, b"hello");
    let got = said(&rig.send(OUTSIDE, data).unwrap());
    assert_eq!((got.sequence, got.ack), (due, next));
    assert_eq!(
        got.stamps,
        Some((clock.wrapping_add(100), CLIENT_CLOCK + 1))
    );
    assert_eq!((got.window, &got.payload[..]), (1000 << 3, &b"hello"[..]));

    // The client acknowledges, selectively, at an odd offset.
    let ack = due.wrapping_add(5);
    let block = SackBlocks::new(&[(due.wrapping_add(1), due.wrapping_add(4))]);
    let options = [
        TcpOption::NoOperation,
        TcpOption::Sack(block),
        stamps(CLIENT_CLOCK + 2, clock.wrapping_add(100)),
    ];
    let data = segment(CLIENT, SERVER, Flags::ACK, (next, ack), &options, b"hi");
    let got = said(&rig.send(INSIDE, data).unwrap());
    assert_eq!((got.sequence, got.ack), (next, SERVER_FIRST + 6));
    assert_eq!(got.blocks, [(SERVER_FIRST + 2, SERVER_FIRST + 5)]);
    let stamp = (CLIENT_CLOCK + 2, SERVER_CLOCK.wrapping_add(100));
    assert_eq!((got.stamps, &got.payload[..]), (Some(stamp), &b"hi"[..]));

    // The server's SYN-ACK once more: a lost ACK. The client sees it in its numbers, and acknowledges it.
    let again = said(&rig.send(OUTSIDE, answer).unwrap());
    assert_eq!((again.sequence, again.ack), (cookie.sequence, next));
    let (found, _) = rig
        .worker
        .shared()
        .connection_of(&key_of(&proof(&cookie)), rig.now)
        .unwrap();
    assert_eq!(found.tcp, Some(TcpState::Established));
    assert!(found.status.contains(CtStatus::ASSURED | CtStatus::SNAT));
}

#[test]
fn row_86_without_timestamps_only_the_segment_size_is_agreed_on() {
    let none = Synproxy {
        timestamps: false,
        ..ALL
    };
    for (options, offer) in [(none, &OFFER[..]), (ALL, &OFFER[..2])] {
        let mut rig = proxying(options);
        let cookie = ask(&mut rig, offer);
        assert_eq!((cookie.scale, cookie.stamps), (None, None));
        assert!(!cookie.sack_permitted);
        let (sent, _) = prove(&mut rig, &cookie);
        assert_eq!(
            (sent.mss, sent.scale, sent.stamps),
            (Some(1400), None, None)
        );
        assert!(!sent.sack_permitted);
    }
}

#[test]
fn row_86_who_answers_no_cookie_gets_no_state() {
    let mut rig = proxying(ALL);
    let cookie = ask(&mut rig, &OFFER);
    let wrong = Said {
        sequence: cookie.sequence ^ 0x100,
        ..cookie
    };
    let answered = rig.send(INSIDE, proof(&wrong));
    assert_eq!(answered, Err(Fate::Drop(DropReason::GuardSynCookie)));
    assert_eq!(rig.worker.shared().connections(), 0);
    // Right, but two minutes late.
    rig.wait(Duration::from_secs(130));
    let answered = rig.send(
        INSIDE,
        proof(&Said {
            sequence: wrong.sequence ^ 0x100,
            ..wrong
        }),
    );
    assert_eq!(answered, Err(Fate::Drop(DropReason::GuardSynCookie)));
    assert_eq!(rig.worker.shared().connections(), 0);
    assert!(rig.emissions().is_empty());
}

#[test]
fn a_client_that_waits_has_the_syn_sent_again_and_a_refusal_reaches_it_in_its_numbers() {
    let mut rig = proxying(ALL);
    let cookie = ask(&mut rig, &OFFER);
    let (first, outer) = prove(&mut rig, &cookie);
    // The ACK again, and a probe of the closed window, one number below.
    let (due, clock) = (cookie.sequence.wrapping_add(1), cookie.stamps.unwrap().0);
    let option = [stamps(CLIENT_CLOCK + 1, clock)];
    let probe = segment(
        CLIENT,
        SERVER,
        Flags::ACK,
        (CLIENT_FIRST, due),
        &option,
        b"",
    );
    for frame in [proof(&cookie), probe] {
        assert_eq!(rig.send(INSIDE, frame), Err(Fate::Consumed));
        let [again] = &rig.emissions()[..] else {
            panic!("one SYN")
        };
        let again = said(again);
        assert_eq!((again.key, again.sequence), (first.key, first.sequence));
        assert_eq!((again.flags, again.scale), (Flags::SYN, Some(9)));
    }
    assert_eq!(rig.worker.shared().connections(), 1);
    // A reset that acknowledges something else is none of the connection's.
    let forged = segment(SERVER, outer, Flags::RST | Flags::ACK, (0, 5), &[], b"");
    let forged = rig.send(OUTSIDE, forged);
    assert_eq!(forged, Err(Fate::Drop(DropReason::CtInvalid)));
    let numbers = (0, CLIENT_FIRST.wrapping_add(1));
    let refusal = segment(SERVER, outer, Flags::RST | Flags::ACK, numbers, &[], b"");
    let told = said(&rig.send(OUTSIDE, refusal).unwrap());
    assert_eq!((told.sequence, told.flags), (due, Flags::RST | Flags::ACK));
    assert_eq!(told.key.destination, mapped(HOST.to_bits()));
}

#[test]
fn row_86_and_87_a_flood_is_answered_by_cookies_and_known_flows_do_not_notice() {
    let mut rig = Rig::new(TrackPolicy::default());
    let policy = GuardPolicy {
        destination_connections: 100,
        ..GuardPolicy::default()
    };
    let guard = Guard::new(policy, 1, Keyed::new([1, 2, 3, 4]));
    rig.worker.guard = Arc::new(guard).join(0);
    // A flow from before: open, and sending during the flood.
    let known = (OTHER_HOST, 700);
    let first = segment(known, SERVER, Flags::SYN, (1, 0), &[], b"");
    let outer = source_of(&rig.send(INSIDE, first).unwrap());
    let answer = segment(SERVER, outer, Flags::SYN | Flags::ACK, (1, 2), &[], b"");
    rig.send(OUTSIDE, answer).unwrap();
    rig.send(INSIDE, segment(known, SERVER, Flags::ACK, (2, 2), &[], b""))
        .unwrap();

    let (mut passed, mut cookies) = (0, 0);
    for n in 0..20_000_u32 {
        rig.now = rig.now + Duration::from_micros(50);
        let from = (
            Ipv4Addr::from_bits(0x0a10_0000 + n),
            1000 + n as u16 % 50_000,
        );
        let flood = segment(from, SERVER, Flags::SYN, (n, 0), &[], b"");
        if rig.send(INSIDE, flood) == Err(Fate::Drop(DropReason::GuardSynCookie)) {
            cookies += rig.emissions().len();
        }
        if n % 10 == 0 {
            let data = segment(known, SERVER, Flags::ACK, (2, 2), &[], b"data");
            passed += u32::from(rig.send(INSIDE, data).is_ok());
        }
    }
    assert_eq!(passed, 2000, "known flows keep all of their goodput");
    assert!(cookies >= 19_800, "{cookies}");
    // What came before the threshold had been passed.
    let state = rig.worker.shared().connections();
    assert!(state <= 201, "{state}");
    // A client that is there comes through, a guess does not.
    let before = state;
    rig.send(INSIDE, syn(&OFFER)).unwrap_err();
    let cookie = said(&rig.emissions()[0]);
    let wrong = Said {
        sequence: cookie.sequence ^ 0x100,
        ..cookie
    };
    let guess = rig.send(INSIDE, proof(&wrong));
    assert_eq!(guess, Err(Fate::Drop(DropReason::GuardSynCookie)));
    let cookie = Said {
        sequence: wrong.sequence ^ 0x100,
        ..wrong
    };
    assert_eq!(rig.send(INSIDE, proof(&cookie)), Err(Fate::Consumed));
    assert_eq!(rig.worker.shared().connections(), before + 1);
    let event = rig.worker.guard.as_ref().unwrap().events[0];
    assert_eq!(
        (event.limit, event.action),
        (100, crate::guard::Action::Cookie)
    );
    assert!(event.measured > 100);
}

proptest::proptest! {
    #[test]
    fn whatever_comes_in_a_proxied_connection_nothing_panics(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40), flags in 0_u16..512, window: u16,
    ) {
        let mut rig = proxying(ALL);
        let cookie = ask(&mut rig, &OFFER);
        let (_, outer) = prove(&mut rig, &cookie);
        for round in 0..2 {
            for (from, to, iif) in [(CLIENT, SERVER, INSIDE), (SERVER, outer, OUTSIDE)] {
                let numbers = (CLIENT_FIRST.wrapping_add(1), cookie.sequence.wrapping_add(1));
                let flags = Flags::from_bits_truncate(flags);
                let mut frame = segment(from, to, flags, numbers, &[], &bytes);
                // The payload becomes options, as far as whole words go.
                let words = 5 + bytes.len() as u8 / 4;
                frame[34 + 12] = words << 4 | frame[34 + 12] & 15;
                let layout = parse(&frame).unwrap();
                wire::checksum::fill_transport(&layout, &mut frame);
                let _ = set_window(&mut frame, &layout, window);
                let _ = rig.send(iif, frame);
            }
            if round == 0 {
                rig.emissions();
                let answer = server_answers(outer, Flags::SYN | Flags::ACK, &OFFER);
                let _ = rig.send(OUTSIDE, answer);
            }
        }
    }
}
