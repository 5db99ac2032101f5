//! Text to tests in postfix order.

use std::net::{IpAddr, Ipv4Addr};

use wire::{MacAddr, ether_type, ip_protocol};

use super::{DEPTH_MAX, ExpressionError, Network, Op, Side, Test};

/// Longest text, bytes.
const TEXT_MAX_BYTES: usize = 4096;

/// What is before an address or number.
#[derive(Clone, Copy, Debug, Default)]
struct Qualifiers {
    protocol: Option<Protocol>,
    side: Option<Side>,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Ether,
    Ip,
    Ip6,
    Arp,
    /// One above IP: over IPv4, over IPv6, or over either.
    Transport(Network, u8),
}

impl Protocol {
    fn named(word: &str) -> Option<Self> {
        Some(match word {
            "ether" => Self::Ether,
            "ip" => Self::Ip,
            "ip6" => Self::Ip6,
            "arp" => Self::Arp,
            "tcp" => Self::Transport(Network::Any, ip_protocol::TCP),
            "udp" => Self::Transport(Network::Any, ip_protocol::UDP),
            "sctp" => Self::Transport(Network::Any, ip_protocol::SCTP),
            "icmp" => Self::Transport(Network::Ip, ip_protocol::ICMP),
            "igmp" => Self::Transport(Network::Ip, ip_protocol::IGMP),
            "icmp6" => Self::Transport(Network::Ip6, ip_protocol::ICMPV6),
            _ => return None,
        })
    }

    /// The test that the name alone stands for.
    const fn test(self) -> Option<Test> {
        Some(match self {
            Self::Ether => return None,
            Self::Ip => Test::EtherType(ether_type::IPV4),
            Self::Ip6 => Test::EtherType(ether_type::IPV6),
            Self::Arp => Test::EtherType(ether_type::ARP),
            Self::Transport(network, number) => Test::Protocol(network, number),
        })
    }
}

/// A word or sign and where it is, in characters from 1.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    column: usize,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Column of the end.
    end: usize,
    ops: Vec<Op>,
    last: Qualifiers,
    depth: usize,
}

type Result<T> = core::result::Result<T, ExpressionError>;

