//! NAT for TCP (RFC 5382, RFC 7857).

use super::*;
use crate::testing::TcpFrame;
use wire::tcp::Flags;

/// A TCP conversation through the rig, with true numbers.
struct Conversation {
    inner: (Ipv4Addr, u16),
    peer: (Ipv4Addr, u16),
    outer: (Ipv4Addr, u16),
    client: u32,
    server: u32,
}

impl Conversation {
    fn open(rig: &mut Rig, inner: (Ipv4Addr, u16), peer: (Ipv4Addr, u16)) -> Self {
        let mut this = Self {
            inner,
            peer,
            outer: (OUTER, 0),
            client: 1000,
            server: 9000,
        };
        let syn = rig
            .send(INSIDE, this.client_sends(Flags::SYN, b""))
            .unwrap();
        this.outer = source_of(&syn);
        this.client += 1;
        let answer = rig
            .send(OUTSIDE, this.server_sends(Flags::SYN | Flags::ACK, b""))
            .unwrap();
        assert_eq!(destination_of(&answer), inner);
        this.server += 1;
        rig.send(INSIDE, this.client_sends(Flags::ACK, b""))
            .unwrap();
        this
    }

    fn client_sends(&self, flags: Flags, payload: &[u8]) -> Vec<u8> {
        TcpFrame {
            sequence: self.client,
            acknowledgement: if flags.contains(Flags::ACK) {
                self.server
            } else {
                0
            },
            payload,
            ..TcpFrame::new(
                v4(self.inner.0, self.peer.0),
                (self.inner.1, self.peer.1),
                flags,
            )
        }
        .frame()
    }

    fn server_sends(&self, flags: Flags, payload: &[u8]) -> Vec<u8> {
        TcpFrame {
            sequence: self.server,
            acknowledgement: if flags.contains(Flags::ACK) {
                self.client
            } else {
                0
            },
            payload,
            ..TcpFrame::new(
                v4(self.peer.0, self.outer.0),
                (self.peer.1, self.outer.1),
                flags,
            )
        }
        .frame()
    }

    /// Closes from both sides; the client's last ACK ends it.
    fn close(&mut self, rig: &mut Rig) {
        let fin = Flags::FIN | Flags::ACK;
        rig.send(INSIDE, self.client_sends(fin, b"")).unwrap();
        self.client += 1;
        rig.send(OUTSIDE, self.server_sends(fin, b"")).unwrap();
        self.server += 1;
        rig.send(INSIDE, self.client_sends(Flags::ACK, b""))
            .unwrap();
    }

    fn is_alive(&self, rig: &mut Rig) -> bool {
        rig.send(OUTSIDE, self.server_sends(Flags::ACK, b""))
            .is_ok()
    }
}

#[test]
fn row_20_and_27_tcp_mappings_are_endpoint_independent_and_not_overloaded() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let one = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
    let two = Conversation::open(&mut rig, (HOST, 5000), (OTHER_PEER, 80));
    let three = Conversation::open(&mut rig, (OTHER_HOST, 5000), (PEER, 80));
    assert_eq!(one.outer, two.outer);
    assert_ne!(one.outer, three.outer);
}

#[test]
fn row_21_simultaneous_open() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let mut talk = Conversation {
        inner: (HOST, 5000),
        peer: (PEER, 80),
        outer: (OUTER, 5000),
        client: 1000,
        server: 9000,
    };
    rig.send(INSIDE, talk.client_sends(Flags::SYN, b""))
        .unwrap();
    rig.send(OUTSIDE, talk.server_sends(Flags::SYN, b""))
        .unwrap();
    talk.client += 1;
    let answer = TcpFrame {
        sequence: 1000,
        acknowledgement: 9001,
        ..TcpFrame::new(v4(HOST, PEER), (5000, 80), Flags::SYN | Flags::ACK)
    };
    rig.send(INSIDE, answer.frame()).unwrap();
    rig.send(OUTSIDE, talk.server_sends(Flags::SYN | Flags::ACK, b""))
        .unwrap();
    talk.server += 1;
    rig.send(INSIDE, talk.client_sends(Flags::ACK, b"data"))
        .unwrap();
    talk.client += 4;
    rig.send(OUTSIDE, talk.server_sends(Flags::ACK, b"data"))
        .unwrap();
}

#[test]
fn row_22_tcp_filtering_is_chosen() {
    for (filtering, open) in [
        (Filtering::EndpointIndependent, true),
        (Filtering::AddressAndPort, false),
    ] {
        let mut rig = Rig::filtering(filtering);
        let talk = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
        let syn = TcpFrame::new(v4(OTHER_PEER, OUTER), (7777, talk.outer.1), Flags::SYN);
        assert_eq!(rig.send(OUTSIDE, syn.frame()).is_ok(), open);
    }
}

