//! The host below TCP: neighbours, echoes, path MTU, groups, addresses that it finds by itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use stack::{AddressState, Error, Event, FrameList, Stack, TxSink};
use wire::{
    Addresses, Instant, MacAddr, arp, ethernet, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, ndp, udp,
};

use crate::support::{MACS, Transfer, World, byte, config, ip};

const S: u64 = 1_000_000_000;

/// A host alone on a link whose other end is played by the test.
struct Lone {
    stack: Stack,
    sink: FrameList,
    now: u64,
}

impl Lone {
    fn new(change: impl Fn(&mut stack::StackConfig)) -> Self {
        let mut config = config(0, 9);
        change(&mut config);
        Self {
            stack: Stack::new(config, Instant::from_ns(S)),
            sink: FrameList::new(1024),
            now: S,
        }
    }
    fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }
    /// Lets time pass; returns what the host sent, and when.
    fn pass(&mut self, ns: u64) -> Vec<(u64, Vec<u8>)> {
        let end = self.now + ns;
        let mut sent = Vec::new();
        loop {
            self.stack.poll_transmit(self.time(), &mut self.sink);
            while let Some(frame) = self.sink.pop() {
                sent.push((self.now, frame));
            }
            match self.stack.poll_timeout().map(Instant::as_ns) {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.stack.handle_timeout(self.time());
                }
                _ => break,
            }
        }
        self.now = end;
        sent
    }
    fn give(&mut self, frame: &[u8]) {
        self.stack.input(self.time(), &[frame]);
    }
}

/// Makes a frame of an IP packet to the host.
fn frame(source: IpAddr, destination: IpAddr, protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    let (kind, mac) = match destination {
        IpAddr::V4(ip) if ip.is_broadcast() => (0x0800, MacAddr::BROADCAST),
        IpAddr::V4(ip) if ip.is_multicast() => (0x0800, MacAddr::from_ipv4_multicast(ip)),
        IpAddr::V4(_) => (0x0800, MACS[0]),
        IpAddr::V6(ip) if ip.is_multicast() => (0x86dd, MacAddr::from_ipv6_multicast(ip)),
        IpAddr::V6(_) => (0x86dd, MACS[0]),
    };
    ethernet::Repr {
        destination: mac,
        source: MACS[1],
        ether_type: kind,
    }
    .emit(&mut frame)
    .unwrap();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut repr = ipv4::Repr::new(source, destination, protocol, payload.len() as u16);
            repr.ttl = ttl;
            let mut header = [0; 20];
            repr.emit(&mut header).unwrap();
            frame.extend(header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut repr = ipv6::Repr::new(source, destination, protocol, payload.len() as u16);
            repr.hop_limit = ttl;
            let mut header = [0; 40];
            repr.emit(&mut header).unwrap();
            frame.extend(header);
        }
        _ => panic!("one family"),
    }
    frame.extend(payload);
    frame
}

fn v4(text: &str) -> IpAddr {
    IpAddr::V4(text.parse().unwrap())
}
fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn echoes_are_answered() {
    let mut lone = Lone::new(|_| {});
    lone.stack.add_address(ip(0), 24);
    lone.stack.add_address(v6("2001:db8::1").into(), 64);
    lone.stack.set_neighbour(lone.time(), ip(1), MACS[1]);
    lone.stack
        .set_neighbour(lone.time(), v6("2001:db8::2").into(), MACS[1]);
    lone.pass(2 * S);
    let mut message = vec![0; 8 + 56];
    message[8..].fill(7);
    icmpv4::Repr::EchoRequest {
        identifier: 1,
        sequence: 2,
    }
    .emit(&mut message)
    .unwrap();
    lone.give(&frame(ip(1), ip(0), ip_protocol::ICMP, 64, &message));
    let (source, destination) = (v6("2001:db8::2"), v6("2001:db8::1"));
    icmpv6::Repr::EchoRequest {
        identifier: 1,
        sequence: 2,
    }
    .emit(&mut message, source, destination)
    .unwrap();
    lone.give(&frame(
        source.into(),
        destination.into(),
        ip_protocol::ICMPV6,
        64,
        &message,
    ));
    let sent = lone.pass(0);
    assert_eq!(sent.len(), 2);
    let reply = icmpv4::View::new(&sent[0].1[34..]).unwrap();
    assert!(reply.checksum_is_valid() && reply.payload().iter().all(|&b| b == 7));
    assert_eq!(
        icmpv4::Repr::parse(&reply),
        icmpv4::Repr::EchoReply {
            identifier: 1,
            sequence: 2
        }
    );
    let reply = icmpv6::View::new(&sent[1].1[54..]).unwrap();
    let message = &sent[1].1[54..];
    let ends = Addresses::V6 {
        source: destination,
        destination: source,
    };
    let sum = ends.pseudo_header(ip_protocol::ICMPV6, message.len() as u16);
    assert!(sum.add_bytes(message).is_valid());
    assert_eq!(
        icmpv6::Repr::parse(&reply),
        icmpv6::Repr::EchoReply {
            identifier: 1,
            sequence: 2
        }
    );
}

