//! libFuzzer's entry to `alg_targets::alg_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::alg_targets::alg_message(data));
