//! A process that makes a segment, reserves objects in it, or takes it over is killed at every step. The test
//! stops it after each machine instruction (ptrace). Wherever the segment has changed, a copy of it is what a
//! kill at this instruction would leave (stores are visible, the owner's lock is not there), and the next
//! opener must recover it; some processes are really killed as well.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use tables::segment::{Access, Segment, SegmentError};

const LAYOUT: u64 = 7;
const SIZE_BYTES: usize = 64 << 10;
/// Header, and the directory as far as it is used.
const WATCHED_BYTES: usize = 4096 + 512;
/// Objects of the segment, in their order, and their numbers of words.
const OBJECTS: [(&str, usize); 3] = [("first", 10), ("second", 100), ("third", 1)];
/// Instructions in which the child ends for sure.
const STEPS_MAX: u64 = 3_000_000;

/// Which child this process is, and where the segment is to be.
const ROLE: &str = "TIDEGATE_SEGMENT_KILL";

/// Not a test of its own: what the child does, once its parent has taken hold of it.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (role, path) = role.split_once(' ').expect("role and path");
    println!("thread {}", nix::unistd::gettid());
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let segment = match role {
        "make" => Segment::create(path.as_ref(), SIZE_BYTES, LAYOUT),
        _ => Segment::recover(path.as_ref(), LAYOUT),
    };
    let segment = segment.unwrap();
    for (name, len) in OBJECTS.iter().skip(segment.objects().len()) {
        segment.reserve::<AtomicU64>(name, *len).unwrap();
    }
    std::process::exit(0);
}

/// A child that is stopped, and can be made to go on by one instruction at a time.
struct Stepped {
    child: Child,
    thread: Pid,
    steps: u64,
}

impl Stepped {
    fn start(role: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let thread = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.rsplit_once("thread ")?.1.parse().ok())
            .expect("the child tells its thread");
        let thread = Pid::from_raw(thread);
        ptrace::seize(thread, ptrace::Options::PTRACE_O_EXITKILL).expect("one may trace a child");
        ptrace::interrupt(thread).unwrap();
        let mut stepped = Self {
            child,
            thread,
            steps: 0,
        };
        assert!(stepped.wait());
        let mut input = stepped.child.stdin.take().unwrap();
        input.write_all(b".").unwrap();
        stepped
    }

    /// Waits for the next stop; false when the thread has ended.
    fn wait(&mut self) -> bool {
        let status = waitpid(self.thread, Some(WaitPidFlag::__WALL)).unwrap();
        matches!(
            status,
            WaitStatus::Stopped(..) | WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_)
        )
    }

    /// Goes on by one instruction; false when the thread has ended.
    fn step(&mut self) -> bool {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the child does not end");
        ptrace::step(self.thread, None::<Signal>).is_ok() && self.wait()
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = waitpid(self.thread, Some(WaitPidFlag::__WALL));
        let _ = self.child.wait();
    }
}

/// Header and directory of a segment as they were and are.
struct Watched<'a> {
    path: &'a Path,
    file: Option<File>,
    last: Vec<u8>,
    now: Vec<u8>,
}

impl<'a> Watched<'a> {
    fn new(path: &'a Path) -> Self {
        let mut watched = Self {
            path,
            file: None,
            last: vec![0; WATCHED_BYTES],
            now: vec![0; WATCHED_BYTES],
        };
        watched.has_changed();
        watched
    }

    /// True if the file got its name since the last call, or its contents changed.
    fn has_changed(&mut self) -> bool {
        let is_new = self.file.is_none();
        if is_new {
            self.file = File::open(self.path).ok();
        }
        let Some(file) = &self.file else {
            return false;
        };
        file.read_exact_at(&mut self.now, 0).unwrap();
        std::mem::swap(&mut self.last, &mut self.now);
        is_new || self.last != self.now
    }
}

/// What the next opener must find in `path`, whatever the last owner was doing; returns the objects there.
fn recovers(path: &Path) -> usize {
    let attached = Segment::attach(path, LAYOUT, Access::ReadOnly);
    assert!(
        matches!(attached, Err(SegmentError::Stale { .. })),
        "{attached:?}"
    );
    let segment = Segment::recover(path, LAYOUT).expect("a killed owner's segment is taken over");
    assert_eq!(segment.owner(), u64::from(std::process::id()));
    assert!(segment.generation() >= 2);
    let objects = segment.objects();
    let wanted = OBJECTS.map(|(name, len)| (name.to_owned(), len as u64 * 8));
    assert_eq!(objects, wanted[..objects.len()]);
    for (at, (name, len)) in OBJECTS.iter().enumerate() {
        let words = match at < objects.len() {
            true => segment.lookup::<AtomicU64>(name),
            false => segment.reserve::<AtomicU64>(name, *len),
        };
        let words = words.unwrap();
        assert_eq!(words.len(), *len);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
    objects.len()
}

/// Steps a child to its end and checks every state that it goes through; returns the numbers of the steps
/// after which the segment had changed.
fn every_state(role: &str, path: &Path) -> Vec<u64> {
    let copy = path.with_extension("copy");
    let mut child = Stepped::start(role, path);
    let (mut watched, mut changes, mut most) = (Watched::new(path), Vec::new(), 0);
    while child.step() {
        if watched.has_changed() {
            changes.push(child.steps);
            std::fs::copy(path, &copy).unwrap();
            let objects = recovers(&copy);
            assert!(objects >= most, "a committed object is gone");
            most = objects;
        }
    }
    assert_eq!(most, OBJECTS.len());
    changes
}

/// Kills a child once it has changed the segment `changes` times (or, for none, after `steps` instructions).
fn kill_after(changes: usize, steps: u64, role: &str, path: &Path) {
    let mut child = Stepped::start(role, path);
    let (mut watched, mut seen) = (Watched::new(path), 0);
    while seen < changes || changes == 0 && child.steps < steps {
        assert!(child.step(), "the child ended by itself");
        seen += usize::from(watched.has_changed());
    }
}

fn may_trace() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let allowed = scope.trim().parse::<u32>().unwrap_or(0) <= 1;
    if !allowed {
        let strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!strict, "killed_at_every_step needs ptrace");
        println!("SKIPPED killed_at_every_step: ptrace is not allowed");
    }
    allowed
}

#[test]
fn killed_at_every_step() {
    if !may_trace() {
        return;
    }
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("segment");
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    let making = every_state("make", &path);
    // Each object is six words, then the count.
    assert!(making.len() > OBJECTS.len() * 4, "{making:?}");
    // The owner is dead now: another takes over.
    let taking_over = every_state("recover", &path);
    assert!(
        taking_over.len() >= 2,
        "owner and generation: {taking_over:?}"
    );
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(path.with_extension("copy")).unwrap();
    // The first change is the name; half the way there the file has none, and nothing may be left.
    kill_after(0, making[0] / 2, "make", &path);
    assert_eq!(files(), 0, "left behind");
    for changes in [1, making.len() / 2, making.len()] {
        kill_after(changes, 0, "make", &path);
        kill_after(1, 0, "recover", &path);
        recovers(&path);
        assert_eq!(files(), 1, "left behind after {changes} changes");
        std::fs::remove_file(&path).unwrap();
    }
}
