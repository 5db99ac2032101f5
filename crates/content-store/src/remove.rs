//! Removal: a packet leaves the table, the trie and its queue, then waits for its grace period.

use crate::node::{Node, Packet, state};
use crate::slab::class_of;
use crate::stats::Counter;
use crate::sync::atomic::Ordering;
use crate::sync::{lock_bit, relax, unlock_bit};
use crate::worker::Worker;
use alloc::sync::Arc;
use wire::ndn::NameRef;

/// Bytes of an implicit digest.
pub(crate) const DIGEST_BYTES: usize = 32;
/// Times that an erasure waits for another worker's removal.
const WAITS_MAX: u32 = 10_000;

impl Worker {
    /// Removes a packet from the store; false if somebody else does.
    pub(crate) fn remove(&mut self, node: Node) -> bool {
        let bucket = self.shared.table.lock(self.packet(node).bucket_part());
        let Some(slot) = bucket.slot_of(node) else {
            return false;
        };
        // Who clears the slot is who removes the packet.
        slot.clear();
        drop(bucket);
        self.finish_removal(node);
        true
    }

    /// Unlinks a packet that the caller took out of its slot, and retires it.
    pub(crate) fn finish_removal(&mut self, node: Node) {
        let shared = Arc::clone(&self.shared);
        let packet = Packet::new(&shared.arena, node);
        // Waits for an insertion of this packet that is under way.
        lock_bit(packet.state(), state::LOCK);
        self.unlink(packet);
        shared.queues.forget(&shared.arena, packet);
        self.finish_locked(packet);
    }

    /// Marks a packet dead, which is in no table, trie or queue and whose state the caller locked.
    pub(crate) fn finish_locked(&mut self, packet: Packet<'_>) {
        packet.set_state(state::DEAD, state::DEAD);
        unlock_bit(packet.state(), state::LOCK);
        let word = packet.state().load(Ordering::Relaxed);
        if let Some(number) = ((word & state::RULE) >> state::RULE_SHIFT).checked_sub(1) {
            self.shared.rules.add(number as usize, -1);
        }
        let digest = packet.digest_place();
        let local = self.local.get_mut();
        if !digest.is_none() {
            local.retire(&self.shared, class_of(DIGEST_BYTES), digest);
        }
        local.retire(&self.shared, packet.lengths().class(), packet.node.place());
        local.count(&self.shared, -1, 0);
    }

    /// Erases packets whose name begins with `prefix`, `limit` at most; returns how many. O(components) each.
    pub fn erase(&mut self, prefix: NameRef<'_>, limit: usize) -> usize {
        let mut count = 0;
        let mut spins = 0;
        while count < limit && spins < WAITS_MAX {
            self.settle();
            let Some(node) = self.any_at_or_below(prefix) else {
                break;
            };
            if self.remove(node) {
                self.add(Counter::Erased, 1);
                count += 1;
                spins = 0;
            } else {
                // Another worker removes it: out of the trie in a moment.
                relax(&mut spins);
            }
        }
        count
    }

    /// The leftmost packet whose name begins with `prefix`.
    pub(crate) fn any_at_or_below(&self, prefix: NameRef<'_>) -> Option<Node> {
        let hash = self.shared.hash.hash(prefix.value());
        if let Some(packet) = self.find_exact(hash, prefix.value()) {
            return Some(packet.node);
        }
        let top = self.inner(hash)?;
        self.search_below(top, 0, |_| true)
            .map(|packet| packet.node)
    }
}
