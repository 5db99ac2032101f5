//! Size classes over the arena: pages of one class each, free lists a page, and a magazine a worker, so that
//! the shared part is locked once for up to 32 places.
//!
//! From 256 bytes on a class is at most 1/16 larger than what it holds, below it is the next multiple of 16;
//! a page's end wastes at most 3.6 % (stores of 64 MiB and more). A page whose places are all free can become
//! one of another class.

use crate::arena::{Arena, GRAIN_BYTES, Place};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::unmodelled::AtomicU32;
use crate::sync::{lock_bit, unlock_bit};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes of the smallest class.
pub(crate) const SMALLEST_BYTES: usize = 64;
/// Bytes of the largest class: a packet of 8,800 bytes and its header.
pub(crate) const LARGEST_BYTES: usize = 9216;
/// Number of classes.
pub(crate) const CLASSES: usize = class_of(LARGEST_BYTES) + 1;
/// Places that move between a magazine and the shared part at once.
#[cfg(not(any(loom, shuttle)))]
const REFILL: usize = 32;
#[cfg(any(loom, shuttle))]
const REFILL: usize = 1;
const LOCK: u64 = 1;
/// No page.
const NONE: u32 = 0;

/// The class that holds `bytes`, at most [`LARGEST_BYTES`].
pub(crate) const fn class_of(bytes: usize) -> usize {
    if bytes <= SMALLEST_BYTES {
        return 0;
    }
    if bytes <= 256 {
        return bytes.div_ceil(16) - 4;
    }
    let log = (bytes - 1).ilog2() as usize;
    let step = 1 << (log - 4);
    12 + 16 * (log - 8) + (bytes - (1 << log)).div_ceil(step)
}

/// Bytes of a class's places.
pub(crate) const fn class_bytes(class: usize) -> usize {
    if class <= 12 {
        return 16 * (class + 4);
    }
    let (log, step) = (8 + (class - 13) / 16, (class - 13) % 16 + 1);
    (1 << log) + step * (1 << (log - 4))
}

/// What the workers share: which page has which class, and the free places of each.
#[derive(Debug)]
pub(crate) struct Slab {
    page_bytes: usize,
    lock: AtomicU64,
    /// One a page (page 0 is never used, so that place 0 is none).
    pages: Vec<Page>,
    /// First page of each class with a free place.
    partial: [AtomicU32; CLASSES],
    /// First page without a class.
    free: AtomicU32,
    /// Pages from this one on were never used.
    untouched: AtomicU32,
    free_pages: AtomicU32,
}

/// A page's state; changed under the lock only.
#[derive(Debug, Default)]
struct Page {
    class: AtomicU32,
    /// Places that were handed out.
    used: AtomicU32,
    /// Places that were never handed out begin with this one.
    carved: AtomicU32,
    /// First free place.
    head: AtomicU32,
    next: AtomicU32,
    previous: AtomicU32,
}

/// Free places of one worker, by class: first in, first out, so that where packets leave in the order in which
/// they came, copies run upwards through memory.
#[derive(Debug)]
pub(crate) struct Magazines {
    places: Vec<VecDeque<Place>>,
}

impl Magazines {
    pub(crate) fn new() -> Self {
        Self {
            places: (0..CLASSES)
                .map(|_| VecDeque::with_capacity(2 * REFILL + 1))
                .collect(),
        }
    }

    /// Takes a place of a class, or `None` when the slab has none.
    #[inline]
    pub(crate) fn take(&mut self, slab: &Slab, arena: &Arena, class: usize) -> Option<Place> {
        let places = self.places.get_mut(class)?;
        if places.is_empty() {
            slab.refill(arena, class, places);
        }
        places.pop_front()
    }

    /// The place that [`take`](Self::take) will give next, if the magazine has one.
    #[inline]
    pub(crate) fn next(&self, class: usize) -> Option<Place> {
        self.places.get(class)?.front().copied()
    }

    /// Gives a place of a class back.
    #[inline]
    pub(crate) fn give(&mut self, slab: &Slab, arena: &Arena, class: usize, place: Place) {
        if let Some(places) = self.places.get_mut(class) {
            if places.len() >= 2 * REFILL {
                slab.give_back(arena, class, places.drain(..REFILL));
            }
            places.push_back(place);
        }
    }

