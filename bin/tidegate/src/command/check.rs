//! `tidegate check`: is a configuration file right?

use std::io::{IsTerminal, Write};
use std::path::Path;

use control::Config;
use control::api::CheckReport;
use control::config::{self, ConfigError};
use dataplane::Plan;
use dataplane::firewall::{load_guard, load_rules};

use crate::cli::{CheckArgs, Global};
use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) fn run(global: &Global, args: &CheckArgs) -> Result<(), Failure> {
    let file = args.config.display().to_string();
    let loaded = config::load(&args.config);
    if let Err(error @ ConfigError::Read { .. }) = &loaded {
        show(error);
        return Err(Failure::silent(read_exit(error)));
    }
    let rules = loaded.as_ref().ok().and_then(rules_fault);
    if global.json {
        output::print_json(&CheckReport {
            file: file.clone(),
            valid: loaded.is_ok() && rules.is_none(),
            problems: loaded
                .as_ref()
                .err()
                .map(|error| error.problems().to_vec())
                .unwrap_or_default(),
            rules: rules.clone(),
        })?;
    }
    if let Some(fault) = rules {
        if !global.json {
            eprintln!("{}", fault.trim_end());
        }
        return Err(Failure::silent(Exit::Failed));
    }
    match loaded {
        Ok(config) if !global.json => {
            for note in &config.notes {
                eprintln!("note: {note}");
            }
            let many =
                |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            output::print(&format!(
                "{file}: valid ({}, {}, {}, {}, {})\n",
                many(config.port.len(), "port"),
                many(config.bridge.len(), "bridge"),
                many(config.link.len(), "link"),
                many(config.route.len(), "route"),
                many(config.neighbour.len(), "neighbour"),
            ))
        }
        Ok(_) => Ok(()),
        Err(error) => {
            if !global.json {
                show(&error);
            }
            Err(Failure::silent(Exit::Failed))
        }
    }
}

/// What is wrong with the firewall's rules, if anything.
fn rules_fault(config: &Config) -> Option<String> {
    let plan = Plan::new(config).ok()?;
    if let Err(error) = load_guard(config, None) {
        return Some(error.to_string());
    }
    let error = load_rules(config, &plan, None).err()?;
    let cause =
        std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
    Some(format!("{error}{cause}"))
}

/// Loads a configuration for a command that needs it; says on stderr what is wrong.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    config::load(path).map_err(|error| {
        show(&error);
        Failure::silent(read_exit(&error))
    })
}

fn read_exit(error: &ConfigError) -> Exit {
    match error {
        ConfigError::Read { source, .. } => Exit::of_file(source),
        ConfigError::Invalid { .. } => Exit::Failed,
    }
}

fn show(error: &ConfigError) {
    let width = if std::io::stderr().is_terminal() {
        crossterm::terminal::size().map_or(100, |(columns, _)| usize::from(columns).min(120))
    } else {
        100
    };
    // the stream strips the colours where they are not wanted
    let _ = anstream::stderr().write_all(error.render(true, width).as_bytes());
}
