//! SHA-256 over the parts of a packet.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of the parts one after another.
pub fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}
