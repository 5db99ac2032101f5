//! A small NDN node on ordinary sockets: Unix and TCP streams, UDP. It shows how the engine is driven, and serves
//! clients of other projects:
//!
//! ```text
//! cargo run -p tidegate-ndn --example node -- --unix /tmp/nfd.sock --tcp 127.0.0.1:6363 --udp 127.0.0.1:6363 --seconds 60
//! NDN_CLIENT_TRANSPORT=unix:///tmp/nfd.sock python3 -m ndn.bin.tools nfdc status
//! ```
//!
//! One thread holds the engine; one thread a socket reads.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ndn::link::{LinkConfig, LinkService};
use ndn::mgmt::{
    FaceEventKind, FaceRefusal, FaceRequest, KeyRing, Management, ManagementConfig, Now,
    SingleWorker, VerifyingKey,
};
use ndn::{
    FaceConfig, FaceId, Forwarder, ForwarderConfig, Handoff, MemoryStore, NameHasher, Outgoing,
    Partition, Persistency, Rng, Sink,
};
use wire::Instant;
use wire::ndn::lp::LpHeader;
use wire::ndn::{DecodeError, Interest, SignatureType, Tlv};

/// What a reading thread says.
enum Event {
    /// A client connected: how to write to it, its FaceUris, and where to tell its number.
    Connected(Box<dyn Write + Send>, FaceConfig, Sender<FaceId>),
    /// A link packet came by a stream.
    Frame(FaceId, Vec<u8>),
    /// A datagram came from a peer.
    Datagram(SocketAddr, Vec<u8>),
    /// The stream ended.
    Closed(FaceId),
}

/// Where link packets of a face go.
enum Transport {
    Stream(Box<dyn Write + Send>),
    Udp(SocketAddr),
}

/// What left the forwarder.
#[derive(Default)]
struct Outbox(Vec<(FaceId, Vec<u8>, Vec<u8>)>);

impl Sink for Outbox {
    fn send(&mut self, outgoing: Outgoing<'_>) {
        // The header is kept as a link packet without fragment: it borrows.
        let mut header = vec![0; outgoing.header.fields_bytes() + 8];
        let length = outgoing.header.encode(&[], &[], &mut header).unwrap_or(0);
        header.truncate(length);
        self.0
            .push((outgoing.face, header, outgoing.packet.to_vec()));
    }
    fn hand_off(&mut self, _: usize, _: Handoff<'_>) {}
}

/// No keys but integrity here.
struct NoKey;

impl VerifyingKey for NoKey {
    fn signature_type(&self) -> SignatureType {
        SignatureType::Other(u64::MAX)
    }
    fn verifies(&self, _: &[&[u8]], _: &[u8]) -> bool {
        false
    }
}

struct Node {
    forwarder: Forwarder<MemoryStore>,
    management: Management<KeyRing<NoKey>>,
    links: BTreeMap<FaceId, (LinkService, Transport)>,
    peers: BTreeMap<SocketAddr, FaceId>,
    udp: Option<UdpSocket>,
    channels: Vec<String>,
    rng: Rng,
    start: std::time::Instant,
}

impl Node {
    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    fn add_face(&mut self, config: FaceConfig, transport: Transport) -> Option<FaceId> {
        let now = self.now();
        let link = LinkService::new(&LinkConfig::of_face(&config), self.rng.next_u64());
        let face = self.forwarder.add_face(config, now)?;
        self.links.insert(face, (link, transport));
        self.event(FaceEventKind::Created, face);
        Some(face)
    }

    fn remove_face(&mut self, face: FaceId) {
        self.event(FaceEventKind::Destroyed, face);
        self.links.remove(&face);
        self.peers.retain(|_, known| *known != face);
        self.forwarder.remove_face(face);
        let now = self.now();
        let mut outbox = Outbox::default();
        let mut control = SingleWorker {
            forwarder: &mut self.forwarder,
            sink: &mut outbox,
            open: |_: &FaceRequest| Err(FaceRefusal::Unsupported),
            channels: &[],
        };
        self.management.face_removed(face, now, &mut control);
    }

