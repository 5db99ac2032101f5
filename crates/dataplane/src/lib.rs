//! The Tidegate node: configuration to packet graph, forwarding, snapshots.
#![forbid(unsafe_code)]
