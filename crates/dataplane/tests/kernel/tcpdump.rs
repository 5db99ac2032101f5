//! The same filters and the same packets: our expressions find what tcpdump finds.

use std::process::Command;

use graph::Expression;
use io::pcapng::{InterfaceDescription, Packet, Section, Writer};

use crate::packets::{echo_request, ethernet, ipv4, ipv6, udp};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

const EXPRESSIONS: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "host 10.0.0.1",
    "src host 10.0.0.2",
    "dst 10.0.0.2",
    "src or dst 10.0.0.1",
    "src and dst net 10.0.0.0/24",
    "net 10.0.0.0/8",
    "net 192.168",
    "not net 10",
    "port 53",
    "src port 53",
    "udp dst port 53",
    "tcp port 53",
    "tcp port 80 or 443",
    "portrange 50-60",
    "udp portrange 1-100",
    "ip host 10.0.0.1",
    "ip6 host fd00::1",
    "net fd00::/64",
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:02",
    "ether dst 02:00:00:00:00:02",
    "ether proto 0x0806",
    "ether broadcast",
    "ether multicast",
    "broadcast",
    "ip proto 17",
    "ip6 proto 17",
    "ip multicast",
    "ip6 multicast",
    "less 60",
    "greater 100",
    "arp host 10.0.0.1",
    "arp src host 10.0.0.9",
    "tcp or udp and port 80",
    "tcp or (udp and port 80)",
    "not tcp and not udp",
    "not host 10.0.0.2 and not arp",
    "host 10.0.0.1 and (port 53 or icmp)",
    "!(ip or ip6)",
    "tcp && dst port 80",
    "icmp || arp",
    "ip and not (udp or tcp)",
    "greater 60 and ip6",
];

fn frames() -> Vec<Vec<u8>> {
    let ports = |source: u16, destination: u16, bytes: usize| {
        let mut segment = udp(bytes);
        segment[..2].copy_from_slice(&source.to_be_bytes());
        segment[2..4].copy_from_slice(&destination.to_be_bytes());
        segment
    };
    let four = |to: [u8; 4], protocol, field, payload: &[u8]| {
        let packet = ipv4([10, 0, 0, 1], to, protocol, 64, field, &[], payload);
        ethernet(B, A, 0x0800, &packet)
    };
    let six = |to: u8, next, payload: &[u8]| {
        let address = |last| {
            core::array::from_fn(|i| {
                if i == 0 {
                    0xfd
                } else {
                    u8::from(i == 15) * last
                }
            })
        };
        let mut to_address: [u8; 16] = address(to);
        if to == 0xff {
            to_address = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        }
        ethernet(
            A,
            B,
            0x86dd,
            &ipv6(address(1), to_address, next, 64, payload),
        )
    };
    let arp = |sender: u8| {
        let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
        packet.extend(A);
        packet.extend([10, 0, 0, sender]);
        packet.extend([0; 6]);
        packet.extend([10, 0, 0, 1]);
        ethernet([0xff; 6], A, 0x0806, &packet)
    };
    let mut frames = vec![
        arp(9),
        arp(2),
        six(2, 58, &echo_request(20)),
        six(0xff, 58, &echo_request(20)),
        four([224, 0, 0, 5], 17, 0, &ports(520, 520, 30)),
        four([10, 0, 0, 2], 1, 0, &echo_request(56)),
        // A later fragment has no ports.
        four([10, 0, 0, 2], 17, 0x0003, &ports(53, 53, 20)),
        ethernet(B, A, 0x88b5, &[7; 50]),
        // With IPv4 options the ports are later.
        ethernet(
            B,
            A,
            0x0800,
            &ipv4(
                [10, 0, 0, 1],
                [10, 0, 0, 2],
                17,
                64,
                0,
                &[1; 8],
                &ports(53, 9, 4),
            ),
        ),
    ];
    for (source, destination) in [
        (53, 4000),
        (4000, 53),
        (4000, 80),
        (443, 4000),
        (55, 100),
        (7, 9),
    ] {
        for protocol in [6, 17] {
            let mut segment = ports(source, destination, 20);
            if protocol == 6 {
                segment[12] = 0x50;
            }
            frames.push(four([10, 0, 0, 2], protocol, 0, &segment));
            frames.push(four([192, 168, 7, 7], protocol, 0, &segment));
            frames.push(six(2, protocol, &segment));
        }
    }
    frames
}

#[test]
fn expressions_find_what_tcpdump_finds() {
    if !lab::need::program("expressions_find_what_tcpdump_finds", "tcpdump") {
        return;
    }
    let frames = frames();
    let path = std::env::temp_dir().join(format!("tg-expressions-{}.pcapng", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file");
    let mut writer = Writer::new(file, &Section::default()).expect("a section");
    let interface = InterfaceDescription::ethernet("lan");
    let interface = writer.add_interface(&interface).expect("an interface");
    for (number, frame) in (0..).zip(&frames) {
        // The time tells which packet it is.
        let packet = Packet::new(interface, number * 1_000_000_000, frame);
        writer.write_packet(&packet).expect("a packet");
    }
    drop(writer);
    let mut wrong = Vec::new();
    for text in EXPRESSIONS {
        let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let ours: Vec<usize> = (0..frames.len())
            .filter(|&number| expression.matches(&frames[number]))
            .collect();
        let output = Command::new("tcpdump")
            .args(["-n", "-tt", "-r"])
            .arg(&path)
            .arg(text)
            .output()
            .expect("tcpdump runs");
        let lines = String::from_utf8_lossy(&output.stdout);
        let theirs: Vec<usize> = lines
            .lines()
            .filter_map(|line| line.split_once('.')?.0.parse().ok())
            .collect();
        if ours != theirs {
            wrong.push(format!("{text}: ours {ours:?}, tcpdump's {theirs:?}"));
        }
    }
    std::fs::remove_file(&path).expect("the file is there");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
