//! What leaves a worker's forwarder: by kernel sockets, ports, or other workers.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;

use graph::{EdgeId, Outlets};
use io::{FrameFlags, Pool, PortId};
use ndn::link::{LinkConfig, LinkService};
use ndn::{FaceConfig, FaceId, Handoff, Learned, Outgoing, Rng, Sink};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::socket::SockaddrStorage;
use wire::ndn::lp::LpHeader;
use wire::{DropReason, Instant};

use super::message::{Event, For, Message, NewTransport, Outbox, ToManager};
use super::transport::{Datagrams, Stream, StreamState, storage};
use super::websocket::WebStream;
use crate::forwarding::Forwarding;

/// The edge to the ports.
const TX: EdgeId = EdgeId(0);
/// Bytes of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Room for the link fields of a packet between workers.
const FIELDS_BYTES: usize = 10;

/// How a worker reaches the other end of a face.
#[derive(Debug)]
pub(super) enum Transport {
    Elsewhere(usize),
    Stream(Box<Stream>),
    WebSocket(Box<WebStream>),
    Udp(usize, Box<SockaddrStorage>),
    Group(Box<(Arc<UdpSocket>, Datagrams, SockaddrStorage)>),
    Ethernet(PortId, [u8; 6]),
}

/// A face's link, on one worker.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) service: LinkService,
    pub(super) transport: Transport,
    /// Whole link packets need no state of the link.
    pub(super) is_plain: bool,
    pub(super) in_bytes: u64,
    pub(super) out_bytes: u64,
}

/// Links by face.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Option<(FaceId, Box<Link>)>>);

impl Links {
    pub(super) fn new(faces: usize) -> Self {
        Self((0..faces.max(1)).map(|_| None).collect())
    }

    fn index(&self, face: FaceId) -> usize {
        face.0.wrapping_sub(FaceId::FIRST) as usize % self.0.len()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, face: FaceId) -> Option<&mut Link> {
        let index = self.index(face);
        match self.0.get_mut(index) {
            Some(Some((id, link))) if *id == face => Some(link),
            _ => None,
        }
    }

    pub(super) fn insert(&mut self, face: FaceId, link: Link) {
        let index = self.index(face);
        self.0[index] = Some((face, Box::new(link)));
    }

    pub(super) fn remove(&mut self, face: FaceId) -> Option<Box<Link>> {
        let index = self.index(face);
        let is_there = matches!(&self.0[index], Some((id, _)) if *id == face);
        is_there
            .then(|| self.0[index].take())
            .flatten()
            .map(|(_, link)| link)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (FaceId, &mut Link)> {
        let links = self.0.iter_mut().flatten();
        links.map(|(face, link)| (*face, &mut **link))
    }
}

/// All that a worker sends by.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) links: Links,
    /// The worker's UDP sockets with what waits for them.
    pub(super) udp: Vec<(Arc<UdpSocket>, Datagrams)>,
    pub(super) peers: Vec<Option<Outbox>>,
    pub(super) manager: ToManager,
    pub(super) epoll: Arc<Epoll>,
    /// Streams with something to send.
    pub(super) dirty: Vec<FaceId>,
    /// Streams that ended.
    pub(super) ended: Vec<FaceId>,
    /// A link acknowledges and retransmits: it has timers.
    pub(super) has_timers: bool,
    pub(super) drops: Box<[u64; DropReason::COUNT]>,
    pub(super) rng: Rng,
}

