//! Threads on one store: recorded histories of exact operations are checked for linearizability, prefix lookups
//! for what they guarantee, every answer for its bytes, and memory for coming back.

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{Random, insert, is_whole, name, packet, push, store, view};
use content_store::{ContentStore, NewData, Policy, Query, Worker};
use wire::Instant;

const NOW: Instant = Instant::from_ns(1);

/// An operation on one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Put(u64),
    Get(Option<u64>),
    /// Whether there was something to erase.
    Erase(bool),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    key: usize,
    operation: Operation,
    begin: u64,
    end: u64,
}

/// The value of a packet: its seed.
fn value(hit: &[u8], name: &[u8]) -> u64 {
    assert!(is_whole(name, hit), "a torn or reused packet");
    let at = 8 + name.len();
    u64::from_le_bytes(hit[at..at + 8].try_into().expect("eight bytes"))
}

/// True if the events of one name can be put in an order that a map allows and that keeps the order of those
/// that did not overlap (Wing and Gong, with the states seen before left out). Events without end (`u64::MAX`) may
/// have taken effect or not.
fn is_linearizable(events: &[Event]) -> bool {
    assert!(events.len() <= 64);
    let ended = events
        .iter()
        .enumerate()
        .filter(|(_, event)| event.end < u64::MAX);
    let all = ended.fold(0_u64, |all, (at, _)| all | 1 << at);
    let mut seen = HashSet::new();
    let mut stack = vec![(0_u64, None)];
    while let Some((done, state)) = stack.pop() {
        if done & all == all {
            return true;
        }
        if !seen.insert((done, state)) {
            continue;
        }
        let open = || {
            events
                .iter()
                .enumerate()
                .filter(|(at, _)| done >> at & 1 == 0)
        };
        let first_end = open().map(|(_, event)| event.end).min().unwrap_or(u64::MAX);
        for (at, event) in open().filter(|(_, event)| event.begin <= first_end) {
            let next = match event.operation {
                Operation::Put(value) => Some(Some(value)),
                Operation::Get(found) => (found == state).then_some(state),
                Operation::Erase(found) => (found == state.is_some()).then_some(None),
            };
            if let Some(next) = next {
                stack.push((done | 1 << at, next));
            }
        }
    }
    false
}

#[test]
fn the_checker_tells_right_from_wrong() {
    let event = |operation, begin, end| Event {
        key: 0,
        operation,
        begin,
        end,
    };
    use Operation::{Erase, Get, Put};
    assert!(is_linearizable(&[
        event(Put(1), 0, 5),
        event(Get(Some(1)), 1, 2),
        event(Get(None), 0, 1)
    ]));
    assert!(!is_linearizable(&[
        event(Put(1), 0, 1),
        event(Get(None), 2, 3)
    ]));
    assert!(!is_linearizable(&[
        event(Put(1), 0, 1),
        event(Put(2), 2, 3),
        event(Get(Some(1)), 4, 5)
    ]));
    assert!(!is_linearizable(&[
        event(Put(1), 0, 1),
        event(Erase(true), 2, 3),
        event(Erase(true), 2, 4)
    ]));
}

