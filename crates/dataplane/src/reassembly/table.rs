//! The fragments that wait, by datagram: bounded in datagrams, in fragments of each, and in all.
//!
//! What a sender may not do with fragments, and what comes of it (RFC 5722, RFC 8900 3.7): an overlap, or
//! ends that contradict each other, ends the whole datagram; a fragment that is there already, byte for
//! byte, is dropped alone, since networks may double packets (RFC 8200 4.5). Where there is no room, the
//! datagram that has waited longest gives way, so that what never completes does not keep others out.

use core::time::Duration;

use io::Frame;
use wire::{DropReason, Instant};

/// Datagrams that wait at once.
pub const DATAGRAMS_MAX: usize = 32;
/// Fragments of one datagram: 65,535 bytes in fragments of the smallest MTU of IPv6.
pub const FRAGMENTS_MAX: usize = 64;
/// How long the first fragment waits for the others: what RFC 8200 4.5 allows.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The most that a datagram's data can be, bytes.
const DATAGRAM_MAX_BYTES: u32 = 65_535;

/// Which datagram a fragment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Source address, IPv4 in IPv4-mapped form.
    pub source: [u8; 16],
    /// Destination address, in the same form.
    pub destination: [u8; 16],
    /// The identification; 16 bits for IPv4.
    pub identification: u32,
    /// The protocol (IPv4); 0 for IPv6, where it is not of the key.
    pub protocol: u8,
}

/// A fragment, and where its data are.
#[derive(Debug)]
pub struct Fragment {
    /// Where the data belong in the datagram, bytes.
    pub offset: u16,
    /// Where they start in the frame, bytes.
    pub start: u16,
    /// How many they are, bytes; at least one.
    pub bytes: u16,
    /// The frame.
    pub frame: Frame,
}

impl Fragment {
    /// Returns the data.
    pub fn data(&self) -> &[u8] {
        let start = usize::from(self.start);
        let end = start + usize::from(self.bytes);
        self.frame.data().get(start..end).unwrap_or_default()
    }

    fn end(&self) -> u32 {
        u32::from(self.offset) + u32::from(self.bytes)
    }
}

#[derive(Debug)]
struct Datagram {
    key: Key,
    since: Instant,
    /// Bytes that it has, once its last fragment is known.
    total: Option<u32>,
    /// Bytes that are there.
    held: u32,
    /// In the order of their offsets.
    fragments: Vec<Fragment>,
}

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits for others, or was dropped.
    Waiting,
    /// Its datagram is whole: take it with [`Fragments::take`].
    Whole,
}

/// The fragments of one worker.
#[derive(Debug)]
pub struct Fragments {
    datagrams: Vec<Datagram>,
    spare: Vec<Vec<Fragment>>,
    waiting: usize,
    waiting_max: usize,
}

impl Fragments {
    /// Makes room for [`DATAGRAMS_MAX`] datagrams and `waiting_max` fragments in all.
    pub fn new(waiting_max: usize) -> Self {
        let list = || Vec::with_capacity(FRAGMENTS_MAX);
        Self {
            datagrams: Vec::with_capacity(DATAGRAMS_MAX),
            spare: (0..DATAGRAMS_MAX).map(|_| list()).collect(),
            waiting: 0,
            waiting_max,
        }
    }

