//! What the node tells about itself, in the types of the API.

use std::net::IpAddr;

use control::api::{
    BridgeInfo, BurstHistogram, DriverCounter, DropInfo, EdgeInfo, FirewallInfo, FramesInfo,
    GraphNodeInfo, InterruptKind, LinkDirection, LinkInfo, NeighbourInfo, NeighbourState, NodeInfo,
    PortCounters, PortInfo, QueueInfo, RouteInfo, RouteKind, StateTimes, StationInfo, Stats,
    Timestamp, WorkerInfo, WorkerState,
};
use control::config::{DriverConfig, IdleMode};
use graph::WorkerCounters;
use graph::fault::FaultCounters;
use io::cpu;
use io::interface::Link;
use wire::DropReason;

use super::Dataplane;
use super::open::{OpenedPort, pages};
use crate::forwarding::{Forwarding, Route, RouteEntry, RouteSource};
use crate::neighbour::table::State;
use crate::plan::{LinkPlan, Plan, PortRole};
use crate::prefix::unmapped;

pub(super) fn stats(node: &Dataplane) -> Stats {
    Stats {
        at: Timestamp::now(),
        node: node_info(node),
        workers: workers(node),
        ports: ports(node),
        links: links(node),
        firewall: firewall(node),
        stages: stages(node),
        drops: drops(node),
        ndn: node.shared.ndn.as_ref().and_then(|ndn| ndn.info()),
    }
}

fn firewall(node: &Dataplane) -> Option<FirewallInfo> {
    let firewall = node.shared.firewall.as_ref()?;
    let settings = node.state().forwarding.guard.clone();
    Some(firewall.info(settings.as_deref()))
}

fn node_info(node: &Dataplane) -> NodeInfo {
    let state = node.state();
    let (pages, refused) = pages(node.region.pages());
    NodeInfo {
        name: state.config.node.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_at: node.started_at,
        uptime_ns: (cpu::now() - node.started).as_nanos() as u64,
        config_file: node.file.clone(),
        config_generation: state.forwarding.generation,
        idle_mode: idle_name(state.config.idle.mode).to_owned(),
        latency_budget_us: state.config.idle.latency_budget_us,
        frames: FramesInfo {
            per_worker: state.config.node.frames_per_worker,
            frame_bytes: state.config.node.frame_bytes,
            pages: pages.to_owned(),
            refused: refused.map(str::to_owned),
        },
    }
}

fn workers(node: &Dataplane) -> Vec<WorkerInfo> {
    let workers = node.counters.iter().zip(&node.cpus).enumerate();
    workers
        .map(|(id, (counters, cpu))| WorkerInfo {
            id: id as u16,
            cpu: *cpu,
            state: match counters.state.get() {
                0 => WorkerState::Poll,
                1 => WorkerState::Nap,
                2 => WorkerState::Interrupt,
                _ => WorkerState::Stopped,
            },
            time: state_times(counters, cpu::now()),
            cpu_ns: counters.cpu_ns.get(),
            polls: counters.polls.get(),
            empty_polls: counters.empty_polls.get(),
            arm_ready: counters.arm_ready.get(),
            wakeups_packet: counters.wakeups_packet.get(),
            wakeups_timer: counters.wakeups_timer.get(),
            wakeups_message: counters.wakeups_message.get(),
            naps: counters.naps.get(),
            flips: counters.flips.get(),
            bursts: BurstHistogram {
                buckets: core::array::from_fn(|i| counters.bursts[i].get()),
            },
            rx_pkts: counters.rx_pkts.get(),
            tx_pkts: counters.tx_pkts.get(),
            dropped_pkts: counters.dropped_pkts(),
            handoff_out_pkts: counters.handoff_out_pkts.get(),
            handoff_in_pkts: counters.handoff_in_pkts.get(),
            frames: counters.frames.get() as u32,
            frames_free: counters.frames_free.get() as u32,
            frames_free_min: counters.frames_free_min.get() as u32,
        })
        .collect()
}

/// Reads the time in each state; a sleep counts while it lasts, though the worker adds it when it wakes.
fn state_times(counters: &WorkerCounters, now: wire::Instant) -> StateTimes {
    let accounted = counters.accounted_until_ns.get();
    let asleep = counters.state.get() == 2 && accounted > 0;
    let asleep_ns = if asleep {
        now.as_ns().saturating_sub(accounted)
    } else {
        0
    };
    StateTimes {
        poll_ns: counters.poll_ns.get(),
        nap_ns: counters.nap_ns.get(),
        interrupt_ns: counters.interrupt_ns.get() + asleep_ns,
    }
}

/// Sums each stage over the workers, whose graphs are alike.
fn stages(node: &Dataplane) -> Vec<GraphNodeInfo> {
    let Some(first) = node.counters.first() else {
        return Vec::new();
    };
    let sum = |read: &dyn Fn(&WorkerCounters) -> u64| node.counters.iter().map(|c| read(c)).sum();
    first
        .nodes
        .iter()
        .enumerate()
        .map(|(i, stage)| GraphNodeInfo {
            name: stage.name.clone(),
            batches: sum(&|c| c.nodes[i].batches.get()),
            pkts: sum(&|c| c.nodes[i].pkts.get()),
            dropped_pkts: sum(&|c| c.nodes[i].dropped_pkts()),
            edges: stage
                .edges
                .iter()
                .enumerate()
                .map(|(j, edge)| EdgeInfo {
                    name: format!("{} -> {}", edge.name, edge.to),
                    pkts: sum(&|c| c.nodes[i].edges[j].pkts.get()),
                })
                .collect(),
        })
        .collect()
}

