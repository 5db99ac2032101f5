//! Ports of translated addresses, given out at most once each (no overloading: RFC 4787 REQ-1 would need
//! endpoint-dependent mappings otherwise), in blocks of 64 that workers lease (RFC 7422 has the idea for
//! logging; here it keeps allocation private to a worker).

use crate::memory::{Memory, Plain};
use crate::sync::atomic::{AtomicU64, Ordering};
use core::ops::RangeInclusive;

/// Ports in a block: one word of bits.
const BLOCK_PORTS: u32 = 64;
#[cfg(not(loom))]
const BLOCKS: usize = 1 << 10;
/// Ports 0 to 127 keep loom's search small.
#[cfg(loom)]
const BLOCKS: usize = 2;

/// The ports of one address: 64 bits a block and a word for its lessee.
#[derive(Debug)]
pub struct AddressPorts {
    used: [AtomicU64; BLOCKS],
    lessee: [AtomicU64; BLOCKS],
}

// SAFETY: arrays of atomic integers without padding: every pattern of bits is valid.
unsafe impl Plain for AddressPorts {
    fn zeroed() -> Self {
        Self {
            used: Plain::zeroed(),
            lessee: Plain::zeroed(),
        }
    }
}

/// One translated port: which address of the pool, and the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortLease {
    /// Index of the address in the pool.
    pub address: u32,
    /// The port.
    pub port: u16,
}

/// Ports of a pool of addresses, shared by threads or processes. One bit a port: 16 KiB an address.
#[derive(Debug)]
pub struct PortAllocator {
    addresses: Memory<AddressPorts>,
    first_port: u16,
    last_port: u16,
    /// Takes bits by a load and a store: the model of what goes wrong then.
    #[cfg(loom)]
    without_swaps: bool,
}

/// A worker's leased blocks; one a worker, kept by it.
#[derive(Clone, Copy, Debug)]
pub struct PortWorker {
    /// Not zero.
    id: u64,
    /// Where to look first.
    address: u32,
    block: u32,
}

impl PortWorker {
    /// Makes the state of worker `index`; different for each worker.
    pub fn new(index: u32) -> Self {
        Self {
            id: u64::from(index) + 1,
            address: 0,
            // Spread, so that workers do not scan for free blocks in step.
            block: index.wrapping_mul(61) % BLOCKS as u32,
        }
    }
}

impl PortAllocator {
    /// Makes a pool of `addresses` addresses with ports `first_port..=last_port` each.
    pub fn new(addresses: usize, first_port: u16, last_port: u16) -> Self {
        Self::with_memory(Memory::heap(addresses), first_port, last_port)
    }

    /// Makes a pool of zeroed `memory`, or attaches to one that others use.
    pub fn with_memory(memory: Memory<AddressPorts>, first_port: u16, last_port: u16) -> Self {
        Self {
            addresses: memory,
            first_port,
            last_port,
            #[cfg(loom)]
            without_swaps: false,
        }
    }

    /// Takes over the memory of a pool that no process uses any more, and forgets which ports are in use and
    /// who leases which block: for pools that are made anew from the records of mappings.
    pub fn cleared(memory: Memory<AddressPorts>, first_port: u16, last_port: u16) -> Self {
        let pool = Self::with_memory(memory, first_port, last_port);
        for word in pool
            .addresses
            .iter()
            .flat_map(|ports| ports.used.iter().chain(&ports.lessee))
        {
            // Relaxed: nobody else uses the pool yet.
            word.store(0, Ordering::Relaxed);
        }
        pool
    }

    /// The variant that takes a bit by a load and a store, which the model shows to fail.
    #[cfg(loom)]
    #[must_use]
    pub fn without_swaps(mut self) -> Self {
        self.without_swaps = true;
        self
    }

    /// Takes a free port, from the worker's blocks while they have one, else from a block that nobody
    /// leases, else from any; `None` if all ports of all addresses are in use.
    pub fn allocate(&self, worker: &mut PortWorker) -> Option<PortLease> {
        self.allocate_at(worker, worker.address as usize, worker.block as usize)
            .or_else(|| self.lease_block(worker))
            .or_else(|| self.borrow_port(worker))
    }

    /// Takes a free port of one address of the pool (address pooling "paired", RFC 4787 REQ-2).
    pub fn allocate_from(&self, worker: &mut PortWorker, address: u32) -> Option<PortLease> {
        self.addresses.get(address as usize)?;
        if worker.address != address {
            worker.address = address;
        }
        let address = address as usize;
        let start = worker.block as usize;
        let blocks = || (0..BLOCKS).map(move |at| (start + at) % BLOCKS);
        blocks()
            .find_map(|block| self.allocate_at(worker, address, block))
            .or_else(|| {
                blocks().find_map(|block| self.take_bit(address, block, self.allowed(block)))
            })
    }