#[test]
fn row_23_an_unsolicited_syn_is_not_answered_and_may_become_a_simultaneous_open() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let talk = Conversation {
        inner: (HOST, 5000),
        peer: (PEER, 80),
        outer: (OUTER, 5000),
        client: 1000,
        server: 9000,
    };
    let refused = Err(Fate::Drop(DropReason::FirewallRule));
    assert_eq!(
        rig.send(OUTSIDE, talk.server_sends(Flags::SYN, b"")),
        refused
    );
    rig.wait(Duration::from_secs(7));
    assert!(rig.emissions().is_empty());
    // The inner host's own SYN comes in time: the peer's next one opens the connection, and nothing was said.
    assert_eq!(
        rig.send(OUTSIDE, talk.server_sends(Flags::SYN, b"")),
        refused
    );
    rig.wait(Duration::from_secs(3));
    rig.send(INSIDE, talk.client_sends(Flags::SYN, b""))
        .unwrap();
    rig.wait(Duration::from_secs(4));
    assert!(rig.emissions().is_empty());
    let opened = rig
        .send(OUTSIDE, talk.server_sends(Flags::SYN, b""))
        .unwrap();
    assert_eq!(destination_of(&opened), (HOST, 5000));
}

#[test]
fn row_24_established_lives_two_hours_and_four_minutes() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let talk = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
    rig.wait(Duration::from_secs(7439));
    assert!(talk.is_alive(&mut rig));
    rig.wait(Duration::from_secs(7442));
    assert!(!talk.is_alive(&mut rig));
}

#[test]
fn row_25_an_opening_connection_lives_four_minutes() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let syn = TcpFrame::new(v4(HOST, PEER), (5000, 80), Flags::SYN);
    rig.send(INSIDE, syn.frame()).unwrap();
    rig.wait(Duration::from_secs(239));
    let answer = TcpFrame {
        sequence: 1,
        acknowledgement: 1,
        ..TcpFrame::new(v4(PEER, OUTER), (80, 5000), Flags::SYN | Flags::ACK)
    };
    rig.send(OUTSIDE, answer.frame()).unwrap();
}

#[test]
fn row_28_tcp_hairpin() {
    let mut rig = Rig::filtering(Filtering::EndpointIndependent);
    let server = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
    let syn = TcpFrame::new(v4(OTHER_HOST, OUTER), (6000, server.outer.1), Flags::SYN);
    let frame = rig.send(INSIDE, syn.frame()).unwrap();
    assert_eq!(destination_of(&frame), (HOST, 5000));
    assert_eq!(source_of(&frame), (OUTER, 6000));
}

#[test]
fn row_31_the_mapping_stays_four_minutes_after_both_fins() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let mut talk = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
    talk.close(&mut rig);
    rig.wait(Duration::from_secs(239));
    assert_eq!(rig.worker.shared().connections(), 1);
    rig.wait(Duration::from_secs(3));
    assert_eq!(rig.worker.shared().connections(), 0);
}

#[test]
fn row_31_half_closed_is_not_closed() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let mut talk = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
    rig.send(INSIDE, talk.client_sends(Flags::FIN | Flags::ACK, b""))
        .unwrap();
    talk.client += 1;
    rig.wait(Duration::from_secs(3600));
    rig.send(OUTSIDE, talk.server_sends(Flags::ACK, b"still sending"))
        .unwrap();
}

#[test]
fn row_32_a_reset_keeps_the_mapping_for_four_minutes() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let talk = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
    rig.send(OUTSIDE, talk.server_sends(Flags::RST, b""))
        .unwrap();
    rig.wait(Duration::from_secs(239));
    assert_eq!(rig.worker.shared().connections(), 1);
    rig.wait(Duration::from_secs(3));
    assert_eq!(rig.worker.shared().connections(), 0);
}

#[test]
fn row_69_a_new_syn_reuses_time_wait() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let mut talk = Conversation::open(&mut rig, (HOST, 5000), (PEER, 80));
    let outer = talk.outer;
    talk.close(&mut rig);
    talk.client += 100_000;
    let syn = rig
        .send(INSIDE, talk.client_sends(Flags::SYN, b""))
        .unwrap();
    assert_eq!(source_of(&syn), outer);
    assert_eq!(rig.worker.shared().connections(), 1);
    assert_eq!(rig.worker.tally.made, 2);
}
