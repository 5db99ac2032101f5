//! Kernel sockets that the forwarder listens on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ndn::face_uri::{MULTICAST_GROUP, MULTICAST_PORT};
use ndn::{FaceConfig, FaceUri, LinkType, Persistency};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, bind, setsockopt, socket, sockopt};

use super::NdnError;
use super::many::face_of_tcp;
use super::transport::storage;

/// Bytes that the kernel keeps for a socket, where it allows.
const SOCKET_BYTES: usize = 4 << 20;
/// Seconds after which the kernel asks the other end of a silent WebSocket whether it is there.
const KEEP_IDLE_S: u32 = 60;

/// A socket that clients connect to.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener, SocketAddr),
    WebSocket(TcpListener, SocketAddr),
}

impl Listener {
    /// Makes a Unix socket that everyone on the machine may use. One that a dead process left is replaced.
    ///
    /// # Errors
    /// It cannot be made, or another process listens.
    pub(super) fn unix(path: &Path) -> Result<Self, NdnError> {
        let refused = |source| NdnError::Listen {
            what: format!("unix://{}", path.display()),
            source,
        };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(refused)?;
        }
        if path.exists() {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(refused(std::io::ErrorKind::AddrInUse.into()));
            }
            std::fs::remove_file(path).map_err(refused)?;
        }
        let listener = UnixListener::bind(path).map_err(refused)?;
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(path, everyone).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    /// Listens for TCP connections.
    ///
    /// # Errors
    /// The address is taken, or not this machine's.
    pub(super) fn tcp(address: SocketAddr) -> Result<Self, NdnError> {
        let (listener, address) = tcp_listener(address, &FaceUri::Tcp(address))?;
        Ok(Self::Tcp(listener, address))
    }

    /// Listens for TCP connections that become WebSockets.
    ///
    /// # Errors
    /// As [`Listener::tcp`].
    pub(super) fn websocket(address: SocketAddr) -> Result<Self, NdnError> {
        let (listener, address) = tcp_listener(address, &websocket_uri(address, false))?;
        Ok(Self::WebSocket(listener, address))
    }

    /// Tells whether the clients that it accepts have a handshake before them.
    pub(super) const fn is_websocket(&self) -> bool {
        matches!(self, Self::WebSocket(..))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener, _) | Self::WebSocket(listener, _) => listener.as_fd(),
        }
    }

    /// Returns the FaceUri, as ChannelStatus shows it.
    pub(super) fn uri(&self) -> String {
        match self {
            Self::Unix(_, path) => FaceUri::Unix(path.display().to_string()).to_string(),
            Self::Tcp(_, address) => FaceUri::Tcp(*address).to_string(),
            Self::WebSocket(_, address) => websocket_uri(*address, false).to_string(),
        }
    }

    /// Takes a client that connected; `None` if there is none.
    pub(super) fn accept(&self) -> Option<(FaceConfig, OwnedFd)> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                enlarge(&stream);
                let number = std::os::fd::AsRawFd::as_raw_fd(&stream);
                let remote = FaceUri::Descriptor(number.unsigned_abs()).to_string();
                Some((FaceConfig::local(&remote, &self.uri()), stream.into()))
            }
            Self::Tcp(listener, _) => {
                let (stream, peer) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                stream.set_nodelay(true).ok()?;
                let local = FaceUri::Tcp(stream.local_addr().ok()?).to_string();
                let remote = FaceUri::Tcp(peer).to_string();
                Some((face_of_tcp(peer, &remote, &local), stream.into()))
            }
            Self::WebSocket(listener, _) => {
                let (stream, peer) = listener.accept().ok()?;
                stream.set_nonblocking(true).ok()?;
                stream.set_nodelay(true).ok()?;
                // A browser may vanish without a word.
                setsockopt(&stream, sockopt::KeepAlive, &true).ok()?;
                setsockopt(&stream, sockopt::TcpKeepIdle, &KEEP_IDLE_S).ok()?;
                let remote = websocket_uri(peer, true).to_string();
                Some((face_of_tcp(peer, &remote, &self.uri()), stream.into()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn websocket_uri(address: SocketAddr, is_client: bool) -> FaceUri {
    FaceUri::WebSocket { is_client, address }
}

/// Listens on a TCP address, which management shows as `uri`; returns it with its port.
fn tcp_listener(address: SocketAddr, uri: &FaceUri) -> Result<(TcpListener, SocketAddr), NdnError> {
    let refused = |source| NdnError::Listen {
        what: uri.to_string(),
        source,
    };
    let socket = inet_socket(address, SockType::Stream).map_err(refused)?;
    let bound = setsockopt(&socket, sockopt::ReuseAddr, &true).and_then(|()| {
        bind_to(&socket, address)?;
        nix::sys::socket::listen(&socket, nix::sys::socket::Backlog::MAXCONN)
    });
    bound.map_err(|errno| refused(errno.into()))?;
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

/// Makes the UDP sockets of one address, one a worker: the kernel gives each peer's datagrams to one of them.
///
/// # Errors
/// The address is taken, or not this machine's.
pub(super) fn udp(address: SocketAddr, workers: u16) -> Result<Vec<UdpSocket>, NdnError> {
    let mut sockets = Vec::new();
    let mut address = address;
    for _ in 0..workers {
        let refused = |source| NdnError::Listen {
            what: FaceUri::Udp(address).to_string(),
            source,
        };
        let socket = inet_socket(address, SockType::Datagram).map_err(refused)?;
        let bound = if workers > 1 {
            setsockopt(&socket, sockopt::ReusePort, &true)
        } else {
            Ok(())
        };
        bound
            .and_then(|()| bind_to(&socket, address))
            .map_err(|errno| refused(errno.into()))?;
        enlarge(&socket);
        let socket = UdpSocket::from(socket);
        // Port 0 is one port for all.
        address = socket.local_addr().map_err(refused)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Makes the socket of an interface's UDP group, and says what its face is like.
///
/// # Errors
/// There is no such interface, or it has no IPv4 address.
pub(super) fn udp_group(interface: &str) -> Result<(FaceConfig, OwnedFd, SocketAddr), NdnError> {
    let group = SocketAddr::from((MULTICAST_GROUP, MULTICAST_PORT));
    let refused = |source| NdnError::Listen {
        what: format!("{} on {interface}", FaceUri::Udp(group)),
        source,
    };
    let address = address_of(interface).ok_or_else(|| NdnError::NoAddress {
        interface: interface.to_owned(),
    })?;
    let made = || -> std::io::Result<UdpSocket> {
        let socket = inet_socket(group, SockType::Datagram)?;
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        bind_to(&socket, group)?;
        setsockopt(&socket, sockopt::BindToDevice, &interface.into())?;
        enlarge(&socket);
        let socket = UdpSocket::from(socket);
        socket.join_multicast_v4(&MULTICAST_GROUP, &address)?;
        socket.set_multicast_loop_v4(false)?;
        Ok(socket)
    };
    let socket = made().map_err(refused)?;
    let local = FaceUri::Udp((address, MULTICAST_PORT).into());
    let config = FaceConfig {
        persistency: Persistency::Permanent,
        link_type: LinkType::MultiAccess,
        mtu: Some(1420),
        ..FaceConfig::network(&FaceUri::Udp(group).to_string(), &local.to_string())
    };
    Ok((config, socket.into(), group))
}

/// Finds the first IPv4 address of an interface.
fn address_of(interface: &str) -> Option<Ipv4Addr> {
    let all = getifaddrs().ok()?;
    let mut of_it = all.filter(|entry| entry.interface_name == interface);
    of_it.find_map(|entry| Some(entry.address?.as_sockaddr_in()?.ip()))
}

fn inet_socket(address: SocketAddr, kind: SockType) -> std::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, kind, flags, None)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    Ok(socket)
}

fn bind_to(socket: &OwnedFd, address: SocketAddr) -> nix::Result<()> {
    bind(std::os::fd::AsRawFd::as_raw_fd(socket), &storage(address))
}

/// Lets the kernel keep more for a socket, as far as it allows: beyond its limit for root only.
fn enlarge(socket: &impl AsFd) {
    if setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BYTES).is_err() {
        let _ = setsockopt(socket, sockopt::RcvBuf, &SOCKET_BYTES);
    }
    if setsockopt(socket, sockopt::SndBufForce, &SOCKET_BYTES).is_err() {
        let _ = setsockopt(socket, sockopt::SndBuf, &SOCKET_BYTES);
    }
}
