//! The fuzz targets of state machines and languages as plain tests: over their committed corpora, and over
//! random damage to them.
#![expect(
    unreachable_pub,
    reason = "the files belong to the fuzz crate, whose library exports them"
)]

use std::path::Path;

#[path = "../../../fuzz/src/filter_targets.rs"]
mod filter_targets;
#[path = "../../../fuzz/src/rule_targets.rs"]
mod rule_targets;
#[path = "../../../fuzz/src/stack_targets.rs"]
mod stack_targets;

/// Damaged copies of each input.
const COPIES: u64 = if cfg!(debug_assertions) { 300 } else { 20_000 };

/// xorshift64*: the same damage everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }
}

/// Feeds a target its corpus, then copies in which bytes are changed, taken out, doubled or taken from
/// another input.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(name);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder of seeds")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let inputs: Vec<Vec<u8>> = files
        .iter()
        .map(|file| std::fs::read(file).expect("a seed"))
        .collect();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs.iter().for_each(|input| target(input));
    let mut random = Random(0x5eed);
    for input in &inputs {
        for _ in 0..COPIES {
            let mut copy = input.clone();
            for _ in 0..=random.below(6) {
                let at = random.below(copy.len());
                match random.below(5) {
                    0 => copy.truncate(at),
                    1 if at < copy.len() => drop(copy.remove(at)),
                    2 if at < copy.len() => copy[at] = random.below(256) as u8,
                    3 => {
                        let other = &inputs[random.below(inputs.len())];
                        let from = random.below(other.len());
                        let to = (from + 1 + random.below(40)).min(other.len());
                        copy.splice(at..at, other[from..to].iter().copied());
                    }
                    _ => {
                        let end = (at + 1 + random.below(20)).min(copy.len());
                        copy.extend_from_within(at..end);
                    }
                }
            }
            if let Err(panic) = std::panic::catch_unwind(|| target(&copy)) {
                println!("input: {}", copy.escape_ascii());
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn capture_filters() {
    replay("capture_filter", filter_targets::capture_filter);
}

#[test]
fn nft_rules() {
    replay("nft_rules", rule_targets::nft_rules);
}

#[test]
fn tcp_host() {
    replay("tcp_host", stack_targets::tcp_host);
}
