//! The disk tier: what is evicted comes back, also after damage, and after `kill -9` at any moment.
//!
//! `CONTENT_STORE_KILLS=200 cargo test --release -p tidegate-content-store --test disk` is the long run.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant as Clock};

use common::{Random, insert, is_whole, name, packet, store, view};
use content_store::{ContentStore, DiskConfig, DiskError, NewData, Policy, Query, Worker};
use wire::Instant;
use wire::ndn::NameRef;

const NOW: Instant = Instant::from_ns(1);
/// Packets that memory holds in these tests.
const MEMORY: usize = 64;

fn with_disk(path: &Path, bytes: u64) -> (ContentStore, Worker) {
    let store = store(MEMORY, 4 << 20, 1, Policy::Fifo);
    let config = DiskConfig::new(path.to_owned(), bytes, 0);
    store.open_disk(&config).expect("a disk tier");
    let worker = store.join().expect("first worker");
    (store, worker)
}

fn numbered(number: u64) -> Vec<u8> {
    name(&[b"disk", &number.to_be_bytes()])
}

/// Puts packet `number`, of 300 to 2,300 bytes.
fn put(worker: &mut Worker, number: u64) {
    let name = numbered(number);
    let len = 300 + (number as usize * 577) % 2000;
    insert(worker, &name, len, number, 60_000, 1);
}

/// Reads names from the disk, many at a time, and checks what comes; returns those that are there.
fn read_all(worker: &mut Worker, numbers: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut numbers = numbers.into_iter().peekable();
    let mut begin = Clock::now();
    while numbers.peek().is_some() || worker.disk_reads() > 0 {
        while worker.disk_reads() < 48
            && let Some(number) = numbers.next()
        {
            worker.read_disk(view(&numbered(number)));
        }
        let polled = worker.poll_disk(NOW, |name, packet| {
            if let Some(packet) = packet {
                let number = name.last().expect("a component").value;
                let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
                assert!(is_whole(name.value(), packet), "packet {number} is damaged");
                found.insert(number);
            }
        });
        if polled > 0 {
            begin = Clock::now();
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no answer");
        std::thread::yield_now();
    }
    found
}

/// Reads one name.
fn read(worker: &mut Worker, number: u64) -> bool {
    !read_all(worker, [number]).is_empty()
}

#[test]
fn evicted_packets_come_back_in_this_run_and_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let count = 2000;
    {
        let (store, mut worker) = with_disk(&path, 64 << 20);
        for number in 0..count {
            put(&mut worker, number);
        }
        store.sync_disk().expect("synchronised");
        let stats = store.disk_stats().expect("a tier");
        assert_eq!(stats.written, count - MEMORY as u64, "{stats:?}");
        assert_eq!((stats.dropped, stats.failed, stats.crowded_out), (0, 0, 0));
        for number in (0..count - MEMORY as u64).step_by(37) {
            let name = numbered(number);
            assert!(worker.lookup(&Query::exact(view(&name)), NOW).is_none());
            assert!(read(&mut worker, number), "{number}");
            // It is in memory again, as fresh as it was (to a millisecond).
            let query = Query {
                must_be_fresh: true,
                ..Query::exact(view(&name))
            };
            assert!(
                worker
                    .lookup(&query, Instant::from_ns(59_990_000_000))
                    .is_some()
            );
            assert!(
                worker
                    .lookup(&query, Instant::from_ns(60_010_000_000))
                    .is_none()
            );
        }
        assert!(!read(&mut worker, count + 5));
        // What is erased in memory is gone on disk, too.
        assert!(read(&mut worker, 1));
        assert_eq!(worker.erase(view(&numbered(1)), 9), 1);
        assert!(!read(&mut worker, 1));
        let in_use = store_of(&path, 64 << 20);
        assert!(matches!(in_use, Err(DiskError::InUse(_))), "{in_use:?}");
    }
    let (store, mut worker) = with_disk(&path, 64 << 20);
    let stats = store.disk_stats().expect("a tier");
    assert!(stats.recovered >= count - MEMORY as u64, "{stats:?}");
    assert_eq!(stats.cut, 0);
    let all = 2..count - MEMORY as u64;
    assert!(read_all(&mut worker, all.clone()).into_iter().eq(all));
}

