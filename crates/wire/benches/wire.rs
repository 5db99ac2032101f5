//! Parse, checksum and hash beside etherparse, smoltcp and SipHash, on the same bytes in one run.
//!
//! `cargo bench -p tidegate-wire`; times are for a batch of 64 frames, "elem/s" is packets a second.

use std::hash::Hasher;
use std::hint::black_box;
use std::net::Ipv4Addr;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use etherparse::SlicedPacket;
use smoltcp::wire::{EthernetFrame, Ipv4Packet, UdpPacket};
use wire::{
    Addresses, FlowKey, FlowSecret, Layout, MacAddr, Toeplitz, checksum, ether_type, ethernet,
    flow_hash, ip_protocol, ipv4, ipv6, parse, parse_l2, toeplitz, udp,
};

const BATCH: usize = 64;

/// Makes frames of 64 flows: 60 bytes for IPv4, 80 for IPv6.
fn udp_frames(version: u8) -> Vec<Vec<u8>> {
    (0..BATCH as u8)
        .map(|i| {
            let v4 = |last| Ipv4Addr::new(192, 0, 2, last);
            let v6 = |last| v4(last).to_ipv6_mapped();
            let ip_bytes = if version == 4 {
                ipv4::HEADER_BYTES
            } else {
                ipv6::HEADER_BYTES
            };
            let mut frame = vec![0; if version == 4 { 60 } else { 80 }];
            let ether_type = if version == 4 {
                ether_type::IPV4
            } else {
                ether_type::IPV6
            };
            let (destination, source) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
            ethernet::Repr {
                destination,
                source,
                ether_type,
            }
            .emit(&mut frame)
            .unwrap();
            let packet = &mut frame[ethernet::HEADER_BYTES..];
            let payload_bytes = (packet.len() - ip_bytes) as u16;
            let addresses = if version == 4 {
                let (source, destination) = (v4(i), v4(200));
                ipv4::Repr::new(source, destination, ip_protocol::UDP, payload_bytes)
                    .emit(packet)
                    .unwrap();
                Addresses::V4 {
                    source,
                    destination,
                }
            } else {
                let (source, destination) = (v6(i), v6(200));
                ipv6::Repr::new(source, destination, ip_protocol::UDP, payload_bytes)
                    .emit(packet)
                    .unwrap();
                Addresses::V6 {
                    source,
                    destination,
                }
            };
            let repr = udp::Repr {
                source_port: 1000 + u16::from(i),
                destination_port: 53,
            };
            repr.emit(&mut packet[ip_bytes..], &addresses).unwrap();
            frame
        })
        .collect()
}

fn smoltcp_parse(frame: &[u8]) -> Option<(u16, u16)> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    let ip = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    if ip.version() != 4 || !ip.verify_checksum() {
        return None;
    }
    let udp = UdpPacket::new_checked(ip.payload()).ok()?;
    Some((udp.src_port(), udp.dst_port()))
}

fn parsing(c: &mut Criterion) {
    for (name, version) in [("parse ipv4 udp", 4), ("parse ipv6 udp", 6)] {
        let frames = udp_frames(version);
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements(BATCH as u64));
        let mut layouts = [Layout::default(); BATCH];
        group.bench_function("wire", |b| {
            b.iter(|| {
                for (frame, layout) in frames.iter().zip(&mut layouts) {
                    *layout = parse(black_box(frame)).unwrap_or_default();
                }
                black_box(&mut layouts);
            });
        });
        group.bench_function("wire, L2 only", |b| {
            b.iter(|| {
                for (frame, layout) in frames.iter().zip(&mut layouts) {
                    *layout = parse_l2(black_box(frame)).unwrap_or_default();
                }
                black_box(&mut layouts);
            });
        });
        group.bench_function("etherparse (no checksum)", |b| {
            b.iter(|| {
                for frame in &frames {
                    let _ = black_box(SlicedPacket::from_ethernet(black_box(frame)));
                }
            });
        });
        if version == 4 {
            group.bench_function("smoltcp", |b| {
                b.iter(|| {
                    for frame in &frames {
                        black_box(smoltcp_parse(black_box(frame)));
                    }
                });
            });
        }
        group.finish();
    }
}

