//! Which station lives behind which port: one table a bridge, shared by all workers.
//!
//! Shared, because a station's frames may arrive on one worker and the frames to it on another. A
//! station is one 64-bit word (48 bits of MAC address, 16 of port), so that a reader sees the whole
//! truth with one load and no lock; eight make a cache line, which is a bucket. When a station was last
//! heard is kept beside it, and written at most once a second, so that forwarding does not write shared
//! memory per packet. VLANs share one table (shared VLAN learning): tags are not looked at.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use io::PortId;
use wire::{Instant, MacAddr};

/// Slots of a bucket: a cache line.
const WAYS: usize = 8;
/// Length of a tick, nanoseconds.
const TICK_NS: u64 = 250_000_000;
/// Ticks in a second.
const TICKS_PER_S: u32 = 4;
/// A station that was heard so many ticks ago is noted again.
const REFRESH_TICKS: u32 = 4;
/// Tries to claim a slot before a contended bucket is left for the next frame.
const TRIES: usize = 4;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

/// The time of a batch in the table's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick(u32);

impl Tick {
    /// Returns the tick of a point in time.
    pub const fn at(now: Instant) -> Self {
        Self((now.as_ns() / TICK_NS) as u32)
    }
}

/// What learning did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The station was known on this port.
    Known,
    /// The station is new.
    New,
    /// The station was on another port.
    Moved,
    /// There is no room for the station: its frames will be flooded.
    Full,
}

/// A station, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its MAC address.
    pub mac: MacAddr,
    /// The port that it was heard on.
    pub port: PortId,
    /// How long ago it was heard, to a second, milliseconds.
    pub age_ms: u64,
}

/// The stations of a bridge. Bounded: where a bucket is full of stations that are not aged out, a new
/// one is not learnt (and counted), so that a flood of forged addresses cannot push out real ones.
#[derive(Debug)]
pub struct StationTable {
    buckets: Box<[Bucket]>,
    /// When each slot's station was last heard, ticks.
    heard: Box<[AtomicU32]>,
    ageing_ticks: AtomicU32,
    secret: u64,
    moves: AtomicU64,
    full: AtomicU64,
}

impl StationTable {
    /// Makes a table of at least `stations` slots; `secret` keys its hash, so that nobody outside can aim
    /// at a bucket.
    pub fn new(stations: usize, ageing_s: u32, secret: u64) -> Self {
        let buckets = stations.div_ceil(WAYS).max(2).next_power_of_two();
        Self {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            heard: (0..buckets * WAYS).map(|_| AtomicU32::new(0)).collect(),
            ageing_ticks: AtomicU32::new(ageing_s.saturating_mul(TICKS_PER_S)),
            secret,
            moves: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }
    }

    /// Changes the ageing time.
    pub fn set_ageing(&self, ageing_s: u32) {
        self.ageing_ticks
            .store(ageing_s.saturating_mul(TICKS_PER_S), Ordering::Relaxed);
    }

    /// A port in a word: its id plus one, so that no station makes the word of a free slot, zero.
    #[inline]
    fn port_bits(port: PortId) -> u64 {
        u64::from(port.0.wrapping_add(1))
    }

    #[inline]
    fn port_of(word: u64) -> PortId {
        PortId((word as u16).wrapping_sub(1))
    }

