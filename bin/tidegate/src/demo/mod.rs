//! `tidegate demo`: a node at work, with real programs' packets, in network namespaces of its own.

mod actors;
mod named_data;
mod phases;
pub(crate) mod programs;
mod screen;
mod stage;
mod terminal;

use std::time::{Duration, Instant};

use control::api::{DemoPhase, DemoReport, DemoResult};
use lab::Namespace;

use crate::cli::{DemoArgs, Global};
use crate::exit::{Exit, Failure};
use crate::{log, machine, output};

use screen::Screen;
use stage::Stage;

pub(crate) fn run(global: &Global, args: &DemoArgs) -> Result<(), Failure> {
    let started = Instant::now();
    // first of all: a process with several threads may not enter a user namespace
    let user_namespace = gain_namespaces()?;
    // The screen itself tells of the guard's attacks.
    log::start(global, "warn,dataplane::firewall::attacks=error")?;
    if args.ndn {
        return named_data::run(global, args);
    }
    let mut screen = Screen::new(global.json)?;
    screen.line("building namespaces client - node - server, and starting the node")?;
    let mut stage = Stage::build(args.driver)?;
    stage.first_packet()?;
    let first_packet_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    screen.opening(&stage.stats(), first_packet_ms, user_namespace)?;

    let mut performed = Vec::new();
    let scale = args
        .seconds
        .filter(|_| !screen.is_live())
        .map_or(1.0, |seconds| {
            f64::from(seconds) / phases::total(stage.has_v6()).as_secs_f64()
        });
    let deadline = args
        .seconds
        .filter(|_| screen.is_live())
        .map(|seconds| started + Duration::from_secs(seconds.into()));
    'performance: loop {
        for phase in phases::all(stage.has_v6()) {
            let Some(done) = phases::perform(phase, scale, &mut stage, &mut screen)? else {
                break 'performance;
            };
            screen.phase_done(&done)?;
            performed.push(done);
            if deadline.is_some_and(|at| Instant::now() >= at) {
                break 'performance;
            }
        }
        if !screen.is_live() {
            break;
        }
    }
    let report = DemoReport {
        user_namespace,
        first_packet_ms,
        phases: performed,
        stats: stage.end()?,
    };
    screen.close(&report)?;
    if global.json {
        output::print_json(&report)?;
    }
    judge(&report.phases)
}

/// Makes sure that this process may make namespaces; tells whether it had to enter a user namespace.
fn gain_namespaces() -> Result<bool, Failure> {
    if lab::netns::is_root() && Namespace::new("probe").is_ok() {
        return Ok(false);
    }
    lab::netns::become_root_in_user_namespace().map_err(|error| {
        let error = match machine::user_namespaces_forbidden() {
            Some(reason) => anyhow::Error::from(error).context(reason),
            None => error.into(),
        };
        Failure::new(Exit::Refused, error).remedy("run it as root: `sudo tidegate demo`")
    })?;
    Ok(true)
}

/// The demo failed where a kind of traffic did not get through at all.
fn judge(phases: &[DemoPhase]) -> Result<(), Failure> {
    let failed = phases.iter().find(|phase| match phase.result {
        DemoResult::Quiet | DemoResult::Strays { .. } | DemoResult::Scan { .. } => false,
        DemoResult::Ping { answered, .. } => answered == 0,
        DemoResult::Download { bytes } | DemoResult::Flood { bytes, .. } => bytes == 0,
        DemoResult::Stream { received_pkts, .. } => received_pkts == 0,
    });
    match failed {
        None => Ok(()),
        Some(phase) => Err(Failure::message(
            Exit::Failed,
            format!("nothing of the {} came through", phase.name),
        )
        .remedy("see `tidegate doctor`; try `tidegate demo --driver af-packet`")),
    }
}
