//! Packets that wait for a neighbour's MAC address: a few a neighbour, and a bounded number in all.

use core::time::Duration;

use io::Frame;
use wire::Instant;

use super::table::Key;

/// Packets that wait for one neighbour, at most; the oldest gives way (RFC 4861 7.2.2).
pub const EACH_MAX: usize = 8;
/// Neighbours that packets wait for, at most.
pub const KEYS_MAX: usize = 256;
/// A packet waits no longer than this, whatever happens to its neighbour: the questions of
/// [`super::machine`] and a bit.
const WAIT_MAX: Duration = Duration::from_secs(4);

/// One neighbour's packets.
#[derive(Debug)]
struct Queue {
    key: Key,
    since: Instant,
    frames: Vec<Frame>,
}

/// Waiting packets, private to a worker. All memory is taken at the start.
#[derive(Debug)]
pub struct Waiting {
    queues: Vec<Queue>,
    spare: Vec<Vec<Frame>>,
    packets: usize,
    packets_max: usize,
}

impl Waiting {
    /// Makes the queues; `packets_max` packets wait in all, at most.
    pub fn new(packets_max: usize) -> Self {
        Self {
            queues: Vec::with_capacity(KEYS_MAX),
            spare: (0..KEYS_MAX)
                .map(|_| Vec::with_capacity(EACH_MAX))
                .collect(),
            packets: 0,
            packets_max,
        }
    }

    /// Adds a packet; returns the one that has to go for it, if any.
    pub fn push(&mut self, key: &Key, frame: Frame, now: Instant) -> Option<Frame> {
        let at = self.queues.iter().position(|queue| queue.key == *key);
        let Some(at) = at else {
            if self.packets == self.packets_max {
                return Some(frame);
            }
            let Some(mut frames) = self.spare.pop() else {
                return Some(frame);
            };
            frames.push(frame);
            self.packets += 1;
            self.queues.push(Queue {
                key: *key,
                since: now,
                frames,
            });
            return None;
        };
        let frames = &mut self.queues[at].frames;
        let oldest = if frames.len() == EACH_MAX || self.packets == self.packets_max {
            self.packets -= 1;
            Some(frames.remove(0))
        } else {
            None
        };
        frames.push(frame);
        self.packets += 1;
        oldest
    }

    /// Gives the packets of a neighbour to `f`, oldest first.
    pub fn release(&mut self, key: &Key, f: impl FnMut(Frame)) {
        if let Some(at) = self.queues.iter().position(|queue| queue.key == *key) {
            let mut queue = self.queues.swap_remove(at);
            self.packets -= queue.frames.len();
            queue.frames.drain(..).for_each(f);
            self.spare.push(queue.frames);
        }
    }

    /// Returns a neighbour for which `ready` holds or whose packets have waited too long.
    pub fn find(&self, now: Instant, mut ready: impl FnMut(&Key) -> bool) -> Option<Key> {
        self.queues
            .iter()
            .find(|queue| now.saturating_since(queue.since) > WAIT_MAX || ready(&queue.key))
            .map(|queue| queue.key)
    }

    /// Returns one neighbour that packets wait for.
    pub fn any(&self) -> Option<Key> {
        self.queues.first().map(|queue| queue.key)
    }

    /// Tells whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns how many packets wait for each neighbour.
    pub fn lengths(&self) -> impl Iterator<Item = (Key, usize)> + '_ {
        self.queues
            .iter()
            .map(|queue| (queue.key, queue.frames.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::InterfaceId;
    use io::{HugePages, Pool};

    fn key(n: u8) -> Key {
        Key::v4(InterfaceId(0), [192, 0, 2, n])
    }

    #[test]
    fn the_oldest_packet_gives_way_and_order_is_kept() {
        let mut pool = Pool::new(64, 2048, HugePages::Never).expect("a pool");
        let mut waiting = Waiting::new(32);
        for n in 0..EACH_MAX as u32 + 2 {
            let mut frame = pool.alloc().expect("a frame");
            frame.mark = n;
            let gone = waiting.push(&key(1), frame, Instant::ZERO);
            assert_eq!(
                gone.as_ref().map(|f| f.mark),
                n.checked_sub(EACH_MAX as u32)
            );
            gone.into_iter().for_each(|f| pool.free(f));
        }
        let mut marks = Vec::new();
        waiting.release(&key(1), |frame| {
            marks.push(frame.mark);
            pool.free(frame);
        });
        assert_eq!(marks, (2..EACH_MAX as u32 + 2).collect::<Vec<_>>());
        assert!(waiting.is_empty());
        assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    fn the_total_is_bounded_and_long_waits_are_found() {
        let mut pool = Pool::new(64, 2048, HugePages::Never).expect("a pool");
        let mut waiting = Waiting::new(4);
        let mut refused = 0;
        for n in 0..9 {
            let frame = pool.alloc().expect("a frame");
            if let Some(frame) = waiting.push(&key(n), frame, Instant::ZERO) {
                refused += 1;
                pool.free(frame);
            }
        }
        assert_eq!(refused, 5);
        let later = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(waiting.find(later(4000), |_| false), None);
        assert_eq!(waiting.find(later(0), |k| *k == key(2)), Some(key(2)));
        assert!(waiting.find(later(4001), |_| false).is_some());
        while let Some(key) = waiting.any() {
            waiting.release(&key, |frame| pool.free(frame));
        }
        assert_eq!(pool.available(), pool.capacity());
    }
}
