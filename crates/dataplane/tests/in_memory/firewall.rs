//! The firewall in the packet graph: what leaves is masqueraded, what was not asked for is dropped.

use wire::{DropReason, FlowKey, checksum, parse};

use crate::frames::to_node4;
use crate::packets::{echo_request, ethernet, ipv4, udp};
use crate::rig::{Rig, node_mac, peer_mac};

const GATEWAY: &str = r#"
[[port]]
name = "lan"
driver = "mem"
addresses = ["10.0.0.1/24"]
[[port]]
name = "wan"
driver = "mem"
mtu = 1300
addresses = ["198.51.100.1/24"]
[[neighbour]]
address = "10.0.0.2"
mac = "02:00:00:00:00:02"
port = "lan"
[[neighbour]]
address = "198.51.100.9"
mac = "02:00:00:00:01:02"
port = "wan"
[firewall]
inside = "lan"
"#;

const CLIENT: [u8; 4] = [10, 0, 0, 2];
const GATE: [u8; 4] = [198, 51, 100, 1];
const SERVER: [u8; 4] = [198, 51, 100, 9];

/// A frame from the station outside.
fn from_outside(packet: &[u8]) -> Vec<u8> {
    ethernet(node_mac(1).0, peer_mac(1).0, 0x0800, packet)
}

/// A UDP packet with a right checksum from one host to another, ports 12345 and 53 (or as given).
fn datagram(
    from: [u8; 4],
    to: [u8; 4],
    ports: Option<(u16, u16)>,
    data: usize,
    ttl: u8,
) -> Vec<u8> {
    let mut payload = udp(data);
    if let Some((source, destination)) = ports {
        payload[..2].copy_from_slice(&source.to_be_bytes());
        payload[2..4].copy_from_slice(&destination.to_be_bytes());
    }
    let mut frame = to_node4(&ipv4(from, to, 17, ttl, 0x4000, &[], &payload));
    let layout = parse(&frame).expect("a datagram");
    checksum::fill_transport(&layout, &mut frame);
    frame[14..].to_vec()
}

fn key(frame: &[u8]) -> FlowKey {
    let layout = parse(frame).expect("the node sends what parses");
    let state = checksum::verify_transport(&layout, frame);
    assert_ne!(state, checksum::TransportChecksum::Bad);
    FlowKey::from_layout(&layout, frame).expect("IP")
}

fn dropped(rig: &Rig, reason: DropReason) -> u64 {
    let drops = rig.drops();
    drops
        .iter()
        .filter(|(name, _)| *name == reason.name())
        .map(|(_, count)| count)
        .sum()
}

#[test]
fn a_client_reaches_a_server_through_masquerade_and_nobody_comes_in() {
    let mut rig = Rig::new(GATEWAY);
    let out = rig.exchange(0, &to_node4(&datagram(CLIENT, SERVER, None, 32, 64)));
    let [sent] = &out[1][..] else {
        panic!("one frame leaves by the wan port: {out:?}")
    };
    assert_eq!(key(sent).source_ip(), std::net::IpAddr::from(GATE));
    let port = key(sent).source_port;
    let answer = datagram(SERVER, GATE, Some((53, port)), 8, 64);
    let back = rig.exchange(1, &from_outside(&answer));
    let [answer] = &back[0][..] else {
        panic!("one frame reaches the client: {back:?}")
    };
    assert_eq!(key(answer).destination_ip(), std::net::IpAddr::from(CLIENT));
    assert_eq!(key(answer).destination_port, 12345);
    // From another port of the server: not asked for.
    let stray = datagram(SERVER, GATE, Some((54, port)), 8, 64);
    rig.exchange(1, &from_outside(&stray));
    assert_eq!(dropped(&rig, DropReason::FirewallRule), 1);
    rig.finish();
}

#[test]
fn an_error_about_a_translated_packet_reaches_the_client_with_its_own_packet() {
    let mut rig = Rig::new(GATEWAY);
    // TTL 1: the node sees the packet translated, and tells the client about it as it was.
    for packet in [
        datagram(CLIENT, SERVER, None, 32, 1),
        datagram(CLIENT, SERVER, None, 1400, 64),
    ] {
        let out = rig.exchange(0, &to_node4(&packet));
        let [error] = &out[0][..] else {
            panic!("one ICMP error: {out:?}")
        };
        assert_eq!(key(error).destination_ip(), std::net::IpAddr::from(CLIENT));
        let quoted = FlowKey::from_icmp_quote(&parse(error).expect("ICMP"), error);
        assert_eq!(quoted.map(|key| key.source_ip()), Some(CLIENT.into()));
        assert_eq!(quoted.map(|key| key.source_port), Some(12345));
    }
    rig.finish();
}

