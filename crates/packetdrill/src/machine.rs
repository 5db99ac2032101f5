//! Runs a script: the stack, its peer and its application, in virtual time.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use stack::{FrameList, Limits, Stack, StackConfig};
use wire::Instant;
use wire::tcp::Flags;

use crate::calls::{Blocked, Calls};
use crate::error::Error;
use crate::flow::Flow;
use crate::frame::{self, Ends, LOCAL_MAC, PEER_MAC, Quoted, Seen, Sent, WireSegment};
use crate::settings::Settings;
use crate::syntax::{Action, Body, Ecn, Event, Opt, Packet, Script, Segment, When};

/// Local port of sockets that are bound to `...`, and port that `connect(..., ...)` goes to.
pub(crate) const PORT: u16 = 8080;
/// Port of the peer's first connection.
const PEER_PORT: u16 = 40_000;
/// Virtual time before the script begins: 1,000 s.
const START_NS: u64 = 1_000_000_000_000;
/// By how much timestamps may differ from the script's, ms.
const STAMP_TOLERANCE: u32 = 2;
/// Deadlines that one wait may pass before the run counts as stuck.
const STEPS_MAX: usize = 1_000_000;

/// Everything of one run.
pub(crate) struct Machine {
    pub(crate) stack: Stack,
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) calls: Calls,
    now: u64,
    /// Script time of the event before.
    before: u64,
    tolerance: u64,
    sent: VecDeque<Sent>,
    link: FrameList,
    flows: Vec<Flow>,
    current: Option<usize>,
    /// Port of the peer's last datagram, and of the socket that it went to.
    udp_ports: (u16, u16),
    blocked: Option<(Blocked, u64, usize)>,
}

/// Runs a script; what the stack sends beyond it is an error if `is_strict`.
///
/// # Errors
/// The first thing that does not go as the script says.
pub fn run(script: &Script, is_strict: bool) -> Result<(), Error> {
    let settings = Settings::read(script)?;
    let mut machine = Machine::new(settings);
    for event in &script.events {
        machine.step(event)?;
    }
    machine.finish(script, is_strict)
}

impl Machine {
    fn new(settings: Settings) -> Self {
        let now = START_NS;
        let (local, peer, prefix): (IpAddr, IpAddr, u8) = if settings.is_v6 {
            let address = |n: u16| IpAddr::from([0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, n]);
            (address(1), address(2), 64)
        } else {
            ([192, 168, 0, 1].into(), [192, 0, 2, 1].into(), 16)
        };
        let mut config = StackConfig::new(LOCAL_MAC, [11, 22, 33, 44]);
        config.mtu = settings.mtu;
        config.tcp = settings.tcp;
        config.limits = Limits {
            sessions_ipv4: 256,
            sessions_ipv6: 256,
            time_wait: 64,
            connections: 256,
            ..Limits::default()
        };
        let mut stack = Stack::new(config, Instant::from_ns(now));
        stack.add_address(local, prefix);
        if !settings.is_v6 {
            stack.add_route([0, 0, 0, 0].into(), 0, None);
        }
        stack.set_neighbour(Instant::from_ns(now), peer, PEER_MAC);
        Self {
            stack,
            local,
            peer,
            calls: Calls::default(),
            now,
            before: now,
            tolerance: settings.tolerance_ns,
            sent: VecDeque::new(),
            link: FrameList::new(4096),
            flows: Vec::new(),
            current: None,
            udp_ports: (PEER_PORT, PORT),
            blocked: None,
        }
    }

