//! NAT for UDP (RFC 4787, RFC 7857), and what carriers ask for (RFC 6888).

use std::collections::HashSet;

use super::*;
use crate::nat::cgn::{BlockPlan, Deterministic, Plan, Subscribers};
use crate::nat::mapping::{Endpoint, MappingError, MappingRequest, PortSpace};
use proptest::prelude::*;
use tables::signature::Keyed;

#[test]
fn row_01_one_mapping_for_all_peers() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let outer = rig.out((HOST, 5000), (PEER, 53));
    assert_eq!(outer, (OUTER, 5000));
    assert_eq!(rig.out((HOST, 5000), (OTHER_PEER, 99)), outer);
}

#[test]
fn row_02_and_05_a_collision_changes_no_mapping_and_overloads_none() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let first = rig.out((HOST, 5000), (PEER, 53));
    let second = rig.out((OTHER_HOST, 5000), (PEER, 53));
    assert_ne!(first, second);
    assert_eq!(rig.out((OTHER_HOST, 5000), (OTHER_PEER, 1)), second);
    assert_eq!(rig.out((HOST, 5000), (OTHER_PEER, 1)), first);
    assert_eq!(rig.back((PEER, 53), first), Ok((HOST, 5000)));
    assert_eq!(rig.back((PEER, 53), second), Ok((OTHER_HOST, 5000)));
}

#[test]
fn row_03_and_34_random_ports_keep_the_mapping() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    rig.rules.random = true;
    let ports: Vec<_> = (0..32)
        .map(|n| {
            let outer = rig.out((HOST, 5000 + 2 * n), (PEER, 53));
            assert_eq!(rig.out((HOST, 5000 + 2 * n), (OTHER_PEER, 54)), outer);
            outer.1
        })
        .collect();
    let kept = ports
        .iter()
        .zip(0..)
        .filter(|&(&port, n)| port == 5000 + 2 * n);
    assert!(kept.count() < 4, "{ports:?}");
    assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 32);
}

#[test]
fn row_04_a_host_keeps_one_address_of_a_pool() {
    let hash = Keyed::new([1, 2, 3, 4]);
    let nat = crate::nat::mapping::Nat::new(&small().nat, NatPolicy::default(), hash, 1);
    let mut worker = nat.join().unwrap();
    let mut addresses = HashSet::new();
    for host in 0..64_u32 {
        let mut outer = HashSet::new();
        for port in 0..4 {
            let request = crate::nat::mapping::MappingRequest {
                inner: crate::nat::mapping::Endpoint {
                    address: HOST.to_bits() + host,
                    port: 5000 + port,
                    space: crate::nat::mapping::PortSpace::Udp,
                },
                first: OUTER.to_bits(),
                last: OUTER.to_bits() + 3,
                ports: None,
                random: false,
            };
            let mapped = nat
                .acquire(&mut worker, &request, 0, Instant::ZERO)
                .unwrap();
            outer.insert(mapped.outer.address);
        }
        assert_eq!(outer.len(), 1);
        addresses.extend(outer);
    }
    assert_eq!(addresses.len(), 4);
}

#[test]
fn row_06_range_and_parity_are_kept() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    for n in 0..60 {
        let host = Ipv4Addr::new(10, 0, 1, n);
        for port in [500, 501, 6000, 6001] {
            let (_, outer) = rig.out((host, port), (PEER, 53));
            assert_eq!(outer % 2, port % 2, "{port} {outer}");
            assert_eq!(outer < 1024, port < 1024, "{port} {outer}");
        }
    }
}

#[test]
fn row_07_a_mapping_lives_two_minutes_at_least() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let outer = rig.out((HOST, 5000), (PEER, 53));
    rig.wait(Duration::from_secs(119));
    assert_eq!(rig.back((PEER, 53), outer), Ok((HOST, 5000)));
    // With packets both ways, five minutes.
    rig.wait(Duration::from_secs(299));
    assert_eq!(rig.back((PEER, 53), outer), Ok((HOST, 5000)));
    rig.wait(Duration::from_secs(302));
    assert_eq!(rig.back((PEER, 53), outer), DROPPED);
}

