//! The same packets through the node and through Linux: the same come out.
//!
//! What differs on purpose is in [`DIFFERENCES`], and the test fails if it does not differ any more.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dataplane::Dataplane;
use io::af_packet::AfPacketSpec;
use io::port::{DriverSpec, PortSpec};
use io::{Batch, HugePages, Pool, PortId, Queue};
use lab::topology::{Line, LineOptions, Side};
use wire::checksum;

use crate::packets::{echo_request, ethernet, ipv4, ipv6, udp};

/// How long nothing may come out before the next packet goes in; on a busy machine that is too short now
/// and then, so that what differs is tried again with more patience.
const QUIET: Duration = Duration::from_millis(40);
const PATIENT: Duration = Duration::from_millis(400);

/// Cases in which the node does something else than Linux, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "record route",
        "the node does not fill in options; Linux does",
    ),
    (
        "truncated udp",
        "the validating pass drops it; Linux forwards what it need not understand",
    ),
    (
        "tiny fragment",
        "RFC 1858: the node drops it; Linux forwards it",
    ),
    (
        "link-local source",
        "RFC 3927 7: the node does not forward it; Linux does",
    ),
    (
        "tcp to the router",
        "the node says port unreachable until it has a TCP; Linux resets",
    ),
    (
        "back where it came from",
        "the node sends no redirects; Linux does",
    ),
];

/// One end of the line, as a tester sees it.
struct Tap {
    queue: Box<dyn Queue>,
    pool: Pool,
}

