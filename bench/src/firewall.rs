//! The firewall's engine between a network inside and one outside, fed from memory: flows whose packets are made
//! from their number, routes without a table, and a masquerading ruleset in nft syntax.

use std::net::Ipv4Addr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use filter::lang::{Options, load};
use filter::nat::mapping::{Endpoint, NatSizes, PortSpace};
use filter::packet::{AddressType, Fib, FibAnswer, FibQuery, InterfaceId};
use filter::pipeline::{
    BATCH_MAX, Environment, Fate, InterfaceFacts, Item, Shared, Sizes, TrackPolicy, Worker,
};
use filter::rules::{Interfaces, Judge, NoTrace, RuleWorker, Ruleset};
use wire::checksum::{self, Sum};
use wire::tcp::{Flags, TcpOption};
use wire::{Addresses, Instant, ip_protocol, ipv4, tcp, udp};

/// Interface of the clients.
pub const INSIDE: InterfaceId = InterfaceId(1);
/// Interface of the servers.
pub const OUTSIDE: InterfaceId = InterfaceId(2);
/// First outer address of the router; it has [`OUTER_ADDRESSES`].
pub const OUTER: u32 = u32::from_be_bytes([203, 0, 113, 0]);
/// Outer addresses.
pub const OUTER_ADDRESSES: u32 = 32;
/// Bytes of a frame, without its check sequence: 64 on the wire.
pub const FRAME_BYTES: usize = 60;
/// Inner endpoints that share one outer address.
const PORTS: usize = 32_768;
const FIRST_PORT: usize = 1024;

/// A ruleset that lets connections from inside pass and translates their source in one way.
macro_rules! translating {
    ($how:literal) => {
        concat!(
            "table inet filter {
    chain forward {
        type filter hook forward priority filter; policy drop
        ct state vmap { established : accept, related : accept, invalid : drop }
        iifname \"inside\" accept
    }
}
table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept
        oifname \"outside\" ",
            $how,
            "
    }
}"
        )
    };
}

/// What a home or an office has: connections from inside, masqueraded.
pub const MASQUERADE: &str = translating!("masquerade");

/// [`MASQUERADE`] between interfaces that are called otherwise.
pub fn masquerade_between(inside: &str, outside: &str) -> String {
    let quoted = |name| format!("\"{name}\"");
    let rules = MASQUERADE.replace(&quoted("inside"), &quoted(inside));
    rules.replace(&quoted("outside"), &quoted(outside))
}

/// The same with a pool of [`OUTER_ADDRESSES`] addresses.
pub const POOL: &str = translating!("snat to 203.0.113.0-203.0.113.31 persistent");

/// 10.0.0.0/8 lies inside, the router's outer addresses are its own, all else lies outside.
#[derive(Debug)]
struct Routes;

impl Fib for Routes {
    fn lookup(&self, query: &FibQuery) -> FibAnswer {
        let address = u128::from_be_bytes(query.address) as u32;
        let (kind, interface) = match address {
            address if address >> 24 == 10 => (AddressType::Unicast, INSIDE),
            address if address.wrapping_sub(OUTER) < OUTER_ADDRESSES => {
                (AddressType::Local, OUTSIDE)
            }
            _ => (AddressType::Unicast, OUTSIDE),
        };
        FibAnswer {
            kind,
            interface,
            mtu: 1500,
            next_hop: query.address,
        }
    }
}

/// Sizes of the tables of one worker for `connections` connections over IPv4.
pub fn sizes(connections: usize) -> Sizes {
    Sizes {
        connections4: connections,
        connections6: 64,
        sources: 64,
        expectations: 64,
        nat: NatSizes {
            mappings: connections,
            addresses: OUTER_ADDRESSES as usize,
            permits: 64,
        },
        workers: 1,
    }
}

/// The engine with rules, one worker of it.
#[derive(Debug)]
pub struct Engine {
    /// The worker.
    pub worker: Worker,
    ruleset: Ruleset,
    rules: RuleWorker,
    interfaces: [InterfaceFacts; 3],
}

