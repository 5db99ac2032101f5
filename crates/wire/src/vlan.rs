//! VLAN tags (IEEE 802.1Q 9): what follows the EtherType 0x8100, 0x88a8 or 0x9100.

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
