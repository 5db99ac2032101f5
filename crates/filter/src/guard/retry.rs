//! Under a SYN flood: a SYN must come twice. A sender that is there sends it again after its first timeout (RFC 6298:
//! one second, then two, then four) with the same numbers; a forged one does not. This works where only one direction
//! of the traffic is seen, keeps no state for the sender beyond eight bytes of a table of fixed size, and costs a true
//! client one second.

use alloc::vec;
use alloc::vec::Vec;

use tables::signature::Keyed;
use wire::{FlowKey, Instant};

/// A retransmission comes this long after the first SYN, milliseconds.
const EARLIEST_MS: u32 = 200;
/// And not later than this.
const LATEST_MS: u32 = 8000;

/// SYNs that were seen once.
#[derive(Debug)]
pub struct SynRetry {
    /// Fingerprint (32), time in milliseconds (32).
    seen: Vec<u64>,
    hash: Keyed,
}

impl SynRetry {
    /// Makes a table of `slots` slots, eight bytes each; SYNs that fall into one slot displace each other.
    pub fn new(slots: usize, hash: Keyed) -> Self {
        Self {
            seen: vec![0; slots.max(1)],
            hash,
        }
    }

    /// Tells whether a SYN is a retransmission of one that was seen; notes it if not.
    pub fn admit(&mut self, key: &FlowKey, sequence: u32, now: Instant) -> bool {
        let source = u128::from_be_bytes(key.source);
        let destination = u128::from_be_bytes(key.destination);
        let ports = u64::from(key.source_port) << 16 | u64::from(key.destination_port);
        let hash = self.hash.hash_words(&[
            (source >> 64) as u64,
            source as u64,
            (destination >> 64) as u64,
            destination as u64,
            u64::from(sequence) << 32 | ports,
        ]);
        let slots = self.seen.len() as u64;
        let Some(slot) = self.seen.get_mut(((hash >> 32) % slots) as usize) else {
            return false;
        };
        let ms = (now.as_ns() / 1_000_000) as u32;
        let is_it = (*slot >> 32) as u32 == hash as u32;
        let age = ms.wrapping_sub(*slot as u32);
        if is_it && (EARLIEST_MS..=LATEST_MS).contains(&age) {
            return true;
        }
        if !is_it || age > LATEST_MS {
            *slot = hash << 32 | u64::from(ms);
        }
        false
    }
}
