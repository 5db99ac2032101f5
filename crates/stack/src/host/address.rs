//! Addresses of the host and routes from it: a few of each, chosen by longest prefix (RFC 1122 3.3.1, RFC 6724 in part).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most addresses of a host.
const ADDRESSES_MAX: usize = 32;
/// The most routes of a host.
const ROUTES_MAX: usize = 64;

/// Whether an address is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressState {
    /// Duplicate address detection is under way (RFC 4862 5.4): no socket may use it.
    Tentative,
    /// In use.
    Preferred,
    /// For sessions that have it, not for new ones (RFC 4862 5.5.4).
    Deprecated,
    /// Another station has it.
    Duplicate,
}

/// An address of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix that is on the link, bits.
    pub prefix: u8,
    /// Whether it is in use.
    pub state: AddressState,
    /// Until when it is preferred and valid, ns; `u64::MAX` for ever.
    pub(crate) preferred_until: u64,
    pub(crate) valid_until: u64,
    /// Probes sent, and when the next is due, ns.
    pub(crate) probes: u8,
    pub(crate) probe_at: u64,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination network.
    pub network: IpAddr,
    /// Length of its prefix, bits.
    pub prefix: u8,
    /// The router; `None`: on the link.
    pub gateway: Option<IpAddr>,
    pub(crate) valid_until: u64,
}

/// Where packets to a destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Whom to ask for the MAC address.
    pub(crate) next_hop: IpAddr,
    /// The address to send from.
    pub(crate) source: IpAddr,
}

/// Addresses and routes; every change makes what was chosen before stale.
#[derive(Debug, Default)]
pub(crate) struct Addressing {
    pub(crate) addresses: Vec<Address>,
    pub(crate) routes: Vec<Route>,
    pub(crate) epoch: u32,
}

impl Address {
    pub(crate) const fn new(ip: IpAddr, prefix: u8, state: AddressState) -> Self {
        Self {
            ip,
            prefix,
            state,
            preferred_until: u64::MAX,
            valid_until: u64::MAX,
            probes: 0,
            probe_at: 0,
        }
    }
    pub(crate) const fn is_usable(&self) -> bool {
        matches!(
            self.state,
            AddressState::Preferred | AddressState::Deprecated
        )
    }
}

impl Addressing {
    /// Adds an address, or changes its prefix; false when there is no room.
    pub(crate) fn add_address(&mut self, address: Address) -> bool {
        self.epoch += 1;
        if let Some(slot) = self.addresses.iter_mut().find(|slot| slot.ip == address.ip) {
            *slot = address;
            return true;
        }
        if self.addresses.len() >= ADDRESSES_MAX {
            return false;
        }
        self.addresses.push(address);
        true
    }
    pub(crate) fn remove_address(&mut self, ip: IpAddr) -> bool {
        self.epoch += 1;
        let before = self.addresses.len();
        self.addresses.retain(|address| address.ip != ip);
        before != self.addresses.len()
    }
    pub(crate) fn add_route(&mut self, route: Route) -> bool {
        self.epoch += 1;
        let same = |other: &&mut Route| {
            other.network == route.network
                && other.prefix == route.prefix
                && other.gateway == route.gateway
        };
        if let Some(slot) = self.routes.iter_mut().find(same) {
            *slot = route;
            return true;
        }
        if self.routes.len() >= ROUTES_MAX {
            return false;
        }
        self.routes.push(route);
        true
    }
    pub(crate) fn remove_route(
        &mut self,
        network: IpAddr,
        prefix: u8,
        gateway: Option<IpAddr>,
    ) -> bool {
        self.epoch += 1;
        let before = self.routes.len();
        self.routes.retain(|route| {
            route.network != network
                || route.prefix != prefix
                || gateway.is_some() && route.gateway != gateway
        });
        before != self.routes.len()
    }
    /// Says whether packets to `ip` are for this host.
    #[inline]
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.addresses
            .iter()
            .any(|address| address.ip == ip && address.is_usable())
    }
    pub(crate) fn get_mut(&mut self, ip: IpAddr) -> Option<&mut Address> {
        self.addresses.iter_mut().find(|address| address.ip == ip)
    }
    /// Says whether `ip` is the broadcast address of one of our networks, or of all.
    pub(crate) fn is_broadcast(&self, ip: Ipv4Addr) -> bool {
        ip.is_broadcast()
            || self.addresses.iter().any(|address| match address.ip {
                IpAddr::V4(ours) if address.prefix < 31 => {
                    ip.to_bits()
                        == ours.to_bits() | u32::MAX.checked_shr(address.prefix.into()).unwrap_or(0)
                }
                _ => false,
            })
    }
    /// Chooses next hop and source for a destination; a given source is kept.
    pub(crate) fn choose(&self, destination: IpAddr, source: Option<IpAddr>) -> Option<Choice> {
        let next_hop = self.next_hop(destination)?;
        let source = match source {
            Some(source) => source,
            None => self.source_for(destination, next_hop)?,
        };
        Some(Choice { next_hop, source })
    }

    fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        let is_group = match destination {
            IpAddr::V4(ip) => ip.is_multicast() || self.is_broadcast(ip),
            IpAddr::V6(ip) => ip.is_multicast(),
        };
        if is_group {
            return Some(destination);
        }
        let on_link = self
            .addresses
            .iter()
            .filter(|address| {
                address.is_usable() && covers(address.ip, address.prefix, destination)
            })
            .map(|address| (address.prefix, None));
        let routed = self
            .routes
            .iter()
            .filter(|route| covers(route.network, route.prefix, destination))
            .map(|route| (route.prefix, route.gateway));
        let (_, gateway) = on_link
            .chain(routed)
            .max_by_key(|(prefix, gateway)| (*prefix, gateway.is_none()))?;
        Some(gateway.unwrap_or(destination))
    }

    /// RFC 6724 5 in part: same scope, preferred before deprecated, then the longest common prefix.
    fn source_for(&self, destination: IpAddr, next_hop: IpAddr) -> Option<IpAddr> {
        let rank = |address: &&Address| {
            let same_scope = is_link_local(address.ip) == is_link_local(destination);
            let preferred = address.state == AddressState::Preferred;
            let near = common_bits(address.ip, next_hop).max(common_bits(address.ip, destination));
            (same_scope, preferred, near)
        };
        self.addresses
            .iter()
            .filter(|address| address.is_usable() && address.ip.is_ipv4() == destination.is_ipv4())
            .max_by_key(rank)
            .map(|address| address.ip)
    }
}

