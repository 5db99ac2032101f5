//! Netlink messages, as far as the lab needs them: requests with nested attributes, replies, dumps.
//!
//! Written here rather than taken from `rtnetlink`: the demo configures its namespaces before any
//! runtime exists, with a dozen kinds of message, and `rtnetlink` would bring tokio and 35 crates.

use std::io;
use std::os::fd::OwnedFd;

use crate::sys;

const HEADER_BYTES: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLA_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Flag: the answer is a list.
pub(crate) const DUMP: u16 = 0x300;
/// Flags: make the object; fail if it exists.
pub(crate) const CREATE: u16 = 0x400 | 0x200;
/// Flags: make the object, or replace it.
pub(crate) const REPLACE: u16 = 0x400 | 0x100;

/// A request being written.
#[derive(Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Starts a request of `kind` with a family-specific fixed part.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]); // sequence and port: set and checked by `Socket`
        bytes.extend_from_slice(fixed);
        let mut request = Self { bytes };
        request.align();
        request
    }

    /// Appends bytes as they are: the fixed part of a nested object.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.align();
        self
    }

    /// Appends an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = (4 + value.len()) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.raw(value)
    }

    /// Appends an attribute that is a string with its zero byte.
    pub(crate) fn string(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that is a 32-bit number.
    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Appends an attribute that holds what `fill` appends.
    pub(crate) fn nest(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let mut done = fill(self);
        let length = (done.bytes.len() - start) as u16;
        done.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        done.bytes[start + 2..start + 4].copy_from_slice(&(kind | NLA_NESTED).to_ne_bytes());
        done
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, sequence: u32, extra_flags: u16) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        let flags = u16_at(&self.bytes, 6) | extra_flags;
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A netlink socket, bound to the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket of `protocol` in the calling thread's network namespace.
    pub(crate) fn open(protocol: libc::c_int) -> io::Result<Self> {
        Ok(Self {
            fd: sys::netlink_socket(protocol)?,
            sequence: 0,
        })
    }

    /// Sends a request and waits for the kernel's acknowledgement.
    pub(crate) fn execute(&mut self, request: Request) -> io::Result<()> {
        self.exchange(request, NLM_F_ACK).map(drop)
    }

    /// Sends a request and returns the payloads of the answers (one, or a list after [`DUMP`]).
    pub(crate) fn query(&mut self, request: Request) -> io::Result<Vec<Vec<u8>>> {
        self.exchange(request, NLM_F_ACK)
    }

    fn exchange(&mut self, request: Request, flags: u16) -> io::Result<Vec<Vec<u8>>> {
        self.sequence += 1;
        sys::send(&self.fd, &request.finish(self.sequence, flags))?;
        let mut answers = Vec::new();
        let mut buffer = vec![0u8; 64 << 10];
        loop {
            let received = sys::receive(&self.fd, &mut buffer)?;
            let mut rest = &buffer[..received];
            while rest.len() >= HEADER_BYTES {
                let length = (u32_at(rest, 0) as usize).clamp(HEADER_BYTES, rest.len());
                let (message, after) = rest.split_at(length);
                rest = &after[(length.next_multiple_of(4) - length).min(after.len())..];
                if u32_at(message, 8) != self.sequence {
                    continue;
                }
                let payload = &message[HEADER_BYTES..];
                match u16_at(message, 4) {
                    NLMSG_ERROR => {
                        return status(payload, u16_at(message, 6)).map(|()| answers);
                    }
                    NLMSG_DONE => return Ok(answers),
                    _ => answers.push(payload.to_vec()),
                }
            }
        }
    }
}

/// Reads an acknowledgement: zero, or an error with the kernel's own words where it gives any.
fn status(payload: &[u8], flags: u16) -> io::Result<()> {
    let code = u32_at(payload, 0) as i32;
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-code);
    // With NETLINK_CAP_ACK only the header of the request is echoed, else all of it.
    let echoed = [HEADER_BYTES, u32_at(payload, 4) as usize];
    let text = echoed.iter().find_map(|&bytes| {
        let rest = payload.get(4 + bytes.next_multiple_of(4)..)?;
        (flags & NLM_F_ACK_TLVS != 0)
            .then(|| attribute(rest, NLMSGERR_ATTR_MSG))
            .flatten()
    });
    match text {
        Some(text) => {
            let text = String::from_utf8_lossy(text);
            let text = text.trim_end_matches('\0').to_owned();
            Err(io::Error::new(error.kind(), format!("{error}: {text}")))
        }
        None => Err(error),
    }
}

/// Walks over the attributes in `bytes`.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & NLA_TYPE_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// Finds an attribute.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, v)| v)
}

/// Finds an attribute that is a 32-bit number.
pub(crate) fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    attribute(bytes, kind).map(|value| u32_at(value, 0))
}

/// Reads a number in host order; zero where the bytes end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_ne_bytes)
}

/// Reads a number in host order; zero where the bytes end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_attributes_read_back() {
        let request = Request::new(16, 0, &[7; 5])
            .string(3, "d0")
            .nest(18, |r| r.string(1, "veth").nest(2, |r| r.number(31, 4)));
        let bytes = request.finish(9, 0);
        assert_eq!(u32_at(&bytes, 0) as usize, bytes.len());
        assert_eq!(u32_at(&bytes, 8), 9);
        let body = &bytes[HEADER_BYTES + 8..];
        assert_eq!(attribute(body, 3), Some(&b"d0\0"[..]));
        let info = attribute(body, 18).unwrap();
        assert_eq!(attribute(info, 1), Some(&b"veth\0"[..]));
        assert_eq!(number(attribute(info, 2).unwrap(), 31), Some(4));
    }

    #[test]
    fn attributes_that_lie_about_their_length_end_the_walk() {
        assert_eq!(attributes(&[200, 0, 1, 0, 5]).count(), 0);
        assert_eq!(attributes(&[0, 0, 1, 0, 5, 0, 0, 0]).count(), 0);
        assert_eq!(attributes(&[]).count(), 0);
    }

    #[test]
    fn a_refusal_carries_the_kernels_words() {
        let mut payload = (-17i32).to_ne_bytes().to_vec();
        payload.extend_from_slice(&[0; HEADER_BYTES]);
        payload.extend_from_slice(&[8, 0, 1, 0, b'h', b'a', b'h', 0]);
        let error = status(&payload, NLM_F_ACK_TLVS).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().ends_with(": hah"), "{error}");
    }
}
