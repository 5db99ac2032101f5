//! Carrier-grade NAT: the ports of subscribers in blocks, so that one log line a block tells who used a port (RFC
//! 6888 REQ-13 to 15, RFC 7768), or computed, so that no log is needed at all (RFC 7422).

use core::sync::atomic::{AtomicU64, Ordering};

use tables::port_allocator::{PortAllocator, PortLease};
use tables::quiescent::Domain;
use tables::signature::Keyed;
use tables::slots::{InsertError, SlotMap, SlotWorker};
use wire::Instant;

use super::mapping::{Endpoint, MappingError, NatWorker};

/// Events that wait to be taken, at most.
pub(super) const EVENTS_MAX: usize = 256;
/// The use count of a block that is being given back.
const DYING: u64 = 0xffff;

/// A block was given to a subscriber, or came back: the fields of RFC 8158 8.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// Given out; otherwise it came back.
    pub is_allocation: bool,
    /// Inner address.
    pub subscriber: u32,
    /// Outer address.
    pub outer: u32,
    /// First port.
    pub first_port: u16,
    /// Last port.
    pub last_port: u16,
    /// When.
    pub at: Instant,
}

/// Blocks that are drawn as subscribers need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlan {
    /// Ports of a block.
    pub size: u16,
    /// Blocks that one subscriber may have (RFC 6888 REQ-4).
    pub per_subscriber: u8,
    /// First port that is given out.
    pub first_port: u16,
    /// Last port.
    pub last_port: u16,
}

impl Default for BlockPlan {
    fn default() -> Self {
        Self {
            size: 512,
            per_subscriber: 4,
            first_port: 1024,
            last_port: u16::MAX,
        }
    }
}

impl BlockPlan {
    fn count(&self) -> u32 {
        let ports = u32::from(self.last_port.saturating_sub(self.first_port)) + 1;
        ports / u32::from(self.size.max(1))
    }

    fn range(&self, block: u32) -> (u16, u16) {
        let first = u32::from(self.first_port) + block * u32::from(self.size);
        (first as u16, (first + u32::from(self.size) - 1) as u16)
    }
}

/// Addresses and ports by computation: subscriber n of the inner range has the n-th share of the outer ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deterministic {
    /// First inner address.
    pub inner_first: u32,
    /// Number of inner addresses.
    pub inner_count: u32,
    /// First outer address.
    pub outer_first: u32,
    /// Number of outer addresses.
    pub outer_count: u32,
    /// First port that is given out.
    pub first_port: u16,
    /// Last port.
    pub last_port: u16,
}

impl Deterministic {
    /// Subscribers that share an outer address.
    const fn per_address(&self) -> u32 {
        let outer = if self.outer_count == 0 {
            1
        } else {
            self.outer_count
        };
        let share = self.inner_count.div_ceil(outer);
        if share == 0 { 1 } else { share }
    }

    /// Ports of one subscriber.
    const fn ports_each(&self) -> u32 {
        (self.last_port.saturating_sub(self.first_port) as u32 + 1) / self.per_address()
    }

    /// Returns the outer address and the first and last port of a subscriber.
    pub const fn forward(&self, inner: u32) -> Option<(u32, u16, u16)> {
        let n = inner.wrapping_sub(self.inner_first);
        let ports = self.ports_each();
        if inner < self.inner_first || n >= self.inner_count || ports == 0 {
            return None;
        }
        let first = self.first_port as u32 + n % self.per_address() * ports;
        let outer = self.outer_first + n / self.per_address();
        Some((outer, first as u16, (first + ports - 1) as u16))
    }

    /// Returns who has an outer endpoint: no log, no state, at any time (row 54).
    pub const fn reverse(&self, outer: u32, port: u16) -> Option<u32> {
        let address = outer.wrapping_sub(self.outer_first);
        let ports = self.ports_each();
        if outer < self.outer_first
            || address >= self.outer_count
            || port < self.first_port
            || ports == 0
        {
            return None;
        }
        let share = (port - self.first_port) as u32 / ports;
        let n = address * self.per_address() + share;
        if share >= self.per_address() || n >= self.inner_count {
            return None;
        }
        Some(self.inner_first + n)
    }
}

/// How subscribers get their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// In blocks, as they need them.
    Blocks(BlockPlan),
    /// By computation.
    Deterministic(Deterministic),
}

/// Who has which block, shared by all workers.
#[derive(Debug)]
pub struct Subscribers {
    plan: Plan,
    /// (subscriber, n) to (outer address number, block, uses).
    blocks: SlotMap<u64>,
    /// (outer address number, block) to subscriber: the insert decides who gets a block.
    owners: SlotMap<u64>,
}

/// A block record: outer address number (24), block (16), uses (16).
const fn pack(address: u32, block: u32, uses: u64) -> u64 {
    (address as u64) << 32 | (block as u64) << 16 | uses
}

