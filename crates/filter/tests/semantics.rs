//! What rules decide, statement by statement.

mod common;

use common::Spec;
use filter::lang::{Options, load};
use filter::packet::{CtState, Hook, InterfaceId};
use filter::rules::{Interfaces, NoTrace, Ruleset};
use filter::verdict::{Changes, Effects, NatKind, Reject, Verdict};

fn ruleset(text: &str) -> Ruleset {
    let options = Options {
        interfaces: Interfaces::ethernet(&["eth0", "eth1", "ppp0"]),
        ..Options::default()
    };
    load(text, options).unwrap_or_else(|error| panic!("{error}"))
}

/// A filter chain at forward with `rules`, in an inet table with `extra` declarations.
fn forward(extra: &str, rules: &str) -> Ruleset {
    ruleset(&format!(
        "table inet t {{ {extra}\n chain f {{ type filter hook forward priority 0; policy drop\n{rules}\n }} }}"
    ))
}

struct Outcome {
    verdict: Verdict,
    effects: Effects,
    frame: Vec<u8>,
    mark: u32,
}

fn run_at(ruleset: &Ruleset, spec: &Spec, now_ns: u64) -> Outcome {
    let mut worker = ruleset.worker(0).expect("the only worker");
    let base = ruleset.all_base_chains()[0].clone();
    let mut effects = Effects::default();
    let mut frame = spec.frame();
    let mut packet = spec.packet(&mut frame, base.hook);
    packet.now = wire::Instant::from_ns(now_ns);
    let verdict = ruleset.evaluate(
        base.chain,
        &mut packet,
        &mut effects,
        &mut worker,
        &mut NoTrace,
    );
    let mark = packet.mark;
    Outcome {
        verdict,
        effects,
        frame,
        mark,
    }
}

fn run(ruleset: &Ruleset, spec: &Spec) -> Verdict {
    run_at(ruleset, spec, 1_000_000_000).verdict
}

fn udp(dport: u16) -> Spec {
    Spec {
        protocol: 17,
        dport,
        ..Spec::default()
    }
}

fn tcp(dport: u16) -> Spec {
    Spec {
        dport,
        ..Spec::default()
    }
}

#[test]
fn matches_of_headers() {
    let cases: &[(&str, Spec, bool)] = &[
        ("tcp dport 80 accept", tcp(80), true),
        ("tcp dport 80 accept", udp(80), false),
        ("th dport 80 accept", udp(80), true),
        ("tcp dport { 22, 80-90 } accept", tcp(85), true),
        ("tcp dport != { 22, 80-90 } accept", tcp(85), false),
        ("tcp dport != 22 accept", udp(80), false),
        ("ip saddr 10.0.0.0/8 accept", tcp(80), true),
        ("ip saddr != 10.0.0.0/8 accept", tcp(80), false),
        ("ip6 saddr ::/0 accept", tcp(80), false),
        (
            "ip saddr . tcp dport { 10.0.0.1 . 80, 10.0.0.2 . 81 } accept",
            tcp(80),
            true,
        ),
        (
            "ip saddr . tcp dport { 10.0.0.0/24 . 70-79 } accept",
            tcp(80),
            false,
        ),
        (
            "ip daddr & 255.255.255.0 == 192.168.1.0 accept",
            tcp(80),
            true,
        ),
        ("tcp flags syn accept", tcp(80), true),
        ("tcp flags & (fin|syn|rst|ack) == syn accept", tcp(80), true),
        (
            "tcp flags syn / fin,syn,rst,ack accept",
            Spec {
                flags: 0x12,
                ..tcp(80)
            },
            false,
        ),
        ("tcp flags ! syn accept", tcp(80), false),
        ("ip protocol { tcp, udp } accept", udp(5), true),
        ("meta l4proto icmp accept", udp(5), false),
        (
            "icmp type echo-request accept",
            Spec {
                protocol: 1,
                sport: 8,
                ..Spec::default()
            },
            true,
        ),
        ("iifname \"eth0\" accept", tcp(1), true),
        ("iifname \"ppp*\" accept", tcp(1), false),
        ("oifname != \"eth*\" accept", tcp(1), false),
        ("iif eth0 oif eth1 accept", tcp(1), true),
        ("ct state established,related accept", tcp(1), false),
        ("ct state new accept", tcp(1), true),
        (
            "ct state vmap { new : accept, invalid : drop }",
            tcp(1),
            true,
        ),
        ("ip dscp ef accept", Spec { dscp: 46, ..tcp(1) }, true),
        ("ip ttl < 65 accept", tcp(1), true),
        ("meta length 50-70 accept", tcp(1), true),
        (
            "meta mark & 0xff == 0x10 accept",
            Spec {
                mark: 0x1_2310,
                ..tcp(1)
            },
            true,
        ),
        ("ether saddr 02:00:00:00:00:01 accept", tcp(1), true),
        ("tcp option maxseg size 1460 accept", tcp(1), true),
        ("tcp option window exists accept", tcp(1), false),
        ("@nh,96,32 0x0a000001 accept", tcp(1), true),
        ("meta nfproto ipv4 accept", tcp(1), true),
        ("tcp dport 80 counter accept", tcp(80), true),
        ("meta pkttype unicast accept", tcp(80), true),
    ];
    for (rule, spec, accepts) in cases {
        let ruleset = forward("", rule);
        assert_eq!(
            run(&ruleset, spec) == Verdict::Accept,
            *accepts,
            "{rule} on {spec:?}"
        );
    }
}

