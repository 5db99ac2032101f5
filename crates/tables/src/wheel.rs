//! A hierarchical timing wheel for one worker: schedule, cancel and fire in constant time, memory taken at
//! start (Varghese and Lauck, SOSP 1987, scheme 7).

use alloc::vec;
use alloc::vec::Vec;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough levels for every 64-bit tick.
const LEVELS: usize = 64_usize.div_ceil(SLOT_BITS as usize);
const HEADS: usize = LEVELS * SLOTS;

/// Names a scheduled timer; stale after it fired or was cancelled, which is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// A list head (the first `HEADS` nodes) or a timer.
#[derive(Clone, Copy, Debug)]
struct Node {
    tick: u64,
    token: u64,
    next: u32,
    prev: u32,
    generation: u32,
    /// The head of the list it is in; `FREE` when it is not scheduled.
    head: u32,
}

const FREE: u32 = u32::MAX;

/// Timers of one worker, each with a 64-bit token that says what it is for.
///
/// ```
/// let mut wheel = tables::wheel::Wheel::new(1_000_000, 16, 0); // about 1 ms a tick, 16 timers, now 0
/// let retransmit = wheel.schedule(200_000_000, 7).unwrap();
/// wheel.schedule(3_000_000, 8);
/// assert_eq!(wheel.pop(100_000_000), Some(8));
/// assert_eq!(wheel.cancel(retransmit), Some(7));
/// assert_eq!(wheel.pop(u64::MAX), None);
/// ```
#[derive(Debug)]
pub struct Wheel {
    nodes: Vec<Node>,
    free: Vec<u32>,
    occupied: [u64; LEVELS],
    /// All earlier ticks have fired.
    elapsed: u64,
    tick_shift: u32,
}

impl Wheel {
    /// Makes a wheel for `capacity` timers with ticks of `tick_ns` (rounded up to a power of two), at
    /// `now_ns`.
    ///
    /// # Panics
    /// If `capacity` exceeds 2^31.
    pub fn new(tick_ns: u64, capacity: usize, now_ns: u64) -> Self {
        assert!(capacity <= 1 << 31, "wheel capacity out of range");
        let heads = HEADS as u32;
        let blank = Node {
            tick: 0,
            token: 0,
            next: 0,
            prev: 0,
            generation: 0,
            head: FREE,
        };
        let mut nodes = vec![blank; HEADS + capacity];
        for (index, node) in (0..heads).zip(&mut nodes) {
            node.next = index;
            node.prev = index;
        }
        let tick_shift = tick_ns
            .clamp(1, 1 << 62)
            .next_power_of_two()
            .trailing_zeros();
        Self {
            nodes,
            free: (heads..heads + capacity as u32).rev().collect(),
            occupied: [0; LEVELS],
            elapsed: now_ns >> tick_shift,
            tick_shift,
        }
    }

    /// Number of scheduled timers.
    pub fn len(&self) -> usize {
        self.nodes.len() - HEADS - self.free.len()
    }

    /// True when nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules `token` for `deadline_ns`, rounded up to a tick: it never fires early. `None` if all
    /// timers are in use. A deadline in the past fires at the next [`pop`](Self::pop).
    pub fn schedule(&mut self, deadline_ns: u64, token: u64) -> Option<TimerId> {
        let index = self.free.pop()?;
        let whole = deadline_ns >> self.tick_shift;
        let rounded = whole + u64::from(whole << self.tick_shift != deadline_ns);
        let node = &mut self.nodes[index as usize];
        node.tick = rounded;
        node.token = token;
        let generation = node.generation;
        self.link(index);
        Some(TimerId { index, generation })
    }

    /// Cancels a timer and returns its token; `None` if it fired or was cancelled before.
    pub fn cancel(&mut self, timer: TimerId) -> Option<u64> {
        let node = self.nodes.get(timer.index as usize)?;
        if node.head == FREE || node.generation != timer.generation {
            return None;
        }
        Some(self.release(timer.index))
    }

    /// Takes one timer that is due at `now_ns`, earliest tick first; `None` when no more is due. Call in
    /// a loop; timers may be scheduled in between, and fire in the same loop if they are due.
    pub fn pop(&mut self, now_ns: u64) -> Option<u64> {
        let now = now_ns >> self.tick_shift;
        loop {
            let Some((level, slot, tick)) = self.next_slot().filter(|&(_, _, tick)| tick <= now)
            else {
                self.elapsed = self.elapsed.max(now);
                return None;
            };
            self.elapsed = self.elapsed.max(tick);
            let head = (level * SLOTS + slot) as u32;
            let first = self.nodes[head as usize].next;
            if level == 0 {
                return Some(self.release(first));
            }
            // The slot's time has come: its timers belong to lower levels now.
            let mut index = first;
            while index != head {
                let next = self.nodes[index as usize].next;
                self.unlink(index);
                self.link(index);
                index = next;
            }
        }
    }

