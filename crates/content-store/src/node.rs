//! What lies in the arena: packets and inner nodes of the name trie, as words.
//!
//! | word | packet | inner node |
//! | --- | --- | --- |
//! | 0 | hash's bucket half, parent | low half of the prefix's hash |
//! | 1 | lengths | high half |
//! | 2 | fresh until (ns) | sequence lock |
//! | 3 | digest's place, state | parent, children's root |
//! | 4 | next, place in a queue (in a ring: the packet that follows by name, for reading ahead) | bound announced to the parent, exact bound |
//! | 5 | the packet's bytes | lengths, height of the children's tree |
//! | 6 | | first and last leaf of the children's tree |
//! | 7 | | the last component |

use crate::arena::{Arena, Bytes, Place};
use crate::slab::class_of;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a packet's header.
pub(crate) const PACKET_HEADER_BYTES: usize = 40;
/// Bytes of an inner node's header.
pub(crate) const INNER_HEADER_BYTES: usize = 56;

/// A packet or an inner node: its place and which of the two it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(pub(crate) u32);

impl Node {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn packet(place: Place) -> Self {
        Self(place.0 << 1)
    }
    pub(crate) const fn inner(place: Place) -> Self {
        Self(place.0 << 1 | 1)
    }
    #[inline(always)]
    pub(crate) const fn place(self) -> Place {
        Place(self.0 >> 1)
    }
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
    pub(crate) const fn is_inner(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The place in a queue of a packet that is in none.
const NO_POSITION: u32 = u32::MAX;

/// Sizes of a packet; they never change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    /// Bytes of the packet.
    pub(crate) packet: usize,
    /// Where the name's TLV-VALUE begins in the packet.
    pub(crate) name_at: usize,
    /// Bytes of the name's TLV-VALUE.
    pub(crate) name: usize,
    /// Where the last component begins in the name.
    pub(crate) last_at: usize,
}

impl Lengths {
    const fn pack(self) -> u64 {
        self.packet as u64
            | (self.name_at as u64) << 14
            | (self.name as u64) << 28
            | (self.last_at as u64) << 42
    }
    const fn unpack(word: u64) -> Self {
        const MASK: u64 = (1 << 14) - 1;
        Self {
            packet: (word & MASK) as usize,
            name_at: (word >> 14 & MASK) as usize,
            name: (word >> 28 & MASK) as usize,
            last_at: (word >> 42 & MASK) as usize,
        }
    }
    /// The slab class of such a packet.
    pub(crate) const fn class(self) -> usize {
        class_of(PACKET_HEADER_BYTES + self.packet)
    }
}

/// Bits of a packet's state word (the high half is the digest's place).
pub(crate) mod state {
    /// Who holds it changes the packet's memberships: parent and queue.
    pub(crate) const LOCK: u64 = 1;
    /// The packet was removed; it never comes back.
    pub(crate) const DEAD: u64 = 1 << 1;
    /// Which queue the packet is in (3 bits; 0 is none).
    pub(crate) const QUEUE_SHIFT: u32 = 2;
    pub(crate) const QUEUE: u64 = 7 << QUEUE_SHIFT;
    /// Hits, up to 3 (2 bits).
    pub(crate) const HITS_SHIFT: u32 = 5;
    pub(crate) const HITS: u64 = 3 << HITS_SHIFT;
    /// No Interest asked for the packet.
    pub(crate) const UNSOLICITED: u64 = 1 << 7;
    /// The rule that counts the packet, plus one (8 bits; 0 is none).
    pub(crate) const RULE_SHIFT: u32 = 8;
    pub(crate) const RULE: u64 = 255 << RULE_SHIFT;
    /// Its rule keeps it from eviction.
    pub(crate) const PINNED: u64 = 1 << 16;
    pub(crate) const DIGEST_SHIFT: u32 = 32;
}

/// Bits of an inner node's sequence lock.
pub(crate) mod sequence {
    pub(crate) const LOCK: u64 = 1;
    /// The node lost its last child and leaves the trie.
    pub(crate) const DEAD: u64 = 2;
    pub(crate) const STEP: u64 = 4;
}

const HIGH: u64 = !0 << 32;

/// Replaces the low half of a word that only the caller writes.
fn set_low(word: &AtomicU64, value: u32) {
    let old = word.load(Ordering::Relaxed);
    word.store(old & HIGH | u64::from(value), Ordering::Relaxed);
}

/// Replaces the high half of a word that only the caller writes.
fn set_high(word: &AtomicU64, value: u32) {
    let old = word.load(Ordering::Relaxed);
    word.store(old & !HIGH | u64::from(value) << 32, Ordering::Relaxed);
}

fn low(word: &AtomicU64) -> u32 {
    word.load(Ordering::Relaxed) as u32
}

fn high(word: &AtomicU64) -> u32 {
    (word.load(Ordering::Relaxed) >> 32) as u32
}

/// A packet's header.
#[derive(Clone, Copy)]
pub(crate) struct Packet<'a> {
    arena: &'a Arena,
    pub(crate) node: Node,
}

