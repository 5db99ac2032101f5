//! `ndn`: the forwarder of one worker as a node of its packet graph.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, PoisonError};

use arrayvec::ArrayVec;
use graph::{Context, Node, Outlets, Snapshot};
use io::{BATCH_MAX, Batch, Frame, FrameFlags, Pool, PortId, WorkerId};
use ndn::{ContentStore, FaceCounters, FaceId, Forwarder, Handoff, Incoming, Partition};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use wire::ndn::lp::{LpHeader, LpPacket};
use wire::ndn::{NameRef, Tlv};
use wire::{DropReason, Instant};

use super::message::{Command, Commands, Ears, Event, For, Inbox, Message, Peer, Report};
use super::outputs::{ETHERNET_BYTES, Out, Outputs, Transport};
use super::queue::Ready;
use super::store::NodeStore;
use super::transport::{Burst, StreamState, next_frame};
use crate::forwarding::Forwarding;

/// From this token on, a ready socket is one of the worker's UDP sockets.
pub(super) const UDP_TOKEN: u64 = 1 << 32;
/// The token of the doorbell.
pub(super) const BELL_TOKEN: u64 = u64::MAX;
/// Bursts of datagrams that one socket has in its turn.
const BURSTS: usize = 8;
/// Packets from another worker in its turn.
const MESSAGES: usize = 256;

/// The forwarder of one worker.
#[derive(Debug)]
pub(super) struct NdnNode {
    pub(super) worker: usize,
    pub(super) port: PortId,
    pub(super) forwarder: Forwarder<NodeStore>,
    pub(super) outputs: Outputs,
    pub(super) inboxes: Vec<Inbox>,
    pub(super) commands: Commands,
    pub(super) ears: Arc<Ears>,
    pub(super) ready: Ready,
    pub(super) burst: Option<Burst>,
    pub(super) peers: HashMap<Peer, FaceId>,
    pub(super) forwarding: Arc<Forwarding>,
    /// Packets that the link protocol put together, with their fields; used again.
    pub(super) whole: Vec<Vec<u8>>,
    pub(super) links_due: Option<Instant>,
}

/// A frame of a face.
#[derive(Debug)]
struct Arrived {
    frame: Frame,
    /// Bytes of the link packet: a frame may be padded.
    len: usize,
    face: FaceId,
    endpoint: u64,
}

impl Arrived {
    fn link_packet(&self) -> &[u8] {
        let data = self.frame.data();
        data.get(ETHERNET_BYTES..ETHERNET_BYTES + self.len)
            .unwrap_or_default()
    }
}

/// What the worker lends for one call.
struct Lent<'a> {
    now: Instant,
    pool: &'a mut Pool,
    outlets: &'a mut Outlets,
}

impl Node for NdnNode {
    fn name(&self) -> &str {
        "ndn"
    }

    fn edges(&self) -> &[&'static str] {
        &["tx"]
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        self.forwarder.store_mut().online();
        let mut lent = Lent {
            now: cx.now,
            pool: cx.pool,
            outlets: out,
        };
        let mut is_called = false;
        let mut frames = ArrayVec::<_, BATCH_MAX>::new();
        for frame in batch.drain() {
            if frame.rx_port == self.port {
                is_called = true;
                lent.outlets.consume(frame);
            } else if let Some(frame) = self.admit(frame, &mut lent) {
                frames.push(frame);
            }
        }
        self.frames(&mut frames, &mut lent);
        if is_called {
            self.called(&mut lent);
        }
        self.finish();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.forwarder.poll_timeout(), self.links_due];
        due.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        self.forwarder.store_mut().online();
        let mut lent = Lent {
            now: cx.now,
            pool: cx.pool,
            outlets: out,
        };
        let mut sink = out_of(&mut self.outputs, &self.forwarding, &mut lent);
        self.forwarder.handle_timeout(cx.now, &mut sink);
        if self.links_due.is_some_and(|due| due <= cx.now) {
            let faces: Vec<FaceId> = self
                .outputs
                .links
                .iter_mut()
                .map(|(face, _)| face)
                .collect();
            for face in faces {
                let now = lent.now;
                out_of(&mut self.outputs, &self.forwarding, &mut lent)
                    .link_sends(face, |link, mut send| link.handle_timeout(now, &mut send));
            }
            self.schedule_links();
        }
        self.finish();
    }

    fn reload(&mut self, _cx: &mut Context<'_>, snapshot: &Snapshot, _out: &mut Outlets) {
        crate::adopt(&mut self.forwarding, snapshot);
    }
}

