//! SignatureInfo of Data and Interests, and what computes and checks signatures.

use super::tlv::{Tlv, Writer};
use super::walk::OrderedWalk;
use super::{DecodeError, NameRef, types};
use crate::emit::BufferTooShort;

/// Signature algorithms (packet format v0.3, "Different types of signatures").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignatureType {
    /// A SHA-256 digest: integrity only.
    DigestSha256,
    /// RSASSA-PKCS1-v1_5 over SHA-256.
    Sha256WithRsa,
    /// ECDSA over SHA-256, DER-encoded.
    Sha256WithEcdsa,
    /// HMAC-SHA-256.
    HmacWithSha256,
    /// Ed25519.
    Ed25519,
    /// A number that has no meaning here.
    Other(u64),
}

impl SignatureType {
    /// Returns the type that a number stands for.
    pub const fn from_number(number: u64) -> Self {
        match number {
            0 => Self::DigestSha256,
            1 => Self::Sha256WithRsa,
            3 => Self::Sha256WithEcdsa,
            4 => Self::HmacWithSha256,
            5 => Self::Ed25519,
            other => Self::Other(other),
        }
    }

    /// Returns the number on the wire.
    pub const fn number(self) -> u64 {
        match self {
            Self::DigestSha256 => 0,
            Self::Sha256WithRsa => 1,
            Self::Sha256WithEcdsa => 3,
            Self::HmacWithSha256 => 4,
            Self::Ed25519 => 5,
            Self::Other(number) => number,
        }
    }
}

/// Says which key made a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLocator<'a> {
    /// Name of the certificate or key.
    Name(NameRef<'a>),
    /// Digest of the key.
    Digest(&'a [u8]),
}

/// How a packet is signed: SignatureInfo, or InterestSignatureInfo with the last three fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureInfo<'a> {
    /// Algorithm.
    pub signature_type: SignatureType,
    /// Key.
    pub key_locator: Option<KeyLocator<'a>>,
    /// Random bytes against replay (Interests).
    pub nonce: Option<&'a [u8]>,
    /// Unix time in ms.
    pub time_ms: Option<u64>,
    /// Sequence number against replay (Interests).
    pub seq_num: Option<u64>,
}

const ORDER: [u32; 6] = [
    types::SIGNATURE_TYPE,
    types::KEY_LOCATOR,
    types::SIGNATURE_NONCE,
    types::SIGNATURE_TIME,
    types::SIGNATURE_SEQ_NUM,
    types::VALIDITY_PERIOD,
];

impl<'a> SignatureInfo<'a> {
    /// Makes one that names the algorithm only.
    pub const fn new(signature_type: SignatureType) -> Self {
        Self {
            signature_type,
            key_locator: None,
            nonce: None,
            time_ms: None,
            seq_num: None,
        }
    }

    /// Reads the value of a SignatureInfo or InterestSignatureInfo element.
    ///
    /// # Errors
    /// [`DecodeError::Missing`] without a SignatureType, and the errors of elements.
    pub fn parse(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut walk = OrderedWalk::new(value, &ORDER);
        let mut signature_type = None;
        let mut info = Self::new(SignatureType::DigestSha256);
        while let Some(element) = walk.next()? {
            match element.tlv_type {
                types::SIGNATURE_TYPE => {
                    signature_type = Some(SignatureType::from_number(element.integer()?));
                }
                types::KEY_LOCATOR => info.key_locator = key_locator(&element)?,
                types::SIGNATURE_NONCE if element.value.is_empty() => {
                    return Err(DecodeError::ElementLength);
                }
                types::SIGNATURE_NONCE => info.nonce = Some(element.value),
                types::SIGNATURE_TIME => info.time_ms = Some(element.integer()?),
                types::SIGNATURE_SEQ_NUM => info.seq_num = Some(element.integer()?),
                _ => {}
            }
        }
        info.signature_type = signature_type.ok_or(DecodeError::Missing)?;
        Ok(info)
    }

    /// Writes it as an element of type `tlv_type`.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn write(&self, tlv_type: u32, out: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        out.nested(tlv_type, |out| {
            out.integer(types::SIGNATURE_TYPE, self.signature_type.number())?;
            match self.key_locator {
                Some(KeyLocator::Name(name)) => out.nested(types::KEY_LOCATOR, |out| {
                    out.element(types::NAME, name.value())
                })?,
                Some(KeyLocator::Digest(digest)) => out.nested(types::KEY_LOCATOR, |out| {
                    out.element(types::KEY_DIGEST, digest)
                })?,
                None => {}
            }
            if let Some(nonce) = self.nonce {
                out.element(types::SIGNATURE_NONCE, nonce)?;
            }
            if let Some(time_ms) = self.time_ms {
                out.integer(types::SIGNATURE_TIME, time_ms)?;
            }
            if let Some(seq_num) = self.seq_num {
                out.integer(types::SIGNATURE_SEQ_NUM, seq_num)?;
            }
            Ok(())
        })
    }
}

/// Reads a KeyLocator; one of a kind that is unknown here is as none.
fn key_locator<'a>(element: &Tlv<'a>) -> Result<Option<KeyLocator<'a>>, DecodeError> {
    let mut walk = OrderedWalk::new(element.value, &[types::NAME, types::KEY_DIGEST]);
    let Some(inner) = walk.next()? else {
        return Ok(None);
    };
    Ok(Some(match inner.tlv_type {
        types::NAME => KeyLocator::Name(NameRef::new(inner.value)?),
        _ => KeyLocator::Digest(inner.value),
    }))
}

/// Makes signatures.
pub trait Signer {
    /// Says how packets are signed: goes into SignatureInfo.
    fn info(&self) -> SignatureInfo<'_>;

    /// Signs `parts` one after another; writes the signature to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`] if it does not fit.
    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<usize, BufferTooShort>;
}

/// The longest signature that the encoders make room for (RSA with 8192-bit keys).
pub const SIGNATURE_BYTES_MAX: usize = 1024;

/// Signs with DigestSha256: integrity without provenance.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigestSigner;

impl Signer for DigestSigner {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo::new(SignatureType::DigestSha256)
    }

    fn sign(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let digest = super::digest::sha256(parts.iter().copied());
        let place = out.get_mut(..32).ok_or(BufferTooShort)?;
        place.copy_from_slice(&digest);
        Ok(32)
    }
}
