//! A ring of bytes with one producer and one consumer, in memory that processes share.
//!
//! Bytes are copied by words of eight through relaxed atomics: a peer process that writes where it should not
//! gives wrong bytes to its own connection, never undefined behaviour to the other side.

use crate::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = 8;

/// A view of a ring: its two positions (bytes since the start, each written by one side) and its memory.
///
/// Positions that make no sense (the other side lies) are an empty ring to the consumer and a full one to the
/// producer.
#[derive(Clone, Copy, Debug)]
pub struct ByteRing<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    words: &'a [AtomicU64],
}

impl<'a> ByteRing<'a> {
    /// Views a ring: `head` is the consumer's position, `tail` the producer's; the number of words is a power of two.
    pub fn new(head: &'a AtomicU64, tail: &'a AtomicU64, words: &'a [AtomicU64]) -> Self {
        debug_assert!(words.len().is_power_of_two(), "a ring of odd size");
        Self { head, tail, words }
    }

    /// Returns how many bytes it holds at most.
    pub fn capacity(&self) -> usize {
        self.words.len() * WORD
    }

    /// Consumer: returns how many bytes wait.
    #[inline]
    pub fn len(&self) -> usize {
        // Acquire: pairs with the release store in `push`: the bytes are there.
        let tail = self.tail.load(Ordering::Acquire);
        let used = tail.wrapping_sub(self.head.load(Ordering::Relaxed));
        if used <= self.capacity() as u64 {
            used as usize
        } else {
            0
        }
    }

    /// Consumer: tells whether no byte waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Producer: returns how many bytes fit.
    #[inline]
    pub fn room(&self) -> usize {
        // Acquire: pairs with the release store in `consume`: the consumer's reads are done.
        let head = self.head.load(Ordering::Acquire);
        let used = self.tail.load(Ordering::Relaxed).wrapping_sub(head);
        (self.capacity() as u64).saturating_sub(used) as usize
    }

    /// Producer: appends what fits of `data`; returns how much.
    pub fn push(&self, data: &[u8]) -> usize {
        let bytes = data.len().min(self.room());
        self.put(0, &data[..bytes]);
        self.publish(bytes);
        bytes
    }

    /// Producer: writes bytes at `offset` behind what is published. They must fit ([`room`](Self::room)).
    pub fn put(&self, offset: usize, data: &[u8]) {
        let tail = self.tail.load(Ordering::Relaxed) as usize;
        let mask = self.capacity() - 1;
        let mut at = tail.wrapping_add(offset) & mask;
        let mut data = data;
        while !data.is_empty() {
            let word = &self.words[at / WORD];
            let skip = at % WORD;
            if skip == 0 && data.len() >= WORD {
                let whole = data.len().min(self.capacity() - at) / WORD;
                let (now, later) = data.split_at(whole * WORD);
                let words = &self.words[at / WORD..at / WORD + whole];
                for (word, bytes) in words.iter().zip(now.as_chunks::<WORD>().0) {
                    word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
                }
                data = later;
                at = (at + whole * WORD) & mask;
                continue;
            }
            // The producer alone writes the word; its other bytes stay.
            let n = data.len().min(WORD - skip);
            let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
            bytes[skip..skip + n].copy_from_slice(&data[..n]);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            data = &data[n..];
            at = (at + n) & mask;
        }
    }

    /// Producer: makes `bytes` bytes that were [`put`](Self::put) visible.
    #[inline]
    pub fn publish(&self, bytes: usize) {
        let tail = self.tail.load(Ordering::Relaxed);
        // Release: pairs with the acquire load in `len`.
        self.tail
            .store(tail.wrapping_add(bytes as u64), Ordering::Release);
    }

    /// Consumer: copies the oldest bytes to `to`, as many as wait and fit, and removes them; returns how many.
    pub fn pop(&self, to: &mut [u8]) -> usize {
        let bytes = self.peek(0, to);
        self.consume(bytes);
        bytes
    }

