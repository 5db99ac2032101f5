//! Messages on a stream: a 32-bit big-endian length and that many bytes of JSON.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::MAX_MESSAGE_BYTES;

/// Writes one message with one write.
pub(super) fn write<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4)
        .ok()
        .filter(|length| *length <= MAX_MESSAGE_BYTES)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "message is too long"))?;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&bytes)
}

/// Reads one message; `None` at the end of the stream, or when `stop` says so while the stream times
/// out between messages.
pub(super) fn read<T: DeserializeOwned>(
    stream: &mut impl Read,
    stop: impl Fn() -> bool,
) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    if !fill(stream, &mut length, &stop)? {
        return Ok(None);
    }
    let length = u32::from_be_bytes(length);
    if length > MAX_MESSAGE_BYTES {
        let text = format!("message of {length} bytes is longer than {MAX_MESSAGE_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    // grows as bytes arrive: a length alone reserves nothing
    let mut body = Vec::new();
    let mut chunk = [0; 4096];
    let mut left = length as usize;
    while left > 0 {
        let part = left.min(chunk.len());
        let part = &mut chunk[..part];
        if !fill(stream, part, &stop)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        body.extend_from_slice(part);
        left -= part.len();
    }
    Ok(Some(serde_json::from_slice(&body)?))
}

/// Fills `buffer`; `false` if the stream ended, or was stopped, before its first byte.
fn fill(stream: &mut impl Read, buffer: &mut [u8], stop: &impl Fn() -> bool) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    if stop() {
                        return Ok(false);
                    }
                }
                _ => return Err(error),
            },
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Request;

    fn bytes(request: &Request) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, request).unwrap();
        out
    }

    #[test]
    fn message_survives_the_stream() {
        let sent = Request::Watch { interval_ms: 250 };
        let received: Option<Request> = read(&mut &bytes(&sent)[..], || false).unwrap();
        assert_eq!(received, Some(sent));
    }

    #[test]
    fn every_truncation_is_an_error_or_an_end() {
        let whole = bytes(&Request::Hello);
        assert_eq!(read::<Request>(&mut &whole[..0], || false).unwrap(), None);
        for cut in 1..whole.len() {
            assert!(
                read::<Request>(&mut &whole[..cut], || false).is_err(),
                "{cut} bytes"
            );
        }
    }

    #[test]
    fn long_and_foreign_messages_are_refused() {
        let long = (MAX_MESSAGE_BYTES + 1).to_be_bytes();
        assert!(read::<Request>(&mut &long[..], || false).is_err());
        let foreign = [&[0, 0, 0, 3][..], b"GET"].concat();
        assert!(read::<Request>(&mut &foreign[..], || false).is_err());
    }
}
