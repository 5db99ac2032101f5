//! A DPDK mempool over each worker's part of the frame region.

use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

use super::ffi::{self, MemPool};
use crate::pool::{PREFIX_BYTES, Region};

/// One worker's mempool. It lives as long as the process, since drivers keep pointers to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerPool(pub(super) NonNull<MemPool>);

// SAFETY: the mempool is made for several threads: who is not its owner uses its ring (shim.c).
unsafe impl Send for WorkerPool {}
// SAFETY: as above.
unsafe impl Sync for WorkerPool {}

impl WorkerPool {
    /// Makes the calling thread the one that uses the stack of free slots.
    pub(super) fn own(self) {
        // SAFETY: the mempool is never freed.
        unsafe { ffi::tg_pool_own(self.0) }
    }

    /// Returns how many slots the drivers may take. The calling thread owns the mempool from now on: a queue may
    /// have moved to it since it was started.
    #[inline]
    pub(super) fn level(self) -> u32 {
        // SAFETY: the mempool is never freed.
        unsafe { ffi::tg_pool_level(self.0) }
    }

    /// Gives up to 64 slots to the drivers; returns how many were taken. `shared`: another thread is to be
    /// able to take them.
    #[inline]
    pub(super) fn put(self, slots: &[*mut u8], shared: bool) -> u32 {
        let count = slots.len() as u32;
        // SAFETY: `slots` has `count` addresses of slots of this mempool's part of the region whose
        // `Frame`s the caller has consumed, and the mempool is never freed.
        unsafe { ffi::tg_pool_put(self.0, slots.as_ptr(), count, shared.into()) }
    }

    /// Takes slots back from the drivers; returns how many.
    #[inline]
    pub(super) fn take(self, slots: &mut [*mut u8]) -> u32 {
        let room = slots.len() as u32;
        // SAFETY: there is room for `room` addresses, and the mempool is never freed.
        unsafe { ffi::tg_pool_take(self.0, slots.as_mut_ptr(), room) }
    }
}

impl WorkerPool {
    /// Takes slots back that closed drivers have not freed; returns how many. `next` is where to go on, zero
    /// at first. No port over the region is open.
    fn reclaim(self, slots: &mut [*mut u8], next: &mut u32) -> u32 {
        let room = slots.len() as u32;
        // SAFETY: there is room for `room` addresses, and no driver has the slots any more.
        unsafe { ffi::tg_pool_reclaim(self.0, slots.as_mut_ptr(), room, next) }
    }
}

/// The mempools of a region, one a worker, and one a worker of each other process that shares it.
#[derive(Debug)]
struct RegionPools {
    /// Ports over the region that are open.
    ports: usize,
    /// Kept, so that the memory that DPDK knows stays mapped.
    region: Arc<Region>,
    workers: u16,
    pools: Vec<WorkerPool>,
    /// The first of them that is this process's, whose workers have them one by one.
    first: u16,
}

/// What a port needs to know of them.
#[derive(Clone, Debug)]
pub(super) struct PortPools {
    /// One for each queue of the port.
    pub(super) all: Vec<WorkerPool>,
    /// The first queue that is this process's.
    pub(super) first: u16,
    /// Queues of this process.
    pub(super) own: u16,
    /// Ports over the region, this one included.
    pub(super) ports: u32,
}

static REGIONS: Mutex<Vec<RegionPools>> = Mutex::new(Vec::new());

/// Says that a port over the region is closed; tells whether none is left open. If none is, `free` gets every
/// slot that a driver of this process has kept.
pub(super) fn port_closed(region: &Arc<Region>, mut free: impl FnMut(*mut u8)) -> bool {
    let Ok(mut regions) = REGIONS.lock() else {
        return false;
    };
    let known = regions.iter_mut().find(|r| Arc::ptr_eq(&r.region, region));
    let Some(known) = known else { return false };
    known.ports -= 1;
    if known.ports > 0 {
        return false;
    }
    if known.first > 0 {
        return true;
    }
    for pool in known.pools.iter().take(known.workers.into()) {
        let mut next = 0;
        loop {
            let mut slots = [core::ptr::null_mut(); 64];
            let taken = pool.reclaim(&mut slots, &mut next) as usize;
            slots[..taken].iter().for_each(|slot| free(*slot));
            if taken == 0 {
                break;
            }
        }
    }
    true
}

