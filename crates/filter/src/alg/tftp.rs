//! TFTP (RFC 1350): the server answers a request from a port of its own choice, to the port that asked.

use wire::ip_protocol;

use super::{Advertised, Edits, Ends, Expose, Refused};

const READ: u16 = 1;
const WRITE: u16 = 2;

/// Expects the answer to a request.
///
/// # Errors
/// If the client's endpoint cannot be exposed.
pub fn inspect(message: &[u8], ends: &Ends, expose: Expose<'_>) -> Result<Edits, Refused> {
    if let Some(&[high, low]) = message.first_chunk()
        && ends.from_client
        && matches!(u16::from_be_bytes([high, low]), READ | WRITE)
    {
        expose(Advertised {
            endpoint: ends.own,
            protocol: ip_protocol::UDP,
            is_pair: false,
        })?;
    }
    Ok(Edits::new())
}
