//! A name that owns its bytes.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use super::{Components, NameRef, UriError, UriParser};
use crate::ndn::tlv::{self, Writer};
use crate::ndn::{DecodeError, types};

/// A name on the heap; compares, orders and hashes as [`NameRef`] does.
///
/// ```
/// let name: wire::ndn::name::Name = "/localhost/nfd/seg=3".parse()?;
/// assert_eq!(name.components().count(), 3);
/// assert_eq!(name.with_version(8).to_string(), "/localhost/nfd/seg=3/v=8");
/// # Ok::<(), wire::ndn::name::UriError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Name {
    value: Box<[u8]>,
    count: u32,
}

impl Name {
    /// Makes the name without components.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks and copies the TLV-VALUE of a Name element.
    ///
    /// # Errors
    /// As [`NameRef::new`].
    pub fn from_value(value: &[u8]) -> Result<Self, DecodeError> {
        NameRef::new(value).map(Self::from)
    }

    /// Borrows the name.
    #[inline]
    pub const fn as_ref(&self) -> NameRef<'_> {
        NameRef {
            value: &self.value,
            count: self.count,
        }
    }

    /// Returns the TLV-VALUE of the Name element.
    pub const fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns the number of components.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// True for the name without components.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Walks the components.
    pub const fn components(&self) -> Components<'_> {
        self.as_ref().components()
    }

    /// Returns this name with a component added.
    ///
    /// # Errors
    /// [`DecodeError::TypeRange`] for type 0, [`DecodeError::DigestLength`] for a digest that is not 32 bytes.
    pub fn with(&self, component_type: u16, value: &[u8]) -> Result<Self, DecodeError> {
        match component_type {
            0 => Err(DecodeError::TypeRange),
            types::IMPLICIT_DIGEST | types::PARAMETERS_DIGEST if value.len() != 32 => {
                Err(DecodeError::DigestLength)
            }
            _ => Ok(self.push(component_type, value)),
        }
    }

    /// Returns this name with a generic component added.
    pub fn with_generic(&self, value: &[u8]) -> Self {
        self.push(types::GENERIC, value)
    }

    /// Returns this name with a keyword component added.
    pub fn with_keyword(&self, value: &[u8]) -> Self {
        self.push(types::KEYWORD, value)
    }

    /// Returns this name with a segment number added.
    pub fn with_segment(&self, number: u64) -> Self {
        self.push_number(types::SEGMENT, number)
    }

    /// Returns this name with a version added.
    pub fn with_version(&self, number: u64) -> Self {
        self.push_number(types::VERSION, number)
    }

    /// Returns this name with a sequence number added.
    pub fn with_sequence_num(&self, number: u64) -> Self {
        self.push_number(types::SEQUENCE_NUM, number)
    }

    /// Returns this name with an implicit digest added: a full name.
    pub fn with_implicit_digest(&self, digest: &[u8; 32]) -> Self {
        self.push(types::IMPLICIT_DIGEST, digest)
    }

    fn push_number(&self, component_type: u16, number: u64) -> Self {
        let eight = number.to_be_bytes();
        let start = 8 - tlv::integer_bytes(number);
        self.push(component_type, eight.get(start..).unwrap_or_default())
    }

    fn push(&self, component_type: u16, value: &[u8]) -> Self {
        let start = self.value.len();
        let length = tlv::element_bytes(u32::from(component_type), value.len());
        let mut bytes = Vec::with_capacity(start + length);
        bytes.extend_from_slice(&self.value);
        bytes.resize(start + length, 0);
        let place = bytes.get_mut(start..).unwrap_or_default();
        let fits = Writer::new(place).element(u32::from(component_type), value);
        debug_assert!(fits.is_ok(), "the length was computed");
        Self {
            value: bytes.into_boxed_slice(),
            count: self.count + 1,
        }
    }

    /// Returns this name followed by the components of `suffix`.
    pub fn join(&self, suffix: NameRef<'_>) -> Self {
        Self {
            value: [&*self.value, suffix.value].concat().into_boxed_slice(),
            count: self.count + suffix.count,
        }
    }
}

impl From<NameRef<'_>> for Name {
    fn from(name: NameRef<'_>) -> Self {
        Self {
            value: name.value.into(),
            count: name.count,
        }
    }
}

impl<'a> From<&'a Name> for NameRef<'a> {
    fn from(name: &'a Name) -> Self {
        name.as_ref()
    }
}

impl FromStr for Name {
    type Err = UriError;

    /// Parses the URI form.
    fn from_str(uri: &str) -> Result<Self, UriError> {
        // Each component of the URI has a separator and becomes at most 3 + 9 bytes longer than its text.
        let parts = uri.bytes().filter(|&byte| byte == b'/').count() + 1;
        let mut out = vec![0; uri.len() + 12 * parts];
        let name = UriParser::new(&mut out).parse(uri)?;
        Ok(Self::from(name))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.value
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}
