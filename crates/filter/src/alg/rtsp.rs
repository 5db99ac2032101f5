//! RTSP (RFC 2326 12.39): the ports that both sides will use for RTP and RTCP, in the header `Transport`. The answer
//! repeats the client's ports as the server knows them; they stay so.

use core::net::SocketAddr;

use wire::ip_protocol;

use super::{Advertised, Edits, Ends, Expose, Refused, after, change, lines, port};

/// Reads the header lines of a message.
///
/// # Errors
/// If an endpoint cannot be exposed.
pub fn inspect(message: &[u8], ends: &Ends, expose: Expose<'_>) -> Result<Edits, Refused> {
    let mut edits = Edits::new();
    let own_ports: &[u8] = if ends.from_client {
        b"client_port="
    } else {
        b"server_port="
    };
    let own_address: &[u8] = if ends.from_client {
        b"destination="
    } else {
        b"source="
    };
    for (at, line) in lines(message) {
        let Some(value) = after(line, b"Transport:") else {
            continue;
        };
        let mut offset = at + line.len() - value.len();
        for field in value.split_inclusive(|&byte| matches!(byte, b';' | b',')) {
            let start = offset + field.iter().take_while(|&&byte| byte == b' ').count();
            let text = field.strip_suffix(b";").or(field.strip_suffix(b","));
            let text = text.unwrap_or(field).trim_ascii();
            offset += field.len();
            if let Some(ports) = after(text, own_ports) {
                let start = start + own_ports.len();
                expose_ports(&mut edits, message, (start, ports), ends, expose)?;
            } else if let Some(address) = after(text, own_address)
                && super::address(address) == Some(ends.own.ip())
            {
                let start = start + own_address.len();
                let span = (start, start + address.len());
                change(
                    &mut edits,
                    message,
                    span,
                    format_args!("{}", ends.own_seen.ip()),
                )?;
            }
        }
    }
    Ok(edits)
}

/// Exposes `a` or `a-b`, which stands at `start`.
fn expose_ports(
    edits: &mut Edits,
    message: &[u8],
    (start, text): (usize, &[u8]),
    ends: &Ends,
    expose: Expose<'_>,
) -> Result<(), Refused> {
    let Some((first, rest)) = port(text) else {
        return Ok(());
    };
    let second = rest.strip_prefix(b"-").and_then(port);
    let is_pair = match second {
        Some((second, [])) => Some(second) == first.checked_add(1),
        None if rest.is_empty() => false,
        // Not as RFC 2326 writes it.
        _ => return Ok(()),
    };
    let advertised = Advertised {
        endpoint: SocketAddr::new(ends.own.ip(), first),
        protocol: ip_protocol::UDP,
        is_pair,
    };
    let Some(seen) = expose(advertised)?.map(|seen| seen.port()) else {
        return Ok(());
    };
    let span = (start, start + text.len());
    match (is_pair, seen.checked_add(1)) {
        (true, Some(next)) => change(edits, message, span, format_args!("{seen}-{next}")),
        _ => change(
            edits,
            message,
            (start, span.1 - rest.len()),
            format_args!("{seen}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alg::{apply, tests::ends};
    use alloc::string::String;
    use alloc::vec::Vec;

    fn through(message: &str, from_client: bool) -> (String, Vec<Advertised>) {
        let mut advertised = Vec::new();
        let ends = ends(from_client);
        let edits = inspect(message.as_bytes(), &ends, &mut |one| {
            advertised.push(one);
            Ok(Some(SocketAddr::new(
                ends.own_seen.ip(),
                one.endpoint.port() + 10_000,
            )))
        });
        let mut to = [0; 1024];
        let len = apply(message.as_bytes(), &edits.unwrap(), &mut to).unwrap();
        (String::from_utf8(to[..len].to_vec()).unwrap(), advertised)
    }

    #[test]
    fn row_81_ports_are_exposed_and_rewritten() {
        let setup = "SETUP rtsp://198.51.100.7/a RTSP/1.0\r\nCSeq: 3\r\n\
            Transport: RTP/AVP;unicast;destination=10.0.0.1; client_port=50000-50001\r\n\r\n";
        let (text, advertised) = through(setup, true);
        assert_eq!(
            text,
            "SETUP rtsp://198.51.100.7/a RTSP/1.0\r\nCSeq: 3\r\n\
            Transport: RTP/AVP;unicast;destination=203.0.113.1; client_port=60000-60001\r\n\r\n"
        );
        assert_eq!(advertised.len(), 1);
        assert!(advertised[0].is_pair && advertised[0].protocol == ip_protocol::UDP);
        let answer = "RTSP/1.0 200 OK\r\nTransport: RTP/AVP;client_port=60000-60001;server_port=6970\r\n\r\n";
        let (text, advertised) = through(answer, false);
        assert_eq!((advertised.len(), advertised[0].is_pair), (1, false));
        assert!(text.contains("client_port=60000-60001;server_port=16970\r\n"));
    }

    #[test]
    fn what_names_no_ports_stays() {
        for line in [
            "Transport: RTP/AVP/TCP;interleaved=0-1\r\n",
            "Transport: RTP/AVP;client_port=\r\n",
            "Transport: RTP/AVP;client_port=0-1\r\n",
            "Transport: RTP/AVP;client_port=70000\r\n",
            "Transport: RTP/AVP;client_port=4-5-6\r\n",
            "Transport: RTP/AVP;server_port=4-5\r\n",
            "X-Transport: RTP/AVP;client_port=4-5\r\n",
            "Transport: RTP/AVP;client_port=4-5",
        ] {
            let (text, advertised) = through(line, true);
            assert_eq!((text.as_str(), advertised.len()), (line, 0));
        }
    }
}
