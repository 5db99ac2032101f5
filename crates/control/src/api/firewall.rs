//! The firewall: its counters, and what it took over from the node before.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// What the firewall has counted, all workers together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirewallInfo {
    /// Connections in the table.
    pub connections: u64,
    /// Connections that the table was made for.
    pub connections_max: u64,
    /// Port mappings in use or in quarantine.
    pub mappings: u64,
    /// Connections that were opened since the start.
    pub opened: u64,
    /// Connections that ended since the start.
    pub ended: u64,
    /// Packets that belonged to a connection.
    pub hit_pkts: u64,
    /// Of these, packets whose verdict was known from an earlier one.
    pub replayed_pkts: u64,
    /// Packets that fitted no connection.
    pub invalid_pkts: u64,
    /// Connections that were refused because a table was full or no port was free.
    pub refused: u64,
    /// Lines that `log` statements of the rules wrote.
    pub log_lines: u64,
    /// Lines that were not written, as there were too many at once.
    pub log_lines_suppressed: u64,
    /// The guard, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardInfo>,
    /// Where connections are kept, if they outlive the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<FirewallState>,
}

/// What the guard in front of the firewall saw. How many packets it dropped, the drop reasons `guard_*` tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardInfo {
    /// Prefixes of the blocklists in force.
    pub blocklist_prefixes: u64,
    /// Attacks that were seen; one that lasts counts once.
    pub attacks_total: u64,
    /// The last of them, oldest first.
    pub attacks: Vec<GuardAttack>,
    /// Reports of workers that found no room.
    pub lost: u64,
}

/// A threshold that fired, for as long as it went on firing for one source or destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardAttack {
    /// When it fired first.
    pub first_at: Timestamp,
    /// When it fired last.
    pub last_at: Timestamp,
    /// Which threshold: its key in the configuration.
    pub threshold: String,
    /// The threshold's value.
    pub limit: u64,
    /// The most that was measured.
    pub measured: u64,
    /// Sources that were seen, at most eight; the only one, for thresholds of a source.
    pub sources: Vec<IpAddr>,
    /// The destination, the last one seen for thresholds of a source.
    pub destination: IpAddr,
    /// What is done: `drop`, `challenge` (a SYN must come twice), `cookie` (SYNs are answered by cookies) or `hold_off`.
    pub action: String,
}

/// The file that connections are kept in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirewallState {
    /// The file.
    pub file: PathBuf,
    /// What was taken over from the node before, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
    /// Why what was in the file was not taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a node took over from the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TakenOver {
    /// Connections.
    pub connections: u64,
    /// Port mappings.
    pub mappings: u64,
    /// Connections that were ended, as their outer port belongs to another mapping.
    pub connections_ended: u64,
    /// Records whose making or removal a kill had interrupted.
    pub unfinished: u64,
    /// Records that made no sense.
    pub torn: u64,
    /// Mappings whose number of users was set right.
    pub counts_corrected: u64,
    /// Mappings that connections use and that were not there.
    pub mappings_restored: u64,
    /// Mappings that were half made or half removed.
    pub mappings_removed: u64,
    /// How long it took, nanoseconds.
    pub took_ns: u64,
}
