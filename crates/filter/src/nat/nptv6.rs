//! Prefix translation for IPv6 (RFC 6296): stateless, one to one, and without touching any transport checksum: what the
//! new prefix adds to the sum, one 16-bit word of the rest takes away.

use core::net::Ipv6Addr;

use wire::checksum::Sum;
use wire::{Layout, LayoutFlags, ipv6};

/// A pair of prefixes of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixPair {
    inner: u128,
    outer: u128,
    len: u32,
    /// What is added to a word on the way out (one's complement).
    adjustment: u16,
}

/// Why two prefixes make no pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prefixes of {0} bits cannot be translated; 1 to 112 bits can")]
pub struct PrefixError(pub u8);

impl PrefixPair {
    /// Makes a pair; bits beyond `len` do not count. A /48 or shorter leaves the subnet (bits 48 to 63) to take up the
    /// difference (RFC 6296 3.4), a longer one the first word behind it that is not all ones (3.5).
    ///
    /// # Errors
    /// If no whole word lies behind the prefix.
    pub fn new(inner: Ipv6Addr, outer: Ipv6Addr, len: u8) -> Result<Self, PrefixError> {
        if len == 0 || len > 112 {
            return Err(PrefixError(len));
        }
        let mask = u128::MAX << (128 - u32::from(len));
        let (inner, outer) = (inner.to_bits() & mask, outer.to_bits() & mask);
        let sum = |bits: u128| Sum::of(&bits.to_be_bytes()).fold();
        Ok(Self {
            inner,
            outer,
            len: len.into(),
            adjustment: add(sum(inner), !sum(outer)),
        })
    }

    /// Translates an inner address; `None` if it is not of the prefix, or no word of it can take up the difference.
    pub fn outward(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        self.translate(address, self.inner, self.outer, self.adjustment)
    }

    /// Translates an outer address back.
    pub fn inward(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        self.translate(address, self.outer, self.inner, !self.adjustment)
    }

    /// Translates the source of a packet that leaves, in place, and the destination of what it quotes if it is an ICMPv6
    /// error. No checksum changes. Returns false if an address of the prefix cannot be translated.
    pub fn leave(&self, frame: &mut [u8], layout: &Layout) -> bool {
        let network = usize::from(layout.network);
        let place = |frame: &mut [u8], at| {
            change(
                frame,
                at,
                |address| is_in(address, self.inner, self.len),
                |address| self.outward(address),
            )
        };
        place(frame, network + ipv6::SOURCE)
            && quote(layout).is_none_or(|at| place(frame, at + ipv6::DESTINATION))
    }

    /// Translates the destination of a packet that comes in, as [`leave`](Self::leave) does its source.
    pub fn enter(&self, frame: &mut [u8], layout: &Layout) -> bool {
        let network = usize::from(layout.network);
        let place = |frame: &mut [u8], at| {
            change(
                frame,
                at,
                |address| is_in(address, self.outer, self.len),
                |address| self.inward(address),
            )
        };
        place(frame, network + ipv6::DESTINATION)
            && quote(layout).is_none_or(|at| place(frame, at + ipv6::SOURCE))
    }

    /// Tells whether a packet is for an address of the outer prefix.
    pub fn is_for_outer(&self, frame: &[u8], layout: &Layout) -> bool {
        layout
            .ipv6_addresses(frame)
            .is_some_and(|(_, destination)| is_in(destination, self.outer, self.len))
    }

    /// Tells whether a packet is from an address of the inner prefix.
    pub fn is_from_inner(&self, frame: &[u8], layout: &Layout) -> bool {
        layout
            .ipv6_addresses(frame)
            .is_some_and(|(source, _)| is_in(source, self.inner, self.len))
    }

    fn translate(
        &self,
        address: Ipv6Addr,
        from: u128,
        to: u128,
        adjustment: u16,
    ) -> Option<Ipv6Addr> {
        let mask = u128::MAX << (128 - self.len);
        let bits = address.to_bits();
        if bits & mask != from {
            return None;
        }
        let shift = self.word(bits)?;
        let word = (bits >> shift) as u16;
        // RFC 6296 3.1: zero is written for all ones, so that the way back leads home.
        let changed = match add(word, adjustment) {
            0xffff => 0,
            other => other,
        };
        let moved = bits & !mask | to;
        let moved = moved & !(0xffff_u128 << shift) | u128::from(changed) << shift;
        Some(Ipv6Addr::from_bits(moved))
    }

    /// The place of the word that takes up the difference: bits from the right.
    fn word(&self, bits: u128) -> Option<u32> {
        let first = if self.len <= 48 {
            3
        } else {
            self.len.div_ceil(16).max(4)
        };
        (first..8)
            .map(|word| 112 - 16 * word)
            .find(|&shift| (bits >> shift) as u16 != 0xffff)
    }
}

