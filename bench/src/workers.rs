//! Small packet graphs and workers of one thread, for the programs that measure the graph.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::neighbour::table::Key;
use dataplane::plan::InterfaceId;
use dataplane::topology::{self, Shared};
use dataplane::{Forwarding, Plan, PortFacts};
use graph::{
    Context, EdgeId, Graph, GraphBuilder, IdleConfig, Mode, Next, Node, Outlets, TxFull, Worker,
    WorkerHandle, WorkerPort, WorkerSetup,
};
use io::port::{self, DriverSpec, PortSpec};
use io::{BATCH_MAX, Batch, HugePages, Pool, PortId, Queue, WorkerId, mem, null};
use wire::MacAddr;

use crate::memory::FRAME_BYTES;

/// Swaps the MAC addresses and sends by the other of two ports.
#[derive(Debug)]
pub struct Reflect;

impl Node for Reflect {
    fn name(&self) -> &str {
        "reflect"
    }

    fn edges(&self) -> &[&'static str] {
        &["tx"]
    }

    fn process(&mut self, _cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        for frame in batch.iter_mut() {
            frame.tx_port = PortId(1 - frame.rx_port.0);
            if let Some((destination, rest)) = frame.data_mut().split_first_chunk_mut::<6>()
                && let Some(source) = rest.first_chunk_mut::<6>()
            {
                core::mem::swap(destination, source);
            }
        }
        out.push_rest(EdgeId(0), batch);
    }
}

/// Makes the graph of [`Reflect`] for two ports.
pub fn reflect_graph() -> Graph {
    let mut builder = GraphBuilder::new();
    let node = builder.add(Box::new(Reflect));
    let tx = builder.tx();
    builder.connect(node, "tx", tx).expect("the edge exists");
    for port in 0..2 {
        builder.input(PortId(port), node).expect("one input a port");
    }
    builder.build(2).expect("a complete graph")
}

/// Makes a worker of these queues that always polls.
pub fn worker(pool: Pool, queues: Vec<Box<dyn Queue>>, graph: Graph) -> (Worker, WorkerHandle) {
    let queues = queues.into_iter().map(Some).collect();
    worker_in_mode(pool, queues, graph, Mode::Poll)
}

/// Makes a worker of these queues, some of which may be missing, that waits as `mode` says.
pub fn worker_in_mode(
    pool: Pool,
    queues: Vec<Option<Box<dyn Queue>>>,
    graph: Graph,
    mode: Mode,
) -> (Worker, WorkerHandle) {
    let ports = queues
        .into_iter()
        .map(|queue| WorkerPort {
            queue,
            tx_via: WorkerId(0),
            spread: false,
            mode,
            tx_full: TxFull::default(),
        })
        .collect();
    let mut meshes = graph::mesh(1, 1).expect("a doorbell");
    let setup = WorkerSetup {
        pool,
        ports,
        graph,
        mesh: meshes.remove(0),
        spread: None,
        idle: IdleConfig::default(),
        cpu_time: (mode != Mode::Poll).then_some(io::cpu::thread_time),
    };
    Worker::new(setup, io::cpu::now())
}

fn open(pool: &Pool, id: u16, driver: DriverSpec) -> Box<dyn Queue> {
    let spec = PortSpec::new(PortId(id), "bench", driver);
    port::open(&spec, pool.region(), 1)
        .map(|mut port| port.queues.remove(0))
        .expect("an in-memory port opens")
}

/// Makes a worker around which `frames` frames circle: what it sends by one port it receives by the other.
pub fn circle(frames: u32) -> (Worker, WorkerHandle) {
    let mut pool = Pool::new(frames, 2048, HugePages::Auto).expect("memory for frames");
    let (left, right) = mem::link(mem::LinkSpec {
        depth: frames as usize,
        ..mem::LinkSpec::default()
    });
    let mut queues = vec![
        open(&pool, 0, DriverSpec::Mem(left)),
        open(&pool, 1, DriverSpec::Mem(right)),
    ];
    let mut batch = Batch::new();
    let mut side = 0;
    while pool.alloc_batch(BATCH_MAX, &mut batch) > 0 {
        for frame in batch.iter_mut() {
            frame.set_len(FRAME_BYTES);
        }
        queues[side].tx(&mut pool, &mut batch);
        side = 1 - side;
    }
    worker(pool, queues, reflect_graph())
}