#[test]
fn arp_is_asked_and_answered() {
    let mut lone = Lone::new(|_| {});
    lone.stack.add_address(ip(0), 24);
    let now = lone.time();
    lone.stack
        .tcp_connect(now, SocketAddr::new(ip(1), 80), None)
        .unwrap();
    let sent = lone.pass(0);
    let request = arp::Repr::parse(&arp::View::new(&sent[0].1[14..]).unwrap());
    assert_eq!(
        request,
        arp::Repr::request(
            MACS[0],
            "192.0.2.1".parse().unwrap(),
            "192.0.2.2".parse().unwrap()
        )
    );
    let mut reply = vec![0; 42];
    ethernet::Repr {
        destination: MACS[0],
        source: MACS[1],
        ether_type: 0x0806,
    }
    .emit(&mut reply)
    .unwrap();
    request.reply(MACS[1]).emit(&mut reply[14..]).unwrap();
    lone.give(&reply);
    let sent = lone.pass(0);
    assert_eq!((sent.len(), &sent[0].1[..6]), (1, &MACS[1].octets()[..]));
    // Now the other asks.
    let question = arp::Repr::request(
        MACS[1],
        "192.0.2.2".parse().unwrap(),
        "192.0.2.1".parse().unwrap(),
    );
    ethernet::Repr {
        destination: MacAddr::BROADCAST,
        source: MACS[1],
        ether_type: 0x0806,
    }
    .emit(&mut reply)
    .unwrap();
    question.emit(&mut reply[14..]).unwrap();
    lone.give(&reply);
    let sent = lone.pass(0);
    assert_eq!(
        arp::Repr::parse(&arp::View::new(&sent[0].1[14..]).unwrap()),
        question.reply(MACS[0])
    );
}

/// The path takes 1,000 bytes only, and says so: the transfer goes on in smaller segments.
#[test]
fn path_mtu_is_learned_from_icmp() {
    let mut world = World::new(11);
    world.set_link(100_000_000, 2_000_000);
    let (client, server) = world.connect(80);
    let too_big = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let store = too_big.clone();
    world.ways[0].filter = Some(Box::new(move |frame| {
        if frame.len() <= 1014 {
            return true;
        }
        store.borrow_mut().push(frame.clone());
        false
    }));
    let mut transfer = Transfer::new((0, client), (1, server), 300_000);
    let done = world.run(20 * S, |world| {
        for dropped in too_big.borrow_mut().drain(..) {
            let mut message = vec![0; 8];
            message.extend(&dropped[14..14 + 28]);
            icmpv4::Repr::DestinationUnreachable { code: 4, mtu: 1000 }
                .emit(&mut message)
                .unwrap();
            let icmp = frame(ip(1), ip(0), ip_protocol::ICMP, 64, &message);
            let now = world.time();
            world.hosts[0].input(now, &[&icmp]);
        }
        transfer.poll(world)
    });
    assert!(done, "{} bytes", transfer.received);
    assert_eq!(
        world.hosts[0].tcp_info(client).unwrap().segment_bytes,
        1000 - 52
    );
    assert_eq!(world.hosts[0].tcp_stats().timeouts, 0);
}

