//! libFuzzer's entry to `kernel_cache_targets::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::kernel_cache_targets::frame(data));
