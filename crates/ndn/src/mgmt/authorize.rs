//! Who may give which commands.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use wire::ndn::name::Name;
use wire::ndn::{KeyLocator, SignatureType};

use super::Command;

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// The signature is wrong, or of a kind that is not known here.
    #[error("signature does not verify")]
    Signature,
    /// The key may not give commands to this module.
    #[error("key is not authorised for this module")]
    Privilege,
    /// The command was given before, or is too old or from the future.
    #[error("command is a replay or its time is off")]
    Replay,
}

/// A key that checks signatures, e.g. an ECDSA public key.
pub trait VerifyingKey {
    /// The algorithm.
    fn signature_type(&self) -> SignatureType;

    /// True if `signature` is the key's over `parts`, one after another.
    fn verifies(&self, parts: &[&[u8]], signature: &[u8]) -> bool;
}

/// Decides about commands.
pub trait Authorization {
    /// Checks signature, privilege and replay. `unix_ms` is the time of day.
    ///
    /// # Errors
    /// [`Denied`].
    fn authorize(&mut self, command: &Command<'_>, unix_ms: u64) -> Result<(), Denied>;
}

/// A key with the modules that it may give commands to.
struct Grant<K> {
    /// Names of keys and certificates that begin with this are the key's.
    name: Name,
    key: K,
    modules: Vec<Vec<u8>>,
}

/// Keys and their privileges; integrity alone (DigestSha256) may have privileges too, as in the configuration
/// that NFD comes with.
pub struct KeyRing<K> {
    grants: Vec<Grant<K>>,
    /// Modules that any well-formed command may use, whatever its signature's key.
    anyone: Vec<Vec<u8>>,
    /// The latest time by key, for commands that carry one.
    latest: BTreeMap<Vec<u8>, u64>,
    /// Nonces of commands that carry no time.
    nonces: VecDeque<Vec<u8>>,
}

/// Keys whose latest time is remembered, as in NFD.
const LATEST_MAX: usize = 1000;
/// Nonces that are remembered.
const NONCES_MAX: usize = 1000;
/// How far a command's time may be off (ms), as in NFD.
const GRACE_MS: u64 = 120_000;

impl<K> core::fmt::Debug for KeyRing<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeyRing")
            .field("grants", &self.grants.len())
            .finish_non_exhaustive()
    }
}

impl<K: VerifyingKey> KeyRing<K> {
    /// Makes one that refuses all.
    pub const fn new() -> Self {
        Self {
            grants: Vec::new(),
            anyone: Vec::new(),
            latest: BTreeMap::new(),
            nonces: VecDeque::new(),
        }
    }

    /// Lets anyone give commands to a module. Right where only this machine's applications can: it is NFD's
    /// configuration as installed.
    pub fn allow_anyone(&mut self, module: &str) {
        self.anyone.push(module.as_bytes().to_vec());
    }

    /// Lets the key whose names begin with `name` give commands to `modules`.
    pub fn allow(&mut self, name: Name, key: K, modules: &[&str]) {
        self.grants.push(Grant {
            name,
            key,
            modules: modules.iter().map(|m| m.as_bytes().to_vec()).collect(),
        });
    }

    /// Refuses what was given before: a time that is not later than the key's last, or a nonce seen before.
    fn check_replay(&mut self, command: &Command<'_>, unix_ms: u64) -> Result<(), Denied> {
        let Some(time_ms) = command.time_ms else {
            let nonce = command.nonce.unwrap_or_default();
            if nonce.is_empty() && command.signature_info.seq_num.is_none() {
                // Neither time, nonce nor number: nothing tells it from a replay, and integrity is all it has.
                return Ok(());
            }
            if self.nonces.iter().any(|seen| seen == nonce) {
                return Err(Denied::Replay);
            }
            if self.nonces.len() >= NONCES_MAX {
                self.nonces.pop_front();
            }
            self.nonces.push_back(nonce.to_vec());
            return Ok(());
        };
        if time_ms.abs_diff(unix_ms) > GRACE_MS {
            return Err(Denied::Replay);
        }
        let Some(KeyLocator::Name(key)) = command.signature_info.key_locator else {
            return Ok(());
        };
        if self
            .latest
            .get(key.value())
            .is_some_and(|&latest| time_ms <= latest)
        {
            return Err(Denied::Replay);
        }
        if self.latest.len() >= LATEST_MAX {
            self.latest.pop_first();
        }
        self.latest.insert(key.value().to_vec(), time_ms);
        Ok(())
    }
}

impl<K: VerifyingKey> Default for KeyRing<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: VerifyingKey> Authorization for KeyRing<K> {
    fn authorize(&mut self, command: &Command<'_>, unix_ms: u64) -> Result<(), Denied> {
        if self.anyone.iter().any(|module| module == command.module) {
            // Integrity is checked where it can be.
            if command.signature_info.signature_type == SignatureType::DigestSha256
                && !command.digest_holds()
            {
                return Err(Denied::Signature);
            }
            return self.check_replay(command, unix_ms);
        }
        let Some(KeyLocator::Name(name)) = command.signature_info.key_locator else {
            return Err(Denied::Signature);
        };
        let grant = self.grants.iter().find(|grant| {
            grant.name.as_ref().is_prefix_of(&name)
                && grant.key.signature_type() == command.signature_info.signature_type
                && grant.key.verifies(&command.signed, command.signature_value)
        });
        let grant = grant.ok_or(Denied::Signature)?;
        if !grant.modules.iter().any(|module| module == command.module) {
            return Err(Denied::Privilege);
        }
        self.check_replay(command, unix_ms)
    }
}
