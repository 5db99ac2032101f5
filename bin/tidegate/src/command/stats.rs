//! `tidegate stats`: the counters of a running node.

use control::api::Event;
use control::socket::Client;

use crate::cli::{Global, StatsArgs};
use crate::exit::Failure;
use crate::{output, view};

pub(crate) fn run(global: &Global, args: &StatsArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&global.socket)?;
    let Some(interval) = args.watch else {
        let stats = client.stats()?;
        return if global.json {
            output::print_json(&stats)
        } else {
            output::print(&view::totals(&stats))
        };
    };
    for event in client.watch(interval)? {
        match event? {
            Event::Stats(stats) if global.json => output::print_json(&stats)?,
            Event::Stats(stats) => {
                output::print(&format!("{}\n{}\n", stats.at, view::totals(&stats)))?;
            }
            Event::Reloaded { .. }
            | Event::Stopping { .. }
            | Event::Session(_)
            | Event::Lost(_) => {}
        }
    }
    Ok(())
}
