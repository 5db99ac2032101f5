//! Data packets (packet format v0.3, "Data packet").

use super::digest::sha256;
use super::signature::{SIGNATURE_BYTES_MAX, SignatureInfo, Signer};
use super::tlv::{Tlv, Writer};
use super::walk::{OrderedWalk, offset_in};
use super::{Component, DecodeError, NameRef, PACKET_BYTES_MAX, types};
use crate::emit::BufferTooShort;

/// What content is.
pub mod content_type {
    /// Payload of the name.
    pub const BLOB: u64 = 0;
    /// List of delegations.
    pub const LINK: u64 = 1;
    /// Public key or certificate.
    pub const KEY: u64 = 2;
    /// The application says no.
    pub const NACK: u64 = 3;
    /// Prefix announcement.
    pub const PREFIX_ANNOUNCEMENT: u64 = 5;
}

/// Facts about the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaInfo<'a> {
    /// One of [`content_type`], or another number.
    pub content_type: u64,
    /// How long the Data counts as fresh after it arrived (ms); 0 is never.
    pub freshness_ms: u64,
    /// Last component of the final packet of a sequence.
    pub final_block: Option<Component<'a>>,
}

impl<'a> MetaInfo<'a> {
    /// Reads the value of a MetaInfo element.
    ///
    /// # Errors
    /// The errors of elements, or [`DecodeError::Missing`] if FinalBlockId is empty.
    pub fn parse(value: &'a [u8]) -> Result<Self, DecodeError> {
        const ORDER: [u32; 3] = [
            types::CONTENT_TYPE,
            types::FRESHNESS_PERIOD,
            types::FINAL_BLOCK_ID,
        ];
        let mut walk = OrderedWalk::new(value, &ORDER);
        let mut meta = Self::default();
        while let Some(element) = walk.next()? {
            match element.tlv_type {
                types::CONTENT_TYPE => meta.content_type = element.integer()?,
                types::FRESHNESS_PERIOD => meta.freshness_ms = element.integer()?,
                _ => {
                    let component = Component::read(element.value)?;
                    if component.bytes.len() != element.value.len() {
                        return Err(DecodeError::Trailing);
                    }
                    meta.final_block = Some(component);
                }
            }
        }
        Ok(meta)
    }

    /// Writes the element; nothing if all fields have their defaults.
    fn write(&self, out: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        if *self == Self::default() {
            return Ok(());
        }
        out.nested(types::META_INFO, |out| {
            if self.content_type != content_type::BLOB {
                out.integer(types::CONTENT_TYPE, self.content_type)?;
            }
            if self.freshness_ms > 0 {
                out.integer(types::FRESHNESS_PERIOD, self.freshness_ms)?;
            }
            match self.final_block {
                Some(component) => out.element(types::FINAL_BLOCK_ID, component.bytes),
                None => Ok(()),
            }
        })
    }
}

/// A Data packet, borrowed from its bytes.
///
/// ```
/// use wire::ndn::{Data, DataFields, DigestSigner, NameRef};
/// let name = NameRef::new(&[8, 1, b'a'])?;
/// let mut buffer = [0; 128];
/// let length = DataFields { freshness_ms: 1000, ..DataFields::new(name, b"hello") }
///     .encode(&DigestSigner, &mut buffer)
///     .unwrap();
/// let data = Data::parse(&buffer[..length])?;
/// assert_eq!((data.content, data.meta.freshness_ms), (&b"hello"[..], 1000));
/// assert!(data.digest_signature_holds());
/// # Ok::<(), wire::ndn::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Name, without implicit digest.
    pub name: NameRef<'a>,
    /// Facts about the content.
    pub meta: MetaInfo<'a>,
    /// Content; empty if there is none.
    pub content: &'a [u8],
    /// How it is signed.
    pub signature_info: SignatureInfo<'a>,
    /// Signature.
    pub signature_value: &'a [u8],
    /// What the signature covers: from Name up to SignatureValue.
    pub signed: &'a [u8],
    /// The whole packet.
    pub bytes: &'a [u8],
}

