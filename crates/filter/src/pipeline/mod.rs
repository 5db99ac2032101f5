//! The firewall engine: batches in, a fate for each packet out.
//!
//! ```text
//! guard -> fragments -> connection lookup -> hit:  window check, replay or rules, rewrite
//!                                         -> miss: rules hook by hook, translation, insert, rewrite
//!                                         -> ICMP error of a connection: rewrite with its quote
//! ```
//!
//! What the node sends itself takes the same way behind the guard, from the output hook instead of prerouting.
//!
//! Sans-io: time, routes and randomness are arguments; what the engine sends itself (resets, ICMP errors, cookies,
//! fragments that waited) lies in the [`Outbox`] afterwards. [`Shared`] is what all workers share, in lock-free
//! tables; each has a [`Worker`] of its own, and no worker waits for another.

mod answer;
mod config;
mod connection;
mod hit;
mod inspect;
mod item;
mod logged;
mod miss;
mod outbox;
mod prepare;
mod proxy;
mod recovery;
mod related;
mod rules;
mod shared;
#[cfg(test)]
mod tests;
mod together;
mod walk;
mod worker;

pub use config::{FullPolicy, Sizes, TrackPolicy};
pub use connection::{Connection, ConnectionEvent};
pub use item::{BATCH_MAX, Environment, Fate, InterfaceFacts, Item};
pub use logged::Logged;
pub use outbox::{Emission, Outbox, Way};
pub use recovery::{LAYOUT_VERSION, Recovery, SharedMemory};
pub use rules::{Rules, Stage, Stateful};
pub use shared::{Join, Shared};
pub use together::Coordination;
pub use worker::{Tally, Worker};
