//! `tidegate explain`: what the firewall does with a packet, hook by hook, and why.

use control::api::{HookInfo, PacketExplanation};
use dataplane::firewall::Rehearsed;
use filter::packet::{CtDirection, InterfaceId};
use filter::pipeline::Fate;
use filter::rehearsal::Account;
use io::pcap::Capture;
use wire::FlowKey;

use super::packet::{GRAMMAR, Words};
use super::{node, text};
use crate::cli::{ExplainArgs, Global};
use crate::exit::{Exit, Failure};
use crate::output::{self, BAD, FAINT, GOOD, HEADING};

/// Time between two packets in words.
const STEP_NS: u64 = 1_000_000;

pub(crate) fn run(global: &Global, args: &ExplainArgs) -> Result<(), Failure> {
    let config = node::config_of(&args.node)?;
    let mut node = node::rehearse(&config, args.rules.as_deref())?;
    let mut explanations = Vec::new();
    if let Some(path) = &args.pcap {
        let capture = open(path)?;
        let first_ns = capture.get(0).map_or(0, |packet| packet.timestamp_ns);
        for (number, packet) in (1..).zip(capture.packets()) {
            let after_ns = packet.timestamp_ns.saturating_sub(first_ns);
            let mut frame = packet.data.to_vec();
            let wanted = args.packet_number.is_none_or(|wanted| wanted == number);
            let explained = pass(&mut node, &mut frame, number, after_ns, packet.timestamp_ns);
            explanations.extend(explained.filter(|_| wanted));
        }
    }
    let begin_ns = 60_000_000_000 * u64::from(args.pcap.is_some());
    for (number, said) in (1..).zip(&args.packets) {
        let after_ns = begin_ns + number * STEP_NS;
        explanations.push(in_words(&mut node, said, number, after_ns)?);
    }
    if global.json {
        return output::print_json(&explanations);
    }
    let texts: Vec<String> = explanations.iter().map(show).collect();
    output::print(&texts.join("\n"))
}

pub(super) fn open(path: &std::path::Path) -> Result<Capture, Failure> {
    Capture::open(path).map_err(|error| {
        let exit = if path.exists() {
            Exit::Failed
        } else {
            Exit::NotFound
        };
        Failure::new(
            exit,
            anyhow::Error::from(error).context(path.display().to_string()),
        )
    })
}

/// Explains a packet in words.
fn in_words(
    node: &mut Rehearsed,
    said: &str,
    number: u64,
    after_ns: u64,
) -> Result<PacketExplanation, Failure> {
    let wrong =
        |what: String| Failure::message(Exit::Usage, format!("{said}: {what}")).remedy(GRAMMAR);
    let words = Words::parse(said).map_err(wrong)?;
    let unwritable = || wrong("such a packet cannot be written".to_owned());
    let mut frame = words.frame(false).ok_or_else(unwritable)?;
    let layout = wire::parse(&frame).map_err(|reason| wrong(reason.text().to_owned()))?;
    let key = FlowKey::from_layout(&layout, &frame).unwrap_or_default();
    let known = node.connection_of(&key, after_ns);
    if known.is_some_and(|(_, direction)| direction == CtDirection::Reply) {
        frame = words.frame(true).ok_or_else(unwritable)?;
    }
    let iif = match &words.iif {
        Some(name) => node.interface(name).ok_or_else(|| {
            let names: Vec<&str> = node.interface_names().collect();
            Failure::message(Exit::NotFound, format!("there is no port or bridge {name}"))
                .remedy(format!("name one of {}", names.join(", ")))
        })?,
        None => node.interface_towards(key.source).ok_or_else(|| {
            Failure::message(
                Exit::Usage,
                format!("no route leads to {}", key.source_ip()),
            )
            .remedy("say by which port the packet comes: iif=NAME")
        })?,
    };
    let account = node.pass(&mut frame, layout, iif, after_ns, unix_now());
    Ok(explain(node, &account, iif, number))
}

fn unix_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

/// Lets a captured packet through and explains it; `None` if it is not for a firewall.
fn pass(
    node: &mut Rehearsed,
    frame: &mut [u8],
    number: u64,
    after_ns: u64,
    unix_ns: u64,
) -> Option<PacketExplanation> {
    let (account, iif) = pass_captured(node, frame, after_ns, unix_ns)?;
    Some(explain(node, &account, iif, number))
}