/// What is erased by prefix is gone from the disk, wherever it was: in memory, on its way, in the log; in this run and
/// the next. What comes afterwards stays.
#[test]
fn what_is_erased_by_prefix_is_gone_from_the_disk_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let count = 1000;
    let below = name(&[b"disk"]);
    let other = name(&[b"other", b"1"]);
    {
        let (store, mut worker) = with_disk(&path, 64 << 20);
        insert(&mut worker, &other, 300, 9, 60_000, 1);
        for number in 0..count {
            put(&mut worker, number);
        }
        // Half is known to be in the log, the rest anywhere.
        store.sync_disk().expect("synchronised");
        for number in count..2 * count {
            put(&mut worker, number);
        }
        assert_eq!(worker.erase(view(&below), usize::MAX), MEMORY);
        assert!(read_all(&mut worker, 0..2 * count).is_empty());
        for number in 5 * count..6 * count {
            put(&mut worker, number);
        }
        store.sync_disk().expect("synchronised");
        assert!(read_all(&mut worker, 0..2 * count).is_empty());
        let later = 5 * count..6 * count - MEMORY as u64;
        assert!(read_all(&mut worker, later.clone()).into_iter().eq(later));
        // With a limit: what was in memory, and its copy on disk.
        assert!(read(&mut worker, 5 * count));
        let one = numbered(5 * count);
        assert_eq!(worker.erase(view(&one), 1), 1);
        assert!(!read(&mut worker, 5 * count));
        assert!(worker.read_disk(view(&other)), "not below the prefix");
    }
    let (store, mut worker) = with_disk(&path, 64 << 20);
    assert_eq!(store.disk_stats().expect("a tier").cut, 0);
    assert!(read_all(&mut worker, 0..2 * count).is_empty());
    let later = 5 * count + 1..6 * count - MEMORY as u64;
    assert!(read_all(&mut worker, later.clone()).into_iter().eq(later));
    assert!(!read(&mut worker, 5 * count));
    assert_eq!(worker.erase(NameRef::EMPTY, usize::MAX), MEMORY);
    store.sync_disk().expect("synchronised");
    assert!(!worker.read_disk(view(&other)) || read_all(&mut worker, []).is_empty());
    assert!(worker.lookup(&Query::exact(view(&other)), NOW).is_none());
}

/// A read that began before its packet was erased does not bring it back.
#[test]
fn a_read_under_way_does_not_bring_back_what_is_erased() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, mut worker) = with_disk(&directory.path().join("store"), 64 << 20);
    for number in 0..200 {
        put(&mut worker, number);
    }
    store.sync_disk().expect("synchronised");
    for number in 0..32 {
        assert!(worker.read_disk(view(&numbered(number))));
    }
    // They have been read by now, most likely, and wait to be taken.
    std::thread::sleep(Duration::from_millis(100));
    worker.erase(view(&name(&[b"disk"])), usize::MAX);
    assert!(read_all(&mut worker, []).is_empty());
    assert_eq!(worker.erase(NameRef::EMPTY, usize::MAX), 0);
}

/// Before the process ends, memory goes to the disk.
#[test]
fn memory_moves_to_the_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    {
        let (store, mut worker) = with_disk(&path, 64 << 20);
        for number in 0..MEMORY as u64 {
            put(&mut worker, number);
        }
        assert_eq!(worker.move_to_disk(10, NOW), 10);
        assert_eq!(worker.move_to_disk(usize::MAX, NOW), MEMORY - 10);
        assert_eq!(worker.move_to_disk(usize::MAX, NOW), 0);
        store.sync_disk().expect("synchronised");
    }
    let (_store, mut worker) = with_disk(&path, 64 << 20);
    let all = 0..MEMORY as u64;
    assert!(read_all(&mut worker, all.clone()).into_iter().eq(all));
}

/// A disk without room costs packets, which are counted, and nothing else; when it has room again the tier goes on.
#[test]
fn a_full_disk_costs_packets_only() {
    let Some(full) = Small::mount() else {
        println!("skipped: no right to mount a file system");
        return;
    };
    let path = full.0.join("store");
    let filler = full.0.join("filler");
    std::fs::write(&filler, vec![1; 3 << 20]).expect("written");
    // 16 MiB are asked for where 5 are.
    let (store, mut worker) = with_disk(&path, 16 << 20);
    let count = 8000;
    for number in 0..count {
        put(&mut worker, number);
        if number % 500 == 0 {
            // An error is one of the file's, and counted.
            let _ = store.sync_disk();
        }
    }
    let _ = store.sync_disk();
    let stats = store.disk_stats().expect("a tier");
    assert!(stats.failed > 0 && stats.written > 500, "{stats:?}");
    // What memory holds is answered; what comes from the disk is whole (which is checked where it is read).
    let last = numbered(count - 1);
    assert!(worker.lookup(&Query::exact(view(&last)), NOW).is_some());
    let found = read_all(&mut worker, 0..count).len() as u64;
    assert!(found > 500 && found <= stats.written, "{found}, {stats:?}");
    // Room again.
    std::fs::remove_file(&filler).expect("removed");
    let more = 2_000_000..2_001_000;
    for number in more.clone() {
        put(&mut worker, number);
        if number % 100 == 0 {
            let _ = store.sync_disk();
        }
    }
    let _ = store.sync_disk();
    let back = read_all(&mut worker, more).len();
    assert!(back > 300, "{back} of 1000 after there is room again");
}

