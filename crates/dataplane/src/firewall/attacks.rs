//! Attacks that the guard saw: its workers tell of a threshold once a second; here, what belongs together is one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use control::api::GuardAttack;
use filter::guard::{Action, GuardEvent, Threshold};
use wire::Instant;

use super::hub::timestamp;
use super::sessions::address;

/// Attacks that are remembered.
const ATTACKS_MAX: usize = 64;
/// Sources of one that are named.
const SOURCES_MAX: usize = 8;
/// A threshold that has not fired for so long fires anew.
const PAUSE: Duration = Duration::from_secs(10);

/// The attacks of late.
#[derive(Debug, Default)]
pub(super) struct Attacks {
    pub(super) recent: VecDeque<Attack>,
    pub(super) total: u64,
}

/// One attack: a threshold, and at whose expense or on whose account it fires.
#[derive(Clone, Debug)]
pub(super) struct Attack {
    event: GuardEvent,
    last_at: Instant,
    measured: u64,
    sources: Vec<IpAddr>,
}

const fn is_of_source(threshold: Threshold) -> bool {
    matches!(
        threshold,
        Threshold::SourcePackets | Threshold::SourceConnections | Threshold::Scan
    )
}

/// The threshold's key in the configuration.
const fn name(threshold: Threshold) -> &'static str {
    match threshold {
        Threshold::SourcePackets => "source_pkts_per_s",
        Threshold::DestinationPackets => "destination_pkts_per_s",
        Threshold::SourceConnections => "source_connections_per_s",
        Threshold::DestinationConnections => "destination_connections_per_s",
        Threshold::Scan => "scan_endpoints",
    }
}

const fn action(action: Action) -> &'static str {
    match action {
        Action::Drop => "drop",
        Action::Challenge => "challenge",
        Action::Cookie => "cookie",
        Action::HoldOff => "hold_off",
    }
}

impl Attacks {
    /// Notes that a threshold fired; a new attack is told to the log.
    pub(super) fn note(&mut self, event: &GuardEvent) {
        let source = address(event.source);
        let known = self.recent.iter_mut().rev().find(|attack| {
            let culprit = if is_of_source(event.threshold) {
                attack.event.source == event.source
            } else {
                attack.event.destination == event.destination
            };
            let is_going_on = event.at < attack.last_at + PAUSE;
            attack.event.threshold == event.threshold
                && attack.event.action == event.action
                && culprit
                && is_going_on
        });
        if let Some(attack) = known {
            attack.last_at = attack.last_at.max(event.at);
            attack.measured = attack.measured.max(event.measured);
            attack.event.destination = event.destination;
            if attack.sources.len() < SOURCES_MAX && !attack.sources.contains(&source) {
                attack.sources.push(source);
            }
            return;
        }
        tracing::warn!(
            threshold = name(event.threshold),
            limit = event.limit,
            measured = event.measured,
            %source,
            destination = %address(event.destination),
            action = action(event.action),
            "the guard saw an attack"
        );
        self.total += 1;
        if self.recent.len() == ATTACKS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Attack {
            event: *event,
            last_at: event.at,
            measured: event.measured,
            sources: vec![source],
        });
    }

    /// The attacks in the types of the API.
    pub(super) fn list(&self) -> Vec<GuardAttack> {
        let attacks = self.recent.iter();
        attacks
            .map(|attack| GuardAttack {
                first_at: timestamp(attack.event.at),
                last_at: timestamp(attack.last_at),
                threshold: name(attack.event.threshold).to_owned(),
                limit: attack.event.limit,
                measured: attack.measured,
                sources: attack.sources.clone(),
                destination: address(attack.event.destination),
                action: action(attack.event.action).to_owned(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_one_attack() {
        let mut attacks = Attacks::default();
        let event = |source: u8, second: u64, measured| GuardEvent {
            threshold: Threshold::DestinationConnections,
            limit: 100,
            measured,
            source: [source; 16],
            destination: [9; 16],
            action: Action::Challenge,
            at: Instant::from_ns(second * 1_000_000_000),
        };
        attacks.note(&event(1, 100, 500));
        attacks.note(&event(2, 101, 700));
        attacks.note(&event(2, 102, 600));
        assert_eq!(attacks.total, 1);
        let [attack] = &attacks.list()[..] else {
            panic!("one attack")
        };
        assert_eq!((attack.measured, attack.sources.len()), (700, 2));
        attacks.note(&event(3, 113, 500));
        assert_eq!(attacks.total, 2);
        for second in 0..200 {
            attacks.note(&event(3, 200 + second * 11, 500));
        }
        assert_eq!((attacks.total, attacks.list().len()), (202, ATTACKS_MAX));
    }
}
