//! Puts a new configuration in force, as far as that goes without a restart.

use std::path::PathBuf;
use std::sync::Arc;

use control::Config;
use control::config::{
    DriverConfig, FirewallConfig, GuardConfig, IdleConfig, IdleMode, PortConfig,
};
use graph::Snapshot;

use super::{Dataplane, ReloadError, lock};
use crate::firewall::{load_guard, load_rules};
use crate::forwarding::Forwarding;
use crate::neighbour::Key;
use crate::neighbour::table::State;
use crate::plan::Plan;
use crate::prefix::mapped;

pub(super) fn reload(node: &Dataplane, config: &Config) -> Result<Vec<String>, ReloadError> {
    let mut state = node.state();
    if state.ended.is_some() {
        return Err(ReloadError::Stopped);
    }
    let old = &state.config;
    let other = other_structure(old, config);
    if !other.is_empty() {
        return Err(ReloadError::Structure { paths: other });
    }
    let facts: Vec<_> = node.ports.iter().map(super::OpenedPort::facts).collect();
    let mtus: Vec<_> = facts.iter().map(|facts| facts.mtu).collect();
    let (effective, needs_restart) = what_can_be(old, config, &mtus);
    let plan = Plan::new(&effective)?;
    let rules = load_rules(&effective, &plan, state.forwarding.rules.as_ref())?;
    let guard = load_guard(&effective, state.forwarding.guard.as_ref())?;
    let waits_otherwise = waits(old) != waits(&effective);
    let generation = state.forwarding.generation + 1;
    let forwarding = Forwarding::new(&plan, &facts, generation);
    let forwarding = Arc::new(forwarding.with_rules(rules).with_guard(guard));
    let snapshot: Snapshot = Arc::clone(&forwarding) as Snapshot;
    let mut workers = lock(&node.workers);
    if !workers.reload(&snapshot) || (waits_otherwise && !workers.set_idle(&effective)) {
        return Err(ReloadError::Busy);
    }
    drop(workers);
    neighbours(node, &state.plan, &plan);
    if let Some(ndn) = &node.shared.ndn {
        ndn.update(&forwarding);
    }
    state.config = Arc::new(effective);
    state.plan = plan;
    state.forwarding = forwarding;
    tracing::info!(generation, "a new configuration is in force");
    Ok(needs_restart)
}

/// Replaces the static neighbours.
fn neighbours(node: &Dataplane, old: &Plan, new: &Plan) {
    let table = &node.shared.neighbours;
    let now = io::cpu::now();
    let key = |n: &crate::plan::NeighbourPlan| Key::new(n.interface, mapped(&n.address));
    for gone in old.neighbours.iter().map(key) {
        let stays = new.neighbours.iter().any(|n| key(n) == gone);
        let fixed = table
            .get(&gone, now)
            .is_some_and(|e| e.state == State::Permanent);
        if !stays && fixed {
            table.remove(&gone, now);
        }
    }
    node.shared.set_neighbours(new, now);
}

/// Returns the paths of what makes the packet graph another one: the ports and what joins them.
fn other_structure(old: &Config, new: &Config) -> Vec<String> {
    let mut paths = Vec::new();
    let ports = |config: &Config| -> Vec<String> {
        config.port.iter().map(|port| port.name.clone()).collect()
    };
    if ports(old) != ports(new) {
        paths.push("port".to_owned());
    }
    let bridges = |config: &Config| -> Vec<(String, Vec<String>)> {
        let bridges = config.bridge.iter();
        bridges.map(|b| (b.name.clone(), b.ports.clone())).collect()
    };
    if bridges(old) != bridges(new) {
        paths.push("bridge".to_owned());
    }
    let links = |config: &Config| -> Vec<(String, Vec<String>)> {
        let links = config.link.iter();
        links.map(|l| (l.name.clone(), l.ports.clone())).collect()
    };
    if links(old) != links(new) {
        paths.push("link".to_owned());
    }
    paths
}

/// Returns how workers wait for packets.
fn waits(config: &Config) -> (&IdleConfig, Vec<Option<IdleMode>>) {
    let modes = config.port.iter().map(|port| port.idle);
    (&config.idle, modes.collect())
}

