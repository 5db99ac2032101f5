//! The programs whose packets cross the node in the demo. Each is a child process inside a namespace
//! and uses nothing but the kernel's own sockets, so that the demo needs no installed program.
//!
//! They report on stdout, a line at a time, as [`Line`] in JSON; ping also understands the words of
//! the system's `ping`.

mod http;
mod ping;
mod syn;
mod udp;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// The first argument that makes `tidegate` one of the demo's programs. It stands outside the command
/// line's definition: no help, no completion.
pub(super) const WORD: &str = "demo-program";

/// A program of the demo.
#[derive(Clone, Debug, Parser)]
#[command(name = WORD)]
pub(crate) enum Program {
    /// Sends echo requests and prints round trips.
    Ping {
        /// Whom to ask.
        to: IpAddr,
        /// Milliseconds between requests.
        #[arg(long, default_value_t = 100)]
        interval_ms: u64,
        /// Requests to send.
        #[arg(long, default_value_t = 10)]
        count: u16,
    },
    /// Serves `GET /<bytes>`.
    HttpServer {
        /// Where.
        listen: SocketAddr,
    },
    /// Downloads for a time and checks every byte.
    HttpClient {
        /// From where.
        from: SocketAddr,
        /// For how long, milliseconds.
        #[arg(long)]
        ms: u64,
    },
    /// Counts numbered datagrams.
    UdpSink {
        /// Where.
        listen: SocketAddr,
    },
    /// Sends numbered datagrams at a rate.
    UdpSource {
        /// To where.
        to: SocketAddr,
        /// Datagrams a second.
        #[arg(long)]
        rate: u32,
        /// For how long, milliseconds.
        #[arg(long)]
        ms: u64,
        /// Bytes of a datagram's payload.
        #[arg(long, default_value_t = 200)]
        size: u16,
        /// TTL of the packets.
        #[arg(long, default_value_t = 64)]
        ttl: u32,
    },
    /// Sends SYNs that nobody asked for.
    SynSource {
        /// The interface to send by.
        device: String,
        /// The victim.
        to: Ipv4Addr,
        /// The Ethernet address of the router, 12 hexadecimal digits.
        #[arg(long)]
        router: String,
        /// The sender; without it, another forged one each time.
        #[arg(long)]
        from: Option<Ipv4Addr>,
        /// The port; without it, another one each time.
        #[arg(long)]
        port: Option<u16>,
        /// SYNs a second.
        #[arg(long)]
        rate: u32,
        /// For how long, milliseconds.
        #[arg(long)]
        ms: u64,
    },
}

/// What a program reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(crate) enum Line {
    /// A server listens.
    Ready,
    /// An answer to an echo request came.
    Echo {
        /// Round trip.
        rtt_ns: u64,
    },
    /// Bytes downloaded so far, all of them as they should be.
    Downloaded {
        /// Since the start.
        bytes: u64,
    },
    /// Datagrams sent so far.
    Sent {
        /// Since the start.
        pkts: u64,
    },
    /// Datagrams received of the present stream so far.
    Received {
        /// Since the stream's start.
        pkts: u64,
        /// Of these, out of order.
        reordered_pkts: u64,
    },
}

/// Tells which program of the demo the arguments ask for, if any.
pub(crate) fn asked_for() -> Option<Program> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    (arguments.peek()? == WORD).then(|| Program::parse_from(arguments))
}

impl Program {
    /// Runs the program.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match *self {
            Self::SynSource {
                ref device,
                to,
                ref router,
                from,
                port,
                rate,
                ms,
            } => syn::send(&syn::Syns {
                device,
                router: mac(router).context("`--router` is not an Ethernet address")?,
                from,
                to,
                port,
                rate,
                time: Duration::from_millis(ms),
            }),
            Self::Ping {
                to,
                interval_ms,
                count,
            } => ping::run(to, Duration::from_millis(interval_ms), count),
            Self::HttpServer { listen } => http::serve(listen),
            Self::HttpClient { from, ms } => http::download(from, Duration::from_millis(ms)),
            Self::UdpSink { listen } => udp::sink(listen),
            Self::UdpSource {
                to,
                rate,
                ms,
                size,
                ttl,
            } => udp::source(to, rate, Duration::from_millis(ms), size, ttl),
        }
        .map_err(Failure::from)
    }
}

/// Reads twelve hexadecimal digits.
fn mac(text: &str) -> Option<[u8; 6]> {
    let bits = u64::from_str_radix(text, 16).ok()?;
    bits.to_be_bytes().last_chunk().copied()
}

/// Reports a line; an error means that the demo has gone.
fn tell(line: Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(&line)?;
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text)?;
    stdout.flush()
}

/// Reads a line of any of the programs, or of the system's `ping`.
pub(crate) fn parse(text: &str) -> Option<Line> {
    if let Ok(line) = serde_json::from_str(text) {
        return Some(line);
    }
    let (_, time) = text.split_once("time=")?;
    let (number, unit) = time.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    let ns_per_unit = match unit.trim() {
        "ms" => 1e6,
        "s" | "sec" => 1e9,
        _ => return None,
    };
    Some(Line::Echo {
        rtt_ns: (number * ns_per_unit) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_ping_is_understood() {
        let text = "64 bytes from 10.2.0.2: icmp_seq=3 ttl=63 time=0.125 ms";
        assert_eq!(parse(text), Some(Line::Echo { rtt_ns: 125_000 }));
        assert_eq!(
            parse("PING 10.2.0.2 (10.2.0.2) 56(84) bytes of data."),
            None
        );
        assert_eq!(parse("rtt min/avg/max/mdev = 0.1/0.1/0.1/0.0 ms"), None);
        let line = Line::Downloaded { bytes: 7 };
        assert_eq!(parse(&serde_json::to_string(&line).unwrap()), Some(line));
    }
}
