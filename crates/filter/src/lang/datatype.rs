//! The types of keys and values, and the constants that have names.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::symbols as sym;

/// A type of the nft language. Its values are unsigned numbers of [`bits`](DataType::bits) bits; addresses are
/// read as big-endian numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are nft's own, see `name`")]
pub enum DataType {
    Integer(u16),
    Boolean,
    Ipv4Addr,
    Ipv6Addr,
    EtherAddr,
    EtherType,
    ArpOp,
    InetProto,
    InetService,
    IcmpType,
    IcmpCode,
    Icmpv6Type,
    Icmpv6Code,
    IcmpxCode,
    IgmpType,
    MhType,
    DccpType,
    TcpFlag,
    Dscp,
    Ecn,
    Mark,
    IfName,
    IfIndex,
    IfType,
    NfProto,
    PktType,
    CtState,
    CtStatus,
    CtDir,
    CtLabel,
    CtEvent,
    FibAddrType,
    Realm,
    ClassId,
    Uid,
    Gid,
    Time,
    Hour,
    Day,
    Duration,
    DevGroup,
    Cgroup,
    Helper,
}

/// What a word can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// One value.
    Value(u128),
    /// A range of values, both ends included.
    Range(u128, u128),
}

const NAMES: &[(&str, DataType)] = &[
    ("boolean", DataType::Boolean),
    ("ipv4_addr", DataType::Ipv4Addr),
    ("ipv6_addr", DataType::Ipv6Addr),
    ("ether_addr", DataType::EtherAddr),
    ("ll_addr", DataType::EtherAddr),
    ("ether_type", DataType::EtherType),
    ("arp_op", DataType::ArpOp),
    ("inet_proto", DataType::InetProto),
    ("inet_service", DataType::InetService),
    ("icmp_type", DataType::IcmpType),
    ("icmp_code", DataType::IcmpCode),
    ("icmpv6_type", DataType::Icmpv6Type),
    ("icmpv6_code", DataType::Icmpv6Code),
    ("icmpx_code", DataType::IcmpxCode),
    ("igmp_type", DataType::IgmpType),
    ("mh_type", DataType::MhType),
    ("dccp_pkttype", DataType::DccpType),
    ("tcp_flag", DataType::TcpFlag),
    ("dscp", DataType::Dscp),
    ("ecn", DataType::Ecn),
    ("mark", DataType::Mark),
    ("ifname", DataType::IfName),
    ("iface_index", DataType::IfIndex),
    ("iface_type", DataType::IfType),
    ("nf_proto", DataType::NfProto),
    ("pkt_type", DataType::PktType),
    ("ct_state", DataType::CtState),
    ("ct_status", DataType::CtStatus),
    ("ct_dir", DataType::CtDir),
    ("ct_label", DataType::CtLabel),
    ("ct_event", DataType::CtEvent),
    ("fib_addrtype", DataType::FibAddrType),
    ("realm", DataType::Realm),
    ("classid", DataType::ClassId),
    ("uid", DataType::Uid),
    ("gid", DataType::Gid),
    ("time", DataType::Time),
    ("hour", DataType::Hour),
    ("day", DataType::Day),
    ("devgroup", DataType::DevGroup),
    ("cgroupsv2", DataType::Cgroup),
];

