//! The engine as a router between a network inside and one outside; each test names the row of `specs/firewall.toml`
//! that it shows.

mod alg;
mod nat64;
#[cfg(feature = "lang")]
mod own;
mod proxy;
mod rfc4787;
mod rfc5382;
mod rfc5508;
mod tracking;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::time::Duration;

use wire::{Addresses, DropReason, FlowKey, Instant, parse};

use super::*;
use crate::nat::mapping::{Filtering, NatPolicy, NatSizes};
use crate::packet::{AddressType, Fib, FibAnswer, FibQuery, Hook, InterfaceId};
use crate::testing::{echo_frame, udp_frame};
use crate::track::key::{mapped, unmapped};

pub(super) const INSIDE: InterfaceId = InterfaceId(1);
pub(super) const OUTSIDE: InterfaceId = InterfaceId(2);
/// The router's outer address.
pub(super) const OUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub(super) const OTHER_PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// 10.0.0.0/8 lies inside, the router's addresses are its own, all else lies outside.
#[derive(Debug)]
struct Routes;

impl Fib for Routes {
    fn lookup(&self, query: &FibQuery) -> FibAnswer {
        let address = Ipv4Addr::from_bits(unmapped(query.address));
        let (kind, interface) = match address.octets() {
            [10, 0, 0, 254] => (AddressType::Local, INSIDE),
            [10, ..] => (AddressType::Unicast, INSIDE),
            _ if address == OUTER => (AddressType::Local, OUTSIDE),
            [192, 0, 2, _] => (AddressType::Unspecified, InterfaceId::NONE),
            _ => (AddressType::Unicast, OUTSIDE),
        };
        FibAnswer {
            kind,
            interface,
            mtu: 1500,
            next_hop: query.address,
        }
    }
}

pub(super) struct Rig<R = Stateful> {
    pub(super) worker: Worker,
    pub(super) rules: R,
    pub(super) now: Instant,
}

pub(super) fn small() -> Sizes {
    Sizes {
        connections4: 512,
        connections6: 16,
        nat: NatSizes {
            mappings: 512,
            addresses: 4,
            permits: 512,
        },
        ..Sizes::default()
    }
}

impl Rig {
    /// A router that masquerades.
    pub(super) fn new(policy: TrackPolicy) -> Self {
        Self::with_sizes(policy, &small())
    }

    pub(super) fn with_sizes(policy: TrackPolicy, sizes: &Sizes) -> Self {
        Self {
            worker: Worker::new(Arc::new(Shared::new(sizes, policy, [1, 2, 3, 4])), 0, 7).unwrap(),
            rules: Stateful {
                inside: INSIDE,
                masquerade: true,
                random: false,
                epoch: 1,
            },
            now: Instant::from_ns(1_000_000_000_000),
        }
    }

    pub(super) fn filtering(filtering: Filtering) -> Self {
        Self::new(TrackPolicy {
            nat: NatPolicy {
                filtering,
                ..NatPolicy::default()
            },
            ..TrackPolicy::default()
        })
    }
}

impl<R: Rules> Rig<R> {
    /// Gives the engine one frame that came by an interface.
    pub(super) fn send(&mut self, iif: InterfaceId, mut frame: Vec<u8>) -> Result<Vec<u8>, Fate> {
        let layout = parse(&frame).unwrap();
        let mut items = [Item {
            frame: &mut frame,
            layout,
            iif,
            mark: 0,
        }];
        let mut fates = [Fate::Consumed];
        let interfaces = [
            InterfaceFacts::default(),
            InterfaceFacts {
                v4: Some(Ipv4Addr::new(10, 0, 0, 254).to_bits()),
                v6: None,
            },
            InterfaceFacts {
                v4: Some(OUTER.to_bits()),
                v6: None,
            },
        ];
        let env = Environment {
            now: self.now,
            unix_ns: 0,
            fib: &Routes,
            interfaces: &interfaces,
        };
        let output = iif == InterfaceId::NONE;
        if output {
            self.worker
                .output(&env, &mut self.rules, &mut items, &mut fates);
        } else {
            self.worker
                .process(&env, &mut self.rules, &mut items, &mut fates);
        }
        if fates[0] != Fate::Accept {
            return Err(fates[0]);
        }
        let layout = parse(&frame).unwrap();
        let state = wire::checksum::verify_transport(&layout, &frame);
        assert_ne!(state, wire::checksum::TransportChecksum::Bad);
        Ok(frame)
    }

    /// Sends a UDP datagram from inside; returns the outer address and port it left with.
    pub(super) fn out(&mut self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> (Ipv4Addr, u16) {
        let frame = udp_frame(v4(from.0, to.0), (from.1, to.1), b"out");
        source_of(&self.send(INSIDE, frame).unwrap())
    }

    /// Sends a UDP datagram from outside; returns whom it reaches.
    pub(super) fn back(
        &mut self,
        from: (Ipv4Addr, u16),
        to: (Ipv4Addr, u16),
    ) -> Result<(Ipv4Addr, u16), Fate> {
        let frame = udp_frame(v4(from.0, to.0), (from.1, to.1), b"back");
        self.send(OUTSIDE, frame)
            .map(|frame| destination_of(&frame))
    }

    pub(super) fn ping(&mut self, from: Ipv4Addr, id: u16, to: Ipv4Addr) -> (Ipv4Addr, u16) {
        let frame = echo_frame(v4(from, to), id, b"ping");
        source_of(&self.send(INSIDE, frame).unwrap())
    }

    /// Lets time go by; the tables are swept now and then, and twice at the end.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + Duration::from_secs(20));
            for _ in 0..if self.now == end { 2 } else { 1 } {
                self.worker.maintain(self.now, 1 << 20);
            }
        }
    }

    pub(super) fn emissions(&mut self) -> Vec<Vec<u8>> {
        let frames = self.worker.outbox.emissions();
        let frames = frames.iter().map(|one| one.frame().to_vec()).collect();
        self.worker.outbox.clear();
        frames
    }
}

pub(super) const fn v4(source: Ipv4Addr, destination: Ipv4Addr) -> Addresses {
    Addresses::V4 {
        source,
        destination,
    }
}

pub(super) fn key_of(frame: &[u8]) -> FlowKey {
    FlowKey::from_layout(&parse(frame).unwrap(), frame).unwrap()
}

pub(super) fn source_of(frame: &[u8]) -> (Ipv4Addr, u16) {
    let key = key_of(frame);
    (Ipv4Addr::from_bits(unmapped(key.source)), key.source_port)
}

pub(super) fn destination_of(frame: &[u8]) -> (Ipv4Addr, u16) {
    let key = key_of(frame);
    let port = worker::port_of_destination(&key);
    (Ipv4Addr::from_bits(unmapped(key.destination)), port)
}

pub(super) const DROPPED: Result<(Ipv4Addr, u16), Fate> = Err(Fate::Drop(DropReason::FirewallRule));

#[test]
fn addresses_map_both_ways() {
    assert_eq!(unmapped(mapped(OUTER.to_bits())), OUTER.to_bits());
}
