//! What makes an address fit for an interface, a gateway or a neighbour.

use std::net::IpAddr;

use crate::prefix::Prefix;

/// Says why `address` cannot be a host's own, if so.
pub(super) fn not_a_host(address: &IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("the unspecified address is no host's");
    }
    if address.is_multicast() {
        return Some("a multicast address is no single host's");
    }
    if address.is_loopback() {
        return Some("a loopback address never appears on a link");
    }
    match address {
        IpAddr::V4(a) if a.is_broadcast() => Some("the broadcast address is no host's"),
        IpAddr::V4(a) if a.octets()[0] == 0 || a.octets()[0] >= 240 => {
            Some("the address is from a reserved block")
        }
        _ => None,
    }
}

/// Says why the prefix cannot be an interface's address, if so.
pub(super) fn not_an_interface_address(prefix: &Prefix) -> Option<&'static str> {
    if let Some(reason) = not_a_host(&prefix.address) {
        return Some(reason);
    }
    if prefix.length == 0 {
        return Some("a prefix length of 0 would put every address on this link");
    }
    match prefix.address {
        IpAddr::V4(a) if prefix.length <= 30 => {
            if prefix.is_network() {
                Some("this is the network's own address, not a host's")
            } else if prefix.broadcast() == Some(a) {
                Some("this is the network's broadcast address, not a host's")
            } else {
                None
            }
        }
        _ => None,
    }
}

/// Tells whether the address is valid on one link only.
pub(super) fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    }
}
