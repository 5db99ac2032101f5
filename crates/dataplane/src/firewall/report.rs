//! What the firewall tells about itself, in the types of the API.

use std::sync::atomic::{AtomicU64, Ordering};

use control::api::{FirewallInfo, FirewallState, GuardInfo, TakenOver};

use super::hub::lock;
use super::state::StateReport;
use super::{Firewall, GuardSettings};

const COUNTERS: usize = 6;

/// One worker's counters, as others read them: it alone writes, nobody waits.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Tally([AtomicU64; COUNTERS]);

impl Tally {
    /// Shows what an engine has counted.
    pub(super) fn publish(&self, tally: &filter::pipeline::Tally) {
        let values = [
            tally.made,
            tally.ended,
            tally.hits,
            tally.replays,
            tally.invalid,
            tally.refused,
        ];
        for (counter, value) in self.0.iter().zip(values) {
            // Relaxed: each stands for itself.
            counter.store(value, Ordering::Relaxed);
        }
    }
}

impl Firewall {
    fn guard_info(&self, settings: Option<&GuardSettings>) -> GuardInfo {
        let blocklist = settings.and_then(|settings| settings.blocklist.as_ref());
        let attacks = lock(&self.hub.attacks);
        GuardInfo {
            blocklist_prefixes: blocklist.map_or(0, |list| list.len() as u64),
            attacks_total: attacks.total,
            attacks: attacks.list(),
            lost: self.hub.lost(),
        }
    }

    /// Reads the counters of all workers; `settings` are the guard's in force.
    pub(crate) fn info(&self, settings: Option<&GuardSettings>) -> FirewallInfo {
        let mut sum = [0_u64; COUNTERS];
        for tally in &*self.tallies {
            for (sum, counter) in sum.iter_mut().zip(&tally.0) {
                *sum += counter.load(Ordering::Relaxed);
            }
        }
        let ended_by_command = lock(&self.hub.operator).tally.ended;
        let [
            opened,
            ended,
            hit_pkts,
            replayed_pkts,
            invalid_pkts,
            refused,
        ] = sum;
        FirewallInfo {
            connections: match &self.member {
                // Others open and end them, too.
                Some(_) => self.tables.connections() as u64,
                None => (self.at_start + opened).saturating_sub(ended + ended_by_command),
            },
            connections_max: self.connections_max,
            mappings: self.tables.nat().mappings() as u64,
            opened,
            ended: ended + ended_by_command,
            hit_pkts,
            replayed_pkts,
            invalid_pkts,
            refused,
            log_lines: self.hub.log_lines[0].load(Ordering::Relaxed),
            log_lines_suppressed: self.hub.log_lines[1].load(Ordering::Relaxed),
            guard: self.guard.is_some().then(|| self.guard_info(settings)),
            state: self.state.as_ref().map(state),
        }
    }
}

fn state(report: &StateReport) -> FirewallState {
    let number = |count: usize| count as u64;
    FirewallState {
        file: report.path.clone(),
        taken_over: report.taken_over.map(|found| TakenOver {
            connections: number(found.connections),
            mappings: number(found.nat.mappings),
            connections_ended: number(found.connections_ended),
            unfinished: number(found.unfinished),
            torn: number(found.torn),
            counts_corrected: number(found.nat.counts_corrected),
            mappings_restored: number(found.nat.restored),
            mappings_removed: number(found.nat.removed),
            took_ns: report.took_ns,
        }),
        refused: report.refused.clone(),
    }
}
