//! The DDoS guard, in front of all state (LF-4): what it drops costs a few lookups and makes no connection.
//!
//! Cheapest first: [`blocklist`] (prefixes, swapped as a whole), sources that are held off for scanning ([`scan`]),
//! packet rates a source and a destination ([`rate`], sketches with a stated error); for what would start a connection,
//! connection rates, and, under attack, the check that a SYN's sender is there at all ([`retry`]). [`cookie`] makes and
//! checks SYN cookies. Each event says which threshold fired, what was measured, at whom, and what was done.

pub mod blocklist;
pub mod cookie;
pub mod rate;
pub mod retry;
pub mod scan;

use alloc::sync::Arc;
use alloc::vec::Vec;

use tables::signature::Keyed;
use wire::{DropReason, FlowKey, Instant, ip_protocol};

use blocklist::Blocklist;
use rate::{Rates, RatesWorker};
use retry::SynRetry;
use scan::Scans;

/// Events that wait to be taken, at most.
const EVENTS_MAX: usize = 256;

/// Which threshold fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threshold {
    /// Packets a second of a source.
    SourcePackets,
    /// Packets a second to a destination.
    DestinationPackets,
    /// New connections a second of a source.
    SourceConnections,
    /// New connections a second to a destination.
    DestinationConnections,
    /// Distinct endpoints that a source asked for and did not get.
    Scan,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Packets above the threshold are dropped.
    Drop,
    /// SYNs to the destination must come twice.
    Challenge,
    /// SYNs to the destination are answered by cookies.
    Cookie,
    /// The source is held off for a while.
    HoldOff,
}

/// A threshold fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardEvent {
    /// Which one.
    pub threshold: Threshold,
    /// Its value.
    pub limit: u64,
    /// What was measured: never less than the truth; how much more, [`Rates`] says.
    pub measured: u64,
    /// A source of it (the only one, for thresholds a source), as in [`FlowKey`].
    pub source: [u8; 16],
    /// The destination that was attacked.
    pub destination: [u8; 16],
    /// What was done.
    pub action: Action,
    /// When.
    pub at: Instant,
}

/// What the sender of a SYN has to do for a connection while its destination is under attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Challenge {
    /// Answer a cookie (RFC 4987 3.6): the handshake is done for the server.
    #[default]
    Cookie,
    /// Send it again: nothing is changed in what passes.
    Retry,
}

/// What becomes of a packet that would start a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may start one.
    Open,
    /// If the rules let it start one, its sender has to answer a cookie first.
    Prove,
    /// It is dropped.
    Drop(DropReason),
}

/// Thresholds; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardPolicy {
    /// Packets a second of a source.
    pub source_packets: u64,
    /// Packets a second to a destination.
    pub destination_packets: u64,
    /// New connections a second of a source.
    pub source_connections: u64,
    /// New connections a second to a destination, above which `challenge` holds.
    pub destination_connections: u64,
    /// What the senders of SYNs have to do then.
    pub challenge: Challenge,
    /// Endpoints that a source may ask for in vain within ten seconds.
    pub scan: u64,
    /// How long a scanner is held off, seconds.
    pub hold_off_s: u32,
    /// Error of the rates, as a share of all packets of a second (epsilon).
    pub error: f64,
    /// How often an estimate may be further off than that (delta).
    pub failure: f64,
}

impl Default for GuardPolicy {
    fn default() -> Self {
        Self {
            source_packets: 0,
            destination_packets: 0,
            source_connections: 0,
            destination_connections: 0,
            challenge: Challenge::default(),
            scan: 0,
            hold_off_s: 60,
            error: 1e-4,
            failure: 0.01,
        }
    }
}

/// What all workers share.
#[derive(Debug)]
pub struct Guard {
    policy: GuardPolicy,
    packets: Rates,
    connections: Rates,
    hash: Keyed,
}

impl Guard {
    /// Makes the sketches of `workers` workers; `hash` is keyed at random.
    pub fn new(policy: GuardPolicy, workers: usize, hash: Keyed) -> Self {
        let rates = || Rates::new(policy.error, policy.failure, workers, hash);
        Self {
            policy,
            packets: rates(),
            connections: rates(),
            hash,
        }
    }

    /// Makes worker `index`'s part, or `None` if there are fewer.
    pub fn join(self: &Arc<Self>, index: usize) -> Option<GuardWorker> {
        Some(GuardWorker {
            packets: self.packets.join(index)?,
            connections: self.connections.join(index)?,
            retry: SynRetry::new(1 << 14, self.hash),
            scans: Scans::new(self.policy.scan, self.policy.hold_off_s, self.hash),
            blocklist: None,
            policy: self.policy,
            events: Vec::with_capacity(EVENTS_MAX),
            events_lost: 0,
            told: [(0, 0); 64],
            guard: Arc::clone(self),
        })
    }
}

