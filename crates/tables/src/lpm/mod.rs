//! Longest-prefix match: IPv4 by a table of the first 24 bits and groups of 256 for the rest, IPv6 by a
//! multibit trie with bitmaps (poptrie).
//!
//! Values are next-hop numbers below [`MAX_VALUES`]; what they mean is the caller's business.

mod runs;
mod v4;
mod v6;
mod v6_writer;

pub use v4::{Lpm4, Lpm4Writer};
pub use v6::Lpm6;
pub use v6_writer::Lpm6Writer;

use core::net::{Ipv4Addr, Ipv6Addr};

/// Values (next-hop numbers) are below this: 24 bits.
pub const MAX_VALUES: u32 = 1 << 24;

/// What a batched lookup writes for an address that no prefix covers.
pub const NO_ROUTE: u32 = u32::MAX;

/// Number of addresses that a batched lookup keeps in flight.
pub(crate) const STAGE: usize = 32;

/// What can be wrong with a prefix or with a table of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LpmError {
    /// The prefix is longer than the address.
    #[error("prefix length {0} is longer than the address")]
    Length(u8),
    /// Bits after the prefix length are set.
    #[error("address bits after the prefix length are set; mask them")]
    HostBits,
    /// The value does not fit 24 bits.
    #[error("value {0} does not fit 24 bits")]
    Value(u32),
    /// Every group for prefixes longer than 24 bits is in use (or waits for its grace period).
    #[error("no free group for prefixes longer than 24 bits; make the table with more groups")]
    GroupsFull,
    /// Nodes or leaves of the IPv6 trie are out (or wait for their grace period).
    #[error("no room for more nodes of the IPv6 table; make it with more spare nodes")]
    NodesFull,
}

/// An IPv4 prefix: the address in host order, bits after `len` zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix4 {
    len: u8,
    address: u32,
}

impl Prefix4 {
    /// Makes a prefix of `len` bits.
    ///
    /// # Errors
    /// If `len` is above 32, or bits after it are set.
    pub fn new(address: Ipv4Addr, len: u8) -> Result<Self, LpmError> {
        if len > 32 {
            return Err(LpmError::Length(len));
        }
        let address = u32::from(address);
        if address & !mask4(len) != 0 {
            return Err(LpmError::HostBits);
        }
        Ok(Self { len, address })
    }

    /// Makes a prefix of `len` bits (at most 32) and clears the bits after it.
    pub fn masked(address: Ipv4Addr, len: u8) -> Self {
        let len = len.min(32);
        Self {
            len,
            address: u32::from(address) & mask4(len),
        }
    }

    /// Returns the address.
    pub fn address(self) -> Ipv4Addr {
        self.address.into()
    }

    /// Returns the length in bits.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a prefix length, not a collection's"
    )]
    pub fn len(self) -> u8 {
        self.len
    }
}

/// An IPv6 prefix: bits after `len` zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix6 {
    address: u128,
    len: u8,
}

impl Prefix6 {
    /// Makes a prefix of `len` bits.
    ///
    /// # Errors
    /// If `len` is above 128, or bits after it are set.
    pub fn new(address: Ipv6Addr, len: u8) -> Result<Self, LpmError> {
        if len > 128 {
            return Err(LpmError::Length(len));
        }
        let address = u128::from(address);
        if address & !mask6(len) != 0 {
            return Err(LpmError::HostBits);
        }
        Ok(Self { address, len })
    }

    /// Makes a prefix of `len` bits (at most 128) and clears the bits after it.
    pub fn masked(address: Ipv6Addr, len: u8) -> Self {
        let len = len.min(128);
        Self {
            address: u128::from(address) & mask6(len),
            len,
        }
    }

    /// Returns the address.
    pub fn address(self) -> Ipv6Addr {
        self.address.into()
    }

    /// Returns the length in bits.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a prefix length, not a collection's"
    )]
    pub fn len(self) -> u8 {
        self.len
    }
}

const fn mask4(len: u8) -> u32 {
    if len == 0 { 0 } else { u32::MAX << (32 - len) }
}

const fn mask6(len: u8) -> u128 {
    if len == 0 {
        0
    } else {
        u128::MAX << (128 - len)
    }
}

/// How many cases a slow property test runs: `cases`, or what `PROPTEST_CASES` says.
#[cfg(all(test, not(any(loom, shuttle))))]
fn cases(cases: u32) -> proptest::test_runner::Config {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => proptest::test_runner::Config::default(),
        None => proptest::test_runner::Config::with_cases(cases),
    }
}
