//! Links that lose, duplicate, reorder, damage and delay: every byte arrives, or the connection ends with the right error.

use stack::{Algorithm, Error, Modules, Ready, State, TcpOption};

use crate::support::{Faults, Rng, Transfer, World};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Runs one world of a seed; all choices come from it.
fn run_seed(seed: u64) {
    let mut rng = Rng(seed);
    let algorithms = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr];
    let algorithm = algorithms[rng.below(3) as usize];
    let modules = if rng.below(3) == 0 {
        Modules::from_bits_truncate(rng.next() as u32)
    } else if rng.below(2) == 0 {
        Modules::default()
    } else {
        Modules::all()
    };
    let buffer = [4096, 30_000, 131_072][rng.below(3) as usize];
    let mtu = [576, 1280, 1500, 9000][rng.below(4) as usize];
    let mut world = World::with(seed, |_, config| {
        config.mtu = mtu;
        config.tcp.congestion = algorithm;
        config.tcp.modules = modules;
        config.tcp.receive_buffer = buffer;
        config.tcp.receive_buffer_max = buffer * 8;
    });
    let rtt = [100_000, MS, 10 * MS, 80 * MS][rng.below(4) as usize];
    let rate = [0, 2_000_000, 100_000_000, 1_000_000_000][rng.below(4) as usize];
    world.set_link(rate, rtt);
    let faults = Faults {
        drop: rng.below(50_000) as u32,
        duplicate: rng.below(20_000) as u32,
        corrupt: rng.below(10_000) as u32,
        reorder: rng.below(50_000) as u32,
        reorder_ns: rng.below(2 * rtt) + 1,
        data_only: false,
    };
    let (client, server) = world.connect(80);
    for way in &mut world.ways {
        way.faults = faults;
    }
    let total = 60_000 + rng.below(100_000) as usize;
    let mut up = Transfer::new((0, client), (1, server), total);
    let mut down = Transfer::new((1, server), (0, client), total / 2);
    (up.closes, down.closes) = (true, true);
    let done = world.run(900 * S, |world| up.poll(world) & down.poll(world));
    assert!(
        done,
        "seed {seed}: {} of {total} and {} of {} bytes; {:?} {:?} {modules:?} {algorithm:?} {faults:?} rtt {rtt} rate {rate} mtu {mtu}\n{:?}\n{:?}",
        up.received,
        down.received,
        total / 2,
        world.hosts[0].tcp_info(client),
        world.hosts[1].tcp_info(server),
        world.hosts[0].tcp_stats(),
        world.hosts[1].tcp_stats()
    );
    let now = world.time();
    world.hosts[0].tcp_close(now, client).unwrap();
    world.hosts[1].tcp_close(now, server).unwrap();
    world.pass(2000 * S);
    for host in &world.hosts {
        let usage = host.usage();
        assert_eq!(
            (usage.sessions, usage.connections, usage.blocks),
            (0, 0, 0),
            "seed {seed}"
        );
        assert_eq!(host.poll_timeout(), None, "seed {seed}");
    }
}

