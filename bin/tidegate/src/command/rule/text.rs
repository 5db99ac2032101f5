//! Packets, connections and rules in words.

use control::api::{ConnectionState, FlowOutcome, RuleReference};
pub(super) use dataplane::firewall::flow_text as flow;
use filter::packet::{CtState, CtStatus};
use filter::pipeline::{Connection, Fate, Stage};
use filter::rehearsal::{Account, Question};
use filter::rules::Ruleset;
use filter::verdict::{NatKind, RuleId, Verdict};

/// Where a connection stands.
pub(super) fn connection(connection: &Connection) -> ConnectionState {
    let state = match connection.tcp {
        Some(state) => format!("{state:?}").to_lowercase(),
        None if connection.status.contains(CtStatus::SEEN_REPLY) => "established".to_owned(),
        None => "new".to_owned(),
    };
    ConnectionState {
        original: flow(&connection.original),
        reply: flow(&connection.reply),
        state,
        expires_ms: connection.expires_ms,
    }
}

/// Which chains of a hook.
pub(super) fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Raw => "raw",
        Stage::Filter => "filter",
        Stage::Nat => "nat",
        Stage::Late => "late",
    }
}

/// `ct state`.
pub(super) fn state(state: CtState) -> &'static str {
    match state {
        CtState::ESTABLISHED => "established",
        CtState::RELATED => "related",
        CtState::NEW => "new",
        CtState::UNTRACKED => "untracked",
        _ => "invalid",
    }
}

/// A verdict.
pub(super) fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "accept".to_owned(),
        Verdict::Drop => "drop".to_owned(),
        Verdict::Reject(_) => "reject".to_owned(),
        Verdict::Nat(request) => match request.kind {
            NatKind::Source => "snat",
            NatKind::Destination => "dnat",
            NatKind::Masquerade => "masquerade",
            NatKind::Redirect => "redirect",
        }
        .to_owned(),
        Verdict::Synproxy(_) => "synproxy".to_owned(),
        Verdict::Forward(_) => "forward".to_owned(),
    }
}

/// The rule of an answer.
pub(super) fn rule(ruleset: &Ruleset, question: &Question) -> Option<RuleReference> {
    match question.rule? {
        RuleId::POLICY => Some(RuleReference {
            file: String::new(),
            line: 0,
            text: "policy".to_owned(),
        }),
        id => ruleset.rule(id).map(|info| RuleReference {
            file: info.file.clone(),
            line: info.line,
            text: info.text.clone(),
        }),
    }
}

/// A rule for people.
pub(super) fn reference(rule: &RuleReference) -> String {
    match rule.line {
        0 => format!("the {}", rule.text),
        line => format!("{}:{line}: {}", rule.file, rule.text),
    }
}

/// A packet's end.
pub(super) fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Accept => "accept",
        Fate::Drop(_) => "drop",
        Fate::Consumed => "consumed",
    }
}

/// What became of a packet, and by which rule.
pub(super) fn outcome(ruleset: &Ruleset, account: &Account) -> FlowOutcome {
    let decisive = match account.fate {
        Fate::Accept if account.after != account.before => {
            account.translations().next().or_else(|| account.decisive())
        }
        _ => account.decisive(),
    };
    FlowOutcome {
        fate: fate(account.fate).to_owned(),
        leaves_as: account.after.as_ref().map(flow),
        rule: decisive.and_then(|question| rule(ruleset, question)),
    }
}