fn out_of<'a>(
    outputs: &'a mut Outputs,
    forwarding: &'a Forwarding,
    lent: &'a mut Lent<'_>,
) -> Out<'a> {
    Out {
        now: lent.now,
        outputs,
        pool: lent.pool,
        outlets: lent.outlets,
        forwarding,
    }
}

impl NdnNode {
    /// Sends what waits, and lets go of the store until the next call.
    fn finish(&mut self) {
        self.outputs.flush();
        while !self.outputs.ended.is_empty() {
            for face in core::mem::take(&mut self.outputs.ended) {
                self.stream_ended(face);
            }
        }
        if self.outputs.has_timers {
            self.schedule_links();
        }
        self.forwarder.store_mut().quiescent();
        self.forwarder.store_mut().offline();
    }

    /// Serves sockets, other workers and the manager.
    fn called(&mut self, lent: &mut Lent<'_>) {
        if self.ears.take() {
            self.obey(lent);
        }
        let ready: Vec<EpollEvent> = {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            core::mem::take(&mut *ready)
        };
        for event in &ready {
            let token = event.data();
            if token == BELL_TOKEN {
                continue;
            }
            if token >= UDP_TOKEN {
                self.datagrams((token - UDP_TOKEN) as usize, lent);
                continue;
            }
            let face = FaceId(token as u32);
            if event.events().contains(EpollFlags::EPOLLOUT) {
                self.outputs.flush_stream(face);
            }
            if event.events() != EpollFlags::EPOLLOUT {
                self.socket_of_face(face, lent);
            }
        }
        let mut ready_again = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready_again.is_empty() {
            // Its memory is used again.
            *ready_again = ready;
            ready_again.clear();
        }
    }

    fn obey(&mut self, lent: &mut Lent<'_>) {
        self.obey_commands(lent);
        let mut sink = out_of(&mut self.outputs, &self.forwarding, lent);
        self.forwarder.handle_reads(sink.now, &mut sink);
        let mut inboxes = core::mem::take(&mut self.inboxes);
        for inbox in &mut inboxes {
            for _ in 0..MESSAGES {
                let Some(message) = inbox.from.pop() else {
                    break;
                };
                self.message(&message, lent);
                inbox.give_back(message.bytes);
            }
            if !inbox.from.is_empty() {
                self.ears.call();
            }
        }
        self.inboxes = inboxes;
    }

    fn obey_commands(&mut self, lent: &mut Lent<'_>) {
        while let Ok(command) = self.commands.try_recv() {
            self.command(command, lent);
        }
    }

    fn command(&mut self, command: Command, lent: &mut Lent<'_>) {
        match command {
            Command::AddFace {
                face,
                config,
                transport,
                peer,
                first,
            } => {
                if let Some(peer) = peer {
                    self.peers.insert(peer, face);
                }
                self.outputs.add(face, &config, transport);
                // The manager's table has the same places.
                self.forwarder.insert_face(face, config, lent.now);
                for frame in first {
                    self.receive(face, 0, &frame, lent);
                }
            }
            Command::RemoveFace(face) => {
                self.peers.retain(|_, known| *known != face);
                self.outputs.remove(face);
                self.forwarder.remove_face(face);
            }
            Command::UpdateFace(face, change) => self.update(face, &change),
            Command::AddNextHop(prefix, hop) => {
                let mut sink = out_of(&mut self.outputs, &self.forwarding, lent);
                // The manager's table is as large and had room.
                let _ = self
                    .forwarder
                    .add_next_hop(prefix.as_ref(), hop, sink.now, &mut sink);
            }
            Command::RemoveNextHop(prefix, face) => {
                self.forwarder.remove_next_hop(prefix.as_ref(), face);
            }
            Command::SetStrategy(prefix, strategy) => {
                // The manager's table took it.
                let _ = self
                    .forwarder
                    .set_strategy(prefix.as_ref(), strategy.as_ref());
            }
            Command::UnsetStrategy(prefix) => {
                let _ = self.forwarder.unset_strategy(prefix.as_ref());
            }
            Command::Input(packet) => {
                let incoming = Incoming {
                    face: FaceId::INTERNAL,
                    header: LpHeader::default(),
                    packet: &packet,
                };
                if self.route(&incoming) {
                    self.input(&[incoming], lent);
                }
            }
            Command::Report(reply) => {
                // Who asked may have given up.
                let _ = reply.try_send(self.report());
            }
        }
    }