    /// Returns how many fragments wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Tells whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a fragment; `more` says that it is not the last of its datagram. Gives what has to go to `drop`.
    /// Takes time in proportion to the datagrams and fragments that wait.
    pub fn add(
        &mut self,
        key: &Key,
        fragment: Fragment,
        more: bool,
        now: Instant,
        mut drop: impl FnMut(Frame, DropReason),
    ) -> Added {
        if self.waiting >= self.waiting_max || self.is_new_without_room(key) {
            let oldest = self.oldest();
            self.end(oldest, DropReason::ReassemblyFull, &mut drop);
        }
        let Some(at) = self.find_or_make(key, now) else {
            drop(fragment.frame, DropReason::ReassemblyFull);
            return Added::Waiting;
        };
        let Some(datagram) = self.datagrams.get_mut(at) else {
            drop(fragment.frame, DropReason::ReassemblyFull);
            return Added::Waiting;
        };
        match datagram.place(&fragment, more) {
            Ok(place) => {
                if !more {
                    datagram.total = Some(fragment.end());
                }
                datagram.held += u32::from(fragment.bytes);
                datagram.fragments.insert(place, fragment);
                self.waiting += 1;
                if datagram.total == Some(datagram.held) {
                    return Added::Whole;
                }
            }
            Err(DropReason::ReassemblyDuplicate) => {
                drop(fragment.frame, DropReason::ReassemblyDuplicate);
            }
            Err(reason) => {
                drop(fragment.frame, reason);
                self.end(at, reason, &mut drop);
            }
        }
        Added::Waiting
    }

    /// Gives the fragments of a datagram to `f`, in their order.
    pub fn take(&mut self, key: &Key, f: impl FnMut(Fragment)) {
        if let Some(at) = self.position(key) {
            self.remove(at, f);
        }
    }

    /// Gives up the datagrams that have waited for [`PATIENCE`]: gives `f` their fragments in order, and
    /// whether it is the first of its datagram and has the datagram's start.
    pub fn expire(&mut self, now: Instant, mut f: impl FnMut(Fragment, bool)) {
        while let Some(at) = self
            .datagrams
            .iter()
            .position(|datagram| datagram.since + PATIENCE <= now)
        {
            self.remove(at, |fragment| {
                let is_start = fragment.offset == 0;
                f(fragment, is_start);
            });
        }
    }

    /// Returns when [`Fragments::expire`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let since = self.datagrams.iter().map(|datagram| datagram.since).min();
        since.map(|since| since + PATIENCE)
    }

    /// Lets go of everything.
    pub fn clear(&mut self, mut f: impl FnMut(Frame)) {
        while !self.datagrams.is_empty() {
            self.remove(0, |fragment| f(fragment.frame));
        }
    }

    fn position(&self, key: &Key) -> Option<usize> {
        self.datagrams.iter().position(|d| d.key == *key)
    }

    fn is_new_without_room(&self, key: &Key) -> bool {
        self.spare.is_empty() && self.position(key).is_none()
    }

    fn oldest(&self) -> usize {
        let all = self.datagrams.iter().enumerate();
        all.min_by_key(|(_, datagram)| datagram.since)
            .map_or(0, |(at, _)| at)
    }

    fn find_or_make(&mut self, key: &Key, now: Instant) -> Option<usize> {
        if let Some(at) = self.position(key) {
            return Some(at);
        }
        let fragments = self.spare.pop()?;
        self.datagrams.push(Datagram {
            key: *key,
            since: now,
            total: None,
            held: 0,
            fragments,
        });
        Some(self.datagrams.len() - 1)
    }

    fn end(&mut self, at: usize, reason: DropReason, drop: &mut impl FnMut(Frame, DropReason)) {
        self.remove(at, |fragment| drop(fragment.frame, reason));
    }

    fn remove(&mut self, at: usize, f: impl FnMut(Fragment)) {
        if at >= self.datagrams.len() {
            return;
        }
        let mut datagram = self.datagrams.swap_remove(at);
        self.waiting -= datagram.fragments.len();
        datagram.fragments.drain(..).for_each(f);
        self.spare.push(datagram.fragments);
    }
}

