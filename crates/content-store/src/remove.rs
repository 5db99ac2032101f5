//! Removal: a packet leaves the table, the trie and its queue, then waits for its grace period.

use crate::node::{Node, Packet, state};
use crate::slab::class_of;
use crate::stats::Counter;
use crate::sync::atomic::Ordering;
use crate::sync::{lock_bit, relax};
use crate::worker::{Reader, Worker, Writer};
use wire::ndn::NameRef;

/// Bytes of an implicit digest.
pub(crate) const DIGEST_BYTES: usize = 32;
/// Times that an erasure waits for another worker's removal.
const WAITS_MAX: u32 = 10_000;

impl Writer<'_> {
    /// Removes a packet from the store; false if somebody else does.
    pub(crate) fn remove(&mut self, node: Node) -> bool {
        let is_ours = self.take_out(node);
        if is_ours {
            self.finish_removal(node);
        }
        is_ours
    }

    /// Takes a packet out of its bucket; false if somebody else did. Who does it removes the packet.
    pub(crate) fn take_out(&self, node: Node) -> bool {
        let bucket = self.shared.table.lock(self.packet(node).bucket_part());
        let slot = bucket.slot_of(node);
        if let Some(slot) = slot {
            slot.clear();
            bucket.trim();
        }
        slot.is_some()
    }

    /// Unlinks a packet that the caller took out of its bucket, and retires it.
    pub(crate) fn finish_removal(&mut self, node: Node) {
        let packet = self.packet(node);
        // Waits for an insertion of this packet that is under way.
        lock_bit(packet.state(), state::LOCK);
        self.finish_locked(packet);
    }

    /// Unlinks a packet, which is in no bucket and whose state the caller locked, and retires it.
    pub(crate) fn finish_locked(&mut self, packet: Packet<'_>) {
        let shared = self.reader.shared;
        self.unlink(packet);
        shared.queues.forget(&shared.arena, packet);
        packet.unlock(0, state::DEAD);
        let word = packet.state().load(Ordering::Relaxed);
        if let Some(number) = ((word & state::RULE) >> state::RULE_SHIFT).checked_sub(1) {
            shared.rules.add(number as usize, -1);
        }
        let digest = packet.digest_place();
        if !digest.is_none() {
            self.local.retire(shared, class_of(DIGEST_BYTES), digest);
        }
        self.local
            .retire(shared, packet.lengths().class(), packet.node.place());
        self.local.count(shared, -1, 0);
    }
}

impl Worker {
    /// Erases packets in memory whose name begins with `prefix`, `limit` at most, with what the disk tier has of them;
    /// returns how many. With a limit of `usize::MAX` the disk tier loses all packets below the prefix, also those
    /// that are not in memory and not counted. O(components) each.
    pub fn erase(&mut self, prefix: NameRef<'_>, limit: usize) -> usize {
        let mut writer = self.writer();
        let mut count = 0;
        let mut spins = 0;
        let is_all = limit == usize::MAX;
        while count < limit && spins < WAITS_MAX {
            writer.settle();
            let Some(node) = writer.any_at_or_below(prefix) else {
                break;
            };
            let packet = writer.packet(node);
            if writer.remove(node) {
                if !is_all {
                    writer.erase_on_disk(packet);
                }
                writer.add(Counter::Erased, 1);
                count += 1;
                spins = 0;
            } else {
                // Another worker removes it: out of the trie in a moment.
                relax(&mut spins);
            }
        }
        if is_all {
            // Last: what was evicted meanwhile is in the log before it.
            writer.erase_below_on_disk(prefix);
        }
        count
    }
}

impl Reader<'_> {
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
