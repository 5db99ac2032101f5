//! Random schedules of larger cases than loom can search. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p tidegate-tables --release --test shuttle_slots`.
#![cfg(shuttle)]

use shuttle::sync::Arc;
use shuttle::{check_pct, check_random, thread};
use tables::flow_map::{Direction, FlowMap};
use tables::memory::Pages;
use tables::quiescent::Domain;
use tables::ring::mpsc;
use tables::signature::{Keyed, Session4};
use tables::slots::{InsertError, SlotMap, SlotMemory};

const HASH: Keyed = Keyed::new([1, 2, 3, 4]);
const SCHEDULES: usize = 2000;

fn session(n: u32) -> Session4 {
    Session4 {
        source: n,
        ..Session4::default()
    }
}

/// Four workers insert and remove one key: every record is removed once, and the map is empty at the end
/// exactly when insertions and removals are as many.
fn insertions_and_removals_pair_up() {
    let map = Arc::new(SlotMap::<u64>::with_memory(
        SlotMemory::new(12, Pages::Normal),
        HASH,
        Domain::new(5),
    ));
    let workers: Vec<_> = (0..4_u64)
        .map(|thread| {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut worker = map.join().unwrap();
                let mut balance = 0_i64;
                for at in 0..4 {
                    if (at + thread) % 2 == 0 {
                        match map.insert(&mut worker, &7, &[thread]) {
                            Ok(_) => balance += 1,
                            Err(InsertError::Exists(_)) => {}
                            // Dead slots wait for the others' reports.
                            Err(_) => {}
                        }
                    } else if map.remove(&mut worker, &7).is_some() {
                        balance -= 1;
                    }
                    worker.quiescent();
                    map.reclaim(&mut worker);
                }
                balance
            })
        })
        .collect();
    let balance: i64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
    assert_eq!(balance, i64::from(map.find(&7).is_some()));
    assert_eq!(map.count() as i64, balance);
}

#[test]
fn insertions_and_removals_pair_up_in_random_schedules() {
    check_random(insertions_and_removals_pair_up, SCHEDULES);
    check_pct(insertions_and_removals_pair_up, SCHEDULES, 3);
}

/// Three workers want one reply key for different connections: it never belongs to two, and a found reply
/// leads to its own connection.
fn one_reply_key_one_connection() {
    let flows = Arc::new(FlowMap::<Session4>::with_memory(
        SlotMemory::new(16, Pages::Normal),
        HASH,
        Domain::new(4),
    ));
    let workers: Vec<_> = (1..4_u32)
        .map(|n| {
            let flows = Arc::clone(&flows);
            thread::spawn(move || {
                let mut worker = flows.join().unwrap();
                let mut won = 0;
                for _ in 0..2 {
                    let inserted = flows.insert(&mut worker, &session(n), Some(&session(100)), &[]);
                    if let Ok(connection) = inserted {
                        won += 1;
                        let found = flows.find(&session(100)).unwrap();
                        assert_eq!(found.connection, connection);
                        assert_eq!(found.direction, Direction::Reply);
                        assert!(flows.remove(&mut worker, connection));
                    }
                    worker.quiescent();
                    flows.reclaim(&mut worker);
                }
                won
            })
        })
        .collect();
    let won: u32 = workers.into_iter().map(|w| w.join().unwrap()).sum();
    assert!(won >= 1, "nobody won");
    assert_eq!(flows.records(), 0);
}

#[test]
fn one_reply_key_belongs_to_one_connection_in_random_schedules() {
    check_random(one_reply_key_one_connection, SCHEDULES);
    check_pct(one_reply_key_one_connection, SCHEDULES, 3);
}

/// A worker outside of the domain removes by reference while others reuse the slot.
fn stale_removals(generations: bool) {
    let memory = SlotMemory::new(1, Pages::Normal);
    let map = SlotMap::<u64>::with_memory(memory, HASH, Domain::new(2));
    let map = Arc::new(if generations {
        map
    } else {
        map.without_generations()
    });
    let mut worker = map.join().unwrap();
    map.insert(&mut worker, &7, &[0]).unwrap();
    let stalled = {
        let map = Arc::clone(&map);
        thread::spawn(move || {
            let elsewhere = SlotMap::<u64>::with_memory(
                SlotMemory::new(1, Pages::Normal),
                HASH,
                Domain::new(1),
            );
            let mut worker = elsewhere.join().unwrap();
            let mut value = [0];
            let found = map.read(&7, &mut value)?;
            map.remove_ref(&mut worker, found).then_some(value[0])
        })
    };
    let mut removed = Vec::new();
    let mut value = [0];
    for next in 1..4 {
        let read = map.read(&7, &mut value);
        if read.is_some_and(|found| map.remove_ref(&mut worker, found)) {
            removed.push(value[0]);
        }
        worker.quiescent();
        map.reclaim(&mut worker);
        let _ = map.insert(&mut worker, &7, &[next]);
    }
    if let Some(value) = stalled.join().unwrap() {
        assert!(
            !removed.contains(&value),
            "ABA: the record was removed twice"
        );
    }
}

#[test]
fn stale_removals_remove_nothing_in_random_schedules() {
    check_random(|| stale_removals(true), SCHEDULES);
    check_pct(|| stale_removals(true), SCHEDULES, 3);
}

#[test]
#[should_panic(expected = "ABA")]
fn without_generations_random_schedules_find_the_fault() {
    // Priorities with few changes make long stalls, which even random choices hardly ever do.
    check_pct(|| stale_removals(false), 20 * SCHEDULES, 3);
}

/// Three producers: every value arrives once, each producer's in order.
#[test]
fn mpsc_delivers_once_and_in_order_in_random_schedules() {
    check_random(
        || {
            let (tx, mut rx) = mpsc::<(usize, u32)>(4);
            let producers: Vec<_> = (0..3)
                .map(|id| {
                    let tx = tx.clone();
                    thread::spawn(move || (0..4).filter(|&at| tx.push((id, at)).is_ok()).count())
                })
                .collect();
            let mut got = Vec::new();
            for _ in 0..6 {
                got.extend(rx.pop_batch(2));
                thread::yield_now();
            }
            let pushed: usize = producers.into_iter().map(|p| p.join().unwrap()).sum();
            got.extend(rx.pop_batch(64));
            assert_eq!(got.len(), pushed);
            for id in 0..3 {
                let own: Vec<u32> = got.iter().filter(|v| v.0 == id).map(|v| v.1).collect();
                assert!(own.is_sorted_by(|a, b| a < b), "{own:?}");
            }
        },
        SCHEDULES,
    );
}
