//! NDNLPv2, the link protocol: header fields around a network packet or a fragment of one.
//!
//! Reassembly and reliability, which need memory and time, are in the `ndn` crate (`ndn::link`).

mod fragment;
mod header;
pub mod types;

pub use fragment::{Fragments, UnfitMtu};
pub use header::{LpHeader, NackReason};

use super::tlv::{Elements, Tlv};
use super::walk::fixed;
use super::{DecodeError, types as ndn_types};

/// The longest PIT token (bytes).
pub const PIT_TOKEN_BYTES_MAX: usize = 32;

/// A link packet, borrowed from its bytes: an LpPacket, or a bare Interest or Data.
///
/// ```
/// use wire::ndn::lp::{LpHeader, LpPacket};
/// let interest = [5, 7, 7, 3, 8, 1, b'a', 0x21, 0];
/// let header = LpHeader { pit_token: Some(b"tok"), ..LpHeader::default() };
/// let mut buffer = [0; 64];
/// let length = header.encode(&[], &interest, &mut buffer).unwrap();
/// let packet = LpPacket::parse(&buffer[..length])?;
/// assert_eq!(packet.header.pit_token, Some(&b"tok"[..]));
/// assert_eq!(packet.fragment, Some(&interest[..]));
/// # Ok::<(), wire::ndn::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LpPacket<'a> {
    /// Header fields that occur once.
    pub header: LpHeader<'a>,
    /// The network packet, or a fragment of it; `None` is IDLE, which only carries header fields.
    pub fragment: Option<&'a [u8]>,
    /// The bytes of the header fields, for [`acks`](Self::acks).
    fields: &'a [u8],
}

impl<'a> LpPacket<'a> {
    /// Reads a link packet that fills `bytes`.
    ///
    /// # Errors
    /// Any [`DecodeError`]; [`DecodeError::WrongType`] if it is neither LpPacket, Interest nor Data.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let packet = Tlv::read_exact(bytes)?;
        match packet.tlv_type {
            ndn_types::INTEREST | ndn_types::DATA => Ok(Self {
                header: LpHeader::default(),
                fragment: Some(bytes),
                fields: &[],
            }),
            types::LP_PACKET => Self::parse_fields(packet.value),
            _ => Err(DecodeError::WrongType),
        }
    }

    fn parse_fields(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut packet = Self {
            header: LpHeader::default(),
            fragment: None,
            fields: value,
        };
        let mut seen = 0_u32;
        for element in Elements::new(value) {
            let element = element?;
            if packet.fragment.is_some() {
                // Fragment is the last field.
                return Err(DecodeError::Critical);
            }
            if element.tlv_type == types::FRAGMENT {
                packet.fragment = Some(element.value);
                continue;
            }
            match packet.header.take(&element)? {
                Some(field) if seen & field != 0 => return Err(DecodeError::Critical),
                Some(field) => seen |= field,
                None => {}
            }
        }
        // An empty Fragment is no fragment.
        packet.fragment = packet.fragment.filter(|fragment| !fragment.is_empty());
        Ok(packet)
    }

    /// Walks the acknowledged TxSequences.
    pub fn acks(&self) -> impl Iterator<Item = u64> + use<'a> {
        Elements::new(self.fields)
            .flatten()
            .filter(|element| element.tlv_type == types::ACK)
            .filter_map(|element| fixed::<8>(&element).ok().map(|v| u64::from_be_bytes(*v)))
    }
}

#[cfg(test)]
mod tests;
