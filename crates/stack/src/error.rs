//! What socket calls fail with: one variant for each `std::io::ErrorKind` that std gives in the same case.

/// Why a socket call failed, or a connection ended. Each variant is the `std::io::ErrorKind` of its name
/// (with the feature `std`, `std::io::Error::from`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call cannot proceed now; an [`Event`](crate::Event) says when it can.
    #[error("would block; wait for the socket's event")]
    WouldBlock,
    /// The peer refused the connection (RST to a SYN, or ICMP port unreachable).
    #[error("connection refused by the peer")]
    ConnectionRefused,
    /// The peer reset the connection.
    #[error("connection reset by the peer")]
    ConnectionReset,
    /// The connection was aborted here.
    #[error("connection aborted")]
    ConnectionAborted,
    /// The connection is not established.
    #[error("not connected; connect first")]
    NotConnected,
    /// No answer in time.
    #[error("connection timed out")]
    TimedOut,
    /// The sending side is closed.
    #[error("broken pipe: the sending side is closed")]
    BrokenPipe,
    /// Another socket has the port.
    #[error("address in use; choose another port")]
    AddrInUse,
    /// The address is not one of this host, or no port is left.
    #[error("address not available; give one of this host's addresses")]
    AddrNotAvailable,
    /// The host did not answer, or a router says so.
    #[error("host unreachable")]
    HostUnreachable,
    /// There is no route.
    #[error("network unreachable; add a route")]
    NetworkUnreachable,
    /// A table or the buffer memory is full.
    #[error("out of memory: a table is full; raise its size in the configuration")]
    OutOfMemory,
    /// The arguments make no sense together.
    #[error("invalid input")]
    InvalidInput,
    /// The handle's socket is gone.
    #[error("no such socket; the handle is stale")]
    NotFound,
    /// The datagram exceeds what the path or the protocol takes.
    #[error("datagram too large; send less")]
    FileTooLarge,
    /// A filter on the way forbids it.
    #[error("administratively prohibited")]
    PermissionDenied,
}

#[cfg(feature = "std")]
impl Error {
    /// Returns the kind that std's sockets give in the same case.
    pub const fn kind(self) -> std::io::ErrorKind {
        use std::io::ErrorKind as Kind;
        match self {
            Self::WouldBlock => Kind::WouldBlock,
            Self::ConnectionRefused => Kind::ConnectionRefused,
            Self::ConnectionReset => Kind::ConnectionReset,
            Self::ConnectionAborted => Kind::ConnectionAborted,
            Self::NotConnected => Kind::NotConnected,
            Self::TimedOut => Kind::TimedOut,
            Self::BrokenPipe => Kind::BrokenPipe,
            Self::AddrInUse => Kind::AddrInUse,
            Self::AddrNotAvailable => Kind::AddrNotAvailable,
            Self::HostUnreachable => Kind::HostUnreachable,
            Self::NetworkUnreachable => Kind::NetworkUnreachable,
            Self::OutOfMemory => Kind::OutOfMemory,
            Self::InvalidInput => Kind::InvalidInput,
            Self::NotFound => Kind::NotFound,
            Self::FileTooLarge => Kind::FileTooLarge,
            Self::PermissionDenied => Kind::PermissionDenied,
        }
    }
}

#[cfg(feature = "std")]
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
