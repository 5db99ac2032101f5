//! The program in the kernel, run on packets without a device.

mod support;

use kernel_cache::{KernelCache, OUTCOMES, Outcome, Sizes, monotonic_ns};
use support::{
    CARRIERS, PORT_MAC, data, frame, in_lp, interest, network_packet, port_row, reply_payload,
};

const PASS: u32 = 2;
const TRANSMIT: u32 = 3;
/// Test runs come in by loopback, the first device of every namespace.
const LOOPBACK: u32 = 1;

/// Loads a cache of 64 packets that answers on loopback.
fn load() -> (KernelCache, kernel_cache::Cache) {
    let (mut kernel, cache) = KernelCache::load(Sizes::of(64)).expect("loads");
    kernel
        .add_port(&port_row(LOOPBACK, PORT_MAC, 1500))
        .expect("a row");
    (kernel, cache)
}

/// Returns the one outcome that was counted since `before`.
fn counted(kernel: &KernelCache, before: [u64; OUTCOMES]) -> usize {
    let after = kernel.outcomes().expect("reads");
    let changed: Vec<usize> = (0..OUTCOMES).filter(|&i| after[i] != before[i]).collect();
    assert_eq!(changed.len(), 1, "{after:?} {before:?}");
    changed[0]
}

#[test]
fn a_hit_is_answered_in_place_whatever_carries_it() {
    if !lab::need::root("a_hit_is_answered_in_place_whatever_carries_it") {
        return;
    }
    let (kernel, mut cache) = load();
    let now = monotonic_ns();
    for (uri, bytes) in [("/a/short", 3), ("/a/odd", 500), ("/b/long", 1200)] {
        let stored = data(uri, &vec![7; bytes], 0);
        cache.insert(&stored, now).expect("is taken");
        let asked = interest(uri, "");
        for carrier in CARRIERS {
            for vlan in [None, Some(12)] {
                for (token, mark) in [(None, 0), (Some(&b"tok"[..]), 0), (Some(&[9; 32]), 1)] {
                    let link = if token.is_some() {
                        in_lp(&asked, token, mark)
                    } else {
                        asked.clone()
                    };
                    let request = frame(carrier, vlan, &link);
                    let run = kernel.test_run(&request, 1).expect("runs");
                    assert_eq!(
                        run.verdict, TRANSMIT,
                        "{carrier:?} {vlan:?} {token:?} {uri}"
                    );
                    let payload = reply_payload(carrier, vlan, &run.packet);
                    let (packet, echoed, marked) = network_packet(&payload);
                    assert_eq!(packet, stored, "{carrier:?} {vlan:?} {uri}");
                    assert_eq!((echoed.as_deref(), marked), (token, mark));
                }
            }
        }
    }
}

#[test]
fn what_is_not_answered_passes_on_unchanged_and_is_counted() {
    if !lab::need::root("what_is_not_answered_passes_on_unchanged_and_is_counted") {
        return;
    }
    let (kernel, mut cache) = load();
    cache
        .insert(&data("/a/b/c", b"x", 0), monotonic_ns())
        .expect("is taken");
    let deep: String = "/a".repeat(33);
    let rows: Vec<(Outcome, Vec<u8>)> = vec![
        (Outcome::Absent, interest("/a/b/d", "")),
        (Outcome::Absent, interest("/a/b", "")),
        (Outcome::Absent, interest("/x", "p")),
        (Outcome::Stale, interest("/a/b/c", "f")),
        (Outcome::Stale, interest("/a", "pf")),
        (Outcome::LongName, interest(&deep, "")),
        (
            Outcome::LongName,
            interest(&format!("/{}", "x".repeat(200)), ""),
        ),
        (Outcome::Data, data("/a/b/c", b"x", 0)),
        (Outcome::Malformed, vec![5, 3, 7, 1, 8, 0, 0, 0]),
        (Outcome::Malformed, vec![5, 200, 7, 3, 8, 1, b'a', 0]),
        (Outcome::Malformed, vec![100, 4, 80, 9, 5, 3, 0, 0]),
        (
            Outcome::LinkField,
            vec![100, 12, 81, 1, 0, 80, 7, 5, 5, 7, 3, 8, 1, b'a'],
        ),
        (Outcome::ForwarderOnly, vec![5, 7, 7, 5, 8, 1, b'a', 1, 0]),
    ];
    for (outcome, packet) in rows {
        for carrier in CARRIERS {
            let before = kernel.outcomes().expect("reads");
            let request = frame(carrier, None, &packet);
            let run = kernel.test_run(&request, 1).expect("runs");
            assert_eq!((run.verdict, &run.packet), (PASS, &request), "{outcome:?}");
            assert_eq!(
                counted(&kernel, before),
                outcome as usize,
                "{outcome:?} {packet:?}"
            );
        }
    }
}
