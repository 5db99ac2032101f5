//! The `tidegate` command.
#![forbid(unsafe_code)]

mod cli;
mod command;
mod demo;
mod exit;
mod log;
mod machine;
mod output;
mod run;
mod view;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, ColorWhen, Command, Rule};
use crate::exit::Failure;

fn main() -> ExitCode {
    if let Some(program) = demo::programs::asked_for() {
        return end(program.run());
    }
    let cli = Cli::parse();
    match cli.global.color {
        ColorWhen::Auto => {}
        ColorWhen::Always => anstream::ColorChoice::Always.write_global(),
        ColorWhen::Never => anstream::ColorChoice::Never.write_global(),
    }
    end(dispatch(&cli))
}

fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(&failure);
            failure.exit.into()
        }
    }
}

fn dispatch(cli: &Cli) -> Result<(), Failure> {
    let global = &cli.global;
    match &cli.command {
        Command::Run(args) => run::run(global, args),
        Command::Check(args) => command::check::run(global, args),
        Command::Doctor(args) => command::doctor::run(global, args),
        Command::Demo(args) => demo::run(global, args),
        Command::Stats(args) => command::stats::run(global, args),
        Command::Top(args) => command::top::run(global, args),
        Command::Capture(args) => command::capture::run(global, args),
        Command::Port(_) => command::list::ports(global),
        Command::Route(_) => command::list::routes(global),
        Command::Neighbour(_) => command::list::neighbours(global),
        Command::Session(what) => command::session::run(global, what),
        Command::Bridge(_) => command::list::bridges(global),
        Command::Ndn(ndn) => command::ndn::run(global, ndn),
        Command::Explain(args) => command::rule::explain::run(global, args),
        Command::Rule(Rule::Diff(args)) => command::rule::diff::run(global, args),
        Command::Rule(Rule::Try(args)) => command::rule::trial::run(global, args),
        Command::Rule(Rule::Ls) => command::rule::live::list(global),
        Command::Rule(Rule::Apply(args)) => command::rule::live::apply(global, args),
        Command::Rule(Rule::Confirm) => command::rule::live::confirm(global, true),
        Command::Rule(Rule::Rollback) => command::rule::live::confirm(global, false),
        Command::Rule(Rule::Rematch(args)) => command::rule::live::rematch(global, args),
        Command::Bench(bench) => command::bench::run(global, bench),
        Command::Reload => command::reload::run(global),
        Command::Completions(args) => command::generate::completions(args),
        Command::Man(args) => command::generate::man(args),
    }
}
