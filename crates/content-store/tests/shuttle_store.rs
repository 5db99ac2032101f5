//! Random schedules of the whole store, larger than loom can search. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p tidegate-content-store --release --test shuttle_store`.
#![cfg(shuttle)]

use content_store::{Config, ContentStore, NameHash, NewData, Pages, Policy, Query, Worker};
use shuttle::{check_pct, check_random, thread};
use wire::Instant;
use wire::ndn::NameRef;

const NOW: Instant = Instant::from_ns(1);
const SCHEDULES: usize = 300;

fn packet(middle: u8, last: u8, fill: u8) -> [u8; 20] {
    let mut packet = [fill; 20];
    packet[..11].copy_from_slice(&[6, 18, 8, 1, b'a', 8, 1, middle, 8, 1, last]);
    packet
}

fn view(name: &[u8]) -> NameRef<'_> {
    NameRef::new(name).expect("a name")
}

fn insert(worker: &mut Worker, middle: u8, last: u8, fill: u8) {
    let packet = packet(middle, last, fill);
    let data = NewData::new(&packet, view(&packet[2..11]), u64::from(fill % 2));
    worker.insert(&data, NOW).expect("room");
}

fn whole(bytes: &[u8]) {
    assert!(
        bytes[11..].iter().all(|byte| *byte == bytes[11]),
        "a torn packet"
    );
}

/// Three workers insert, look up and erase around a packet that stays; the policy changes meanwhile.
fn body(policy: Policy) {
    let mut config = Config::for_packets(40, 4, NameHash::Fast([1, 2]));
    config.bytes = 16 << 10;
    config.prefixes = 40;
    config.policy = policy;
    config.pages = Pages::Normal;
    config.ticket_run = 2;
    let store = ContentStore::new(&config).expect("valid");
    let mut worker = store.join().expect("a place");
    insert(&mut worker, 1, 9, 99);
    let threads: Vec<_> = (0..3_u8)
        .map(|thread| {
            let store = store.clone();
            thread::spawn(move || {
                let mut worker = store.join().expect("a place");
                for at in 0..5_u8 {
                    insert(&mut worker, at % 2, at, 16 * thread + at + 1);
                    for must_be_fresh in [false, true] {
                        let name = [8, 1, b'a', 8, 1, 1];
                        let query = Query {
                            must_be_fresh,
                            ..Query::prefix(view(&name))
                        };
                        let hit = worker.lookup(&query, NOW).expect("one stays");
                        whole(hit.packet());
                    }
                    if at == thread {
                        worker.erase(view(&[8, 1, b'a', 8, 1, 0]), 2);
                        store.set_policy(Policy::ALL[usize::from(at) % 5]);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    worker.erase(view(&[]), 99);
    drop(worker);
    let stats = store.stats();
    assert_eq!(
        (stats.packets, stats.prefixes, stats.chunks),
        (0, 0, 0),
        "{stats:?}"
    );
}

#[test]
fn random_schedules() {
    for policy in Policy::ALL {
        check_random(move || body(policy), SCHEDULES);
    }
}

#[test]
fn schedules_with_few_preemptions() {
    for policy in Policy::ALL {
        check_pct(move || body(policy), SCHEDULES, 3);
    }
}
