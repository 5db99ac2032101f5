//! What a router owes its neighbours, whatever driver it has.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use crate::common::{Bench, Driver, line, router, run, tcp_transfer};

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Everything that a router owes its neighbours, in one namespace setup a driver.
pub(crate) fn routes(test: &str, prefix: &str, driver: Driver) {
    if !lab::need::root(test) || !lab::need::program(test, "ping") {
        return;
    }
    let line = line(prefix);
    let more = "[[route]]\nto = \"10.9.0.0/16\"\nblackhole = true\n";
    let node = format!("[node]\n{}", driver.node_keys());
    let config = node + &router(&line, &driver, "mtu = 1300", more);
    let bench = Bench::start_by(line, driver, &config);
    first_contact(&bench);

    // The node itself answers, v4 and v6, on the near and the far side.
    for target in ["10.1.0.1", "10.2.0.1", "fd01::1", "fd02::1"] {
        bench.pings(target, 2, &[], "ttl=64");
    }
    // In fragments, up to the longest datagram there is.
    let fragments = [
        ("10.1.0.1", 4000),
        ("10.2.0.1", 65_507),
        ("fd01::1", 4000),
        ("fd02::1", 65_000),
    ];
    let fragments = fragments.iter().filter(|_| bench.driver.keeps_fragments());
    for (target, bytes) in fragments {
        let answer = format!("{} bytes from {target}", bytes + 8);
        bench.pings(target, 2, &["-s", &bytes.to_string()], &answer);
    }
    // Through the node.
    for target in ["10.2.0.2", "fd02::2"] {
        bench.pings(target, 5, &[], "ttl=63");
    }
    // A hop limit that is used up.
    bench
        .left("ping", &["-c", "1", "-t", "1", "-W", "3", "10.2.0.2"])
        .has(&["From 10.1.0.1", "Time to live exceeded"]);
    bench
        .left("ping", &["-c", "1", "-t", "1", "-W", "3", "fd02::2"])
        .has(&["From fd01::1", "Time exceeded: Hop limit"]);
    // Path MTU discovery: 1,300 bytes on the right side.
    bench
        .left(
            "ping",
            &["-c", "1", "-M", "do", "-s", "1400", "-W", "3", "10.2.0.2"],
        )
        .has(&["mtu = 1300"]);
    bench
        .left("ping", &["-c", "1", "-s", "1400", "-W", "3", "fd02::2"])
        .has(&["Packet too big: mtu=1300"]);
    // Fragmentation where it is allowed: the far kernel puts it together and answers.
    run(
        &bench.line.left.namespace,
        "ip",
        &["route", "flush", "cache"],
    );
    bench.pings(
        "10.2.0.2",
        3,
        &["-M", "dont", "-s", "1400"],
        "1408 bytes from",
    );
    // No route, a route to nowhere, a next hop that does not answer.
    bench.left("ip", &["route", "add", "10.0.0.0/8", "via", "10.1.0.1"]);
    bench
        .left("ping", &["-c", "1", "-W", "3", "10.3.0.1"])
        .has(&["From 10.1.0.1", "Net Unreachable"]);
    bench
        .left("ping", &["-c", "1", "-W", "1", "10.9.1.1"])
        .has(&["100% packet loss"]);
    bench
        .left("ping", &["-c", "1", "-W", "6", "10.2.0.77"])
        .has(&["From 10.1.0.1", "Destination Host Unreachable"]);
    bench
        .left("ping", &["-c", "1", "-W", "6", "fd02::77"])
        .has(&["From fd01::1", "Address unreachable"]);
    assert_eq!(bench.drops("route_blackhole"), 1);
    assert!(bench.drops("ttl_exceeded") == 2 && bench.drops("neighbour_unresolved") >= 2);
    unused_ports(&bench);
    for far in ["10.2.0.2", "fd02::2"] {
        tcp_transfer(
            &bench.line.left.namespace,
            &bench.line.right.namespace,
            address(far),
            4 << 20,
        );
    }
    lists(&bench);
    waits_and_links(&bench);
    bench.finish();
}

