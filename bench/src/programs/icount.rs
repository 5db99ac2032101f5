//! Does one hot function `count` times, so that valgrind can count its instructions:
//! `tidegate-bench icount SUBJECT COUNT`. `bench/tests/icount.rs` compares with the ceilings of `bench/icount.toml`.

use std::hint::black_box;
use std::process::ExitCode;

use anyhow::Result;
use bench::node::{BRIDGE, HOST_MACS, MemNode, ROUTER, ROUTER_MACS, Sizes};
use graph::Mode;
use lab::traffic::Profile;
use wire::Instant;

const BURST: usize = 64;
const SIZES: Sizes = Sizes {
    node_frames: 512,
    host_frames: 512,
    depth: 256,
};

/// Returns a UDP frame from the left to the right host, by the router or directly.
fn frame(size_bytes: u16, routed: bool) -> Result<Vec<u8>> {
    let to = if routed { ROUTER_MACS[0] } else { HOST_MACS[1] };
    let ips = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
    Ok(Profile::new(size_bytes, (HOST_MACS[0], to), ips, 1, 1)?.example())
}

/// Lets a worker forward `count` bursts of 64, the hosts' sending and receiving included.
fn forward(configuration: &str, routed: bool, count: u64) -> Result<()> {
    let mut node = MemNode::new(configuration, SIZES, Mode::Poll)?;
    let frame = frame(64, routed)?;
    let mut received = 0;
    for step in 0..count {
        node.left.send(&frame, BURST);
        node.worker.step(Instant::from_ns(step * 10_000));
        received += node.right.receive(|_| ());
        node.left.receive(|_| ());
    }
    anyhow::ensure!(
        received as u64 >= count.saturating_sub(2) * BURST as u64,
        "only {received} frames came through"
    );
    Ok(())
}

fn subject(name: &str, count: u64) -> Result<()> {
    match name {
        "nothing" => {}
        "parse_udp_64" => {
            let frame = frame(64, true)?;
            for _ in 0..count {
                let _ = black_box(wire::parse::parse(black_box(&frame)));
            }
        }
        "checksum_1460" => {
            let bytes = vec![0x5a; 1460];
            for _ in 0..count {
                black_box(wire::checksum::checksum(black_box(&bytes)));
            }
        }
        "flow_hash" => {
            let frame = frame(64, true)?;
            let layout = wire::parse::parse(&frame).map_err(|d| anyhow::anyhow!("{d:?}"))?;
            let secret = wire::flow::FlowSecret::new([7; 64]);
            for _ in 0..count {
                if let Some(key) = wire::FlowKey::from_layout(black_box(&layout), &frame) {
                    black_box(wire::flow::flow_hash(&key, &secret));
                }
            }
        }
        "bridge_burst" => forward(BRIDGE, false, count)?,
        "route_burst" => forward(ROUTER, true, count)?,
        other => anyhow::bail!("there is no subject {other}"),
    }
    Ok(())
}

pub(crate) fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(2);
    let (Some(name), Some(Ok(count))) = (
        arguments.next(),
        arguments.next().map(|count| count.parse::<u64>()),
    ) else {
        eprintln!("usage: tidegate-bench icount SUBJECT COUNT");
        return ExitCode::from(2);
    };
    match subject(&name, count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("icount: {error:#}");
            ExitCode::FAILURE
        }
    }
}
