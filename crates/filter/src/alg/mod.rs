//! Inspection of application protocols (LF-4), by rule and off by default.
//!
//! A rule attaches a [`Helper`] to a new connection (`ct helper set "NAME"`). From then on the helper reads what the
//! ends say to each other: where one names an address and a port to which the other will open a connection, the
//! engine expects that connection ([`expectation`]), and where the address is translated, the message is changed to
//! say what the other end must use. The readers here are pure functions over one message; what they ask of the engine
//! is one question ([`Expose`]), and what they answer are [`Edits`]. Both are bounded, whatever the message holds.

pub mod dns;
pub mod expectation;
pub mod ftp;
pub mod rtsp;
pub mod sack;
pub mod sip;
pub mod stream;
pub mod tftp;

use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};

use arrayvec::{ArrayString, ArrayVec};
use wire::ip_protocol;

use crate::packet::HelperId;

/// Places of one message that can be changed, at most.
pub const EDITS_MAX: usize = 32;

/// Bytes that one place can be changed to, at most: an IPv6 address with its port and what stands between them.
pub const TEXT_BYTES: usize = 64;

/// A protocol that is inspected. The numbers are those of [`HelperId`], and stay: connections outlive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Helper {
    /// File transfer (RFC 959, RFC 2428): data connections in both modes.
    Ftp = 1,
    /// Trivial file transfer (RFC 1350): the answer comes from a new port.
    Tftp = 2,
    /// Calls (RFC 3261): both ends in the headers, media in the description. Over UDP.
    Sip = 3,
    /// Streams (RFC 2326): the ports of RTP.
    Rtsp = 4,
    /// Names (RFC 1035): a question has one answer.
    Dns = 5,
}

impl Helper {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ftp, Self::Tftp, Self::Sip, Self::Rtsp, Self::Dns];

    /// Returns the helper of a number.
    pub fn of(id: HelperId) -> Option<Self> {
        Self::ALL.into_iter().find(|helper| helper.id() == id)
    }

    /// Returns the helper of a type, as rules name it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|helper| helper.name() == name)
    }

    /// Its number.
    pub const fn id(self) -> HelperId {
        HelperId(self as u16)
    }

    /// Its type, as rules name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Tftp => "tftp",
            Self::Sip => "sip",
            Self::Rtsp => "rtsp",
            Self::Dns => "dns",
        }
    }

    /// The IP protocol that it inspects.
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Ftp | Self::Rtsp => ip_protocol::TCP,
            Self::Tftp | Self::Sip | Self::Dns => ip_protocol::UDP,
        }
    }
}

/// The ends of a connection, for a packet on its way from one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The sender, as it knows itself.
    pub own: SocketAddr,
    /// The sender, as the receiver knows it.
    pub own_seen: SocketAddr,
    /// The receiver, as the sender knows it.
    pub peer_seen: SocketAddr,
    /// The receiver, as it knows itself.
    pub peer: SocketAddr,
    /// The sender opened the connection.
    pub from_client: bool,
}

/// An endpoint that the sender of a message waits at, or will send from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// Its address and port, as the message says.
    pub endpoint: SocketAddr,
    /// IP protocol.
    pub protocol: u8,
    /// The next port is meant as well (RTP with RTCP).
    pub is_pair: bool,
}

/// A message is not to pass: what it asks for cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Expects connections to an endpoint, and says what the receiver must know it by; `None` if the address is not the
/// sender's: nothing is expected then, and the message stays.
pub type Expose<'a> = &'a mut dyn FnMut(Advertised) -> Result<Option<SocketAddr>, Refused>;

/// A place of a message, and what it is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// What is to stand there.
    pub text: ArrayString<TEXT_BYTES>,
}

/// The changes of one message, in order and without overlap.
pub type Edits = ArrayVec<Edit, EDITS_MAX>;