#[test]
fn ipv6_and_named_sets() {
    let ruleset = forward(
        "set v6 { type ipv6_addr; flags interval; elements = { 2001:db8::/32, fe80::1 } }\n\
         map ports { type inet_service : verdict; elements = { 22 : accept, 23 : jump sub } }\n\
         chain sub { ip6 hoplimit 64 accept; }",
        "ip6 saddr @v6 tcp dport vmap @ports",
    );
    let v6 = |source: &str, dport, ttl| Spec {
        source: source.parse().unwrap(),
        destination: "2001:db8::9".parse().unwrap(),
        dport,
        ttl,
        ..Spec::default()
    };
    assert_eq!(run(&ruleset, &v6("2001:db8:1::5", 22, 3)), Verdict::Accept);
    assert_eq!(run(&ruleset, &v6("2001:db9::5", 22, 3)), Verdict::Drop);
    assert_eq!(run(&ruleset, &v6("fe80::1", 23, 64)), Verdict::Accept);
    assert_eq!(run(&ruleset, &v6("fe80::1", 23, 63)), Verdict::Drop);
    assert_eq!(run(&ruleset, &v6("fe80::1", 24, 64)), Verdict::Drop);
}

#[test]
fn control_flow_as_the_kernel() {
    // A goto returns to the caller of the chain that it left; `return` in a base chain asks the policy.
    let rules = "jump a\ntcp dport 80 accept";
    let chains = "chain a { goto b; accept; }\nchain b { tcp dport 81 drop; return; }";
    let ruleset = forward(chains, rules);
    assert_eq!(run(&ruleset, &tcp(80)), Verdict::Accept);
    assert_eq!(run(&ruleset, &tcp(81)), Verdict::Drop);
    let ruleset = forward("", "tcp dport 80 return\naccept");
    assert_eq!(run(&ruleset, &tcp(80)), Verdict::Drop);
    assert_eq!(run(&ruleset, &tcp(81)), Verdict::Accept);
    let ruleset = forward("", "jump { tcp dport 80 accept; }\ntcp dport 81 accept");
    assert_eq!(run(&ruleset, &tcp(80)), Verdict::Accept);
    assert_eq!(run(&ruleset, &tcp(81)), Verdict::Accept);
}

#[test]
fn state_that_counts() {
    let ruleset = forward(
        "counter web { }",
        "tcp dport 80 counter name web limit rate 1/day burst 3 packets accept",
    );
    let accepted = (0..10)
        .filter(|_| run(&ruleset, &tcp(80)) == Verdict::Accept)
        .count();
    assert_eq!(accepted, 3);
    // 20 bytes of IPv4, 24 of TCP, 10 of payload.
    assert_eq!(ruleset.counter(0), (10, 540));
    let ruleset = forward("", "quota 100 bytes accept");
    assert_eq!(run(&ruleset, &tcp(80)), Verdict::Accept);
    assert_eq!(run(&ruleset, &tcp(80)), Verdict::Drop);
}

#[test]
fn sets_that_packets_fill() {
    let ruleset = forward(
        "set seen { type ipv4_addr; flags dynamic, timeout; timeout 10s; size 128 }",
        "tcp dport 1 add @seen { ip saddr } accept\nip saddr @seen accept\n\
         tcp dport 2 update @seen { ip saddr timeout 1m } accept\n\
         tcp dport 3 delete @seen { ip saddr } accept",
    );
    let second = 1_000_000_000;
    let at = |spec: &Spec, seconds: u64| run_at(&ruleset, spec, seconds * second).verdict;
    assert_eq!(at(&tcp(9), 1), Verdict::Drop);
    assert_eq!(at(&tcp(1), 1), Verdict::Accept);
    assert_eq!(at(&tcp(9), 10), Verdict::Accept);
    assert_eq!(at(&tcp(9), 11), Verdict::Drop, "expired");
    assert_eq!(at(&tcp(2), 20), Verdict::Accept);
    assert_eq!(at(&tcp(9), 79), Verdict::Accept);
    assert_eq!(at(&tcp(3), 79), Verdict::Accept, "it is in the set");
    let meter = forward(
        "",
        "meter m size 64 { ip saddr limit rate over 1/hour burst 2 packets } drop\naccept",
    );
    let passed = (0..5)
        .filter(|_| run(&meter, &tcp(9)) == Verdict::Accept)
        .count();
    assert_eq!(passed, 2);
    let other = Spec {
        source: "10.9.9.9".parse().unwrap(),
        ..tcp(9)
    };
    assert_eq!(
        run(&meter, &other),
        Verdict::Accept,
        "another source has its own limit"
    );
}

