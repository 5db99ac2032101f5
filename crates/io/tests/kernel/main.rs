//! The drivers against a real kernel: its stacks, its interfaces, its refusals.

mod af_packet;
mod common;
mod raw;
mod tap;