impl Tap {
    fn open(side: &Side) -> Self {
        let pool = Pool::new(512, 2048, HugePages::Never).expect("a pool");
        let driver = DriverSpec::AfPacket(AfPacketSpec::new(&side.device));
        let spec = PortSpec::new(PortId(0), "tap", driver);
        let region = pool.region();
        let opened = side
            .namespace
            .run(|| Mutex::new(io::port::open(&spec, region, 1)))
            .expect("the namespace can be entered");
        let mut port = opened
            .into_inner()
            .expect("nobody panicked")
            .expect("a port");
        Self {
            queue: port.queues.remove(0),
            pool,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut frame = self.pool.alloc().expect("a frame");
        assert!(frame.fill(bytes));
        let mut batch = Batch::new();
        batch.push(frame).expect("there is room");
        assert_eq!(self.queue.tx(&mut self.pool, &mut batch), 1);
    }

    fn receive(&mut self, to: &mut Vec<Vec<u8>>) -> bool {
        let mut batch = Batch::new();
        let got = self.queue.rx(&mut self.pool, &mut batch) > 0;
        for frame in batch.drain() {
            if !is_chatter(frame.data()) {
                to.push(normal(frame.data()));
            }
            self.pool.free(frame);
        }
        got
    }
}

/// Address resolution and what IPv6 hosts say without being asked.
fn is_chatter(frame: &[u8]) -> bool {
    let discovery = frame[12..14] == [0x86, 0xdd]
        && (frame[20] == 0 || (frame[20] == 58 && matches!(frame[54], 130..=143)));
    frame[12..14] == [8, 6] || discovery
}

/// Clears what two routers may choose as they like: the identification and flow label of what they send
/// themselves, and the checksums that follow from it.
fn normal(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let from_router = |address: &[u8]| {
        address[0] == 10 && address[3] == 1
            || address[..2] == [0xfd, 1] && address[15] == 1
            || address[..2] == [0xfd, 2] && address[15] == 1
    };
    if frame[12..14] == [8, 0] && from_router(&frame[26..30]) {
        frame[18..20].fill(0); // identification
        frame[24..26].fill(0); // checksum
    }
    if frame[12..14] == [0x86, 0xdd] && from_router(&frame[22..38]) {
        frame[15..18].fill(0); // traffic class and flow label
    }
    frame
}

/// Sends each packet from the left; returns what came out on the left and on the right.
fn outputs(
    line: &Line,
    cases: &[(&'static str, Vec<u8>)],
    quiet: Duration,
) -> BTreeMap<&'static str, [Vec<Vec<u8>>; 2]> {
    let mut left = Tap::open(&line.left);
    let mut right = Tap::open(&line.right);
    let mut found = BTreeMap::new();
    for (name, frame) in cases {
        left.send(frame);
        let mut sent = [Vec::new(), Vec::new()];
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            if left.receive(&mut sent[0]) | right.receive(&mut sent[1]) {
                last = Instant::now();
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        found.insert(*name, sent);
    }
    found
}

const LEFT_ROUTER: [u8; 4] = [10, 1, 0, 1];
const LEFT: [u8; 4] = [10, 1, 0, 2];
const RIGHT: [u8; 4] = [10, 2, 0, 2];

fn six(net: u8, host: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[1], address[15]) = (0xfd, net, host);
    address
}

fn cases(line: &Line) -> Vec<(&'static str, Vec<u8>)> {
    let (to, from) = (line.left.node_mac, line.left.mac);
    let four = |packet: &[u8]| ethernet(to, from, 0x0800, packet);
    let six_frame = |packet: &[u8]| {
        let mut frame = ethernet(to, from, 0x86dd, packet);
        if let Ok(layout) = wire::parse(&frame) {
            checksum::fill_transport(&layout, &mut frame);
        }
        frame
    };
    let plain = |destination| four(&ipv4(LEFT, destination, 17, 64, 0, &[], &udp(100)));
    let mut padded = plain(RIGHT);
    padded.extend([0; 9]);
    let mut wrong_sum = plain(RIGHT);
    wrong_sum[24] ^= 1;
    let mut wrong_length = plain(RIGHT);
    wrong_length[16] = 9;
    let broadcast = |packet: &[u8]| ethernet([0xff; 6], from, 0x0800, packet);
    let mut request6 = echo_request(56);
    request6[0] = 128;
    let tcp = [&[
        0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0,
    ][..]]
    .concat();
    let mut tcp = four(&ipv4(LEFT, LEFT_ROUTER, 6, 64, 0, &[], &tcp));
    if let Ok(layout) = wire::parse(&tcp) {
        checksum::fill_transport(&layout, &mut tcp);
    }
    vec![
        ("plain", plain(RIGHT)),
        ("padded", padded),
        (
            "don't fragment",
            four(&ipv4(LEFT, RIGHT, 17, 2, 0x4000, &[], &udp(100))),
        ),
        ("ttl 1", four(&ipv4(LEFT, RIGHT, 17, 1, 0, &[], &udp(700)))),
        ("ttl 0", four(&ipv4(LEFT, RIGHT, 17, 0, 0, &[], &udp(100)))),
        (
            "router alert",
            four(&ipv4(LEFT, RIGHT, 17, 64, 0, &[0x94, 4, 0, 0], &udp(100))),
        ),
        (
            "record route",
            four(&ipv4(
                LEFT,
                RIGHT,
                17,
                64,
                0,
                &[7, 7, 4, 0, 0, 0, 0, 0],
                &udp(100),
            )),
        ),
        (
            "source route",
            four(&ipv4(
                LEFT,
                RIGHT,
                17,
                64,
                0,
                &[0x83, 7, 4, 10, 2, 0, 9, 0],
                &udp(100),
            )),
        ),
        (
            "unknown protocol",
            four(&ipv4(LEFT, RIGHT, 200, 64, 0, &[], &[7; 100])),
        ),
        (
            "truncated udp",
            four(&ipv4(LEFT, RIGHT, 17, 64, 0, &[], &[0, 1, 0])),
        ),
        (
            "first fragment",
            four(&ipv4(LEFT, RIGHT, 17, 64, 0x2000, &[], &udp(200))),
        ),
        (
            "later fragment",
            four(&ipv4(LEFT, RIGHT, 17, 64, 0x0010, &[], &[5; 100])),
        ),
        (
            "tiny fragment",
            four(&ipv4(LEFT, RIGHT, 6, 64, 0x2000, &[], &[5; 8])),
        ),
        (
            "ttl 1 later fragment",
            four(&ipv4(LEFT, RIGHT, 17, 1, 0x0010, &[], &[5; 100])),
        ),
        (
            "too long",
            four(&ipv4(LEFT, RIGHT, 17, 64, 0x4000, &[], &udp(1400))),
        ),
        (
            "fragmented",
            four(&ipv4(LEFT, RIGHT, 17, 64, 0, &[], &udp(1400))),
        ),
        ("wrong checksum", wrong_sum),
        ("wrong length", wrong_length),
        ("no route", plain([9, 9, 9, 9])),
        ("blackhole", plain([10, 9, 1, 1])),
        (
            "loopback source",
            four(&ipv4([127, 0, 0, 1], RIGHT, 17, 64, 0, &[], &udp(100))),
        ),
        (
            "multicast source",
            four(&ipv4([224, 0, 0, 9], RIGHT, 17, 64, 0, &[], &udp(100))),
        ),
        (
            "zero source",
            four(&ipv4([0; 4], RIGHT, 17, 64, 0, &[], &udp(100))),
        ),
        (
            "link-local source",
            four(&ipv4([169, 254, 3, 4], RIGHT, 17, 64, 0, &[], &udp(100))),
        ),
        ("loopback destination", plain([127, 0, 0, 1])),
        ("multicast", plain([239, 1, 2, 3])),
        ("limited broadcast", plain([255; 4])),
        ("near broadcast", plain([10, 1, 0, 255])),
        ("directed broadcast", plain([10, 2, 0, 255])),
        (
            "link-layer broadcast",
            broadcast(&ipv4(LEFT, RIGHT, 17, 64, 0, &[], &udp(100))),
        ),
        (
            "another station",
            ethernet(
                [2, 9, 9, 9, 9, 9],
                from,
                0x0800,
                &ipv4(LEFT, RIGHT, 17, 64, 0, &[], &udp(100)),
            ),
        ),
        ("back where it came from", plain([10, 1, 0, 9])),
        (
            "vlan 5",
            ethernet(
                to,
                from,
                0x8100,
                &[
                    &[0, 5, 8, 0][..],
                    &ipv4(LEFT, RIGHT, 17, 64, 0, &[], &udp(100)),
                ]
                .concat(),
            ),
        ),
        (
            "priority tag",
            ethernet(
                to,
                from,
                0x8100,
                &[
                    &[0xe0, 0, 8, 0][..],
                    &ipv4(LEFT, RIGHT, 17, 64, 0, &[], &udp(100)),
                ]
                .concat(),
            ),
        ),
        (
            "echo",
            four(&ipv4(LEFT, LEFT_ROUTER, 1, 64, 0, &[], &echo_request(56))),
        ),
        (
            "echo to the far side",
            four(&ipv4(LEFT, [10, 2, 0, 1], 1, 1, 0, &[], &echo_request(56))),
        ),
        ("udp to the router", plain(LEFT_ROUTER)),
        ("tcp to the router", tcp),
        (
            "protocol 200 to the router",
            four(&ipv4(LEFT, LEFT_ROUTER, 200, 64, 0, &[], &[7; 100])),
        ),
        (
            "6: plain",
            six_frame(&ipv6(six(1, 2), six(2, 2), 17, 64, &udp(100))),
        ),
        (
            "6: hop limit 1",
            six_frame(&ipv6(six(1, 2), six(2, 2), 17, 1, &udp(100))),
        ),
        (
            "6: too long",
            six_frame(&ipv6(six(1, 2), six(2, 2), 17, 64, &udp(1400))),
        ),
        (
            "6: no route",
            six_frame(&ipv6(six(1, 2), six(9, 2), 17, 64, &udp(100))),
        ),
        (
            "6: echo",
            six_frame(&ipv6(six(1, 2), six(1, 1), 58, 64, &request6)),
        ),
        (
            "6: udp to the router",
            six_frame(&ipv6(six(1, 2), six(1, 1), 17, 64, &udp(100))),
        ),
        (
            "6: unknown header to the router",
            six_frame(&ipv6(six(1, 2), six(1, 1), 200, 64, &[7; 100])),
        ),
        (
            "6: multicast source",
            six_frame(&ipv6([0xff; 16], six(2, 2), 17, 64, &udp(100))),
        ),
        (
            "6: loopback destination",
            six_frame(&ipv6(
                six(1, 2),
                std::net::Ipv6Addr::LOCALHOST.octets(),
                17,
                64,
                &udp(100),
            )),
        ),
        (
            "6: unknown protocol",
            six_frame(&ipv6(six(1, 2), six(2, 2), 200, 64, &[7; 100])),
        ),
    ]
}

fn empty_line(prefix: &str) -> Line {
    let options = LineOptions {
        addresses: false,
        ..LineOptions::default()
    };
    Line::new(prefix, options).expect("a line of namespaces")
}

/// Makes the kernel of the middle namespace the router.
fn linux(line: &Line) {
    let set = |name: &str, value: &str| {
        line.node
            .set_sysctl(name, value)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    };
    for (name, value) in [
        ("net/ipv4/ip_forward", "1"),
        // (A limit of zero would eat the credit that "no route" errors have of their own.)
        ("net/ipv4/icmp_ratemask", "0"),
        ("net/ipv6/icmp/ratelimit", "0"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv6/conf/all/disable_ipv6", "0"),
        ("net/ipv6/conf/all/accept_dad", "0"),
        ("net/ipv6/conf/all/forwarding", "1"),
    ] {
        set(name, value);
    }
    let mut links = line.node.links().expect("netlink");
    links.set_up("lo").expect("the loopback device");
    for side in [&line.left, &line.right] {
        let device = &side.node_device;
        set(&format!("net/ipv4/conf/{device}/rp_filter"), "0");
        set(&format!("net/ipv6/conf/{device}/disable_ipv6"), "0");
        set(&format!("net/ipv6/conf/{device}/accept_dad"), "0");
        let address6 = |host| IpAddr::from(six(side.net, host));
        links
            .add_address(device, side.node_address(), 24)
            .expect("an address");
        links
            .add_address(device, address6(1), 64)
            .expect("an address");
        links
            .add_neighbour(device, side.address(), side.mac)
            .expect("a neighbour");
        links
            .add_neighbour(device, address6(2), side.mac)
            .expect("a neighbour");
    }
    let neighbour = [10, 1, 0, 9].into();
    links
        .add_neighbour(&line.left.node_device, neighbour, line.left.mac)
        .expect("a neighbour");
    links
        .set_mtu(&line.right.node_device, 1300)
        .expect("an MTU");
    let route = line
        .node
        .command("ip")
        .args(["route", "add", "blackhole", "10.9.0.0/16"])
        .status()
        .expect("ip runs");
    assert!(route.success());
}

/// Starts our node in the middle namespace.
fn ours(line: &Line) -> Dataplane {
    let mut config = String::new();
    for (side, mtu) in [(&line.left, 1500), (&line.right, 1300)] {
        let (device, net, mac) = (&side.node_device, side.net, wire::MacAddr(side.mac));
        config += &format!(
            "[[port]]\nname = \"{device}\"\ndriver = \"af_packet\"\nmtu = {mtu}\n\
             addresses = [\"10.{net}.0.1/24\", \"fd{net:02x}::1/64\"]\n"
        );
        let mut hosts = vec![format!("10.{net}.0.2"), format!("fd{net:02x}::2")];
        if net == 1 {
            hosts.push("10.1.0.9".to_owned());
        }
        for host in hosts {
            config += &format!(
                "[[neighbour]]\naddress = \"{host}\"\nmac = \"{mac}\"\nport = \"{device}\"\n"
            );
        }
    }
    config += "[[route]]\nto = \"10.9.0.0/16\"\nblackhole = true\n";
    let config = toml::from_str(&config).expect("the configuration is TOML");
    line.node
        .run(|| Dataplane::start(&config, None))
        .expect("the namespace can be entered")
        .expect("the node starts")
}

#[test]
fn the_node_forwards_as_linux_does() {
    let test = "the_node_forwards_as_linux_does";
    if !lab::need::root(test) || !lab::need::program(test, "ip") {
        return;
    }
    let kernel = empty_line("tg-dplk");
    linux(&kernel);
    let node = empty_line("tg-dplo");
    let dataplane = ours(&node);
    let cases = cases(&kernel);
    // The kernel and the node have finished what they do at a start.
    std::thread::sleep(Duration::from_millis(300));
    let both = |cases: &[(&'static str, Vec<u8>)], quiet| {
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| outputs(&kernel, cases, quiet));
            let ours = outputs(&node, cases, quiet);
            (ours, theirs.join().expect("no panic"))
        })
    };
    let mut left = cases;
    let mut wrong = Vec::new();
    let mut answered = 0;
    for quiet in [QUIET, PATIENT, PATIENT] {
        let (ours, theirs) = both(&left, quiet);
        answered += theirs
            .values()
            .filter(|sent| sent.iter().any(|s| !s.is_empty()))
            .count();
        wrong.clear();
        left.retain(|(name, _)| {
            let same = ours[name] == theirs[name];
            let right = same != DIFFERENCES.iter().any(|(other, _)| other == name);
            if !right {
                wrong.push(format!(
                    "{name}\n ours: {:02x?}\n linux: {:02x?}",
                    ours[name], theirs[name]
                ));
            }
            !right
        });
        if left.is_empty() {
            break;
        }
        // Linux gives a sender its credit for errors back in a second.
        std::thread::sleep(Duration::from_millis(1500));
    }
    let dropped = dataplane.stop().drops;
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}\n{dropped:#?}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(answered > 20, "{answered} packets led to an answer");
}
