//! Bounded rings between workers.
//!
//! A full ring never blocks and never grows: `push` gives the value back, and the caller counts the drop.

pub mod spsc;

pub use spsc::{Consumer, Drain, Producer, spsc};
