//! `/localhost/nfd/strategy/asf/v=5`: adaptive forwarding by smoothed round-trip time, with probes.

use core::time::Duration;

use wire::ndn::lp::NackReason;

use super::{Action, Context, FaceRtt, Strategy, Suppression, Verdict, nack};
use crate::face::FaceId;
use crate::fib::NextHop;

/// Ranks next hops: working ones by round-trip time, then those never used, then those that timed out.
#[derive(Clone, Copy, Debug)]
pub struct Asf {
    /// When an Interest that comes again is not sent to a next hop.
    pub suppression: Suppression,
    /// How often another next hop is tried (`probing-interval`, ms).
    pub probing_interval: Duration,
    /// How many timeouts in a row make a next hop timed out (`max-timeouts`).
    pub max_timeouts: u32,
    /// How long measurements are kept (`measurements-lifetime`, ms).
    pub measurements_lifetime: Duration,
}

impl Default for Asf {
    fn default() -> Self {
        Self {
            suppression: Suppression::default(),
            probing_interval: Duration::from_secs(60),
            max_timeouts: 3,
            measurements_lifetime: Duration::from_secs(300),
        }
    }
}

/// The longest wait for the first probe of a prefix.
const FIRST_PROBE_MS: u64 = 5000;

/// How long an entry stays after Data, so that the answers to probes are measured.
const PROBE_LINGER: Duration = Duration::from_millis(50);

impl Asf {
    fn rtt(&self, cx: &mut Context<'_>, face: FaceId) -> FaceRtt {
        let key = measure_key(cx);
        cx.measurements.rtt(key, face, cx.now, self.max_timeouts)
    }

    /// Returns the best eligible next hop.
    fn best(&self, cx: &mut Context<'_>, ingress: FaceId, unused: bool) -> Option<FaceId> {
        let mut best: Option<((FaceRtt, u64, FaceId), FaceId)> = None;
        for hop in cx.next_hops {
            if !cx.is_eligible(ingress, hop, unused) {
                continue;
            }
            let rank = (self.rtt(cx, hop.face), hop.cost, hop.face);
            if best.is_none_or(|(other, _)| rank < other) {
                best = Some((rank, hop.face));
            }
        }
        best.map(|(_, face)| face)
    }

    fn forward(&self, cx: &mut Context<'_>, face: FaceId, is_probe: bool) {
        cx.actions.push(Action::Send {
            face,
            is_probe,
            non_discovery: cx.non_discovery,
        });
        let key = measure_key(cx);
        let interest = u64::from(cx.entry.0);
        let lifetime = self.measurements_lifetime;
        cx.measurements
            .sent(key, face, interest, cx.now, lifetime, self.max_timeouts);
    }

    /// Sends a copy of the Interest to another next hop, if one is due.
    fn probe(&self, cx: &mut Context<'_>, ingress: FaceId, used: FaceId) {
        let key = measure_key(cx);
        let first = Duration::from_millis(cx.rng.below(FIRST_PROBE_MS));
        if !cx
            .measurements
            .is_probe_due(key, cx.now, first, self.measurements_lifetime)
        {
            return;
        }
        if let Some(face) = self.face_to_probe(cx, ingress, used) {
            self.forward(cx, face, true);
            cx.measurements.probed(key, cx.now, self.probing_interval);
        }
    }

    /// Draws the next hop to probe: one never used if there is one, else the better ranked the likelier.
    fn face_to_probe(&self, cx: &mut Context<'_>, ingress: FaceId, used: FaceId) -> Option<FaceId> {
        let is_candidate = |cx: &Context<'_>, hop: &NextHop| {
            hop.face != used && cx.is_eligible(ingress, hop, false)
        };
        let mut candidates = 0_u64;
        for hop in cx.next_hops {
            if !is_candidate(cx, hop) {
                continue;
            }
            candidates += 1;
            if self.rtt(cx, hop.face) == FaceRtt::Unknown {
                return Some(hop.face);
            }
        }
        // Rank r of n has weight n - r + 1.
        let mut draw = cx.rng.below(candidates * (candidates + 1) / 2);
        let mut rank = 0;
        while draw >= candidates - rank {
            draw -= candidates - rank;
            rank += 1;
            if rank >= candidates {
                return None;
            }
        }
        self.ranked(cx, rank, |cx, hop| is_candidate(cx, hop))
    }

    /// Returns the candidate of a rank, counted from 0; those that timed out come before working ones by
    /// cost, as they are what probes are to find again.
    fn ranked(
        &self,
        cx: &mut Context<'_>,
        rank: u64,
        is_candidate: impl Fn(&Context<'_>, &NextHop) -> bool,
    ) -> Option<FaceId> {
        let mut found = None;
        for _ in 0..=rank {
            let mut best: Option<(FaceRtt, u64, FaceId)> = None;
            for hop in cx.next_hops {
                if !is_candidate(cx, hop) {
                    continue;
                }
                let key = (self.rtt(cx, hop.face), hop.cost, hop.face);
                let is_after = found.is_none_or(|last| key > last);
                if is_after && best.is_none_or(|other| key < other) {
                    best = Some(key);
                }
            }
            found = Some(best?);
        }
        found.map(|(_, _, face)| face)
    }

    fn retransmit(&self, cx: &mut Context<'_>, face: FaceId, measured: bool) {
        let verdict = self.suppression.for_upstream(cx, face);
        if verdict == Verdict::Suppress {
            return;
        }
        if measured {
            self.forward(cx, face, false);
        } else {
            cx.send(face);
        }
        if verdict == Verdict::Forward {
            self.suppression.grow(cx, face);
        }
    }
}

fn measure_key(cx: &Context<'_>) -> u64 {
    cx.pit.get(cx.entry).map_or(0, |entry| entry.measure_key)
}

impl Strategy for Asf {
    fn interest(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        if !cx.has_pending_out() {
            match self.best(cx, ingress, false) {
                Some(face) => {
                    self.forward(cx, face, false);
                    self.probe(cx, ingress, face);
                }
                None => cx.no_route(ingress),
            }
            return;
        }
        if let Some(face) = self.best(cx, ingress, true) {
            self.retransmit(cx, face, true);
        } else if let Some(face) = cx.earliest_used(ingress) {
            self.retransmit(cx, face, false);
        }
    }

    fn data(&mut self, cx: &mut Context<'_>, ingress: FaceId) {
        let Some(sent) = cx.out_record(ingress).map(|record| record.last_renewed) else {
            return;
        };
        let (key, interest) = (measure_key(cx), u64::from(cx.entry.0));
        let rtt = cx.now.saturating_since(sent);
        let lifetime = self.measurements_lifetime;
        cx.measurements
            .received(key, ingress, interest, rtt, cx.now, lifetime);
        let mut others = cx.pit.out_records(cx.entry);
        if others.any(|record| record.face != ingress && record.is_pending(cx.now)) {
            cx.actions.push(Action::Linger(PROBE_LINGER));
        }
    }

    fn nack(&mut self, cx: &mut Context<'_>, ingress: FaceId, _: NackReason) {
        let key = measure_key(cx);
        cx.measurements.refused(key, ingress);
        nack::process(cx);
    }
}
