//! A packet in words: `iif=lan tcp 10.0.0.2:1234 > 1.2.3.4:80 syn`.

use std::net::{IpAddr, SocketAddr};

use wire::tcp::Flags;
use wire::{Addresses, icmpv4, icmpv6, ip_protocol, ipv4, ipv6, tcp, udp};

/// What a packet says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// Interface it comes by; without it, the one that its source lies behind.
    pub(super) iif: Option<String>,
    source: SocketAddr,
    destination: SocketAddr,
    protocol: Protocol,
    /// Flags of TCP.
    flags: Flags,
    sequence: Option<u32>,
    acknowledgement: Option<u32>,
    identifier: u16,
    length: usize,
    ttl: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
    /// An echo request, or its reply.
    Echo {
        reply: bool,
    },
    Number(u8),
}

/// The grammar, for errors.
pub(super) const GRAMMAR: &str = "write `[iif=PORT] tcp|udp ADDRESS:PORT > ADDRESS:PORT [syn,ack,...] [seq=N] [ack=N] \
[len=BYTES] [ttl=N]`, `icmp echo-request|echo-reply ADDRESS > ADDRESS [id=N]`, or `proto=N ADDRESS > ADDRESS`";

const FLAGS: [(&str, Flags); 8] = [
    ("fin", Flags::FIN),
    ("syn", Flags::SYN),
    ("rst", Flags::RST),
    ("psh", Flags::PSH),
    ("ack", Flags::ACK),
    ("urg", Flags::URG),
    ("ece", Flags::ECE),
    ("cwr", Flags::CWR),
];

/// Numbers that sides of a TCP connection start with where the words name none.
const CLIENT: u32 = 1000;
const SERVER: u32 = 5000;

impl Words {
    /// Reads the words of a packet.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut iif, mut protocol, mut ends) = (None, None, Vec::new());
        let (mut flags, mut sequence, mut acknowledgement) = (Flags::empty(), None, None);
        let (mut identifier, mut length, mut ttl) = (1, 0, 64);
        let mut arrow = false;
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("iif", name)) => iif = Some(name.to_owned()),
                Some(("proto", n)) => protocol = Some(Protocol::Number(number(word, n)?)),
                Some(("seq", n)) => sequence = Some(number(word, n)?),
                Some(("ack", n)) => acknowledgement = Some(number(word, n)?),
                Some(("id", n)) => identifier = number(word, n)?,
                Some(("len", n)) => length = usize::from(number::<u16>(word, n)?.min(1400)),
                Some(("ttl", n)) => ttl = number(word, n)?,
                Some(_) => return Err(format!("`{word}` says nothing of a packet")),
                None => match word {
                    "tcp" => protocol = Some(Protocol::Tcp),
                    "udp" => protocol = Some(Protocol::Udp),
                    "icmp" | "icmpv6" | "echo-request" => {
                        protocol = protocol.or(Some(Protocol::Echo { reply: false }));
                    }
                    "echo-reply" => protocol = Some(Protocol::Echo { reply: true }),
                    ">" if ends.len() == 1 => arrow = true,
                    _ => match flags_of(word) {
                        Some(more) => flags |= more,
                        None => ends.push(end(word)?),
                    },
                },
            }
        }
        let protocol = protocol.ok_or("the protocol is not named")?;
        let [source, destination] = ends[..] else {
            return Err("a packet has two addresses, with `>` between".into());
        };
        if !arrow || source.is_ipv4() != destination.is_ipv4() {
            return Err("the addresses are of one family, with `>` between".into());
        }
        let has_ports = matches!(protocol, Protocol::Tcp | Protocol::Udp);
        if has_ports && (source.port() == 0 || destination.port() == 0) {
            return Err("both ends of tcp and udp have ports".into());
        }
        if protocol == Protocol::Tcp && flags.is_empty() {
            return Err("a tcp packet has flags, e.g. syn".into());
        }
        Ok(Self {
            iif,
            source,
            destination,
            protocol,
            flags,
            sequence,
            acknowledgement,
            identifier,
            length,
            ttl,
        })
    }

    /// Writes the packet as a frame. `answers` says that it goes back in a connection that is known: numbers that the
    /// words do not name are those of that side.
    pub(super) fn frame(&self, answers: bool) -> Option<Vec<u8>> {
        let (own, other) = if answers {
            (SERVER, CLIENT)
        } else {
            (CLIENT, SERVER)
        };
        let is_syn = self.flags.contains(Flags::SYN);
        let has_ack = self.flags.contains(Flags::ACK);
        let header = tcp::Repr {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
            sequence: self.sequence.unwrap_or(own + u32::from(!is_syn)),
            acknowledgement: match self.acknowledgement {
                Some(ack) => ack,
                None if has_ack => other + 1,
                None => 0,
            },
            flags: self.flags,
            window: 65_535,
            urgent: 0,
            options: &[],
        };
        let head = match self.protocol {
            Protocol::Tcp => header.bytes(),
            Protocol::Udp | Protocol::Echo { .. } => 8,
            Protocol::Number(_) => 0,
        };
        let protocol = match (self.protocol, self.source.is_ipv4()) {
            (Protocol::Tcp, _) => ip_protocol::TCP,
            (Protocol::Udp, _) => ip_protocol::UDP,
            (Protocol::Echo { .. }, true) => ip_protocol::ICMP,
            (Protocol::Echo { .. }, false) => ip_protocol::ICMPV6,
            (Protocol::Number(number), _) => number,
        };
        let bytes = head + self.length;
        let (mut frame, addresses) = self.network(protocol, bytes)?;
        let at = frame.len();
        frame.resize(at + bytes, 0);
        let segment = frame.get_mut(at..)?;
        match self.protocol {
            Protocol::Tcp => header.emit(segment, &addresses).ok()?,
            Protocol::Udp => {
                let header = udp::Repr {
                    source_port: self.source.port(),
                    destination_port: self.destination.port(),
                };
                header.emit(segment, &addresses).ok()?
            }
            Protocol::Echo { reply } => self.echo(segment, &addresses, reply)?,
            Protocol::Number(_) => 0,
        };
        Some(frame)
    }

    fn echo(&self, segment: &mut [u8], addresses: &Addresses, reply: bool) -> Option<usize> {
        let (identifier, sequence) = (self.identifier, 1);
        match *addresses {
            Addresses::V4 { .. } => {
                let message = if reply {
                    icmpv4::Repr::EchoReply {
                        identifier,
                        sequence,
                    }
                } else {
                    icmpv4::Repr::EchoRequest {
                        identifier,
                        sequence,
                    }
                };
                message.emit(segment).ok()
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let message = if reply {
                    icmpv6::Repr::EchoReply {
                        identifier,
                        sequence,
                    }
                } else {
                    icmpv6::Repr::EchoRequest {
                        identifier,
                        sequence,
                    }
                };
                message.emit(segment, source, destination).ok()
            }
        }
    }

    /// Ethernet and IP headers.
    fn network(&self, protocol: u8, bytes: usize) -> Option<(Vec<u8>, Addresses)> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00]);
                frame.resize(14 + ipv4::HEADER_BYTES, 0);
                let mut header = ipv4::Repr::new(source, destination, protocol, bytes as u16);
                header.ttl = self.ttl;
                header.emit(frame.get_mut(14..)?).ok()?;
                Some((
                    frame,
                    Addresses::V4 {
                        source,
                        destination,
                    },
                ))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd]);
                frame.resize(14 + ipv6::HEADER_BYTES, 0);
                let mut header = ipv6::Repr::new(source, destination, protocol, bytes as u16);
                header.hop_limit = self.ttl;
                header.emit(frame.get_mut(14..)?).ok()?;
                Some((
                    frame,
                    Addresses::V6 {
                        source,
                        destination,
                    },
                ))
            }
            _ => None,
        }
    }
}

