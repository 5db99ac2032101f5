//! NDN packet format v0.3 and the link protocol NDNLPv2.
//!
//! All views borrow the packet's bytes; nothing here allocates (the owned [`name::Name`] needs the feature
//! `alloc`) or panics, whatever the bytes. Start at [`lp::LpPacket`], which every link carries, then
//! [`Interest`] and [`Data`].

mod data;
pub mod digest;
mod error;
mod interest;
mod interest_fields;
pub mod lp;
pub mod name;
mod signature;
pub mod tlv;
pub mod types;
mod walk;

pub use data::{Data, DataFields, MetaInfo, content_type};
pub use error::DecodeError;
pub use interest::{DEFAULT_LIFETIME_MS, ForwardingHint, Interest};
pub use interest_fields::InterestFields;
pub use name::{Component, Components, NameRef};
pub use signature::{
    DigestSigner, KeyLocator, SIGNATURE_BYTES_MAX, SignatureInfo, SignatureType, Signer,
};
pub use tlv::{Elements, Tlv, Writer};

/// The longest packet that an NDN forwarder accepts (bytes), a rule that all implementations keep.
pub const PACKET_BYTES_MAX: usize = 8800;

#[cfg(test)]
mod tests;
