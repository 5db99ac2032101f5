//! The firewall's rules while the node runs: listed, replaced, brought back, and tried on live connections.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::Config;
use control::api::{DeniedConnection, RuleInfo, RuleReference};
use graph::Snapshot;
use wire::DropReason;

use super::{Dataplane, ReloadError, State, lock};
use crate::firewall::{FileRules, RehearseError, Rehearsed, load_rules};
use crate::forwarding::Forwarding;

/// The rules that were in force before others were, to bring them back as they were: their file may have changed.
#[derive(Clone, Debug)]
pub struct RulesBefore {
    path: PathBuf,
    rules: Arc<FileRules>,
}

impl RulesBefore {
    /// Their file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Dataplane {
    /// Lists the firewall's rules in force, with what their counters say; none without a file of rules.
    pub fn rules(&self) -> Vec<RuleInfo> {
        let rules = self.state().forwarding.rules.clone();
        let Some(ruleset) = rules.map(|rules| Arc::clone(&rules.ruleset)) else {
            return Vec::new();
        };
        let infos = ruleset.rules().iter().map(|info| {
            let counted = info.counter.map(|counter| ruleset.counter(counter));
            RuleInfo {
                table: info.table.clone(),
                chain: info.chain.clone(),
                handle: info.handle,
                file: info.file.clone(),
                line: info.line,
                text: info.text.clone(),
                pkts: counted.map(|counted| counted.0),
                bytes: counted.map(|counted| counted.1),
            }
        });
        infos.collect()
    }

    /// Puts a file of rules in force between two packets, instead of those that are, until the configuration is read
    /// again; connections go on. Returns what was in force before.
    ///
    /// # Errors
    /// The rules are wrong, or the node's firewall has none that could be replaced; nothing changes then.
    pub fn apply_rules(&self, path: &Path) -> Result<RulesBefore, ReloadError> {
        let mut state = self.state();
        let before = rules_of(&state).ok_or(ReloadError::NoRules)?;
        let config = with_rules(&state.config, path);
        let rules = load_rules(&config, &state.plan, Some(&before.rules))?;
        let rules = rules.ok_or(ReloadError::NoRules)?;
        self.publish_rules(&mut state, config, rules)?;
        Ok(before)
    }

    /// Brings rules back.
    ///
    /// # Errors
    /// The node has stopped, or a worker takes no messages.
    pub fn restore_rules(&self, before: &RulesBefore) -> Result<(), ReloadError> {
        let mut state = self.state();
        let config = with_rules(&state.config, &before.path);
        self.publish_rules(&mut state, config, Arc::clone(&before.rules))
    }

    fn publish_rules(
        &self,
        state: &mut State,
        config: Config,
        rules: Arc<FileRules>,
    ) -> Result<(), ReloadError> {
        if state.ended.is_some() {
            return Err(ReloadError::Stopped);
        }
        let mut forwarding = Forwarding::clone(&state.forwarding).with_rules(Some(rules));
        forwarding.generation += 1;
        let forwarding = Arc::new(forwarding);
        let snapshot: Snapshot = Arc::clone(&forwarding) as Snapshot;
        if !lock(&self.workers).reload(&snapshot) {
            return Err(ReloadError::Busy);
        }
        tracing::info!(
            generation = forwarding.generation,
            "other rules are in force"
        );
        state.config = Arc::new(config);
        state.forwarding = forwarding;
        Ok(())
    }

    /// Lists the live connections that a file of rules would not let start, each with the rule responsible. Nothing is
    /// put in force; with `end`, these connections are ended: their next packets are judged by the rules that are.
    ///
    /// # Errors
    /// The rules are wrong, or the node has no firewall.
    pub fn denied_by(
        &self,
        path: &Path,
        end: bool,
    ) -> Result<Vec<DeniedConnection>, RehearseError> {
        let state = self.state();
        let config = with_rules(&state.config, path);
        let (plan, forwarding) = (state.plan.clone(), Forwarding::clone(&state.forwarding));
        drop(state);
        let firewall = self.shared.firewall.as_ref();
        let firewall = firewall.ok_or(RehearseError::NoFirewall)?;
        let mut keys = HashSet::new();
        let mut rehearsed = Rehearsed::over(&config, &plan, forwarding)?;
        let mut denied = Vec::new();
        firewall
            .tables
            .each_connection(io::cpu::now(), |connection| {
                let account = rehearsed.begin(&connection.original);
                let Some(account) = account.filter(|account| {
                    account.fate == filter::pipeline::Fate::Drop(DropReason::FirewallRule)
                }) else {
                    return;
                };
                denied.push(DeniedConnection {
                    connection: crate::firewall::flow_text(&connection.original),
                    state: connection.tcp.map_or_else(
                        || String::from("-"),
                        |state| format!("{state:?}").to_lowercase(),
                    ),
                    rule: rehearsed.responsible(&account).map(reference),
                    ended: end,
                });
                if end {
                    keys.insert(connection.original);
                }
            });
        if !keys.is_empty() {
            firewall.end_connections(|connection| keys.contains(&connection.original));
        }
        Ok(denied)
    }
}

fn rules_of(state: &State) -> Option<RulesBefore> {
    let path = state.config.firewall.as_ref()?.rules.clone()?;
    let rules = state.forwarding.rules.clone()?;
    Some(RulesBefore { path, rules })
}

fn with_rules(config: &Config, path: &Path) -> Config {
    let mut config = config.clone();
    if let Some(firewall) = &mut config.firewall {
        firewall.rules = Some(path.to_owned());
        firewall.inside = None;
    }
    config
}

fn reference((file, line, text): (String, u32, String)) -> RuleReference {
    RuleReference { file, line, text }
}
