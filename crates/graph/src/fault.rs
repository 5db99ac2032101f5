//! Faults of a link, by seed: loss, duplication, reordering, corruption, delay, MTU, bandwidth.
//!
//! [`Impairment`] is the engine: a pure state machine over anything that has a length. The simulator's
//! links hold byte vectors in it; [`FaultLink`] holds frames, and is a node that joins two ports, so that
//! real traffic can be impaired where the kernel has no netem.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use std::sync::Arc;

use io::{Batch, Frame, Pool, PortId};
use wire::{DropReason, Instant};

use crate::counters::Counter;
use crate::node::{Context, EdgeId, Node};
use crate::outlets::Outlets;

/// What a link does to packets. The default does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Packets lost, of a million.
    pub drop_ppm: u32,
    /// Packets sent twice, of a million.
    pub duplicate_ppm: u32,
    /// Packets with one bit flipped, of a million.
    pub corrupt_ppm: u32,
    /// Packets, of a million, that arrive later by up to `reorder_by`, so that others overtake them.
    pub reorder_ppm: u32,
    /// Most extra delay of a reordered packet.
    pub reorder_by: Duration,
    /// Delay of every packet.
    pub delay: Duration,
    /// Most additional random delay; does not reorder.
    pub jitter: Duration,
    /// Longest frame that passes, bytes; 0 for no limit.
    pub mtu_bytes: u32,
    /// Bits a second; 0 for no limit.
    pub bandwidth_bps: u64,
    /// Packets on the link at once, beyond which new ones are lost.
    pub queue_pkts: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            drop_ppm: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            reorder_ppm: 0,
            reorder_by: Duration::ZERO,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            mtu_bytes: 0,
            bandwidth_bps: 0,
            queue_pkts: 1024,
        }
    }
}

/// A small pseudorandom generator (SplitMix64): a run is a function of its seed. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound` (0 if that is 0).
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns `true` in so many of a million cases.
    pub const fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < ppm as u64
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(most.as_nanos() as u64 + 1))
    }
}

/// What [`Impairment`] needs to do with a packet.
pub trait Impair {
    /// Returns the length, bytes.
    fn bytes(&self) -> usize;
    /// Flips a bit.
    fn flip(&mut self, bit: usize);
}

impl Impair for Frame {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn flip(&mut self, bit: usize) {
        if let Some(byte) = self.data_mut().get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

impl Impair for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn flip(&mut self, bit: usize) {
        if let Some(byte) = self.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// A packet on its way.
#[derive(Debug)]
struct InFlight<T> {
    due: Instant,
    number: u64,
    packet: T,
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<T> Eq for InFlight<T> {}
impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for InFlight<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

/// What the engine did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Packets offered.
    pub offered: u64,
    /// Packets lost by chance.
    pub dropped: u64,
    /// Packets lost because the link was full.
    pub overflowed: u64,
    /// Packets longer than the MTU.
    pub too_long: u64,
    /// Packets added.
    pub duplicated: u64,
    /// Packets changed.
    pub corrupted: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets delivered.
    pub delivered: u64,
}

/// What one direction of a [`FaultLink`] did, for anyone to read; the link's worker writes.
#[derive(Debug, Default)]
pub struct FaultCounters {
    offered: Counter,
    dropped: Counter,
    overflowed: Counter,
    too_long: Counter,
    duplicated: Counter,
    corrupted: Counter,
    reordered: Counter,
    delivered: Counter,
    in_flight: Counter,
}

impl FaultCounters {
    fn publish(&self, stats: &FaultStats, in_flight: usize) {
        self.offered.set(stats.offered);
        self.dropped.set(stats.dropped);
        self.overflowed.set(stats.overflowed);
        self.too_long.set(stats.too_long);
        self.duplicated.set(stats.duplicated);
        self.corrupted.set(stats.corrupted);
        self.reordered.set(stats.reordered);
        self.delivered.set(stats.delivered);
        self.in_flight.set(in_flight as u64);
    }

