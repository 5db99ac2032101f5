//! Every state of RFC 9293 against every kind of segment (3.10.7): what is answered, and where it leads.
//!
//! Each case brings a fresh connection to a state, gives it one segment made by hand, and compares the first answer and the
//! next state with what the RFC (and RFC 5961, where it is stricter) asks for.

use std::net::SocketAddr;

use stack::{Modules, Shutdown, Stack, State, TcpHandle};
use wire::tcp::{Flags, Repr, View};
use wire::{Addresses, Instant, ethernet, ipv4};

use crate::support::{MACS, config, ip};

const PEER_PORT: u16 = 4000;
const PORT: u16 = 80;
/// The peer's first sequence number.
const PEER_ISS: u32 = 1_000_000;

/// One host; the test is its peer.
struct Case {
    stack: Stack,
    handle: Option<TcpHandle>,
    now: u64,
    /// The host's first sequence number, and the next of the peer.
    iss: u32,
    next: u32,
}

/// What the host answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    flags: Flags,
    seq: u32,
    ack: u32,
}

impl Case {
    fn new() -> Self {
        let mut config = config(0, 3);
        config.tcp.modules =
            Modules::default() - Modules::TIMESTAMPS - Modules::SACK - Modules::WINDOW_SCALE;
        let mut stack = Stack::new(config, Instant::ZERO);
        stack.add_address(ip(0), 24);
        stack.set_neighbour(Instant::ZERO, ip(1), MACS[1]);
        Self {
            stack,
            handle: None,
            now: 1_000_000_000,
            iss: 0,
            next: PEER_ISS,
        }
    }
    fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }
    /// Gives the host a segment; returns its answers.
    fn give(&mut self, flags: Flags, seq: u32, ack: u32, data: &[u8]) -> Vec<Answer> {
        let addresses = Addresses::V4 {
            source: "192.0.2.2".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
        };
        let Addresses::V4 {
            source,
            destination,
        } = addresses
        else {
            unreachable!()
        };
        let repr = Repr {
            source_port: PEER_PORT,
            destination_port: PORT,
            sequence: seq,
            acknowledgement: ack,
            flags,
            window: 8192,
            urgent: 0,
            options: &[],
        };
        let mut segment = vec![0; 20];
        segment.extend(data);
        repr.emit(&mut segment, &addresses).unwrap();
        let mut frame = vec![0; 34];
        ethernet::Repr {
            destination: MACS[0],
            source: MACS[1],
            ether_type: 0x0800,
        }
        .emit(&mut frame)
        .unwrap();
        ipv4::Repr::new(source, destination, 6, segment.len() as u16)
            .emit(&mut frame[14..])
            .unwrap();
        frame.extend(segment);
        self.stack.input(self.time(), &[&frame]);
        self.answers()
    }
    fn answers(&mut self) -> Vec<Answer> {
        let mut sink = stack::FrameList::new(64);
        self.stack.poll_transmit(self.time(), &mut sink);
        let read = |frame: &[u8]| {
            let view = View::new(&frame[34..]).unwrap();
            Answer {
                flags: view.flags(),
                seq: view.sequence(),
                ack: view.acknowledgement(),
            }
        };
        sink.iter().map(read).collect()
    }
    fn state(&self) -> Option<State> {
        self.handle.and_then(|handle| self.stack.tcp_state(handle))
    }
    /// Connects actively; the SYN is out.
    fn syn_sent(&mut self) {
        let local = SocketAddr::new(ip(0), PORT);
        self.handle = Some(
            self.stack
                .tcp_connect(self.time(), SocketAddr::new(ip(1), PEER_PORT), Some(local))
                .unwrap(),
        );
        let syn = self.answers();
        assert_eq!((syn.len(), syn[0].flags), (1, Flags::SYN));
        self.iss = syn[0].seq;
    }
    fn established(&mut self) {
        self.syn_sent();
        let answers = self.give(Flags::SYN | Flags::ACK, PEER_ISS, self.iss + 1, &[]);
        assert_eq!(
            answers,
            [Answer {
                flags: Flags::ACK,
                seq: self.iss + 1,
                ack: PEER_ISS + 1
            }]
        );
        self.next = PEER_ISS + 1;
    }
    fn shutdown(&mut self) {
        let now = self.time();
        self.stack
            .tcp_shutdown(now, self.handle.unwrap(), Shutdown::Write)
            .unwrap();
    }
    /// Brings a fresh connection to a state.
    fn reach(state: State) -> Self {
        let mut case = Self::new();
        match state {
            State::SynSent => case.syn_sent(),
            State::SynReceived => {
                case.syn_sent();
                let answers = case.give(Flags::SYN, PEER_ISS, 0, &[]);
                assert_eq!(answers[0].flags, Flags::SYN | Flags::ACK);
                case.next = PEER_ISS + 1;
            }
            State::Established => case.established(),
            State::FinWait1 => {
                case.established();
                case.shutdown();
                assert_eq!(case.answers()[0].flags, Flags::FIN | Flags::ACK);
            }
            State::FinWait2 => {
                case = Self::reach(State::FinWait1);
                case.give(Flags::ACK, case.next, case.iss + 2, &[]);
            }
            State::Closing => {
                case = Self::reach(State::FinWait1);
                case.give(Flags::FIN | Flags::ACK, case.next, case.iss + 1, &[]);
                case.next += 1;
            }
            State::TimeWait => {
                case = Self::reach(State::FinWait2);
                case.give(Flags::FIN | Flags::ACK, case.next, case.iss + 2, &[]);
                case.next += 1;
            }
            State::CloseWait => {
                case.established();
                case.give(Flags::FIN | Flags::ACK, case.next, case.iss + 1, &[]);
                case.next += 1;
            }
            State::LastAck => {
                case = Self::reach(State::CloseWait);
                case.shutdown();
                assert_eq!(case.answers()[0].flags, Flags::FIN | Flags::ACK);
            }
            State::Closed => {}
        }
        assert_eq!(case.state().unwrap_or_default(), state, "reached");
        case
    }
    /// Our next sequence number.
    fn ours(&self, state: State) -> u32 {
        match state {
            State::SynSent | State::SynReceived | State::Established | State::CloseWait => {
                self.iss + 1
            }
            _ => self.iss + 2,
        }
    }
}

