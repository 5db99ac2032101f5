//! Operations a second of one or more threads on one cache (CS-9): each thread has a processor of its own.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::latency::{CLIENTS, Scene};
use super::workload::{Block, Clients, Flat, Request, push_packet};
use super::{Access, BATCH, Cache};
use crate::sessions::Random;

/// Requests that a thread goes through again and again.
const REQUESTS: usize = 1 << 16;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Exact lookups, one at a time.
    Lookups,
    /// Exact lookups in batches of 32.
    LookupBatches,
    /// Data packets in batches of 32: evict, copy, insert.
    Inserts,
    /// Half lookups (1 % by prefix), half Data packets, one at a time: CS-8 where every other request misses.
    Mix,
}

impl Load {
    /// All loads.
    pub const ALL: [Self; 4] = [Self::Lookups, Self::LookupBatches, Self::Inserts, Self::Mix];

    /// Name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookups => "lookups",
            Self::LookupBatches => "lookup_batches",
            Self::Inserts => "inserts",
            Self::Mix => "mix",
        }
    }
}

/// Data packets of names that are never twice the same, made in place: 1,000 blocks a file.
#[derive(Debug)]
struct Fresh {
    packets: Vec<Vec<u8>>,
    next: u32,
}

impl Fresh {
    fn new(thread: usize, run: u64) -> Self {
        let mut name = Vec::new();
        super::names::push(&mut name, 8, b"ndn");
        super::names::push(&mut name, 8, format!("fresh{thread}run{run:04}").as_bytes());
        super::names::push(&mut name, 8, b"........example.org");
        super::names::push(&mut name, 54, &[1]);
        super::names::push(&mut name, 50, &[0, 0]);
        let mut packet = Vec::new();
        push_packet(&mut packet, &name, 1);
        Self {
            packets: vec![packet; BATCH],
            next: 0,
        }
    }

    /// Gives the next `count` packets, at most a batch.
    fn take(&mut self, count: usize) -> Vec<Block<'_>> {
        for packet in self.packets.iter_mut().take(count) {
            let end = 6 + usize::from(packet[5]);
            let (file, segment) = (self.next / 1000, self.next % 1000);
            // The last component is 32 02 .. .., before it 36 01 01, before that the file of 19 characters.
            packet[end - 2..end].copy_from_slice(&(segment as u16).to_be_bytes());
            let digits = format!("{file:08}");
            packet[end - 26..end - 18].copy_from_slice(digits.as_bytes());
            self.next += 1;
        }
        self.packets
            .iter()
            .take(count)
            .map(|packet| Block::of(packet))
            .collect()
    }
}

/// Millions of operations a second of `threads` threads together, over `window`. `run` tells runs on one cache
/// apart, so that their Data packets are new.
pub fn measure(
    cache: &dyn Cache,
    scene: &Scene,
    load: Load,
    threads: usize,
    window: Duration,
    run: u64,
) -> f64 {
    let start = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let cpus = io::cpu::allowed().unwrap_or_default();
    let (count, elapsed) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, stop, cpus) = (&start, &stop, &cpus);
                scope.spawn(move || {
                    if let Some(cpu) = cpus.get(thread % cpus.len().max(1)) {
                        let _ = io::cpu::pin(*cpu);
                    }
                    let requests = requests(scene, thread as u64);
                    let mut fresh = Fresh::new(thread, run);
                    let mut access = cache.access();
                    start.wait();
                    one_thread(&mut *access, &requests, &mut fresh, load, stop)
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        thread::sleep(window);
        stop.store(true, Ordering::Relaxed);
        let counts = workers.into_iter().map(|worker| worker.join().unwrap_or(0));
        (counts.sum::<u64>(), begin.elapsed())
    });
    count as f64 / elapsed.as_secs_f64() / 1e6
}

