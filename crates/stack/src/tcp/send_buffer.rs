//! What the application has written and the peer has not acknowledged.

use alloc::collections::VecDeque;

use super::block::{BLOCK_BYTES, Block, BlockPool};

/// A queue of bytes in blocks; offset 0 is the oldest byte that is not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    blocks: VecDeque<Block>,
    /// Where the queue starts in the first block.
    start: usize,
    len: usize,
}

impl SendBuffer {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }
    /// Appends as much of `data` as `limit` (bytes in all) and the pool allow; returns how much.
    pub(crate) fn push(&mut self, mut data: &[u8], limit: usize, pool: &mut BlockPool) -> usize {
        self.push_with(data.len(), limit, pool, |room| {
            let (now, later) = data.split_at(room.len());
            room.copy_from_slice(now);
            data = later;
        })
    }
    /// As [`push`](Self::push), for `bytes` bytes that `fill` writes, piece by piece.
    pub(crate) fn push_with(
        &mut self,
        bytes: usize,
        limit: usize,
        pool: &mut BlockPool,
        mut fill: impl FnMut(&mut [u8]),
    ) -> usize {
        let mut taken = 0;
        let bytes = bytes.min(limit.saturating_sub(self.len));
        while taken < bytes {
            let at = (self.start + self.len) % BLOCK_BYTES;
            if self.start + self.len == self.blocks.len() * BLOCK_BYTES {
                let Some(block) = pool.take() else { break };
                self.blocks.push_back(block);
            }
            let Some(room) = self.blocks.back_mut().and_then(|block| block.get_mut(at..)) else {
                break;
            };
            let piece = room.len().min(bytes - taken);
            fill(&mut room[..piece]);
            self.len += piece;
            taken += piece;
        }
        taken
    }
    /// Copies the bytes from `offset` on; false if the queue does not hold them all.
    pub(crate) fn copy_to(&self, offset: usize, mut to: &mut [u8]) -> bool {
        if offset + to.len() > self.len {
            return false;
        }
        let from = self.start + offset;
        let mut at = from % BLOCK_BYTES;
        // Most segments lie in one block.
        if let Some(block) = self.blocks.get(from / BLOCK_BYTES)
            && let Some(part) = block.get(at..at + to.len())
        {
            to.copy_from_slice(part);
            return true;
        }
        for block in self.blocks.range(from / BLOCK_BYTES..) {
            let Some(part) = block.get(at..) else {
                return false;
            };
            let bytes = part.len().min(to.len());
            let (now, later) = to.split_at_mut(bytes);
            now.copy_from_slice(&part[..bytes]);
            to = later;
            at = 0;
            if to.is_empty() {
                break;
            }
        }
        to.is_empty()
    }
    /// Forgets the oldest `bytes`, which the peer has.
    pub(crate) fn consume(&mut self, bytes: usize, pool: &mut BlockPool) {
        let bytes = bytes.min(self.len);
        self.len -= bytes;
        self.start += bytes;
        while self.start >= BLOCK_BYTES {
            if let Some(block) = self.blocks.pop_front() {
                pool.give(block);
            }
            self.start -= BLOCK_BYTES;
        }
        if self.len == 0 {
            self.clear(pool);
        }
    }
    /// Forgets everything.
    pub(crate) fn clear(&mut self, pool: &mut BlockPool) {
        for block in self.blocks.drain(..) {
            pool.give(block);
        }
        self.start = 0;
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn holds_what_a_vector_holds(ops in prop::collection::vec((0_u8..3, 0_usize..9000), 1..60)) {
            let mut pool = BlockPool::new(6);
            let (mut buffer, mut model) = (SendBuffer::default(), Vec::new());
            let mut next = 0_u8;
            for (op, n) in ops {
                match op {
                    0 => {
                        let data: Vec<u8> = (0..n).map(|i| next.wrapping_add((i * 7) as u8)).collect();
                        next = next.wrapping_add(11);
                        let taken = buffer.push(&data, 20_000, &mut pool);
                        prop_assert!(taken <= n && buffer.len() <= 20_000);
                        model.extend_from_slice(&data[..taken]);
                        // All is taken unless a limit says no.
                        prop_assert!(taken == n || buffer.len() == 20_000 || pool.in_use() == 6);
                    }
                    1 => {
                        buffer.consume(n, &mut pool);
                        model.drain(..n.min(model.len()));
                    }
                    _ => {
                        let from = n % (model.len() + 1);
                        let mut out = vec![0; (model.len() - from).min(n)];
                        prop_assert!(buffer.copy_to(from, &mut out));
                        prop_assert_eq!(&out[..], &model[from..from + out.len()]);
                    }
                }
                prop_assert_eq!(buffer.len(), model.len());
            }
            prop_assert!(!buffer.copy_to(0, &mut vec![0; model.len() + 1]));
            buffer.clear(&mut pool);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
