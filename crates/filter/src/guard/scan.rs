//! Scans: a source that asks for many distinct endpoints in vain is held off for a while.

use alloc::vec;
use alloc::vec::Vec;

use tables::signature::Keyed;
use wire::{FlowKey, Instant};

/// How long probes are remembered, seconds.
const WINDOW_S: u64 = 10;
/// Bits of the filter that tells whether a probe is a new one.
const FILTER_BITS: u64 = 1 << 20;
/// Sources that are counted; those that share a place displace each other.
const SOURCES: u64 = 1 << 12;

/// What a worker remembers of refused packets.
#[derive(Debug)]
pub struct Scans {
    /// Distinct probes of this window (a Bloom filter of two hashes: a new probe is taken for a known one rarely, never
    /// the other way round).
    filter: Vec<u64>,
    /// Source, and its distinct probes of this window.
    counts: Vec<(u64, u64)>,
    /// Source, and until when it is held off, seconds.
    held: Vec<(u64, u64)>,
    window: u64,
    limit: u64,
    hold_off_s: u64,
    hash: Keyed,
}

impl Scans {
    /// Makes an empty memory; a `limit` of 0 detects nothing.
    pub fn new(limit: u64, hold_off_s: u32, hash: Keyed) -> Self {
        let used = if limit == 0 { 0 } else { 1 };
        Self {
            filter: vec![0; (FILTER_BITS / 64) as usize * used],
            counts: vec![(0, 0); SOURCES as usize * used],
            held: vec![(0, 0); SOURCES as usize * used],
            window: 0,
            limit,
            hold_off_s: hold_off_s.into(),
            hash,
        }
    }

    /// Tells whether a source is held off.
    #[inline]
    pub fn is_held_off(&self, source: u64, now: Instant) -> bool {
        if self.limit == 0 {
            return false;
        }
        let slot = self.hash.hash_words(&[source]) % SOURCES;
        self.held
            .get(slot as usize)
            .is_some_and(|&(held, until)| held == source && seconds(now) < until)
    }

    /// Notes a refused packet; returns how many distinct ones its source has sent if that is too many.
    pub fn refused(&mut self, source: u64, key: &FlowKey, now: Instant) -> Option<u64> {
        if self.limit == 0 {
            return None;
        }
        let window = seconds(now) / WINDOW_S;
        if window != self.window {
            self.window = window;
            self.filter.fill(0);
            self.counts.fill((0, 0));
        }
        let destination = u128::from_be_bytes(key.destination);
        let probe = self.hash.hash_words(&[
            source,
            (destination >> 64) as u64,
            destination as u64,
            u64::from(key.protocol) << 16 | u64::from(key.destination_port),
        ]);
        if !self.is_new(probe) {
            return None;
        }
        let slot = (self.hash.hash_words(&[source]) % SOURCES) as usize;
        let count = self.counts.get_mut(slot)?;
        if count.0 != source {
            *count = (source, 0);
        }
        count.1 += 1;
        if count.1 <= self.limit {
            return None;
        }
        let measured = count.1;
        let held = self.held.get_mut(slot)?;
        let was_held = held.0 == source && seconds(now) < held.1;
        *held = (source, seconds(now) + self.hold_off_s);
        (!was_held).then_some(measured)
    }

    fn is_new(&mut self, probe: u64) -> bool {
        let mut is_new = false;
        for bit in [probe % FILTER_BITS, (probe >> 32) % FILTER_BITS] {
            if let Some(word) = self.filter.get_mut((bit / 64) as usize) {
                is_new |= *word & 1 << (bit % 64) == 0;
                *word |= 1 << (bit % 64);
            }
        }
        is_new
    }
}

const fn seconds(now: Instant) -> u64 {
    now.as_ns() / 1_000_000_000
}