/// The 99.9th percentile of a lookup's time in ns, over `window`, while `writers` threads insert as fast as they can.
pub fn tail(cache: &dyn Cache, scene: &Scene, writers: usize, window: Duration, run: u64) -> f64 {
    let start = Barrier::new(writers + 1);
    let stop = AtomicBool::new(false);
    let cpus = io::cpu::allowed().unwrap_or_default();
    let pin = |thread: usize| {
        if let Some(cpu) = cpus.get(thread % cpus.len().max(1)) {
            let _ = io::cpu::pin(*cpu);
        }
    };
    let mut samples = thread::scope(|scope| {
        for writer in 1..=writers {
            let (start, stop, pin) = (&start, &stop, &pin);
            scope.spawn(move || {
                pin(writer);
                let mut fresh = Fresh::new(writer, run);
                let mut access = cache.access();
                start.wait();
                while !stop.load(Ordering::Relaxed) {
                    access.insert_batch(&fresh.take(BATCH));
                }
            });
        }
        let reader = scope.spawn(|| {
            pin(0);
            let (names, _) = requests(scene, 77);
            let mut access = cache.access();
            let mut samples = Vec::with_capacity(1 << 22);
            start.wait();
            let end = Instant::now() + window;
            'all: loop {
                for name in names.iter() {
                    let begin = Instant::now();
                    std::hint::black_box(access.get(name));
                    samples.push(begin.elapsed().as_nanos() as u32);
                    if begin >= end || samples.len() == samples.capacity() {
                        break 'all;
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            samples
        });
        reader.join().unwrap_or_default()
    });
    let at = samples.len() * 999 / 1000;
    if samples.is_empty() {
        return f64::NAN;
    }
    f64::from(*samples.select_nth_unstable(at).1)
}

fn requests(scene: &Scene, seed: u64) -> (Flat, Vec<bool>) {
    let mut random = Random::new(100 + seed);
    let mut clients = Clients::new(CLIENTS, 1);
    let mut names = Flat::default();
    let mut prefixes = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let request = scene.request(&mut clients, &mut random);
        prefixes.push(matches!(request, Request::Prefix(_)));
        names.push(|out| match request {
            Request::Block(file, segment) => scene.stored.push_block(out, file, segment),
            Request::Prefix(file) => scene.stored.push_file(out, file),
        });
    }
    (names, prefixes)
}

fn one_thread(
    access: &mut dyn Access,
    (names, prefixes): &(Flat, Vec<bool>),
    fresh: &mut Fresh,
    load: Load,
    stop: &AtomicBool,
) -> u64 {
    let names: Vec<&[u8]> = names.iter().collect();
    let mut count = 0;
    let mut found = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        for (names, prefixes) in names.chunks(BATCH).zip(prefixes.chunks(BATCH)) {
            match load {
                Load::LookupBatches => found += access.get_batch(names),
                Load::Lookups => {
                    found += names
                        .iter()
                        .filter(|name| access.get(name).is_some())
                        .count();
                }
                Load::Inserts => access.insert_batch(&fresh.take(BATCH)),
                Load::Mix => {
                    let half = BATCH / 2;
                    for (name, is_prefix) in names.iter().zip(prefixes).take(half) {
                        let word = if *is_prefix {
                            access.get_prefix(name)
                        } else {
                            access.get(name)
                        };
                        found += usize::from(word.is_some());
                    }
                    for block in fresh.take(half) {
                        access.insert(&block);
                    }
                }
            }
            count += names.len() as u64;
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    std::hint::black_box(found);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_packets_are_valid_and_never_the_same() {
        let mut fresh = Fresh::new(1, 2);
        let mut names = std::collections::HashSet::new();
        for _ in 0..100 {
            for block in fresh.take(BATCH) {
                assert!(wire::ndn::NameRef::new(block.name).is_ok());
                assert!(wire::ndn::Tlv::read_exact(block.packet).is_ok());
                assert!(names.insert(block.name.to_vec()));
            }
        }
    }
}
