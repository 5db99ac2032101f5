//! FTP (RFC 959, RFC 2428): the endpoints of data connections in `PORT` and `EPRT`, and in the answers 227 and 229.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use wire::ip_protocol;

use super::{
    Advertised, Edits, Ends, Expose, Refused, address, after, change, lines, number, port,
};

/// What a client says before the endpoint that it waits at.
const COMMANDS: [&[u8]; 2] = [b"PORT ", b"EPRT "];
/// What a server says before the endpoint that it waits at.
const ANSWERS: [&[u8]; 2] = [b"227 ", b"229 "];

/// An endpoint in a line, and how it is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    endpoint: SocketAddr,
    /// First byte of it in the line, and one past the last.
    span: (usize, usize),
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `h1,h2,h3,h4,p1,p2`
    Numbers,
    /// `address|port`, with this delimiter.
    Extended(char),
    /// `port`
    Port,
}

/// Reads the complete lines of a message, of which the first begins at its start.
///
/// # Errors
/// If an endpoint cannot be exposed.
pub fn inspect(message: &[u8], ends: &Ends, expose: Expose<'_>) -> Result<Edits, Refused> {
    let mut edits = Edits::new();
    for (at, line) in lines(message) {
        let Some(found) = read(line, ends) else {
            continue;
        };
        let advertised = Advertised {
            endpoint: found.endpoint,
            protocol: ip_protocol::TCP,
            is_pair: false,
        };
        let Some(seen) = expose(advertised)? else {
            continue;
        };
        let span = (at + found.span.0, at + found.span.1);
        let port = seen.port();
        match (found.form, seen.ip()) {
            (Form::Numbers, IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                let [high, low] = port.to_be_bytes();
                let text = format_args!("{a},{b},{c},{d},{high},{low}");
                change(&mut edits, message, span, text)?;
            }
            // There is no such form for IPv6.
            (Form::Numbers, IpAddr::V6(_)) => return Err(Refused),
            (Form::Extended(by), address) => {
                change(
                    &mut edits,
                    message,
                    span,
                    format_args!("{address}{by}{port}"),
                )?;
            }
            (Form::Port, _) => change(&mut edits, message, span, format_args!("{port}"))?,
        }
    }
    Ok(edits)
}

/// Tells whether the start of a line may become one that [`inspect`] reads.
pub fn is_promising(start: &[u8], from_client: bool) -> bool {
    let words = if from_client { COMMANDS } else { ANSWERS };
    words.iter().any(|word| {
        let len = word.len().min(start.len());
        start
            .get(..len)
            .zip(word.get(..len))
            .is_some_and(|(start, word)| start.eq_ignore_ascii_case(word))
    })
}

fn read(line: &[u8], ends: &Ends) -> Option<Found> {
    let [short, extended] = if ends.from_client { COMMANDS } else { ANSWERS };
    if let Some(rest) = after(line, short) {
        let (from, until) = if ends.from_client {
            (0, 1)
        } else {
            (0, rest.len())
        };
        // RFC 1123 4.1.2.6: no more is certain of an answer than that numbers come somewhere.
        return (from..until).find_map(|skip| {
            let starts = skip == 0 || !rest.get(skip - 1)?.is_ascii_digit();
            let (endpoint, len) = numbers(rest.get(skip..)?).filter(|_| starts)?;
            let start = short.len() + skip;
            Some(Found {
                endpoint,
                span: (start, start + len),
                form: Form::Numbers,
            })
        });
    }
    let rest = after(line, extended)?;
    if ends.from_client {
        eprt(rest, extended.len())
    } else {
        epsv(rest, extended.len(), ends.own.ip())
    }
}

/// Reads `h1,h2,h3,h4,p1,p2`; returns the endpoint and the length of its text.
fn numbers(text: &[u8]) -> Option<(SocketAddr, usize)> {
    let mut values = [0; 6];
    let mut rest = text;
    for (at, value) in values.iter_mut().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b",")?;
        }
        let (read, more) = number(rest, 3)?;
        *value = u8::try_from(read).ok()?;
        rest = more;
    }
    let [a, b, c, d, high, low] = values;
    let port = u16::from_be_bytes([high, low]);
    let endpoint = SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port);
    (port != 0).then_some((endpoint, text.len() - rest.len()))
}

