//! The children of one inner node, in canonical NDN order: a B+ tree of chunks, in which every entry carries
//! the largest freshness bound below it.
//!
//! One child hangs below the node itself. Writers hold the node's lock; readers run under its sequence number
//! and start again when it moved. TLV encodings compare byte by byte as the canonical order asks, so that an
//! entry's key is the first eight bytes of the component's TLV: components up to six bytes of value (segment
//! numbers) are told apart in the chunk; longer ones that share them are compared where they lie. A chunk
//! whose entries shrink to a quarter takes in a neighbour's, so that chunks are never sparse in number.

use crate::arena::{Arena, Place};
use crate::node::{Inner, Node, component, sequence};
use crate::slab::class_of;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{lock_bit, relax};
use alloc::vec::Vec;
use core::cmp::Ordering as Order;

/// Entries of a chunk.
#[cfg(not(any(loom, shuttle)))]
const FAN: usize = 15;
#[cfg(any(loom, shuttle))]
const FAN: usize = 3;
/// Height of a tree at most: 15^12 is far above what an arena holds, 4^12 too.
const HEIGHT_MAX: usize = 12;
/// The slab class of chunks.
pub(crate) const CHUNK_CLASS: usize = class_of(8 + 16 * FAN);
/// Chunks that an insertion may take at most.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const CHUNKS_NEEDED: usize = HEIGHT_MAX + 1;
#[cfg(any(loom, shuttle))]
pub(crate) const CHUNKS_NEEDED: usize = 3;

/// Chunks for insertions, and those that removals freed (which wait for their grace period).
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) stash: Vec<Place>,
    pub(crate) freed: Vec<Place>,
}

/// Where a child stands in the order: its component, packets before inner nodes, then by place (of two with
/// one name, one is on its way out).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    key: u64,
    component: &'a [u8],
    node: Node,
}

impl<'a> Target<'a> {
    #[inline]
    pub(crate) fn new(component: &'a [u8], node: Node) -> Self {
        let mut key = [0; 8];
        for (to, from) in key.iter_mut().zip(component) {
            *to = *from;
        }
        Self {
            key: u64::from_be_bytes(key),
            component,
            node,
        }
    }
}

/// One entry: a node at height 1, a chunk above.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    child: u32,
    bound: u32,
}

/// A chunk's words: the number of entries, then two an entry.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    arena: &'a Arena,
    place: Place,
}

impl<'a> Chunk<'a> {
    #[inline(always)]
    fn word(self, index: usize) -> &'a AtomicU64 {
        self.arena.word(self.place, index)
    }
    #[inline(always)]
    fn len(self) -> usize {
        (self.word(0).load(Ordering::Relaxed) as usize).min(FAN)
    }
    fn set_len(self, len: usize) {
        self.word(0).store(len as u64, Ordering::Relaxed);
    }
    #[inline(always)]
    fn key(self, at: usize) -> u64 {
        self.word(1 + 2 * at).load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn child(self, at: usize) -> u32 {
        self.word(2 + 2 * at).load(Ordering::Relaxed) as u32
    }
    #[inline(always)]
    fn bound(self, at: usize) -> u32 {
        (self.word(2 + 2 * at).load(Ordering::Relaxed) >> 32) as u32
    }
    fn entry(self, at: usize) -> Entry {
        let word = self.word(2 + 2 * at).load(Ordering::Relaxed);
        Entry {
            key: self.key(at),
            child: word as u32,
            bound: (word >> 32) as u32,
        }
    }
    fn set(self, at: usize, entry: Entry) {
        self.word(1 + 2 * at).store(entry.key, Ordering::Relaxed);
        let word = u64::from(entry.bound) << 32 | u64::from(entry.child);
        self.word(2 + 2 * at).store(word, Ordering::Relaxed);
    }
    fn set_bound(self, at: usize, bound: u32) {
        let entry = self.entry(at);
        self.set(at, Entry { bound, ..entry });
    }
    /// Largest bound of the entries.
    fn bound_max(self) -> u32 {
        (0..self.len()).map(|at| self.bound(at)).max().unwrap_or(0)
    }
    fn insert(self, at: usize, entry: Entry) {
        let len = self.len();
        for from in (at..len).rev() {
            self.set(from + 1, self.entry(from));
        }
        self.set(at, entry);
        self.set_len(len + 1);
    }
    fn remove(self, at: usize) {
        let len = self.len();
        for to in at..len - 1 {
            self.set(to, self.entry(to + 1));
        }
        self.set_len(len - 1);
    }
}