/// What a segment is, relative to the connection.
#[derive(Clone, Copy, Debug)]
enum Seq {
    Exact,
    Old,
    InWindow,
    Beyond,
}

const STATES: [State; 9] = [
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::Closing,
    State::TimeWait,
    State::CloseWait,
    State::LastAck,
];
const SYNCHRONIZED: &[State] = &[
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::Closing,
    State::TimeWait,
    State::CloseWait,
    State::LastAck,
];

fn sequence(case: &Case, kind: Seq) -> u32 {
    match kind {
        Seq::Exact => case.next,
        Seq::Old => case.next.wrapping_sub(100),
        Seq::InWindow => case.next + 100,
        Seq::Beyond => case.next + 1_000_000,
    }
}

/// Resets: the exact number ends the connection, one in the window is challenged, others are nothing (RFC 5961 3.2).
#[test]
fn resets() {
    for state in STATES {
        for kind in [Seq::Exact, Seq::Old, Seq::InWindow, Seq::Beyond] {
            for with_ack in [false, true] {
                let mut case = Case::reach(state);
                let ours = case.ours(state);
                let flags = if with_ack {
                    Flags::RST | Flags::ACK
                } else {
                    Flags::RST
                };
                let answers = case.give(flags, sequence(&case, kind), ours, &[]);
                let after = case.state().unwrap();
                let what = format!("{state:?} {kind:?} ack {with_ack}: {answers:?} {after:?}");
                match (state, kind) {
                    // RFC 9293 3.10.7.3: with an acceptable acknowledgement only, whatever the sequence number.
                    (State::SynSent, _) => {
                        assert_eq!(after == State::Closed, with_ack, "{what}");
                        assert!(answers.is_empty(), "{what}");
                    }
                    // RFC 1337: TIME-WAIT is not ended by a reset.
                    (State::TimeWait, _) => {
                        assert!(answers.is_empty() && after == State::TimeWait, "{what}")
                    }
                    (_, Seq::Exact) => {
                        assert!(after == State::Closed && answers.is_empty(), "{what}")
                    }
                    (_, Seq::InWindow) if state != State::SynReceived => {
                        assert_eq!(
                            answers,
                            [Answer {
                                flags: Flags::ACK,
                                seq: ours,
                                ack: case.next
                            }],
                            "{what}"
                        );
                        assert_eq!(after, state, "{what}");
                    }
                    (_, Seq::Old | Seq::Beyond) => {
                        assert!(answers.is_empty() && after == state, "{what}")
                    }
                    _ => assert_eq!(after, state, "{what}"),
                }
            }
        }
    }
}

