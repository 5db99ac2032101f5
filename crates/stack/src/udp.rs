//! UDP sockets (RFC 768, RFC 1122 4.1).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::{Addresses, DropReason, Instant, ip_protocol, udp};

use crate::config::Limits;
use crate::error::Error;
use crate::event::Ready;
use crate::handle::{Slab, UdpHandle};
use crate::host::output::Outgoing;
use crate::rx::Rx;
use crate::sink::TxSink;
use crate::stack::Stack;

/// The most data of a datagram over IPv4.
const DATA_MAX: usize = 65_507;

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it.
    pub from: SocketAddr,
    /// To which of our addresses, or to which group.
    pub to: IpAddr,
    /// Its data.
    pub data: Vec<u8>,
}

/// A datagram to be sent.
#[derive(Debug)]
struct Queued {
    to: SocketAddr,
    source: IpAddr,
    data: Vec<u8>,
}

/// One socket.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    address: Option<IpAddr>,
    port: u16,
    is_v4: bool,
    peer: Option<SocketAddr>,
    received: VecDeque<Datagram>,
    queued: VecDeque<Queued>,
    ready: Ready,
    is_told: bool,
    is_queued: bool,
    wants_room: bool,
    error: Option<Error>,
    ttl: u8,
    group_ttl: u8,
    groups: Vec<IpAddr>,
}

/// All UDP sockets of one worker.
#[derive(Debug)]
pub(crate) struct UdpTable {
    pub(crate) sockets: Slab<UdpSocket>,
    by_port: BTreeMap<u16, Vec<u32>>,
    ready: VecDeque<u32>,
    queue_max: usize,
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

/// What can be set on a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpOption {
    /// Time to live, or hop limit, of datagrams to one station.
    Ttl(u8),
    /// Of datagrams to a group (1 by default).
    GroupTtl(u8),
    /// Receive from this peer only, and send to it by default.
    Peer(Option<SocketAddr>),
}

impl UdpTable {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            sockets: Slab::new(limits.udp_sockets as usize),
            by_port: BTreeMap::new(),
            ready: VecDeque::new(),
            queue_max: limits.udp_queue.max(1) as usize,
            spare: Vec::new(),
            scratch: Vec::new(),
        }
    }
    pub(crate) fn groups_mut(&mut self, handle: UdpHandle) -> Option<&mut Vec<IpAddr>> {
        let socket = self.sockets.get_mut(handle.index, handle.generation)?;
        Some(&mut socket.groups)
    }
    pub(crate) fn take_ready(&mut self, index: u32, generation: u32) -> Option<Ready> {
        let socket = self.sockets.get_mut(index, generation)?;
        socket.is_told = false;
        Some(core::mem::take(&mut socket.ready))
    }
    /// Adds to what the owner is to hear; returns the generation if it is to be told anew.
    pub(crate) fn tell(&mut self, index: u32, ready: Ready) -> Option<u32> {
        let generation = self.sockets.generation(index);
        let socket = self.sockets.at_mut(index)?;
        socket.ready |= ready;
        (!core::mem::replace(&mut socket.is_told, true)).then_some(generation)
    }
    /// Finds the socket for a datagram: connected first, then of its address, then of any.
    fn find(&self, from: SocketAddr, to: IpAddr, port: u16) -> Option<u32> {
        let rank = |index: &u32| {
            let socket = self.sockets.at(*index)?;
            let fits = socket.is_v4 == to.is_ipv4()
                && socket.address.is_none_or(|address| address == to)
                && socket.peer.is_none_or(|peer| peer == from);
            fits.then_some((socket.peer.is_some(), socket.address.is_some(), *index))
        };
        self.by_port
            .get(&port)?
            .iter()
            .filter_map(rank)
            .max()
            .map(|(_, _, index)| index)
    }
    fn members(&self, group: IpAddr, port: u16) -> Vec<u32> {
        let is_member = |index: &&u32| {
            self.sockets.at(**index).is_some_and(|socket| {
                socket.groups.contains(&group)
                    || socket.is_v4 && group == IpAddr::V4(Ipv4Addr::BROADCAST)
            })
        };
        self.by_port.get(&port).map_or_else(Vec::new, |list| {
            list.iter().filter(is_member).copied().collect()
        })
    }
    fn deliver(
        &mut self,
        index: u32,
        from: SocketAddr,
        to: IpAddr,
        data: &[u8],
    ) -> Result<(), DropReason> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        let Some(socket) = self.sockets.at_mut(index) else {
            return Err(DropReason::PortUnreachable);
        };
        if socket.received.len() >= self.queue_max {
            return Err(DropReason::SocketQueueFull);
        }
        buffer.clear();
        buffer.extend_from_slice(data);
        socket.received.push_back(Datagram {
            from,
            to,
            data: buffer,
        });
        Ok(())
    }
}

