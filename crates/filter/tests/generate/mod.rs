//! Random rulesets and packets, chosen so that they meet often.

use filter::packet::CtState;
use proptest::prelude::*;

use crate::common::Spec;

fn match_text() -> impl Strategy<Value = String> {
    let port = 20_u16..30;
    let not = prop::sample::select(vec!["", "!= "]);
    prop_oneof![
        (not.clone(), port.clone()).prop_map(|(not, port)| format!("tcp dport {not}{port}")),
        (not.clone(), port.clone(), 0_u16..4)
            .prop_map(|(not, low, n)| format!("udp dport {not}{low}-{}", low + n)),
        (not.clone(), prop::collection::btree_set(port.clone(), 1..4)).prop_map(|(not, ports)| {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!("th dport {not}{{ {} }}", ports.join(", "))
        }),
        (
            not.clone(),
            0_u8..4,
            prop::sample::select(vec![8, 24, 30, 32])
        )
            .prop_map(|(not, host, length)| format!("ip saddr {not}10.0.0.{host}/{length}")),
        (not.clone(), 0_u8..4).prop_map(|(not, host)| format!("ip6 daddr {not}fd00::{host}")),
        (not.clone(), 0_u8..4).prop_map(|(not, host)| format!("iifname {not}\"eth{host}\"")),
        not.prop_map(|not| format!("oifname {not}\"eth*\"")),
        Just("ct state established,related".to_string()),
        Just("ct state != new".to_string()),
        Just("tcp flags & (syn|ack) == syn".to_string()),
        Just("tcp flags ! fin".to_string()),
        (0_u32..4).prop_map(|mark| format!("meta mark {mark}")),
        (0_u32..4).prop_map(|mark| format!("meta mark & 3 == {mark}")),
        (0_u32..4).prop_map(|mark| format!("ct mark > {mark}")),
        (0_u8..4, port).prop_map(|(host, port)| format!(
            "ip saddr . tcp dport {{ 10.0.0.{host} . {port}, 10.0.0.0/30 . 29 }}"
        )),
        Just("ip dscp cs1".to_string()),
        Just("ip6 dscp cs1".to_string()),
        Just("ether saddr 02:00:00:00:00:01".to_string()),
        Just("tcp option maxseg size 1460".to_string()),
        Just("tcp option sack-perm exists".to_string()),
        Just("meta l4proto { tcp, icmp }".to_string()),
        Just("ip protocol != tcp".to_string()),
        Just("ip6 nexthdr { udp, 132 }".to_string()),
        Just("ip ttl >= 64".to_string()),
        Just("iifname \"eth*\"".to_string()),
        Just("@th,16,16 0x19".to_string()),
        Just("meta length < 60".to_string()),
        Just("icmp type echo-request".to_string()),
    ]
}

fn action_text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("accept".to_string()),
        3 => Just("drop".to_string()),
        2 => Just("counter".to_string()),
        2 => Just("continue".to_string()),
        1 => Just("return".to_string()),
        1 => Just("jump sub".to_string()),
        1 => Just("goto sub".to_string()),
        2 => (0_u32..4).prop_map(|mark| format!("meta mark set {mark}")),
        1 => (0_u32..4).prop_map(|mark| format!("ct mark set {mark}")),
        1 => Just("ip dscp set cs1".to_string()),
        1 => Just("tcp dport set 25".to_string()),
        1 => Just("limit rate 1/day burst 2 packets".to_string()),
        1 => Just("log prefix \"x\"".to_string()),
        1 => Just("tcp dport vmap { 22 : accept, 23 : drop, 24-26 : jump sub }".to_string()),
        1 => Just("meta l4proto vmap { tcp : continue, udp : return }".to_string()),
        1 => Just("reject".to_string()),
        1 => Just("add @seen { ip saddr . tcp dport }".to_string()),
        1 => Just("ip saddr . tcp dport @seen drop".to_string()),
        1 => Just("notrack".to_string()),
        1 => Just("numgen inc mod 3 vmap { 0 : accept, 1 : continue, 2 : drop }".to_string()),
        1 => Just("meta mark set ip saddr map { 10.0.0.0/31 : 1, 10.0.0.2 : 3 }".to_string()),
        1 => Just("quota 300 bytes".to_string()),
        1 => Just("tcp option maxseg size set 1200".to_string()),
        1 => Just("ip ttl set 9".to_string()),
        1 => Just("meta mark set meta mark | 2".to_string()),
    ]
}

fn rule_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![4 => match_text(), 1 => Just("counter".to_string())];
    (prop::collection::vec(part, 0..4), action_text()).prop_map(|(mut parts, action)| {
        // A rule is about one family only: what comes first decides.
        parts.push(action);
        let is_ip6 = |part: &String| part.contains("ip6 ");
        let is_ip = |part: &String| {
            ["ip saddr", "ip dscp", "ip protocol", "ip ttl"]
                .iter()
                .any(|ip| part.contains(ip))
        };
        let first = parts
            .iter()
            .find(|part| is_ip6(part) || is_ip(part))
            .cloned();
        parts.retain(|part| match &first {
            Some(first) if is_ip6(first) => !is_ip(part),
            Some(_) => !is_ip6(part),
            None => true,
        });
        parts.join(" ")
    })
}

pub(crate) fn ruleset_text() -> impl Strategy<Value = String> {
    let sub_action = prop::sample::select(vec![
        "accept",
        "drop",
        "counter",
        "return",
        "meta mark set 2",
    ]);
    let sub =
        (match_text(), sub_action).prop_map(|(matches, action)| format!("{matches} {action}"));
    (prop::collection::vec(rule_text(), 1..60), prop::collection::vec(sub, 0..12)).prop_map(|(rules, sub)| {
        format!(
            "table inet t {{\nset seen {{ type ipv4_addr . inet_service; flags dynamic; size 64; }}\n\
             chain sub {{\n{}\n}}\nchain f {{ type filter hook forward priority 0; policy accept;\n{}\n}}\n}}\n",
            sub.join("\n"),
            rules.join("\n"),
        )
    })
}

pub(crate) fn spec() -> impl Strategy<Value = Spec> {
    let protocol = prop::sample::select(vec![6_u8, 6, 17, 1, 132]);
    let state = prop::sample::select(vec![
        CtState::NEW,
        CtState::ESTABLISHED,
        CtState::RELATED,
        CtState::INVALID,
    ]);
    (
        (protocol, 20_u16..30, 0_u8..32, 0_u8..4, any::<bool>()),
        (0_u16..5, 0_u16..5, 0_u32..4, state, 0_u32..4, 0_usize..40),
    )
        .prop_map(
            |(
                (protocol, dport, flags, host, v6),
                (iif, oif, mark, state, ct_mark, payload_bytes),
            )| {
                let (source, destination) = if v6 {
                    (format!("fd00::{host}"), format!("fd00::{}", 3 - host))
                } else {
                    (format!("10.0.0.{host}"), "192.168.0.1".to_string())
                };
                let protocol = if v6 && protocol == 1 { 58 } else { protocol };
                let sport = if protocol == 1 { 8 } else { 1000 };
                Spec {
                    source: source.parse().unwrap(),
                    destination: destination.parse().unwrap(),
                    protocol,
                    sport,
                    dport,
                    flags,
                    dscp: if flags & 1 == 0 { 8 } else { 0 },
                    iif,
                    oif,
                    mark,
                    state,
                    ct_mark,
                    payload_bytes,
                    ..Spec::default()
                }
            },
        )
}