/// The path takes 1,200 bytes only, and says nothing (RFC 4821).
#[test]
fn black_holes_are_probed() {
    let mut world = World::with(12, |_, config| {
        config.tcp.modules |= stack::Modules::PLPMTUD
    });
    world.set_link(100_000_000, 2_000_000);
    let (client, server) = world.connect(80);
    world.ways[0].filter = Some(Box::new(|frame| frame.len() <= 1214));
    let mut transfer = Transfer::new((0, client), (1, server), 300_000);
    assert!(
        world.run(60 * S, |world| transfer.poll(world)),
        "{} bytes",
        transfer.received
    );
    let segment = world.hosts[0].tcp_info(client).unwrap().segment_bytes;
    assert!((1024 - 12..=1200 - 52).contains(&segment), "{segment}");
}

#[test]
fn groups_are_joined_told_and_left() {
    let mut lone = Lone::new(|_| {});
    lone.stack.add_address(ip(0), 24);
    let socket = lone
        .stack
        .udp_bind("0.0.0.0:5353".parse().unwrap())
        .unwrap();
    let group = v4("239.1.2.3");
    let now = lone.time();
    lone.stack.udp_join(now, socket, group).unwrap();
    assert_eq!(
        lone.stack.udp_join(now, socket, group),
        Err(Error::AddrInUse)
    );
    let sent = lone.pass(5 * S);
    assert_eq!(sent.len(), 2, "a change is told twice");
    for (_, frame) in &sent {
        assert_eq!(&frame[30..34], &[224, 0, 0, 22]);
        assert_eq!(frame[14] & 0xf, 6, "router alert");
        assert_eq!(frame[22], 1, "TTL");
        let message = &frame[38..];
        assert_eq!(
            (message[0], message[8], &message[12..16]),
            (0x22, 4, &[239, 1, 2, 3][..])
        );
        assert_eq!(wire::checksum::checksum(message), 0);
    }
    let mut datagram = vec![0; 8];
    datagram.extend(b"to all");
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (ip(1), group) else {
        unreachable!()
    };
    udp::Repr {
        source_port: 9,
        destination_port: 5353,
    }
    .emit(
        &mut datagram,
        &Addresses::V4 {
            source,
            destination,
        },
    )
    .unwrap();
    lone.give(&frame(ip(1), group, ip_protocol::UDP, 1, &datagram));
    assert_eq!(lone.stack.udp_recv(socket).unwrap().data, b"to all");
    // A general query, to be answered within a second.
    let mut query = vec![0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    let sum = wire::checksum::checksum(&query).to_be_bytes();
    query[2..4].copy_from_slice(&sum);
    lone.give(&frame(ip(1), v4("224.0.0.1"), ip_protocol::IGMP, 1, &query));
    let asked = lone.now;
    let sent = lone.pass(5 * S);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].0 - asked <= S);
    assert_eq!(sent[0].1[38 + 8], 2, "mode is exclude");
    let now = lone.time();
    lone.stack.udp_leave(now, socket, group).unwrap();
    let sent = lone.pass(5 * S);
    assert_eq!((sent.len(), sent[0].1[38 + 8]), (2, 3), "to include");
    lone.give(&frame(ip(1), group, ip_protocol::UDP, 1, &datagram));
    assert_eq!(lone.stack.udp_recv(socket).unwrap_err(), Error::WouldBlock);
    assert_eq!(lone.stack.poll_timeout(), None);
}

