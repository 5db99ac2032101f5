//! The signature tables against a map, and recovery from half-done changes.
#![cfg(not(any(loom, shuttle)))]

use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tables::memory::{Memory, Pages};
use tables::signature::{
    AddError, Keyed, PaperTable, Place, Session4, Session6, SessionKey, Shape, SignatureFunction,
    SignatureTable, SipHash13, TableMemory, Xor,
};

const KEYED: Keyed = Keyed::new([
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
]);

fn session4(n: u32) -> Session4 {
    Session4 {
        source: 0x0a00_0000 | n >> 4,
        destination: 0xc0a8_0001,
        source_port: 1024 + (n & 15) as u16,
        destination_port: 443,
        protocol: 6,
    }
}

fn session6(n: u32) -> Session6 {
    Session6 {
        source: 0x2001_0db8 << 96 | u128::from(n),
        destination: 0x2001_0db8 << 96 | 0xffff,
        source_port: 1024,
        destination_port: 443,
        protocol: 6,
    }
}

/// Runs `ops` (kind, session number) on a table that may grow and on a map.
fn run<K: SessionKey + std::hash::Hash, F: SignatureFunction>(
    function: F,
    shape: Shape,
    ops: &[(u8, u32)],
    session: impl Fn(u32) -> K,
) {
    let mut table = SignatureTable::with_pages(shape, function, Pages::Normal);
    let mut model: HashMap<K, Place> = HashMap::new();
    for &(kind, n) in ops {
        let key = session(n);
        match kind {
            0..=3 => match table.add(&key) {
                Ok(place) => {
                    assert!(table.hot(place).iter().all(|word| word.load(Relaxed) == 0));
                    table.hot(place)[0].store(u64::from(n) + 1, Relaxed);
                    assert!(model.values().all(|&other| other != place));
                    assert_eq!(model.insert(key, place), None);
                }
                Err(AddError::Exists(place)) => assert_eq!(model.get(&key), Some(&place)),
                Err(AddError::Full) => assert!(!model.contains_key(&key)),
                Err(other) => panic!("{other}"),
            },
            4..=5 => assert_eq!(table.remove(&key), model.remove(&key)),
            6 => {
                table.grow(|key, from, to| {
                    assert_eq!(model.insert(*key, to), Some(from));
                });
            }
            _ => assert_eq!(table.find(&key), model.get(&key).copied()),
        }
        assert_eq!(table.len(), model.len());
    }
    let keys: Vec<K> = (0..400).map(session).collect();
    let mut places = vec![None; keys.len()];
    table.find_batch(&keys, &mut places);
    for ((n, key), place) in (0_u64..).zip(&keys).zip(&places) {
        assert_eq!(*place, model.get(key).copied());
        assert_eq!(table.find(key), *place);
        if let Some(place) = place {
            assert_eq!(table.hot(*place)[0].load(Relaxed), n + 1);
            assert_eq!(table.session(*place), Some(*key));
        }
    }
    let listed: HashMap<K, Place> = table.iter().map(|(place, key)| (key, place)).collect();
    assert_eq!(listed, model);
    for key in &keys {
        table.remove(key);
    }
    let occupancy = table.occupancy();
    assert_eq!(
        (occupancy.sessions, occupancy.filter_bits),
        (0, 0),
        "filter bits stay behind"
    );
}

proptest! {
    #[test]
    fn default_table_agrees_with_a_map(
        buckets in 1_u32..8,
        extra in 0_u32..20,
        pool in 0_u32..40,
        primary_fill in 0_u32..17,
        ops in prop::collection::vec((0_u8..8, 0_u32..400), 1..600),
    ) {
        let shape = Shape { buckets, buckets_max: buckets + extra, pool, primary_fill };
        run(KEYED, shape, &ops, session4);
        run(KEYED, shape, &ops, session6);
        // Every session in few buckets with few signatures.
        run(Xor, shape, &ops, session4);
        run(SipHash13::new([1, 2]), shape, &ops, session6);
    }

    #[test]
    fn paper_table_agrees_with_a_map(
        buckets in 1_u32..8,
        pool in 0_u32..200,
        ops in prop::collection::vec((0_u8..8, 0_u32..300), 1..600),
    ) {
        let mut table = PaperTable::new(buckets, pool, Xor, Pages::Normal);
        let mut model: HashMap<Session4, Place> = HashMap::new();
        for (kind, n) in ops {
            let key = session4(n);
            match kind {
                0..=3 => match table.add(&key) {
                    Ok(place) => {
                        prop_assert_eq!(model.insert(key, place), None);
                    }
                    Err(AddError::Exists(place)) => prop_assert_eq!(model.get(&key), Some(&place)),
                    Err(_) => prop_assert!(!model.contains_key(&key)),
                },
                4..=5 => prop_assert_eq!(table.remove(&key), model.remove(&key)),
                _ => prop_assert_eq!(table.find(&key), model.get(&key).copied()),
            }
        }
        let keys: Vec<_> = (0..300).map(session4).collect();
        let mut places = vec![None; keys.len()];
        table.find_batch(&keys, &mut places);
        for (key, place) in keys.iter().zip(&places) {
            prop_assert_eq!(*place, model.get(key).copied());
        }
    }
}

#[test]
fn full_table_refuses_and_loses_nothing() {
    let shape = Shape {
        buckets: 1,
        buckets_max: 1,
        pool: 3,
        primary_fill: 13,
    };
    let mut table = SignatureTable::new(shape, KEYED);
    for n in 0..19 {
        table.add(&session4(n)).unwrap();
    }
    assert_eq!(table.add(&session4(19)), Err(AddError::Full));
    assert!(matches!(table.add(&session4(3)), Err(AddError::Exists(_))));
    assert!((0..19).all(|n| table.find(&session4(n)).is_some()));
    assert_eq!(table.occupancy().conflicts, 3);
    table.remove(&session4(0)).unwrap();
    table.add(&session4(19)).unwrap();
    // Zero capacity in the pool is a table that refuses earlier.
    let mut table = SignatureTable::new(Shape { pool: 0, ..shape }, KEYED);
    let added = (0..19).filter(|&n| table.add(&session4(n)).is_ok()).count();
    assert_eq!(added, 16);
}

