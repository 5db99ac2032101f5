//! FaceUris: how management names the two ends of a face.

use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

/// The port of NDN over UDP and TCP.
pub const PORT: u16 = 6363;
/// The port of NDN over UDP multicast.
pub const MULTICAST_PORT: u16 = 56_363;
/// The IPv4 group of NDN over UDP multicast.
pub const MULTICAST_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 23, 170);
/// The Ethernet group of NDN (EtherType 0x8624).
pub const ETHERNET_GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 0x00, 0x17, 0xaa];

/// A FaceUri of a scheme that is known here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FaceUri {
    /// `udp4://192.0.2.1:6363`, `udp6://[2001:db8::1]:6363`
    Udp(SocketAddr),
    /// `tcp4://192.0.2.1:6363`, `tcp6://[2001:db8::1]:6363`
    Tcp(SocketAddr),
    /// `unix:///run/nfd/nfd.sock`
    Unix(String),
    /// `fd://9`: a client of a Unix socket.
    Descriptor(u32),
    /// `ether://[01:00:5e:00:17:aa]`
    Ethernet([u8; 6]),
    /// `dev://eth0`
    Device(String),
    /// `wsclient://192.0.2.1:50000`, `ws://0.0.0.0:9696`
    WebSocket {
        /// It is the other end's.
        is_client: bool,
        /// Its address.
        address: SocketAddr,
    },
}

/// Why a text is not a FaceUri that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaceUriError {
    /// There is no `://`.
    #[error("a FaceUri begins with a scheme such as udp4://")]
    NoScheme,
    /// The scheme is not known.
    #[error("no face of the scheme `{0}` can be made here; use udp4, udp6, tcp4, tcp6 or ether")]
    Scheme(String),
    /// A host name stands where an address belongs, or the address is of the other version.
    #[error("`{0}` is not canonical: write an address and a port, as in udp4://192.0.2.1:6363")]
    NotCanonical(String),
}

impl FaceUri {
    /// Tells whether an application of this machine is at the other end.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Descriptor(_) => true,
            Self::Tcp(address) | Self::WebSocket { address, .. } => address.ip().is_loopback(),
            Self::Udp(_) | Self::Ethernet(_) | Self::Device(_) => false,
        }
    }
}

impl FromStr for FaceUri {
    type Err = FaceUriError;

    fn from_str(text: &str) -> Result<Self, FaceUriError> {
        let (scheme, rest) = text.split_once("://").ok_or(FaceUriError::NoScheme)?;
        let rest_of_address = rest.strip_suffix('/').unwrap_or(rest);
        let not_canonical = || FaceUriError::NotCanonical(text.into());
        let address = |version: Option<u8>| {
            let address = socket_address(rest_of_address).ok_or_else(not_canonical)?;
            match (version, address) {
                (Some(4), SocketAddr::V6(_)) | (Some(6), SocketAddr::V4(_)) => Err(not_canonical()),
                _ => Ok(address),
            }
        };
        Ok(match scheme {
            "udp4" => Self::Udp(address(Some(4))?),
            "udp6" => Self::Udp(address(Some(6))?),
            "tcp4" => Self::Tcp(address(Some(4))?),
            "tcp6" => Self::Tcp(address(Some(6))?),
            "udp" => Self::Udp(address(None)?),
            "tcp" => Self::Tcp(address(None)?),
            "unix" => Self::Unix(rest.into()),
            "fd" => Self::Descriptor(rest.parse().map_err(|_| not_canonical())?),
            "ether" => Self::Ethernet(mac(rest_of_address).ok_or_else(not_canonical)?),
            "dev" => Self::Device(rest.into()),
            "ws" | "wsclient" => Self::WebSocket {
                is_client: scheme == "wsclient",
                address: address(None)?,
            },
            _ => return Err(FaceUriError::Scheme(scheme.into())),
        })
    }
}

/// Reads an address with a port; without one it is [`PORT`].
fn socket_address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let ip: IpAddr = match bare {
        Some(bare) => IpAddr::V6(bare.parse::<Ipv6Addr>().ok()?),
        None => text.parse().ok()?,
    };
    Some(SocketAddr::new(ip, PORT))
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let text = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'))?;
    let mut out = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut out {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(out)
}

impl fmt::Display for FaceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = |address: &SocketAddr| if address.is_ipv4() { 4 } else { 6 };
        match self {
            Self::Udp(address) => write!(f, "udp{}://{address}", version(address)),
            Self::Tcp(address) => write!(f, "tcp{}://{address}", version(address)),
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Descriptor(number) => write!(f, "fd://{number}"),
            Self::Ethernet([a, b, c, d, e, g]) => {
                write!(
                    f,
                    "ether://[{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}]"
                )
            }
            Self::Device(name) => write!(f, "dev://{name}"),
            Self::WebSocket { is_client, address } => {
                let scheme = if *is_client { "wsclient" } else { "ws" };
                write!(f, "{scheme}://{address}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn canonical_forms_read_back() {
        for uri in [
            "udp4://192.0.2.1:6363",
            "udp6://[2001:db8::1]:6363",
            "tcp4://127.0.0.1:7000",
            "unix:///run/nfd/nfd.sock",
            "fd://9",
            "ether://[01:00:5e:00:17:aa]",
            "dev://eth0",
            "wsclient://192.0.2.1:50000",
        ] {
            assert_eq!(
                uri.parse::<FaceUri>().map(|u| u.to_string()),
                Ok(uri.into())
            );
        }
        let without_port: FaceUri = "udp4://192.0.2.1".parse().unwrap();
        assert_eq!(without_port.to_string(), "udp4://192.0.2.1:6363");
        assert!("unix:///x".parse::<FaceUri>().unwrap().is_local());
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        assert_eq!("192.0.2.1".parse::<FaceUri>(), Err(FaceUriError::NoScheme));
        let scheme = "quic://192.0.2.1".parse::<FaceUri>();
        assert_eq!(scheme, Err(FaceUriError::Scheme("quic".into())));
        for uri in [
            "udp4://router.example:6363",
            "udp4://[::1]:6363",
            "tcp6://192.0.2.1:6363",
            "ether://01:00:5e:00:17:aa",
            "ether://[01:00:5e:00:17]",
            "ether://[01:00:5e:00:17:aa:bb]",
        ] {
            let error = FaceUriError::NotCanonical(uri.into());
            assert_eq!(uri.parse::<FaceUri>(), Err(error));
        }
    }
}