/// The way from the root to an entry, leaf last.
struct Path {
    steps: [(Place, usize); HEIGHT_MAX],
    len: usize,
}

impl Path {
    const fn new() -> Self {
        Self {
            steps: [(Place::NONE, 0); HEIGHT_MAX],
            len: 0,
        }
    }
    fn push(&mut self, place: Place, at: usize) {
        if let Some(step) = self.steps.get_mut(self.len) {
            *step = (place, at);
            self.len += 1;
        }
    }
    fn pop(&mut self) -> Option<(Place, usize)> {
        self.len = self.len.checked_sub(1)?;
        self.steps.get(self.len).copied()
    }
    fn step(&self, level: usize) -> Option<(Place, usize)> {
        self.steps.get(..self.len)?.get(level).copied()
    }
}

/// The children of an inner node.
#[derive(Clone, Copy)]
pub(crate) struct Children<'a> {
    arena: &'a Arena,
    pub(crate) inner: Inner<'a>,
}

/// The sequence number moved while a reader ran.
struct Moved;

impl<'a> Children<'a> {
    #[inline]
    pub(crate) fn of(arena: &'a Arena, node: Node) -> Self {
        Self {
            arena,
            inner: Inner::new(arena, node),
        }
    }

    /// Locks the node; returns false, without the lock, if it is dead.
    #[inline]
    pub(crate) fn lock(self) -> bool {
        let sequence = self.inner.sequence();
        lock_bit(sequence, sequence::LOCK);
        if sequence.load(Ordering::Relaxed) & sequence::DEAD != 0 {
            self.unlock();
            return false;
        }
        // Release fence: pairs with the acquire fence in `is_still`: who sees one of our stores sees the
        // lock bit too.
        fence(Ordering::Release);
        true
    }

    /// Unlocks the node and moves its sequence number.
    #[inline]
    pub(crate) fn unlock(self) {
        let sequence = self.inner.sequence();
        let next = (sequence.load(Ordering::Relaxed) & !sequence::LOCK) + sequence::STEP;
        // Release: pairs with the acquires in `lock_bit` and `next`.
        sequence.store(next, Ordering::Release);
    }

    /// Marks the locked node dead; it stays so.
    pub(crate) fn kill(self) {
        let sequence = self.inner.sequence();
        let dead = sequence.load(Ordering::Relaxed) | sequence::DEAD;
        sequence.store(dead, Ordering::Relaxed);
    }

    /// True when no child is left; the caller holds the lock.
    pub(crate) fn is_empty(self) -> bool {
        self.inner.root() == 0
    }

