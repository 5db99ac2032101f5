//! The whole benchmark over a rig, and its report.

use serde::{Deserialize, Serialize};

use super::{Limit, Options, SizeResult, measure_size};
use crate::machine::Machine;
use crate::rig::{Rig, RigError};
use crate::traffic::{Trial, TrialPlan};

/// What `tidegate bench rfc2544 --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where it was measured.
    pub machine: Machine,
    /// The same in one line.
    pub machine_line: String,
    /// What was tested.
    pub dut: String,
    /// The tester's drivers, sending and receiving.
    pub tester: String,
    /// Length of a trial, seconds.
    pub trial_s: f64,
    /// Resolution of the search, as a share of the rate found.
    pub resolution: f64,
    /// Trials that confirm a result.
    pub confirmations: u32,
    /// Repetitions of a trial with loss before it counts.
    pub retries: u32,
    /// Flows of the traffic.
    pub flows: u32,
    /// One result a frame size.
    pub sizes: Vec<SizeResult>,
    /// What must be known to judge the figures.
    pub notes: Vec<String>,
}

/// A step of the benchmark, for a display of its progress.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The frame size in work, bytes with FCS.
    pub size_bytes: u16,
    /// Its place in the list, from 0.
    pub index: usize,
    /// What was asked.
    pub plan: &'a TrialPlan,
    /// What it showed.
    pub trial: &'a Trial,
}

/// Runs the benchmark for all sizes; `progress` is called after every trial.
///
/// # Errors
/// An impossible frame size.
pub fn run(
    rig: &mut Rig,
    dut: &str,
    flows: u32,
    sizes: &[u16],
    options: &Options,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Report, RigError> {
    let mut results = Vec::with_capacity(sizes.len());
    for (index, &size_bytes) in sizes.iter().enumerate() {
        let mut device = rig.device(size_bytes)?;
        let result = measure_size(size_bytes, options, &mut |plan: &TrialPlan| {
            let trial = device(plan);
            progress(Step {
                size_bytes,
                index,
                plan,
                trial: &trial,
            });
            trial
        });
        results.push(result);
    }
    let machine = Machine::current();
    Ok(Report {
        machine_line: machine.to_string(),
        machine,
        dut: dut.to_owned(),
        tester: rig.tester_driver().to_owned(),
        trial_s: options.trial.as_secs_f64(),
        resolution: options.resolution,
        confirmations: options.confirmations,
        retries: options.retries,
        flows,
        notes: notes(&results, options),
        sizes: results,
    })
}

fn notes(results: &[SizeResult], options: &Options) -> Vec<String> {
    let mut notes =
        vec!["sizes count the 4 bytes of FCS; a 64 byte frame has 60 bytes in memory".to_owned()];
    if options.trial.as_secs() < 60 {
        notes.push(format!(
            "trials of {} s; RFC 2544 section 24 wants 60 s for a final result (--trial)",
            options.trial.as_secs_f64()
        ));
    }
    if results
        .iter()
        .any(|result| result.throughput.limit == Limit::Tester)
    {
        notes.push("limit `tester`: more could not be offered, the device may be faster".into());
    }
    let forgiven: u32 = results.iter().map(|r| r.throughput.forgiven_trials).sum();
    if forgiven > 0 {
        notes.push(format!(
            "{forgiven} trials lost frames and then passed when repeated (--retries 0 forgives none)"
        ));
    }
    notes
}