/// Reads a message of a connection with a helper.
///
/// # Errors
/// If what it asks for cannot be given: it is not to pass.
pub fn inspect(
    helper: Helper,
    message: &[u8],
    ends: &Ends,
    expose: Expose<'_>,
) -> Result<Edits, Refused> {
    match helper {
        Helper::Ftp => ftp::inspect(message, ends, expose),
        Helper::Tftp => tftp::inspect(message, ends, expose),
        Helper::Sip => sip::inspect(message, ends, expose),
        Helper::Rtsp => rtsp::inspect(message, ends, expose),
        // It changes nothing: see [`dns::Waiting`].
        Helper::Dns => Ok(Edits::new()),
    }
}

/// Tells whether the start of a line may become one that the helper changes: it waits for its rest then.
pub fn is_promising(helper: Helper, start: &[u8], from_client: bool) -> bool {
    helper == Helper::Ftp && ftp::is_promising(start, from_client)
}

/// Notes a change, unless the place says so already.
///
/// # Errors
/// If there are as many changes as there may be.
fn change(
    edits: &mut Edits,
    message: &[u8],
    (start, end): (usize, usize),
    text: core::fmt::Arguments<'_>,
) -> Result<(), Refused> {
    let mut edit = Edit {
        start,
        end,
        text: ArrayString::new(),
    };
    edit.text.write_fmt(text).map_err(|_| Refused)?;
    if message.get(start..end) == Some(edit.text.as_bytes()) {
        return Ok(());
    }
    edits.try_push(edit).map_err(|_| Refused)
}

/// What is added to the length of a message.
pub fn growth(edits: &Edits) -> isize {
    let of = |edit: &Edit| edit.text.len() as isize - (edit.end - edit.start) as isize;
    edits.iter().map(of).sum()
}

/// Writes the changed message; returns its length, or `None` if there is no room.
pub fn apply(message: &[u8], edits: &Edits, to: &mut [u8]) -> Option<usize> {
    let mut put = |at: usize, bytes: &[u8]| {
        to.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        Some(at + bytes.len())
    };
    let (mut at, mut from) = (0, 0);
    for edit in edits {
        at = put(at, message.get(from..edit.start)?)?;
        at = put(at, edit.text.as_bytes())?;
        from = edit.end;
    }
    put(at, message.get(from..)?)
}

/// Reads a decimal number of at most `digits` digits; returns it and what follows.
fn number(bytes: &[u8], digits: usize) -> Option<(u32, &[u8])> {
    let len = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if len == 0 || len > digits {
        return None;
    }
    let (text, rest) = bytes.split_at_checked(len)?;
    let value = text
        .iter()
        .fold(0, |value, &digit| value * 10 + u32::from(digit - b'0'));
    Some((value, rest))
}

/// Reads a port that may be waited at: not zero.
fn port(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (value, rest) = number(bytes, 5)?;
    let port = u16::try_from(value).ok().filter(|&port| port != 0)?;
    Some((port, rest))
}

/// Reads an address of either family.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    core::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Takes a keyword off the front, whatever its case.
fn after<'a>(line: &'a [u8], keyword: &[u8]) -> Option<&'a [u8]> {
    let (front, rest) = line.split_at_checked(keyword.len())?;
    front.eq_ignore_ascii_case(keyword).then_some(rest)
}

/// The complete lines of a message, each with the offset of its first byte and without what ends it.
fn lines(message: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let rest = message.get(at..)?;
        let len = rest.iter().position(|&byte| byte == b'\n')?;
        let start = at;
        at += len + 1;
        let line = rest.get(..len)?;
        Some((start, line.strip_suffix(b"\r").unwrap_or(line)))
    })
}

#[cfg(test)]
mod tests {
    use super::Ends;

    /// 10.0.0.1:4000, seen as 203.0.113.1:6000, and 198.51.100.7:5060.
    pub(super) fn ends(from_client: bool) -> Ends {
        let (own, peer) = ("10.0.0.1:4000", "198.51.100.7:5060");
        Ends {
            own: own.parse().unwrap(),
            own_seen: "203.0.113.1:6000".parse().unwrap(),
            peer_seen: peer.parse().unwrap(),
            peer: peer.parse().unwrap(),
            from_client,
        }
    }
}
