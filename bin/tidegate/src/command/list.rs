//! `tidegate port|route|neighbour|bridge ls`.

use control::socket::Client;

use crate::cli::Global;
use crate::exit::Failure;
use crate::output::{self, Table};

pub(crate) fn ports(global: &Global) -> Result<(), Failure> {
    let stats = Client::connect(&global.socket)?.stats()?;
    if global.json {
        return output::print_json(&stats.ports);
    }
    let mut table = Table::new(&[
        "port",
        "link",
        "driver",
        "mode",
        "interface",
        "mac",
        ">mtu",
        "addresses",
    ]);
    for port in stats.ports {
        let addresses = match port.bridge {
            Some(bridge) => format!("in bridge {bridge}"),
            None => port.addresses.join(" "),
        };
        table.row([
            port.name,
            if port.up { "up" } else { "down" }.to_owned(),
            port.driver,
            port.mode,
            port.interface.unwrap_or_else(|| "-".to_owned()),
            port.mac,
            port.mtu.to_string(),
            addresses,
        ]);
    }
    output::print(&table.render(0))
}

pub(crate) fn routes(global: &Global) -> Result<(), Failure> {
    let routes = Client::connect(&global.socket)?.routes()?;
    if global.json {
        return output::print_json(&routes);
    }
    let mut table = Table::new(&["destination", "kind", "via", "port"]);
    for route in routes {
        let dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        table.row([
            route.to,
            name_of(&route.kind),
            dash(route.via),
            dash(route.port),
        ]);
    }
    output::print(&table.render(0))
}

pub(crate) fn neighbours(global: &Global) -> Result<(), Failure> {
    let neighbours = Client::connect(&global.socket)?.neighbours()?;
    if global.json {
        return output::print_json(&neighbours);
    }
    let mut table = Table::new(&["address", "mac", "port", "state", ">heard", ">waiting"]);
    for neighbour in neighbours {
        table.row([
            neighbour.address,
            neighbour.mac.unwrap_or_else(|| "-".to_owned()),
            neighbour.port,
            name_of(&neighbour.state),
            neighbour.age_ms.map_or_else(|| "-".to_owned(), ago),
            neighbour.queued_pkts.to_string(),
        ]);
    }
    output::print(&table.render(0))
}

pub(crate) fn bridges(global: &Global) -> Result<(), Failure> {
    let bridges = Client::connect(&global.socket)?.bridges()?;
    if global.json {
        return output::print_json(&bridges);
    }
    let mut text = String::new();
    for bridge in bridges {
        text.push_str(&format!(
            "{}: ports {}; {} of at most {} stations; ageing {} s\n",
            bridge.name,
            bridge.ports.join(" "),
            bridge.stations.len(),
            bridge.limit,
            bridge.ageing_s
        ));
        let mut table = Table::new(&["station", "vlan", "port", ">heard"]);
        for station in bridge.stations {
            table.row([
                station.mac,
                station
                    .vlan
                    .map_or_else(|| "-".to_owned(), |vlan| vlan.to_string()),
                station.port,
                ago(station.age_ms),
            ]);
        }
        if !table.is_empty() {
            text.push_str(&table.render(2));
        }
    }
    output::print(&text)
}

fn ago(age_ms: u64) -> String {
    format!("{} ago", output::duration(age_ms.saturating_mul(1_000_000)))
}

/// Returns the name that JSON uses for a variant without fields.
fn name_of(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "-".to_owned(),
    }
}
