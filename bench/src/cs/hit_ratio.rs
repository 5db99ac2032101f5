//! Hit ratios of our policies, by simulation on the store itself: requests that miss fetch the block.

use content_store::{Config, ContentStore, NameHash, NewData, Pages, Policy, Query};
use wire::Instant;
use wire::ndn::NameRef;

use super::latency::CLIENTS;
use super::names::{Sites, push, push_segment};
use super::workload::{Catalogue, Clients, Request, Zipf};
use crate::sessions::Random;

/// How popularity behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The ranking stays.
    Still,
    /// The ranking moves on by 0.1 % of the files, twenty times for each catalogue's worth of requests.
    Moving,
    /// Of ten requests three are for names that nobody asks for again (not counted in the ratio).
    Scans,
    /// Files of 1,000 blocks.
    LongFiles,
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Still, Self::Moving, Self::Scans, Self::LongFiles];

    /// Name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Still => "still",
            Self::Moving => "moving",
            Self::Scans => "scans",
            Self::LongFiles => "long_files",
        }
    }
}

/// Percent of the requests in the second half that a store of `percent` of a catalogue of `blocks` blocks answers.
pub fn measure(
    sites: &Sites,
    policy: Policy,
    variant: Variant,
    percent: usize,
    blocks: u64,
) -> f64 {
    let sizes: &[u32] = if variant == Variant::LongFiles {
        &[1000]
    } else {
        &[10]
    };
    let catalogue = Catalogue::new(sites, sizes, blocks, 0);
    let mut random = Random::new(17);
    let mut zipf = Zipf::new(catalogue.files(), 0.8, &mut random);
    let clients = if variant == Variant::LongFiles {
        CLIENTS / 16
    } else {
        64
    };
    let mut clients = Clients::new(clients, 1);
    let capacity = (blocks as usize * percent / 100).max(1);
    let mut config = Config::for_packets(capacity, 1, NameHash::Fast([1, 2]));
    config.policy = policy;
    config.pages = Pages::Normal;
    config.ticket_run = 1;
    config.bytes = (capacity * 512).max(16 << 20);
    config.prefixes = capacity + 1024;
    let store = ContentStore::new(&config).expect("sizes in range");
    let mut worker = store.join().expect("first worker");
    let now = Instant::from_ns(1);
    let requests = blocks * 4;
    let moves_every = blocks / 20;
    let (mut asked, mut answered) = (0_u64, 0_u64);
    let mut name = Vec::new();
    let mut packet = Vec::new();
    for at in 0..requests {
        if variant == Variant::Moving && at % moves_every == 0 {
            zipf.shift((catalogue.files() / 1000).max(1));
        }
        name.clear();
        let is_scan = variant == Variant::Scans && random.below(10) < 3;
        let mut is_prefix = false;
        if is_scan {
            push(&mut name, 8, b"once");
            push(&mut name, 8, &at.to_be_bytes());
            push_segment(&mut name, 0);
        } else {
            match clients.next(&catalogue, &zipf, &mut random) {
                Request::Block(file, segment) => catalogue.push_block(&mut name, file, segment),
                Request::Prefix(file) => {
                    catalogue.push_file(&mut name, file);
                    is_prefix = true;
                }
            }
        }
        let view = NameRef::new(&name).unwrap_or_default();
        let query = Query {
            can_be_prefix: is_prefix,
            ..Query::exact(view)
        };
        let is_hit = worker.lookup(&query, now).is_some();
        if at >= requests / 2 && !is_scan {
            asked += 1;
            answered += u64::from(is_hit);
        }
        if !is_hit {
            if is_prefix {
                push_segment(&mut name, 0);
            }
            packet.clear();
            packet.extend_from_slice(&[6, (name.len() + 2) as u8, 7, name.len() as u8]);
            packet.extend_from_slice(&name);
            let view = NameRef::new(&packet[4..]).unwrap_or_default();
            let _ = worker.insert(&NewData::new(&packet, view, 0), now);
        }
    }
    100.0 * answered as f64 / asked as f64
}