/// The configuration of the router that [`router`] measures.
const ROUTER: &str = r#"
[[port]]
name = "a"
driver = "mem"
addresses = ["10.1.0.1/24", "fd00:1::1/64"]

[[port]]
name = "b"
driver = "mem"
addresses = ["10.2.0.1/24", "fd00:2::1/64"]

[[route]]
to = "10.16.0.0/12"
via = "10.1.0.2"

[[route]]
to = "10.32.0.0/12"
via = "10.2.0.2"

[[route]]
to = "10.253.0.0/16"
via = "10.1.0.2"

[[route]]
to = "fd10::/16"
via = "fd00:1::2"

[[route]]
to = "fd20::/16"
via = "fd00:2::2"
"#;

/// The IP version that the packets of [`router`] have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4, frames of 60 bytes.
    V4,
    /// IPv6, frames of 62 bytes: the shortest with a UDP header.
    V6,
}

/// Makes a worker that routes between two ports from which `flows` flows come without end; each frame
/// is a fresh copy of its template.
pub fn router(frames: u32, flows: u16, version: IpVersion) -> (Worker, WorkerHandle) {
    let macs = [0, 1].map(|id| MacAddr([2, 0, 0, 0, 0, id]));
    let pool = Pool::new(frames, 2048, HugePages::Auto).expect("memory for frames");
    let queues = (0..2)
        .map(|id| {
            let mac = macs[usize::from(id)];
            // From port a to the networks behind b, and the other way.
            let templates = (0..flows)
                .map(|flow| match version {
                    IpVersion::V4 => {
                        let net = if id == 0 { 32 } else { 16 };
                        ip4_frame(mac, [10, net, (flow >> 8) as u8, flow as u8]).to_vec()
                    }
                    IpVersion::V6 => {
                        let net = if id == 0 { 0xfd20 } else { 0xfd10 };
                        ip6_frame(mac, Ipv6Addr::new(net, flow, 0, 0, 0, 0, 0, 1))
                    }
                })
                .collect();
            let spec = null::NullSpec {
                templates,
                copy: true,
                burst: BATCH_MAX,
            };
            open(&pool, id, DriverSpec::Null(spec))
        })
        .collect();
    let graph = router_graph(macs, pool.capacity());
    worker(pool, queues, graph)
}

/// Makes the graph of a router with two ports of these MAC addresses, for a worker that has `frames` frames:
/// 10.16.0.0/12 and 10.253.0.0/16 are behind the first, 10.32.0.0/12 is behind the second.
pub fn router_graph(macs: [MacAddr; 2], frames: usize) -> Graph {
    let config = control::config::parse("router", ROUTER).expect("a correct configuration");
    let plan = Plan::new(&config).expect("a correct plan");
    let facts = macs.map(|mac| PortFacts { mac, mtu: 1500 });
    let forwarding = Arc::new(Forwarding::new(&plan, &facts, 1));
    let shared = Shared::new(&plan, forwarding, 7).expect("a router without a firewall");
    for id in 0..2 {
        let next_hop = MacAddr([2, 1, 1, 1, 1, id as u8]);
        let address = Ipv6Addr::new(0xfd00, 1 + id, 0, 0, 0, 0, 0, 2).octets();
        for key in [
            Key::v4(InterfaceId(id), [10, 1 + id as u8, 0, 2]),
            Key::new(InterfaceId(id), address),
        ] {
            shared
                .neighbours
                .set_permanent(&key, next_hop, io::cpu::now());
        }
    }
    topology::graph(&shared, WorkerId(0), 1, frames).expect("a graph")
}

