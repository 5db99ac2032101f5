//! Addresses as the configuration writes them: prefixes and interface addresses.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// No `/`, or something that is not a number after it.
    #[error("no prefix length")]
    NoLength,
    /// The part before the `/` is not an IP address.
    #[error("not an IPv4 or IPv6 address")]
    Address,
    /// The length is more than the address has bits.
    #[error("a prefix length of {0} is more than the address has bits")]
    Length(u8),
}

/// An IP address with a prefix length; the bits after the length are kept, because an interface
/// address is written this way too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// The address as it was written.
    pub address: IpAddr,
    /// How many leading bits are the network.
    pub length: u8,
}

impl Prefix {
    /// Makes a prefix; a length beyond the address's bits is cut to them.
    pub fn new(address: IpAddr, length: u8) -> Self {
        Self {
            address,
            length: length.min(bits(&address)),
        }
    }

    /// Returns the prefix with all bits after the length cleared.
    pub fn network(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(a) => IpAddr::V4((a.to_bits() & mask4(self.length)).into()),
            IpAddr::V6(a) => IpAddr::V6((a.to_bits() & mask6(self.length)).into()),
        };
        Self {
            address,
            length: self.length,
        }
    }

    /// Tells whether the prefix has no bits set after its length.
    pub fn is_network(&self) -> bool {
        self.network() == *self
    }

    /// Tells whether `address` is of the same family and inside the prefix.
    pub fn contains(&self, address: &IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()) & mask4(self.length) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()) & mask6(self.length) == 0,
            _ => false,
        }
    }

    /// Tells whether the two prefixes have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(&other.address) || other.contains(&self.address)
    }

    /// Returns the directed broadcast address, where the network has one (IPv4, at most 30 bits).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(a) if self.length <= 30 => Some((a.to_bits() | !mask4(self.length)).into()),
            _ => None,
        }
    }
}

fn bits(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn mask6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').ok_or(PrefixError::NoLength)?;
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address)?;
        let length: u8 = length.parse().map_err(|_| PrefixError::NoLength)?;
        if length > bits(&address) {
            return Err(PrefixError::Length(length));
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Returns the 16 bytes under which tables keep an address: IPv4 as IPv4-mapped (RFC 4291 2.5.5.2).
pub fn mapped(address: &IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// Returns the address that [`mapped`] was given.
pub fn unmapped(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_parses_and_prints() {
        let p: Prefix = "192.0.2.77/26".parse().unwrap();
        assert_eq!(p.to_string(), "192.0.2.77/26");
        assert_eq!(p.network().to_string(), "192.0.2.64/26");
        assert_eq!(p.broadcast(), Some(Ipv4Addr::new(192, 0, 2, 127)));
        assert!(!p.is_network());
        assert!(p.contains(&"192.0.2.65".parse().unwrap()));
        assert!(!p.contains(&"192.0.2.128".parse().unwrap()));
        assert!(!p.contains(&"::1".parse().unwrap()));
        assert_eq!("1.2.3.4".parse::<Prefix>(), Err(PrefixError::NoLength));
        assert_eq!("1.2.3.4/x".parse::<Prefix>(), Err(PrefixError::NoLength));
        assert_eq!("1.2.3/8".parse::<Prefix>(), Err(PrefixError::Address));
        assert_eq!("1.2.3.4/33".parse::<Prefix>(), Err(PrefixError::Length(33)));
        assert_eq!("::/129".parse::<Prefix>(), Err(PrefixError::Length(129)));
    }

    #[test]
    fn the_default_routes_contain_everything_of_their_family() {
        let v4: Prefix = "0.0.0.0/0".parse().unwrap();
        let v6: Prefix = "::/0".parse().unwrap();
        assert!(v4.contains(&"255.255.255.255".parse().unwrap()));
        assert!(v6.contains(&"ffff::1".parse().unwrap()));
        assert!(!v6.contains(&"1.1.1.1".parse().unwrap()));
        assert!(v4.is_network() && v6.is_network());
        assert!(v4.overlaps(&"10.0.0.0/8".parse().unwrap()));
    }

    #[test]
    fn mapped_addresses_come_back() {
        for text in ["192.0.2.1", "2001:db8::1", "fe80::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(unmapped(mapped(&address)), address);
        }
    }
}
