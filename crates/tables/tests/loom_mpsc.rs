//! Loom models of the MPSC ring. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --release --test loom_mpsc`.
#![cfg(loom)]

use tables::ring::mpsc;

/// Invariant: two producers and a consumer lose nothing, double nothing, and keep each producer's order,
/// across a wrap of the ring.
#[test]
fn values_arrive_once() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let (tx, mut rx) = mpsc::<Box<u32>>(2);
        let other = tx.clone();
        let producer = loom::thread::spawn(move || {
            let first = other.push(Box::new(1)).is_ok();
            let second = other.push(Box::new(2)).is_ok();
            (first, second)
        });
        let ours = tx.push(Box::new(10)).is_ok();
        let mut got = Vec::new();
        got.extend(rx.pop().map(|v| *v));
        got.extend(rx.pop().map(|v| *v));
        let theirs = producer.join().unwrap();
        got.extend(rx.pop_batch(4).map(|v| *v));
        let mut expected: Vec<u32> = Vec::new();
        expected.extend(theirs.0.then_some(1));
        expected.extend(theirs.1.then_some(2));
        let own: Vec<u32> = got.iter().copied().filter(|&v| v < 10).collect();
        assert_eq!(own, expected);
        assert_eq!(got.contains(&10), ours);
        assert_eq!(got.len(), expected.len() + usize::from(ours));
    });
}
