//! The encoder of Interest packets.

use super::digest::sha256;
use super::interest::around_parameters_digest;
use super::signature::{SIGNATURE_BYTES_MAX, Signer};
use super::tlv::Writer;
use super::{NameRef, types};
use crate::emit::BufferTooShort;

/// What an Interest packet is made of.
///
/// ```
/// use wire::ndn::{Interest, InterestFields, NameRef};
/// let name = NameRef::new(&[8, 1, b'a'])?;
/// let mut buffer = [0; 128];
/// let fields = InterestFields {
///     can_be_prefix: true,
///     nonce: Some([1, 2, 3, 4]),
///     application_parameters: Some(b"x"),
///     ..InterestFields::new(name)
/// };
/// let length = fields.encode(&mut buffer).unwrap();
/// let interest = Interest::parse(&buffer[..length])?;
/// assert!(interest.can_be_prefix && interest.parameters_digest_holds());
/// assert_eq!(interest.name.len(), 2);
/// # Ok::<(), wire::ndn::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InterestFields<'a> {
    /// Name; a parameters digest in it is overwritten, or added at the end, if there are parameters.
    pub name: NameRef<'a>,
    /// The name may be a prefix of the Data's.
    pub can_be_prefix: bool,
    /// Caches may answer only with fresh Data.
    pub must_be_fresh: bool,
    /// Delegations, best first; no element if empty.
    pub forwarding_hint: &'a [NameRef<'a>],
    /// Four random bytes.
    pub nonce: Option<[u8; 4]>,
    /// Lifetime (ms); no element for the default.
    pub lifetime_ms: Option<u64>,
    /// Hops that are left.
    pub hop_limit: Option<u8>,
    /// Parameters.
    pub application_parameters: Option<&'a [u8]>,
}

impl<'a> InterestFields<'a> {
    /// Makes an Interest with a name and nothing else.
    pub const fn new(name: NameRef<'a>) -> Self {
        Self {
            name,
            can_be_prefix: false,
            must_be_fresh: false,
            forwarding_hint: &[],
            nonce: None,
            lifetime_ms: None,
            hop_limit: None,
            application_parameters: None,
        }
    }

    /// Writes the packet to the start of `out`; returns its length.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        self.write::<super::DigestSigner>(None, out)
    }

    /// Writes the packet with a signature; empty parameters are added if there are none.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn encode_signed(
        &self,
        signer: &impl Signer,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        self.write(Some(signer), out)
    }

    fn write<S: Signer>(
        &self,
        signer: Option<&S>,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut out = Writer::new(out);
        out.nested(types::INTEREST, |out| {
            if self.application_parameters.is_none() && signer.is_none() {
                out.element(types::NAME, self.name.value())?;
                return self.write_fields(out);
            }
            let (before, after) = around_parameters_digest(self.name);
            let name_bytes = before.len() + 34 + after.len();
            out.header(types::NAME, name_bytes)?;
            out.bytes(before)?;
            out.header(u32::from(types::PARAMETERS_DIGEST), 32)?;
            let digest_at = out.len();
            out.bytes(&[0; 32])?;
            out.bytes(after)?;
            self.write_fields(out)?;
            let start = out.len();
            let parameters = self.application_parameters.unwrap_or_default();
            out.element(types::APPLICATION_PARAMETERS, parameters)?;
            if let Some(signer) = signer {
                signer.info().write(types::INTEREST_SIGNATURE_INFO, out)?;
                let mut signature = [0; SIGNATURE_BYTES_MAX];
                let signed = out.written().get(start..).unwrap_or_default();
                let length = signer.sign(&[before, after, signed], &mut signature)?;
                let signature = signature.get(..length).ok_or(BufferTooShort)?;
                out.element(types::INTEREST_SIGNATURE_VALUE, signature)?;
            }
            let digest = sha256([out.written().get(start..).unwrap_or_default()]);
            if let Some(place) = out.written_mut().get_mut(digest_at..digest_at + 32) {
                place.copy_from_slice(&digest);
            }
            Ok(())
        })?;
        Ok(out.len())
    }

    /// Writes the elements between Name and ApplicationParameters.
    fn write_fields(&self, out: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        if self.can_be_prefix {
            out.element(types::CAN_BE_PREFIX, &[])?;
        }
        if self.must_be_fresh {
            out.element(types::MUST_BE_FRESH, &[])?;
        }
        if !self.forwarding_hint.is_empty() {
            out.nested(types::FORWARDING_HINT, |out| {
                self.forwarding_hint
                    .iter()
                    .try_for_each(|name| out.element(types::NAME, name.value()))
            })?;
        }
        if let Some(nonce) = self.nonce {
            out.element(types::NONCE, &nonce)?;
        }
        if let Some(lifetime_ms) = self.lifetime_ms {
            out.integer(types::INTEREST_LIFETIME, lifetime_ms)?;
        }
        match self.hop_limit {
            Some(limit) => out.element(types::HOP_LIMIT, &[limit]),
            None => Ok(()),
        }
    }
}