impl Stack {
    /// Binds a socket to a port (0: one is chosen) of one address, or of all of the family of an unspecified one.
    ///
    /// # Errors
    /// [`Error::AddrInUse`], [`Error::AddrNotAvailable`], [`Error::OutOfMemory`].
    pub fn udp_bind(&mut self, local: SocketAddr) -> Result<UdpHandle, Error> {
        let address = (!local.ip().is_unspecified()).then_some(local.ip());
        if address.is_some_and(|ip| !self.addressing.is_ours(ip)) {
            return Err(Error::AddrNotAvailable);
        }
        self.udp_bind_unchecked(address, local)
    }

    pub(crate) fn udp_bind_unchecked(
        &mut self,
        address: Option<IpAddr>,
        local: SocketAddr,
    ) -> Result<UdpHandle, Error> {
        let is_v4 = local.is_ipv4();
        let port = match local.port() {
            0 => self.free_udp_port().ok_or(Error::AddrInUse)?,
            port => port,
        };
        let clashes = |index: &u32| {
            self.udp.sockets.at(*index).is_some_and(|other| {
                other.is_v4 == is_v4
                    && (other.address == address || other.address.is_none() || address.is_none())
            })
        };
        if self
            .udp
            .by_port
            .get(&port)
            .is_some_and(|list| list.iter().any(clashes))
        {
            return Err(Error::AddrInUse);
        }
        let socket = UdpSocket {
            address,
            port,
            is_v4,
            peer: None,
            received: VecDeque::new(),
            queued: VecDeque::new(),
            ready: Ready::empty(),
            is_told: false,
            is_queued: false,
            wants_room: false,
            error: None,
            ttl: 64,
            group_ttl: 1,
            groups: Vec::new(),
        };
        let (index, generation) = self
            .udp
            .sockets
            .insert(socket)
            .map_err(|_| Error::OutOfMemory)?;
        self.udp.by_port.entry(port).or_default().push(index);
        Ok(UdpHandle { index, generation })
    }

    fn free_udp_port(&mut self) -> Option<u16> {
        let (first, last) = self.tcp.config.ephemeral_ports;
        let count = last.checked_sub(first)?.saturating_add(1);
        let start = self.tcp.secrets.random() as u16;
        (0..count)
            .map(|step| first + start.wrapping_add(step) % count)
            .find(|port| !self.udp.by_port.contains_key(port))
    }

    /// Returns the local address of a socket; unspecified if it has none.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_local(&self, handle: UdpHandle) -> Result<SocketAddr, Error> {
        let socket = self
            .udp
            .sockets
            .get(handle.index, handle.generation)
            .ok_or(Error::NotFound)?;
        let any: IpAddr = if socket.is_v4 {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        Ok(SocketAddr::new(socket.address.unwrap_or(any), socket.port))
    }

    /// Sends a datagram; one that exceeds the MTU is fragmented.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] when the queue is full, [`Error::FileTooLarge`], [`Error::NetworkUnreachable`],
    /// [`Error::InvalidInput`] without a destination; an error that ICMP told of an earlier datagram, once.
    pub fn udp_send_to(
        &mut self,
        handle: UdpHandle,
        data: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), Error> {
        let queue_max = self.udp.queue_max;
        let socket = self
            .udp
            .sockets
            .get_mut(handle.index, handle.generation)
            .ok_or(Error::NotFound)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let to = to.or(socket.peer).ok_or(Error::InvalidInput)?;
        if to.is_ipv4() != socket.is_v4 || to.port() == 0 {
            return Err(Error::InvalidInput);
        }
        if data.len() > DATA_MAX {
            return Err(Error::FileTooLarge);
        }
        if socket.queued.len() >= queue_max {
            socket.wants_room = true;
            return Err(Error::WouldBlock);
        }
        let source = match self.addressing.choose(to.ip(), socket.address) {
            Some(choice) => choice.source,
            None => self
                .unconfigured_source(handle.index, to)
                .ok_or(Error::NetworkUnreachable)?,
        };
        let mut buffer = self.udp.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        let socket = self
            .udp
            .sockets
            .at_mut(handle.index)
            .ok_or(Error::NotFound)?;
        socket.queued.push_back(Queued {
            to,
            source,
            data: buffer,
        });
        if !core::mem::replace(&mut socket.is_queued, true) {
            self.udp.ready.push_back(handle.index);
        }
        Ok(())
    }

