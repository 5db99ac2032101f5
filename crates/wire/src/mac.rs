//! 48-bit MAC addresses.

use core::fmt;
use core::str::FromStr;

/// A 48-bit IEEE 802 MAC address, in transmission order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All zeros: "no address".
    pub const ZERO: Self = Self([0; 6]);
    /// All ones: every station of the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns the six bytes in transmission order.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }
    /// Says whether the address names a group (multicast or broadcast) and not a station.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
    /// Says whether the address is the broadcast address.
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }
    /// Says whether the address names one station: neither a group nor zero.
    pub const fn is_station(self) -> bool {
        !self.is_group() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
    /// Says whether the address is one of the reserved bridge group addresses
    /// 01-80-C2-00-00-00 to -0F, which a bridge never forwards (IEEE 802.1D 7.12.6).
    pub const fn is_bridge_reserved(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0x00, 0x00, last] if last < 0x10)
    }
    /// Returns the group address that an IPv4 multicast address maps to (RFC 1112 6.4).
    pub const fn from_ipv4_multicast(group: core::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }
    /// Returns the group address that an IPv6 multicast address maps to (RFC 2464 7).
    pub const fn from_ipv6_multicast(group: core::net::Ipv6Addr) -> Self {
        let [.., c, d, e, f] = group.octets();
        Self([0x33, 0x33, c, d, e, f])
    }
    /// Returns the address as an integer below 2^48 whose top byte is the first on the wire.
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
    /// Returns the IPv6 interface identifier made from the address: modified EUI-64 (RFC 4291 A).
    pub const fn to_interface_id(self) -> [u8; 8] {
        let [a, b, c, d, e, f] = self.0;
        [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
    }
    /// Returns the link-local IPv6 address fe80::/64 with the identifier made from this address.
    pub const fn to_link_local(self) -> core::net::Ipv6Addr {
        let [a, b, c, d, e, f, g, h] = self.to_interface_id();
        core::net::Ipv6Addr::from_octets([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h])
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six pairs of hexadecimal digits joined by `:` or `-`")
    }
}

impl core::error::Error for ParseMacError {}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    /// Reads `02:00:00:00:00:0a` or `02-00-00-00-00-0A`; each group has two digits, one separator is used.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes: &[u8; 17] = text.as_bytes().try_into().map_err(|_| ParseMacError)?;
        let separator = bytes[2];
        if separator != b':' && separator != b'-' {
            return Err(ParseMacError);
        }
        let digit = |c: u8| char::from(c).to_digit(16).ok_or(ParseMacError);
        let mut octets = [0; 6];
        for (octet, group) in octets.iter_mut().zip(bytes.chunks(3)) {
            let (high, low) = match *group {
                [high, low] => (high, low),
                [high, low, s] if s == separator => (high, low),
                _ => return Err(ParseMacError),
            };
            *octet = (digit(high)? << 4 | digit(low)?) as u8;
        }
        Ok(Self(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn text_round_trips() {
        let mac: MacAddr = "02:00:5e:10:Ff:0a".parse().unwrap();
        assert_eq!(mac, MacAddr([2, 0, 0x5e, 0x10, 0xff, 0x0a]));
        assert_eq!(mac.to_string(), "02:00:5e:10:ff:0a");
        assert_eq!("02-00-5e-10-ff-0a".parse(), Ok(mac));
    }

    #[test]
    fn bad_text_is_refused() {
        for text in [
            "",
            "02:00:5e:10:ff",
            "02:00:5e:10:ff:0",
            "02:00:5e:10:ff:0aa",
            "2:0:5e:10:ff:0a",
            "02:00-5e:10:ff:0a",
            "02.00.5e.10.ff.0a",
            "0g:00:5e:10:ff:0a",
            "02:00:5e:10:ff:é",
        ] {
            assert_eq!(text.parse::<MacAddr>(), Err(ParseMacError), "{text}");
        }
    }

    #[test]
    fn groups_and_derived_addresses() {
        assert!(MacAddr::BROADCAST.is_group() && MacAddr::BROADCAST.is_broadcast());
        assert!(!MacAddr::ZERO.is_station() && MacAddr([2, 0, 0, 0, 0, 1]).is_station());
        assert!(MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]).is_bridge_reserved());
        assert!(!MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]).is_bridge_reserved());
        assert_eq!(
            MacAddr::from_ipv4_multicast("239.129.2.3".parse().unwrap()).to_string(),
            "01:00:5e:01:02:03"
        );
        assert_eq!(
            MacAddr::from_ipv6_multicast("ff02::1:ff00:1234".parse().unwrap()).to_string(),
            "33:33:ff:00:12:34"
        );
        // RFC 4291 appendix A: 34-56-78-9A-BC-DE gives 3656:78ff:fe9a:bcde.
        assert_eq!(
            MacAddr([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde])
                .to_link_local()
                .to_string(),
            "fe80::3656:78ff:fe9a:bcde"
        );
    }
}
