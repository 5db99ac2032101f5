//! Fragments: which datagram each belongs to, so that all share the first one's connection (RFC 4787 REQ-14,
//! RFC 7857, RFC 5722). The table is a worker's own: fragments of one datagram have the same addresses, and go to the
//! same worker.
//!
//! Nothing is put together. A later fragment that comes before the first one is held in a store of fixed size;
//! what the first one is found to be, all are. A datagram whose fragments overlap is dropped as a whole, one that
//! has too many fragments too, and a source has a share of the table only (REQ-14a).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use tables::signature::Keyed;
use wire::ipv6::FragmentHeader;
use wire::{DropReason, Layout, LayoutFlags, ipv4};

use super::timeout::Tick;

/// Fragments of one datagram, at most (64 KiB in frames of 1,500 bytes have 45).
const PARTS_MAX: usize = 48;
/// Entries that share a place in the index.
const WAYS: usize = 8;
/// Bytes that one held fragment may have.
const HELD_BYTES: usize = 2048;
/// The end of a list.
const NONE: u16 = u16::MAX;

/// Which datagram a fragment is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Datagram {
    source: [u8; 16],
    destination: [u8; 16],
    identification: u32,
    protocol: u8,
}

/// What was decided about a datagram, by its first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Its fragments go on (with these addresses); otherwise they are dropped, for this reason.
    pub addresses: Result<([u8; 16], [u8; 16]), DropReason>,
}

/// What to do with a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As the first one.
    Decided(Decision),
    /// A copy is held until the first one comes: consume the frame.
    Held,
    /// Drop it.
    Drop(DropReason),
}

/// Limits of a [`Fragments`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Datagrams that are remembered at once.
    pub datagrams: usize,
    /// Later fragments that are held (2 KiB each).
    pub held: usize,
    /// Datagrams of one source (by a hash of its address).
    pub per_source: u16,
    /// How long a datagram is remembered, seconds (RFC 6146 4: at least 2).
    pub timeout_s: u16,
}

