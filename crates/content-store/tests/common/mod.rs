//! What the tests share: packets, names, and a naive store to hold ours against.

#![expect(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;

use content_store::{Config, ContentStore, NameHash, NewData, Pages, Policy, Query, Worker};
use wire::Instant;
use wire::ndn::NameRef;

/// A small random number generator (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Appends a component.
pub(crate) fn push(name: &mut Vec<u8>, component_type: u8, value: &[u8]) {
    name.push(component_type);
    if value.len() <= 252 {
        name.push(value.len() as u8);
    } else {
        name.push(253);
        name.extend((value.len() as u16).to_be_bytes());
    }
    name.extend(value);
}

/// A name of generic components.
pub(crate) fn name(components: &[&[u8]]) -> Vec<u8> {
    let mut name = Vec::new();
    for component in components {
        push(&mut name, 8, component);
    }
    name
}

pub(crate) fn view(name: &[u8]) -> NameRef<'_> {
    NameRef::new(name).expect("a valid name")
}

/// A Data packet of this name: header, name, and content of which `seed` decides every byte.
pub(crate) fn packet(name: &[u8], len: usize, seed: u64) -> (Vec<u8>, usize) {
    let mut packet = vec![6, 253, 0, 0, 7, 253];
    packet.extend((name.len() as u16).to_be_bytes());
    let at = packet.len();
    packet.extend(name);
    let mut random = Random(seed);
    packet.extend(seed.to_le_bytes());
    while packet.len() < len {
        packet.push(random.next() as u8);
    }
    (packet, at)
}

/// True if the packet's bytes are those that [`packet`] makes for its seed.
pub(crate) fn is_whole(name: &[u8], bytes: &[u8]) -> bool {
    let at = 8 + name.len();
    let seed = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    packet(name, bytes.len(), seed).0 == bytes
}

pub(crate) fn insert(worker: &mut Worker, name: &[u8], len: usize, seed: u64, ms: u64, now: u64) {
    let (packet, at) = packet(name, len, seed);
    let data = NewData::new(&packet, view(&packet[at..at + name.len()]), ms);
    worker
        .insert(&data, Instant::from_ns(now))
        .expect("inserted");
}

pub(crate) fn store(packets: usize, bytes: usize, workers: usize, policy: Policy) -> ContentStore {
    let mut config = Config::for_packets(packets, workers, NameHash::Keyed([7, 8]));
    config.bytes = bytes;
    config.policy = policy;
    config.pages = Pages::Normal;
    config.prefixes = packets;
    ContentStore::new(&config).expect("a valid configuration")
}

/// The naive store: an ordered map over TLV bytes, whose order is the canonical order of names.
#[derive(Default)]
pub(crate) struct Naive(pub(crate) BTreeMap<Vec<u8>, (Vec<u8>, u64)>);

impl Naive {
    pub(crate) fn find(&self, query: &Query<'_>, now: u64) -> Option<&Vec<u8>> {
        let name = query.name.value();
        let found = self
            .0
            .range(name.to_vec()..)
            .take_while(|(key, _)| key.starts_with(name));
        let mut found = found.filter(|(key, (_, fresh))| {
            (query.can_be_prefix || key.len() == name.len())
                && (!query.must_be_fresh || *fresh > now)
        });
        found.next().map(|(_, (packet, _))| packet)
    }
}
