//! The node's routes and interfaces, as the firewall asks for them.

use filter::nat::nat64::Nat64;
use filter::packet::{AddressType, Fib, FibAnswer, FibQuery, InterfaceId};
use filter::pipeline::InterfaceFacts;

use super::interface_id;
use crate::forwarding::{Forwarding, Route};

/// A published snapshot, as a FIB.
#[derive(Debug)]
pub(super) struct Routes<'a> {
    pub(super) forwarding: &'a Forwarding,
    /// Who addresses that stand for IPv6 hosts are.
    pub(super) nat64: Option<&'a Nat64>,
}

impl Fib for Routes<'_> {
    fn lookup(&self, query: &FibQuery) -> FibAnswer {
        let address = &query.address;
        let mapped = address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let route = match address.last_chunk::<4>() {
            Some(v4) if mapped => {
                let host = self.nat64.and_then(|nat64| nat64.host((*v4).into()));
                match host {
                    Some(host) => self.forwarding.route6(&host.octets()),
                    None => self.forwarding.route4(v4),
                }
            }
            _ => self.forwarding.route6(address),
        };
        let kind = match route {
            None => return FibAnswer::default(),
            Some(Route::Local) => AddressType::Local,
            Some(Route::Broadcast(_)) => AddressType::Broadcast,
            Some(Route::Blackhole) => AddressType::Blackhole,
            Some(Route::Forward { first, .. }) => {
                let Some(hop) = self.forwarding.next_hop(first) else {
                    return FibAnswer::default();
                };
                let mtu = self
                    .forwarding
                    .interface(hop.interface)
                    .map_or(0, |found| found.mtu);
                return FibAnswer {
                    kind: AddressType::Unicast,
                    interface: interface_id(hop.interface),
                    mtu,
                    next_hop: hop.gateway.unwrap_or(*address),
                };
            }
        };
        FibAnswer {
            kind,
            interface: InterfaceId::NONE,
            mtu: 0,
            next_hop: *address,
        }
    }
}

/// The interfaces' primary addresses, by the firewall's numbers.
pub(super) fn facts(forwarding: &Forwarding) -> Vec<InterfaceFacts> {
    let own = forwarding
        .interfaces()
        .iter()
        .map(|interface| InterfaceFacts {
            v4: interface.v4.first().map(|(address, _)| address.to_bits()),
            v6: interface.v6.first().map(|(address, _)| address.to_bits()),
        });
    core::iter::once(InterfaceFacts::default())
        .chain(own)
        .collect()
}