    /// Takes exactly this port (port preservation), if it is free; true if it was.
    pub fn allocate_exact(&self, lease: PortLease) -> bool {
        let (block, bit) = split(lease.port);
        let Some(ports) = self.addresses.get(lease.address as usize) else {
            return false;
        };
        #[cfg(loom)]
        assert!(block < BLOCKS, "models use ports below 128");
        let in_range = (self.first_port..=self.last_port).contains(&lease.port);
        in_range && self.set_bit(&ports.used[block], bit) & 1 << bit == 0
    }

    /// Takes a free port of one address in `range`, searching from `start` on and around; with `parity`, one
    /// that is even (0) or odd (1) like it (RFC 4787 REQ-4). A pass over at most 1,024 words. Leases of blocks
    /// do not count here.
    pub fn allocate_in_range(
        &self,
        address: u32,
        range: RangeInclusive<u16>,
        start: u16,
        parity: Option<u16>,
    ) -> Option<PortLease> {
        self.addresses.get(address as usize)?;
        let (first, last) = (
            (*range.start()).max(self.first_port),
            (*range.end()).min(self.last_port),
        );
        if first > last {
            return None;
        }
        let start = start.clamp(first, last);
        let mask = match parity {
            None => u64::MAX,
            Some(odd) => 0x5555_5555_5555_5555 << (odd & 1),
        };
        let upper = self.scan_range(address, start, last, mask);
        upper.or_else(|| {
            (start > first)
                .then(|| self.scan_range(address, first, start - 1, mask))
                .flatten()
        })
    }

    /// Takes the first free port of `first..=last` whose bit in its block is in `mask`.
    fn scan_range(&self, address: u32, first: u16, last: u16, mask: u64) -> Option<PortLease> {
        let (first_block, last_block) = (split(first).0, split(last).0);
        (first_block..=last_block).find_map(|block| {
            let allowed = bits_within(block, first, last) & mask;
            self.take_bit(address as usize, block, allowed)
        })
    }

    /// Gives a port back; false (and nothing changes) if it was not in use. Any worker may.
    pub fn release(&self, lease: PortLease) -> bool {
        let (block, bit) = split(lease.port);
        let Some(ports) = self.addresses.get(lease.address as usize) else {
            return false;
        };
        // AcqRel: the release half pairs with the acquire half of the `fetch_or` in `set_bit`.
        ports.used[block].fetch_and(!(1 << bit), Ordering::AcqRel) & 1 << bit != 0
    }

    /// Number of ports in use: a pass over the bits.
    pub fn in_use(&self) -> usize {
        self.addresses
            .iter()
            .flat_map(|ports| &ports.used)
            .map(|word| word.load(Ordering::Relaxed).count_ones() as usize)
            .sum()
    }

