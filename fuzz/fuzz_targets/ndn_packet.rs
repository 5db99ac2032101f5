//! libFuzzer's entry to `ndn_targets::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::ndn_targets::packet(data));
