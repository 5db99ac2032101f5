//! The body of the fuzz target over its seeds, over those of the forwarder's parser, and over damaged copies of them.

#[expect(
    unreachable_pub,
    reason = "the file belongs to the fuzz crate, whose library exports it"
)]
#[path = "../../../fuzz/src/kernel_cache_targets.rs"]
mod kernel_cache_targets;

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

/// All seeds.
fn seeds() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folders = ["kernel_cache", "ndn_packet"].map(|name| corpus.join(name));
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("seeds"));
    let seeds: Vec<Vec<u8>> = files
        .map(|file| std::fs::read(file.expect("a file").path()).expect("reads"))
        .collect();
    assert!(seeds.len() > 20);
    seeds
}

#[test]
fn seeds_hold() {
    for seed in seeds() {
        kernel_cache_targets::frame(&seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn damaged_seeds_hold(
        at in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..4),
        length in any::<Index>(),
        cut in any::<bool>(),
    ) {
        let all = seeds_once();
        let mut bytes = all[at.index(all.len())].clone();
        for (place, value) in changes {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
        }
        if cut {
            bytes.truncate(length.index(bytes.len() + 1));
        }
        kernel_cache_targets::frame(&bytes);
    }
}

fn seeds_once() -> &'static [Vec<u8>] {
    static SEEDS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    SEEDS.get_or_init(seeds)
}
