//! Times of one operation at a time and of batches, for caches of a given size that are measured in turns.

use std::hint::black_box;

use io::cpu::thread_time;

use super::names::Sites;
use super::workload::{Block, Catalogue, Clients, Flat, Request, Zipf, push_packet};
use super::{Access, BATCH, Cache};
use crate::median;
use crate::sessions::Random;

/// Lookups of a window: one figure is the median over windows.
const LOOKUPS: usize = 8192;
/// Insertions of a window: few, so that their packets lie in the processor's caches as received ones do.
const INSERTS: usize = 256;
/// Clients that fetch files side by side.
pub const CLIENTS: usize = 1024;

/// What is measured, in ns an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An exact lookup that hits.
    Exact,
    /// The same in batches of 32.
    ExactBatch,
    /// An exact lookup of any block, all alike: no file is fetched in order.
    Uniform,
    /// The same in batches of 32.
    UniformBatch,
    /// An exact lookup that misses.
    Miss,
    /// A lookup of any block of a file.
    Prefix,
    /// The CS-8 mix: 99 % exact, 1 % by prefix.
    Mix,
    /// A Data packet in a full cache: evict, copy 1 KB, insert.
    Insert,
    /// The same in batches of 32.
    InsertBatch,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Exact,
        Self::ExactBatch,
        Self::Uniform,
        Self::UniformBatch,
        Self::Miss,
        Self::Prefix,
        Self::Mix,
        Self::Insert,
        Self::InsertBatch,
    ];

    /// Name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::ExactBatch => "exact_batch",
            Self::Uniform => "uniform",
            Self::UniformBatch => "uniform_batch",
            Self::Miss => "miss",
            Self::Prefix => "prefix",
            Self::Mix => "mix",
            Self::Insert => "insert",
            Self::InsertBatch => "insert_batch",
        }
    }
}

/// Blocks in the order in which clients that fetch whole files bring them.
#[derive(Debug)]
pub struct Arrivals<'a> {
    catalogue: &'a Catalogue,
    clients: Vec<(usize, u32)>,
    next_file: usize,
    turn: usize,
}

impl<'a> Arrivals<'a> {
    /// Starts at the catalogue's first file.
    pub fn new(catalogue: &'a Catalogue) -> Self {
        Self {
            catalogue,
            clients: vec![(usize::MAX, 0); CLIENTS],
            next_file: 0,
            turn: 0,
        }
    }

    /// The next block, or none when all files have been fetched.
    pub fn next_block(&mut self) -> Option<(usize, u32)> {
        for _ in 0..=self.clients.len() {
            let client = &mut self.clients[self.turn % CLIENTS];
            self.turn += 1;
            if client.0 == usize::MAX || client.1 >= self.catalogue.blocks_of(client.0) {
                if self.next_file >= self.catalogue.files() {
                    client.0 = usize::MAX;
                    continue;
                }
                *client = (self.next_file, 0);
                self.next_file += 1;
            }
            client.1 += 1;
            return Some((client.0, client.1 - 1));
        }
        None
    }

    /// Appends the packets of the next `count` blocks.
    pub fn packets(&mut self, count: usize, out: &mut Flat) {
        let mut name = Vec::new();
        for _ in 0..count {
            let Some((file, segment)) = self.next_block() else {
                return;
            };
            name.clear();
            self.catalogue.push_block(&mut name, file, segment);
            out.push(|bytes| push_packet(bytes, &name, (file as u64) << 32 | u64::from(segment)));
        }
    }
}

/// Inserts all blocks of a catalogue, in the order of their arrival.
pub fn fill(access: &mut dyn Access, catalogue: &Catalogue, mut progress: impl FnMut(u64)) {
    let mut arrivals = Arrivals::new(catalogue);
    let mut packets = Flat::default();
    loop {
        packets.clear();
        arrivals.packets(256, &mut packets);
        if packets.is_empty() {
            return;
        }
        let blocks: Vec<Block<'_>> = packets.iter().map(Block::of).collect();
        access.insert_batch(&blocks);
        progress(blocks.len() as u64);
    }
}

/// What is stored, asked for, and arrives.
#[derive(Debug)]
pub struct Scene {
    /// The blocks that the caches hold at first.
    pub stored: Catalogue,
    /// Blocks that are never stored (misses).
    absent: Catalogue,
    zipf: Zipf,
    zipf_absent: Zipf,
}

impl Scene {
    /// Makes the scene for caches of `blocks` blocks.
    pub fn new(sites: &Sites, sizes: &[u32], blocks: u64) -> Self {
        let mut random = Random::new(3);
        let stored = Catalogue::new(sites, sizes, blocks, 0);
        let absent = Catalogue::new(sites, sizes, blocks.min(200_000), 500);
        Self {
            zipf: Zipf::new(stored.files(), 0.8, &mut random),
            zipf_absent: Zipf::new(absent.files(), 0.8, &mut random),
            stored,
            absent,
        }
    }
}

impl Scene {
    /// The next request of clients for what is stored.
    pub fn request(&self, clients: &mut Clients, random: &mut Random) -> Request {
        clients.next(&self.stored, &self.zipf, random)
    }
}

/// One cache under measurement.
pub struct Subject<'a> {
    /// The cache.
    pub cache: &'a dyn Cache,
    /// Samples, by kind.
    pub samples: Vec<(Kind, Vec<f64>)>,
    /// Blocks that were missed although stored.
    pub lost: u64,
    clients: Clients,
    random: Random,
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("cache", &self.cache.name())
            .finish_non_exhaustive()
    }
}