#[test]
fn the_gateway_answers_pings_from_inside_only() {
    let mut rig = Rig::new(GATEWAY);
    let ping = |from, to| ipv4(from, to, 1, 64, 0, &[], &echo_request(16));
    let out = rig.exchange(0, &to_node4(&ping(CLIENT, [10, 0, 0, 1])));
    assert_eq!(out[0].len(), 1, "an echo reply");
    let out = rig.exchange(1, &from_outside(&ping(SERVER, GATE)));
    assert_eq!((out[0].len(), out[1].len()), (0, 0));
    assert_eq!(dropped(&rig, DropReason::FirewallRule), 1);
    rig.finish();
}

/// Whole or in fragments, the reply is translated as its request was, and passes the output chain.
#[test]
fn replies_of_the_gateway_belong_to_the_connections_of_their_requests() {
    let rules = "table ip t {
        chain pre { type nat hook prerouting priority dstnat; ip daddr 10.0.0.77 dnat to 10.0.0.1 }
        chain out {
            type filter hook output priority filter; policy drop
            ct state established accept
        }
    }";
    const MORE: u16 = 0x2000;
    let request = echo_request(2000);
    let piece =
        |field, data: &[u8]| to_node4(&ipv4(CLIENT, [10, 0, 0, 77], 1, 64, field, &[], data));
    let small = piece(0, &echo_request(16));
    let pieces = [piece(MORE, &request[..1200]), piece(150, &request[1200..])];
    let directory = tempfile::tempdir().expect("a directory");
    let source = |frame: &[u8]| {
        let layout = parse(frame).expect("the node sends what parses");
        layout.ipv4_addresses(frame).expect("IPv4").0
    };

    let mut rig = Rig::new(&gateway_with_rules(&directory, rules));
    let out = rig.exchange(0, &small).remove(0);
    assert_eq!(out.len(), 1);
    assert_eq!(
        key(&out[0]).source_ip(),
        std::net::IpAddr::from([10, 0, 0, 77])
    );
    assert_eq!(rig.exchange(0, &pieces[0])[0].len(), 0);
    let out = rig.exchange(0, &pieces[1]).remove(0);
    assert_eq!(out.len(), 2);
    for frame in &out {
        assert_eq!(source(frame), std::net::Ipv4Addr::new(10, 0, 0, 77));
    }
    rig.finish();

    let closed = rules.replace("established accept", "established drop");
    let mut rig = Rig::new(&gateway_with_rules(&directory, &closed));
    for frame in [&small, &pieces[0], &pieces[1]] {
        assert_eq!(rig.exchange(0, frame)[0].len(), 0);
    }
    assert_eq!(dropped(&rig, DropReason::FirewallRule), 3);
    rig.finish();
}

/// The gateway with a file of rules in nft syntax instead of one side that may open connections.
fn gateway_with_rules(directory: &tempfile::TempDir, rules: &str) -> String {
    let file = directory.path().join("rules.nft");
    std::fs::write(&file, rules).expect("a file");
    let rules = format!("rules = \"{}\"", file.display());
    GATEWAY.replace("inside = \"lan\"", &rules)
}

const RULES: &str = "
table inet filter {
    chain input { type filter hook input priority 0; policy drop; }
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state vmap { established : accept, related : accept }
        iifname lan udp dport { 53, 123 } counter accept
        iifname wan ip daddr 10.0.0.2 udp dport 12345 accept
    }
}
table ip nat {
    chain pre { type nat hook prerouting priority dstnat; iifname wan udp dport 7000 dnat to 10.0.0.2:12345 }
    chain post { type nat hook postrouting priority srcnat; oifname wan masquerade }
}";

