//! Type-length-value elements with variable-size numbers (NDN packet format v0.3, "TLV encoding").

use super::DecodeError;
use crate::bytes::chunk;
use crate::emit::BufferTooShort;

/// Reads a variable-size number at the start of `bytes`; returns it and the bytes it takes.
///
/// # Errors
/// [`DecodeError::Truncated`], or [`DecodeError::NotShortest`] if fewer bytes could hold the number.
#[inline]
pub const fn read_number(bytes: &[u8]) -> Result<(u64, usize), DecodeError> {
    let (number, length, least) = match bytes {
        [first @ 0..=252, ..] => return Ok((*first as u64, 1)),
        [253, ..] => match chunk::<2>(bytes, 1) {
            Some(two) => (u16::from_be_bytes(*two) as u64, 3, 253),
            None => return Err(DecodeError::Truncated),
        },
        [254, ..] => match chunk::<4>(bytes, 1) {
            Some(four) => (u32::from_be_bytes(*four) as u64, 5, 1 << 16),
            None => return Err(DecodeError::Truncated),
        },
        [255, ..] => match chunk::<8>(bytes, 1) {
            Some(eight) => (u64::from_be_bytes(*eight), 9, 1 << 32),
            None => return Err(DecodeError::Truncated),
        },
        [] => return Err(DecodeError::Truncated),
    };
    if number < least {
        return Err(DecodeError::NotShortest);
    }
    Ok((number, length))
}

