//! Interest packets (packet format v0.3, "Interest packet").

use super::data::first_name;
use super::digest::sha256;
use super::signature::SignatureInfo;
use super::tlv::{Elements, Tlv, Writer};
use super::walk::{OrderedWalk, fixed, offset_in};
use super::{DecodeError, NameRef, PACKET_BYTES_MAX, types};
use crate::emit::BufferTooShort;

/// Lifetime of an Interest that gives none (ms).
pub const DEFAULT_LIFETIME_MS: u64 = 4000;

/// An Interest packet, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest<'a> {
    /// Name; at least one component.
    pub name: NameRef<'a>,
    /// The name may be a prefix of the Data's.
    pub can_be_prefix: bool,
    /// Caches may answer only with fresh Data.
    pub must_be_fresh: bool,
    /// Names of networks that have the Data; empty if there are none.
    pub forwarding_hint: ForwardingHint<'a>,
    /// Tells Interests of one name apart; a forwarder adds one that is missing.
    pub nonce: Option<[u8; 4]>,
    /// Lifetime (ms).
    pub lifetime_ms: u64,
    /// Hops that are left.
    pub hop_limit: Option<u8>,
    /// Parameters.
    pub application_parameters: Option<&'a [u8]>,
    /// How it is signed.
    pub signature_info: Option<SignatureInfo<'a>>,
    /// Signature.
    pub signature_value: Option<&'a [u8]>,
    /// The whole packet.
    pub bytes: &'a [u8],
    /// From ApplicationParameters to the end: what the parameters digest covers.
    parameters: &'a [u8],
    /// From ApplicationParameters up to InterestSignatureValue.
    signed_parameters: &'a [u8],
    nonce_at: Option<usize>,
    hop_limit_at: Option<usize>,
    /// Where a Nonce belongs that is missing.
    nonce_place: usize,
}

const ORDER: [u32; 10] = [
    types::NAME,
    types::CAN_BE_PREFIX,
    types::MUST_BE_FRESH,
    types::FORWARDING_HINT,
    types::NONCE,
    types::INTEREST_LIFETIME,
    types::HOP_LIMIT,
    types::APPLICATION_PARAMETERS,
    types::INTEREST_SIGNATURE_INFO,
    types::INTEREST_SIGNATURE_VALUE,
];

