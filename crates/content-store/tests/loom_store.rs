//! Loom models of the store: one small model an invariant, and the variant without grace periods, which fails.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-content-store --test loom_store --release`.
#![cfg(loom)]

use content_store::{
    Config, ContentStore, Inserted, NameHash, NewData, Pages, Policy, Query, Refusal, Worker,
};
use loom::thread;
use wire::Instant;
use wire::ndn::NameRef;

const NOW: Instant = Instant::from_ns(1);

fn store(packets: usize, workers: usize) -> ContentStore {
    let mut config = Config::for_packets(packets, workers, NameHash::Fast([1, 2]));
    config.bytes = 2 << 10;
    config.prefixes = 1;
    config.policy = Policy::Fifo;
    config.pages = Pages::Normal;
    config.ticket_run = 1;
    ContentStore::new(&config).expect("valid")
}

/// Searches all schedules with so many preemptions: two, but for the largest model.
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
    try_insert(worker, last, fill).expect("room")
}

/// Inserts /a/X; none if no packet could be evicted for it.
fn try_insert(worker: &mut Worker, last: u8, fill: u8) -> Option<Inserted> {
    let packet = packet(last, fill);
    let data = NewData::new(&packet, view(&packet[2..8]), 0);
    match worker.insert(&data, NOW) {
        Err(Refusal::NoVictim) => None,
        other => Some(other.expect("room")),
    }
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

/// Runs `body` with a worker in a thread of its own. The worker joins before and leaves after: that is not what is
/// modelled here, and would only add schedules.
fn alongside<T: 'static>(
    store: &ContentStore,
    body: impl FnOnce(&mut Worker) -> T + 'static,
) -> thread::JoinHandle<(Worker, T)> {
    let mut worker = store.join().expect("a place");
    thread::spawn(move || {
        let result = body(&mut worker);
        (worker, result)
    })
}

/// Of two inserts of one name one is new, the other replaces it; one packet remains.
#[test]
fn one_name_is_inserted_twice() {
    model(2, || {
        let store = store(4, 2);
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b'a', 9);
        let other = alongside(&store, |worker| insert(worker, b'x', 1));
        let ours = insert(&mut worker, b'x', 2);
        let (other, theirs) = other.join().expect("no panic");
        drop(other);
        let found = get(&worker, b'x').expect("stored");
        match (ours, theirs) {
            (Inserted::New, Inserted::Replaced) => assert_eq!(found, 1),
            (Inserted::Replaced, Inserted::New) => assert_eq!(found, 2),
            both => panic!("{both:?}"),
        }
        assert_eq!(worker.erase(view(&[]), 9), 2);
        assert_eq!(store.stats().prefixes, 0);
    });
}

/// Two inserts below one new prefix: no insertion is lost, no node is made twice, both are found below.
#[test]
fn two_names_share_a_new_prefix() {
    model(1, || {
        let store = store(4, 2);
        let other = alongside(&store, |worker| insert(worker, b'x', 1));
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b'y', 2);
        assert_eq!(get(&worker, b'y'), Some(2));
        drop(other.join().expect("no panic"));
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
        let reader = alongside(&store, |reader| {
            let found = get(reader, b'x');
            assert!(found.is_none_or(|fill| fill == 1), "another packet's bytes");
        });
        // Evicts x, and would like its memory.
        insert(&mut worker, b'y', 2);
        insert(&mut worker, b'z', 3);
        assert_eq!(get(&worker, b'z'), Some(3));
        drop(reader.join().expect("no panic"));
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
        let other = alongside(&store, |worker| try_insert(worker, b'x', 2));
        // Of two that look for the one packet that can go, one may find none.
        let ours = try_insert(&mut worker, b'y', 3);
        let (other, theirs) = other.join().expect("no panic");
        drop(other);
        assert!(ours.is_some() || theirs.is_some());
        assert!(get(&worker, b'x').is_none_or(|fill| fill == 2 || theirs.is_none()));
        worker.erase(view(&[]), 9);
        drop(worker);
        assert_eq!((store.stats().packets, store.stats().prefixes), (0, 0));
    });
}

/// A packet that stays is found by its prefix while `change` is made.
fn prefix_lookup_against(change: fn(&ContentStore, &mut Worker)) {
    model(2, move || {
        let store = store(4, 2);
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b'b', 2);
        insert(&mut worker, b's', 1);
        let reader = alongside(&store, |reader| {
            let hit = reader.lookup(&Query::prefix(view(&[8, 1, b'a'])), NOW);
            let fill = whole(hit.expect("one stays").packet());
            assert!((1..=3).contains(&fill));
        });
        change(&store, &mut worker);
        drop(reader.join().expect("no panic"));
    });
}

/// A sibling before it comes.
#[test]
fn a_prefix_lookup_meets_an_insertion() {
    prefix_lookup_against(|_, worker| {
        insert(worker, b'a', 3);
    });
}

/// A sibling before it goes.
#[test]
fn a_prefix_lookup_meets_a_removal() {
    prefix_lookup_against(|_, worker| {
        assert_eq!(worker.erase(view(&[8, 1, b'a', 8, 1, b'b']), 1), 1);
    });
}

/// A sibling before it is evicted, as the capacity shrinks.
#[test]
fn a_prefix_lookup_meets_an_eviction() {
    prefix_lookup_against(|store, worker| {
        store.set_capacity(1, usize::MAX);
        assert_eq!(worker.trim(1, NOW), 1);
    });
}

/// The capacity shrinks while a packet is inserted: it holds afterwards.
#[test]
fn the_size_changes_under_an_insertion() {
    model(2, || {
        let store = store(2, 2);
        let mut worker = store.join().expect("a place");
        insert(&mut worker, b'x', 1);
        let other = alongside(&store, |worker| insert(worker, b'y', 2));
        store.set_capacity(1, usize::MAX);
        worker.trim(4, NOW);
        drop(other.join().expect("no panic"));
        worker.trim(4, NOW);
        let held =
            usize::from(get(&worker, b'x').is_some()) + usize::from(get(&worker, b'y').is_some());
        assert_eq!(held, 1);
    });
}
