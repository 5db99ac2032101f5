//! Public keys that commands are signed with.

use std::path::Path;

use ndn::mgmt::VerifyingKey;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use wire::ndn::name::Name;
use wire::ndn::{Data, SignatureType};

/// Components that a certificate's name has after the key's: issuer and version.
const CERTIFICATE_COMPONENTS: usize = 2;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("cannot read the certificate {file}")]
    Read {
        /// The file.
        file: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{file} is no NDN certificate: {what}")]
    Format {
        /// The file.
        file: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// The public key of a certificate.
#[derive(Clone, Debug)]
pub struct PublicKey {
    kind: SignatureType,
    key: UnparsedPublicKey<Vec<u8>>,
}

impl VerifyingKey for PublicKey {
    fn signature_type(&self) -> SignatureType {
        self.kind
    }

    fn verifies(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        self.key.verify(&parts.concat(), signature).is_ok()
    }
}

/// Reads a certificate (a Data packet in base64, as `ndnsec cert-dump` writes it, or in binary): the name of its
/// key, and the key.
///
/// # Errors
/// [`KeyError`].
pub fn read_certificate(path: &Path) -> Result<(Name, PublicKey), KeyError> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| KeyError::Read {
        file: file.clone(),
        source,
    })?;
    parse_certificate(&bytes).map_err(|what| KeyError::Format { file, what })
}

fn parse_certificate(bytes: &[u8]) -> Result<(Name, PublicKey), &'static str> {
    let decoded;
    let packet = if bytes.first() == Some(&6) {
        bytes
    } else {
        decoded = base64(bytes).ok_or("it is neither a Data packet nor base64 of one")?;
        &decoded
    };
    let data = Data::parse(packet).map_err(|error| error.text())?;
    let key_name = data
        .name
        .len()
        .checked_sub(CERTIFICATE_COMPONENTS)
        .filter(|length| *length >= 2)
        .map(|length| data.name.prefix(length))
        .ok_or("its name is too short")?;
    let is_key = key_name
        .component(key_name.len() - 2)
        .is_some_and(|component| component.value == b"KEY");
    if !is_key {
        return Err("its name has no KEY component");
    }
    let key = parse_key(data.content).ok_or("its key is neither ECDSA, RSA nor Ed25519")?;
    Ok((Name::from(key_name), key))
}

/// Reads a SubjectPublicKeyInfo (RFC 5280 4.1).
fn parse_key(der: &[u8]) -> Option<PublicKey> {
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    let (info, _) = element(der, 0x30)?;
    let (algorithm, rest) = element(info, 0x30)?;
    let (key, _) = element(rest, 0x03)?;
    // No unused bits.
    let (&0, key) = key.split_first()? else {
        return None;
    };
    let (oid, parameters) = element(algorithm, 0x06)?;
    let verified_by: (SignatureType, &'static dyn VerificationAlgorithm) = match oid {
        EC => {
            let (curve, _) = element(parameters, 0x06)?;
            let algorithm: &'static dyn VerificationAlgorithm = match curve {
                P256 => &signature::ECDSA_P256_SHA256_ASN1,
                P384 => &signature::ECDSA_P384_SHA256_ASN1,
                _ => return None,
            };
            (SignatureType::Sha256WithEcdsa, algorithm)
        }
        RSA => (
            SignatureType::Sha256WithRsa,
            &signature::RSA_PKCS1_2048_8192_SHA256,
        ),
        ED25519 => (SignatureType::Ed25519, &signature::ED25519),
        _ => return None,
    };
    Some(PublicKey {
        kind: verified_by.0,
        key: UnparsedPublicKey::new(verified_by.1, key.to_vec()),
    })
}

/// Reads a DER element of a tag: its value, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes.iter().fold(0, |n, &byte| n << 8 | usize::from(byte));
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// Reads base64 (RFC 4648 4), with line ends.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' | b'\n' | b'\r' | b' ' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
    use wire::ndn::{DataFields, DigestSigner, content_type};

    fn to_base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for chunk in bytes.chunks(3) {
            let word = (0..3).fold(0_u32, |n, i| {
                n << 8 | u32::from(*chunk.get(i).unwrap_or(&0))
            });
            for digit in 0..4 {
                out.push(if digit <= chunk.len() {
                    DIGITS[(word >> (18 - 6 * digit) & 63) as usize] as char
                } else {
                    '='
                });
            }
            if out.len() % 65 == 64 {
                out.push('\n');
            }
        }
        out
    }

    #[test]
    fn a_certificate_with_an_ecdsa_key_verifies_what_the_key_signed() {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let mut der = vec![
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
            0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        der.extend_from_slice(pair.public_key().as_ref());
        let name: Name = "/op/KEY/k1/self".parse().unwrap();
        let name = name.with_version(1);
        let mut packet = [0; 600];
        let length = DataFields {
            content_type: content_type::KEY,
            ..DataFields::new(name.as_ref(), &der)
        }
        .encode(&DigestSigner, &mut packet)
        .unwrap();
        for file in [
            packet[..length].to_vec(),
            to_base64(&packet[..length]).into_bytes(),
        ] {
            let (name, key) = parse_certificate(&file).unwrap();
            assert_eq!(name.to_string(), "/op/KEY/k1");
            assert_eq!(key.signature_type(), SignatureType::Sha256WithEcdsa);
            let signature = pair.sign(&random, b"a command").unwrap();
            assert!(key.verifies(&[b"a ", b"command"], signature.as_ref()));
            assert!(!key.verifies(&[b"a ", b"Command"], signature.as_ref()));
            assert!(!key.verifies(&[b"a command"], &[0; 70]));
        }
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let refused = |bytes: &[u8]| parse_certificate(bytes).unwrap_err();
        assert!(refused(b"not base64!").contains("base64"));
        assert!(refused(b"AAAA").contains("TLV-TYPE"));
        assert!(refused(&[6, 2, 7, 0]).contains("missing"));
        assert!(parse_key(&[0x30, 0x84, 1, 2, 3, 4]).is_none());
        assert!(parse_key(&[]).is_none());
    }
}