impl<'a> Interest<'a> {
    /// Reads an Interest packet that fills `bytes`.
    ///
    /// The parameters digest is not checked: see [`parameters_digest_holds`](Self::parameters_digest_holds).
    ///
    /// # Errors
    /// Any [`DecodeError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(DecodeError::TooLong);
        }
        let packet = Tlv::read_exact(bytes)?;
        if packet.tlv_type != types::INTEREST {
            return Err(DecodeError::WrongType);
        }
        let name = first_name(packet.value)?;
        if name.is_empty() {
            return Err(DecodeError::EmptyName);
        }
        let mut interest = Self {
            name,
            can_be_prefix: false,
            must_be_fresh: false,
            forwarding_hint: ForwardingHint::default(),
            nonce: None,
            lifetime_ms: DEFAULT_LIFETIME_MS,
            hop_limit: None,
            application_parameters: None,
            signature_info: None,
            signature_value: None,
            bytes,
            parameters: &[],
            signed_parameters: &[],
            nonce_at: None,
            hop_limit_at: None,
            nonce_place: 0,
        };
        let mut walk = OrderedWalk::new(packet.value, &ORDER);
        while let Some(element) = walk.next()? {
            interest.take(&element)?;
        }
        Ok(interest)
    }

    /// Takes one element.
    fn take(&mut self, element: &Tlv<'a>) -> Result<(), DecodeError> {
        let start = offset_in(self.bytes, element.bytes);
        let value_at = offset_in(self.bytes, element.value);
        match element.tlv_type {
            types::CAN_BE_PREFIX => {
                fixed::<0>(element)?;
                self.can_be_prefix = true;
            }
            types::MUST_BE_FRESH => {
                fixed::<0>(element)?;
                self.must_be_fresh = true;
            }
            types::FORWARDING_HINT => self.forwarding_hint = ForwardingHint::new(element.value)?,
            types::NONCE => {
                self.nonce = Some(*fixed::<4>(element)?);
                self.nonce_at = Some(value_at);
            }
            types::INTEREST_LIFETIME => self.lifetime_ms = element.integer()?,
            types::HOP_LIMIT => {
                self.hop_limit = fixed::<1>(element)?.first().copied();
                self.hop_limit_at = Some(value_at);
            }
            types::APPLICATION_PARAMETERS => {
                self.application_parameters = Some(element.value);
                self.parameters = self.bytes.get(start..).unwrap_or_default();
                self.signed_parameters = self.parameters;
            }
            // A signature signs parameters; without them it is an element out of order, and not critical.
            types::INTEREST_SIGNATURE_INFO if self.application_parameters.is_some() => {
                self.signature_info = Some(SignatureInfo::parse(element.value)?);
            }
            types::INTEREST_SIGNATURE_VALUE if self.application_parameters.is_some() => {
                self.signature_value = Some(element.value);
                let end = start.saturating_sub(offset_in(self.bytes, self.parameters));
                self.signed_parameters = self.parameters.get(..end).unwrap_or_default();
            }
            _ => {}
        }
        if element.tlv_type == types::NAME
            || element.tlv_type == types::CAN_BE_PREFIX
            || element.tlv_type == types::MUST_BE_FRESH
            || element.tlv_type == types::FORWARDING_HINT
        {
            self.nonce_place = start + element.bytes.len();
        }
        Ok(())
    }

    /// Returns where the name's value starts and ends in [`bytes`](Self::bytes).
    pub fn name_range(&self) -> (usize, usize) {
        let start = offset_in(self.bytes, self.name.value());
        (start, start + self.name.value().len())
    }

    /// Returns the parts that an Interest's signature covers: name components before the parameters digest
    /// and after it, and the elements from ApplicationParameters up to the signature value.
    pub fn signed_parts(&self) -> [&'a [u8]; 3] {
        let (before, after) = around_parameters_digest(self.name);
        [before, after, self.signed_parameters]
    }

    /// Checks that the name has a parameters digest exactly if there are parameters, that there is one
    /// only, and that it is right ("Producers should recompute the digest").
    pub fn parameters_digest_holds(&self) -> bool {
        let mut digests = self
            .name
            .components()
            .filter(|component| component.component_type == types::PARAMETERS_DIGEST);
        match (
            digests.next(),
            digests.next(),
            self.application_parameters.is_some(),
        ) {
            (None, None, false) => true,
            (Some(digest), None, true) => digest.value == sha256([self.parameters]),
            _ => false,
        }
    }

    /// True if the Interest is signed with DigestSha256 and the signature is right.
    pub fn digest_signature_holds(&self) -> bool {
        let digest = sha256(self.signed_parts());
        let info = self.signature_info.map(|info| info.signature_type);
        info == Some(super::SignatureType::DigestSha256)
            && self.signature_value == Some(&digest[..])
    }

    /// True if a Data packet named `name` satisfies the Interest. `digest` computes its implicit digest and
    /// is called only when the Interest has one at the end of its name.
    pub fn matches_data(&self, name: &NameRef<'_>, digest: impl FnOnce() -> [u8; 32]) -> bool {
        if let (stem, Some(wanted)) = self.name.split_implicit_digest() {
            return stem == *name && *wanted == digest();
        }
        if self.can_be_prefix {
            return self.name.is_prefix_of(name);
        }
        self.name == *name
    }

    /// Writes the Interest as it leaves for the next hop: with `nonce` and `hop_limit` put in where they
    /// are or belong, and without its forwarding hint if `strip_hint`. Returns the length.
    ///
    /// # Errors
    /// [`BufferTooShort`]: a buffer of the packet's length plus 16 always suffices.
    pub fn encode_forwarded(
        &self,
        nonce: [u8; 4],
        hop_limit: Option<u8>,
        strip_hint: bool,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let strip = strip_hint && !self.forwarding_hint.is_empty();
        if let (Some(nonce_at), false) = (self.nonce_at, strip) {
            // The common case: same length, two fields patched.
            let out = out.get_mut(..self.bytes.len()).ok_or(BufferTooShort)?;
            out.copy_from_slice(self.bytes);
            if let Some(place) = out.get_mut(nonce_at..nonce_at + 4) {
                place.copy_from_slice(&nonce);
            }
            if let (Some(at), Some(limit)) = (self.hop_limit_at, hop_limit)
                && let Some(place) = out.get_mut(at)
            {
                *place = limit;
            }
            return Ok(self.bytes.len());
        }
        self.encode_again(nonce, hop_limit, strip, out)
    }

    /// Writes the elements one by one, where the length changes.
    fn encode_again(
        &self,
        nonce: [u8; 4],
        hop_limit: Option<u8>,
        strip: bool,
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut out = Writer::new(out);
        let value = Tlv::read(self.bytes).map_or(&[][..], |packet| packet.value);
        out.nested(types::INTEREST, |out| {
            for element in Elements::new(value).flatten() {
                let end = offset_in(self.bytes, element.bytes) + element.bytes.len();
                let value_at = offset_in(self.bytes, element.value);
                match element.tlv_type {
                    types::FORWARDING_HINT if strip => {}
                    types::NONCE => out.element(types::NONCE, &nonce)?,
                    types::HOP_LIMIT if self.hop_limit_at == Some(value_at) => {
                        let limit = hop_limit.or(self.hop_limit).unwrap_or(0);
                        out.element(types::HOP_LIMIT, &[limit])?;
                    }
                    _ => out.bytes(element.bytes)?,
                }
                if self.nonce_at.is_none() && end == self.nonce_place {
                    out.element(types::NONCE, &nonce)?;
                }
            }
            Ok(())
        })?;
        Ok(out.len())
    }
}

