//! Measures the firewall's engine in memory on one core: `cargo run --release -p tidegate-bench -- fw_mem`.
//!
//! Every packet is made from its flow's number, parsed, judged and translated in batches of 64, under rules in nft
//! syntax; what making and parsing costs alone is measured beside and taken off, as the kernel's injection is. The unit is processor time. With a
//! million flows, each pass meets each flow once, in a random order, one direction in one pass and the other in the
//! next.

use std::hint::black_box;
use std::time::Duration;

use bench::firewall::{Engine, FRAME_BYTES, Frames, Kind, MASQUERADE, Maker, POOL, Tuple};
use bench::sessions::Random;
use bench::{Options, Report, Table, median, rounds};
use clap::Parser;
use filter::guard::cookie::{Cookies, Offer};
use filter::lang::{self, load};
use filter::packet::{CtState, Hook, InterfaceId, Packet};
use filter::pipeline::BATCH_MAX;
use filter::rules::{NoTrace, RuleWorker, Ruleset};
use filter::verdict::Effects;
use serde_json::json;
use tables::signature::{Session4, SipHash13};
use tables::slots::{SlotKey, SlotMemory};
use wire::tcp::{Flags, TcpOption};
use wire::{Addresses, FlowKey, Instant, ip_protocol, ipv4, tcp};

/// Measures the firewall's engine in memory on one core.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Flows of the large table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1024..))]
    flows: u32,
    /// Packets of one measurement with one flow.
    #[arg(long, default_value_t = 1_000_000)]
    packets: u32,
    /// Measure only this row, e.g. under a profiler.
    #[arg(long)]
    only: Option<String>,
}

/// Established flows of one protocol.
pub(crate) struct Established {
    engine: Engine,
    maker: Maker,
    /// The order in which they are met.
    order: Vec<u32>,
    packets: usize,
    udp: bool,
    /// Passes so far.
    passes: u32,
}

/// Processor time of this thread: what else the machine does is not counted.
fn cpu() -> Duration {
    io::cpu::thread_time()
}

fn now() -> Instant {
    io::cpu::now()
}

impl Established {
    pub(crate) fn new(flows: u32, packets: u32, udp: bool) -> Self {
        let mut order: Vec<u32> = (0..flows).collect();
        Random::new(7).shuffle(&mut order);
        let mut subject = Self {
            engine: Engine::new(MASQUERADE, flows as usize),
            maker: Maker::default(),
            order,
            packets: packets as usize,
            udp,
            passes: 0,
        };
        if !udp {
            for kind in [Kind::Syn, Kind::SynAck] {
                subject.once(|_| kind);
            }
        }
        // The first packets of each direction meet the rules.
        for _ in 0..4 {
            subject.pass();
        }
        subject
    }

    /// One packet for each flow.
    fn once(&mut self, kind: impl Fn(usize) -> Kind) {
        let mut frames = Frames::default();
        for flows in self.order.chunks(BATCH_MAX) {
            frames.len = 0;
            for (at, flow) in flows.iter().enumerate() {
                self.maker.push(&mut frames, kind(at), &Tuple::shared(*flow as usize));
            }
            let passed = self.engine.batch(&mut frames, now());
            assert_eq!(passed, flows.len(), "every packet of a known flow passes");
        }
    }

    fn kind(&self, step: u32) -> Kind {
        match (self.udp, step % 2) {
            (true, 0) => Kind::Udp,
            (true, _) => Kind::UdpBack,
            (false, 0) => Kind::Data(step / 2),
            (false, _) => Kind::Acked(step / 2),
        }
    }

    /// So many packets, ns each.
    pub(crate) fn pass(&mut self) -> f64 {
        let begin = cpu();
        let mut packets = 0;
        if self.order.len() == 1 {
            let mut frames = Frames::default();
            let tuple = Tuple::shared(0);
            while packets < self.packets {
                frames.len = 0;
                for _ in 0..BATCH_MAX {
                    let kind = self.kind(self.passes);
                    self.maker.push(&mut frames, kind, &tuple);
                    self.passes = self.passes.wrapping_add(1);
                }
                packets += BATCH_MAX;
                assert_eq!(self.engine.batch(&mut frames, now()), BATCH_MAX);
            }
        } else {
            while packets < self.packets {
                let kind = self.kind(self.passes);
                self.once(|_| kind);
                self.passes = self.passes.wrapping_add(1);
                packets += self.order.len();
            }
        }
        (cpu() - begin).as_nanos() as f64 / packets as f64
    }

