//! The NDN forwarder in memory: what an Interest that the content store answers, an Interest that is forwarded, and
//! the Data for it cost a worker; and two workers against one.
//!
//! Names are /T/S/F/N (a thousand T), the FIB has prefixes /T/S, the content store packets of some of them. Hits are
//! measured first, while nothing is evicted; then Data that fills what is left of the store, in memory that was never
//! used, whose pages the kernel makes and zeroes meanwhile; then, and this is what counts, Data into the full store,
//! each of which evicts another, as in a node that runs. Packets are encoded before the clock runs, and given to the
//! forwarder in bursts as sockets and ports do.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use arrayvec::ArrayVec;
use bench::sessions::Random;
use bench::{Options, Report, Table, median};
use clap::Parser;
use io::cpu::thread_time;
use ndn::shared_store::SharedStore;
use ndn::{
    ContentStore, FaceConfig, FaceId, Forwarder, ForwarderConfig, Handoff, Incoming, NameHasher,
    NextHop, Outgoing, Partition, Sink,
};
use serde_json::json;
use wire::ndn::lp::LpHeader;
use wire::ndn::name::Name;
use wire::ndn::{Data, DataFields, InterestFields, SignatureInfo, SignatureType, Signer};
use wire::{BufferTooShort, Instant};

/// Packets of one measurement: they stay in no cache between making and use.
const BATCH: usize = 1 << 14;
/// Packets of a burst, as many as one system call receives.
const BURST: usize = 64;
/// Top-level components of names.
const TOPS: usize = 1000;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Prefixes in the FIB.
    #[arg(long, default_value_t = 1_000_000)]
    prefixes: usize,
    /// Packets in the content store.
    #[arg(long, default_value_t = 4_000_000)]
    packets: usize,
    /// Bytes of content.
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
}

/// Writes 32 bytes where a signature belongs: nobody checks it here.
struct NoSigner;

impl Signer for NoSigner {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo::new(SignatureType::DigestSha256)
    }
    fn sign(&self, _: &[&[u8]], out: &mut [u8]) -> Result<usize, BufferTooShort> {
        out.get_mut(..32).ok_or(BufferTooShort)?.fill(0);
        Ok(32)
    }
}

/// Counts what leaves.
#[derive(Default)]
struct Count {
    pkts: u64,
    bytes: u64,
}

impl Sink for Count {
    fn send(&mut self, outgoing: Outgoing<'_>) {
        self.pkts += 1;
        self.bytes += outgoing.packet.len() as u64;
        black_box(outgoing.packet);
    }
    fn hand_off(&mut self, _: usize, _: Handoff<'_>) {
        self.pkts += 1;
    }
}

/// One worker and its faces.
struct Node {
    forwarder: Forwarder<SharedStore>,
    app: FaceId,
    peer: FaceId,
    now: Instant,
}

impl Node {
    fn new(
        worker: usize,
        partition: &Partition,
        store: &content_store::ContentStore,
        prefixes: usize,
    ) -> Self {
        let config = ForwarderConfig {
            fib_prefixes: prefixes,
            pit_entries: 2 * BATCH,
            ..ForwarderConfig::default()
        };
        let shared = SharedStore::join(store).expect("the store was made for so many");
        let now = Instant::from_ns(1_000_000_000);
        let mut forwarder = Forwarder::new(worker, partition.clone(), config, shared, now);
        let app = FaceConfig::local("fd://3", "unix:///nfd.sock");
        let peer = FaceConfig::network("udp4://192.0.2.1:6363", "udp4://192.0.2.2:6363");
        let app = forwarder.add_face(app, now).expect("there is room");
        let peer = forwarder.add_face(peer, now).expect("there is room");
        let mut sink = Count::default();
        for number in 0..prefixes {
            let hop = NextHop {
                face: peer,
                cost: 1,
            };
            forwarder
                .add_next_hop(prefix(number).as_ref(), hop, now, &mut sink)
                .expect("there is room");
        }
        Self {
            forwarder,
            app,
            peer,
            now,
        }
    }

