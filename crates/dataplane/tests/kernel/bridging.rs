//! A bridge between the stacks of two kernels, whatever driver it has.

use lab::topology::{Line, LineOptions};

use crate::common::{Bench, Driver, add_bridged, tcp_transfer};

/// Two kernels in one network, with the node as their bridge, which has an address there, too.
pub(crate) fn bridges(test: &str, prefix: &str, driver: Driver) {
    if !lab::need::root(test) || !lab::need::program(test, "ping") {
        return;
    }
    let options = LineOptions {
        addresses: false,
        ..LineOptions::default()
    };
    let line = Line::new(prefix, options).expect("a line of namespaces");
    add_bridged(&line.left, &line.right);
    add_bridged(&line.right, &line.left);
    let config = format!(
        "[node]\n{}[[port]]\nname = \"{}\"\n{}[[port]]\nname = \"{}\"\n{}\
         [[bridge]]\nname = \"lan\"\nports = [\"{1}\", \"{3}\"]\naddresses = [\"10.5.0.1/24\"]\n",
        driver.node_keys(),
        line.left.node_device,
        driver.port_keys(&line.left),
        line.right.node_device,
        driver.port_keys(&line.right),
    );
    let bench = Bench::start_by(line, driver, &config);
    bench.pings("10.5.0.3", 3, &[], "ttl=64");
    bench.pings("10.5.0.1", 3, &[], "ttl=64");
    let right = std::net::Ipv4Addr::new(10, 5, 0, 3).into();
    tcp_transfer(
        &bench.line.left.namespace,
        &bench.line.right.namespace,
        right,
        4 << 20,
    );
    let stations = &bench.node.bridges()[0].stations;
    for side in [&bench.line.left, &bench.line.right] {
        let mac = wire::MacAddr(side.mac).to_string();
        let found = stations.iter().find(|station| station.mac == mac);
        assert!(
            found.is_some_and(|s| s.port == side.node_device),
            "{stations:?}"
        );
    }
    bench.finish();
}
