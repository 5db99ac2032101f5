//! libFuzzer's entry to `filter_targets::capture_filter`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::filter_targets::capture_filter(data));