/// Runs `threads` threads that put, get and erase few names, and returns each one's events.
fn history(store: &ContentStore, threads: u64, operations: usize, seed: u64) -> Vec<Event> {
    let clock = AtomicU64::new(0);
    let keys: Vec<Vec<u8>> = (0..8_u8)
        .map(|key| name(&[b"h", &[key / 4], &[key]]))
        .collect();
    let run = |thread: u64| {
        let mut worker = store.join().expect("a place for each");
        let mut random = Random(seed * 100 + thread);
        let mut events = Vec::new();
        for at in 0..operations as u64 {
            let key = random.below(keys.len());
            let name = view(&keys[key]);
            let begin = clock.fetch_add(1, Ordering::SeqCst);
            let operation = match random.below(10) {
                0..=2 => {
                    let value = thread << 32 | at;
                    insert(
                        &mut worker,
                        name.value(),
                        200 + 40 * random.below(3),
                        value,
                        0,
                        1,
                    );
                    Operation::Put(value)
                }
                3 => Operation::Erase(worker.erase(name, 1) == 1),
                _ => {
                    let hit = worker.lookup(&Query::exact(name), NOW);
                    Operation::Get(hit.map(|hit| value(hit.packet(), name.value())))
                }
            };
            let end = clock.fetch_add(1, Ordering::SeqCst);
            events.push(Event {
                key,
                operation,
                begin,
                end,
            });
        }
        events
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

#[test]
fn exact_operations_are_linearizable() {
    let rounds = 150;
    for round in 0..rounds {
        let store = store(1000, 4 << 20, 3, Policy::ALL[round % 5]);
        let events = history(&store, 3, 100, round as u64);
        for key in 0..8 {
            let mut of_key: Vec<Event> = events
                .iter()
                .filter(|event| event.key == key)
                .copied()
                .collect();
            of_key.sort_by_key(|event| event.begin);
            of_key.truncate(60);
            // Truncated: what had not ended when the last one began may have taken effect before or after; what
            // a lookup found then may be of later puts.
            let last = of_key.last().map_or(0, |event| event.begin);
            of_key
                .retain(|event| event.end < last || !matches!(event.operation, Operation::Get(_)));
            for event in of_key.iter_mut().filter(|event| event.end >= last) {
                event.end = u64::MAX;
            }
            assert!(is_linearizable(&of_key), "round {round}: {of_key:#?}");
        }
    }
}

/// With eviction a lookup may find nothing, but never what was replaced or erased before it began.
#[test]
fn eviction_never_brings_back_the_past() {
    for round in 0..60 {
        let store = store(5, 4 << 20, 3, Policy::ALL[round % 5]);
        let events = history(&store, 3, 150, 1000 + round as u64);
        for get in &events {
            let Operation::Get(Some(value)) = get.operation else {
                continue;
            };
            let put = events
                .iter()
                .find(|event| event.operation == Operation::Put(value));
            let put = put.expect("what is found was put");
            assert!(put.key == get.key && put.begin < get.end);
            let overwritten = events.iter().any(|event| {
                event.key == get.key
                    && event.begin > put.end
                    && event.end < get.begin
                    && matches!(event.operation, Operation::Put(_) | Operation::Erase(true))
            });
            assert!(
                !overwritten,
                "round {round}: {get:?} after {put:?} was gone"
            );
        }
    }
}

/// Names around a stable one: its prefixes, siblings of these, and names below it.
fn neighbours(random: &mut Random) -> Vec<u8> {
    let depth = 1 + random.below(4);
    let mut name = Vec::new();
    for level in 0..depth {
        match random.below(3) {
            0 => push(&mut name, 50, &[random.below(40) as u8]),
            _ => push(&mut name, 8, &[b"stable"[level]]),
        }
    }
    name
}

#[test]
fn prefix_lookups_find_what_is_stored_throughout() {
    let store = store(5000, 16 << 20, 4, Policy::S3Fifo);
    let stable = name(&[b"s", b"t", b"a", b"b"]);
    let mut worker = store.join().expect("first");
    insert(&mut worker, &stable, 300, 7, 1_000_000, 1);
    let stop = AtomicBool::new(false);
    let churn = |seed: u64| {
        let mut worker = store.join().expect("a place for each");
        let mut random = Random(seed);
        let mut operations = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let name = neighbours(&mut random);
            if name == stable {
                continue;
            }
            // Erasing a name with the stable one below would erase that: only names beside and below.
            if random.below(2) == 0 && !stable.starts_with(&name) {
                worker.erase(view(&name), 3);
            } else {
                let ms = [0, 1, 2_000_000][random.below(3)];
                insert(&mut worker, &name, 100 + name.len(), operations, ms, 1);
            }
            operations += 1;
        }
        operations
    };
    let read = || {
        let mut worker = store.join().expect("a place for each");
        for at in 0..60_000_usize {
            let prefix = view(&stable).prefix(1 + at % 4);
            let query = Query {
                must_be_fresh: at % 2 == 0,
                ..Query::prefix(prefix)
            };
            let now = Instant::from_ns(500_000_000_000);
            let hit = worker
                .lookup(&query, now)
                .expect("the stable packet answers");
            assert!(hit.name().starts_with(prefix.value()));
            assert!(hit.name() <= &stable[..], "not the first in order");
            assert!(!query.must_be_fresh || hit.is_fresh(now));
            assert!(is_whole(hit.name(), hit.packet()));
            worker.quiescent();
        }
    };
    thread::scope(|scope| {
        let churners = [scope.spawn(|| churn(1)), scope.spawn(|| churn(2))];
        let reader = scope.spawn(read).join();
        stop.store(true, Ordering::Relaxed);
        reader.expect("no panic");
        for churner in churners {
            assert!(churner.join().expect("no panic") > 100);
        }
    });
    worker.erase(view(&[]), usize::MAX);
    drop(worker);
    is_empty(&store);
}

fn is_empty(store: &ContentStore) {
    // Those who left first may have left memory to its grace period: the next one takes it back.
    for _ in 0..8 {
        let mut worker = store.join().expect("all have left");
        let _ = worker.erase(view(&[]), usize::MAX);
        drop(worker);
    }
    let stats = store.stats();
    assert_eq!((stats.packets, stats.bytes), (0, 0), "{stats:?}");
    assert_eq!((stats.prefixes, stats.chunks), (0, 0), "{stats:?}");
    assert_eq!(
        store.unclassed_bytes(),
        store.memory_bytes()[2],
        "all pages are free"
    );
}

/// Inserts packets of many sizes and names of changing depth; checks every answer.
fn mill(worker: &mut Worker, seed: u64, operations: usize, names: usize) {
    let mut random = Random(seed);
    for at in 0..operations {
        let number = random.below(names) as u32;
        let mut key = name(&[b"mill", &[(number % 7) as u8]]);
        for _ in 0..number % 4 {
            push(&mut key, 8, &(number % 50).to_be_bytes());
        }
        push(&mut key, 50, &number.to_be_bytes());
        if random.below(3) > 0 {
            let len = [120, 300, 1100, 3000][random.below(4)];
            let (bytes, start) = packet(&key, len, at as u64);
            let data = NewData::new(&bytes, view(&bytes[start..start + key.len()]), 10);
            worker.insert(&data, NOW).expect("evicts what it must");
        } else {
            let prefix = view(&key).prefix(1 + random.below(6));
            let query = Query {
                can_be_prefix: random.below(2) == 0,
                ..Query::exact(prefix)
            };
            if let Some(hit) = worker.lookup(&query, NOW) {
                assert!(hit.name().starts_with(prefix.value()));
                assert!(is_whole(hit.name(), hit.packet()));
            }
        }
    }
}

/// `CONTENT_STORE_INSERTS=24000000` is the long run.
#[test]
fn memory_stays_flat_and_comes_back() {
    let inserts = std::env::var("CONTENT_STORE_INSERTS");
    let inserts: usize = inserts.ok().and_then(|n| n.parse().ok()).unwrap_or(40_000);
    for policy in Policy::ALL {
        let store = store(2000, 4 << 20, 3, policy);
        let run = |seed: u64| {
            let mut worker = store.join().expect("a place for each");
            mill(&mut worker, seed, inserts / 10, 20_000);
            let full = store.stats();
            mill(&mut worker, seed + 1, inserts / 10, 20_000);
            let after = store.stats();
            assert!(
                full.packets <= 2000 + 48 && after.packets <= 2000 + 48,
                "{full:?} {after:?}"
            );
            assert!(
                after.bytes <= 4 << 20 && after.bytes * 2 > full.bytes,
                "{full:?} {after:?}"
            );
        };
        thread::scope(|scope| {
            scope.spawn(|| run(1));
            scope.spawn(|| run(100));
        });
        let stats = store.stats();
        assert!(
            stats.evicted > 0 && stats.refused == 0,
            "{} {stats:?}",
            policy.name()
        );
        is_empty(&store);
    }
}

/// The policy and the capacity change while threads insert and look up.
#[test]
fn policy_and_capacity_change_while_it_runs() {
    let store = store(3000, 8 << 20, 3, Policy::S3Fifo);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mills = [1, 2].map(|seed| {
            let store = &store;
            scope.spawn(move || {
                let mut worker = store.join().expect("a place for each");
                mill(&mut worker, seed, 25_000, 9000);
            })
        });
        scope.spawn(|| {
            let mut random = Random(9);
            while !done.load(Ordering::Relaxed) {
                store.set_policy(Policy::ALL[random.below(5)]);
                store.set_capacity(200 + random.below(2800), (2 + random.below(7)) << 20);
                thread::yield_now();
            }
        });
        let results = mills.map(|mill| mill.join());
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "{:?}", store.stats());
    });
    store.set_policy(Policy::Fifo);
    let (packets, _) = store.set_capacity(100, 8 << 20);
    let mut worker = store.join().expect("all have left");
    worker.trim(usize::MAX, NOW);
    drop(worker);
    assert!(store.stats().packets <= packets as u64);
    is_empty(&store);
}
