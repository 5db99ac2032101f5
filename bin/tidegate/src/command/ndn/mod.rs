//! `tidegate ndn`: the management commands with nfdc's verbs, and clients of a forwarder.
//!
//! All of it works with any NFD-compatible forwarder.

mod args;
mod client;
mod fetch;
mod manage;
mod ping;
mod serve;
mod show;
mod traffic;

use std::fmt::Display;

pub(crate) use args::Ndn;
use args::{Command, Cs, Traffic};
use client::Connection;

use crate::cli::Global;
use crate::exit::{Exit, Failure};

/// The value below which a share of the sorted samples lies; 0 without samples.
fn quantile<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let index = (sorted.len() as f64 * share) as usize;
    let last = sorted.len().saturating_sub(1);
    sorted.get(index.min(last)).copied().unwrap_or_default()
}

pub(crate) fn run(global: &Global, ndn: &Ndn) -> Result<(), Failure> {
    if let Command::Cs(Cs::Kernel) = &ndn.command {
        return manage::kernel_cache(global);
    }
    let mut connection = Connection::open(ndn.transport.as_deref())?;
    let client = &mut connection;
    match &ndn.command {
        Command::Face(face) => manage::face(global, client, face),
        Command::Route(route) => manage::route(global, client, route),
        Command::Cs(cs) => manage::cs(global, client, cs),
        Command::Strategy(strategy) => manage::strategy(global, client, strategy),
        Command::Status => manage::status(global, client),
        Command::Peek(args) => fetch::peek(global, client, args),
        Command::Get(args) => fetch::get(global, client, args),
        Command::Poke(args) => serve::poke(client, args),
        Command::Put(args) => serve::put(client, args),
        Command::Ping(args) => ping::ping(global, client, args),
        Command::Pingserver(args) => ping::server(client, args),
        Command::Traffic(Traffic::Client(args)) => traffic::client(global, client, args),
        Command::Traffic(Traffic::Server(args)) => traffic::server(client, args),
    }
}

/// The failure of asking for what nobody has.
fn no_data(name: impl Display, why: &str) -> Failure {
    Failure::message(Exit::NotFound, format!("no Data for {name}: {why}"))
}