/// Says whether an address lies in a network.
pub(crate) fn covers(network: IpAddr, prefix: u8, ip: IpAddr) -> bool {
    network.is_ipv4() == ip.is_ipv4() && common_bits(network, ip) >= u32::from(prefix)
}

fn common_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => is_link_local_v6(ip),
    }
}

/// Says whether an IPv6 address holds on its link only, groups included.
pub(crate) fn is_link_local_v6(ip: Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || ip.is_multicast() && ip.octets()[1] & 0xf <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn longest_prefix_and_source() {
        let mut table = Addressing::default();
        for (address, prefix) in [
            ("192.0.2.1", 24),
            ("10.0.0.1", 8),
            ("fe80::1", 64),
            ("2001:db8::1", 64),
        ] {
            assert!(table.add_address(Address::new(ip(address), prefix, AddressState::Preferred)));
        }
        let route = |network, prefix, gateway: &str| Route {
            network: ip(network),
            prefix,
            gateway: Some(ip(gateway)),
            valid_until: u64::MAX,
        };
        table.add_route(route("0.0.0.0", 0, "192.0.2.254"));
        table.add_route(route("10.1.0.0", 16, "10.0.0.254"));
        table.add_route(route("::", 0, "fe80::fe"));
        let choose = |to: &str| table.choose(ip(to), None).map(|c| (c.next_hop, c.source));
        assert_eq!(
            choose("192.0.2.9"),
            Some((ip("192.0.2.9"), ip("192.0.2.1")))
        );
        assert_eq!(
            choose("198.51.100.1"),
            Some((ip("192.0.2.254"), ip("192.0.2.1")))
        );
        assert_eq!(choose("10.1.2.3"), Some((ip("10.0.0.254"), ip("10.0.0.1"))));
        assert_eq!(choose("10.2.2.3"), Some((ip("10.2.2.3"), ip("10.0.0.1"))));
        assert_eq!(choose("fe80::2"), Some((ip("fe80::2"), ip("fe80::1"))));
        assert_eq!(
            choose("2001:db8:1::1"),
            Some((ip("fe80::fe"), ip("2001:db8::1")))
        );
        assert_eq!(choose("ff02::1"), Some((ip("ff02::1"), ip("fe80::1"))));
        assert!(table.is_broadcast("10.255.255.255".parse().unwrap()));
        table.remove_route(ip("0.0.0.0"), 0, None);
        assert_eq!(table.choose(ip("198.51.100.1"), None), None);
    }
}
