//! Prefix announcements: Data that says who can serve a prefix, and for how long.

use wire::ndn::name::Name;
use wire::ndn::{Data, DecodeError, Elements, content_type, types};

use super::numbers as n;

/// What a prefix announcement says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixAnnouncement {
    /// The prefix.
    pub prefix: Name,
    /// For how long it is announced (ms).
    pub expiration_ms: u64,
    /// When its validity begins and ends (`YYYYMMDDThhmmss`), if it is limited.
    pub validity: Option<([u8; 15], [u8; 15])>,
}

impl PrefixAnnouncement {
    /// Reads a Data packet named `<prefix>/32=PA/<version>/<segment 0>`. Its signature is not checked.
    ///
    /// # Errors
    /// [`DecodeError::WrongType`] if the packet is something else, and the errors of elements.
    pub fn parse(data: &Data<'_>) -> Result<Self, DecodeError> {
        let length = data.name.len();
        let at = |index: usize| data.name.component(index);
        let is_named = length >= 3
            && at(length - 3)
                .is_some_and(|c| c.component_type == types::KEYWORD && c.value == b"PA")
            && at(length - 2).is_some_and(|c| c.component_type == types::VERSION)
            && at(length - 1).and_then(|c| c.number_of(types::SEGMENT)) == Some(0);
        if !is_named || data.meta.content_type != content_type::PREFIX_ANNOUNCEMENT {
            return Err(DecodeError::WrongType);
        }
        let mut expiration_ms = None;
        let mut validity = None;
        for element in Elements::new(data.content) {
            let element = element?;
            match element.tlv_type {
                n::EXPIRATION_PERIOD => expiration_ms = Some(element.integer()?),
                types::VALIDITY_PERIOD => {
                    let mut inner = element.elements();
                    let mut time = |tlv_type| -> Result<[u8; 15], DecodeError> {
                        let element = inner.next().ok_or(DecodeError::Missing)??;
                        if element.tlv_type != tlv_type {
                            return Err(DecodeError::Critical);
                        }
                        <[u8; 15]>::try_from(element.value).map_err(|_| DecodeError::ElementLength)
                    };
                    validity = Some((time(types::NOT_BEFORE)?, time(types::NOT_AFTER)?));
                }
                _ if element.is_critical() => return Err(DecodeError::Critical),
                _ => {}
            }
        }
        Ok(Self {
            prefix: Name::from(data.name.prefix(length - 3)),
            expiration_ms: expiration_ms.ok_or(DecodeError::Missing)?,
            validity,
        })
    }
}
