//! Lookups: exact, by prefix, fresh, by implicit digest; alone and in batches.

use crate::hash::PrefixHash;
use crate::node::{Node, PACKET_HEADER_BYTES, Packet, bound_at};
use crate::remove::DIGEST_BYTES;
use crate::slab::class_of;
use crate::stats::Counter;
use crate::store::flags;
use crate::sync::atomic::Ordering;
use crate::worker::{Local, Reader, Worker};
use alloc::boxed::Box;
use core::cell::{Cell, RefCell};
use core::fmt;
use sha2::{Digest, Sha256};
use wire::Instant;
use wire::ndn::NameRef;

/// Lookups of a batch that are in flight together.
const STAGE: usize = 32;

/// What an Interest asks the store for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The Interest's name; its last component may be an implicit digest.
    pub name: NameRef<'a>,
    /// A packet whose name the Interest's is a prefix of will do.
    pub can_be_prefix: bool,
    /// Only a packet that is fresh will do.
    pub must_be_fresh: bool,
}

impl<'a> Query<'a> {
    /// Asks for the packet of exactly this name, fresh or stale.
    pub const fn exact(name: NameRef<'a>) -> Self {
        Self {
            name,
            can_be_prefix: false,
            must_be_fresh: false,
        }
    }

    /// Asks for any packet at or below this name, fresh or stale.
    pub const fn prefix(name: NameRef<'a>) -> Self {
        Self {
            name,
            can_be_prefix: true,
            must_be_fresh: false,
        }
    }
}

/// A view of a stored packet. It borrows the [`Worker`], so that the packet stays where it is, even if it is
/// evicted meanwhile, until the view is gone and the worker reports.
#[derive(Clone, Copy)]
pub struct Hit<'a> {
    packet: Packet<'a>,
}

impl<'a> Hit<'a> {
    /// Returns the packet, as it was inserted: not copied.
    #[inline]
    pub fn packet(&self) -> &'a [u8] {
        self.packet.bytes(0, self.packet.lengths().packet)
    }

    /// Returns the packet's name (TLV-VALUE).
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.packet.name()
    }

    /// Returns when the packet stops (or stopped) being fresh; `None` if it never was.
    pub fn fresh_until(&self) -> Option<Instant> {
        match self.packet.fresh_until_ns() {
            0 => None,
            ns => Some(Instant::from_ns(ns)),
        }
    }

    /// True while the packet is fresh.
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.packet.fresh_until_ns() > now.as_ns()
    }
}

impl fmt::Debug for Hit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hit")
            .field("packet_bytes", &self.packet.lengths().packet)
            .field("fresh_until", &self.fresh_until())
            .finish_non_exhaustive()
    }
}

/// Packets that a worker remembers to have expected.
const EXPECTED: usize = 2048;
/// One hit in so many that was expected pays for the memory that was asked for in vain.
const WORTH: i32 = 8;
/// The score is kept within this.
const SCORE_MAX: i32 = 256;

/// Whether a worker's lookups go from segment to segment, so that reading ahead is worth its memory accesses.
#[derive(Debug)]
pub(crate) struct Ahead {
    expected: Box<[Cell<u32>]>,
    score: Cell<i32>,
}

impl Ahead {
    pub(crate) fn new() -> Self {
        Self {
            expected: (0..EXPECTED).map(|_| Cell::new(0)).collect(),
            score: Cell::new(SCORE_MAX),
        }
    }

    fn slot(&self, node: Node) -> Option<&Cell<u32>> {
        let spread = node.0.wrapping_mul(0x9e37_79b1) >> 16;
        self.expected.get(spread as usize % EXPECTED)
    }

    /// Notes a hit and what may be asked for next; true if hits were expected often enough lately.
    #[inline(always)]
    fn expects(&self, hit: Node, next: Node) -> bool {
        let was_expected = self.slot(hit).is_some_and(|slot| slot.get() == hit.0);
        let change = if was_expected { WORTH } else { -1 };
        let score = (self.score.get() + change).clamp(-SCORE_MAX, SCORE_MAX);
        self.score.set(score);
        if !next.is_none()
            && let Some(slot) = self.slot(next)
        {
            slot.set(next.0);
        }
        score > 0
    }
}

