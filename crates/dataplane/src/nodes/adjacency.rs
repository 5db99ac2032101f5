//! Where packets of one batch go, remembered while the batch is worked on: what the next hop's MAC address
//! is, by which port, behind which header.

use io::{Frame, PortId};
use wire::Instant;

use super::verdict::Verdict;
use crate::forwarding::{Forwarding, NextHop};
use crate::neighbour::table::{Key, Table};
use crate::packet::{self, ETHERNET_BYTES, IPV4_BYTES};
use crate::plan::{InterfaceId, Link};

/// Places of the memory.
const PLACES: usize = 64;
const ETHER_TYPE_IPV4: u16 = 0x0800;
/// Bytes of the two headers of an untagged IPv4 packet without options.
const HEADERS_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES;

/// The way to a neighbour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjacency {
    /// The Ethernet header of packets to it.
    header: [u8; ETHERNET_BYTES],
    /// Largest IP packet, bytes.
    pub(crate) mtu: u16,
    /// Its MAC address is known and needs nothing done.
    known: bool,
    /// The interface sends through a bridge.
    bridged: bool,
    /// The port or bridge.
    through: u16,
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
        ether_type: u16,
        now: Instant,
    ) -> Option<Self> {
        let interface = forwarding.interface(key.interface)?;
        let mac = neighbours.mac_of(key, now);
        let mut header = [0; ETHERNET_BYTES];
        header[..6].copy_from_slice(&mac.unwrap_or_default().0);
        header[6..12].copy_from_slice(&interface.mac.0);
        header[12..].copy_from_slice(&ether_type.to_be_bytes());
        let (bridged, through) = match interface.link {
            Link::Port(port) => (false, port.0),
            Link::Bridge(bridge) => (true, bridge.0),
        };
        Some(Self {
            header,
            mtu: interface.mtu,
            known: mac.is_some(),
            bridged,
            through,
            interface: key.interface,
        })
    }

    /// Puts the Ethernet header on and says where the frame goes.
    #[inline]
    pub(crate) fn send(&self, frame: &mut Frame, ways: &Ways) -> Verdict {
        if self.known {
            packet::put_ethernet(frame, &self.header);
        }
        self.direct(frame, ways)
    }

    /// As [`Adjacency::send`] for a received IPv4 packet: takes one from its TTL, too.
    #[inline]
    pub(crate) fn forward4(&self, frame: &mut Frame, ways: &Ways) -> Verdict {
        let layout = &frame.layout;
        let plain =
            usize::from(layout.network) == ETHERNET_BYTES && usize::from(layout.end) == frame.len();
        if self.known
            && plain
            && let Some(headers) = frame.data_mut().first_chunk_mut::<HEADERS_BYTES>()
            && let Some((ethernet, ip)) = headers.split_first_chunk_mut()
            && let Some(ip) = ip.first_chunk_mut()
        {
            *ethernet = self.header;
            wire::ipv4::decrement_ttl(ip);
            return self.direct(frame, ways);
        }
        let network = usize::from(frame.layout.network);
        if let Some(ip) = packet::bytes_mut(frame.data_mut(), network) {
            wire::ipv4::decrement_ttl(ip);
        }
        self.send(frame, ways)
    }

    #[inline]
    fn direct(&self, frame: &mut Frame, ways: &Ways) -> Verdict {
        if !self.known {
            frame.mark = u32::from(self.interface.0);
            return ways.resolve;
        }
        if self.bridged {
            frame.mark = u32::from(self.through);
            return ways.bridge;
        }
        frame.tx_port = PortId(self.through);
        ways.tx
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
            header: [0; ETHERNET_BYTES],
            mtu: 0,
            known: false,
            bridged: false,
            through: 0,
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
    ) -> Option<&Adjacency> {
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
        Some(adjacency)
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
        Adjacency::look_up(forwarding, neighbours, &key, ETHER_TYPE_IPV4, now)
    }
}
