//! The neighbour table: link-layer addresses by interface and IP address, shared by all workers.
//!
//! Shared, because the answer to one worker's question may arrive on any worker. A neighbour's state and
//! MAC address are one 64-bit word, changed by compare-and-swap and read with one load; the key beside it
//! only changes while the slot's version is odd (a sequence lock whose readers never wait: they take a
//! slot in change for another neighbour's and go the slow way). A neighbour is written when its state
//! changes, not when a packet uses it. Each entry has an owner, the worker that runs its timers.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use io::WorkerId;
use wire::{Instant, MacAddr};

use crate::plan::InterfaceId;

/// Slots that a key may be in: the one that its hash names and those after it.
const WINDOW: usize = 8;

/// How sure the node is of a neighbour (RFC 4861 7.3.2); the same machine serves ARP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Asked, not answered yet.
    #[default]
    Incomplete = 1,
    /// Heard lately.
    Reachable = 2,
    /// Not heard lately; used until proved wrong.
    Stale = 3,
    /// Used while stale: it is asked if nothing is heard soon.
    Delay = 4,
    /// Being asked again.
    Probe = 5,
    /// Did not answer.
    Failed = 6,
    /// From the configuration: never asked, never forgotten.
    Permanent = 7,
}

impl State {
    const fn from_bits(bits: u64) -> Self {
        match bits & 0xf {
            2 => Self::Reachable,
            3 => Self::Stale,
            4 => Self::Delay,
            5 => Self::Probe,
            6 => Self::Failed,
            7 => Self::Permanent,
            _ => Self::Incomplete,
        }
    }

    /// Tells whether the MAC address may be used.
    pub const fn is_usable(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }
}

/// A neighbour's name: the interface and the address, IPv4 in IPv4-mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The interface whose link it is on.
    pub interface: InterfaceId,
    /// Its address.
    pub address: [u8; 16],
}

impl Key {
    /// Makes the key of an IPv4 neighbour.
    #[inline]
    pub const fn v4(interface: InterfaceId, address: [u8; 4]) -> Self {
        let [a, b, c, d] = address;
        Self {
            interface,
            address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
        }
    }

    /// Makes the key of a neighbour whose address is in 16 bytes.
    #[inline]
    pub const fn new(interface: InterfaceId, address: [u8; 16]) -> Self {
        Self { interface, address }
    }

    /// Returns the IPv4 address, if it is one.
    pub const fn as_v4(&self) -> Option<[u8; 4]> {
        match self.address {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    #[inline]
    fn words(&self) -> (u64, u64) {
        let whole = u128::from_be_bytes(self.address);
        ((whole >> 64) as u64, whole as u64)
    }
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// How sure the node is.
    pub state: State,
    /// Its MAC address, zero if not known.
    pub mac: MacAddr,
    /// The worker that runs its timers.
    pub owner: WorkerId,
}

/// Workers that an entry's owner field can name.
pub const WORKERS_MAX: u16 = 64;

impl Entry {
    /// 48 bits of MAC address, 6 of generation, 6 of owner, 4 of state.
    fn pack(&self, generation: u64) -> u64 {
        let owner = u64::from(self.owner.0 % WORKERS_MAX);
        self.mac.to_u64() << 16 | (generation & 0x3f) << 10 | owner << 4 | self.state as u64
    }

    fn unpack(word: u64) -> Self {
        let [_, _, mac @ ..] = (word >> 16).to_be_bytes();
        Self {
            state: State::from_bits(word),
            mac: MacAddr(mac),
            owner: WorkerId((word >> 4 & 0x3f) as u16),
        }
    }
}

/// A neighbour, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name.
    pub key: Key,
    /// What is known of it.
    pub entry: Entry,
    /// How long ago it was last heard, milliseconds.
    pub age_ms: u64,
    /// Packets that wait for its MAC address, of all workers.
    pub waiting_pkts: u32,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    /// Odd while the key changes.
    version: AtomicU32,
    /// The interface's id plus one; zero: free.
    interface: AtomicU32,
    high: AtomicU64,
    low: AtomicU64,
    /// An [`Entry`], packed.
    word: AtomicU64,
    /// When the neighbour was last heard (or, before that, first asked for), nanoseconds.
    heard_ns: AtomicU64,
    /// Packets of all workers that wait for the neighbour's MAC address.
    waiting: AtomicU32,
}

/// The table. Bounded: where all slots that a key may have are taken, a failed or else the stalest
/// neighbour gives way; if there is none either, the new one is refused.
#[derive(Debug)]
pub struct Table {
    slots: Box<[Slot]>,
    secret: u64,
    reachable_ns: u64,
}

impl Table {
    /// Makes a table of at least `neighbours` slots. `secret` keys its hash; a neighbour is reachable for
    /// `reachable_ns` after it was heard (RFC 4861 10: 30 s).
    pub fn new(neighbours: usize, secret: u64, reachable_ns: u64) -> Self {
        let slots = neighbours.max(2 * WINDOW).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            secret,
            reachable_ns,
        }
    }