/// Returns the mempools over a region whose pools were split among `workers`, made at the first call; counts
/// a port that is about to be opened, for [`port_closed`].
pub(super) fn pools(region: &Arc<Region>, workers: u16) -> Result<PortPools, String> {
    let mut regions = REGIONS
        .lock()
        .map_err(|_| "a thread panicked while it made a mempool".to_owned())?;
    let known = regions.iter_mut().find(|r| Arc::ptr_eq(&r.region, region));
    if let Some(known) = known {
        return if known.workers == workers {
            known.ports += 1;
            Ok(known.for_port())
        } else {
            Err(format!(
                "the frames are divided among {} workers, not {workers}",
                known.workers
            ))
        };
    }
    register(region)?;
    let each = region.frames() / u32::from(workers);
    let number = regions.len();
    let pools = (0..workers)
        .map(|worker| make(region, &format!("tidegate{number}_{worker}"), worker, each))
        .collect::<Result<Vec<_>, _>>()?;
    let made = RegionPools {
        ports: 1,
        region: Arc::clone(region),
        workers,
        pools,
        first: 0,
    };
    let for_port = made.for_port();
    regions.push(made);
    Ok(for_port)
}

impl RegionPools {
    fn for_port(&self) -> PortPools {
        PortPools {
            all: self.pools.clone(),
            first: self.first,
            own: self.workers,
            ports: self.ports as u32,
        }
    }
}

/// Names the mempool of a part of the region that processes share.
fn shared_name(part: u16) -> String {
    format!("tidegate_part{part}")
}

/// Makes the mempools over a region that processes share, in the first of them: the first `workers` for
/// itself, the others, whose frames are all free, for `guests`.
pub(super) fn share(region: &Arc<Region>, workers: u16, guests: u16) -> Result<(), String> {
    let each = region.frames() / u32::from(workers + guests);
    let mut pools = Vec::new();
    for part in 0..workers + guests {
        let pool = make(region, &shared_name(part), part, each)?;
        if part >= workers {
            // SAFETY: no process has frames of this part: it was made just now.
            unsafe { ffi::tg_pool_recover(pool.0) };
        }
        pools.push(pool);
    }
    know(region, workers, pools, 0)
}

/// Finds the mempools that the primary process has made, as the guest whose queues are `part`; returns its
/// own, taken over from a process that died.
pub(super) fn join(region: &Arc<Region>, parts: u16, part: u16) -> Result<WorkerPool, String> {
    let mut pools = Vec::new();
    for part in 0..parts {
        let name = CString::new(shared_name(part)).unwrap_or_default();
        // SAFETY: the name ends with a zero.
        let found = NonNull::new(unsafe { ffi::tg_pool_find(name.as_ptr()) });
        pools.push(WorkerPool(
            found.ok_or("the primary process has no mempools")?,
        ));
    }
    let own = *pools
        .get(usize::from(part))
        .ok_or("there is no such part")?;
    // SAFETY: the guest's lock is held: who had frames of this part is dead.
    unsafe { ffi::tg_pool_recover(own.0) };
    know(region, 1, pools, part)?;
    Ok(own)
}

fn know(
    region: &Arc<Region>,
    workers: u16,
    pools: Vec<WorkerPool>,
    first: u16,
) -> Result<(), String> {
    let mut regions = REGIONS
        .lock()
        .map_err(|_| "a thread panicked while it made a mempool".to_owned())?;
    regions.push(RegionPools {
        ports: 0,
        region: Arc::clone(region),
        workers,
        pools,
        first,
    });
    Ok(())
}

/// Tells DPDK of the region's memory.
fn register(region: &Region) -> Result<(), String> {
    let page = if region.is_huge() { 2 << 20 } else { 4096 };
    // SAFETY: the mapping is `bytes` long, and `REGIONS` keeps it for the rest of the process.
    let error = unsafe { ffi::tg_memory(region.base().as_ptr().cast(), region.bytes(), page) };
    if error == 0 {
        Ok(())
    } else {
        let text = ffi::error_text(error);
        Err(format!("DPDK does not take the frames' memory: {text}"))
    }
}

fn make(region: &Region, name: &str, worker: u16, frames: u32) -> Result<WorkerPool, String> {
    const _: () = assert!(PREFIX_BYTES == 192, "as TG_PREFIX_BYTES in shim.c");
    let name = CString::new(name).unwrap_or_default();
    let first = usize::from(worker) * frames as usize * region.frame_bytes() as usize;
    // SAFETY: the worker's part lies inside the mapping: `frames * workers` is at most the region's.
    let base = unsafe { region.base().add(first) };
    // SAFETY: `frames` slots of `frame_bytes` follow `base`; only the object header and the mbuf of each,
    // which no `Frame` reaches, are written from now on but by who holds the slot's `Frame`.
    let pool = unsafe {
        ffi::tg_pool_new(
            name.as_ptr(),
            base.as_ptr().cast(),
            frames,
            region.frame_bytes(),
        )
    };
    NonNull::new(pool)
        .map(WorkerPool)
        .ok_or_else(|| format!("DPDK makes no mempool of {frames} frames"))
}
