//! `ping` and `pingserver`, as ndnping and ndnpingserver speak: PREFIX/ping/NUMBER.

use std::time::{Duration, Instant};

use serde_json::json;
use wire::ndn::lp::NackReason;
use wire::ndn::{DataFields, Interest, InterestFields};

use super::args::{Ping, Pingserver};
use super::client::{Connection, Outcome};
use super::no_data;
use super::serve::encode;
use crate::cli::Global;
use crate::exit::Failure;
use crate::output;

/// What came of the pings.
#[derive(Debug, Default)]
struct Summary {
    sent: u64,
    nacks: u64,
    timeouts: u64,
    /// Round-trip times (us), as they came.
    rtts: Vec<u64>,
}

pub(super) fn ping(global: &Global, client: &mut Connection, args: &Ping) -> Result<(), Failure> {
    let prefix = args.prefix.with_generic(b"ping");
    let mut number = match args.start {
        Some(start) => start,
        None => client.rng.next_u64() >> 1,
    };
    let mut summary = Summary::default();
    let is_talking = !args.quiet && !global.json;
    while args.count.is_none_or(|count| summary.sent < count) {
        if summary.sent > 0 {
            std::thread::sleep(Duration::from_millis(args.interval));
        }
        summary.sent += 1;
        let name = prefix.with_generic(number.to_string().as_bytes());
        let fields = InterestFields {
            must_be_fresh: true,
            lifetime_ms: Some(args.timeout),
            ..InterestFields::new(name.as_ref())
        };
        let start = Instant::now();
        let line = match client.express(&fields)? {
            Outcome::Data(_) => {
                let us = start.elapsed().as_micros() as u64;
                summary.rtts.push(us);
                format!("{number}: {}.{:03} ms", us / 1000, us % 1000)
            }
            Outcome::Nack(reason) => {
                summary.nacks += 1;
                format!("{number}: Nack {}", text(reason))
            }
            Outcome::Timeout => {
                summary.timeouts += 1;
                format!("{number}: no answer")
            }
        };
        if is_talking {
            output::print(&format!("{line}\n"))?;
        }
        number = number.wrapping_add(1);
    }
    report(global, &args.prefix.as_ref().to_string(), &mut summary)
}

const fn text(reason: NackReason) -> &'static str {
    match reason {
        NackReason::Congestion => "congestion",
        NackReason::Duplicate => "duplicate",
        NackReason::NoRoute => "no route",
        _ => "without a reason",
    }
}

fn report(global: &Global, prefix: &str, summary: &mut Summary) -> Result<(), Failure> {
    let rtts = &mut summary.rtts;
    rtts.sort_unstable();
    let at = |share| super::quantile(rtts, share);
    let mean = rtts.iter().sum::<u64>() / (rtts.len() as u64).max(1);
    let (min, p50, p99, max) = (at(0.0), at(0.5), at(0.99), at(1.0));
    if global.json {
        output::print_json(&json!({
            "prefix": prefix,
            "sent": summary.sent,
            "received": rtts.len(),
            "nacks": summary.nacks,
            "timeouts": summary.timeouts,
            "rtt_us": {"min": min, "mean": mean, "p50": p50, "p99": p99, "max": max},
        }))?;
    } else {
        output::print(&format!(
            "{prefix}: {} sent, {} answered, {} Nacks, {} without answer\n\
             round trip min {min} us, mean {mean} us, p50 {p50} us, p99 {p99} us, max {max} us\n",
            summary.sent,
            rtts.len(),
            summary.nacks,
            summary.timeouts,
        ))?;
    }
    if summary.sent > 0 && rtts.is_empty() {
        return Err(no_data(prefix, "no ping was answered"));
    }
    Ok(())
}

pub(super) fn server(client: &mut Connection, args: &Pingserver) -> Result<(), Failure> {
    let prefix = args.prefix.with_generic(b"ping");
    client.register(&prefix)?;
    eprintln!("answering {}", prefix.as_ref());
    let content = vec![b'a'; args.size];
    let mut answered = 0;
    while args.satisfy.is_none_or(|satisfy| answered < satisfy) {
        if !client.has_packet() {
            client.flush()?;
        }
        let Some(received) = client.receive(None)? else {
            continue;
        };
        let Ok(interest) = Interest::parse(&received.packet) else {
            continue;
        };
        if received.nack.is_some() || !prefix.as_ref().is_prefix_of(&interest.name) {
            continue;
        }
        let (stem, _) = interest.name.split_implicit_digest();
        let packet = encode(&DataFields {
            freshness_ms: args.freshness,
            ..DataFields::new(stem, &content)
        })?;
        client.answer(&received, &packet)?;
        answered += 1;
    }
    client.flush()
}
