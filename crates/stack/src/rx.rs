//! Received frames: validated, their sessions found for the whole burst at once, then handed to their protocol.

use core::net::{IpAddr, Ipv4Addr};

use tables::signature::{Session4, Session6};
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
        let mut keys4 = [Session4::default(); BURST];
        let mut at4 = [0_u8; BURST];
        let mut keys6 = [Session6::default(); BURST];
        let mut at6 = [0_u8; BURST];
        let (mut count4, mut count6) = (0, 0);
        for (at, (frame, layout)) in frames.iter().zip(layouts).enumerate() {
            let key = layout
                .as_ref()
                .and_then(|layout| session_key(layout, frame));
            match key {
                Some(Key::V4(key)) => {
                    if let (Some(to), Some(index)) = (keys4.get_mut(count4), at4.get_mut(count4)) {
                        (*to, *index) = (key, at as u8);
                        count4 += 1;
                    }
                }
                Some(Key::V6(key)) => {
                    if let (Some(to), Some(index)) = (keys6.get_mut(count6), at6.get_mut(count6)) {
                        (*to, *index) = (key, at as u8);
                        count6 += 1;
                    }
                }
                None => {}
            }
        }
        let mut places = [None; BURST];
        if count4 > 0 {
            self.tcp
                .sessions
                .find_batch_v4(keys4.get(..count4).unwrap_or_default(), &mut places);
            for (place, at) in places.iter().zip(&at4).take(count4) {
                if let (Some(place), Some(slot)) = (place, sessions.get_mut(usize::from(*at))) {
                    *slot = SessionRef::V4(*place);
                }
            }
        }
        if count6 > 0 {
            places = [None; BURST];
            self.tcp
                .sessions
                .find_batch_v6(keys6.get(..count6).unwrap_or_default(), &mut places);
            for (place, at) in places.iter().zip(&at6).take(count6) {
                if let (Some(place), Some(slot)) = (place, sessions.get_mut(usize::from(*at))) {
                    *slot = SessionRef::V6(*place);
                }
            }
        }
        if frames.len() > 1 {
            for session in sessions.iter().take(frames.len()) {
                if let Found::Connection(index) = self.tcp.sessions.get(*session)
                    && let Some(slot) = self.tcp.tcbs.slot(index)
                {
                    tables::memory::prefetch(slot);
                }
            }
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

/// Reads the session key of a TCP segment.
#[inline]
fn session_key(layout: &Layout, frame: &[u8]) -> Option<Key> {
    let is_segment = layout.protocol == ip_protocol::TCP
        && layout.flags.contains(LayoutFlags::TRANSPORT)
        && !layout
            .flags
            .intersects(LayoutFlags::FRAGMENT | LayoutFlags::L2_GROUP | LayoutFlags::L3_GROUP);
    if !is_segment {
        return None;
    }
    let ports = frame
        .get(usize::from(layout.transport)..)?
        .first_chunk::<4>()?;
    let source_port = u16::from_be_bytes([ports[0], ports[1]]);
    let destination_port = u16::from_be_bytes([ports[2], ports[3]]);
    if let Some((source, destination)) = layout.ipv4_addresses(frame) {
        return Some(Key::V4(Session4 {
            source: source.to_bits(),
            destination: destination.to_bits(),
            source_port,
            destination_port,
            protocol: ip_protocol::TCP,
        }));
    }
    let (source, destination) = layout.ipv6_addresses(frame)?;
    Some(Key::V6(Session6 {
        source: source.to_bits(),
        destination: destination.to_bits(),
        source_port,
        destination_port,
        protocol: ip_protocol::TCP,
    }))
}
