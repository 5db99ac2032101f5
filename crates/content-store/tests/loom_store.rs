//! Loom models of the store: one small model an invariant, and the variant without grace periods, which fails.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-content-store --test loom_store --release`.
#![cfg(loom)]

use content_store::{
    Config, ContentStore, Inserted, NameHash, NewData, Pages, Policy, Query, Worker,
};
use loom::thread;
use wire::Instant;
use wire::ndn::NameRef;

const NOW: Instant = Instant::from_ns(1);

fn store(packets: usize, workers: usize) -> ContentStore {
    let mut config = Config::for_packets(packets, workers, NameHash::Fast([1, 2]));
    config.bytes = 4 << 10;
    config.prefixes = 2;
    config.policy = Policy::Fifo;
    config.pages = Pages::Normal;
    config.ticket_run = 1;
    ContentStore::new(&config).expect("valid")
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// /a/X with eight bytes of content, all `fill`.
fn packet(last: u8, fill: u8) -> [u8; 16] {
    let mut packet = [fill; 16];
    packet[..8].copy_from_slice(&[6, 14, 8, 1, b'a', 8, 1, last]);
    packet
}

fn view(name: &[u8]) -> NameRef<'_> {
    NameRef::new(name).expect("a name")
}

fn insert(worker: &mut Worker, last: u8, fill: u8) -> Inserted {
    let packet = packet(last, fill);
    let data = NewData::new(&packet, view(&packet[2..8]), 0);
    worker.insert(&data, NOW).expect("room")
}

/// Finds /a/X and checks that all its bytes are of one packet.
fn get(worker: &Worker, last: u8) -> Option<u8> {
    let hit = worker.lookup(&Query::exact(view(&[8, 1, b'a', 8, 1, last])), NOW)?;
    Some(whole(hit.packet()))
}

fn whole(bytes: &[u8]) -> u8 {
    let fill = bytes[8];
    assert!(bytes[8..].iter().all(|byte| *byte == fill), "a torn packet");
    fill
}

/// Of two inserts of one name one is new, the other replaces it; one packet and one node a prefix remain.
#[test]
fn one_name_is_inserted_twice() {
    model(2, || {
        let store = store(4, 2);
        let other = {
            let store = store.clone();
            thread::spawn(move || insert(&mut store.join().expect("a place"), b'x', 1))
        };
        let mut worker = store.join().expect("a place");
        let ours = insert(&mut worker, b'x', 2);
        let theirs = other.join().expect("no panic");
        let found = get(&worker, b'x').expect("stored");
        match (ours, theirs) {
            (Inserted::New, Inserted::Replaced) => assert_eq!(found, 1),
            (Inserted::Replaced, Inserted::New) => assert_eq!(found, 2),
            both => panic!("{both:?}"),
        }
        assert_eq!(store.stats().prefixes, 2);
        assert_eq!(worker.erase(view(&[]), 9), 1);
        assert_eq!(store.stats().prefixes, 0);
    });
}

/// Two inserts below one new prefix: no insertion is lost, no node is made twice, both are found below.
#[test]
fn two_names_share_a_new_prefix() {
    model(2, || {
        let store = store(4, 2);
        let other = {
            let store = store.clone();
            thread::spawn(move || insert(&mut store.join().expect("a place"), b'x', 1))
        };
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b'y', 2);
        assert_eq!(get(&worker, b'y'), Some(2));
        other.join().expect("no panic");
        assert_eq!((get(&worker, b'x'), get(&worker, b'y')), (Some(1), Some(2)));
        assert_eq!(store.stats().prefixes, 2);
        assert_eq!(worker.erase(view(&[8, 1, b'a']), 9), 2);
        assert_eq!(store.stats().prefixes, 0);
    });
}

fn lookup_against_eviction(break_it: bool) {
    model(2, move || {
        let store = store(1, 2);
        let mut worker = store.join().expect("a place");
        if break_it {
            worker.drop_grace_periods();
        }
        insert(&mut worker, b'x', 1);
        let reader = {
            let store = store.clone();
            thread::spawn(move || {
                let reader = store.join().expect("a place");
                let found = get(&reader, b'x');
                assert!(found.is_none_or(|fill| fill == 1), "another packet's bytes");
            })
        };
        // Evicts x, and would like its memory.
        insert(&mut worker, b'y', 2);
        insert(&mut worker, b'z', 3);
        assert_eq!(get(&worker, b'z'), Some(3));
        reader.join().expect("no panic");
    });
}

/// A reader sees the whole packet or none while it is evicted and memory is reused.
#[test]
fn a_packet_is_evicted_under_a_reader() {
    lookup_against_eviction(false);
}

/// The model can fail: without grace periods the reader sees another packet's bytes.
#[test]
#[should_panic]
fn without_grace_periods_a_reader_is_fooled() {
    lookup_against_eviction(true);
}

/// A packet is evicted by one worker while another inserts it anew: it is there once or not at all.
#[test]
fn an_insertion_meets_an_eviction() {
    model(2, || {
        let store = store(1, 2);
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b'x', 1);
        let other = {
            let store = store.clone();
            thread::spawn(move || insert(&mut store.join().expect("a place"), b'x', 2))
        };
        insert(&mut worker, b'y', 3);
        other.join().expect("no panic");
        assert!(get(&worker, b'x').is_none_or(|fill| fill == 2));
        worker.erase(view(&[]), 9);
        drop(worker);
        assert_eq!((store.stats().packets, store.stats().prefixes), (0, 0));
    });
}

/// A packet that stays is found by its prefix while its sibling comes and goes.
#[test]
fn a_prefix_lookup_meets_an_insertion_and_a_removal() {
    model(2, || {
        let store = store(4, 2);
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b's', 1);
        let reader = {
            let store = store.clone();
            thread::spawn(move || {
                let reader = store.join().expect("a place");
                let hit = reader.lookup(&Query::prefix(view(&[8, 1, b'a'])), NOW);
                let fill = whole(hit.expect("one stays").packet());
                assert!(fill == 1 || fill == 2);
            })
        };
        insert(&mut worker, b'b', 2);
        assert_eq!(worker.erase(view(&[8, 1, b'a', 8, 1, b'b']), 1), 1);
        reader.join().expect("no panic");
    });
}

/// The capacity shrinks while a packet is inserted: it holds afterwards.
#[test]
fn the_size_changes_under_an_insertion() {
    model(2, || {
        let store = store(2, 2);
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b'x', 1);
        let other = {
            let store = store.clone();
            thread::spawn(move || {
                insert(&mut store.join().expect("a place"), b'y', 2);
            })
        };
        store.set_capacity(1, usize::MAX);
        worker.trim(4, NOW);
        other.join().expect("no panic");
        worker.trim(4, NOW);
        let held =
            usize::from(get(&worker, b'x').is_some()) + usize::from(get(&worker, b'y').is_some());
        assert_eq!(held, 1);
    });
}
