//! Loom models of the flow map: a refresh and an expiry that race, and pairs of records that come and go as
//! one. Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --release --test loom_flows`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use tables::flow_map::{Direction, FlowError, FlowMap};
use tables::memory::Pages;
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session4};
use tables::slots::{SlotMap, SlotMemory};

const HASH: Keyed = Keyed::new([1, 2, 3, 4]);

fn session(n: u32) -> Session4 {
    Session4 {
        source: n,
        ..Session4::default()
    }
}

/// Two slots a bucket.
fn flows(slots: usize) -> FlowMap<Session4> {
    let memory = SlotMemory {
        lines: tables::memory::Memory::zeroed(slots / 2, Pages::Normal),
        records: tables::memory::Memory::zeroed(slots, Pages::Normal),
    };
    FlowMap::with_memory(memory, HASH, Domain::new(3))
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// How a packet moves the deadline.
#[derive(Clone, Copy)]
enum Refresh {
    Touch,
    /// Finds the connection and writes the word, as one would without a protocol.
    Store,
}

/// Invariant: of a refresh (to 100) and an expiry (at 50) of a connection whose deadline is 10, exactly one
/// wins, and the packet knows: a connection that a packet refreshed is there afterwards.
fn refresh_against_expiry(refresh: Refresh) {
    model(3, move || {
        let flows = Arc::new(flows(2));
        let mut worker = flows.join().unwrap();
        let key = session(1);
        flows.insert(&mut worker, &key, None, &[10]).unwrap();
        let packet = {
            let flows = Arc::clone(&flows);
            thread::spawn(move || {
                let _online = flows.join().unwrap();
                let Some(flow) = flows.find(&key) else {
                    return false;
                };
                match refresh {
                    Refresh::Touch => flows.touch(flow.connection, 100),
                    Refresh::Store => flows.values(flow.connection).is_some_and(|values| {
                        values[0].store(100, Ordering::Relaxed);
                        // Still there after the write: as careful as one can be without a swap.
                        flows.values(flow.connection).is_some()
                    }),
                }
            })
        };
        let removed = flows.expire_until(&mut worker, 0..2, 50);
        let refreshed = packet.join().unwrap();
        let there = flows.find(&key).is_some();
        assert_eq!(refreshed, there, "a refreshed connection was removed");
        assert_eq!(removed == 0, there);
    });
}

#[test]
fn of_refresh_and_expiry_one_wins() {
    refresh_against_expiry(Refresh::Touch);
}

#[test]
#[should_panic(expected = "a refreshed connection was removed")]
fn a_refresh_by_a_store_is_lost() {
    refresh_against_expiry(Refresh::Store);
}

/// Invariant: a connection that expired is in nobody's way: an insert of its key beside the sweep gets in or
/// is told the truth (no free slot), never that the key is taken by what nobody finds.
#[test]
fn an_expired_connection_is_in_nobodys_way() {
    model(2, || {
        let flows = Arc::new(flows(2));
        let mut worker = flows.join().unwrap();
        let key = session(1);
        let old = flows.insert(&mut worker, &key, None, &[10]).unwrap();
        let packet = {
            let flows = Arc::clone(&flows);
            thread::spawn(move || {
                let mut worker = flows.join().unwrap();
                flows.insert(&mut worker, &key, None, &[100])
            })
        };
        flows.expire_until(&mut worker, 0..2, 50);
        match packet.join().unwrap() {
            Ok(new) => assert_eq!(flows.find(&key).map(|flow| flow.connection), Some(new)),
            Err(FlowError::Exists(flow)) => {
                assert_eq!(flow.connection, old);
                assert_eq!(flows.find(&key), None);
            }
            Err(other) => panic!("{other}"),
        }
    });
}

/// Invariant: who finds a connection by its reply key finds it by its original key as well.
#[test]
fn a_pair_appears_at_once() {
    model(2, || {
        let flows = Arc::new(flows(2));
        let inserter = {
            let flows = Arc::clone(&flows);
            thread::spawn(move || {
                let mut worker = flows.join().unwrap();
                flows.insert(&mut worker, &session(1), Some(&session(2)), &[10])
            })
        };
        let _online = flows.join().unwrap();
        if let Some(back) = flows.find(&session(2)) {
            assert_eq!(back.direction, Direction::Reply);
            let out = flows.find(&session(1)).expect("half a connection");
            assert_eq!(out.connection, back.connection);
        }
        let connection = inserter.join().unwrap().unwrap();
        let found = [1, 2].map(|n| flows.find(&session(n)).map(|flow| flow.connection));
        assert_eq!(found, [Some(connection); 2]);
    });
}

/// The same with two records that are inserted one after the other, the original first: half a connection
/// is seen.
#[test]
#[should_panic(expected = "half a connection")]
fn two_inserts_are_not_a_pair() {
    model(2, || {
        let memory = SlotMemory::new(1, Pages::Normal);
        let map = Arc::new(SlotMap::<Session4>::with_memory(
            memory,
            HASH,
            Domain::new(2),
        ));
        let inserter = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut worker = map.join().unwrap();
                let original = map.insert(&mut worker, &session(1), &[]).unwrap();
                map.insert(&mut worker, &session(2), &[original.to_word()])
                    .unwrap();
            })
        };
        let _online = map.join().unwrap();
        if map.find(&session(1)).is_some() {
            assert!(map.find(&session(2)).is_some(), "half a connection");
        }
        inserter.join().unwrap();
    });
}

/// Invariant: once a connection is gone by one key it is gone by the other.
#[test]
fn a_pair_disappears_at_once() {
    model(2, || {
        let flows = Arc::new(flows(2));
        let mut worker = flows.join().unwrap();
        let connection = flows
            .insert(&mut worker, &session(1), Some(&session(2)), &[10])
            .unwrap();
        let remover = {
            let flows = Arc::clone(&flows);
            thread::spawn(move || {
                let mut worker = flows.join().unwrap();
                assert!(flows.remove(&mut worker, connection));
            })
        };
        if flows.find(&session(1)).is_none() {
            assert_eq!(flows.find(&session(2)), None, "half a connection is left");
        }
        remover.join().unwrap();
        assert_eq!(flows.records(), 0);
    });
}

/// Invariant: of two connections with one reply key, at most one gets in, the loser leaves nothing, and the
/// reply key leads to the winner.
#[test]
fn one_reply_key_has_one_connection() {
    model(2, || {
        // Room for all three keys, wherever they hash to.
        let flows = Arc::new(flows(12));
        let other = {
            let flows = Arc::clone(&flows);
            thread::spawn(move || {
                let mut worker = flows.join().unwrap();
                flows.insert(&mut worker, &session(1), Some(&session(9)), &[10])
            })
        };
        let mut worker = flows.join().unwrap();
        let ours = flows.insert(&mut worker, &session(2), Some(&session(9)), &[10]);
        let theirs = other.join().unwrap();
        let back = flows.find(&session(9)).map(|flow| flow.connection);
        match (ours, theirs) {
            (Ok(won), Err(FlowError::ReplyTaken)) => {
                assert_eq!(back, Some(won));
                assert_eq!(flows.find(&session(1)), None);
            }
            (Err(FlowError::ReplyTaken), Ok(won)) => {
                assert_eq!(back, Some(won));
                assert_eq!(flows.find(&session(2)), None);
            }
            // Each saw the other's claim and gave up: nobody has the key.
            (Err(FlowError::ReplyTaken), Err(FlowError::ReplyTaken)) => assert_eq!(back, None),
            both => panic!("{both:?}"),
        }
        assert_eq!(flows.records(), if back.is_some() { 2 } else { 0 });
    });
}
