//! The control socket: a Unix stream socket that carries the messages of [`crate::api`].
//!
//! One thread accepts, one thread a connection answers; neither ever runs on a worker.

mod client;
mod message;
mod server;

pub use client::{Client, ClientError, Events, Held};
pub use server::{Answer, BindError, CaptureRun, Handler, Peer, Server, Sink};
