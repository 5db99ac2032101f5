//! What a script says, as it was read.

use std::fmt;

use wire::tcp::Flags;

/// A script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// `--name=value` lines at its head.
    pub options: Vec<(String, String)>,
    /// The command in backquotes before the first event: sysctls.
    pub setup: Option<String>,
    /// What happens, in order.
    pub events: Vec<Event>,
}

/// One thing that happens, or has to.
#[derive(Clone, Debug)]
pub struct Event {
    /// Line of the script, from 1.
    pub line: usize,
    /// When.
    pub time: When,
    /// What.
    pub action: Action,
}

/// When an event happens, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// `0.1` or `0.1~0.2`: since the script began.
    Absolute(u64, Option<u64>),
    /// `+0.1` or `+0.1~+0.2`: since the event before.
    Relative(u64, Option<u64>),
    /// `*`: whenever.
    Any,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Action {
    /// `<`: the peer sends a packet.
    Inbound(Packet),
    /// `>`: the stack sends a packet.
    Outbound(Packet),
    /// The application calls.
    Call(Call),
    /// Backquotes: a shell command.
    Command(String),
    /// `%{ }%`: assertions about the connection.
    Code(String),
}

/// A system call.
#[derive(Clone, Debug)]
pub struct Call {
    /// `...0.2`: when a call that blocks returns, ns, counted as the event's time is.
    pub until: Option<u64>,
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Value>,
    /// What it returns.
    pub result: Value,
    /// `EAGAIN` and so on, with a result of -1.
    pub errno: Option<String>,
}

/// An argument or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `...`: anything.
    Any,
    /// A number.
    Number(i64),
    /// A symbol, or several joined by `|`.
    Symbols(Vec<String>),
    /// A string.
    Text(String),
    /// `[a, b]`.
    Array(Vec<Self>),
    /// `{name=a, b}`.
    Fields(Vec<(Option<String>, Self)>),
    /// `htons(80)`.
    Apply(String, Vec<Self>),
}

/// A packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// `[ect0]`: bits of the IP header.
    pub ecn: Ecn,
    /// `4000 > 8080`: its ports, if they are not the current connection's.
    pub ports: Option<(u16, u16)>,
    /// What it carries.
    pub body: Body,
}

/// The ECN field of the IP header (RFC 3168 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not said: sent as Not-ECT, not compared.
    #[default]
    Unsaid,
    /// Exactly these two bits.
    Is(u8),
    /// `ect01`: ECT(0) or ECT(1).
    Capable,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A segment.
    Tcp(Segment),
    /// `udp (100)`: a datagram with so many bytes of data.
    Udp(u32),
    /// `icmp unreachable frag_needed mtu 1400 [1:1461(1460)]`.
    Icmp {
        /// Type and code, by name.
        kind: String,
        /// The code's name.
        code: String,
        /// Of the next hop, bytes.
        mtu: u32,
        /// First sequence number and length of the segment that it quotes; `None`: of a datagram.
        quoted: Option<(u32, u32)>,
    },
}

impl Default for Body {
    fn default() -> Self {
        Self::Udp(0)
    }
}

/// A segment, in the script's sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Control bits.
    pub flags: Flags,
    /// Sequence number.
    pub seq: u32,
    /// Bytes of data.
    pub bytes: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window field, not scaled; `None`: not compared.
    pub window: Option<u16>,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options in order; `None` (`<...>`): not compared.
    pub options: Option<Vec<Opt>>,
}

/// A TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opt {
    /// `nop`.
    Nop,
    /// `eol`.
    End,
    /// `mss 1460`.
    Mss(u16),
    /// `wscale 7`.
    Scale(u8),
    /// `sackOK`.
    SackOk,
    /// `sack 1:2 3:4`.
    Sack(Vec<(u32, u32)>),
    /// `TS val 1 ecr 2`.
    Stamps(u32, u32),
    /// `FO` with a cookie in hex digits; empty: a request.
    FastOpen(Vec<u8>),
    /// `FOEXP`, as above by the experimental option.
    FastOpenExperimental(Vec<u8>),
    /// Another option: kind and data, `opt 99 abcd`.
    Other(u8, Vec<u8>),
}

/// Control bits by letter, in the order they are written.
pub(crate) const LETTERS: [(char, Flags); 9] = [
    ('F', Flags::FIN),
    ('S', Flags::SYN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('U', Flags::URG),
    ('E', Flags::ECE),
    ('W', Flags::CWR),
    ('A', Flags::AE),
    ('.', Flags::ACK),
];

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ecn {
            Ecn::Unsaid => {}
            Ecn::Is(0) => f.write_str("[noecn] ")?,
            Ecn::Is(1) => f.write_str("[ect1] ")?,
            Ecn::Is(2) => f.write_str("[ect0] ")?,
            Ecn::Is(_) => f.write_str("[ce] ")?,
            Ecn::Capable => f.write_str("[ect01] ")?,
        }
        if let Some((from, to)) = self.ports {
            write!(f, "{from} > {to} ")?;
        }
        match &self.body {
            Body::Tcp(segment) => segment.fmt(f),
            Body::Udp(bytes) => write!(f, "udp ({bytes})"),
            Body::Icmp {
                kind, code, mtu, ..
            } => {
                write!(f, "icmp {kind} {code}")?;
                if *mtu > 0 {
                    write!(f, " mtu {mtu}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, flag) in LETTERS {
            if self.flags.contains(flag) {
                write!(f, "{letter}")?;
            }
        }
        if self.flags.is_empty() {
            f.write_str("-")?;
        }
        let end = self.seq.wrapping_add(self.bytes);
        write!(f, " {}:{end}({})", self.seq, self.bytes)?;
        if self.flags.contains(Flags::ACK) {
            write!(f, " ack {}", self.ack)?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if self.urgent > 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        let Some(options) = &self.options else {
            return f.write_str(" <...>");
        };
        for (place, option) in options.iter().enumerate() {
            f.write_str(if place == 0 { " <" } else { "," })?;
            option.fmt(f)?;
        }
        f.write_str(if options.is_empty() { "" } else { ">" })
    }
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, name: &str, data: &[u8]| {
            f.write_str(name)?;
            if !data.is_empty() {
                f.write_str(" ")?;
            }
            data.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Self::Nop => f.write_str("nop"),
            Self::End => f.write_str("eol"),
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::Scale(shift) => write!(f, "wscale {shift}"),
            Self::SackOk => f.write_str("sackOK"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                blocks
                    .iter()
                    .try_for_each(|(start, end)| write!(f, " {start}:{end}"))
            }
            Self::Stamps(value, echo) => write!(f, "TS val {value} ecr {echo}"),
            Self::FastOpen(cookie) => hex(f, "FO", cookie),
            Self::FastOpenExperimental(cookie) => hex(f, "FOEXP", cookie),
            Self::Other(kind, data) => hex(f, &format!("opt {kind}"), data),
        }
    }
}
