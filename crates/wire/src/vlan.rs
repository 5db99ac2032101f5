//! VLAN tags (IEEE 802.1Q 9): what follows the EtherType 0x8100, 0x88a8 or 0x9100.

use crate::DropReason;
use crate::bytes::be16;
use crate::emit::BufferTooShort;
use crate::numbers::ether_type;

/// Offset of the tag control information, from the end of the EtherType that announced the tag.
pub const TCI: usize = 0;
/// Offset of the EtherType of what follows.
pub const ETHER_TYPE: usize = 2;
/// Length of a tag.
pub const TAG_BYTES: usize = 4;
/// The bits of the tag control information that are the VLAN identifier.
pub const ID_MASK: u16 = 0x0fff;

/// Says whether the EtherType announces a VLAN tag.
#[inline]
pub const fn is_tag(ether_type: u16) -> bool {
    matches!(
        ether_type,
        ether_type::VLAN | ether_type::VLAN_SERVICE | ether_type::VLAN_OLD
    )
}

/// A tag that is whole, and what follows it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    tag: &'a [u8; TAG_BYTES],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks that the tag is whole; `bytes` starts behind the EtherType that announced it.
    ///
    /// # Errors
    /// [`DropReason::VlanTruncated`].
    pub const fn new(bytes: &'a [u8]) -> Result<Self, DropReason> {
        match bytes.split_first_chunk() {
            Some((tag, payload)) => Ok(Self { tag, payload }),
            None => Err(DropReason::VlanTruncated),
        }
    }
    /// Returns the whole tag control information: priority, drop eligibility, identifier.
    pub const fn tci(&self) -> u16 {
        be16!(self.tag, TCI)
    }
    /// Returns the EtherType of what follows the tag.
    pub const fn ether_type(&self) -> u16 {
        be16!(self.tag, ETHER_TYPE)
    }
    /// Returns what follows the tag.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// VLAN identifier, 0 to 4095; 0 means that only the priority counts.
    pub id: u16,
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// EtherType of what follows the tag.
    pub ether_type: u16,
}

impl Repr {
    /// Reads the fields.
    pub const fn parse(view: &View<'_>) -> Self {
        let tci = view.tci();
        Self {
            id: tci & ID_MASK,
            priority: (tci >> 13) as u8,
            drop_eligible: tci & 0x1000 != 0,
            ether_type: view.ether_type(),
        }
    }
    /// Returns the tag control information; bits that do not fit their field are cut off.
    pub const fn tci(&self) -> u16 {
        (self.priority as u16) << 13 | (self.drop_eligible as u16) << 12 | self.id & ID_MASK
    }
    /// Writes the tag to the start of `bytes`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`] for less than [`TAG_BYTES`].
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BufferTooShort> {
        let tag = bytes.first_chunk_mut::<TAG_BYTES>().ok_or(BufferTooShort)?;
        tag[..2].copy_from_slice(&self.tci().to_be_bytes());
        tag[2..].copy_from_slice(&self.ether_type.to_be_bytes());
        Ok(TAG_BYTES)
    }
}
