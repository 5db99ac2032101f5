//! The evolvability rules in one place: known elements in order, unknown ones skipped or refused.

use super::tlv::{Elements, Tlv};
use super::{DecodeError, types};

/// Walks elements that a specification lists in an order; skips what may be skipped.
#[derive(Debug)]
pub(crate) struct OrderedWalk<'a> {
    elements: Elements<'a>,
    order: &'static [u32],
    /// How many places of the order were passed.
    passed: usize,
}

impl<'a> OrderedWalk<'a> {
    /// Walks the elements in `bytes`; each type in `order` may appear once, in that order.
    pub(crate) const fn new(bytes: &'a [u8], order: &'static [u32]) -> Self {
        Self {
            elements: Elements::new(bytes),
            order,
            passed: 0,
        }
    }

    /// Returns the next known element. An element that is unknown, repeated or out of order is an error if
    /// its type is critical, else it is ignored.
    pub(crate) fn next(&mut self) -> Result<Option<Tlv<'a>>, DecodeError> {
        for element in self.elements.by_ref() {
            let element = element?;
            let left = self.order.get(self.passed..).unwrap_or_default();
            if let Some(place) = left.iter().position(|&known| known == element.tlv_type) {
                self.passed += place + 1;
                return Ok(Some(element));
            }
            if types::is_critical(element.tlv_type) {
                return Err(DecodeError::Critical);
            }
        }
        Ok(None)
    }
}

/// Returns the value of an element that must be of one size.
pub(crate) fn fixed<'a, const N: usize>(element: &Tlv<'a>) -> Result<&'a [u8; N], DecodeError> {
    <&[u8; N]>::try_from(element.value).map_err(|_| DecodeError::ElementLength)
}

/// Returns where `part`, which borrows from `whole`, starts in it.
pub(crate) fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize)
}