    /// A host without an address may still broadcast (DHCP, RFC 2131 4.1).
    fn unconfigured_source(&self, _index: u32, to: SocketAddr) -> Option<IpAddr> {
        (to.ip() == IpAddr::V4(Ipv4Addr::BROADCAST)).then_some(Ipv4Addr::UNSPECIFIED.into())
    }

    /// Takes the oldest received datagram.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]; an error that ICMP told, once; [`Error::NotFound`].
    pub fn udp_recv(&mut self, handle: UdpHandle) -> Result<Datagram, Error> {
        let socket = self
            .udp
            .sockets
            .get_mut(handle.index, handle.generation)
            .ok_or(Error::NotFound)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        socket.received.pop_front().ok_or(Error::WouldBlock)
    }

    /// Copies the oldest received datagram to `to`, cut to its length; returns how much was copied, and who sent it.
    ///
    /// # Errors
    /// As [`udp_recv`](Self::udp_recv).
    pub fn udp_recv_from(
        &mut self,
        handle: UdpHandle,
        to: &mut [u8],
    ) -> Result<(usize, SocketAddr), Error> {
        let datagram = self.udp_recv(handle)?;
        let bytes = datagram.data.len().min(to.len());
        if let (Some(to), Some(from)) = (to.get_mut(..bytes), datagram.data.get(..bytes)) {
            to.copy_from_slice(from);
        }
        if self.udp.spare.len() < self.udp.queue_max {
            self.udp.spare.push(datagram.data);
        }
        Ok((bytes, datagram.from))
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_set(&mut self, handle: UdpHandle, option: UdpOption) -> Result<(), Error> {
        let socket = self
            .udp
            .sockets
            .get_mut(handle.index, handle.generation)
            .ok_or(Error::NotFound)?;
        match option {
            UdpOption::Ttl(ttl) => socket.ttl = ttl,
            UdpOption::GroupTtl(ttl) => socket.group_ttl = ttl,
            UdpOption::Peer(peer) => socket.peer = peer,
        }
        Ok(())
    }

    /// Closes a socket and leaves its groups; what it has queued is not sent.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_close(&mut self, now: Instant, handle: UdpHandle) -> Result<(), Error> {
        self.udp
            .sockets
            .get(handle.index, handle.generation)
            .ok_or(Error::NotFound)?;
        let socket = self
            .udp
            .sockets
            .remove(handle.index)
            .ok_or(Error::NotFound)?;
        if let Some(list) = self.udp.by_port.get_mut(&socket.port) {
            list.retain(|index| *index != handle.index);
            if list.is_empty() {
                self.udp.by_port.remove(&socket.port);
            }
        }
        for group in socket.groups {
            self.leave_unused(group, now.as_ns());
        }
        Ok(())
    }

    pub(crate) fn receive_udp(&mut self, rx: &Rx<'_>, now_ns: u64) -> Result<(), DropReason> {
        let transport = usize::from(rx.layout.transport);
        let view = udp::View::new(
            rx.frame
                .get(transport..usize::from(rx.layout.end))
                .unwrap_or_default(),
        )?;
        let (source, to) = Self::ends(rx);
        let from = SocketAddr::new(source, view.source_port());
        let port = view.destination_port();
        if port == crate::host::dhcp::CLIENT_PORT && self.receive_dhcp(view.payload(), now_ns)? {
            return Ok(());
        }
        let is_group = match to {
            IpAddr::V4(ip) => ip.is_multicast(),
            IpAddr::V6(ip) => ip.is_multicast(),
        };
        if is_group {
            let members = self.udp.members(to, port);
            for index in &members {
                self.deliver_udp(*index, from, to, view.payload());
            }
            return if members.is_empty() {
                Err(DropReason::PortUnreachable)
            } else {
                Ok(())
            };
        }
        let Some(index) = self
            .udp
            .find(from, to, port)
            .or_else(|| self.udp.broadcast_socket(to, port))
        else {
            self.answer_port_unreachable(rx, now_ns);
            return Err(DropReason::PortUnreachable);
        };
        self.udp.deliver(index, from, to, view.payload())?;
        self.tell_udp(index, Ready::READABLE);
        Ok(())
    }