/// Lets a captured packet through: it came by the interface that its source lies behind. In captures from inside a
/// translation, replies are as the hosts there see them; they are given the addresses that they had before.
pub(super) fn pass_captured(
    node: &mut Rehearsed,
    frame: &mut [u8],
    after_ns: u64,
    unix_ns: u64,
) -> Option<(Account, InterfaceId)> {
    let layout = wire::parse(frame).ok()?;
    let key = FlowKey::from_layout(&layout, frame)?;
    let iif = node.interface_towards(key.source)?;
    if node.connection_of(&key, after_ns).is_none()
        && let Some((connection, CtDirection::Original)) =
            node.connection_of(&key.reversed(), after_ns)
        && connection.reply != key
    {
        filter::nat::rewrite::rewrite(frame, &layout, &connection.reply);
    }
    Some((node.pass(frame, layout, iif, after_ns, unix_ns), iif))
}

fn explain(
    node: &Rehearsed,
    account: &Account,
    iif: InterfaceId,
    number: u64,
) -> PacketExplanation {
    let ruleset = node.ruleset();
    let said = |key: &Option<FlowKey>| key.as_ref().map(text::flow).unwrap_or_default();
    let hooks = account.questions.iter().map(|question| HookInfo {
        hook: question.hook.name().to_owned(),
        stage: text::stage(question.stage).to_owned(),
        packet: said(&question.key),
        state: text::state(question.state).to_owned(),
        oif: (question.oif != InterfaceId::NONE)
            .then(|| node.interface_name(question.oif).to_owned()),
        steps: question.lines.clone(),
        verdict: text::verdict(&question.verdict),
        rule: text::rule(ruleset, question),
    });
    let state = |known: &Option<(filter::pipeline::Connection, CtDirection)>| {
        known
            .as_ref()
            .map(|(connection, _)| text::connection(connection))
    };
    let sent = account.sent.iter().map(|frame| {
        let layout = wire::parse(frame).ok();
        let key = layout.and_then(|layout| FlowKey::from_layout(&layout, frame));
        key.as_ref()
            .map_or_else(|| "a packet".to_owned(), text::flow)
    });
    PacketExplanation {
        number,
        iif: node.interface_name(iif).to_owned(),
        packet: said(&account.before),
        before: state(&account.known),
        hooks: hooks.collect(),
        after: state(&account.connection),
        fate: text::fate(account.fate).to_owned(),
        drop_reason: match account.fate {
            Fate::Drop(reason) => Some(reason.name().to_owned()),
            Fate::Accept | Fate::Consumed => None,
        },
        leaves_as: account.after.as_ref().map(text::flow),
        sent: sent.collect(),
    }
}

/// An explanation for people.
fn show(packet: &PacketExplanation) -> String {
    let mut out = format!(
        "{HEADING}{}: {} by {}{HEADING:#}\n",
        packet.number, packet.packet, packet.iif
    );
    let mut line = |indent: usize, text: &str| {
        out.push_str(&" ".repeat(indent));
        out.push_str(text);
        out.push('\n');
    };
    match &packet.before {
        Some(known) => line(
            2,
            &format!("connection {}, {}", known.original, known.state),
        ),
        None => line(2, "no connection"),
    }
    if packet.hooks.is_empty() {
        line(2, "no chain has a say");
    }
    let mut seen = packet.packet.clone();
    for hook in &packet.hooks {
        let by = hook
            .oif
            .as_ref()
            .map_or(String::new(), |oif| format!(", to {oif}"));
        let as_now = if hook.packet == seen {
            String::new()
        } else {
            format!(", as {}", hook.packet)
        };
        seen.clone_from(&hook.packet);
        let head = format!(
            "{} ({}), ct state {}{by}{as_now}",
            hook.hook, hook.stage, hook.state
        );
        line(2, &format!("{HEADING}{head}{HEADING:#}"));
        for step in &hook.steps {
            line(4, &format!("{FAINT}{step}{FAINT:#}"));
        }
    }
    match (&packet.after, &packet.before) {
        (Some(now), Some(before)) if now.state == before.state => {}
        (Some(now), before) => {
            let edge = match before {
                Some(before) => format!("connection goes from {} to {}", before.state, now.state),
                None => format!("connection begins: {}, {}", now.original, now.state),
            };
            let end = output::duration(u64::from(now.expires_ms) * 1_000_000);
            line(
                2,
                &format!(
                    "{edge}; replies are {}; ends without packets in {end}",
                    now.reply
                ),
            );
        }
        (None, Some(_)) => line(2, "connection ends"),
        (None, None) => {}
    }
    for sent in &packet.sent {
        line(2, &format!("the node sends {sent}"));
    }
    let end = match (&packet.leaves_as, &packet.drop_reason) {
        (Some(now), _) if *now == packet.packet => format!("{GOOD}accept{GOOD:#}"),
        (Some(now), _) => format!("{GOOD}accept{GOOD:#}, leaves as {now}"),
        (None, Some(reason)) => format!("{BAD}drop{BAD:#} ({reason})"),
        (None, None) => packet.fate.clone(),
    };
    line(2, &end);
    out
}
