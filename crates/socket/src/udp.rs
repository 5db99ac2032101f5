//! Blocking UDP sockets with the interface of `std::net`.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::area::wait;
use crate::attachment::lock;
use crate::code::{self, RECORD_BYTES, operation, option};
use crate::core::{Socket, each};
use crate::host::Host;
use crate::tcp::open_everywhere;

/// The most data of a datagram over IPv4.
const DATA_MAX: usize = 65_507;

/// A UDP socket of a [`Host`]: `std::net::UdpSocket`, without the kernel.
///
/// It receives on every worker; datagrams of one flow keep their order. An error of sending that only the stack
/// sees (no route) is returned by the next call, as those that ICMP brings.
#[derive(Debug)]
pub struct UdpSocket {
    /// One a worker; the first is the one that sends and that is waited at.
    pub(crate) sockets: Arc<[Socket]>,
    turn: Arc<AtomicUsize>,
    peer: Arc<Mutex<Option<SocketAddr>>>,
}

impl UdpSocket {
    /// Binds to the first of the addresses that is free: one of the host's, or an unspecified one for all of a
    /// family. Port 0: one is chosen.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`], [`ErrorKind::AddrNotAvailable`] as std; [`ErrorKind::QuotaExceeded`] when the
    /// host has no socket left.
    pub fn bind(host: &Host, addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each(addresses, |local| {
            Ok(Self {
                sockets: open_everywhere(host, operation::BIND, local, 0)?,
                turn: Arc::default(),
                peer: Arc::default(),
            })
        })
    }

    /// Sends to and receives from one peer only.
    ///
    /// # Errors
    /// None but that of resolving; [`ErrorKind::NotConnected`] when the host has stopped.
    pub fn connect(&self, addresses: impl ToSocketAddrs) -> io::Result<()> {
        each(addresses, |peer| {
            for socket in self.sockets.iter() {
                socket.command(operation::SET_PEER, &code::of_address(Some(peer)))?;
            }
            *lock(&self.peer) = Some(peer);
            Ok(())
        })
    }