/// Returns how many bytes a variable-size number takes.
#[inline]
pub const fn number_bytes(number: u64) -> usize {
    match number {
        0..=252 => 1,
        253..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Returns how many bytes an element of type `tlv_type` with a value of `value_bytes` takes.
#[inline]
pub const fn element_bytes(tlv_type: u32, value_bytes: usize) -> usize {
    number_bytes(tlv_type as u64) + number_bytes(value_bytes as u64) + value_bytes
}

/// Returns how many bytes the shortest encoding of a non-negative integer takes.
#[inline]
pub const fn integer_bytes(value: u64) -> usize {
    match value {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Reads a non-negative integer that fills `value`; any of the four sizes is allowed.
///
/// # Errors
/// [`DecodeError::Integer`] if it is not 1, 2, 4 or 8 bytes.
#[inline]
pub const fn read_integer(value: &[u8]) -> Result<u64, DecodeError> {
    match *value {
        [a] => Ok(a as u64),
        [a, b] => Ok(u16::from_be_bytes([a, b]) as u64),
        [a, b, c, d] => Ok(u32::from_be_bytes([a, b, c, d]) as u64),
        [a, b, c, d, e, f, g, h] => Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => Err(DecodeError::Integer),
    }
}

/// One element, borrowed from the bytes that hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// TLV-TYPE, in 1..=2^32 - 1.
    pub tlv_type: u32,
    /// TLV-VALUE.
    pub value: &'a [u8],
    /// The whole element: type, length and value.
    pub bytes: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// Reads the element at the start of `bytes`; more bytes may follow it.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], [`DecodeError::NotShortest`] or [`DecodeError::TypeRange`].
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (tlv_type, type_bytes) = read_number(bytes)?;
        let tlv_type = match u32::try_from(tlv_type) {
            Ok(0) | Err(_) => return Err(DecodeError::TypeRange),
            Ok(tlv_type) => tlv_type,
        };
        let rest = bytes.get(type_bytes..).ok_or(DecodeError::Truncated)?;
        let (length, length_bytes) = read_number(rest)?;
        let rest = rest.get(length_bytes..).ok_or(DecodeError::Truncated)?;
        let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
        let value = rest.get(..length).ok_or(DecodeError::Truncated)?;
        let bytes = bytes
            .get(..type_bytes + length_bytes + length)
            .ok_or(DecodeError::Truncated)?;
        Ok(Self {
            tlv_type,
            value,
            bytes,
        })
    }

    /// Reads an element that must fill `bytes`.
    ///
    /// # Errors
    /// As [`read`](Self::read), or [`DecodeError::Trailing`].
    pub fn read_exact(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let element = Self::read(bytes)?;
        if element.bytes.len() != bytes.len() {
            return Err(DecodeError::Trailing);
        }
        Ok(element)
    }

    /// Reads the value as a non-negative integer.
    ///
    /// # Errors
    /// [`DecodeError::Integer`] if it is not 1, 2, 4 or 8 bytes.
    #[inline]
    pub const fn integer(&self) -> Result<u64, DecodeError> {
        read_integer(self.value)
    }

    /// Walks the elements inside the value.
    #[inline]
    pub const fn elements(&self) -> Elements<'a> {
        Elements::new(self.value)
    }

    /// True if a decoder that does not know the type may not skip it.
    #[inline]
    pub const fn is_critical(&self) -> bool {
        super::types::is_critical(self.tlv_type)
    }
}

/// Walks the elements that fill a slice; ends after the first error.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// Starts at the first byte of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes after the last element that was read.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Tlv<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let element = Tlv::read(self.rest);
        self.rest = match &element {
            Ok(element) => self.rest.get(element.bytes.len()..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(element)
    }
}

impl core::iter::FusedIterator for Elements<'_> {}

/// Writes elements to a buffer, front to back.
///
/// ```
/// use wire::ndn::{Writer, types};
/// let mut buffer = [0; 16];
/// let mut writer = Writer::new(&mut buffer);
/// writer.nested(types::META_INFO, |meta| meta.integer(types::FRESHNESS_PERIOD, 1000))?;
/// assert_eq!(writer.written(), [0x14, 0x04, 0x19, 0x02, 0x03, 0xe8]);
/// # Ok::<(), wire::BufferTooShort>(())
/// ```
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `out`.
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    /// Returns how many bytes were written.
    pub const fn len(&self) -> usize {
        self.at
    }

    /// True before the first write.
    pub const fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// Returns what was written.
    pub fn written(&self) -> &[u8] {
        self.out.get(..self.at).unwrap_or_default()
    }

    /// Returns what was written, for changes in place (a signature that is computed last).
    pub fn written_mut(&mut self) -> &mut [u8] {
        self.out.get_mut(..self.at).unwrap_or_default()
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// [`BufferTooShort`]; nothing was written.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), BufferTooShort> {
        let end = self.at.checked_add(bytes.len()).ok_or(BufferTooShort)?;
        let place = self.out.get_mut(self.at..end).ok_or(BufferTooShort)?;
        place.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Writes a variable-size number in its shortest form.
    ///
    /// # Errors
    /// [`BufferTooShort`]; nothing was written.
    #[inline]
    pub fn number(&mut self, number: u64) -> Result<(), BufferTooShort> {
        let eight = number.to_be_bytes();
        let [.., c, d, e, f, g, h] = eight;
        match number_bytes(number) {
            1 => self.bytes(&[h]),
            3 => self.bytes(&[253, g, h]),
            5 => self.bytes(&[254, e, f, g, h]),
            _ => {
                let [a, b, ..] = eight;
                self.bytes(&[255, a, b, c, d, e, f, g, h])
            }
        }
    }

    /// Writes type and length of an element whose value of `value_bytes` follows.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    #[inline]
    pub fn header(&mut self, tlv_type: u32, value_bytes: usize) -> Result<(), BufferTooShort> {
        self.number(u64::from(tlv_type))?;
        self.number(value_bytes as u64)
    }

    /// Writes an element.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    #[inline]
    pub fn element(&mut self, tlv_type: u32, value: &[u8]) -> Result<(), BufferTooShort> {
        self.header(tlv_type, value.len())?;
        self.bytes(value)
    }

    /// Writes an element that holds a non-negative integer in its shortest form.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn integer(&mut self, tlv_type: u32, value: u64) -> Result<(), BufferTooShort> {
        let length = integer_bytes(value);
        self.header(tlv_type, length)?;
        let eight = value.to_be_bytes();
        self.bytes(eight.get(8 - length..).unwrap_or_default())
    }

    /// Writes an element whose value is what `inside` writes; a long value is moved once to make room for
    /// its length.
    ///
    /// # Errors
    /// [`BufferTooShort`], from here or from `inside`.
    pub fn nested<F>(&mut self, tlv_type: u32, inside: F) -> Result<(), BufferTooShort>
    where
        F: FnOnce(&mut Self) -> Result<(), BufferTooShort>,
    {
        self.number(u64::from(tlv_type))?;
        let length_at = self.at;
        self.bytes(&[0])?;
        let start = self.at;
        inside(self)?;
        let end = self.at;
        let length = end - start;
        let extra = number_bytes(length as u64) - 1;
        if extra > 0 {
            if self.out.len() - end < extra {
                return Err(BufferTooShort);
            }
            self.out.copy_within(start..end, start + extra);
        }
        self.at = length_at;
        self.number(length as u64)?;
        self.at = end + extra;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn numbers_of_the_specification() {
        type Row<'a> = (&'a [u8], Result<(u64, usize), DecodeError>);
        let rows: [Row<'_>; 18] = [
            (&[], Err(DecodeError::Truncated)),
            (&[0], Ok((0, 1))),
            (&[252, 9], Ok((252, 1))),
            (&[253, 0, 253], Ok((253, 3))),
            (&[253, 4, 0], Ok((1024, 3))),
            (&[253, 0, 252], Err(DecodeError::NotShortest)),
            (&[253, 0], Err(DecodeError::Truncated)),
            (&[253], Err(DecodeError::Truncated)),
            (&[253, 255, 255], Ok((65_535, 3))),
            (&[254, 0, 0, 4, 0], Err(DecodeError::NotShortest)),
            (&[254, 0, 1, 0, 0], Ok((65_536, 5))),
            (&[254, 0, 0, 255, 255], Err(DecodeError::NotShortest)),
            (&[254, 1, 0, 0], Err(DecodeError::Truncated)),
            (&[254, 255, 255, 255, 255], Ok((0xffff_ffff, 5))),
            (
                &[255, 0, 0, 0, 0, 255, 255, 255, 255],
                Err(DecodeError::NotShortest),
            ),
            (&[255, 0, 0, 0, 1, 0, 0, 0, 0], Ok((1 << 32, 9))),
            (
                &[255, 255, 255, 255, 255, 255, 255, 255, 255],
                Ok((u64::MAX, 9)),
            ),
            (&[255, 1, 2, 3, 4, 5, 6, 7], Err(DecodeError::Truncated)),
        ];
        for (bytes, expected) in rows {
            assert_eq!(read_number(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn elements_check_type_and_length() {
        let whole = Tlv::read(&[7, 3, 8, 1, b'a', 99]).unwrap();
        assert_eq!(
            (whole.tlv_type, whole.value, whole.bytes.len()),
            (7, &[8, 1, b'a'][..], 5)
        );
        assert_eq!(
            Tlv::read_exact(&[7, 0, 1]).unwrap_err(),
            DecodeError::Trailing
        );
        let rows: [(&[u8], DecodeError); 7] = [
            (&[0, 0], DecodeError::TypeRange),
            (&[255, 0, 0, 0, 1, 0, 0, 0, 0, 0], DecodeError::TypeRange),
            (&[7], DecodeError::Truncated),
            (&[7, 2, 1], DecodeError::Truncated),
            (
                &[7, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
                DecodeError::Truncated,
            ),
            (&[253, 0, 7, 0], DecodeError::NotShortest),
            (&[7, 253, 0, 1, 0], DecodeError::NotShortest),
        ];
        for (bytes, error) in rows {
            assert_eq!(Tlv::read(bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn a_walk_ends_after_an_error() {
        let mut walk = Elements::new(&[8, 1, 1, 8, 200, 1]);
        assert_eq!(walk.next().unwrap().unwrap().value, [1]);
        assert_eq!(walk.next(), Some(Err(DecodeError::Truncated)));
        assert_eq!(walk.next(), None);
    }

    #[test]
    fn integers_of_the_specification() {
        let mut out = [0; 16];
        let rows: [(u64, &[u8]); 7] = [
            (0, &[9, 1, 0]),
            (1, &[9, 1, 1]),
            (255, &[9, 1, 255]),
            (256, &[9, 2, 1, 0]),
            (65_535, &[9, 2, 255, 255]),
            (65_536, &[9, 4, 0, 1, 0, 0]),
            (1 << 32, &[9, 8, 0, 0, 0, 1, 0, 0, 0, 0]),
        ];
        for (value, expected) in rows {
            let mut writer = Writer::new(&mut out);
            writer.integer(9, value).unwrap();
            assert_eq!(writer.written(), expected);
            assert_eq!(Tlv::read(expected).unwrap().integer(), Ok(value));
        }
        for length in [0, 3, 5, 6, 7, 9] {
            assert_eq!(read_integer(&vec![0; length]), Err(DecodeError::Integer));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let taken: usize = Elements::new(&bytes).flatten().map(|e| e.bytes.len()).sum();
            prop_assert!(taken <= bytes.len());
        }

        #[test]
        fn what_is_written_is_read(
            tlv_type in 1..=u32::MAX, length in 0..70_000_usize, number in any::<u64>(), short in 0..70_100_usize,
        ) {
            let mut out = vec![0; 70_100];
            let value: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut writer = Writer::new(&mut out);
            writer.nested(tlv_type, |w| w.bytes(&value)).unwrap();
            let end = writer.len();
            prop_assert_eq!(end, element_bytes(tlv_type, length));
            writer.number(number).unwrap();
            let rest = &writer.written()[end..];
            prop_assert_eq!(read_number(rest), Ok((number, number_bytes(number))));
            let read = Tlv::read(&writer.written()[..end]).unwrap();
            prop_assert_eq!((read.tlv_type, read.value), (tlv_type, &value[..]));

            let mut cut = vec![0; short];
            let mut writer = Writer::new(&mut cut);
            prop_assert_eq!(writer.nested(tlv_type, |w| w.bytes(&value)).is_ok(), short >= end);
        }
    }
}
