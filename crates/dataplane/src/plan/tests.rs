//! Each check finds its mistake, at its place, and a right configuration passes.

use super::*;

const GOOD: &str = r#"
[node]
cpus = [0, 1]
[[port]]
name = "east"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
[[port]]
name = "west"
mtu = 1400
addresses = ["198.51.100.1/24"]
[[port]]
name = "a"
[[port]]
name = "b"
[[bridge]]
name = "lan"
ports = ["a", "b"]
addresses = ["203.0.113.1/24"]
[[route]]
to = "0.0.0.0/0"
via = "198.51.100.254"
[[route]]
to = "10.0.0.0/8"
via = "192.0.2.9"
[[route]]
to = "10.0.0.0/8"
via = "192.0.2.10"
[[route]]
to = "2001:db8:2::/48"
via = "fe80::1"
port = "east"
[[route]]
to = "192.168.0.0/16"
blackhole = true
[[route]]
to = "172.16.0.0/24"
port = "lan"
[[neighbour]]
address = "203.0.113.7"
mac = "02:00:00:00:00:07"
port = "lan"
"#;

fn config(text: &str) -> Config {
    text.parse_config()
}

trait ParseConfig {
    fn parse_config(&self) -> Config;
}

impl ParseConfig for str {
    fn parse_config(&self) -> Config {
        toml::from_str(self).expect("the test's TOML is of the right shape")
    }
}

/// Asserts that `text` has a problem at `path` whose message holds `message`.
#[track_caller]
fn finds(text: &str, path: &str, message: &str) {
    let error = Plan::new(&config(text)).expect_err("the mistake is found");
    let found = error
        .problems
        .iter()
        .any(|p| p.path == path && p.message.contains(message));
    assert!(found, "no problem at {path} with {message:?} in:\n{error}");
    for problem in &error.problems {
        assert!(!problem.remedy.is_empty(), "{problem} has no remedy");
    }
}

/// `GOOD` with one piece replaced.
#[track_caller]
fn with(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old} is in the example");
    GOOD.replacen(old, new, 1)
}

#[test]
fn a_right_configuration_is_resolved() {
    let plan = Plan::new(&config(GOOD)).expect("nothing is wrong");
    assert_eq!(plan.ports.len(), 4);
    assert_eq!(plan.ports[0].role, PortRole::Routed(InterfaceId(0)));
    assert_eq!(plan.ports[3].role, PortRole::Bridged(BridgeId(0)));
    assert_eq!(plan.bridges[0].ports, [PortId(2), PortId(3)]);
    assert_eq!(
        plan.interface_of(PortId(3)),
        Some(plan.bridges[0].interface)
    );
    let gateway = "198.51.100.254".parse().expect("an address");
    let target = RouteTarget::Via {
        gateway,
        interface: InterfaceId(1),
    };
    assert_eq!(plan.routes[0].target, target);
    assert_eq!(
        plan.routes[5].target,
        RouteTarget::OnLink(plan.bridges[0].interface)
    );
    assert_eq!(plan.neighbours[0].interface, plan.bridges[0].interface);
}

#[test]
fn mistakes_of_the_node_are_found() {
    finds(
        &with("cpus = [0, 1]", "cpus = [1, 1]"),
        "node.cpus[1]",
        "twice",
    );
    finds(
        &with("[node]", "[node]\nframe_bytes = 3000"),
        "node.frame_bytes",
        "power of two",
    );
    finds(
        &with("[node]", "[node]\nframes_per_worker = 8"),
        "node.frames_per_worker",
        "8 frames",
    );
    finds("", "port", "no ports");
}