fn number<T: std::str::FromStr>(word: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("`{word}` has no number that fits"))
}

fn flags_of(word: &str) -> Option<Flags> {
    let one = |name: &str| {
        FLAGS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, flag)| *flag)
    };
    word.split(',')
        .map(one)
        .try_fold(Flags::empty(), |all, one| Some(all | one?))
}

/// An address, with a port or without one.
fn end(word: &str) -> Result<SocketAddr, String> {
    if let Ok(end) = word.parse() {
        return Ok(end);
    }
    let bare = word.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = bare
        .parse()
        .map_err(|_| format!("`{word}` is neither an address nor a word that is known"))?;
    Ok(SocketAddr::new(address, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::FlowKey;
    use wire::checksum::{TransportChecksum, verify_transport};

    #[test]
    fn words_become_packets() {
        for (text, key) in [
            (
                "iif=lan tcp 10.0.0.2:1234 > 1.2.3.4:80 syn,ack",
                "10.0.0.2 1234 1.2.3.4 80 6",
            ),
            (
                "udp [2001:db8::1]:53 > [2001:db8::2]:4000 len=20",
                "2001:db8::1 53 2001:db8::2 4000 17",
            ),
            (
                "icmp echo-request 10.0.0.2 > 1.2.3.4 id=7",
                "10.0.0.2 7 1.2.3.4 2048 1",
            ),
            (
                "icmp 2001:db8::1 > 2001:db8::2 id=9",
                "2001:db8::1 9 2001:db8::2 32768 58",
            ),
            (
                "proto=47 10.0.0.2 > 1.2.3.4 len=8",
                "10.0.0.2 0 1.2.3.4 0 47",
            ),
        ] {
            let words = Words::parse(text).unwrap();
            let frame = words.frame(false).unwrap();
            let layout = wire::parse(&frame).unwrap();
            let read = FlowKey::from_layout(&layout, &frame).unwrap();
            let said = format!(
                "{} {} {} {} {}",
                read.source_ip(),
                read.source_port,
                read.destination_ip(),
                read.destination_port,
                read.protocol
            );
            assert_eq!(said, key, "{text}");
            if !text.starts_with("proto") {
                assert_eq!(
                    verify_transport(&layout, &frame),
                    TransportChecksum::Good,
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        for text in [
            "",
            "tcp 10.0.0.2:1 > 1.2.3.4:80",
            "tcp 10.0.0.2 > 1.2.3.4:80 syn",
            "udp 10.0.0.2:1 1.2.3.4:80",
            "udp 10.0.0.2:1 > [::1]:80",
            "10.0.0.2 > 1.2.3.4",
            "tcp 10.0.0.2:1 > 1.2.3.4:80 sin",
            "udp 10.0.0.2:1 > 1.2.3.4:80 ttl=900",
            "udp 10.0.0.2:1 > 1.2.3.4:80 size=9",
        ] {
            assert!(Words::parse(text).is_err(), "{text}");
        }
    }
}
