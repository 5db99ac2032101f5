//! Expressions and the frames that they find.

use proptest::prelude::*;

use super::*;

fn frame(ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

/// 10.0.0.2 to 192.0.2.9, with these ports.
fn ipv4(protocol: u8, source: u16, destination: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend([10, 0, 0, 2, 192, 0, 2, 9]);
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend([0; 4]);
    frame(0x0800, &packet)
}

/// 2001:db8::2 to ff02::1 with a fragment header and UDP ports.
fn ipv6(later: bool) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 16, 44, 64];
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([17, 0, 0, if later { 8 } else { 1 }, 0, 0, 0, 7]);
    packet.extend([0x30, 0x39, 0, 53, 0, 8, 0, 0]);
    frame(0x86dd, &packet)
}

fn arp() -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2];
    packet.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    let mut frame = frame(0x0806, &packet);
    frame[..6].fill(0xff);
    frame
}

fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend([0x81, 0]);
    tagged.extend(vlan.to_be_bytes());
    tagged.extend(&frame[12..]);
    tagged
}

#[track_caller]
fn holds(text: &str, frame: &[u8]) -> bool {
    match Expression::parse(text) {
        Ok(expression) => expression.matches(frame),
        Err(error) => panic!("{text}: {error}"),
    }
}

#[test]
fn what_holds_for_a_packet_and_what_does_not() {
    let (tcp, udp) = (ipv4(6, 40_000, 80), ipv4(17, 53, 40_000));
    for (frame, yes, no) in [
        (
            &tcp,
            &[
                "tcp",
                "ip",
                "host 10.0.0.2",
                "src 10.0.0.2",
                "dst host 192.0.2.9",
                "net 10.0.0.0/8",
                "net 10",
                "src net 10.0 and dst net 192.0.2",
                "port 80",
                "tcp port 80",
                "tcp dst port 80",
                "src portrange 40000-40010",
                "ip proto 6",
                "proto \\tcp",
                "ip host 192.0.2.9",
                "src and dst net 0.0.0.0/0",
                "not udp",
                "!(udp or arp)",
                "ether host 02:00:00:00:00:02",
                "ether src 02:00:00:00:00:02",
                "less 42",
                "ether proto 0x800",
                "ether proto ip",
                "port 53 or 80",
                "host 10.0.0.7 or 10.0.0.2",
                "not host 10.0.0.7 and 192.0.2.9",
                "tcp && port 80",
                "udp || tcp",
            ][..],
            &[
                "udp",
                "ip6",
                "arp",
                "dst 10.0.0.2",
                "host 10.0.0.20",
                "net 192.0.3.0/24",
                "port 8",
                "udp port 80",
                "src port 80",
                "ip6 host 2001:db8::2",
                "vlan",
                "vlan 5",
                "broadcast",
                "multicast",
                "greater 43",
                "icmp",
                "not tcp",
                "src and dst net 10",
                "ip multicast",
                "arp host 10.0.0.2",
                "ether dst 02:00:00:00:00:02",
                // From the left: (tcp or udp) and udp.
                "tcp or udp and udp",
            ][..],
        ),
        (
            &udp,
            &["udp src port 53", "port 53", "ip proto udp"],
            &["tcp", "dst port 53"],
        ),
        (
            &ipv6(false),
            &[
                "ip6",
                "udp",
                "port 53",
                "dst host ff02::1",
                "ip6 multicast",
                "net 2001:db8::/32",
            ],
            &["ip", "tcp", "icmp6", "src net ff00::/8"],
        ),
        (&ipv6(true), &["ip6 and udp", "ip6 proto 17"], &["port 53"]),
        (
            &arp(),
            &[
                "arp",
                "host 10.0.0.1",
                "arp src 10.0.0.2",
                "broadcast",
                "ether multicast",
            ],
            &["ip", "ip host 10.0.0.1", "arp dst host 10.0.0.2"],
        ),
        (
            &tagged(5, &tcp),
            &["vlan", "vlan 5", "vlan 5 and tcp port 80", "tcp"],
            &["vlan 6", "not vlan"],
        ),
        (
            &vec![1, 2, 3],
            &["less 3", "not ip"],
            &["ip", "ether host 00:00:00:00:00:00", "broadcast"],
        ),
    ] {
        for text in yes {
            assert!(holds(text, frame), "{text} holds for {frame:02x?}");
        }
        for text in no {
            assert!(!holds(text, frame), "{text} does not hold for {frame:02x?}");
        }
    }
}

#[test]
fn a_mistake_is_shown_with_its_place_and_a_remedy() {
    for (text, column, message) in [
        ("", 1, "ends where an address or a keyword"),
        ("host", 5, "ends where"),
        ("host nobody", 6, "`nobody` is not"),
        ("tcp port http", 10, "`http` is not a port number"),
        ("port 65536", 6, "not a port number"),
        ("tcp udp", 5, "does not go on"),
        ("(tcp", 5, "not closed"),
        ("tcp)", 4, "closes nothing"),
        ("tcp and", 8, "ends where"),
        ("net 10.0.0.1/8", 5, "bits set"),
        ("ip host 2001:db8::1", 9, "other IP version"),
        ("ip6 net 10.0.0.0/8", 9, "other IP version"),
        ("ether host 10.0.0.1", 12, "not a MAC address"),
        ("ether 5", 7, "not `host`"),
        ("vlan 5000", 6, "at most 4095"),
        ("icmp port 5", 11, "ports"),
        ("tcp proto 6", 5, "goes after"),
        ("tcp host 10.0.0.1", 5, "no addresses"),
        ("tcp & udp", 5, "does not go on"),
    ] {
        let error = Expression::parse(text).expect_err(text);
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(!error.remedy.is_empty());
    }
    let deep = "(".repeat(200) + "tcp" + &")".repeat(200);
    assert!(Expression::parse(&deep).is_err());
    assert!(Expression::parse(&"tcp or ".repeat(1000)).is_err());
}

proptest! {
    /// Any text is read or refused, and any frame judged.
    #[test]
    fn nothing_panics(text in "[a-z0-9.:/() !&|\\\\-]{0,60}", frame in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(expression) = Expression::parse(&text) {
            expression.matches(&frame);
        }
    }

    /// The same for texts that are nearly right.
    #[test]
    fn nothing_panics_nearly(
        words in proptest::collection::vec(prop_oneof![
            Just("not"), Just("and"), Just("or"), Just("("), Just(")"), Just("host"), Just("src"), Just("dst"),
            Just("net"), Just("port"), Just("tcp"), Just("ip6"), Just("10.0.0.0/8"), Just("80"), Just("::1"),
            Just("ether"), Just("proto"), Just("vlan"), Just("less"), Just("1-9"), Just("portrange"),
        ], 0..16),
        frame in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        if let Ok(expression) = Expression::parse(&words.join(" ")) {
            let whole = expression.matches(&frame);
            let not = Expression::parse(&format!("not ({})", words.join(" ")));
            prop_assert_eq!(not.map(|not| not.matches(&frame)), Ok(!whole));
        }
    }
}