impl Worker {
    /// Finds the packet that answers an Interest: the one of exactly this name, or with CanBePrefix the first
    /// in canonical order at or below it. Writes no memory that other workers read, but for the first three
    /// hits of a packet.
    ///
    /// An exact lookup finds what is stored. A lookup by prefix finds a packet whenever one that answers was
    /// stored throughout the lookup.
    #[inline]
    pub fn lookup(&self, query: &Query<'_>, now: Instant) -> Option<Hit<'_>> {
        let hash = self.shared.hash.hash(query.name.value());
        self.reader()
            .answer(query, hash, Node::NONE, now.as_ns(), self)
    }

    /// Finds the packet of exactly this name for whoever keeps a copy of it: no lookup in the counters, and no use for
    /// the replacement policy.
    pub fn peek(&self, name: NameRef<'_>) -> Option<Hit<'_>> {
        let reader = self.reader();
        if reader.shared.flags.load(Ordering::Relaxed) & flags::SERVE == 0 {
            return None;
        }
        let hash = reader.shared.hash.hash(name.value());
        let packet = reader.find_exact(hash, name.value())?;
        Some(Hit { packet })
    }

    /// As [`peek`](Self::peek), and tells the replacement policy that the packet was used; false if there is none.
    pub fn touch(&self, name: NameRef<'_>) -> bool {
        let hit = self.peek(name);
        if let Some(hit) = hit {
            self.shared.queues.touch(&self.shared.arena, hit.packet);
        }
        hit.is_some()
    }

    /// Looks up many Interests with their memory accesses overlapped; writes what [`lookup`](Self::lookup)
    /// would find to the same place of `hits`. Stops at the shorter of the two.
    pub fn lookup_batch<'a>(
        &'a self,
        queries: &[Query<'_>],
        now: Instant,
        hits: &mut [Option<Hit<'a>>],
    ) {
        let reader = self.reader();
        let shared = reader.shared;
        for (queries, hits) in queries.chunks(STAGE).zip(hits.chunks_mut(STAGE)) {
            let mut hashes = [PrefixHash::default(); STAGE];
            for (hash, query) in hashes.iter_mut().zip(queries) {
                *hash = shared.hash.hash(query.name.value());
                shared.table.prefetch(hash.bucket_part());
            }
            let mut candidates = [Node::NONE; STAGE];
            for ((candidate, hash), query) in candidates.iter_mut().zip(&hashes).zip(queries) {
                *candidate = shared.table.candidate(*hash, false);
                if !candidate.is_none() {
                    reader.prefetch_packet(*candidate, query.name.value().len());
                }
            }
            let found = hashes.iter().zip(&candidates).zip(queries);
            for (((hash, candidate), query), hit) in found.zip(hits.iter_mut()) {
                *hit = reader.answer(query, *hash, *candidate, now.as_ns(), self);
            }
        }
    }

    /// As [`lookup`](Self::lookup), with the hash of the name that [`look_ahead`](Self::look_ahead) returned: with
    /// that of another name nothing is found.
    #[inline]
    pub fn lookup_hashed(
        &self,
        query: &Query<'_>,
        hash: PrefixHash,
        now: Instant,
    ) -> Option<Hit<'_>> {
        self.reader()
            .answer(query, hash, Node::NONE, now.as_ns(), self)
    }

    /// Hashes a name and asks for the memory that a lookup or an insertion under it reads first. Who has a burst of
    /// packets calls this for all, then [`look_closer`](Self::look_closer) for all, then looks them up or inserts them:
    /// their memory accesses overlap.
    #[inline]
    pub fn look_ahead(&self, name: NameRef<'_>) -> PrefixHash {
        let hash = self.shared.hash.hash(name.value());
        self.shared.table.prefetch(hash.bucket_part());
        hash
    }

    /// Asks for the memory of the packet that a name of this hash may have; false if there is none such in the
    /// hash's bucket, where nearly all are.
    #[inline]
    pub fn look_closer(&self, hash: PrefixHash) -> bool {
        let candidate = self.shared.table.candidate(hash, false);
        if candidate.is_none() {
            return false;
        }
        let arena = &self.shared.arena;
        arena.prefetch(candidate.place(), 0);
        arena.prefetch(candidate.place(), 64);
        true
    }
}

impl<'a> Reader<'a> {
    #[inline]
    fn answer(
        &self,
        query: &Query<'_>,
        hash: PrefixHash,
        candidate: Node,
        now_ns: u64,
        worker: &Worker,
    ) -> Option<Hit<'a>> {
        let found = self.find(query, hash, candidate, now_ns, worker);
        match found {
            Some(packet) => {
                self.shared.queues.touch(&self.shared.arena, packet);
                self.add(Counter::Hit, 1);
            }
            None => self.add(Counter::Miss, 1),
        }
        found.map(|packet| Hit { packet })
    }

    #[inline]
    fn find(
        &self,
        query: &Query<'_>,
        hash: PrefixHash,
        candidate: Node,
        now_ns: u64,
        worker: &Worker,
    ) -> Option<Packet<'a>> {
        if self.shared.flags.load(Ordering::Relaxed) & flags::SERVE == 0 {
            return None;
        }
        let is_fresh =
            |packet: Packet<'_>| !query.must_be_fresh || packet.fresh_until_ns() > now_ns;
        let name = query.name.value();
        let exact = match candidate {
            Node::NONE => self.find_exact(hash, name),
            node if self.packet(node).name() == name => Some(self.packet(node)),
            _ => self.find_exact(hash, name),
        };
        if let Some(packet) = exact
            && is_fresh(packet)
        {
            self.read_ahead(packet, hash, name.len(), &worker.ahead);
            return Some(packet);
        }
        if let (prefix, Some(digest)) = query.name.split_implicit_digest() {
            let hash = self.shared.hash.hash(prefix.value());
            let packet = self.find_exact(hash, prefix.value())?;
            let is_it = is_fresh(packet) && self.digest(packet, &worker.local) == *digest;
            return is_it.then_some(packet);
        }
        if !query.can_be_prefix {
            return None;
        }
        let top = self.inner(hash)?;
        let least = if query.must_be_fresh {
            bound_at(now_ns)
        } else {
            0
        };
        let found = self.search_below(top, least, |packet| {
            Self::is_alive(packet) && is_fresh(packet)
        });
        // Two prefixes of one 128-bit hash: never seen, but never answered wrong either.
        found.filter(|packet| packet.name().starts_with(name))
    }

