//! What every connection does.

use std::net::SocketAddr;

use stack::{Error, Ready, Shutdown, State, UdpOption};

use crate::support::{Transfer, World, ip, ip6};

const S: u64 = 1_000_000_000;

#[test]
fn open_echo_close() {
    let mut world = World::new(1);
    let (client, server) = world.connect(80);
    assert_eq!(world.hosts[1].tcp_state(server), Some(State::Established));
    assert!(
        world
            .ready(0, client)
            .contains(Ready::CONNECTED | Ready::WRITABLE)
    );
    let now = world.time();
    assert_eq!(world.hosts[0].tcp_send(now, client, b"hello").unwrap(), 5);
    let mut buffer = [0; 16];
    let mut got = Err(Error::WouldBlock);
    world.run(S, |world| {
        got = world.hosts[1].tcp_recv(world.time(), server, &mut buffer);
        got.is_ok()
    });
    assert_eq!((got, &buffer[..5]), (Ok(5), &b"hello"[..]));
    let now = world.time();
    world.hosts[0]
        .tcp_shutdown(now, client, Shutdown::Write)
        .unwrap();
    world.pass(S);
    let now = world.time();
    assert_eq!(world.hosts[1].tcp_recv(now, server, &mut buffer), Ok(0));
    assert_eq!(
        world.hosts[0].tcp_send(now, client, b"x"),
        Err(Error::BrokenPipe)
    );
    assert_eq!(world.hosts[0].tcp_state(client), Some(State::FinWait2));
    assert_eq!(world.hosts[1].tcp_send(now, server, b"late").unwrap(), 4);
    world.hosts[1].tcp_close(now, server).unwrap();
    world.pass(S);
    let now = world.time();
    assert_eq!(world.hosts[0].tcp_recv(now, client, &mut buffer), Ok(4));
    assert_eq!(world.hosts[0].tcp_recv(now, client, &mut buffer), Ok(0));
    world.hosts[0].tcp_close(now, client).unwrap();
    assert_eq!(
        world.hosts[0].tcp_recv(now, client, &mut buffer),
        Err(Error::NotFound)
    );
    assert_eq!(world.hosts[0].usage().time_wait, 1);
    world.pass(70 * S);
    for host in &world.hosts {
        assert_eq!(
            (
                host.usage().sessions,
                host.usage().connections,
                host.usage().blocks
            ),
            (0, 0, 0)
        );
        assert_eq!(host.poll_timeout(), None);
    }
}

#[test]
fn megabytes_both_ways_over_both_families() {
    for to in [ip(1), ip6(1)] {
        let mut world = World::new(2);
        world.set_link(1_000_000_000, 1_000_000);
        let listener = world.hosts[1]
            .tcp_listen(SocketAddr::new(to, 80), 4)
            .unwrap();
        let (client, server) = world.connect_to(listener, SocketAddr::new(to, 80));
        let mut up = Transfer::new((0, client), (1, server), 4 << 20);
        let mut down = Transfer::new((1, server), (0, client), 4 << 20);
        let done = world.run(10 * S, |world| up.poll(world) & down.poll(world));
        assert!(
            done,
            "{} {} after 10 s {:?}",
            up.received,
            down.received,
            world.hosts[0].tcp_info(client)
        );
        assert_eq!(world.hosts[0].tcp_stats().timeouts, 0);
    }
}

#[test]
fn refused_reset_and_stale() {
    let mut world = World::new(3);
    let now = world.time();
    let refused = world.hosts[0]
        .tcp_connect(now, SocketAddr::new(ip(1), 9), None)
        .unwrap();
    world.pass(S);
    assert!(
        world
            .ready(0, refused)
            .contains(Ready::ERROR | Ready::CLOSED)
    );
    let now = world.time();
    assert_eq!(
        world.hosts[0].tcp_recv(now, refused, &mut [0]),
        Err(Error::ConnectionRefused)
    );
    world.hosts[0].tcp_close(now, refused).unwrap();
    let (client, server) = world.connect(80);
    let now = world.time();
    world.hosts[1].tcp_abort(now, server).unwrap();
    assert_eq!(
        world.hosts[1].tcp_send(now, server, b"x"),
        Err(Error::ConnectionAborted)
    );
    world.pass(S);
    let now = world.time();
    assert_eq!(
        world.hosts[0].tcp_send(now, client, b"x"),
        Err(Error::ConnectionReset)
    );
    assert_eq!(
        world.hosts[0].tcp_send(now, client, b"x"),
        Err(Error::BrokenPipe)
    );
    assert_eq!(
        world.hosts[0].tcp_listen(SocketAddr::new(ip(1), 1), 1),
        Err(Error::AddrNotAvailable)
    );
    world.hosts[0]
        .tcp_listen(SocketAddr::new(ip(0), 1), 1)
        .unwrap();
    assert_eq!(
        world.hosts[0].tcp_listen(SocketAddr::new(ip(0), 1), 1),
        Err(Error::AddrInUse)
    );
    let nowhere = SocketAddr::new([198, 51, 100, 1].into(), 1);
    assert_eq!(
        world.hosts[0].tcp_connect(now, nowhere, None),
        Err(Error::NetworkUnreachable)
    );
    let absent = world.hosts[0]
        .tcp_connect(now, SocketAddr::new([192, 0, 2, 77].into(), 1), None)
        .unwrap();
    world.pass(5 * S);
    let now = world.time();
    assert_eq!(
        world.hosts[0].tcp_send(now, absent, b"x"),
        Err(Error::HostUnreachable)
    );
}

#[test]
fn datagrams_whole_fragmented_and_refused() {
    let mut world = World::new(4);
    for (client_ip, server_ip) in [(ip(0), ip(1)), (ip6(0), ip6(1))] {
        let server = world.hosts[1]
            .udp_bind(SocketAddr::new(server_ip, 53))
            .unwrap();
        let client = world.hosts[0]
            .udp_bind(SocketAddr::new(client_ip, 0))
            .unwrap();
        for size in [0, 1, 1472, 1473, 9000, 60_000] {
            let data: Vec<u8> = (0..size).map(crate::support::byte).collect();
            world.hosts[0]
                .udp_send_to(client, &data, Some(SocketAddr::new(server_ip, 53)))
                .unwrap();
            world.pass(S);
            let got = world.hosts[1]
                .udp_recv(server)
                .unwrap_or_else(|error| panic!("{size} bytes: {error}"));
            assert!(got.data == data && got.from.ip() == client_ip, "{size}");
        }
        let too_large =
            world.hosts[0].udp_send_to(client, &[0; 65_508], Some(SocketAddr::new(server_ip, 53)));
        assert_eq!(too_large, Err(Error::FileTooLarge));
        let closed = SocketAddr::new(server_ip, 54);
        world.hosts[0]
            .udp_set(client, UdpOption::Peer(Some(closed)))
            .unwrap();
        world.hosts[0].udp_send_to(client, b"?", None).unwrap();
        world.pass(S);
        assert_eq!(
            world.hosts[0].udp_recv(client),
            Err(Error::ConnectionRefused)
        );
        world.hosts[1]
            .udp_bind(SocketAddr::new(server_ip, 53))
            .unwrap_err();
        world.hosts[1]
            .udp_close(wire::Instant::ZERO, server)
            .unwrap();
    }
}