/// Makes two workers of one node that route as [`router`], each with its own queue of each port.
pub fn routers(frames: u32, flows: u16) -> Vec<(Worker, WorkerHandle)> {
    let config = control::config::parse("router", ROUTER).expect("a correct configuration");
    let plan = Plan::new(&config).expect("a correct plan");
    let macs = [0, 1].map(|id| MacAddr([2, 0, 0, 0, 0, id]));
    let facts = macs.map(|mac| PortFacts { mac, mtu: 1500 });
    let forwarding = Arc::new(Forwarding::new(&plan, &facts, 1));
    let shared = Shared::new(&plan, forwarding, 7).expect("a router without a firewall");
    for id in 0..2 {
        let key = Key::v4(InterfaceId(id), [10, 1 + id as u8, 0, 2]);
        let next_hop = MacAddr([2, 1, 1, 1, 1, id as u8]);
        shared
            .neighbours
            .set_permanent(&key, next_hop, io::cpu::now());
    }
    let pools = Pool::split(frames, 2, 2048, HugePages::Never).expect("memory for frames");
    let meshes = graph::mesh(2, 64).expect("doorbells");
    pools
        .into_iter()
        .zip(meshes)
        .map(|(pool, mesh)| {
            let ports = [0, 1].map(|id| {
                let templates = (0..flows).map(|flow| {
                    let net = if id == 0 { 32 } else { 16 };
                    let to = [10, net, (flow >> 8) as u8, flow as u8];
                    ip4_frame(macs[usize::from(id)], to).to_vec()
                });
                let spec = null::NullSpec {
                    templates: templates.collect(),
                    copy: true,
                    burst: BATCH_MAX,
                };
                WorkerPort {
                    queue: Some(open(&pool, id, DriverSpec::Null(spec))),
                    tx_via: mesh.id(),
                    spread: false,
                    mode: Mode::Poll,
                    tx_full: TxFull::default(),
                }
            });
            let frames = pool.capacity();
            let setup = WorkerSetup {
                ports: ports.into(),
                graph: topology::graph(&shared, mesh.id(), 2, frames).expect("a graph"),
                pool,
                mesh,
                spread: None,
                idle: IdleConfig::default(),
                cpu_time: None,
            };
            Worker::new(setup, io::cpu::now())
        })
        .collect()
}

/// Writes a UDP packet of 60 bytes to `mac`.
pub fn ip4_frame(mac: MacAddr, to: [u8; 4]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&mac.0);
    frame[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut frame[14..];
    ip[..12].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    ip[12..16].copy_from_slice(&[192, 0, 2, 1]);
    ip[16..20].copy_from_slice(&to);
    ip[20..26].copy_from_slice(&[0x30, 0x39, 0x30, 0x3a, 0, 26]);
    let sum: u32 = ip[..20]
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Writes a UDP packet without payload to `mac`. Nobody on the way looks at its checksum.
fn ip6_frame(mac: MacAddr, to: Ipv6Addr) -> Vec<u8> {
    let mut frame = vec![0; 62];
    frame[..6].copy_from_slice(&mac.0);
    frame[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let ip = &mut frame[14..];
    ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 8, 17, 64]);
    let from = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    ip[8..24].copy_from_slice(&from.octets());
    ip[24..40].copy_from_slice(&to.octets());
    ip[40..48].copy_from_slice(&[0x30, 0x39, 0x30, 0x3a, 0, 8, 0xff, 0xff]);
    frame
}

/// Steps a worker for `window`; returns millions of packets sent a second.
///
/// # Panics
/// If the worker wants to sleep: it has to poll.
pub fn step_for(worker: &mut Worker, window: Duration) -> f64 {
    let counters = Arc::clone(worker.counters());
    let before = counters.tx_pkts.get();
    let start = Instant::now();
    while start.elapsed() < window {
        for _ in 0..64 {
            let next = worker.step(io::cpu::now());
            assert_eq!(next, Next::Again, "a polling worker goes on");
        }
    }
    (counters.tx_pkts.get() - before) as f64 / start.elapsed().as_secs_f64() / 1e6
}