impl Engine {
    /// Makes an engine for `connections` connections over IPv4.
    ///
    /// # Panics
    /// If the rules are wrong: they are the program's own.
    pub fn new(rules: &str, connections: usize) -> Self {
        let sizes = sizes(connections);
        let shared = Arc::new(Shared::new(&sizes, TrackPolicy::default(), [1, 2, 3, 4]));
        Self::with(rules, shared, 0)
    }

    /// Makes worker `index` of an engine whose tables are there.
    ///
    /// # Panics
    /// As [`new`](Self::new), or if there are more workers than the tables were made for.
    pub fn with(rules: &str, shared: Arc<Shared>, index: u16) -> Self {
        let options = Options {
            interfaces: Interfaces::ethernet(&["inside", "outside"]),
            ..Options::default()
        };
        let ruleset = load(rules, options).expect("rules of the program");
        let rules = ruleset.worker(0).expect("the first worker");
        let facts = |address: [u8; 4]| InterfaceFacts {
            v4: Some(u32::from_be_bytes(address)),
            v6: None,
        };
        Self {
            worker: Worker::new(shared, index, 7).expect("room for the worker"),
            ruleset,
            rules,
            interfaces: [
                InterfaceFacts::default(),
                facts([10, 255, 255, 254]),
                facts([203, 0, 113, 0]),
            ],
        }
    }

    /// Parses a batch of frames and lets the engine judge it; returns how many go on. `iif` gives the interface of
    /// each frame.
    pub fn batch(&mut self, frames: &mut Frames, now: Instant) -> usize {
        let mut items = ArrayVec::<Item<'_>, BATCH_MAX>::new();
        for (frame, iif) in frames.bytes.iter_mut().zip(&frames.iif).take(frames.len) {
            let Ok(layout) = wire::parse(frame) else {
                continue;
            };
            items.push(Item {
                frame,
                layout,
                iif: *iif,
                mark: 0,
            });
        }
        let env = Environment {
            now,
            unix_ns: 0,
            fib: &Routes,
            interfaces: &self.interfaces,
        };
        let mut fates = [Fate::Consumed; BATCH_MAX];
        let mut judge = Judge {
            ruleset: &self.ruleset,
            worker: &mut self.rules,
            tracer: NoTrace,
            epoch: 1,
        };
        self.worker
            .process(&env, &mut judge, &mut items, &mut fates);
        let passed = fates.iter().filter(|fate| **fate == Fate::Accept).count();
        self.worker.maintain(now, 0);
        passed
    }

    /// The outer endpoint of a flow's inner one, or its own guess while there is no mapping.
    pub fn outer_of(&self, tuple: &Tuple) -> (u32, u16) {
        let inner = Endpoint {
            address: tuple.inner.0,
            port: tuple.inner.1,
            space: PortSpace::Tcp,
        };
        let outer = self.worker.shared().nat().outer_of(inner);
        outer.map_or(tuple.outer, |outer| (outer.address, outer.port))
    }

    /// Ends all connections and gives their ports back.
    pub fn clear(&mut self, now: &mut Instant) {
        // A sweep of so many slots ends all of them.
        const SHARE: usize = 256;
        let shares = self.worker.shared().slots() / SHARE + 1;
        for _ in 0..3 {
            // Beyond every timeout and the quarantine of ports.
            *now = *now + core::time::Duration::from_secs(24 * 3600);
            for _ in 0..shares {
                self.worker.maintain(*now, SHARE);
            }
        }
        assert_eq!(self.worker.shared().connections(), 0, "all have ended");
    }
}

/// Frames of a batch.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The bytes.
    pub bytes: [[u8; FRAME_BYTES]; BATCH_MAX],
    /// Interface that each came by.
    pub iif: [InterfaceId; BATCH_MAX],
    /// How many there are.
    pub len: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            bytes: [[0; FRAME_BYTES]; BATCH_MAX],
            iif: [INSIDE; BATCH_MAX],
            len: 0,
        }
    }
}

/// What a packet of a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A datagram of the client.
    Udp,
    /// One of the server, to the outer endpoint.
    UdpBack,
    /// The client's SYN, the server's answer, the client's ACK.
    Syn,
    /// The server's answer.
    SynAck,
    /// The client's data, six bytes, the `n`-th.
    Data(u32),
    /// The server's acknowledgement of the `n`-th.
    Acked(u32),
}

