//! The schema, its description and its text form agree.

use control::Config;
use control::config::{keys, parse};

/// A configuration that uses every table, with a key a line taken from the examples of the keys.
fn with_line(table: &keys::TableDoc, line: &str) -> String {
    let mut required = String::new();
    for key in table.keys.iter().filter(|key| key.default == "required") {
        if !line.starts_with(key.name) {
            required.push_str(key.example);
            required.push('\n');
        }
    }
    let mut text = format!("{}\n{required}{line}\n", table.header());
    let extra = match table.name {
        "port" if line.starts_with("file") => "driver = \"pcap\"\n",
        "port" if line.starts_with("device") => "driver = \"dpdk\"\n",
        "route" if !line.starts_with("port") && !line.starts_with("blackhole") => {
            "port = \"wan\"\n"
        }
        _ => "",
    };
    text.push_str(extra);
    if table.name == "dpdk" {
        text.push_str("[[port]]\nname = \"nic\"\ndriver = \"dpdk\"\ndevice = \"net_null0\"\n");
    }
    if table.name != "port" {
        text.push_str("[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n");
    }
    if table.name == "firewall" {
        if !line.starts_with("inside") && !line.starts_with("rules") {
            text = text.replace("[firewall]\n", "[firewall]\ninside = \"lan\"\n");
        }
        text.push_str("[[port]]\nname = \"lan\"\n");
    }
    if table.name == "ndn.kernel_cache" && !line.starts_with("interfaces") {
        text = text.replace("cache]\n", "cache]\ninterfaces = [\"eth1\"]\n");
    }
    if table.name.starts_with("ndn_") {
        text.push_str("[ndn]\n");
    }
    if table.name == "firewall.cgn" {
        if line.starts_with("subscribers") {
            text = text.replace(
                line,
                &format!("{line}\nouter = [\"203.0.113.1\", \"203.0.113.2\"]"),
            );
        }
        if line.starts_with("outer") {
            text = text.replace(
                line,
                &format!("{line}\nsubscribers = [\"100.64.0.1\", \"100.64.0.9\"]"),
            );
        }
    }
    if table.name.starts_with("firewall.") {
        text = format!("[firewall]\ninside = \"lan\"\n{text}[[port]]\nname = \"lan\"\n");
    }
    if table.name == "link" {
        if line.starts_with("reorder_ppm") {
            text = text.replace("reorder_ppm", "reorder_us = 1000\nreorder_ppm");
        }
        text.push_str("[[port]]\nname = \"east\"\n[[port]]\nname = \"west\"\n");
    }
    if table.name == "bridge" {
        text = text.replace("192.0.2.1/24\"]\n[[port]]", "198.51.100.1/24\"]\n[[port]]");
        text.push_str("[[port]]\nname = \"lan0\"\n[[port]]\nname = \"lan1\"\n");
    }
    text
}

#[test]
fn every_example_is_right() {
    for table in keys::TABLES {
        for key in table.keys {
            let text = with_line(table, key.example);
            if let Err(error) = parse("example", &text) {
                panic!(
                    "{} {}:\n{text}\n{}",
                    table.name,
                    key.name,
                    error.render(false, 100)
                );
            }
        }
    }
}

#[test]
fn every_key_is_described() {
    let text = r#"
[dpdk]
group = "edge"
guest = 0
[[port]]
name = "a"
driver = "pcap"
interface = "a"
addresses = []
mac = "02:00:00:00:00:01"
mtu = 1500
idle = "poll"
file = "x"
device = "net_null0"
[[bridge]]
name = "b"
ports = ["a"]
[[link]]
name = "c"
ports = ["d", "e"]
rate_bps = 1
mtu = 1500
[[route]]
to = "0.0.0.0/0"
via = "192.0.2.9"
port = "a"
[[neighbour]]
address = "192.0.2.9"
mac = "02:00:00:00:00:01"
port = "a"
[firewall]
inside = "a"
rules = "r.nft"
state = "off"
nat64 = "64:ff9b::/96"
[firewall.cgn]
subscribers = ["100.64.0.1", "100.64.0.9"]
outer = ["203.0.113.1", "203.0.113.2"]
[firewall.nptv6]
port = "a"
inside = "fd00:1::/48"
outside = "2001:db8:1::/48"
[firewall.guard]
[ndn]
nfd_conf = "nfd.conf"
cache_disk = "x"
[ndn.kernel_cache]
ports = ["a"]
[[ndn_face]]
remote = "udp4://192.0.2.9:6363"
local = "dev://a"
mtu = 1400
[[ndn_route]]
prefix = "/a"
face = "udp4://192.0.2.9:6363"
[[ndn_strategy]]
prefix = "/a"
strategy = "multicast"
[[ndn_key]]
certificate = "any"
modules = ["rib"]
[host]
addresses = ["192.0.2.1"]
"#;
    let full: Config = toml::from_str(text).unwrap();
    let mut full = toml::Table::try_from(&full).unwrap();
    let firewall = full["firewall"].as_table_mut().unwrap();
    let below = ["guard", "cgn", "nptv6"].map(|name| (name, firewall.remove(name).unwrap()));
    for (name, table) in below {
        full.insert(format!("firewall.{name}"), table);
    }
    let ndn = full["ndn"].as_table_mut().unwrap();
    let kernel_cache = ndn.remove("kernel_cache").unwrap();
    full.insert("ndn.kernel_cache".into(), kernel_cache);
    for (name, value) in &full {
        let table = keys::table(name).unwrap_or_else(|| panic!("table `{name}` is not described"));
        let value = match value {
            toml::Value::Array(items) => &items[0],
            other => other,
        };
        let written: Vec<_> = value.as_table().unwrap().keys().collect();
        for key in &written {
            assert!(
                table.keys.iter().any(|doc| doc.name == **key),
                "key `{key}` of `{name}` is not described"
            );
        }
        for doc in table.keys {
            assert!(
                written.iter().any(|key| *key == doc.name),
                "key `{}` of `{name}` does not exist, or the text above lacks it",
                doc.name
            );
        }
    }
    assert_eq!(full.len(), keys::TABLES.len());
}

#[test]
fn text_form_reads_back() {
    let text = "[node]\ncpus = [1]\n[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n\
                mac = \"02:00:00:00:00:01\"\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"192.0.2.9\"\n";
    let config = parse("a", text).unwrap();
    assert_eq!(parse("b", &config.to_toml()).unwrap(), config);
}
