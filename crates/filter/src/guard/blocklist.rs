//! Prefixes from which, and to which, nothing passes: feeds of a million entries, swapped as a whole.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use tables::lpm::{Lpm4, Lpm4Writer, Lpm6, LpmError, Prefix4, Prefix6};
use tables::quiescent::Domain;

/// What a feed holds: prefixes of both families with the feed's number, and the lines that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    /// IPv4 prefixes.
    pub v4: Vec<(Prefix4, u32)>,
    /// IPv6 prefixes.
    pub v6: Vec<(Prefix6, u32)>,
    /// Numbers of the lines that are no prefix, from 1.
    pub bad_lines: Vec<usize>,
}

/// A blocklist: immutable; workers hold one by `Arc`, and get the next one the same way.
#[derive(Debug)]
pub struct Blocklist {
    v4: Arc<Lpm4>,
    v6: Lpm6,
    len: usize,
}

impl Blocklist {
    /// Builds a list; each prefix has the number of the feed it came from (below 2^23), for reports.
    ///
    /// # Errors
    /// If a number is too large.
    pub fn build(v4: &[(Prefix4, u32)], v6: &[(Prefix6, u32)]) -> Result<Self, LpmError> {
        let writer = Lpm4Writer::build(v4, 0, Domain::new(0))?;
        let v6 = Lpm6::build(v6)?;
        Ok(Self {
            len: writer.len() + v6.len(),
            v4: writer.table(),
            v6,
        })
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the feed that lists an address (IPv4 mapped, as in [`wire::FlowKey`]).
    #[inline]
    pub fn find(&self, address: &[u8; 16]) -> Option<u32> {
        let bits = u128::from_be_bytes(*address);
        if bits >> 32 == 0xffff {
            self.v4.lookup(Ipv4Addr::from_bits(bits as u32))
        } else {
            self.v6.lookup(Ipv6Addr::from_bits(bits))
        }
    }

    /// Reads a list as feeds give it: one address or prefix a line, `#` and `;` begin comments. Returns the prefixes
    /// of both families, and the numbers of the lines that could not be read.
    pub fn read(text: &str, feed: u32) -> Feed {
        let (mut v4, mut v6, mut bad) = (Vec::new(), Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let entry = line.split(['#', ';']).next().unwrap_or("").trim();
            if entry.is_empty() {
                continue;
            }
            let (address, len) = match entry.split_once('/') {
                Some((address, len)) => (address, len.parse::<u8>().ok()),
                None => (entry, Some(128)),
            };
            let whole = !entry.contains('/');
            let parsed = (
                address.parse::<Ipv4Addr>(),
                address.parse::<Ipv6Addr>(),
                len,
            );
            match parsed {
                (Ok(address), _, Some(len)) if whole || len <= 32 => {
                    v4.push((Prefix4::masked(address, len.min(32)), feed));
                }
                (_, Ok(address), Some(len)) if len <= 128 => {
                    v6.push((Prefix6::masked(address, len), feed));
                }
                _ => bad.push(number + 1),
            }
        }
        Feed {
            v4,
            v6,
            bad_lines: bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::key::mapped;

    #[test]
    fn row_91_lists_are_read_and_match() {
        let text =
            "# feed\n192.0.2.0/24\n198.51.100.7 ; one\n2001:db8::/32\nnonsense\n10.0.0.0/40\n";
        let Feed {
            v4,
            v6,
            bad_lines: bad,
        } = Blocklist::read(text, 3);
        assert_eq!((v4.len(), v6.len(), &bad[..]), (2, 1, &[5, 6][..]));
        let list = Blocklist::build(&v4, &v6).unwrap();
        assert_eq!(list.len(), 3);
        assert_eq!(list.find(&mapped(0xc000_02ff)), Some(3));
        assert_eq!(list.find(&mapped(0xc633_6407)), Some(3));
        assert_eq!(list.find(&mapped(0xc633_6408)), None);
        assert_eq!(
            list.find(&(0x2001_0db8_u128 << 96 | 9).to_be_bytes()),
            Some(3)
        );
        assert_eq!(list.find(&(0x2001_0db9_u128 << 96).to_be_bytes()), None);
    }
}
