//! A sender of TCP SYNs that nobody asked for: a port scan from one address, or a flood from forged ones.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use io::af_packet::AfPacketSpec;
use io::port::{self, DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId};
use wire::tcp::{self, Flags};
use wire::{Addresses, ether_type, ip_protocol, ipv4};

use super::{Line, tell};

/// Ethernet, IPv4 and TCP headers without options.
const FRAME_BYTES: usize = 14 + ipv4::HEADER_BYTES + 20;
const STEP: Duration = Duration::from_millis(2);

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Syns<'a> {
    /// The interface to send by.
    pub(super) device: &'a str,
    /// The Ethernet address of the router.
    pub(super) router: [u8; 6],
    /// The sender; `None`: another one of 198.18.0.0/15 (RFC 2544) for each.
    pub(super) from: Option<Ipv4Addr>,
    /// The victim.
    pub(super) to: Ipv4Addr,
    /// Its port; `None`: another one for each.
    pub(super) port: Option<u16>,
    /// SYNs a second.
    pub(super) rate: u32,
    /// For how long.
    pub(super) time: Duration,
}

/// Sends, and reports how many were sent.
pub(super) fn send(what: &Syns<'_>) -> anyhow::Result<()> {
    let mut pool = Pool::new(1024, 2048, HugePages::Never)?;
    let driver = DriverSpec::AfPacket(AfPacketSpec::new(what.device));
    let spec = PortSpec::new(PortId(0), what.device, driver);
    let mut port = port::open(&spec, &Arc::clone(pool.region()), 1)
        .with_context(|| format!("cannot send on {}", what.device))?;
    let (mac, mut queue) = (port.mac, port.queues.remove(0));
    let (start, mut sent) = (Instant::now(), 0_u32);
    let mut batch = Batch::new();
    while start.elapsed() < what.time {
        let due = (start.elapsed().as_secs_f64() * f64::from(what.rate)) as u32;
        while sent < due && batch.len() < 64 {
            let Some(mut frame) = pool.alloc() else {
                break;
            };
            let bytes = syn(what, mac, sent).context("a SYN fits its frame")?;
            if !frame.fill(&bytes) || batch.push(frame).is_err() {
                break;
            }
            sent += 1;
        }
        queue.tx(&mut pool, &mut batch);
        if sent >= due {
            thread::sleep(STEP);
        }
    }
    tell(Line::Sent { pkts: sent.into() })?;
    pool.free_batch(&mut batch);
    Ok(())
}

/// Writes SYN number `n`.
fn syn(what: &Syns<'_>, mac: [u8; 6], n: u32) -> Option<[u8; FRAME_BYTES]> {
    // Spread, so that senders and ports do not come in order.
    let spread = n.wrapping_mul(0x9e37_79b1);
    let forged = Ipv4Addr::from_bits(0xc612_0000 | spread >> 15);
    let addresses = Addresses::V4 {
        source: what.from.unwrap_or(forged),
        destination: what.to,
    };
    let mut frame = [0; FRAME_BYTES];
    let (ethernet, packet) = frame.split_at_mut(14);
    ethernet[..6].copy_from_slice(&what.router);
    ethernet[6..12].copy_from_slice(&mac);
    ethernet[12..].copy_from_slice(&ether_type::IPV4.to_be_bytes());
    let Addresses::V4 {
        source,
        destination,
    } = addresses
    else {
        return None;
    };
    let (head, segment) = packet.split_at_mut(ipv4::HEADER_BYTES);
    let header = ipv4::Repr::new(source, destination, ip_protocol::TCP, segment.len() as u16);
    header.emit(head).ok()?;
    let repr = tcp::Repr {
        source_port: 1024 + (spread >> 17) as u16,
        destination_port: what.port.unwrap_or((1 + n % 1024) as u16),
        sequence: spread,
        acknowledgement: 0,
        flags: Flags::SYN,
        window: 64_240,
        urgent: 0,
        options: &[],
    };
    repr.emit(segment, &addresses).ok()?;
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syns_are_right_and_differ() {
        let what = Syns {
            device: "none",
            router: [2, 0, 0, 0, 0, 1],
            from: None,
            to: Ipv4Addr::new(10, 2, 0, 1),
            port: Some(80),
            rate: 1,
            time: Duration::ZERO,
        };
        let frames = [0, 1].map(|n| syn(&what, [2, 0, 0, 0, 0, 2], n).unwrap());
        assert_ne!(frames[0], frames[1]);
        for frame in frames {
            let layout = wire::parse(&frame).unwrap();
            let key = wire::FlowKey::from_layout(&layout, &frame).unwrap();
            assert_eq!((key.destination_port, key.protocol), (80, 6));
            assert_eq!(
                wire::checksum::verify_transport(&layout, &frame),
                wire::checksum::TransportChecksum::Good
            );
        }
    }
}