#[test]
fn row_08_who_refreshes_is_configurable_and_errors_never_do() {
    for inbound_refresh in [true, false] {
        let mut rig = Rig::new(TrackPolicy {
            inbound_refresh,
            ..TrackPolicy::default()
        });
        let outer = rig.out((HOST, 5000), (PEER, 53));
        rig.back((PEER, 53), outer).unwrap();
        for _ in 0..3 {
            rig.wait(Duration::from_secs(110));
            let _ = rig.back((PEER, 53), outer);
        }
        assert_eq!(rig.back((PEER, 53), outer).is_ok(), inbound_refresh);
    }
}

#[test]
fn row_10_and_11_filtering_is_chosen() {
    for (filtering, other_port, other_address) in [
        (Filtering::EndpointIndependent, true, true),
        (Filtering::Address, true, false),
        (Filtering::AddressAndPort, false, false),
    ] {
        let mut rig = Rig::filtering(filtering);
        let outer = rig.out((HOST, 5000), (PEER, 53));
        assert_eq!(rig.back((PEER, 53), outer), Ok((HOST, 5000)));
        let answer = rig.back((PEER, 54), outer);
        assert_eq!(answer == Ok((HOST, 5000)), other_port, "{filtering:?}");
        let answer = rig.back((OTHER_PEER, 54), outer);
        assert_eq!(answer == Ok((HOST, 5000)), other_address, "{filtering:?}");
        // A port that nobody has is closed in any case.
        assert_eq!(rig.back((PEER, 53), (OUTER, 5002)), DROPPED);
        // The answer to the new peer leaves by the same mapping.
        if other_address {
            let frame = udp_frame(v4(HOST, OTHER_PEER), (5000, 54), b"x");
            assert_eq!(source_of(&rig.send(INSIDE, frame).unwrap()), outer);
        }
        // What is open ends with the connections that opened it.
        rig.wait(Duration::from_secs(700));
        assert_eq!(rig.back((PEER, 54), outer), DROPPED);
    }
}

#[test]
fn row_12_a_hairpin_shows_the_outer_source() {
    let mut rig = Rig::filtering(Filtering::EndpointIndependent);
    let server = rig.out((HOST, 5000), (PEER, 53));
    let client = rig.out((OTHER_HOST, 6000), (PEER, 53));
    let frame = udp_frame(v4(OTHER_HOST, OUTER), (6000, server.1), b"hairpin");
    let frame = rig.send(INSIDE, frame).unwrap();
    assert_eq!(destination_of(&frame), (HOST, 5000));
    assert_eq!(source_of(&frame), client);
    // And back.
    let frame = udp_frame(v4(HOST, OUTER), (5000, client.1), b"answer");
    let frame = rig.send(INSIDE, frame).unwrap();
    assert_eq!(destination_of(&frame), (OTHER_HOST, 6000));
    assert_eq!(source_of(&frame), server);
}

#[test]
fn row_14_and_49_a_freed_port_rests_for_two_minutes() {
    let mut rig = Rig::filtering(Filtering::AddressAndPort);
    let outer = rig.out((HOST, 5000), (PEER, 53));
    rig.wait(Duration::from_secs(125));
    assert_eq!(rig.worker.shared().connections(), 0);
    // Its old owner has it at once, nobody else has.
    assert_ne!(rig.out((OTHER_HOST, 5000), (PEER, 53)), outer);
    assert_eq!(rig.out((HOST, 5000), (PEER, 53)), outer);
    rig.wait(Duration::from_secs(121));
    rig.wait(Duration::from_secs(115));
    assert_ne!(
        rig.out((Ipv4Addr::new(10, 0, 0, 3), 5000), (PEER, 53)),
        outer
    );
    rig.wait(Duration::from_secs(10));
    assert_eq!(
        rig.out((Ipv4Addr::new(10, 0, 0, 4), 5000), (PEER, 53)),
        outer
    );
}

