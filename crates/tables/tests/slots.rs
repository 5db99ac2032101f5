//! The slot map and the flow map: against a map, under threads, and by recorded histories.
#![cfg(not(any(loom, shuttle)))]

mod common;

use common::{Event, Op, check};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use tables::flow_map::{Direction, FlowError, FlowMap};
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session4};
use tables::slots::{InsertError, SlotMap, SlotRef};

const HASH: Keyed = Keyed::new([
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
]);

fn session(n: u64) -> Session4 {
    Session4 {
        source: n as u32,
        destination: 7,
        source_port: (n >> 32) as u16,
        destination_port: 80,
        protocol: 17,
    }
}

proptest! {
    #[test]
    fn slot_map_agrees_with_a_map(
        records in 1_usize..60,
        ops in prop::collection::vec((0_u8..6, 0_u64..100), 1..500),
    ) {
        let map = SlotMap::<u64>::new(records, HASH, Domain::new(1));
        let mut worker = map.join().unwrap();
        let mut model: HashMap<u64, (SlotRef, u64)> = HashMap::new();
        let mut value = [0];
        for (at, (kind, key)) in ops.into_iter().enumerate() {
            match kind {
                0..=1 => match map.insert(&mut worker, &key, &[at as u64]) {
                    Ok(found) => {
                        prop_assert_eq!(model.insert(key, (found, at as u64)), None);
                    }
                    Err(InsertError::Exists(found)) => {
                        prop_assert_eq!(model.get(&key).map(|entry| entry.0), Some(found));
                    }
                    Err(_) => prop_assert!(!model.contains_key(&key)),
                },
                2 => {
                    let removed = map.remove(&mut worker, &key);
                    prop_assert_eq!(removed, model.remove(&key).map(|entry| entry.0));
                }
                3 => {
                    worker.quiescent();
                    map.reclaim(&mut worker);
                    prop_assert_eq!(worker.retired(), 0);
                }
                4 => {
                    let found = map.read(&key, &mut value);
                    prop_assert_eq!(found.map(|found| (found, value[0])), model.get(&key).copied());
                }
                _ => {
                    let gone = map.sweep(&mut worker, 0..map.slots() / 2, |found, values| {
                        let old = values[0].load(Ordering::Relaxed).is_multiple_of(3);
                        old && { model.retain(|_, entry| entry.0 != found); true }
                    });
                    prop_assert!(gone <= map.slots());
                }
            }
        }
        prop_assert_eq!(map.count(), model.len());
        let keys: Vec<u64> = (0..100).collect();
        let mut found = vec![None; 100];
        map.find_batch(&keys, &mut found);
        for (key, found) in keys.iter().zip(&found) {
            prop_assert_eq!(*found, model.get(key).map(|entry| entry.0));
        }
    }

    #[test]
    fn flow_map_finds_both_directions(
        ops in prop::collection::vec((0_u8..4, 0_u64..30, 0_u64..30), 1..300),
    ) {
        let flows = FlowMap::<Session4>::new(64, HASH, Domain::new(1));
        let mut worker = flows.join().unwrap();
        // Connection, original key, reply key.
        let mut model: Vec<(SlotRef, u64, u64)> = Vec::new();
        for (kind, original, reply) in ops {
            let reply = reply + 20;
            let owner = |key: u64, model: &[(SlotRef, u64, u64)]| {
                model.iter().find(|c| c.1 == key || c.2 == key).copied()
            };
            match kind {
                0..=1 => {
                    let value = [original * 100 + reply];
                    let done = flows.insert(&mut worker, &session(original), Some(&session(reply)), &value);
                    match done {
                        Ok(connection) => {
                            prop_assert!(owner(original, &model).is_none());
                            prop_assert!(original == reply || owner(reply, &model).is_none());
                            model.push((connection, original, reply));
                        }
                        Err(FlowError::Exists(flow)) => {
                            let there = owner(original, &model).unwrap();
                            prop_assert_eq!(flow.connection, there.0);
                            prop_assert_eq!(flow.direction == Direction::Original, there.1 == original);
                        }
                        Err(FlowError::ReplyTaken) => prop_assert!(owner(reply, &model).is_some()),
                        Err(_) => {}
                    }
                }
                2 => if let Some(at) = model.iter().position(|c| c.1 == original) {
                    let (connection, ..) = model.swap_remove(at);
                    prop_assert!(flows.remove(&mut worker, connection));
                    prop_assert!(!flows.remove(&mut worker, connection));
                }
                _ => {
                    worker.quiescent();
                    flows.reclaim(&mut worker);
                }
            }
            for key in 0..50 {
                let found = flows.find(&session(key));
                let there = owner(key, &model);
                prop_assert_eq!(found.map(|flow| flow.connection), there.map(|c| c.0));
                if let (Some(flow), Some((connection, original, reply))) = (found, there) {
                    let want = if original == key { Direction::Original } else { Direction::Reply };
                    prop_assert_eq!(flow.direction, want);
                    let value = flows.values(connection).unwrap()[0].load(Ordering::Relaxed);
                    prop_assert_eq!(value, original * 100 + reply);
                    prop_assert_eq!(flows.original_key(connection), Some(session(original)));
                    let back = (original != reply).then(|| session(reply));
                    prop_assert_eq!(flows.reply_key(connection), back);
                }
            }
        }
        let keys: Vec<_> = (0..50).map(session).collect();
        let mut found = vec![None; keys.len()];
        flows.find_batch(&keys, &mut found);
        for (key, found) in keys.iter().zip(found) {
            prop_assert_eq!(found, flows.find(key));
        }
    }
}

