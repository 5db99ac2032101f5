//! Neighbours, routes and bridges.

use serde::{Deserialize, Serialize};

/// A host on a link, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourInfo {
    /// Its address.
    pub address: String,
    /// Its MAC address, if known.
    pub mac: Option<String>,
    /// The port or bridge that reaches it.
    pub port: String,
    /// How sure the node is.
    pub state: NeighbourState,
    /// Milliseconds since it was last heard; absent for static ones.
    pub age_ms: Option<u64>,
    /// Packets that wait for its MAC address.
    pub queued_pkts: u32,
}

/// How sure the node is of a neighbour (RFC 4861 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourState {
    /// Asked, not answered yet.
    Incomplete,
    /// Heard lately.
    Reachable,
    /// Not heard lately; used until proved wrong.
    Stale,
    /// Being asked again.
    Probe,
    /// Did not answer.
    Failed,
    /// From the configuration.
    Static,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteInfo {
    /// Destination prefix.
    pub to: String,
    /// What it does.
    pub kind: RouteKind,
    /// Next hop; absent where the destination is on the link.
    pub via: Option<String>,
    /// Outgoing port or bridge; absent for a blackhole.
    pub port: Option<String>,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// From the configuration.
    Static,
    /// The link of a port's address.
    Connected,
    /// An address of the node.
    Local,
    /// Discards.
    Blackhole,
}

/// A learning bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeInfo {
    /// Its name.
    pub name: String,
    /// Its ports.
    pub ports: Vec<String>,
    /// Addresses that the node answers on through it.
    pub addresses: Vec<String>,
    /// Seconds after which a silent station is forgotten.
    pub ageing_s: u32,
    /// The most stations that it remembers.
    pub limit: u32,
    /// The stations that it knows.
    pub stations: Vec<StationInfo>,
}

/// A station that a bridge has learnt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StationInfo {
    /// Its MAC address.
    pub mac: String,
    /// Its VLAN; absent for untagged frames.
    pub vlan: Option<u16>,
    /// The port that it was heard on.
    pub port: String,
    /// Milliseconds since it was last heard.
    pub age_ms: u64,
}
