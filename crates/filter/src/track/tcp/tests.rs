use super::*;

const O: CtDirection = CtDirection::Original;
const R: CtDirection = CtDirection::Reply;

fn segment(flags: Flags, sequence: u32, acknowledgement: u32, payload_bytes: u32) -> Segment {
    Segment {
        sequence,
        acknowledgement,
        window: 1000,
        flags,
        payload_bytes,
        scale: None,
        sack: None,
    }
}

/// A connection with numbers 1001 and 5001 next, windows of 1000 bytes.
fn open() -> Tcp {
    let mut tcp = Tcp::start(&segment(Flags::SYN, 1000, 0, 0), Pickup::None).unwrap();
    let answer = segment(Flags::SYN | Flags::ACK, 5000, 1001, 0);
    assert_eq!(tcp.judge(R, &answer), Outcome::Valid);
    assert_eq!(tcp.state, TcpState::SynReceived);
    let ack = segment(Flags::ACK, 1001, 5001, 0);
    assert_eq!(tcp.judge(O, &ack), Outcome::Valid);
    assert_eq!(tcp.state, TcpState::Established);
    tcp
}

fn invalid(tcp: &Tcp, direction: CtDirection, segment: &Segment) -> Invalid {
    let mut tcp = *tcp;
    match tcp.judge(direction, segment) {
        Outcome::Invalid(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn row_60_to_62_the_four_bounds() {
    let tcp = open();
    let data = |sequence, ack, bytes| segment(Flags::ACK, sequence, ack, bytes);
    // I: as much as the window, not a byte more.
    assert_eq!({ tcp }.judge(O, &data(1001, 5001, 1000)), Outcome::Valid);
    assert_eq!(
        invalid(&tcp, O, &data(1001, 5001, 1001)),
        Invalid::BeyondWindow
    );
    assert_eq!(
        invalid(&tcp, O, &data(2002, 5001, 0)),
        Invalid::BeyondWindow
    );
    // II: a retransmission may be as old as the window is large.
    let mut moved = tcp;
    moved.judge(O, &data(1001, 5001, 1000));
    moved.judge(R, &data(5001, 2001, 0));
    moved.judge(O, &data(2001, 5001, 1000));
    assert_eq!({ moved }.judge(O, &data(2000, 5001, 0)), Outcome::Valid);
    assert_eq!(
        invalid(&moved, O, &data(1999, 5001, 0)),
        Invalid::BeforeWindow
    );
    // III: only what was sent is acknowledged.
    assert_eq!({ moved }.judge(R, &data(5001, 3001, 0)), Outcome::Valid);
    assert_eq!(invalid(&moved, R, &data(5001, 3002, 0)), Invalid::AckUnsent);
    // IV: and not what was acknowledged long ago.
    let old = 3001_u32.wrapping_sub(ACK_WINDOW_MIN);
    assert_eq!({ moved }.judge(R, &data(5001, old, 0)), Outcome::Valid);
    assert_eq!(
        invalid(&moved, R, &data(5001, old.wrapping_sub(1), 0)),
        Invalid::AckOld
    );
}

#[test]
fn row_63_scales_are_learnt_from_both_syns() {
    for (client, server, limit) in [(Some(2), Some(3), 8000), (Some(2), None, 1000)] {
        let syn = Segment {
            scale: client,
            ..segment(Flags::SYN, 1000, 0, 0)
        };
        let mut tcp = Tcp::start(&syn, Pickup::None).unwrap();
        let answer = Segment {
            scale: server,
            ..segment(Flags::SYN | Flags::ACK, 5000, 1001, 0)
        };
        tcp.judge(R, &answer);
        tcp.judge(O, &segment(Flags::ACK, 1001, 5001, 0));
        // The window of a SYN-ACK is not scaled; that of what follows is.
        tcp.judge(R, &segment(Flags::ACK, 5001, 1001, 0));
        let data = |bytes| segment(Flags::ACK, 1001, 5001, bytes);
        assert_eq!({ tcp }.judge(O, &data(limit)), Outcome::Valid);
        assert_eq!(invalid(&tcp, O, &data(limit + 1)), Invalid::BeyondWindow);
        // SACK of what was never sent.
        let sack = Segment {
            sack: Some(1003),
            ..segment(Flags::ACK, 5001, 1001, 0)
        };
        assert_eq!(invalid(&tcp, R, &sack), Invalid::AckUnsent);
    }
}

#[test]
fn row_65_only_an_exact_reset_closes() {
    let mut tcp = open();
    tcp.judge(R, &segment(Flags::ACK, 5001, 1001, 500));
    let reset = |tcp: &Tcp, direction, sequence| {
        let mut tcp = *tcp;
        let outcome = tcp.judge(direction, &segment(Flags::RST, sequence, 0, 0));
        (outcome, tcp.state)
    };
    // Of the server: what the client acknowledged, and what the server has sent.
    for exact in [5001, 5501] {
        assert_eq!(reset(&tcp, R, exact), (Outcome::Valid, TcpState::Closed));
    }
    for inside in [5002, 5500, 6001] {
        assert_eq!(
            reset(&tcp, R, inside),
            (Outcome::Pass, TcpState::Established)
        );
    }
    for outside in [5000, 6002, 0, 1 << 31] {
        let expected = Outcome::Invalid(Invalid::ResetOutside);
        assert_eq!(reset(&tcp, R, outside), (expected, TcpState::Established));
    }
    // RFC 7857 2.2: data after a reset shows that it was none.
    let mut closed = tcp;
    closed.judge(R, &segment(Flags::RST, 5001, 0, 0));
    let data = segment(Flags::ACK, 1001, 5001, 10);
    assert_eq!(closed.judge(O, &data), Outcome::Valid);
    assert_eq!(closed.state, TcpState::Established);
}

#[test]
fn a_reset_of_a_syn_must_acknowledge_it() {
    let tcp = Tcp::start(&segment(Flags::SYN, 1000, 0, 0), Pickup::None).unwrap();
    let refuse = segment(Flags::RST | Flags::ACK, 0, 1001, 0);
    assert_eq!({ tcp }.judge(R, &refuse), Outcome::Valid);
    for ack in [1000, 1002] {
        let forged = segment(Flags::RST | Flags::ACK, 0, ack, 0);
        assert_eq!(invalid(&tcp, R, &forged), Invalid::ResetOutside);
    }
    assert_eq!(
        invalid(&tcp, R, &segment(Flags::RST, 0, 0, 0)),
        Invalid::ResetOutside
    );
}

#[test]
fn row_66_a_syn_into_an_open_connection_waits_for_its_proof() {
    let mut tcp = open();
    let syn = segment(Flags::SYN, 90_000, 0, 0);
    assert_eq!(tcp.judge(O, &syn), Outcome::Pass);
    assert_eq!(tcp.state, TcpState::Established);
    // The server knows the connection: it challenges, and all goes on.
    assert_eq!(
        tcp.judge(R, &segment(Flags::ACK, 5001, 1001, 0)),
        Outcome::Valid
    );
    assert_eq!(
        { tcp }.judge(O, &segment(Flags::ACK, 1001, 5001, 10)),
        Outcome::Valid
    );
    // The server knows it no more: its answer to the SYN makes a new one.
    let answer = segment(Flags::SYN | Flags::ACK, 7000, 90_001, 0);
    assert_eq!(tcp.judge(R, &answer), Outcome::Valid);
    assert_eq!(tcp.state, TcpState::SynReceived);
    let ack = segment(Flags::ACK, 90_001, 7001, 10);
    assert_eq!(tcp.judge(O, &ack), Outcome::Valid);
    assert_eq!(tcp.state, TcpState::Established);
    assert_eq!(
        invalid(&tcp, O, &segment(Flags::ACK, 1011, 5001, 10)),
        Invalid::BeforeWindow
    );
}

#[test]
fn row_67_blind_data_is_invalid() {
    let tcp = open();
    // A right sequence number with acknowledgements that a blind attacker guesses.
    let mut passed = 0;
    for n in 0..4096_u32 {
        let guess = n << 20;
        let data = segment(Flags::ACK, 1001, guess, 10);
        passed += u32::from({ tcp }.judge(O, &data) == Outcome::Valid);
    }
    assert!(passed <= 1, "{passed}");
}

#[test]
fn row_68_impossible_flags() {
    let all = Flags::SYN | Flags::ACK | Flags::FIN | Flags::RST | Flags::PSH | Flags::URG;
    let mut legal = alloc::vec::Vec::new();
    for bits in 0..=all.bits() {
        let flags = Flags::from_bits_retain(bits);
        if are_legal(flags) {
            legal.push(flags - Flags::PSH - Flags::URG);
        }
    }
    legal.sort_by_key(|flags| flags.bits());
    legal.dedup();
    let expected = [
        Flags::SYN,
        Flags::RST,
        Flags::ACK,
        Flags::ACK | Flags::FIN,
        Flags::SYN | Flags::ACK,
        Flags::RST | Flags::ACK,
    ];
    assert_eq!(legal, expected);
    let mut tcp = open();
    for bad in [
        Flags::empty(),
        Flags::FIN,
        Flags::FIN | Flags::PSH | Flags::URG,
        Flags::SYN | Flags::FIN,
        Flags::SYN | Flags::RST,
        Flags::FIN | Flags::RST | Flags::ACK,
    ] {
        let outcome = tcp.judge(O, &segment(bad, 1001, 5001, 0));
        assert_eq!(outcome, Outcome::Invalid(Invalid::Flags), "{bad:?}");
    }
}

#[test]
fn a_closed_window_may_be_probed() {
    let mut tcp = open();
    let full = Segment {
        window: 0,
        ..segment(Flags::ACK, 5001, 2001, 0)
    };
    tcp.judge(O, &segment(Flags::ACK, 1001, 5001, 1000));
    assert_eq!(tcp.judge(R, &full), Outcome::Valid);
    assert_eq!(
        { tcp }.judge(O, &segment(Flags::ACK, 2001, 5001, 1)),
        Outcome::Valid
    );
    assert_eq!(
        invalid(&tcp, O, &segment(Flags::ACK, 2001, 5001, 2)),
        Invalid::BeyondWindow
    );
}
