//! Names: a borrowed, validated view; components; canonical order; the URI form.

mod component;
#[cfg(feature = "alloc")]
mod owned;
mod uri;

use core::cmp::Ordering;
use core::fmt;

pub use component::Component;
#[cfg(feature = "alloc")]
pub use owned::Name;
pub use uri::{UriError, UriParser};

use super::tlv::Tlv;
use super::{DecodeError, types};

/// A name: the TLV-VALUE of a Name element, every component of which was checked.
///
/// Equality, order and hash are those of the bytes, which is the canonical order (packet format v0.3,
/// "Canonical order"): types and lengths are in their shortest form, so that bytes compare as numbers do.
///
/// ```
/// use wire::ndn::NameRef;
/// let name = NameRef::new(&[8, 3, b'n', b'd', b'n', 50, 1, 7])?;
/// assert_eq!(name.to_string(), "/ndn/seg=7");
/// assert_eq!(name.prefix(1).to_string(), "/ndn");
/// assert!(name.prefix(1).is_prefix_of(&name) && name.prefix(1) < name);
/// # Ok::<(), wire::ndn::DecodeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NameRef<'a> {
    value: &'a [u8],
    count: u32,
}

impl<'a> NameRef<'a> {
    /// The name without components, a prefix of every name.
    pub const EMPTY: NameRef<'static> = NameRef {
        value: &[],
        count: 0,
    };

    /// Checks the TLV-VALUE of a Name element; O(length).
    ///
    /// # Errors
    /// What [`Component::read`] says about the first component that is wrong.
    pub fn new(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = value;
        let mut count = 0_u32;
        while !rest.is_empty() {
            let component = Component::read(rest)?;
            rest = rest.get(component.bytes.len()..).unwrap_or_default();
            count = count.saturating_add(1);
        }
        Ok(Self { value, count })
    }

    /// Checks a Name element that fills `bytes`.
    ///
    /// # Errors
    /// As [`new`](Self::new), or [`DecodeError::WrongType`] or [`DecodeError::Trailing`].
    pub fn from_element(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let element = Tlv::read_exact(bytes)?;
        if element.tlv_type != types::NAME {
            return Err(DecodeError::WrongType);
        }
        Self::new(element.value)
    }

    /// Returns the TLV-VALUE of the Name element: the components one after another.
    #[inline]
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Returns the number of components.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// True for the name without components.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Walks the components, first to last.
    #[inline]
    pub const fn components(&self) -> Components<'a> {
        Components {
            value: self.value,
            at: 0,
            left: self.count,
        }
    }

    /// Returns component `index`; O(index).
    pub fn component(&self, index: usize) -> Option<Component<'a>> {
        self.components().nth(index)
    }

    /// Returns the last component; O(components).
    pub fn last(&self) -> Option<Component<'a>> {
        self.components().last()
    }

    /// Returns the name made of the first `count` components (the whole name if it has fewer); O(count).
    pub fn prefix(&self, count: usize) -> Self {
        if count >= self.len() {
            return *self;
        }
        let end = match count {
            0 => 0,
            _ => self
                .components()
                .nth(count - 1)
                .map_or(0, |component| component.end),
        };
        Self {
            value: self.value.get(..end).unwrap_or_default(),
            count: count as u32,
        }
    }

    /// Returns the name without its first `count` components (empty if it has fewer); O(count).
    pub fn suffix(&self, count: usize) -> Self {
        let start = self.prefix(count).value.len();
        Self {
            value: self.value.get(start..).unwrap_or_default(),
            count: self.count.saturating_sub(count as u32),
        }
    }

    /// Returns the name without its last component.
    pub fn parent(&self) -> Option<Self> {
        let count = self.len().checked_sub(1)?;
        Some(self.prefix(count))
    }

    /// True if `other` begins with all components of this name. Bytes suffice: a component's encoding is
    /// never a proper prefix of another's.
    #[inline]
    pub fn is_prefix_of(&self, other: &NameRef<'_>) -> bool {
        other.value.starts_with(self.value)
    }

    /// Splits an implicit digest off the end: the name before it and the 32 bytes.
    pub fn split_implicit_digest(&self) -> (Self, Option<&'a [u8; 32]>) {
        // 1, 32 and the digest are the last 34 bytes; only a walk tells whether a component starts there.
        let Some(start) = self.value.len().checked_sub(34) else {
            return (*self, None);
        };
        if self.value.get(start..start + 2) != Some(&[1, 32]) {
            return (*self, None);
        }
        match self.last() {
            Some(last) if last.component_type == types::IMPLICIT_DIGEST => {
                (self.prefix(self.len() - 1), last.value.first_chunk())
            }
            _ => (*self, None),
        }
    }
}

impl Default for NameRef<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialOrd for NameRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NameRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(other.value)
    }
}

impl fmt::Debug for NameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameRef({self})")
    }
}

impl<'a> IntoIterator for NameRef<'a> {
    type Item = Component<'a>;
    type IntoIter = Components<'a>;

    fn into_iter(self) -> Components<'a> {
        self.components()
    }
}

/// Walks the components of a [`NameRef`].
#[derive(Clone, Debug)]
pub struct Components<'a> {
    value: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Iterator for Components<'a> {
    type Item = Component<'a>;

    #[inline]
    fn next(&mut self) -> Option<Component<'a>> {
        let rest = self.value.get(self.at..)?;
        // The name was checked, so that this fails at its end only.
        let mut component = Component::read(rest).ok()?;
        self.at += component.bytes.len();
        self.left = self.left.saturating_sub(1);
        component.end = self.at;
        Some(component)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Components<'_> {}
impl core::iter::FusedIterator for Components<'_> {}

#[cfg(test)]
mod tests;