#[test]
fn what_is_no_disk_tier_is_not_overwritten() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notes");
    let notes = b"somebody's notes\n".repeat(500);
    std::fs::write(&path, &notes).expect("written");
    assert!(matches!(
        store_of(&path, 1 << 20),
        Err(DiskError::Foreign(_))
    ));
    assert_eq!(std::fs::read(&path).expect("read"), notes);
    // A tier of another size is one.
    let path = directory.path().join("tier");
    for bytes in [4 << 20, 8 << 20] {
        let (store, mut worker) = with_disk(&path, bytes);
        (0..200).for_each(|number| put(&mut worker, number));
        store.sync_disk().expect("synchronised");
    }
}

/// The log on a block device, which is found again, and which is not taken for larger than it is.
#[test]
fn a_device_holds_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    let file = std::fs::File::create(&image).expect("made");
    file.set_len(16 << 20).expect("made");
    let Some(device) = Loop::new(&image) else {
        println!("skipped: no loop device to be had");
        return;
    };
    let path = Path::new(&device.0);
    assert!(matches!(
        store_of(path, 32 << 20),
        Err(DiskError::Small {
            has: 16_777_216,
            wanted: 33_554_432,
            ..
        })
    ));
    let last = 500 - MEMORY as u64;
    {
        let (store, mut worker) = with_disk(path, 16 << 20);
        (0..500).for_each(|number| put(&mut worker, number));
        store.sync_disk().expect("synchronised");
    }
    let (_store, mut worker) = with_disk(path, 16 << 20);
    assert!(read_all(&mut worker, 0..last).into_iter().eq(0..last));
}

/// A loop device, detached with the test.
struct Loop(String);

impl Loop {
    fn new(image: &Path) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        let output = losetup
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .ok()?;
        let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !device.is_empty()).then_some(Self(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A file system of 8 MiB, unmounted with the test.
struct Small(
    std::path::PathBuf,
    #[expect(dead_code, reason = "removed with it")] tempfile::TempDir,
);

impl Small {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().ok()?;
        let path = directory.path().to_owned();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tidegate-test"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(path, directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(&self.0).status();
    }
}

fn store_of(path: &Path, bytes: u64) -> Result<(), DiskError> {
    let other = store(MEMORY, 4 << 20, 1, Policy::Fifo);
    other.open_disk(&DiskConfig::new(path.to_owned(), bytes, 0))
}

#[test]
fn impossible_sizes_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    assert!(matches!(
        store_of(directory.path(), 0),
        Err(DiskError::Bytes(0))
    ));
    assert!(matches!(
        store_of(directory.path(), 1 << 20),
        Err(DiskError::File { .. })
    ));
    let mut config = DiskConfig::new(directory.path().join("x"), 1 << 20, 0);
    config.packets = 0;
    let store = store(MEMORY, 4 << 20, 1, Policy::Fifo);
    assert!(matches!(
        store.open_disk(&config),
        Err(DiskError::Packets(0))
    ));
}

/// The log goes round: the newest packets are there, none is wrong, a newer packet hides an older one of its name.
#[test]
fn the_log_goes_round() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let (store, mut worker) = with_disk(&path, 2 << 20);
    let count = 5000;
    let keep = 300;
    for number in 0..count {
        put(&mut worker, number);
        if number % 100 == 0 {
            store.sync_disk().expect("synchronised");
        }
    }
    store.sync_disk().expect("synchronised");
    let last = count - MEMORY as u64;
    let newest = last - keep..last;
    assert!(read_all(&mut worker, newest.clone()).into_iter().eq(newest));
    let old = read_all(&mut worker, (0..last - 2000).step_by(5)).len();
    assert_eq!(old, 0, "overwritten long ago");
    let name = numbered(1);
    for (seed, len) in [(70, 400), (71, 500)] {
        let (bytes, at) = packet(&name, len, seed);
        let data = NewData::new(&bytes, view(&bytes[at..at + name.len()]), 0);
        worker.insert(&data, NOW).expect("inserted");
        for number in count..count + MEMORY as u64 + 1 {
            put(&mut worker, number + seed * 1000);
        }
    }
    store.sync_disk().expect("synchronised");
    drop(worker);
    drop(store);
    let (_store, mut worker) = with_disk(&path, 2 << 20);
    assert!(read(&mut worker, 1));
    let hit = worker
        .lookup(&Query::exact(view(&name)), NOW)
        .expect("read");
    assert_eq!(hit.packet(), packet(&name, 500, 71).0);
}

