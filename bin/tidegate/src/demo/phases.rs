//! The parts of the demo: one kind of traffic for a while.

use std::time::{Duration, Instant};

use control::api::{DemoPhase, DemoResult, StateTimes, Stats};

use super::actors::Actor;
use super::programs::Line;
use super::screen::Screen;
use super::stage::Stage;
use crate::exit::Failure;

/// How long a program may take to end after its time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at what the programs report.
const TICK: Duration = Duration::from_millis(100);
const PING_INTERVAL: Duration = Duration::from_millis(100);
/// Datagrams a second of the stream, fewer where the node is not optimised, and of the strays.
const STREAM_RATE: u32 = if cfg!(debug_assertions) { 5000 } else { 20_000 };
const STRAY_RATE: u32 = 400;
/// SYNs a second of the scan and of the flood.
const SCAN_RATE: u32 = 2000;
const FLOOD_RATE: u32 = STREAM_RATE;

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is sent.
    Quiet,
    /// Echo requests at a slow pace.
    Ping,
    /// The same over IPv6.
    Ping6,
    /// A TCP download at full speed.
    Download,
    /// UDP at a steady rate.
    Stream,
    /// What no router may deliver.
    Strays,
    /// A port scan from outside.
    Scan,
    /// A SYN flood from outside, beside a download.
    Flood,
}

/// The parts, in order.
const ALL: [Phase; 9] = [
    Phase::Quiet,
    Phase::Ping,
    Phase::Ping6,
    Phase::Download,
    Phase::Stream,
    Phase::Strays,
    Phase::Scan,
    Phase::Flood,
    Phase::Quiet,
];

/// Returns the parts, in order; those over IPv6 only where there is IPv6.
pub(super) fn all(v6: bool) -> impl Iterator<Item = Phase> {
    ALL.into_iter()
        .filter(move |&phase| v6 || phase != Phase::Ping6)
}

/// Returns how long all parts take, unscaled.
pub(super) fn total(v6: bool) -> Duration {
    all(v6).map(Phase::length).sum()
}

impl Phase {
    /// Returns the name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Ping => "ping",
            Self::Ping6 => "ping6",
            Self::Download => "download",
            Self::Stream => "stream",
            Self::Strays => "strays",
            Self::Scan => "scan",
            Self::Flood => "flood",
        }
    }

    /// Says what it shows.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Quiet => "nobody sends: the worker sleeps until an interrupt",
            Self::Ping => "the client pings the server ten times a second",
            Self::Ping6 => "the same over IPv6, with neighbour discovery",
            Self::Download => {
                "the client downloads by HTTP over TCP, masqueraded, as fast as it can"
            }
            Self::Stream if cfg!(debug_assertions) => {
                "the client sends 5,000 UDP datagrams a second"
            }
            Self::Stream => "the client sends 20,000 UDP datagrams a second",
            Self::Strays => "packets without a route, and packets whose TTL runs out",
            Self::Scan => "an address outside tries the client's ports",
            Self::Flood => "forged SYNs from outside, while the client downloads",
        }
    }

    const fn length(self) -> Duration {
        Duration::from_millis(match self {
            Self::Quiet | Self::Ping | Self::Ping6 => 1000,
            Self::Download | Self::Stream => 1500,
            Self::Strays | Self::Scan => 500,
            Self::Flood => 1000,
        })
    }
}

/// Performs one part; `None` where a key or a signal cut it short.
pub(super) fn perform(
    phase: Phase,
    scale: f64,
    stage: &mut Stage,
    screen: &mut Screen,
) -> Result<Option<DemoPhase>, Failure> {
    let length = phase.length().mul_f64(scale);
    screen.phase_begins(phase);
    let before = stage.stats();
    let start = Instant::now();
    let mut actors = match phase {
        Phase::Quiet => Vec::new(),
        Phase::Ping | Phase::Ping6 => {
            let v6 = phase == Phase::Ping6;
            let count = length.as_millis() / PING_INTERVAL.as_millis();
            vec![stage.ping(v6, PING_INTERVAL, u16::try_from(count).unwrap_or(u16::MAX))?]
        }
        Phase::Download => vec![stage.download(length)?],
        Phase::Stream => vec![stage.stream(STREAM_RATE, length)?],
        Phase::Strays => vec![
            stage.strays(STRAY_RATE, length)?,
            stage.short_lived(STRAY_RATE, length)?,
        ],
        Phase::Scan => vec![stage.scan(SCAN_RATE, length)?],
        Phase::Flood => vec![stage.flood(FLOOD_RATE, length)?, stage.download(length)?],
    };
    while start.elapsed() < length && !screen.wants_to_end() {
        screen.tick(
            TICK.min(length.saturating_sub(start.elapsed())),
            &stage.stats(),
        )?;
    }
    if screen.wants_to_end() {
        return Ok(None);
    }
    let mut lines = Vec::new();
    for actor in &mut actors {
        lines.push(actor.finish(PATIENCE)?);
    }
    let result = match phase {
        Phase::Quiet => DemoResult::Quiet,
        Phase::Ping | Phase::Ping6 => echoes(&lines),
        Phase::Download => download(&lines),
        Phase::Stream => stream(&lines, received(stage.sink())),
        Phase::Strays => DemoResult::Strays {
            sent_pkts: sent(&lines),
        },
        Phase::Scan => DemoResult::Scan {
            sent_pkts: sent(&lines),
            stopped_pkts: 0,
        },
        Phase::Flood => DemoResult::Flood {
            sent_pkts: sent(&lines),
            stopped_pkts: 0,
            bytes: downloaded(&lines),
        },
    };
    let after = match phase {
        Phase::Quiet => stage.stats(),
        // The last packets, and what the node told about them, may be on their way.
        _ => {
            std::thread::sleep(TICK);
            stage.stats()
        }
    };
    let stopped_pkts = stopped(&after).saturating_sub(stopped(&before));
    let result = match result {
        DemoResult::Scan { sent_pkts, .. } => DemoResult::Scan {
            sent_pkts,
            stopped_pkts,
        },
        DemoResult::Flood {
            sent_pkts, bytes, ..
        } => DemoResult::Flood {
            sent_pkts,
            stopped_pkts,
            bytes,
        },
        other => other,
    };
    Ok(Some(measure(phase, &before, &after, result)))
}

