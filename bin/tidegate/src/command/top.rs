//! `tidegate top`: rates of a running node, live.

use std::io::IsTerminal;

use control::api::{Event, Stats};
use control::socket::Client;

use crate::cli::{Global, TopArgs};
use crate::exit::Failure;
use crate::output::{self, HEADING};
use crate::view::Rates;

pub(crate) fn run(global: &Global, args: &TopArgs) -> Result<(), Failure> {
    let redraw = std::io::stdout().is_terminal() && !global.json;
    let mut before: Option<Box<Stats>> = None;
    let mut shown = 0;
    for event in Client::connect(&global.socket)?.watch(args.interval)? {
        let stats = match event? {
            Event::Stats(stats) => stats,
            Event::Stopping { .. } => break,
            Event::Reloaded { .. } | Event::Session(_) | Event::Lost(_) => continue,
        };
        if global.json {
            output::print_json(&stats)?;
            shown += 1;
        } else if let Some(before) = &before {
            let rates = Rates::between(before, &stats);
            let text = format!(
                "{HEADING}{}{HEADING:#}  {}  over {:.1} s\n\n{}\n",
                stats.node.name,
                stats.at.strftime("%FT%TZ"),
                rates.seconds,
                rates.render()
            );
            if redraw {
                output::draw(&text)?;
            } else {
                output::print(&text)?;
            }
            shown += 1;
        }
        before = Some(stats);
        if args.count.is_some_and(|count| shown >= count) {
            break;
        }
    }
    Ok(())
}
