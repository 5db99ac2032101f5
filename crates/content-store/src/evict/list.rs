//! Doubly linked lists through the packets' headers, under one lock: exact order with removal anywhere.

use crate::arena::{Arena, Place};
use crate::node::{Node, Packet, state};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{lock_bit, unlock_bit};

const LOCK: u64 = 1;

/// Number of lists.
pub(crate) const LISTS: usize = 3;

/// The lists; each one's ends in a word: first in the low half, last in the high half.
#[derive(Debug)]
pub(crate) struct Lists {
    /// Number of the first list in the packets' state.
    queue: u64,
    lock: AtomicU64,
    ends: [AtomicU64; LISTS],
}

impl Lists {
    pub(crate) fn new(queue: u64) -> Self {
        Self {
            queue,
            lock: AtomicU64::new(0),
            ends: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn ends(&self, list: usize) -> (u32, u32) {
        let word = self
            .ends
            .get(list)
            .map_or(0, |ends| ends.load(Ordering::Relaxed));
        (word as u32, (word >> 32) as u32)
    }

    fn set_ends(&self, list: usize, first: u32, last: u32) {
        if let Some(ends) = self.ends.get(list) {
            ends.store(u64::from(last) << 32 | u64::from(first), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_empty(&self, list: usize) -> bool {
        self.ends(list).0 == 0
    }

    /// Puts a packet at the end of a list; the caller holds the lock of the packet's state.
    pub(crate) fn push(&self, arena: &Arena, list: usize, packet: Packet<'_>) {
        lock_bit(&self.lock, LOCK);
        self.push_locked(arena, list, packet);
        unlock_bit(&self.lock, LOCK);
    }

    fn push_locked(&self, arena: &Arena, list: usize, packet: Packet<'_>) {
        let (first, last) = self.ends(list);
        packet.set_position(last);
        packet.set_next(0);
        if last == 0 {
            self.set_ends(list, packet.node.0, packet.node.0);
        } else {
            Packet::new(arena, Node(last)).set_next(packet.node.0);
            self.set_ends(list, first, packet.node.0);
        }
        let queue = self.queue + list as u64;
        packet.set_state(state::QUEUE, queue << state::QUEUE_SHIFT);
    }

    /// Puts a packet at the front of a list; the caller holds the lock of the packet's state.
    pub(crate) fn push_front(&self, arena: &Arena, list: usize, packet: Packet<'_>) {
        lock_bit(&self.lock, LOCK);
        let (first, last) = self.ends(list);
        packet.set_position(0);
        packet.set_next(first);
        if first == 0 {
            self.set_ends(list, packet.node.0, packet.node.0);
        } else {
            Packet::new(arena, Node(first)).set_position(packet.node.0);
            self.set_ends(list, packet.node.0, last);
        }
        let queue = self.queue + list as u64;
        packet.set_state(state::QUEUE, queue << state::QUEUE_SHIFT);
        unlock_bit(&self.lock, LOCK);
    }

    fn unlink_locked(&self, arena: &Arena, list: usize, packet: Packet<'_>) {
        let (mut first, mut last) = self.ends(list);
        let (previous, next) = (packet.position(), packet.next());
        match previous {
            0 => first = next,
            previous => Packet::new(arena, Node(previous)).set_next(next),
        }
        match next {
            0 => last = previous,
            next => Packet::new(arena, Node(next)).set_position(previous),
        }
        self.set_ends(list, first, last);
        packet.set_next(0);
        packet.set_ring_position(None);
        packet.set_state(state::QUEUE, 0);
    }

    /// The list that a packet is in, if it is in one of these.
    pub(crate) fn list_of(&self, packet: Packet<'_>) -> Option<usize> {
        let word = packet.state().load(Ordering::Relaxed);
        let queue = (word & state::QUEUE) >> state::QUEUE_SHIFT;
        let list = queue.checked_sub(self.queue)? as usize;
        (list < LISTS).then_some(list)
    }

    /// Takes a packet out of its list; the caller holds the lock of the packet's state.
    pub(crate) fn forget(&self, arena: &Arena, packet: Packet<'_>) {
        if let Some(list) = self.list_of(packet) {
            lock_bit(&self.lock, LOCK);
            self.unlink_locked(arena, list, packet);
            unlock_bit(&self.lock, LOCK);
        }
    }

    /// Takes the first packet of a list out, and returns it with the lock of its state held.
    pub(crate) fn pop<'a>(&self, arena: &'a Arena, list: usize) -> Option<Packet<'a>> {
        for _ in 0..64 {
            let first = Node(self.ends(list).0);
            if first.is_none() || first.place() == Place::NONE {
                return None;
            }
            let packet = Packet::new(arena, first);
            lock_bit(packet.state(), state::LOCK);
            // It was first a moment ago: is it in the list still? Only who holds its lock takes it out.
            if self.list_of(packet) == Some(list) {
                self.forget(arena, packet);
                return Some(packet);
            }
            packet.unlock(0, 0);
        }
        None
    }

    /// Moves a packet to the end of its list, unless somebody holds one of the two locks.
    pub(crate) fn refresh(&self, arena: &Arena, packet: Packet<'_>) {
        let word = packet.state();
        let seen = word.load(Ordering::Relaxed);
        let free = seen & (state::LOCK | state::DEAD) == 0;
        // Acquire: as in `lock_bit`.
        let locked = free
            && word
                .compare_exchange(
                    seen,
                    seen | state::LOCK,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok();
        if !locked {
            return;
        }
        if let Some(list) = self.list_of(packet)
            && self.ends(list).1 != packet.node.0
            // Acquire: as in `lock_bit`.
            && self.lock.compare_exchange(0, LOCK, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            self.unlink_locked(arena, list, packet);
            self.push_locked(arena, list, packet);
            unlock_bit(&self.lock, LOCK);
        }
        packet.unlock(0, 0);
    }
}