fn echoes(lines: &[Vec<Line>]) -> DemoResult {
    let mut rtts: Vec<u64> = lines
        .iter()
        .flatten()
        .filter_map(|line| match line {
            Line::Echo { rtt_ns } => Some(*rtt_ns),
            _ => None,
        })
        .collect();
    rtts.sort_unstable();
    DemoResult::Ping {
        answered: rtts.len() as u64,
        rtt_p50_ns: rtts.get(rtts.len() / 2).copied().unwrap_or(0),
        rtt_max_ns: rtts.last().copied().unwrap_or(0),
    }
}

fn download(lines: &[Vec<Line>]) -> DemoResult {
    DemoResult::Download {
        bytes: downloaded(lines),
    }
}

/// Packets that the firewall's rules or its guard have dropped.
fn stopped(stats: &Stats) -> u64 {
    let drops = stats.drops.iter();
    drops
        .filter(|drop| drop.reason.starts_with("guard_") || drop.reason == "firewall_rule")
        .map(|drop| drop.pkts)
        .sum()
}

fn downloaded(lines: &[Vec<Line>]) -> u64 {
    let bytes = lines.iter().flatten().filter_map(|line| match line {
        Line::Downloaded { bytes } => Some(*bytes),
        _ => None,
    });
    bytes.max().unwrap_or(0)
}

/// Sums the last count of each sender.
fn sent(lines: &[Vec<Line>]) -> u64 {
    let of = |lines: &Vec<Line>| {
        lines.iter().rev().find_map(|line| match line {
            Line::Sent { pkts } => Some(*pkts),
            _ => None,
        })
    };
    lines.iter().filter_map(of).sum()
}

/// Waits until the sink has nothing new to report, and returns its last report.
fn received(sink: &mut Actor) -> (u64, u64) {
    let mut last = (0, 0);
    let mut quiet = 0;
    while quiet < 3 {
        std::thread::sleep(TICK);
        quiet += 1;
        while let Some(line) = sink.next_line() {
            if let Line::Received {
                pkts,
                reordered_pkts,
            } = line
            {
                last = (pkts, reordered_pkts);
                quiet = 0;
            }
        }
    }
    last
}

fn stream(lines: &[Vec<Line>], (received_pkts, reordered_pkts): (u64, u64)) -> DemoResult {
    DemoResult::Stream {
        sent_pkts: sent(lines),
        received_pkts,
        reordered_pkts,
    }
}

fn measure(phase: Phase, before: &Stats, after: &Stats, result: DemoResult) -> DemoPhase {
    let grown = |count: &dyn Fn(&Stats) -> u64| count(after).saturating_sub(count(before));
    let ports = |of: fn(&control::api::PortCounters) -> u64| {
        grown(&|stats| stats.ports.iter().map(|port| of(&port.counters)).sum())
    };
    let workers = |of: fn(&control::api::WorkerInfo) -> u64| {
        grown(&|stats| stats.workers.iter().map(of).sum())
    };
    DemoPhase {
        name: phase.name().to_owned(),
        duration_ns: grown(&|stats| stats.node.uptime_ns),
        result,
        rx_pkts: ports(|port| port.rx_pkts),
        tx_pkts: ports(|port| port.tx_pkts),
        tx_bytes: ports(|port| port.tx_bytes),
        dropped_pkts: grown(&|stats| stats.drops.iter().map(|drop| drop.pkts).sum()),
        time: StateTimes {
            poll_ns: workers(|worker| worker.time.poll_ns),
            nap_ns: workers(|worker| worker.time.nap_ns),
            interrupt_ns: workers(|worker| worker.time.interrupt_ns),
        },
        cpu_ns: workers(|worker| worker.cpu_ns),
        wakeups: workers(|worker| {
            worker.wakeups_packet + worker.wakeups_timer + worker.wakeups_message
        }),
        flips: workers(|worker| worker.flips),
    }
}
