//! The fuzz targets of state machines and languages as plain tests: over their committed corpora, and over
//! random damage to them.
#![expect(
    unreachable_pub,
    reason = "the files belong to the fuzz crate, whose library exports them"
)]

use std::path::Path;

use graph::fault::Random;

#[path = "../../../fuzz/src/alg_targets.rs"]
mod alg_targets;
#[path = "../../../fuzz/src/filter_targets.rs"]
mod filter_targets;
#[path = "../../../fuzz/src/rule_targets.rs"]
mod rule_targets;
#[path = "../../../fuzz/src/stack_targets.rs"]
mod stack_targets;

/// Damaged copies of each input.
const COPIES: u64 = if cfg!(debug_assertions) { 300 } else { 20_000 };

/// A number below `bound`.
fn below(random: &mut Random, bound: usize) -> usize {
    random.below(bound.max(1) as u64) as usize
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
    let mut random = Random::new(0x5eed);
    for input in &inputs {
        for _ in 0..COPIES {
            let mut copy = input.clone();
            for _ in 0..=below(&mut random, 6) {
                let at = below(&mut random, copy.len());
                match below(&mut random, 5) {
                    0 => copy.truncate(at),
                    1 if at < copy.len() => drop(copy.remove(at)),
                    2 if at < copy.len() => copy[at] = below(&mut random, 256) as u8,
                    3 => {
                        let other = &inputs[below(&mut random, inputs.len())];
                        let from = below(&mut random, other.len());
                        let to = (from + 1 + below(&mut random, 40)).min(other.len());
                        copy.splice(at..at, other[from..to].iter().copied());
                    }
                    _ => {
                        let end = (at + 1 + below(&mut random, 20)).min(copy.len());
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

#[test]
fn row_85_alg_messages() {
    replay("alg_message", alg_targets::alg_message);
}