/// What forwarding asks of `wire`: parse, TTL, MAC addresses.
fn forwarding(c: &mut Criterion) {
    let mut frames = udp_frames(4);
    let mut group = c.benchmark_group("forward ipv4 udp, without lookup");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("wire", |b| {
        b.iter(|| {
            for frame in &mut frames {
                let Ok(layout) = parse(black_box(frame)) else {
                    continue;
                };
                ethernet::rewrite(frame, MacAddr([2, 0, 0, 0, 0, 4]), MacAddr::default());
                let network = usize::from(layout.network);
                let header = frame.get_mut(network..).and_then(<[u8]>::first_chunk_mut);
                if header.is_some_and(ipv4::decrement_ttl) {
                    continue;
                }
                if let Some(ttl) = frame.get_mut(22) {
                    // The frame goes round: give it back its hops.
                    *ttl = 255;
                    let header: &[u8; 20] = frame[14..34].first_chunk().unwrap();
                    let sum = checksum::ipv4_header_20(header).to_be_bytes();
                    frame[24..26].copy_from_slice(&sum);
                }
            }
        });
    });
    group.finish();
}

fn checksums(c: &mut Criterion) {
    for length in [20, 64, 576, 1460] {
        let bytes: Vec<u8> = (0..length + 1).map(|i| (i * 7) as u8).collect();
        let mut group = c.benchmark_group(format!("checksum {length} bytes"));
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function("wire", |b| {
            b.iter(|| checksum::checksum(black_box(&bytes[..length])));
        });
        group.bench_function("wire, unaligned", |b| {
            b.iter(|| checksum::checksum(black_box(&bytes[1..])));
        });
        group.bench_function("etherparse", |b| {
            b.iter(|| {
                etherparse::checksum::Sum16BitWords::new()
                    .add_slice(black_box(&bytes[..length]))
                    .ones_complement()
            });
        });
        group.finish();
    }
    c.bench_function("checksum update of an address", |b| {
        b.iter(|| checksum::update_u32(black_box(0x1234), black_box(1), black_box(2)));
    });
}

fn hashing(c: &mut Criterion) {
    let secret = FlowSecret::new(core::array::from_fn(|i| (i * 131) as u8));
    for (name, version) in [("hash ipv4", 4), ("hash ipv6", 6)] {
        let frames = udp_frames(version);
        let parsed: Vec<_> = frames
            .iter()
            .map(|frame| (parse(frame).unwrap(), frame))
            .collect();
        let keys: Vec<_> = parsed
            .iter()
            .map(|(layout, frame)| FlowKey::from_layout(layout, frame))
            .collect();
        let keys: Vec<_> = keys.into_iter().flatten().collect();
        let toeplitz = Toeplitz::new(&toeplitz::SYMMETRIC_KEY);
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function("key and flow_hash", |b| {
            b.iter(|| {
                for (layout, frame) in &parsed {
                    let key = FlowKey::from_layout(black_box(layout), black_box(frame));
                    black_box(key.map(|key| flow_hash(&key, &secret)));
                }
            });
        });
        group.bench_function("flow_hash", |b| {
            b.iter(|| {
                for key in &keys {
                    black_box(flow_hash(black_box(key), &secret));
                }
            });
        });
        group.bench_function("toeplitz", |b| {
            b.iter(|| {
                for key in &keys {
                    black_box(toeplitz.hash_flow(black_box(key)));
                }
            });
        });
        group.bench_function("siphash 1-3 of the ordered key", |b| {
            b.iter(|| {
                for key in &keys {
                    black_box(siphash(black_box(key)));
                }
            });
        });
        group.finish();
    }
}

fn siphash(key: &FlowKey) -> u64 {
    let (a, b) = (
        (key.source, key.source_port),
        (key.destination, key.destination_port),
    );
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&low.0);
    bytes[16..32].copy_from_slice(&high.0);
    bytes[32..34].copy_from_slice(&low.1.to_be_bytes());
    bytes[34..36].copy_from_slice(&high.1.to_be_bytes());
    bytes[36] = key.protocol;
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(1, 2);
    hasher.write(&bytes);
    hasher.finish()
}

fn configured() -> Criterion {
    Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(30)
}

criterion_group! {
    name = benches;
    config = configured();
    targets = parsing, forwarding, checksums, hashing
}
criterion_main!(benches);