pub(super) fn parse(text: &str) -> Result<Vec<Op>> {
    if text.len() > TEXT_MAX_BYTES {
        return Err(ExpressionError {
            column: TEXT_MAX_BYTES,
            message: format!("a filter of {} bytes is too long", text.len()),
            remedy: format!("write at most {TEXT_MAX_BYTES} bytes"),
        });
    }
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
        end: text.chars().count() + 1,
        ops: Vec::new(),
        last: Qualifiers::default(),
        depth: 0,
    };
    parser.expression()?;
    match parser.peek() {
        None => Ok(parser.ops),
        Some(")") => Err(parser.error("`)` closes nothing", "remove it")),
        Some(word) => Err(parser.error(
            format!("`{word}` does not go on with what is before it"),
            "write `and` or `or` between the two",
        )),
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut word: Option<(usize, usize)> = None;
    for (column, (at, c)) in (1..).zip(text.char_indices()) {
        let sign = matches!(c, '(' | ')' | '!' | '&' | '|');
        if sign || c.is_whitespace() {
            if let Some((start, column)) = word.take() {
                let text = &text[start..at];
                tokens.push(Token { text, column });
            }
            if sign {
                tokens.push(Token {
                    text: &text[at..=at],
                    column,
                });
            }
        } else if word.is_none() {
            word = Some((at, column));
        }
    }
    if let Some((start, column)) = word {
        tokens.push(Token {
            text: &text[start..],
            column,
        });
    }
    tokens
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    fn peek_second(&self) -> Option<&'a str> {
        self.tokens.get(self.at + 1).map(|token| token.text)
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    /// An error at the token to come.
    fn error(&self, message: impl Into<String>, remedy: impl Into<String>) -> ExpressionError {
        let column = self.tokens.get(self.at).map_or(self.end, |t| t.column);
        ExpressionError {
            column,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// An error at the token before.
    fn error_before(&mut self, message: impl Into<String>, remedy: &str) -> ExpressionError {
        self.at = self.at.saturating_sub(1);
        self.error(message, remedy)
    }

    fn missing(&self, what: &str, example: &str) -> ExpressionError {
        let message = match self.peek() {
            Some(word) => format!("`{word}` is not {what}"),
            None => format!("the filter ends where {what} is to come"),
        };
        self.error(message, format!("write for example `{example}`"))
    }

    /// `and` and `or` bind equally, from the left.
    fn expression(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("the parentheses are too deep", "write fewer"));
        }
        self.term()?;
        loop {
            let op = match (self.peek(), self.peek_second()) {
                (Some("and"), _) => Op::And,
                (Some("or"), _) => Op::Or,
                (Some("&"), Some("&")) => {
                    self.at += 1;
                    Op::And
                }
                (Some("|"), Some("|")) => {
                    self.at += 1;
                    Op::Or
                }
                _ => break,
            };
            self.at += 1;
            self.term()?;
            self.ops.push(op);
        }
        self.depth -= 1;
        Ok(())
    }

    fn term(&mut self) -> Result<()> {
        let mut negated = false;
        while self.takes("not") || self.takes("!") {
            negated = !negated;
        }
        if self.takes("(") {
            self.expression()?;
            if !self.takes(")") {
                return Err(self.error("a `(` is not closed", "write `)`"));
            }
        } else {
            let test = self.primitive()?;
            self.ops.push(Op::Test(test));
        }
        if negated {
            self.ops.push(Op::Not);
        }
        Ok(())
    }

    fn primitive(&mut self) -> Result<Test> {
        match self.peek() {
            Some("vlan") => {
                self.at += 1;
                let id = self.peek().and_then(|word| word.parse::<u16>().ok());
                self.at += usize::from(id.is_some());
                if id.is_some_and(|id| id > 4095) {
                    return Err(self.error_before("a VLAN id is at most 4095", "write less"));
                }
                Ok(Test::Vlan(id))
            }
            Some("less") => {
                self.at += 1;
                Ok(Test::AtMost(self.number("a length in bytes", "less 128")?))
            }
            Some("greater") => {
                self.at += 1;
                let bytes = self.number("a length in bytes", "greater 1000")?;
                Ok(Test::AtLeast(bytes))
            }
            Some("broadcast") => {
                self.at += 1;
                Ok(Test::Broadcast)
            }
            Some("multicast") => {
                self.at += 1;
                Ok(Test::Multicast(Network::Any))
            }
            _ => self.qualified(),
        }
    }

    fn qualified(&mut self) -> Result<Test> {
        let start = self.at;
        let protocol = self.peek().and_then(Protocol::named);
        self.at += usize::from(protocol.is_some());
        let network = match protocol {
            Some(Protocol::Ip) => Network::Ip,
            Some(Protocol::Ip6) => Network::Ip6,
            _ => Network::Any,
        };
        if matches!(
            protocol,
            Some(Protocol::Ether | Protocol::Ip | Protocol::Ip6)
        ) {
            if protocol == Some(Protocol::Ether) && self.takes("broadcast") {
                return Ok(Test::Broadcast);
            }
            if self.takes("multicast") {
                return Ok(Test::Multicast(network));
            }
        }
        let side = self.side();
        let kind = match self.peek() {
            Some("host") => Some(Kind::Host),
            Some("net") => Some(Kind::Net),
            Some("port") => Some(Kind::Port),
            Some("portrange") => Some(Kind::PortRange),
            Some("proto") => Some(Kind::Protocol),
            _ => None,
        };
        self.at += usize::from(kind.is_some());
        let qualifiers = Qualifiers {
            protocol,
            side,
            kind,
        };
        if self.at == start {
            // The keyword is the one before.
            return self.identified(self.last);
        }
        if side.is_none() && kind.is_none() {
            if let Some(test) = protocol.and_then(Protocol::test) {
                return Ok(test);
            }
            return Err(self.missing(
                "`host`, `src`, `dst` or `proto`",
                "ether host 02:00:00:00:00:01",
            ));
        }
        self.last = qualifiers;
        self.identified(qualifiers)
    }

    fn side(&mut self) -> Option<Side> {
        let (side, other) = match self.peek() {
            Some("src") => (Side::Source, "dst"),
            Some("dst") => (Side::Destination, "src"),
            _ => return None,
        };
        self.at += 1;
        match (self.peek(), self.peek_second()) {
            (Some("or"), Some(word)) if word == other => {
                self.at += 2;
                Some(Side::Either)
            }
            (Some("and"), Some(word)) if word == other => {
                self.at += 2;
                Some(Side::Both)
            }
            _ => Some(side),
        }
    }

    fn identified(&mut self, by: Qualifiers) -> Result<Test> {
        let side = by.side.unwrap_or_default();
        match (by.protocol, by.kind) {
            (Some(Protocol::Ether), Some(Kind::Protocol)) => self.ether_type(),
            (Some(Protocol::Ether), Some(Kind::Host) | None) => {
                let mac = self.peek().and_then(|word| word.parse::<MacAddr>().ok());
                let mac = mac
                    .ok_or_else(|| self.missing("a MAC address", "ether host 02:00:00:00:00:01"))?;
                self.at += 1;
                Ok(Test::Mac(side, mac))
            }
            (protocol, Some(Kind::Port)) => {
                let port = self.number("a port number", "port 53")?;
                self.port(protocol, side, port, port)
            }
            (protocol, Some(Kind::PortRange)) => {
                let range = self.peek().and_then(|word| {
                    let (low, high) = word.split_once('-')?;
                    Some((low.parse().ok()?, high.parse().ok()?))
                });
                let (low, high) =
                    range.ok_or_else(|| self.missing("a range of ports", "portrange 1024-2048"))?;
                self.at += 1;
                self.port(protocol, side, low, high)
            }
            (protocol, Some(Kind::Protocol)) => {
                let network = match protocol {
                    None => Network::Any,
                    Some(Protocol::Ip) => Network::Ip,
                    Some(Protocol::Ip6) => Network::Ip6,
                    Some(_) => {
                        return Err(self.error_before(
                            "`proto` goes after `ether`, `ip` or `ip6`",
                            "write for example `ip proto 47`",
                        ));
                    }
                };
                self.ip_protocol(network)
            }
            (protocol, kind) => self.address(protocol, side, kind),
        }
    }

    fn port(
        &mut self,
        protocol: Option<Protocol>,
        side: Side,
        low: u16,
        high: u16,
    ) -> Result<Test> {
        match protocol {
            None => Ok(Test::Port(None, side, low, high)),
            Some(Protocol::Transport(_, number @ (6 | 17 | 132))) => {
                Ok(Test::Port(Some(number), side, low, high))
            }
            Some(_) => Err(self.error_before(
                "only `tcp`, `udp` and `sctp` have ports",
                "write for example `udp port 53`",
            )),
        }
    }

    fn ether_type(&mut self) -> Result<Test> {
        let named = match self.word() {
            Some("ip") => Some(ether_type::IPV4),
            Some("ip6") => Some(ether_type::IPV6),
            Some("arp") => Some(ether_type::ARP),
            Some(word) => number(word),
            None => None,
        };
        let kind = named.ok_or_else(|| self.missing("an EtherType", "ether proto 0x88b5"))?;
        self.at += 1;
        Ok(Test::EtherType(kind))
    }

    fn ip_protocol(&mut self, network: Network) -> Result<Test> {
        let named = self.word().and_then(|word| match Protocol::named(word) {
            Some(Protocol::Transport(_, number)) => Some(number),
            _ => number(word).and_then(|number| u8::try_from(number).ok()),
        });
        let protocol = named.ok_or_else(|| self.missing("an IP protocol", "ip proto 47"))?;
        self.at += 1;
        Ok(Test::Protocol(network, protocol))
    }

    /// The word to come, without the backslash that tcpdump wants before names.
    fn word(&self) -> Option<&'a str> {
        self.peek().map(|word| word.trim_start_matches('\\'))
    }

    fn number<T: TryFrom<u32>>(&mut self, what: &str, example: &str) -> Result<T> {
        let parsed = self.peek().and_then(|word| word.parse::<u32>().ok());
        let value = parsed.and_then(|value| T::try_from(value).ok());
        let value = value.ok_or_else(|| self.missing(what, example))?;
        self.at += 1;
        Ok(value)
    }

    fn address(
        &mut self,
        protocol: Option<Protocol>,
        side: Side,
        kind: Option<Kind>,
    ) -> Result<Test> {
        let network = match protocol {
            None => Network::Any,
            Some(Protocol::Ip) => Network::Ip,
            Some(Protocol::Ip6) => Network::Ip6,
            Some(Protocol::Arp) => Network::Arp,
            Some(_) => {
                return Err(self.error_before(
                    "this protocol has no addresses of its own",
                    "write for example `tcp and host 192.0.2.1`",
                ));
            }
        };
        let net = kind == Some(Kind::Net);
        let found = self.peek().and_then(|word| {
            let address = word.parse::<IpAddr>().ok();
            let whole = address.map(|address| (address, if address.is_ipv4() { 32 } else { 128 }));
            if net || word.contains('/') {
                prefix(word).or(whole)
            } else {
                whole
            }
        });
        let Some((address, length)) = found else {
            return Err(match net {
                true => self.missing("a network", "net 192.0.2.0/24"),
                false => self.missing("an address or a keyword", "host 192.0.2.1"),
            });
        };
        let family_differs = match network {
            Network::Ip | Network::Arp => !address.is_ipv4(),
            Network::Ip6 => address.is_ipv4(),
            Network::Any => false,
        };
        if family_differs {
            return Err(self.error(
                format!("`{address}` is of the other IP version"),
                "write an address of the protocol's version",
            ));
        }
        let host_bits = match address {
            IpAddr::V4(a) => a.to_bits().checked_shl(length.into()).unwrap_or(0) != 0,
            IpAddr::V6(a) => a.to_bits().checked_shl(length.into()).unwrap_or(0) != 0,
        };
        if host_bits {
            return Err(self.error(
                format!("`{address}/{length}` has bits set after its prefix length"),
                "clear them, or write `host` and the address alone",
            ));
        }
        self.next();
        Ok(Test::Address {
            network,
            side,
            address,
            length,
        })
    }
}

/// Reads `192.0.2.0/24`, `2001:db8::/32`, and as tcpdump does `10`, `172.16`, `192.0.2`.
fn prefix(word: &str) -> Option<(IpAddr, u8)> {
    if let Some((address, length)) = word.split_once('/') {
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = length.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        return (length <= most).then_some((address, length));
    }
    let parts: Vec<u8> = word
        .split('.')
        .map(|p| p.parse().ok())
        .collect::<Option<_>>()?;
    if parts.is_empty() || parts.len() > 3 {
        return None;
    }
    let mut octets = [0; 4];
    octets[..parts.len()].copy_from_slice(&parts);
    Some((Ipv4Addr::from(octets).into(), parts.len() as u8 * 8))
}

fn number(word: &str) -> Option<u16> {
    match word.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}