    /// Gives packets to the forwarder in bursts; returns nanoseconds of this thread for each.
    fn run(&mut self, face: FaceId, packets: &[Vec<u8>]) -> f64 {
        let mut sink = Count::default();
        let mut reasons = Vec::new();
        let begin = thread_time();
        for burst in packets.chunks(BURST) {
            let mut incoming = ArrayVec::<_, BURST>::new();
            incoming.extend(burst.iter().map(|packet| Incoming {
                face,
                header: LpHeader::default(),
                packet,
            }));
            self.forwarder
                .input_burst(self.now, &incoming, &mut sink, |_, reason| {
                    reasons.push(reason.name());
                });
            self.forwarder.store_mut().quiescent();
        }
        let ns = (thread_time() - begin).as_nanos() as f64 / packets.len() as f64;
        assert!(reasons.is_empty(), "packets were dropped: {reasons:?}");
        assert!(sink.pkts == packets.len() as u64, "{} left", sink.pkts);
        ns
    }
}

fn prefix(number: usize) -> Name {
    Name::new()
        .with_generic(format!("t{}", number % TOPS).as_bytes())
        .with_generic(format!("site{number}").as_bytes())
}

fn name(prefixes: usize, number: usize) -> Name {
    prefix(number % prefixes)
        .with_generic(b"file")
        .with_segment((number / prefixes) as u64)
}

fn interest(name: &Name, random: &mut Random) -> Vec<u8> {
    let mut packet = vec![0; 300];
    let fields = InterestFields {
        nonce: Some((random.next_u64() as u32).to_be_bytes()),
        ..InterestFields::new(name.as_ref())
    };
    let length = fields
        .encode(&mut packet)
        .expect("the buffer is long enough");
    packet.truncate(length);
    packet
}

fn data(name: &Name, content: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; content.len() + 400];
    let fields = DataFields {
        freshness_ms: 3_600_000,
        ..DataFields::new(name.as_ref(), content)
    };
    let length = fields
        .encode(&NoSigner, &mut packet)
        .expect("the buffer is long enough");
    packet.truncate(length);
    packet
}

fn store(arguments: &Arguments) -> content_store::ContentStore {
    let hash = content_store::NameHash::Keyed([3, 4]);
    let packet_bytes = arguments.bytes + 512;
    // The first rounds of Data fill it.
    let packets = arguments.packets + arguments.options.rounds * BATCH;
    content_store::ContentStore::new(&content_store::Config {
        bytes: (packets * packet_bytes).clamp(64 << 20, 30 << 30),
        unsolicited: content_store::UnsolicitedPolicy::AdmitAll,
        ..content_store::Config::for_packets(packets, 3, hash)
    })
    .expect("the store fits the machine")
}

/// Names in the store that belong to a worker.
fn cached(
    arguments: &Arguments,
    partition: &Partition,
    worker: usize,
    random: &mut Random,
) -> Vec<Vec<u8>> {
    let mut out = Vec::with_capacity(BATCH);
    while out.len() < BATCH {
        let name = name(arguments.prefixes, random.below(arguments.packets));
        if partition.owner(partition.hasher().hash(name.as_ref())) == worker {
            out.push(interest(&name, random));
        }
    }
    out
}

