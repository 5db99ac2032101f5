//! TCP (RFC 9293): header and options.

pub mod option;

use crate::bytes::{be16, be32};
use crate::checksum::Sum;
use crate::emit::{Addresses, BufferTooShort, length_u16};
use crate::{DropReason, ip_protocol};
pub use option::{Options, SackBlocks, TcpOption};

/// Offset of the source port.
pub const SOURCE_PORT: usize = 0;
/// Offset of the destination port.
pub const DESTINATION_PORT: usize = 2;
/// Offset of the sequence number.
pub const SEQUENCE: usize = 4;
/// Offset of the acknowledgement number.
pub const ACKNOWLEDGEMENT: usize = 8;
/// Offset of the data offset (upper four bits, in units of four bytes) and the flags.
pub const OFFSET_FLAGS: usize = 12;
/// Offset of the window.
pub const WINDOW: usize = 14;
/// Offset of the checksum.
pub const CHECKSUM: usize = 16;
/// Offset of the urgent pointer.
pub const URGENT: usize = 18;
/// Length of the header without options.
pub const HEADER_BYTES: usize = 20;
/// Length of the longest options.
pub const OPTIONS_BYTES_MAX: usize = 40;

bitflags::bitflags! {
    /// The control bits of a header (RFC 9293 3.1), as they stand in the word at [`OFFSET_FLAGS`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u16 {
        /// The sender is done.
        const FIN = 1 << 0;
        /// Sequence numbers start here.
        const SYN = 1 << 1;
        /// The connection is reset.
        const RST = 1 << 2;
        /// Deliver to the application without delay.
        const PSH = 1 << 3;
        /// The acknowledgement number counts.
        const ACK = 1 << 4;
        /// The urgent pointer counts.
        const URG = 1 << 5;
        /// Congestion was echoed (RFC 3168).
        const ECE = 1 << 6;
        /// The congestion window was reduced (RFC 3168).
        const CWR = 1 << 7;
        /// Accurate ECN (RFC 9768), formerly the nonce sum.
        const AE = 1 << 8;
    }
}

/// A segment whose header, options included, is whole; the checksum is not checked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_BYTES],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks the data offset; `segment` ends with the packet.
    ///
    /// # Errors
    /// [`DropReason::TransportTruncated`], [`DropReason::TransportLength`] (a data offset below five).
    pub fn new(segment: &'a [u8]) -> Result<Self, DropReason> {
        let (header, rest) = segment
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(DropReason::TransportTruncated)?;
        let options_bytes = (usize::from(header[OFFSET_FLAGS] >> 4) * 4)
            .checked_sub(HEADER_BYTES)
            .ok_or(DropReason::TransportLength)?;
        let (options, payload) = rest
            .split_at_checked(options_bytes)
            .ok_or(DropReason::TransportTruncated)?;
        Ok(Self {
            header,
            options,
            payload,
        })
    }
    /// Returns the source port.
    pub const fn source_port(&self) -> u16 {
        be16!(self.header, SOURCE_PORT)
    }
    /// Returns the destination port.
    pub const fn destination_port(&self) -> u16 {
        be16!(self.header, DESTINATION_PORT)
    }
    /// Returns the sequence number of the first byte of data, or of the SYN.
    pub const fn sequence(&self) -> u32 {
        be32!(self.header, SEQUENCE)
    }
    /// Returns the acknowledgement number; it counts with [`Flags::ACK`] only.
    pub const fn acknowledgement(&self) -> u32 {
        be32!(self.header, ACKNOWLEDGEMENT)
    }
    /// Returns the control bits; the three reserved bits are left out.
    pub const fn flags(&self) -> Flags {
        Flags::from_bits_truncate(be16!(self.header, OFFSET_FLAGS))
    }
    /// Returns the window, not scaled.
    pub const fn window(&self) -> u16 {
        be16!(self.header, WINDOW)
    }
    /// Returns the checksum as it stands.
    pub const fn checksum(&self) -> u16 {
        be16!(self.header, CHECKSUM)
    }
    /// Returns the urgent pointer; it counts with [`Flags::URG`] only.
    pub const fn urgent(&self) -> u16 {
        be16!(self.header, URGENT)
    }
    /// Walks the options.
    pub const fn options(&self) -> Options<'a> {
        Options::new(self.options)
    }
    /// Returns the data.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of a TCP header; data offset and checksum follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, in the order to be written; the rest is padded with end-of-list.
    pub options: &'a [TcpOption<'a>],
}