    /// The same packets, only made and parsed.
    pub(crate) fn limit(&mut self) -> f64 {
        let begin = cpu();
        let mut frames = Frames::default();
        let mut packets = 0;
        while packets < self.packets {
            for flows in self.order.chunks(BATCH_MAX) {
                frames.len = 0;
                for at in 0..BATCH_MAX.min(flows.len() * BATCH_MAX) {
                    let flow = flows.get(at).copied().unwrap_or(0);
                    let kind = self.kind(at as u32);
                    self.maker.push(&mut frames, kind, &Tuple::shared(flow as usize));
                }
                for frame in &frames.bytes {
                    let _ = black_box(wire::parse(black_box(frame)));
                }
                black_box(now());
                packets += frames.len;
            }
        }
        (cpu() - begin).as_nanos() as f64 / packets as f64
    }
}

/// New connections a second: so many SYNs, each of another flow.
pub(crate) fn new_connections(rules: &str, tuple: fn(usize) -> Tuple, flows: u32) -> impl FnMut() -> f64 {
    let mut engine = Engine::new(rules, flows as usize);
    let maker = Maker::default();
    let mut order: Vec<u32> = (0..flows).collect();
    Random::new(9).shuffle(&mut order);
    let mut time = Instant::from_ns(1_000_000_000_000);
    move || {
        let mut frames = Frames::default();
        let begin = cpu();
        let mut passed = 0;
        for flows in order.chunks(BATCH_MAX) {
            frames.len = 0;
            for flow in flows {
                maker.push(&mut frames, Kind::Syn, &tuple(*flow as usize));
            }
            passed += engine.batch(&mut frames, time);
        }
        let rate = passed as f64 / (cpu() - begin).as_secs_f64();
        let wanted = order.len();
        assert!(passed * 1000 >= wanted * 995, "{passed} of {wanted} connections");
        engine.clear(&mut time);
        rate
    }
}

/// SYNs a second that are parsed and answered by a cookie: the answer is written as a frame. These are the engine's
/// parts, without its tables, which a SYN that is answered so never sees.
fn cookies(packets: u32) -> impl FnMut() -> f64 {
    let cookies = Cookies::new(SipHash13::new([3, 5]));
    let maker = Maker::default();
    move || {
        let (mut frames, mut answer) = (Frames::default(), [0; FRAME_BYTES]);
        let begin = cpu();
        let mut answered = 0;
        let mut n = 0;
        while answered < packets {
            frames.len = 0;
            for _ in 0..BATCH_MAX {
                maker.push(&mut frames, Kind::Syn, &Tuple::shared(n));
                n += 1;
            }
            let at = now();
            for frame in &frames.bytes {
                answered += u32::from(answer_syn(&cookies, frame, at, &mut answer).is_some());
                black_box(&answer);
            }
        }
        f64::from(answered) / (cpu() - begin).as_secs_f64()
    }
}

/// Answers a SYN: the SYN-ACK's first number is the cookie.
fn answer_syn(cookies: &Cookies, frame: &[u8], at: Instant, answer: &mut [u8]) -> Option<()> {
    let layout = wire::parse(frame).ok()?;
    let key = FlowKey::from_layout(&layout, frame)?;
    let segment = frame.get(layout.transport.into()..layout.end.into())?;
    let syn = tcp::View::new(segment).ok()?;
    if syn.flags() != Flags::SYN {
        return None;
    }
    let mut offer = Offer {
        size: 536,
        ..Offer::default()
    };
    for option in syn.options() {
        match option.ok()? {
            TcpOption::MaximumSegmentSize(size) => offer.size = size,
            TcpOption::SackPermitted => offer.sack = true,
            _ => {}
        }
    }
    let header = tcp::Repr {
        source_port: key.destination_port,
        destination_port: key.source_port,
        sequence: cookies.make(&key, syn.sequence(), &offer, at),
        acknowledgement: syn.sequence().wrapping_add(1),
        flags: Flags::SYN | Flags::ACK,
        window: 65_535,
        urgent: 0,
        options: &[TcpOption::MaximumSegmentSize(1460)],
    };
    let (source, destination) = layout.ipv4_addresses(frame)?;
    let addresses = Addresses::V4 {
        source: destination,
        destination: source,
    };
    let bytes = header.bytes();
    answer.get_mut(..14)?.copy_from_slice(frame.get(..14)?);
    let network = ipv4::Repr::new(destination, source, ip_protocol::TCP, bytes as u16);
    network.emit(answer.get_mut(14..)?).ok()?;
    header.emit(answer.get_mut(34..34 + bytes)?, &addresses).ok()?;
    Some(())
}

/// How rules look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Each names a source and a port, as an administrator's list does.
    List,
    /// Prefixes, ranges, sets, flags and negations, of several fields in turn.
    Mixture,
}

