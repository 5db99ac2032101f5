//! TCP (RFC 9293): one file a concept; each part that can be left out is a [`Modules`](crate::Modules) bit.

mod ack;
pub(crate) mod block;
pub(crate) mod congestion;
pub(crate) mod emit;
mod input;
pub(crate) mod listener;
mod output;
mod path_mtu;
mod prr;
mod rack;
mod rate;
mod receive_buffer;
pub(crate) mod recovery;
mod rtt;
mod scoreboard;
pub(crate) mod secrets;
pub(crate) mod segment;
mod send_buffer;
pub(crate) mod seq;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod tcb;
mod timers;
mod window;

pub(crate) use input::Reply;
pub(crate) use output::Output;
