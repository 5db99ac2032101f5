//! What the engine is made with.

use crate::nat::mapping::{NatPolicy, NatSizes};
use crate::track::fragment::FragmentLimits;
use crate::track::tcp::Pickup;
use crate::track::timeout::Timeouts;

/// What happens to a new connection when the table is full. Connections that are there are never evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FullPolicy {
    /// It is refused: its packets are dropped.
    #[default]
    Refuse,
    /// Its packets pass as the rules say, untracked, if no translation is needed.
    PassUntracked,
}

/// How connections are tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackPolicy {
    /// Timeouts.
    pub timeouts: Timeouts,
    /// TCP in mid-stream.
    pub pickup: Pickup,
    /// When the table is full.
    pub full: FullPolicy,
    /// Connections that one source (an IPv4 address, an IPv6 /64) may have; 0 is no limit.
    pub per_source: u32,
    /// Packets of the reply direction keep a connection alive (RFC 4787 REQ-6).
    pub inbound_refresh: bool,
    /// Translations.
    pub nat: NatPolicy,
    /// Fragments.
    pub fragments: FragmentLimits,
}

impl Default for TrackPolicy {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            pickup: Pickup::default(),
            full: FullPolicy::default(),
            per_source: 0,
            inbound_refresh: true,
            nat: NatPolicy::default(),
            fragments: FragmentLimits::default(),
        }
    }
}

/// Sizes of the shared tables, taken at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// IPv4 connections (see the README for bytes a connection).
    pub connections4: usize,
    /// IPv6 connections.
    pub connections6: usize,
    /// Sources that are counted, if there is a limit a source.
    pub sources: usize,
    /// Connections that helpers expect.
    pub expectations: usize,
    /// Tables of NAT.
    pub nat: NatSizes,
    /// Workers that may join, at most.
    pub workers: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            connections4: 1 << 16,
            connections6: 1 << 14,
            sources: 1 << 14,
            expectations: 1 << 12,
            nat: NatSizes::default(),
            workers: 4,
        }
    }
}
