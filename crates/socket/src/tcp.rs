//! Blocking TCP sockets with the interface of `std::net`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::area::{status, wait, word};
use crate::attachment::{Attachment, lock};
use crate::code::{operation, option};
use crate::core::{Socket, each, open_arguments};
use crate::host::Host;

/// Connections that wait to be accepted, a worker.
const BACKLOG: u64 = 1024;
/// Tries to find a free port.
const PORT_TRIES: usize = 64;

/// A TCP connection of a [`Host`]: `std::net::TcpStream`, without the kernel.
///
/// Any thread may use it; several handles by [`try_clone`](Self::try_clone). Dropping the last one closes the
/// connection: what was written is still sent, and data that was not read resets it.
#[derive(Debug)]
pub struct TcpStream(pub(crate) Arc<Socket>);

impl TcpStream {
    /// Opens a connection to the first of the addresses that accepts one.
    ///
    /// # Errors
    /// [`ErrorKind::ConnectionRefused`], [`ErrorKind::TimedOut`], [`ErrorKind::NetworkUnreachable`],
    /// [`ErrorKind::HostUnreachable`], [`ErrorKind::AddrNotAvailable`], [`ErrorKind::InvalidInput`] as std;
    /// [`ErrorKind::QuotaExceeded`] when the host has no socket left.
    pub fn connect(host: &Host, addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each(addresses, |peer| Self::connect_one(host, peer, None))
    }

