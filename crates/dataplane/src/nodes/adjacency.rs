//! Where packets of one batch go, remembered while the batch is worked on: what the next hop's MAC address
//! is, by which port, behind which header.

use io::{Frame, PortId};
use wire::{Instant, MacAddr};

use super::verdict::Verdict;
use crate::forwarding::{Forwarding, NextHop};
use crate::neighbour::table::{Key, Table};
use crate::packet;
use crate::plan::{InterfaceId, Link};

/// Places of the memory.
const PLACES: usize = 64;

/// The way to a neighbour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjacency {
    /// The neighbour's MAC address, if it can be used without further ado.
    mac: Option<MacAddr>,
    own: MacAddr,
    /// Largest IP packet, bytes.
    pub(crate) mtu: u16,
    link: Link,
    interface: InterfaceId,
}

/// The edges that a sending node has for the three ways on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    pub(crate) tx: Verdict,
    pub(crate) bridge: Verdict,
    pub(crate) resolve: Verdict,
}

impl Adjacency {
    /// Looks a neighbour up.
    pub(crate) fn look_up(
        forwarding: &Forwarding,
        neighbours: &Table,
        key: &Key,
        now: Instant,
    ) -> Option<Self> {
        let interface = forwarding.interface(key.interface)?;
        Some(Self {
            mac: neighbours.mac_of(key, now),
            own: interface.mac,
            mtu: interface.mtu,
            link: interface.link,
            interface: key.interface,
        })
    }

    /// Puts the Ethernet header on and says where the frame goes.
    #[inline]
    pub(crate) fn send(&self, frame: &mut Frame, ether_type: u16, ways: &Ways) -> Verdict {
        let Some(mac) = self.mac else {
            frame.mark = u32::from(self.interface.0);
            return ways.resolve;
        };
        packet::set_ethernet(frame, mac, self.own, ether_type);
        match self.link {
            Link::Port(port) => {
                frame.tx_port = port;
                ways.tx
            }
            Link::Bridge(bridge) => {
                frame.mark = u32::from(bridge.0);
                ways.bridge
            }
        }
    }
}

/// A direct-mapped memory of adjacencies that forgets everything between batches, so that no change of a
/// neighbour is seen later than a batch.
#[derive(Debug)]
pub(crate) struct Adjacencies {
    places: Box<[(u64, Adjacency); PLACES]>,
    batch: u32,
}

impl Adjacencies {
    pub(crate) fn new() -> Self {
        let nothing = Adjacency {
            mac: None,
            own: MacAddr::ZERO,
            mtu: 0,
            link: Link::Port(PortId(0)),
            interface: InterfaceId(0),
        };
        Self {
            places: Box::new([(0, nothing); PLACES]),
            batch: 0,
        }
    }

    /// Starts a batch: forgets.
    #[inline]
    pub(crate) fn start(&mut self) {
        self.batch += 1;
        if self.batch == 1 << 16 {
            self.batch = 1;
            self.places.iter_mut().for_each(|(tag, _)| *tag = 0);
        }
    }

    /// Returns the way of an IPv4 packet by the next hop of an index.
    #[inline]
    pub(crate) fn get4(
        &mut self,
        forwarding: &Forwarding,
        neighbours: &Table,
        index: u32,
        destination: u32,
        now: Instant,
    ) -> Option<Adjacency> {
        let hop = forwarding.next_hop(index)?;
        // An index fits 16 bits or the packet is looked up as if it were the first; a batch number is
        // never zero.
        let on_link = if hop.gateway.is_some() {
            0
        } else {
            destination
        };
        let tag = u64::from(self.batch) << 48 | u64::from(index) << 32 | u64::from(on_link);
        let place = (index ^ on_link) as usize % PLACES;
        let (known, adjacency) = &mut self.places[place];
        if *known != tag || index >= 1 << 16 {
            *adjacency = Self::look_up4(forwarding, neighbours, hop, destination, now)?;
            *known = tag;
        }
        Some(*adjacency)
    }

    #[cold]
    fn look_up4(
        forwarding: &Forwarding,
        neighbours: &Table,
        hop: &NextHop,
        destination: u32,
        now: Instant,
    ) -> Option<Adjacency> {
        let key = match hop.gateway {
            Some(gateway) => Key::new(hop.interface, gateway),
            None => Key::v4(hop.interface, destination.to_be_bytes()),
        };
        Adjacency::look_up(forwarding, neighbours, &key, now)
    }
}
