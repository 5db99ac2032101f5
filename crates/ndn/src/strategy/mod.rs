//! Forwarding strategies: which next hops an Interest is sent to, by NFD's names and parameters.

mod asf;
mod best_route;
mod choice;
mod measurements;
mod multicast;
mod nack;
mod name;
mod random;
mod self_learning;
mod suppression;

use alloc::vec::Vec;
use core::time::Duration;

use wire::Instant;
use wire::ndn::NameRef;
use wire::ndn::lp::NackReason;

use crate::face::{Face, FaceId, Faces, LinkType};
use crate::fib::NextHop;
use crate::pit::{OutRecord, Pit, PitId};
use crate::rng::Rng;

pub use asf::Asf;
pub use best_route::BestRoute;
pub use choice::{ChoiceError, StrategyChoice};
pub use measurements::{FaceRtt, Measurements};
pub use multicast::Multicast;
pub use name::{StrategyNameError, parse as parse_name};
pub use random::Random;
pub use self_learning::SelfLearning;
pub use suppression::{Suppression, Verdict};

/// What a strategy wants done; the forwarder does it when the strategy returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the Interest.
    Send {
        /// To this face.
        face: FaceId,
        /// With a nonce of its own: a probe.
        is_probe: bool,
        /// Marked as not for discovery.
        non_discovery: bool,
    },
    /// Refuse the Interest of one downstream.
    Nack(FaceId, NackReason),
    /// Refuse the Interest of all downstreams.
    NackAll(NackReason),
    /// Give the Interest up.
    Reject,
    /// Keep the entry for so long after Data came.
    Linger(Duration),
    /// The prefix announcement beside the Data is a route over this face.
    Learn(FaceId),
    /// The route over this face leads nowhere.
    Unlearn(FaceId),
}

/// How far a name may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameScope {
    /// Everywhere.
    Global,
    /// Within this machine: `/localhost`.
    Localhost,
    /// To the next hop: `/localhop`.
    Localhop,
}

impl NameScope {
    /// Returns the scope of a name.
    pub fn of(name: NameRef<'_>) -> Self {
        const LOCALHOST: &[u8] = b"\x08\x09localhost";
        const LOCALHOP: &[u8] = b"\x08\x08localhop";
        if name.value().starts_with(LOCALHOST) {
            Self::Localhost
        } else if name.value().starts_with(LOCALHOP) {
            Self::Localhop
        } else {
            Self::Global
        }
    }

    /// True if an Interest that came from `ingress` may not leave by `egress`.
    pub fn forbids(self, ingress: &Face, egress: &Face) -> bool {
        match self {
            Self::Global => false,
            _ if egress.is_local() => false,
            Self::Localhost => true,
            Self::Localhop => !ingress.is_local(),
        }
    }
}

/// What a strategy sees and may change.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Instant,
    /// All faces.
    pub faces: &'a Faces,
    /// The table that the entry is in.
    pub pit: &'a mut Pit,
    /// The pending Interest.
    pub entry: PitId,
    /// How far its name may travel.
    pub scope: NameScope,
    /// Next hops of the longest matching prefix, cheapest first; empty when Data comes.
    pub next_hops: &'a [NextHop],
    /// The Interest said that it is not for discovery.
    pub non_discovery: bool,
    /// Round-trip times by prefix and face.
    pub measurements: &'a mut Measurements,
    /// Random numbers.
    pub rng: &'a mut Rng,
    /// What is to be done.
    pub actions: &'a mut Vec<Action>,
}

