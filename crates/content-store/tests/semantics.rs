//! What NDN asks of a content store, case by case; policies, rules, limits and adversaries.

mod common;

use common::{Random, insert, name, packet, push, store, view};
use content_store::{
    Config, ContentStore, Inserted, NameHash, NewData, Origin, Pages, Policy, Query, Refusal, Rule,
    UnsolicitedPolicy, Worker,
};
use sha2::{Digest, Sha256};
use wire::Instant;

const NOW: Instant = Instant::from_ns(1);

fn segment(number: u32) -> Vec<u8> {
    let mut name = name(&[b"a", b"file"]);
    push(&mut name, 50, &number.to_be_bytes());
    name
}

fn try_insert(
    worker: &mut Worker,
    name: &[u8],
    change: impl FnOnce(&mut NewData<'_>),
) -> Result<Inserted, Refusal> {
    let (bytes, at) = packet(name, 200 + name.len(), 1);
    let mut data = NewData::new(&bytes, view(&bytes[at..at + name.len()]), 0);
    change(&mut data);
    worker.insert(&data, NOW)
}

fn holds(worker: &Worker, name: &[u8]) -> bool {
    worker.lookup(&Query::exact(view(name)), NOW).is_some()
}

#[test]
fn implicit_digests_match_the_packet_of_that_name() {
    let store = store(100, 4 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    let key = segment(1);
    let (bytes, at) = packet(&key, 500, 3);
    let data = NewData::new(&bytes, view(&bytes[at..at + key.len()]), 1);
    worker.insert(&data, NOW).expect("room");
    let mut full = key.clone();
    push(&mut full, 1, &Sha256::digest(&bytes));
    let mut wrong = key.clone();
    push(&mut wrong, 1, &[7; 32]);
    for _ in 0..3 {
        for can_be_prefix in [false, true] {
            let query = |name| Query {
                can_be_prefix,
                ..Query::exact(view(name))
            };
            assert!(worker.lookup(&query(&full), NOW).is_some());
            assert!(worker.lookup(&query(&wrong), NOW).is_none());
        }
    }
    assert_eq!(store.stats().digests, 1, "computed once");
    let stale = Query {
        must_be_fresh: true,
        ..Query::exact(view(&full))
    };
    assert!(worker.lookup(&stale, Instant::from_ns(2_000_000)).is_none());
    // Another packet of the name has another digest.
    insert(&mut worker, &key, 500, 4, 0, 1);
    assert!(worker.lookup(&Query::exact(view(&full)), NOW).is_none());
}

#[test]
fn flags_and_unsolicited_packets() {
    let store = store(100, 4 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    let key = segment(1);
    assert_eq!(
        try_insert(&mut worker, &key, |data| data.no_cache = true),
        Err(Refusal::NoCache)
    );
    for (policy, local, network) in [
        (UnsolicitedPolicy::DropAll, false, false),
        (UnsolicitedPolicy::AdmitLocal, true, false),
        (UnsolicitedPolicy::AdmitNetwork, false, true),
        (UnsolicitedPolicy::AdmitAll, true, true),
    ] {
        store.set_unsolicited(policy);
        for (origin, admitted) in [(Origin::Local, local), (Origin::Network, network)] {
            let result = try_insert(&mut worker, &key, |data| data.unsolicited = Some(origin));
            assert_eq!(
                result.is_ok(),
                admitted,
                "{policy:?} {origin:?}: {result:?}"
            );
        }
    }
    store.set_admit(false);
    assert_eq!(
        try_insert(&mut worker, &key, |_| ()),
        Err(Refusal::NotAdmitted)
    );
    assert!(holds(&worker, &key));
    store.set_serve(false);
    assert!(!holds(&worker, &key));
    assert_eq!(store.admit_and_serve(), (false, false));
    store.set_serve(true);
    assert!(holds(&worker, &key));
}

#[test]
fn what_cannot_be_stored_is_refused_by_name() {
    let store = store(100, 4 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    let key = segment(1);
    let outside = try_insert(&mut worker, &key, |data| data.name = view(b"\x08\x01b"));
    assert_eq!(outside, Err(Refusal::NameOutside));
    let none = try_insert(&mut worker, &key, |data| data.name = data.name.prefix(0));
    assert_eq!(none, Err(Refusal::Components));
    let deep = [8, 0].repeat(257);
    assert_eq!(
        try_insert(&mut worker, &deep, |_| ()),
        Err(Refusal::Components)
    );
    assert_eq!(
        try_insert(&mut worker, &deep[..512], |_| ()),
        Ok(Inserted::New)
    );
    let (bytes, at) = packet(&key, 8801, 1);
    let long = NewData::new(&bytes, view(&bytes[at..at + key.len()]), 0);
    assert_eq!(worker.insert(&long, NOW), Err(Refusal::Length));
    assert_eq!(store.stats().refused, 4);
}

#[test]
fn the_ring_of_the_paper_is_first_in_first_out() {
    let store = store(50, 4 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    for number in 0..500 {
        insert(&mut worker, &segment(number), 200, 1, 0, 1);
        // Hits change nothing.
        assert!(
            holds(&worker, &segment(number.saturating_sub(49))),
            "{number}"
        );
        assert!(
            number < 50 || !holds(&worker, &segment(number - 50)),
            "{number}"
        );
    }
    assert_eq!(store.stats().evicted, 450);
}

#[test]
fn recently_used_packets_stay_with_lru() {
    let store = store(50, 4 << 20, 1, Policy::Lru);
    let mut worker = store.join().expect("first");
    for number in 0..500 {
        insert(&mut worker, &segment(number), 200, 1, 0, 1);
        assert!(holds(&worker, &segment(0)), "used all the time");
        assert!(
            number < 50 || !holds(&worker, &segment(number - 49)),
            "{number}"
        );
    }
}

#[test]
fn hits_keep_packets_with_clock_and_s3_fifo() {
    for policy in [Policy::Clock, Policy::S3Fifo] {
        let store = store(100, 4 << 20, 1, policy);
        let mut worker = store.join().expect("first");
        for number in 0..20 {
            insert(&mut worker, &segment(number), 200, 1, 0, 1);
        }
        for number in 100..1100 {
            for hot in 0..20 {
                assert!(
                    holds(&worker, &segment(hot)),
                    "{} {number}: {hot}",
                    policy.name()
                );
            }
            insert(&mut worker, &segment(number), 200, 1, 0, 1);
        }
    }
}

#[test]
fn priority_fifo_prefers_unsolicited_then_stale() {
    let store = store(30, 4 << 20, 1, Policy::PriorityFifo);
    store.set_unsolicited(UnsolicitedPolicy::AdmitAll);
    let mut worker = store.join().expect("first");
    for number in 0..10 {
        insert(&mut worker, &segment(number), 200, 1, 1_000_000, 1);
    }
    for number in 10..20 {
        insert(&mut worker, &segment(number), 200, 1, 0, 1);
    }
    for number in 20..30 {
        let unsolicited = |data: &mut NewData<'_>| data.unsolicited = Some(Origin::Local);
        try_insert(&mut worker, &segment(number), unsolicited).expect("room");
    }
    let held = |worker: &Worker, numbers: std::ops::Range<u32>| {
        numbers
            .filter(|number| holds(worker, &segment(*number)))
            .count()
    };
    for number in 100..110 {
        insert(&mut worker, &segment(number), 200, 1, 1_000_000, 1);
    }
    assert_eq!(
        [
            held(&worker, 0..10),
            held(&worker, 10..20),
            held(&worker, 20..30)
        ],
        [10, 10, 0]
    );
    for number in 110..120 {
        insert(&mut worker, &segment(number), 200, 1, 1_000_000, 1);
    }
    assert_eq!([held(&worker, 0..10), held(&worker, 10..20)], [10, 0]);
    insert(&mut worker, &segment(120), 200, 1, 1_000_000, 1);
    assert!(!holds(&worker, &segment(0)), "then the oldest");
}

#[test]
fn quotas_and_pins_by_prefix() {
    let store = store(100, 4 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    let limited = name(&[b"limited"]);
    let pinned = name(&[b"pinned"]);
    let quota = Rule {
        quota_packets: Some(5),
        pinned: false,
    };
    assert!(store.set_rule(view(&limited), Some(quota)));
    assert!(store.set_rule(
        view(&pinned),
        Some(Rule {
            pinned: true,
            ..Rule::default()
        })
    ));
    let below = |prefix: &[u8], number: u32| {
        let mut name = prefix.to_vec();
        push(&mut name, 50, &number.to_be_bytes());
        name
    };
    for number in 0..20 {
        insert(&mut worker, &below(&limited, number), 200, 1, 0, 1);
        insert(&mut worker, &below(&pinned, number), 200, 1, 0, 1);
    }
    let count = |worker: &Worker, prefix: &[u8]| {
        (0..20)
            .filter(|number| holds(worker, &below(prefix, *number)))
            .count()
    };
    assert_eq!((count(&worker, &limited), count(&worker, &pinned)), (5, 20));
    for number in 0..500 {
        insert(&mut worker, &segment(number), 200, 1, 0, 1);
    }
    assert_eq!((count(&worker, &limited), count(&worker, &pinned)), (0, 20));
    // All pinned: nothing can make room.
    for number in 20..100 {
        insert(&mut worker, &below(&pinned, number), 200, 1, 0, 1);
    }
    assert_eq!(
        try_insert(&mut worker, &segment(1000), |_| ()),
        Err(Refusal::NoVictim)
    );
    assert_eq!(worker.erase(view(&pinned), usize::MAX), 100);
    assert!(store.set_rule(view(&limited), None));
    for number in 0..20 {
        insert(&mut worker, &below(&limited, number), 200, 1, 0, 1);
    }
    assert_eq!(count(&worker, &limited), 20);
}

#[test]
fn capacity_in_bytes() {
    let store = store(100_000, 16 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    let (_, bytes) = store.set_capacity(usize::MAX, 2 << 20);
    for number in 0..5000 {
        insert(
            &mut worker,
            &segment(number),
            [300, 1100, 8800][number as usize % 3],
            1,
            0,
            1,
        );
    }
    drop(worker);
    let stats = store.stats();
    assert!(
        stats.bytes <= bytes as u64 && stats.bytes * 10 > bytes as u64 * 9,
        "{stats:?}"
    );
}

/// Sizes that change from one to the other: pages change their class. A few packets are refused while the first
/// pages become empty.
#[test]
fn memory_moves_between_sizes() {
    let store = store(100_000, 4 << 20, 1, Policy::S3Fifo);
    let mut worker = store.join().expect("first");
    let mut random = Random(4);
    let mut refused = 0;
    for (round, len) in [150, 8700, 400, 2000]
        .into_iter()
        .cycle()
        .take(12)
        .enumerate()
    {
        for at in 0..3000_u32 {
            let key = segment(round as u32 * 3000 + at);
            let (bytes, start) = packet(&key, len + random.below(90), 1);
            let data = NewData::new(&bytes, view(&bytes[start..start + key.len()]), 0);
            match worker.insert(&data, NOW) {
                Ok(_) => assert!(holds(&worker, &key)),
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::NoMemory);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused < 100, "{refused} of 36,000 refused");
    assert_eq!(
        worker.erase(view(&[]), usize::MAX) as u64 + store.stats().evicted + refused,
        36_000
    );
}

/// A view stays what it is while its packet is evicted and its memory is wanted.
#[test]
fn a_view_outlives_its_packet() {
    let store = store(100, 4 << 20, 2, Policy::Fifo);
    let mut writer = store.join().expect("first");
    let mut reader = store.join().expect("second");
    insert(&mut writer, &segment(0), 1000, 99, 0, 1);
    let key = segment(0);
    let hit = reader
        .lookup(&Query::exact(view(&key)), NOW)
        .expect("stored");
    for number in 1..2000 {
        insert(&mut writer, &segment(number), 1000, 1, 0, 1);
    }
    assert!(!holds(&writer, &key));
    assert!(common::is_whole(&key, hit.packet()));
    reader.quiescent();
    drop(reader);
    insert(&mut writer, &segment(5000), 1000, 1, 0, 1);
}

/// A worker that never reports keeps memory back: inserts are refused by name in the end, and go on after.
#[test]
fn a_silent_reader_stops_reuse_but_not_lookups() {
    let store = store(10_000, 4 << 20, 2, Policy::Fifo);
    let mut writer = store.join().expect("first");
    let silent = store.join().expect("second");
    let refused = (0..20_000).find(|number| {
        try_insert(&mut writer, &segment(*number), |_| ()) == Err(Refusal::NoMemory)
    });
    let refused = refused.expect("memory runs out");
    assert!(holds(&writer, &segment(refused - 1)));
    drop(silent);
    assert_eq!(
        try_insert(&mut writer, &segment(refused), |_| ()),
        Ok(Inserted::New)
    );
}

#[test]
fn batches_do_what_single_calls_do() {
    let store = store(400, 4 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    let packets: Vec<(Vec<u8>, usize)> = (0..1000)
        .map(|n| packet(&segment(n), 300, u64::from(n)))
        .collect();
    let len = segment(0).len();
    let data: Vec<NewData<'_>> = packets
        .iter()
        .map(|(bytes, at)| NewData::new(bytes, view(&bytes[*at..at + len]), 0))
        .collect();
    let mut results = vec![Err(Refusal::NotAdmitted); data.len()];
    worker.insert_batch(&data, NOW, &mut results);
    assert!(results.iter().all(|result| *result == Ok(Inserted::New)));
    let names: Vec<Vec<u8>> = (0..1000).map(segment).collect();
    let queries: Vec<Query<'_>> = names.iter().map(|name| Query::exact(view(name))).collect();
    let mut hits = vec![None; queries.len()];
    worker.lookup_batch(&queries, NOW, &mut hits);
    for (number, hit) in hits.iter().enumerate() {
        assert_eq!(
            hit.map(|hit| hit.packet()),
            (number >= 600).then_some(&packets[number].0[..])
        );
    }
}

/// One CanBePrefix + MustBeFresh Interest among many stale siblings looks at few nodes.
#[test]
fn stale_siblings_are_not_walked() {
    let count = 20_000_u32;
    let mut config = Config::for_packets(30_000, 1, NameHash::Keyed([1, 2]));
    config.pages = Pages::Normal;
    let store = ContentStore::new(&config).expect("valid");
    let mut worker = store.join().expect("first");
    for number in 0..count {
        insert(
            &mut worker,
            &segment(number),
            100,
            1,
            1 + u64::from(number % 50),
            1,
        );
        let mut deeper = name(&[b"a", b"dir"]);
        push(&mut deeper, 8, &(number / 4).to_be_bytes());
        push(&mut deeper, 50, &[number as u8 % 4]);
        if number < 9_000 {
            insert(&mut worker, &deeper, 100, 1, 1 + u64::from(number % 50), 1);
        }
    }
    let later = Instant::from_ns(10_000_000_000);
    let prefix = name(&[b"a"]);
    let query = Query {
        must_be_fresh: true,
        ..Query::prefix(view(&prefix))
    };
    assert!(worker.lookup(&query, later).is_none());
    insert(
        &mut worker,
        &segment(count / 2),
        100,
        1,
        50_000,
        later.as_ns(),
    );
    let before = store.stats().vain_visits;
    for _ in 0..100 {
        let hit = worker.lookup(&query, later).expect("one is fresh");
        assert_eq!(hit.name(), segment(count / 2));
    }
    // The nodes of the other directory were told apart once.
    assert!(
        store.stats().vain_visits - before <= 2,
        "{:?}",
        store.stats()
    );
}

/// Names of 200 components, names that share one prefix, and names whose components share their first bytes.
#[test]
fn hostile_names() {
    let store = store(20_000, 64 << 20, 1, Policy::Fifo);
    let mut worker = store.join().expect("first");
    for number in 0..50_u8 {
        let mut deep = Vec::new();
        for level in 0..200_u8 {
            push(&mut deep, 8, &[level, if level > 100 { number } else { 0 }]);
        }
        insert(&mut worker, &deep, 600 + deep.len(), 1, 0, 1);
        let hit = worker
            .lookup(&Query::prefix(view(&deep).prefix(150)), NOW)
            .expect("below");
        assert_eq!(hit.name(), deep);
    }
    for number in 0..10_000_u32 {
        let wide = name(&[
            b"wide",
            format!("the same first bytes {number:06}").as_bytes(),
        ]);
        insert(&mut worker, &wide, 120, 1, 0, 1);
    }
    let wide = name(&[b"wide"]);
    let hit = worker
        .lookup(&Query::prefix(view(&wide)), NOW)
        .expect("below");
    assert_eq!(hit.name(), name(&[b"wide", b"the same first bytes 000000"]));
    assert_eq!(worker.erase(view(&wide), usize::MAX), 10_000);
    assert_eq!(worker.erase(view(&[]), usize::MAX), 50);
    assert_eq!(store.stats().prefixes, 0);
}
