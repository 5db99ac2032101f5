//! Nodes in virtual time, over links that lose, repeat, reorder and fail: no Interest circles, what can be
//! answered is answered once links heal, and every PIT empties.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use ndn::link::{LinkConfig, LinkService};
use ndn::{
    FaceConfig, FaceId, Forwarder, ForwarderConfig, Handoff, MemoryStore, NameHasher, NextHop,
    Outgoing, Partition, Rng, Sink,
};
use wire::Instant;
use wire::ndn::lp::LpHeader;
use wire::ndn::name::Name;
use wire::ndn::{Data, Interest};

use crate::support::{data, interest, name};

/// What leaves a node before the link protocol.
#[derive(Default)]
struct Outbox(Vec<(FaceId, LpHeader<'static>, Vec<u8>)>);

impl Sink for Outbox {
    fn send(&mut self, outgoing: Outgoing<'_>) {
        let header = LpHeader {
            nack: outgoing.header.nack,
            congestion_mark: outgoing.header.congestion_mark,
            ..LpHeader::default()
        };
        self.0
            .push((outgoing.face, header, outgoing.packet.to_vec()));
    }
    fn hand_off(&mut self, _: usize, _: Handoff<'_>) {
        panic!("there is one worker");
    }
}

struct Node {
    forwarder: Forwarder<MemoryStore>,
    /// The application's face.
    app: FaceId,
    /// The other end of each network face: node and face.
    peers: BTreeMap<FaceId, (usize, FaceId)>,
    links: BTreeMap<FaceId, LinkService>,
    /// Prefixes that the application serves.
    serves: Vec<Name>,
}

/// A frame on its way.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrives: std::cmp::Reverse<(Instant, u64)>,
    to: usize,
    face: FaceId,
    frame: Vec<u8>,
}

struct Network {
    rng: Rng,
    now: Instant,
    nodes: Vec<Node>,
    flights: BinaryHeap<Flight>,
    sent: u64,
    faulty: bool,
    /// Links that are down, as pairs of nodes.
    down: BTreeSet<(usize, usize)>,
    /// Names that consumers got Data for, by node.
    got: BTreeSet<(usize, String)>,
    /// From which faces each node forwarded each Interest, by name and nonce.
    forwarded: BTreeMap<(String, [u8; 4], usize), BTreeSet<FaceId>>,
}

impl Network {
    /// A ring with chords, so that Interests can circle.
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let now = Instant::from_ns(1_000_000_000);
        let count = 4 + rng.below(5) as usize;
        let nodes = (0..count)
            .map(|at| {
                let partition = Partition::new(1, NameHasher::new([seed, at as u64]), 64);
                let config = ForwarderConfig {
                    pit_entries: 256,
                    fib_prefixes: 64,
                    dead_nonces: 4096,
                    faces: 16,
                    seed: seed ^ (at as u64) << 32,
                    ..ForwarderConfig::default()
                };
                let store = MemoryStore::new(20);
                let mut forwarder = Forwarder::new(0, partition, config, store, now);
                let app = FaceConfig::local("fd://1", "unix:///run/nfd/nfd.sock");
                let app = forwarder.add_face(app, now).unwrap();
                Node {
                    forwarder,
                    app,
                    peers: BTreeMap::new(),
                    links: BTreeMap::new(),
                    serves: Vec::new(),
                }
            })
            .collect();
        let mut network = Self {
            rng,
            now,
            nodes,
            flights: BinaryHeap::new(),
            sent: 0,
            faulty: true,
            down: BTreeSet::new(),
            got: BTreeSet::new(),
            forwarded: BTreeMap::new(),
        };
        for at in 0..count {
            network.connect(at, (at + 1) % count);
        }
        for _ in 0..2 {
            let (a, b) = (network.draw(count), network.draw(count));
            let linked = network.nodes[a].peers.values().any(|peer| peer.0 == b);
            if a != b && !linked {
                network.connect(a, b);
            }
        }
        network
    }

    fn draw(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn connect(&mut self, a: usize, b: usize) {
        let reliable = self.rng.below(2) == 0;
        let mtu = [500, 1400][self.draw(2)];
        let mut add = |from: usize, to: usize| {
            let remote = format!("udp4://10.0.{from}.{to}:6363");
            let config = FaceConfig {
                reliability: reliable,
                mtu: Some(mtu),
                ..FaceConfig::network(&remote, "udp4://10.0.0.1:6363")
            };
            let node = &mut self.nodes[from];
            let face = node.forwarder.add_face(config.clone(), self.now).unwrap();
            let link = LinkService::new(&LinkConfig::of_face(&config), self.rng.next_u64());
            node.links.insert(face, link);
            face
        };
        let (here, there) = (add(a, b), add(b, a));
        self.nodes[a].peers.insert(here, (b, there));
        self.nodes[b].peers.insert(there, (a, here));
    }

    /// Gives a prefix to a node's application, and routes to all: the shortest path costs least, all other
    /// faces are next hops too, so that Interests that stray may circle.
    fn serve(&mut self, at: usize, uri: &str, strategy: &str) {
        let prefix = name(uri);
        let mut distance = vec![usize::MAX; self.nodes.len()];
        distance[at] = 0;
        let mut queue = std::collections::VecDeque::from([at]);
        while let Some(here) = queue.pop_front() {
            for &(next, _) in self.nodes[here].peers.values() {
                if distance[next] == usize::MAX {
                    distance[next] = distance[here] + 1;
                    queue.push_back(next);
                }
            }
        }
        let strategy = name(&format!("/localhost/nfd/strategy/{strategy}"));
        for (here, node) in self.nodes.iter_mut().enumerate() {
            node.forwarder
                .set_strategy(prefix.as_ref(), strategy.as_ref())
                .unwrap();
            let mut hops: Vec<NextHop> = node
                .peers
                .iter()
                .map(|(&face, &(peer, _))| NextHop {
                    face,
                    cost: 10 * distance[peer] as u64 + 10,
                })
                .collect();
            if here == at {
                hops = vec![NextHop {
                    face: node.app,
                    cost: 0,
                }];
            }
            for hop in hops {
                node.forwarder
                    .add_next_hop(prefix.as_ref(), hop, self.now, &mut Outbox::default())
                    .unwrap();
            }
        }
        self.nodes[at].serves.push(prefix);
    }

    /// A network packet comes to a node by a face.
    fn input(&mut self, at: usize, face: FaceId, header: &LpHeader<'_>, packet: &[u8]) {
        let mut outbox = Outbox::default();
        // Drops are part of it.
        let _ = self.nodes[at]
            .forwarder
            .input(self.now, face, header, packet, &mut outbox);
        self.flush(at, Some(face), outbox);
    }

    fn flush(&mut self, at: usize, ingress: Option<FaceId>, outbox: Outbox) {
        for (face, header, packet) in outbox.0 {
            if face == self.nodes[at].app {
                self.application(at, header, &packet);
                continue;
            }
            if header.nack.is_none()
                && let Ok(interest) = Interest::parse(&packet)
            {
                let key = (interest.name.to_string(), interest.nonce.unwrap(), at);
                self.forwarded.entry(key).or_default().extend(ingress);
            }
            let link = self.nodes[at].links.get_mut(&face).unwrap();
            let mut frames = Vec::new();
            link.send(self.now, &header, &packet, 0, &mut |frame| {
                frames.push(frame.to_vec());
            })
            .unwrap();
            self.transmit(at, face, frames);
        }
    }

    /// The application answers what it serves, and keeps what it gets.
    fn application(&mut self, at: usize, header: LpHeader<'_>, packet: &[u8]) {
        if let Ok(data) = Data::parse(packet) {
            self.got.insert((at, data.name.to_string()));
        } else if header.nack.is_none() {
            let asked = Interest::parse(packet).unwrap();
            let serves = &self.nodes[at].serves;
            if serves
                .iter()
                .any(|prefix| prefix.as_ref().is_prefix_of(&asked.name))
            {
                let answer = data(&asked.name.to_string(), 0);
                let app = self.nodes[at].app;
                self.input(at, app, &LpHeader::default(), &answer);
            }
        }
    }

    fn transmit(&mut self, at: usize, face: FaceId, frames: Vec<Vec<u8>>) {
        let (to, there) = self.nodes[at].peers[&face];
        for frame in frames {
            if self.down.contains(&(at.min(to), at.max(to))) {
                continue;
            }
            let mut copies = 1;
            if self.faulty {
                copies = match self.rng.below(20) {
                    0..3 => 0,
                    3 => 2,
                    _ => 1,
                };
            }
            for _ in 0..copies {
                let jitter = if self.faulty {
                    self.rng.below(20_000_000)
                } else {
                    0
                };
                let arrives = self.now + Duration::from_nanos(1_000_000 + jitter);
                self.sent += 1;
                self.flights.push(Flight {
                    arrives: std::cmp::Reverse((arrives, self.sent)),
                    to,
                    face: there,
                    frame: frame.clone(),
                });
            }
        }
    }

    /// Runs until `end`.
    fn run(&mut self, end: Instant) {
        loop {
            let next_flight = self.flights.peek().map(|flight| flight.arrives.0.0);
            let timers = self.nodes.iter().flat_map(|node| {
                let links = node.links.values().filter_map(|link| link.poll_timeout());
                links.chain(node.forwarder.poll_timeout())
            });
            let next = timers.chain(next_flight).min();
            let Some(next) = next.filter(|&next| next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            self.timers();
            while self
                .flights
                .peek()
                .is_some_and(|f| f.arrives.0.0 <= self.now)
            {
                let flight = self.flights.pop().unwrap();
                self.arrive(flight);
            }
        }
    }

    fn timers(&mut self) {
        for at in 0..self.nodes.len() {
            let mut outbox = Outbox::default();
            let node = &mut self.nodes[at];
            node.forwarder.handle_timeout(self.now, &mut outbox);
            let mut frames = Vec::new();
            for (&face, link) in &mut node.links {
                if link.poll_timeout().is_some_and(|when| when <= self.now) {
                    link.handle_timeout(self.now, &mut |frame| frames.push((face, frame.to_vec())));
                }
            }
            for (face, frame) in frames {
                self.transmit(at, face, vec![frame]);
            }
            self.flush(at, None, outbox);
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let (mut packets, mut frames) = (Vec::new(), Vec::new());
        let link = self.nodes[flight.to].links.get_mut(&flight.face).unwrap();
        let _ = link.receive(
            self.now,
            0,
            &flight.frame,
            &mut |header, packet| packets.push((header.nack, packet.to_vec())),
            &mut |frame| frames.push(frame.to_vec()),
        );
        self.transmit(flight.to, flight.face, frames);
        for (nack, packet) in packets {
            let header = LpHeader {
                nack,
                ..LpHeader::default()
            };
            self.input(flight.to, flight.face, &header, &packet);
        }
    }

    /// A consumer at a node asks.
    fn ask(&mut self, at: usize, uri: &str) {
        let nonce = self.rng.next_u64() as u32;
        let packet = interest(uri, nonce, |i| {
            i.lifetime_ms = Some(500);
            i.hop_limit = Some(30);
        });
        let app = self.nodes[at].app;
        self.input(at, app, &LpHeader::default(), &packet);
    }
}

const STRATEGIES: [&str; 4] = ["best-route", "multicast", "asf", "random"];

fn run_seed(seed: u64) {
    let mut network = Network::new(seed);
    let strategy = STRATEGIES[seed as usize % STRATEGIES.len()];
    let producer = network.draw(network.nodes.len());
    network.serve(producer, "/p", strategy);
    let mut asked = BTreeSet::new();
    for round in 0..30 {
        if network.rng.below(6) == 0 {
            let at = network.draw(network.nodes.len());
            let peer = network.nodes[at].peers.values().next().unwrap().0;
            network.down.insert((at.min(peer), at.max(peer)));
        }
        // Anywhere but at the producer, whose application has one face.
        let others = network.nodes.len() - 1;
        let consumer = (producer + 1 + network.draw(others)) % network.nodes.len();
        let number = network.rng.below(10);
        let uri = format!("/p/{number}");
        network.ask(consumer, &uri);
        asked.insert((consumer, uri));
        if round % 5 == 0 {
            let uri = format!("/nowhere/{number}");
            network.ask(consumer, &uri);
        }
        let pause = Duration::from_millis(network.rng.below(40));
        network.run(network.now + pause);
    }
    // The links heal; consumers ask again for what they did not get, as applications do.
    network.faulty = false;
    network.down.clear();
    network.run(network.now + Duration::from_secs(2));
    for _ in 0..40 {
        let missing: Vec<_> = asked.difference(&network.got).cloned().collect();
        for (consumer, uri) in missing {
            network.ask(consumer, &uri);
        }
        network.run(network.now + Duration::from_millis(700));
    }
    let missing: Vec<_> = asked.difference(&network.got).collect();
    assert!(missing.is_empty(), "seed {seed}, {strategy}: {missing:?}");
    network.run(network.now + Duration::from_secs(100));
    for (at, node) in network.nodes.iter().enumerate() {
        assert!(
            node.forwarder.pit().is_empty(),
            "seed {seed}: PIT of node {at}"
        );
        assert_eq!(node.forwarder.poll_timeout(), None);
        let hidden = node.links.values().filter_map(|link| link.reliability());
        assert!(hidden.map(|r| r.in_flight()).all(|frames| frames == 0));
    }
    assert!(network.flights.is_empty());
    // What circles comes back by another face than the first time. (That a link repeats a frame is no circle:
    // it comes by the same face, as a retransmission would.)
    for ((name, nonce, at), ingress) in &network.forwarded {
        assert!(
            ingress.len() <= 1,
            "seed {seed}, {strategy}: node {at} forwarded {name} {nonce:02x?} from {ingress:?}"
        );
    }
}

#[test]
fn seeds_0_to_199() {
    for seed in 0..200 {
        run_seed(seed);
    }
}
