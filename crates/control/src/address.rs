//! Addresses as people write them, for checks: prefixes, addresses of an interface.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// The part before the slash is not an IP address.
    #[error("`{0}` is not an IP address")]
    Ip(String),
    /// No slash, or not a number after it.
    #[error("`{0}` has no prefix length")]
    NoLength(String),
    /// The number after the slash is more than the address has bits.
    #[error("prefix length {length} is more than the {bits} bits of the address")]
    Length {
        /// As written.
        length: u32,
        /// 32 or 128.
        bits: u8,
    },
    /// A destination with bits set behind its prefix length.
    #[error("`{written}` has host bits set; the prefix is `{meant}`")]
    HostBits {
        /// As written.
        written: String,
        /// With the host bits cleared.
        meant: Prefix,
    },
}

/// A destination prefix, written `192.0.2.0/24`; no host bits are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Makes the prefix of `length` bits that `address` lies in; `length` is cut to the address's bits.
    pub(crate) fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(bits(address));
        Self {
            address: mask(address, length),
            length,
        }
    }

    /// Returns its first address.
    pub(crate) const fn address(self) -> IpAddr {
        self.address
    }

    /// Returns its length, bits.
    pub(crate) const fn length(self) -> u8 {
        self.length
    }

    /// Tells whether `address` lies in it.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.length) == self.address
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (address, length) = split(text)?;
        let prefix = Self::new(address, length);
        if prefix.address == address {
            Ok(prefix)
        } else {
            Err(AddressError::HostBits {
                written: text.to_owned(),
                meant: prefix,
            })
        }
    }
}

/// An address of an interface with the length of its link's prefix, written `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InterfaceAddress {
    /// The address.
    pub(crate) address: IpAddr,
    /// Bits of the prefix that is on the link.
    pub(crate) length: u8,
}

impl InterfaceAddress {
    /// Returns the prefix that is on the link.
    pub(crate) fn prefix(self) -> Prefix {
        Prefix::new(self.address, self.length)
    }

    /// Returns the directed broadcast address of the link, where it has one (RFC 919 7; none for
    /// IPv6 and for prefixes of 31 and 32 bits, RFC 3021 2.1).
    pub(crate) fn broadcast(self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.length < 31 => {
                let host_bits = u32::MAX.checked_shr(u32::from(self.length)).unwrap_or(0);
                Some(Ipv4Addr::from_bits(address.to_bits() | host_bits))
            }
            _ => None,
        }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for InterfaceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (address, length) = split(text)?;
        Ok(Self { address, length })
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn mask(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let host_bits = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & !host_bits).into()
        }
        IpAddr::V6(v6) => {
            let host_bits = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & !host_bits).into()
        }
    }
}

fn split(text: &str) -> Result<(IpAddr, u8), AddressError> {
    let (address, length) = text
        .split_once('/')
        .map_or((text, None), |(address, length)| (address, Some(length)));
    let address: IpAddr = address
        .parse()
        .map_err(|_| AddressError::Ip(address.to_owned()))?;
    let length: u32 = length
        .filter(|length| length.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|length| length.parse().ok())
        .ok_or_else(|| AddressError::NoLength(text.to_owned()))?;
    match u8::try_from(length) {
        Ok(short) if short <= bits(address) => Ok((address, short)),
        _ => Err(AddressError::Length {
            length,
            bits: bits(address),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_refuses_host_bits_and_names_the_prefix() {
        let error = "10.1.2.3/8".parse::<Prefix>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`10.1.2.3/8` has host bits set; the prefix is `10.0.0.0/8`"
        );
        for good in ["0.0.0.0/0", "::/0", "192.0.2.1/32", "2001:db8::/32"] {
            assert_eq!(good.parse::<Prefix>().unwrap().to_string(), good);
        }
        for bad in [
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.300/8",
            "10.0.0.0/+8",
            "x/8",
        ] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn prefix_contains_its_own_family_only() {
        let all: Prefix = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("203.0.113.9".parse().unwrap()));
        assert!(!all.contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn broadcast_is_the_last_address_of_a_link() {
        let address: InterfaceAddress = "192.0.2.1/24".parse().unwrap();
        assert_eq!(address.broadcast(), Some(Ipv4Addr::new(192, 0, 2, 255)));
        let point_to_point: InterfaceAddress = "192.0.2.1/31".parse().unwrap();
        assert_eq!(point_to_point.broadcast(), None);
    }
}