    /// Returns how many neighbours fit, at most.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn start(&self, key: &Key) -> usize {
        let (high, low) = key.words();
        let a = low ^ self.secret;
        let b = high ^ u64::from(key.interface.0) << 48 ^ self.secret.rotate_left(32) | 1;
        let product = u128::from(a) * u128::from(b ^ 0x9e37_79b9_7f4a_7c15);
        let hash = (product >> 64) as u64 ^ product as u64;
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn find(&self, key: &Key) -> Option<(&Slot, u64)> {
        let (high, low) = key.words();
        let interface = u32::from(key.interface.0) + 1;
        let start = self.start(key);
        for way in 0..WINDOW {
            let slot = &self.slots[(start + way) & (self.slots.len() - 1)];
            // Pairs with the Release store of `version` in `claim`: an even version that is seen here
            // comes with the key that was written before it.
            let version = slot.version.load(Ordering::Acquire);
            let is_key = slot.interface.load(Ordering::Relaxed) == interface
                && slot.low.load(Ordering::Relaxed) == low
                && slot.high.load(Ordering::Relaxed) == high;
            if is_key {
                let word = slot.word.load(Ordering::Relaxed);
                // Pairs with the Release fence in `claim`: if any load above saw a later key's value,
                // the load below sees the odd version or a later one.
                fence(Ordering::Acquire);
                if version & 1 == 0 && slot.version.load(Ordering::Relaxed) == version {
                    return Some((slot, word));
                }
            }
        }
        None
    }

    /// Returns the MAC address of a neighbour that needs nothing done: the fast path's question. `None`
    /// sends the packet to the resolver.
    #[inline]
    pub fn mac_of(&self, key: &Key, now: Instant) -> Option<MacAddr> {
        let (slot, word) = self.find(key)?;
        let entry = Entry::unpack(word);
        match entry.state {
            State::Permanent | State::Delay | State::Probe => Some(entry.mac),
            State::Reachable => {
                let heard = slot.heard_ns.load(Ordering::Relaxed);
                let fresh = now.as_ns().saturating_sub(heard) < self.reachable_ns;
                fresh.then_some(entry.mac)
            }
            State::Incomplete | State::Stale | State::Failed => None,
        }
    }

    /// Returns what is known of a neighbour; one that was reachable too long ago is stale.
    pub fn get(&self, key: &Key, now: Instant) -> Option<Entry> {
        let (slot, word) = self.find(key)?;
        Some(self.entry(slot, word, now))
    }

    fn entry(&self, slot: &Slot, word: u64, now: Instant) -> Entry {
        let mut entry = Entry::unpack(word);
        let heard = slot.heard_ns.load(Ordering::Relaxed);
        if entry.state == State::Reachable && now.as_ns().saturating_sub(heard) >= self.reachable_ns
        {
            entry.state = State::Stale;
        }
        entry
    }