impl<'a> Subject<'a> {
    /// Starts with no samples.
    pub fn new(cache: &'a dyn Cache) -> Self {
        Self {
            cache,
            samples: Kind::ALL.iter().map(|kind| (*kind, Vec::new())).collect(),
            lost: 0,
            clients: Clients::new(CLIENTS, 0),
            random: Random::new(5),
        }
    }

    /// Median of a kind's samples.
    pub fn median(&self, kind: Kind) -> f64 {
        let samples = self.samples.iter().find(|(at, _)| *at == kind);
        samples.map_or(f64::NAN, |(_, samples)| median(samples))
    }

    fn add(&mut self, kind: Kind, ns: f64) {
        if let Some((_, samples)) = self.samples.iter_mut().find(|(at, _)| *at == kind) {
            samples.push(ns);
        }
    }

    /// The names of a window of lookups, and which of them are prefixes.
    fn requests(&mut self, scene: &Scene, kind: Kind) -> (Flat, Vec<bool>) {
        let mut names = Flat::default();
        let mut prefixes = Vec::with_capacity(LOOKUPS);
        let (catalogue, zipf) = match kind {
            Kind::Miss => (&scene.absent, &scene.zipf_absent),
            _ => (&scene.stored, &scene.zipf),
        };
        for _ in 0..LOOKUPS {
            let mut request = match kind {
                Kind::Prefix => Request::Prefix(zipf.draw(&mut self.random)),
                Kind::Uniform | Kind::UniformBatch => {
                    let block = self.random.below(catalogue.blocks() as usize) as u64;
                    let (file, segment) = catalogue.locate(block);
                    Request::Block(file, segment)
                }
                _ => self.clients.next(catalogue, zipf, &mut self.random),
            };
            if kind == Kind::Mix && self.random.below(100) == 0 {
                request = Request::Prefix(zipf.draw(&mut self.random));
            }
            names.push(|out| match request {
                Request::Block(file, segment) => catalogue.push_block(out, file, segment),
                Request::Prefix(file) => catalogue.push_file(out, file),
            });
            prefixes.push(matches!(request, Request::Prefix(_)));
        }
        if kind == Kind::Miss {
            // The clients' files belong to one catalogue.
            self.clients = Clients::new(CLIENTS, 0);
        }
        (names, prefixes)
    }

    /// Measures one window of lookups.
    pub fn lookups(&mut self, scene: &Scene, access: &mut dyn Access, kind: Kind) {
        if kind == Kind::Miss {
            self.clients = Clients::new(CLIENTS, 0);
        }
        let (names, prefixes) = self.requests(scene, kind);
        let names: Vec<&[u8]> = names.iter().collect();
        let mut found = 0;
        let begin = thread_time();
        match kind {
            Kind::ExactBatch | Kind::UniformBatch => {
                for names in names.chunks(BATCH) {
                    found += access.get_batch(names);
                }
            }
            Kind::Exact | Kind::Uniform | Kind::Miss => {
                for name in &names {
                    found += usize::from(black_box(access.get(name)).is_some());
                }
            }
            _ => {
                for (name, is_prefix) in names.iter().zip(&prefixes) {
                    let word = if *is_prefix {
                        access.get_prefix(name)
                    } else {
                        access.get(name)
                    };
                    found += usize::from(black_box(word).is_some());
                }
            }
        }
        let ns = (thread_time() - begin).as_nanos() as f64 / LOOKUPS as f64;
        if kind != Kind::Miss {
            self.lost += (LOOKUPS - found) as u64;
        }
        self.add(kind, ns);
    }

    /// Measures one window of insertions into the full cache.
    pub fn inserts(&mut self, arrivals: &mut Arrivals<'_>, access: &mut dyn Access, kind: Kind) {
        let mut ns = Vec::new();
        for _ in 0..16 {
            let mut packets = Flat::default();
            arrivals.packets(INSERTS, &mut packets);
            let blocks: Vec<Block<'_>> = packets.iter().map(Block::of).collect();
            let begin = thread_time();
            if kind == Kind::InsertBatch {
                for blocks in blocks.chunks(BATCH) {
                    access.insert_batch(blocks);
                }
            } else {
                for block in &blocks {
                    access.insert(block);
                }
            }
            ns.push((thread_time() - begin).as_nanos() as f64 / INSERTS as f64);
        }
        self.add(kind, median(&ns));
    }
}

/// Measures caches that hold the scene's blocks, in turns: lookups first, then insertions.
pub fn measure(subjects: &mut [Subject<'_>], scene: &Scene, arriving: &Catalogue, rounds: usize) {
    for kind in [
        Kind::Exact,
        Kind::ExactBatch,
        Kind::Uniform,
        Kind::UniformBatch,
        Kind::Miss,
        Kind::Prefix,
        Kind::Mix,
    ] {
        for _ in 0..rounds {
            for subject in subjects.iter_mut() {
                if matches!(kind, Kind::Prefix | Kind::Mix) && !subject.cache.finds_prefixes() {
                    continue;
                }
                let mut access = subject.cache.access();
                subject.lookups(scene, &mut *access, kind);
            }
        }
    }
    let mut arrivals: Vec<Arrivals<'_>> =
        subjects.iter().map(|_| Arrivals::new(arriving)).collect();
    for _ in 0..rounds {
        for (subject, arrivals) in subjects.iter_mut().zip(&mut arrivals) {
            for kind in [Kind::Insert, Kind::InsertBatch] {
                let mut access = subject.cache.access();
                subject.inserts(arrivals, &mut *access, kind);
            }
        }
    }
}