/// Returns the new configuration with what needs a restart as it was, and the paths of that. `mtus` is what
/// the ports were opened with.
fn what_can_be(old: &Config, new: &Config, mtus: &[u16]) -> (Config, Vec<String>) {
    let mut effective = new.clone();
    let mut paths = Vec::new();
    if old.node != new.node {
        effective.node = old.node.clone();
        paths.push("node".to_owned());
    }
    if old.dpdk != new.dpdk {
        effective.dpdk = old.dpdk.clone();
        paths.push("dpdk".to_owned());
    }
    if old.host != new.host {
        effective.host = old.host.clone();
        paths.push("host".to_owned());
    }
    if !same_firewall(old.firewall.as_ref(), new.firewall.as_ref()) {
        effective.firewall = old.firewall.clone();
        paths.push("firewall".to_owned());
    }
    let ndn = |config: &Config| {
        (
            config.ndn.clone(),
            config.ndn_face.clone(),
            config.ndn_route.clone(),
            config.ndn_strategy.clone(),
            config.ndn_key.clone(),
        )
    };
    if ndn(old) != ndn(new) {
        (
            effective.ndn,
            effective.ndn_face,
            effective.ndn_route,
            effective.ndn_strategy,
            effective.ndn_key,
        ) = ndn(old);
        paths.push("ndn".to_owned());
    }
    for (i, (was, port)) in old.port.iter().zip(&mut effective.port).enumerate() {
        let mut kept = |same: bool, key: &str| {
            if !same {
                paths.push(format!("port[{i}].{key}"));
            }
        };
        kept(was.driver == port.driver, "driver");
        kept(was.interface == port.interface, "interface");
        kept(was.file == port.file, "file");
        kept(was.device == port.device, "device");
        // A TAP interface was made for packets of so many bytes; others are as long as they are.
        let is_tap = was.driver == DriverConfig::Tap;
        let too_long = port
            .mtu
            .is_some_and(|mtu| mtus.get(i).is_some_and(|&most| mtu > most));
        kept(!(is_tap && too_long), "mtu");
        *port = PortConfig {
            addresses: core::mem::take(&mut port.addresses),
            mac: port.mac.take(),
            mtu: if is_tap && too_long {
                was.mtu
            } else {
                port.mtu
            },
            idle: port.idle,
            ..was.clone()
        };
    }
    (effective, paths)
}

/// Tells whether two firewalls differ at most in their files of rules and in the settings of a guard that both have:
/// the tables stay as they are sized.
fn same_firewall(old: Option<&FirewallConfig>, new: Option<&FirewallConfig>) -> bool {
    let rest = |firewall: &FirewallConfig| FirewallConfig {
        rules: firewall.rules.as_ref().map(|_| PathBuf::new()),
        guard: firewall.guard.as_ref().map(|_| GuardConfig::default()),
        ..firewall.clone()
    };
    old.map(rest) == new.map(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).expect("the test's TOML is of the right shape")
    }

    const OLD: &str =
        "[[port]]\nname = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[[port]]\nname = \"b\"\n";

    #[test]
    fn addresses_and_routes_change_and_the_rest_stays() {
        let old = config(OLD);
        let text = OLD
            .replace(
                "192.0.2.1/24",
                "192.0.2.2/24\"]\nmtu = 1400\nidle = \"poll\"\nmac = \"02:00:00:00:00:01",
            )
            .replace("02:00:00:00:00:01\"]", "02:00:00:00:00:01\"")
            + "[[route]]\nto = \"0.0.0.0/0\"\nvia = \"192.0.2.9\"\n[node]\ncpus = [1]\n[idle]\nmode = \"poll\"\n";
        let (effective, paths) = what_can_be(&old, &config(&text), &[1500, 1500]);
        assert_eq!(paths, ["node"]);
        assert_eq!(effective.node, old.node);
        let mut wanted = config(&text);
        wanted.node = old.node.clone();
        assert_eq!(effective, wanted);
        assert_ne!(waits(&old), waits(&effective));
        assert_eq!(other_structure(&old, &effective), [""; 0]);
    }

    #[test]
    fn a_tap_takes_no_longer_packets_than_it_was_made_for() {
        let tap = |mtu| {
            config(&format!(
                "[[port]]\nname = \"a\"\ndriver = \"tap\"\nmtu = {mtu}\n"
            ))
        };
        let (old, longer, shorter) = (tap(1400), tap(1500), tap(1300));
        let (effective, paths) = what_can_be(&old, &longer, &[1400]);
        assert_eq!(
            (effective, &paths[..]),
            (old.clone(), &["port[0].mtu".to_owned()][..])
        );
        let (effective, paths) = what_can_be(&old, &shorter, &[1400]);
        assert_eq!((effective, paths.len()), (shorter, 0));
    }

    #[test]
    fn other_ports_and_bridges_need_a_restart() {
        let old = config(OLD);
        assert_eq!(
            other_structure(&old, &config(&OLD.replace("\"b\"", "\"c\""))),
            ["port"]
        );
        let bridge = format!("{OLD}[[bridge]]\nname = \"lan\"\nports = [\"b\"]\n");
        assert_eq!(other_structure(&old, &config(&bridge)), ["bridge"]);
    }
}