    /// Returns a time at which to call [`pop`](Self::pop) next (ns): never later than the next timer, up
    /// to a few times earlier, so that far timers move to finer levels.
    pub fn next_timeout_ns(&self) -> Option<u64> {
        self.next_slot()
            .map(|(_, _, tick)| tick.saturating_mul(1 << self.tick_shift))
    }

    /// The first occupied slot in time: level, slot, and the tick at which the slot begins.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // A lower level is always earlier: its timers share the higher bits with `elapsed`.
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let shift = SLOT_BITS * level as u32;
        let slot = self.occupied[level].trailing_zeros();
        let above = self.elapsed.checked_shr(shift + SLOT_BITS).unwrap_or(0);
        let base = above.checked_shl(shift + SLOT_BITS).unwrap_or(0);
        Some((level, slot as usize, base | u64::from(slot) << shift))
    }

    fn link(&mut self, index: u32) {
        let tick = self.nodes[index as usize].tick.max(self.elapsed);
        let level = match tick ^ self.elapsed {
            0 => 0,
            differing => (63 - differing.leading_zeros()) / SLOT_BITS,
        };
        let slot = (tick >> (level * SLOT_BITS)) as usize & (SLOTS - 1);
        let head = level * SLOTS as u32 + slot as u32;
        let last = self.nodes[head as usize].prev;
        let node = &mut self.nodes[index as usize];
        node.head = head;
        node.next = head;
        node.prev = last;
        self.nodes[last as usize].next = index;
        self.nodes[head as usize].prev = index;
        self.occupied[level as usize] |= 1 << slot;
    }

    fn unlink(&mut self, index: u32) {
        let Node {
            next, prev, head, ..
        } = self.nodes[index as usize];
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        if next == prev && next == head {
            self.occupied[head as usize / SLOTS] &= !(1 << (head as usize % SLOTS));
        }
    }

    fn release(&mut self, index: u32) -> u64 {
        self.unlink(index);
        self.free.push(index);
        let node = &mut self.nodes[index as usize];
        node.head = FREE;
        node.generation = node.generation.wrapping_add(1);
        node.token
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn full_wheel_refuses_and_stale_ids_are_detected() {
        let mut wheel = Wheel::new(1, 1, 0);
        let timer = wheel.schedule(5, 1).unwrap();
        assert_eq!(wheel.schedule(5, 2), None);
        assert_eq!(wheel.pop(4), None);
        assert_eq!(wheel.pop(5), Some(1));
        assert_eq!(wheel.cancel(timer), None);
        let other = wheel.schedule(9, 3).unwrap();
        assert_eq!(wheel.cancel(timer), None);
        assert_eq!(wheel.cancel(other), Some(3));
        assert!(wheel.is_empty());
        assert_eq!(wheel.next_timeout_ns(), None);
    }

    #[test]
    fn the_end_of_time_is_reached() {
        let mut wheel = Wheel::new(1, 4, 17);
        wheel.schedule(u64::MAX, 1);
        wheel.schedule(0, 2);
        assert_eq!(wheel.pop(17), Some(2));
        assert_eq!(wheel.pop(u64::MAX - 1), None);
        assert_eq!(wheel.pop(u64::MAX), Some(1));
    }

    proptest! {
        #[test]
        fn fires_like_a_sorted_list(
            tick_ns in 1_u64..9,
            start in 0_u64..100_000,
            ops in prop::collection::vec((0_u8..4, 0_u32..30, any::<u64>()), 1..200),
        ) {
            let mut wheel = Wheel::new(tick_ns, 64, start);
            let tick_ns = tick_ns.next_power_of_two();
            let mut model: Vec<(u64, u64, TimerId)> = Vec::new();
            let mut now = start;
            let mut token = 0;
            for (op, magnitude, value) in ops {
                let delta = value >> (63 - magnitude);
                match op {
                    0 | 1 => {
                        let deadline = (now + delta).saturating_sub(u64::from(op) * 50);
                        if let Some(timer) = wheel.schedule(deadline, token) {
                            model.push((deadline.div_ceil(tick_ns), token, timer));
                        } else {
                            prop_assert_eq!(model.len(), 64);
                        }
                        token += 1;
                    }
                    2 if !model.is_empty() => {
                        let (_, token, timer) = model.swap_remove(value as usize % model.len());
                        prop_assert_eq!(wheel.cancel(timer), Some(token));
                    }
                    _ => {
                        now += delta;
                        let first = model.iter().map(|t| t.0).min();
                        let timeout = wheel.next_timeout_ns();
                        prop_assert_eq!(first.is_some(), timeout.is_some());
                        if let (Some(first), Some(timeout)) = (first, timeout) {
                            prop_assert!(timeout <= first.max(now / tick_ns) * tick_ns);
                        }
                        let mut due: Vec<u64> = model.iter()
                            .filter(|t| t.0 <= now / tick_ns).map(|t| t.1).collect();
                        model.retain(|t| t.0 > now / tick_ns);
                        let mut fired: Vec<u64> = std::iter::from_fn(|| wheel.pop(now)).collect();
                        due.sort_unstable();
                        fired.sort_unstable();
                        prop_assert_eq!(fired, due);
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }
}
