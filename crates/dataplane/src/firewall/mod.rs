//! The firewall in the packet graph: [`filter`]'s engine as a node that all IP packets pass.
//!
//! ```text
//! eth-input --------------------------------> firewall -> ip4-forward, ip6-forward
//! host, local, reassemble, icmp-error ------> firewall -> ip4-output, ip6-output
//! ```
//!
//! What the node's programs are told by `reject` at the output hook comes back to them by the first way.
//!
//! Connections, mappings and ports are shared by all workers in lock-free tables; each worker's node has handles of
//! its own.

mod attacks;
mod guard;
mod hub;
mod nat64;
mod node;
mod nptv6;
mod rehearse;
mod report;
mod routes;
mod rule_log;
mod rules;
mod sessions;
mod state;
mod together;

use std::net::Ipv4Addr;
use std::sync::Arc;

use control::config::{CgnConfig, FilteringConfig, FirewallConfig};
use filter::guard::Guard;
use filter::nat::cgn::{self, BlockPlan, Deterministic, Subscribers};
use filter::nat::mapping::{Filtering, NatPolicy, NatSizes, PortChoice};
use filter::nat::nat64::Nat64;
use filter::packet::InterfaceId;
use filter::pipeline::{Shared, Sizes, TrackPolicy, Worker};
use tables::segment::Segment;
use tables::signature::Keyed;

pub use guard::{GuardError, GuardSettings, load_guard};
pub use hub::{Hub, Reporter};
pub use node::FirewallNode;
pub use rehearse::{RehearseError, Rehearsed, flow_text};
pub use rules::{FileRules, RulesError, load_rules};
pub use sessions::SessionWatch;
pub use state::{StateError, StateReport};

use crate::plan::Plan;
use nptv6::Nptv6;
use report::Tally;
use together::Member;

/// Workers that may share the tables.
const WORKERS_MAX: usize = 256;
/// The worker that ends connections by command.
const OPERATOR: u16 = WORKERS_MAX as u16;

/// What the firewall nodes of all workers share.
#[derive(Clone, Debug)]
pub struct Firewall {
    /// The engine's tables.
    pub tables: Arc<Shared>,
    /// Where connections may come from, in force without a file of rules.
    inside: InterfaceId,
    masquerade: bool,
    /// What was found where connections are kept, if they are.
    pub state: Option<StateReport>,
    /// Holds the lock of the tables' owner.
    segment: Option<Arc<Segment>>,
    /// The place among the processes that have the tables in common, if they do.
    member: Option<Member>,
    /// The sketches of the guard, if there is one.
    guard: Option<Arc<Guard>>,
    /// The translator between IPv6 hosts and IPv4, if there is one.
    nat64: Option<Arc<Nat64>>,
    /// What is called otherwise outside, if anything.
    nptv6: Option<Nptv6>,
    /// What workers tell, and who listens.
    pub(crate) hub: Arc<Hub>,
    /// What each worker has counted.
    tallies: Arc<[Tally]>,
    /// Connections that there were at the start, and that the tables were made for.
    at_start: u64,
    connections_max: u64,
}