/// Waits until a packet passes: devices between processes find each other when they like.
fn first_contact(bench: &Bench) {
    let passes = |address: &str| {
        let ping = bench.left("ping", &["-c", "1", "-W", "1", address]);
        ping.text.contains(" 0% packet loss")
    };
    for far in ["10.2.0.2", "fd02::2"] {
        assert!(
            wait_until(Duration::from_secs(30), || passes(far)),
            "no way to {far}"
        );
    }
}

/// What changes under way: packets that wait for a neighbour, and whether a port has a link.
fn waits_and_links(bench: &Bench) {
    let stranger = "10.2.0.99";
    let socket = bench.line.left.namespace.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for _ in 0..3 {
            socket.send_to(b"hello?", (stranger, 9)).expect("sent");
        }
    });
    socket.expect("the namespace can be entered");
    let waiting = |bench: &Bench| -> u32 {
        let neighbours = bench.node.neighbours();
        let found = neighbours.iter().find(|n| n.address == stranger);
        found.map_or(0, |neighbour| neighbour.queued_pkts)
    };
    assert!(wait_until(Duration::from_secs(1), || waiting(bench) == 3));
    assert!(wait_until(Duration::from_secs(6), || waiting(bench) == 0));
    if !bench.driver.has_kernel_link() {
        return;
    }
    let up =
        |bench: &Bench| -> Vec<bool> { bench.node.stats().ports.iter().map(|p| p.up).collect() };
    assert_eq!(up(bench), [true, true]);
    let far = &bench.line.right;
    run(&far.namespace, "ip", &["link", "set", &far.device, "down"]);
    assert!(wait_until(Duration::from_secs(2), || up(bench) == [true, false]));
    run(&far.namespace, "ip", &["link", "set", &far.device, "up"]);
    assert!(wait_until(Duration::from_secs(2), || up(bench) == [true, true]));
}

fn wait_until(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < patience {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    done()
}

/// Nobody listens on the node.
fn unused_ports(bench: &Bench) {
    for node in ["10.1.0.1", "fd01::1"] {
        let refused = bench.line.left.namespace.run(|| {
            let any = if node.contains(':') {
                "[::]:0"
            } else {
                "0.0.0.0:0"
            };
            let socket = UdpSocket::bind(any).expect("a socket");
            socket.connect((address(node), 9)).expect("a route");
            socket
                .set_read_timeout(Some(Duration::from_secs(2)))
                .expect("a timeout");
            socket.send(b"is anyone there?").expect("sent");
            socket.recv(&mut [0; 64]).expect_err("nobody is").kind()
        });
        let refused = refused.expect("the namespace can be entered");
        assert_eq!(refused, std::io::ErrorKind::ConnectionRefused, "{node}");
    }
    assert_eq!(bench.drops("port_unreachable"), 2);
}

/// What the node says about itself.
fn lists(bench: &Bench) {
    let neighbours = bench.node.neighbours();
    for known in ["10.1.0.2", "10.2.0.2", "fd01::2", "fd02::2"] {
        let found = neighbours.iter().find(|n| n.address == known);
        assert!(
            found.is_some_and(|n| n.mac.is_some()),
            "{known} in {neighbours:?}"
        );
    }
    let routes = bench.node.routes();
    assert!(routes.iter().any(|r| r.to == "10.9.0.0/16"), "{routes:?}");
    let stats = bench.node.stats();
    let forward = stats
        .stages
        .iter()
        .find(|s| s.name == "ip4-forward")
        .expect("the stage");
    assert!(forward.pkts > 1000, "{forward:?}");
    // One side sends acknowledgements only: as few as the receiver's kernel merges them to.
    let link_is_known = bench.driver.has_kernel_link();
    assert!(
        stats
            .ports
            .iter()
            .all(|p| (p.up || !link_is_known) && p.counters.rx_pkts > 100),
        "{:?}",
        stats.ports
    );
}