    /// Reads the counters.
    pub fn stats(&self) -> FaultStats {
        FaultStats {
            offered: self.offered.get(),
            dropped: self.dropped.get(),
            overflowed: self.overflowed.get(),
            too_long: self.too_long.get(),
            duplicated: self.duplicated.get(),
            corrupted: self.corrupted.get(),
            reordered: self.reordered.get(),
            delivered: self.delivered.get(),
        }
    }

    /// Returns how many packets are on their way.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }
}

/// One direction of an impaired link.
#[derive(Debug)]
pub struct Impairment<T> {
    faults: Faults,
    random: Random,
    flight: BinaryHeap<Reverse<InFlight<T>>>,
    number: u64,
    /// When the last bit of the last packet has left.
    free_at: Instant,
    /// When the last packet that was not reordered is due.
    last_due: Instant,
    stats: FaultStats,
}

impl<T: Impair> Impairment<T> {
    /// Makes a direction without packets; reserves room for all that may be on it.
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            flight: BinaryHeap::with_capacity(faults.queue_pkts + 1),
            faults,
            number: 0,
            free_at: Instant::ZERO,
            last_due: Instant::ZERO,
            stats: FaultStats::default(),
        }
    }

    /// Changes the faults; what is on its way stays as it is. Allocates where more packets may be on the
    /// link than before.
    pub fn set_faults(&mut self, faults: Faults) {
        let room = (faults.queue_pkts + 1).saturating_sub(self.flight.len());
        self.flight.reserve(room);
        self.faults = faults;
    }

    /// Returns what was done so far.
    pub fn stats(&self) -> FaultStats {
        self.stats
    }

    /// Returns how many packets are on their way.
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Sends a packet; `copy` makes a second one for duplication, if it can. Gives the packet back with the
    /// reason if it is lost.
    ///
    /// # Errors
    /// The packet, and why it does not arrive.
    pub fn offer(
        &mut self,
        now: Instant,
        mut packet: T,
        copy: impl FnOnce(&T) -> Option<T>,
    ) -> Result<(), (T, DropReason)> {
        self.stats.offered += 1;
        let bytes = packet.bytes();
        if self.faults.mtu_bytes != 0 && bytes > self.faults.mtu_bytes as usize {
            self.stats.too_long += 1;
            return Err((packet, DropReason::FrameTooLong));
        }
        if self.random.chance(self.faults.drop_ppm) {
            self.stats.dropped += 1;
            return Err((packet, DropReason::FaultInjected));
        }
        if self.flight.len() >= self.faults.queue_pkts {
            self.stats.overflowed += 1;
            return Err((packet, DropReason::LinkQueueFull));
        }
        if self.random.chance(self.faults.corrupt_ppm) {
            self.stats.corrupted += 1;
            let bit = self.random.below(bytes as u64 * 8) as usize;
            packet.flip(bit);
        }
        let twin = if self.random.chance(self.faults.duplicate_ppm) {
            copy(&packet)
        } else {
            None
        };
        self.launch(now, packet);
        if let Some(twin) = twin {
            self.stats.duplicated += 1;
            self.launch(now, twin);
        }
        Ok(())
    }

    fn launch(&mut self, now: Instant, packet: T) {
        let start = self.free_at.max(now);
        let bits = packet.bytes() as u64 * 8;
        let serial_ns = (bits * 1_000_000_000)
            .checked_div(self.faults.bandwidth_bps)
            .unwrap_or(0);
        self.free_at = start + Duration::from_nanos(serial_ns);
        let jitter = self.random.up_to(self.faults.jitter);
        let mut due = (self.free_at + self.faults.delay + jitter).max(self.last_due);
        if self.random.chance(self.faults.reorder_ppm) {
            self.stats.reordered += 1;
            due = due + self.random.up_to(self.faults.reorder_by);
        } else {
            self.last_due = due;
        }
        self.number += 1;
        self.flight.push(Reverse(InFlight {
            due,
            number: self.number,
            packet,
        }));
    }

