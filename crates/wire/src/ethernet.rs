//! Ethernet II frames (IEEE 802.3 3), without preamble and frame check sequence.

use crate::bytes::be16;
use crate::emit::BufferTooShort;
use crate::{DropReason, MacAddr};

/// Offset of the destination address.
pub const DESTINATION: usize = 0;
/// Offset of the source address.
pub const SOURCE: usize = 6;
/// Offset of the EtherType (or length, up to [`LENGTH_MAX`]).
pub const ETHER_TYPE: usize = 12;
/// Length of the header.
pub const HEADER_BYTES: usize = 14;
/// The highest value of the type field that is a length.
pub const LENGTH_MAX: u16 = 1500;
/// Length of the shortest frame that hardware sends, without frame check sequence.
pub const FRAME_BYTES_MIN: usize = 60;

/// Rewrites both addresses of a frame that is forwarded; false if there is no whole header.
#[inline]
pub fn rewrite(frame: &mut [u8], destination: MacAddr, source: MacAddr) -> bool {
    match frame.first_chunk_mut::<12>() {
        Some(addresses) => {
            addresses[..6].copy_from_slice(&destination.0);
            addresses[6..].copy_from_slice(&source.0);
            true
        }
        None => false,
    }
}

/// A frame whose header is whole.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks that the header is whole.
    ///
    /// # Errors
    /// [`DropReason::EthernetTruncated`].
    pub const fn new(frame: &'a [u8]) -> Result<Self, DropReason> {
        match frame.split_first_chunk() {
            Some((header, payload)) => Ok(Self { header, payload }),
            None => Err(DropReason::EthernetTruncated),
        }
    }
    /// Returns the destination address.
    pub const fn destination(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }
    /// Returns the source address.
    pub const fn source(&self) -> MacAddr {
        let [_, _, _, _, _, _, a, b, c, d, e, f, _, _] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }
    /// Returns the EtherType, that of a VLAN tag if there is one.
    pub const fn ether_type(&self) -> u16 {
        be16!(self.header, ETHER_TYPE)
    }
    /// Returns what follows the header.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of an Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Who is to receive.
    pub destination: MacAddr,
    /// Who sends.
    pub source: MacAddr,
    /// What the payload is, see [`crate::ether_type`].
    pub ether_type: u16,
}

impl Repr {
    /// Reads the fields.
    pub const fn parse(view: &View<'_>) -> Self {
        Self {
            destination: view.destination(),
            source: view.source(),
            ether_type: view.ether_type(),
        }
    }
    /// Writes the header to the start of `frame`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`] for less than [`HEADER_BYTES`].
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) -> Result<usize, BufferTooShort> {
        let header = frame
            .first_chunk_mut::<HEADER_BYTES>()
            .ok_or(BufferTooShort)?;
        header[..6].copy_from_slice(&self.destination.0);
        header[6..12].copy_from_slice(&self.source.0);
        header[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        Ok(HEADER_BYTES)
    }
}