/// Addresses and ports of a flow, by its number: 32,768 inner endpoints (or, with a pool of outer addresses, as many an
/// address), each with as many servers as it takes. All of a flow's packets come from its number alone, so that making
/// them costs no memory access beside the frame's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// Inner address and port.
    pub inner: (u32, u16),
    /// Outer address and port: the port is kept.
    pub outer: (u32, u16),
    /// The server's.
    pub server: (u32, u16),
}

impl Tuple {
    /// Returns the tuple of flow `n` of those that share one outer address.
    pub const fn shared(n: usize) -> Self {
        let endpoint = n % PORTS;
        let port = (FIRST_PORT + endpoint) as u16;
        Self {
            inner: (0x0a00_0001 + (endpoint >> 8) as u32, port),
            outer: (OUTER, port),
            server: (0xc633_6401 + (n / PORTS) as u32, 443),
        }
    }

    /// Returns the tuple of flow `n` of those that each have an inner endpoint of their own.
    pub const fn own(n: usize) -> Self {
        // A host inside has 512 ports.
        let port = (FIRST_PORT + (n % PORTS)) as u16;
        Self {
            inner: (0x0a00_0001 + (n >> 9) as u32, port),
            outer: (OUTER, port),
            server: (0xc633_6401, 443),
        }
    }
}

/// Makes packets from a template for each kind.
#[derive(Debug)]
pub struct Maker {
    udp: [u8; FRAME_BYTES],
    syn: [u8; FRAME_BYTES],
    syn_ack: [u8; FRAME_BYTES],
    data: [u8; FRAME_BYTES],
    ack: [u8; FRAME_BYTES],
}

/// First numbers of the client and the server.
const CLIENT_ISN: u32 = 1000;
const SERVER_ISN: u32 = 9000;
/// Bytes of the client's data in a packet.
const DATA_BYTES: u32 = 6;

impl Default for Maker {
    fn default() -> Self {
        Self {
            udp: udp_template(),
            syn: tcp_template(Flags::SYN, (CLIENT_ISN, 0), 0),
            syn_ack: tcp_template(Flags::SYN | Flags::ACK, (SERVER_ISN, CLIENT_ISN + 1), 0),
            data: tcp_template(Flags::ACK, (0, SERVER_ISN + 1), DATA_BYTES as usize),
            ack: tcp_template(Flags::ACK, (SERVER_ISN + 1, 0), 0),
        }
    }
}

