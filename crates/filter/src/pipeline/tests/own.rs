//! What the node's programs send: from the output hook on, and their connections tracked as those of others are.

use super::*;
use crate::rules::{Judge, NoTrace};
use crate::testing::TcpFrame;
use wire::tcp::Flags;

/// The router's address inside, on which programs listen and from which they connect.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const SELF: InterfaceId = InterfaceId::NONE;
const RULE: Result<Vec<u8>, Fate> = Err(Fate::Drop(DropReason::FirewallRule));

/// Accepts at input what belongs to a connection, and SSH.
const GUARDED: &str = "
    chain input {
        type filter hook input priority filter; policy drop;
        ct state established,related accept
        ct state new tcp dport 22 accept
    }";

fn with_rules(chains: &str, test: impl FnOnce(Rig<Judge<'_>>)) {
    let options = crate::lang::Options {
        interfaces: crate::rules::Interfaces::ethernet(&["lan", "wan"]),
        workers: 1,
        ..crate::lang::Options::default()
    };
    let ruleset = crate::lang::load(&alloc::format!("table ip t {{ {chains} }}"), options).unwrap();
    let mut worker = ruleset.worker(0).unwrap();
    let rig = Rig::new(TrackPolicy::default());
    test(Rig {
        worker: rig.worker,
        rules: Judge {
            ruleset: &ruleset,
            worker: &mut worker,
            tracer: NoTrace,
            epoch: 1,
        },
        now: rig.now,
    });
}

fn syn(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    TcpFrame::new(v4(from.0, to.0), (from.1, to.1), Flags::SYN).frame()
}

fn syn_ack(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let segment = TcpFrame::new(v4(from.0, to.0), (from.1, to.1), Flags::SYN | Flags::ACK);
    TcpFrame {
        acknowledgement: 1,
        ..segment
    }
    .frame()
}

#[test]
fn answers_to_the_nodes_own_connections_come_back() {
    with_rules(GUARDED, |mut rig| {
        let stray = udp_frame(v4(PEER, OWN), (53, 5000), b"answer");
        assert_eq!(rig.send(OUTSIDE, stray.clone()), RULE);
        let query = udp_frame(v4(OWN, PEER), (5000, 53), b"query");
        assert_eq!(rig.send(SELF, query.clone()), Ok(query));
        assert_eq!(rig.send(OUTSIDE, stray.clone()), Ok(stray));
        let open = syn((OWN, 6000), (PEER, 80));
        assert_eq!(rig.send(SELF, open.clone()), Ok(open));
        let answer = syn_ack((PEER, 80), (OWN, 6000));
        assert_eq!(rig.send(OUTSIDE, answer.clone()), Ok(answer));
        // Another port did not ask.
        assert_eq!(rig.send(OUTSIDE, syn_ack((PEER, 80), (OWN, 6001))), RULE);
        assert_eq!(rig.worker.shared().connections(), 2);
        let ping = echo_frame(v4(OWN, PEER), 9, b"x");
        assert_eq!(rig.send(SELF, ping.clone()), Ok(ping));
        assert_eq!(rig.worker.shared().connections(), 3);
    });
}

#[test]
fn both_sides_of_a_connection_to_a_listener_are_seen() {
    with_rules(GUARDED, |mut rig| {
        assert_eq!(rig.send(OUTSIDE, syn((PEER, 5000), (OWN, 23))), RULE);
        rig.send(OUTSIDE, syn((PEER, 5000), (OWN, 22))).unwrap();
        rig.send(SELF, syn_ack((OWN, 22), (PEER, 5000))).unwrap();
        let data = |ack| TcpFrame {
            sequence: 1,
            acknowledgement: ack,
            payload: b"data",
            ..TcpFrame::new(v4(PEER, OWN), (5000, 22), Flags::ACK)
        };
        rig.send(OUTSIDE, data(1).frame()).unwrap();
        // It acknowledges what the node has not sent.
        assert_eq!(rig.send(OUTSIDE, data(1 << 30).frame()), RULE);
        assert_eq!(rig.worker.tally.invalid, 1);
        // The rules are asked once for each direction.
        let mut answer = |sequence| {
            let segment = TcpFrame {
                sequence,
                acknowledgement: 5,
                payload: b"data",
                ..TcpFrame::new(v4(OWN, PEER), (22, 5000), Flags::ACK)
            };
            rig.send(SELF, segment.frame()).unwrap();
            rig.worker.tally.replays
        };
        let before = answer(1);
        assert_eq!(answer(5), before + 1);
    });
}

#[test]
fn the_output_chain_stops_programs() {
    let chains = "chain output {
        type filter hook output priority filter;
        oifname wan tcp dport 25 drop
        oifname wan tcp dport 26 reject with tcp reset
        oifname lan drop
    }";
    with_rules(chains, |mut rig| {
        assert_eq!(rig.send(SELF, syn((OWN, 5000), (PEER, 25))), RULE);
        assert_eq!(rig.send(SELF, syn((OWN, 5000), (HOST, 80))), RULE);
        assert_eq!(rig.worker.shared().connections(), 0);
        assert!(rig.send(SELF, syn((OWN, 5000), (PEER, 80))).is_ok());
        // Others are not its business.
        assert!(rig.send(INSIDE, syn((HOST, 5000), (PEER, 25))).is_ok());
        assert!(rig.worker.outbox.emissions().is_empty());
        // The program itself is told.
        assert_eq!(rig.send(SELF, syn((OWN, 5000), (PEER, 26))), RULE);
        assert_eq!(rig.worker.outbox.emissions()[0].way, Way::Local);
        let reset = rig.emissions().remove(0);
        assert_eq!(source_of(&reset), (PEER, 26));
        assert_eq!(destination_of(&reset), (OWN, 5000));
    });
}