    /// As [`connect`](Self::connect), giving up after `timeout` with [`ErrorKind::TimedOut`].
    ///
    /// # Errors
    /// As `connect`; [`ErrorKind::InvalidInput`] for a timeout of zero.
    pub fn connect_timeout(host: &Host, peer: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a timeout of zero"));
        }
        Self::connect_one(host, *peer, Some(timeout))
    }

    fn connect_one(host: &Host, peer: SocketAddr, timeout: Option<Duration>) -> io::Result<Self> {
        let socket = Self::begin(&host.attachment, peer)?;
        let connected = socket.block_on(&[&socket], wait::WRITE, timeout, || is_connected(&socket));
        match connected {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
            result => result.map(|()| Self(Arc::new(socket))),
        }
    }

    /// Begins to open a connection.
    pub(crate) fn begin(attachment: &Arc<Attachment>, peer: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(attachment, attachment.next_worker())?;
        socket.command(operation::CONNECT, &open_arguments(peer, 0, (0, 0)))?;
        Ok(socket)
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    /// None in practice; [`ErrorKind::NotConnected`] if the host lies.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let address = self.0.shared().address(word::PEER);
        address.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    /// As [`peer_addr`](Self::peer_addr).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local()
    }

    /// Closes one half of the connection, or both. What was written before is sent.
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`].
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => 1,
            Shutdown::Write => 2,
            Shutdown::Both => 3,
        };
        self.0.shut_down(how)
    }

    /// Returns another handle to the same connection.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(Arc::clone(&self.0)))
    }

    /// Bounds how long a read blocks: then it is [`ErrorKind::WouldBlock`]. `None`: for ever.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }
    /// Bounds how long a write blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_write_timeout(timeout)
    }
    /// Returns the bound of reads.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.read_timeout())
    }
    /// Returns the bound of writes.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.write_timeout())
    }
    /// Makes calls return [`ErrorKind::WouldBlock`] rather than block.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let place = &self.0.options.nonblocking;
        place.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Sends short segments at once (no Nagle).
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] when the host has stopped.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0
            .command(operation::SET, &[option::NO_DELAY, on.into()])?;
        self.0.options.no_delay.store(on, Ordering::Relaxed);
        Ok(())
    }
    /// Tells whether short segments are sent at once.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.0.options.no_delay.load(Ordering::Relaxed))
    }
    /// Sets the time to live, or hop limit, of packets.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for 0 or above 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.set_ttl(ttl, option::TTL)
    }
    /// Returns the time to live.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.0.options.ttl.load(Ordering::Relaxed) as u32)
    }
    /// Probes a silent peer after `idle` (and then as often as that, 75 s at most); `None`: never.
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] when the host has stopped.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        let ms = idle.map_or(0, |idle| idle.as_millis().clamp(1, 1 << 40) as u64);
        self.0.command(operation::SET, &[option::KEEP_ALIVE_MS, ms])
    }
    /// Chooses the congestion control of the connection.
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] when the host has stopped.
    pub fn set_congestion(&self, algorithm: stack::Algorithm) -> io::Result<()> {
        let number = match algorithm {
            stack::Algorithm::Cubic => 0,
            stack::Algorithm::Bbr => 1,
            stack::Algorithm::NewReno => 2,
        };
        self.0
            .command(operation::SET, &[option::CONGESTION, number])
    }
    /// Takes the error that waits in the socket.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.take_error())
    }

    /// Reads without removing what is read.
    ///
    /// # Errors
    /// As reading.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let _one = lock(&self.0.reading);
        let socket = &*self.0;
        let patience = socket.patience(socket.read_timeout());
        let is_empty = buffer.is_empty();
        socket.block_on(&[socket], wait::READ, patience, || {
            socket.try_read(|ring| ring.peek(0, buffer), is_empty)
        })
    }
}

/// Tells how a connection that is being opened stands.
pub(crate) fn is_connected(socket: &Socket) -> Option<io::Result<()>> {
    let status = socket.status();
    if status & status::CONNECTED != 0 {
        return Some(Ok(()));
    }
    if status & status::FAILED != 0 {
        let error = socket.take_error();
        return Some(Err(
            error.unwrap_or_else(|| ErrorKind::ConnectionAborted.into())
        ));
    }
    None
}

impl Socket {
    /// Reads by `take`, if there is anything to tell.
    pub(crate) fn try_read(
        &self,
        take: impl FnOnce(&tables::ring::ByteRing<'_>) -> usize,
        is_empty: bool,
    ) -> Option<io::Result<usize>> {
        if is_empty {
            return Some(Ok(0));
        }
        let ring = self.shared().receive();
        // The order matters: the worker writes data, then the end.
        let is_at_end = self.is_at_end();
        if !ring.is_empty() {
            if self.options.read_closed.load(Ordering::Relaxed) {
                return Some(Ok(0));
            }
            return Some(Ok(take(&ring)));
        }
        if let Some(error) = self.take_error() {
            return Some(Err(error));
        }
        is_at_end.then_some(Ok(0))
    }

    /// Writes what fits, if anything does.
    pub(crate) fn try_write(&self, data: &[u8]) -> Option<io::Result<usize>> {
        if self.options.write_closed.load(Ordering::Relaxed) {
            return Some(Err(ErrorKind::BrokenPipe.into()));
        }
        if self.status() & status::BROKEN != 0 {
            let error = self.take_error();
            return Some(Err(error.unwrap_or_else(|| ErrorKind::BrokenPipe.into())));
        }
        if data.is_empty() {
            return Some(Ok(0));
        }
        let bytes = self.shared().transmit().push(data);
        if bytes == 0 {
            return None;
        }
        self.poke();
        Some(Ok(bytes))
    }

    pub(crate) fn shut_down(&self, how: u64) -> io::Result<()> {
        // Whoever writes is done first, so that FIN follows its data.
        let _one = lock(&self.writing);
        self.command(operation::SHUTDOWN, &[how])?;
        if how & 1 != 0 {
            self.options.read_closed.store(true, Ordering::Relaxed);
        }
        if how & 2 != 0 {
            self.options.write_closed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn set_ttl(&self, ttl: u32, option: u64) -> io::Result<()> {
        if !(1..=255).contains(&ttl) {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "a time to live is 1 to 255",
            ));
        }
        self.command(operation::SET, &[option, ttl.into()])?;
        if option == option::TTL {
            self.options.ttl.store(ttl.into(), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let socket = &*self.0;
        let _one = lock(&socket.reading);
        let patience = socket.patience(socket.read_timeout());
        let is_empty = buffer.is_empty();
        let bytes = socket.block_on(&[socket], wait::READ, patience, || {
            socket.try_read(|ring| ring.pop(buffer), is_empty)
        })?;
        socket.after_read();
        Ok(bytes)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let socket = &*self.0;
        let _one = lock(&socket.writing);
        let patience = socket.patience(socket.write_timeout());
        socket.block_on(&[socket], wait::WRITE, patience, || socket.try_write(data))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Listens on a port of a [`Host`], on every worker: `std::net::TcpListener`, without the kernel.
#[derive(Debug)]
pub struct TcpListener {
    /// One a worker; the first is the one that is waited at.
    pub(crate) sockets: Arc<[Socket]>,
    /// Where to look first.
    turn: Arc<AtomicUsize>,
}

impl TcpListener {
    /// Listens on the first of the addresses that is free: one of the host's, or an unspecified one for all of a
    /// family. Port 0: one is chosen.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`], [`ErrorKind::AddrNotAvailable`] as std; [`ErrorKind::QuotaExceeded`] when the
    /// host has no socket left.
    pub fn bind(host: &Host, addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each(addresses, |local| {
            let sockets = open_everywhere(host, operation::LISTEN, local, BACKLOG)?;
            Ok(Self {
                sockets,
                turn: Arc::default(),
            })
        })
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] where the listener does not block; [`ErrorKind::NotConnected`] when the host has
    /// stopped.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let first = &self.sockets[0];
        let _one = lock(&first.reading);
        let all: Vec<&Socket> = self.sockets.iter().collect();
        let patience = first.patience(None);
        first.block_on(&all, wait::READ, patience, || self.try_accept())
    }

    /// Takes a connection that waits, from each worker in turn.
    pub(crate) fn try_accept(&self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let count = self.sockets.len();
        let turn = self.turn.load(Ordering::Relaxed);
        for step in 0..count {
            let at = (turn + step) % count;
            let listener = &self.sockets[at];
            let mut record = [0; 8];
            let ring = listener.shared().receive();
            if ring.len() < record.len() {
                continue;
            }
            ring.pop(&mut record);
            listener.after_read();
            self.turn.store(at + 1, Ordering::Relaxed);
            let slot = u64::from_le_bytes(record) as usize;
            let socket = Socket::at(&listener.attachment, listener.worker, slot);
            let stream = TcpStream(Arc::new(socket));
            let accepted = stream.peer_addr().map(|peer| (stream, peer));
            return Some(accepted);
        }
        None
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// None in practice.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sockets[0].local()
    }

    /// Makes [`accept`](Self::accept) return [`ErrorKind::WouldBlock`] rather than block.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        let place = &self.sockets[0].options.nonblocking;
        place.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Returns another handle to the same listener.
    ///
    /// # Errors
    /// None; the result is std's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            sockets: Arc::clone(&self.sockets),
            turn: Arc::clone(&self.turn),
        })
    }

    /// Iterates over connections for ever.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<TcpStream>> + '_ {
        std::iter::from_fn(|| Some(self.accept().map(|(stream, _)| stream)))
    }
}