    fn chunk(self, place: u32) -> Chunk<'a> {
        Chunk {
            arena: self.arena,
            place: Place(place),
        }
    }

    #[inline]
    fn is_still(self, seen: u64) -> bool {
        // Acquire fence: pairs with the release fence in `lock`.
        fence(Ordering::Acquire);
        self.inner.sequence().load(Ordering::Relaxed) == seen
    }

    /// The first child after `after` whose bound is at least `least`, or none. Waits for writers.
    pub(crate) fn next(self, after: Option<&Target<'_>>, least: u32) -> Node {
        let mut spins = 0;
        loop {
            // Acquire: pairs with the release in `unlock`: the children that we find are written.
            let seen = self.inner.sequence().load(Ordering::Acquire);
            if seen & sequence::LOCK == 0
                && let Ok(found) = self.next_at(Some(seen), after, least)
                && self.is_still(seen)
            {
                return found;
            }
            relax(&mut spins);
        }
    }

    /// As [`next`](Self::next), at one sequence number, or without one under the lock.
    fn next_at(
        self,
        seen: Option<u64>,
        after: Option<&Target<'_>>,
        least: u32,
    ) -> Result<Node, Moved> {
        let height = self.inner.height().min(HEIGHT_MAX);
        let root = self.inner.root();
        if root == 0 || self.inner.bound() < least {
            return Ok(Node::NONE);
        }
        if height == 0 {
            let node = Node(root);
            let passed = match after {
                Some(after) => self.compare(seen, None, node, after)? != Order::Greater,
                None => false,
            };
            return Ok(if passed { Node::NONE } else { node });
        }
        let mut path = Path::new();
        let mut after = after;
        let mut place = root;
        loop {
            // Down along `after`, or along the left edge.
            let chunk = self.chunk(place);
            let level = height - path.len;
            let mut at = match (after, level) {
                (None, _) => 0,
                (Some(after), 1) => {
                    let at = self.leaf_place(seen, chunk, after)?;
                    let is_it = at < chunk.len() && chunk.child(at) == after.node.0;
                    at + usize::from(is_it)
                }
                (Some(after), _) => self.branch_place(seen, chunk, after, level)?,
            };
            if level > 1 && chunk.bound(at) >= least {
                path.push(chunk.place, at);
                place = chunk.child(at);
                continue;
            }
            // Right, and up where a chunk ends.
            let (mut chunk, mut level) = (chunk, level);
            loop {
                while at < chunk.len() && chunk.bound(at) < least {
                    at += 1;
                }
                if at < chunk.len() {
                    break;
                }
                let Some((up, from)) = path.pop() else {
                    return Ok(Node::NONE);
                };
                if seen.is_some_and(|seen| !self.is_still(seen)) {
                    return Err(Moved);
                }
                (chunk, at, level) = (self.chunk(up.0), from + 1, level + 1);
            }
            if level == 1 {
                return Ok(Node(chunk.child(at)));
            }
            // What is right of the branch of `after` is after it.
            after = None;
            path.push(chunk.place, at);
            place = chunk.child(at);
        }
    }

    /// Compares a child with a target. A reader looks at the child only if it was one, which `seen` tells.
    #[inline]
    fn compare(
        self,
        seen: Option<u64>,
        key: Option<u64>,
        child: Node,
        target: &Target<'_>,
    ) -> Result<Order, Moved> {
        let order = key.map_or(Order::Equal, |key| key.cmp(&target.key));
        if order != Order::Equal {
            return Ok(order);
        }
        if key.is_some() && target.component.len() <= 8 {
            return Ok(child
                .is_inner()
                .cmp(&target.node.is_inner())
                .then(child.cmp(&target.node)));
        }
        if seen.is_some_and(|seen| !self.is_still(seen)) {
            return Err(Moved);
        }
        Ok(component(self.arena, child)
            .cmp(target.component)
            .then(child.is_inner().cmp(&target.node.is_inner()))
            .then(child.cmp(&target.node)))
    }

    /// The first entry of a leaf that is not before the target.
    #[inline]
    fn leaf_place(
        self,
        seen: Option<u64>,
        chunk: Chunk<'_>,
        target: &Target<'_>,
    ) -> Result<usize, Moved> {
        let (mut low, mut high) = (0, chunk.len());
        // Most insertions are at the end.
        let mut middle = high.saturating_sub(1);
        while low < high {
            let child = Node(chunk.child(middle));
            match self.compare(seen, Some(chunk.key(middle)), child, target)? {
                Order::Less => low = middle + 1,
                _ => high = middle,
            }
            middle = (low + high) / 2;
        }
        Ok(low)
    }

    /// The last entry of a branch that is not after the target; the first one stands for all before it.
    #[inline]
    fn branch_place(
        self,
        seen: Option<u64>,
        chunk: Chunk<'_>,
        target: &Target<'_>,
        level: usize,
    ) -> Result<usize, Moved> {
        let (mut low, mut high) = (1, chunk.len().max(1));
        let mut middle = high.saturating_sub(1).max(1);
        while low < high {
            let mut order = chunk.key(middle).cmp(&target.key);
            if order == Order::Equal {
                // The separator is the first entry below.
                let mut first = self.chunk(chunk.child(middle));
                for _ in 2..level {
                    first = self.chunk(first.child(0));
                }
                order = self.compare(seen, Some(first.key(0)), Node(first.child(0)), target)?;
            }
            match order {
                Order::Greater => high = middle,
                _ => low = middle + 1,
            }
            middle = (low + high) / 2;
        }
        Ok(low - 1)
    }

    /// The way to where the target is or belongs; the caller holds the lock and the height is not 0.
    fn path_to(self, target: &Target<'_>) -> Path {
        let mut path = Path::new();
        let mut place = self.inner.root();
        for level in (1..=self.inner.height()).rev() {
            let chunk = self.chunk(place);
            let at = match level {
                1 => self.leaf_place(None, chunk, target),
                _ => self.branch_place(None, chunk, target, level),
            };
            // Under the lock nothing moves.
            let at = at.unwrap_or(0);
            path.push(chunk.place, at);
            place = chunk.child(at);
        }
        path
    }

    /// Adds a child; the caller holds the lock and stashed [`CHUNKS_NEEDED`] chunks.
    pub(crate) fn insert(self, target: &Target<'_>, bound: u32, chunks: &mut Chunks) {
        let inner = self.inner;
        let entry = Entry {
            key: target.key,
            child: target.node.0,
            bound,
        };
        if inner.root() == 0 {
            inner.set_root(target.node.0);
            inner.set_bound(bound);
            return;
        }
        if inner.height() == 0 {
            let Some(place) = chunks.stash.pop() else {
                return;
            };
            let only = Node(inner.root());
            let chunk = self.chunk(place.0);
            let first = Entry {
                key: Target::new(component(self.arena, only), only).key,
                child: only.0,
                bound: inner.bound(),
            };
            chunk.set_len(0);
            chunk.insert(0, first);
            inner.set_root(place.0);
            inner.set_height(1);
        }
        let mut path = self.path_to(target);
        let mut new = entry;
        while let Some((place, at)) = path.pop() {
            let chunk = self.chunk(place.0);
            // Above the leaf, the new chunk follows the one that was split.
            let at = at + usize::from(path.len + 1 < inner.height());
            if chunk.len() < FAN {
                chunk.insert(at, new);
                self.raise(&path, chunk.bound_max());
                return;
            }
            let Some(right) = chunks.stash.pop() else {
                return;
            };
            let right = self.chunk(right.0);
            self.split(chunk, right, at, new);
            if let Some((up, at)) = path.step(path.len.wrapping_sub(1)) {
                self.chunk(up.0).set_bound(at, chunk.bound_max());
            }
            new = Entry {
                key: right.key(0),
                child: right.place.0,
                bound: right.bound_max(),
            };
        }
        self.grow(new, chunks);
    }

    /// Splits a full chunk while inserting an entry: at the end, so that chunks that are filled in order stay
    /// full, else in the middle.
    fn split(self, left: Chunk<'_>, right: Chunk<'_>, at: usize, new: Entry) {
        right.set_len(0);
        let keep = if at == FAN { FAN } else { FAN.div_ceil(2) };
        for from in keep..FAN {
            right.insert(from - keep, left.entry(from));
        }
        left.set_len(keep);
        if at > keep || at == FAN {
            right.insert(at - keep, new);
        } else {
            left.insert(at, new);
        }
    }

    /// Puts a root above the old one, whose right sibling is `right`.
    fn grow(self, right: Entry, chunks: &mut Chunks) {
        let Some(place) = chunks.stash.pop() else {
            return;
        };
        let old = self.chunk(self.inner.root());
        let root = self.chunk(place.0);
        root.set_len(0);
        root.insert(
            0,
            Entry {
                key: old.key(0),
                child: old.place.0,
                bound: old.bound_max(),
            },
        );
        root.insert(1, right);
        self.inner.set_root(place.0);
        self.inner.set_height(self.inner.height() + 1);
        self.inner.set_bound(root.bound_max());
    }

    /// Tells the steps of `path` that what is below them has this bound now.
    fn raise(self, path: &Path, mut bound: u32) {
        for level in (0..path.len).rev() {
            let Some((place, at)) = path.step(level) else {
                return;
            };
            let chunk = self.chunk(place.0);
            if chunk.bound(at) == bound {
                return;
            }
            chunk.set_bound(at, bound);
            bound = chunk.bound_max();
        }
        self.inner.set_bound(bound);
    }

    /// Changes a child's bound; false if it is no child. The caller holds the lock.
    pub(crate) fn set_bound(self, target: &Target<'_>, bound: u32) -> bool {
        if self.inner.height() == 0 {
            let is_it = self.inner.root() == target.node.0;
            if is_it {
                self.inner.set_bound(bound);
            }
            return is_it;
        }
        let mut path = self.path_to(target);
        let Some((place, at)) = path.pop() else {
            return false;
        };
        let chunk = self.chunk(place.0);
        if at >= chunk.len() || chunk.child(at) != target.node.0 {
            return false;
        }
        chunk.set_bound(at, bound);
        self.raise(&path, chunk.bound_max());
        true
    }

    /// Removes a child; false if it is none. The caller holds the lock.
    pub(crate) fn remove(self, target: &Target<'_>, chunks: &mut Chunks) -> bool {
        let inner = self.inner;
        if inner.height() == 0 {
            let is_it = inner.root() == target.node.0;
            if is_it {
                inner.set_root(0);
                inner.set_bound(0);
            }
            return is_it;
        }
        let mut path = self.path_to(target);
        let Some((place, at)) = path.pop() else {
            return false;
        };
        let mut chunk = self.chunk(place.0);
        if at >= chunk.len() || chunk.child(at) != target.node.0 {
            return false;
        }
        chunk.remove(at);
        // Empty chunks go, up to the root.
        while chunk.len() == 0 {
            chunks.freed.push(chunk.place);
            let Some((place, at)) = path.pop() else {
                inner.set_root(0);
                inner.set_height(0);
                inner.set_bound(0);
                return true;
            };
            chunk = self.chunk(place.0);
            chunk.remove(at);
        }
        self.merge(chunk, &mut path, chunks);
        self.shrink(chunks);
        true
    }

    /// Takes in the right neighbour, or gives in to the left one, where both fit well into one chunk; tells
    /// the steps above their bounds.
    fn merge(self, chunk: Chunk<'_>, path: &mut Path, chunks: &mut Chunks) {
        let mut chunk = chunk;
        while chunk.len() <= FAN / 4
            && let Some((up, at)) = path.step(path.len.wrapping_sub(1))
        {
            let up = self.chunk(up.0);
            // The left one of the two stays; the first entry of a branch stands for all before it, so that
            // the key of the right one's first entry must be that of the step above.
            let left_at = if at + 1 < up.len() {
                at
            } else {
                at.wrapping_sub(1)
            };
            if left_at >= up.len() {
                break;
            }
            let (left, right) = (
                self.chunk(up.child(left_at)),
                self.chunk(up.child(left_at + 1)),
            );
            let (len, more) = (left.len(), right.len());
            if len + more > FAN * 3 / 4 {
                break;
            }
            for from in 0..more {
                left.insert(len + from, right.entry(from));
            }
            let is_branch = path.len < self.inner.height() - 1;
            if is_branch && more > 0 {
                let first = left.entry(len);
                left.set(
                    len,
                    Entry {
                        key: up.key(left_at + 1),
                        ..first
                    },
                );
            }
            chunks.freed.push(right.place);
            up.remove(left_at + 1);
            up.set_bound(left_at, left.bound_max());
            path.pop();
            chunk = up;
        }
        self.raise(path, chunk.bound_max());
    }

    /// Removes roots that have one entry.
    fn shrink(self, chunks: &mut Chunks) {
        let inner = self.inner;
        while inner.height() > 0 {
            let root = self.chunk(inner.root());
            if root.len() != 1 {
                return;
            }
            chunks.freed.push(root.place);
            inner.set_root(root.child(0));
            inner.set_height(inner.height() - 1);
        }
    }
}
