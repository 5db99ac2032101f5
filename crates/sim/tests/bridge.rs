//! The node as a bridge between hosts of one network, over links with faults, by fixed and fresh seeds.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{faults, host_mac, plan, v4, v6};
use sim::{Family, Faults, HostConfig, Network, Plan, Probe, Random, replayable};

/// Seeds of each kind.
const SEEDS: u64 = 6;
/// Probes of a phase.
const PROBES: u32 = 120;
const HOSTS: u8 = 4;

const BRIDGE: &str = r#"
[[port]]
name = "a"
driver = "mem"
[[port]]
name = "b"
driver = "mem"
[[port]]
name = "c"
driver = "mem"
[[port]]
name = "d"
driver = "mem"
[[bridge]]
name = "lan"
ports = ["a", "b", "c", "d"]
addresses = ["10.0.1.1/24", "2001:db8:1::1/64"]
"#;

fn network(seed: u64, faults: Faults, plan: Plan) -> Network {
    let hosts = (0..HOSTS).map(|host| HostConfig {
        mac: host_mac(host),
        v4: Family {
            address: v4(1, host + 2),
            length: 24,
            gateway: None,
        },
        v6: Family {
            address: v6(1, u16::from(host) + 2),
            length: 64,
            gateway: None,
        },
    });
    Network::new(seed, &common::config(BRIDGE), hosts, faults, plan)
}

/// Sends probes between random hosts; returns the sender, the receiver and the probe, by number.
fn send(
    network: &mut Network,
    numbers: core::ops::Range<u32>,
) -> BTreeMap<u32, (usize, usize, Probe)> {
    let mut sent = BTreeMap::new();
    for number in numbers {
        let random = network.world.random();
        let from = random.below(HOSTS.into()) as usize;
        let to = (from + 1 + random.below(u64::from(HOSTS) - 1) as usize) % usize::from(HOSTS);
        let probe = Probe {
            number,
            to: match random.below(2) {
                0 => v4(1, to as u8 + 2).into(),
                _ => v6(1, to as u16 + 2).into(),
            },
            ttl: 1 + random.below(64) as u8,
            dont_fragment: true,
            bytes: 60 + random.below(1440) as usize,
        };
        network.probe(from, &probe);
        sent.insert(number, (from, to, probe));
        let gap = network.world.random().below(2_000_000);
        network.run_for(Duration::from_nanos(gap));
    }
    network.run_for(Duration::from_millis(50));
    sent
}

/// Checks that nothing arrived elsewhere or changed, and with `all` that everything arrived once.
fn check(network: &Network, sent: &BTreeMap<u32, (usize, usize, Probe)>, all: bool) {
    let mut arrived = BTreeMap::new();
    for (at, host) in network.hosts.iter().enumerate() {
        for delivered in &host.delivered {
            let (_, to, probe) = &sent[&delivered.number];
            assert_eq!(at, *to, "{delivered:?}");
            if all {
                assert_eq!(delivered.ttl, probe.ttl, "a bridge is no hop");
            }
            *arrived.entry(delivered.number).or_insert(0) += 1;
        }
    }
    if all {
        for (number, what) in sent {
            assert_eq!(arrived.get(number), Some(&1), "{number}: {what:?}");
        }
    }
}

/// Forgets what has arrived.
fn clear(network: &mut Network) {
    for host in &mut network.hosts {
        host.delivered.clear();
    }
}

/// Everyone speaks, so that the bridge knows where everyone is.
fn introduce(network: &mut Network) {
    for host in &mut network.hosts {
        host.announce();
    }
    network.run_for(Duration::from_millis(5));
}

#[test]
fn every_frame_arrives_once_and_only_where_it_belongs() {
    let test = "every_frame_arrives_once_and_only_where_it_belongs";
    replayable("bridge", test, SEEDS, |seed| {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut network = network(seed, Faults::default(), plan(&mut random));
        introduce(&mut network);
        let sent = send(&mut network, 0..PROBES);
        check(&network, &sent, true);
        // All stations are known, so that no unicast frame was flooded.
        for host in &network.hosts {
            assert_eq!((host.foreign, host.damaged), (0, 0));
        }
        // Two stations change places, and say so: frames follow them at once.
        clear(&mut network);
        network.swap(0, 2);
        network.run_for(Duration::from_millis(5));
        let sent = send(&mut network, 1000..1000 + PROBES);
        check(&network, &sent, true);
        let moves = network.shared.stations[0].moves();
        assert!(moves >= 2, "{moves} stations moved");
        network.finish();
    });
}

#[test]
fn the_node_answers_on_its_bridge() {
    replayable("bridge", "the_node_answers_on_its_bridge", SEEDS, |seed| {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut network = network(seed, Faults::default(), plan(&mut random));
        for (number, to) in [(1, v4(1, 1).into()), (2, v6(1, 1).into())] {
            for host in 0..usize::from(HOSTS) {
                let now = network.world.now();
                network.hosts[host].ping(now, to, number, 1000);
                network.run_for(Duration::from_millis(5));
            }
        }
        for host in &network.hosts {
            assert_eq!(host.replies, [1, 2]);
        }
        network.finish();
    });
}

#[test]
fn faults_break_no_rule_and_the_network_heals() {
    let test = "faults_break_no_rule_and_the_network_heals";
    replayable("bridge", test, SEEDS, |seed| {
        let mut random = Random::new(seed ^ 0x5eed);
        let faults = faults(&mut random);
        let mut network = network(seed, faults, plan(&mut random));
        network.world.stall(20_000);
        let mut sent = send(&mut network, 0..PROBES);
        network.swap(1, 3);
        sent.extend(send(&mut network, 1000..1000 + PROBES));
        check(&network, &sent, false);
        network.world.set_faults(Faults::default());
        network.world.stall(0);
        network.run_for(Duration::from_secs(5));
        // Damaged source addresses may have taught the bridge nonsense: everyone speaks once.
        introduce(&mut network);
        clear(&mut network);
        let after = send(&mut network, 2000..2000 + PROBES);
        check(&network, &after, true);
        network.finish();
    });
}
