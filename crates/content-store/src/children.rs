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
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 8 + 16 * FAN;
/// The slab class of chunks.
pub(crate) const CHUNK_CLASS: usize = class_of(CHUNK_BYTES);
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

/// A chunk's words: where its entries begin and how many there are, places for keys (one cache line and the next),
/// places for children and bounds (the two after).
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
    /// Where the entries begin, and how many there are; to a reader of a half-changed chunk some that stay inside.
    #[inline(always)]
    fn span(self) -> (usize, usize) {
        let word = self.word(0).load(Ordering::Relaxed);
        let start = ((word >> 8) as usize & 255).min(FAN);
        (start, (word as usize & 255).min(FAN - start))
    }
    fn set_span(self, start: usize, len: usize) {
        let word = (start << 8 | len) as u64;
        self.word(0).store(word, Ordering::Relaxed);
    }
    #[inline(always)]
    fn len(self) -> usize {
        self.span().1
    }
    fn set_len(self, len: usize) {
        let start = if len == 0 { 0 } else { self.span().0 };
        self.set_span(start, len);
    }
    /// The words of a place for an entry.
    #[inline(always)]
    fn words(self, at: usize) -> (&'a AtomicU64, &'a AtomicU64) {
        let at = at.min(FAN - 1);
        (self.word(1 + at), self.word(1 + FAN + at))
    }
    #[inline(always)]
    fn key(self, at: usize) -> u64 {
        self.words(self.span().0 + at).0.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn child(self, at: usize) -> u32 {
        self.words(self.span().0 + at).1.load(Ordering::Relaxed) as u32
    }
    #[inline(always)]
    fn bound(self, at: usize) -> u32 {
        (self.words(self.span().0 + at).1.load(Ordering::Relaxed) >> 32) as u32
    }
    fn entry(self, at: usize) -> Entry {
        let (key, child) = self.words(self.span().0 + at);
        let word = child.load(Ordering::Relaxed);
        Entry {
            key: key.load(Ordering::Relaxed),
            child: word as u32,
            bound: (word >> 32) as u32,
        }
    }
    fn set(self, at: usize, entry: Entry) {
        let (key, child) = self.words(self.span().0 + at);
        key.store(entry.key, Ordering::Relaxed);
        let word = u64::from(entry.bound) << 32 | u64::from(entry.child);
        child.store(word, Ordering::Relaxed);
    }
    fn set_bound(self, at: usize, bound: u32) {
        let entry = self.entry(at);
        self.set(at, Entry { bound, ..entry });
    }
    /// Largest bound of the entries.
    fn bound_max(self) -> u32 {
        (0..self.len()).map(|at| self.bound(at)).max().unwrap_or(0)
    }
    /// True if an entry has this bound; looks at the last ones first.
    fn has_bound(self, bound: u32) -> bool {
        (0..self.len()).rev().any(|at| self.bound(at) == bound)
    }
    /// Moves a place's entry to another.
    fn shift(self, from: usize, to: usize) {
        let (old, new) = (self.words(from), self.words(to));
        new.0
            .store(old.0.load(Ordering::Relaxed), Ordering::Relaxed);
        new.1
            .store(old.1.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    fn insert(self, at: usize, entry: Entry) {
        let (start, len) = self.span();
        // The side that has room gives way, the shorter one if both have.
        let has_room = start + len < FAN;
        if start > 0 && (at < len - at || !has_room) {
            for from in start..start + at {
                self.shift(from, from - 1);
            }
            self.set_span(start - 1, len + 1);
        } else {
            for from in (start + at..start + len).rev() {
                self.shift(from, from + 1);
            }
            self.set_span(start, len + 1);
        }
        self.set(at, entry);
    }
    fn remove(self, at: usize) {
        let (start, len) = self.span();
        if at < len - at {
            for from in (start..start + at).rev() {
                self.shift(from, from + 1);
            }
            self.set_span(if len == 1 { 0 } else { start + 1 }, len - 1);
        } else {
            for from in start + at + 1..start + len {
                self.shift(from, from - 1);
            }
            self.set_span(if len == 1 { 0 } else { start }, len - 1);
        }
    }
}

/// The way from the root to an entry, leaf last.
#[derive(Clone, Copy)]
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
        if after.is_none() && least == 0 {
            // The first of all: its leaf is known, whose places of children are two lines behind its length.
            let (first, _) = self.inner.ends();
            self.arena.prefetch(first, 8 * (1 + FAN));
            return Ok(Node(self.chunk(first.0).child(0)));
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
        // Most insertions are at the end, most removals at the front.
        if high > 0 && chunk.child(0) == target.node.0 {
            return Ok(0);
        }
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

    /// Adds a child; the caller holds the lock and stashed [`CHUNKS_NEEDED`] chunks. Returns the children before
    /// and after it, where they are in the same chunk.
    pub(crate) fn insert(
        self,
        target: &Target<'_>,
        bound: u32,
        chunks: &mut Chunks,
    ) -> (Node, Node) {
        let inner = self.inner;
        let alone = (Node::NONE, Node::NONE);
        let entry = Entry {
            key: target.key,
            child: target.node.0,
            bound,
        };
        if inner.root() == 0 {
            inner.set_root(target.node.0);
            inner.set_bound(bound);
            return alone;
        }
        if inner.height() == 0 {
            let Some(place) = chunks.stash.pop() else {
                return alone;
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
        if let Some(before) = self.append(target, entry) {
            return (before, Node::NONE);
        }
        let neighbours = self.insert_at(entry, &self.path_to(target), chunks);
        self.find_ends();
        neighbours
    }

    /// Adds an entry at the end of a path.
    fn insert_at(self, entry: Entry, path: &Path, chunks: &mut Chunks) -> (Node, Node) {
        let inner = self.inner;
        let mut path = *path;
        let neighbours = self.neighbours(&path);
        let mut new = entry;
        while let Some((place, at)) = path.pop() {
            let chunk = self.chunk(place.0);
            // Above the leaf, the new chunk follows the one that was split.
            let at = at + usize::from(path.len + 1 < inner.height());
            if chunk.len() < FAN {
                chunk.insert(at, new);
                self.lift(&path, entry.bound);
                return neighbours;
            }
            let Some(right) = chunks.stash.pop() else {
                return neighbours;
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
        neighbours
    }

    /// The children before and after the place in a leaf to which a path leads.
    fn neighbours(self, path: &Path) -> (Node, Node) {
        let Some((place, at)) = path.step(path.len.wrapping_sub(1)) else {
            return (Node::NONE, Node::NONE);
        };
        let leaf = self.chunk(place.0);
        let child = |at: usize| match at < leaf.len() {
            true => Node(leaf.child(at)),
            false => Node::NONE,
        };
        (child(at.wrapping_sub(1)), child(at))
    }

    /// Asks for the first or the last leaf, where children mostly leave and come.
    #[inline]
    pub(crate) fn prefetch_end(self, is_last: bool) {
        let (first, last) = self.inner.ends();
        let place = if is_last { last } else { first };
        for line in 0..CHUNK_BYTES.div_ceil(64) {
            self.arena.prefetch(place, 64 * line);
        }
    }

    /// Notes where the first and the last leaf are.
    fn find_ends(self) {
        let height = self.inner.height();
        let [mut first, mut last] = [self.inner.root(); 2];
        for _ in 1..height {
            first = self.chunk(first).child(0);
            let chunk = self.chunk(last);
            last = chunk.child(chunk.len().saturating_sub(1));
        }
        match height {
            0 => self.inner.set_ends(Place::NONE, Place::NONE),
            _ => self.inner.set_ends(Place(first), Place(last)),
        }
    }

    /// Adds a child behind all others if the last leaf has room and the bound is none that the steps above it would
    /// have to know; returns the child before it.
    #[inline]
    fn append(self, target: &Target<'_>, entry: Entry) -> Option<Node> {
        let (_, last) = self.inner.ends();
        if last.is_none() {
            return None;
        }
        let leaf = self.chunk(last.0);
        let (start, len) = leaf.span();
        if len == 0 || start + len >= FAN {
            return None;
        }
        let before = leaf.entry(len - 1);
        let is_last = before.bound >= entry.bound
            && matches!(
                self.compare(None, Some(before.key), Node(before.child), target),
                Ok(Order::Less)
            );
        is_last.then(|| {
            leaf.set_span(start, len + 1);
            leaf.set(len, entry);
            Node(before.child)
        })
    }

    /// Removes the first child of all if its leaf keeps two and the steps above it need not know. So the first leaf may
    /// be sparse.
    #[inline]
    fn remove_first(self, target: &Target<'_>) -> bool {
        let (first, _) = self.inner.ends();
        if first.is_none() {
            return false;
        }
        let leaf = self.chunk(first.0);
        let (start, len) = leaf.span();
        let is_first =
            len > 2 && leaf.child(0) == target.node.0 && leaf.bound(len - 1) >= leaf.bound(0);
        if is_first {
            leaf.set_span(start + 1, len - 1);
        }
        is_first
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

    /// Tells the steps of `path` that below them is something with this bound now, too.
    fn lift(self, path: &Path, bound: u32) {
        for level in (0..path.len).rev() {
            let Some((place, at)) = path.step(level) else {
                return;
            };
            let chunk = self.chunk(place.0);
            if chunk.bound(at) >= bound {
                return;
            }
            chunk.set_bound(at, bound);
        }
        if self.inner.bound() < bound {
            self.inner.set_bound(bound);
        }
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
        if self.remove_first(target) {
            return true;
        }
        let is_removed = self.remove_at(target, &mut self.path_to(target), chunks);
        self.find_ends();
        is_removed
    }

    /// Removes a child at the end of a path; false if it is not there.
    fn remove_at(self, target: &Target<'_>, path: &mut Path, chunks: &mut Chunks) -> bool {
        let inner = self.inner;
        let Some((place, at)) = path.pop() else {
            return false;
        };
        let mut chunk = self.chunk(place.0);
        if at >= chunk.len() || chunk.child(at) != target.node.0 {
            return false;
        }
        let bound = chunk.bound(at);
        chunk.remove(at);
        if chunk.len() > (FAN / 4).max(1) {
            // What was known to the steps above stays true, mostly without a look at them.
            if !chunk.has_bound(bound) {
                self.raise(path, chunk.bound_max());
            }
            return true;
        }
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
        self.merge(chunk, path, chunks);
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
