//! Rules before they are in force: explained, compared, tried by captures.

mod common;

use std::path::{Path, PathBuf};

use common::{Run, run};
use control::api::{PacketExplanation, RuleChange, TrialReport};
use wire::tcp::Flags;
use wire::{Addresses, ip_protocol, ipv4, tcp, udp};

const OLD: &str = "table inet filter {
    set servers { type ipv4_addr; elements = { 198.51.100.7, 198.51.100.9 } }
    chain forward {
        type filter hook forward priority filter; policy drop
        ct state established,related accept
        iifname lan ip daddr @servers tcp dport { 80, 443 } counter accept
        iifname lan udp dport 53 accept
    }
}
table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat
        oifname wan masquerade
    }
}
";

const NETS: [&str; 4] = ["--net", "lan=10.0.0.1/24", "--net", "wan=203.0.113.1/24"];

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("old.nft"), OLD).unwrap();
        // No DNS, and another outer address for what is left.
        let new = OLD
            .replace("        iifname lan udp dport 53 accept\n", "")
            .replace("masquerade", "snat to 203.0.113.9");
        std::fs::write(directory.path().join("new.nft"), new).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory
            .path()
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn explain(&self, packets: &[&str], json: bool) -> Run {
        let rules = self.path("old.nft");
        let mut arguments = vec!["explain", "--rules", &rules];
        arguments.extend(NETS);
        if json {
            arguments.push("--json");
        }
        arguments.extend(packets);
        run(&arguments)
    }
}