/// A SYN in a synchronized state is challenged, whatever its number (RFC 5961 4.2).
#[test]
fn syns() {
    for &state in SYNCHRONIZED {
        for kind in [Seq::Exact, Seq::Old, Seq::InWindow, Seq::Beyond] {
            for flags in [Flags::SYN, Flags::SYN | Flags::ACK] {
                let mut case = Case::reach(state);
                let ours = case.ours(state);
                let answers = case.give(flags, sequence(&case, kind), ours, &[]);
                let what = format!("{state:?} {kind:?} {flags:?}: {answers:?}");
                let is_new = state == State::TimeWait
                    && flags == Flags::SYN
                    && matches!(kind, Seq::InWindow | Seq::Beyond);
                if is_new {
                    // RFC 9293 MAY-2: a new connection; nobody listens.
                    assert_eq!(answers[0].flags, Flags::RST | Flags::ACK, "{what}");
                } else {
                    assert_eq!(
                        answers,
                        [Answer {
                            flags: Flags::ACK,
                            seq: ours,
                            ack: case.next
                        }],
                        "{what}"
                    );
                    assert_eq!(case.state(), Some(state), "{what}");
                }
            }
        }
    }
}

/// Segments outside of the window are answered by an acknowledgement and change nothing (3.10.7.4, first).
#[test]
fn outside_of_the_window() {
    for &state in SYNCHRONIZED {
        for kind in [Seq::Old, Seq::Beyond] {
            for (flags, data) in [
                (Flags::ACK, &b"data"[..]),
                (Flags::ACK, b""),
                (Flags::FIN | Flags::ACK, b""),
            ] {
                let mut case = Case::reach(state);
                let ours = case.ours(state);
                let answers = case.give(flags, sequence(&case, kind), ours, data);
                let what = format!("{state:?} {kind:?} {flags:?} {}: {answers:?}", data.len());
                assert_eq!(
                    answers,
                    [Answer {
                        flags: Flags::ACK,
                        seq: ours,
                        ack: case.next
                    }],
                    "{what}"
                );
                assert_eq!(case.state(), Some(state), "{what}");
            }
        }
    }
}

/// Without ACK, a segment is dropped in every synchronized state (3.10.7.4, fifth).
#[test]
fn no_acknowledgement() {
    for &state in SYNCHRONIZED
        .iter()
        .filter(|state| **state != State::TimeWait)
    {
        let mut case = Case::reach(state);
        let answers = case.give(Flags::empty(), case.next, 0, b"data");
        assert!(
            answers.is_empty() && case.state() == Some(state),
            "{state:?}: {answers:?}"
        );
    }
}

