//! Neighbour discovery (RFC 4861): solicitations answered and sent.

use core::net::{IpAddr, Ipv6Addr};

use wire::ndp::{HOP_LIMIT, Message, Repr, solicited_node};
use wire::{Addresses, DropReason, MacAddr, ip_protocol};

use super::address::AddressState;
use super::neighbour::Solicit;
use super::output::Outgoing;
use crate::rx::Rx;
use crate::stack::Stack;

impl Stack {
    pub(crate) fn receive_ndp(
        &mut self,
        rx: &Rx<'_>,
        message: &Message<'_>,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let Some((source, destination)) = rx.layout.ipv6_addresses(rx.frame) else {
            return Err(DropReason::NeighbourDiscovery);
        };
        match *message {
            Message::NeighbourSolicitation { target, options } => {
                self.solicited(source, target, options.source_link_layer(), now_ns);
            }
            Message::NeighbourAdvertisement {
                solicited,
                overrides,
                target,
                options,
                ..
            } => {
                let mac = options.target_link_layer().unwrap_or(rx.source_mac);
                self.advertised(
                    target,
                    mac,
                    solicited && !destination.is_multicast(),
                    overrides,
                    now_ns,
                );
            }
            Message::RouterAdvertisement { .. } => {
                self.router_advertised(source, message, rx.source_mac, now_ns)
            }
            Message::RouterSolicitation { .. } => {}
            Message::Redirect {
                target,
                destination,
                options,
            } => {
                self.redirected(
                    source,
                    target,
                    destination,
                    options.target_link_layer(),
                    now_ns,
                );
            }
        }
        Ok(())
    }

    /// RFC 4861 7.2.3, 7.2.4; RFC 4862 5.4.3 for an address that is being probed.
    fn solicited(&mut self, source: Ipv6Addr, target: Ipv6Addr, mac: Option<MacAddr>, now_ns: u64) {
        let Some(address) = self.addressing.get_mut(target.into()) else {
            return;
        };
        if address.state == AddressState::Tentative {
            if source.is_unspecified() {
                self.found_duplicate(target);
            }
            return;
        }
        if !address.is_usable() {
            return;
        }
        if source.is_unspecified() {
            // Somebody probes our address: tell all.
            self.advertise(
                target,
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
                false,
                now_ns,
            );
            return;
        }
        if let Some(mac) = mac {
            let waiting = self
                .neighbours
                .learn(source.into(), mac, true, false, now_ns);
            self.release(waiting, mac);
        }
        self.advertise(target, source, true, now_ns);
    }

    /// RFC 4861 7.2.5.
    fn advertised(
        &mut self,
        target: Ipv6Addr,
        mac: MacAddr,
        solicited: bool,
        overrides: bool,
        now_ns: u64,
    ) {
        if let Some(address) = self.addressing.get_mut(target.into()) {
            if address.state == AddressState::Tentative {
                self.found_duplicate(target);
            }
            return;
        }
        if overrides || solicited {
            let waiting = self
                .neighbours
                .learn(target.into(), mac, false, solicited, now_ns);
            self.release(waiting, mac);
        }
    }

    /// RFC 4861 8.3: a router names a better first hop.
    fn redirected(
        &mut self,
        router: Ipv6Addr,
        target: Ipv6Addr,
        destination: Ipv6Addr,
        mac: Option<MacAddr>,
        now_ns: u64,
    ) {
        let current = self
            .addressing
            .choose(destination.into(), None)
            .map(|choice| choice.next_hop);
        if current != Some(router.into()) {
            return;
        }
        if let Some(mac) = mac {
            let waiting = self
                .neighbours
                .learn(target.into(), mac, true, false, now_ns);
            self.release(waiting, mac);
        }
        let gateway = (target != destination).then_some(IpAddr::V6(target));
        self.addressing.add_route(super::address::Route {
            network: destination.into(),
            prefix: 128,
            gateway,
            valid_until: now_ns.saturating_add(600_000_000_000),
        });
    }

    /// Asks for a neighbour's MAC address.
    pub(crate) fn solicit_ipv6(&mut self, solicit: Solicit) {
        let IpAddr::V6(target) = solicit.ip else {
            return;
        };
        let Some(choice) = self.addressing.choose(solicit.ip, None) else {
            return;
        };
        let IpAddr::V6(source) = choice.source else {
            return;
        };
        let (destination, mac) = match solicit.mac {
            Some(mac) => (target, mac),
            None => {
                let group = solicited_node(target);
                (group, MacAddr::from_ipv6_multicast(group))
            }
        };
        let repr = Repr::NeighbourSolicitation {
            target,
            source_mac: Some(self.mac),
        };
        self.send_ndp(&repr, source, destination, mac);
    }

    fn advertise(&mut self, target: Ipv6Addr, destination: Ipv6Addr, solicited: bool, now_ns: u64) {
        let repr = Repr::NeighbourAdvertisement {
            router: false,
            solicited,
            overrides: true,
            target,
            target_mac: Some(self.mac),
        };
        if destination.is_multicast() {
            self.send_ndp(
                &repr,
                target,
                destination,
                MacAddr::from_ipv6_multicast(destination),
            );
            return;
        }
        let mut message = [0; 32];
        if let Ok(bytes) = repr.emit(&mut message, target, destination) {
            let outgoing = ndp_packet(target, destination);
            self.queue_routed(&outgoing, message.get(..bytes).unwrap_or_default(), now_ns);
        }
    }

    /// Queues a message to a known MAC address.
    pub(crate) fn send_ndp(
        &mut self,
        repr: &Repr,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        mac: MacAddr,
    ) {
        let mut message = [0; 32];
        if let Ok(bytes) = repr.emit(&mut message, source, destination) {
            let outgoing = ndp_packet(source, destination);
            // The length of the header, not of the message, is what emit returns for some: take the message's own.
            let bytes = bytes.max(repr.bytes());
            self.queue_packet(&outgoing, mac, message.get(..bytes).unwrap_or_default());
        }
    }
}

fn ndp_packet(source: Ipv6Addr, destination: Ipv6Addr) -> Outgoing {
    Outgoing {
        addresses: Addresses::V6 {
            source,
            destination,
        },
        protocol: ip_protocol::ICMPV6,
        ttl: HOP_LIMIT,
        tos: 0,
        router_alert: false,
    }
}
