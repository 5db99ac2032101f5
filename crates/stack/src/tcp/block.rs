//! Buffer memory of all connections: blocks of one size, taken up to a limit and kept for reuse.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// One block.
pub(crate) type Block = Box<[u8; BLOCK_BYTES]>;

/// Blocks that no buffer holds, and how many more may be made.
#[derive(Debug)]
pub(crate) struct BlockPool {
    free: Vec<Block>,
    made: usize,
    max: usize,
}

impl BlockPool {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            free: Vec::new(),
            made: 0,
            max,
        }
    }
    /// Takes a block, whatever it holds; `None` at the limit.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Block> {
        if let Some(block) = self.free.pop() {
            return Some(block);
        }
        if self.made >= self.max {
            return None;
        }
        self.made += 1;
        Some(Box::new([0; BLOCK_BYTES]))
    }
    #[inline]
    pub(crate) fn give(&mut self, block: Block) {
        self.free.push(block);
    }
    /// Returns how many blocks buffers hold.
    pub(crate) fn in_use(&self) -> usize {
        self.made - self.free.len()
    }
}
