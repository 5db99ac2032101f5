//! `tidegate session ls|events|rm`: the connections that the firewall tracks.

use std::collections::BTreeMap;

use control::api::{
    Event, SessionChange, SessionFilter, SessionInfo, SessionRequest, SessionTuple,
};
use control::socket::Client;
use serde_json::json;

use crate::cli::{Global, PROTOCOLS, Session, SessionMatch};
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) fn run(global: &Global, what: &Session) -> Result<(), Failure> {
    match what {
        Session::Ls(args) if args.count => count(global, filter(&args.which)),
        Session::Ls(args) => list(global, filter(&args.which)),
        Session::Events(which) => events(global, filter(which)),
        Session::Rm(args) => {
            let filter = filter(&args.which);
            if filter == SessionFilter::default() && !args.all {
                return Err(Failure::message(Exit::Usage, "no connection is named")
                    .remedy("narrow by an option such as `--src`, or write `--all`"));
            }
            let ended = Client::connect(&global.socket)?.end_sessions(filter)?;
            if global.json {
                return output::print_json(&json!({ "ended": ended }));
            }
            output::print(&format!("{ended} connections ended\n"))
        }
    }
}

fn filter(which: &SessionMatch) -> SessionFilter {
    SessionFilter {
        protocol: which.protocol,
        source: which.source,
        destination: which.destination,
        address: which.address,
        source_port: which.source_port,
        destination_port: which.destination_port,
        port: which.port,
        state: which.state.clone(),
        mark: which.mark,
        zone: which.zone,
        translated: which.nat,
    }
}

/// Asks for page after page; returns how many match and how many there are.
fn pages(
    global: &Global,
    filter: SessionFilter,
    mut show: impl FnMut(Vec<SessionInfo>) -> Result<(), Failure>,
) -> Result<(u64, u64), Failure> {
    let mut client = Client::connect(&global.socket)?;
    let (mut request, mut matched, mut seen) = (
        SessionRequest {
            filter,
            ..SessionRequest::default()
        },
        0,
        0,
    );
    loop {
        let page = client.sessions(request.clone())?;
        matched += page.matched;
        seen += page.seen;
        show(page.sessions)?;
        match page.next {
            Some(next) => request.place = next,
            None => return Ok((matched, seen)),
        }
    }
}

fn list(global: &Global, filter: SessionFilter) -> Result<(), Failure> {
    let mut all = Vec::new();
    let (matched, seen) = pages(global, filter, |page| {
        if global.json {
            all.extend(page);
            return Ok(());
        }
        let text: String = page.iter().map(|session| line(session) + "\n").collect();
        output::print(&text)
    })?;
    if global.json {
        return output::print_json(&json!({
            "sessions": all, "matched": matched, "total": seen
        }));
    }
    output::print(&format!("{matched} of {seen} connections\n"))
}

fn count(global: &Global, filter: SessionFilter) -> Result<(), Failure> {
    let mut kinds = BTreeMap::<(String, String), u64>::new();
    let (matched, seen) = pages(global, filter, |page| {
        for session in page {
            let kind = (
                protocol_name(session.protocol),
                state_of(&session).to_owned(),
            );
            *kinds.entry(kind).or_default() += 1;
        }
        Ok(())
    })?;
    if global.json {
        let kinds: Vec<_> = kinds
            .into_iter()
            .map(|((protocol, state), count)| {
                json!({ "protocol": protocol, "state": state, "count": count })
            })
            .collect();
        return output::print_json(&json!({
            "matched": matched, "total": seen, "by_state": kinds
        }));
    }
    let mut table = output::Table::new(&["protocol", "state", ">connections"]);
    for ((protocol, state), count) in kinds {
        table.row([protocol, state, count.to_string()]);
    }
    output::print(&format!(
        "{}{matched} of {seen} connections\n",
        table.render(0)
    ))
}

