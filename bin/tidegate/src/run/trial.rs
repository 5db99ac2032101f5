//! Rules that a client applied: confirmed, or taken back when nobody confirms them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::api::{ApiError, ErrorCode, Reply};
use dataplane::runtime::RulesBefore;
use dataplane::{Dataplane, ReloadError};
use tracing::{error, info, warn};

/// What waits for a confirmation, if anything does.
#[derive(Debug, Default)]
pub(super) struct RulesTrial {
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    /// When the old rules come back.
    until: Instant,
    before: RulesBefore,
    path: PathBuf,
}

impl RulesTrial {
    /// Puts rules in force; those from before come back after `confirm_s` seconds.
    pub(super) fn apply(
        &mut self,
        dataplane: &Dataplane,
        path: &Path,
        confirm_s: Option<u32>,
    ) -> Reply {
        if let Some(pending) = &self.pending {
            return Reply::Error(ApiError {
                code: ErrorCode::Failed,
                message: format!(
                    "the rules of {} wait for a confirmation",
                    pending.path.display()
                ),
                remedy: Some(
                    "end that by `tidegate rule confirm` or `tidegate rule rollback`".into(),
                ),
            });
        }
        match dataplane.apply_rules(path) {
            Ok(before) => {
                self.pending = confirm_s.map(|wait| Pending {
                    until: Instant::now() + Duration::from_secs(wait.into()),
                    before,
                    path: path.to_owned(),
                });
                in_force(dataplane, path, confirm_s)
            }
            Err(error) => failed(error),
        }
    }

    /// Ends the wait: the new rules stay, or the old ones come back.
    pub(super) fn end(&mut self, dataplane: &Dataplane, keep: bool) -> Reply {
        let Some(pending) = self.pending.take() else {
            return Reply::Error(ApiError {
                code: ErrorCode::NotFound,
                message: "no rules wait for a confirmation".into(),
                remedy: Some("apply some: `tidegate rule apply FILE --confirm 60`".into()),
            });
        };
        if keep {
            info!(path = %pending.path.display(), "the rules are confirmed");
            return in_force(dataplane, &pending.path, None);
        }
        match dataplane.restore_rules(&pending.before) {
            Ok(()) => in_force(dataplane, pending.before.path(), None),
            Err(error) => {
                // The next look tries again.
                self.pending = Some(pending);
                failed(error)
            }
        }
    }

    /// The configuration was read again: its rules are in force.
    pub(super) fn forget(&mut self) {
        self.pending = None;
    }

    /// How long it is until something is to be done.
    pub(super) fn wait(&self) -> Option<Duration> {
        let pending = self.pending.as_ref()?;
        Some(pending.until.saturating_duration_since(Instant::now()))
    }

    /// Takes rules back that nobody has confirmed in time.
    pub(super) fn look(&mut self, dataplane: &Dataplane) {
        let now = Instant::now();
        let Some(pending) = self.pending.take_if(|pending| pending.until <= now) else {
            return;
        };
        warn!(path = %pending.path.display(), "nobody confirmed the rules: the old ones come back");
        if let Err(error) = dataplane.restore_rules(&pending.before) {
            error!(%error, "the old rules cannot come back yet");
            let until = now + Duration::from_secs(1);
            self.pending = Some(Pending { until, ..pending });
        }
    }
}

fn in_force(dataplane: &Dataplane, path: &Path, confirm_s: Option<u32>) -> Reply {
    Reply::RulesInForce {
        generation: dataplane.stats().node.config_generation,
        path: path.to_owned(),
        confirm_s,
    }
}

fn failed(error: ReloadError) -> Reply {
    Reply::Error(ApiError {
        code: ErrorCode::Failed,
        remedy: error.remedy(),
        message: format!("{:#}", anyhow::Error::from(error))
            .trim_end()
            .to_owned(),
    })
}
