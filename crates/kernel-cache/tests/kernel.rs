//! The program in the kernel, run on packets without a device.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use kernel_cache::{Hook, KernelCache, OUTCOMES, Outcome, Sizes, monotonic_ns};
use support::{
    CARRIERS, PORT_MAC, data, frame, in_lp, interest, network_packet, port_row, reply_payload,
};

/// Verdicts of the XDP program: passed on, answered; and of the TC program.
const VERDICTS: [(Hook, u32, u32); 2] = [(Hook::Native, 2, 3), (Hook::Ingress, u32::MAX, 7)];
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
    let (mut kernel, mut cache) = load();
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
                    for (hook, _, answered) in VERDICTS {
                        let run = kernel.test_run(hook, &request, 1).expect("runs");
                        assert_eq!(
                            run.verdict, answered,
                            "{hook:?} {carrier:?} {vlan:?} {token:?} {uri}"
                        );
                        let payload = reply_payload(carrier, vlan, &run.packet);
                        let (packet, echoed, marked) = network_packet(&payload);
                        assert_eq!(packet, stored, "{hook:?} {carrier:?} {vlan:?} {uri}");
                        assert_eq!((echoed.as_deref(), marked), (token, mark));
                    }
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
    let (mut kernel, mut cache) = load();
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
            let request = frame(carrier, None, &packet);
            for (hook, passed, _) in VERDICTS {
                let before = kernel.outcomes().expect("reads");
                let run = kernel.test_run(hook, &request, 1).expect("runs");
                assert_eq!(
                    (run.verdict, &run.packet),
                    (passed, &request),
                    "{outcome:?}"
                );
                assert_eq!(
                    counted(&kernel, before),
                    outcome as usize,
                    "{hook:?} {outcome:?} {packet:?}"
                );
            }
        }
    }
}

#[test]
fn a_prefix_finds_what_is_below_it_and_fresh() {
    if !lab::need::root("a_prefix_finds_what_is_below_it_and_fresh") {
        return;
    }
    let (mut kernel, mut cache) = load();
    let now = monotonic_ns();
    let stale: Vec<Vec<u8>> = (0..20)
        .map(|i| data(&format!("/a/old/{i}"), b"old", 0))
        .collect();
    let fresh = data("/a/new/1", b"new", 3_600_000);
    for packet in stale.iter().chain([&fresh]) {
        cache.insert(packet, now).expect("is taken");
    }
    for (hook, _, answered) in VERDICTS {
        let request = frame(CARRIERS[1], None, &interest("/a", "pf"));
        let run = kernel.test_run(hook, &request, 1).expect("runs");
        assert_eq!(run.verdict, answered);
        let payload = reply_payload(CARRIERS[1], None, &run.packet);
        assert_eq!(network_packet(&payload).0, fresh);
        let request = frame(CARRIERS[0], None, &interest("/a/old", "p"));
        let run = kernel.test_run(hook, &request, 1).expect("runs");
        let payload = reply_payload(CARRIERS[0], None, &run.packet);
        assert!(stale.contains(&network_packet(&payload).0));
    }
    let counts = kernel.outcomes().expect("reads");
    assert_eq!(counts[Outcome::Prefix as usize], 4, "{counts:?}");
}

#[test]
fn other_addresses_and_replies_longer_than_the_ports_frames_pass_on() {
    if !lab::need::root("other_addresses_and_replies_longer_than_the_ports_frames_pass_on") {
        return;
    }
    let (mut kernel, mut cache) = load();
    let stored = data("/a", &[1; 1430], 0);
    cache.insert(&stored, 0).expect("is taken");
    let asked = interest("/a", "");
    let mut foreign = frame(CARRIERS[0], None, &asked);
    foreign[5] = 99;
    let before = kernel.outcomes().expect("reads");
    kernel.test_run(Hook::Native, &foreign, 1).expect("runs");
    assert_eq!(counted(&kernel, before), Outcome::Elsewhere as usize);
    // 1,500 bytes hold the packet over Ethernet, with a tag too, and not behind IPv6 and UDP headers.
    for vlan in [None, Some(5)] {
        for (carrier, outcome) in [
            (CARRIERS[0], Outcome::Exact),
            (CARRIERS[2], Outcome::TooLong),
        ] {
            let before = kernel.outcomes().expect("reads");
            let request = frame(carrier, vlan, &asked);
            kernel.test_run(Hook::Native, &request, 1).expect("runs");
            assert_eq!(
                counted(&kernel, before),
                outcome as usize,
                "{vlan:?} {}",
                stored.len()
            );
        }
    }
}

/// Runs on other kernels, too (`cargo xtask kernels`): one cache, so that the verifier sees each program once.
#[test]
fn every_program_loads_and_answers() {
    if !lab::need::root("every_program_loads_and_answers") {
        return;
    }
    let (mut kernel, mut cache) = load();
    let stored = data("/a/b", &[5; 900], 3_600_000);
    cache.insert(&stored, monotonic_ns()).expect("is taken");
    let ask = |uri, flags| frame(CARRIERS[1], None, &interest(uri, flags));
    for (hook, passed, answered) in VERDICTS {
        for (uri, flags) in [("/a/b", ""), ("/a/b", "f"), ("/a", "pf")] {
            let run = kernel.test_run(hook, &ask(uri, flags), 1).expect("runs");
            assert_eq!(run.verdict, answered, "{hook:?} {uri} {flags}");
            let payload = reply_payload(CARRIERS[1], None, &run.packet);
            assert_eq!(network_packet(&payload).0, stored, "{hook:?} {uri} {flags}");
        }
        let run = kernel.test_run(hook, &ask("/c", ""), 1).expect("runs");
        assert_eq!(run.verdict, passed, "{hook:?}");
    }
    let filter = kernel.packet_filter().expect("loads").0;
    for (uri, verdict) in [("/a/b", 0), ("/c", u32::MAX)] {
        // A test run takes an Ethernet header off before a filter; a packet socket does not.
        let request = [&[2; 12][..], &[0x86, 0x24], &ask(uri, "")].concat();
        let run = filter.run(&request, 1).expect("runs");
        assert_eq!(run.verdict, verdict, "{uri}");
    }
}