/// Whatever happens to the file's bytes, no packet comes back wrong.
#[test]
fn damage_costs_packets_but_never_changes_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let count = 600;
    {
        let (store, mut worker) = with_disk(&path, 8 << 20);
        (0..count).for_each(|number| put(&mut worker, number));
        store.sync_disk().expect("synchronised");
    }
    let whole = std::fs::read(&path).expect("the file");
    let mut random = Random(5);
    for round in 0..16 {
        std::fs::write(&path, &whole).expect("written");
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("the file");
        if round % 4 == 0 {
            file.set_len(random.below(whole.len()) as u64).expect("cut");
        } else {
            for _ in 0..1 + random.below(8) {
                let at = random.below(whole.len()) as u64;
                let noise = vec![random.next() as u8; 1 + random.below(600)];
                file.write_all_at(&noise, at).expect("written");
            }
        }
        let (store, mut worker) = with_disk(&path, 8 << 20);
        let found = read_all(&mut worker, 0..count).len() as u64;
        let stats = store.disk_stats().expect("a tier");
        assert!(
            found <= stats.recovered,
            "round {round}: {found}, {stats:?}"
        );
        // The tier goes on.
        (count..count + 200).for_each(|number| put(&mut worker, number));
        store.sync_disk().expect("synchronised");
        assert_eq!(read_all(&mut worker, count..count + 100).len(), 100);
    }
}

const CHILD: &str = "CONTENT_STORE_DISK_CHILD";

/// Not a test of itself: what the killed process runs. Tells on its output how many packets are on the disk.
#[test]
fn child_that_is_killed() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let (store, mut worker) = with_disk(Path::new(&path), 128 << 20);
    let first = std::env::var("CONTENT_STORE_FIRST").map_or(0, |n| n.parse().expect("a number"));
    let mut random = Random(first);
    // Bounded, should nobody kill it.
    for number in first..first + 100_000 {
        put(&mut worker, number);
        if random.below(200) == 0 && number > first + MEMORY as u64 {
            store.sync_disk().expect("synchronised");
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nsynced {}", number + 1 - MEMORY as u64).expect("told");
            out.flush().expect("told");
        }
    }
}

#[test]
fn kill_9_loses_nothing_that_was_synchronised() {
    let kills = std::env::var("CONTENT_STORE_KILLS").map_or(20, |n| n.parse().expect("a number"));
    // A killed process leaves its writes to the kernel, so that memory will do, where a disk that others use would
    // take its time.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("a directory");
    let path = directory.path().join("store");
    let mut random = Random(11);
    // Of every run: its first packet, and how many were on the disk.
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut acknowledged = 0;
    for round in 0..kills {
        if round % 10 == 0 {
            let _ = std::fs::remove_file(&path);
            runs.clear();
        }
        let first = round * 1_000_000;
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child_that_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .env("CONTENT_STORE_FIRST", first.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut end = first;
        let wanted = 1 + random.below(6);
        let mut seen = 0;
        while seen < wanted {
            let line = lines.next().expect("it goes on").expect("text");
            if let Some(number) = line.strip_prefix("synced ") {
                end = number.parse().expect("a number");
                seen += 1;
            }
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        child.kill().expect("killed");
        child.wait().expect("waited");
        // What it told before it died counts.
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("synced ") {
                end = number.parse().expect("a number");
            }
        }
        runs.push((first, end));
        let (_store, mut worker) = with_disk(&path, 128 << 20);
        // All of this run, and some of those before.
        let latest = runs.len() - 1;
        for (at, (first, end)) in runs.iter().enumerate() {
            let step = if at == latest { 1 } else { 97 };
            let wanted = (*first..*end).step_by(step);
            let found = read_all(&mut worker, wanted.clone());
            if !found.iter().copied().eq(wanted.clone()) {
                let lost = { wanted }.find(|number| !found.contains(number));
                panic!("round {round}: {lost:?} of {first}..{end} is lost");
            }
            acknowledged += found.len();
            // What was not told of may be there or not, but whole (which is checked where it is read).
            if at == latest {
                read_all(&mut worker, *end..*end + 100);
            }
        }
    }
    println!("{kills} kills, {acknowledged} packets looked for after them");
}
