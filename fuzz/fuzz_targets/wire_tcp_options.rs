//! libFuzzer's entry to `wire_targets::tcp_options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::wire_targets::tcp_options(data));
