//! What `doctor` and `check` find.

use serde::{Deserialize, Serialize};

/// What `tidegate check` found in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The file.
    pub file: String,
    /// Whether the node would accept it.
    pub valid: bool,
    /// What is wrong, in the order of the file.
    pub problems: Vec<crate::config::Problem>,
    /// What is wrong with the firewall's file of rules, if anything: place, caret and remedy as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

/// What `tidegate doctor` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// The checks, in order.
    pub checks: Vec<DoctorCheck>,
    /// The packet drivers that each interface allows.
    pub interfaces: Vec<InterfaceModes>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorCheck {
    /// Stable name, e.g. `kernel_version`.
    pub name: String,
    /// The outcome.
    pub status: CheckStatus,
    /// What was found: one line.
    pub found: String,
    /// What to do about it, where it is not `ok`.
    pub remedy: Option<String>,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// The node runs, slower or with less.
    Warning,
    /// What the check is about cannot be used.
    Failed,
}

/// The packet drivers that an interface allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceModes {
    /// Its name.
    pub interface: String,
    /// The kernel driver behind it, if known.
    pub kernel_driver: Option<String>,
    /// What `auto` would choose; absent where every mode is refused.
    pub chosen: Option<String>,
    /// The modes, best first, each with what the kernel said.
    pub probes: Vec<ModeProbe>,
    /// Further checks of this interface: offloads, foreign XDP program, queues.
    pub checks: Vec<DoctorCheck>,
}

/// What the kernel said to a mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeProbe {
    /// The mode, e.g. `af_xdp native zero-copy`.
    pub mode: String,
    /// Whether it works.
    pub accepted: bool,
    /// Why not, where it does not.
    pub reason: Option<String>,
}