/// Makes a ruleset of `count` rules that accept, and a policy that drops.
fn ruleset(look: Look, count: usize) -> Ruleset {
    let mut text = String::from(
        "table ip t { chain forward { type filter hook forward priority 0; policy drop\n",
    );
    for n in 0..count {
        let (high, low) = (n / 250, n % 250);
        let rule = match (look, n % 6) {
            (Look::List, _) => format!("ip saddr 172.16.{high}.{low} tcp dport {}", 2000 + n),
            (_, 0) => format!("ip saddr 172.{}.{low}.0/24 tcp dport {n}-{}", 16 + high, n + 20),
            (_, 1) => format!("ip daddr 172.20.{high}.{low} ip saddr != 10.9.0.0/16"),
            (_, 2) => format!("tcp dport {{ {n}, {}, {} }} ip saddr 172.21.{low}.0/24", n + 3000, n + 6000),
            (_, 3) => format!("tcp flags & (syn | ack) == syn ip daddr 172.22.{high}.{low}-172.22.{high}.255"),
            (_, 4) => format!("udp sport {} ip daddr 172.23.{low}.0/24 udp length > {}", 1 + n, 100 + n),
            (_, _) => format!("meta mark {n} ip protocol tcp tcp sport < {}", 60_000 + low),
        };
        text.push_str(&rule);
        text.push_str(" accept\n");
    }
    text.push_str("}\n}\n");
    load(&text, lang::Options::default()).expect("rules of the program")
}

/// Nanoseconds a packet that no rule knows, or that some do: one in eight is made to fit a rule of the list.
pub(crate) fn rules_cost(look: Look, count: usize, packets: u32) -> impl FnMut() -> f64 {
    let rules = ruleset(look, count);
    let mut worker = rules.worker(0).expect("the first worker");
    let chain = rules.all_base_chains()[0].chain;
    let maker = Maker::default();
    let mut batches = Vec::new();
    let mut random = Random::new(3);
    for _ in 0..64 {
        let mut frames = Frames::default();
        for at in 0..BATCH_MAX {
            let mut tuple = Tuple::shared(random.below(1 << 20));
            if at % 8 == 0 {
                let n = random.below(10) as u32;
                tuple.inner.0 = 0xac10_0000 + n;
                tuple.server.1 = 2000 + n as u16;
            }
            maker.push(&mut frames, Kind::Syn, &tuple);
        }
        batches.push(frames);
    }
    move || {
        let begin = cpu();
        let mut judged = 0;
        while judged < packets as usize {
            for frames in &mut batches {
                judge_all(&rules, &mut worker, chain, frames);
                judged += BATCH_MAX;
            }
        }
        (cpu() - begin).as_nanos() as f64 / judged as f64
    }
}

fn judge_all(
    rules: &Ruleset,
    worker: &mut RuleWorker,
    chain: filter::rules::program::ChainId,
    frames: &mut Frames,
) {
    let mut effects = Effects::default();
    for frame in &mut frames.bytes {
        let Ok(layout) = wire::parse(frame) else {
            continue;
        };
        let mut packet = Packet::new(frame, layout, Hook::Forward);
        packet.iif = InterfaceId(1);
        packet.ct.state = CtState::NEW;
        effects.clear();
        black_box(rules.evaluate(chain, &mut packet, &mut effects, worker, &mut NoTrace));
    }
}

/// A row of the table: its name, what it says, its unit.
type Row = (&'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    ("udp_1", "established UDP, 1 flow", "ns/packet"),
    ("udp_1_limit", "  only made and parsed", "ns/packet"),
    ("udp_many", "established UDP, many flows", "ns/packet"),
    ("udp_many_limit", "  only made and parsed", "ns/packet"),
    ("tcp_1", "established TCP, 1 flow", "ns/packet"),
    ("tcp_1_limit", "  only made and parsed", "ns/packet"),
    ("tcp_many", "established TCP, many flows", "ns/packet"),
    ("tcp_many_limit", "  only made and parsed", "ns/packet"),
    ("new", "new TCP connections, 32,768 endpoints inside", "1/s"),
    ("new_mapped", "new TCP connections, each with a mapping of its own", "1/s"),
    ("cookies", "SYNs answered by a cookie", "1/s"),
    ("list_10", "10 rules, sources and ports", "ns/packet"),
    ("list_1000", "1,000 rules, sources and ports", "ns/packet"),
    ("mixture_10", "10 rules, prefixes, ranges, sets, flags", "ns/packet"),
    ("mixture_1000", "1,000 rules, prefixes, ranges, sets, flags", "ns/packet"),
];