    /// Takes the next packet that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<T> {
        if self.poll_timeout()? > now {
            return None;
        }
        self.stats.delivered += 1;
        self.flight.pop().map(|Reverse(flight)| flight.packet)
    }

    /// Returns when the next packet arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.flight.peek().map(|Reverse(flight)| flight.due)
    }

    /// Takes all packets that are on their way.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.flight.drain().map(|Reverse(flight)| flight.packet)
    }
}

/// A node that joins two ports by a link with faults: what one receives leaves by the other.
///
/// Edge `out` leads to the sending stage (or to any node that keeps [`Frame::tx_port`]).
#[derive(Debug)]
pub struct FaultLink {
    name: String,
    ends: [PortId; 2],
    /// What goes to each end.
    to: [Impairment<Frame>; 2],
    counters: Arc<[FaultCounters; 2]>,
}

impl FaultLink {
    /// The only edge.
    const OUT: EdgeId = EdgeId(0);
    /// The names of the edges.
    pub const EDGES: &'static [&'static str] = &["out"];

    /// Makes the node; both directions have the same faults and seeds of their own.
    pub fn new(name: impl Into<String>, ends: [PortId; 2], faults: Faults, seed: u64) -> Self {
        Self {
            name: name.into(),
            ends,
            to: [0, 1].map(|end| Impairment::new(faults, seed.wrapping_mul(2).wrapping_add(end))),
            counters: Arc::default(),
        }
    }

    /// Publishes what it does in counters that others hold, too: one for what goes to each end.
    #[must_use]
    pub fn with_counters(mut self, counters: Arc<[FaultCounters; 2]>) -> Self {
        self.counters = counters;
        self
    }

    /// Changes the faults of both directions; what is on its way stays as it is.
    pub fn set_faults(&mut self, faults: Faults) {
        for direction in &mut self.to {
            direction.set_faults(faults);
        }
    }

    /// Returns what was done to what goes to each end.
    pub fn stats(&self) -> [FaultStats; 2] {
        [self.to[0].stats(), self.to[1].stats()]
    }

    fn deliver(&mut self, now: Instant, out: &mut Outlets) {
        for direction in &mut self.to {
            while let Some(frame) = direction.poll(now) {
                out.push(Self::OUT, frame);
            }
        }
        for (counters, direction) in self.counters.iter().zip(&self.to) {
            counters.publish(&direction.stats(), direction.in_flight());
        }
    }
}

/// Copies a frame into another of the pool.
fn twin(frame: &Frame, pool: &mut Pool) -> Option<Frame> {
    let mut copy = pool.alloc()?;
    if !copy.fill(frame.data()) {
        pool.free(copy);
        return None;
    }
    copy.rx_port = frame.rx_port;
    copy.tx_port = frame.tx_port;
    Some(copy)
}

impl Node for FaultLink {
    fn name(&self) -> &str {
        &self.name
    }

    fn edges(&self) -> &[&'static str] {
        Self::EDGES
    }

    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
        for mut frame in batch.drain() {
            let end = usize::from(frame.rx_port == self.ends[0]);
            frame.tx_port = self.ends[end];
            let pool = &mut *cx.pool;
            let sent = self.to[end].offer(cx.now, frame, |frame| twin(frame, pool));
            if let Err((frame, reason)) = sent {
                out.drop(frame, reason);
            }
        }
        self.deliver(cx.now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = self.to.iter().filter_map(Impairment::poll_timeout);
        due.min()
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>, out: &mut Outlets) {
        self.deliver(cx.now, out);
    }

