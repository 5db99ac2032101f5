//! The URI form of names (packet format v0.3, "NDN URI scheme", and the naming conventions' short forms).

use core::fmt::{self, Write};

use super::{Component, NameRef};
use crate::emit::BufferTooShort;
use crate::ndn::tlv::{self, Writer};
use crate::ndn::types;

/// The short forms of typed components that hold a number.
const NUMBERED: [(&str, u16); 5] = [
    ("seg", types::SEGMENT),
    ("off", types::BYTE_OFFSET),
    ("v", types::VERSION),
    ("t", types::TIMESTAMP),
    ("seq", types::SEQUENCE_NUM),
];
/// The short forms of digest components.
const DIGESTS: [(&str, u16); 2] = [
    ("sha256digest", types::IMPLICIT_DIGEST),
    ("params-sha256", types::PARAMETERS_DIGEST),
];

impl fmt::Display for NameRef<'_> {
    /// Writes the URI without its scheme: `/` for the empty name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_char('/');
        }
        for component in self.components() {
            write!(f, "/{component}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((prefix, _)) = DIGESTS.iter().find(|row| row.1 == self.component_type) {
            write!(f, "{prefix}=")?;
            return self.value.iter().try_for_each(|b| write!(f, "{b:02x}"));
        }
        let numbered = NUMBERED.iter().find(|row| row.1 == self.component_type);
        if let (Some((prefix, _)), Some(number)) = (numbered, self.number()) {
            // A number in a longer form than needed would not survive the way back.
            if self.value.len() == tlv::integer_bytes(number) {
                return write!(f, "{prefix}={number}");
            }
        }
        if !self.is_generic() {
            write!(f, "{}=", self.component_type)?;
        }
        if self.value.iter().all(|&byte| byte == b'.') {
            f.write_str("...")?;
        }
        for &byte in self.value {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    f.write_char(char::from(byte))?;
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// Says why a URI is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UriError {
    /// A component is empty or consists of one or two periods; an empty one is written `...`.
    EmptyComponent,
    /// A percent sign is not followed by two hexadecimal digits.
    Escape,
    /// The part before `=` is neither a number in 1..=65535 without leading zeros nor a known short form.
    ComponentType,
    /// The part after `=` is not what its short form needs: a number, or 64 hexadecimal digits.
    ComponentValue,
    /// The name does not fit the buffer.
    BufferTooShort,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmptyComponent => "empty component; write ... for one of zero bytes",
            Self::Escape => "% must be followed by two hexadecimal digits",
            Self::ComponentType => {
                "component type must be 1 to 65535, seg, off, v, t, seq, sha256digest or params-sha256"
            }
            Self::ComponentValue => "component value does not fit its type",
            Self::BufferTooShort => "name does not fit the buffer",
        })
    }
}

impl core::error::Error for UriError {}

impl From<BufferTooShort> for UriError {
    fn from(_: BufferTooShort) -> Self {
        Self::BufferTooShort
    }
}

/// Parses names from their URI form into a buffer.
///
/// ```
/// use wire::ndn::name::UriParser;
/// let mut buffer = [0; 64];
/// let name = UriParser::new(&mut buffer).parse("ndn:/a%20b/v=7").unwrap();
/// assert_eq!(name.value(), [8, 3, b'a', b' ', b'b', 54, 1, 7]);
/// ```
#[derive(Debug)]
pub struct UriParser<'a> {
    out: &'a mut [u8],
}

