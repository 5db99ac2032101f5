//! `tidegate rule ls`, `apply`, `confirm`, `rollback` and `rematch`: the rules of a running node.

use std::path::{Path, PathBuf};

use control::api::{DeniedConnection, Reply, Request, RuleInfo};
use control::socket::{Client, ClientError};

use super::text;
use crate::cli::{Global, RuleApplyArgs, RuleRematchArgs};
use crate::exit::{Exit, Failure};
use crate::output::{self, FAINT, HEADING};

fn ask(global: &Global, request: &Request) -> Result<Reply, Failure> {
    Ok(Client::connect(&global.socket)?.request(request)?)
}

/// Lists the rules, with their counters.
pub(crate) fn list(global: &Global) -> Result<(), Failure> {
    let Reply::Rules(rules) = ask(global, &Request::Rules)? else {
        return Err(ClientError::Protocol.into());
    };
    if global.json {
        return output::print_json(&rules);
    }
    output::print(&table(&rules))
}

/// The rules by chain, as nft lists them.
fn table(rules: &[RuleInfo]) -> String {
    let mut out = String::new();
    let mut chain = None;
    for rule in rules {
        let place = (&rule.table, &rule.chain);
        if chain != Some(place) {
            out.push_str(&format!(
                "{HEADING}{} {}{HEADING:#}\n",
                rule.table, rule.chain
            ));
            chain = Some(place);
        }
        let counted = match (rule.pkts, rule.bytes) {
            (Some(pkts), Some(bytes)) => format!("{pkts:>12} {:>10}", output::bytes(bytes)),
            _ => format!("{:>12} {:>10}", "-", "-"),
        };
        out.push_str(&format!(
            "{counted}  {}  {FAINT}{}:{}{FAINT:#}\n",
            rule.text, rule.file, rule.line
        ));
    }
    out
}

/// Puts a file of rules in force.
pub(crate) fn apply(global: &Global, args: &RuleApplyArgs) -> Result<(), Failure> {
    let path = absolute(&args.file)?;
    let confirm_s = args.confirm.map(|wait| wait.as_secs().max(1) as u32);
    let denied = match args.rematch {
        true => Some(denied(global, path.clone(), false)?),
        false => None,
    };
    let request = Request::ApplyRules {
        path: path.clone(),
        confirm_s,
    };
    let reply = ask(global, &request)?;
    let Reply::RulesInForce { confirm_s, .. } = &reply else {
        return Err(ClientError::Protocol.into());
    };
    // Only now: the old rules would have let them start again.
    let denied = match args.end {
        true => Some(self::denied(global, path.clone(), true)?),
        false => denied,
    };
    if global.json {
        return output::print_json(&reply);
    }
    let mut text = denied.as_deref().map_or(String::new(), denied_text);
    text.push_str(&format!("the rules of {} are in force", path.display()));
    text.push_str(&match confirm_s {
        Some(wait) => format!(
            "; the old ones come back in {wait} s, unless `tidegate rule confirm` says otherwise\n"
        ),
        None => String::from(" until the node reads its configuration again\n"),
    });
    output::print(&text)
}

/// Ends the wait for a confirmation.
pub(crate) fn confirm(global: &Global, keep: bool) -> Result<(), Failure> {
    let reply = ask(global, &Request::ConfirmRules { keep })?;
    let Reply::RulesInForce { path, .. } = &reply else {
        return Err(ClientError::Protocol.into());
    };
    if global.json {
        return output::print_json(&reply);
    }
    let what = if keep { "stay" } else { "are back" };
    output::print(&format!(
        "the rules of {} {what} in force\n",
        path.display()
    ))
}

/// Lists the live connections that a file of rules would not let start, and ends them if that is wanted.
pub(crate) fn rematch(global: &Global, args: &RuleRematchArgs) -> Result<(), Failure> {
    let denied = denied(global, absolute(&args.file)?, args.end)?;
    if global.json {
        return output::print_json(&denied);
    }
    output::print(&denied_text(&denied))
}

fn denied(global: &Global, path: PathBuf, end: bool) -> Result<Vec<DeniedConnection>, Failure> {
    match ask(global, &Request::DeniedConnections { path, end })? {
        Reply::DeniedConnections(denied) => Ok(denied),
        _ => Err(ClientError::Protocol.into()),
    }
}

fn denied_text(denied: &[DeniedConnection]) -> String {
    let mut out = String::new();
    for one in denied {
        let rule = one.rule.as_ref();
        let by = rule.map_or(String::new(), |rule| {
            format!(" by {}", text::reference(rule))
        });
        let what = fate(one);
        out.push_str(&format!("{} ({}) {what}{by}\n", one.connection, one.state));
    }
    let what = denied.first().map_or("would be denied", fate);
    out.push_str(&match denied.len() {
        0 => format!("no live connection {what}\n"),
        1 => format!("1 live connection {what}\n"),
        n => format!("{n} live connections {what}\n"),
    });
    out
}

fn fate(connection: &DeniedConnection) -> &'static str {
    if connection.ended {
        "is denied, and ended"
    } else {
        "would be denied"
    }
}

/// The node may run in another directory.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path).map_err(|error| {
        Failure::new(
            Exit::of_file(&error),
            anyhow::Error::from(error).context(path.display().to_string()),
        )
    })
}
