//! Connections with a helper: what their packets say is read, and changed where an address in it is translated.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use wire::tcp::{Flags, SEQUENCE};
use wire::{Addresses, DropReason, FlowKey, Layout, LayoutFlags, ip_protocol, ipv4, ipv6};

use super::answer::{SegmentOut, write_segment};
use super::hit::shift_numbers;
use super::item::{Fate, Item};
use super::outbox::EMISSION_BYTES;
use super::rules::Rules;
use super::shared::Table;
use super::walk::Walk;
use super::worker::{Worker, segment_of};
use crate::alg::dns::{Seen, Waiting};
use crate::alg::expectation::{Added, Expectation, kept};
use crate::alg::stream::{Step, StreamKey};
use crate::alg::{self, Advertised, Edits, Ends, Helper, Refused};
use crate::nat::mapping::{Endpoint, MappingError, MappingRequest, PortSpace};
use crate::nat::rewrite::set_tcp_number;
use crate::packet::{CtDirection, CtStatus};
use crate::track::key::{is_ipv4, unmapped};
use crate::track::record::{Life, Own, Record, Shift};
use crate::track::tcp::{Segment, after};
use crate::track::timeout::Class;

/// Outer ports that are tried for an endpoint that has no mapping.
const PORT_TRIES: u16 = 8;

/// A packet of a connection with a helper, on its way out: addresses are translated, sequence numbers not yet.
pub(super) struct Passage<'a> {
    /// As it came.
    pub(super) key: &'a FlowKey,
    /// As it leaves.
    pub(super) target: &'a FlowKey,
    pub(super) connection: tables::slots::SlotRef,
    pub(super) record: &'a Record<'a>,
    pub(super) life: Life,
    pub(super) direction: CtDirection,
}

impl Passage<'_> {
    fn ends(&self) -> Ends {
        let endpoint = |address, port| SocketAddr::new(address_of(address), port);
        Ends {
            own: endpoint(self.key.source, self.key.source_port),
            own_seen: endpoint(self.target.source, self.target.source_port),
            peer_seen: endpoint(self.key.destination, self.key.destination_port),
            peer: endpoint(self.target.destination, self.target.destination_port),
            from_client: self.direction == CtDirection::Original,
        }
    }
}