impl Context<'_> {
    /// Sends the Interest to a face.
    pub fn send(&mut self, face: FaceId) {
        self.actions.push(Action::Send {
            face,
            is_probe: false,
            non_discovery: self.non_discovery,
        });
    }

    /// Refuses the Interest of the face that it came from, and gives it up.
    pub fn no_route(&mut self, ingress: FaceId) {
        self.actions
            .push(Action::Nack(ingress, NackReason::NoRoute));
        self.actions.push(Action::Reject);
    }

    /// True if the Interest from `ingress` may leave by the next hop; with `unused`, only if it is not
    /// waited for there already.
    pub fn is_eligible(&self, ingress: FaceId, hop: &NextHop, unused: bool) -> bool {
        let (Some(from), Some(to)) = (self.faces.get(ingress), self.faces.get(hop.face)) else {
            return false;
        };
        let goes_back = hop.face == ingress && to.config.link_type != LinkType::AdHoc;
        if goes_back || self.scope.forbids(from, to) {
            return false;
        }
        let record = self.pit.out_record(self.entry, hop.face);
        !(unused && record.is_some_and(|record| record.expiry > self.now))
    }

    /// Returns the cheapest eligible next hop.
    pub fn first_eligible(&self, ingress: FaceId, unused: bool) -> Option<FaceId> {
        let mut hops = self.next_hops.iter();
        hops.find(|hop| self.is_eligible(ingress, hop, unused))
            .map(|hop| hop.face)
    }

    /// Returns the eligible next hop to which the Interest was sent longest ago.
    pub fn earliest_used(&self, ingress: FaceId) -> Option<FaceId> {
        self.next_hops
            .iter()
            .filter(|hop| self.is_eligible(ingress, hop, false))
            .filter_map(|hop| self.pit.out_record(self.entry, hop.face))
            .min_by_key(|record| record.last_renewed)
            .map(|record| record.face)
    }

    /// True if an answer may come from some upstream.
    pub fn has_pending_out(&self) -> bool {
        self.pit
            .out_records(self.entry)
            .any(|record| record.is_pending(self.now))
    }

    /// Returns when the Interest was last sent.
    pub fn last_outgoing(&self) -> Option<Instant> {
        self.pit
            .out_records(self.entry)
            .map(|record| record.last_renewed)
            .max()
    }

    fn out_record(&self, face: FaceId) -> Option<&OutRecord> {
        self.pit.out_record(self.entry, face)
    }
}

/// A forwarding strategy.
pub trait Strategy {
    /// An Interest came from `ingress` and the content store does not have its Data.
    fn interest(&mut self, cx: &mut Context<'_>, ingress: FaceId);

    /// Data came from `ingress`, before the downstreams get it.
    fn data(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        let _ = (cx, ingress);
    }

    /// `ingress` refused the Interest.
    fn nack(&mut self, cx: &mut Context<'_>, ingress: FaceId, reason: NackReason);

    /// A next hop was added for the Interest.
    fn new_next_hop(&mut self, cx: &mut Context<'_>, hop: &NextHop) {
        let _ = (cx, hop);
    }
}

/// One of the strategies, with its parameters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyStrategy {
    /// The cheapest next hop.
    BestRoute(BestRoute),
    /// All next hops.
    Multicast(Multicast),
    /// The next hop with the shortest round-trip time, others probed.
    Asf(Asf),
    /// A random next hop.
    Random(Random),
    /// Flood, and learn routes from what comes back.
    SelfLearning(SelfLearning),
}

macro_rules! each {
    ($self:ident, $strategy:ident => $call:expr) => {
        match $self {
            Self::BestRoute($strategy) => $call,
            Self::Multicast($strategy) => $call,
            Self::Asf($strategy) => $call,
            Self::Random($strategy) => $call,
            Self::SelfLearning($strategy) => $call,
        }
    };
}

impl Strategy for AnyStrategy {
    fn interest(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        each!(self, strategy => strategy.interest(cx, ingress));
    }
    fn data(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        each!(self, strategy => strategy.data(cx, ingress));
    }
    fn nack(&mut self, cx: &mut Context<'_>, ingress: FaceId, reason: NackReason) {
        each!(self, strategy => strategy.nack(cx, ingress, reason));
    }
    fn new_next_hop(&mut self, cx: &mut Context<'_>, hop: &NextHop) {
        each!(self, strategy => strategy.new_next_hop(cx, hop));
    }
}