#[test]
fn verdicts_with_arguments() {
    let reject = |rule: &str, spec: &Spec| run(&forward("", rule), spec);
    assert_eq!(reject("reject", &udp(5)), Verdict::Reject(Reject::Icmp(3)));
    assert_eq!(
        reject("reject with icmpx admin-prohibited", &udp(5)),
        Verdict::Reject(Reject::Icmp(13))
    );
    assert_eq!(
        reject("reject with tcp reset", &tcp(5)),
        Verdict::Reject(Reject::TcpReset)
    );
    assert_eq!(
        reject("reject with tcp reset", &udp(5)),
        Verdict::Drop,
        "the policy: it is no TCP"
    );
    let nat = ruleset(
        "table ip n { map m { type inet_service : ipv4_addr . inet_service; elements = { 80 : 10.1.1.1 . 8080 } }\n\
         chain p { type nat hook prerouting priority dstnat; dnat to tcp dport map @m }\n }",
    );
    let Verdict::Nat(request) = run(&nat, &tcp(80)) else {
        panic!("no translation")
    };
    assert_eq!(request.kind, NatKind::Destination);
    assert_eq!(request.ports, Some((8080, 8080)));
    assert_eq!(
        request.addresses.map(|range| range.0[12..16].to_vec()),
        Some(vec![10, 1, 1, 1])
    );
    assert_eq!(run(&nat, &tcp(81)), Verdict::Accept);
}

#[test]
fn writes_repair_checksums() {
    let rules = "tcp flags syn tcp option maxseg size set 1200 ip dscp set cs1 ip ttl set 7 tcp dport set 8080 \
                 ip daddr set 10.7.7.7 meta mark set ip saddr & 0xff accept";
    for spec in [
        tcp(80),
        Spec {
            payload_bytes: 3,
            ..tcp(81)
        },
    ] {
        let outcome = run_at(&forward("", rules), &spec, 1);
        assert_eq!(outcome.verdict, Verdict::Accept);
        assert_eq!(outcome.mark, 1);
        assert!(
            outcome
                .effects
                .changes
                .contains(Changes::FRAME | Changes::MARK)
        );
        // Parsing checks the header's checksum.
        let layout = wire::parse(&outcome.frame).expect("a valid packet");
        let verified = wire::checksum::verify_transport(&layout, &outcome.frame);
        assert_eq!(verified, wire::checksum::TransportChecksum::Good);
        assert_eq!(outcome.frame[22], 7);
        assert_eq!(&outcome.frame[30..34], &[10, 7, 7, 7]);
        assert_eq!(&outcome.frame[36..38], &8080_u16.to_be_bytes());
    }
}

#[test]
fn effects_for_the_tracker() {
    let ruleset = ruleset(
        "table ip raw { chain p { type filter hook prerouting priority raw; udp dport 53 notrack log prefix \"dns \" } }",
    );
    let untracked = Spec {
        state: CtState::empty(),
        ..udp(53)
    };
    let outcome = run_at(&ruleset, &untracked, 1);
    assert_eq!(outcome.verdict, Verdict::Accept);
    assert!(outcome.effects.changes.contains(Changes::NOTRACK));
    let record = outcome.effects.logs[0];
    assert_eq!(ruleset.log(record.statement).unwrap().prefix, "dns ");
    assert_eq!(ruleset.rule(record.rule).unwrap().line, 1);
}

#[test]
fn verdicts_that_may_be_replayed() {
    let per_packet = |rules: &str| {
        let outcome = run_at(&forward("", rules), &tcp(80), 1);
        outcome.effects.changes.contains(Changes::PER_PACKET)
    };
    assert!(!per_packet(
        "ct state established accept\ntcp dport { 80, 443 } ip saddr 10.0.0.0/8 accept\nct status dnat drop"
    ));
    assert!(
        !per_packet("tcp dport 80 accept\ntcp flags syn counter drop"),
        "decided before"
    );
    assert!(per_packet("tcp flags syn drop\ntcp dport 80 accept"));
    assert!(per_packet("tcp dport 80 counter accept"));
    assert!(per_packet("limit rate 1/second accept"));
    assert!(per_packet("ip ttl 64 accept"));
    assert!(per_packet("meta length 60 accept\nmeta mark set 1"));
}

#[test]
fn base_chains_in_order_of_priority() {
    let ruleset = ruleset(
        "table ip a { chain x { type filter hook input priority 10; } }\n\
         table inet b { chain y { type filter hook input priority -10; } }\n\
         table ip6 c { chain z { type filter hook input priority 0; } }\n\
         table netdev d { chain i { type filter hook ingress device eth0 priority 0; } }",
    );
    let names = |family| {
        let base = ruleset.base_chains(family, Hook::Input, InterfaceId(1));
        base.map(|base| ruleset.chain(base.chain).unwrap().name.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(filter::packet::Family::Ip), ["y", "x"]);
    assert_eq!(names(filter::packet::Family::Ip6), ["y", "z"]);
    let ingress = |device| {
        ruleset
            .base_chains(
                filter::packet::Family::Netdev,
                Hook::Ingress,
                InterfaceId(device),
            )
            .count()
    };
    assert_eq!((ingress(1), ingress(2)), (1, 0));
}
