//! Received frames: validated, their sessions found for the whole burst at once, then handed to their protocol.

use core::net::{IpAddr, Ipv4Addr};

use tables::signature::{Place, Session4, Session6};
use wire::checksum::{TransportChecksum, verify_transport};
use wire::{DropReason, Instant, Layout, LayoutFlags, MacAddr, ethernet, ip_protocol, parse};

use crate::stack::Stack;
use crate::tcp::sessions::{Found, Key, SessionRef};

/// Frames whose memory accesses are overlapped.
const BURST: usize = 64;

/// A received frame and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rx<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) layout: Layout,
    pub(crate) session: SessionRef,
    pub(crate) source_mac: MacAddr,
}

impl Stack {
    /// Takes a burst of received frames; each is used or dropped, with a reason that is counted.
    pub fn input(&mut self, now: Instant, frames: &[&[u8]]) {
        for burst in frames.chunks(BURST) {
            self.input_burst(now.as_ns(), burst);
        }
    }

    /// Takes frames that the caller has validated: "parse once" (`layout` must be the frame's own).
    pub fn input_parsed(&mut self, now: Instant, frames: &[(Layout, &[u8])]) {
        for burst in frames.chunks(BURST) {
            let mut layouts = [None; BURST];
            for (to, (layout, _)) in layouts.iter_mut().zip(burst) {
                *to = Some(*layout);
            }
            let mut bytes = [&[][..]; BURST];
            for (to, (_, frame)) in bytes.iter_mut().zip(burst) {
                *to = frame;
            }
            self.dispatch(
                now.as_ns(),
                bytes.get(..burst.len()).unwrap_or_default(),
                &layouts,
            );
        }
    }

    fn input_burst(&mut self, now_ns: u64, frames: &[&[u8]]) {
        let mut layouts = [None; BURST];
        for (layout, frame) in layouts.iter_mut().zip(frames) {
            match parse(frame) {
                Ok(parsed) => *layout = Some(parsed),
                Err(reason) => self.drop_frame(reason),
            }
        }
        self.dispatch(now_ns, frames, &layouts);
    }

    fn dispatch(&mut self, now_ns: u64, frames: &[&[u8]], layouts: &[Option<Layout>; BURST]) {
        let mut sessions = [SessionRef::Absent; BURST];
        let changes = self.tcp.sessions.changes;
        self.find_sessions(frames, layouts, &mut sessions);
        for ((frame, layout), session) in frames.iter().zip(layouts).zip(sessions) {
            let Some(layout) = *layout else { continue };
            // An earlier frame of the burst may have opened or closed a session.
            let session = if self.tcp.sessions.changes == changes {
                session
            } else {
                self.session_of(&layout, frame)
            };
            let source_mac = ethernet::View::new(frame).map_or(MacAddr::ZERO, |view| view.source());
            let rx = Rx {
                frame,
                layout,
                session,
                source_mac,
            };
            if let Err(reason) = self.receive(&rx, now_ns) {
                self.drop_frame(reason);
            }
        }
    }

    /// Finds the sessions of all TCP segments of a burst: buckets, then records, then connections are prefetched.
    fn find_sessions(
        &self,
        frames: &[&[u8]],
        layouts: &[Option<Layout>; BURST],
        sessions: &mut [SessionRef; BURST],
    ) {
        let known = layouts.iter().take(frames.len()).flatten();
        let kinds = known.fold(LayoutFlags::empty(), |all, layout| all | layout.flags);
        if kinds.contains(LayoutFlags::IPV4) {
            let find = |keys: &[_], places: &mut [_]| self.tcp.sessions.find_batch_v4(keys, places);
            find_family(
                frames,
                layouts,
                session_key4,
                find,
                SessionRef::V4,
                sessions,
            );
        }
        if kinds.contains(LayoutFlags::IPV6) {
            let find = |keys: &[_], places: &mut [_]| self.tcp.sessions.find_batch_v6(keys, places);
            find_family(
                frames,
                layouts,
                session_key6,
                find,
                SessionRef::V6,
                sessions,
            );
        }
        let mut last = SessionRef::Absent;
        for session in sessions.iter().take(frames.len()) {
            if *session != last
                && let Found::Connection(index) = self.tcp.sessions.get(*session)
                && let Some(slot) = self.tcp.tcbs.slot(index)
            {
                tables::memory::prefetch(slot);
            }
            last = *session;
        }
    }

    /// Takes one validated frame.
    pub(crate) fn receive(&mut self, rx: &Rx<'_>, now_ns: u64) -> Result<(), DropReason> {
        let flags = rx.layout.flags;
        if rx.session == SessionRef::Absent && !flags.contains(LayoutFlags::L2_GROUP) {
            let is_ours = rx.frame.first_chunk::<6>() == Some(&self.mac.octets());
            if !is_ours {
                return Err(DropReason::NotForUs);
            }
        }
        if flags.contains(LayoutFlags::ARP) {
            return self.receive_arp(rx, now_ns);
        }
        if !flags.intersects(LayoutFlags::IPV4 | LayoutFlags::IPV6) {
            return Err(DropReason::EtherTypeUnknown);
        }
        if rx.session == SessionRef::Absent {
            self.check_destination(rx)?;
        }
        if flags.contains(LayoutFlags::FRAGMENT) {
            return self.receive_fragment(rx, now_ns);
        }
        if self.verify && verify_transport(&rx.layout, rx.frame) == TransportChecksum::Bad {
            return Err(DropReason::TransportChecksum);
        }
        match rx.layout.protocol {
            ip_protocol::TCP if flags.contains(LayoutFlags::TRANSPORT) => {
                self.receive_tcp(rx, now_ns)
            }
            ip_protocol::UDP if flags.contains(LayoutFlags::TRANSPORT) => {
                self.receive_udp(rx, now_ns)
            }
            ip_protocol::ICMP | ip_protocol::ICMPV6 => self.receive_icmp(rx, now_ns),
            ip_protocol::IGMP => self.receive_igmp(rx, now_ns),
            _ => {
                self.answer_unknown_protocol(rx, now_ns);
                Err(DropReason::ProtocolUnknown)
            }
        }
    }

