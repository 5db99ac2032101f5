//! The firewall in the packet graph: [`filter`]'s engine as a node that all IP packets pass.
//!
//! ```text
//! eth-input ---------> firewall -> ip4-forward, ip6-forward
//! local, icmp-error -> firewall -> ip4-output, ip6-output
//! ```
//!
//! Connections, mappings and ports are shared by all workers in lock-free tables; each worker's node has handles of
//! its own.

mod node;
mod routes;
mod rules;

use std::sync::Arc;

use control::config::{FilteringConfig, FirewallConfig};
use filter::nat::mapping::{Filtering, NatPolicy, NatSizes, PortChoice};
use filter::packet::InterfaceId;
use filter::pipeline::{Shared, Sizes, TrackPolicy};

pub use node::FirewallNode;
pub use rules::{FileRules, RulesError, load_rules};

use crate::plan::Plan;

/// Workers that may share the tables.
const WORKERS_MAX: usize = 256;

/// What the firewall nodes of all workers share.
#[derive(Clone, Debug)]
pub struct Firewall {
    /// The engine's tables.
    pub tables: Arc<Shared>,
    /// Where connections may come from, in force without a file of rules.
    inside: InterfaceId,
    masquerade: bool,
}

impl Firewall {
    /// Makes the tables of a plan's firewall, if it has one. `secret` is random: it keys the tables.
    pub fn of(plan: &Plan, secret: u64) -> Option<Self> {
        let (config, inside) = plan.firewall.as_ref()?;
        let key = core::array::from_fn(|word| {
            secret
                .wrapping_add(word as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        Some(Self {
            tables: Arc::new(Shared::new(&sizes(config), policy(config), key)),
            inside: inside.map_or(InterfaceId::NONE, interface_id),
            masquerade: config.masquerade,
        })
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
        nat: NatSizes {
            mappings: connections,
            addresses: 16,
            permits: match config.filtering {
                FilteringConfig::Address => connections,
                _ => 64,
            },
        },
        workers: WORKERS_MAX,
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
