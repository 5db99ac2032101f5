//! The node's routes and interfaces, as the firewall asks for them.

use filter::packet::{AddressType, Fib, FibAnswer, FibQuery, InterfaceId};
use filter::pipeline::InterfaceFacts;

use super::interface_id;
use crate::forwarding::{Forwarding, Route};

/// A published snapshot, as a FIB.
#[derive(Debug)]
pub(super) struct Routes<'a>(pub(super) &'a Forwarding);

impl Fib for Routes<'_> {
    fn lookup(&self, query: &FibQuery) -> FibAnswer {
        let address = &query.address;
        let mapped = address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let route = match address.last_chunk::<4>() {
            Some(v4) if mapped => self.0.route4(v4),
            _ => self.0.route6(address),
        };
        let kind = match route {
            None => return FibAnswer::default(),
            Some(Route::Local) => AddressType::Local,
            Some(Route::Broadcast(_)) => AddressType::Broadcast,
            Some(Route::Blackhole) => AddressType::Blackhole,
            Some(Route::Forward { first, .. }) => {
                let Some(hop) = self.0.next_hop(first) else {
                    return FibAnswer::default();
                };
                let mtu = self.0.interface(hop.interface).map_or(0, |found| found.mtu);
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
