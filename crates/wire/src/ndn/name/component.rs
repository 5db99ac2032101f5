//! One component of a name.

use core::cmp::Ordering;

use crate::ndn::tlv::{self, Tlv};
use crate::ndn::{DecodeError, types};

/// One component of a name, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Component<'a> {
    /// TLV-TYPE, in 1..=65535.
    pub component_type: u16,
    /// TLV-VALUE.
    pub value: &'a [u8],
    /// The whole component: type, length and value.
    pub bytes: &'a [u8],
    /// Where the component ends in the name's value; its own length outside a name.
    pub end: usize,
}

impl<'a> Component<'a> {
    /// Reads the component at the start of `bytes`; more bytes may follow.
    ///
    /// # Errors
    /// As [`Tlv::read`], [`DecodeError::ComponentType`], or [`DecodeError::DigestLength`].
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        // One byte of type and one of length are by far the most common.
        let (component_type, value, bytes) = match *bytes {
            [component_type @ 1..=252, length @ 0..=252, ref rest @ ..] => {
                let length = usize::from(length);
                let value = rest.get(..length).ok_or(DecodeError::Truncated)?;
                let bytes = bytes.get(..2 + length).ok_or(DecodeError::Truncated)?;
                (u16::from(component_type), value, bytes)
            }
            _ => {
                let element = Tlv::read(bytes)?;
                let component_type =
                    u16::try_from(element.tlv_type).map_err(|_| DecodeError::ComponentType)?;
                (component_type, element.value, element.bytes)
            }
        };
        if component_type <= types::PARAMETERS_DIGEST && value.len() != 32 {
            return Err(DecodeError::DigestLength);
        }
        Ok(Self {
            component_type,
            value,
            bytes,
            end: bytes.len(),
        })
    }

    /// True for a generic component.
    pub const fn is_generic(&self) -> bool {
        self.component_type == types::GENERIC
    }

    /// Returns the value as a non-negative integer, which typed components (segment, version, ...) hold.
    pub fn number(&self) -> Option<u64> {
        tlv::read_integer(self.value).ok()
    }

    /// Returns the number of a component of type `component_type`.
    pub fn number_of(&self, component_type: u16) -> Option<u64> {
        if self.component_type != component_type {
            return None;
        }
        self.number()
    }

    /// Compares in canonical order: type, then length, then bytes.
    pub fn canonical_cmp(&self, other: &Component<'_>) -> Ordering {
        self.component_type
            .cmp(&other.component_type)
            .then(self.value.len().cmp(&other.value.len()))
            .then(self.value.cmp(other.value))
    }
}