/// Link-local address probed, routers asked, an address made of the prefix, then all of it expires.
#[test]
fn slaac_from_start_to_end() {
    let mut lone = Lone::new(|config| config.ipv6_autoconfiguration = true);
    let sent = lone.pass(10 * S);
    let kinds: Vec<u8> = sent
        .iter()
        .filter(|(_, f)| f[20] == ip_protocol::ICMPV6)
        .map(|(_, f)| f[54])
        .collect();
    assert_eq!(
        kinds,
        [
            ndp::NEIGHBOUR_SOLICITATION,
            ndp::ROUTER_SOLICITATION,
            ndp::ROUTER_SOLICITATION,
            ndp::ROUTER_SOLICITATION
        ][..kinds.len()]
    );
    assert!(kinds.len() >= 3, "{kinds:?}");
    let probe = sent
        .iter()
        .find(|(_, f)| f[54] == ndp::NEIGHBOUR_SOLICITATION)
        .unwrap();
    assert_eq!(&probe.1[22..38], &[0; 16], "a probe has no source");
    // Router advertisement: lifetime 1800 s, prefix 2001:db8:7::/64 on the link, autonomous, valid 600 s, preferred 300 s.
    let router = v6("fe80::1");
    let mut message = vec![0; 16];
    message[0] = ndp::ROUTER_ADVERTISEMENT;
    message[4..8].copy_from_slice(&[64, 0, 0x07, 0x08]);
    message.extend([1, 1]);
    message.extend(MACS[1].octets());
    message.extend([3, 4, 64, 0xc0, 0, 0, 2, 88, 0, 0, 1, 44, 0, 0, 0, 0]);
    message.extend(v6("2001:db8:7::").octets());
    let all = v6("ff02::1");
    let sum = Addresses::V6 {
        source: router,
        destination: all,
    }
    .pseudo_header(ip_protocol::ICMPV6, message.len() as u16)
    .add_bytes(&message)
    .checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    lone.give(&frame(
        router.into(),
        all.into(),
        ip_protocol::ICMPV6,
        255,
        &message,
    ));
    lone.pass(3 * S);
    let address = *lone
        .stack
        .addresses()
        .iter()
        .find(|a| a.ip.to_string().starts_with("2001:db8:7:"))
        .expect("an address");
    assert_eq!(address.state, AddressState::Preferred);
    assert!(
        lone.stack
            .routes()
            .iter()
            .any(|route| route.gateway == Some(router.into()))
    );
    assert!(
        std::iter::from_fn(|| lone.stack.poll_event())
            .any(|event| event == Event::AddressesChanged)
    );
    lone.pass(301 * S);
    let state = |lone: &Lone| {
        lone.stack
            .addresses()
            .iter()
            .find(|a| a.ip == address.ip)
            .map(|a| a.state)
    };
    assert_eq!(state(&lone), Some(AddressState::Deprecated));
    lone.pass(301 * S);
    assert_eq!(state(&lone), None);
    lone.pass(1300 * S);
    assert!(lone.stack.routes().is_empty());
}

#[test]
fn a_duplicate_address_is_not_used() {
    let mut lone = Lone::new(|config| config.ipv6_autoconfiguration = true);
    lone.pass(S);
    let ours = MACS[0].to_link_local();
    let all = v6("ff02::1");
    let mut message = [0; 32];
    let repr = ndp::Repr::NeighbourAdvertisement {
        router: false,
        solicited: false,
        overrides: true,
        target: ours,
        target_mac: Some(MACS[1]),
    };
    repr.emit(&mut message, ours, all).unwrap();
    lone.give(&frame(
        ours.into(),
        all.into(),
        ip_protocol::ICMPV6,
        255,
        &message,
    ));
    lone.pass(10 * S);
    assert_eq!(lone.stack.addresses()[0].state, AddressState::Duplicate);
}