#[test]
fn rules_of_a_file_filter_masquerade_and_forward_a_port() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut rig = Rig::new(&gateway_with_rules(&directory, RULES));
    let out = rig.exchange(0, &to_node4(&datagram(CLIENT, SERVER, None, 32, 64)));
    let [sent] = &out[1][..] else {
        panic!("port 53 may leave: {out:?}")
    };
    assert_eq!(key(sent).source_ip(), std::net::IpAddr::from(GATE));
    let answer = datagram(SERVER, GATE, Some((53, key(sent).source_port)), 8, 64);
    let back = rig.exchange(1, &from_outside(&answer));
    assert_eq!(
        key(&back[0][0]).destination_ip(),
        std::net::IpAddr::from(CLIENT)
    );

    // No rule for port 54, and the node itself answers nobody.
    let refused = datagram(CLIENT, SERVER, Some((12345, 54)), 8, 64);
    let out = rig.exchange(0, &to_node4(&refused));
    assert_eq!((out[0].len(), out[1].len()), (0, 0));
    let ping = ipv4(CLIENT, [10, 0, 0, 1], 1, 64, 0, &[], &echo_request(16));
    let out = rig.exchange(0, &to_node4(&ping));
    assert_eq!(out[0].len(), 0);
    assert_eq!(dropped(&rig, DropReason::FirewallRule), 2);

    // The forwarded port: its destination is translated, and the answer back.
    let call = datagram(SERVER, GATE, Some((4000, 7000)), 8, 64);
    let out = rig.exchange(1, &from_outside(&call));
    let [called] = &out[0][..] else {
        panic!("the forwarded port reaches the client: {out:?}")
    };
    let called = key(called);
    assert_eq!(called.destination_ip(), std::net::IpAddr::from(CLIENT));
    assert_eq!(called.destination_port, 12345);
    let reply = datagram(CLIENT, SERVER, Some((12345, 4000)), 8, 64);
    let out = rig.exchange(0, &to_node4(&reply));
    let [reply] = &out[1][..] else {
        panic!("the answer leaves: {out:?}")
    };
    assert_eq!(key(reply).source_ip(), std::net::IpAddr::from(GATE));
    assert_eq!(key(reply).source_port, 7000);
    rig.finish();
}

#[test]
fn a_wrong_rule_is_an_error_with_its_place_and_what_is_not_there_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let fault = |rules: &str| {
        let config = gateway_with_rules(&directory, rules);
        let config: control::Config = toml::from_str(&config).expect("TOML");
        let plan = dataplane::Plan::new(&config).expect("a plan");
        let loaded = dataplane::firewall::load_rules(&config, &plan, None);
        loaded.expect_err("it is wrong").to_string()
    };
    let misspelt = fault(&RULES.replace("udp dport { 53, 123 }", "udp dprot 53"));
    assert!(misspelt.contains("rules.nft:7:"), "{misspelt}");
    let arp = fault("table arp x { chain y { type filter hook input priority 0; } }");
    assert!(arp.contains("arp"), "{arp}");
}

#[test]
fn subscribers_have_the_ports_that_are_computed_for_them() {
    let cgn = "[firewall.cgn]\nsubscribers = [\"10.0.0.1\", \"10.0.0.4\"]\nouter = [\"198.51.100.1\", \"198.51.100.1\"]\n";
    let mut rig = Rig::new(&format!("{GATEWAY}{cgn}"));
    // The second of four: the second quarter of the ports from 1024 on.
    let share = (65_536 - 1024) / 4;
    for source in [12_345, 50_000] {
        let packet = datagram(CLIENT, SERVER, Some((source, 53)), 32, 64);
        let out = rig.exchange(0, &to_node4(&packet));
        let [sent] = &out[1][..] else {
            panic!("one frame leaves by the wan port: {out:?}")
        };
        assert_eq!(key(sent).source_ip(), std::net::IpAddr::from(GATE));
        let port = u32::from(key(sent).source_port);
        assert!((1024 + share..1024 + 2 * share).contains(&port), "{port}");
    }
    rig.finish();
}

#[test]
fn a_new_file_of_rules_comes_with_the_next_snapshot_and_an_unchanged_one_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let load = |rules: &str, old: Option<&std::sync::Arc<dataplane::firewall::FileRules>>| {
        let config = gateway_with_rules(&directory, rules);
        let config: control::Config = toml::from_str(&config).expect("TOML");
        let plan = dataplane::Plan::new(&config).expect("a plan");
        let loaded = dataplane::firewall::load_rules(&config, &plan, old);
        loaded.expect("right rules").expect("a file")
    };
    let first = load(RULES, None);
    let same = load(RULES, Some(&first));
    assert!(
        std::sync::Arc::ptr_eq(&first, &same),
        "counters and sets go on"
    );
    let other = load(&RULES.replace("53, 123", "53"), Some(&first));
    assert!(!std::sync::Arc::ptr_eq(&first, &other));
}
