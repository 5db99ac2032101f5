//! The options of a TCP header.

use crate::DropReason;
use crate::bytes::{be16, be32, chunk_mut};

/// The most SACK blocks that fit a header.
pub const SACK_BLOCKS_MAX: usize = 4;

/// The magic number of Fast Open in the shared experimental option (RFC 7413 A).
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Kind 1: padding. Written where asked for; passed over when reading.
    NoOperation,
    /// Kind 2: the largest segment that the sender takes, data bytes (RFC 9293 3.7.1).
    MaximumSegmentSize(u16),
    /// Kind 3: the shift of the sender's window (RFC 7323 2.2); more than 14 counts as 14.
    WindowScale(u8),
    /// Kind 4: the sender understands SACK (RFC 2018 2).
    SackPermitted,
    /// Kind 5: blocks received out of order (RFC 2018 3), or a duplicate (RFC 2883).
    Sack(SackBlocks),
    /// Kind 8: timestamps (RFC 7323 3.2).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The receiver's clock, as the sender saw it last.
        echo: u32,
    },
    /// Kind 19: MD5 signature (RFC 2385), opaque.
    Md5(&'a [u8; 16]),
    /// Kind 28: user timeout (RFC 5482): granularity bit and 15 bits of time.
    UserTimeout(u16),
    /// Kind 29: authentication (RFC 5925): key identifiers and code, opaque.
    Authentication(&'a [u8]),
    /// Kind 34: Fast Open cookie, empty for a request (RFC 7413 4.1.1).
    FastOpen(&'a [u8]),
    /// Kind 254 with the Fast Open magic number: as above, in the form from before the RFC (RFC 7413 A).
    FastOpenExperimental(&'a [u8]),
    /// Any other option.
    Other {
        /// Its kind, 0 and 1 excluded.
        kind: u8,
        /// What follows kind and length.
        data: &'a [u8],
    },
}

/// The blocks of a SACK option: [left, right) edges, sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// Takes the first four of the blocks.
    pub fn new(blocks: &[(u32, u32)]) -> Self {
        let mut this = Self::default();
        for (to, from) in this.blocks.iter_mut().zip(blocks) {
            *to = *from;
            this.count += 1;
        }
        this
    }
    /// Returns the blocks, in the order of the option.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        self.blocks.get(..self.count.into()).unwrap_or_default()
    }

    fn parse(data: &[u8]) -> Option<Self> {
        let (blocks, rest) = data.as_chunks::<8>();
        if !rest.is_empty() || blocks.is_empty() || blocks.len() > SACK_BLOCKS_MAX {
            return None;
        }
        let mut this = Self::default();
        for (to, from) in this.blocks.iter_mut().zip(blocks) {
            *to = (be32!(from, 0), be32!(from, 4));
            this.count += 1;
        }
        Some(this)
    }
}

impl<'a> TcpOption<'a> {
    /// Returns the length of the option, kind and length bytes included.
    pub fn bytes(&self) -> usize {
        match self {
            Self::NoOperation => 1,
            Self::SackPermitted => 2,
            Self::WindowScale(_) => 3,
            Self::MaximumSegmentSize(_) | Self::UserTimeout(_) => 4,
            Self::Timestamps { .. } => 10,
            Self::Md5(_) => 18,
            Self::Sack(blocks) => 2 + blocks.as_slice().len() * 8,
            Self::FastOpenExperimental(cookie) => 4 + cookie.len(),
            Self::Authentication(data) | Self::FastOpen(data) | Self::Other { data, .. } => {
                2 + data.len()
            }
        }
    }

    /// Reads an option from its kind and what follows its length; `None` if the length is wrong for the kind.
    fn parse(kind: u8, data: &'a [u8]) -> Option<Self> {
        Some(match (kind, data.len()) {
            (2, 2) => Self::MaximumSegmentSize(be16!(data.first_chunk::<2>()?, 0)),
            (3, 1) => Self::WindowScale(*data.first()?),
            (4, 0) => Self::SackPermitted,
            (5, _) => Self::Sack(SackBlocks::parse(data)?),
            (8, 8) => {
                let data = data.first_chunk::<8>()?;
                Self::Timestamps {
                    value: be32!(data, 0),
                    echo: be32!(data, 4),
                }
            }
            (19, 16) => Self::Md5(data.first_chunk()?),
            (28, 2) => Self::UserTimeout(be16!(data.first_chunk::<2>()?, 0)),
            // RFC 5925 2.2: two key identifiers at least.
            (29, 2..) => Self::Authentication(data),
            (2 | 3 | 4 | 8 | 19 | 28 | 29, _) => return None,
            (34, _) => Self::FastOpen(data),
            (254, _) => match data.strip_prefix(&FAST_OPEN_MAGIC) {
                Some(cookie) => Self::FastOpenExperimental(cookie),
                None => Self::Other { kind, data },
            },
            _ => Self::Other { kind, data },
        })
    }

    /// Writes the option to the start of `buffer`; returns what is left of it, `None` if it does not fit.
    pub(super) fn emit<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b mut [u8]> {
        let (option, rest) = buffer.split_at_mut_checked(self.bytes())?;
        if *self == Self::NoOperation {
            option.fill(1);
            return Some(rest);
        }
        let length = u8::try_from(option.len()).ok()?;
        let (head, data) = option.split_first_chunk_mut::<2>()?;
        let kind = match *self {
            Self::NoOperation => 1,
            Self::MaximumSegmentSize(size) => {
                data.copy_from_slice(&size.to_be_bytes());
                2
            }
            Self::WindowScale(shift) => {
                data.fill(shift);
                3
            }
            Self::SackPermitted => 4,
            Self::Sack(blocks) => {
                let (chunks, _) = data.as_chunks_mut::<8>();
                for (chunk, (left, right)) in chunks.iter_mut().zip(blocks.as_slice()) {
                    *chunk = (u64::from(*left) << 32 | u64::from(*right)).to_be_bytes();
                }
                5
            }
            Self::Timestamps { value, echo } => {
                let both = u64::from(value) << 32 | u64::from(echo);
                data.copy_from_slice(&both.to_be_bytes());
                8
            }
            Self::Md5(digest) => {
                data.copy_from_slice(digest);
                19
            }
            Self::UserTimeout(value) => {
                data.copy_from_slice(&value.to_be_bytes());
                28
            }
            Self::Authentication(bytes) => {
                data.copy_from_slice(bytes);
                29
            }
            Self::FastOpen(cookie) => {
                data.copy_from_slice(cookie);
                34
            }
            Self::FastOpenExperimental(cookie) => {
                *chunk_mut(data, 0)? = FAST_OPEN_MAGIC;
                data.get_mut(2..)?.copy_from_slice(cookie);
                254
            }
            Self::Other { kind, data: bytes } => {
                data.copy_from_slice(bytes);
                kind
            }
        };
        *head = [kind, length];
        Some(rest)
    }
}

/// Walks the options of a header; no-operations are passed over, end-of-list ends the walk.
///
/// A length that is less than two, runs past the header, or is wrong for its kind yields
/// [`DropReason::TcpOptions`] once and ends the walk (RFC 9293 MUST-7: no crash, whatever the length).
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    /// Starts at the first byte after the fixed header; `bytes` ends with the header.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<TcpOption<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [0, ..] => return None,
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] => {
                    let parsed = self.rest.split_at_checked(length.into()).and_then(|split| {
                        let option = TcpOption::parse(kind, split.0.get(2..)?)?;
                        Some((option, split.1))
                    });
                    let Some((option, rest)) = parsed else { break };
                    self.rest = rest;
                    return Some(Ok(option));
                }
                _ => break,
            }
        }
        self.rest = &[];
        Some(Err(DropReason::TcpOptions))
    }
}