    /// Drops what is for another host, or comes from an address that may not send.
    fn check_destination(&self, rx: &Rx<'_>) -> Result<(), DropReason> {
        if let Some((source, destination)) = rx.layout.ipv4_addresses(rx.frame) {
            if wire::address::is_martian_source_ipv4(source) {
                return Err(DropReason::Ipv4Source);
            }
            let ours = self.addressing.is_ours(destination.into())
                || self.addressing.is_broadcast(destination)
                || destination.is_multicast() && self.is_member(destination.into())
                || self.awaits_lease(destination);
            return if ours {
                Ok(())
            } else {
                Err(DropReason::NotForUs)
            };
        }
        let Some((source, destination)) = rx.layout.ipv6_addresses(rx.frame) else {
            return Err(DropReason::EtherTypeUnknown);
        };
        if wire::address::is_martian_source_ipv6(source) {
            return Err(DropReason::Ipv6Source);
        }
        let ours = self
            .addressing
            .addresses
            .iter()
            .any(|address| address.ip == IpAddr::V6(destination))
            || destination.is_multicast() && self.is_member(destination.into());
        if ours {
            Ok(())
        } else {
            Err(DropReason::NotForUs)
        }
    }

    /// Finds the session of one frame.
    pub(crate) fn session_of(&self, layout: &Layout, frame: &[u8]) -> SessionRef {
        session_key(layout, frame).map_or(SessionRef::Absent, |key| self.tcp.sessions.find(&key))
    }

    /// Returns source and destination of a packet.
    pub(crate) fn ends(rx: &Rx<'_>) -> (IpAddr, IpAddr) {
        if let Some((source, destination)) = rx.layout.ipv4_addresses(rx.frame) {
            return (source.into(), destination.into());
        }
        match rx.layout.ipv6_addresses(rx.frame) {
            Some((source, destination)) => (source.into(), destination.into()),
            None => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()),
        }
    }
}

/// Finds the sessions of one IP version. Segments of one session that follow each other are looked up once.
#[inline]
fn find_family<K: Copy + Default + PartialEq>(
    frames: &[&[u8]],
    layouts: &[Option<Layout>; BURST],
    key_of: impl Fn(&Layout, &[u8]) -> Option<K>,
    find: impl Fn(&[K], &mut [Option<Place>]),
    session: impl Fn(Place) -> SessionRef,
    sessions: &mut [SessionRef; BURST],
) {
    const NONE: u8 = u8::MAX;
    let mut keys = [K::default(); BURST];
    let mut which = [NONE; BURST];
    let mut count = 0;
    for ((frame, layout), which) in frames.iter().zip(layouts).zip(&mut which) {
        let Some(key) = layout.as_ref().and_then(|layout| key_of(layout, frame)) else {
            continue;
        };
        if count == 0 || keys.get(count - 1) != Some(&key) {
            if let Some(to) = keys.get_mut(count) {
                *to = key;
            }
            count += 1;
        }
        *which = (count - 1) as u8;
    }
    let mut places = [None; BURST];
    if let (Some(keys), Some(places)) = (keys.get(..count), places.get_mut(..count)) {
        find(keys, places);
    }
    for (to, which) in sessions.iter_mut().zip(which) {
        if let Some(Some(place)) = places.get(usize::from(which)) {
            *to = session(*place);
        }
    }
}

/// Says whether a packet is a segment that may belong to a session.
#[inline]
fn is_segment(layout: &Layout) -> bool {
    layout.protocol == ip_protocol::TCP
        && layout.flags.contains(LayoutFlags::TRANSPORT)
        && !layout
            .flags
            .intersects(LayoutFlags::FRAGMENT | LayoutFlags::L2_GROUP | LayoutFlags::L3_GROUP)
}

/// Reads source and destination port.
#[inline]
fn ports(layout: &Layout, frame: &[u8]) -> Option<(u16, u16)> {
    let &[a, b, c, d] = frame
        .get(usize::from(layout.transport)..)?
        .first_chunk::<4>()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// Reads the session key of a TCP segment.
fn session_key(layout: &Layout, frame: &[u8]) -> Option<Key> {
    session_key4(layout, frame)
        .map(Key::V4)
        .or_else(|| session_key6(layout, frame).map(Key::V6))
}

#[inline]
fn session_key4(layout: &Layout, frame: &[u8]) -> Option<Session4> {
    if !is_segment(layout) {
        return None;
    }
    let (source, destination) = layout.ipv4_addresses(frame)?;
    let (source_port, destination_port) = ports(layout, frame)?;
    Some(Session4 {
        source: source.to_bits(),
        destination: destination.to_bits(),
        source_port,
        destination_port,
        protocol: ip_protocol::TCP,
    })
}

#[inline]
fn session_key6(layout: &Layout, frame: &[u8]) -> Option<Session6> {
    if !is_segment(layout) {
        return None;
    }
    let (source, destination) = layout.ipv6_addresses(frame)?;
    let (source_port, destination_port) = ports(layout, frame)?;
    Some(Session6 {
        source: source.to_bits(),
        destination: destination.to_bits(),
        source_port,
        destination_port,
        protocol: ip_protocol::TCP,
    })
}
