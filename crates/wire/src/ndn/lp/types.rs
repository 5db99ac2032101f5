//! TLV-TYPE numbers of NDNLPv2.

/// The outermost element.
pub const LP_PACKET: u32 = 0x64;
/// The network packet or a part of it; last.
pub const FRAGMENT: u32 = 0x50;
/// Sequence number of a fragment (8 bytes).
pub const SEQUENCE: u32 = 0x51;
/// Index of a fragment.
pub const FRAG_INDEX: u32 = 0x52;
/// Number of fragments.
pub const FRAG_COUNT: u32 = 0x53;
/// Opaque bytes of an Interest that its Data or Nack brings back.
pub const PIT_TOKEN: u32 = 0x62;
/// The Interest in the fragment is refused.
pub const NACK: u32 = 0x0320;
/// Why it is refused.
pub const NACK_REASON: u32 = 0x0321;
/// The face that the packet came from (to a local application).
pub const INCOMING_FACE_ID: u32 = 0x032c;
/// The face that the Interest should leave by (from a local application).
pub const NEXT_HOP_FACE_ID: u32 = 0x0330;
/// How to cache the Data.
pub const CACHE_POLICY: u32 = 0x0334;
/// Inside CachePolicy.
pub const CACHE_POLICY_TYPE: u32 = 0x0335;
/// Congestion; 0 is none.
pub const CONGESTION_MARK: u32 = 0x0340;
/// A TxSequence that arrived (8 bytes); may repeat.
pub const ACK: u32 = 0x0344;
/// Sequence number for reliability (8 bytes).
pub const TX_SEQUENCE: u32 = 0x0348;
/// The Interest is not for discovery.
pub const NON_DISCOVERY: u32 = 0x034c;
/// A prefix announcement beside Data.
pub const PREFIX_ANNOUNCEMENT: u32 = 0x0350;

/// True for an unknown header field that must be ignored: 800 to 959 with the two low bits zero (NDNLPv2,
/// "unrecognized fields"), and the number that is reserved to be ignored everywhere.
pub const fn is_ignorable(tlv_type: u32) -> bool {
    (tlv_type >= 800 && tlv_type <= 959 && tlv_type & 0b11 == 0) || tlv_type == 126
}