/// Splits a name's bytes around its first parameters digest.
pub(super) fn around_parameters_digest(name: NameRef<'_>) -> (&[u8], &[u8]) {
    let digest = name
        .components()
        .find(|component| component.component_type == types::PARAMETERS_DIGEST);
    match digest {
        Some(digest) => (
            name.value()
                .get(..digest.end - digest.bytes.len())
                .unwrap_or_default(),
            name.value().get(digest.end..).unwrap_or_default(),
        ),
        None => (name.value(), &[]),
    }
}

/// The delegations of an Interest, in order of preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardingHint<'a> {
    value: &'a [u8],
}

impl<'a> ForwardingHint<'a> {
    /// Checks the value of a ForwardingHint element.
    ///
    /// # Errors
    /// [`DecodeError::Missing`] if it has no name, and the errors of elements and names.
    pub fn new(value: &'a [u8]) -> Result<Self, DecodeError> {
        let mut names = 0;
        for element in Elements::new(value) {
            let element = element?;
            if element.tlv_type == types::NAME {
                NameRef::new(element.value)?;
                names += 1;
            } else if element.is_critical() {
                return Err(DecodeError::Critical);
            }
        }
        if names == 0 {
            return Err(DecodeError::Missing);
        }
        Ok(Self { value })
    }

    /// True if the Interest has no forwarding hint.
    pub const fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// Walks the delegations.
    pub fn names(&self) -> impl Iterator<Item = NameRef<'a>> + use<'a> {
        Elements::new(self.value)
            .flatten()
            .filter(|element| element.tlv_type == types::NAME)
            .filter_map(|element| NameRef::new(element.value).ok())
    }
}
