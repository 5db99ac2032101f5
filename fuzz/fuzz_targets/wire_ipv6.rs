//! libFuzzer's entry to `wire_targets::ipv6_packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::wire_targets::ipv6_packet(data));