impl DataType {
    /// Returns the type that a set declares by `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, data_type)| *data_type)
    }

    /// Returns nft's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer(_) => "integer",
            Self::Duration => "relative time",
            Self::Helper => "ct helper",
            _ => NAMES
                .iter()
                .find(|(_, known)| *known == self)
                .map_or("integer", |(name, _)| name),
        }
    }

    /// Returns the width, bits.
    pub const fn bits(self) -> u16 {
        match self {
            Self::Integer(bits) => bits,
            Self::Boolean | Self::CtDir => 8,
            Self::Ipv4Addr | Self::Mark | Self::IfIndex | Self::CtState | Self::CtStatus => 32,
            Self::FibAddrType | Self::Realm | Self::ClassId | Self::Uid | Self::Gid => 32,
            Self::Hour | Self::DevGroup | Self::Duration | Self::CtEvent => 32,
            Self::Ipv6Addr | Self::CtLabel => 128,
            Self::EtherAddr => 48,
            Self::EtherType | Self::ArpOp | Self::InetService | Self::IfType => 16,
            Self::Dscp => 6,
            Self::Ecn => 2,
            Self::DccpType => 4,
            // Interfaces are numbers here, whatever their names.
            Self::IfName | Self::Helper => 16,
            Self::Time | Self::Cgroup => 64,
            _ => 8,
        }
    }

    /// True if several values can be meant at once: flags.
    pub const fn is_bitmask(self) -> bool {
        matches!(
            self,
            Self::TcpFlag | Self::CtState | Self::CtStatus | Self::CtLabel | Self::CtEvent
        )
    }

    /// Returns the largest value.
    pub const fn max(self) -> u128 {
        let bits = self.bits();
        if bits >= 128 {
            u128::MAX
        } else {
            (1 << bits) - 1
        }
    }

    /// Returns the constants that have names.
    pub const fn symbols(self) -> &'static [(&'static str, u32)] {
        match self {
            Self::Boolean => sym::BOOLEAN,
            Self::EtherType => sym::ETHER_TYPE,
            Self::ArpOp => sym::ARP_OP,
            Self::InetProto => sym::INET_PROTO,
            Self::InetService => sym::INET_SERVICE,
            Self::IcmpType => sym::ICMP_TYPE,
            Self::IcmpCode => sym::ICMP_CODE,
            Self::Icmpv6Type => sym::ICMPV6_TYPE,
            Self::Icmpv6Code => sym::ICMPV6_CODE,
            Self::IcmpxCode => sym::ICMPX_CODE,
            Self::IgmpType => sym::IGMP_TYPE,
            Self::TcpFlag => sym::TCP_FLAG,
            Self::Dscp => sym::DSCP,
            Self::Ecn => sym::ECN,
            Self::IfType => sym::IF_TYPE,
            Self::NfProto => sym::NF_PROTO,
            Self::PktType => sym::PKT_TYPE,
            Self::CtState => sym::CT_STATE,
            Self::CtStatus => sym::CT_STATUS,
            Self::CtDir => sym::CT_DIR,
            Self::CtEvent => sym::CT_EVENT,
            Self::FibAddrType => sym::FIB_ADDR_TYPE,
            Self::Day => sym::DAY,
            Self::DevGroup => sym::DEV_GROUP,
            Self::DccpType => sym::DCCP_TYPE,
            Self::MhType => sym::MH_TYPE,
            _ => &[],
        }
    }

    /// Reads a word as a constant of this type. Interface names are not known here. No name service is asked.
    pub fn parse(self, word: &str) -> Option<Constant> {
        if let Some((_, value)) = self
            .symbols()
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word))
        {
            return Some(Constant::Value((*value).into()));
        }
        let value = match self {
            Self::Ipv4Addr => u128::from(u32::from(word.parse::<Ipv4Addr>().ok()?)),
            Self::Ipv6Addr => u128::from(word.parse::<Ipv6Addr>().ok()?),
            Self::EtherAddr => parse_mac(word)?,
            Self::Time => parse_date(word)?,
            Self::Hour => parse_hour(word)?,
            Self::Duration => super::lexer::parse_time(word)?.into(),
            Self::ClassId => {
                let (major, minor) = word.split_once(':')?;
                let hex = |part: &str| u128::from_str_radix(part, 16).ok();
                hex(major)? << 16 | hex(minor)?
            }
            Self::CtLabel => 1_u128.checked_shl(word.parse().ok()?)?,
            Self::Uid | Self::Gid if word == "root" => 0,
            _ => parse_number(word)?,
        };
        (value <= self.max()).then_some(Constant::Value(value))
    }

    /// Returns the name of a constant.
    pub fn symbol_of(self, value: u128) -> Option<&'static str> {
        self.symbols()
            .iter()
            .find(|(_, known)| u128::from(*known) == value)
            .map(|(name, _)| *name)
    }
}

fn parse_number(word: &str) -> Option<u128> {
    match word.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

fn parse_mac(word: &str) -> Option<u128> {
    let mut value = 0;
    let mut parts = 0;
    for part in word.split(':') {
        value = value << 8 | u128::from(u8::from_str_radix(part, 16).ok()?);
        parts += 1;
    }
    (parts == 6).then_some(value)
}

/// Seconds since midnight of `HH:MM[:SS]`, UTC.
fn parse_hour(word: &str) -> Option<u128> {
    let mut parts = word.split(':');
    let hour: u128 = parts.next()?.parse().ok()?;
    let minute: u128 = parts.next()?.parse().ok()?;
    let second: u128 = parts.next().map_or(Some(0), |part| part.parse().ok())?;
    (hour < 24 && minute < 60 && second < 60 && parts.next().is_none())
        .then_some(hour * 3600 + minute * 60 + second)
}

/// Nanoseconds since 1970 of `YYYY-MM-DD [HH:MM[:SS]]` UTC, or of a number of seconds.
fn parse_date(word: &str) -> Option<u128> {
    if let Ok(seconds) = word.parse::<u128>() {
        return seconds.checked_mul(1_000_000_000);
    }
    let (date, hour) = word.split_once(' ').unwrap_or((word, "00:00"));
    let mut parts = date.split(['-', '/']);
    let year: i64 = parts.next()?.parse().ok()?;
    let month: i64 = parts.next()?.parse().ok()?;
    let day: i64 = parts.next()?.parse().ok()?;
    if !(1970..=2554).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days from civil (Hinnant 2013): the year starts in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted / 400;
    let year_of_era = shifted - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = u128::try_from(days).ok()? * 86_400 + parse_hour(hour)?;
    Some(seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        let value = |data_type: DataType, word| match data_type.parse(word) {
            Some(Constant::Value(value)) => Some(value),
            _ => None,
        };
        assert_eq!(value(DataType::Ipv4Addr, "10.0.0.1"), Some(0x0a00_0001));
        assert_eq!(value(DataType::InetService, "https"), Some(443));
        assert_eq!(value(DataType::InetService, "70000"), None);
        assert_eq!(value(DataType::InetProto, "tcp"), Some(6));
        assert_eq!(
            value(DataType::EtherAddr, "00:11:22:33:44:55"),
            Some(0x0011_2233_4455)
        );
        assert_eq!(value(DataType::Hour, "10:30"), Some(37_800));
        assert_eq!(
            value(DataType::Time, "2000-03-01 00:00:01"),
            Some(951_868_801_000_000_000)
        );
        assert_eq!(value(DataType::Dscp, "ef"), Some(46));
        assert_eq!(DataType::from_name("ct_state"), Some(DataType::CtState));
    }
}
