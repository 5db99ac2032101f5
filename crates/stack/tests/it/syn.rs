//! Backlogs, cookies, Fast Open, ports, TIME_WAIT reuse: how connections begin when there are many.

use std::net::SocketAddr;
use std::time::Duration;

use stack::{Error, Modules, State};

use crate::support::{Transfer, World, ip};

const S: u64 = 1_000_000_000;

/// More SYNs than the backlog takes: cookies, and every connection works, options included.
#[test]
fn syn_cookies_bring_connections_back() {
    let mut world = World::new(21);
    let listener = world.hosts[1]
        .tcp_listen(SocketAddr::new(ip(1), 80), 8)
        .unwrap();
    // The final acknowledgements come late, so that all SYNs are there at once.
    world.set_link(0, 200_000_000);
    world.ways[0].faults = crate::support::Faults {
        reorder: 1_000_000,
        reorder_ns: 50_000_000,
        ..Default::default()
    };
    let now = world.time();
    let clients: Vec<_> = (0..100)
        .map(|_| {
            world.hosts[0]
                .tcp_connect(now, SocketAddr::new(ip(1), 80), None)
                .unwrap()
        })
        .collect();
    let mut accepted = Vec::new();
    let mut silent = clients.clone();
    world.run(60 * S, |world| {
        speak(world, &mut silent);
        while let Ok((handle, peer)) = world.hosts[1].tcp_accept(listener) {
            accepted.push((handle, peer));
        }
        accepted.len() == 100
    });
    let stats = world.hosts[1].tcp_stats();
    assert_eq!(accepted.len(), 100, "{stats:?}");
    assert!(
        stats.cookies_sent >= 90 && stats.cookies_accepted >= 90,
        "{stats:?}"
    );
    world.pass(S);
    for client in clients {
        let local = world.hosts[0].tcp_info(client).unwrap().local;
        let server = accepted.iter().find(|(_, peer)| *peer == local).unwrap().0;
        assert_eq!(
            world.hosts[1].tcp_info(server).unwrap().segment_bytes,
            1448,
            "timestamps were agreed"
        );
        let mut transfer = Transfer::new((0, client), (1, server), 20_000);
        transfer.sent = 1;
        assert!(world.run(10 * S, |world| transfer.poll(world)));
    }
}

/// Lets clients that are established send the first byte of the stream: sent again, it opens what a full queue turned away.
fn speak(world: &mut World, silent: &mut Vec<stack::TcpHandle>) {
    let now = world.time();
    silent.retain(|client| {
        world.hosts[0]
            .tcp_send(now, *client, &[crate::support::byte(0)])
            .is_err()
    });
}

#[test]
fn forged_cookies_are_reset() {
    let mut world = World::new(22);
    world.hosts[1]
        .tcp_listen(SocketAddr::new(ip(1), 80), 1)
        .unwrap();
    let (client, _) = {
        let other = world.hosts[1]
            .tcp_listen(SocketAddr::new(ip(1), 81), 1)
            .unwrap();
        world.connect_to(other, SocketAddr::new(ip(1), 81))
    };
    // Its segments now go to the other port, where there was no SYN.
    world.ways[0].filter = Some(Box::new(|frame| {
        let old = u16::from_be_bytes([frame[36], frame[37]]);
        frame[37] = 80;
        let sum = u16::from_be_bytes([frame[50], frame[51]]);
        let sum = wire::checksum::update_u16(sum, old, u16::from_be_bytes([frame[36], 80]));
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
        true
    }));
    let now = world.time();
    world.hosts[0].tcp_send(now, client, b"hello").unwrap();
    world.pass(S / 10);
    assert!(world.hosts[1].tcp_stats().resets_out >= 1);
    assert_eq!(world.hosts[1].usage().connections, 1);
}

/// The second connection's data is in its SYN, and arrives one round trip earlier.
#[test]
fn fast_open_sends_data_in_the_syn() {
    let mut world = World::with(23, |_, config| config.tcp.modules |= Modules::FAST_OPEN);
    world.set_link(0, 100_000_000);
    let to = SocketAddr::new(ip(1), 80);
    let listener = world.hosts[1].tcp_listen(to, 8).unwrap();
    for (round, expected_ms) in [(0, 300), (1, 200)] {
        let now = world.time();
        let client = world.hosts[0]
            .tcp_connect_with(now, to, None, b"request")
            .unwrap();
        let start = world.now;
        let mut buffer = [0; 16];
        let mut server = None;
        let done = world.run(10 * S, |world| {
            server = server.or_else(|| world.hosts[1].tcp_accept(listener).ok());
            let Some((handle, _)) = server else {
                return false;
            };
            world.hosts[1].tcp_recv(world.time(), handle, &mut buffer) == Ok(7)
        });
        assert!(done && &buffer[..7] == b"request", "{round}");
        let ms = (world.now - start) / 1_000_000;
        assert!(ms <= expected_ms, "{round}: {ms} ms");
        world.pass(S);
        assert_eq!(world.hosts[0].tcp_state(client), Some(State::Established));
    }
    assert_eq!(
        (
            world.hosts[0].tcp_stats().fast_opens,
            world.hosts[1].tcp_stats().fast_opens
        ),
        (1, 1)
    );
}

