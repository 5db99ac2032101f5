//! Forwarding between two hosts over links with faults, over fixed and fresh seeds.

use std::collections::HashMap;
use std::time::Duration;

use graph::Mode;
use sim::{Faults, HostId, Plan, World, patch, replayable};

/// Seeds of each kind.
const SEEDS: u64 = 20;

/// A UDP frame whose payload starts with `number`; `flow` is its source port.
fn frame(flow: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x4e, 0x88]);
    frame[26..34].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 2]);
    frame[34..36].copy_from_slice(&flow.to_be_bytes());
    frame[36..42].copy_from_slice(&[0, 53, 0, 26, 0, 0]);
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[42], frame[43], frame[44], frame[45]])
}

struct Scene {
    world: World,
    left: HostId,
    right: HostId,
}

fn scene(seed: u64, faults: Faults, plan: Plan) -> Scene {
    let mut world = World::new(seed);
    let (left, left_port) = world.link(faults);
    let (right, right_port) = world.link(faults);
    world.worker(vec![left_port, right_port], patch, plan);
    Scene { world, left, right }
}

/// Sends `packets` at random times, about 100,000 a second; returns what arrived, by number.
fn exchange(scene: &mut Scene, packets: u32) -> HashMap<u32, u32> {
    let mut seen = HashMap::new();
    for number in 0..packets {
        let flow = scene.world.random().below(64) as u16;
        scene.world.send(scene.left, frame(flow, number));
        let gap_ns = scene.world.random().below(20_000);
        scene.world.run_for(Duration::from_nanos(gap_ns));
    }
    scene.world.run_for(Duration::from_millis(50));
    for bytes in scene.world.received(scene.right) {
        *seen.entry(number(&bytes)).or_insert(0) += 1;
    }
    seen
}

#[test]
fn without_faults_every_packet_arrives_once_in_every_mode() {
    for mode in [Mode::Hybrid, Mode::Interrupt, Mode::Paper, Mode::Poll] {
        replayable(
            "forward",
            "without_faults_every_packet_arrives_once_in_every_mode",
            SEEDS / 4,
            |seed| {
                let plan = Plan {
                    mode,
                    ..Plan::default()
                };
                let mut scene = scene(seed, Faults::default(), plan);
                let seen = exchange(&mut scene, 500);
                assert_eq!(seen.len(), 500, "{mode:?}");
                assert!(seen.values().all(|&times| times == 1));
                scene.world.finish();
            },
        );
    }
}

#[test]
fn with_faults_and_stalls_every_frame_is_accounted_for_and_the_link_heals() {
    replayable(
        "forward",
        "with_faults_and_stalls_every_frame_is_accounted_for_and_the_link_heals",
        SEEDS,
        |seed| {
            let faults = Faults {
                drop_ppm: 50_000,
                duplicate_ppm: 50_000,
                corrupt_ppm: 20_000,
                reorder_ppm: 50_000,
                reorder_by: Duration::from_micros(300),
                delay: Duration::from_micros(20),
                jitter: Duration::from_micros(100),
                bandwidth_bps: 100_000_000,
                ..Faults::default()
            };
            let mut scene = scene(seed, faults, Plan::default());
            scene.world.stall(20_000);
            exchange(&mut scene, 500);
            scene.world.set_faults(Faults::default());
            scene.world.stall(0);
            let seen = exchange(&mut scene, 50);
            assert_eq!(
                seen.len(),
                50,
                "after the faults are gone all packets arrive"
            );
            scene.world.finish();
        },
    );
}

#[test]
fn workers_that_share_flows_in_software_lose_no_frame() {
    replayable(
        "forward",
        "workers_that_share_flows_in_software_lose_no_frame",
        SEEDS,
        |seed| {
            let plan = Plan {
                workers: 3,
                ..Plan::default()
            };
            let mut scene = scene(seed, Faults::default(), plan);
            let seen = exchange(&mut scene, 500);
            assert_eq!(seen.len(), 500);
            let moved: u64 = (0..3)
                .map(|worker| {
                    let counters = scene.world.handle(worker).counters();
                    counters.handoff_out_pkts.get()
                })
                .sum();
            assert!(moved > 0, "flows were handed over");
            scene.world.finish();
        },
    );
}

#[test]
fn a_full_handoff_ring_is_counted_and_nothing_is_lost_to_the_books() {
    replayable(
        "forward",
        "a_full_handoff_ring_is_counted_and_nothing_is_lost_to_the_books",
        SEEDS,
        |seed| {
            let plan = Plan {
                workers: 2,
                handoff_depth: 2,
                frames: 64,
                ..Plan::default()
            };
            let mut scene = scene(seed, Faults::default(), plan);
            scene.world.stall(100_000);
            for number in 0..2_000 {
                scene
                    .world
                    .send(scene.left, frame(number as u16 % 64, number));
                if number % 32 == 0 {
                    scene.world.run_for(Duration::from_micros(20));
                }
            }
            scene.world.run_for(Duration::from_millis(20));
            let full: u64 = (0..2)
                .map(|worker| {
                    let counters = scene.world.handle(worker).counters();
                    counters.handoff_full_pkts.get()
                })
                .sum();
            assert!(full > 0, "a ring was full");
            scene.world.stall(0);
            scene.world.finish();
        },
    );
}

#[test]
fn an_exhausted_pool_recovers_within_a_millisecond() {
    replayable(
        "forward",
        "an_exhausted_pool_recovers_within_a_millisecond",
        SEEDS,
        |seed| {
            // A link of the node that holds packets for 5 ms: 16 frames are soon all in it.
            let hold = |ports| {
                let faults = Faults {
                    delay: Duration::from_millis(5),
                    ..Faults::default()
                };
                let mut builder = graph::GraphBuilder::new();
                let ends = [io::PortId(0), io::PortId(1)];
                let node = graph::fault::FaultLink::new("hold", ends, faults, seed);
                let node = builder.add(Box::new(node));
                builder.connect(node, "out", builder.tx()).unwrap();
                builder.input(ends[0], node).unwrap();
                builder.input(ends[1], node).unwrap();
                builder.build(ports).unwrap()
            };
            let mut world = World::new(seed);
            let (left, left_port) = world.link(Faults::default());
            let (right, right_port) = world.link(Faults::default());
            let plan = Plan {
                frames: 16,
                ..Plan::default()
            };
            world.worker(vec![left_port, right_port], hold, plan);
            for number in 0..32 {
                world.send(left, frame(1, number));
            }
            world.run_for(Duration::from_millis(1));
            assert_eq!(world.handle(0).counters().frames_free_min.get(), 0);
            // The first 16 leave after 5 ms; the others must be received within 1 ms of that, and leave
            // 5 ms later.
            world.run_for(Duration::from_millis(10) + Duration::from_micros(200));
            assert_eq!(world.received(right).len(), 32);
            world.finish();
        },
    );
}