impl Subscribers {
    /// Makes an empty table for up to `blocks` blocks in use.
    pub fn new(plan: Plan, blocks: usize, hash: Keyed, workers: usize) -> Self {
        let map = || SlotMap::new(blocks, hash, Domain::new(workers));
        Self {
            plan,
            blocks: map(),
            owners: map(),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The outer address that a subscriber has to have, if the plan says one.
    pub(super) fn address_of(&self, subscriber: u32) -> Option<Result<u32, MappingError>> {
        match &self.plan {
            Plan::Blocks(_) => None,
            Plan::Deterministic(plan) => {
                let there = plan.forward(subscriber);
                Some(
                    there
                        .map(|(outer, ..)| outer)
                        .ok_or(MappingError::Addresses),
                )
            }
        }
    }

    /// Counts the port of a mapping that was there before: its block is the subscriber's, as long as no other one's
    /// and there is a place for it. A port that is left out is given back without its block.
    pub(super) fn adopt(
        &self,
        (blocks, owners): &mut (SlotWorker, SlotWorker),
        subscriber: u32,
        index: u32,
        port: u16,
    ) {
        let Plan::Blocks(plan) = &self.plan else {
            return;
        };
        let Some(offset) = port.checked_sub(plan.first_port) else {
            return;
        };
        let block = u32::from(offset / plan.size.max(1));
        for n in 0..plan.per_subscriber {
            let key = subscriber_key(subscriber, n);
            let Some(found) = self.blocks.find(&key) else {
                let owner = owner_key(index, block);
                let is_ours = self
                    .owners
                    .insert(owners, &owner, &[subscriber.into()])
                    .is_ok();
                if is_ours {
                    let made = self.blocks.insert(blocks, &key, &[pack(index, block, 1)]);
                    if made.is_err() {
                        self.owners.remove(owners, &owner);
                    }
                }
                return;
            };
            let word = self.blocks.values(found).and_then(|words| words.first());
            if let Some(word) = word
                && word.load(Ordering::Relaxed) >> 16 == pack(index, block, 0) >> 16
            {
                add_use(word);
                return;
            }
        }
    }

    pub(super) fn join(&self) -> Option<(SlotWorker, SlotWorker)> {
        Some((self.blocks.join()?, self.owners.join()?))
    }

    pub(super) fn reclaim(&self, (blocks, owners): &mut (SlotWorker, SlotWorker)) {
        blocks.quiescent();
        owners.quiescent();
        self.blocks.reclaim(blocks);
        self.owners.reclaim(owners);
    }

    /// Draws a port for an inner endpoint on the outer address that it is paired with.
    pub(super) fn draw(
        &self,
        worker: &mut NatWorker,
        allocator: &PortAllocator,
        inner: Endpoint,
        (address, index): (u32, u32),
        random: u32,
        now: Instant,
    ) -> Result<PortLease, MappingError> {
        match &self.plan {
            Plan::Deterministic(plan) => {
                let (outer, first, last) =
                    plan.forward(inner.address).ok_or(MappingError::Addresses)?;
                if outer != address {
                    return Err(MappingError::Addresses);
                }
                take(allocator, index, (first, last), inner, random).ok_or(MappingError::HostLimit)
            }
            Plan::Blocks(plan) => {
                for n in 0..plan.per_subscriber {
                    let block =
                        self.block(worker, plan, inner, n, (address, index), (random, now))?;
                    if let Some(lease) = take(allocator, index, plan.range(block), inner, random) {
                        return Ok(lease);
                    }
                    self.end_use(worker, plan, inner.address, n, (address, now));
                }
                Err(MappingError::HostLimit)
            }
        }
    }

    /// Uses the subscriber's n-th block, or gets one.
    fn block(
        &self,
        worker: &mut NatWorker,
        plan: &BlockPlan,
        inner: Endpoint,
        n: u8,
        (address, index): (u32, u32),
        (random, now): (u32, Instant),
    ) -> Result<u32, MappingError> {
        let key = subscriber_key(inner.address, n);
        for _ in 0..4 {
            if let Some(found) = self.blocks.find(&key)
                && let Some(word) = self.blocks.values(found).and_then(|words| words.first())
            {
                match add_use(word) {
                    Some(block) => return Ok(block),
                    None => continue,
                }
            }
            let block = self.own_block(worker, plan, inner.address, index, random)?;
            let Some((blocks, owners)) = &mut worker.blocks else {
                return Err(MappingError::Table);
            };
            match self.blocks.insert(blocks, &key, &[pack(index, block, 1)]) {
                Ok(_) => {
                    let (first, last) = plan.range(block);
                    let event = BlockEvent {
                        is_allocation: true,
                        subscriber: inner.address,
                        outer: address,
                        first_port: first,
                        last_port: last,
                        at: now,
                    };
                    log(worker, event);
                    return Ok(block);
                }
                Err(error) => {
                    self.owners.remove(owners, &owner_key(index, block));
                    if !matches!(error, InsertError::Exists(_)) {
                        return Err(MappingError::Table);
                    }
                }
            }
        }
        Err(MappingError::Busy)
    }

    /// Becomes the owner of a free block of an outer address.
    fn own_block(
        &self,
        worker: &mut NatWorker,
        plan: &BlockPlan,
        subscriber: u32,
        index: u32,
        random: u32,
    ) -> Result<u32, MappingError> {
        let count = plan.count().max(1);
        let Some((_, owners)) = &mut worker.blocks else {
            return Err(MappingError::Table);
        };
        for step in 0..count {
            let block = (random.wrapping_add(step)) % count;
            match self
                .owners
                .insert(owners, &owner_key(index, block), &[subscriber.into()])
            {
                Ok(_) => return Ok(block),
                Err(InsertError::Exists(_)) => {}
                Err(_) => return Err(MappingError::Table),
            }
        }
        Err(MappingError::Ports)
    }

    /// A port of the subscriber came back.
    pub(super) fn give_back(
        &self,
        worker: &mut NatWorker,
        subscriber: u32,
        index: u32,
        outer: Endpoint,
        now: Instant,
    ) {
        let Plan::Blocks(plan) = &self.plan else {
            return;
        };
        let Some(offset) = outer.port.checked_sub(plan.first_port) else {
            return;
        };
        let block = u32::from(offset / plan.size.max(1));
        for n in 0..plan.per_subscriber {
            let found = self.blocks.find(&subscriber_key(subscriber, n));
            let word = found
                .and_then(|found| self.blocks.values(found))
                .and_then(|words| words.first());
            if word.is_some_and(|word| {
                word.load(Ordering::Relaxed) >> 16 == pack(index, block, 0) >> 16
            }) {
                self.end_use(worker, plan, subscriber, n, (outer.address, now));
                return;
            }
        }
    }

    /// Counts one use less; the last one gives the block back.
    fn end_use(
        &self,
        worker: &mut NatWorker,
        plan: &BlockPlan,
        subscriber: u32,
        n: u8,
        (outer, now): (u32, Instant),
    ) {
        let key = subscriber_key(subscriber, n);
        let Some(found) = self.blocks.find(&key) else {
            return;
        };
        let Some(word) = self.blocks.values(found).and_then(|words| words.first()) else {
            return;
        };
        let less = |word: u64| match word & DYING {
            0 | DYING => None,
            1 => Some(word | DYING),
            _ => Some(word - 1),
        };
        // Relaxed: the word is the whole state.
        let Ok(before) = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) else {
            return;
        };
        if before & DYING != 1 {
            return;
        }
        let (index, block) = ((before >> 32) as u32, (before >> 16) as u32 & 0xffff);
        let Some((blocks, owners)) = &mut worker.blocks else {
            return;
        };
        self.blocks.remove_ref(blocks, found);
        self.owners.remove(owners, &owner_key(index, block));
        let (first, last) = plan.range(block);
        let event = BlockEvent {
            is_allocation: false,
            subscriber,
            outer,
            first_port: first,
            last_port: last,
            at: now,
        };
        log(worker, event);
    }
}

/// Counts one use more and returns the block; `None` if it is being given back.
fn add_use(word: &AtomicU64) -> Option<u32> {
    let more = |word: u64| (word & DYING < DYING - 1 && word & DYING != 0).then_some(word + 1);
    let before = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    Some((before.ok()? >> 16) as u32 & 0xffff)
}

const fn subscriber_key(subscriber: u32, n: u8) -> u64 {
    1 << 48 | (n as u64) << 32 | subscriber as u64
}

const fn owner_key(index: u32, block: u32) -> u64 {
    1 << 48 | (index as u64) << 16 | block as u64
}

/// Takes a port in a range: the inner one if it lies there, else one of its parity, else any.
fn take(
    allocator: &PortAllocator,
    index: u32,
    (first, last): (u16, u16),
    inner: Endpoint,
    random: u32,
) -> Option<PortLease> {
    let own = PortLease {
        address: index,
        port: inner.port,
    };
    if (first..=last).contains(&inner.port) && allocator.allocate_exact(own) {
        return Some(own);
    }
    let start = first + (random % (u32::from(last - first) + 1)) as u16;
    let parity = Some(inner.port & 1);
    allocator
        .allocate_in_range(index, first..=last, start, parity)
        .or_else(|| allocator.allocate_in_range(index, first..=last, start, None))
}

fn log(worker: &mut NatWorker, event: BlockEvent) {
    if worker.events.len() < EVENTS_MAX {
        worker.events.push(event);
    } else {
        worker.events_lost += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_54_forward_and_reverse_agree_without_state() {
        let plan = Deterministic {
            inner_first: 0x6440_0000,
            inner_count: 1000,
            outer_first: 0xc000_0200,
            outer_count: 16,
            first_port: 1024,
            last_port: u16::MAX,
        };
        let mut used = std::collections::HashMap::new();
        for n in 0..1000 {
            let inner = plan.inner_first + n;
            let (outer, first, last) = plan.forward(inner).unwrap();
            assert!(last - first >= 1000, "{first}-{last}");
            for port in [first, last] {
                assert_eq!(plan.reverse(outer, port), Some(inner));
                assert_eq!(used.insert((outer, port), inner), None);
            }
        }
        assert_eq!(plan.forward(plan.inner_first + 1000), None);
        assert_eq!(plan.forward(plan.inner_first - 1), None);
        assert_eq!(plan.reverse(plan.outer_first + 16, 2000), None);
        assert_eq!(plan.reverse(plan.outer_first, 1023), None);
    }
}
