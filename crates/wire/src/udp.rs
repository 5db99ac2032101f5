//! UDP (RFC 768).

use crate::bytes::be16;
use crate::emit::{Addresses, BufferTooShort, length_u16};
use crate::{DropReason, ip_protocol};

/// Offset of the source port.
pub const SOURCE_PORT: usize = 0;
/// Offset of the destination port.
pub const DESTINATION_PORT: usize = 2;
/// Offset of the length of header and data.
pub const LENGTH: usize = 4;
/// Offset of the checksum.
pub const CHECKSUM: usize = 6;
/// Length of the header.
pub const HEADER_BYTES: usize = 8;

/// A datagram whose length field fits the packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks the length; `bytes` may be longer than the datagram (UDP options, RFC 9868).
    ///
    /// # Errors
    /// [`DropReason::TransportTruncated`], [`DropReason::TransportLength`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, rest) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(DropReason::TransportTruncated)?;
        let data_bytes = usize::from(be16!(header, LENGTH)).checked_sub(HEADER_BYTES);
        let payload = data_bytes.and_then(|bytes| rest.get(..bytes));
        Ok(Self {
            header,
            payload: payload.ok_or(DropReason::TransportLength)?,
        })
    }
    /// Returns the source port; 0 if the sender wants no reply.
    pub const fn source_port(&self) -> u16 {
        be16!(self.header, SOURCE_PORT)
    }
    /// Returns the destination port.
    pub const fn destination_port(&self) -> u16 {
        be16!(self.header, DESTINATION_PORT)
    }
    /// Returns the checksum; 0 if the sender made none.
    pub const fn checksum(&self) -> u16 {
        be16!(self.header, CHECKSUM)
    }
    /// Returns the data.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of a UDP header; length and checksum follow from the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl Repr {
    /// Reads the fields.
    pub const fn parse(view: &View<'_>) -> Self {
        Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
        }
    }
    /// Writes the header before the data, which stands in `datagram` from [`HEADER_BYTES`] on, and the
    /// checksum over both. Returns the length of the datagram.
    ///
    /// # Errors
    /// [`BufferTooShort`]: no room for the header, or more than 65,535 bytes.
    pub fn emit(
        &self,
        datagram: &mut [u8],
        addresses: &Addresses,
    ) -> Result<usize, BufferTooShort> {
        let length = length_u16(datagram)?;
        let header = datagram
            .first_chunk_mut::<HEADER_BYTES>()
            .ok_or(BufferTooShort)?;
        header[..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..6].copy_from_slice(&length.to_be_bytes());
        header[6..].copy_from_slice(&[0, 0]);
        let sum = addresses
            .pseudo_header(ip_protocol::UDP, length)
            .add_bytes(datagram);
        if let Some(header) = datagram.first_chunk_mut::<HEADER_BYTES>() {
            header[6..].copy_from_slice(&sum.udp_checksum().to_be_bytes());
        }
        Ok(length.into())
    }
}
