//! Echo requests by the kernel's ping socket (no privilege: `net.ipv4.ping_group_range`).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::{Line, tell};

/// Bytes after the ICMP header, as the system's `ping` sends.
const PAYLOAD_BYTES: usize = 56;
const ECHO_HEADER_BYTES: usize = 8;

/// Sends `count` requests, one every `interval`, and reports each answer's round trip.
pub(super) fn run(to: IpAddr, interval: Duration, count: u16) -> anyhow::Result<()> {
    let (family, protocol, request) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, net::ipproto::ICMP, 8),
        IpAddr::V6(_) => (AddressFamily::INET6, net::ipproto::ICMPV6, 128),
    };
    let socket = net::socket_with(
        family,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(protocol),
    )
    .context("cannot open a ping socket")?;
    net::connect(&socket, &SocketAddr::new(to, 0))?;
    for sequence in 1..=count {
        let mut packet = [0; ECHO_HEADER_BYTES + PAYLOAD_BYTES];
        packet[0] = request; // the kernel fills in identifier and checksum
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        let sent = Instant::now();
        let next = sent + interval;
        net::send(&socket, &packet, net::SendFlags::empty())?;
        while let Some(left) = next
            .checked_duration_since(Instant::now())
            .filter(|d| !d.is_zero())
        {
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(left))?;
            let mut answer = [0; 128];
            match net::recv(&socket, &mut answer[..], net::RecvFlags::empty()) {
                Ok((_, length)) if length >= ECHO_HEADER_BYTES && answer[6..8] == packet[6..8] => {
                    let rtt_ns = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    tell(Line::Echo { rtt_ns })?;
                    // a precise timer: a socket's timeout would end with the system's tick
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                // answers that came late, and times without one
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