impl<'a> UriParser<'a> {
    /// Writes the name to `out`; its text's length plus 12 bytes a component always suffice.
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self { out }
    }

    /// Parses `uri`: an optional `ndn:`, an optional authority, which is ignored, and components.
    ///
    /// # Errors
    /// Any [`UriError`].
    pub fn parse(self, uri: &str) -> Result<NameRef<'a>, UriError> {
        let path = uri.strip_prefix("ndn:").unwrap_or(uri);
        let path = match path.strip_prefix("//") {
            Some(rest) => rest.split_once('/').map_or("", |(_, path)| path),
            None => path.strip_prefix('/').unwrap_or(path),
        };
        // One slash at the end is common and means nothing.
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut at = 0;
        let mut count = 0_u32;
        if !path.is_empty() {
            for part in path.split('/') {
                let rest = self.out.get_mut(at..).ok_or(UriError::BufferTooShort)?;
                let mut writer = Writer::new(rest);
                component(part, &mut writer)?;
                at += writer.len();
                count += 1;
            }
        }
        let value: &'a [u8] = self.out.get(..at).unwrap_or_default();
        Ok(NameRef { value, count })
    }
}

/// Parses one component.
fn component(part: &str, out: &mut Writer<'_>) -> Result<(), UriError> {
    let Some((prefix, text)) = part.split_once('=') else {
        return escaped(types::GENERIC, part, out);
    };
    if let Some(&(_, component_type)) = DIGESTS.iter().find(|row| row.0 == prefix) {
        return digest(component_type, text, out);
    }
    if let Some(&(_, component_type)) = NUMBERED.iter().find(|row| row.0 == prefix) {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| plain);
        let number = number.ok_or(UriError::ComponentValue)?;
        out.integer(u32::from(component_type), number)?;
        return Ok(());
    }
    let plain = prefix.bytes().all(|b| b.is_ascii_digit()) && !prefix.starts_with('0');
    let component_type = prefix.parse::<u16>().ok().filter(|_| plain);
    let component_type = component_type.ok_or(UriError::ComponentType)?;
    if component_type <= types::PARAMETERS_DIGEST {
        return numbered_digest(component_type, text, out);
    }
    escaped(component_type, text, out)
}

/// Parses `1=` or `2=` with escapes: the value must be 32 bytes.
fn numbered_digest(component_type: u16, text: &str, out: &mut Writer<'_>) -> Result<(), UriError> {
    if unescape(text).count() != 32 {
        return Err(UriError::ComponentValue);
    }
    escaped(component_type, text, out)
}

/// Parses 64 hexadecimal digits.
fn digest(component_type: u16, text: &str, out: &mut Writer<'_>) -> Result<(), UriError> {
    let mut value = [0; 32];
    if text.len() != 64 {
        return Err(UriError::ComponentValue);
    }
    for (byte, pair) in value.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = hex_pair(pair).ok_or(UriError::ComponentValue)?;
    }
    out.element(u32::from(component_type), &value)?;
    Ok(())
}

/// Parses a percent-escaped value.
fn escaped(component_type: u16, text: &str, out: &mut Writer<'_>) -> Result<(), UriError> {
    let mut length = 0;
    let mut only_periods = true;
    for byte in unescape(text) {
        only_periods &= byte? == b'.';
        length += 1;
    }
    let skip = match (only_periods, length) {
        (true, 0..=2) => return Err(UriError::EmptyComponent),
        (true, _) => 3,
        (false, _) => 0,
    };
    out.header(u32::from(component_type), length - skip)?;
    for byte in unescape(text).skip(skip) {
        out.bytes(&[byte?])?;
    }
    Ok(())
}

/// Walks the bytes that a percent-escaped text stands for.
fn unescape(text: &str) -> impl Iterator<Item = Result<u8, UriError>> + '_ {
    let mut rest = text.as_bytes();
    core::iter::from_fn(move || match *rest {
        [] => None,
        [b'%', ref tail @ ..] => {
            let Some(byte) = tail.get(..2).and_then(hex_pair) else {
                rest = &[];
                return Some(Err(UriError::Escape));
            };
            rest = tail.get(2..).unwrap_or_default();
            Some(Ok(byte))
        }
        [byte, ref tail @ ..] => {
            rest = tail;
            Some(Ok(byte))
        }
    })
}

fn hex_pair(pair: &[u8]) -> Option<u8> {
    let [high, low] = *pair else { return None };
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high << 4 | low).ok()
}