    pub(crate) const fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }

    fn step(&mut self, event: &Event) -> Result<(), Error> {
        let (start, end) = self.window(event.time);
        let line = event.line;
        if let Action::Outbound(packet) = &event.action {
            let at = self.expect(packet, event.time, (start, end), line)?;
            self.before = match event.time {
                When::Absolute(_, None) | When::Relative(_, None) => start,
                _ => at,
            };
            return Ok(());
        }
        self.wait_until(start, line)?;
        self.before = start.max(self.before);
        match &event.action {
            Action::Inbound(packet) => self.inject(packet, line)?,
            Action::Call(call) => {
                self.must_be_free(line)?;
                let until = call.until.map(|until| match event.time {
                    When::Absolute(..) => START_NS + until,
                    _ => start - self.offset(event.time) + until,
                });
                if let Some(blocked) = self.call(call, line)? {
                    let until = until.unwrap_or(start);
                    self.blocked = Some((blocked, until, line));
                } else if let Some(until) = until
                    && until > self.now + self.tolerance
                {
                    return Err(Error::Mismatch {
                        line,
                        what: format!("{} returns at once", call.name),
                        expected: seconds(until - START_NS),
                        actual: seconds(self.now - START_NS),
                    });
                }
            }
            Action::Command(command) => {
                return Err(Error::Unsupported {
                    line,
                    what: format!("command `{command}`"),
                });
            }
            Action::Code(code) => self.check_code(code, line)?,
            Action::Outbound(_) => {}
        }
        self.pump()
    }

    const fn offset(&self, time: When) -> u64 {
        match time {
            When::Relative(offset, _) => offset,
            _ => 0,
        }
    }

    /// Returns when an event may happen, without tolerance.
    const fn window(&self, time: When) -> (u64, u64) {
        let (base, start, end) = match time {
            When::Absolute(start, end) => (START_NS, start, end),
            When::Relative(start, end) => (self.before, start, end),
            When::Any => return (self.before, u64::MAX),
        };
        let end = match end {
            Some(end) => end,
            None => start,
        };
        (base + start, base + end)
    }

    fn finish(&mut self, script: &Script, is_strict: bool) -> Result<(), Error> {
        let line = script.events.last().map_or(1, |event| event.line);
        if let Some((_, until, _)) = &self.blocked {
            self.wait_until(*until + self.tolerance, line)?;
        }
        self.must_be_free(line)?;
        match self.sent.pop_front() {
            Some(sent) if is_strict => Err(Error::Mismatch {
                line,
                what: "a packet after the script's end".into(),
                expected: "nothing".into(),
                actual: self.describe(&sent).0.to_string(),
            }),
            _ => Ok(()),
        }
    }

    fn must_be_free(&mut self, line: usize) -> Result<(), Error> {
        match self.blocked.take() {
            None => Ok(()),
            Some((blocked, until, at)) => Err(Error::Mismatch {
                line: at,
                what: format!("{} has not returned by line {line}", blocked.call.name),
                expected: seconds(until - START_NS),
                actual: format!("blocked at {}", seconds(self.now - START_NS)),
            }),
        }
    }

    /// Lets time pass up to `until`.
    fn wait_until(&mut self, until: u64, line: usize) -> Result<(), Error> {
        for _ in 0..STEPS_MAX {
            match self.stack.poll_timeout() {
                Some(at) if at.as_ns() <= until => {
                    self.now = self.now.max(at.as_ns());
                    self.stack.handle_timeout(self.time());
                    self.pump()?;
                }
                _ => {
                    self.now = self.now.max(until);
                    return Ok(());
                }
            }
        }
        Err(Error::Unsupported {
            line,
            what: "so many deadlines in one wait".into(),
        })
    }

    /// Takes what the stack sends, and goes on with a call that blocks.
    fn pump(&mut self) -> Result<(), Error> {
        loop {
            let is_done = self.stack.poll_transmit(self.time(), &mut self.link);
            while let Some(bytes) = self.link.pop() {
                if let Some(sent) = frame::read(&bytes, self.now) {
                    self.note(&sent);
                    self.sent.push_back(sent);
                }
                self.link.recycle(bytes);
            }
            if is_done {
                break;
            }
        }
        while let Some(event) = self.stack.poll_event() {
            self.hear(event);
        }
        let Some((blocked, until, at)) = self.blocked.take() else {
            return Ok(());
        };
        match self.resume(blocked, at)? {
            Some(blocked) => self.blocked = Some((blocked, until, at)),
            None => {
                let early = self.now + self.tolerance < until;
                let late = self.now > until + self.tolerance;
                if early || late {
                    return Err(Error::Mismatch {
                        line: at,
                        what: "a call returns too early or too late".into(),
                        expected: seconds(until - START_NS),
                        actual: seconds(self.now - START_NS),
                    });
                }
                return self.pump();
            }
        }
        Ok(())
    }

    /// Learns the numbers of a connection from a SYN that the stack sends.
    fn note(&mut self, sent: &Sent) {
        let Seen::Tcp(segment) = &sent.seen else {
            return;
        };
        let ports = (segment.destination_port, segment.source_port);
        let at = self.flow_of(ports);
        if segment.flags.contains(Flags::SYN) {
            self.flows[at].on_own_syn(segment);
            if !segment.flags.contains(Flags::ACK) {
                self.current = Some(at);
            }
        }
    }

    /// Returns the flow between the peer's and our port; makes it if need be.
    fn flow_of(&mut self, (peer, local): (u16, u16)) -> usize {
        let found = self
            .flows
            .iter()
            .position(|flow| (flow.peer_port, flow.local_port) == (peer, local));
        found.unwrap_or_else(|| {
            self.flows.push(Flow::new(peer, local));
            self.flows.len() - 1
        })
    }

    fn current_flow(&mut self, ports: Option<(u16, u16)>) -> usize {
        let at = match (ports, self.current) {
            (Some(ports), _) => self.flow_of(ports),
            (None, Some(current)) => current,
            (None, None) => self.flow_of((PEER_PORT, self.calls.listening_port)),
        };
        self.current = Some(at);
        at
    }

    fn inject(&mut self, packet: &Packet, line: usize) -> Result<(), Error> {
        let ends = Ends {
            from: self.peer,
            to: self.local,
        };
        let ecn = match packet.ecn {
            Ecn::Unsaid => 0,
            Ecn::Is(bits) => bits,
            Ecn::Capable => 2,
        };
        let bytes = match &packet.body {
            Body::Tcp(segment) => {
                let at = self.current_flow(packet.ports);
                let wire = self.flows[at].wire(segment);
                self.calls.has_cookie |= wire.flags.contains(Flags::SYN)
                    && wire.options.iter().any(
                        |option| matches!(option, Opt::FastOpen(cookie) if !cookie.is_empty()),
                    );
                frame::segment(&wire, ends, ecn)
            }
            Body::Udp(bytes) => {
                let ports = packet.ports.unwrap_or(self.udp_ports);
                self.udp_ports = ports;
                let payload: Vec<u8> = (0..*bytes).map(pattern).collect();
                frame::datagram(ports, &payload, ends)
            }
            Body::Icmp {
                kind,
                code,
                mtu,
                quoted: Some((seq, bytes)),
            } => {
                let at = self.current_flow(packet.ports);
                let segment = self.flows[at].own_segment(*seq, *bytes);
                frame::icmp_error(kind, code, *mtu, &Quoted::Tcp(&segment), ends)
            }
            Body::Icmp {
                kind, code, mtu, ..
            } => {
                let (peer, local) = packet.ports.unwrap_or(self.udp_ports);
                frame::icmp_error(kind, code, *mtu, &Quoted::Udp(local, peer), ends)
            }
        };
        let Some(bytes) = bytes else {
            return Err(Error::Unsupported {
                line,
                what: format!("packet `{packet}`"),
            });
        };
        self.stack.input(self.time(), &[bytes.as_slice()]);
        self.pump()
    }

    /// Waits for a packet and compares it; returns when it was sent.
    fn expect(
        &mut self,
        packet: &Packet,
        time: When,
        (start, end): (u64, u64),
        line: usize,
    ) -> Result<u64, Error> {
        let limit = if time == When::Any {
            self.now + 200_000_000_000
        } else {
            end + self.tolerance
        };
        for _ in 0..STEPS_MAX {
            if !self.sent.is_empty() {
                break;
            }
            match self.stack.poll_timeout() {
                Some(at) if at.as_ns() <= limit => self.wait_until(at.as_ns(), line)?,
                _ => break,
            }
        }
        let Some(mut sent) = self.sent.pop_front() else {
            return Err(Error::Mismatch {
                line,
                what: "a packet is not sent".into(),
                expected: packet.to_string(),
                actual: format!("nothing by {}", seconds(limit.min(self.now) - START_NS)),
            });
        };
        if let (Body::Tcp(wanted), Seen::Tcp(segment)) = (&packet.body, &mut sent.seen) {
            let at = self.flow_of((segment.destination_port, segment.source_port));
            self.flows[at].name(wanted);
            self.coalesce(wanted, segment);
        }
        let (mut actual, ports) = self.describe(&sent);
        if packet.ports.is_some() {
            actual.ports = Some(ports);
        }
        let what = if !matches(packet, &mut actual) {
            "the packet differs"
        } else if time != When::Any && sent.at + self.tolerance < start {
            "the packet comes too early"
        } else if time != When::Any && sent.at > end + self.tolerance {
            "the packet comes too late"
        } else if let Seen::Tcp(segment) = &sent.seen
            && !self.data_is_right(segment)
        {
            "the data differs from what was written"
        } else {
            return Ok(sent.at);
        };
        Err(Error::Mismatch {
            line,
            what: what.into(),
            expected: format!("{} {packet}", self.span(time, start, end)),
            actual: format!("{} {actual}", seconds(sent.at - START_NS)),
        })
    }

    fn span(&self, time: When, start: u64, end: u64) -> String {
        match time {
            When::Any => "*".into(),
            _ if start == end => seconds(start - START_NS),
            _ => format!("{}~{}", seconds(start - START_NS), seconds(end - START_NS)),
        }
    }

    /// Joins segments that a NIC would have cut out of the one that the script waits for.
    fn coalesce(&mut self, wanted: &Segment, segment: &mut WireSegment) {
        let at = self.flow_of((segment.destination_port, segment.source_port));
        while (segment.payload.len() as u32) < wanted.bytes {
            let Some(Sent {
                seen: Seen::Tcp(next),
                ..
            }) = self.sent.front()
            else {
                return;
            };
            let end = segment.seq.wrapping_add(segment.payload.len() as u32);
            let joined = (segment.payload.len() + next.payload.len()) as u32;
            let follows = next.seq == end
                && next.ack == segment.ack
                && !next.payload.is_empty()
                && next.source_port == self.flows[at].local_port
                && joined <= wanted.bytes;
            if !follows {
                return;
            }
            segment.flags |= next.flags;
            // Linux pushes every segment that a NIC is to cut; there is none here.
            segment
                .flags
                .set(Flags::PSH, wanted.flags.contains(Flags::PSH));
            segment.payload.extend(&next.payload);
            self.sent.pop_front();
        }
    }

    /// Returns a packet in the script's numbers, and its ports (ours first).
    fn describe(&mut self, sent: &Sent) -> (Packet, (u16, u16)) {
        let (body, ports) = match &sent.seen {
            Seen::Tcp(segment) => {
                let at = self.flow_of((segment.destination_port, segment.source_port));
                let body = Body::Tcp(self.flows[at].to_script(segment));
                (body, (segment.source_port, segment.destination_port))
            }
            Seen::Udp(from, to, data) => (Body::Udp(data.len() as u32), (*from, *to)),
            Seen::Icmp(kind, code) => {
                let kind = match (self.local.is_ipv4(), kind, code) {
                    (true, 3, 3) | (false, 1, 4) => "unreachable port_unreachable".to_owned(),
                    (true, 3, 2) => "unreachable protocol_unreachable".to_owned(),
                    _ => format!("type {kind} code {code}"),
                };
                let (kind, code) = kind.split_once(' ').unwrap_or_default();
                let body = Body::Icmp {
                    kind: kind.into(),
                    code: code.into(),
                    mtu: 0,
                    quoted: None,
                };
                (body, (0, 0))
            }
        };
        let packet = Packet {
            ecn: Ecn::Is(sent.ecn),
            ports: None,
            body,
        };
        (packet, ports)
    }

    fn data_is_right(&mut self, segment: &WireSegment) -> bool {
        let at = self.flow_of((segment.destination_port, segment.source_port));
        let first = self.flows[at].data_offset(segment);
        segment
            .payload
            .iter()
            .zip(first..)
            .all(|(byte, at)| *byte == pattern(at))
    }

    /// Returns the address that a socket is bound to without one of its own.
    pub(crate) fn any_local(&self) -> IpAddr {
        match self.local {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0u16; 8]),
        }
    }
    /// Returns where `connect(..., ...)` goes.
    pub(crate) const fn peer_socket(&self) -> SocketAddr {
        SocketAddr::new(self.peer, PORT)
    }
}

