//! Inspection of application protocols (LF-4), by rule and off by default.

pub mod sack;