impl Firewall {
    /// Makes the tables of a plan's firewall, if it has one, or takes them over from a node that is gone. `secret`
    /// is random: it keys the tables.
    ///
    /// # Errors
    /// The tables cannot lie where the configuration says.
    pub fn of(plan: &Plan, secret: u64) -> Result<Option<Self>, StateError> {
        let Some((config, inside)) = plan.firewall.as_ref() else {
            return Ok(None);
        };
        let key = core::array::from_fn(|word| {
            secret
                .wrapping_add(word as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let (sizes, policy) = (sizes(config), policy(config));
        let shared_with = plan.dpdk.as_ref().filter(|_| config.is_shared());
        let (tables, segment, state, member) = match (shared_with, config.state_file()) {
            (Some(dpdk), _) => {
                let (tables, segment, report, member) = together::open(dpdk, &sizes, policy, key)?;
                (tables, Some(segment), Some(report), Some(member))
            }
            (None, Some(path)) => {
                let (tables, segment, report) =
                    state::open(path, &sizes, policy, key, io::cpu::now())?;
                log(&report);
                (tables, Some(segment), Some(report), None)
            }
            (None, None) => (Shared::new(&sizes, policy, key), None, None, None),
        };
        let tables = Arc::new(match &config.cgn {
            None => tables,
            Some(cgn) => {
                let key = key.map(|word: u64| word.rotate_left(16) ^ 0x7375_6273);
                let plan = subscribers(cgn);
                let blocks = sizes.nat.mappings / usize::from(cgn.block_ports.max(1)) * 4;
                let hash = Keyed::new(key);
                let places = blocks.max(1 << 14);
                tables.with_subscribers(Subscribers::new(plan, places, hash, WORKERS_MAX + 2))
            }
        });
        let operator =
            Worker::new(Arc::clone(&tables), OPERATOR, secret).map_err(|_| StateError::Workers)?;
        Ok(Some(Self {
            guard: config.guard.as_ref().map(|guard| {
                let key = key.map(|word: u64| word.rotate_left(32) ^ 0x6775_6172_6421);
                let hash = Keyed::new(key);
                Arc::new(Guard::new(guard::policy(guard), plan.workers, hash))
            }),
            nat64: nat64::of(config).map(Arc::new),
            nptv6: Nptv6::of(config, plan),
            hub: Arc::new(Hub::new(operator)),
            tallies: (0..WORKERS_MAX).map(|_| Tally::default()).collect(),
            at_start: tables.connections() as u64,
            connections_max: config.connections.into(),
            tables,
            inside: inside.map_or(InterfaceId::NONE, interface_id),
            masquerade: config.masquerade,
            state,
            segment: segment.map(Arc::new),
            member,
        }))
    }

    /// Makes the epoch of a generation of rules and routes: what is noted under it is valid as long as it is.
    fn epoch(member: Option<&Member>, generation: u64) -> u32 {
        member.map_or(generation as u32, |member| member.epoch(generation))
    }

    /// Frees what dead processes have left in tables that were in common with them.
    fn bury_the_dead(&self) {
        if let (Some(member), Some(segment)) = (&self.member, &self.segment) {
            member.bury_the_dead(&self.tables, segment);
        }
    }
}

/// Says what became of the connections of the last node.
fn log(report: &StateReport) {
    let path = report.path.display();
    if let Some(reason) = &report.refused {
        tracing::warn!(%path, reason, "the connections of the last node are lost");
    }
    if let Some(found) = &report.taken_over {
        tracing::info!(
            %path,
            connections = found.connections,
            mappings = found.nat.mappings,
            repaired = found.repairs(),
            took_us = report.took_ns / 1000,
            "took over the connections of the last node"
        );
    }
}

/// The rules' number of an interface: 0 is none there.
const fn interface_id(id: crate::plan::InterfaceId) -> InterfaceId {
    InterfaceId(id.0 + 1)
}

fn sizes(config: &FirewallConfig) -> Sizes {
    let connections = config.connections as usize;
    Sizes {
        connections4: connections,
        connections6: connections / 4,
        sources: 1 << 14,
        expectations: (connections / 16).clamp(64, 1 << 14),
        nat: NatSizes {
            mappings: connections,
            addresses: 16.max(config.cgn.as_ref().map_or(0, outer_addresses)),
            permits: match config.filtering {
                FilteringConfig::Address => connections,
                _ => 64,
            },
        },
        workers: WORKERS_MAX + 1,
    }
}

/// Outer addresses that a plan names.
fn outer_addresses(cgn: &CgnConfig) -> usize {
    cgn.outer.map_or(0, |range| count(range) as usize)
}

fn count([first, last]: [Ipv4Addr; 2]) -> u32 {
    last.to_bits()
        .saturating_sub(first.to_bits())
        .saturating_add(1)
}

/// How subscribers get their ports.
fn subscribers(cgn: &CgnConfig) -> cgn::Plan {
    match (cgn.subscribers, cgn.outer) {
        (Some(inner), Some(outer)) => cgn::Plan::Deterministic(Deterministic {
            inner_first: inner[0].to_bits(),
            inner_count: count(inner),
            outer_first: outer[0].to_bits(),
            outer_count: count(outer),
            first_port: cgn.first_port,
            last_port: u16::MAX,
        }),
        _ => cgn::Plan::Blocks(BlockPlan {
            size: cgn.block_ports,
            per_subscriber: cgn.blocks,
            first_port: cgn.first_port,
            last_port: u16::MAX,
        }),
    }
}

fn policy(config: &FirewallConfig) -> TrackPolicy {
    TrackPolicy {
        nat: NatPolicy {
            filtering: match config.filtering {
                FilteringConfig::EndpointIndependent => Filtering::EndpointIndependent,
                FilteringConfig::Address => Filtering::Address,
                FilteringConfig::AddressAndPort => Filtering::AddressAndPort,
            },
            ports: if config.random_ports {
                PortChoice::Random
            } else {
                PortChoice::Preserve
            },
            ..NatPolicy::default()
        },
        ..TrackPolicy::default()
    }
}
