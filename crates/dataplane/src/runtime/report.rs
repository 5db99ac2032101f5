//! What the node tells about itself, in the types of the API.

use std::net::IpAddr;

use control::api::{
    BridgeInfo, FramesInfo, InterruptKind, NeighbourInfo, NeighbourState, NodeInfo, PortCounters,
    PortInfo, QueueInfo, RouteInfo, RouteKind, StationInfo, Stats, Timestamp,
};
use control::config::{DriverConfig, IdleMode};

use super::Dataplane;
use crate::forwarding::{Forwarding, Route, RouteEntry, RouteSource};
use crate::neighbour::table::State;
use crate::plan::{Plan, PortRole};
use crate::prefix::unmapped;

pub(super) fn stats(node: &Dataplane) -> Stats {
    Stats {
        at: Timestamp::now(),
        node: node_info(node),
        workers: Vec::new(),
        ports: ports(node),
        stages: Vec::new(),
        drops: Vec::new(),
    }
}

fn node_info(node: &Dataplane) -> NodeInfo {
    let state = node.state();
    NodeInfo {
        name: state.config.node.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at: node.started_at,
        uptime_ns: node.started.elapsed().as_nanos() as u64,
        config_file: node.file.clone(),
        config_generation: state.forwarding.generation,
        idle_mode: idle_name(state.config.idle.mode).to_owned(),
        latency_budget_us: state.config.idle.latency_budget_us,
        frames: FramesInfo {
            per_worker: state.config.node.frames_per_worker,
            frame_bytes: state.config.node.frame_bytes,
            pages: String::new(),
            refused: None,
        },
    }
}

const fn idle_name(mode: IdleMode) -> &'static str {
    match mode {
        IdleMode::Hybrid => "hybrid",
        IdleMode::Poll => "poll",
        IdleMode::Interrupt => "interrupt",
        IdleMode::Paper => "paper",
    }
}

const fn driver_name(driver: DriverConfig) -> &'static str {
    match driver {
        DriverConfig::Auto => "auto",
        DriverConfig::AfXdp => "af_xdp",
        DriverConfig::AfPacket => "af_packet",
        DriverConfig::Tap => "tap",
        DriverConfig::Pcap => "pcap",
        DriverConfig::Mem => "mem",
    }
}

fn ports(node: &Dataplane) -> Vec<PortInfo> {
    let state = node.state();
    let planned = state.plan.ports.iter().zip(state.forwarding.ports());
    let configured = state.config.port.iter().zip(planned);
    node.ports
        .iter()
        .zip(configured)
        .map(|(open, (config, (plan, port)))| PortInfo {
            id: open.id.0,
            name: plan.name.clone(),
            driver: open.driver.to_owned(),
            driver_asked: driver_name(config.driver).to_owned(),
            mode: open.mode.clone(),
            refused: open.refused.clone(),
            interface: open.interface.clone(),
            mac: port.mac.to_string(),
            mtu: port.mtu,
            addresses: config.addresses.clone(),
            bridge: match port.role {
                PortRole::Routed(_) => None,
                PortRole::Bridged(id) => Some(state.plan.bridges[id.index()].name.clone()),
            },
            idle_mode: idle_name(config.idle.unwrap_or(state.config.idle.mode)).to_owned(),
            up: true,
            counters: PortCounters::default(),
            queues: Vec::<QueueInfo>::new(),
        })
        .collect()
}

/// Translates how a driver wakes a worker.
#[expect(dead_code, reason = "the workers' counters come with the worker loop")]
const fn interrupt_kind(interrupt: io::Interrupt) -> InterruptKind {
    match interrupt {
        io::Interrupt::None => InterruptKind::None,
        io::Interrupt::Level => InterruptKind::Level,
        io::Interrupt::Edge => InterruptKind::Edge,
    }
}

pub(super) fn neighbours(node: &Dataplane) -> Vec<NeighbourInfo> {
    let state = node.state();
    let found = node.shared.neighbours.neighbours(node.now());
    found
        .into_iter()
        .filter_map(|neighbour| {
            let interface = state.plan.interfaces.get(neighbour.key.interface.index())?;
            let known = neighbour.entry.state.is_usable();
            let fixed = neighbour.entry.state == State::Permanent;
            Some(NeighbourInfo {
                address: unmapped(neighbour.key.address).to_string(),
                mac: known.then(|| neighbour.entry.mac.to_string()),
                port: interface.name.clone(),
                state: match neighbour.entry.state {
                    State::Incomplete => NeighbourState::Incomplete,
                    State::Reachable => NeighbourState::Reachable,
                    State::Stale => NeighbourState::Stale,
                    State::Delay | State::Probe => NeighbourState::Probe,
                    State::Failed => NeighbourState::Failed,
                    State::Permanent => NeighbourState::Static,
                },
                age_ms: (!fixed).then_some(neighbour.age_ms),
                queued_pkts: 0,
            })
        })
        .collect()
}

pub(super) fn routes(node: &Dataplane) -> Vec<RouteInfo> {
    let state = node.state();
    let listed = state.forwarding.routes().iter();
    listed
        .flat_map(|entry| route(&state.plan, &state.forwarding, entry))
        .collect()
}

/// One line for each next hop of a route.
fn route(plan: &Plan, forwarding: &Forwarding, entry: &RouteEntry) -> Vec<RouteInfo> {
    let kind = match (entry.source, entry.route) {
        (_, Route::Blackhole) => RouteKind::Blackhole,
        (RouteSource::Static, _) => RouteKind::Static,
        (RouteSource::Connected, _) => RouteKind::Connected,
        (RouteSource::Local, _) => RouteKind::Local,
    };
    let line = |via: Option<IpAddr>, port: Option<String>| RouteInfo {
        to: entry.to.to_string(),
        kind,
        via: via.map(|address| address.to_string()),
        port,
    };
    match entry.route {
        Route::Blackhole | Route::Local => {
            let owner = plan
                .interfaces
                .iter()
                .find(|i| i.addresses.iter().any(|a| a.address == entry.to.address))
                .filter(|_| kind == RouteKind::Local);
            vec![line(None, owner.map(|i| i.name.clone()))]
        }
        // An implementation detail of the connected route, which is listed.
        Route::Broadcast(_) => Vec::new(),
        Route::Forward { first, count } => (first..first + count)
            .filter_map(|i| forwarding.next_hops().get(i as usize))
            .map(|hop| {
                let interface = plan.interfaces.get(hop.interface.index());
                line(hop.gateway.map(unmapped), interface.map(|i| i.name.clone()))
            })
            .collect(),
    }
}

pub(super) fn bridges(node: &Dataplane) -> Vec<BridgeInfo> {
    let state = node.state();
    let now = node.now();
    let port_name = |port: io::PortId| {
        let port = state.plan.ports.get(port.index());
        port.map_or_else(String::new, |port| port.name.clone())
    };
    state
        .plan
        .bridges
        .iter()
        .zip(&node.shared.stations)
        .map(|(bridge, stations)| BridgeInfo {
            name: bridge.name.clone(),
            ports: bridge.ports.iter().map(|port| port_name(*port)).collect(),
            addresses: state.plan.interfaces[bridge.interface.index()]
                .addresses
                .iter()
                .map(ToString::to_string)
                .collect(),
            ageing_s: bridge.ageing_s,
            limit: stations.capacity() as u32,
            stations: stations
                .stations(now)
                .into_iter()
                .map(|station| StationInfo {
                    mac: station.mac.to_string(),
                    vlan: None,
                    port: port_name(station.port),
                    age_ms: station.age_ms,
                })
                .collect(),
        })
        .collect()
}