/// A worker's part.
#[derive(Debug)]
pub struct GuardWorker {
    guard: Arc<Guard>,
    packets: RatesWorker,
    connections: RatesWorker,
    retry: SynRetry,
    scans: Scans,
    blocklist: Option<Arc<Blocklist>>,
    policy: GuardPolicy,
    /// What fired, oldest first; to be taken by the caller.
    pub events: Vec<GuardEvent>,
    /// Events that found no room, as nobody had taken the earlier ones.
    pub events_lost: u64,
    /// Whom events told of in this second: one event a second and culprit.
    told: [(u64, u64); 64],
}

impl GuardWorker {
    /// Puts a blocklist in force: the next packet meets it, whole.
    pub fn set_blocklist(&mut self, list: Option<Arc<Blocklist>>) {
        self.blocklist = list;
    }

    /// Changes the thresholds; what was measured stays, but who is held off is forgotten if the threshold of scans
    /// changes. The error of the rates stays what it was at the start.
    pub fn set_policy(&mut self, policy: GuardPolicy) {
        let scans = (policy.scan, policy.hold_off_s);
        if scans != (self.policy.scan, self.policy.hold_off_s) {
            self.scans = Scans::new(policy.scan, policy.hold_off_s, self.guard.hash);
        }
        self.policy = policy;
    }

    /// Judges a packet before anything else does: why it is dropped, if it is.
    #[inline]
    pub fn check(&mut self, key: &FlowKey, now: Instant) -> Option<DropReason> {
        if let Some(list) = &self.blocklist
            && (list.find(&key.source).is_some() || list.find(&key.destination).is_some())
        {
            return Some(DropReason::GuardBlocklist);
        }
        let source = id_of(&key.source);
        if self.scans.is_held_off(source, now) {
            return Some(DropReason::GuardScan);
        }
        let policy = self.policy;
        let over = self.packets.count(
            (source, policy.source_packets),
            (id_of(&key.destination), policy.destination_packets),
            now,
        );
        if let Some((is_source, measured)) = over {
            let (threshold, limit) = if is_source {
                (Threshold::SourcePackets, policy.source_packets)
            } else {
                (Threshold::DestinationPackets, policy.destination_packets)
            };
            self.tell(threshold, limit, measured, key, Action::Drop, now);
            return Some(DropReason::GuardRate);
        }
        None
    }

    /// Judges a packet that would start a connection; `sequence` is the SYN's, `None` for what is no SYN.
    pub fn check_new(&mut self, key: &FlowKey, sequence: Option<u32>, now: Instant) -> Admission {
        let policy = self.policy;
        let over = self.connections.count(
            (id_of(&key.source), policy.source_connections),
            (id_of(&key.destination), policy.destination_connections),
            now,
        );
        let Some((is_source, measured)) = over else {
            return Admission::Open;
        };
        if is_source {
            let limit = policy.source_connections;
            let what = Threshold::SourceConnections;
            self.tell(what, limit, measured, key, Action::Drop, now);
            return Admission::Drop(DropReason::GuardRate);
        }
        let limit = policy.destination_connections;
        let what = Threshold::DestinationConnections;
        if key.protocol != ip_protocol::TCP {
            self.tell(what, limit, measured, key, Action::Drop, now);
            return Admission::Drop(DropReason::GuardRate);
        }
        let (action, admission) = match (policy.challenge, sequence) {
            // In mid-stream, and the answer to no cookie.
            (Challenge::Cookie, None) => {
                (Action::Cookie, Admission::Drop(DropReason::GuardSynCookie))
            }
            (Challenge::Cookie, Some(_)) => (Action::Cookie, Admission::Prove),
            (Challenge::Retry, None) => (Action::Drop, Admission::Drop(DropReason::GuardRate)),
            (Challenge::Retry, Some(sequence)) if self.retry.admit(key, sequence, now) => {
                (Action::Challenge, Admission::Open)
            }
            (Challenge::Retry, Some(_)) => (
                Action::Challenge,
                Admission::Drop(DropReason::GuardSynCookie),
            ),
        };
        self.tell(what, limit, measured, key, action, now);
        admission
    }

    /// Judges a SYN to the node itself while [`check_new`](Self::check_new) wants proof: the node's own host answers
    /// those that come twice.
    pub fn check_retry(
        &mut self,
        key: &FlowKey,
        sequence: u32,
        now: Instant,
    ) -> Option<DropReason> {
        (!self.retry.admit(key, sequence, now)).then_some(DropReason::GuardSynCookie)
    }

    /// Notes that a source asked for an endpoint and was refused.
    pub fn refused(&mut self, key: &FlowKey, now: Instant) {
        if let Some(measured) = self.scans.refused(id_of(&key.source), key, now) {
            let limit = self.policy.scan;
            self.tell(Threshold::Scan, limit, measured, key, Action::HoldOff, now);
        }
    }

