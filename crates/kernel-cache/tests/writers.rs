//! Readers against two inserters and an evictor that share one table through the core of the kernel's program, and
//! the program itself as one of the readers. Every Data packet has bytes that follow from its name and version, so
//! that each answer is compared byte for byte. In the end nothing may be left over: no lock, no entry without its
//! slot, no slot without its entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use kernel_cache::shared::Memory;
use kernel_cache::shared::answer::{Scratch, answer};
use kernel_cache::shared::hash;
use kernel_cache::shared::insert::{Entry, Inserted, insert, remove};
use kernel_cache::shared::layout::{Facts, NAME_AT, PortRow};
use kernel_cache::shared::lookup::find;
use kernel_cache::shared::reply::fold;
use kernel_cache::{Arrays, Buffer, Hook, KernelCache, Outcome, Sizes};
use wire::ndn::name::Name;
use wire::ndn::{DataFields, DigestSigner, InterestFields};

/// Test runs come in by loopback.
const LOOPBACK: u32 = 1;
/// Slots of the table: few, so that each is written all the time.
const SLOTS: u32 = 64;
/// Names that are written and asked for.
const NAMES: usize = 192;
/// Packets that a name may hold.
const VERSIONS: usize = 4;
const PORT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const XDP_TX: u32 = 3;

/// A packet as it is written.
struct Packet {
    entry: Entry,
    words: Vec<u64>,
    bytes: Vec<u8>,
}

/// A name: what asks for it, what may answer.
struct Subject {
    request: Vec<u8>,
    versions: Vec<Packet>,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        chunk
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    bytes.chunks(8).map(word).collect()
}

fn subject(number: usize, seed: u64) -> Subject {
    let name: Name = format!("/race/{number}").parse().expect("a name");
    let value = name.as_ref().value();
    let mut hash = hash::start(seed, value.len());
    for word in words(value) {
        hash = hash::step(hash, word);
    }
    let hash = hash::finish(hash);
    let mut versions = Vec::new();
    for version in 0..VERSIONS {
        let content = vec![(number * VERSIONS + version) as u8; 40 + 300 * version + number];
        let mut bytes = vec![0; 2048];
        let length = DataFields::new(name.as_ref(), &content)
            .encode(&DigestSigner, &mut bytes)
            .expect("it fits");
        bytes.truncate(length);
        let at = bytes
            .windows(value.len())
            .position(|window| window == value);
        let data_at = NAME_AT - at.unwrap_or(NAME_AT);
        let sum = words(&bytes)
            .iter()
            .map(|word| (word & 0xffff_ffff) + (word >> 32))
            .sum();
        versions.push(Packet {
            entry: Entry {
                hash,
                facts: Facts::data(value.len(), data_at, length, fold(sum) as u16),
                fresh_until_ns: u64::MAX,
            },
            words: words(&[&vec![0; data_at][..], &bytes].concat()),
            bytes,
        });
    }
    let mut interest = vec![0; 300];
    let length = InterestFields::new(name.as_ref())
        .encode(&mut interest)
        .expect("it fits");
    let mut request = [
        &PORT[..],
        &[2, 0, 0, 0, 0, 2, 0x86, 0x24],
        &interest[..length],
    ]
    .concat();
    request.resize(request.len().max(60), 0);
    Subject { request, versions }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides
    }
}

