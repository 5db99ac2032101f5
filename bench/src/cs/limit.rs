//! What the machine itself takes for what a store cannot avoid: a dependent read of memory, and a cache line that goes
//! from one processor to another.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use io::cpu::thread_time;
use tables::memory::{Memory, Pages, prefetch};

use super::BATCH;
use crate::median;
use crate::sessions::Random;

const LINE_WORDS: usize = 16;
const STEPS: usize = 50_000;
/// Times that a line goes there and back.
const PASSES: u32 = 20_000;

/// A circle through all cache lines of some memory, in random order: each read's address is what the last one found.
#[derive(Debug)]
pub struct Chase {
    words: Memory<AtomicU32>,
    at: u32,
}

impl Chase {
    /// Makes the circle over so many bytes, on huge pages where there are any.
    pub fn new(bytes: usize) -> Self {
        let lines = (bytes / 64).max(2);
        let words: Memory<AtomicU32> = Memory::zeroed(lines * LINE_WORDS, Pages::Huge);
        let word = |line: usize| &words[line * LINE_WORDS];
        for line in 0..lines {
            word(line).store(line as u32, Ordering::Relaxed);
        }
        // Sattolo's shuffle: one circle.
        let mut random = Random::new(9);
        for line in (1..lines).rev() {
            let other = random.below(line);
            let here = word(line).swap(word(other).load(Ordering::Relaxed), Ordering::Relaxed);
            word(other).store(here, Ordering::Relaxed);
        }
        Self { words, at: 0 }
    }

    /// Nanoseconds a read.
    pub fn measure(&mut self) -> f64 {
        let begin = thread_time();
        for _ in 0..STEPS {
            self.at = self.words[self.at as usize * LINE_WORDS].load(Ordering::Relaxed);
        }
        black_box(self.at);
        (thread_time() - begin).as_nanos() as f64 / STEPS as f64
    }
}

/// What no lookup in batches can beat that reads a line of the table and then two of a packet: these lines at random, in
/// batches of 32 whose groups of 8 take turns, and nothing else. Nanoseconds a lookup.
pub fn lines_alone(table: &Chase, packets: &Chase, random: &mut Random) -> f64 {
    const BATCHES: usize = 256;
    let (words, bytes) = (&table.words, &packets.words);
    let places: Vec<[usize; 2]> = (0..BATCHES * BATCH)
        .map(|_| {
            let pair = random.below(bytes.len() / (2 * LINE_WORDS)) * 2 * LINE_WORDS;
            [random.below(words.len() / LINE_WORDS) * LINE_WORDS, pair]
        })
        .collect();
    let (groups, _) = places.as_chunks::<8>();
    let begin = thread_time();
    let mut sum = 0_u64;
    for batch in groups.chunks(BATCH / 8) {
        for step in 0..batch.len() + 2 {
            for [place, _] in batch.get(step).into_iter().flatten() {
                prefetch(&words[*place]);
            }
            for [place, packet] in step
                .checked_sub(1)
                .and_then(|at| batch.get(at))
                .into_iter()
                .flatten()
            {
                // Zero, known once the line of the table is there.
                let nothing = (words[*place].load(Ordering::Relaxed) >> 31) as usize;
                prefetch(&bytes[packet + nothing]);
                prefetch(&bytes[packet + nothing + LINE_WORDS]);
            }
            for [_, packet] in step
                .checked_sub(2)
                .map(|at| &batch[at])
                .into_iter()
                .flatten()
            {
                sum += u64::from(bytes[*packet].load(Ordering::Relaxed));
                sum += u64::from(bytes[packet + LINE_WORDS].load(Ordering::Relaxed));
            }
        }
    }
    black_box(sum);
    (thread_time() - begin).as_nanos() as f64 / places.len() as f64
}

/// Nanoseconds until a line that one processor wrote is seen and written by another; NaN on one processor.
pub fn transfer_ns() -> f64 {
    let cpus = io::cpu::allowed().unwrap_or_default();
    let [first, second, ..] = cpus[..] else {
        return f64::NAN;
    };
    let samples: Vec<f64> = (0..5)
        .map(|_| {
            let line = AtomicU64::new(0);
            let wait_for = |value: u64| {
                let mut spins = 0_u32;
                while line.load(Ordering::Acquire) != value {
                    spins += 1;
                    if spins.is_multiple_of(10_000) {
                        thread::yield_now();
                    }
                    std::hint::spin_loop();
                }
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _ = io::cpu::pin(second);
                    for pass in 0..u64::from(PASSES) {
                        wait_for(2 * pass + 1);
                        line.store(2 * pass + 2, Ordering::Release);
                    }
                });
                let here = scope.spawn(|| {
                    let _ = io::cpu::pin(first);
                    let begin = Instant::now();
                    for pass in 0..u64::from(PASSES) {
                        line.store(2 * pass + 1, Ordering::Release);
                        wait_for(2 * pass + 2);
                    }
                    begin.elapsed().as_nanos() as f64 / f64::from(2 * PASSES)
                });
                here.join().unwrap_or(f64::NAN)
            })
        })
        .collect();
    median(&samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chase_visits_every_line_once() {
        let chase = Chase::new(64 * 100);
        let mut at = 0;
        let mut seen = std::collections::HashSet::new();
        while seen.insert(at) {
            at = chase.words[at as usize * LINE_WORDS].load(Ordering::Relaxed);
        }
        assert_eq!((at, seen.len()), (0, 100));
    }
}
