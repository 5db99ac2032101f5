//! libFuzzer's entry to `rule_targets::nft_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::rule_targets::nft_rules(data));