impl<'a> Data<'a> {
    /// Reads a Data packet that fills `bytes`.
    ///
    /// # Errors
    /// Any [`DecodeError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(DecodeError::TooLong);
        }
        let packet = Tlv::read_exact(bytes)?;
        if packet.tlv_type != types::DATA {
            return Err(DecodeError::WrongType);
        }
        let name = first_name(packet.value)?;
        const ORDER: [u32; 5] = [
            types::NAME,
            types::META_INFO,
            types::CONTENT,
            types::SIGNATURE_INFO,
            types::SIGNATURE_VALUE,
        ];
        let mut walk = OrderedWalk::new(packet.value, &ORDER);
        let mut meta = MetaInfo::default();
        let mut content: &[u8] = &[];
        let mut info = None;
        let mut value = None;
        while let Some(element) = walk.next()? {
            match element.tlv_type {
                types::META_INFO => meta = MetaInfo::parse(element.value)?,
                types::CONTENT => content = element.value,
                types::SIGNATURE_INFO => info = Some(SignatureInfo::parse(element.value)?),
                types::SIGNATURE_VALUE => value = Some(element),
                _ => {}
            }
        }
        let value = value.ok_or(DecodeError::Missing)?;
        let signed = packet
            .value
            .get(..offset_in(packet.value, value.bytes))
            .unwrap_or_default();
        Ok(Self {
            name,
            meta,
            content,
            signature_info: info.ok_or(DecodeError::Missing)?,
            signature_value: value.value,
            signed,
            bytes,
        })
    }

    /// Computes the implicit digest: the SHA-256 of the whole packet.
    pub fn implicit_digest(&self) -> [u8; 32] {
        sha256([self.bytes])
    }

    /// True if the signature is DigestSha256 and right.
    pub fn digest_signature_holds(&self) -> bool {
        self.signature_info.signature_type == super::SignatureType::DigestSha256
            && self.signature_value == sha256([self.signed])
    }
}

/// Reads the Name that must be the first element of a packet.
pub(super) fn first_name(value: &[u8]) -> Result<NameRef<'_>, DecodeError> {
    if value.is_empty() {
        return Err(DecodeError::Missing);
    }
    let first = Tlv::read(value)?;
    if first.tlv_type != types::NAME {
        return Err(DecodeError::Missing);
    }
    NameRef::new(first.value)
}

/// What a Data packet is made of.
#[derive(Clone, Copy, Debug)]
pub struct DataFields<'a> {
    /// Name, without implicit digest.
    pub name: NameRef<'a>,
    /// One of [`content_type`], or another number.
    pub content_type: u64,
    /// How long it counts as fresh (ms).
    pub freshness_ms: u64,
    /// Last component of the final packet of a sequence.
    pub final_block: Option<Component<'a>>,
    /// Content; no element if empty.
    pub content: &'a [u8],
}

impl<'a> DataFields<'a> {
    /// Makes a payload that is never fresh.
    pub const fn new(name: NameRef<'a>, content: &'a [u8]) -> Self {
        Self {
            name,
            content_type: content_type::BLOB,
            freshness_ms: 0,
            final_block: None,
            content,
        }
    }

    /// Writes the signed packet to the start of `out`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`]: give [`PACKET_BYTES_MAX`] bytes.
    pub fn encode(&self, signer: &impl Signer, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut out = Writer::new(out);
        out.nested(types::DATA, |out| {
            let start = out.len();
            out.element(types::NAME, self.name.value())?;
            let meta = MetaInfo {
                content_type: self.content_type,
                freshness_ms: self.freshness_ms,
                final_block: self.final_block,
            };
            meta.write(out)?;
            if !self.content.is_empty() {
                out.element(types::CONTENT, self.content)?;
            }
            signer.info().write(types::SIGNATURE_INFO, out)?;
            let mut signature = [0; SIGNATURE_BYTES_MAX];
            let signed = out.written().get(start..).unwrap_or_default();
            let length = signer.sign(&[signed], &mut signature)?;
            let signature = signature.get(..length).ok_or(BufferTooShort)?;
            out.element(types::SIGNATURE_VALUE, signature)
        })?;
        Ok(out.len())
    }
}
