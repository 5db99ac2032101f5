//! What packets that start connections will need of memory, asked for together: of a batch of them, each finds its
//! lines in the cache when its turn comes. Only hints: nothing is decided here.

use arrayvec::ArrayVec;
use tables::flow_map::Flow;
use tables::signature::Session4;
use wire::FlowKey;

use super::item::BATCH_MAX;
use super::shared::Shared;
use super::worker::port_of_destination;
use crate::nat::mapping::{Endpoint, PortSpace};
use crate::track::key::{ConnectionKey, mapped};

/// Fewer have nothing to overlap with.
const LEAST: usize = 2;

/// Prefetches for the IPv4 packets whose connection was not found: their source's mapping, the slot that their own
/// record will take, and, where the mapping says what the replies will look like, theirs.
pub(super) fn new_connections(shared: &Shared, keys: &[Session4], found: &[Option<Flow>]) {
    let missing = keys.iter().zip(found).filter(|(_, found)| found.is_none());
    let keys: ArrayVec<&Session4, BATCH_MAX> =
        missing.map(|(key, _)| key).take(BATCH_MAX).collect();
    if keys.len() < LEAST {
        return;
    }
    let nat = shared.nat();
    for key in &keys {
        if let Some((inner, outer)) = endpoints(key) {
            nat.prefetch_endpoints(inner, outer);
        }
        shared.flows4.prefetch_record(key);
    }
    for (inner, _) in keys.iter().filter_map(|key| endpoints(key)) {
        nat.prefetch_mapping(inner);
    }
    let mut replies = ArrayVec::<Session4, BATCH_MAX>::new();
    for key in &keys {
        let mut target = key.to_flow();
        if let Some(outer) = endpoints(key).and_then(|(inner, _)| nat.outer_of(inner)) {
            target.source = mapped(outer.address);
            target.source_port = outer.port;
        }
        let reply = Session4::from_flow(&target.reversed());
        shared.flows4.prefetch_key(&reply);
        replies.push(reply);
    }
    for reply in &replies {
        shared.flows4.prefetch_record(reply);
    }
}

/// The endpoints that a lookup of the source's and of the destination's mapping asks for.
fn endpoints(key: &Session4) -> Option<(Endpoint, Endpoint)> {
    let space = PortSpace::of(key.protocol)?;
    let flow: FlowKey = key.to_flow();
    let inner = Endpoint {
        address: key.source,
        port: key.source_port,
        space,
    };
    let outer = Endpoint {
        address: key.destination,
        port: port_of_destination(&flow),
        space,
    };
    Some((inner, outer))
}