fn is_in(address: Ipv6Addr, prefix: u128, len: u32) -> bool {
    address.to_bits() & u128::MAX << (128 - len) == prefix
}

/// Where the packet starts that an ICMPv6 error quotes.
fn quote(layout: &Layout) -> Option<usize> {
    layout
        .flags
        .contains(LayoutFlags::ICMP_ERROR)
        .then(|| layout.payload.into())
}

/// Changes the address at a place, if it is `meant`; false if it is and cannot be. What is not there is none.
fn change(
    frame: &mut [u8],
    at: usize,
    meant: impl Fn(Ipv6Addr) -> bool,
    to: impl Fn(Ipv6Addr) -> Option<Ipv6Addr>,
) -> bool {
    let Some(octets) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>) else {
        return true;
    };
    let address = Ipv6Addr::from(*octets);
    if !meant(address) {
        return true;
    }
    let Some(new) = to(address) else {
        return false;
    };
    *octets = new.octets();
    true
}

/// One's complement addition.
const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{framed, udp_frame};
    use proptest::prelude::*;
    use wire::checksum::{TransportChecksum, verify_transport};
    use wire::{Addresses, FlowKey};

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 6296 appendix B: FD01:0203:0405::/48 to 2001:0DB8:0001::/48.
        let pair = PrefixPair::new(
            "fd01:203:405::".parse().unwrap(),
            "2001:db8:1::".parse().unwrap(),
            48,
        )
        .unwrap();
        let inner: Ipv6Addr = "fd01:203:405:1::1234".parse().unwrap();
        let outer = pair.outward(inner).unwrap();
        assert_eq!(outer, "2001:db8:1:d550::1234".parse::<Ipv6Addr>().unwrap());
        assert_eq!(pair.inward(outer), Some(inner));
        assert_eq!(pair.outward("fd02::1".parse().unwrap()), None);
        assert!(PrefixPair::new(inner, outer, 113).is_err());
    }

    #[test]
    fn row_59_packets_and_quotes_keep_their_checksums() {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let (inner, outer) = (
            address("fd01:203:405:1::1234"),
            address("2001:db8:1:d550::1234"),
        );
        let pair = PrefixPair::new(inner, outer, 48).unwrap();
        let peer = address("2001:db8:ffff::9");
        let addresses = |source, destination| Addresses::V6 {
            source,
            destination,
        };
        let ends = |frame: &[u8]| {
            let layout = wire::parse(frame).unwrap();
            assert_eq!(verify_transport(&layout, frame), TransportChecksum::Good);
            layout.ipv6_addresses(frame).unwrap()
        };
        let mut out = udp_frame(addresses(inner, peer), (4000, 53), b"question");
        let layout = wire::parse(&out).unwrap();
        assert!(pair.is_from_inner(&out, &layout) && !pair.is_for_outer(&out, &layout));
        assert!(pair.leave(&mut out, &layout));
        assert_eq!(ends(&out), (outer, peer));
        // The error about it names the host that sent it, inside and out.
        let quote = layout.packet(&out).to_vec();
        let mut error = framed(addresses(peer, outer), 58, 8 + quote.len(), |bytes| {
            bytes[0] = 1;
            bytes[8..].copy_from_slice(&quote);
        });
        let layout = wire::parse(&error).unwrap();
        wire::checksum::fill_transport(&layout, &mut error);
        assert!(pair.is_for_outer(&error, &layout));
        assert!(pair.enter(&mut error, &layout));
        assert_eq!(ends(&error), (peer, inner));
        let quoted = FlowKey::from_icmp_quote(&layout, &error).unwrap();
        assert_eq!(quoted.source, inner.octets());
        // No word of this one can take up the difference: it does not pass.
        let stuck = address("fd01:203:405:ffff:ffff:ffff:ffff:ffff");
        let mut stuck = udp_frame(addresses(stuck, peer), (4000, 53), b"question");
        let layout = wire::parse(&stuck).unwrap();
        assert!(!pair.leave(&mut stuck, &layout));
    }

    proptest! {
        #[test]
        fn row_59_checksums_stay_right_and_the_way_back_leads_home(
            a: u128, b: u128, host: u128, len in 1_u8..=112,
        ) {
            let pair = PrefixPair::new(Ipv6Addr::from_bits(a), Ipv6Addr::from_bits(b), len).unwrap();
            let mask = u128::MAX << (128 - u32::from(len));
            let inner = Ipv6Addr::from_bits(a & mask | host & !mask);
            if let Some(outer) = pair.outward(inner) {
                prop_assert_eq!(outer.to_bits() & mask, b & mask);
                let sum = |address: Ipv6Addr| match Sum::of(&address.octets()).fold() {
                    0xffff => 0,
                    sum => sum,
                };
                prop_assert_eq!(sum(inner), sum(outer));
                prop_assert_eq!(pair.inward(outer), Some(inner));
            }
        }
    }
}