fn drops(node: &Dataplane) -> Vec<DropInfo> {
    let count = |reason| -> u64 {
        let nodes = node
            .counters
            .iter()
            .flat_map(|counters| counters.nodes.iter());
        let nodes: u64 = nodes.map(|stage| stage.drops(reason)).sum();
        let rings = |of: fn(&WorkerCounters) -> u64| node.counters.iter().map(|c| of(c)).sum();
        let between: u64 = match reason {
            DropReason::HandoffRingFull => rings(|c| c.handoff_full_pkts.get()),
            DropReason::PeerWorkerGone => rings(|c| c.peer_gone_pkts.get()),
            _ => 0,
        };
        nodes + between
    };
    DropReason::ALL
        .iter()
        .map(|&reason| (reason, count(reason)))
        .filter(|&(_, pkts)| pkts > 0)
        .map(|(reason, pkts)| DropInfo::new(reason, pkts))
        .collect()
}

fn port_counters(counters: &graph::counters::PortCounters) -> PortCounters {
    PortCounters {
        rx_pkts: counters.rx_pkts.get(),
        rx_bytes: counters.rx_bytes.get(),
        rx_ring_full_pkts: counters.rx_ring_full_pkts.get(),
        rx_no_frame_pkts: counters.rx_no_frame_pkts.get(),
        rx_invalid_pkts: counters.rx_invalid_pkts.get(),
        tx_pkts: counters.tx_pkts.get(),
        tx_bytes: counters.tx_bytes.get(),
        tx_error_pkts: counters.tx_error_pkts.get(),
        syscalls: counters.syscalls.get(),
    }
}

/// Lists a port's queues: queue `n` belongs to worker `n`.
fn queues(node: &Dataplane, port: usize) -> Vec<QueueInfo> {
    let capabilities = &node.ports[port].queues;
    capabilities
        .iter()
        .zip(&node.counters)
        .enumerate()
        .map(|(id, (capabilities, counters))| QueueInfo {
            id: id as u16,
            worker: id as u16,
            interrupt: interrupt_kind(capabilities.interrupt),
            zero_copy: capabilities.zero_copy,
            rss: capabilities.rss,
            counters: port_counters(&counters.ports[port]),
        })
        .collect()
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
        DriverConfig::Dpdk => "dpdk",
        DriverConfig::Mem => "mem",
    }
}

fn ports(node: &Dataplane) -> Vec<PortInfo> {
    let state = node.state();
    let planned = state.plan.ports.iter().zip(state.forwarding.ports());
    let configured = state.config.port.iter().zip(planned);
    let statuses = node.watch.ports();
    let first = || node.ports.iter().map(OpenedPort::first_status).collect();
    let statuses = statuses.unwrap_or_else(first);
    node.ports
        .iter()
        .zip(statuses)
        .zip(configured)
        .map(|((opened, status), (config, (plan, port)))| {
            let queues = queues(node, opened.id.index());
            let mut counters = PortCounters::default();
            queues
                .iter()
                .for_each(|queue| counters.add(&queue.counters));
            PortInfo {
                id: opened.id.0,
                name: plan.name.clone(),
                driver: opened.driver.to_owned(),
                driver_asked: driver_name(config.driver).to_owned(),
                mode: opened.mode.clone(),
                refused: opened.refused.clone(),
                interface: opened.interface.clone(),
                mac: port.mac.to_string(),
                mtu: port.mtu,
                addresses: config.addresses.clone(),
                bridge: match port.role {
                    PortRole::Bridged(id) => Some(state.plan.bridges[id.index()].name.clone()),
                    PortRole::Routed(_) | PortRole::Linked(_) => None,
                },
                link: match port.role {
                    PortRole::Linked(id) => Some(state.plan.links[id.index()].name.clone()),
                    PortRole::Routed(_) | PortRole::Bridged(_) => None,
                },
                idle_mode: idle_name(config.idle.unwrap_or(state.config.idle.mode)).to_owned(),
                up: status.link != Link::Down,
                counters,
                queues,
                driver_counters: status
                    .counters
                    .into_iter()
                    .map(|(name, value)| DriverCounter { name, value })
                    .collect(),
            }
        })
        .collect()
}

fn links(node: &Dataplane) -> Vec<LinkInfo> {
    let state = node.state();
    let plan = &state.plan;
    let name = |port: io::PortId| plan.ports[port.index()].name.clone();
    let direction = |link: &LinkPlan, counters: &[FaultCounters; 2], end: usize| {
        let stats = counters[end].stats();
        LinkDirection {
            from: name(link.ends[1 - end]),
            to: name(link.ends[end]),
            offered_pkts: stats.offered,
            delivered_pkts: stats.delivered,
            in_flight_pkts: counters[end].in_flight(),
            dropped_pkts: stats.dropped,
            overflowed_pkts: stats.overflowed,
            too_long_pkts: stats.too_long,
            duplicated_pkts: stats.duplicated,
            corrupted_pkts: stats.corrupted,
            reordered_pkts: stats.reordered,
        }
    };
    let links = plan.links.iter().zip(&node.shared.links);
    links
        .map(|(link, counters)| LinkInfo {
            name: link.name.clone(),
            directions: [1, 0].map(|end| direction(link, counters, end)),
        })
        .collect()
}

/// Translates how a driver wakes a worker.
const fn interrupt_kind(interrupt: io::Interrupt) -> InterruptKind {
    match interrupt {
        io::Interrupt::None => InterruptKind::None,
        io::Interrupt::Level => InterruptKind::Level,
        io::Interrupt::Edge => InterruptKind::Edge,
    }
}

pub(super) fn neighbours(node: &Dataplane) -> Vec<NeighbourInfo> {
    let state = node.state();
    let found = node.shared.neighbours.neighbours(cpu::now());
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
                queued_pkts: neighbour.waiting_pkts,
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
    let now = cpu::now();
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