#[test]
fn full_and_zero_capacity_refuse_and_lose_nothing() {
    let map = SlotMap::<u64>::new(0, HASH, Domain::new(1));
    let mut worker = map.join().unwrap();
    assert_eq!(map.slots(), 8);
    for key in 0..8 {
        map.insert(&mut worker, &key, &[key]).unwrap();
    }
    assert_eq!(map.insert(&mut worker, &8, &[]), Err(InsertError::Full));
    assert!(matches!(
        map.insert(&mut worker, &3, &[]),
        Err(InsertError::Exists(_))
    ));
    assert!((0..8).all(|key| map.find(&key).is_some()));
    // A removed record's slot comes back after the grace period, not before.
    map.remove(&mut worker, &0).unwrap();
    assert_eq!(map.insert(&mut worker, &8, &[]), Err(InsertError::Full));
    worker.quiescent();
    map.reclaim(&mut worker);
    map.insert(&mut worker, &8, &[]).unwrap();
}

#[test]
fn a_map_holds_what_it_was_made_for() {
    let map = SlotMap::<u64>::new(300_000, HASH, Domain::new(1));
    let mut worker = map.join().unwrap();
    for key in 0..300_000 {
        map.insert(&mut worker, &key, &[key]).unwrap();
    }
    assert_eq!(map.count(), 300_000);
}

#[test]
fn leaked_slots_are_freed_after_a_grace_period() {
    let domain = Domain::new(2);
    let map = SlotMap::<u64>::new(8, HASH, domain.clone());
    let supervisor = map.join().unwrap();
    let mut dead = map.join().unwrap();
    map.insert(&mut dead, &1, &[]).unwrap();
    map.remove(&mut dead, &1).unwrap();
    let index = dead.participant().index();
    std::mem::forget(dead);
    domain.evict(index);
    let leaks = map.find_leaks();
    let leaks = map.free_leaks(leaks).unwrap_err();
    supervisor.quiescent();
    assert_eq!(map.free_leaks(leaks).unwrap(), 1);
}

/// Workers fight for few keys; every history must have an order. Runs in release builds as well, where the
/// processor reorders what it may.
#[test]
fn recorded_histories_are_linearizable() {
    const THREADS: u64 = 4;
    const OPS: u64 = 1500;
    const KEYS: u64 = 3;
    for round in 0..12 {
        let map = Arc::new(SlotMap::<u64>::new(24, HASH, Domain::new(THREADS as usize)));
        let clock = Arc::new(AtomicU64::new(0));
        let start = Arc::new(Barrier::new(THREADS as usize));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (map, clock, start) = (map.clone(), clock.clone(), start.clone());
                std::thread::spawn(move || {
                    let mut worker = map.join().unwrap();
                    let mut history = Vec::new();
                    let mut random = round * 1000 + thread + 1;
                    let mut value = [0; 1];
                    start.wait();
                    for at in 0..OPS {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let key = random % KEYS;
                        let begin = clock.fetch_add(1, Ordering::SeqCst);
                        let op = match random >> 32 & 3 {
                            0 | 1 => {
                                let unique = thread << 32 | at;
                                match map.insert(&mut worker, &key, &[unique]) {
                                    Ok(_) => Op::Insert {
                                        value: unique,
                                        won: true,
                                    },
                                    Err(InsertError::Exists(_)) => Op::Insert {
                                        value: unique,
                                        won: false,
                                    },
                                    Err(_) => {
                                        worker.quiescent();
                                        map.reclaim(&mut worker);
                                        std::thread::yield_now();
                                        continue;
                                    }
                                }
                            }
                            2 => Op::Remove {
                                won: map.remove(&mut worker, &key).is_some(),
                            },
                            _ => Op::Read(map.read(&key, &mut value).map(|_| value[0])),
                        };
                        let end = clock.fetch_add(1, Ordering::SeqCst);
                        history.push(Event {
                            key,
                            op,
                            begin,
                            end,
                        });
                        if at % 4 == 0 {
                            worker.quiescent();
                            map.reclaim(&mut worker);
                        }
                    }
                    history
                })
            })
            .collect();
        let history: Vec<Event> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        assert!(history.len() > 2000, "too few: {}", history.len());
        assert_eq!(check(&history), Ok(()), "round {round}");
    }
}

/// Two workers translate the same clients to few ports: no reply key is ever given twice.
#[test]
fn two_workers_never_share_a_reply_key() {
    let flows = Arc::new(FlowMap::<Session4>::new(256, HASH, Domain::new(2)));
    let owners = Arc::new((0..16).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let threads: Vec<_> = (0..2_u64)
        .map(|thread| {
            let (flows, owners) = (flows.clone(), owners.clone());
            std::thread::spawn(move || {
                let mut worker = flows.join().unwrap();
                let mut won = 0;
                for at in 0..20_000_u64 {
                    let port = at.wrapping_mul(0x9e37_79b9) >> 7 & 15;
                    let original = session(1000 + at % 64 + thread * 64);
                    let reply = session(port);
                    let inserted = flows.insert(&mut worker, &original, Some(&reply), &[port]);
                    if inserted == Err(FlowError::Full) {
                        // Removed records wait for the other worker, which may not be running.
                        std::thread::yield_now();
                    }
                    if let Ok(connection) = inserted {
                        won += 1;
                        assert_eq!(owners[port as usize].swap(thread + 1, Ordering::SeqCst), 0);
                        let flow = flows.find(&reply).unwrap();
                        assert_eq!(
                            (flow.connection, flow.direction),
                            (connection, Direction::Reply)
                        );
                        assert_eq!(owners[port as usize].swap(0, Ordering::SeqCst), thread + 1);
                        assert!(flows.remove(&mut worker, connection));
                    }
                    worker.quiescent();
                    flows.reclaim(&mut worker);
                }
                won
            })
        })
        .collect();
    let won: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(won > 0, "nobody won");
    assert_eq!(flows.records(), 0);
}
