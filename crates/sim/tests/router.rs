//! The node as a router between hosts that resolve addresses, over links with faults, by fixed and fresh
//! seeds.

mod common;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use common::{faults, host_mac, plan, v4, v6};
use sim::{Family, Faults, HostConfig, Network, Plan, Probe, Random, replayable};
use wire::DropReason;

/// Seeds of each kind.
const SEEDS: u64 = 6;
/// Probes of a phase.
const PROBES: u32 = 150;

const ROUTER: &str = r#"
[[port]]
name = "a"
driver = "mem"
addresses = ["10.0.1.1/24", "2001:db8:1::1/64"]
[[port]]
name = "b"
driver = "mem"
addresses = ["10.0.2.1/24", "2001:db8:2::1/64"]
[[port]]
name = "c"
driver = "mem"
mtu = 1280
addresses = ["10.0.3.1/24", "2001:db8:3::1/64"]
[[route]]
to = "10.9.0.0/16"
blackhole = true
"#;

/// The port whose MTU is smaller.
const NARROW: u8 = 2;
const NARROW_BYTES: usize = 1280;

fn network(seed: u64, faults: Faults, plan: Plan) -> Network {
    let hosts = (0..3).map(|port| {
        let net = port + 1;
        HostConfig {
            mac: host_mac(port),
            v4: Family {
                address: v4(net, 2),
                length: 24,
                gateway: Some(v4(net, 1)),
            },
            v6: Family {
                address: v6(net.into(), 2),
                length: 64,
                gateway: Some(v6(net.into(), 1)),
            },
        }
    });
    Network::new(seed, &common::config(ROUTER), hosts, faults, plan)
}

/// What is to become of a probe on links without faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It arrives, in fragments or whole.
    Delivered { at: usize, fragmented: bool },
    /// Its sender is told by an ICMP error of this type and code.
    Error { kind: u8, code: u8 },
    /// Nobody hears of it.
    Lost,
}

/// Chooses where a probe goes and how; returns its fate with it.
fn choose(random: &mut Random, from: usize, number: u32) -> (Probe, Fate) {
    let to = (from + 1 + random.below(2) as usize) % 3;
    let six = random.below(2) == 1;
    let net = to as u8 + 1;
    let mut probe = Probe {
        number,
        to: if six {
            v6(net.into(), 2).into()
        } else {
            v4(net, 2).into()
        },
        ttl: 2 + random.below(62) as u8,
        dont_fragment: random.below(2) == 1,
        bytes: 60 + random.below(1200) as usize,
    };
    let error = |four: (u8, u8), six_: (u8, u8)| {
        let (kind, code) = if six { six_ } else { four };
        Fate::Error { kind, code }
    };
    let here = Fate::Delivered {
        at: to,
        fragmented: false,
    };
    let fate = match random.below(10) {
        0 => {
            probe.ttl = 1;
            error((11, 0), (3, 0))
        }
        1 => {
            probe.to = if six {
                v6(77, 1).into()
            } else {
                v4(77, 1).into()
            };
            error((3, 0), (1, 0))
        }
        2 if !six => {
            probe.to = IpAddr::from([10, 9, 1, 1]);
            Fate::Lost
        }
        3 | 4 => {
            probe.bytes = NARROW_BYTES + 1 + random.below(200) as usize;
            match (to == usize::from(NARROW), six || probe.dont_fragment) {
                (false, _) => here,
                (true, true) => error((3, 4), (2, 0)),
                (true, false) => Fate::Delivered {
                    at: to,
                    fragmented: true,
                },
            }
        }
        5 => {
            // The router itself: nobody listens there.
            probe.to = if six {
                v6(net.into(), 1).into()
            } else {
                v4(net, 1).into()
            };
            error((3, 3), (1, 4))
        }
        _ => here,
    };
    (probe, fate)
}

/// Sends probes from random hosts; returns what they are, by number.
fn send(
    network: &mut Network,
    numbers: core::ops::Range<u32>,
) -> BTreeMap<u32, (usize, Probe, Fate)> {
    let mut sent = BTreeMap::new();
    for number in numbers {
        let from = network.world.random().below(3) as usize;
        let (probe, fate) = choose(network.world.random(), from, number);
        network.probe(from, &probe);
        sent.insert(number, (from, probe, fate));
        let gap = network.world.random().below(2_000_000);
        network.run_for(Duration::from_nanos(gap));
    }
    sent
}

