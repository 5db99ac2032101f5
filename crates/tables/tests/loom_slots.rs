//! Loom models of the slot map: one small model an invariant, and the variant without generations, which
//! fails (LF-7). Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --test loom_slots --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use tables::memory::Pages;
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session4};
use tables::slots::{InsertError, SlotKey, SlotMap, SlotMemory};

const HASH: Keyed = Keyed::new([1, 2, 3, 4]);

/// One bucket of two slots.
fn map(workers: usize) -> SlotMap<u64> {
    SlotMap::with_memory(
        SlotMemory::new(1, Pages::Normal),
        HASH,
        Domain::new(workers),
    )
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// Invariant: of two inserts of one key, exactly one wins, and the loser names the winner.
#[test]
fn one_insert_wins() {
    model(3, || {
        let map = Arc::new(map(2));
        let other = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut worker = map.join().unwrap();
                map.insert(&mut worker, &7, &[1])
            })
        };
        let mut worker = map.join().unwrap();
        let ours = map.insert(&mut worker, &7, &[2]);
        let theirs = other.join().unwrap();
        let winner = match (ours, theirs) {
            (Ok(winner), Err(InsertError::Exists(named))) => (winner, named, 2),
            (Err(InsertError::Exists(named)), Ok(winner)) => (winner, named, 1),
            both => panic!("{both:?}"),
        };
        assert_eq!(winner.0, winner.1);
        let mut value = [0];
        assert_eq!(map.read(&7, &mut value), Some(winner.0));
        assert_eq!(value[0], winner.2);
    });
}

/// Invariant: of two removals of one record, exactly one wins.
#[test]
fn one_removal_wins() {
    model(3, || {
        let map = Arc::new(map(3));
        let mut worker = map.join().unwrap();
        map.insert(&mut worker, &7, &[1]).unwrap();
        let other = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut worker = map.join().unwrap();
                map.remove(&mut worker, &7).is_some()
            })
        };
        let ours = map.remove(&mut worker, &7).is_some();
        assert!(ours != other.join().unwrap());
        assert_eq!(map.find(&7), None);
    });
}

/// Invariant: a removal and an insert of one key leave the map as one of their two orders does.
#[test]
fn removal_and_insert_have_an_order() {
    model(2, || {
        let map = Arc::new(map(2));
        let mut worker = map.join().unwrap();
        let first = map.insert(&mut worker, &7, &[1]).unwrap();
        let other = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut worker = map.join().unwrap();
                map.insert(&mut worker, &7, &[2])
            })
        };
        assert!(map.remove(&mut worker, &7).is_some());
        let mut value = [0];
        match other.join().unwrap() {
            Ok(_) => {
                map.read(&7, &mut value).unwrap();
                assert_eq!(value[0], 2);
            }
            Err(InsertError::Exists(found)) => {
                assert_eq!(found, first);
                assert_eq!(map.find(&7), None);
            }
            // The dead slot is not free yet, and the other one may be the loser's.
            Err(other) => panic!("{other}"),
        }
    });
}

/// Takes the generations out of the words in the variant that is to fail.
fn variant<K: SlotKey>(map: SlotMap<K>, generations: bool) -> Arc<SlotMap<K>> {
    Arc::new(if generations {
        map
    } else {
        map.without_generations()
    })
}

/// ABA on removal: a worker reads a record and removes it by reference, while another removes it, frees the
/// slot and inserts the key again: same slot, same tag, same state. The stalled worker is in no domain, so
/// that the word alone must tell (a wrapped or missing grace period is what ABA is about).
fn removal_across_a_reuse(generations: bool) {
    model(3, move || {
        let domain = Domain::new(1);
        let memory = SlotMemory::new(1, Pages::Normal);
        let map = variant(
            SlotMap::<u64>::with_memory(memory, HASH, domain),
            generations,
        );
        let mut worker = map.join().unwrap();
        map.insert(&mut worker, &7, &[1]).unwrap();
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
        let removed = map.remove(&mut worker, &7).is_some();
        worker.quiescent();
        map.reclaim(&mut worker);
        let again = map.insert(&mut worker, &7, &[2]).is_ok();
        let by_stalled = stalled.join().unwrap();
        if removed && again {
            assert_ne!(by_stalled, Some(1), "ABA: the record was removed twice");
        }
    });
}

/// ABA on reading: the two words that a reader copies are of one record, never half of the one before.
fn copy_across_a_reuse(generations: bool) {
    model(3, move || {
        let key = Session4::default();
        let memory = SlotMemory::new(1, Pages::Normal);
        let map = variant(
            SlotMap::<Session4>::with_memory(memory, HASH, Domain::new(1)),
            generations,
        );
        let mut worker = map.join().unwrap();
        map.insert(&mut worker, &key, &[1, 1]).unwrap();
        let reader = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let mut value = [0; 2];
                let found = map.find(&key)?;
                map.read_ref(found, &mut value).then_some(value)
            })
        };
        map.remove(&mut worker, &key).unwrap();
        worker.quiescent();
        map.reclaim(&mut worker);
        map.insert(&mut worker, &key, &[2, 2]).unwrap();
        if let Some([first, second]) = reader.join().unwrap() {
            assert_eq!(first, second, "ABA: half of each of two records");
        }
    });
}

#[test]
fn a_removal_across_a_reuse_removes_nothing() {
    removal_across_a_reuse(true);
}

#[test]
#[should_panic(expected = "ABA: the record was removed twice")]
fn without_generations_a_record_is_removed_twice() {
    removal_across_a_reuse(false);
}

#[test]
fn a_copy_across_a_reuse_is_of_one_record() {
    copy_across_a_reuse(true);
}

#[test]
#[should_panic(expected = "ABA: half of each of two records")]
fn without_generations_a_copy_is_torn() {
    copy_across_a_reuse(false);
}