/// What a new packet's header says.
pub(crate) struct NewPacket<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) lengths: Lengths,
    pub(crate) bucket_part: u32,
    pub(crate) fresh_until_ns: u64,
    pub(crate) state: u64,
}

impl<'a> Packet<'a> {
    #[inline(always)]
    pub(crate) fn new(arena: &'a Arena, node: Node) -> Self {
        Self { arena, node }
    }

    pub(crate) fn arena(self) -> &'a Arena {
        self.arena
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'a AtomicU64 {
        self.arena.word(self.node.place(), index)
    }

    /// Writes a packet to a place that the caller just took.
    pub(crate) fn write(arena: &'a Arena, place: Place, new: &NewPacket<'_>) -> Self {
        let packet = Self::new(arena, Node::packet(place));
        // Relaxed: published by the bucket's release store.
        let words = [
            u64::from(new.bucket_part) << 32,
            new.lengths.pack(),
            new.fresh_until_ns,
            new.state,
            u64::from(NO_POSITION),
        ];
        for (index, word) in words.into_iter().enumerate() {
            packet.word(index).store(word, Ordering::Relaxed);
        }
        // SAFETY: the slab gave the place to the caller, nobody else knows it before it is published, and
        // its class has room for header and packet.
        unsafe { arena.write(place, PACKET_HEADER_BYTES, new.bytes) };
        packet
    }

    #[inline(always)]
    pub(crate) fn lengths(self) -> Lengths {
        Lengths::unpack(self.word(1).load(Ordering::Relaxed))
    }

    /// The packet's bytes.
    #[inline(always)]
    pub(crate) fn bytes(self, offset: usize, len: usize) -> Bytes<'a> {
        // SAFETY: a published packet's bytes are not written before its place is free again, which the
        // grace period puts after the last reader that could have found it; who holds a `Packet` is such a
        // reader, or owns it.
        unsafe {
            self.arena
                .bytes(self.node.place(), PACKET_HEADER_BYTES + offset, len)
        }
    }

    #[inline(always)]
    pub(crate) fn name(self) -> Bytes<'a> {
        let lengths = self.lengths();
        self.bytes(lengths.name_at, lengths.name)
    }

    pub(crate) fn last_component(self) -> Bytes<'a> {
        let lengths = self.lengths();
        let at = lengths.name_at + lengths.last_at;
        self.bytes(at, lengths.name - lengths.last_at)
    }

    pub(crate) fn bucket_part(self) -> u32 {
        high(self.word(0))
    }

    /// The inner node that the packet hangs below; changed by who holds the state's lock.
    pub(crate) fn parent(self) -> Node {
        Node(low(self.word(0)))
    }
    pub(crate) fn set_parent(self, parent: Node) {
        set_low(self.word(0), parent.0);
    }

    #[inline(always)]
    pub(crate) fn fresh_until_ns(self) -> u64 {
        self.word(2).load(Ordering::Relaxed)
    }

    pub(crate) fn state(self) -> &'a AtomicU64 {
        self.word(3)
    }

    /// Counts a hit, up to `most`; a packet that was hit that often is not written.
    #[inline(always)]
    pub(crate) fn count_hit(self, most: u64) {
        let word = self.state();
        let seen = word.load(Ordering::Relaxed);
        if (seen & state::HITS) >> state::HITS_SHIFT < most {
            // A lost race loses a hit.
            let next = seen + (1 << state::HITS_SHIFT);
            let _ = word.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(crate) fn hits(self) -> u64 {
        (self.state().load(Ordering::Relaxed) & state::HITS) >> state::HITS_SHIFT
    }

    /// Replaces the bits of `mask` in the state.
    pub(crate) fn set_state(self, mask: u64, bits: u64) {
        let word = self.state();
        let mut seen = word.load(Ordering::Relaxed);
        // Relaxed: the lock orders what the bits guard.
        while let Err(now) = word.compare_exchange(
            seen,
            seen & !mask | bits,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            seen = now;
        }
    }

    /// Replaces the bits of `mask` in the state and gives its lock back.
    pub(crate) fn unlock(self, mask: u64, bits: u64) {
        let word = self.state();
        let mut seen = word.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `lock_bit`.
        while let Err(now) = word.compare_exchange(
            seen,
            seen & !(mask | state::LOCK) | bits,
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            seen = now;
        }
    }

    /// Where the digest is, or none.
    pub(crate) fn digest_place(self) -> Place {
        // Acquire: pairs with the release in `offer_digest`: the digest's bytes are there.
        Place((self.state().load(Ordering::Acquire) >> state::DIGEST_SHIFT) as u32)
    }

    /// Notes where the digest is, unless somebody did; returns whether it did.
    pub(crate) fn offer_digest(self, place: Place) -> bool {
        let word = self.state();
        loop {
            let seen = word.load(Ordering::Relaxed);
            if seen >> state::DIGEST_SHIFT != 0 || seen & state::DEAD != 0 {
                return false;
            }
            let next = seen | u64::from(place.0) << state::DIGEST_SHIFT;
            // Release: pairs with the acquire in `digest_place`.
            if word
                .compare_exchange(seen, next, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// Place in a ring, or the previous packet of a list; guarded by the queue.
    pub(crate) fn position(self) -> u32 {
        low(self.word(4))
    }
    pub(crate) fn set_position(self, position: u32) {
        set_low(self.word(4), position);
    }
    /// The next packet of a list; guarded by the queue.
    pub(crate) fn next(self) -> u32 {
        high(self.word(4))
    }
    pub(crate) fn set_next(self, next: u32) {
        set_high(self.word(4), next);
    }

    /// Which of two rings the packet is in, and where; guarded by the lock of the state.
    pub(crate) fn ring_position(self) -> Option<(u32, u32)> {
        let word = self.word(4).load(Ordering::Relaxed);
        (word as u32 != NO_POSITION).then_some(((word >> 32) as u32 & 1, word as u32))
    }
    /// Notes that the packet is in this ring, or in none; it keeps its successor.
    pub(crate) fn set_ring_position(self, at: Option<(u32, u32)>) {
        let word = self.word(4);
        let (ring, position) = at.unwrap_or((0, NO_POSITION));
        let successor = (word.load(Ordering::Relaxed) >> 32) as u32 & !1;
        word.store(
            u64::from(successor | ring) << 32 | u64::from(position),
            Ordering::Relaxed,
        );
    }

    /// The packet that follows by name below the same parent, as far as that is known; it may have left, so that
    /// this is only to ask for its memory.
    #[inline(always)]
    pub(crate) fn successor(self) -> Node {
        let word = self.state().load(Ordering::Relaxed);
        match word & state::QUEUE {
            0 => Node(high(self.word(4)) & !1),
            _ => Node::NONE,
        }
    }

    /// Notes what follows by name, unless somebody holds the packet's lock or it is in a list.
    pub(crate) fn offer_successor(self, successor: Node) {
        let word = self.state();
        let seen = word.load(Ordering::Relaxed);
        if seen & (state::LOCK | state::DEAD | state::QUEUE) != 0 {
            return;
        }
        // Acquire: as in `lock_bit`.
        let locked = seen | state::LOCK;
        if word
            .compare_exchange(seen, locked, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            self.set_successor(successor);
            self.unlock(0, 0);
        }
    }

    /// Notes what follows by name; the caller holds the lock of the state.
    pub(crate) fn set_successor(self, successor: Node) {
        if self.state().load(Ordering::Relaxed) & state::QUEUE == 0 {
            self.set_next(successor.0 | self.next() & 1);
        }
    }
}

/// An inner node's header.
#[derive(Clone, Copy)]
pub(crate) struct Inner<'a> {
    arena: &'a Arena,
    pub(crate) node: Node,
}

impl<'a> Inner<'a> {
    #[inline(always)]
    pub(crate) fn new(arena: &'a Arena, node: Node) -> Self {
        Self { arena, node }
    }

    #[inline(always)]
    pub(crate) fn word(self, index: usize) -> &'a AtomicU64 {
        self.arena.word(self.node.place(), index)
    }

    /// The slab class of an inner node with such a last component.
    pub(crate) const fn class(component_bytes: usize) -> usize {
        class_of(INNER_HEADER_BYTES + component_bytes)
    }

    /// Writes an inner node, locked and without children, to a place that the caller just took.
    pub(crate) fn write(arena: &'a Arena, place: Place, hash: [u64; 2], component: &[u8]) -> Self {
        let inner = Self::new(arena, Node::inner(place));
        let [low, high] = hash;
        // Relaxed: published by the bucket's release store.
        let words = [low, high, sequence::LOCK, 0, 0, component.len() as u64, 0];
        for (index, word) in words.into_iter().enumerate() {
            inner.word(index).store(word, Ordering::Relaxed);
        }
        // SAFETY: as for a packet.
        unsafe { arena.write(place, INNER_HEADER_BYTES, component) };
        inner
    }

    pub(crate) fn hash(self) -> [u64; 2] {
        [
            self.word(0).load(Ordering::Relaxed),
            self.word(1).load(Ordering::Relaxed),
        ]
    }

    pub(crate) fn component(self) -> Bytes<'a> {
        // SAFETY: written before the node was published, and as for a packet.
        unsafe {
            self.arena
                .bytes(self.node.place(), INNER_HEADER_BYTES, self.component_len())
        }
    }

    pub(crate) fn component_len(self) -> usize {
        (self.word(5).load(Ordering::Relaxed) & 0xffff) as usize
    }

    pub(crate) fn sequence(self) -> &'a AtomicU64 {
        self.word(2)
    }

    /// The node above; written before the node is unlocked for the first time.
    pub(crate) fn parent(self) -> Node {
        Node(high(self.word(3)))
    }
    pub(crate) fn set_parent(self, parent: Node) {
        set_high(self.word(3), parent.0);
    }

    /// Root of the children: none, one node, or a chunk (height 1 and more).
    pub(crate) fn root(self) -> u32 {
        low(self.word(3))
    }
    pub(crate) fn set_root(self, root: u32) {
        set_low(self.word(3), root);
    }
    pub(crate) fn height(self) -> usize {
        (self.word(5).load(Ordering::Relaxed) >> 16 & 0xff) as usize
    }
    pub(crate) fn set_height(self, height: usize) {
        let word = self.word(5);
        let seen = word.load(Ordering::Relaxed);
        word.store(seen & !0xff_0000 | (height as u64) << 16, Ordering::Relaxed);
    }

    /// The first and the last leaf of the children's tree, none while it has no chunk; guarded by the node's lock
    /// (a reader that has not got it may ask for their memory).
    pub(crate) fn ends(self) -> (Place, Place) {
        let word = self.word(6).load(Ordering::Relaxed);
        (Place(word as u32), Place((word >> 32) as u32))
    }
    pub(crate) fn set_ends(self, first: Place, last: Place) {
        let word = u64::from(last.0) << 32 | u64::from(first.0);
        self.word(6).store(word, Ordering::Relaxed);
    }

    /// Largest freshness bound of the children.
    pub(crate) fn bound(self) -> u32 {
        low(self.word(4))
    }
    pub(crate) fn set_bound(self, bound: u32) {
        set_low(self.word(4), bound);
    }
    /// The bound that the parent knows; never below [`bound`](Self::bound).
    pub(crate) fn announced(self) -> u32 {
        high(self.word(4))
    }
    pub(crate) fn set_announced(self, bound: u32) {
        set_high(self.word(4), bound);
    }
}

/// The last component of a node.
pub(crate) fn component(arena: &Arena, node: Node) -> Bytes<'_> {
    if node.is_inner() {
        Inner::new(arena, node).component()
    } else {
        Packet::new(arena, node).last_component()
    }
}

/// Unit of a freshness bound: 2^24 ns, 16.8 ms; 32 bits of it are 2.3 years.
const TICK_SHIFT: u32 = 24;

/// The bound of a packet that is fresh until `ns`; 0 if it never is.
pub(crate) fn bound_of(ns: u64) -> u32 {
    match ns {
        0 => 0,
        ns => u32::try_from(ns >> TICK_SHIFT).unwrap_or(u32::MAX).max(1),
    }
}

/// What a bound must reach at `now_ns` for a packet below it to be fresh perhaps.
pub(crate) fn bound_at(now_ns: u64) -> u32 {
    bound_of(now_ns.max(1))
}
