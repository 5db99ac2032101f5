//! Loom models of the port allocator: a port has one user at a time, and the next user sees what the last one
//! did. Run with `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --release --test loom_ports`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use tables::port_allocator::{PortAllocator, PortLease, PortWorker};

/// One address with ports 64 and 65.
fn pool(swaps: bool) -> PortAllocator {
    let pool = PortAllocator::new(1, 64, 65);
    if swaps { pool } else { pool.without_swaps() }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// Invariant: two workers never get one port, and get all ports between them.
fn two_workers(swaps: bool) {
    model(move || {
        let pool = Arc::new(pool(swaps));
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.allocate(&mut PortWorker::new(1)))
        };
        let mut worker = PortWorker::new(0);
        let ours = pool.allocate(&mut worker).expect("two ports for two");
        let theirs = other.join().unwrap().expect("two ports for two");
        assert_ne!(ours, theirs, "one port given twice");
        assert_eq!(pool.allocate(&mut worker), None);
        assert!(pool.release(ours) && !pool.release(ours));
        assert_eq!(pool.allocate(&mut worker), Some(ours));
    });
}

#[test]
fn two_workers_never_get_one_port() {
    two_workers(true);
}

#[test]
#[should_panic(expected = "one port given twice")]
fn with_a_load_and_a_store_two_workers_get_one_port() {
    two_workers(false);
}

/// Invariant: what the user of a port did comes before what the next user does, and a preserved port
/// (`allocate_exact`) has one user as well.
#[test]
fn the_next_user_sees_what_the_last_one_did() {
    const PORT: PortLease = PortLease {
        address: 0,
        port: 64,
    };
    model(|| {
        let pool = Arc::new(pool(true));
        // Loom fails if two threads touch this without an order between them.
        let state = Arc::new(UnsafeCell::new(0_u32));
        let use_port = |pool: &PortAllocator, state: &UnsafeCell<u32>| {
            let taken = pool.allocate_exact(PORT);
            if taken {
                state.with_mut(|_| ());
                assert!(pool.release(PORT));
            }
            taken
        };
        let other = {
            let (pool, state) = (Arc::clone(&pool), Arc::clone(&state));
            thread::spawn(move || use_port(&pool, &state))
        };
        let ours = use_port(&pool, &state);
        let theirs = other.join().unwrap();
        assert!(ours || theirs, "a free port was refused to both");
        assert_eq!(pool.in_use(), 0);
    });
}