    /// Gives all places back.
    pub(crate) fn empty(&mut self, slab: &Slab, arena: &Arena) {
        for (class, places) in self.places.iter_mut().enumerate() {
            slab.give_back(arena, class, places.drain(..));
        }
    }
}

impl Slab {
    /// Makes the slab of an arena of `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        let page_bytes = match bytes {
            _ if cfg!(any(loom, shuttle)) => 1024,
            0..0x400_0000 => 64 << 10,
            _ => 256 << 10,
        };
        let pages = bytes / page_bytes;
        Self {
            page_bytes,
            lock: AtomicU64::new(0),
            pages: (0..pages.max(1)).map(|_| Page::default()).collect(),
            partial: core::array::from_fn(|_| AtomicU32::new(NONE)),
            free: AtomicU32::new(NONE),
            untouched: AtomicU32::new(1),
            free_pages: AtomicU32::new(pages.saturating_sub(1) as u32),
        }
    }

    /// Bytes of the pages that have no class: what any size can still take.
    pub(crate) fn unclassed_bytes(&self) -> usize {
        self.free_pages.load(Ordering::Relaxed) as usize * self.page_bytes
    }

    /// Bytes of all pages.
    pub(crate) fn bytes(&self) -> usize {
        (self.pages.len() - 1) * self.page_bytes
    }

    fn capacity(&self, class: usize) -> u32 {
        (self.page_bytes / class_bytes(class)) as u32
    }

    fn refill(&self, arena: &Arena, class: usize, places: &mut VecDeque<Place>) {
        lock_bit(&self.lock, LOCK);
        let first = places.len();
        while places.len() < first + REFILL {
            let Some(number) = self.page_with_room(class) else {
                break;
            };
            if let Some(place) = self.take_from(arena, class, number) {
                places.push_back(place);
            }
        }
        unlock_bit(&self.lock, LOCK);
    }

    fn page(&self, number: u32) -> Option<&Page> {
        self.pages.get(number as usize).filter(|_| number != NONE)
    }

    /// First page of a class with room; a page without class becomes one. Under the lock.
    fn page_with_room(&self, class: usize) -> Option<u32> {
        let partial = self.partial.get(class)?;
        let number = partial.load(Ordering::Relaxed);
        if number != NONE {
            return Some(number);
        }
        let number = match self.free.load(Ordering::Relaxed) {
            NONE => {
                let number = self.untouched.load(Ordering::Relaxed);
                self.page(number)?;
                self.untouched.store(number + 1, Ordering::Relaxed);
                number
            }
            number => {
                let next = self.page(number)?.next.load(Ordering::Relaxed);
                self.free.store(next, Ordering::Relaxed);
                number
            }
        };
        let page = self.page(number)?;
        let left = self.free_pages.load(Ordering::Relaxed);
        self.free_pages
            .store(left.saturating_sub(1), Ordering::Relaxed);
        page.class.store(class as u32, Ordering::Relaxed);
        page.carved.store(0, Ordering::Relaxed);
        page.head.store(0, Ordering::Relaxed);
        self.link(partial, number);
        Some(number)
    }

    /// Takes a place of a page, and the page off its list if that was the last. Under the lock.
    fn take_from(&self, arena: &Arena, class: usize, number: u32) -> Option<Place> {
        let page = self.page(number)?;
        let head = Place(page.head.load(Ordering::Relaxed));
        let place = if head.is_none() {
            let carved = page.carved.load(Ordering::Relaxed);
            page.carved.store(carved + 1, Ordering::Relaxed);
            let start = number as usize * self.page_bytes + carved as usize * class_bytes(class);
            Place((start / GRAIN_BYTES) as u32)
        } else {
            let next = arena.word(head, 0).load(Ordering::Relaxed);
            page.head.store(next as u32, Ordering::Relaxed);
            head
        };
        let used = page.used.load(Ordering::Relaxed) + 1;
        page.used.store(used, Ordering::Relaxed);
        if used == self.capacity(class) {
            self.unlink(class, number);
        }
        Some(place)
    }

    fn give_back(&self, arena: &Arena, class: usize, places: impl Iterator<Item = Place>) {
        lock_bit(&self.lock, LOCK);
        for place in places {
            let number = (place.0 as usize * GRAIN_BYTES / self.page_bytes) as u32;
            let (Some(page), Some(partial)) = (self.page(number), self.partial.get(class)) else {
                continue;
            };
            debug_assert_eq!(page.class.load(Ordering::Relaxed) as usize, class);
            let head = page.head.swap(place.0, Ordering::Relaxed);
            arena
                .word(place, 0)
                .store(u64::from(head), Ordering::Relaxed);
            let used = page.used.load(Ordering::Relaxed);
            debug_assert!(used > 0, "a place was given back twice");
            page.used.store(used - 1, Ordering::Relaxed);
            if used == self.capacity(class) {
                self.link(partial, number);
            }
            if used == 1 {
                self.unlink(class, number);
                let next = self.free.swap(number, Ordering::Relaxed);
                page.next.store(next, Ordering::Relaxed);
                let left = self.free_pages.load(Ordering::Relaxed);
                self.free_pages.store(left + 1, Ordering::Relaxed);
            }
        }
        unlock_bit(&self.lock, LOCK);
    }

    fn link(&self, list: &AtomicU32, number: u32) {
        let Some(page) = self.page(number) else {
            return;
        };
        let first = list.swap(number, Ordering::Relaxed);
        page.next.store(first, Ordering::Relaxed);
        page.previous.store(NONE, Ordering::Relaxed);
        if let Some(first) = self.page(first) {
            first.previous.store(number, Ordering::Relaxed);
        }
    }

    fn unlink(&self, class: usize, number: u32) {
        let Some(page) = self.page(number) else {
            return;
        };
        let next = page.next.load(Ordering::Relaxed);
        let previous = page.previous.load(Ordering::Relaxed);
        match self.page(previous) {
            Some(previous) => previous.next.store(next, Ordering::Relaxed),
            None => {
                if let Some(list) = self.partial.get(class) {
                    list.store(next, Ordering::Relaxed);
                }
            }
        }
        if let Some(next) = self.page(next) {
            next.previous.store(previous, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use tables::memory::Pages;

    #[test]
    fn classes_waste_little() {
        for bytes in 1..=LARGEST_BYTES {
            let class = class_of(bytes);
            let size = class_bytes(class);
            assert!(size >= bytes, "{bytes}: {size}");
            assert!(
                class == 0 || class_bytes(class - 1) < bytes,
                "{bytes}: {size}"
            );
            assert_eq!(size % GRAIN_BYTES, 0);
            if bytes >= 128 {
                assert!(
                    (size - bytes) * 8 <= bytes,
                    "{bytes}: {size} wastes more than 12.5 %"
                );
            }
            // With the page's end, in stores of 64 MiB and more.
            let page = 256 << 10;
            let places = page / size;
            assert!(
                bytes < 256 || (places * bytes) as f64 > 0.89 * f64::from(page as u32),
                "{bytes}"
            );
        }
        assert_eq!(class_bytes(CLASSES - 1), LARGEST_BYTES);
    }

    /// Places never overlap, pages move between classes, and all memory comes back.
    #[test]
    fn places_are_disjoint_and_come_back() {
        let bytes = 4 << 20;
        let arena = Arena::new(bytes, Pages::Normal);
        let slab = Slab::new(bytes);
        let mut magazines = Magazines::new();
        let free = slab.unclassed_bytes();
        let mut live: BTreeMap<u32, usize> = BTreeMap::new();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for round in 0..40 {
            let largest = [200, 1200, 9000][round % 3];
            for _ in 0..2000 {
                let class = class_of(40 + random(largest));
                match magazines.take(&slab, &arena, class) {
                    Some(place) => {
                        let end = place.0 + (class_bytes(class) / GRAIN_BYTES) as u32;
                        if let Some((before, class)) = live.range(..=place.0).next_back() {
                            assert!(before + (class_bytes(*class) / GRAIN_BYTES) as u32 <= place.0);
                        }
                        assert!(live.range(place.0..end).next().is_none());
                        live.insert(place.0, class);
                    }
                    None => break,
                }
            }
            let keep = if round % 5 == 4 { 0 } else { live.len() / 2 };
            while live.len() > keep {
                let at = random(1 << 18) as u32;
                let (place, class) = match live.range(at..).next() {
                    Some((place, class)) => (*place, *class),
                    None => live.first_key_value().map(|(p, c)| (*p, *c)).unwrap(),
                };
                live.remove(&place);
                magazines.give(&slab, &arena, class, Place(place));
            }
        }
        assert!(live.is_empty());
        magazines.empty(&slab, &arena);
        assert_eq!(slab.unclassed_bytes(), free);
        assert_eq!(slab.bytes(), free);
    }
}
