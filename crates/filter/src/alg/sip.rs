//! SIP over UDP (RFC 3261) with session descriptions (RFC 8866): both ends' addresses in the headers that lead messages
//! back, and the endpoints of media streams.
//!
//! Media are expected from the other end of the signalling only, as Linux does by default; a description that names
//! another host is left alone.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use arrayvec::ArrayVec;
use wire::ip_protocol;

use super::{
    Advertised, Edits, Ends, Expose, Refused, address, after, change, growth, lines, number, port,
};

/// The port where none is named (RFC 3261 19.1.2).
const PORT: u16 = 5060;
/// Media streams of one description, at most.
const MEDIA_MAX: usize = 8;

/// Headers that say where messages go, in both spellings (RFC 3261 7.3.3).
const HEADERS: [&[u8]; 10] = [
    b"Via",
    b"v",
    b"Contact",
    b"m",
    b"From",
    b"f",
    b"To",
    b"t",
    b"Route",
    b"Record-Route",
];

/// Reads a message.
///
/// # Errors
/// If an endpoint cannot be exposed, or there are more places to change than may be.
pub fn inspect(message: &[u8], ends: &Ends, expose: Expose<'_>) -> Result<Edits, Refused> {
    let mut edits = Edits::new();
    let mut length = None;
    let mut is_described = false;
    let mut body = None;
    for (number, (at, line)) in lines(message).enumerate() {
        if number == 0 {
            let is_answer = line.starts_with(b"SIP/2.0 ");
            if !is_answer && !line.ends_with(b" SIP/2.0") {
                return Ok(edits);
            }
            if !is_answer {
                addresses(&mut edits, message, (at, line), ends)?;
            }
            continue;
        }
        if line.is_empty() {
            body = message.get(at..).and_then(|rest| {
                let skip = 1 + rest.iter().position(|&byte| byte == b'\n')?;
                Some(at + skip)
            });
            break;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let (name, value) = line.split_at_checked(colon + 1).unwrap_or_default();
        let name = name.strip_suffix(b":").unwrap_or(name).trim_ascii();
        let is = |names: &[&[u8]]| names.iter().any(|one| name.eq_ignore_ascii_case(one));
        let start = at + colon + 1;
        if is(&HEADERS) {
            addresses(&mut edits, message, (start, value), ends)?;
        } else if is(&[b"Content-Length", b"l"]) {
            let digits = value.trim_ascii_start();
            let start = start + value.len() - digits.len();
            length = super::number(digits, 6)
                .map(|(value, rest)| (start, start + digits.len() - rest.len(), value));
        } else if is(&[b"Content-Type", b"c"]) {
            is_described = after(value.trim_ascii(), b"application/sdp").is_some();
        }
    }
    let Some(body) = body.filter(|_| is_described) else {
        return Ok(edits);
    };
    let mut described = Edits::new();
    describe(&mut described, message, body, ends, expose)?;
    let more = growth(&described);
    if let Some((start, end, value)) = length.filter(|_| more != 0) {
        let value = (value as isize).saturating_add(more).max(0);
        change(&mut edits, message, (start, end), format_args!("{value}"))?;
    }
    for edit in described {
        edits.try_push(edit).map_err(|_| Refused)?;
    }
    edits.sort_unstable_by_key(|edit| edit.start);
    Ok(edits)
}

/// How the receiver knows an endpoint of the connection.
fn translated(ends: &Ends, address: IpAddr) -> Option<(SocketAddr, SocketAddr)> {
    [(ends.own, ends.own_seen), (ends.peer_seen, ends.peer)]
        .into_iter()
        .find(|(from, to)| from.ip() == address && from != to)
}

/// Changes the connection's endpoints in a line: `address`, `address:port`, and `rport=port`.
fn addresses(
    edits: &mut Edits,
    message: &[u8],
    (start, line): (usize, &[u8]),
    ends: &Ends,
) -> Result<(), Refused> {
    let mut at = 0;
    let mut before = b' ';
    while let Some(rest) = line.get(at..).filter(|rest| !rest.is_empty()) {
        let is_start = !before.is_ascii_alphanumeric() && !matches!(before, b'.' | b'-' | b'_');
        let previous = before;
        before = rest[0];
        if is_start && let Some((port, _)) = after(rest, b"rport=").and_then(port) {
            if port == ends.peer_seen.port() {
                let from = start + at + 6;
                let digits = rest.get(6..).map_or(0, digits);
                change(
                    edits,
                    message,
                    (from, from + digits),
                    format_args!("{}", ends.peer.port()),
                )?;
            }
            at += 6;
            continue;
        }
        let Some((address, len)) = literal(rest).filter(|_| is_start) else {
            at += 1;
            continue;
        };
        let named = rest
            .get(len..)
            .and_then(|rest| rest.strip_prefix(b":"))
            .and_then(port)
            .map(|(port, rest_after)| (port, rest.len() - rest_after.len()));
        if let Some((from, to)) = translated(ends, address) {
            let place = start + at;
            let host = Host(to.ip());
            match named {
                Some((port, end)) if port == from.port() => {
                    let text = format_args!("{host}:{}", to.port());
                    change(edits, message, (place, place + end), text)?;
                }
                // An endpoint that is not this connection's.
                Some(_) => {}
                None if previous != b'=' && from.port() == PORT && to.port() != PORT => {
                    let text = format_args!("{host}:{}", to.port());
                    change(edits, message, (place, place + len), text)?;
                }
                None => change(edits, message, (place, place + len), format_args!("{host}"))?,
            }
        }
        before = b'0';
        at += named.map_or(len, |(_, end)| end).max(1);
    }
    Ok(())
}

/// An address as it stands in a URI.
struct Host(IpAddr);

impl core::fmt::Display for Host {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "[{address}]"),
        }
    }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Reads an IPv4 address, or an IPv6 address in brackets; returns it and the length of its text.
