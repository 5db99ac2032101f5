//! The fuzz targets as plain tests: over their committed corpora, over the captures, and over many
//! random, cut, flipped and overwritten frames.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{Rng, damage, frame};
use crate::{captures, ndn_targets, wire_targets};

const FRAMES: u64 = if cfg!(debug_assertions) {
    15_000
} else {
    1_000_000
};

/// How many packets of which capture must be dropped, and why; all others must be taken.
const REFUSED: [((&str, &str), u32); 5] = [
    (("ipv4-frag-tiny-syn.pcap", "fragment_tiny"), 2),
    // Its total length is zero; its header checksum, which is looked at first, is wrong too.
    (("malformed-ihl-0.pcap", "ipv4_checksum"), 1),
    (("malformed-tcp-doff.pcap", "transport_truncated"), 2),
    // Captured at the sender, before its NIC filled the checksums in.
    (("tcp-retransmit-fast.pcap", "ipv4_checksum"), 39),
    // The capture cut these packets.
    (("tcp-truncated-header.pcap", "ipv4_total_length"), 12),
];

#[test]
fn corpora() {
    let targets = wire_targets::TARGETS.iter().chain(&ndn_targets::TARGETS);
    for (name, target) in targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(name);
        let mut inputs = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            target(&std::fs::read(path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{} is empty", folder.display());
    }
}

#[test]
fn captures_whole_and_cut() {
    let Some(packets) = captures::all("fuzz_targets::captures_whole_and_cut") else {
        return;
    };
    let mut refused = BTreeMap::new();
    for packet in &packets {
        wire_targets::parse(&packet.data);
        if let Err(reason) = wire::parse(&packet.data) {
            let file = packet.name.split('#').next().unwrap();
            *refused.entry((file, reason.name())).or_insert(0) += 1;
        }
    }
    let refused: Vec<_> = refused.into_iter().collect();
    assert_eq!(refused, REFUSED);
    for packet in packets.iter().step_by(64) {
        for length in 0..packet.data.len().min(120) {
            wire_targets::parse(&packet.data[..length]);
        }
    }
}

#[test]
fn random_bytes_and_damaged_frames() {
    for seed in 0..FRAMES {
        let mut rng = Rng::new(seed);
        let length = rng.below(128);
        let mut bytes = if seed % 4 == 0 {
            rng.bytes(length)
        } else {
            frame(&mut rng)
        };
        if seed % 4 == 1 {
            damage(&mut rng, &mut bytes);
        }
        // A panic does not say which input made it; the seed does.
        let caught = std::panic::catch_unwind(|| {
            wire_targets::parse(&bytes);
            wire_targets::tcp_options(&bytes[..bytes.len().min(40)]);
            wire_targets::ipv6_packet(&bytes);
            let at = bytes.len().min(54);
            wire_targets::neighbour_discovery(&bytes[at..]);
        });
        assert!(caught.is_ok(), "seed {seed}: {bytes:02x?}");
    }
}

#[test]
fn damaged_ndn_packets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ndn_packet");
    let seeds: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .filter(|bytes| bytes.len() < 500)
        .collect();
    for seed in 0..FRAMES {
        let mut rng = Rng::new(seed);
        let mut bytes = seeds[rng.below(seeds.len())].clone();
        damage(&mut rng, &mut bytes);
        let caught = std::panic::catch_unwind(|| {
            ndn_targets::packet(&bytes);
            ndn_targets::name(bytes.get(4..).unwrap_or_default());
        });
        assert!(caught.is_ok(), "seed {seed}: {bytes:02x?}");
    }
}
