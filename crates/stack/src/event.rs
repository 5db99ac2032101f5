//! What a socket's owner hears of.

use crate::handle::{ListenerHandle, TcpHandle, UdpHandle};

bitflags::bitflags! {
    /// What became possible on a socket. Told once for each change: then call until [`WouldBlock`](crate::Error::WouldBlock).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Ready: u8 {
        /// There is data, the end of the data, or an error to be read.
        const READABLE = 1 << 0;
        /// There is room to send.
        const WRITABLE = 1 << 1;
        /// The connection is established.
        const CONNECTED = 1 << 2;
        /// A connection waits to be accepted.
        const ACCEPT = 1 << 3;
        /// The peer will send no more.
        const PEER_CLOSED = 1 << 4;
        /// The connection is over, orderly or with an error that the next call returns.
        const CLOSED = 1 << 5;
        /// An error waits in the socket.
        const ERROR = 1 << 6;
    }
}

/// Something happened to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// To a connection.
    Tcp(TcpHandle, Ready),
    /// To a listener.
    Listener(ListenerHandle, Ready),
    /// To a UDP socket.
    Udp(UdpHandle, Ready),
    /// The host's addresses changed (DHCP, SLAAC, duplicate address detection).
    AddressesChanged,
}