impl Maker {
    /// Appends a packet to a batch, which has room for it.
    #[inline]
    pub fn push(&self, frames: &mut Frames, kind: Kind, tuple: &Tuple) {
        let (template, back) = match kind {
            Kind::Udp => (&self.udp, false),
            Kind::UdpBack => (&self.udp, true),
            Kind::Syn => (&self.syn, false),
            Kind::SynAck => (&self.syn_ack, true),
            Kind::Data(_) => (&self.data, false),
            Kind::Acked(_) => (&self.ack, true),
        };
        let (from, to) = if back {
            (tuple.server, tuple.outer)
        } else {
            (tuple.inner, tuple.server)
        };
        let Some((frame, iif)) = frames
            .bytes
            .get_mut(frames.len)
            .zip(frames.iif.get_mut(frames.len))
        else {
            return;
        };
        frames.len += 1;
        *frame = *template;
        *iif = if back { OUTSIDE } else { INSIDE };
        frame[26..30].copy_from_slice(&from.0.to_be_bytes());
        frame[30..34].copy_from_slice(&to.0.to_be_bytes());
        let mut header = [0; 20];
        header.copy_from_slice(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum::ipv4_header_20(&header).to_be_bytes());
        frame[34..36].copy_from_slice(&from.1.to_be_bytes());
        frame[36..38].copy_from_slice(&to.1.to_be_bytes());
        let ports = u32::from(from.1) << 16 | u32::from(to.1);
        let mut fields = Sum::ZERO.add_u32(from.0).add_u32(to.0).add_u32(ports);
        let first = CLIENT_ISN + 1;
        match kind {
            Kind::Data(n) => {
                let sequence = first.wrapping_add(DATA_BYTES.wrapping_mul(n));
                frame[38..42].copy_from_slice(&sequence.to_be_bytes());
                fields = fields.add_u32(sequence);
            }
            Kind::Acked(n) => {
                let ack = first.wrapping_add(DATA_BYTES.wrapping_mul(n.wrapping_add(1)));
                frame[42..46].copy_from_slice(&ack.to_be_bytes());
                fields = fields.add_u32(ack);
            }
            _ => {}
        }
        // The template has zeros where these fields are.
        let at = if matches!(kind, Kind::Udp | Kind::UdpBack) {
            40
        } else {
            50
        };
        let template = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let sum = fields.add_u16(!template).checksum();
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

const NOBODY: Addresses = Addresses::V4 {
    source: Ipv4Addr::UNSPECIFIED,
    destination: Ipv4Addr::UNSPECIFIED,
};

/// Writes a frame of no addresses and ports around a transport segment.
fn template(protocol: u8, bytes: usize, emit: impl FnOnce(&mut [u8])) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let none = Ipv4Addr::UNSPECIFIED;
    let header = ipv4::Repr::new(none, none, protocol, bytes as u16);
    header.emit(&mut frame[14..]).expect("room for the header");
    emit(&mut frame[34..34 + bytes]);
    frame
}

fn udp_template() -> [u8; FRAME_BYTES] {
    template(ip_protocol::UDP, FRAME_BYTES - 34, |bytes| {
        let header = udp::Repr {
            source_port: 0,
            destination_port: 0,
        };
        header.emit(bytes, &NOBODY).expect("room for the header");
    })
}

fn tcp_template(flags: Flags, numbers: (u32, u32), payload: usize) -> [u8; FRAME_BYTES] {
    let options: &[TcpOption<'_>] = if flags.contains(Flags::SYN) {
        &[TcpOption::MaximumSegmentSize(1460)]
    } else {
        &[]
    };
    let bytes = 20 + 4 * options.len() + payload;
    template(ip_protocol::TCP, bytes, |bytes| {
        let header = tcp::Repr {
            source_port: 0,
            destination_port: 0,
            sequence: numbers.0,
            acknowledgement: numbers.1,
            flags,
            window: 65_535,
            urgent: 0,
            options,
        };
        header.emit(bytes, &NOBODY).expect("room for the header");
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::checksum::{TransportChecksum, verify_transport};

    #[test]
    fn flows_open_and_their_packets_are_replayed() {
        let maker = Maker::default();
        for (rules, tuple) in [
            (MASQUERADE, Tuple::shared as fn(usize) -> Tuple),
            (POOL, Tuple::own),
        ] {
            let mut engine = Engine::new(rules, 4096);
            let mut now = Instant::from_ns(1_000_000_000_000);
            let kinds = [
                Kind::Syn,
                Kind::SynAck,
                Kind::Data(0),
                Kind::Acked(0),
                Kind::Data(1),
                Kind::Acked(1),
            ];
            for kind in kinds {
                for first in (0..1024).step_by(BATCH_MAX) {
                    let mut frames = Frames::default();
                    for n in first..first + BATCH_MAX {
                        let mut flow = tuple(n);
                        if rules == POOL {
                            flow.outer = engine.outer_of(&flow);
                        }
                        maker.push(&mut frames, kind, &flow);
                    }
                    for frame in &frames.bytes {
                        let layout = wire::parse(frame).unwrap();
                        let state = verify_transport(&layout, frame);
                        assert_eq!(state, TransportChecksum::Good, "{kind:?}");
                    }
                    assert_eq!(engine.batch(&mut frames, now), BATCH_MAX, "{kind:?}");
                }
            }
            let tally = engine.worker.tally;
            assert_eq!((tally.made, tally.invalid), (1024, 0));
            assert!(tally.replays >= 2 * 1024, "{tally:?}");
            engine.clear(&mut now);
            assert_eq!(engine.worker.shared().connections(), 0);
        }
    }
}