#[test]
fn ports_are_chosen_for_the_own_worker() {
    let mut world = World::with(24, |host, config| {
        if host == 0 {
            config.owns_flow = Some(Box::new(|flow| flow.destination_port % 4 == 1));
        }
    });
    world.hosts[1]
        .tcp_listen(SocketAddr::new(ip(1), 80), 1024)
        .unwrap();
    let now = world.time();
    for _ in 0..400 {
        let client = world.hosts[0]
            .tcp_connect(now, SocketAddr::new(ip(1), 80), None)
            .unwrap();
        assert_eq!(world.hosts[0].tcp_info(client).unwrap().local.port() % 4, 1);
    }
}

/// All ports of a small range are used up, by connections and by TIME_WAIT; TIME_WAIT ends, or a server's is reused.
#[test]
fn few_ports_many_connections() {
    let mut world = World::with(25, |_, config| {
        config.tcp.ephemeral_ports = (50_000, 50_003);
        config.tcp.time_wait = Duration::from_secs(60);
    });
    let to = SocketAddr::new(ip(1), 80);
    let listener = world.hosts[1].tcp_listen(to, 8).unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(world.connect_to(listener, to));
    }
    let now = world.time();
    assert_eq!(
        world.hosts[0].tcp_connect(now, to, None),
        Err(Error::AddrNotAvailable)
    );
    // The server closes first, and keeps TIME_WAIT: the client's new SYN takes the session over.
    for (client, server) in held {
        let now = world.time();
        world.hosts[1].tcp_close(now, server).unwrap();
        world.pass(S / 10);
        let now = world.time();
        world.hosts[0].tcp_close(now, client).unwrap();
        world.pass(S / 10);
    }
    assert_eq!(
        (
            world.hosts[1].usage().time_wait,
            world.hosts[0].usage().sessions
        ),
        (4, 0)
    );
    let (client, server) = world.connect_to(listener, to);
    assert_eq!(world.hosts[1].tcp_stats().time_wait_reused, 1);
    let mut transfer = Transfer::new((0, client), (1, server), 100_000);
    assert!(world.run(10 * S, |world| transfer.poll(world)));
}

/// A full accept queue holds connections back; they come through when there is room.
#[test]
fn full_accept_queue() {
    let mut world = World::new(26);
    let to = SocketAddr::new(ip(1), 80);
    let listener = world.hosts[1].tcp_listen(to, 2).unwrap();
    let now = world.time();
    let clients: Vec<_> = (0..6)
        .map(|_| world.hosts[0].tcp_connect(now, to, None).unwrap())
        .collect();
    world.pass(S / 2);
    let mut silent = clients.clone();
    let mut accepted = 0;
    world.run(60 * S, |world| {
        speak(world, &mut silent);
        while world.hosts[1].tcp_accept(listener).is_ok() {
            accepted += 1;
        }
        accepted == 6
    });
    assert_eq!(accepted, 6, "{:?}", world.hosts[1].tcp_stats());
    assert!(
        clients
            .iter()
            .all(|client| world.hosts[0].tcp_state(*client) == Some(State::Established))
    );
}

/// Explicit congestion notification: marks instead of losses reduce the window.
#[test]
fn marks_reduce_the_window() {
    let mut world = World::with(27, |_, config| config.tcp.modules |= Modules::ECN);
    world.set_link(100_000_000, 10_000_000);
    let (client, server) = world.connect(80);
    let mut count = 0;
    world.ways[0].filter = Some(Box::new(move |frame| {
        if frame.len() > 200 && frame[15] & 3 == 2 {
            count += 1;
            if count % 100 == 0 {
                let old = u16::from_be_bytes([frame[14], frame[15]]);
                frame[15] |= 3;
                let new = u16::from_be_bytes([frame[14], frame[15]]);
                let sum = wire::checksum::update_u16(
                    u16::from_be_bytes([frame[24], frame[25]]),
                    old,
                    new,
                );
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
        }
        true
    }));
    let mut transfer = Transfer::new((0, client), (1, server), 2 << 20);
    assert!(world.run(30 * S, |world| transfer.poll(world)));
    let stats = world.hosts[0].tcp_stats();
    assert!(
        stats.ecn_reductions >= 5 && stats.segments_resent == 0,
        "{stats:?}"
    );
}