    /// Gives the blocks of a worker that is gone to others; its ports stay in use until released.
    pub fn release_blocks(&self, worker: PortWorker) {
        for lessee in self.addresses.iter().flat_map(|ports| &ports.lessee) {
            // Relaxed: a lease steers workers apart, it guards nothing.
            let _ = lessee.compare_exchange(worker.id, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn allocate_at(
        &self,
        worker: &mut PortWorker,
        address: usize,
        block: usize,
    ) -> Option<PortLease> {
        let lessee = &self.addresses.get(address)?.lessee[block];
        // Relaxed: as in `release_blocks`.
        let holder = lessee.load(Ordering::Relaxed);
        let ours = holder == worker.id
            || holder == 0
                && lessee
                    .compare_exchange(0, worker.id, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
        if !ours {
            return None;
        }
        let lease = self.take_bit(address, block, self.allowed(block))?;
        worker.block = block as u32;
        worker.address = address as u32;
        Some(lease)
    }

    fn lease_block(&self, worker: &mut PortWorker) -> Option<PortLease> {
        self.places(worker)
            .find_map(|(address, block)| self.allocate_at(worker, address, block))
    }

    fn borrow_port(&self, worker: &mut PortWorker) -> Option<PortLease> {
        self.places(worker)
            .find_map(|(address, block)| self.take_bit(address, block, self.allowed(block)))
    }

    /// All blocks of all addresses, from the worker's last on.
    fn places(&self, worker: &PortWorker) -> impl Iterator<Item = (usize, usize)> + use<> {
        let total = self.addresses.len() * BLOCKS;
        let start = worker.address as usize * BLOCKS + worker.block as usize;
        (0..total).map(move |at| {
            let at = (start + at) % total;
            (at / BLOCKS, at % BLOCKS)
        })
    }

    fn take_bit(&self, address: usize, block: usize, allowed: u64) -> Option<PortLease> {
        let used = &self.addresses[address].used[block];
        let mut seen = used.load(Ordering::Relaxed);
        loop {
            let free = !seen & allowed;
            if free == 0 {
                return None;
            }
            let bit = free.trailing_zeros();
            let before = self.set_bit(used, bit);
            if before & 1 << bit == 0 {
                return Some(PortLease {
                    address: address as u32,
                    port: (block as u32 * BLOCK_PORTS + bit) as u16,
                });
            }
            seen = before;
        }
    }

    /// Sets a bit and returns the word before.
    #[inline]
    fn set_bit(&self, used: &AtomicU64, bit: u32) -> u64 {
        #[cfg(loom)]
        if self.without_swaps {
            let before = used.load(Ordering::Acquire);
            used.store(before | 1 << bit, Ordering::Release);
            return before;
        }
        // AcqRel: the acquire half pairs with the release half of `release`: the last user is done with the
        // port. The release half keeps the chain of swaps whole.
        used.fetch_or(1 << bit, Ordering::AcqRel)
    }

    /// Bits of a block that lie in the allocator's range of ports.
    fn allowed(&self, block: usize) -> u64 {
        bits_within(block, self.first_port, self.last_port)
    }
}

/// Bits of a block whose ports lie in `first..=last`.
fn bits_within(block: usize, first: u16, last: u16) -> u64 {
    let start = block as u32 * BLOCK_PORTS;
    let (first, last) = (u32::from(first), u32::from(last));
    if first > last || start > last || start + BLOCK_PORTS <= first {
        return 0;
    }
    let above = u64::MAX << first.saturating_sub(start);
    let below = u64::MAX >> (start + BLOCK_PORTS - 1).saturating_sub(last);
    above & below
}

fn split(port: u16) -> (usize, u32) {
    (
        usize::from(port) / BLOCK_PORTS as usize,
        u32::from(port) % BLOCK_PORTS,
    )
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use std::collections::HashSet;

    #[test]
    fn every_port_is_given_once_and_comes_back() {
        let pool = PortAllocator::new(2, 1000, 1199);
        let mut worker = PortWorker::new(0);
        let mut leases = HashSet::new();
        while let Some(lease) = pool.allocate(&mut worker) {
            assert!((1000..=1199).contains(&lease.port));
            assert!(leases.insert(lease), "port given twice");
        }
        assert_eq!((leases.len(), pool.in_use()), (400, 400));
        let one = PortLease {
            address: 1,
            port: 1100,
        };
        assert!(!pool.allocate_exact(one));
        assert!(pool.release(one));
        assert!(!pool.release(one));
        assert!(!pool.allocate_exact(PortLease { port: 999, ..one }));
        assert_eq!(pool.allocate_from(&mut worker, 0), None);
        assert_eq!(pool.allocate_from(&mut worker, 1), Some(one));
        assert_eq!(pool.allocate_from(&mut worker, 2), None);
        assert_eq!(PortAllocator::new(0, 1, 9).allocate(&mut worker), None);
    }

    #[test]
    fn ranges_and_parity_are_kept_until_nothing_is_left() {
        let pool = PortAllocator::new(1, 1, u16::MAX);
        let mut ports = HashSet::new();
        while let Some(lease) = pool.allocate_in_range(0, 100..=899, 500, Some(1)) {
            assert!(lease.port % 2 == 1 && (100..=899).contains(&lease.port));
            assert!(ports.insert(lease.port), "port given twice");
        }
        assert_eq!(ports.len(), 400);
        let first = pool.allocate_in_range(0, 100..=899, 500, None);
        assert_eq!(first.map(|lease| lease.port), Some(500));
        while pool.allocate_in_range(0, 100..=899, 0, None).is_some() {}
        assert_eq!(pool.in_use(), 800);
        assert_eq!(pool.allocate_in_range(1, 100..=899, 500, None), None);
        let all = pool.allocate_in_range(0, 0..=u16::MAX, u16::MAX, None);
        assert_eq!(all.map(|lease| lease.port), Some(u16::MAX));
        let around = pool.allocate_in_range(0, 0..=u16::MAX, u16::MAX, None);
        assert_eq!(around.map(|lease| lease.port), Some(1));
    }

    #[test]
    fn two_workers_never_get_one_port() {
        let pool = Arc::new(PortAllocator::new(1, 1024, u16::MAX));
        let threads = [0, 1].map(|index| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || {
                let mut worker = PortWorker::new(index);
                core::iter::from_fn(|| pool.allocate(&mut worker)).collect::<Vec<_>>()
            })
        });
        let leases: Vec<_> = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect();
        let distinct: HashSet<_> = leases.iter().copied().collect();
        assert_eq!((leases.len(), distinct.len()), (64_512, 64_512));
    }
}
