//! Connections of the firewall: lists, filters, events.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// A tracked connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// IP protocol number.
    pub protocol: u8,
    /// As the first packet came.
    pub original: SessionTuple,
    /// As answers come: from what the destination was translated to, to what the source was.
    pub reply: SessionTuple,
    /// Where it stands, as conntrack tools name it, e.g. `ESTABLISHED`; TCP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Packets came back.
    pub answered: bool,
    /// It is established both ways.
    pub assured: bool,
    /// Its source is translated.
    pub snat: bool,
    /// Its destination is translated.
    pub dnat: bool,
    /// Another connection expected it.
    #[serde(default)]
    pub expected: bool,
    /// What inspects it, e.g. `ftp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper: Option<String>,
    /// Its mark.
    pub mark: u32,
    /// Its zone.
    pub zone: u16,
    /// Milliseconds until it ends if no packet comes.
    pub expires_ms: u64,
}

/// Addresses and ports of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port; the identifier of an ICMP query.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// Which connections; what is absent matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionFilter {
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Prefix of the original source.
    pub source: Option<AddressRange>,
    /// Prefix of the original destination.
    pub destination: Option<AddressRange>,
    /// Prefix of any of the four addresses, translated ones too.
    pub address: Option<AddressRange>,
    /// Original source port.
    pub source_port: Option<u16>,
    /// Original destination port.
    pub destination_port: Option<u16>,
    /// Any of the four ports.
    pub port: Option<u16>,
    /// TCP state, e.g. `ESTABLISHED`.
    pub state: Option<String>,
    /// Mark.
    pub mark: Option<u32>,
    /// Zone.
    pub zone: Option<u16>,
    /// Translated ones only.
    pub translated: bool,
}

/// An address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// The address.
    pub address: IpAddr,
    /// Bits that count.
    pub length: u8,
}

impl AddressRange {
    /// Tells whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let cut = |bits: u128, width: u8| {
            let behind = u32::from(width.saturating_sub(self.length));
            bits.checked_shr(behind).unwrap_or(0)
        };
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                cut(own.to_bits().into(), 32) == cut(other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                cut(own.to_bits(), 128) == cut(other.to_bits(), 128)
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is not an IP address"))?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => bits,
            Some(length) => length
                .parse()
                .ok()
                .filter(|length| *length <= bits)
                .ok_or_else(|| format!("`{length}` is not a prefix length of 0 to {bits}"))?,
        };
        Ok(Self { address, length })
    }
}

impl SessionFilter {
    /// Tells whether a connection is meant.
    pub fn matches(&self, session: &SessionInfo) -> bool {
        fn is<T: PartialEq>(wanted: Option<T>, found: T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        let within = |range: Option<AddressRange>, addresses: &[IpAddr]| {
            range.is_none_or(|range| addresses.iter().any(|address| range.contains(*address)))
        };
        let (out, back) = (&session.original, &session.reply);
        let addresses = [out.source, out.destination, back.source, back.destination];
        let ports = [
            out.source_port,
            out.destination_port,
            back.source_port,
            back.destination_port,
        ];
        is(self.protocol, session.protocol)
            && within(self.source, &addresses[..1])
            && within(self.destination, &addresses[1..2])
            && within(self.address, &addresses)
            && is(self.source_port, out.source_port)
            && is(self.destination_port, out.destination_port)
            && self.port.is_none_or(|port| ports.contains(&port))
            && self.state.as_ref().is_none_or(|state| {
                let found = session.state.as_deref().unwrap_or_default();
                found.eq_ignore_ascii_case(state)
            })
            && is(self.mark, session.mark)
            && is(self.zone, session.zone)
            && (!self.translated || session.snat || session.dnat)
    }
}

/// What to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRequest {
    /// Which.
    pub filter: SessionFilter,
    /// Where to go on: [`SessionPage::next`] of the page before; 0 at first.
    pub place: u64,
    /// Only count them.
    pub count_only: bool,
}

/// A part of the list of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionPage {
    /// Connections that match, unless they are only counted.
    pub sessions: Vec<SessionInfo>,
    /// How many match in this part.
    pub matched: u64,
    /// How many there are in this part.
    pub seen: u64,
    /// Where the next part begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A connection was opened, or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub change: SessionChange,
    /// The connection.
    pub session: SessionInfo,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionChange {
    /// Its first packet went on.
    New,
    /// Its time had come, it was ended by a command, or another one took its place.
    Destroy,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionInfo {
        let tuple = |source: &str, destination: &str, source_port, destination_port| SessionTuple {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port,
            destination_port,
        };
        SessionInfo {
            protocol: 6,
            original: tuple("10.0.0.1", "192.0.2.9", 40_000, 80),
            reply: tuple("192.0.2.9", "203.0.113.1", 80, 1024),
            state: Some("ESTABLISHED".into()),
            answered: true,
            assured: true,
            snat: true,
            dnat: false,
            expected: false,
            helper: None,
            mark: 7,
            zone: 0,
            expires_ms: 1000,
        }
    }

    #[test]
    fn each_part_of_a_filter_narrows() {
        let range = |text: &str| text.parse::<AddressRange>().ok();
        let filters = [
            (SessionFilter::default(), true),
            (
                SessionFilter {
                    protocol: Some(6),
                    source: range("10.0.0.0/8"),
                    ..Default::default()
                },
                true,
            ),
            (
                SessionFilter {
                    source: range("192.0.2.0/24"),
                    ..Default::default()
                },
                false,
            ),
            (
                SessionFilter {
                    destination: range("192.0.2.9"),
                    ..Default::default()
                },
                true,
            ),
            (
                SessionFilter {
                    address: range("203.0.113.0/24"),
                    ..Default::default()
                },
                true,
            ),
            (
                SessionFilter {
                    address: range("::/0"),
                    ..Default::default()
                },
                false,
            ),
            (
                SessionFilter {
                    address: range("0.0.0.0/0"),
                    ..Default::default()
                },
                true,
            ),
            (
                SessionFilter {
                    port: Some(1024),
                    ..Default::default()
                },
                true,
            ),
            (
                SessionFilter {
                    source_port: Some(1024),
                    ..Default::default()
                },
                false,
            ),
            (
                SessionFilter {
                    destination_port: Some(80),
                    ..Default::default()
                },
                true,
            ),
            (
                SessionFilter {
                    state: Some("established".into()),
                    ..Default::default()
                },
                true,
            ),
            (
                SessionFilter {
                    state: Some("SYN_SENT".into()),
                    ..Default::default()
                },
                false,
            ),
            (
                SessionFilter {
                    mark: Some(8),
                    ..Default::default()
                },
                false,
            ),
            (
                SessionFilter {
                    zone: Some(0),
                    translated: true,
                    ..Default::default()
                },
                true,
            ),
        ];
        for (filter, wanted) in filters {
            assert_eq!(filter.matches(&session()), wanted, "{filter:?}");
        }
        assert!("10.0.0.0/33".parse::<AddressRange>().is_err());
        assert!("host".parse::<AddressRange>().is_err());
    }
}