impl Worker {
    /// Lets a connection's helper see a packet, and lets it go on.
    #[inline(never)]
    pub(super) fn inspect<R: Rules, K: Table>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        passage: &Passage<'_>,
    ) -> Fate {
        let (_, _, id) = passage.record.labels();
        let helper = Helper::of(id).filter(|helper| helper.protocol() == passage.key.protocol);
        // What is in several fragments is not read.
        let whole = !item.layout.flags.contains(LayoutFlags::FRAGMENT);
        let mut message = core::mem::take(&mut self.message);
        let fate = match helper.filter(|_| whole) {
            Some(Helper::Dns) => self.inspect_dns(walk, item, passage),
            Some(helper) if passage.key.protocol == ip_protocol::TCP => {
                self.inspect_stream::<R, K>(walk, item, passage, helper, &mut message)
            }
            Some(helper) => {
                message.clear();
                message.extend_from_slice(payload_of(item));
                self.read::<R, K>(walk, item, passage, helper, &message)
            }
            None => None,
        };
        self.message = message;
        fate.unwrap_or_else(|| {
            shift_numbers(item, passage.record, &passage.life, passage.direction);
            Fate::Accept
        })
    }

    /// A segment of a stream of lines; `None` if it goes on as it is.
    fn inspect_stream<R: Rules, K: Table>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        passage: &Passage<'_>,
        helper: Helper,
        message: &mut alloc::vec::Vec<u8>,
    ) -> Option<Fate> {
        let segment = segment_of(item)?;
        let key = StreamKey {
            connection: passage.connection.to_word(),
            is_ipv4: is_ipv4(passage.key),
            direction: passage.direction as u8,
        };
        let from_client = passage.direction == CtDirection::Original;
        let promising = |start: &[u8]| alg::is_promising(helper, start, from_client);
        let payload = payload_of(item);
        match self.streams.see(key, &segment, payload, message, promising) {
            Step::Pass => None,
            Step::Early => Some(Fate::Consumed),
            Step::Hold => {
                self.acknowledge(item, passage, &segment);
                Some(Fate::Consumed)
            }
            Step::Read(0) => self.read::<R, K>(walk, item, passage, helper, message),
            Step::Read(before) => {
                let start = segment.sequence.wrapping_sub(before as u32);
                set_tcp_number(item.frame, &item.layout, SEQUENCE, start)?;
                let fate = self.read::<R, K>(walk, item, passage, helper, message);
                // The message is longer than the segment, whether it was changed or not.
                Some(
                    fate.unwrap_or_else(|| {
                        self.send_changed(item, passage, message, &Edits::new())
                    }),
                )
            }
        }
    }

    /// Reads a message; `None` if it goes on as it is.
    fn read<R: Rules, K: Table>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        passage: &Passage<'_>,
        helper: Helper,
        message: &[u8],
    ) -> Option<Fate> {
        let ends = passage.ends();
        let mut expose = |advertised| self.expose::<R, K>(walk, passage, advertised);
        let edits = alg::inspect(helper, message, &ends, &mut expose);
        match edits {
            Ok(edits) if edits.is_empty() => None,
            Ok(edits) => Some(self.send_changed(item, passage, message, &edits)),
            Err(Refused) => Some(Fate::Drop(DropReason::AlgMalformed)),
        }
    }

    /// Checks a DNS message: an answer that nobody asked for is dropped, the last one ends the connection soon.
    fn inspect_dns<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &Item<'_>,
        passage: &Passage<'_>,
    ) -> Option<Fate> {
        let from_client = passage.direction == CtDirection::Original;
        let mut seen = Seen::Odd;
        passage.record.update_helper(|word| {
            seen = Waiting::from_word(word).see(payload_of(item), from_client);
            match seen {
                Seen::Open(waiting) | Seen::Done(waiting) => waiting.to_word(),
                Seen::Odd => word,
            }
        });
        match seen {
            Seen::Odd => return Some(Fate::Drop(DropReason::AlgMalformed)),
            Seen::Open(_) => {}
            Seen::Done(_) => {
                let limit = walk.shared.limits.of(Class::Answered);
                let deadline = walk.tick.after(limit);
                // Gone already is as good.
                let _ = passage.record.update_life(|life| {
                    life.class = Class::Answered;
                    life.deadline = deadline;
                });
            }
        }
        None
    }

    /// Sends a message in the place of a packet's: changed, and perhaps longer.
    fn send_changed(
        &mut self,
        item: &mut Item<'_>,
        passage: &Passage<'_>,
        message: &[u8],
        edits: &Edits,
    ) -> Fate {
        let is_tcp = passage.key.protocol == ip_protocol::TCP;
        let start = segment_of(item).map(|segment| segment.sequence);
        if is_tcp {
            shift_numbers(item, passage.record, &passage.life, passage.direction);
        }
        if let (Some(start), Some(last)) = (start, edits.last()) {
            let position = start.wrapping_add(last.end as u32).wrapping_sub(1);
            if !note_growth(passage, position, alg::growth(edits)) {
                return Fate::Drop(DropReason::AlgMalformed);
            }
        }
        let (frame, layout) = (&*item.frame, &item.layout);
        let sent = self.outbox.push(item.way_on(), item.iif, |buffer| {
            write_changed(buffer, frame, layout, message, edits)
        });
        if sent {
            Fate::Consumed
        } else {
            Fate::Drop(DropReason::AlgMalformed)
        }
    }

    /// Tells the sender of a segment that it was received: the rest of its line is waited for.
    fn acknowledge(&mut self, item: &Item<'_>, passage: &Passage<'_>, segment: &Segment) {
        let key = passage.key;
        let (from, to) = (address_of(key.destination), address_of(key.source));
        let addresses = match (from, to) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 {
                source,
                destination,
            },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 {
                source,
                destination,
            },
            _ => return,
        };
        let receiver = &passage.record.tcp().sides[passage.direction.reversed() as usize];
        let window = receiver.max_window >> receiver.scale;
        let reply = SegmentOut {
            flags: Flags::ACK,
            sequence: segment.acknowledgement,
            acknowledgement: segment.end(),
            window: window.min(u16::MAX.into()) as u16,
            options: &[],
        };
        let ports = (key.destination_port, key.source_port);
        self.outbox.push(item.way_back(), item.iif, |buffer| {
            write_segment(buffer, &addresses, ports, &reply)
        });
    }

    /// Expects connections to an endpoint of a packet's sender; returns how the receiver must call it.
    fn expose<R: Rules, K: Table>(
        &mut self,
        walk: &Walk<'_, R>,
        passage: &Passage<'_>,
        advertised: Advertised,
    ) -> Result<Option<SocketAddr>, Refused> {
        let endpoint = advertised.endpoint;
        if endpoint.ip() != address_of(passage.key.source) || endpoint.port() == 0 {
            return Ok(None);
        }
        let outer = self.expose_one(walk, passage, advertised, None)?;
        if let (true, Some(port), Some(next)) = (
            advertised.is_pair,
            endpoint.port().checked_add(1),
            outer.checked_add(1),
        ) {
            let second = Advertised {
                endpoint: SocketAddr::new(endpoint.ip(), port),
                ..advertised
            };
            // The first one is what counts: without the second, there are no reports.
            let _ = self.expose_one(walk, passage, second, Some(next));
        }
        Ok(Some(SocketAddr::new(
            address_of(passage.target.source),
            outer,
        )))
    }

    /// Expects connections to one port, which the receiver is to know as `wanted` or as any; returns as what.
    fn expose_one<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        passage: &Passage<'_>,
        advertised: Advertised,
        wanted: Option<u16>,
    ) -> Result<u16, Refused> {
        let now = walk.env.now;
        let (protocol, port) = (advertised.protocol, advertised.endpoint.port());
        let inner = endpoint_to_map(passage, protocol, port);
        let outer = match inner {
            Some(inner) => {
                let address = unmapped(passage.target.source);
                let request = MappingRequest {
                    inner,
                    first: address,
                    last: address,
                    ports: wanted.map(|port| (port, port)),
                    random: false,
                };
                let random = self.random();
                match walk
                    .shared
                    .nat()
                    .acquire(&mut self.nat, &request, random, now)
                {
                    Ok(used) => Some(used.outer),
                    // More outer addresses than mappings are made for: one to one, no port is another's.
                    Err(MappingError::Addresses) => None,
                    Err(_) => return Err(Refused),
                }
            }
            None => None,
        };
        let is_translated = passage.target.source != passage.key.source;
        let first = outer.map_or(port, |outer| outer.port);
        let tries = if is_translated && outer.is_none() {
            PORT_TRIES
        } else {
            1
        };
        for attempt in 0..tries {
            let Some(seen) = first.checked_add(2 * attempt) else {
                break;
            };
            let key = FlowKey {
                source: passage.target.destination,
                source_port: 0,
                destination: passage.target.source,
                destination_port: seen,
                protocol,
            };
            let expectation = Expectation {
                deadline: walk.tick,
                master: passage.connection,
                is_ipv4: is_ipv4(passage.key),
                by_reply: passage.direction == CtDirection::Reply,
                port,
                is_mapped: outer.is_some(),
                address: kept(passage.key.source),
            };
            let expectations = &walk.shared.expectations;
            let added = expectations.add(&mut self.expectations, &key, expectation, walk.tick);
            if let (Added::Known | Added::Taken | Added::Full, Some(_), Some(inner)) =
                (added, outer, inner)
            {
                // One use is enough, and none is too many.
                walk.shared.nat().release(inner, now);
            }
            match added {
                Added::New | Added::Known => return Ok(seen),
                Added::Taken => {}
                Added::Full => break,
            }
        }
        Err(Refused)
    }
}

