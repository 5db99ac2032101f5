//! The ring of the paper (CS-5): tickets by fetch-and-add at both ends. A ticket names a slot for ever, so
//! that threads do not wait for each other; a thread may take a run of tickets at once, which keeps two
//! threads off each other's lines and makes the order first-in-first-out to within run x threads.

use crate::arena::Arena;
use crate::node::{Node, Packet, state};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::lock_bit;
use crossbeam_utils::CachePadded;
use tables::memory::{Memory, Pages, prefetch};

/// Slots that an insertion tries.
const LOOKS_MAX: usize = 1024;

/// A ring of packets.
#[derive(Debug)]
pub(crate) struct Ring {
    /// The ring's number in its packets.
    number: u32,
    slots: Memory<AtomicU32>,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

/// Tickets that one worker holds of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    next: u64,
    end: u64,
}

impl Ring {
    pub(crate) fn new(number: u32, slots: usize, pages: Pages) -> Self {
        Self {
            number,
            slots: Memory::zeroed(slots.max(1), pages),
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Tickets between the ends: packets and holes.
    pub(crate) fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        tail.saturating_sub(self.head.load(Ordering::Relaxed)) as usize
    }

    /// True if a run of tickets finds slots that no ticket still in the ring has.
    pub(crate) fn has_room(&self, run_len: u64) -> bool {
        self.len() as u64 + run_len <= self.slots.len() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU32>()
    }

    fn slot(&self, ticket: u64) -> &AtomicU32 {
        let at = (ticket % self.slots.len() as u64) as usize;
        match self.slots.get(at) {
            Some(slot) => slot,
            None => &self.slots[0],
        }
    }

    /// Puts a packet at the tail; the caller holds the lock of the packet's state. False if no slot is free.
    pub(crate) fn push(&self, packet: Packet<'_>, run: &mut Run, run_len: u64) -> bool {
        for _ in 0..LOOKS_MAX {
            if run.next >= run.end || self.head.load(Ordering::Relaxed) > run.next {
                run.next = self.tail.fetch_add(run_len, Ordering::Relaxed);
                run.end = run.next + run_len;
            }
            let ticket = run.next;
            run.next += 1;
            let slot = self.slot(ticket);
            // Release: pairs with the acquire in `pop`. A slot is taken where the tail came round. SeqCst: with
            // the load below it pairs with the add and the load in `pop`: either the head's next visitor sees
            // the packet, or we see that the head has passed.
            let free = slot.compare_exchange(0, packet.node.0, Ordering::SeqCst, Ordering::Relaxed);
            if free.is_err() {
                continue;
            }
            let at = (ticket % self.slots.len() as u64) as u32;
            packet.set_ring_position(Some((self.number, at)));
            if self.head.load(Ordering::SeqCst) <= ticket {
                return true;
            }
            // Passed: nobody would come by for another lap. Who saw it waits for the packet's lock, then sees
            // that it is gone.
            self.forget(packet, at);
        }
        false
    }

    /// Takes the packet at the head out, and returns it with the lock of its state held. Passes over holes; each
    /// was made by one insertion.
    pub(crate) fn pop<'a>(&self, arena: &'a Arena) -> Option<Packet<'a>> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            if head >= self.tail.load(Ordering::Relaxed) {
                return None;
            }
            // SeqCst: see `push`.
            let slot = self.slot(self.head.fetch_add(1, Ordering::SeqCst));
            // Acquire (and SeqCst): pairs with the release in `push`.
            let word = slot.load(Ordering::SeqCst);
            if word == 0 {
                continue;
            }
            let packet = Packet::new(arena, Node(word));
            lock_bit(packet.state(), state::LOCK);
            if slot.load(Ordering::Relaxed) == word {
                slot.store(0, Ordering::Relaxed);
                packet.set_ring_position(None);
                return Some(packet);
            }
            packet.unlock(0, 0);
        }
    }

    /// Clears the slot of a packet that is at this place; the caller holds the lock of the packet's state.
    pub(crate) fn forget(&self, packet: Packet<'_>, at: u32) {
        let slot = self.slot(u64::from(at));
        let _ = slot.compare_exchange(packet.node.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        packet.set_ring_position(None);
    }

    /// Asks for the slots from which packets will be taken soon, and to which they will come.
    pub(crate) fn prefetch(&self) {
        prefetch(self.slot(self.head.load(Ordering::Relaxed) + 64));
    }

    /// The packet that is `from` behind the head.
    pub(crate) fn peek(&self, from: usize) -> Node {
        let head = self.head.load(Ordering::Relaxed);
        Node(self.slot(head + from as u64).load(Ordering::Relaxed))
    }
}