/// Says whether a packet is as the script wants it; fields that the script leaves open are taken over.
fn matches(wanted: &Packet, actual: &mut Packet) -> bool {
    let same_ecn = match (wanted.ecn, actual.ecn) {
        (Ecn::Unsaid, _) => {
            actual.ecn = Ecn::Unsaid;
            true
        }
        (Ecn::Capable, Ecn::Is(bits)) => bits == 1 || bits == 2,
        (wanted, actual) => wanted == actual,
    };
    let same_body = match (&wanted.body, &mut actual.body) {
        (Body::Tcp(wanted), Body::Tcp(actual)) => {
            if wanted.window.is_none() {
                actual.window = None;
            }
            if wanted.options.is_none() {
                actual.options = None;
            }
            forgive_stamps(wanted, actual);
            wanted == actual
        }
        (
            Body::Icmp { kind, code, .. },
            Body::Icmp {
                kind: other,
                code: other_code,
                ..
            },
        ) => (kind, code) == (other, other_code),
        (wanted, actual) => wanted == actual,
    };
    same_ecn && same_body && wanted.ports == actual.ports
}

/// Takes our timestamps as the script has them where they differ by little: its clock need not tick with ours.
fn forgive_stamps(wanted: &Segment, actual: &mut Segment) {
    let (Some(wanted), Some(actual)) = (&wanted.options, &mut actual.options) else {
        return;
    };
    for (wanted, actual) in wanted.iter().zip(actual) {
        if let (Opt::Stamps(wanted, _), Opt::Stamps(value, _)) = (wanted, actual)
            && wanted.abs_diff(*value) <= STAMP_TOLERANCE
        {
            *value = *wanted;
        }
    }
}

/// Returns byte `at` of every stream: what is written, and what the peer sends.
pub(crate) const fn pattern(at: u32) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000)
}
