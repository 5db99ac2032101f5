//! Translation for IPv6 in the node. NAT64: a client that has IPv6 alone pings and downloads from a server that has IPv4
//! alone. NPTv6: a client is known outside by another prefix.

mod common;
#[expect(dead_code, reason = "each test program uses a part of it")]
#[path = "common/gateway.rs"]
mod gateway;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use common::{Run, finish, tidegate, wait_until};
use gateway::{Gateway, PATIENCE, listen};
use lab::need;

/// What the client may open is named by the addresses that stand for IPv6 hosts.
const RULES: &str = "
table inet filter {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state vmap { established : accept, related : accept, invalid : drop }
        iifname left ip saddr 100.127.0.0/16 accept
    }
}
table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat;
        oifname right masquerade
    }
}";

fn run(gateway: &Gateway, program: &str, arguments: &[&str]) -> Run {
    let mut command = gateway.line.left.namespace.command(program);
    finish(command.args(arguments))
}

/// Takes IPv4 away from the left side, and gives it IPv6.
fn only_ipv6(gateway: &Gateway) {
    let device = gateway.line.left.device.as_str();
    for arguments in [
        &["-4", "addr", "flush", "dev", device][..],
        &[
            "-6",
            "addr",
            "add",
            "2001:db8:1::2/64",
            "dev",
            device,
            "nodad",
        ],
        &[
            "-6",
            "route",
            "add",
            "2001:db8:64::/96",
            "via",
            "2001:db8:1::1",
        ],
    ] {
        let done = run(gateway, "ip", arguments);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn row_55_an_ipv6_client_pings_and_downloads_from_an_ipv4_server() {
    let test = "row_55_an_ipv6_client_pings_and_downloads_from_an_ipv4_server";
    let programs = ["ip", "curl", "ping"];
    if !need::root(test) || !programs.iter().all(|name| need::program(test, name)) {
        return;
    }
    let nat64 = "nat64 = \"2001:db8:64::/96\"\n";
    let gateway = Gateway::with_addresses(RULES, None, nat64, [", \"2001:db8:1::1/64\"", ""]);
    only_ipv6(&gateway);
    let IpAddr::V4(server) = gateway.line.right.address() else {
        panic!("the right side has IPv4");
    };
    let mapped = format!("2001:db8:64::{server}");
    // The first ones may be lost while the node starts and asks for neighbours.
    assert!(wait_until(PATIENCE, || {
        run(&gateway, "ping", &["-6", "-c", "1", "-W", "1", &mapped]).code == 0
    }));
    let large = run(
        &gateway,
        "ping",
        &["-6", "-c", "2", "-s", "1200", "-W", "2", &mapped],
    );
    assert_eq!(large.code, 0, "{}", large.stdout);

    let listener = listen(&gateway.line.right.namespace, 80);
    let body: Vec<u8> = (0..400_000_u32).map(|at| (at % 251) as u8).collect();
    let local = gateway.directory().join("local");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let (mut client, peer) = listener.accept().unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut request = [0; 2048];
            let len = client.read(&mut request).unwrap();
            assert!(request[..len].starts_with(b"GET /file HTTP/1.1"));
            write!(
                client,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                body.len()
            )
            .unwrap();
            client.write_all(&body).unwrap();
            peer
        });
        let url = format!("http://[{mapped}]/file");
        let arguments = [
            "-sS",
            "-g",
            "--max-time",
            "15",
            "-o",
            local.to_str().unwrap(),
            &url,
        ];
        let down = run(&gateway, "curl", &arguments);
        assert_eq!((down.code, down.stderr.as_str()), (0, ""));
        let outer = gateway.line.right.node_address();
        assert_eq!(
            served.join().unwrap().ip(),
            outer,
            "it arrives as the gateway's"
        );
    });
    assert!(std::fs::read(&local).unwrap() == body, "every byte arrives");

    // Nobody listens: the server's ICMP error comes back as ICMPv6, to the socket that asked.
    let left = &gateway.line.left.namespace;
    let refused = left
        .run(|| {
            let socket = UdpSocket::bind("[2001:db8:1::2]:0").unwrap();
            socket.connect((mapped.as_str(), 9)).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            socket.send(b"anyone").unwrap();
            socket.recv(&mut [0; 16]).unwrap_err().kind()
        })
        .unwrap();
    assert_eq!(refused, ErrorKind::ConnectionRefused);
    // A hop limit that ends at the node is told by the node.
    let hop = run(
        &gateway,
        "ping",
        &["-6", "-c", "1", "-t", "1", "-W", "2", &mapped],
    );
    assert!(hop.stdout.contains("Time exceeded"), "{}", hop.stdout);

    let mut command = tidegate();
    command.arg("--socket").arg(gateway.socket());
    let listed = finish(command.args(["session", "ls", "-p", "tcp"])).stdout;
    assert!(
        listed.contains(&format!("dst={server}")) && listed.contains("src=100.127."),
        "{listed}"
    );
}

