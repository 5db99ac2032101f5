//! Readers in the kernel and in user space against writers: no wrong byte, no dangling entry, no stuck lock.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kernel_cache::shared::answer::{Scratch, answer};
use kernel_cache::{Buffer, Cache, Hook, KernelCache, Outcome, Sizes, monotonic_ns};
use support::{CARRIERS, PORT_MAC, data, frame, interest, network_packet, port_row, reply_payload};

const LOOPBACK: u32 = 1;
const NAMES: usize = 96;
const VERSIONS: u8 = 4;
/// Enough for many evictions; a second or two, on a busy machine to the limit of time.
const WRITES: u64 = 20_000;
const TIME_MAX: Duration = Duration::from_secs(6);

fn uri(name: usize) -> String {
    format!("/race/{}/{name}", name % 7)
}

/// All that a name may hold: packets of different lengths, each of one byte throughout.
fn versions(name: usize) -> Vec<Vec<u8>> {
    (0..VERSIONS)
        .map(|version| {
            let length = 40 + 300 * usize::from(version) + name;
            data(
                &uri(name),
                &vec![version * 16 + (name % 16) as u8; length],
                3_600_000,
            )
        })
        .collect()
}

/// Inserts, replaces and evicts until enough was done; the cache holds a third of the names.
fn write(cache: &mut Cache, packets: &[Vec<Vec<u8>>], done: &AtomicBool) -> u64 {
    let until = Instant::now() + TIME_MAX;
    let mut at = 12_345_u64;
    let mut writes = 0;
    while writes < WRITES && (writes % 64 != 0 || Instant::now() < until) {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let name = (at >> 33) as usize % NAMES;
        let version = (at >> 60) as usize % usize::from(VERSIONS);
        // A full bucket refuses, which a cache may.
        let _ = cache.insert(&packets[name][version], monotonic_ns());
        writes += 1;
    }
    done.store(true, Ordering::Release);
    writes
}

/// Asks for names, by turns exactly and by prefix, and checks what comes; returns how many hits there were.
fn read(
    mut run: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    packets: &[Vec<Vec<u8>>],
    done: &AtomicBool,
) -> u64 {
    let until = Instant::now() + 4 * TIME_MAX;
    let mut hits = 0;
    let mut turn = 0;
    // On a busy machine a reader may first come to run when the writer has ended: what is left is there to be found.
    while !done.load(Ordering::Acquire) || hits == 0 && Instant::now() < until {
        turn += 1;
        let name = turn * 31 % NAMES;
        let (asked, may) = if turn % 5 == 0 {
            (interest(&format!("/race/{}", name % 7), "pf"), None)
        } else {
            (interest(&uri(name), "f"), Some(name))
        };
        let request = frame(CARRIERS[1], None, &asked);
        let Some(reply) = run(&request) else {
            continue;
        };
        // The checksums are right, too.
        let (packet, ..) = network_packet(&reply_payload(CARRIERS[1], None, &reply));
        let known = match may {
            Some(name) => packets[name].contains(&packet),
            None => (0..NAMES)
                .filter(|n| n % 7 == name % 7)
                .any(|n| packets[n].contains(&packet)),
        };
        assert!(known, "foreign bytes for {name}");
        hits += 1;
    }
    hits
}

#[test]
fn readers_race_a_writer_and_never_see_foreign_bytes() {
    if !lab::need::root("readers_race_a_writer_and_never_see_foreign_bytes") {
        return;
    }
    let sizes = Sizes {
        data: NAMES as u32 / 3,
        prefixes: 32,
    };
    let (mut kernel, mut cache) = KernelCache::load(sizes).expect("loads");
    let row = port_row(LOOPBACK, PORT_MAC, 3000);
    kernel.add_port(&row).expect("a row");
    kernel
        .test_run(
            Hook::Native,
            &frame(CARRIERS[0], None, &interest("/load", "")),
            1,
        )
        .expect("loads");
    let packets: Vec<Vec<Vec<u8>>> = (0..NAMES).map(versions).collect();
    let done = AtomicBool::new(false);
    let memory = cache.share();
    let torn = AtomicU64::new(0);
    let (in_kernel, in_user_space) = thread::scope(|scope| {
        let kernel_reader = scope.spawn(|| {
            let run = |request: &[u8]| {
                let run = kernel.test_run(Hook::Native, request, 1).expect("runs");
                (run.verdict == 3).then_some(run.packet)
            };
            read(run, &packets, &done)
        });
        let user_reader = scope.spawn(|| {
            let mut scratch = Box::<Scratch>::default();
            let run = |request: &[u8]| {
                let mut buffer = Buffer::new(request, 4000);
                match answer(&*memory, &mut buffer, LOOPBACK, &row, &mut scratch) {
                    Outcome::Exact | Outcome::Prefix => Some(buffer.bytes().to_vec()),
                    Outcome::Torn => {
                        torn.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                    _ => None,
                }
            };
            read(run, &packets, &done)
        });
        let writes = write(&mut cache, &packets, &done);
        assert!(writes > 0);
        (
            kernel_reader.join().expect("ends"),
            user_reader.join().expect("ends"),
        )
    });
    println!(
        "hits: {in_kernel} in the kernel, {in_user_space} in user space; {torn:?} torn there; {} evicted",
        cache.evicted()
    );
    assert!(in_kernel > 0 && in_user_space > 0 && cache.evicted() > 0);
    // Nothing dangles: what is there answers, and all of it can be taken out.
    assert!(cache.len() <= NAMES / 3);
    cache.clear();
    assert!(cache.is_empty());
    assert!(cache.is_clean(), "entries or locks are left");
}
