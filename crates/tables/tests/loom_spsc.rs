//! Loom models of the SPSC ring. Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --test loom_spsc --release`.
#![cfg(loom)]

use tables::ring::spsc;

/// Invariant: values arrive in order, none twice, none lost, across a wrap of the ring.
#[test]
fn values_arrive_in_order() {
    loom::model(|| {
        let (mut tx, mut rx) = spsc::<Box<u32>>(2);
        let producer = loom::thread::spawn(move || {
            let mut pushed = 0;
            for value in 0..3 {
                if tx.push(Box::new(value)).is_err() {
                    break;
                }
                pushed += 1;
            }
            pushed
        });
        let mut got = Vec::new();
        for _ in 0..2 {
            got.extend(rx.pop().map(|value| *value));
        }
        let pushed = producer.join().unwrap();
        got.extend(rx.pop_batch(4).map(|value| *value));
        assert_eq!(got, (0..pushed).collect::<Vec<u32>>());
    });
}

/// Invariant: a batch becomes visible as a whole prefix and is handed back as a whole.
#[test]
fn batches_arrive_in_order() {
    loom::model(|| {
        let (mut tx, mut rx) = spsc::<u32>(2);
        let producer = loom::thread::spawn(move || {
            let mut items = 0..3;
            tx.push_batch(&mut items);
            tx.push_batch(&mut items);
            items.start
        });
        let mut got: Vec<u32> = rx.pop_batch(1).collect();
        got.extend(rx.pop_batch(2));
        let pushed = producer.join().unwrap();
        got.extend(rx.pop_batch(2));
        assert_eq!(got, (0..pushed).collect::<Vec<u32>>());
    });
}