    fn tell(
        &mut self,
        threshold: Threshold,
        limit: u64,
        measured: u64,
        key: &FlowKey,
        action: Action,
        now: Instant,
    ) {
        let of_source = matches!(
            threshold,
            Threshold::SourcePackets | Threshold::SourceConnections | Threshold::Scan
        );
        let culprit = id_of(if of_source {
            &key.source
        } else {
            &key.destination
        });
        let who = self.guard.hash.hash_words(&[culprit, threshold as u64]);
        let second = now.as_ns() / 1_000_000_000;
        let Some(told) = self.told.get_mut((who & 63) as usize) else {
            return;
        };
        if *told == (who, second) {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events_lost += 1;
            return;
        }
        *told = (who, second);
        self.events.push(GuardEvent {
            threshold,
            limit,
            measured,
            source: key.source,
            destination: key.destination,
            action,
            at: now,
        });
    }
}

/// What an address is counted by: an IPv4 address, or the /64 of an IPv6 one.
#[inline]
pub(crate) const fn id_of(address: &[u8; 16]) -> u64 {
    let bits = u128::from_be_bytes(*address);
    if bits >> 32 == 0xffff {
        bits as u32 as u64
    } else {
        (bits >> 64) as u64 | 1 << 63
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::key::mapped;

    fn key(source: u32, destination: u32) -> FlowKey {
        FlowKey {
            source: mapped(source),
            destination: mapped(destination),
            source_port: 1000,
            destination_port: 80,
            protocol: 6,
        }
    }

    fn worker(policy: GuardPolicy) -> GuardWorker {
        let guard = Arc::new(Guard::new(policy, 1, Keyed::new([1, 2, 3, 4])));
        guard.join(0).unwrap()
    }

    #[test]
    fn row_89_a_source_above_its_rate_is_dropped_and_named() {
        let mut guard = worker(GuardPolicy {
            source_packets: 1000,
            ..GuardPolicy::default()
        });
        let (mut flood, mut victim) = (0, 0);
        for n in 0..20_000_u64 {
            let now = Instant::from_ns(1_000_000_000 + n * 100_000);
            flood += u64::from(guard.check(&key(66, 1), now).is_some());
            if n % 20 == 0 {
                victim += u64::from(guard.check(&key(7, 1), now).is_some());
            }
        }
        assert_eq!(victim, 0);
        assert!(flood > 10_000, "{flood}");
        let event = guard.events[0];
        assert_eq!(
            (event.threshold, event.limit),
            (Threshold::SourcePackets, 1000)
        );
        assert!(event.measured > 1000);
        assert_eq!((event.source, event.action), (mapped(66), Action::Drop));
        assert!(guard.events.len() <= 3, "one event a second");
    }

    #[test]
    fn row_86_and_87_under_a_syn_flood_only_who_asks_twice_gets_state() {
        let mut guard = worker(GuardPolicy {
            destination_connections: 100,
            challenge: Challenge::Retry,
            ..GuardPolicy::default()
        });
        let mut through = 0;
        for n in 0..50_000_u32 {
            let now = Instant::from_ns(1_000_000_000 + u64::from(n) * 20_000);
            let spoofed = guard.check_new(&key(0x5000_0000 + n, 9), Some(n), now);
            through += u32::from(spoofed == Admission::Open);
        }
        assert!(through <= 400, "{through}");
        let client = key(5, 9);
        let at = |ms: u64| Instant::from_ns(2_000_000_000 + ms * 1_000_000);
        let first = guard.check_new(&client, Some(77), at(0));
        assert_eq!(first, Admission::Drop(DropReason::GuardSynCookie));
        // Too early for a retransmission, then right.
        assert_ne!(guard.check_new(&client, Some(77), at(10)), Admission::Open);
        assert_eq!(
            guard.check_new(&client, Some(77), at(1000)),
            Admission::Open
        );
        // Another destination is not troubled.
        assert_eq!(
            guard.check_new(&key(5, 10), Some(1), at(1001)),
            Admission::Open
        );
        assert_eq!(guard.events[0].action, Action::Challenge);
    }

    #[test]
    fn a_scanner_is_held_off_and_let_in_again() {
        let mut guard = worker(GuardPolicy {
            scan: 50,
            hold_off_s: 10,
            ..GuardPolicy::default()
        });
        let at = |s: u64| Instant::from_ns(s * 1_000_000_000);
        for port in 0..60 {
            let mut probe = key(66, 1);
            probe.destination_port = port;
            guard.refused(&probe, at(1));
            // Asking for one endpoint again and again is no scan.
            guard.refused(&key(7, 1), at(1));
        }
        assert_eq!(guard.check(&key(66, 1), at(2)), Some(DropReason::GuardScan));
        assert_eq!(guard.check(&key(7, 1), at(2)), None);
        assert_eq!(guard.check(&key(66, 1), at(12)), None);
        let [event] = guard.events[..] else {
            panic!("one event")
        };
        assert_eq!(
            (event.threshold, event.action),
            (Threshold::Scan, Action::HoldOff)
        );
    }
}
