//! The drivers against a real kernel: its stacks, its interfaces, its refusals.
#![expect(unsafe_code, reason = "enters namespaces and waits on descriptors")]

mod af_packet;
mod common;
mod tap;
