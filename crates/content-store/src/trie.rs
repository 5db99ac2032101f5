//! Links between nodes: packets and inner nodes hang below the inner node of their prefix.
//!
//! Locks are taken from the bottom up: a packet's state, then inner nodes towards the root, with a bucket's
//! lock inside of any. Every inner node has a child, but while it is born (locked) and when it is dead; so a
//! search below a node never runs into an empty branch, and needs no count of packets.

use crate::children::{Children, Target};
use crate::config::Refusal;
use crate::hash::PrefixHash;
use crate::node::{Inner, Node, Packet, bound_at};
use crate::stats::Counter;
use crate::sync::atomic::Ordering;
use crate::sync::relax;
use crate::worker::{Reader, Writer};
use wire::ndn::NameRef;

/// Bytes of a name that is not known yet: its packet's second line is asked for with the first.
const PREFIX_NAME_BYTES: usize = 32;

impl<'a> Reader<'a> {
    /// Finds the inner node of a prefix.
    pub(crate) fn inner(&self, hash: PrefixHash) -> Option<Node> {
        self.shared
            .table
            .find(hash, |node| self.is_inner_of(node, hash))
    }

    fn is_inner_of(&self, node: Node, hash: PrefixHash) -> bool {
        node.is_inner() && Inner::new(&self.shared.arena, node).hash() == [hash.low, hash.high]
    }

    pub(crate) fn children(&self, node: Node) -> Children<'a> {
        Children::of(&self.shared.arena, node)
    }

    /// Locks the inner node of a prefix if there is one that is alive.
    fn lock_inner(&self, hash: PrefixHash) -> Option<Node> {
        let mut spins = 0;
        loop {
            let node = self.inner(hash)?;
            if self.children(node).lock() {
                return Some(node);
            }
            // Dead: gone from its bucket in a moment.
            relax(&mut spins);
        }
    }

    /// Takes a locked node without children out of its bucket, marks it dead and unlocks it.
    fn bury(&self, node: Node) {
        let children = self.children(node);
        let [low, high] = children.inner.hash();
        let hash = PrefixHash { low, high };
        children.kill();
        let bucket = self.shared.table.lock(hash.bucket_part());
        if let Some(slot) = bucket.slot_of(node) {
            slot.clear();
            bucket.trim();
        }
        drop(bucket);
        children.unlock();
        self.add(Counter::Prefixes, -1);
    }

    /// Tells the parents of a locked node of a bound that is higher than they know, and a quarter of the
    /// remaining time more, so that they are seldom told.
    fn announce(&self, node: Node, now: u32) {
        let inner = Inner::new(&self.shared.arena, node);
        let bound = inner.bound();
        let parent = inner.parent();
        if bound <= inner.announced() || parent.is_none() {
            return;
        }
        let more = bound.saturating_sub(now) / 4 + 1;
        let announced = bound.saturating_add(more);
        inner.set_announced(announced);
        self.set_bound_above(node, parent, announced, now);
    }

    /// Changes a locked node's bound in its parent, and tells the parent's parents if need be.
    fn set_bound_above(&self, node: Node, parent: Node, bound: u32, now: u32) {
        let above = self.children(parent);
        if above.lock() {
            let component = Inner::new(&self.shared.arena, node).component();
            above.set_bound(&Target::new(component, node), bound);
            self.announce(parent, now);
            above.unlock();
        }
    }

    /// Lowers what the parent knows of a node below which a search found nothing fresh.
    fn lower(&self, node: Node, now: u32) {
        let children = self.children(node);
        if !children.lock() {
            return;
        }
        let inner = children.inner;
        let (bound, parent) = (inner.bound(), inner.parent());
        if bound < inner.announced() && !parent.is_none() {
            inner.set_announced(bound);
            self.set_bound_above(node, parent, bound, now);
        }
        children.unlock();
        self.add(Counter::Vain, 1);
    }

    /// The first packet below an inner node, after `after`, in canonical order, that `accept` takes. With
    /// `least` above 0 only where a bound says that something may be fresh.
    pub(crate) fn search_below(
        &self,
        top: Node,
        least: u32,
        mut accept: impl FnMut(Packet<'a>) -> bool,
    ) -> Option<Packet<'a>> {
        let mut at = top;
        let mut after = Node::NONE;
        loop {
            let target = (!after.is_none())
                .then(|| Target::new(crate::node::component(&self.shared.arena, after), after));
            let found = self.children(at).next(target.as_ref(), least);
            if found.is_none() {
                if at == top {
                    return None;
                }
                after = at;
                at = Inner::new(&self.shared.arena, at).parent();
                if least > 0 {
                    self.lower(after, least);
                }
                if at.is_none() {
                    return None;
                }
            } else if found.is_inner() {
                (at, after) = (found, Node::NONE);
            } else {
                self.prefetch_packet(found, PREFIX_NAME_BYTES);
                let packet = self.packet(found);
                if accept(packet) {
                    return Some(packet);
                }
                after = found;
            }
        }
    }

    /// True while nobody has removed the packet.
    pub(crate) fn is_alive(packet: Packet<'_>) -> bool {
        packet.state().load(Ordering::Relaxed) & crate::node::state::DEAD == 0
    }
}

