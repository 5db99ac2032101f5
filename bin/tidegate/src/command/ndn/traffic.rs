//! `traffic`: load for a forwarder.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::json;
use wire::ndn::lp::LpHeader;
use wire::ndn::{Data, DataFields, DigestSigner, Interest, InterestFields};

use super::args::{TrafficClient, TrafficServer};
use super::client::{Connection, encode};
use super::no_data;
use super::serve;
use crate::cli::Global;
use crate::exit::Failure;
use crate::output;

/// Answers between two looks at the clock.
const LOOK: u64 = 64;

/// An Interest in flight.
struct Asked {
    number: u64,
    sent: Instant,
}

pub(super) fn client(
    global: &Global,
    client: &mut Connection,
    args: &TrafficClient,
) -> Result<(), Failure> {
    let timeout = Duration::from_millis(args.timeout);
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(args.seconds.clamp(0.01, 86_400.0));
    let window = args.window.max(1);
    let names = args.names.max(1);
    // By number, modulo twice the window: answers may overtake each other.
    let slots = (2 * window).next_power_of_two();
    let mut asked: Vec<Option<Asked>> = (0..slots).map(|_| None).collect();
    let mut order: VecDeque<u64> = VecDeque::new();
    let (mut in_flight, mut next) = (0_usize, 0_u64);
    let (mut answered, mut nacks, mut timeouts, mut bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut rtts: Vec<u32> = Vec::new();
    loop {
        let now = Instant::now();
        if now >= end {
            break;
        }
        while in_flight < window {
            let slot = next as usize % slots;
            if asked[slot].is_some() {
                break;
            }
            let number = args.first + next % names;
            let name = args.prefix.with_generic(number.to_string().as_bytes());
            let fields = InterestFields {
                lifetime_ms: Some(args.timeout),
                ..InterestFields::new(name.as_ref())
            };
            let packet = encode(&fields, &mut client.rng, None::<&DigestSigner>)?;
            client.queue(&LpHeader::default(), &packet)?;
            asked[slot] = Some(Asked { number, sent: now });
            order.push_back(next);
            in_flight += 1;
            next += 1;
        }
        client.flush()?;
        let deadline = (now + timeout).min(end);
        let Some(first) = client.receive(Some(deadline))? else {
            // All that is old is lost.
            while let Some(&oldest) = order.front() {
                let slot = oldest as usize % slots;
                if asked[slot]
                    .as_ref()
                    .is_some_and(|a| a.sent.elapsed() < timeout)
                {
                    break;
                }
                order.pop_front();
                if asked[slot].take().is_some() {
                    timeouts += 1;
                    in_flight -= 1;
                }
            }
            continue;
        };
        let mut received = Some(first);
        while let Some(packet) = received.take() {
            let (name, is_nack) = match packet.nack {
                Some(_) => (Interest::parse(&packet.packet).ok().map(|i| i.name), true),
                None => (Data::parse(&packet.packet).ok().map(|d| d.name), false),
            };
            let last = name.and_then(|name| name.last());
            let number = last
                .and_then(|last| std::str::from_utf8(last.value).ok())
                .and_then(|text| text.parse::<u64>().ok());
            let found = number.and_then(|number| {
                order.iter().position(|&sent| {
                    asked[sent as usize % slots]
                        .as_ref()
                        .is_some_and(|asked| asked.number == number)
                })
            });
            if let Some(found) = found {
                let sent = order[found];
                // What came in order, as nearly all does, is at the front.
                order.remove(found);
                if let Some(asked) = asked[sent as usize % slots].take() {
                    in_flight -= 1;
                    if is_nack {
                        nacks += 1;
                    } else {
                        answered += 1;
                        bytes += packet.packet.len() as u64;
                        if answered % LOOK == 0 {
                            rtts.push(asked.sent.elapsed().as_micros() as u32);
                        }
                    }
                }
            }
            if client.has_packet() {
                received = client.receive(None)?;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    rtts.sort_unstable();
    let at = |share| super::quantile(&rtts, share);
    let rate = answered as f64 / seconds;
    if global.json {
        output::print_json(&json!({
            "seconds": seconds,
            "interests": next,
            "data": answered,
            "nacks": nacks,
            "timeouts": timeouts,
            "exchanges_per_s": rate,
            "data_bps": bytes as f64 * 8.0 / seconds,
            "rtt_us": {"p50": at(0.5), "p99": at(0.99)},
        }))?;
    } else {
        output::print(&format!(
            "{next} Interests, {answered} Data, {nacks} Nacks, {timeouts} without answer in {seconds:.2} s\n\
             {} exchanges/s, {}, round trip p50 {} us, p99 {} us\n",
            output::si(rate),
            output::bits_per_second(bytes as f64 / seconds),
            at(0.5),
            at(0.99),
        ))?;
    }
    if answered == 0 {
        return Err(no_data(args.prefix.as_ref(), "no Interest was answered"));
    }
    Ok(())
}

pub(super) fn server(client: &mut Connection, args: &TrafficServer) -> Result<(), Failure> {
    client.register(&args.prefix)?;
    eprintln!("answering {}", args.prefix.as_ref());
    let seconds = args.seconds.map(Duration::from_secs_f64);
    let end = seconds.map(|seconds| Instant::now() + seconds);
    let content = vec![b'a'; args.size];
    loop {
        if !client.has_packet() {
            client.flush()?;
        }
        let Some(received) = client.receive(end)? else {
            return Ok(());
        };
        if end.is_some_and(|end| Instant::now() >= end) {
            return client.flush();
        }
        let Ok(interest) = Interest::parse(&received.packet) else {
            continue;
        };
        if received.nack.is_some() || !args.prefix.as_ref().is_prefix_of(&interest.name) {
            continue;
        }
        let (stem, _) = interest.name.split_implicit_digest();
        let packet = serve::encode(&DataFields {
            freshness_ms: args.freshness,
            ..DataFields::new(stem, &content)
        })?;
        client.answer(&received, &packet)?;
    }
}