impl Default for FragmentLimits {
    fn default() -> Self {
        Self {
            datagrams: 1024,
            held: 256,
            per_source: 128,
            timeout_s: 15,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    datagram: Datagram,
    used: bool,
    doomed: bool,
    seen: Tick,
    parts: u8,
    spans: [(u16, u16); PARTS_MAX],
    decision: Option<Decision>,
    held: u16,
}

impl Entry {
    const fn new() -> Self {
        Self {
            datagram: Datagram {
                source: [0; 16],
                destination: [0; 16],
                identification: 0,
                protocol: 0,
            },
            used: false,
            doomed: false,
            seen: Tick(0),
            parts: 0,
            spans: [(0, 0); PARTS_MAX],
            decision: None,
            held: NONE,
        }
    }
}

/// A fragment that waits for its first one.
#[derive(Debug)]
struct Held {
    bytes: Box<[u8; HELD_BYTES]>,
    len: u16,
    next: u16,
}

/// Datagrams in fragments, and the fragments that wait.
#[derive(Debug)]
pub struct Fragments {
    entries: Vec<Entry>,
    held: Vec<Held>,
    free: u16,
    sources: Vec<u16>,
    hash: Keyed,
    limits: FragmentLimits,
}

/// Where a fragment lies in its datagram.
#[derive(Clone, Copy, Debug)]
struct Part {
    datagram: Datagram,
    start: u16,
    end: u16,
}

impl Fragments {
    /// Makes an empty table; takes all its memory.
    pub fn new(limits: FragmentLimits, hash: Keyed) -> Self {
        let entries = limits.datagrams.next_multiple_of(WAYS).max(WAYS);
        let held = limits.held.min(usize::from(NONE));
        Self {
            entries: vec![Entry::new(); entries],
            held: (0..held)
                .map(|at| Held {
                    bytes: Box::new([0; HELD_BYTES]),
                    len: 0,
                    next: if at + 1 < held { at as u16 + 1 } else { NONE },
                })
                .collect(),
            free: if held == 0 { NONE } else { 0 },
            sources: vec![0; 4096],
            hash,
            limits,
        }
    }

    /// Registers a first fragment; the caller judges it as a packet and tells by [`decide`](Self::decide).
    ///
    /// # Errors
    /// Why the fragment is dropped before.
    pub fn first(&mut self, layout: &Layout, frame: &[u8], now: Tick) -> Result<usize, DropReason> {
        let part = part_of(layout, frame).ok_or(DropReason::FragmentMalformed)?;
        let at = self.enter(&part, now)?;
        self.add_span(at, &part)?;
        Ok(at)
    }

    /// Notes what became of a first fragment; `entry` is from [`first`](Self::first). The fragments that were held
    /// come back by [`take_held`](Self::take_held).
    pub fn decide(&mut self, entry: usize, decision: Decision) {
        if let Some(entry) = self.entries.get_mut(entry) {
            entry.decision = Some(decision);
        }
    }

    /// Gives back one fragment that was held for the datagram, copied to `buffer`: its length in bytes.
    pub fn take_held(&mut self, entry: usize, buffer: &mut [u8]) -> Option<usize> {
        let entry = self.entries.get_mut(entry)?;
        let slot = entry.held;
        let held = self.held.get_mut(usize::from(slot))?;
        entry.held = held.next;
        held.next = self.free;
        self.free = slot;
        let bytes = held.bytes.get(..usize::from(held.len))?;
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(bytes.len())
    }

    /// Handles a fragment that is not the first of its datagram.
    pub fn later(&mut self, layout: &Layout, frame: &[u8], now: Tick) -> Fate {
        let Some(part) = part_of(layout, frame) else {
            return Fate::Drop(DropReason::FragmentMalformed);
        };
        let at = match self.enter(&part, now) {
            Ok(at) => at,
            Err(reason) => return Fate::Drop(reason),
        };
        if let Err(reason) = self.add_span(at, &part) {
            return Fate::Drop(reason);
        }
        match self.entries.get(at).and_then(|entry| entry.decision) {
            Some(decision) => Fate::Decided(decision),
            None if self.hold(at, frame) => Fate::Held,
            None => Fate::Drop(DropReason::FragmentStoreFull),
        }
    }

    /// Forgets what is older than the timeout: a pass over the table, to be called once a second or so.
    pub fn expire(&mut self, now: Tick) {
        for at in 0..self.entries.len() {
            if self.is_old(at, now) {
                self.remove(at);
            }
        }
    }

    /// Number of datagrams that are remembered.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.used).count()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Finds the datagram, or makes an entry.
    fn enter(&mut self, part: &Part, now: Tick) -> Result<usize, DropReason> {
        let datagram = &part.datagram;
        let (bucket, source) = self.place(datagram);
        let mut vacant = None;
        for at in bucket..bucket + WAYS {
            if self.is_old(at, now) {
                self.remove(at);
            }
            match self.entries.get(at) {
                Some(entry) if entry.used && entry.datagram == *datagram => {
                    return if entry.doomed {
                        Err(DropReason::FragmentOverlap)
                    } else {
                        Ok(at)
                    };
                }
                Some(entry) if !entry.used => vacant = vacant.or(Some(at)),
                _ => {}
            }
        }
        let share = self.sources.get_mut(source);
        let (Some(at), Some(share)) = (vacant, share) else {
            return Err(DropReason::FragmentStoreFull);
        };
        if *share >= self.limits.per_source {
            return Err(DropReason::FragmentStoreFull);
        }
        *share += 1;
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = Entry {
                datagram: *datagram,
                used: true,
                seen: now,
                ..Entry::new()
            };
        }
        Ok(at)
    }

    /// Notes which bytes a fragment covers.
    fn add_span(&mut self, at: usize, part: &Part) -> Result<(), DropReason> {
        let Some(entry) = self.entries.get_mut(at) else {
            return Err(DropReason::FragmentStoreFull);
        };
        let known = entry
            .spans
            .get(..usize::from(entry.parts))
            .unwrap_or_default();
        // RFC 8200 4.5: an exact duplicate may be dropped alone.
        if known.contains(&(part.start, part.end)) {
            return Err(DropReason::FragmentOverlap);
        }
        let overlaps = known
            .iter()
            .any(|&(start, end)| part.start < end && start < part.end);
        let slot = entry.spans.get_mut(usize::from(entry.parts));
        let Some(slot) = slot.filter(|_| !overlaps) else {
            entry.doomed = true;
            self.release_held(at);
            return Err(DropReason::FragmentOverlap);
        };
        *slot = (part.start, part.end);
        entry.parts += 1;
        Ok(())
    }

    fn hold(&mut self, at: usize, frame: &[u8]) -> bool {
        let slot = self.free;
        let (Some(held), Some(entry)) = (
            self.held.get_mut(usize::from(slot)),
            self.entries.get_mut(at),
        ) else {
            return false;
        };
        let Some(bytes) = held.bytes.get_mut(..frame.len()) else {
            return false;
        };
        bytes.copy_from_slice(frame);
        held.len = frame.len() as u16;
        self.free = held.next;
        held.next = entry.held;
        entry.held = slot;
        true
    }

    fn release_held(&mut self, at: usize) {
        while let Some(entry) = self.entries.get_mut(at)
            && let Some(held) = self.held.get_mut(usize::from(entry.held))
        {
            let slot = entry.held;
            entry.held = held.next;
            held.next = self.free;
            self.free = slot;
        }
    }

    fn remove(&mut self, at: usize) {
        self.release_held(at);
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        entry.used = false;
        let datagram = entry.datagram;
        let (_, source) = self.place(&datagram);
        if let Some(share) = self.sources.get_mut(source) {
            *share = share.saturating_sub(1);
        }
    }

    fn is_old(&self, at: usize, now: Tick) -> bool {
        let limit = u32::from(self.limits.timeout_s) * 8;
        self.entries
            .get(at)
            .is_some_and(|entry| entry.used && now.since(entry.seen) >= limit)
    }

    /// Where a datagram's entries lie, and where its source is counted.
    fn place(&self, datagram: &Datagram) -> (usize, usize) {
        let source = u128::from_be_bytes(datagram.source);
        let destination = u128::from_be_bytes(datagram.destination);
        let own = [(source >> 64) as u64, source as u64];
        let hash = self.hash.hash_words(&[
            own[0],
            own[1],
            (destination >> 64) as u64,
            destination as u64,
            u64::from(datagram.identification) << 8 | u64::from(datagram.protocol),
        ]);
        let buckets = self.entries.len() / WAYS;
        let bucket = ((hash >> 32) as usize % buckets.max(1)) * WAYS;
        let sources = self.sources.len().max(1);
        (bucket, self.hash.hash_words(&own) as usize % sources)
    }
}

/// Reads which datagram a fragment belongs to, and where.
fn part_of(layout: &Layout, frame: &[u8]) -> Option<Part> {
    let flow = wire::FlowKey::from_layout(layout, frame)?;
    let network = usize::from(layout.network);
    let (identification, protocol, start, data_start) = if layout.flags.contains(LayoutFlags::IPV4)
    {
        let header = frame
            .get(network..)?
            .first_chunk::<{ ipv4::HEADER_BYTES }>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        (
            u32::from(word(ipv4::IDENTIFICATION)),
            header[ipv4::PROTOCOL],
            (word(ipv4::FLAGS_FRAGMENT) & ipv4::FRAGMENT_OFFSET_MASK) << 3,
            network + usize::from(header[0] & 15) * 4,
        )
    } else {
        let (header, at) = FragmentHeader::find(layout, frame)?;
        let data_start = at + wire::ipv6::FRAGMENT_HEADER_BYTES;
        (header.identification, 0, header.offset_bytes, data_start)
    };
    let bytes = usize::from(layout.end).checked_sub(data_start)?;
    Some(Part {
        datagram: Datagram {
            source: flow.source,
            destination: flow.destination,
            identification,
            protocol,
        },
        start,
        end: start.checked_add(u16::try_from(bytes).ok()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::parse;

    /// An IPv4 fragment of UDP, `offset` and data in bytes.
    fn fragment(source: u8, id: u16, offset: u16, bytes: usize, more: bool) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + bytes];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        let header = ipv4::Repr {
            more_fragments: more,
            fragment_offset_bytes: offset,
            identification: id,
            dont_fragment: false,
            ..ipv4::Repr::new(
                [10, 0, 0, source].into(),
                [192, 0, 2, 1].into(),
                17,
                bytes as u16,
            )
        };
        header.emit(&mut frame[14..]).unwrap();
        if offset == 0 {
            frame[34..42].copy_from_slice(&[0, 9, 0, 53, 0, 99, 0, 0]);
        }
        frame
    }

    fn table(limits: FragmentLimits) -> Fragments {
        Fragments::new(limits, Keyed::new([1, 2, 3, 4]))
    }

    fn later(table: &mut Fragments, frame: &[u8], now: u32) -> Fate {
        table.later(&parse(frame).unwrap(), frame, Tick(now))
    }

    const OK: Decision = Decision {
        addresses: Ok(([1; 16], [2; 16])),
    };

    #[test]
    fn row_17_and_18_in_any_order() {
        let mut table = table(FragmentLimits::default());
        let (a, b, c) = (
            fragment(1, 7, 0, 64, true),
            fragment(1, 7, 64, 64, true),
            fragment(1, 7, 128, 32, false),
        );
        assert_eq!(later(&mut table, &c, 0), Fate::Held);
        let entry = table.first(&parse(&a).unwrap(), &a, Tick(1)).unwrap();
        table.decide(entry, OK);
        let mut buffer = [0; 2048];
        let bytes = table.take_held(entry, &mut buffer).unwrap();
        assert_eq!(&buffer[..bytes], &c[..]);
        assert_eq!(table.take_held(entry, &mut buffer), None);
        assert_eq!(later(&mut table, &b, 2), Fate::Decided(OK));
        // Another datagram of the same hosts is another one.
        assert_eq!(
            later(&mut table, &fragment(1, 8, 64, 64, false), 2),
            Fate::Held
        );
    }

    #[test]
    fn row_19_a_flood_of_fragments_is_bounded_and_starves_nobody() {
        let limits = FragmentLimits {
            datagrams: 1024,
            held: 64,
            per_source: 32,
            timeout_s: 2,
        };
        let mut table = table(limits);
        for id in 0..10_000 {
            later(&mut table, &fragment(66, id, 64, 64, true), 0);
        }
        assert_eq!(table.len(), 32);
        assert_eq!(
            later(&mut table, &fragment(1, 1, 64, 64, false), 0),
            Fate::Held
        );
        // What was held comes back with the timeout.
        for source in 100..200 {
            later(&mut table, &fragment(source, 1, 64, 64, true), 1);
        }
        let full = later(&mut table, &fragment(2, 1, 64, 64, false), 1);
        assert_eq!(full, Fate::Drop(DropReason::FragmentStoreFull));
        table.expire(Tick(100));
        assert!(table.is_empty());
        assert_eq!(
            later(&mut table, &fragment(2, 1, 64, 64, false), 100),
            Fate::Held
        );
    }

    #[test]
    fn row_70_and_71_an_overlap_dooms_the_datagram() {
        let mut table = table(FragmentLimits::default());
        let first = fragment(1, 7, 0, 64, true);
        let entry = table
            .first(&parse(&first).unwrap(), &first, Tick(0))
            .unwrap();
        table.decide(entry, OK);
        let overlap = later(&mut table, &fragment(1, 7, 56, 64, true), 0);
        assert_eq!(overlap, Fate::Drop(DropReason::FragmentOverlap));
        let rest = later(&mut table, &fragment(1, 7, 128, 64, false), 0);
        assert_eq!(rest, Fate::Drop(DropReason::FragmentOverlap));
    }

    #[test]
    fn an_exact_duplicate_is_dropped_alone() {
        let mut table = table(FragmentLimits::default());
        let first = fragment(1, 7, 0, 64, true);
        let entry = table
            .first(&parse(&first).unwrap(), &first, Tick(0))
            .unwrap();
        table.decide(entry, OK);
        let middle = fragment(1, 7, 64, 64, true);
        assert_eq!(later(&mut table, &middle, 0), Fate::Decided(OK));
        let again = later(&mut table, &middle, 0);
        assert_eq!(again, Fate::Drop(DropReason::FragmentOverlap));
        assert_eq!(
            later(&mut table, &fragment(1, 7, 128, 64, false), 0),
            Fate::Decided(OK)
        );
    }
}