/// Acknowledgements of what was never sent, and of what lies far back (RFC 9293 3.10.7.4, RFC 5961 5.2).
#[test]
fn wrong_acknowledgements() {
    for &state in SYNCHRONIZED
        .iter()
        .filter(|state| **state != State::TimeWait)
    {
        for wrong in [1000_u32, 1_000_000_000_u32.wrapping_neg()] {
            let mut case = Case::reach(state);
            let ours = case.ours(state);
            let answers = case.give(Flags::ACK, case.next, ours.wrapping_add(wrong), b"data");
            let what = format!("{state:?} {wrong}: {answers:?}");
            assert_eq!(
                answers,
                [Answer {
                    flags: Flags::ACK,
                    seq: ours,
                    ack: case.next
                }],
                "{what}"
            );
            assert_eq!(case.state(), Some(state), "{what}");
        }
    }
    for state in [State::SynSent, State::SynReceived] {
        for ack in [0, 2, 1000] {
            let mut case = Case::reach(state);
            let ack = case.iss + ack;
            let flags = if state == State::SynSent {
                Flags::SYN | Flags::ACK
            } else {
                Flags::ACK
            };
            let answers = case.give(flags, case.next, ack, &[]);
            assert_eq!(
                answers,
                [Answer {
                    flags: Flags::RST,
                    seq: ack,
                    ack: 0
                }],
                "{state:?} {ack}"
            );
            assert_eq!(case.state(), Some(state));
        }
    }
}

/// Data is taken, and acknowledged, where the peer may send; ignored after its FIN (3.10.7.4, seventh).
#[test]
fn data() {
    for &state in SYNCHRONIZED {
        let mut case = Case::reach(state);
        let ours = case.ours(state);
        let ack = if matches!(state, State::FinWait1) {
            ours - 1
        } else {
            ours
        };
        let (next, handle) = (case.next, case.handle.unwrap());
        let answers = case.give(Flags::ACK | Flags::PSH, next, ack, b"data");
        let now = case.time();
        let read = case.stack.tcp_recv(now, handle, &mut [0; 16]);
        let what = format!("{state:?}: {answers:?} {read:?}");
        if matches!(
            state,
            State::Established | State::FinWait1 | State::FinWait2
        ) {
            assert_eq!(read, Ok(4), "{what}");
            assert_eq!(answers.last().map(|a| a.ack), Some(next + 4), "{what}");
        } else {
            assert_eq!(read, Ok(0), "{what}");
            assert!(answers.iter().all(|a| a.ack == next), "{what}");
        }
    }
}

/// A FIN in order: acknowledged, and on to the state that the diagram names (3.3.2, 3.10.7.4, eighth).
#[test]
fn fins() {
    for (state, acks_ours, expected) in [
        (State::Established, false, State::CloseWait),
        (State::FinWait1, false, State::Closing),
        (State::FinWait1, true, State::TimeWait),
        (State::FinWait2, true, State::TimeWait),
    ] {
        let mut case = Case::reach(state);
        let ack = case.iss + 1 + u32::from(acks_ours);
        let answers = case.give(Flags::FIN | Flags::ACK, case.next, ack, b"bye");
        assert_eq!(
            answers.last().map(|a| (a.flags, a.ack)),
            Some((Flags::ACK, case.next + 4)),
            "{state:?}"
        );
        assert_eq!(case.state(), Some(expected), "{state:?}");
    }
    // Sent again, in the states behind it: acknowledged again, nothing else.
    for state in [
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ] {
        let mut case = Case::reach(state);
        let ours = case.ours(state);
        let ack = if state == State::CloseWait {
            ours
        } else {
            case.iss + 1
        };
        let answers = case.give(Flags::FIN | Flags::ACK, case.next - 1, ack, &[]);
        assert_eq!(
            answers,
            [Answer {
                flags: Flags::ACK,
                seq: ours,
                ack: case.next
            }],
            "{state:?}"
        );
        assert_eq!(case.state(), Some(state));
    }
}

