//! Several processes that share DPDK: its memory, ports and what lies in memory segments (LF-2).
//!
//! The primary process makes the memory for frames, opens the ports with a queue for each of its workers and
//! one for each guest, and reserves memory segments. A guest is a secondary process with one worker: it finds
//! the memory, uses its queue of each port, and looks segments up by name. Both need the same program, huge
//! pages and a mounted hugetlbfs.
//!
//! # Deaths
//! A guest that is killed disturbs nobody: its queues fill up, and the next guest of that number takes its
//! frames over. When the primary is killed, guests forward on and keep what lies in segments, which one of
//! them can take over; but DPDK lets nobody become the primary after it, so that ports can no longer be
//! configured, and all must end before a new primary starts. Who is killed inside of a ring that several
//! processes write (none of ours on the data path) stops the others there: that is how DPDK's rings are.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::ffi::CString;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tables::segment::{Segment, SharedMemory};

pub use super::sharing::{SharedFrames, SharingError};
use super::{eal, ffi, mempool};
use crate::pool::{Pool, Region};

/// What a process is to those that it shares DPDK with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It starts first and owns ports and memory.
    Primary,
    /// It uses what the primary made.
    Secondary,
}

impl Role {
    /// Returns DPDK's word for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }
}

const FRAMES_ZONE: &str = "tidegate_frames";
const SHARE_ZONE: &str = "tidegate_share";
const SHARE_BYTES: usize = 64 << 10;
/// Changes with the layout of a slot and of what the share zone holds.
const SHARE_LAYOUT: u64 = 1;

/// What the process keeps as long as it lives: the segment that says how frames are shared, or the lock of
/// the guest that it is.
#[expect(dead_code, reason = "kept for the locks that these hold")]
#[derive(Debug)]
enum Kept {
    Share(Segment),
    Guest(Segment, [File; 2]),
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

fn keep(kept: Kept) {
    KEPT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(kept);
}

/// Starts DPDK as the primary of `group` (a name as of a file) and makes the memory for frames; returns the
/// pools of the workers.
///
/// # Errors
/// DPDK runs already, there are no huge pages or no hugetlbfs, or another primary of that name lives.
pub fn host(group: &str, frames: SharedFrames) -> Result<Vec<Pool>, SharingError> {
    let sound = frames.frame_bytes.is_power_of_two()
        && (2048..=32768).contains(&frames.frame_bytes)
        && frames.frames_per_worker > 0
        && frames.workers > 0;
    let parts = u32::from(frames.workers) + u32::from(frames.guests);
    let count = frames.frames_per_worker.checked_mul(parts);
    let Some(count) = count.filter(|_| sound) else {
        return Err(SharingError::Geometry(frames));
    };
    no_guests(group)?;
    start(group, Role::Primary)?;
    let bytes = count as usize * frames.frame_bytes as usize;
    let (base, _) = zone(FRAMES_ZONE, bytes)?;
    // SAFETY: the zone is `bytes` long at least, aligned to 2 MiB, and is never freed; the processes have
    // slots by the pools that they take them from.
    let region = unsafe { Region::borrowed(base, count, frames.frame_bytes) };
    mempool::share(&region, frames.workers, frames.guests).map_err(SharingError::Dpdk)?;
    let share = create_segment(SHARE_ZONE, SHARE_BYTES, SHARE_LAYOUT)?;
    let words = share.reserve::<AtomicU64>("frames", 4)?;
    let values = [
        frames.frames_per_worker.into(),
        frames.frame_bytes.into(),
        frames.workers.into(),
        u64::from(frames.guests),
    ];
    for (word, value) in words.iter().zip(values) {
        // Release: pairs with the acquire loads in `join`.
        word.store(value, Ordering::Release);
    }
    keep(Kept::Share(share));
    Ok(region.pools(frames.workers, frames.frames_per_worker))
}

/// Starts DPDK as a secondary of `group` and joins its primary as a guest, whose number counts from 0;
/// returns its pool. It can open the ports that the primary has started.
///
/// # Errors
/// DPDK runs already, there is no primary, or the number is not free.
pub fn join(group: &str, guest: u16) -> Result<Pool, SharingError> {
    start(group, Role::Secondary)?;
    let share = attach_segment(SHARE_ZONE, SHARE_LAYOUT)?;
    let words = share.view::<AtomicU64>("frames")?;
    let [each, frame_bytes, workers, guests] = core::array::from_fn(|at| words.get(at));
    if u64::from(guest) >= guests {
        return Err(SharingError::NoGuest { guest, guests });
    }
    let locks = guest_locks(guest)?;
    let (base, _) = zone(FRAMES_ZONE, 0)?;
    let parts = (workers + guests) as u16;
    // SAFETY: the primary reserved the zone for this many frames of this size; it stays mapped here, at the
    // same address in each process.
    let region =
        unsafe { Region::borrowed(base, each as u32 * u32::from(parts), frame_bytes as u32) };
    let part = workers as u16 + guest;
    let own = mempool::join(&region, parts, part).map_err(SharingError::Dpdk)?;
    let mut pool = region.empty_pool(part.into(), each as u32);
    // Half of the frames are for the drivers, as at the start of a port.
    let mut slots = [core::ptr::null_mut(); 64];
    while pool.available() < pool.capacity() / 2 {
        let taken = own.take(&mut slots) as usize;
        for slot in slots[..taken].iter().filter_map(|slot| NonNull::new(*slot)) {
            let Some(index) = region.index_of(slot) else {
                continue;
            };
            // SAFETY: the mempool gave the slot just now, to nobody else.
            pool.free(unsafe { region.frame_at(index) });
        }
        if taken == 0 {
            break;
        }
    }
    keep(Kept::Guest(share, locks));
    Ok(pool)
}

/// Reserves DPDK memory of at least `bytes` under `name` (24 characters at most), which other processes find,
/// and makes a segment in it (LF-2). For the primary.
///
/// # Errors
/// There is no such memory left, the name is taken, or as [`Segment::create_in`].
pub fn create_segment(name: &str, bytes: usize, layout: u64) -> Result<Segment, SharingError> {
    let (base, bytes) = zone(name, bytes)?;
    // SAFETY: the zone is mapped for the rest of the process, and found by its name for segments only.
    let memory = unsafe { SharedMemory::new(base, bytes) };
    Ok(Segment::create_in(memory, &lock_path(name), layout)?)
}

/// Looks up a segment that a living process owns in DPDK memory.
///
/// # Errors
/// There is none of that name, or as [`Segment::attach_in`].
pub fn attach_segment(name: &str, layout: u64) -> Result<Segment, SharingError> {
    let (base, bytes) = zone(name, 0)?;
    // SAFETY: as in `create_segment`.
    let memory = unsafe { SharedMemory::new(base, bytes) };
    Ok(Segment::attach_in(memory, &lock_path(name), layout)?)
}

/// Takes over a segment in DPDK memory whose owner is dead.
///
/// # Errors
/// There is none of that name, or as [`Segment::recover_in`].
pub fn recover_segment(name: &str, layout: u64) -> Result<Segment, SharingError> {
    let (base, bytes) = zone(name, 0)?;
    // SAFETY: as in `create_segment`.
    let memory = unsafe { SharedMemory::new(base, bytes) };
    Ok(Segment::recover_in(memory, &lock_path(name), layout)?)
}

fn start(group: &str, role: Role) -> Result<(), SharingError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if group.is_empty() || !group.chars().all(plain) {
        let text = format!("`{group}` is no name for a group (letters, digits, `-` and `_`)");
        return Err(SharingError::Dpdk(text));
    }
    eal::share(group, role)?;
    match eal::start() {
        Ok(_) => Ok(()),
        Err(reason) => Err(SharingError::Dpdk(reason.to_owned())),
    }
}