/// The endpoint of a packet's sender that needs a mapping to be reached from the other side.
fn endpoint_to_map(passage: &Passage<'_>, protocol: u8, port: u16) -> Option<Endpoint> {
    let space = PortSpace::of(protocol).filter(|_| is_ipv4(passage.key))?;
    let life = &passage.life;
    let has_mapping = match passage.direction {
        CtDirection::Original => life.own.contains(Own::MAPPED),
        CtDirection::Reply => {
            life.status.contains(CtStatus::DNAT) && passage.target.source != passage.key.source
        }
    };
    has_mapping.then_some(Endpoint {
        address: unmapped(passage.key.source),
        port,
        space,
    })
}

/// Notes that what a direction sends after `position` is longer by `growth`; false if that is more than can be
/// noted. A segment that was sent before changes nothing: it grows as it did then.
fn note_growth(passage: &Passage<'_>, position: u32, growth: isize) -> bool {
    let direction = passage.direction as usize;
    let old = passage.record.shift(direction);
    if growth == 0 || old != Shift::default() && !after(position, old.position) {
        return true;
    }
    let Some(beyond) = i16::try_from(growth)
        .ok()
        .and_then(|growth| old.after.checked_add(growth))
    else {
        return false;
    };
    let shift = Shift {
        position,
        before: old.after,
        after: beyond,
    };
    passage.record.set_shift(direction, shift);
    passage.record.update_life(|life| life.own |= Own::SHIFTED)
}