    fn event(&mut self, kind: FaceEventKind, face: FaceId) {
        if let Some(face) = self.forwarder.faces().get(face) {
            let packet = self.management.face_event(kind, face);
            self.input(FaceId::INTERNAL, &LpHeader::default(), &packet);
        }
    }

    /// Gives a network packet to the forwarder and sends what leaves.
    fn input(&mut self, face: FaceId, header: &LpHeader<'_>, packet: &[u8]) {
        let mut outbox = Outbox::default();
        let now = self.now();
        if let Err(reason) = self.forwarder.input(now, face, header, packet, &mut outbox) {
            eprintln!("face {face}: dropped: {}", reason.text());
        }
        self.send(outbox);
    }

    fn send(&mut self, outbox: Outbox) {
        let now = self.now();
        for (face, header, packet) in outbox.0 {
            let parsed = wire::ndn::lp::LpPacket::parse(&header);
            let header = parsed.map(|link| link.header).unwrap_or_default();
            if face == FaceId::INTERNAL {
                self.manage(&header, &packet);
                continue;
            }
            let Some((link, transport)) = self.links.get_mut(&face) else {
                continue;
            };
            let udp = self.udp.as_ref();
            let _ = link.send(now, &header, &packet, 0, &mut |frame| {
                write(transport, udp, frame);
            });
        }
    }

    /// An Interest reached management.
    fn manage(&mut self, header: &LpHeader<'_>, packet: &[u8]) {
        let Ok(interest) = Interest::parse(packet) else {
            return;
        };
        let ingress = FaceId(header.incoming_face.unwrap_or(0) as u32);
        let before: BTreeSet<FaceId> = self.forwarder.faces().iter().map(|f| f.id).collect();
        let now = Now {
            instant: self.now(),
            unix_ms: unix_ms(),
        };
        let has_udp = self.udp.is_some();
        let mut outbox = Outbox::default();
        let mut control = SingleWorker {
            forwarder: &mut self.forwarder,
            sink: &mut outbox,
            open: |request: &FaceRequest| match peer_of(&request.remote_uri) {
                Some(_) if has_udp => Ok(FaceConfig {
                    mtu: Some(1400),
                    ..FaceConfig::network(&request.remote_uri, "udp4://0.0.0.0:6363")
                }),
                _ => Err(FaceRefusal::Unsupported),
            },
            channels: &self.channels,
        };
        let answer = self
            .management
            .handle(now, &interest, ingress, &mut control);
        self.send(outbox);
        self.follow_faces(&before);
        if let Some(answer) = answer {
            self.input(FaceId::INTERNAL, &LpHeader::default(), &answer);
        }
    }

    /// Makes and ends the transports of faces that a command made and ended.
    fn follow_faces(&mut self, before: &BTreeSet<FaceId>) {
        let after: BTreeMap<FaceId, FaceConfig> = self
            .forwarder
            .faces()
            .iter()
            .map(|face| (face.id, face.config.clone()))
            .collect();
        for (&face, config) in &after {
            if let (false, Some(peer)) = (before.contains(&face), peer_of(&config.remote_uri)) {
                let link = LinkService::new(&LinkConfig::of_face(config), self.rng.next_u64());
                self.links.insert(face, (link, Transport::Udp(peer)));
                self.peers.insert(peer, face);
                self.event(FaceEventKind::Created, face);
            }
        }
        for face in before.iter().filter(|face| !after.contains_key(face)) {
            self.remove_face(*face);
        }
    }

