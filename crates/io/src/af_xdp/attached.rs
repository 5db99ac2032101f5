//! The one thing that only netlink tells: which XDP program an interface has.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Where an XDP program is attached (`XDP_ATTACHED_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttachment {
    /// In the driver.
    Native,
    /// On skbs.
    Generic,
    /// On the device.
    Offloaded,
    /// In several places.
    Several,
}

/// The XDP program of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedXdp {
    /// The kernel's id of the program.
    pub program_id: u32,
    /// Where it is attached.
    pub place: XdpAttachment,
}

/// Bytes of `struct nlmsghdr` and `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
const IFINFO_BYTES: usize = 16;
/// Bytes of `struct nlattr`, which every attribute starts with.
const ATTRIBUTE_BYTES: usize = 4;
/// Strips the "nested" and "byte order" bits of an attribute's type.
const TYPE_MASK: u16 = 0x3fff;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
/// Room for one answer about one interface, bytes.
const ANSWER_BYTES: usize = 32 << 10;

/// Asks which XDP program an interface has.
///
/// # Errors
/// The kernel's answer.
pub fn attached_xdp(ifindex: u32) -> io::Result<Option<AttachedXdp>> {
    let mut request = Vec::with_capacity(HEADER_BYTES + IFINFO_BYTES);
    request.extend(((HEADER_BYTES + IFINFO_BYTES) as u32).to_ne_bytes());
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend([0; 8]); // sequence, port
    request.extend([0; 4]); // family, padding, type
    request.extend(ifindex.to_ne_bytes());
    request.extend([0; 8]); // flags, change
    parse_answer(&ask(&request)?)
}

/// Sends a request to the kernel's routing family and returns its first answer.
fn ask(request: &[u8]) -> io::Result<Vec<u8>> {
    // SAFETY: makes a new socket; no memory is passed.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: passes the request's address and length.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0u8; ANSWER_BYTES];
    // SAFETY: passes the buffer's address and length.
    let received = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    answer.truncate(received);
    Ok(answer)
}

fn parse_answer(answer: &[u8]) -> io::Result<Option<AttachedXdp>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = answer.get(4..6).ok_or_else(malformed)?;
    if kind == (libc::NLMSG_ERROR as u16).to_ne_bytes() {
        let code = number(answer.get(HEADER_BYTES..).ok_or_else(malformed)?);
        return Err(io::Error::from_raw_os_error((code as i32).wrapping_neg()));
    }
    let attributes = answer
        .get(HEADER_BYTES + IFINFO_BYTES..)
        .ok_or_else(malformed)?;
    let Some(xdp) = find_attribute(attributes, IFLA_XDP) else {
        return Ok(None);
    };
    let place = match find_attribute(xdp, IFLA_XDP_ATTACHED).and_then(<[u8]>::first) {
        Some(1) => XdpAttachment::Native,
        Some(2) => XdpAttachment::Generic,
        Some(3) => XdpAttachment::Offloaded,
        Some(4) => XdpAttachment::Several,
        _ => return Ok(None),
    };
    Ok(Some(AttachedXdp {
        program_id: find_attribute(xdp, IFLA_XDP_PROG_ID).map_or(0, number),
        place,
    }))
}

/// The first 4 bytes as a number; 0 if there are fewer.
fn number(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Finds an attribute's content in a list of attributes.
fn find_attribute(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(header) = list.first_chunk::<ATTRIBUTE_BYTES>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        if length < ATTRIBUTE_BYTES {
            return None;
        }
        if kind == wanted {
            return list.get(ATTRIBUTE_BYTES..length);
        }
        list = list.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((ATTRIBUTE_BYTES + content.len()) as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(attributes: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + IFINFO_BYTES];
        bytes[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn finds_the_program_behind_other_attributes() {
        let nested = [
            attribute(IFLA_XDP_ATTACHED, &[2]),
            attribute(IFLA_XDP_PROG_ID, &77u32.to_ne_bytes()),
        ]
        .concat();
        let bytes = answer(
            &[
                attribute(3, b"eth0\0"),
                attribute(IFLA_XDP | 0x8000, &nested),
            ]
            .concat(),
        );
        let expected = AttachedXdp {
            program_id: 77,
            place: XdpAttachment::Generic,
        };
        assert_eq!(parse_answer(&bytes).expect("parses"), Some(expected));
    }

    #[test]
    fn none_attached_is_none() {
        let nested = attribute(IFLA_XDP_ATTACHED, &[0]);
        let bytes = answer(&attribute(IFLA_XDP, &nested));
        assert_eq!(parse_answer(&bytes).expect("parses"), None);
        assert_eq!(parse_answer(&answer(&[])).expect("parses"), None);
    }

    #[test]
    fn an_error_answer_is_an_error() {
        let mut bytes = answer(&[]);
        bytes[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        let error = parse_answer(&bytes).expect_err("is an error");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn cut_answers_are_no_panic() {
        let nested = attribute(IFLA_XDP_ATTACHED, &[1]);
        let whole = answer(&attribute(IFLA_XDP, &nested));
        for length in 0..whole.len() {
            let _ = parse_answer(&whole[..length]);
        }
        assert_eq!(find_attribute(&[0, 0, 0, 0], 1), None);
    }
}