/// Hits a second of `workers` threads together, by the CPU time of each.
fn hits_per_s(nodes: &mut [Node], packets: &[Vec<Vec<u8>>]) -> f64 {
    let barrier = Barrier::new(nodes.len());
    thread::scope(|scope| {
        let threads: Vec<_> = nodes
            .iter_mut()
            .zip(packets)
            .map(|(node, packets)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let app = node.app;
                    1e9 / node.run(app, packets)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker does not panic"))
            .sum()
    })
}

/// What the rounds of Interests that are forwarded, and of their Data, cost.
#[derive(Default)]
struct Exchanges {
    miss: Vec<f64>,
    data: Vec<f64>,
}

/// Sends Interests for packets that nobody has, then their Data. `fresh` numbers names that were never used.
fn exchanges(
    node: &mut Node,
    arguments: &Arguments,
    fresh: &mut usize,
    random: &mut Random,
) -> Exchanges {
    let content = vec![7; arguments.bytes];
    let mut out = Exchanges::default();
    for _ in 0..arguments.options.rounds {
        let names: Vec<Name> = (0..BATCH)
            .map(|at| name(arguments.prefixes, *fresh + at * 61))
            .collect();
        *fresh += BATCH * 61;
        let interests: Vec<_> = names.iter().map(|name| interest(name, random)).collect();
        let answers: Vec<_> = names.iter().map(|name| data(name, &content)).collect();
        out.miss.push(node.run(node.app, &interests));
        out.data.push(node.run(node.peer, &answers));
        node.now = node.now + std::time::Duration::from_millis(50);
        node.forwarder
            .handle_timeout(node.now, &mut Count::default());
    }
    out
}

/// Hits a second of two workers together, and of one (the mean of both), by the CPU time of each.
fn two_workers(
    arguments: &Arguments,
    shared: &content_store::ContentStore,
    random: &mut Random,
) -> (f64, f64) {
    let pair = Partition::new(2, NameHasher::new([1, 2]), 1 << 16);
    let mut nodes: Vec<Node> = (0..2)
        .map(|worker| Node::new(worker, &pair, shared, arguments.prefixes))
        .collect();
    let asked: Vec<_> = (0..2)
        .map(|worker| cached(arguments, &pair, worker, random))
        .collect();
    // Both sides of the ratio ask for packets that the worker asked for before.
    hits_per_s(&mut nodes, &asked);
    let (mut one, mut both) = (Vec::new(), Vec::new());
    for round in 0..arguments.options.rounds {
        both.push(hits_per_s(&mut nodes, &asked));
        let worker = round % 2;
        one.push(hits_per_s(
            &mut nodes[worker..=worker],
            &asked[worker..=worker],
        ));
    }
    (median(&both), median(&one))
}

pub(crate) fn main() {
    let arguments = bench::parse::<Arguments>();
    let mut random = Random::new(5);
    let mut report = Report::new("ndn_mem");
    let content = vec![7; arguments.bytes];
    let shared = store(&arguments);
    let alone = Partition::new(1, NameHasher::new([1, 2]), 1 << 16);
    let mut node = Node::new(0, &alone, &shared, arguments.prefixes);
    let fill = |node: &mut Node, numbers: &mut dyn Iterator<Item = usize>| {
        for (count, number) in numbers.enumerate() {
            let packet = data(&name(arguments.prefixes, number), &content);
            let parsed = Data::parse(&packet).expect("it was encoded here");
            node.forwarder.store_mut().insert(&parsed, node.now);
            if count % BURST == 0 {
                node.forwarder.store_mut().quiescent();
            }
        }
    };
    fill(&mut node, &mut (0..arguments.packets));
    let held = node.forwarder.store().info().packets;
    assert_eq!(
        held, arguments.packets as u64,
        "packets in the content store"
    );
    let mut hit = Vec::new();
    for _ in 0..arguments.options.rounds {
        let asked = cached(&arguments, &alone, 0, &mut random);
        let hits = node.forwarder.counters().store_hits;
        hit.push(node.run(node.app, &asked));
        assert_eq!(
            node.forwarder.counters().store_hits - hits,
            BATCH as u64,
            "hits"
        );
        node.now = node.now + std::time::Duration::from_millis(50);
    }
    let (both, one) = two_workers(&arguments, &shared, &mut random);

    // New names for each round: what was asked for is in the store then.
    let mut fresh = arguments.packets;
    let first = exchanges(&mut node, &arguments, &mut fresh, &mut random);
    let full = node.forwarder.store().info();
    fill(&mut node, &mut (0..4 * BATCH).map(|at| fresh + at * 61));
    fresh += 4 * BATCH * 61;
    let steady = exchanges(&mut node, &arguments, &mut fresh, &mut random);
    let after = node.forwarder.store().info();
    assert!(full.packets >= held, "{full:?}");
    assert!(after.packets <= after.capacity, "{after:?}");

    let (hit, miss, answer) = (median(&hit), median(&steady.miss), median(&steady.data));
    let first_touch = median(&first.data);
    report.figure("interest_hit_ns", hit);
    report.figure("interest_miss_ns", miss);
    report.figure("data_ns", answer);
    report.figure("data_first_touch_ns", first_touch);
    report.figure("two_workers_ratio", both / one);
    report.figure("prefixes", arguments.prefixes as f64);
    report.figure("packets", held as f64);
    let mut table = Table::new("A worker's cost, packets in memory", &["packet", "ns"]);
    for (what, ns) in [
        ("Interest, content store hit", hit),
        ("Interest, forwarded", miss),
        ("Data, satisfied and cached, another evicted", answer),
        (
            "Data, satisfied and cached in memory never used before",
            first_touch,
        ),
    ] {
        table.rows.push(vec![json!(what), json!(ns)]);
    }
    report.table(table);
    report.note("CPU time of the thread; packets are parsed, hashed and copied out");
    report.print(&arguments.options);
}
