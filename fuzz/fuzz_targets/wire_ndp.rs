//! libFuzzer's entry to `wire_targets::neighbour_discovery`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::wire_targets::neighbour_discovery(data));