/// Reserves memory in DPDK's heap (`bytes` > 0) or finds it; returns where it is and its size.
fn zone(name: &str, bytes: usize) -> Result<(NonNull<u8>, usize), SharingError> {
    let failed = |reason: &str| SharingError::Dpdk(format!("DPDK memory `{name}`: {reason}"));
    let c_name = CString::new(name).map_err(|_| failed("a name without zero bytes is needed"))?;
    if name.len() > 24 || name.is_empty() {
        return Err(failed("a name of 1 to 24 characters is needed"));
    }
    eal::start().map_err(failed)?;
    let (mut base, mut found) = (core::ptr::null_mut::<c_void>(), 0);
    // SAFETY: the name ends with a zero, and there is room for what is returned.
    let error = unsafe { ffi::tg_zone(c_name.as_ptr(), bytes, &raw mut base, &raw mut found) };
    match NonNull::new(base.cast()) {
        Some(base) if error == 0 => Ok((base, found)),
        _ => Err(failed(&ffi::error_text(error))),
    }
}

fn lock_path(name: &str) -> PathBuf {
    Path::new(&ffi::runtime_directory()).join(format!("tidegate_{name}.lock"))
}

const MEMBERS: &str = "members";
/// How long a guest waits for its number.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Makes sure that no guest of an earlier primary lives: DPDK would wipe the memory that it uses.
fn no_guests(group: &str) -> Result<(), SharingError> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let place = match root {
        true => "/var/run".to_owned(),
        false => std::env::var("XDG_RUNTIME_DIR").unwrap_or_else(|_| "/tmp".to_owned()),
    };
    let file = format!("{place}/dpdk/{group}/tidegate_{MEMBERS}.lock");
    // If it is not there, there has been no guest.
    match File::open(file).map(|members| members.try_lock()) {
        Ok(Err(TryLockError::WouldBlock)) => Err(SharingError::Guests(group.to_owned())),
        _ => Ok(()),
    }
}

fn guest_lock(guest: u16) -> String {
    format!("guest{guest}")
}

/// Calls `clean_up` if no process is the guest of this number, and none becomes it meanwhile.
pub fn without_guest(guest: u16, clean_up: impl FnOnce()) {
    // If the file is not there, there has been no such guest.
    let Ok(lock) = File::open(lock_path(&guest_lock(guest))) else {
        return;
    };
    if lock.try_lock().is_ok() {
        clean_up();
    }
}

/// Becomes the guest of this number for as long as the files are open.
fn guest_locks(guest: u16) -> Result<[File; 2], SharingError> {
    let open = |name: &str| {
        let path = lock_path(name);
        let mut options = OpenOptions::new();
        let opened = options.create(true).truncate(false).write(true).open(&path);
        opened.map_err(|source| SharingError::Lock { path, source })
    };
    let own = open(&guest_lock(guest))?;
    // The primary has it for a moment when it looks whether the guest lives.
    let deadline = Instant::now() + LOCK_PATIENCE;
    while own.try_lock().is_err() {
        if Instant::now() > deadline {
            return Err(SharingError::Taken(guest));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let members = open(MEMBERS)?;
    members
        .try_lock_shared()
        .map_err(|_| SharingError::Taken(guest))?;
    Ok([own, members])
}
