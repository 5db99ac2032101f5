//! `tidegate rule try`: which flows of a capture other rules would treat differently, and by which line.

use std::collections::HashMap;

use control::api::{FlowChange, TrialReport};
use dataplane::firewall::Rehearsed;
use filter::rehearsal::Account;
use io::pcap::Capture;
use wire::FlowKey;

use super::explain::{open, pass_captured};
use super::{node, text};
use crate::cli::{Global, RuleTryArgs};
use crate::exit::{Exit, Failure};
use crate::output::{self, BAD, FAINT, GOOD, HEADING};

pub(crate) fn run(global: &Global, args: &RuleTryArgs) -> Result<(), Failure> {
    let config = node::config_of(&args.node)?;
    let against = args.against.as_deref();
    if against.is_none() && config.firewall.is_none() {
        return Err(
            Failure::message(Exit::Usage, "there are no rules to compare with")
                .remedy("name the old ones: --against OLD.nft"),
        );
    }
    let mut old = node::rehearse(&config, against)?;
    let mut new = node::rehearse(&config, Some(&args.new))?;
    let report = compare(&mut old, &mut new, &open(&args.pcap)?);
    if global.json {
        return output::print_json(&report);
    }
    output::print(&show(&report))
}

/// Lets all packets through both.
fn compare(old: &mut Rehearsed, new: &mut Rehearsed, capture: &Capture) -> TrialReport {
    let mut report = TrialReport {
        pkts: capture.len() as u64,
        unjudged_pkts: 0,
        flows: 0,
        changes: Vec::new(),
    };
    // The place of a flow's change, once there is one.
    let mut flows: HashMap<FlowKey, Option<usize>> = HashMap::new();
    let first_ns = capture.get(0).map_or(0, |packet| packet.timestamp_ns);
    for (number, packet) in (1..).zip(capture.packets()) {
        let after_ns = packet.timestamp_ns.saturating_sub(first_ns);
        let through = |node: &mut Rehearsed| {
            let mut frame = packet.data.to_vec();
            pass_captured(node, &mut frame, after_ns, packet.timestamp_ns)
        };
        let Some(((before, iif), (after, _))) = through(old).zip(through(new)) else {
            report.unjudged_pkts += 1;
            continue;
        };
        let key = captured_key(packet.data);
        let place = flows.entry(canonical(&key)).or_insert(None);
        if same(&before, &after) {
            continue;
        }
        match place {
            Some(at) => {
                if let Some(change) = report.changes.get_mut(*at) {
                    change.differing_pkts += 1;
                }
            }
            None => {
                *place = Some(report.changes.len());
                report.changes.push(FlowChange {
                    flow: text::flow(&key),
                    iif: old.interface_name(iif).to_owned(),
                    packet: number,
                    differing_pkts: 1,
                    old: text::outcome(old.ruleset(), &before),
                    new: text::outcome(new.ruleset(), &after),
                });
            }
        }
    }
    report.flows = flows.len() as u64;
    report
}

fn captured_key(frame: &[u8]) -> FlowKey {
    let layout = wire::parse(frame).ok();
    let key = layout.and_then(|layout| FlowKey::from_layout(&layout, frame));
    key.unwrap_or_default()
}

/// One key for both directions.
fn canonical(key: &FlowKey) -> FlowKey {
    key.reversed().min(*key)
}

/// The packet ends alike, and leaves alike.
fn same(a: &Account, b: &Account) -> bool {
    text::fate(a.fate) == text::fate(b.fate) && a.after == b.after
}

fn show(report: &TrialReport) -> String {
    let mut text = String::new();
    for change in &report.changes {
        text.push_str(&format!(
            "{HEADING}{} by {}{HEADING:#} {FAINT}(packet {}, {} differ){FAINT:#}\n",
            change.flow, change.iif, change.packet, change.differing_pkts
        ));
        for (name, outcome) in [("old", &change.old), ("new", &change.new)] {
            let style = if outcome.fate == "accept" { GOOD } else { BAD };
            let leaves = outcome
                .leaves_as
                .as_ref()
                .filter(|now| **now != change.flow);
            let leaves = leaves.map_or(String::new(), |now| format!(", leaves as {now}"));
            let rule = outcome.rule.as_ref();
            let by = rule.map_or(String::new(), |rule| {
                format!(" by {}", text::reference(rule))
            });
            text.push_str(&format!(
                "  {name}: {style}{}{style:#}{leaves}{by}\n",
                outcome.fate
            ));
        }
    }
    let unjudged = match report.unjudged_pkts {
        0 => String::new(),
        n => format!(" ({n} of them not for a firewall)"),
    };
    text.push_str(&format!(
        "{} of {} flows change, in {} packets{unjudged}\n",
        report.changes.len(),
        report.flows,
        report.pkts
    ));
    text
}