impl Repr<'_> {
    /// Returns the length of the header, options and padding included.
    pub fn bytes(&self) -> usize {
        let options: usize = self.options.iter().map(TcpOption::bytes).sum();
        HEADER_BYTES + options.next_multiple_of(4)
    }
    /// Writes the header before the data, which stands in `segment` from [`Repr::bytes`] on, and the
    /// checksum over the pseudo-header and both. Returns the length of the header.
    ///
    /// # Errors
    /// [`BufferTooShort`]: no room for the header, options over 40 bytes, or more than 65,535 bytes in all.
    pub fn emit(&self, segment: &mut [u8], addresses: &Addresses) -> Result<usize, BufferTooShort> {
        let length = length_u16(segment)?;
        let bytes = self.bytes();
        if bytes > HEADER_BYTES + OPTIONS_BYTES_MAX || bytes > segment.len() {
            return Err(BufferTooShort);
        }
        let (header, rest) = segment
            .split_first_chunk_mut::<HEADER_BYTES>()
            .ok_or(BufferTooShort)?;
        let offset_flags = (bytes as u16 / 4) << 12 | self.flags.bits();
        header[..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        header[12..14].copy_from_slice(&offset_flags.to_be_bytes());
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..18].copy_from_slice(&[0, 0]);
        header[18..].copy_from_slice(&self.urgent.to_be_bytes());
        let mut options = rest.get_mut(..bytes - HEADER_BYTES).ok_or(BufferTooShort)?;
        for option in self.options {
            options = option.emit(options).ok_or(BufferTooShort)?;
        }
        options.fill(0);
        let sum = addresses
            .pseudo_header(ip_protocol::TCP, length)
            .add_bytes(segment);
        if let Some(header) = segment.first_chunk_mut::<HEADER_BYTES>() {
            header[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
        }
        Ok(bytes)
    }
}

/// The header of nearly all segments of an established connection: without options, or with timestamps alone, after two
/// NOPs (RFC 7323 A). Writes what [`Repr`] writes for these, in a fraction of the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window, not scaled.
    pub window: u16,
    /// Our clock, and the peer's as we saw it last.
    pub timestamps: Option<(u32, u32)>,
}

impl Plain {
    /// Returns the length of the header.
    #[inline]
    pub const fn bytes(&self) -> usize {
        HEADER_BYTES + if self.timestamps.is_some() { 12 } else { 0 }
    }
    /// Writes the header before the data, as [`Repr::emit`]. Returns the length of the header.
    ///
    /// # Errors
    /// [`BufferTooShort`]: no room for the header, or more than 65,535 bytes in all.
    #[inline]
    pub fn emit(&self, segment: &mut [u8], addresses: &Addresses) -> Result<usize, BufferTooShort> {
        let length = length_u16(segment)?;
        let offset_flags = (self.bytes() as u16 / 4) << 12 | self.flags.bits();
        let [ports, seq, ack, control] = [
            u32::from(self.source_port) << 16 | u32::from(self.destination_port),
            self.sequence,
            self.acknowledgement,
            u32::from(offset_flags) << 16 | u32::from(self.window),
        ];
        let sum = addresses.pseudo_header(ip_protocol::TCP, length);
        match self.timestamps {
            Some((value, echo)) => {
                let stamps = 0x0101_080a;
                write_words(
                    segment,
                    [ports, seq, ack, control, 0, stamps, value, echo],
                    sum,
                )
            }
            None => write_words(segment, [ports, seq, ack, control, 0], sum),
        }
        .ok_or(BufferTooShort)?;
        Ok(self.bytes())
    }
}

/// Writes a header of `N` words and its checksum, to which `sum` is that of the pseudo-header.
#[inline(always)]
fn write_words<const N: usize>(segment: &mut [u8], mut words: [u32; N], sum: Sum) -> Option<()> {
    let (header, data) = segment.split_at_mut_checked(N * 4)?;
    let sum = words
        .iter()
        .fold(sum.add_bytes(data), |sum, word| sum.add_u32(*word));
    *words.get_mut(CHECKSUM / 4)? = u32::from(sum.checksum()) << 16;
    let (places, _) = header.as_chunks_mut::<4>();
    for (place, word) in places.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn plain_headers_are_those_of_repr() {
        let addresses = [
            Addresses::V4 {
                source: [192, 0, 2, 1].into(),
                destination: [198, 51, 100, 255].into(),
            },
            Addresses::V6 {
                source: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
                destination: [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2].into(),
            },
        ];
        for (length, timestamps) in [
            (0, None),
            (1, None),
            (0, Some((1, 2))),
            (1448, Some((u32::MAX, 0xdead_beef))),
            (1449, Some((7, u32::MAX))),
        ] {
            for ends in &addresses {
                let plain = Plain {
                    source_port: 65_535,
                    destination_port: 80,
                    sequence: u32::MAX - 1,
                    acknowledgement: 0x8000_0001,
                    flags: Flags::ACK | Flags::PSH | Flags::CWR,
                    window: 0xfffe,
                    timestamps,
                };
                let options = match timestamps {
                    Some((value, echo)) => vec![
                        TcpOption::NoOperation,
                        TcpOption::NoOperation,
                        TcpOption::Timestamps { value, echo },
                    ],
                    None => vec![],
                };
                let repr = Repr {
                    source_port: plain.source_port,
                    destination_port: plain.destination_port,
                    sequence: plain.sequence,
                    acknowledgement: plain.acknowledgement,
                    flags: plain.flags,
                    window: plain.window,
                    urgent: 0,
                    options: &options,
                };
                let mut fast = vec![0x5a; plain.bytes() + length];
                let mut slow = fast.clone();
                assert_eq!(plain.emit(&mut fast, ends), repr.emit(&mut slow, ends));
                assert_eq!(fast, slow);
            }
        }
        let short = Plain {
            source_port: 1,
            destination_port: 2,
            sequence: 0,
            acknowledgement: 0,
            flags: Flags::ACK,
            window: 0,
            timestamps: Some((0, 0)),
        };
        let mut buffer = [0; 31];
        assert_eq!(short.emit(&mut buffer, &addresses[0]), Err(BufferTooShort));
    }
}