    /// Sends a datagram to the peer that was given to [`connect`](Self::connect).
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to); [`ErrorKind::NotConnected`] without a peer.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        let peer = *lock(&self.peer);
        self.send_one(data, peer.ok_or(ErrorKind::NotConnected)?)
    }

    /// Sends a datagram; one that exceeds the MTU is fragmented. Returns its length.
    ///
    /// # Errors
    /// [`ErrorKind::FileTooLarge`] beyond 65,507 bytes or what a ring holds, [`ErrorKind::InvalidInput`] for an
    /// address of the other family, [`ErrorKind::WouldBlock`]; an earlier datagram's error.
    pub fn send_to(&self, data: &[u8], addresses: impl ToSocketAddrs) -> io::Result<usize> {
        let to = addresses.to_socket_addrs()?.next();
        let none = || io::Error::new(ErrorKind::InvalidInput, "no addresses to send data to");
        self.send_one(data, to.ok_or_else(none)?)
    }

    fn send_one(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        let socket = &self.sockets[0];
        let _one = lock(&socket.writing);
        let patience = socket.patience(socket.write_timeout());
        socket.block_on(&[socket], wait::WRITE, patience, || self.try_send(data, to))
    }

    /// Sends, if there is room.
    pub(crate) fn try_send(&self, data: &[u8], to: SocketAddr) -> Option<io::Result<usize>> {
        let socket = &self.sockets[0];
        if let Some(error) = socket.take_error() {
            return Some(Err(error));
        }
        let room = code::record_room(data.len());
        let ring = socket.shared().transmit();
        if data.len() > DATA_MAX || room > ring.capacity() {
            let text = "the datagram exceeds what UDP or the socket's ring takes";
            return Some(Err(io::Error::new(ErrorKind::FileTooLarge, text)));
        }
        if ring.room() < room {
            return None;
        }
        ring.put(0, &code::of_record(data.len(), Some(to)));
        ring.put(RECORD_BYTES, data);
        ring.publish(room);
        socket.poke();
        Some(Ok(data.len()))
    }

    /// Waits for a datagram, cut to the buffer; returns how much was copied, and who sent it.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] after the timeout; what ICMP told of an earlier datagram.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buffer, true)
    }
    /// As [`recv_from`](Self::recv_from), leaving the datagram there.
    ///
    /// # Errors
    /// As `recv_from`.
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buffer, false)
    }
    /// As [`recv_from`](Self::recv_from), without the sender.
    ///
    /// # Errors
    /// As `recv_from`.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, true).map(|(bytes, _)| bytes)
    }

    fn receive(&self, buffer: &mut [u8], removes: bool) -> io::Result<(usize, SocketAddr)> {
        let first = &self.sockets[0];
        let _one = lock(&first.reading);
        let all: Vec<&Socket> = self.sockets.iter().collect();
        let patience = first.patience(first.read_timeout());
        first.block_on(&all, wait::READ, patience, || {
            self.try_receive(buffer, removes)
        })
    }

    /// Receives a datagram that waits, from each worker in turn.
    pub(crate) fn try_receive(
        &self,
        buffer: &mut [u8],
        removes: bool,
    ) -> Option<io::Result<(usize, SocketAddr)>> {
        let count = self.sockets.len();
        let turn = self.turn.load(Ordering::Relaxed);
        for step in 0..count {
            let at = (turn + step) % count;
            let socket = &self.sockets[at];
            if let Some(error) = socket.take_error() {
                return Some(Err(error));
            }
            let ring = socket.shared().receive();
            let mut record = [0; RECORD_BYTES];
            if ring.peek(0, &mut record) < RECORD_BYTES {
                continue;
            }
            let (bytes, from) = code::to_record(&record);
            let copied = bytes.min(buffer.len());
            ring.peek(RECORD_BYTES, &mut buffer[..copied]);
            if removes {
                ring.consume(code::record_room(bytes.min(DATA_MAX)));
                socket.after_read();
                self.turn.store(at + 1, Ordering::Relaxed);
            }
            let from = from.ok_or_else(|| ErrorKind::InvalidData.into());
            return Some(from.map(|from| (copied, from)));
        }
        None
    }

    /// Returns the address that it is bound to.
    ///
    /// # Errors
    /// None in practice.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sockets[0].local()
    }
    /// Returns the peer that was given to [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] without one.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        lock(&self.peer).ok_or_else(|| ErrorKind::NotConnected.into())
    }
    /// Returns another handle to the same socket.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            sockets: Arc::clone(&self.sockets),
            turn: Arc::clone(&self.turn),
            peer: Arc::clone(&self.peer),
        })
    }
    /// Bounds how long receiving blocks: then it is [`ErrorKind::WouldBlock`]. `None`: for ever.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.sockets[0].set_read_timeout(timeout)
    }
    /// Bounds how long sending blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.sockets[0].set_write_timeout(timeout)
    }
    /// Makes calls return [`ErrorKind::WouldBlock`] rather than block.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let place = &self.sockets[0].options.nonblocking;
        place.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }
    /// Sets the time to live, or hop limit, of datagrams to one station.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for 0 or above 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.sockets[0].set_ttl(ttl, option::TTL)
    }
    /// Sets the time to live, or hop limit, of datagrams to groups (1 at first).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for 0 or above 255.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.sockets[0].set_ttl(ttl, option::GROUP_TTL)
    }
    /// Joins a group; a host has one link, so that `_interface` is there for std's sake.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is no group of the socket's family, [`ErrorKind::AddrInUse`] if the
    /// socket is in it.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, _interface: &Ipv4Addr) -> io::Result<()> {
        self.group((*group).into(), 1)
    }
    /// Leaves a group.
    ///
    /// # Errors
    /// [`ErrorKind::AddrNotAvailable`] if the socket is not in it.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, _interface: &Ipv4Addr) -> io::Result<()> {
        self.group((*group).into(), 0)
    }
    /// Joins a group; a host has one link, so that `_interface` is there for std's sake.
    ///
    /// # Errors
    /// As [`join_multicast_v4`](Self::join_multicast_v4).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, _interface: u32) -> io::Result<()> {
        self.group((*group).into(), 1)
    }
    /// Leaves a group.
    ///
    /// # Errors
    /// As [`leave_multicast_v4`](Self::leave_multicast_v4).
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, _interface: u32) -> io::Result<()> {
        self.group((*group).into(), 0)
    }

    fn group(&self, group: IpAddr, joins: u64) -> io::Result<()> {
        let [a, b, c] = code::of_address(Some(SocketAddr::new(group, 0)));
        for socket in self.sockets.iter() {
            socket.command(operation::GROUP, &[a, b, c, joins])?;
        }
        Ok(())
    }

    /// Takes the error that waits in the socket.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.sockets.iter().find_map(Socket::take_error))
    }
}

/// Checks at compile time that sockets may be used from any thread.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<UdpSocket>();
};