/// What writers did.
#[derive(Default)]
struct Counts {
    inserted: AtomicU64,
    given_up: AtomicU64,
    evicted: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Takes the packet of a slot out, whatever it is.
fn evict(memory: &Arrays, slot: u32) -> bool {
    memory
        .node(slot)
        .is_some_and(|node| remove(memory, node.hash.load(), slot))
}

/// Inserts into the slots of a ring (CS-5), until told to stop.
fn write(
    memory: &Arrays,
    subjects: &[Subject],
    ring: &AtomicU64,
    counts: &Counts,
    stop: &AtomicBool,
    seed: u64,
) {
    let mut dice = Dice(seed);
    while !stop.load(Ordering::Relaxed) {
        let packet = &subjects[dice.roll(NAMES)].versions[dice.roll(VERSIONS)];
        let slot = 1 + (ring.fetch_add(1, Ordering::Relaxed) % u64::from(SLOTS)) as u32;
        if evict(memory, slot) {
            count(&counts.evicted);
        }
        let fill = |slot| {
            if let Some(slab) = memory.slab(slot) {
                slab.words
                    .iter()
                    .zip(&packet.words)
                    .for_each(|(to, from)| to.store(*from));
            }
        };
        match insert(memory, slot, &packet.entry, fill) {
            Inserted::Added | Inserted::Replaced(_) => count(&counts.inserted),
            Inserted::Full | Inserted::Busy => count(&counts.given_up),
        }
    }
}

/// What readers saw.
#[derive(Default)]
struct Seen {
    hits: AtomicU64,
    raced: AtomicU64,
    wrong: AtomicU64,
}

/// True if a reply carries one of the packets of the name.
fn is_right(subject: &Subject, reply: &[u8]) -> bool {
    let payload = reply.get(14..).unwrap_or_default();
    subject
        .versions
        .iter()
        .any(|version| payload.starts_with(&version.bytes))
}

fn read(
    memory: &Arrays,
    row: &PortRow,
    subjects: &[Subject],
    lookups: u64,
    seen: &Seen,
    seed: u64,
) {
    let mut dice = Dice(seed);
    let mut scratch = Box::<Scratch>::default();
    for _ in 0..lookups {
        let subject = &subjects[dice.roll(NAMES)];
        let mut buffer = Buffer::new(&subject.request, 2100);
        match answer(memory, &mut buffer, LOOPBACK, row, &mut scratch) {
            Outcome::Exact if is_right(subject, buffer.bytes()) => count(&seen.hits),
            Outcome::Absent => {}
            Outcome::Raced | Outcome::Torn => count(&seen.raced),
            _ => count(&seen.wrong),
        }
    }
}

/// The same by the kernel's program, as long as the others take.
fn read_in_kernel(kernel: &mut KernelCache, subjects: &[Subject], seen: &Seen, stop: &AtomicBool) {
    let mut dice = Dice(77);
    while !stop.load(Ordering::Relaxed) {
        let subject = &subjects[dice.roll(NAMES)];
        match kernel.test_run(Hook::Native, &subject.request, 1) {
            Ok(run) if run.verdict == XDP_TX && is_right(subject, &run.packet) => count(&seen.hits),
            Ok(run) if run.verdict == XDP_TX => count(&seen.wrong),
            Ok(_) => count(&seen.raced),
            Err(_) => return,
        }
    }
}

/// Entries and slots that do not agree, and locks that are held, when nobody is at work.
fn left_over(memory: &Arrays) -> u64 {
    let mut wrong = 0;
    let mut entries = 0;
    for index in 0..=memory.config().bucket_mask {
        let Some(bucket) = memory.bucket(index) else {
            continue;
        };
        wrong += bucket.lock.load() & 1;
        for entry in bucket
            .entries
            .iter()
            .map(|entry| entry.load())
            .filter(|entry| *entry != 0)
        {
            entries += 1;
            let node = memory.node(entry as u32);
            let agrees = node.is_some_and(|node| {
                node.hash.load() >> 32 == entry >> 32 && Facts(node.facts.load()).is_data()
            });
            wrong += u64::from(!agrees);
        }
    }
    let mut taken = 0;
    for slot in 1..=SLOTS {
        let Some(node) = memory.node(slot) else {
            continue;
        };
        wrong += node.generation.load() & 1;
        if node.facts.load() != 0 {
            taken += 1;
            wrong += u64::from(find(memory, node.hash.load()) != slot);
        }
    }
    wrong + u64::abs_diff(entries, taken)
}

/// Lets so many lookups race the writers.
fn race(lookups: u64) {
    let sizes = Sizes {
        data: SLOTS,
        prefixes: 0,
    };
    let [a, b, c, d, e, f] = PORT;
    let row = PortRow {
        ifindex: LOOPBACK,
        frame_bytes_max: 2100,
        mac: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
    };
    // Without the right to load it, the program does not read.
    let (mut kernel, memory) = match KernelCache::load(sizes) {
        Ok((mut kernel, cache)) => {
            kernel.add_port(&row).expect("a row");
            (Some(kernel), cache.share())
        }
        Err(_) => (None, Arc::new(Arrays::private(sizes).expect("memory"))),
    };
    let memory = &*memory;
    let seed = memory.config().seed;
    let subjects: Vec<Subject> = (0..NAMES).map(|number| subject(number, seed)).collect();
    let (counts, ring, stop) = (Counts::default(), AtomicU64::new(0), AtomicBool::new(false));
    let (seen, in_kernel) = (Seen::default(), Seen::default());
    let start = Instant::now();
    thread::scope(|scope| {
        for seed in [1, 2] {
            let (subjects, ring, counts, stop) = (&subjects, &ring, &counts, &stop);
            scope.spawn(move || write(memory, subjects, ring, counts, stop, seed));
        }
        scope.spawn(|| {
            let mut dice = Dice(3);
            while !stop.load(Ordering::Relaxed) {
                if evict(memory, 1 + dice.roll(SLOTS as usize) as u32) {
                    count(&counts.evicted);
                }
                // So that something is there to be found.
                thread::yield_now();
            }
        });
        if let Some(kernel) = &mut kernel {
            let (subjects, in_kernel, stop) = (&subjects, &in_kernel, &stop);
            scope.spawn(move || read_in_kernel(kernel, subjects, in_kernel, stop));
        }
        let readers: Vec<_> = [10, 11]
            .into_iter()
            .map(|seed| {
                let (row, subjects, seen) = (&row, &subjects, &seen);
                scope.spawn(move || read(memory, row, subjects, lookups / 2, seen, seed))
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a reader panicked");
    });
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{lookups} lookups in {:.1} s: {} hits, {} raced; {} hits in the kernel; {} insertions, {} given up, {} evictions",
        start.elapsed().as_secs_f64(),
        number(&seen.hits),
        number(&seen.raced),
        number(&in_kernel.hits),
        number(&counts.inserted),
        number(&counts.given_up),
        number(&counts.evicted),
    );
    assert_eq!(
        number(&seen.wrong) + number(&in_kernel.wrong),
        0,
        "wrong bytes"
    );
    assert!(number(&seen.hits) > 0 && number(&counts.inserted) > 0);
    assert_eq!(left_over(memory), 0, "dangling entries or locks");
    for slot in 1..=SLOTS {
        evict(memory, slot);
        let facts = memory.node(slot).map(|node| node.facts.load());
        assert_eq!(facts, Some(0), "slot {slot} is stuck");
    }
    assert_eq!(left_over(memory), 0, "entries without a slot");
}

/// Set to have another number of lookups:
/// `KERNEL_CACHE_LOOKUPS=100000000 cargo test --release -p tidegate-kernel-cache --test writers -- --nocapture`
const LOOKUPS: &str = "KERNEL_CACHE_LOOKUPS";

#[test]
fn racing_writers_leave_no_wrong_byte_and_nothing_behind() {
    let wanted = std::env::var(LOOKUPS).ok();
    race(wanted.map_or(40_000, |number| number.parse().expect("a number")));
}
