//! NDN packet format v0.3: TLV elements and names.
//!
//! All views borrow the packet's bytes; nothing here allocates (the owned [`name::Name`] needs the feature
//! `alloc`) or panics, whatever the bytes.

mod error;
pub mod name;
pub mod tlv;
pub mod types;

pub use error::DecodeError;
pub use name::{Component, Components, NameRef};
pub use tlv::{Elements, Tlv, Writer};

/// The longest packet that an NDN forwarder accepts (bytes), a rule that all implementations keep.
pub const PACKET_BYTES_MAX: usize = 8800;
