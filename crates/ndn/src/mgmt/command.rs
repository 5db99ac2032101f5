//! Command Interests: which command, its parameters, and what is signed; in both formats that are in use.

use wire::ndn::name::Name;
use wire::ndn::{Interest, NameRef, SignatureInfo, SignatureType, Tlv, types};

use super::ControlParameters;

/// Why an Interest is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The name has no module and verb after the prefix.
    #[error("name has no module and verb")]
    Name,
    /// The parameters are missing or broken.
    #[error("control parameters are missing or malformed")]
    Parameters,
    /// The signature is missing or broken.
    #[error("command is not signed")]
    Signature,
}

/// A signed command, in either format: signed Interests (packet format v0.3), or a name that ends with
/// timestamp, nonce, SignatureInfo and SignatureValue (as ndn-cxx before 0.7 and python-ndn write).
#[derive(Clone, Debug)]
pub struct Command<'a> {
    /// `rib`, `faces`, ...
    pub module: &'a [u8],
    /// `register`, `create`, ...
    pub verb: &'a [u8],
    /// What is asked.
    pub parameters: ControlParameters,
    /// How it is signed.
    pub signature_info: SignatureInfo<'a>,
    /// Signature.
    pub signature_value: &'a [u8],
    /// What the signature covers.
    pub signed: [&'a [u8]; 3],
    /// When it was signed (Unix ms), if it says so.
    pub time_ms: Option<u64>,
    /// Random bytes, if there are any.
    pub nonce: Option<&'a [u8]>,
    /// Its format is the one of signed Interests.
    pub is_signed_interest: bool,
}

impl<'a> Command<'a> {
    /// Reads the command in an Interest whose name begins with `prefix`.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn parse(interest: &Interest<'a>, prefix: &Name) -> Result<Self, CommandError> {
        let mut components = interest.name.components().skip(prefix.len());
        let (Some(module), Some(verb)) = (components.next(), components.next()) else {
            return Err(CommandError::Name);
        };
        let third = components.next().ok_or(CommandError::Parameters)?;
        // A prefix announcement comes in ApplicationParameters, and no ControlParameters in the name.
        let parameters = if third.component_type == types::PARAMETERS_DIGEST {
            ControlParameters::default()
        } else {
            ControlParameters::parse(third.value).map_err(|_| CommandError::Parameters)?
        };
        let rest = interest.name.suffix(prefix.len() + 3);
        let (module, verb) = (module.value, verb.value);
        if interest.application_parameters.is_some() {
            let signature_info = interest.signature_info.ok_or(CommandError::Signature)?;
            if !interest.parameters_digest_holds() {
                return Err(CommandError::Signature);
            }
            return Ok(Self {
                module,
                verb,
                parameters,
                signature_info,
                signature_value: interest.signature_value.ok_or(CommandError::Signature)?,
                signed: interest.signed_parts(),
                time_ms: signature_info.time_ms,
                nonce: signature_info.nonce,
                is_signed_interest: true,
            });
        }
        Self::parse_old(interest, rest, module, verb, parameters)
    }

    fn parse_old(
        interest: &Interest<'a>,
        rest: NameRef<'a>,
        module: &'a [u8],
        verb: &'a [u8],
        parameters: ControlParameters,
    ) -> Result<Self, CommandError> {
        let mut components = rest.components();
        let (Some(time), Some(nonce), Some(info), Some(value), None) = (
            components.next(),
            components.next(),
            components.next(),
            components.next(),
            components.next(),
        ) else {
            return Err(CommandError::Signature);
        };
        let element = |bytes: &'a [u8], tlv_type| {
            Tlv::read_exact(bytes)
                .ok()
                .filter(|element| element.tlv_type == tlv_type)
                .map(|element| element.value)
                .ok_or(CommandError::Signature)
        };
        let info = element(info.value, types::SIGNATURE_INFO)?;
        let signature_info = SignatureInfo::parse(info).map_err(|_| CommandError::Signature)?;
        let signed = interest.name.prefix(interest.name.len() - 1);
        Ok(Self {
            module,
            verb,
            parameters,
            signature_info,
            signature_value: element(value.value, types::SIGNATURE_VALUE)?,
            signed: [signed.value(), &[], &[]],
            time_ms: time.number(),
            nonce: Some(nonce.value),
            is_signed_interest: false,
        })
    }

    /// True if the signature is DigestSha256 and right.
    pub fn digest_holds(&self) -> bool {
        self.signature_info.signature_type == SignatureType::DigestSha256
            && self.signature_value == wire::ndn::digest::sha256(self.signed)
    }
}
