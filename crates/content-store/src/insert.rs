//! Insertion: room is made, the packet copied, published in its bucket, linked into the trie and queued.

use crate::config::{Origin, Refusal, UnsolicitedPolicy};
use crate::evict::Context;
use crate::hash::PrefixHash;
use crate::node::{Lengths, NewPacket, Node, PACKET_HEADER_BYTES, Packet, bound_of, state};
use crate::slab::class_bytes;
use crate::stats::Counter;
use crate::store::flags;
use crate::sync::atomic::Ordering;
use crate::worker::{COMPONENTS_MAX, Worker, Writer};
use wire::Instant;
use wire::ndn::{NameRef, PACKET_BYTES_MAX};

/// Evictions that one insertion makes to get within the capacity.
const EVICTIONS_MAX: usize = 64;
/// Times that an insertion that ran out of memory while linking evicts and starts again.
const ATTEMPTS_MAX: usize = 8;
/// Insertions of a batch that are in flight together.
const STAGE: usize = 32;

/// A Data packet to store.
#[derive(Clone, Copy, Debug)]
pub struct NewData<'a> {
    /// The whole packet, which is copied.
    pub packet: &'a [u8],
    /// The packet's name, which lies in `packet`.
    pub name: NameRef<'a>,
    /// FreshnessPeriod (ms), 0 if the packet has none.
    pub freshness_ms: u64,
    /// Where the packet came from if no pending Interest asked for it.
    pub unsolicited: Option<Origin>,
    /// The packet arrived with CachePolicy NoCache (NDNLPv2).
    pub no_cache: bool,
}

impl<'a> NewData<'a> {
    /// Describes a packet that an Interest asked for and that may be cached.
    pub fn new(packet: &'a [u8], name: NameRef<'a>, freshness_ms: u64) -> Self {
        Self {
            packet,
            name,
            freshness_ms,
            unsolicited: None,
            no_cache: false,
        }
    }
}

/// What an insertion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The name had no packet.
    New,
    /// The packet took the place of another of the same name.
    Replaced,
}

/// An insertion, checked and hashed.
#[derive(Clone, Copy)]
struct Plan<'a> {
    data: NewData<'a>,
    lengths: Lengths,
    hash: PrefixHash,
    parent: PrefixHash,
}

impl Worker {
    /// Stores a copy of a packet under its name, in place of the packet of that name if there is one; evicts
    /// others if it must. O(bytes of the packet and components of the name); allocates nothing. A lookup that
    /// begins after this returns finds the packet until it is evicted, replaced or erased.
    ///
    /// # Errors
    /// [`Refusal`]: the packet is not stored, and of the same name nothing is either if room ran out half way.
    pub fn insert(&mut self, data: &NewData<'_>, now: Instant) -> Result<Inserted, Refusal> {
        let mut writer = self.writer();
        writer.settle();
        let result = match writer.plan(data) {
            Ok(plan) => {
                writer.prefetch_buckets(&plan);
                writer.insert_planned(&plan, now.as_ns(), true)
            }
            Err(refusal) => Err(refusal),
        };
        writer.note(result);
        result
    }

