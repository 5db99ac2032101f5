//! Deterministic simulator of the Tidegate data plane: virtual clock, seeded faults, checkers.
#![forbid(unsafe_code)]
