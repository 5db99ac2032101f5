//! A right configuration is resolved; a wrong one is refused with every mistake at its place.

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
fn a_link_is_resolved_with_its_faults() {
    let text = format!(
        "{GOOD}[[port]]\nname = \"c\"\n[[port]]\nname = \"d\"\n[[link]]\nname = \"bad\"\nports = [\"d\", \"c\"]\n\
         drop_ppm = 10\ndelay_us = 2000\nrate_bps = 1000000\nmtu = 1500\nseed = 7\n"
    );
    let plan = Plan::new(&config(&text)).expect("nothing is wrong");
    assert_eq!(plan.ports[4].role, PortRole::Linked(LinkId(0)));
    assert_eq!(plan.interface_of(PortId(4)), None);
    let link = &plan.links[0];
    assert_eq!(link.ends, [PortId(5), PortId(4)]);
    assert_eq!((link.faults.drop_ppm, link.seed), (10, 7));
    assert_eq!(link.faults.delay.as_micros(), 2000);
    assert_eq!(link.faults.mtu_bytes, 1514);
    assert_eq!(link.faults.bandwidth_bps, 1_000_000);
}

#[test]
fn mistakes_are_found_where_they_are() {
    finds("", "port", "no port");
    for (old, new, path, message) in MISTAKES {
        finds(&with(old, new), path, message);
    }
}

/// A piece of `GOOD`, what replaces it, and where what is found then.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    ("cpus = [0, 1]", "cpus = [1, 1]", "node.cpus[1]", "twice"),
    (
        "[node]",
        "[node]\nframe_bytes = 3000",
        "node.frame_bytes",
        "3000",
    ),
    (
        "name = \"west\"",
        "name = \"east\"",
        "port[1].name",
        "twice",
    ),
    (
        "name = \"west\"",
        "name = \"west\"\nmac = \"01:00:00:00:00:01\"",
        "port[1].mac",
        "one station",
    ),
    ("mtu = 1400", "mtu = 1771", "port[1].mtu", "do not fit"),
    (
        "198.51.100.1/24",
        "198.51.100.1",
        "port[1].addresses[0]",
        "no prefix length",
    ),
    (
        "198.51.100.1/24",
        "192.0.2.200/25",
        "port[1].addresses[0]",
        "link of two ports",
    ),
    (
        "[\"a\", \"b\"]",
        "[\"a\", \"c\"]",
        "bridge[0].ports[1]",
        "no port `c`",
    ),
    (
        "via = \"192.0.2.9\"",
        "via = \"9.9.9.9\"",
        "route[1].via",
        "cannot be reached",
    ),
    (
        "port = \"lan\"\n[[n",
        "port = \"a\"\n[[n",
        "route[5].port",
        "belongs to bridge `lan`",
    ),
    (
        "203.0.113.7",
        "192.0.2.7",
        "neighbour[0].address",
        "not on the link",
    ),
];

#[test]
fn all_mistakes_are_found_at_once() {
    let text = with("198.51.100.1/24", "nonsense").replacen("192.0.2.9", "9.9.9.9", 1);
    let error = Plan::new(&config(&text)).expect_err("mistakes");
    assert!(error.problems.len() >= 2, "{error}");
}
