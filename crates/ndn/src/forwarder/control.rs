//! Changes from management: faces, routes, strategies.

use alloc::vec::Vec;

use wire::Instant;
use wire::ndn::lp::LpHeader;
use wire::ndn::name::Name;
use wire::ndn::{Interest, NameRef};

use super::interest::Arrival;
use super::{Forwarder, Sink};
use crate::face::{Face, FaceConfig, FaceId};
use crate::fib::{FibError, NextHop};
use crate::pit::PitId;
use crate::store::ContentStore;
use crate::strategy::{ChoiceError, Context, NameScope, Strategy};

impl<C: ContentStore> Forwarder<C> {
    /// Adds a face; `None` if all places are taken.
    pub fn add_face(&mut self, config: FaceConfig, now: Instant) -> Option<FaceId> {
        self.faces.add(config, now)
    }

    /// Adds a face under the number that another worker's table gave it; false if its place is taken.
    pub fn insert_face(&mut self, id: FaceId, config: FaceConfig, now: Instant) -> bool {
        self.faces.insert(id, config, now)
    }

    /// Returns a face to change it.
    pub fn face_mut(&mut self, id: FaceId) -> Option<&mut Face> {
        self.faces.get_mut(id)
    }

    /// Removes a face from the face table, the FIB, the PIT and the measurements; O(prefixes + entries).
    pub fn remove_face(&mut self, id: FaceId) -> Option<Face> {
        let face = self.faces.remove(id)?;
        self.fib.remove_face(id);
        self.measurements.remove_face(id);
        let pending: Vec<PitId> = self.pit.ids().collect();
        for entry in pending {
            self.pit.take_in(entry, id);
            self.pit.take_out(entry, id);
        }
        Some(face)
    }

    /// Adds a next hop to a prefix, and offers it to the strategies of pending Interests under it;
    /// O(entries) if the next hop is new.
    ///
    /// # Errors
    /// [`FibError`].
    pub fn add_next_hop(
        &mut self,
        prefix: NameRef<'_>,
        hop: NextHop,
        now: Instant,
        sink: &mut impl Sink,
    ) -> Result<bool, FibError> {
        let is_new = self.fib.add(prefix, hop.face, hop.cost)?;
        if is_new {
            let pending: Vec<PitId> = self
                .pit
                .ids()
                .filter(|&id| {
                    let entry = self.pit.get(id);
                    entry.is_some_and(|entry| prefix.is_prefix_of(&entry.name()))
                })
                .collect();
            for id in pending {
                self.offer(id, hop, now, sink);
            }
        }
        Ok(is_new)
    }

    /// Removes a next hop of a prefix; true if it was there.
    pub fn remove_next_hop(&mut self, prefix: NameRef<'_>, face: FaceId) -> bool {
        self.fib.remove(prefix, face)
    }

    /// Chooses a strategy for a prefix; returns its name with the version.
    ///
    /// # Errors
    /// [`ChoiceError`].
    pub fn set_strategy(
        &mut self,
        prefix: NameRef<'_>,
        strategy: NameRef<'_>,
    ) -> Result<Name, ChoiceError> {
        self.choice.set(prefix, strategy)
    }

    /// Removes the choice of a prefix; true if there was one.
    ///
    /// # Errors
    /// [`ChoiceError::Root`].
    pub fn unset_strategy(&mut self, prefix: NameRef<'_>) -> Result<bool, ChoiceError> {
        self.choice.unset(prefix)
    }

    /// Offers a new next hop to the strategy of a pending Interest.
    fn offer(&mut self, id: PitId, hop: NextHop, now: Instant, sink: &mut impl Sink) {
        let Some(entry) = self.pit.get(id) else {
            return;
        };
        let (packet, whole) = (entry.packet().to_vec(), entry.hash());
        let Some(record) = self.pit.in_records(id).next().copied() else {
            return;
        };
        let Ok(interest) = Interest::parse(&packet) else {
            return;
        };
        let (stem, _) = interest.name.split_implicit_digest();
        let hashes = self.partition.hasher().prefixes(stem, self.choice.depths());
        let strategy = self
            .choice
            .lookup(stem.value(), &hashes, interest.name.len());
        let mut actions = core::mem::take(&mut self.scratch.actions);
        actions.clear();
        let mut cx = Context {
            now,
            faces: &self.faces,
            pit: &mut self.pit,
            entry: id,
            scope: NameScope::of(stem),
            next_hops: &[hop],
            non_discovery: record.non_discovery,
            measurements: &mut self.measurements,
            rng: &mut self.rng,
            actions: &mut actions,
        };
        strategy.new_next_hop(&mut cx, &hop);
        if !actions.is_empty() {
            let arrival = Arrival {
                now,
                ingress: record.face,
                header: LpHeader::default(),
                interest,
                whole,
                nonce: record.nonce,
                hop_limit: interest.hop_limit.map(|limit| limit.saturating_sub(1)),
                scope: NameScope::of(stem),
                strip_hint: false,
            };
            // What cannot be sent is not missed: the Interest waits for its other upstreams.
            let _ = self.act_on_interest(&arrival, id, &actions, sink);
        }
        self.scratch.actions = actions;
    }
}
