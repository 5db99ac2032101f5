//! A stream of numbered datagrams over the kernel's UDP.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Line, tell};

const PROGRESS: Duration = Duration::from_millis(100);
/// Bytes of the number that a datagram starts with.
const NUMBER_BYTES: usize = 8;

/// Counts datagrams until it is killed; number 0 starts a new stream.
pub(super) fn sink(listen: SocketAddr) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    // a scheduling pause of the receiver is not the node's loss
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20)
        .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8 << 20));
    socket.set_read_timeout(Some(PROGRESS))?;
    tell(Line::Ready)?;
    let mut count = Count::default();
    let mut told = Count::default();
    let mut next = Instant::now();
    let mut buffer = [0; 2048];
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => count.add(&buffer[..length]),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionRefused => {}
                _ => return Err(error.into()),
            },
        }
        let now = Instant::now();
        if count != told && now >= next {
            tell(Line::Received {
                pkts: count.pkts,
                reordered_pkts: count.reordered_pkts,
            })?;
            told = count;
            next = now + PROGRESS;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    pkts: u64,
    reordered_pkts: u64,
    highest: u64,
}

impl Count {
    fn add(&mut self, datagram: &[u8]) {
        let Some(number) = datagram.first_chunk::<NUMBER_BYTES>() else {
            return;
        };
        let number = u64::from_be_bytes(*number);
        if number == 0 {
            *self = Self::default();
        }
        self.pkts += 1;
        if number < self.highest {
            self.reordered_pkts += 1;
        }
        self.highest = self.highest.max(number);
    }
}

/// Sends `rate` datagrams a second for `time` and reports how many were sent.
pub(super) fn source(
    to: SocketAddr,
    rate: u32,
    time: Duration,
    size: u16,
    ttl: u32,
) -> anyhow::Result<()> {
    let any: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_ttl(ttl)?;
    let mut datagram = vec![0; usize::from(size).max(NUMBER_BYTES)];
    let start = Instant::now();
    let mut told = start;
    let mut sent = 0_u64;
    loop {
        let elapsed = start.elapsed().min(time);
        let due = (elapsed.as_secs_f64() * f64::from(rate)) as u64;
        while sent < due {
            datagram[..NUMBER_BYTES].copy_from_slice(&sent.to_be_bytes());
            match socket.send_to(&datagram, to) {
                Ok(_) => sent += 1,
                // the kernel reports an ICMP error of an earlier datagram; this one was not sent
                Err(error) if is_answer(&error) => {}
                Err(error) => return Err(error).context(format!("cannot send to {to}")),
            }
        }
        if elapsed == time {
            break;
        }
        if told.elapsed() >= PROGRESS {
            tell(Line::Sent { pkts: sent })?;
            told = Instant::now();
        }
        thread::sleep(Duration::from_micros(200));
    }
    tell(Line::Sent { pkts: sent })?;
    Ok(())
}

fn is_answer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_sees_loss_and_reordering() {
        let mut count = Count::default();
        for number in [0_u64, 1, 3, 2, 5] {
            count.add(&number.to_be_bytes());
        }
        count.add(b"short");
        assert_eq!((count.pkts, count.reordered_pkts, count.highest), (5, 1, 5));
        count.add(&0_u64.to_be_bytes());
        assert_eq!((count.pkts, count.reordered_pkts), (1, 0), "a new stream");
    }
}
