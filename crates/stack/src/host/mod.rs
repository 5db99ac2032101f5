//! The host below TCP and UDP: addresses, routes, neighbours, ICMP, fragments, groups.

pub(crate) mod address;
mod arp;
pub(crate) mod autoconf;
pub(crate) mod dhcp;
pub(crate) mod group;
mod icmp;
mod ndp;
pub(crate) mod neighbour;
pub(crate) mod output;
pub(crate) mod path_mtu;
pub(crate) mod queue;
pub(crate) mod reassembly;
mod timers;