    fn update(&mut self, face: FaceId, change: &ndn::mgmt::FaceChange) {
        let Some(known) = self.forwarder.face_mut(face) else {
            return;
        };
        change.apply(&mut known.config);
        let config = known.config.clone();
        let first = self.outputs.rng.next_u64();
        if let Some(link) = self.outputs.links.get_mut(face) {
            let link_config = ndn::link::LinkConfig::of_face(&config);
            link.service = ndn::link::LinkService::new(&link_config, first);
            link.is_plain = !config.reliability;
            self.outputs.has_timers |= config.reliability;
        }
    }

    fn report(&mut self) -> Report {
        let mut faces: Vec<(FaceId, FaceCounters, Instant)> = self
            .forwarder
            .faces()
            .iter()
            .map(|face| (face.id, face.counters, face.last_used))
            .collect();
        for (id, counters, _) in &mut faces {
            if let Some(link) = self.outputs.links.get_mut(*id) {
                counters.in_bytes = link.in_bytes;
                counters.out_bytes = link.out_bytes;
            }
        }
        Report {
            counters: self.forwarder.counters().clone(),
            link_drops: DropReason::ALL
                .iter()
                .zip(self.outputs.drops.iter())
                .filter(|(_, count)| **count > 0)
                .map(|(reason, count)| (*reason, *count))
                .collect(),
            tables: self.forwarder.table_sizes(),
            faces,
        }
    }

    /// A packet from another worker.
    fn message(&mut self, message: &Message, lent: &mut Lent<'_>) {
        let face = message.face;
        if self.forwarder.faces().get(face).is_none() {
            // The command that makes the face may be on its way.
            self.obey_commands(lent);
        }
        if message.purpose == For::Receive {
            return self.receive(face, 0, &message.bytes, lent);
        }
        let Ok(parsed) = LpPacket::parse(&message.bytes) else {
            return self.outputs.drop(DropReason::NdnMalformed);
        };
        let packet = parsed.fragment.unwrap_or_default();
        match message.purpose {
            For::Input => {
                let incoming = Incoming {
                    face,
                    header: parsed.header,
                    packet,
                };
                self.input(&[incoming], lent);
            }
            For::Send => {
                out_of(&mut self.outputs, &self.forwarding, lent).transmit(
                    face,
                    &parsed.header,
                    packet,
                );
            }
            For::Data { is_solicited } => {
                let handoff = Handoff {
                    ingress: face,
                    header: parsed.header,
                    packet,
                    is_solicited,
                };
                let mut sink = out_of(&mut self.outputs, &self.forwarding, lent);
                // What is dropped has been counted.
                let _ = self.forwarder.input_handoff(sink.now, &handoff, &mut sink);
            }
            For::Receive => {}
        }
    }

    /// Link packets from ports: those that are whole go through the forwarder as one burst.
    fn frames(&mut self, frames: &mut ArrayVec<Arrived, BATCH_MAX>, lent: &mut Lent<'_>) {
        let mut packets = ArrayVec::<_, BATCH_MAX>::new();
        for arrived in frames.iter() {
            let (face, endpoint) = (arrived.face, arrived.endpoint);
            packets.extend(self.arrive(face, endpoint, arrived.link_packet(), lent));
        }
        self.input(&packets, lent);
        drop(packets);
        for arrived in frames.drain(..) {
            lent.outlets.consume(arrived.frame);
        }
    }