/// Checks that nothing arrived that was not sent so; with `damage`, links may have changed the hop limit,
/// which no checksum of IPv6 covers.
fn check_safety(network: &Network, sent: &BTreeMap<u32, (usize, Probe, Fate)>, damage: bool) {
    for (at, host) in network.hosts.iter().enumerate() {
        for arrived in &host.delivered {
            let (from, probe, fate) = &sent[&arrived.number];
            assert!(
                matches!(fate, Fate::Delivered { at: wanted, .. } if *wanted == at),
                "host {at} got {arrived:?}, whose fate is {fate:?}"
            );
            let source = network.hosts[*from].config();
            let own: IpAddr = match probe.to {
                IpAddr::V4(_) => source.v4.address.into(),
                IpAddr::V6(_) => source.v6.address.into(),
            };
            assert_eq!(arrived.from, own);
            assert!(
                damage || arrived.ttl == probe.ttl - 1,
                "{arrived:?} of {probe:?}"
            );
        }
    }
}

/// Checks that every probe met its fate, once.
fn check_fates(network: &Network, sent: &BTreeMap<u32, (usize, Probe, Fate)>) {
    for (number, (from, probe, fate)) in sent {
        let arrivals: Vec<_> = network
            .hosts
            .iter()
            .enumerate()
            .flat_map(|(at, host)| host.delivered.iter().map(move |d| (at, d)))
            .filter(|(_, arrived)| arrived.number == *number)
            .collect();
        let errors: Vec<_> = network.hosts[*from]
            .errors
            .iter()
            .filter(|error| error.number == *number)
            .collect();
        let context = || format!("{probe:?} from {from}: {fate:?}, {arrivals:?}, {errors:?}");
        match fate {
            Fate::Delivered { at, fragmented } => {
                assert!(errors.is_empty(), "{}", context());
                let [(place, arrived)] = arrivals[..] else {
                    panic!("{}", context());
                };
                assert_eq!(
                    (place, arrived.fragmented),
                    (*at, *fragmented),
                    "{}",
                    context()
                );
            }
            Fate::Error { kind, code } => {
                assert!(arrivals.is_empty(), "{}", context());
                let [error] = errors[..] else {
                    panic!("{}", context());
                };
                assert_eq!((error.kind, error.code), (*kind, *code), "{}", context());
            }
            Fate::Lost => assert!(arrivals.is_empty() && errors.is_empty(), "{}", context()),
        }
    }
}

#[test]
fn every_packet_meets_its_fate() {
    replayable("router", "every_packet_meets_its_fate", SEEDS, |seed| {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut network = network(seed, Faults::default(), plan(&mut random));
        let sent = send(&mut network, 0..PROBES);
        network.run_for(Duration::from_millis(100));
        check_safety(&network, &sent, false);
        check_fates(&network, &sent);
        let lost = sent.values().filter(|(_, _, fate)| *fate == Fate::Lost);
        assert_eq!(
            network.drops(DropReason::RouteBlackhole),
            lost.count() as u64
        );
        for host in &network.hosts {
            assert_eq!((host.foreign, host.damaged), (0, 0));
        }
        network.finish();
    });
}

#[test]
fn a_neighbour_that_is_not_there_is_reported() {
    let test = "a_neighbour_that_is_not_there_is_reported";
    replayable("router", test, SEEDS, |seed| {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut network = network(seed, Faults::default(), plan(&mut random));
        for (number, to) in [(1, IpAddr::from(v4(2, 77))), (2, v6(2, 77).into())] {
            let probe = Probe {
                number,
                to,
                ttl: 9,
                dont_fragment: false,
                bytes: 100,
            };
            network.probe(0, &probe);
        }
        network.run_for(Duration::from_secs(5));
        let mut errors: Vec<_> = network.hosts[0]
            .errors
            .iter()
            .map(|error| (error.number, error.kind, error.code))
            .collect();
        errors.sort_unstable();
        assert_eq!(errors, [(1, 3, 1), (2, 1, 3)]);
        assert_eq!(network.drops(DropReason::NeighbourUnresolved), 2);
        network.finish();
    });
}

#[test]
fn faults_break_no_rule_and_the_network_heals() {
    let test = "faults_break_no_rule_and_the_network_heals";
    replayable("router", test, SEEDS, |seed| {
        let mut random = Random::new(seed ^ 0x5eed);
        let faults = faults(&mut random);
        let mut network = network(seed, faults, plan(&mut random));
        network.world.stall(20_000);
        let mut sent = send(&mut network, 0..PROBES);
        network.world.set_faults(Faults::default());
        network.world.stall(0);
        // Questions that were lost are asked again, and who was given up may be asked anew.
        network.run_for(Duration::from_secs(5));
        check_safety(&network, &sent, true);
        for host in &mut network.hosts {
            host.delivered.clear();
            host.errors.clear();
        }
        let after = send(&mut network, 10_000..10_000 + PROBES);
        network.run_for(Duration::from_millis(100));
        check_fates(&network, &after);
        sent.extend(after);
        check_safety(&network, &sent, true);
        network.finish();
    });
}