#[test]
fn the_nodes_own_connections_are_translated() {
    let chains = "
    chain output {
        type nat hook output priority -100;
        ip daddr 198.51.100.7 tcp dport 80 dnat to 198.51.100.8:8080
    }
    chain filter {
        type filter hook output priority filter;
        tcp dport 80 drop
    }
    chain postrouting {
        type nat hook postrouting priority srcnat;
        oifname wan masquerade
    }";
    let chains = alloc::format!("{GUARDED}\n{chains}");
    with_rules(&chains, |mut rig| {
        // The filter behind the translation sees what it became.
        let sent = rig.send(SELF, syn((OWN, 5000), (PEER, 80))).unwrap();
        assert_eq!(destination_of(&sent), (OTHER_PEER, 8080));
        let outer = source_of(&sent);
        assert_eq!(outer.0, OUTER);
        assert_eq!(rig.send(SELF, syn((OWN, 5000), (OTHER_PEER, 80))), RULE);
        let answer = rig.send(OUTSIDE, syn_ack((OTHER_PEER, 8080), outer));
        let answer = answer.unwrap();
        assert_eq!(source_of(&answer), (PEER, 80));
        assert_eq!(destination_of(&answer), (OWN, 5000));
    });
}

#[test]
fn answers_of_a_listener_that_clients_were_redirected_to() {
    let chains = "chain prerouting {
        type nat hook prerouting priority dstnat;
        tcp dport 222 redirect to :22
    }";
    let chains = alloc::format!("{GUARDED}\n{chains}");
    with_rules(&chains, |mut rig| {
        let came = rig.send(OUTSIDE, syn((PEER, 5000), (OUTER, 222))).unwrap();
        assert_eq!(destination_of(&came), (OUTER, 22));
        let answer = rig.send(SELF, syn_ack((OUTER, 22), (PEER, 5000))).unwrap();
        assert_eq!(source_of(&answer), (OUTER, 222));
    });
}

#[test]
fn fragments_of_a_program_go_the_way_of_the_first() {
    let chains = "chain output {
        type filter hook output priority filter;
        udp dport 25 drop
    }";
    for (port, passes) in [(26, true), (25, false)] {
        with_rules(chains, |mut rig| {
            let pieces = super::tracking::fragments(v4(OWN, PEER), (5000, port), 2000, 1000);
            for piece in pieces {
                assert_eq!(rig.send(SELF, piece).is_ok(), passes);
            }
        });
    }
}
