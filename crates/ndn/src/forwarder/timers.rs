//! Time: when pending Interests end.

use wire::Instant;

use super::data::needs_dead_nonce;
use super::{Forwarder, Sink};
use crate::hash::with_nonce;
use crate::pit::PitId;
use crate::store::ContentStore;

impl<C: ContentStore> Forwarder<C> {
    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_timeout_ns().map(Instant::from_ns)
    }

    /// Ends pending Interests whose time has come. A caller with a burst to handle does that first.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl Sink) {
        let _ = sink;
        while let Some(token) = self.wheel.pop(now.as_ns()) {
            let id = PitId(token as u32);
            if let Some(entry) = self.pit.get_mut(id) {
                entry.timer = None;
            }
            self.finalize(id, now);
        }
        self.measurements.sweep(now);
        self.store.quiescent();
    }

    /// Sets when an entry ends; false if no timer is left, which the PIT's size rules out.
    pub(super) fn set_timer(&mut self, id: PitId, when: Instant) -> bool {
        let Some(entry) = self.pit.get_mut(id) else {
            return false;
        };
        if let Some(timer) = entry.timer.take() {
            self.wheel.cancel(timer);
        }
        entry.timer = self.wheel.schedule(when.as_ns(), u64::from(id.0));
        entry.timer.is_some()
    }

    /// The Interest finalize pipeline: nonces go to the dead nonce list, the entry goes away.
    pub(super) fn finalize(&mut self, id: PitId, now: Instant) {
        let Some(entry) = self.pit.get_mut(id) else {
            return;
        };
        if let Some(timer) = entry.timer.take() {
            self.wheel.cancel(timer);
        }
        let (is_satisfied, must_be_fresh) = (entry.is_satisfied, entry.must_be_fresh());
        if !is_satisfied {
            self.counters.unsatisfied += 1;
        }
        let freshness_ms = entry.freshness_ms;
        if !is_satisfied || needs_dead_nonce(must_be_fresh, freshness_ms) {
            let whole = entry.hash();
            for record in self.pit.out_records(id) {
                self.dead.add(with_nonce(whole, record.nonce), now);
            }
        }
        self.pit.remove(id, self.partition.pending());
    }
}