    /// Returns how long ago a neighbour was heard.
    pub fn age_ns(&self, key: &Key, now: Instant) -> Option<u64> {
        let (slot, _) = self.find(key)?;
        Some(
            now.as_ns()
                .saturating_sub(slot.heard_ns.load(Ordering::Relaxed)),
        )
    }

    /// Changes a neighbour that is there, unless `change` says no or another worker was faster; returns
    /// what it was before and is now. `heard` notes the time.
    pub fn update(
        &self,
        key: &Key,
        now: Instant,
        heard: bool,
        mut change: impl FnMut(Entry) -> Option<Entry>,
    ) -> Option<(Entry, Entry)> {
        // Each failed round means that another worker succeeded; two are enough for any real race.
        for _ in 0..4 {
            let (slot, word) = self.find(key)?;
            let before = self.entry(slot, word, now);
            let after = change(before)?;
            let new = after.pack(word >> 10);
            if heard {
                slot.heard_ns.store(now.as_ns(), Ordering::Relaxed);
            }
            // The word holds the generation of the slot's use, so that this cannot hit the next key.
            let swapped =
                slot.word
                    .compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed);
            if swapped.is_ok() {
                return Some((before, after));
            }
        }
        None
    }

    /// Adds a neighbour that is not there; tells whether there was room.
    pub fn insert(&self, key: &Key, entry: Entry, now: Instant) -> bool {
        let start = self.start(key);
        let slots = || (0..WINDOW).map(|way| &self.slots[(start + way) & (self.slots.len() - 1)]);
        let free = slots().find(|slot| slot.interface.load(Ordering::Relaxed) == 0);
        let slot = free.or_else(|| slots().max_by_key(|slot| self.eviction_rank(slot, now)));
        let Some(slot) = slot.filter(|slot| {
            slot.interface.load(Ordering::Relaxed) == 0 || self.eviction_rank(slot, now) > 0
        }) else {
            return false;
        };
        Self::claim(slot, Some(key), entry, now)
    }

    /// How gladly a slot is given away: 0 never, else the more the longer it was not heard.
    fn eviction_rank(&self, slot: &Slot, now: Instant) -> u64 {
        let age = now
            .as_ns()
            .saturating_sub(slot.heard_ns.load(Ordering::Relaxed));
        match self
            .entry(slot, slot.word.load(Ordering::Relaxed), now)
            .state
        {
            State::Failed => u64::MAX,
            State::Stale => age.clamp(1, u64::MAX - 1),
            _ => 0,
        }
    }

    /// Gives the slot to another key, or frees it; tells whether no other worker was at it.
    fn claim(slot: &Slot, key: Option<&Key>, entry: Entry, now: Instant) -> bool {
        let version = slot.version.load(Ordering::Relaxed);
        // Acquire pairs with the Release store below of whoever had the slot before.
        let locked = version & 1 == 0
            && slot
                .version
                .compare_exchange(version, version | 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !locked {
            return false;
        }
        // Pairs with the Acquire fence in `find`.
        fence(Ordering::Release);
        let (high, low) = key.map_or((0, 0), Key::words);
        let generation = slot.word.load(Ordering::Relaxed) >> 10;
        slot.interface.store(
            key.map_or(0, |key| u32::from(key.interface.0) + 1),
            Ordering::Relaxed,
        );
        slot.high.store(high, Ordering::Relaxed);
        slot.low.store(low, Ordering::Relaxed);
        slot.word
            .store(entry.pack(generation.wrapping_add(1)), Ordering::Relaxed);
        slot.heard_ns.store(now.as_ns(), Ordering::Relaxed);
        slot.waiting.store(0, Ordering::Relaxed);
        // Pairs with the Acquire load in `find`.
        slot.version
            .store(version.wrapping_add(2), Ordering::Release);
        true
    }

    /// Notes that packets wait for a neighbour, or (less than zero) wait no more; for listings only.
    pub fn note_waiting(&self, key: &Key, pkts: i32) {
        if let Some((slot, _)) = self.find(key) {
            // The slot may have been another neighbour's in between: never below zero.
            let _ = slot
                .waiting
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                    Some(waiting.saturating_add_signed(pkts))
                });
        }
    }

    /// Forgets a neighbour.
    pub fn remove(&self, key: &Key, now: Instant) {
        if let Some((slot, _)) = self.find(key) {
            Self::claim(slot, None, Entry::default(), now);
        }
    }

    /// Sets a neighbour of the configuration; tells whether there was room.
    pub fn set_permanent(&self, key: &Key, mac: MacAddr, now: Instant) -> bool {
        let entry = Entry {
            state: State::Permanent,
            mac,
            owner: WorkerId(0),
        };
        self.update(key, now, true, |_| Some(entry)).is_some() || self.insert(key, entry, now)
    }

    /// Lists the neighbours.
    pub fn neighbours(&self, now: Instant) -> Vec<Neighbour> {
        self.slots
            .iter()
            .filter_map(|slot| {
                let version = slot.version.load(Ordering::Acquire);
                let interface = slot.interface.load(Ordering::Relaxed).checked_sub(1)?;
                let high = slot.high.load(Ordering::Relaxed);
                let low = slot.low.load(Ordering::Relaxed);
                let entry = self.entry(slot, slot.word.load(Ordering::Relaxed), now);
                let heard = slot.heard_ns.load(Ordering::Relaxed);
                let waiting_pkts = slot.waiting.load(Ordering::Relaxed);
                // As in `find`.
                fence(Ordering::Acquire);
                if version & 1 != 0 || slot.version.load(Ordering::Relaxed) != version {
                    return None;
                }
                let address = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
                Some(Neighbour {
                    key: Key::new(InterfaceId(interface as u16), address),
                    entry,
                    age_ms: now.as_ns().saturating_sub(heard) / 1_000_000,
                    waiting_pkts,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const REACHABLE_NS: u64 = 30_000_000_000;

    fn table(slots: usize) -> Table {
        Table::new(slots, 0x1234_5678_9abc_def1, REACHABLE_NS)
    }

    fn key(n: u32) -> Key {
        Key::v4(InterfaceId(1), n.to_be_bytes())
    }

    fn entry(state: State) -> Entry {
        Entry {
            state,
            mac: MAC,
            owner: WorkerId(3),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn entries_survive_packing() {
        for state in [
            State::Incomplete,
            State::Reachable,
            State::Stale,
            State::Delay,
            State::Probe,
            State::Failed,
            State::Permanent,
        ] {
            let entry = Entry {
                state,
                mac: MacAddr([0xff; 6]),
                owner: WorkerId(63),
            };
            assert_eq!(Entry::unpack(entry.pack(u64::MAX)), entry);
            assert_eq!(Entry::unpack(entry.pack(0)), entry);
        }
    }

    #[test]
    fn reachable_turns_stale_by_itself() {
        let table = table(64);
        assert!(table.insert(&key(1), entry(State::Reachable), at(0)));
        assert_eq!(table.mac_of(&key(1), at(29)), Some(MAC));
        assert_eq!(
            table.mac_of(&key(1), at(30)),
            None,
            "the resolver has to look"
        );
        assert_eq!(
            table.get(&key(1), at(30)).map(|e| e.state),
            Some(State::Stale)
        );
        assert_eq!(table.mac_of(&key(2), at(0)), None);
        assert_eq!(table.age_ns(&key(1), at(2)), Some(2_000_000_000));
    }

    #[test]
    fn the_interface_and_every_byte_are_part_of_the_key() {
        let table = table(64);
        let mut address = [0x20; 16];
        table.insert(
            &Key::new(InterfaceId(0), address),
            entry(State::Permanent),
            at(0),
        );
        assert_eq!(
            table.mac_of(&Key::new(InterfaceId(0), address), at(9)),
            Some(MAC)
        );
        assert_eq!(
            table.mac_of(&Key::new(InterfaceId(1), address), at(9)),
            None
        );
        for i in 0..16 {
            address[i] ^= 1;
            assert_eq!(
                table.mac_of(&Key::new(InterfaceId(0), address), at(9)),
                None,
                "{i}"
            );
            address[i] ^= 1;
        }
    }

    #[test]
    fn a_full_table_gives_up_failed_and_stale_neighbours_only() {
        let table = table(16);
        let mut kept = Vec::new();
        for n in 0..1000 {
            if table.insert(&key(n), entry(State::Delay), at(0)) {
                kept.push(n);
            }
        }
        assert!(kept.len() <= table.capacity());
        assert!(kept.iter().all(|&n| table.mac_of(&key(n), at(0)).is_some()));
        let failed = kept[0];
        table.update(&key(failed), at(1), false, |e| {
            Some(Entry {
                state: State::Failed,
                ..e
            })
        });
        let newcomer = (1000..9000).find(|&n| table.insert(&key(n), entry(State::Delay), at(1)));
        assert!(newcomer.is_some(), "the failed one gave way");
        assert_eq!(table.get(&key(failed), at(1)), None);
        assert!(
            kept[1..]
                .iter()
                .all(|&n| table.mac_of(&key(n), at(1)).is_some())
        );
    }

    #[test]
    fn an_update_sees_what_is_there_and_may_decline() {
        let table = table(64);
        assert_eq!(table.update(&key(1), at(0), true, Some), None, "not there");
        table.insert(&key(1), entry(State::Incomplete), at(0));
        assert_eq!(table.update(&key(1), at(0), true, |_| None), None);
        let change = table.update(&key(1), at(5), true, |e| {
            Some(Entry {
                state: State::Reachable,
                ..e
            })
        });
        let (before, after) = change.expect("it is there");
        assert_eq!(
            (before.state, after.state),
            (State::Incomplete, State::Reachable)
        );
        assert_eq!(table.age_ns(&key(1), at(5)), Some(0));
        table.remove(&key(1), at(6));
        assert_eq!(table.get(&key(1), at(6)), None);
    }

    #[test]
    fn permanent_neighbours_are_set_over_learnt_ones_and_listed() {
        let table = table(64);
        table.insert(&key(7), entry(State::Stale), at(0));
        let other = MacAddr([2, 0, 0, 0, 0, 0xaa]);
        assert!(table.set_permanent(&key(7), other, at(1)));
        assert_eq!(table.mac_of(&key(7), at(100_000)), Some(other));
        let listed = table.neighbours(at(3));
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].key, listed[0].age_ms), (key(7), 2000));
    }

    /// Readers beside writers that keep giving slots to other keys: a reader never gets a MAC address
    /// that was not this key's.
    #[test]
    fn readers_never_mix_two_neighbours() {
        let table = table(16);
        let mac = |n: u32| MacAddr([2, 0, 0, 0, 0, n as u8]);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200_000_u32 {
                    let n = round % 200;
                    let stale = Entry {
                        state: State::Stale,
                        mac: mac(n),
                        owner: WorkerId(0),
                    };
                    table.insert(&key(n), stale, Instant::from_ns(u64::from(round)));
                    table.update(&key(n), at(0), false, |e| {
                        Some(Entry {
                            state: State::Delay,
                            ..e
                        })
                    });
                    table.update(&key(n), at(0), false, |e| {
                        Some(Entry {
                            state: State::Stale,
                            ..e
                        })
                    });
                }
                stop.store(true, Ordering::Relaxed);
            });
            let mut hits = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                for n in 0..200 {
                    if let Some(found) = table.mac_of(&key(n), at(0)) {
                        assert_eq!(found, mac(n));
                        hits += 1;
                    }
                }
            }
            assert!(hits > 0, "the reader met the writer");
        });
    }
}