#[test]
fn row_44_and_51_no_port_is_told_and_destroys_nothing() {
    let mut rig = Rig::with_sizes(
        TrackPolicy::default(),
        &Sizes {
            connections4: 2048,
            nat: NatSizes {
                mappings: 2048,
                ..small().nat
            },
            ..small()
        },
    );
    // All 1,023 ports of the low range.
    let mut given = HashSet::new();
    for n in 0..1023_u16 {
        let host = Ipv4Addr::from_bits(HOST.to_bits() + u32::from(n));
        given.insert(rig.out((host, 500), (PEER, 53)).1);
    }
    assert_eq!(given.len(), 1023);
    let frame = udp_frame(v4(Ipv4Addr::new(10, 9, 9, 9), PEER), (500, 53), b"x");
    let refused = rig.send(INSIDE, frame);
    assert_eq!(refused, Err(Fate::Drop(DropReason::NatNoPort)));
    let [error] = &rig.emissions()[..] else {
        panic!("one ICMP error")
    };
    assert_eq!(error[34..36], [3, 13]);
    assert_eq!(destination_of(error).0, Ipv4Addr::new(10, 9, 9, 9));
    assert_eq!(rig.back((PEER, 53), (OUTER, 500)), Ok((HOST, 500)));
}

#[test]
fn row_46_and_53_blocks_are_logged_once_and_bounded() {
    let plan = BlockPlan {
        size: 64,
        per_subscriber: 2,
        ..BlockPlan::default()
    };
    let hash = Keyed::new([9; 4]);
    let subscribers = Subscribers::new(Plan::Blocks(plan), 1024, hash, 4);
    let policy = TrackPolicy::default();
    let shared = Shared::new(&small(), policy, [1, 2, 3, 4]).with_subscribers(subscribers);
    let mut rig = Rig::new(policy);
    rig.worker = Worker::new(Arc::new(shared), 0, 7).unwrap();
    let mut blocks = HashSet::new();
    for port in 0..128 {
        let (_, outer) = rig.out((HOST, 2000 + port), (PEER, 53));
        blocks.insert((outer - 1024) / 64);
    }
    assert_eq!(blocks.len(), 2);
    let log: Vec<_> = rig.worker.take_block_events().collect();
    assert_eq!(log.len(), 2);
    assert!(
        log.iter()
            .all(|event| event.is_allocation && event.subscriber == HOST.to_bits())
    );
    let frame = udp_frame(v4(HOST, PEER), (9999, 53), b"x");
    assert_eq!(
        rig.send(INSIDE, frame),
        Err(Fate::Drop(DropReason::NatNoPort))
    );
    // Another subscriber has ports.
    rig.out((OTHER_HOST, 2000), (PEER, 53));
    rig.wait(Duration::from_secs(400));
    let log: Vec<_> = rig.worker.take_block_events().collect();
    assert_eq!(log.iter().filter(|event| !event.is_allocation).count(), 3);
}

#[test]
fn row_54_ports_and_address_of_a_subscriber_are_computed() {
    let plan = Deterministic {
        inner_first: HOST.to_bits(),
        inner_count: 8,
        outer_first: OUTER.to_bits(),
        outer_count: 2,
        first_port: 1024,
        last_port: u16::MAX,
    };
    let hash = Keyed::new([9; 4]);
    let subscribers = Subscribers::new(Plan::Deterministic(plan), 64, hash, 4);
    let policy = TrackPolicy::default();
    let shared = Shared::new(&small(), policy, [1, 2, 3, 4]).with_subscribers(subscribers);
    let nat = shared.nat();
    let mut worker = nat.join().unwrap();
    for n in 0..8 {
        let inner = Endpoint {
            address: HOST.to_bits() + n,
            port: 5000,
            space: PortSpace::Udp,
        };
        let request = |last| MappingRequest {
            inner,
            first: OUTER.to_bits(),
            last,
            ports: None,
            random: false,
        };
        // The rules have to offer the address that the plan says.
        if n >= 4 {
            let refused = nat.acquire(&mut worker, &request(OUTER.to_bits()), 1, Instant::ZERO);
            assert_eq!(refused.unwrap_err(), MappingError::Addresses);
        }
        let offered = request(OUTER.to_bits() + 1);
        let outer = nat.acquire(&mut worker, &offered, n, Instant::ZERO);
        let outer = outer.unwrap().outer;
        let (address, first, last) = plan.forward(inner.address).unwrap();
        assert_eq!(outer.address, address);
        assert!((first..=last).contains(&outer.port));
        // Who it was, without a log.
        assert_eq!(plan.reverse(outer.address, outer.port), Some(inner.address));
    }
    assert_eq!(worker.events.len(), 0, "nothing to log");
}