    /// Stores packets as [`insert`](Self::insert) does, one after the other, with their memory accesses
    /// overlapped; writes each result to the same place of `results`. Stops at the shorter of the two.
    pub fn insert_batch(
        &mut self,
        data: &[NewData<'_>],
        now: Instant,
        results: &mut [Result<Inserted, Refusal>],
    ) {
        let now_ns = now.as_ns();
        let mut writer = self.writer();
        for (data, results) in data.chunks(STAGE).zip(results.chunks_mut(STAGE)) {
            writer.settle();
            let mut plans = [Err(Refusal::NotAdmitted); STAGE];
            for (plan, data) in plans.iter_mut().zip(data) {
                *plan = writer.plan(data);
                if let Ok(plan) = plan {
                    writer.prefetch_buckets(plan);
                }
            }
            writer.prefetch_stages(plans.get(..data.len()).unwrap_or_default());
            for ((plan, result), _) in plans.iter().zip(results.iter_mut()).zip(data) {
                *result = match plan {
                    Ok(plan) => writer.insert_planned(plan, now_ns, false),
                    Err(refusal) => Err(*refusal),
                };
                writer.note(*result);
            }
        }
    }
}

impl Writer<'_> {
    /// Asks, level by level, for what a batch of insertions will touch: victims and parents, their buckets
    /// and the ends of their trees of children.
    fn prefetch_stages(&mut self, plans: &[Result<Plan<'_>, Refusal>]) {
        let shared = self.reader.shared;
        let evicts = if self.is_over(plans.len() as i64, 0) {
            plans.len()
        } else {
            0
        };
        // Of victims a level a batch, as it is known long before which they are.
        let mut parents = [Node::NONE; STAGE];
        for (at, (parent, plan)) in parents.iter_mut().zip(plans).enumerate() {
            if at < evicts {
                self.prefetch_victim(at + 2 * STAGE, 0);
                self.prefetch_victim(at + STAGE, 1);
            }
            if let Ok(plan) = plan {
                *parent = shared.table.candidate(plan.parent, true);
                shared.arena.prefetch(parent.place(), 0);
            }
        }
        for (at, parent) in parents.iter().enumerate().take(plans.len()) {
            if at < evicts {
                self.prefetch_victim(at, 2);
            }
            if !parent.is_none() {
                self.children(*parent).prefetch_end(true);
            }
        }
    }

    /// Asks for what the eviction of the packet that is `from` behind the next one to leave will touch; the level
    /// before should be there: its header; its name, bucket and parent; the first of the parent's children, as packets
    /// leave mostly in the order in which they came.
    #[inline]
    fn prefetch_victim(&self, from: usize, level: usize) {
        let shared = self.reader.shared;
        let victim = shared.queues.peek_victim(from);
        if victim.is_none() {
            return;
        }
        let packet = self.packet(victim);
        match level {
            0 => shared.arena.prefetch(victim.place(), 0),
            1 => {
                shared.table.prefetch(packet.bucket_part());
                let lengths = packet.lengths();
                let last_at = PACKET_HEADER_BYTES + lengths.name_at + lengths.last_at;
                shared.arena.prefetch(victim.place(), last_at);
                shared.arena.prefetch(packet.parent().place(), 0);
            }
            _ => {
                let parent = packet.parent();
                if !parent.is_none() {
                    self.children(parent).prefetch_end(false);
                }
            }
        }
    }

    /// Asks, one level of each, for what the evictions of the next insertions will touch.
    #[inline]
    fn prefetch_next_victims(&self) {
        for (level, from) in [(0, 5), (1, 3), (2, 1)] {
            self.prefetch_victim(from, level);
        }
        self.shared.queues.prefetch_ring();
    }

    fn note(&self, result: Result<Inserted, Refusal>) {
        self.add(
            match result {
                Ok(Inserted::New) => Counter::Inserted,
                Ok(Inserted::Replaced) => Counter::Replaced,
                Err(_) => Counter::Refused,
            },
            1,
        );
    }

    /// Checks what can be known without the tables, and hashes the name.
    fn plan<'a>(&self, data: &NewData<'a>) -> Result<Plan<'a>, Refusal> {
        let word = self.shared.flags.load(Ordering::Relaxed);
        if word & flags::ADMIT == 0 {
            return Err(Refusal::NotAdmitted);
        }
        if data.no_cache {
            return Err(Refusal::NoCache);
        }
        let policy = UnsolicitedPolicy::from_number(word >> flags::UNSOLICITED_SHIFT & 3);
        if data
            .unsolicited
            .is_some_and(|origin| !policy.admits(origin))
        {
            return Err(Refusal::Unsolicited);
        }
        if data.packet.is_empty() || data.packet.len() > PACKET_BYTES_MAX {
            return Err(Refusal::Length);
        }
        if data.name.is_empty() || data.name.len() > COMPONENTS_MAX {
            return Err(Refusal::Components);
        }
        let name = data.name.value();
        let name_at = name
            .as_ptr()
            .addr()
            .wrapping_sub(data.packet.as_ptr().addr());
        if name_at
            .checked_add(name.len())
            .is_none_or(|end| end > data.packet.len())
        {
            return Err(Refusal::NameOutside);
        }
        let last_at = last_component_at(data.name);
        let (hash, parent) = self.shared.hash.hash_with_prefix(name, last_at);
        Ok(Plan {
            data: *data,
            lengths: Lengths {
                packet: data.packet.len(),
                name_at,
                name: name.len(),
                last_at,
            },
            hash,
            parent,
        })
    }

    #[inline]
    fn prefetch_buckets(&self, plan: &Plan<'_>) {
        let table = &self.shared.table;
        table.prefetch(plan.hash.bucket_part());
        table.prefetch(plan.parent.bucket_part());
        table.prefetch_after(plan.hash.bucket_part());
    }

    fn insert_planned(
        &mut self,
        plan: &Plan<'_>,
        now_ns: u64,
        is_alone: bool,
    ) -> Result<Inserted, Refusal> {
        let mut last = Refusal::NoMemory;
        for _ in 0..ATTEMPTS_MAX {
            match self.insert_once(plan, now_ns, is_alone) {
                Err(Refusal::NoMemory) => {
                    // Linking needs memory, but must not evict while it holds locks.
                    self.evict(now_ns)?;
                    self.settle_all();
                }
                Err(other) => return Err(other),
                Ok(inserted) => return Ok(inserted),
            }
            last = Refusal::NoMemory;
        }
        Err(last)
    }

    fn insert_once(
        &mut self,
        plan: &Plan<'_>,
        now_ns: u64,
        is_alone: bool,
    ) -> Result<Inserted, Refusal> {
        let rule = self.rule(plan);
        let class = plan.lengths.class();
        self.make_room(class_bytes(class) as i64, now_ns)?;
        self.stash_chunks(now_ns)?;
        // One packet alone: its parent and that one's children arrive while it is copied and published.
        let mut parent = Node::NONE;
        if is_alone {
            parent = self.shared.table.candidate(plan.parent, true);
            self.shared.arena.prefetch(parent.place(), 0);
        }
        let place = self.allocate(class, now_ns)?;
        let fresh_until_ns = match plan.data.freshness_ms {
            0 => 0,
            ms => now_ns.saturating_add(ms.saturating_mul(1_000_000)),
        };
        let unsolicited = plan.data.unsolicited.map_or(0, |_| state::UNSOLICITED);
        let shared = self.reader.shared;
        let new = NewPacket {
            bytes: plan.data.packet,
            lengths: plan.lengths,
            bucket_part: plan.hash.bucket_part(),
            fresh_until_ns,
            state: state::LOCK | unsolicited | rule,
        };
        let packet = Packet::write(&shared.arena, place, &new);
        self.local.prefetch_next(shared, class);
        if !parent.is_none() {
            self.children(parent).prefetch_end(true);
        }
        let old = match self.publish(packet.node, plan) {
            Ok(old) => old,
            Err(refusal) => {
                self.local.give(shared, class, place);
                return Err(refusal);
            }
        };
        if is_alone && self.is_over(1, 0) {
            self.prefetch_next_victims();
        }
        if let Some(number) = ((rule & state::RULE) >> state::RULE_SHIFT).checked_sub(1) {
            shared.rules.add(number as usize, 1);
        }
        self.local.count(shared, 1, 0);
        let bound = bound_of(fresh_until_ns);
        let linked = self.link(packet.node, plan.data.name, plan.parent, bound, now_ns);
        let mut context = Context {
            arena: &shared.arena,
            runs: &mut self.local.runs,
            now_ns,
        };
        let queued = linked.is_ok() && shared.queues.admit(&mut context, packet);
        let result = match (linked, queued) {
            (Ok((before, after)), true) => {
                if !after.is_none() && !after.is_inner() {
                    packet.set_successor(after);
                }
                packet.unlock(0, 0);
                if !before.is_inner() {
                    self.tell_follows((before, packet.node));
                }
                Ok(match old {
                    Some(_) => Inserted::Replaced,
                    None => Inserted::New,
                })
            }
            (linked, _) => {
                self.withdraw(packet);
                Err(linked.err().unwrap_or(Refusal::NoMemory))
            }
        };
        if let Some(old) = old {
            self.finish_removal(old);
        }
        result
    }

    /// Undoes a publication whose packet could not be linked or queued; the caller locked its state.
    fn withdraw(&mut self, packet: Packet<'_>) {
        if self.take_out(packet.node) {
            self.finish_locked(packet);
        } else {
            // Somebody replaced or removed it, and waits for the lock to finish.
            packet.unlock(0, 0);
        }
    }

    /// Puts a packet into its bucket; returns the packet of the same name whose slot it took.
    fn publish(&self, node: Node, plan: &Plan<'_>) -> Result<Option<Node>, Refusal> {
        let name = plan.data.name.value();
        let bucket = self.shared.table.lock(plan.hash.bucket_part());
        let old = bucket.find(plan.hash.tag(), |node| {
            !node.is_inner() && self.packet(node).name() == name
        });
        match old {
            Some((slot, old)) => {
                slot.set(plan.hash.tag(), node);
                Ok(Some(old))
            }
            None => {
                let slot = bucket.free().map_err(|_| Refusal::TableFull)?;
                slot.set(plan.hash.tag(), node);
                Ok(None)
            }
        }
    }

    /// Evicts until a packet of so many bytes fits the capacity.
    fn make_room(&mut self, bytes: i64, now_ns: u64) -> Result<(), Refusal> {
        for _ in 0..EVICTIONS_MAX {
            if !self.is_over(1, bytes) {
                return Ok(());
            }
            self.evict(now_ns)?;
        }
        // The capacity was lowered: later insertions, or `trim`, do the rest.
        Ok(())
    }

    /// The state's bits for the rule that the packet falls under; makes room in its quota.
    fn rule(&mut self, plan: &Plan<'_>) -> u64 {
        if !self.shared.rules.any() {
            return 0;
        }
        let shared = self.reader.shared;
        let trail = &mut self.local.trail;
        trail.fill(shared, plan.data.name);
        let hashes = trail.hashes.get(..trail.len).unwrap_or_default();
        let Some((number, entry)) = shared.rules.of(hashes) else {
            return 0;
        };
        if let Some(quota) = entry.rule.quota_packets {
            let prefix = plan.data.name.prefix(entry.components);
            let is_there = self.find_exact(plan.hash, plan.data.name.value()).is_some();
            let room = quota.saturating_sub(u64::from(!is_there));
            for _ in 0..EVICTIONS_MAX {
                if shared.rules.count(number) <= room {
                    break;
                }
                let Some(node) = self.any_at_or_below(prefix) else {
                    break;
                };
                if self.remove(node) {
                    self.add(Counter::Evicted, 1);
                }
            }
        }
        let pinned = if entry.rule.pinned { state::PINNED } else { 0 };
        (number as u64 + 1) << state::RULE_SHIFT | pinned
    }
}

/// Where the last component of a name begins.
fn last_component_at(name: NameRef<'_>) -> usize {
    let bytes = name.value();
    let mut at = 0;
    // Nearly all components have a type and a length of one byte.
    while let Some([0..253, len @ 0..253]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let next = at + 2 + usize::from(*len);
        if next >= bytes.len() {
            return at;
        }
        at = next;
    }
    let last = name.components().last();
    bytes.len() - last.map_or(0, |last| last.bytes.len())
}
