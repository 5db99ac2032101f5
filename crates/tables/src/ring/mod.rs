//! Bounded rings between workers.
//!
//! A full ring never blocks and never grows: `push` gives the value back, and the caller counts the drop.

pub mod bytes;
pub mod mpsc;
pub mod spsc;

pub use bytes::ByteRing;
pub use mpsc::{MpscConsumer, MpscProducer, mpsc};
pub use spsc::{Consumer, Drain, Producer, spsc};
