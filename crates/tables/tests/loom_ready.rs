//! Loom models of the set of ready bits and of the ring of bytes: nothing said is lost, a byte is read as it was
//! written, and a place is taken once. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --test loom_ready --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use tables::memory::Memory;
use tables::ready::ReadySet;
use tables::ring::ByteRing;

fn set(bits: usize) -> ReadySet {
    ReadySet::new(Memory::heap(ReadySet::words(bits)))
}

#[test]
fn who_takes_a_bit_sees_what_was_published() {
    loom::model(|| {
        let shared = Arc::new((set(64), AtomicU64::new(0), AtomicU64::new(0)));
        let writers: Vec<_> = (0..2)
            .map(|writer: u64| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let data = if writer == 0 { &shared.1 } else { &shared.2 };
                    data.store(1, Ordering::Relaxed);
                    shared.0.set(writer as usize);
                })
            })
            .collect();
        let mut seen = [false; 2];
        let check = |seen: &mut [bool; 2]| {
            shared.0.take(|number| {
                let data = if number == 0 { &shared.1 } else { &shared.2 };
                assert_eq!(data.load(Ordering::Relaxed), 1);
                seen[number] = true;
            });
        };
        check(&mut seen);
        for writer in writers {
            writer.join().unwrap();
        }
        check(&mut seen);
        assert_eq!(seen, [true; 2], "nothing is lost");
    });
}

#[test]
fn a_place_is_taken_once() {
    loom::model(|| {
        let places = Arc::new(set(64));
        places.set(3);
        let other = {
            let places = Arc::clone(&places);
            thread::spawn(move || places.take_one(0))
        };
        let ours = places.take_one(0);
        let theirs = other.join().unwrap();
        assert!(ours.is_some() != theirs.is_some());
    });
}

#[test]
fn bytes_cross_as_they_were_written() {
    loom::model(|| {
        let memory = Arc::new(Memory::<AtomicU64>::heap(3));
        let theirs = Arc::clone(&memory);
        let writer = thread::spawn(move || {
            let ring = ByteRing::new(&theirs[0], &theirs[1], &theirs[2..]);
            let mut sent = 0;
            for _ in 0..2 {
                sent += ring.push(&[7; 6]);
            }
            sent
        });
        let ring = ByteRing::new(&memory[0], &memory[1], &memory[2..]);
        let mut out = [0; 12];
        let mut got = ring.pop(&mut out);
        let sent = writer.join().unwrap();
        got += ring.pop(&mut out[got..]);
        assert_eq!(got, sent);
        assert!(out[..got].iter().all(|&byte| byte == 7));
    });
}