#[test]
fn a_million_sessions_overflow_rarely_at_five_bytes() {
    let sessions = 1_000_000;
    let mut table = SignatureTable::new(Shape::for_sessions(sessions), KEYED);
    for n in 0..sessions {
        table.add(&session4(n)).unwrap();
    }
    let occupancy = table.occupancy();
    assert!(occupancy.conflicts <= 100, "overflow {occupancy:?}");
    assert!(table.index_bytes() <= 5 * sessions as usize);
    let misled: u32 = (0..sessions)
        .map(|n| table.find_counted(&session4(n)).1.records - 1)
        .sum();
    assert!(misled <= 2, "{misled} extra probes");
}

#[test]
fn growth_keeps_every_session() {
    let mut table = SignatureTable::new(Shape::growing(100, 50_000), KEYED);
    let start = table.buckets();
    for n in 0..50_000 {
        table.add(&session4(n)).unwrap();
        while table.wants_growth() && table.grow(|_, _, _| {}) {}
    }
    assert!(table.buckets() > 100 * start);
    assert!(table.occupancy().conflicts < 50, "{:?}", table.occupancy());
    assert!((0..50_000).all(|n| table.find(&session4(n)).is_some()));
    assert!((50_000..60_000).all(|n| table.find(&session4(n)).is_none()));
    assert_eq!(table.iter().count(), 50_000);
}

fn copy_of(shape: Shape, from: &TableMemory<Session4>) -> TableMemory<Session4> {
    let to = TableMemory::new(shape, Pages::Normal);
    to.header[0].store(from.header[0].load(Relaxed), Relaxed);
    let records: &[[AtomicU64; 8]] = &from.records;
    let copies: &[[AtomicU64; 8]] = &to.records;
    for (to, from) in copies.iter().zip(records) {
        for (to, from) in to.iter().zip(from) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
    to
}

/// The index is worth nothing to recovery: from records alone every committed session comes back, whatever
/// the signatures said.
#[test]
fn recovery_rebuilds_the_index_from_records() {
    let shape = Shape {
        buckets: 3,
        buckets_max: 8,
        pool: 30,
        primary_fill: 13,
    };
    let fresh = TableMemory::new(shape, Pages::Normal);
    let (mut table, repairs) = SignatureTable::recover(shape, KEYED, fresh).unwrap();
    assert_eq!(repairs, Default::default());
    let added: Vec<u32> = (0..70)
        .filter(|&n| table.add(&session4(n)).is_ok())
        .collect();
    table.grow(|_, _, _| {});
    assert!(added.len() > 60);
    for &n in &added {
        let place = table.find(&session4(n)).unwrap();
        table.hot(place)[1].store(u64::from(n), Relaxed);
    }
    let memory = table.into_memory();
    let copy = copy_of(shape, &memory);
    // Half of a record: the key was not committed.
    let empty = copy
        .records
        .iter()
        .position(|r| r[1].load(Relaxed) == 0)
        .unwrap();
    copy.records[empty][0].store(77, Relaxed);
    let (mut table, repairs) = SignatureTable::recover(shape, KEYED, copy).unwrap();
    assert_eq!(repairs.sessions, added.len());
    for &n in &added {
        let place = table.find(&session4(n)).unwrap();
        assert_eq!(table.hot(place)[1].load(Relaxed), u64::from(n));
    }
    for &n in &added {
        table.remove(&session4(n)).unwrap();
    }
    assert_eq!(table.occupancy().filter_bits, 0);
    // And with the index there, nothing needs repair but filter bits.
    let (table, repairs) = SignatureTable::recover(shape, KEYED, memory).unwrap();
    assert_eq!(repairs.signatures_cleared + repairs.signatures_restored, 0);
    assert_eq!(table.len(), added.len());
}

#[test]
fn an_interrupted_growth_step_is_finished() {
    let shape = Shape {
        buckets: 2,
        buckets_max: 4,
        pool: 8,
        primary_fill: 13,
    };
    let memory = TableMemory::new(shape, Pages::Normal);
    let (mut table, _) = SignatureTable::recover(shape, KEYED, memory).unwrap();
    for n in 0..28 {
        let _ = table.add(&session4(n));
    }
    let len = table.len();
    let memory = table.into_memory();
    // Killed after the count was raised, before a session moved; and with one session moved but not
    // yet erased.
    memory.header[0].store(3, Relaxed);
    let copied = memory
        .records
        .iter()
        .position(|r| r[1].load(Relaxed) != 0)
        .unwrap();
    for (to, from) in memory.records[47].iter().zip(&memory.records[copied]) {
        to.store(from.load(Relaxed), Relaxed);
    }
    let (table, repairs) = SignatureTable::recover(shape, KEYED, memory).unwrap();
    assert_eq!(table.len(), len, "{repairs:?}");
    assert!(repairs.duplicates_removed == 1, "{repairs:?}");
    assert!(
        (0..28)
            .filter(|&n| table.find(&session4(n)).is_some())
            .count()
            == len
    );
}

#[test]
fn memory_of_another_shape_is_refused() {
    let shape = Shape::for_sessions(100);
    let mut memory = TableMemory::<Session4>::new(shape, Pages::Normal);
    memory.header = Memory::heap(2);
    assert!(SignatureTable::recover(shape, KEYED, memory).is_none());
}