fn subject(name: &str, arguments: &Arguments) -> Box<dyn FnMut() -> f64> {
    let (flows, packets) = (arguments.flows, arguments.packets);
    let established = |flows, udp| {
        let mut subject = Established::new(flows, packets, udp);
        Box::new(move || subject.pass()) as Box<dyn FnMut() -> f64>
    };
    let limit = |flows, udp| {
        let mut subject = Established::new(flows, packets, udp);
        Box::new(move || subject.limit()) as Box<dyn FnMut() -> f64>
    };
    match name {
        "udp_1" => established(1, true),
        "udp_1_limit" => limit(1, true),
        "udp_many" => established(flows, true),
        "udp_many_limit" => limit(flows, true),
        "tcp_1" => established(1, false),
        "tcp_1_limit" => limit(1, false),
        "tcp_many" => established(flows, false),
        "tcp_many_limit" => limit(flows, false),
        "new" => Box::new(new_connections(MASQUERADE, Tuple::shared, flows)),
        "new_mapped" => Box::new(new_connections(POOL, Tuple::own, flows)),
        "cookies" => Box::new(cookies(packets)),
        "list_10" => Box::new(rules_cost(Look::List, 10, packets)),
        "list_1000" => Box::new(rules_cost(Look::List, 1000, packets)),
        "mixture_10" => Box::new(rules_cost(Look::Mixture, 10, packets)),
        _ => Box::new(rules_cost(Look::Mixture, 1000, packets)),
    }
}

/// Bytes of a connection: its two records, and all of the table (index words, free slots) at its planned load.
fn bytes_a_session() -> (f64, f64) {
    let records = 2.0 * size_of::<<Session4 as SlotKey>::Record>() as f64;
    let planned = 1 << 20;
    let buckets = SlotMemory::<Session4>::buckets_for(2 * planned);
    let slots = SlotMemory::<Session4>::records_in(buckets);
    let words = size_of::<u64>() * slots;
    let all = records / 2.0 * slots as f64 + words as f64;
    (records, all / planned as f64)
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let wanted: Vec<&Row> = ROWS
        .iter()
        .filter(|row| arguments.only.as_deref().is_none_or(|only| only == row.0))
        .collect();
    let mut subjects: Vec<_> = wanted.iter().map(|row| subject(row.0, &arguments)).collect();
    let mut turns: Vec<&mut dyn FnMut() -> f64> =
        subjects.iter_mut().map(|subject| subject.as_mut() as _).collect();
    let samples = rounds(arguments.options.rounds, &mut turns);
    let figure = |name: &str| {
        let at = wanted.iter().position(|row| row.0 == name);
        at.and_then(|at| samples.get(at)).map_or(f64::NAN, |samples| median(samples))
    };

    let mut report = Report::new("fw_mem");
    let title = format!(
        "The firewall in memory, one core, 64 B, state and NAT; many flows are {}",
        arguments.flows
    );
    let mut table = Table::new(&title, &["what", "unit", "median", "lowest", "highest"]);
    for (row, samples) in wanted.iter().zip(&samples) {
        let low = samples.iter().copied().fold(f64::MAX, f64::min);
        let high = samples.iter().copied().fold(0.0, f64::max);
        let cells = vec![json!(row.1), json!(row.2), json!(median(samples)), json!(low), json!(high)];
        table.rows.push(cells);
    }
    report.table(table);
    let net = |name: &str, limit: &str| figure(name) - figure(limit);
    report.figure("udp_1_ns", net("udp_1", "udp_1_limit"));
    report.figure("tcp_1_ns", net("tcp_1", "tcp_1_limit"));
    report.figure("udp_many_ns", net("udp_many", "udp_many_limit"));
    report.figure("tcp_many_ns", net("tcp_many", "tcp_many_limit"));
    report.figure("new_connections_per_s", figure("new"));
    report.figure("new_mapped_connections_per_s", figure("new_mapped"));
    report.figure("cookies_per_s", figure("cookies"));
    report.figure("list_1000_to_10", figure("list_1000") / figure("list_10"));
    report.figure("mixture_1000_to_10", figure("mixture_1000") / figure("mixture_10"));
    let (records, all) = bytes_a_session();
    report.figure("session_record_bytes", records);
    report.figure("session_table_bytes", all);
    report.note("established: making and parsing the packets, measured beside, is taken off");
    report.note(
        "bytes of a session: both records with keys, links, state and translation; the second figure has the index \
         words and the free slots of a table at its planned load (0.625) as well, not the mapping, which the \
         connections of an endpoint share (48 bytes at the same load)",
    );
    report.print(&arguments.options);
}
