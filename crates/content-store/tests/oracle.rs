//! Random operations on a store of one worker, held against an ordered map.
//!
//! `CONTENT_STORE_OPERATIONS=1000000 cargo test --release -p tidegate-content-store --test oracle` is the long run.

mod common;

use common::{Naive, Random, packet, push, store, view};
use content_store::{Inserted, NewData, Policy, Query};
use proptest::prelude::*;
use wire::Instant;

/// Names over few components, so that packets are prefixes of others, in all sizes.
fn random_name(random: &mut Random, wide: usize) -> Vec<u8> {
    let mut name = Vec::new();
    for level in 0..1 + random.below(5) {
        match random.below(8) {
            0..=3 => push(&mut name, 50, &(random.below(wide) as u16).to_be_bytes()),
            4 => push(&mut name, 8, &vec![b'x'; random.below(12)]),
            5 => {
                // The same eight bytes first, so that order is decided behind them.
                let end = random.below(4) as u8;
                push(&mut name, 8, &[b"common", [end, 1].as_slice()].concat());
            }
            6 if level > 2 => push(&mut name, 8, &vec![b'l'; 240 + random.below(30)]),
            _ => push(&mut name, 8, &[b'a' + random.below(3) as u8]),
        }
    }
    name
}

fn run(seed: u64, operations: usize, wide: usize, policy: Policy) {
    // Large enough that nothing is evicted: an erasure keeps the number of packets down.
    let limit = 3000;
    let store = store(2 * limit, 64 << 20, 1, policy);
    let mut worker = store.join().expect("first worker");
    let mut naive = Naive::default();
    let mut random = Random(seed);
    let mut now = 1_u64;
    for operation in 0..operations {
        now += random.below(40_000_000) as u64;
        let name = random_name(&mut random, wide);
        match random.below(100) {
            0..=44 => {
                let ms = [0, 10, 1000, 100_000][random.below(4)];
                let len = [60, 300, 1100, 8800][random.below(4)].max(name.len() + 16);
                let (bytes, at) = packet(&name, len, random.next());
                let data = NewData::new(&bytes, view(&bytes[at..at + name.len()]), ms);
                let inserted = worker.insert(&data, Instant::from_ns(now)).expect("room");
                let fresh = if ms == 0 { 0 } else { now + ms * 1_000_000 };
                let old = naive.0.insert(name, (bytes, fresh));
                let expected = if old.is_some() {
                    Inserted::Replaced
                } else {
                    Inserted::New
                };
                assert_eq!(inserted, expected, "operation {operation} of seed {seed}");
            }
            45..=46 => {
                let prefix = view(&name);
                let prefix = prefix.prefix(random.below(prefix.len() + 1));
                let limit = random.below(20);
                let erased = worker.erase(prefix, limit);
                let keys = naive.0.keys().filter(|key| key.starts_with(prefix.value()));
                let keys: Vec<_> = keys.take(limit).cloned().collect();
                assert_eq!(erased, keys.len(), "operation {operation} of seed {seed}");
                for key in keys {
                    naive.0.remove(&key);
                }
            }
            _ => {
                let name = view(&name);
                let query = Query {
                    name: name.prefix(1 + random.below(name.len())),
                    can_be_prefix: random.below(3) > 0,
                    must_be_fresh: random.below(2) > 0,
                };
                let hit = worker.lookup(&query, Instant::from_ns(now));
                let expected = naive.find(&query, now);
                assert_eq!(
                    hit.map(|hit| hit.packet()),
                    expected.map(Vec::as_slice),
                    "operation {operation} of seed {seed}: {query:?}"
                );
            }
        }
        while naive.0.len() >= limit {
            let (name, _) = naive
                .0
                .iter()
                .nth(random.below(limit))
                .expect("one of them");
            let prefix = view(name).prefix(1 + random.below(2)).value().to_vec();
            let before = naive.0.len();
            naive.0.retain(|key, _| !key.starts_with(&prefix));
            assert_eq!(
                worker.erase(view(&prefix), usize::MAX),
                before - naive.0.len()
            );
        }
    }
    assert_eq!(worker.erase(view(&[]), usize::MAX), naive.0.len());
    drop(worker);
    let stats = store.stats();
    assert_eq!((stats.packets, stats.bytes), (0, 0), "{stats:?}");
    assert_eq!((stats.prefixes, stats.chunks), (0, 0), "{stats:?}");
    assert_eq!(
        store.unclassed_bytes(),
        store.memory_bytes()[2],
        "all pages are free"
    );
}

#[test]
fn many_operations() {
    let operations = std::env::var("CONTENT_STORE_OPERATIONS");
    let operations = operations
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(15_000);
    run(1, operations, 5, Policy::S3Fifo);
    run(2, operations, 2000, Policy::Lru);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn any_seed(seed: u64, wide in 1_usize..300, policy in 0_usize..5) {
        run(seed, 400, wide, Policy::ALL[policy]);
    }
}