impl Outputs {
    pub(super) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// Makes the link of a face.
    pub(super) fn add(&mut self, face: FaceId, config: &FaceConfig, transport: NewTransport) {
        let transport = match transport {
            NewTransport::Elsewhere(worker) => Transport::Elsewhere(worker),
            NewTransport::Stream(socket) => {
                let stream = Stream::new(socket);
                let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(face.0));
                if self.epoll.add(stream.as_fd(), event).is_err() {
                    self.ended.push(face);
                }
                Transport::Stream(Box::new(stream))
            }
            NewTransport::WebSocket(stream) => {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(face.0));
                if self.epoll.add(stream.as_fd(), event).is_err() {
                    self.ended.push(face);
                }
                Transport::WebSocket(stream)
            }
            NewTransport::Udp(socket, peer) => Transport::Udp(socket, Box::new(storage(peer))),
            NewTransport::Group(socket, group) => {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(face.0));
                if self.epoll.add(socket.as_fd(), event).is_err() {
                    self.ended.push(face);
                }
                let socket = Arc::new(UdpSocket::from(socket));
                Transport::Group(Box::new((
                    socket,
                    Datagrams::new(group.is_ipv6()),
                    storage(group),
                )))
            }
            NewTransport::Ethernet(port, to) => Transport::Ethernet(port, to),
        };
        let link = Link {
            service: LinkService::new(&LinkConfig::of_face(config), self.rng.next_u64()),
            transport,
            is_plain: !config.reliability,
            in_bytes: 0,
            out_bytes: 0,
        };
        self.has_timers |= !link.is_plain;
        self.links.insert(face, link);
    }

    /// Removes the link of a face; its socket is closed when what waits for it has been offered once more.
    pub(super) fn remove(&mut self, face: FaceId) {
        self.dirty.retain(|dirty| *dirty != face);
        match self.links.remove(face).map(|link| link.transport) {
            Some(Transport::Stream(mut stream)) => {
                stream.flush();
            }
            Some(Transport::WebSocket(mut stream)) => stream.close(),
            _ => {}
        }
    }

    /// Sends what waits for sockets and other workers.
    pub(super) fn flush(&mut self) {
        for face in core::mem::take(&mut self.dirty) {
            self.flush_stream(face);
        }
        for (socket, datagrams) in &mut self.udp {
            datagrams.flush(socket);
            self.drops[DropReason::NdnLinkLoss as usize] += datagrams.take_refused();
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.flush();
        }
    }

    /// Offers the kernel what waits for a stream; asks to be told of room if it takes only some.
    pub(super) fn flush_stream(&mut self, face: FaceId) {
        let Some(link) = self.links.get_mut(face) else {
            return;
        };
        let (state, was_blocked, is_blocked, fd) = match &mut link.transport {
            Transport::Stream(stream) => {
                let was_blocked = stream.is_blocked;
                let state = stream.flush();
                (state, was_blocked, stream.is_blocked, stream.as_fd())
            }
            Transport::WebSocket(stream) => {
                let was_blocked = stream.is_blocked;
                let state = stream.flush();
                (state, was_blocked, stream.is_blocked, stream.as_fd())
            }
            Transport::Group(group) => {
                let (socket, datagrams, _) = &mut **group;
                datagrams.flush(socket);
                self.drops[DropReason::NdnLinkLoss as usize] += datagrams.take_refused();
                return;
            }
            Transport::Elsewhere(_) | Transport::Udp(..) | Transport::Ethernet(..) => return,
        };
        if state == StreamState::Ended {
            self.ended.push(face);
            return;
        }
        if is_blocked != was_blocked {
            let flags = if is_blocked {
                EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT
            } else {
                EpollFlags::EPOLLIN
            };
            let mut event = EpollEvent::new(flags, u64::from(face.0));
            if self.epoll.modify(fd, &mut event).is_err() {
                self.ended.push(face);
            }
        }
    }

    /// Gives a network packet with its link fields to another worker.
    pub(super) fn hand_over(
        &mut self,
        worker: usize,
        purpose: For,
        face: FaceId,
        header: &LpHeader<'_>,
        packet: &[u8],
    ) {
        let Some(Some(peer)) = self.peers.get_mut(worker) else {
            return self.drop(DropReason::PeerWorkerGone);
        };
        let mut bytes = peer.buffer();
        bytes.resize(packet.len() + header.fields_bytes() + FIELDS_BYTES, 0);
        let length = header.encode(&[], packet, &mut bytes).unwrap_or(0);
        bytes.truncate(length);
        let message = Message {
            purpose,
            face,
            bytes,
        };
        if !peer.push(message) {
            self.drop(DropReason::HandoffRingFull);
        }
    }

    /// Gives a link packet as it came to the worker that has the link's state.
    pub(super) fn hand_over_frame(&mut self, worker: usize, face: FaceId, frame: &[u8]) {
        let Some(Some(peer)) = self.peers.get_mut(worker) else {
            return self.drop(DropReason::PeerWorkerGone);
        };
        let mut bytes = peer.buffer();
        bytes.extend_from_slice(frame);
        let message = Message {
            purpose: For::Receive,
            face,
            bytes,
        };
        if !peer.push(message) {
            self.drop(DropReason::HandoffRingFull);
        }
    }
}

/// [`Outputs`] with what the worker lends for one call.
#[derive(Debug)]
pub(super) struct Out<'a> {
    pub(super) now: Instant,
    pub(super) outputs: &'a mut Outputs,
    pub(super) pool: &'a mut Pool,
    pub(super) outlets: &'a mut Outlets,
    pub(super) forwarding: &'a Forwarding,
}