    /// Finds the face of a frame from a port; `None` if the frame went another way.
    fn admit(&mut self, frame: Frame, lent: &mut Lent<'_>) -> Option<Arrived> {
        let data = frame.data();
        let (Some(header), Some(payload)) = (
            data.first_chunk::<ETHERNET_BYTES>(),
            data.get(ETHERNET_BYTES..),
        ) else {
            lent.outlets.drop(frame, DropReason::NdnMalformed);
            return None;
        };
        let mut to = [0; 6];
        to.copy_from_slice(&header[..6]);
        let mut from = [0; 6];
        from.copy_from_slice(&header[6..12]);
        // A frame may be padded.
        let Ok(element) = Tlv::read(payload) else {
            lent.outlets.drop(frame, DropReason::NdnMalformed);
            return None;
        };
        let len = element.bytes.len();
        let is_group = to[0] & 1 != 0;
        let peer = Peer::Ethernet(frame.rx_port, if is_group { to } else { from });
        let Some(&face) = self.peers.get(&peer) else {
            if is_group {
                lent.outlets.drop(frame, DropReason::NotForUs);
                return None;
            }
            let event = Event::NewPeer(peer, element.bytes.to_vec());
            if !self.outputs.manager.send(event) {
                self.outputs.drop(DropReason::NdnFaceDown);
            }
            lent.outlets.consume(frame);
            return None;
        };
        if let Some(owner) = self.owner_of_whole(element.bytes)
            && !frame.flags.contains(FrameFlags::HANDED_OFF)
        {
            if let Some(link) = self.outputs.links.get_mut(face) {
                link.in_bytes += len as u64;
            }
            lent.outlets.hand_off(WorkerId(owner as u16), frame);
            return None;
        }
        let endpoint = if is_group { endpoint_of(&from) } else { 0 };
        Some(Arrived {
            frame,
            len,
            face,
            endpoint,
        })
    }

    /// Returns the other worker that owns the name in a link packet, if it is whole.
    fn owner_of_whole(&self, link_packet: &[u8]) -> Option<usize> {
        let partition: &Partition = self.forwarder.partition();
        if partition.workers() == 1 {
            return None;
        }
        let parsed = LpPacket::parse(link_packet).ok()?;
        let header = &parsed.header;
        if header.frag_count.unwrap_or(1) != 1 || header.tx_sequence.is_some() {
            return None;
        }
        let owner = partition.owner_of_packet(parsed.fragment?).ok()?;
        (owner != self.worker).then_some(owner)
    }

    /// A link packet of a face.
    fn receive(&mut self, face: FaceId, endpoint: u64, frame: &[u8], lent: &mut Lent<'_>) {
        if let Some(incoming) = self.arrive(face, endpoint, frame, lent) {
            self.input(&[incoming], lent);
        }
    }