    /// A link packet came.
    fn receive(&mut self, face: FaceId, frame: &[u8]) {
        let now = self.now();
        let mut packets = Vec::new();
        let Some((link, transport)) = self.links.get_mut(&face) else {
            return;
        };
        let udp = self.udp.as_ref();
        let received = link.receive(
            now,
            0,
            frame,
            &mut |header, packet| {
                let mut fields = vec![0; header.fields_bytes() + 8];
                let length = header.encode(&[], &[], &mut fields).unwrap_or(0);
                fields.truncate(length);
                packets.push((fields, packet.to_vec()));
            },
            &mut |frame| write(transport, udp, frame),
        );
        if let Err(reason) = received {
            eprintln!("face {face}: dropped: {}", reason.text());
        }
        for (header, packet) in packets {
            let parsed = wire::ndn::lp::LpPacket::parse(&header);
            self.input(
                face,
                &parsed.map(|link| link.header).unwrap_or_default(),
                &packet,
            );
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(writer, config, reply) => {
                if let Some(face) = self.add_face(config, Transport::Stream(writer)) {
                    let _ = reply.send(face);
                }
            }
            Event::Frame(face, frame) => self.receive(face, &frame),
            Event::Datagram(peer, frame) => {
                let known = self.peers.get(&peer).copied();
                let face = known.or_else(|| {
                    let config = FaceConfig {
                        persistency: Persistency::OnDemand,
                        mtu: Some(1400),
                        ..FaceConfig::network(&format!("udp4://{peer}"), "udp4://0.0.0.0:6363")
                    };
                    self.add_face(config, Transport::Udp(peer))
                });
                if let Some(face) = face {
                    self.peers.insert(peer, face);
                    self.receive(face, &frame);
                }
            }
            Event::Closed(face) => self.remove_face(face),
        }
    }

    fn handle_timeout(&mut self) {
        let now = self.now();
        let mut outbox = Outbox::default();
        self.forwarder.handle_timeout(now, &mut outbox);
        let mut control = SingleWorker {
            forwarder: &mut self.forwarder,
            sink: &mut outbox,
            open: |_: &FaceRequest| Err(FaceRefusal::Unsupported),
            channels: &[],
        };
        self.management.handle_timeout(now, &mut control);
        self.send(outbox);
        let udp = self.udp.as_ref();
        for (link, transport) in self.links.values_mut() {
            link.handle_timeout(now, &mut |frame| write(transport, udp, frame));
        }
    }

