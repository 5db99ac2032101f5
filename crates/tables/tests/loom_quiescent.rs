//! Loom models of reclamation by quiescent states. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p tidegate-tables --test loom_quiescent --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tables::quiescent::Domain;

/// A writer unlinks object 0 (the shared index goes to 1), waits for the grace period, and poisons it. A
/// reader that comes online, loads the index and reads the object never sees the poison.
fn reader_against_writer(
    report: impl Fn(&tables::quiescent::Participant) + Copy + Send + Sync + 'static,
) {
    loom::model(move || {
        let domain = Domain::new(1);
        let reader = domain.join().unwrap();
        reader.offline();
        let index = Arc::new(AtomicUsize::new(0));
        let poisoned = Arc::new(AtomicUsize::new(0));
        let thread = {
            let (index, poisoned) = (index.clone(), poisoned.clone());
            thread::spawn(move || {
                reader.online();
                for _ in 0..2 {
                    let held = index.load(Ordering::Acquire);
                    // Relaxed: the grace period must order this before the poisoning.
                    let poison = poisoned.load(Ordering::Relaxed);
                    assert!(held == 1 || poison == 0, "reclaimed under a reader");
                    report(&reader);
                }
                reader.offline();
                drop(reader);
            })
        };
        index.store(1, Ordering::Release);
        let epoch = domain.begin();
        if domain.has_passed(epoch) {
            poisoned.store(1, Ordering::Relaxed);
        }
        thread.join().unwrap();
    });
}

#[test]
fn nothing_is_reclaimed_under_a_reader() {
    reader_against_writer(|reader| reader.quiescent());
    reader_against_writer(|_| {});
}

/// The model can fail: a reader that goes offline without letting go is caught.
#[test]
#[should_panic(expected = "reclaimed under a reader")]
fn a_reader_that_reports_too_early_is_caught() {
    loom::model(|| {
        let domain = Domain::new(1);
        let reader = domain.join().unwrap();
        let index = Arc::new(AtomicUsize::new(0));
        let poisoned = Arc::new(AtomicUsize::new(0));
        let thread = {
            let (index, poisoned) = (index.clone(), poisoned.clone());
            thread::spawn(move || {
                let held = index.load(Ordering::Acquire);
                reader.quiescent();
                reader.offline();
                let poison = poisoned.load(Ordering::Relaxed);
                assert!(held == 1 || poison == 0, "reclaimed under a reader");
                drop(reader);
            })
        };
        index.store(1, Ordering::Release);
        let epoch = domain.begin();
        if domain.has_passed(epoch) {
            poisoned.store(1, Ordering::Relaxed);
        }
        thread.join().unwrap();
    });
}