/// `STACK_SEEDS=1000` runs more of them, `STACK_SEED=n` one.
#[test]
fn every_byte_arrives_whatever_the_seed() {
    if let Some(seed) = std::env::var("STACK_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        return run_seed(seed);
    }
    let seeds = std::env::var("STACK_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(40);
    for seed in 0..seeds {
        run_seed(seed);
    }
}

/// One segment of a window is lost, whichever: it is repaired without a timeout.
#[test]
fn one_lost_segment_needs_no_timeout() {
    let variants = [
        Modules::default(),
        Modules::default() - Modules::RACK_TLP,
        Modules::default() - Modules::TIMESTAMPS,
        Modules::default() - Modules::PRR,
    ];
    for modules in variants {
        for lost in 0..20 {
            // Without probes the tail is repaired by nothing but the timeout.
            if !modules.contains(Modules::RACK_TLP) && lost >= 16 {
                continue;
            }
            let mut world = World::with(lost, |_, config| config.tcp.modules = modules);
            world.set_link(100_000_000, 10 * MS);
            let (client, server) = world.connect(80);
            let mut seen = 0;
            world.ways[0].filter = Some(Box::new(move |frame| {
                seen += u64::from(frame.len() > 200);
                !(frame.len() > 200 && seen == lost + 1)
            }));
            let mut transfer = Transfer::new((0, client), (1, server), 20 * 1448);
            let start = world.now;
            assert!(
                world.run(10 * S, |world| transfer.poll(world)),
                "{modules:?} {lost}"
            );
            let stats = world.hosts[0].tcp_stats();
            assert_eq!(stats.timeouts, 0, "{modules:?} {lost}");
            assert!(
                stats.segments_resent >= 1 && stats.segments_resent <= 3,
                "{lost}: {stats:?}"
            );
            assert!(
                world.now - start < 150 * MS,
                "{lost}: {} ms",
                (world.now - start) / MS
            );
        }
    }
}

/// Without SACK, NewReno repairs by three duplicates.
#[test]
fn one_lost_segment_without_sack() {
    for lost in 0..14 {
        let modules = Modules::default() - Modules::SACK;
        let mut world = World::with(lost, |_, config| config.tcp.modules = modules);
        world.set_link(100_000_000, 10 * MS);
        let (client, server) = world.connect(80);
        let mut seen = 0;
        world.ways[0].filter = Some(Box::new(move |frame| {
            seen += u64::from(frame.len() > 200);
            !(frame.len() > 200 && seen == lost + 1)
        }));
        let mut transfer = Transfer::new((0, client), (1, server), 20 * 1448);
        assert!(world.run(10 * S, |world| transfer.poll(world)), "{lost}");
        let stats = world.hosts[0].tcp_stats();
        assert_eq!(
            (stats.timeouts, stats.segments_resent, stats.recoveries),
            (0, 1, 1),
            "{lost}"
        );
    }
}

/// Segments that come late by 3 to 30 places do not leave a smaller window behind.
#[test]
fn reordering_causes_no_lasting_cut() {
    for places in [3, 10, 30] {
        let mut world = World::with(places, |_, config| {
            config.tcp.receive_buffer = 3 << 20;
            config.tcp.receive_buffer_max = 3 << 20;
        });
        world.set_link(1_000_000_000, 10 * MS);
        let (client, server) = world.connect(80);
        world.ways[0].faults = Faults {
            reorder: 10_000,
            reorder_ns: places * 12_304,
            data_only: true,
            ..Faults::default()
        };
        let mut transfer = Transfer::new((0, client), (1, server), 4 << 20);
        let start = world.now;
        assert!(world.run(10 * S, |world| transfer.poll(world)));
        let stats = *world.hosts[0].tcp_stats();
        assert_eq!(stats.timeouts, 0, "{places}");
        assert!(stats.recoveries <= stats.undos, "{places}: {stats:?}");
        let rate = 4_u64 * (1 << 20) * 8 * 1000 / ((world.now - start) / MS).max(1);
        assert!(rate > 200_000_000, "{places}: {rate} bit/s, {stats:?}");
    }
}

#[test]
fn a_peer_that_vanishes_times_out() {
    let mut world = World::with(5, |_, config| config.tcp.retries = 5);
    let (client, _server) = world.connect(80);
    world.ways[0].filter = Some(Box::new(|_| false));
    let now = world.time();
    world.hosts[0].tcp_send(now, client, b"anybody?").unwrap();
    world.pass(60 * S);
    assert!(world.ready(0, client).contains(Ready::ERROR));
    let now = world.time();
    assert_eq!(
        world.hosts[0].tcp_recv(now, client, &mut [0]),
        Err(Error::TimedOut)
    );
    assert_eq!(world.hosts[0].tcp_state(client), Some(State::Closed));
}

#[test]
fn keep_alive_and_user_timeout() {
    let second = std::time::Duration::from_secs(1);
    let mut world = World::new(6);
    let (client, server) = world.connect(80);
    let now = world.time();
    world.hosts[0]
        .tcp_set(
            now,
            client,
            TcpOption::KeepAlive(Some((10 * second, second, 3))),
        )
        .unwrap();
    world.pass(100 * S);
    assert!(
        world.hosts[0].tcp_stats().peer_probes >= 8,
        "{:?}",
        world.hosts[0].tcp_stats()
    );
    assert_eq!(world.hosts[0].tcp_state(client), Some(State::Established));
    world.ways[0].filter = Some(Box::new(|_| false));
    let cut = world.now;
    world.run(60 * S, |world| {
        world.hosts[0].tcp_state(client) == Some(State::Closed)
    });
    assert!(
        (2..15).contains(&((world.now - cut) / S)),
        "{}",
        (world.now - cut) / S
    );
    let now = world.time();
    assert_eq!(
        world.hosts[0].tcp_recv(now, client, &mut [0]),
        Err(Error::TimedOut)
    );
    // The other side has a user timeout.
    world.hosts[1]
        .tcp_set(now, server, TcpOption::UserTimeout(Some(5 * second)))
        .unwrap();
    world.ways[1].filter = Some(Box::new(|_| false));
    world.hosts[1].tcp_send(now, server, b"x").unwrap();
    let sent = world.now;
    world.run(60 * S, |world| {
        world.hosts[1].tcp_state(server) == Some(State::Closed)
    });
    assert!(
        (4..9).contains(&((world.now - sent) / S)),
        "{}",
        (world.now - sent) / S
    );
}

/// The reader sleeps: the window closes, is probed, and opens again.
#[test]
fn zero_window_is_probed() {
    let mut world = World::with(7, |_, config| {
        config.tcp.receive_buffer = 8192;
        config.tcp.modules -= Modules::AUTOTUNING;
    });
    let (client, server) = world.connect(80);
    let now = world.time();
    let data: Vec<u8> = (0..60_000).map(crate::support::byte).collect();
    let sent = world.hosts[0].tcp_send(now, client, &data).unwrap();
    world.pass(100 * S);
    assert!(world.hosts[0].tcp_stats().peer_probes >= 5);
    assert_eq!(world.hosts[0].tcp_info(client).unwrap().peer_window, 0);
    let mut transfer = Transfer::new((0, client), (1, server), sent);
    transfer.sent = sent;
    assert!(
        world.run(200 * S, |world| transfer.poll(world)),
        "{}",
        transfer.received
    );
}
