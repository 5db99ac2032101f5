//! Exact lookups in batches with all that comes before: Interests as they are received are decoded first.

use std::hint::black_box;

use io::cpu::thread_time;
use wire::ndn::name::Name;
use wire::ndn::{Interest, InterestFields};

use super::latency::{CLIENTS, Scene};
use super::workload::{Clients, Flat, Request};
use super::{Access, BATCH};
use crate::median;
use crate::sessions::Random;

/// Interests of a window.
const INTERESTS: usize = 8192;

/// Interests of clients for blocks that are stored.
fn interests(scene: &Scene, clients: &mut Clients, random: &mut Random) -> Flat {
    let mut packets = Flat::default();
    let mut name = Vec::new();
    while packets.len() < INTERESTS {
        let Request::Block(file, segment) = scene.request(clients, random) else {
            continue;
        };
        name.clear();
        scene.stored.push_block(&mut name, file, segment);
        let name = Name::from_value(&name).unwrap_or_default();
        let fields = InterestFields {
            nonce: Some((random.next_u64() as u32).to_be_bytes()),
            ..InterestFields::new(name.as_ref())
        };
        let mut packet = [0; 512];
        let length = fields.encode(&mut packet).unwrap_or(0);
        packets.push(|out| out.extend_from_slice(&packet[..length]));
    }
    packets
}

/// Median time of an Interest, decoded and looked up in batches of 32, ns; and how many were not found.
pub fn measure(access: &mut dyn Access, scene: &Scene, rounds: usize) -> (f64, usize) {
    let mut clients = Clients::new(CLIENTS, 0);
    let mut random = Random::new(13);
    let mut samples = Vec::new();
    let mut lost = 0;
    // The first window warms up.
    for round in 0..=rounds.max(1) * 4 {
        let packets = interests(scene, &mut clients, &mut random);
        let packets: Vec<&[u8]> = packets.iter().collect();
        let mut found = 0;
        let begin = thread_time();
        for packets in packets.chunks(BATCH) {
            let mut names: [&[u8]; BATCH] = [&[]; BATCH];
            let mut count = 0;
            for packet in packets {
                if let Ok(interest) = Interest::parse(packet) {
                    names[count] = interest.name.value();
                    count += 1;
                }
            }
            found += black_box(access.get_batch(&names[..count]));
        }
        let ns = (thread_time() - begin).as_nanos() as f64 / packets.len() as f64;
        if round > 0 {
            samples.push(ns);
            lost += packets.len() - found;
        }
    }
    (median(&samples), lost)
}