    fn deliver_udp(&mut self, index: u32, from: SocketAddr, to: IpAddr, data: &[u8]) {
        match self.udp.deliver(index, from, to, data) {
            Ok(()) => self.tell_udp(index, Ready::READABLE),
            Err(reason) => self.drop_frame(reason),
        }
    }

    /// Hears from ICMP that a datagram was not delivered.
    pub(crate) fn udp_error(&mut self, local: SocketAddr, peer: SocketAddr, error: Error) {
        let Some(index) = self.udp.find(peer, local.ip(), local.port()) else {
            return;
        };
        // As std's sockets: only a connected one hears of it.
        if let Some(socket) = self.udp.sockets.at_mut(index)
            && socket.peer == Some(peer)
        {
            socket.error = Some(error);
            self.tell_udp(index, Ready::ERROR | Ready::READABLE | Ready::WRITABLE);
        }
    }

    /// Sends queued datagrams; false when the sink is full.
    pub(crate) fn transmit_udp<S: TxSink>(&mut self, now_ns: u64, sink: &mut S) -> bool {
        while let Some(index) = self.udp.ready.pop_front() {
            let Some(socket) = self.udp.sockets.at_mut(index) else {
                continue;
            };
            let Some(queued) = socket.queued.pop_front() else {
                socket.is_queued = false;
                if core::mem::take(&mut socket.wants_room) {
                    self.tell_udp(index, Ready::WRITABLE);
                }
                continue;
            };
            let group = match queued.to.ip() {
                IpAddr::V4(ip) => ip.is_multicast(),
                IpAddr::V6(ip) => ip.is_multicast(),
            };
            let (ttl, port) = (
                if group { socket.group_ttl } else { socket.ttl },
                socket.port,
            );
            let mut scratch = core::mem::take(&mut self.udp.scratch);
            let done = self.send_datagram(&queued, port, ttl, &mut scratch, now_ns, sink);
            self.udp.scratch = scratch;
            if done {
                self.udp.recycle(queued.data);
                self.udp.ready.push_front(index);
            } else {
                if let Some(socket) = self.udp.sockets.at_mut(index) {
                    socket.queued.push_front(queued);
                }
                self.udp.ready.push_front(index);
                return false;
            }
        }
        true
    }

    fn send_datagram<S: TxSink>(
        &mut self,
        queued: &Queued,
        port: u16,
        ttl: u8,
        scratch: &mut Vec<u8>,
        now_ns: u64,
        sink: &mut S,
    ) -> bool {
        let addresses = match (queued.source, queued.to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 {
                source,
                destination,
            },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 {
                source,
                destination,
            },
            _ => return true,
        };
        scratch.clear();
        scratch.resize(udp::HEADER_BYTES, 0);
        scratch.extend_from_slice(&queued.data);
        let repr = udp::Repr {
            source_port: port,
            destination_port: queued.to.port(),
        };
        if repr.emit(scratch, &addresses).is_err() {
            return true;
        }
        let outgoing = Outgoing {
            addresses,
            protocol: ip_protocol::UDP,
            ttl,
            tos: 0,
            router_alert: false,
        };
        self.send_transport(&outgoing, scratch, now_ns, sink)
    }
}

impl UdpTable {
    fn recycle(&mut self, data: Vec<u8>) {
        if self.spare.len() < self.queue_max {
            self.spare.push(data);
        }
    }
    /// Finds a socket that takes a broadcast: one that is bound to any address.
    fn broadcast_socket(&self, to: IpAddr, port: u16) -> Option<u32> {
        if !to.is_ipv4() {
            return None;
        }
        self.by_port
            .get(&port)?
            .iter()
            .find(|index| {
                self.sockets
                    .at(**index)
                    .is_some_and(|socket| socket.is_v4 && socket.address.is_none())
            })
            .copied()
    }
}
