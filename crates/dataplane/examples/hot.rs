//! Cost of the two hot nodes, batch by batch, in memory.
use std::sync::Arc;
use std::time::Instant as Clock;

use dataplane::neighbour::table::Key;
use dataplane::nodes::eth_input::EthInput;
use dataplane::nodes::ip4::Ip4Forward;
use dataplane::plan::InterfaceId;
use dataplane::topology::Shared;
use dataplane::{Forwarding, Plan, PortFacts};
use graph::{Context, EdgeId, Node, Outlets};
use io::{Batch, HugePages, Pool, PortId, WorkerId};
use wire::{Instant, MacAddr};

const CONFIG: &str = r#"
[[port]]
name = "a"
addresses = ["10.0.0.1/24"]
[[port]]
name = "b"
addresses = ["10.0.1.1/24"]
[[route]]
to = "0.0.0.0/0"
via = "10.0.1.2"
"#;

fn main() {
    let rounds: u32 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(2000);
    let config: control::Config = toml::from_str(CONFIG).unwrap();
    let plan = Plan::new(&config).unwrap();
    let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
    let facts = [
        PortFacts {
            mac: mac(1),
            mtu: 1500,
        },
        PortFacts {
            mac: mac(2),
            mtu: 1500,
        },
    ];
    let forwarding = Arc::new(Forwarding::new(&plan, &facts, 1));
    let shared = Shared::new(&plan, Arc::clone(&forwarding), 0x1234_5678_9abc_def1);
    shared.neighbours.set_permanent(
        &Key::v4(InterfaceId(1), [10, 0, 1, 2]),
        mac(9),
        Instant::ZERO,
    );
    let mut pool = Pool::new(4096, 2048, HugePages::Auto).unwrap();
    let mut input = EthInput::new(Arc::clone(&forwarding));
    let mut ip4 = Ip4Forward::new(Arc::clone(&forwarding), Arc::clone(&shared.neighbours));
    let mut out_a = Outlets::standalone(&input);
    let mut out_b = Outlets::standalone(&ip4);
    let mut frames = Vec::new();
    let mut seed = 1_u32;
    while let Some(mut frame) = pool.alloc() {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let d = seed.to_be_bytes();
        let mut p = [0_u8; 60];
        p[..6].copy_from_slice(&mac(1).0);
        p[6..12].copy_from_slice(&mac(7).0);
        p[12..14].copy_from_slice(&[8, 0]);
        p[14..34].copy_from_slice(&[
            0x45,
            0,
            0,
            46,
            0,
            0,
            0x40,
            0,
            64,
            17,
            0,
            0,
            192,
            0,
            2,
            1,
            20 + d[0] % 100,
            d[1],
            d[2],
            d[3],
        ]);
        let sum = wire::checksum::checksum(&p[14..34]);
        p[24..26].copy_from_slice(&sum.to_be_bytes());
        p[38..40].copy_from_slice(&26_u16.to_be_bytes());
        frame.fill(&p);
        frame.rx_port = PortId(0);
        frames.push(frame);
    }
    let mut batch = Batch::new();
    let mut total = 0_u64;
    let start = Clock::now();
    for _ in 0..rounds {
        let mut done = Vec::with_capacity(frames.len());
        let mut queue = frames.drain(..);
        while let Some(frame) = queue.next() {
            let _ = batch.push(frame);
            if !batch.is_full() && queue.len() > 0 {
                continue;
            }
            total += batch.len() as u64;
            let mut cx = Context {
                now: Instant::ZERO,
                worker: WorkerId(0),
                pool: &mut pool,
            };
            input.process(&mut cx, &mut batch, &mut out_a);
            for f in out_a.take(EdgeId(0)) {
                let _ = batch.push(f);
            }
            ip4.process(&mut cx, &mut batch, &mut out_b);
            done.extend(out_b.take(EdgeId(0)));
        }
        drop(queue);
        for frame in &mut done {
            // Back to what it was, for the next round.
            let data = frame.data_mut();
            data[22] = 64;
            data[24..26].copy_from_slice(&[0, 0]);
            let sum = wire::checksum::checksum(&data[14..34]);
            data[24..26].copy_from_slice(&sum.to_be_bytes());
            data[..6].copy_from_slice(&mac(1).0);
        }
        frames = done;
    }
    let ns = start.elapsed().as_nanos() as f64 / total as f64;
    println!(
        "{total} packets, {ns:.1} ns a packet with the harness, {} left",
        frames.len()
    );
    for frame in frames {
        pool.free(frame);
    }
}