/// The acknowledgement of our FIN (3.10.7.4, fifth).
#[test]
fn acknowledgements_of_our_fin() {
    for (state, expected) in [
        (State::FinWait1, State::FinWait2),
        (State::Closing, State::TimeWait),
        (State::LastAck, State::Closed),
    ] {
        let mut case = Case::reach(state);
        let answers = case.give(Flags::ACK, case.next, case.iss + 2, &[]);
        assert!(answers.is_empty(), "{state:?}: {answers:?}");
        assert_eq!(case.state(), Some(expected), "{state:?}");
    }
}

/// Opens of all kinds: SYN in LISTEN, SYN and SYN-ACK in SYN-SENT, simultaneous open, none (3.10.7.1 to .3).
#[test]
fn opens() {
    let mut case = Case::new();
    // CLOSED: a reset that fits the segment; none for a reset.
    let reset = |flags, seq, ack| [Answer { flags, seq, ack }];
    assert_eq!(
        case.give(Flags::SYN, 5, 0, &[]),
        reset(Flags::RST | Flags::ACK, 0, 6)
    );
    assert_eq!(case.give(Flags::ACK, 5, 77, b"x"), reset(Flags::RST, 77, 0));
    assert_eq!(case.give(Flags::RST, 5, 0, &[]), []);
    // LISTEN: a reset is nothing, an acknowledgement is reset, a SYN opens.
    let listener = case
        .stack
        .tcp_listen(SocketAddr::new(ip(0), PORT), 4)
        .unwrap();
    assert_eq!(case.give(Flags::RST, 5, 0, &[]), []);
    assert_eq!(case.give(Flags::ACK, 5, 77, &[]), reset(Flags::RST, 77, 0));
    assert_eq!(case.give(Flags::empty(), 5, 77, &[]), []);
    let answers = case.give(Flags::SYN, PEER_ISS, 0, &[]);
    assert_eq!(
        (answers[0].flags, answers[0].ack),
        (Flags::SYN | Flags::ACK, PEER_ISS + 1)
    );
    let iss = answers[0].seq;
    // The SYN again: the SYN-ACK again. A wrong acknowledgement: reset. The right one: open.
    assert_eq!(case.give(Flags::SYN, PEER_ISS, 0, &[]), answers);
    assert_eq!(
        case.give(Flags::ACK, PEER_ISS + 1, iss + 9, &[]),
        reset(Flags::RST, iss + 9, 0)
    );
    assert_eq!(
        case.give(Flags::ACK, PEER_ISS + 1, iss + 1, b"GET"),
        reset(Flags::ACK, iss + 1, PEER_ISS + 4)
    );
    let (accepted, _) = case.stack.tcp_accept(listener).unwrap();
    assert_eq!(case.stack.tcp_state(accepted), Some(State::Established));
    // SYN-SENT: simultaneous open to the end.
    let mut case = Case::reach(State::SynReceived);
    let answers = case.give(Flags::SYN | Flags::ACK, PEER_ISS, case.iss + 1, &[]);
    assert_eq!(
        answers,
        [Answer {
            flags: Flags::ACK,
            seq: case.iss + 1,
            ack: PEER_ISS + 1
        }]
    );
    assert_eq!(case.state(), Some(State::Established));
    // Simultaneous close: both FINs cross.
    let mut case = Case::reach(State::Closing);
    case.give(Flags::ACK, case.next, case.iss + 2, &[]);
    assert_eq!(case.state(), Some(State::TimeWait));
}

/// A listener's half-open session is forgotten on a reset, and its place is free again.
#[test]
fn reset_of_a_half_open_session() {
    let mut case = Case::new();
    case.stack
        .tcp_listen(SocketAddr::new(ip(0), PORT), 4)
        .unwrap();
    case.give(Flags::SYN, PEER_ISS, 0, &[]);
    assert_eq!(case.stack.usage().connections, 1);
    assert_eq!(case.give(Flags::RST, PEER_ISS + 1, 0, &[]), []);
    assert_eq!(
        (case.stack.usage().connections, case.stack.usage().sessions),
        (0, 0)
    );
}
