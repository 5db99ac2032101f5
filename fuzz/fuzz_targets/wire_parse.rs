//! libFuzzer's entry to `wire_targets::parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::wire_targets::parse(data));
