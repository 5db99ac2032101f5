//! Shared helpers of the Tidegate benches.
