//! libFuzzer's entry to `stack_targets::tcp_host`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::stack_targets::tcp_host(data));
