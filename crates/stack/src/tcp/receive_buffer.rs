//! What arrived and was not read: bytes in order, and ranges beyond a hole, in the place where they belong.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::block::{BLOCK_BYTES, Block, BlockPool};
use super::seq::Seq;

/// The most ranges beyond holes; a segment that would make one more is dropped.
const RANGES_MAX: usize = 64;

/// A range beyond a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: Seq,
    end: Seq,
    /// When it changed last: the newest is reported first (RFC 2018 4).
    stamp: u32,
}

/// What became of a segment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The next bytes to be read grew by this many.
    InOrder(usize),
    /// Kept beyond a hole.
    OutOfOrder,
    /// No room in the pool or in the list of ranges.
    NoRoom,
}

/// Bytes in blocks; a block that nothing was written to yet is absent.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    blocks: VecDeque<Option<Block>>,
    /// Where the next byte to be read lies in the first block.
    start: usize,
    /// Bytes in order.
    ready: usize,
    /// Disjoint, not adjacent, ascending.
    ranges: Vec<Range>,
    stamps: u32,
}

impl ReceiveBuffer {
    /// Returns the bytes that can be read.
    pub(crate) const fn ready(&self) -> usize {
        self.ready
    }
    /// Says whether there are bytes beyond a hole.
    pub(crate) fn has_holes(&self) -> bool {
        !self.ranges.is_empty()
    }
    /// Says whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready == 0 && self.ranges.is_empty()
    }
    /// Takes data that starts at `seq`, `next` or later; `next` is the first byte that did not come in order.
    pub(crate) fn write(
        &mut self,
        next: Seq,
        seq: Seq,
        data: &[u8],
        pool: &mut BlockPool,
    ) -> Received {
        let ahead = seq.since(next) as usize;
        if ahead == 0 && self.ranges.is_empty() {
            let written = self.copy_in(self.ready, data, pool);
            self.ready += written;
            return if written == 0 {
                Received::NoRoom
            } else {
                Received::InOrder(written)
            };
        }
        if ahead != 0
            && self.ranges.len() >= RANGES_MAX
            && !self.touches(seq, seq.plus(data.len() as u32))
        {
            return Received::NoRoom;
        }
        let written = self.copy_in(self.ready + ahead, data, pool);
        if written == 0 {
            return Received::NoRoom;
        }
        self.insert(seq, seq.plus(written as u32));
        match self.ranges.first() {
            Some(first) if first.start.at_or_before(next) => {
                let grown = first.end.since(next) as usize;
                self.ranges.remove(0);
                self.ready += grown;
                Received::InOrder(grown)
            }
            _ => Received::OutOfOrder,
        }
    }
    /// Reads and forgets bytes; returns how many.
    #[cfg(test)]
    pub(crate) fn read(&mut self, to: &mut [u8], pool: &mut BlockPool) -> usize {
        let mut done = 0;
        while done < to.len() {
            let part = self.contiguous();
            let Some(room) = to.get_mut(done..) else {
                break;
            };
            let bytes = part.len().min(room.len());
            if bytes == 0 {
                break;
            }
            room[..bytes].copy_from_slice(&part[..bytes]);
            self.consume(bytes, pool);
            done += bytes;
        }
        done
    }
    /// Returns the bytes that can be read without a copy; more may follow after they are consumed.
    pub(crate) fn contiguous(&self) -> &[u8] {
        let bytes = self.ready.min(BLOCK_BYTES - self.start);
        self.blocks
            .front()
            .and_then(Option::as_ref)
            .and_then(|block| block.get(self.start..self.start + bytes))
            .unwrap_or_default()
    }
    /// Forgets bytes that were read.
    pub(crate) fn consume(&mut self, bytes: usize, pool: &mut BlockPool) {
        let bytes = bytes.min(self.ready);
        self.ready -= bytes;
        self.start += bytes;
        while self.start >= BLOCK_BYTES {
            if let Some(Some(block)) = self.blocks.pop_front() {
                pool.give(block);
            }
            self.start -= BLOCK_BYTES;
        }
        if self.is_empty() {
            self.clear(pool);
        }
    }
    /// Forgets everything.
    pub(crate) fn clear(&mut self, pool: &mut BlockPool) {
        for block in self.blocks.drain(..).flatten() {
            pool.give(block);
        }
        self.start = 0;
        self.ready = 0;
        self.ranges.clear();
    }
    /// Writes the ranges as SACK blocks, newest first (RFC 2018 4), to `out`; returns how many.
    pub(crate) fn sack_blocks(&self, out: &mut [(u32, u32)]) -> usize {
        let mut count = 0;
        let mut below = u32::MAX;
        for slot in out {
            let newest = self
                .ranges
                .iter()
                .filter(|range| range.stamp < below)
                .max_by_key(|range| range.stamp);
            let Some(range) = newest else { break };
            *slot = (range.start.0, range.end.0);
            below = range.stamp;
            count += 1;
        }
        count
    }
    /// Says whether all of the segment lies in one range beyond a hole: a duplicate (RFC 2883).
    pub(crate) fn holds(&self, start: Seq, end: Seq) -> bool {
        self.ranges
            .iter()
            .any(|range| range.start.at_or_before(start) && range.end.at_or_after(end))
    }

    fn touches(&self, start: Seq, end: Seq) -> bool {
        self.ranges
            .iter()
            .any(|range| range.start.at_or_before(end) && range.end.at_or_after(start))
    }

    fn insert(&mut self, mut start: Seq, mut end: Seq) {
        self.stamps += 1;
        let first = self.ranges.partition_point(|range| range.end.before(start));
        let last = self
            .ranges
            .partition_point(|range| range.start.at_or_before(end));
        for range in self.ranges.get(first..last).unwrap_or_default() {
            start = start.earlier(range.start);
            end = end.later(range.end);
        }
        let merged = Range {
            start,
            end,
            stamp: self.stamps,
        };
        if first < last {
            self.ranges.drain(first + 1..last);
            if let Some(range) = self.ranges.get_mut(first) {
                *range = merged;
            }
        } else {
            self.ranges.insert(first, merged);
        }
    }

    /// Copies data to `offset` bytes after the next byte to be read; returns how much found room.
    fn copy_in(&mut self, offset: usize, mut data: &[u8], pool: &mut BlockPool) -> usize {
        let mut at = self.start + offset;
        let whole = data.len();
        while !data.is_empty() {
            let index = at / BLOCK_BYTES;
            while self.blocks.len() <= index {
                self.blocks.push_back(None);
            }
            let Some(slot) = self.blocks.get_mut(index) else {
                break;
            };
            if slot.is_none() {
                *slot = pool.take();
            }
            let Some(room) = slot
                .as_mut()
                .and_then(|block| block.get_mut(at % BLOCK_BYTES..))
            else {
                break;
            };
            let bytes = room.len().min(data.len());
            let (now, later) = data.split_at(bytes);
            room[..bytes].copy_from_slice(now);
            data = later;
            at += bytes;
        }
        whole - data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// Segments in any order, overlapping, around the wrap: what is read is the stream; the oracle is an array
        /// of flags.
        #[test]
        fn reads_the_stream_whatever_the_order(
            base in any::<u32>(),
            ops in prop::collection::vec((0_usize..20_000, 1_usize..3000, 0_usize..4000), 1..120),
        ) {
            let mut pool = BlockPool::new(64);
            let mut buffer = ReceiveBuffer::default();
            let byte = |at: usize| (at * 31 + at / 251) as u8;
            let mut have = vec![false; 24_000];
            let (mut next, mut read) = (0_usize, 0_usize);
            for (at, len, take) in ops {
                let at = at.max(next);
                if at + len >= have.len() {
                    break; // the oracle ends here
                }
                let data: Vec<u8> = (at..at + len).map(byte).collect();
                let seq = |n: usize| Seq(base).plus(n as u32);
                let held = (at..at + len).all(|i| have[i]);
                prop_assert_eq!(buffer.holds(seq(at), seq(at + len)), held && at > next);
                match buffer.write(seq(next), seq(at), &data, &mut pool) {
                    Received::NoRoom => prop_assert!(buffer.ranges.len() >= RANGES_MAX),
                    received => {
                        have[at..at + len].fill(true);
                        let grown = have[next..].iter().take_while(|&&h| h).count();
                        let expected = if grown == 0 { Received::OutOfOrder } else { Received::InOrder(grown) };
                        prop_assert_eq!(received, expected);
                        next += grown;
                    }
                }
                let runs = have[next..].windows(2).filter(|w| !w[0] && w[1]).count();
                prop_assert_eq!(buffer.ranges.len(), runs);
                let mut blocks = [(0, 0); 4];
                let count = buffer.sack_blocks(&mut blocks);
                prop_assert_eq!(count, runs.min(4));
                for (start, end) in &blocks[..count] {
                    let (start, end) = (Seq(*start).since(Seq(base)) as usize, Seq(*end).since(Seq(base)) as usize);
                    prop_assert!(have[start..end].iter().all(|&h| h) && !have[start - 1] && !have[end]);
                }
                let mut out = vec![0; take];
                let got = buffer.read(&mut out, &mut pool);
                prop_assert_eq!(got, take.min(next - read));
                prop_assert!(out[..got].iter().enumerate().all(|(i, &b)| b == byte(read + i)));
                read += got;
                prop_assert_eq!(buffer.ready(), next - read);
            }
            buffer.clear(&mut pool);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
