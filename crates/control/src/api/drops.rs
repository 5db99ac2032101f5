//! Drops by reason.

use serde::{Deserialize, Serialize};
use wire::DropReason;

/// How many packets were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropInfo {
    /// The reason's stable name, e.g. `no_route`.
    pub reason: String,
    /// Packets dropped since the node started.
    pub pkts: u64,
    /// How much it should worry an operator.
    pub severity: DropSeverity,
    /// One sentence that says what happened.
    pub text: String,
    /// The RFC section or paper id that asks for the drop.
    pub source: String,
}

impl DropInfo {
    /// Describes `pkts` drops for `reason`, with the texts of the one table of reasons.
    pub fn new(reason: DropReason, pkts: u64) -> Self {
        Self {
            reason: reason.name().to_owned(),
            pkts,
            severity: reason.severity().into(),
            text: reason.text().to_owned(),
            source: reason.source().to_owned(),
        }
    }
}

/// How much a drop should worry an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropSeverity {
    /// Part of normal operation.
    Info,
    /// A sender's mistake or a policy's decision.
    Warning,
    /// The node lost what it should have kept.
    Error,
}

impl From<wire::Severity> for DropSeverity {
    fn from(severity: wire::Severity) -> Self {
        match severity {
            wire::Severity::Info => Self::Info,
            wire::Severity::Warning => Self::Warning,
            wire::Severity::Error => Self::Error,
        }
    }
}