/// Reads `|1|address|port|` or `|2|address|port|` (RFC 2428 2); `offset` is where it starts in its line.
fn eprt(text: &[u8], offset: usize) -> Option<Found> {
    let (&by, rest) = text.split_first()?;
    // RFC 2428 2: any of the characters 33 to 126; one that addresses hold could not be told from them.
    if !by.is_ascii_graphic() || by.is_ascii_hexdigit() || b".:%".contains(&by) {
        return None;
    }
    let (family, rest) = rest.split_first()?;
    let rest = rest.strip_prefix(&[by])?;
    let len = rest.iter().position(|&byte| byte == by)?;
    let address = address(rest.get(..len)?)?;
    if address.is_ipv4() != (*family == b'1') || address.is_ipv6() != (*family == b'2') {
        return None;
    }
    let (port, end) = port(rest.get(len + 1..)?)?;
    if !end.starts_with(&[by]) {
        return None;
    }
    Some(Found {
        endpoint: SocketAddr::new(address, port),
        span: (offset + 3, offset + text.len() - end.len()),
        form: Form::Extended(char::from(by)),
    })
}

/// Reads `... (|||port|)` (RFC 2428 3): the address is the server's.
fn epsv(text: &[u8], offset: usize, own: IpAddr) -> Option<Found> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let inner = text.get(open + 1..)?;
    let (&by, _) = inner.split_first()?;
    if by.is_ascii_digit() {
        return None;
    }
    let digits = inner.strip_prefix(&[by, by, by])?;
    let (port, end) = port(digits)?;
    if !end.starts_with(&[by, b')']) {
        return None;
    }
    let start = offset + open + 4;
    Some(Found {
        endpoint: SocketAddr::new(own, port),
        span: (start, start + digits.len() - end.len()),
        form: Form::Port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alg::{apply, growth};
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn ends(from_client: bool, own: &str) -> Ends {
        Ends {
            own: own.parse().unwrap(),
            own_seen: own.parse().unwrap(),
            peer_seen: "198.51.100.7:21".parse().unwrap(),
            peer: "198.51.100.7:21".parse().unwrap(),
            from_client,
        }
    }

    /// What a message becomes where `own` is seen as `seen`, and what it advertised.
    fn through(
        message: &str,
        from_client: bool,
        own: &str,
        seen: &str,
    ) -> (String, Vec<SocketAddr>) {
        let mut advertised = Vec::new();
        let seen: SocketAddr = seen.parse().unwrap();
        let ends = ends(from_client, own);
        let edits = inspect(message.as_bytes(), &ends, &mut |one| {
            advertised.push(one.endpoint);
            Ok((one.endpoint.ip() == ends.own.ip()).then_some(seen))
        });
        let edits = edits.unwrap();
        let mut to = [0; 4096];
        let len = apply(message.as_bytes(), &edits, &mut to).unwrap();
        assert_eq!(len as isize, message.len() as isize + growth(&edits));
        (String::from_utf8(to[..len].to_vec()).unwrap(), advertised)
    }

    #[test]
    fn row_78_the_four_forms_are_read_and_rewritten() {
        for (from_client, own, before, seen, after) in [
            (
                true,
                "10.0.0.1:4000",
                "PORT 10,0,0,1,4,1\r\n",
                "203.0.113.1:65535",
                "PORT 203,0,113,1,255,255\r\n",
            ),
            (
                true,
                "10.0.0.1:4000",
                "eprt |1|10.0.0.1|1025|\r\n",
                "203.0.113.1:80",
                "eprt |1|203.0.113.1|80|\r\n",
            ),
            (
                true,
                "[fd00::1]:4000",
                "EPRT !2!fd00::1!6000!\r\n",
                "[2001:db8::1]:7000",
                "EPRT !2!2001:db8::1!7000!\r\n",
            ),
            (
                false,
                "10.0.0.1:21",
                "227 Entering Passive Mode (10,0,0,1,200,0).\r\n",
                "203.0.113.1:1",
                "227 Entering Passive Mode (203,0,113,1,0,1).\r\n",
            ),
            (
                false,
                "10.0.0.1:21",
                "227 10,0,0,1,200,0\r\n",
                "203.0.113.1:1",
                "227 203,0,113,1,0,1\r\n",
            ),
            (
                false,
                "10.0.0.1:21",
                "229 Extended (|||6446|)\r\n",
                "203.0.113.1:99",
                "229 Extended (|||99|)\r\n",
            ),
            (
                true,
                "10.0.0.1:4000",
                "NOOP\r\nPORT 10,0,0,1,4,1\r\nNOOP\r\n",
                "203.0.113.1:7",
                "NOOP\r\nPORT 203,0,113,1,0,7\r\nNOOP\r\n",
            ),
        ] {
            let (text, advertised) = through(before, from_client, own, seen);
            assert_eq!((text.as_str(), advertised.len()), (after, 1), "{before}");
            assert_eq!(advertised[0].ip(), own.parse::<SocketAddr>().unwrap().ip());
        }
    }

    #[test]
    fn what_is_no_endpoint_stays() {
        for (from_client, line) in [
            (true, "PORT 10,0,0,1,4\r\n"),
            (true, "PORT 10,0,0,1,4,256\r\n"),
            (true, "PORT 10,0,0,1,0,0\r\n"),
            (true, "PORT 10,0,0,1,4,1"),
            (true, "XPORT 10,0,0,1,4,1\r\n"),
            (true, "STOR PORT 10,0,0,1,4,1\r\n"),
            (true, "EPRT |1|fd00::1|1025|\r\n"),
            (true, "EPRT |2|10.0.0.1|1025|\r\n"),
            (true, "EPRT |1|10.0.0.1|0|\r\n"),
            (true, "EPRT |1|10.0.0.1|65536|\r\n"),
            (true, "EPRT 110.0.0.1|1025|\r\n"),
            (true, "227 Entering Passive Mode (10,0,0,1,200,0).\r\n"),
            (false, "PORT 10,0,0,1,4,1\r\n"),
            (false, "229 Extended (|||6446)\r\n"),
            (false, "229 (||||)\r\n"),
            (false, "227-Entering Passive Mode (10,0,0,1,200,0).\r\n"),
        ] {
            let (text, advertised) = through(line, from_client, "10.0.0.1:4000", "203.0.113.1:7");
            assert_eq!((text.as_str(), advertised.len()), (line, 0), "{line}");
        }
        // A server that is asked to connect to somebody else (RFC 2577 3) opens nothing here.
        let bounce = "PORT 192,0,2,9,4,1\r\n";
        let (text, advertised) = through(bounce, true, "10.0.0.1:4000", "203.0.113.1:7");
        assert_eq!((text.as_str(), advertised.len()), (bounce, 1));
    }

    #[test]
    fn starts_of_lines_are_promising_until_they_cannot_become_one() {
        assert!(
            is_promising(b"", true) && is_promising(b"Po", true) && is_promising(b"EPRT |1|", true)
        );
        assert!(
            !is_promising(b"PASV", true)
                && !is_promising(b"22", true)
                && !is_promising(b"226", false)
        );
        assert!(is_promising(b"22", false) && is_promising(b"229 x", false));
    }

    proptest! {
        #[test]
        fn row_85_any_message_is_read_without_panic(bytes: Vec<u8>, from_client: bool) {
            let ends = ends(from_client, "10.0.0.1:4000");
            let edits = inspect(&bytes, &ends, &mut |one| Ok(Some(one.endpoint)));
            // Seen as what it is, nothing changes but the spelling of numbers.
            prop_assert!(edits.is_err() || edits.unwrap().len() <= crate::alg::EDITS_MAX);
        }

        #[test]
        fn an_endpoint_that_was_rewritten_reads_back(
            octets: [u8; 4], port in 1_u16.., from_client: bool, extended: bool,
        ) {
            let own = "10.0.0.1:4000";
            let message = match (from_client, extended) {
                (true, false) => "PORT 10,0,0,1,4,1\r\n",
                (true, true) => "EPRT |1|10.0.0.1|1025|\r\n",
                (false, _) => "227 Passive (10,0,0,1,4,1)\r\n",
            };
            let seen = SocketAddr::new(Ipv4Addr::from(octets).into(), port);
            let text = {
                let edits = inspect(message.as_bytes(), &ends(from_client, own), &mut |_| Ok(Some(seen))).unwrap();
                let mut to = [0; 256];
                let len = apply(message.as_bytes(), &edits, &mut to).unwrap();
                to[..len].to_vec()
            };
            let mut again = None;
            inspect(&text, &ends(from_client, own), &mut |one| { again = Some(one.endpoint); Ok(None) }).unwrap();
            prop_assert_eq!(again, Some(seen));
        }
    }
}