#[test]
fn row_53_blocks_of_mappings_that_were_taken_over_stay_their_subscribers() {
    let plan = BlockPlan {
        size: 64,
        per_subscriber: 2,
        ..BlockPlan::default()
    };
    let subscribers = || Subscribers::new(Plan::Blocks(plan), 1024, Keyed::new([9; 4]), 4);
    let policy = TrackPolicy::default();
    // As a node leaves them: mappings, but nothing of their blocks, which are not kept.
    let shared = Shared::new(&small(), policy, [1, 2, 3, 4]);
    let mut worker = shared.nat().join().unwrap();
    let request = |port| MappingRequest {
        inner: Endpoint {
            address: HOST.to_bits(),
            port,
            space: PortSpace::Udp,
        },
        first: OUTER.to_bits(),
        last: OUTER.to_bits(),
        ports: None,
        random: false,
    };
    for port in [1100, 1101, 1500] {
        let mapped = shared
            .nat()
            .acquire(&mut worker, &request(port), 0, Instant::ZERO);
        assert_eq!(mapped.unwrap().outer.port, port, "ports are kept");
    }
    drop(worker);
    let shared = shared.with_subscribers(subscribers());
    let mut worker = shared.nat().join().unwrap();
    // Its two blocks are those of ports 1100 and 1500: new mappings have ports there, and no block is told of anew.
    for port in 3000..3060 {
        let mapped = shared
            .nat()
            .acquire(&mut worker, &request(port), 5, Instant::ZERO);
        let outer = mapped.unwrap().outer.port;
        assert!([(1100 - 1024) / 64, (1500 - 1024) / 64].contains(&((outer - 1024) / 64)));
    }
    assert_eq!(worker.events.len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever hosts send in whatever order: no two inner endpoints share an outer one at any time, each keeps
    /// its own for all peers, and what comes back reaches the one that it is for.
    #[test]
    fn nat_is_a_bijection(
        sends in proptest::collection::vec((0_u8..6, 0_u16..12, 0_u8..3, 0_u64..40), 1..120),
        random: bool,
    ) {
        let mut rig = Rig::filtering(Filtering::AddressAndPort);
        rig.rules.random = random;
        let mut outer_of = std::collections::HashMap::new();
        for (host, port, peer, pause) in sends {
            let inner = (Ipv4Addr::new(10, 0, 0, host), 1020 + port);
            let peer = (Ipv4Addr::new(198, 51, 100, peer), 53);
            let outer = rig.out(inner, peer);
            let (seen, last) = *outer_of.get(&inner).unwrap_or(&(outer, rig.now));
            // Without use for two minutes the mapping may go; two more keep its port from others.
            if rig.now.saturating_since(last) < Duration::from_secs(119) {
                prop_assert_eq!(seen, outer);
            }
            outer_of.insert(inner, (outer, rig.now));
            let now = rig.now;
            let alive = outer_of
                .iter()
                .filter(|(_, (_, last))| now.saturating_since(*last) < Duration::from_secs(119));
            let mut taken = HashSet::new();
            for (inner, (outer, _)) in alive {
                prop_assert!(taken.insert(*outer), "{:?} has a port of another", inner);
            }
            prop_assert_eq!(rig.back(peer, outer), Ok(inner));
            rig.wait(Duration::from_secs(pause));
        }
    }
}