    fn stop(&mut self, _cx: &mut Context<'_>, out: &mut Outlets) {
        for direction in &mut self.to {
            for frame in direction.drain() {
                out.drop(frame, DropReason::Shutdown);
            }
        }
        for (counters, direction) in self.counters.iter().zip(&self.to) {
            counters.publish(&direction.stats(), direction.in_flight());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    fn link(faults: Faults) -> Impairment<Vec<u8>> {
        Impairment::new(faults, 7)
    }

    /// Offers packets 0 to `n - 1`, one a millisecond, and returns what arrives with its time.
    fn send(link: &mut Impairment<Vec<u8>>, n: u64) -> Vec<(u64, Vec<u8>)> {
        let mut arrived = Vec::new();
        for ms in 0..n + 1000 {
            if ms < n {
                let _ = link.offer(at(ms), ms.to_be_bytes().to_vec(), |p| Some(p.clone()));
            }
            while let Some(packet) = link.poll(at(ms)) {
                arrived.push((ms, packet));
            }
        }
        assert_eq!(link.in_flight(), 0);
        arrived
    }

    fn numbers(arrived: &[(u64, Vec<u8>)]) -> Vec<u64> {
        let number = |p: &Vec<u8>| u64::from_be_bytes(p.as_slice().try_into().unwrap());
        arrived.iter().map(|(_, p)| number(p)).collect()
    }

    #[test]
    fn without_faults_everything_arrives_at_once_and_in_order() {
        let arrived = send(&mut link(Faults::default()), 100);
        assert!(arrived.iter().zip(0..).all(|((ms, _), n)| *ms == n));
        assert_eq!(numbers(&arrived), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn loss_and_duplication_are_as_likely_as_asked_and_counted() {
        let faults = Faults {
            drop_ppm: 100_000,
            duplicate_ppm: 200_000,
            ..Faults::default()
        };
        let mut link = link(faults);
        let arrived = send(&mut link, 10_000).len() as u64;
        let stats = link.stats();
        assert!((800..1200).contains(&stats.dropped), "{stats:?}");
        assert!((1600..2000).contains(&stats.duplicated), "{stats:?}");
        assert_eq!(arrived, 10_000 - stats.dropped + stats.duplicated);
    }

    #[test]
    fn delay_and_jitter_keep_the_order_and_reordering_does_not() {
        let mut faults = Faults {
            delay: 5 * MS,
            jitter: 10 * MS,
            ..Faults::default()
        };
        let arrived = send(&mut link(faults), 500);
        assert!(arrived.iter().zip(0..).all(|((ms, _), n)| *ms >= n + 5));
        assert_eq!(numbers(&arrived), (0..500).collect::<Vec<_>>());
        faults.reorder_ppm = 100_000;
        faults.reorder_by = 50 * MS;
        let mut seen = numbers(&send(&mut link(faults), 500));
        assert_ne!(seen, (0..500).collect::<Vec<_>>());
        seen.sort_unstable();
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn corruption_flips_one_bit() {
        let faults = Faults {
            corrupt_ppm: 1_000_000,
            ..Faults::default()
        };
        for (number, seen) in numbers(&send(&mut link(faults), 100))
            .into_iter()
            .enumerate()
        {
            assert_eq!((number as u64 ^ seen).count_ones(), 1);
        }
    }

    #[test]
    fn bandwidth_spaces_packets_and_the_queue_and_the_mtu_are_limits() {
        // 8 bytes a millisecond
        let faults = Faults {
            bandwidth_bps: 64_000,
            queue_pkts: 10,
            mtu_bytes: 8,
            ..Faults::default()
        };
        let mut link = link(faults);
        for number in 0..20_u64 {
            let result = link.offer(at(0), number.to_be_bytes().to_vec(), |_| None);
            assert_eq!(result.is_ok(), number < 10);
        }
        let error = link.offer(at(0), vec![0; 9], |_| None).unwrap_err();
        assert_eq!(error.1, DropReason::FrameTooLong);
        for ms in 1..=10 {
            assert!(link.poll(at(ms)).is_some());
            assert!(link.poll(at(ms)).is_none());
        }
        assert_eq!(link.stats().overflowed, 10);
    }

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        let faults = Faults {
            drop_ppm: 300_000,
            jitter: 3 * MS,
            ..Faults::default()
        };
        let run = |seed| send(&mut Impairment::new(faults, seed), 200);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