    /// Consumer: copies bytes from `offset` behind the oldest on; returns how many.
    pub fn peek(&self, offset: usize, to: &mut [u8]) -> usize {
        let bytes = to.len().min(self.len().saturating_sub(offset));
        let mut to = &mut to[..bytes];
        let head = self.head.load(Ordering::Relaxed) as usize;
        let mask = self.capacity() - 1;
        let mut at = head.wrapping_add(offset) & mask;
        while !to.is_empty() {
            let skip = at % WORD;
            if skip == 0 && to.len() >= WORD {
                let whole = to.len().min(self.capacity() - at) / WORD;
                let (now, later) = to.split_at_mut(whole * WORD);
                let words = &self.words[at / WORD..at / WORD + whole];
                for (word, bytes) in words.iter().zip(now.as_chunks_mut::<WORD>().0) {
                    *bytes = word.load(Ordering::Relaxed).to_le_bytes();
                }
                to = later;
                at = (at + whole * WORD) & mask;
                continue;
            }
            let n = to.len().min(WORD - skip);
            let word = self.words[at / WORD].load(Ordering::Relaxed).to_le_bytes();
            to[..n].copy_from_slice(&word[skip..skip + n]);
            to = &mut to[n..];
            at = (at + n) & mask;
        }
        bytes
    }

    /// Consumer: removes the oldest `bytes` bytes (no more than wait).
    #[inline]
    pub fn consume(&self, bytes: usize) {
        let bytes = bytes.min(self.len());
        let head = self.head.load(Ordering::Relaxed);
        // Release: pairs with the acquire load in `room`: our reads come before the producer's writes.
        self.head
            .store(head.wrapping_add(bytes as u64), Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_a_queue_of_bytes(
            start in any::<u64>(),
            ops in prop::collection::vec((0_u8..4, 0_usize..80, 0_usize..9), 1..200),
        ) {
            let memory = Memory::<AtomicU64>::heap(8 + 2);
            memory[0].store(start, Ordering::Relaxed);
            memory[1].store(start, Ordering::Relaxed);
            let ring = ByteRing::new(&memory[0], &memory[1], &memory[2..]);
            let mut model = VecDeque::new();
            let mut next = 0_u8;
            let mut make = |n: usize| -> Vec<u8> {
                (0..n).map(|_| { next = next.wrapping_add(37); next }).collect()
            };
            for (op, n, offset) in ops {
                match op {
                    0 | 1 => {
                        let data = make(n);
                        let fits = n.min(64 - model.len());
                        prop_assert_eq!(ring.room(), 64 - model.len());
                        prop_assert_eq!(ring.push(&data), fits);
                        model.extend(&data[..fits]);
                    }
                    2 => {
                        let mut out = vec![0; n];
                        let got = ring.pop(&mut out);
                        let want: Vec<u8> = model.drain(..n.min(model.len())).collect();
                        prop_assert_eq!(&out[..got], &want[..]);
                    }
                    _ => {
                        let mut out = vec![0; n];
                        let got = ring.peek(offset, &mut out);
                        let want: Vec<u8> = model.iter().copied().skip(offset).take(n).collect();
                        prop_assert_eq!(&out[..got], &want[..]);
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
            }
        }
    }

    #[test]
    fn a_side_that_lies_sees_an_empty_or_a_full_ring() {
        let memory = Memory::<AtomicU64>::heap(4 + 2);
        let ring = ByteRing::new(&memory[0], &memory[1], &memory[2..]);
        for (head, tail) in [(5, 4), (0, 33), (u64::MAX, 40)] {
            memory[0].store(head, Ordering::Relaxed);
            memory[1].store(tail, Ordering::Relaxed);
            assert_eq!((ring.len(), ring.room()), (0, 0), "{head} {tail}");
            assert_eq!(ring.push(b"x"), 0);
            assert_eq!(ring.pop(&mut [0; 4]), 0);
        }
    }

    #[test]
    fn two_threads_pass_bytes_in_order() {
        const BYTES: usize = 400_000;
        let memory = std::sync::Arc::new(Memory::<AtomicU64>::heap(32 + 2));
        let theirs = std::sync::Arc::clone(&memory);
        let writer = std::thread::spawn(move || {
            let ring = ByteRing::new(&theirs[0], &theirs[1], &theirs[2..]);
            let mut at = 0;
            while at < BYTES {
                let end = (at + 1 + at % 97).min(BYTES);
                let data: Vec<u8> = (at..end).map(|i| ((i * 31) >> 3) as u8).collect();
                let n = ring.push(&data);
                at += n;
                if n == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let ring = ByteRing::new(&memory[0], &memory[1], &memory[2..]);
        let (mut at, mut out) = (0, [0; 61]);
        while at < BYTES {
            let n = ring.pop(&mut out);
            for byte in &out[..n] {
                assert_eq!(*byte, ((at * 31) >> 3) as u8);
                at += 1;
            }
            if n == 0 {
                std::thread::yield_now();
            }
        }
        writer.join().unwrap();
    }
}
