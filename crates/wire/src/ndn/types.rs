//! TLV-TYPE numbers (NDN packet format v0.3, type registry).

/// True for a type that a decoder may not skip when it does not know it: odd, or at most 31 (TLV encoding,
/// "considerations for evolvability").
pub const fn is_critical(tlv_type: u32) -> bool {
    tlv_type & 1 == 1 || tlv_type <= 31
}

/// Interest packet.
pub const INTEREST: u32 = 0x05;
/// Data packet.
pub const DATA: u32 = 0x06;
/// Name.
pub const NAME: u32 = 0x07;

/// Component: generic.
pub const GENERIC: u16 = 8;
/// Component: SHA-256 digest of the whole Data packet, last in a full name, never in a Data packet.
pub const IMPLICIT_DIGEST: u16 = 1;
/// Component: SHA-256 digest of an Interest's parameters.
pub const PARAMETERS_DIGEST: u16 = 2;
/// Component: keyword of an application or protocol.
pub const KEYWORD: u16 = 32;
/// Component: segment number.
pub const SEGMENT: u16 = 50;
/// Component: byte offset.
pub const BYTE_OFFSET: u16 = 52;
/// Component: version number.
pub const VERSION: u16 = 54;
/// Component: Unix time in microseconds.
pub const TIMESTAMP: u16 = 56;
/// Component: sequence number.
pub const SEQUENCE_NUM: u16 = 58;

/// Interest: the name may be a prefix of the Data's.
pub const CAN_BE_PREFIX: u32 = 0x21;
/// Interest: caches may answer only with fresh Data.
pub const MUST_BE_FRESH: u32 = 0x12;
/// Interest: names of networks that have the Data.
pub const FORWARDING_HINT: u32 = 0x1e;
/// Interest: four bytes that tell Interests of one name apart.
pub const NONCE: u32 = 0x0a;
/// Interest: lifetime in ms.
pub const INTEREST_LIFETIME: u32 = 0x0c;
/// Interest: hops that are left.
pub const HOP_LIMIT: u32 = 0x22;
/// Interest: parameters.
pub const APPLICATION_PARAMETERS: u32 = 0x24;
/// Interest: how it is signed.
pub const INTEREST_SIGNATURE_INFO: u32 = 0x2c;
/// Interest: signature.
pub const INTEREST_SIGNATURE_VALUE: u32 = 0x2e;

/// Data: facts about the content.
pub const META_INFO: u32 = 0x14;
/// Data: content.
pub const CONTENT: u32 = 0x15;
/// Data: how it is signed.
pub const SIGNATURE_INFO: u32 = 0x16;
/// Data: signature.
pub const SIGNATURE_VALUE: u32 = 0x17;
/// MetaInfo: what the content is.
pub const CONTENT_TYPE: u32 = 0x18;
/// MetaInfo: ms for which the Data is fresh.
pub const FRESHNESS_PERIOD: u32 = 0x19;
/// MetaInfo: the last component of the final Data of a sequence.
pub const FINAL_BLOCK_ID: u32 = 0x1a;

/// Signature: algorithm.
pub const SIGNATURE_TYPE: u32 = 0x1b;
/// Signature: name or digest of the key.
pub const KEY_LOCATOR: u32 = 0x1c;
/// KeyLocator: digest of the key.
pub const KEY_DIGEST: u32 = 0x1d;
/// InterestSignatureInfo: random bytes.
pub const SIGNATURE_NONCE: u32 = 0x26;
/// Signature: Unix time in ms.
pub const SIGNATURE_TIME: u32 = 0x28;
/// InterestSignatureInfo: sequence number.
pub const SIGNATURE_SEQ_NUM: u32 = 0x2a;

/// Certificate: validity period.
pub const VALIDITY_PERIOD: u32 = 0xfd;
/// Certificate: first instant of validity.
pub const NOT_BEFORE: u32 = 0xfe;
/// Certificate: last instant of validity.
pub const NOT_AFTER: u32 = 0xff;