impl Out<'_> {
    /// Sends a network packet by a face that is this worker's to send by.
    pub(super) fn transmit(&mut self, face: FaceId, header: &LpHeader<'_>, packet: &[u8]) {
        let now = self.now;
        let sent = self.on_link(face, |service, queued_bytes, write| {
            service.send(now, header, packet, queued_bytes, &mut |frame: &[u8]| {
                write(frame)
            })
        });
        match sent {
            Some(Ok(())) => {}
            Some(Err(reason)) => self.outputs.drop(reason),
            None => self.outputs.drop(DropReason::NdnFaceDown),
        }
    }

    /// Lets the link of a face send what `act` says: retransmissions, acknowledgements.
    pub(super) fn link_sends(
        &mut self,
        face: FaceId,
        act: impl FnOnce(&mut LinkService, &mut dyn FnMut(&[u8])),
    ) {
        self.on_link(face, |service, _, write| act(service, write));
    }

    /// Gives `act` the link of a face, the bytes that wait in its transport, and what writes a frame to it; frames that
    /// the transport has no room for are counted. Returns what `act` does, or `None` if the face is gone.
    fn on_link<R>(
        &mut self,
        face: FaceId,
        act: impl FnOnce(&mut LinkService, u64, &mut dyn FnMut(&[u8])) -> R,
    ) -> Option<R> {
        let outputs = &mut *self.outputs;
        let link = outputs.links.get_mut(face)?;
        let mut hands = Hands {
            pool: self.pool,
            outlets: self.outlets,
            forwarding: self.forwarding,
            udp: &mut outputs.udp,
            dirty: &mut outputs.dirty,
            face,
            bytes: 0,
            lost: 0,
        };
        let transport = &mut link.transport;
        let queued_bytes = match transport {
            Transport::Stream(stream) => stream.queued_bytes() as u64,
            Transport::WebSocket(stream) => stream.queued_bytes(),
            _ => 0,
        };
        let done = act(&mut link.service, queued_bytes, &mut |frame| {
            hands.write(transport, frame);
        });
        link.out_bytes += hands.bytes;
        outputs.drops[DropReason::NdnLinkLoss as usize] += hands.lost;
        Some(done)
    }
}

/// What writes link packets to a transport.
struct Hands<'a> {
    pool: &'a mut Pool,
    outlets: &'a mut Outlets,
    forwarding: &'a Forwarding,
    udp: &'a mut Vec<(Arc<UdpSocket>, Datagrams)>,
    dirty: &'a mut Vec<FaceId>,
    face: FaceId,
    bytes: u64,
    lost: u64,
}

impl Hands<'_> {
    fn write(&mut self, transport: &mut Transport, frame: &[u8]) {
        self.bytes += frame.len() as u64;
        let is_sent = match transport {
            Transport::Stream(stream) => {
                if !stream.is_dirty {
                    stream.is_dirty = true;
                    self.dirty.push(self.face);
                }
                stream.push(frame)
            }
            Transport::WebSocket(stream) => {
                if !stream.is_dirty {
                    stream.is_dirty = true;
                    self.dirty.push(self.face);
                }
                stream.push(frame)
            }
            Transport::Udp(index, peer) => match self.udp.get_mut(*index) {
                Some((socket, datagrams)) => {
                    datagrams.push(socket, peer, frame);
                    true
                }
                None => false,
            },
            Transport::Group(group) => {
                let (socket, datagrams, to) = &mut **group;
                datagrams.push(socket, to, frame);
                self.dirty.push(self.face);
                true
            }
            Transport::Ethernet(port, to) => self.ethernet(*port, *to, frame),
            Transport::Elsewhere(_) => false,
        };
        if !is_sent {
            self.lost += 1;
        }
    }

    fn ethernet(&mut self, port: PortId, to: [u8; 6], link_packet: &[u8]) -> bool {
        let Some(source) = self.forwarding.ports().get(port.index()) else {
            return false;
        };
        let Some(mut frame) = self.pool.alloc() else {
            return false;
        };
        if !frame.set_len(ETHERNET_BYTES + link_packet.len()) {
            self.pool.free(frame);
            return false;
        }
        let data = frame.data_mut();
        data[..6].copy_from_slice(&to);
        data[6..12].copy_from_slice(&source.mac.0);
        data[12..14].copy_from_slice(&wire::numbers::ether_type::NDN.to_be_bytes());
        data[14..].copy_from_slice(link_packet);
        frame.flags = FrameFlags::LOCAL;
        frame.tx_port = port;
        self.outlets.push(TX, frame);
        true
    }
}

impl Sink for Out<'_> {
    #[inline]
    fn send(&mut self, outgoing: Outgoing<'_>) {
        let (face, header, packet) = (outgoing.face, &outgoing.header, outgoing.packet);
        if face == FaceId::INTERNAL {
            let mut bytes = vec![0; packet.len() + header.fields_bytes() + FIELDS_BYTES];
            let length = header.encode(&[], packet, &mut bytes).unwrap_or(0);
            bytes.truncate(length);
            if !self.outputs.manager.send(Event::Interest(bytes)) {
                self.outputs.drop(DropReason::HandoffRingFull);
            }
            return;
        }
        let elsewhere = match self.outputs.links.get_mut(face) {
            Some(link) => match link.transport {
                Transport::Elsewhere(worker) => Some(worker),
                _ => None,
            },
            None => return,
        };
        match elsewhere {
            Some(worker) => self
                .outputs
                .hand_over(worker, For::Send, face, header, packet),
            None => self.transmit(face, header, packet),
        }
    }

    fn hand_off(&mut self, worker: usize, handoff: Handoff<'_>) {
        let purpose = For::Data {
            is_solicited: handoff.is_solicited,
        };
        self.outputs.hand_over(
            worker,
            purpose,
            handoff.ingress,
            &handoff.header,
            handoff.packet,
        );
    }

    fn learned(&mut self, learned: Learned<'_>) {
        let event = Event::Learned {
            face: learned.face,
            announcement: learned.announcement.map(<[u8]>::to_vec),
            packet: learned.packet.to_vec(),
        };
        self.outputs.manager.send(event);
    }
}