    /// Takes a link packet of a face; returns the network packet in it if it is whole and this worker's, for
    /// [`input`](Self::input).
    fn arrive<'a>(
        &mut self,
        face: FaceId,
        endpoint: u64,
        frame: &'a [u8],
        lent: &mut Lent<'_>,
    ) -> Option<Incoming<'a>> {
        let Some(link) = self.outputs.links.get_mut(face) else {
            self.outputs.drop(DropReason::NdnFaceDown);
            return None;
        };
        link.in_bytes += frame.len() as u64;
        if let (Transport::Elsewhere(worker), false) = (&link.transport, link.is_plain) {
            let worker = *worker;
            self.outputs.hand_over_frame(worker, face, frame);
            return None;
        }
        if link.is_plain {
            let parsed = match LpPacket::parse(frame) {
                Ok(parsed) => parsed,
                Err(error) => {
                    self.outputs.drop(error.drop_reason());
                    return None;
                }
            };
            let is_whole = parsed.header.frag_count.unwrap_or(1) == 1;
            let packet = parsed.fragment?;
            if is_whole && parsed.header.frag_index == 0 {
                let incoming = Incoming {
                    face,
                    header: parsed.header,
                    packet,
                };
                return self.route(&incoming).then_some(incoming);
            }
        }
        self.receive_slowly(face, endpoint, frame, lent);
        None
    }

    /// A link packet that the link protocol has to look at: a fragment, or one to acknowledge.
    fn receive_slowly(&mut self, face: FaceId, endpoint: u64, frame: &[u8], lent: &mut Lent<'_>) {
        let mut whole = core::mem::take(&mut self.whole);
        let mut result = Ok(());
        let now = lent.now;
        out_of(&mut self.outputs, &self.forwarding, lent).link_sends(face, |link, mut send| {
            let mut deliver = |header: &LpHeader<'_>, packet: &[u8]| {
                let mut bytes = vec![0; packet.len() + header.fields_bytes() + 10];
                let length = header.encode(&[], packet, &mut bytes).unwrap_or(0);
                bytes.truncate(length);
                whole.push(bytes);
            };
            result = link.receive(now, endpoint, frame, &mut deliver, &mut send);
        });
        if let Err(reason) = result {
            self.outputs.drop(reason);
        }
        for packet in whole.drain(..) {
            if let Ok(parsed) = LpPacket::parse(&packet) {
                let incoming = Incoming {
                    face,
                    header: parsed.header,
                    packet: parsed.fragment.unwrap_or_default(),
                };
                if self.route(&incoming) {
                    self.input(&[incoming], lent);
                }
            }
        }
        self.whole = whole;
        self.schedule_links();
    }

    /// True if a network packet is this worker's; else it is given to the one that owns its name.
    fn route(&mut self, incoming: &Incoming<'_>) -> bool {
        let partition = self.forwarder.partition();
        if partition.workers() == 1 {
            return true;
        }
        let (face, packet) = (incoming.face, incoming.packet);
        match partition.owner_of_packet(packet) {
            Ok(owner) if owner == self.worker => return true,
            Ok(owner) => self
                .outputs
                .hand_over(owner, For::Input, face, &incoming.header, packet),
            Err(error) => self.outputs.drop(error.drop_reason()),
        }
        false
    }

    /// Lets network packets through the forwarder.
    #[inline]
    fn input(&mut self, packets: &[Incoming<'_>], lent: &mut Lent<'_>) {
        let mut sink = out_of(&mut self.outputs, &self.forwarding, lent);
        let now = sink.now;
        self.forwarder
            .input_burst(now, packets, &mut sink, |incoming, reason| {
                let (face, name) = (incoming.face, name_of(incoming.packet));
                tracing::trace!(%face, reason = reason.name(), %name, "dropped");
            });
    }

    /// Receives what waits in one of the worker's UDP sockets.
    fn datagrams(&mut self, index: usize, lent: &mut Lent<'_>) {
        let Some((socket, datagrams)) = self.outputs.udp.get(index) else {
            return;
        };
        let (socket, is_ipv6) = (Arc::clone(socket), datagrams.is_ipv6);
        let Some(mut burst) = self.burst.take() else {
            return;
        };
        for _ in 0..BURSTS {
            let count = burst.receive(&socket, is_ipv6, |datagrams| {
                self.datagrams_came(index, datagrams, lent);
            });
            self.forwarder.store_mut().quiescent();
            if count < Burst::DATAGRAMS {
                // What comes later makes the socket ready again.
                break;
            }
        }
        self.burst = Some(burst);
    }

    fn datagrams_came(
        &mut self,
        index: usize,
        datagrams: &[(SocketAddr, &[u8])],
        lent: &mut Lent<'_>,
    ) {
        let mut packets = Vec::with_capacity(datagrams.len());
        let mut last: Option<(SocketAddr, FaceId)> = None;
        for &(sender, datagram) in datagrams {
            let peer = Peer::Udp(index, sender);
            let face = match last {
                Some((known, face)) if known == sender => Some(face),
                _ => self.peers.get(&peer).copied(),
            };
            let Some(face) = face else {
                let event = Event::NewPeer(peer, datagram.to_vec());
                if !self.outputs.manager.send(event) {
                    self.outputs.drop(DropReason::NdnFaceDown);
                }
                continue;
            };
            last = Some((sender, face));
            packets.extend(self.arrive(face, 0, datagram, lent));
        }
        self.input(&packets, lent);
    }

    /// Reads from the socket that a face has for itself.
    fn socket_of_face(&mut self, face: FaceId, lent: &mut Lent<'_>) {
        let Some(link) = self.outputs.links.get_mut(face) else {
            return;
        };
        match &mut link.transport {
            Transport::Stream(stream) => {
                let (buffer, state) = stream.read();
                self.stream(face, buffer, state, lent);
            }
            Transport::WebSocket(stream) => {
                let (messages, state) = stream.read();
                let mut packets = Vec::with_capacity(messages.len());
                for message in &messages {
                    packets.extend(self.arrive(face, 0, message, lent));
                }
                self.input(&packets, lent);
                if state == StreamState::Ended {
                    self.stream_ended(face);
                }
            }
            Transport::Group(group) => {
                let (socket, is_ipv6) = (Arc::clone(&group.0), group.1.is_ipv6);
                self.group(face, &socket, is_ipv6, lent);
            }
            Transport::Elsewhere(_) | Transport::Udp(..) | Transport::Ethernet(..) => {}
        }
    }

    fn stream(&mut self, face: FaceId, buffer: Vec<u8>, state: StreamState, lent: &mut Lent<'_>) {
        let mut used = 0;
        let mut is_usable = state == StreamState::Open;
        let mut packets = Vec::new();
        loop {
            match next_frame(&buffer[used..]) {
                Ok(Some(frame)) => {
                    used += frame.len();
                    packets.extend(self.arrive(face, 0, frame, lent));
                }
                Ok(None) => break,
                Err(error) => {
                    self.outputs.drop(error.drop_reason());
                    is_usable = false;
                    break;
                }
            }
        }
        self.input(&packets, lent);
        if !is_usable {
            self.stream_ended(face);
        } else if let Some(link) = self.outputs.links.get_mut(face)
            && let Transport::Stream(stream) = &mut link.transport
        {
            stream.put_back(buffer, used);
        }
    }

    fn group(&mut self, face: FaceId, socket: &UdpSocket, is_ipv6: bool, lent: &mut Lent<'_>) {
        let Some(mut burst) = self.burst.take() else {
            return;
        };
        burst.receive(socket, is_ipv6, |datagrams| {
            let mut packets = Vec::with_capacity(datagrams.len());
            for &(sender, datagram) in datagrams {
                let endpoint = match sender.ip() {
                    std::net::IpAddr::V4(v4) => endpoint_of(&v4.octets()),
                    std::net::IpAddr::V6(v6) => endpoint_of(&v6.octets()),
                };
                let endpoint = endpoint ^ u64::from(sender.port());
                packets.extend(self.arrive(face, endpoint, datagram, lent));
            }
            self.input(&packets, lent);
        });
        self.burst = Some(burst);
    }

    /// The stream of a face ended: it is closed here at once, and everywhere when the manager says so.
    fn stream_ended(&mut self, face: FaceId) {
        if self.outputs.links.get_mut(face).is_some() {
            self.outputs.remove(face);
            self.outputs.manager.send(Event::Closed(face));
        }
    }

    /// Finds out when the link protocol of a face has something to do.
    fn schedule_links(&mut self) {
        let due = self.outputs.links.iter_mut();
        self.links_due = due
            .filter_map(|(_, link)| link.service.poll_timeout())
            .min();
    }
}

/// Tells senders of a link with many ends apart (FNV-1a).
fn endpoint_of(address: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    address.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// Reads the name of a packet, for messages.
fn name_of(packet: &[u8]) -> String {
    let name = Tlv::read(packet)
        .and_then(|outer| Tlv::read(outer.value))
        .and_then(|name| NameRef::new(name.value));
    name.map_or_else(|_| "?".to_owned(), |name| name.to_string())
}