    /// Finds the packet of a name.
    #[inline(always)]
    pub(crate) fn find_exact(&self, hash: PrefixHash, name: &[u8]) -> Option<Packet<'a>> {
        let found = self.shared.table.find(hash, |node: Node| {
            if node.is_inner() {
                return false;
            }
            self.prefetch_packet(node, name.len());
            self.packet(node).name() == name
        });
        found.map(|node| self.packet(node))
    }

    /// Asks for a packet's header with the name, and for what follows a name of so many bytes.
    #[inline(always)]
    pub(crate) fn prefetch_packet(&self, node: Node, name_bytes: usize) {
        let arena = &self.shared.arena;
        arena.prefetch(node.place(), 0);
        arena.prefetch(node.place(), PACKET_HEADER_BYTES + 16 + name_bytes);
    }

    /// Asks for what a lookup of the next name will touch, if that is worth it: who fetches a file asks for one
    /// segment after the other, with those of other files in between.
    #[inline(always)]
    fn read_ahead(&self, packet: Packet<'_>, hash: PrefixHash, name_bytes: usize, ahead: &Ahead) {
        let next = packet.successor();
        if ahead.expects(packet.node, next) {
            self.shared.table.prefetch_after(hash.bucket_part());
            if !next.is_none() {
                self.prefetch_packet(next, name_bytes);
            }
        }
    }

    /// The SHA-256 of a packet, computed once and kept with it if there is memory.
    fn digest(&self, packet: Packet<'_>, local: &RefCell<Local>) -> [u8; DIGEST_BYTES] {
        let arena = &self.shared.arena;
        let place = packet.digest_place();
        if !place.is_none() {
            // SAFETY: a published digest is not written before its packet's grace period has passed.
            let bytes = unsafe { arena.bytes(place, 0, DIGEST_BYTES) };
            if let Some(digest) = bytes.first_chunk() {
                return *digest;
            }
        }
        let digest: [u8; DIGEST_BYTES] =
            Sha256::digest(packet.bytes(0, packet.lengths().packet)).into();
        self.add(Counter::Digest, 1);
        let mut local = local.borrow_mut();
        let class = class_of(DIGEST_BYTES);
        if let Some(place) = local.take(self.shared, class) {
            // SAFETY: the place is ours until it is offered.
            unsafe { arena.write(place, 0, &digest) };
            if !packet.offer_digest(place) {
                local.give(self.shared, class, place);
            }
        }
        digest
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn reading_ahead_stops_where_nothing_follows_and_begins_again() {
        let ahead = Ahead::new();
        let node = |number: u32| Node(2 * number);
        for number in 0..1000 {
            assert!(ahead.expects(node(number), node(number + 1)), "{number}");
        }
        // Hits here and there.
        let mut last = true;
        for number in 0..2000 {
            last = ahead.expects(node(number * 7919 % 65_536), node(70_000 + number));
        }
        assert!(!last);
        for number in 100_000..100_200 {
            last = ahead.expects(node(number), node(number + 1));
        }
        assert!(last);
    }
}
