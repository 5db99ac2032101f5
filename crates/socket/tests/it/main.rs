//! Sockets over links in memory, and against real kernels over veth.

mod errors;
mod memory;