#[test]
fn a_packet_in_words_is_explained_hook_by_hook() {
    let files = Files::new();
    let packets = [
        "tcp 10.0.0.2:1234 > 198.51.100.7:80 syn",
        "tcp 198.51.100.7:80 > 203.0.113.1:1234 syn,ack",
        "tcp 10.0.0.2:1234 > 198.51.100.7:80 ack",
        "iif=wan tcp 198.51.100.8:80 > 10.0.0.2:1234 syn",
        "tcp 10.0.0.2:1234 > 198.51.100.7:25 syn",
    ];
    let said = files.explain(&packets, true);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let explained: Vec<PacketExplanation> = serde_json::from_str(&said.stdout).unwrap();
    let [syn, syn_ack, ack, stranger, mail] = &explained[..] else {
        panic!("five packets: {explained:?}")
    };
    assert_eq!((syn.iif.as_str(), syn.fate.as_str()), ("lan", "accept"));
    assert_eq!(
        syn.leaves_as.as_deref(),
        Some("tcp 203.0.113.1:1234 > 198.51.100.7:80")
    );
    let forward = syn
        .hooks
        .iter()
        .find(|hook| hook.hook == "forward")
        .unwrap();
    assert_eq!(
        (forward.state.as_str(), forward.oif.as_deref()),
        ("new", Some("wan"))
    );
    let rule = forward.rule.as_ref().unwrap();
    assert_eq!(rule.line, 6, "the rule that let it pass: {rule:?}");
    assert!(rule.file.ends_with("old.nft"));
    let steps = forward.steps.join("\n");
    assert!(steps.contains("servers: element 198.51.100.7"), "{steps}");
    let nat = syn.hooks.iter().find(|hook| hook.stage == "nat").unwrap();
    assert_eq!(
        (nat.verdict.as_str(), nat.rule.as_ref().unwrap().line),
        ("masquerade", 13)
    );
    assert_eq!(syn.before, None);
    assert_eq!(syn.after.as_ref().unwrap().state, "synsent");
    assert_eq!(
        syn_ack.leaves_as.as_deref(),
        Some("tcp 198.51.100.7:80 > 10.0.0.2:1234")
    );
    assert_eq!(syn_ack.after.as_ref().unwrap().state, "synreceived");
    assert_eq!(ack.after.as_ref().unwrap().state, "established");
    let states: Vec<&str> = ack.hooks.iter().map(|hook| hook.state.as_str()).collect();
    assert!(
        states.iter().all(|state| *state == "established"),
        "{states:?}"
    );
    for dropped in [stranger, mail] {
        assert_eq!(
            dropped.drop_reason.as_deref(),
            Some("firewall_rule"),
            "{dropped:?}"
        );
        let last = dropped.hooks.last().unwrap();
        assert_eq!(last.rule.as_ref().unwrap().text, "policy");
    }

    let text = files.explain(&packets[..1], false).stdout;
    for wanted in [
        "old.nft:6:",
        "ct state new",
        "translate (Masquerade) by",
        "connection begins",
        "leaves as tcp 203.0.113.1:1234 > 198.51.100.7:80",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn what_cannot_be_explained_is_said_with_a_remedy() {
    let files = Files::new();
    for (packet, code, what) in [
        ("tcp 10.0.0.2:1 > 1.2.3.4:80 sin", 2, "sin"),
        ("iif=dmz tcp 10.0.0.2:1 > 1.2.3.4:80 syn", 5, "dmz"),
    ] {
        let said = files.explain(&[packet], false);
        assert_eq!(said.code, code, "{packet}");
        assert!(
            said.stderr.contains(what) && said.stderr.contains("help:"),
            "{}",
            said.stderr
        );
    }
    let said = run(&["explain", "--net", "lan", "udp 10.0.0.2:1 > 1.2.3.4:80"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert_eq!(run(&["explain"]).code, 2);
}

#[test]
fn rules_are_compared_by_place() {
    let files = Files::new();
    let (old, new) = (files.path("old.nft"), files.path("new.nft"));
    let said = run(&["rule", "diff", &old, &new, "--json"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let changes: Vec<RuleChange> = serde_json::from_str(&said.stdout).unwrap();
    let short: Vec<(bool, u32, &str)> = changes
        .iter()
        .map(|change| (change.added, change.line, change.text.as_str()))
        .collect();
    assert_eq!(short.len(), 3, "{short:?}");
    assert!(
        short
            .iter()
            .any(|change| !change.0 && change.1 == 7 && change.2.contains("53"))
    );
    assert!(
        short
            .iter()
            .any(|change| change.0 && change.2.contains("snat to 203.0.113.9"))
    );
    let text = run(&["rule", "diff", &old, &new]).stdout;
    assert!(
        text.contains("chain ip nat postrouting") && text.contains("old.nft:7"),
        "{text}"
    );
    assert_eq!(run(&["rule", "diff", &old, &old]).stdout, "");
    assert_eq!(
        run(&["rule", "diff", &old, &files.path("none.nft")]).code,
        5
    );
}

/// A frame of a transport segment.
fn frame(
    from: [u8; 4],
    to: [u8; 4],
    protocol: u8,
    bytes: usize,
    emit: impl FnOnce(&mut [u8], &Addresses),
) -> Vec<u8> {
    let mut frame = vec![0; 34 + bytes];
    frame[12] = 8;
    let header = ipv4::Repr::new(from.into(), to.into(), protocol, bytes as u16);
    header.emit(&mut frame[14..]).unwrap();
    let addresses = Addresses::V4 {
        source: from.into(),
        destination: to.into(),
    };
    emit(&mut frame[34..], &addresses);
    frame
}

fn datagram(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    frame(from.0, to.0, ip_protocol::UDP, 8, |bytes, addresses| {
        let header = udp::Repr {
            source_port: from.1,
            destination_port: to.1,
        };
        header.emit(bytes, addresses).unwrap();
    })
}

fn segment(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: Flags, numbers: (u32, u32)) -> Vec<u8> {
    frame(from.0, to.0, ip_protocol::TCP, 20, |bytes, addresses| {
        let header = tcp::Repr {
            source_port: from.1,
            destination_port: to.1,
            sequence: numbers.0,
            acknowledgement: numbers.1,
            flags,
            window: 65_535,
            urgent: 0,
            options: &[],
        };
        header.emit(bytes, addresses).unwrap();
    })
}

/// Writes a classic pcap file.
fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (at, frame) in frames.iter().enumerate() {
        for word in [
            1_700_000_000,
            at as u32 * 1000,
            frame.len() as u32,
            frame.len() as u32,
        ] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_capture_tells_which_flows_new_rules_change() {
    let files = Files::new();
    let (host, server, resolver) = ([10, 0, 0, 2], [198, 51, 100, 7], [198, 51, 100, 53]);
    let (client, web) = ((host, 1234), (server, 80));
    let open = Flags::SYN | Flags::ACK;
    let frames = [
        datagram((host, 4000), (resolver, 53)),
        datagram((resolver, 53), (host, 4000)),
        // Taken inside: the reply is addressed to the host itself.
        segment(client, web, Flags::SYN, (100, 0)),
        segment(web, client, open, (500, 101)),
        segment(client, web, Flags::ACK, (101, 501)),
        // Both refuse it.
        segment((host, 1235), (server, 25), Flags::SYN, (100, 0)),
    ];
    let capture = files.directory.path().join("traffic.pcap");
    write_pcap(&capture, &frames);
    let (old, new, capture) = (
        files.path("old.nft"),
        files.path("new.nft"),
        files.path("traffic.pcap"),
    );
    let mut arguments = vec!["rule", "try", "--pcap", &capture, "--against", &old, &new];
    arguments.extend(NETS);
    let text = run(&arguments);
    assert_eq!(text.code, 0, "{}", text.stderr);
    assert!(
        text.stdout.ends_with("2 of 3 flows change, in 6 packets\n"),
        "{}",
        text.stdout
    );
    arguments.push("--json");
    let report: TrialReport = serde_json::from_str(&run(&arguments).stdout).unwrap();
    let [dns, http] = &report.changes[..] else {
        panic!("two changes: {report:?}")
    };
    assert_eq!(
        (dns.flow.as_str(), dns.packet, dns.differing_pkts),
        ("udp 10.0.0.2:4000 > 198.51.100.53:53", 1, 2)
    );
    assert_eq!(
        (dns.old.fate.as_str(), dns.new.fate.as_str()),
        ("accept", "drop")
    );
    assert_eq!(dns.new.rule.as_ref().unwrap().text, "policy");
    assert_eq!(
        (http.old.fate.as_str(), http.new.fate.as_str()),
        ("accept", "accept")
    );
    assert_eq!(
        http.new.leaves_as.as_deref(),
        Some("tcp 203.0.113.9:1234 > 198.51.100.7:80")
    );
    let rule = http.new.rule.as_ref().unwrap();
    assert!(
        rule.text.contains("snat to 203.0.113.9") && rule.line == 12,
        "{rule:?}"
    );
    assert_eq!(http.differing_pkts, 2, "replies arrive alike");
}

/// Real captures, where they are: nothing panics, the same rules change nothing.
#[test]
fn real_captures_are_the_same_under_the_same_rules() {
    let Some(directory) = std::env::var_os("TIDEGATE_PCAPS").map(PathBuf::from) else {
        eprintln!(
            "real_captures_are_the_same_under_the_same_rules: skipped, TIDEGATE_PCAPS names no directory"
        );
        return;
    };
    let files = Files::new();
    let old = files.path("old.nft");
    let mut tried = 0;
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        let is_capture = path
            .extension()
            .is_some_and(|ext| ext == "pcap" || ext == "pcapng");
        let Some(name) = path.to_str().filter(|_| is_capture) else {
            continue;
        };
        let mut arguments = vec![
            "rule",
            "try",
            "--pcap",
            name,
            "--against",
            &old,
            &old,
            "--json",
        ];
        arguments.extend(NETS);
        let said = run(&arguments);
        // Captures of other links are refused.
        if said.code == 0 {
            let report: TrialReport = serde_json::from_str(&said.stdout).unwrap();
            assert!(
                report.changes.is_empty(),
                "{name}: {:?}",
                report.changes.first()
            );
            tried += 1;
        } else {
            assert_eq!(said.code, 1, "{name}: {}", said.stderr);
        }
    }
    assert!(tried > 0);
}