#[test]
fn row_59_a_client_is_known_by_the_outer_prefix() {
    let test = "row_59_a_client_is_known_by_the_outer_prefix";
    if !need::root(test) || !need::program(test, "ip") || !need::program(test, "ping") {
        return;
    }
    let rules = RULES.replace("ip saddr 100.127.0.0/16", "ip6 saddr fd01:203:405::/48");
    let nptv6 = "[firewall.nptv6]\nport = \"right\"\ninside = \"fd01:203:405::/48\"\noutside = \"2001:db8:1::/48\"\n";
    let more = [", \"fd01:203:405:1::1/64\"", ", \"2001:db8:9::1/64\""];
    let gateway = Gateway::with_addresses(&rules, None, nptv6, more);
    let (left, right) = (&gateway.line.left, &gateway.line.right);
    // The right side knows the outer prefix only.
    for (side, arguments) in [
        (
            left,
            &[
                "-6",
                "addr",
                "add",
                "fd01:203:405:1::1234/64",
                "dev",
                &left.device,
                "nodad",
            ][..],
        ),
        (
            left,
            &["-6", "route", "add", "default", "via", "fd01:203:405:1::1"],
        ),
        (
            right,
            &[
                "-6",
                "addr",
                "add",
                "2001:db8:9::9/64",
                "dev",
                &right.device,
                "nodad",
            ],
        ),
        (
            right,
            &[
                "-6",
                "route",
                "add",
                "2001:db8:1::/48",
                "via",
                "2001:db8:9::1",
            ],
        ),
    ] {
        let done = finish(side.namespace.command("ip").args(arguments));
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{arguments:?}");
    }
    assert!(wait_until(PATIENCE, || {
        run(
            &gateway,
            "ping",
            &["-6", "-c", "1", "-W", "1", "2001:db8:9::9"],
        )
        .code
            == 0
    }));
    // As in RFC 6296 appendix B.
    let server = right
        .namespace
        .run(|| UdpSocket::bind("[2001:db8:9::9]:4000").unwrap())
        .unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = left
        .namespace
        .run(|| {
            let client = UdpSocket::bind("[fd01:203:405:1::1234]:0").unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send_to(b"who am I", "[2001:db8:9::9]:4000").unwrap();
            client
        })
        .unwrap();
    let mut buffer = [0; 64];
    let (len, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(from.ip().to_string(), "2001:db8:1:d550::1234");
    server.send_to(&buffer[..len], from).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), len);
    // Nobody listens there: the error finds the client.
    let refused = left
        .namespace
        .run(|| {
            let client = UdpSocket::bind("[fd01:203:405:1::1234]:0").unwrap();
            client.connect("[2001:db8:9::9]:9").unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send(b"anyone").unwrap();
            client.recv(&mut [0; 16]).unwrap_err().kind()
        })
        .unwrap();
    assert_eq!(refused, ErrorKind::ConnectionRefused);
}