fn events(global: &Global, filter: SessionFilter) -> Result<(), Failure> {
    for event in Client::connect(&global.socket)?.session_events(filter)? {
        match event? {
            Event::Session(event) if global.json => output::print_json(&event)?,
            Event::Session(event) => {
                let change = match event.change {
                    SessionChange::New => "NEW",
                    SessionChange::Destroy => "DESTROY",
                };
                let at = event.at.strftime("%FT%T%.3fZ");
                output::print(&format!("{at} {change:>9} {}\n", line(&event.session)))?;
            }
            Event::Lost(lost) if global.json => output::print_json(&json!({ "lost": lost }))?,
            Event::Lost(lost) => output::print(&format!("({lost} events lost)\n"))?,
            Event::Stats(_) | Event::Reloaded { .. } | Event::Stopping { .. } => {}
        }
    }
    Ok(())
}

fn protocol_name(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| format!("{number}"), |(name, _)| (*name).to_owned())
}

/// The state of TCP; of others, whether packets came back.
fn state_of(session: &SessionInfo) -> &str {
    match (&session.state, session.answered) {
        (Some(state), _) => state,
        (None, true) => "REPLIED",
        (None, false) => "UNREPLIED",
    }
}

/// One connection as `conntrack -L` writes it.
fn line(session: &SessionInfo) -> String {
    let name = protocol_name(session.protocol);
    let mut out = format!(
        "{name:<8} {} {}",
        session.protocol,
        session.expires_ms / 1000
    );
    if let Some(state) = &session.state {
        out.push_str(&format!(" {state}"));
    }
    out.push_str(&tuple(&session.original, session.protocol));
    if !session.answered {
        out.push_str(" [UNREPLIED]");
    }
    out.push_str(&tuple(&session.reply, session.protocol));
    if session.assured {
        out.push_str(" [ASSURED]");
    }
    if session.expected {
        out.push_str(" [RELATED]");
    }
    if session.mark != 0 {
        out.push_str(&format!(" mark={}", session.mark));
    }
    if session.zone != 0 {
        out.push_str(&format!(" zone={}", session.zone));
    }
    if let Some(helper) = &session.helper {
        out.push_str(&format!(" helper={helper}"));
    }
    out
}

fn tuple(tuple: &SessionTuple, protocol: u8) -> String {
    let addresses = format!(" src={} dst={}", tuple.source, tuple.destination);
    match protocol {
        1 | 58 => format!("{addresses} id={}", tuple.source_port),
        6 | 17 | 33 | 132 => format!(
            "{addresses} sport={} dport={}",
            tuple.source_port, tuple.destination_port
        ),
        _ => addresses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_like_conntrack() {
        let mut session = SessionInfo {
            protocol: 6,
            original: SessionTuple {
                source: [10, 0, 0, 1].into(),
                destination: [192, 0, 2, 9].into(),
                source_port: 40_000,
                destination_port: 80,
            },
            reply: SessionTuple {
                source: [192, 0, 2, 9].into(),
                destination: [203, 0, 113, 1].into(),
                source_port: 80,
                destination_port: 1024,
            },
            state: Some("ESTABLISHED".into()),
            answered: true,
            assured: true,
            snat: true,
            dnat: false,
            expected: true,
            helper: Some("ftp".into()),
            mark: 5,
            zone: 0,
            expires_ms: 7_439_900,
        };
        assert_eq!(
            line(&session),
            "tcp      6 7439 ESTABLISHED src=10.0.0.1 dst=192.0.2.9 sport=40000 dport=80 \
             src=192.0.2.9 dst=203.0.113.1 sport=80 dport=1024 [ASSURED] [RELATED] mark=5 helper=ftp"
        );
        session.protocol = 1;
        session.state = None;
        (session.expected, session.helper) = (false, None);
        (session.answered, session.assured, session.mark) = (false, false, 0);
        assert_eq!(
            line(&session),
            "icmp     1 7439 src=10.0.0.1 dst=192.0.2.9 id=40000 [UNREPLIED] \
             src=192.0.2.9 dst=203.0.113.1 id=80"
        );
    }
}