/// Writes a packet with another payload: its headers, then the message with its changes; lengths and checksums are
/// made right. Returns the frame's length.
fn write_changed(
    buffer: &mut [u8],
    frame: &[u8],
    layout: &Layout,
    message: &[u8],
    edits: &Edits,
) -> Option<usize> {
    let headers = frame.get(..layout.payload.into())?;
    let (head, rest) = buffer.split_at_mut_checked(headers.len())?;
    head.copy_from_slice(headers);
    let end = headers.len() + alg::apply(message, edits, rest)?;
    let set = |bytes: &mut [u8], at: usize, value: usize| {
        let value = u16::try_from(value).ok()?.to_be_bytes();
        bytes.get_mut(at..at + 2)?.copy_from_slice(&value);
        Some(())
    };
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    if layout.flags.contains(LayoutFlags::IPV4) {
        set(head, network + ipv4::TOTAL_LENGTH, end - network)?;
        set(head, network + ipv4::CHECKSUM, 0)?;
        let sum = wire::checksum::checksum(head.get(network..transport)?);
        set(head, network + ipv4::CHECKSUM, sum.into())?;
    } else {
        let bytes = end - network - ipv6::HEADER_BYTES;
        set(head, network + ipv6::PAYLOAD_LENGTH, bytes)?;
    }
    if layout.protocol == ip_protocol::UDP {
        set(head, transport + wire::udp::LENGTH, end - transport)?;
    }
    let frame = buffer.get_mut(..end.min(EMISSION_BYTES))?;
    let changed = wire::parse(frame).ok()?;
    wire::checksum::fill_transport(&changed, frame).then_some(end)
}

fn payload_of<'a>(item: &'a Item<'_>) -> &'a [u8] {
    let layout = &item.layout;
    item.frame
        .get(layout.payload.into()..layout.end.into())
        .unwrap_or_default()
}

fn address_of(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

/// Where an expected connection leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) found: alg::expectation::Found,
    /// Whom it reaches.
    pub(super) destination: ([u8; 16], u16),
    /// What its source is translated to, as its master's is.
    pub(super) source: Option<[u8; 16]>,
    /// Its master is translated: it follows it, and no rules of translation are asked.
    pub(super) follows: bool,
    /// Its master's mark.
    pub(super) mark: u32,
}

/// Finds the connection that expects a packet.
pub(super) fn expected<R: Rules>(walk: &Walk<'_, R>, key: &FlowKey) -> Option<Expected> {
    let expectations = &walk.shared.expectations;
    if expectations.count() == 0 {
        return None;
    }
    let found = expectations.find(key, walk.tick)?;
    if found.expectation.is_ipv4 {
        expected_by::<R, tables::signature::Session4>(walk, &found)
    } else {
        expected_by::<R, tables::signature::Session6>(walk, &found)
    }
}

fn expected_by<R: Rules, K: Table>(
    walk: &Walk<'_, R>,
    found: &alg::expectation::Found,
) -> Option<Expected> {
    let expectation = &found.expectation;
    let (record, original, reply) = walk.shared.look::<K>(expectation.master)?;
    let life = record.life();
    if life.deadline <= walk.tick {
        return None;
    }
    // The direction that advertised, as it comes and as it leaves.
    let (key, target) = if expectation.by_reply {
        (reply, original.reversed())
    } else {
        (original, reply.reversed())
    };
    let is_seen = key.destination != target.destination;
    Some(Expected {
        found: *found,
        destination: (key.source, expectation.port),
        source: is_seen.then_some(key.destination),
        follows: life.status.intersects(CtStatus::SNAT | CtStatus::DNAT),
        mark: record.labels().0,
    })
}