    fn next_timeout(&self) -> Duration {
        let links = self
            .links
            .values()
            .filter_map(|(link, _)| link.poll_timeout());
        let all = links
            .chain(self.forwarder.poll_timeout())
            .chain(self.management.poll_timeout());
        let next = all.min().map(|when| when.saturating_since(self.now()));
        next.unwrap_or(Duration::from_secs(1))
            .clamp(Duration::from_millis(1), Duration::from_secs(1))
    }
}

fn write(transport: &mut Transport, udp: Option<&UdpSocket>, frame: &[u8]) {
    // What cannot be written is lost, as on any link; a stream that ended is seen by its reader.
    let _ = match (transport, udp) {
        (Transport::Stream(stream), _) => stream.write_all(frame),
        (Transport::Udp(peer), Some(socket)) => socket.send_to(frame, *peer).map(|_| ()),
        (Transport::Udp(_), None) => Ok(()),
    };
}

fn peer_of(uri: &str) -> Option<SocketAddr> {
    uri.strip_prefix("udp4://")?.parse().ok()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Reads link packets from a stream until it ends.
fn read_stream(
    mut stream: impl Read,
    writer: Box<dyn Write + Send>,
    config: FaceConfig,
    events: &Sender<Event>,
) -> Option<()> {
    let (reply, face) = channel();
    events.send(Event::Connected(writer, config, reply)).ok()?;
    let face = face.recv().ok()?;
    let mut buffer = Vec::new();
    let mut chunk = [0; 16_384];
    'stream: while let Ok(length @ 1..) = stream.read(&mut chunk) {
        buffer.extend_from_slice(&chunk[..length]);
        loop {
            match Tlv::read(&buffer) {
                Ok(element) => {
                    let length = element.bytes.len();
                    events
                        .send(Event::Frame(face, element.bytes.to_vec()))
                        .ok()?;
                    buffer.drain(..length);
                }
                Err(DecodeError::Truncated) if buffer.len() < 9000 => break,
                // No way to find the next packet.
                Err(_) => break 'stream,
            }
        }
    }
    events.send(Event::Closed(face)).ok()
}

fn listen(
    arguments: &BTreeMap<String, String>,
    events: &Sender<Event>,
    node: &mut Node,
) -> std::io::Result<()> {
    if let Some(path) = arguments.get("--unix") {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        node.channels.push(format!("unix://{path}"));
        let (events, local) = (events.clone(), format!("unix://{path}"));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let Ok(writer) = stream.try_clone() else {
                    continue;
                };
                let config = FaceConfig::local(&format!("fd://{}", 3 + number), &local);
                let events = events.clone();
                std::thread::spawn(move || read_stream(stream, Box::new(writer), config, &events));
            }
        });
    }
    if let Some(address) = arguments.get("--tcp") {
        let listener = TcpListener::bind(address)?;
        node.channels.push(format!("tcp4://{address}"));
        let (events, local) = (events.clone(), format!("tcp4://{address}"));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (Ok(writer), Ok(peer)) = (stream.try_clone(), stream.peer_addr()) else {
                    continue;
                };
                let remote = format!("tcp4://{peer}");
                let config = match peer.ip().is_loopback() {
                    true => FaceConfig::local(&remote, &local),
                    false => FaceConfig {
                        persistency: Persistency::OnDemand,
                        ..FaceConfig::network(&remote, &local)
                    },
                };
                let events = events.clone();
                std::thread::spawn(move || read_stream(stream, Box::new(writer), config, &events));
            }
        });
    }
    if let Some(address) = arguments.get("--udp") {
        let socket = UdpSocket::bind(address)?;
        node.channels.push(format!("udp4://{address}"));
        node.udp = Some(socket.try_clone()?);
        let events = events.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 9000];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                if events
                    .send(Event::Datagram(peer, buffer[..length].to_vec()))
                    .is_err()
                {
                    return;
                }
            }
        });
    }
    Ok(())
}

fn run(node: &mut Node, events: &Receiver<Event>, end: Duration) {
    while node.start.elapsed() < end {
        match events.recv_timeout(node.next_timeout()) {
            Ok(event) => node.handle(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        node.handle_timeout();
    }
}

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let arguments: BTreeMap<String, String> = words
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    let seconds = arguments
        .get("--seconds")
        .and_then(|text| text.parse().ok());
    let mut keys = KeyRing::new();
    for module in ["faces", "fib", "rib", "cs", "strategy-choice"] {
        keys.allow_anyone(module);
    }
    let config = ManagementConfig {
        version: format!("tidegate {}", env!("CARGO_PKG_VERSION")),
        start_unix_ms: unix_ms(),
        routes: 10_000,
        localhop: false,
    };
    let seed = unix_ms() ^ u64::from(std::process::id());
    let partition = Partition::new(1, NameHasher::new([seed, !seed]), 1024);
    let store = MemoryStore::new(65_536);
    let forwarder_config = ForwarderConfig {
        seed,
        ..ForwarderConfig::default()
    };
    let mut node = Node {
        forwarder: Forwarder::new(0, partition, forwarder_config, store, Instant::ZERO),
        management: Management::new(config, keys),
        links: BTreeMap::new(),
        peers: BTreeMap::new(),
        udp: None,
        channels: Vec::new(),
        rng: Rng::new(seed),
        start: std::time::Instant::now(),
    };
    let (sender, events) = channel();
    listen(&arguments, &sender, &mut node)?;
    run(
        &mut node,
        &events,
        Duration::from_secs(seconds.unwrap_or(u64::MAX / 2)),
    );
    Ok(())
}
