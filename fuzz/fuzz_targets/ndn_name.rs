//! libFuzzer's entry to `ndn_targets::name`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::ndn_targets::name(data));