impl Datagram {
    /// Returns where in the row the fragment belongs.
    fn place(&self, fragment: &Fragment, more: bool) -> Result<usize, DropReason> {
        let (start, end) = (u32::from(fragment.offset), fragment.end());
        let place = self
            .fragments
            .partition_point(|f| u32::from(f.offset) < start);
        let after = self.fragments.get(place);
        if after.is_some_and(|f| f.offset == fragment.offset && f.data() == fragment.data()) {
            let is_last = self.total == Some(end);
            if is_last != more {
                return Err(DropReason::ReassemblyDuplicate);
            }
        }
        let before = place.checked_sub(1).and_then(|at| self.fragments.get(at));
        if before.is_some_and(|f| f.end() > start)
            || after.is_some_and(|f| u32::from(f.offset) < end)
        {
            return Err(DropReason::ReassemblyOverlap);
        }
        let beyond = self
            .total
            .is_some_and(|total| end > total || (!more && end != total));
        let ends_early = !more && self.fragments.last().is_some_and(|f| f.end() > end);
        if beyond || ends_early || end > DATAGRAM_MAX_BYTES {
            return Err(DropReason::FragmentMalformed);
        }
        if self.fragments.len() >= FRAGMENTS_MAX {
            return Err(DropReason::ReassemblyFull);
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::{HugePages, Pool};
    use proptest::prelude::*;

    fn key(number: u32) -> Key {
        Key {
            source: [1; 16],
            destination: [2; 16],
            identification: number,
            protocol: 1,
        }
    }

    struct Bench {
        pool: Pool,
        fragments: Fragments,
        drops: Vec<DropReason>,
        now: Instant,
    }

    impl Bench {
        fn new(waiting_max: usize) -> Self {
            Self {
                pool: Pool::new(256, 2048, HugePages::Never).expect("a pool"),
                fragments: Fragments::new(waiting_max),
                drops: Vec::new(),
                now: Instant::ZERO,
            }
        }

        fn add(&mut self, number: u32, offset: u16, data: &[u8], more: bool) -> Added {
            let mut frame = self.pool.alloc().expect("a frame");
            assert!(frame.fill(data));
            let fragment = Fragment {
                offset,
                start: 0,
                bytes: data.len() as u16,
                frame,
            };
            let (pool, drops) = (&mut self.pool, &mut self.drops);
            self.fragments
                .add(&key(number), fragment, more, self.now, |frame, reason| {
                    drops.push(reason);
                    pool.free(frame);
                })
        }

        fn take(&mut self, number: u32) -> Vec<u8> {
            let mut whole = Vec::new();
            let pool = &mut self.pool;
            self.fragments.take(&key(number), |fragment| {
                assert_eq!(usize::from(fragment.offset), whole.len());
                whole.extend(fragment.data());
                pool.free(fragment.frame);
            });
            whole
        }

        fn finish(mut self) {
            let pool = &mut self.pool;
            self.fragments.clear(|frame| pool.free(frame));
            assert!(self.fragments.is_empty());
            assert_eq!(self.pool.available(), self.pool.capacity());
        }
    }

    #[test]
    fn an_overlap_ends_the_datagram_and_a_duplicate_does_not() {
        let mut bench = Bench::new(64);
        assert_eq!(bench.add(1, 0, &[1; 16], true), Added::Waiting);
        assert_eq!(bench.add(1, 0, &[1; 16], true), Added::Waiting);
        assert_eq!(bench.drops, [DropReason::ReassemblyDuplicate]);
        assert_eq!(bench.fragments.len(), 1);
        // The same place, other bytes.
        bench.add(1, 0, &[2; 16], true);
        assert_eq!(bench.drops[1..], [DropReason::ReassemblyOverlap; 2]);
        for (offset, bytes) in [(8, 16), (0, 24)] {
            bench.add(2, 0, &[1; 16], true);
            bench.add(2, offset, &vec![1; bytes], true);
            assert!(bench.fragments.is_empty(), "{offset} {bytes}");
        }
        bench.finish();
    }

    #[test]
    fn ends_that_contradict_each_other_end_the_datagram() {
        // Another end, data beyond the end, an end before data.
        for (offset, more) in [(24, false), (24, true), (0, false)] {
            let mut bench = Bench::new(64);
            bench.add(1, 8, &[1; 8], offset == 0);
            bench.add(1, offset, &[1; 8], more);
            assert_eq!(bench.drops, [DropReason::FragmentMalformed; 2], "{offset}");
            bench.finish();
        }
        let mut bench = Bench::new(64);
        bench.add(1, 65_528, &[0; 8], false);
        assert_eq!(bench.drops, [DropReason::FragmentMalformed]);
        bench.finish();
    }

    #[test]
    fn the_oldest_gives_way_and_every_limit_holds() {
        let mut bench = Bench::new(100);
        for number in 0..DATAGRAMS_MAX as u32 + 1 {
            bench.add(number, 0, &[1; 8], true);
            bench.now = bench.now + Duration::from_millis(1);
        }
        assert_eq!(bench.drops, [DropReason::ReassemblyFull]);
        assert_eq!(bench.fragments.len(), DATAGRAMS_MAX);
        assert!(bench.fragments.position(&key(0)).is_none());
        for at in 1..=FRAGMENTS_MAX as u16 {
            bench.add(5, at * 16, &[1; 8], true);
        }
        assert!(
            bench.fragments.position(&key(5)).is_none(),
            "too many fragments"
        );
        bench.drops.clear();
        for at in 0..60 {
            bench.add(6, 16 + at * 16, &[1; 8], true);
            bench.add(7, 16 + at * 16, &[1; 8], true);
        }
        assert!(bench.fragments.len() <= 100);
        assert!(
            bench
                .drops
                .iter()
                .all(|&reason| reason == DropReason::ReassemblyFull)
        );
        bench.finish();
    }

    #[test]
    fn what_waits_too_long_expires_as_a_whole() {
        let mut bench = Bench::new(64);
        bench.add(1, 8, &[1; 8], true);
        bench.now = bench.now + Duration::from_secs(1);
        bench.add(1, 0, &[1; 8], true);
        bench.add(2, 8, &[1; 8], true);
        let due = bench.fragments.poll_timeout();
        assert_eq!(due, Some(Instant::ZERO + PATIENCE));
        let mut gone = Vec::new();
        let pool = &mut bench.pool;
        bench
            .fragments
            .expire(Instant::ZERO + PATIENCE, |fragment, is_start| {
                gone.push((fragment.offset, is_start));
                pool.free(fragment.frame);
            });
        assert_eq!(gone, [(0, true), (8, false)]);
        assert_eq!(bench.fragments.len(), 1);
        bench.finish();
    }

    proptest! {
        /// In any order, with duplicates, and with other datagrams between: whole exactly when every byte
        /// was there, and the bytes are those that were sent. With what waits of the others, there is room for
        /// all, so that none gives way.
        #[test]
        fn fragments_in_any_order_make_the_datagram(
            data in proptest::collection::vec(any::<u8>(), 1..2000),
            units in 1_usize..40,
            order in proptest::collection::vec(any::<prop::sample::Index>(), 1..200 - FRAGMENTS_MAX),
        ) {
            let step = units * 8;
            let pieces: Vec<_> = data.chunks(step).collect();
            prop_assume!(pieces.len() <= FRAGMENTS_MAX);
            let mut bench = Bench::new(200);
            let mut seen = vec![false; pieces.len()];
            for (round, index) in order.iter().enumerate() {
                let at = index.index(pieces.len());
                let whole = bench.add(1, (at * step) as u16, pieces[at], at + 1 < pieces.len());
                seen[at] = true;
                bench.add(1000 + round as u32 % 8, 8 * (round as u16 + 1), &[1; 8], true);
                if seen.iter().all(|seen| *seen) {
                    prop_assert_eq!(whole, Added::Whole);
                    prop_assert_eq!(&bench.take(1), &data);
                    seen.fill(false);
                } else {
                    prop_assert_eq!(whole, Added::Waiting);
                }
            }
            bench.finish();
        }
    }
}