/// Opens a listener or UDP socket of one address on every worker; the first worker decides who has a port.
pub(crate) fn open_everywhere(
    host: &Host,
    what: u64,
    local: SocketAddr,
    number: u64,
) -> io::Result<Arc<[Socket]>> {
    let tries = if local.port() == 0 { PORT_TRIES } else { 1 };
    let mut result = Err(ErrorKind::AddrInUse.into());
    for _ in 0..tries {
        let mut local = local;
        if local.port() == 0 {
            local.set_port(random_port());
        }
        result = open_port(host, what, local, number);
        if !matches!(&result, Err(error) if error.kind() == ErrorKind::AddrInUse) {
            break;
        }
    }
    result
}

fn open_port(host: &Host, what: u64, local: SocketAddr, number: u64) -> io::Result<Arc<[Socket]>> {
    let attachment = &host.attachment;
    let mut sockets: Vec<Socket> = Vec::with_capacity(attachment.workers());
    for worker in 0..attachment.workers() {
        let socket = Socket::new(attachment, worker)?;
        let first = sockets.first().unwrap_or(&socket);
        let wakes = (first.worker, first.slot);
        socket.command(what, &open_arguments(local, number, wakes))?;
        sockets.push(socket);
    }
    Ok(sockets.into())
}

/// Returns a port of the dynamic range (RFC 6335 6).
fn random_port() -> u16 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    49_152 + (random % 16_384) as u16
}

/// Checks at compile time that sockets may be used from any thread.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<TcpStream>();
    is_shared::<TcpListener>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_dynamic_ones() {
        for _ in 0..1000 {
            assert!(random_port() >= 49_152);
        }
    }
}