impl Writer<'_> {
    /// Links a packet, whose state the caller locked, below the inner node of its name's parent, which is
    /// made (and its parents) if it is not there. Returns its neighbours by name, as far as they are at hand.
    pub(crate) fn link(
        &mut self,
        packet: Node,
        name: NameRef<'_>,
        parent: PrefixHash,
        bound: u32,
        now_ns: u64,
    ) -> Result<(Node, Node), Refusal> {
        let above = name.len() - 1;
        let parent = match self.lock_inner(parent) {
            Some(node) => node,
            None => {
                self.local.trail.fill(self.reader.shared, name);
                self.make_inner(name, above)?
            }
        };
        let component = Packet::new(&self.reader.shared.arena, packet).last_component();
        let children = Children::of(&self.reader.shared.arena, parent);
        let chunks = &mut self.local.chunks;
        let before = chunks.stash.len();
        let neighbours = children.insert(&Target::new(component, packet), bound, chunks);
        let taken = before - chunks.stash.len();
        Packet::new(&self.reader.shared.arena, packet).set_parent(parent);
        self.announce(parent, bound_at(now_ns));
        children.unlock();
        if taken > 0 {
            self.add(Counter::Chunks, taken as i64);
        }
        Ok(neighbours)
    }

    /// Locks the inner node of the prefix of so many components, which is made if it is not there. The
    /// caller filled the trail.
    fn make_inner(&mut self, name: NameRef<'_>, components: usize) -> Result<Node, Refusal> {
        let trail = &self.local.trail;
        let hash = trail.hashes.get(components).copied().unwrap_or_default();
        let end = trail.ends.get(components).copied().unwrap_or(0);
        let start = match components.checked_sub(1) {
            Some(above) => trail.ends.get(above).copied().unwrap_or(0),
            None => 0,
        };
        let component = name
            .value()
            .get(usize::from(start)..usize::from(end))
            .unwrap_or_default();
        loop {
            if let Some(node) = self.lock_inner(hash) {
                return Ok(node);
            }
            let Some(node) = self.publish_inner(hash, component)? else {
                continue;
            };
            self.add(Counter::Prefixes, 1);
            let Some(above) = components.checked_sub(1) else {
                return Ok(node);
            };
            match self.make_inner(name, above) {
                Ok(parent) => {
                    let children = Children::of(&self.reader.shared.arena, parent);
                    let chunks = &mut self.local.chunks;
                    let before = chunks.stash.len();
                    children.insert(&Target::new(component, node), 0, chunks);
                    let taken = before - chunks.stash.len();
                    Inner::new(&self.reader.shared.arena, node).set_parent(parent);
                    children.unlock();
                    self.add(Counter::Chunks, taken as i64);
                    self.restash();
                    return Ok(node);
                }
                Err(refusal) => {
                    self.bury(node);
                    self.retire_inner(node);
                    return Err(refusal);
                }
            }
        }
    }

    /// Refills the stash of chunks as far as that goes without evicting.
    fn restash(&mut self) {
        let local = &mut *self.local;
        while local.chunks.stash.len() < crate::children::CHUNKS_NEEDED {
            let Some(place) = local.take(self.reader.shared, crate::children::CHUNK_CLASS) else {
                return;
            };
            local.chunks.stash.push(place);
        }
    }

    /// Makes an inner node, locked and without parent, and puts it into its bucket; `None` if somebody else
    /// did.
    fn publish_inner(
        &mut self,
        hash: PrefixHash,
        component: &[u8],
    ) -> Result<Option<Node>, Refusal> {
        let local = &mut *self.local;
        // An insertion takes at most two chunks here (a new inner node's parent splits seldom).
        if local.chunks.stash.len() < 2 {
            return Err(Refusal::NoMemory);
        }
        let class = Inner::class(component.len());
        let place = local
            .take(self.reader.shared, class)
            .ok_or(Refusal::NoMemory)?;
        let node = Inner::write(
            &self.reader.shared.arena,
            place,
            [hash.low, hash.high],
            component,
        )
        .node;
        let bucket = self.shared.table.lock(hash.bucket_part());
        let is_there = bucket
            .find(hash.tag(), |node| self.is_inner_of(node, hash))
            .is_some();
        let slot = bucket.free();
        if !is_there && let Ok(slot) = slot {
            slot.set(hash.tag(), node);
            return Ok(Some(node));
        }
        drop(bucket);
        self.local.give(self.reader.shared, class, place);
        match slot {
            Err(_) if !is_there => Err(Refusal::TableFull),
            _ => Ok(None),
        }
    }

    fn retire_inner(&mut self, node: Node) {
        let class = Inner::class(Inner::new(&self.reader.shared.arena, node).component_len());
        self.local.retire(self.reader.shared, class, node.place());
    }

    /// Unlinks a packet, whose state the caller locked, and the inner nodes above that it leaves empty.
    pub(crate) fn unlink(&mut self, packet: Packet<'_>) {
        let mut parent = packet.parent();
        if parent.is_none() {
            return;
        }
        let mut child = packet.node;
        let arena = packet.arena();
        let mut component = packet.last_component();
        while !parent.is_none() {
            let children = Children::of(arena, parent);
            // It has a child, so that it is alive.
            let alive = children.lock();
            debug_assert!(alive, "a node with a child is dead");
            let chunks = &mut self.local.chunks;
            let removed = children.remove(&Target::new(component, child), chunks);
            debug_assert!(removed, "a child is not below its parent");
            if child.is_inner() {
                // Only now nobody finds it any more.
                self.retire_inner(child);
            }
            if !children.is_empty() {
                children.unlock();
                break;
            }
            child = parent;
            parent = children.inner.parent();
            component = children.inner.component();
            self.bury(child);
            if parent.is_none() {
                self.retire_inner(child);
            }
        }
        self.retire_chunks();
    }
}
