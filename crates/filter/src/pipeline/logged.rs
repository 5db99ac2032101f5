//! Packets that reached `log` statements: what a line about them says.

use wire::{FlowKey, Instant, LayoutFlags, ip_protocol};

use super::worker::Worker;
use crate::packet::{Hook, InterfaceId, Packet};

/// Lines that wait to be taken, at most.
pub(super) const LOGS_MAX: usize = 256;

/// One line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Which log statement of the ruleset in force.
    pub statement: u32,
    /// Where the packet was.
    pub hook: Hook,
    /// Interface it came by.
    pub iif: InterfaceId,
    /// Interface it leaves by, if that is known yet.
    pub oif: InterfaceId,
    /// Its addresses, ports and protocol, as it looked there.
    pub key: FlowKey,
    /// Bytes of the IP packet.
    pub bytes: u16,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TCP flags.
    pub tcp_flags: Option<u8>,
    /// Its mark.
    pub mark: u32,
    /// When.
    pub at: Instant,
}

impl Logged {
    fn new(statement: u32, packet: &Packet<'_>) -> Self {
        let (layout, frame) = (&packet.layout, &*packet.frame);
        let at = |offset: usize| frame.get(offset).copied();
        let network = usize::from(layout.network);
        let is_v4 = layout.flags.contains(LayoutFlags::IPV4);
        let is_tcp =
            layout.protocol == ip_protocol::TCP && layout.flags.contains(LayoutFlags::TRANSPORT);
        Self {
            statement,
            hook: packet.hook,
            iif: packet.iif,
            oif: packet.oif,
            key: FlowKey::from_layout(layout, frame).unwrap_or_default(),
            bytes: layout.packet(frame).len() as u16,
            // RFC 791 3.1, RFC 8200 3.
            ttl: at(network + if is_v4 { 8 } else { 7 }).unwrap_or(0),
            tcp_flags: is_tcp
                .then(|| at(usize::from(layout.transport) + 13))
                .flatten(),
            mark: packet.mark,
            at: packet.now,
        }
    }
}

impl Worker {
    /// Notes what log statements a chain has reached since it had left `before` records.
    #[cold]
    pub(super) fn log(&mut self, before: usize, packet: &Packet<'_>) {
        for record in self.effects.logs.iter().skip(before) {
            if self.logs.len() < LOGS_MAX {
                self.logs.push(Logged::new(record.statement, packet));
            } else {
                self.tally.logs_lost += 1;
            }
        }
    }
}