fn literal(text: &[u8]) -> Option<(IpAddr, usize)> {
    if let Some(inner) = text.strip_prefix(b"[") {
        let len = inner.iter().take(46).position(|&byte| byte == b']')?;
        let address: Ipv6Addr = core::str::from_utf8(inner.get(..len)?).ok()?.parse().ok()?;
        return Some((address.into(), len + 2));
    }
    let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let len = text.iter().take(16).take_while(is_part).count();
    if len < 7 || text.get(len).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    // A sentence's end is no part of it.
    let len = if text.get(len - 1) == Some(&b'.') {
        len - 1
    } else {
        len
    };
    address(text.get(..len)?).map(|address| (address, len))
}

/// A media stream of a description.
struct Media {
    /// Where its port stands.
    span: (usize, usize),
    port: u16,
    is_rtp: bool,
    address: Option<IpAddr>,
}

/// Changes a session description that starts at `body`.
fn describe(
    edits: &mut Edits,
    message: &[u8],
    body: usize,
    ends: &Ends,
    expose: Expose<'_>,
) -> Result<(), Refused> {
    let mut streams = ArrayVec::<Media, MEDIA_MAX>::new();
    let mut session = None;
    for (at, line) in lines(message.get(body..).unwrap_or_default()) {
        let at = body + at;
        if line.starts_with(b"c=") || line.starts_with(b"o=") {
            let word = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
            let Some(address) = address(word) else {
                continue;
            };
            if address == ends.own.ip() {
                let span = (at + line.len() - word.len(), at + line.len());
                change(edits, message, span, format_args!("{}", ends.own_seen.ip()))?;
            }
            if line.starts_with(b"c=") {
                match streams.last_mut() {
                    Some(stream) => stream.address = Some(address),
                    None => session = Some(address),
                }
            }
        } else if let Some(media) = line.strip_prefix(b"m=") {
            let Some(space) = media.iter().position(|&byte| byte == b' ') else {
                continue;
            };
            let text = media.get(space + 1..).unwrap_or_default();
            // Port zero: a stream that is refused (RFC 3264 6).
            let Some((port, rest)) = number(text, 5) else {
                continue;
            };
            let Ok(port) = u16::try_from(port) else {
                continue;
            };
            let start = at + 2 + space + 1;
            let stream = Media {
                span: (start, start + text.len() - rest.len()),
                port,
                is_rtp: rest.trim_ascii_start().starts_with(b"RTP/"),
                address: None,
            };
            streams.try_push(stream).map_err(|_| Refused)?;
        }
    }
    for stream in &streams {
        let Some(address) = stream.address.or(session).filter(|_| stream.port != 0) else {
            continue;
        };
        let advertised = Advertised {
            endpoint: SocketAddr::new(address, stream.port),
            protocol: ip_protocol::UDP,
            is_pair: stream.is_rtp,
        };
        if let Some(seen) = expose(advertised)? {
            change(edits, message, stream.span, format_args!("{}", seen.port()))?;
        }
    }
    edits.sort_unstable_by_key(|edit| edit.start);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alg::{apply, tests::ends};
    use alloc::string::String;
    use alloc::vec::Vec;

    fn through(message: &str, ends: &Ends) -> (String, Vec<Advertised>) {
        let mut advertised = Vec::new();
        let edits = inspect(message.as_bytes(), ends, &mut |one| {
            if one.endpoint.ip() != ends.own.ip() {
                return Ok(None);
            }
            advertised.push(one);
            Ok(Some(SocketAddr::new(
                ends.own_seen.ip(),
                one.endpoint.port() + 10_000,
            )))
        });
        let mut to = [0; 2048];
        let len = apply(message.as_bytes(), &edits.unwrap(), &mut to).unwrap();
        (String::from_utf8(to[..len].to_vec()).unwrap(), advertised)
    }

    fn lines_of(text: &str) -> String {
        text.replace('\n', "\r\n")
    }

    #[test]
    fn row_80_headers_and_descriptions_follow_the_translation() {
        let mut ends = ends(true);
        ends.own.set_port(5060);
        let sdp = |host: &str, port: u16| {
            lines_of(&alloc::format!(
                "v=0\no=me 1 1 IN IP4 {host}\ns=-\nc=IN IP4 {host}\nt=0 0\nm=audio {port} RTP/AVP 0\n\
                 m=video 0 RTP/AVP 31\n"
            ))
        };
        let message = |host: &str, seen: &str, port: u16| {
            let body = sdp(seen, port);
            lines_of(&alloc::format!(
                "INVITE sip:bob@198.51.100.7 SIP/2.0\nVia: SIP/2.0/UDP {host};branch=z9\n\
                 From: <sip:a@{seen}>;tag=1\nTo: <sip:b@198.51.100.7>\nContact: <sip:a@{host}>\n\
                 X-Other: 10.0.0.1\nContent-Type: application/sdp\nContent-Length: {}\n\n",
                body.len()
            )) + &body
        };
        let (text, advertised) = through(&message("10.0.0.1:5060", "10.0.0.1", 4000), &ends);
        let wanted = message("203.0.113.1:6000", "203.0.113.1", 14_000);
        // The address without a port has the default one.
        let wanted = wanted.replace("sip:a@203.0.113.1>;tag", "sip:a@203.0.113.1:6000>;tag");
        assert_eq!(text, wanted);
        assert_eq!(advertised.len(), 1);
        assert!(advertised[0].is_pair);
        // The answer comes back to the inner endpoint.
        let back = Ends {
            own: ends.peer,
            own_seen: ends.peer_seen,
            peer_seen: ends.own_seen,
            peer: ends.own,
            from_client: false,
        };
        let answer = "SIP/2.0 200 OK\r\nv: SIP/2.0/UDP 203.0.113.1:6000;received=203.0.113.1;rport=6000\r\n\r\n";
        let (text, _) = through(answer, &back);
        assert_eq!(
            text,
            "SIP/2.0 200 OK\r\nv: SIP/2.0/UDP 10.0.0.1:5060;received=10.0.0.1;rport=5060\r\n\r\n"
        );
    }

    #[test]
    fn what_is_not_this_connections_stays() {
        let ends = ends(true);
        for text in [
            "hello 10.0.0.1:4000\r\n\r\n",
            "BYE sip:a@10.0.0.1:4001 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.10\r\n\r\n",
            "BYE sip:a SIP/2.0\r\nVia: SIP/2.0/UDP host-10.0.0.1\r\n\r\n",
            "BYE sip:a SIP/2.0\r\nContent-Type: text/plain\r\n\r\nc=IN IP4 10.0.0.1\r\n",
            "BYE sip:a SIP/2.0\r\nc: application/sdp\r\n\r\nc=IN IP4 192.0.2.1\r\nm=audio 4 RTP/AVP 0\r\n",
        ] {
            let (changed, advertised) = through(text, &ends);
            assert_eq!((changed.as_str(), advertised.len()), (text, 0));
        }
    }
}