#[test]
fn mistakes_of_ports_are_found() {
    finds(
        &with("name = \"west\"", "name = \"east\""),
        "port[1].name",
        "already",
    );
    finds(
        &with("name = \"west\"", "name = \"west\"\ninterface = \"east\""),
        "port[1].interface",
        "`east`",
    );
    finds(
        &with(
            "name = \"west\"",
            "name = \"west\"\nmac = \"01:00:00:00:00:01\"",
        ),
        "port[1].mac",
        "group",
    );
    finds(
        &with("name = \"west\"", "name = \"west\"\nmac = \"nonsense\""),
        "port[1].mac",
        "not a MAC",
    );
    finds(&with("mtu = 1400", "mtu = 60"), "port[1].mtu", "less than");
    finds(
        &with("mtu = 1400", "mtu = 9000"),
        "port[1].mtu",
        "do not fit",
    );
    finds(
        &with("name = \"west\"", "name = \"west\"\ndriver = \"pcap\""),
        "port[1].file",
        "needs a file",
    );
    finds(
        &with("name = \"west\"", "name = \"west\"\nfile = \"x\""),
        "port[1].file",
        "only the pcap",
    );
    finds(
        &with("198.51.100.1/24", "198.51.100.1"),
        "port[1].addresses[0]",
        "no prefix length",
    );
    finds(
        &with("198.51.100.1/24", "198.51.100.0/24"),
        "port[1].addresses[0]",
        "network's own",
    );
    finds(
        &with("198.51.100.1/24", "198.51.100.255/24"),
        "port[1].addresses[0]",
        "broadcast",
    );
    finds(
        &with("198.51.100.1/24", "224.0.0.5/24"),
        "port[1].addresses[0]",
        "multicast",
    );
    finds(
        &with("198.51.100.1/24", "192.0.2.1/24"),
        "port[1].addresses[0]",
        "the address of",
    );
    finds(
        &with("198.51.100.1/24", "192.0.2.200/25"),
        "port[1].addresses[0]",
        "overlaps",
    );
    finds(
        &with(
            "name = \"a\"",
            "name = \"a\"\naddresses = [\"10.9.0.1/24\"]",
        ),
        "port[2].addresses",
        "in a bridge",
    );
}

#[test]
fn mistakes_of_bridges_are_found() {
    finds(
        &with("[\"a\", \"b\"]", "[\"a\", \"c\"]"),
        "bridge[0].ports[1]",
        "no port `c`",
    );
    finds(&with("[\"a\", \"b\"]", "[]"), "bridge[0].ports", "no ports");
    finds(
        &with("[\"a\", \"b\"]", "[\"a\", \"a\"]"),
        "bridge[0].ports[1]",
        "already",
    );
    finds(
        &with("name = \"lan\"", "name = \"east\""),
        "bridge[0].name",
        "already",
    );
    finds(
        &with("name = \"lan\"", "name = \"lan\"\nageing_s = 1"),
        "bridge[0].ageing_s",
        "outside",
    );
}

#[test]
fn mistakes_of_routes_are_found() {
    finds(
        &with("to = \"10.0.0.0/8\"", "to = \"10.0.0.1/8\""),
        "route[1].to",
        "bits set",
    );
    finds(
        &with("via = \"192.0.2.10\"", "via = \"192.0.2.9\""),
        "route[2].to",
        "same route",
    );
    finds(
        &with("via = \"192.0.2.9\"", "via = \"9.9.9.9\""),
        "route[1].via",
        "not on any link",
    );
    finds(
        &with("via = \"192.0.2.9\"", "via = \"192.0.2.1\""),
        "route[1].via",
        "own address",
    );
    finds(
        &with("via = \"192.0.2.9\"", "via = \"2001:db8:1::9\""),
        "route[1].via",
        "family",
    );
    finds(
        &with(
            "via = \"192.0.2.9\"",
            "via = \"192.0.2.9\"\nport = \"west\"",
        ),
        "route[1].via",
        "link of `west`",
    );
    finds(
        &with("via = \"fe80::1\"\nport = \"east\"", "via = \"fe80::1\""),
        "route[3].via",
        "link-local",
    );
    finds(
        &with("blackhole = true", "blackhole = true\nport = \"east\""),
        "route[4].port",
        "nowhere",
    );
    finds(&with("blackhole = true", ""), "route[4]", "leads nowhere");
    finds(
        &with("port = \"lan\"\n[[n", "port = \"a\"\n[[n"),
        "route[5].port",
        "in bridge `lan`",
    );
    finds(
        &with("port = \"lan\"\n[[n", "port = \"nix\"\n[[n"),
        "route[5].port",
        "no port or bridge",
    );
    finds(
        &with("172.16.0.0/24", "192.0.2.0/24"),
        "route[5].to",
        "already",
    );
}

#[test]
fn mistakes_of_neighbours_are_found() {
    finds(
        &with("203.0.113.7", "192.0.2.7"),
        "neighbour[0].address",
        "not on the link",
    );
    finds(
        &with("203.0.113.7", "203.0.113.1"),
        "neighbour[0].address",
        "own address",
    );
    finds(
        &with("02:00:00:00:00:07", "zz"),
        "neighbour[0].mac",
        "not a MAC",
    );
    finds(
        &with(
            "mac = \"02:00:00:00:00:07\"\nport = \"lan\"",
            "mac = \"02:00:00:00:00:07\"\nport = \"b\"",
        ),
        "neighbour[0].port",
        "in bridge",
    );
}

#[test]
fn all_mistakes_are_found_at_once() {
    let text = with("198.51.100.1/24", "nonsense").replacen("192.0.2.9", "9.9.9.9", 1);
    let error = Plan::new(&config(&text)).expect_err("mistakes");
    assert!(error.problems.len() >= 2, "{error}");
}