    #[inline]
    fn bucket(&self, mac: u64) -> usize {
        let product = u128::from(mac ^ self.secret) * u128::from(self.secret.rotate_left(32) | 1);
        let hash = (product >> 64) as u64 ^ product as u64;
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn is_current(&self, slot: usize, tick: Tick) -> bool {
        let age = tick
            .0
            .wrapping_sub(self.heard[slot].load(Ordering::Relaxed));
        // A worker whose clock was read a little earlier sees a negative age: current as well.
        age as i32 <= self.ageing_ticks.load(Ordering::Relaxed) as i32
    }

    /// Returns the port of a station that was heard within the ageing time.
    #[inline]
    pub fn lookup(&self, mac: MacAddr, tick: Tick) -> Option<PortId> {
        let key = mac.to_u64();
        let bucket = self.bucket(key);
        for (way, slot) in self.buckets[bucket].0.iter().enumerate() {
            let word = slot.load(Ordering::Relaxed);
            if word >> 16 == key && word != 0 && self.is_current(bucket * WAYS + way, tick) {
                return Some(Self::port_of(word));
            }
        }
        None
    }

    /// Notes that a station was heard on a port. Group addresses and zero are never learnt.
    #[inline]
    pub fn learn(&self, mac: MacAddr, port: PortId, tick: Tick) -> Learned {
        let key = mac.to_u64();
        let wanted = key << 16 | Self::port_bits(port);
        let bucket = self.bucket(key);
        for (way, slot) in self.buckets[bucket].0.iter().enumerate() {
            if slot.load(Ordering::Relaxed) == wanted {
                let heard = &self.heard[bucket * WAYS + way];
                let age = tick.0.wrapping_sub(heard.load(Ordering::Relaxed));
                if (age as i32) >= REFRESH_TICKS as i32 {
                    heard.store(tick.0, Ordering::Relaxed);
                }
                return Learned::Known;
            }
        }
        self.place(mac, bucket, wanted, tick)
    }

    #[cold]
    fn place(&self, mac: MacAddr, bucket: usize, wanted: u64, tick: Tick) -> Learned {
        if !mac.is_station() {
            return Learned::Full;
        }
        for _ in 0..TRIES {
            let mut same = None;
            let mut free = None;
            for (way, slot) in self.buckets[bucket].0.iter().enumerate() {
                let word = slot.load(Ordering::Relaxed);
                if word >> 16 == wanted >> 16 {
                    same = Some((way, word));
                } else if word == 0 || !self.is_current(bucket * WAYS + way, tick) {
                    free = Some((way, word));
                }
            }
            let Some((way, word)) = same.or(free) else {
                self.full.fetch_add(1, Ordering::Relaxed);
                return Learned::Full;
            };
            let moved = same.is_some() && self.is_current(bucket * WAYS + way, tick);
            // The time first: a slot that is claimed must not look aged out.
            self.heard[bucket * WAYS + way].store(tick.0, Ordering::Relaxed);
            let slot = &self.buckets[bucket].0[way];
            let claimed = slot.compare_exchange(word, wanted, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_ok() {
                if moved {
                    self.moves.fetch_add(1, Ordering::Relaxed);
                    return Learned::Moved;
                }
                return Learned::New;
            }
        }
        Learned::Full
    }

    /// Forgets the stations of a port, as when it leaves the bridge.
    pub fn forget_port(&self, port: PortId) {
        for slot in self.buckets.iter().flat_map(|bucket| &bucket.0) {
            let word = slot.load(Ordering::Relaxed);
            if word & 0xffff == Self::port_bits(port) {
                // Who changed it meanwhile heard the station elsewhere.
                let _ = slot.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Lists the stations that are not aged out.
    pub fn stations(&self, now: Instant) -> Vec<Station> {
        let tick = Tick::at(now);
        let slots = self.buckets.iter().flat_map(|bucket| &bucket.0);
        slots
            .enumerate()
            .map(|(at, slot)| (at, slot.load(Ordering::Relaxed)))
            .filter(|&(at, word)| word != 0 && self.is_current(at, tick))
            .map(|(at, word)| {
                let [_, _, mac @ ..] = (word >> 16).to_be_bytes();
                let age = tick.0.wrapping_sub(self.heard[at].load(Ordering::Relaxed));
                Station {
                    mac: MacAddr(mac),
                    port: Self::port_of(word),
                    age_ms: u64::from((age as i32).max(0) as u32) * TICK_NS / 1_000_000,
                }
            })
            .collect()
    }

    /// Returns how many stations fit, at most.
    pub fn capacity(&self) -> usize {
        self.heard.len()
    }
    /// Returns how often a station was heard on another port than before.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }
    /// Returns how often a station was not learnt for want of room.
    pub fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn mac(n: u32) -> MacAddr {
        let [a, b, c, d] = n.to_be_bytes();
        MacAddr([2, 0, a, b, c, d])
    }

    fn tick(seconds: u64) -> Tick {
        Tick::at(Instant::ZERO + Duration::from_secs(seconds))
    }

    #[test]
    fn a_station_is_learnt_moves_and_ages() {
        let table = StationTable::new(64, 300, 7);
        assert_eq!(table.lookup(mac(1), tick(0)), None);
        assert_eq!(table.learn(mac(1), PortId(3), tick(0)), Learned::New);
        assert_eq!(table.learn(mac(1), PortId(3), tick(1)), Learned::Known);
        assert_eq!(table.lookup(mac(1), tick(1)), Some(PortId(3)));
        assert_eq!(table.learn(mac(1), PortId(4), tick(2)), Learned::Moved);
        assert_eq!(table.lookup(mac(1), tick(2)), Some(PortId(4)));
        assert_eq!(table.lookup(mac(1), tick(302)), Some(PortId(4)));
        assert_eq!(
            table.lookup(mac(1), tick(303)),
            None,
            "silent for more than 300 s"
        );
        assert_eq!(table.stations(Instant::ZERO + Duration::from_secs(303)), []);
        assert_eq!(table.learn(mac(1), PortId(3), tick(400)), Learned::New);
        assert_eq!(table.moves(), 1);
    }

    #[test]
    fn a_refresh_keeps_a_station_alive() {
        let table = StationTable::new(64, 10, 7);
        for second in 0..100 {
            table.learn(mac(9), PortId(1), tick(second));
            assert_eq!(table.lookup(mac(9), tick(second + 8)), Some(PortId(1)));
        }
    }

    #[test]
    fn group_addresses_are_not_learnt() {
        let table = StationTable::new(64, 300, 7);
        for address in [
            MacAddr::BROADCAST,
            MacAddr::ZERO,
            MacAddr([1, 0, 0x5e, 0, 0, 1]),
        ] {
            assert_eq!(table.learn(address, PortId(0), tick(0)), Learned::Full);
            assert_eq!(table.lookup(address, tick(0)), None);
        }
    }

    #[test]
    fn a_flood_of_addresses_does_not_push_out_known_stations() {
        let table = StationTable::new(256, 300, 7);
        table.learn(mac(1), PortId(1), tick(0));
        for n in 2..10_000 {
            table.learn(mac(n), PortId(2), tick(1));
        }
        assert_eq!(table.lookup(mac(1), tick(1)), Some(PortId(1)));
        assert!(table.full() > 9_000, "{}", table.full());
        let now = Instant::ZERO + Duration::from_secs(1);
        assert!(table.stations(now).len() <= table.capacity());
        assert_eq!(
            table.learn(mac(20_000), PortId(2), tick(400)),
            Learned::New,
            "aged out by now"
        );
        table.forget_port(PortId(2));
        assert_eq!(table.stations(now).len(), 1);
    }

    #[test]
    fn listings_show_port_and_age() {
        let table = StationTable::new(64, 300, 1);
        table.learn(mac(5), PortId(2), tick(10));
        let now = Instant::ZERO + Duration::from_secs(14);
        let station = Station {
            mac: mac(5),
            port: PortId(2),
            age_ms: 4000,
        };
        assert_eq!(table.stations(now), [station]);
    }
}
