//! Connection tracking: what a packet has to do with those before it.
//!
//! - [`tcp`]: the state of a TCP connection and its windows, a pure function of segments.
//! - [`record`]: a connection's words in the shared lock-free table.
//! - [`timeout`]: how long each kind lives.
//! - [`fragment`]: which datagram a fragment belongs to.
//! - [`key`]: keys of both families; [`counted`]: how many connections a source has.

pub mod counted;
pub mod fragment;
pub mod key;
pub mod record;
pub mod tcp;
pub mod timeout;
