//! Sockets for tasks: `AsyncRead` and `AsyncWrite` that hyper and axum take. Any runtime will do, as one thread
//! of the library wakes the tasks.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::area::wait;
use crate::attachment::ended;
use crate::core::Socket;
use crate::host::Host;

/// A TCP connection for tasks; see [`crate::TcpStream`].
#[derive(Debug)]
pub struct TcpStream(crate::TcpStream);

/// A TCP listener for tasks; see [`crate::TcpListener`].
#[derive(Debug)]
pub struct TcpListener(crate::TcpListener);

/// A UDP socket for tasks; see [`crate::UdpSocket`].
#[derive(Debug)]
pub struct UdpSocket(crate::UdpSocket);

/// Calls `attempt`; where it has no result yet, notes the task to be woken at `socket`, and looks once more.
fn poll<T>(
    socket: &Socket,
    cx: &Context<'_>,
    is_writer: bool,
    mut attempt: impl FnMut() -> Option<io::Result<T>>,
) -> Poll<io::Result<T>> {
    let side = if is_writer {
        &socket.writing
    } else {
        &socket.reading
    };
    let Ok(_one) = side.try_lock() else {
        // Another handle is at it, for a moment.
        cx.waker().wake_by_ref();
        return Poll::Pending;
    };
    if let Some(result) = attempt() {
        return Poll::Ready(result);
    }
    let attachment = &socket.attachment;
    attachment.start_waking();
    attachment
        .tasks(socket.worker, socket.slot)
        .set(is_writer, cx.waker());
    let bits = if is_writer {
        wait::WRITE_TASK
    } else {
        wait::READ_TASK
    };
    socket.shared().prepare(bits);
    if let Some(result) = attempt() {
        return Poll::Ready(result);
    }
    if attachment.area.lanes[socket.worker].has_ended() {
        return Poll::Ready(Err(ended()));
    }
    Poll::Pending
}

impl TcpStream {
    /// Opens a connection to the first of the addresses that accepts one. Names are not resolved asynchronously.
    ///
    /// # Errors
    /// As [`crate::TcpStream::connect`].
    pub async fn connect(host: &Host, addresses: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = None;
        for peer in addresses.to_socket_addrs()? {
            match Self::connect_one(host, peer).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ErrorKind::InvalidInput.into()))
    }

    async fn connect_one(host: &Host, peer: SocketAddr) -> io::Result<Self> {
        let socket = crate::TcpStream::begin(&host.attachment, peer)?;
        poll_fn(|cx| poll(&socket, cx, true, || crate::tcp::is_connected(&socket))).await?;
        Ok(Self(crate::TcpStream(socket.into())))
    }

    /// Returns the blocking socket, for its options.
    pub fn as_blocking(&self) -> &crate::TcpStream {
        &self.0
    }
    /// Returns the address of the other end.
    ///
    /// # Errors
    /// As [`crate::TcpStream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }
    /// Returns the address of this end.
    ///
    /// # Errors
    /// As [`crate::TcpStream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
    /// Sends short segments at once (no Nagle).
    ///
    /// # Errors
    /// As [`crate::TcpStream::set_nodelay`].
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.set_nodelay(on)
    }
}

impl From<crate::TcpStream> for TcpStream {
    fn from(stream: crate::TcpStream) -> Self {
        Self(stream)
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &*self.0.0;
        let room = buffer.initialize_unfilled();
        let is_empty = room.is_empty();
        let read = poll(socket, cx, false, || {
            socket.try_read(|ring| ring.pop(room), is_empty)
        });
        let Poll::Ready(read) = read else {
            return Poll::Pending;
        };
        buffer.advance(read?);
        socket.after_read();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let socket = &*self.0.0;
        poll(socket, cx, true, || socket.try_write(data))
    }
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The worker answers at once; a connection that is over needs no FIN.
        match self.0.0.shut_down(2) {
            Err(error) if error.kind() != ErrorKind::NotConnected => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl TcpListener {
    /// Listens; see [`crate::TcpListener::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(host: &Host, addresses: impl ToSocketAddrs) -> io::Result<Self> {
        crate::TcpListener::bind(host, addresses).map(Self)
    }
    /// Waits for a connection.
    ///
    /// # Errors
    /// [`ErrorKind::NotConnected`] when the host has stopped.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let first = &self.0.sockets[0];
        let (stream, peer) = poll_fn(|cx| poll(first, cx, false, || self.0.try_accept())).await?;
        Ok((TcpStream(stream), peer))
    }
    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// None in practice.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[cfg(feature = "axum")]
impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match TcpListener::accept(self).await {
            Ok(accepted) => accepted,
            // The host has stopped: nobody will come any more.
            Err(_) => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

impl UdpSocket {
    /// Binds; see [`crate::UdpSocket::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(host: &Host, addresses: impl ToSocketAddrs) -> io::Result<Self> {
        crate::UdpSocket::bind(host, addresses).map(Self)
    }
    /// Returns the blocking socket, for its options.
    pub fn as_blocking(&self) -> &crate::UdpSocket {
        &self.0
    }
    /// Returns the address that it is bound to.
    ///
    /// # Errors
    /// None in practice.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
    /// Sends a datagram.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::send_to`].
    pub async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        let first = &self.0.sockets[0];
        poll_fn(|cx| poll(first, cx, true, || self.0.try_send(data, to))).await
    }
    /// Waits for a datagram.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::recv_from`].
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let first = &self.0.sockets[0];
        poll_fn(|cx| poll(first, cx, false, || self.0.try_receive(buffer, true))).await
    }
}