/// Discover, offer, request, acknowledgement; renewed at half, given up at the end.
#[test]
fn dhcp_gets_renews_and_loses_an_address() {
    let mut lone = Lone::new(|config| config.dhcp = true);
    let kind = |frame: &[u8]| {
        let options = &frame[14 + 20 + 8 + 240..];
        (options[0] == 53).then(|| options[2]).unwrap()
    };
    let answer = |lone: &mut Lone, request: &[u8], kind: u8| {
        let mut datagram = vec![0; 8];
        let mut body = request[42..42 + 240].to_vec();
        body[0] = 2;
        body[16..20].copy_from_slice(&[10, 0, 0, 7]);
        body.extend([
            53, 1, kind, 54, 4, 10, 0, 0, 1, 1, 4, 255, 255, 0, 0, 3, 4, 10, 0, 0, 1, 6, 4, 9, 9,
            9, 9, 51, 4, 0, 0, 14, 16, 255,
        ]);
        datagram.extend(body);
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::BROADCAST);
        udp::Repr {
            source_port: 67,
            destination_port: 68,
        }
        .emit(
            &mut datagram,
            &Addresses::V4 {
                source,
                destination,
            },
        )
        .unwrap();
        lone.give(&frame(
            source.into(),
            destination.into(),
            ip_protocol::UDP,
            64,
            &datagram,
        ));
    };
    // Nobody answers at first: asked again after 4 s, give or take one.
    let sent = lone.pass(6 * S);
    assert_eq!(
        sent.iter().map(|(_, f)| kind(f)).collect::<Vec<_>>(),
        [1, 1]
    );
    assert!((3 * S..5 * S).contains(&(sent[1].0 - sent[0].0)));
    answer(&mut lone, &sent[1].1, 2);
    let sent = lone.pass(0);
    assert_eq!(kind(&sent[0].1), 3);
    answer(&mut lone, &sent[0].1, 5);
    let bound = lone.now;
    let lease = lone.stack.dhcp_lease().unwrap();
    assert_eq!(
        (lease.address, lease.prefix, lease.seconds),
        (Ipv4Addr::new(10, 0, 0, 7), 16, 3600)
    );
    assert_eq!(lease.name_servers[0], Ipv4Addr::new(9, 9, 9, 9));
    assert_eq!(lone.stack.routes()[0].gateway, Some(v4("10.0.0.1")));
    lone.stack
        .set_neighbour(lone.time(), v4("10.0.0.1"), MACS[1]);
    let sent = lone.pass(1801 * S);
    let renewal = sent.iter().find(|(_, f)| f.len() > 300).unwrap();
    assert_eq!(
        (
            kind(&renewal.1),
            (renewal.0 - bound) / S,
            &renewal.1[26..30]
        ),
        (3, 1800, &[10, 0, 0, 7][..])
    );
    answer(&mut lone, &renewal.1.clone(), 5);
    // Nobody answers any more: unicast, then broadcast, then over.
    let sent = lone.pass(3601 * S);
    assert!(
        sent.iter()
            .any(|(_, f)| f.len() > 300 && f[30..34] == [255; 4]),
        "rebinding is broadcast"
    );
    assert_eq!(lone.stack.dhcp_lease(), None);
    assert!(lone.stack.addresses().is_empty() && lone.stack.routes().is_empty());
}

#[test]
fn fragments_of_a_datagram_reordered() {
    let mut world = World::new(13);
    world.ways[0].faults = crate::support::Faults {
        reorder: 500_000,
        reorder_ns: 100_000,
        ..Default::default()
    };
    let server = world.hosts[1].udp_bind(SocketAddr::new(ip(1), 53)).unwrap();
    let client = world.hosts[0].udp_bind(SocketAddr::new(ip(0), 0)).unwrap();
    for size in [3000, 20_000, 65_000] {
        let data: Vec<u8> = (0..size).map(byte).collect();
        world.hosts[0]
            .udp_send_to(client, &data, Some(SocketAddr::new(ip(1), 53)))
            .unwrap();
        world.pass(S);
        assert!(world.hosts[1].udp_recv(server).unwrap().data == data);
    }
}

/// A sink that is always full loses nothing.
#[test]
fn a_full_sink_is_no_loss() {
    struct Full;
    impl TxSink for Full {
        fn reserve(&mut self, _bytes: usize) -> Option<&mut [u8]> {
            None
        }
        fn commit(&mut self) {}
    }
    let mut world = World::new(14);
    let (client, server) = world.connect(80);
    let mut transfer = Transfer::new((0, client), (1, server), 200_000);
    let done = world.run(5 * S, |world| {
        let now = world.time();
        let done = transfer.poll(world);
        world.hosts[0].poll_transmit(now, &mut Full);
        world.hosts[1].poll_transmit(now, &mut Full);
        done
    });
    assert!(done);
    assert_eq!(world.hosts[0].tcp_stats().segments_resent, 0);
}
