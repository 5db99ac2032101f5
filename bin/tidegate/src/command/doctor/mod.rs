//! `tidegate doctor`: what this machine allows, and what to do where it does not.

mod interfaces;
mod system;

use control::api::{CheckStatus, DoctorCheck, DoctorReport, InterfaceModes};

use crate::cli::{DoctorArgs, Global};
use crate::exit::{Exit, Failure};
use crate::output::{self, BAD, FAINT, GOOD, HEADING, WARN};

pub(crate) fn run(global: &Global, args: &DoctorArgs) -> Result<(), Failure> {
    let report = DoctorReport {
        checks: system::checks(),
        interfaces: interfaces::examine(&args.interfaces)?,
    };
    if global.json {
        output::print_json(&report)?;
    } else {
        output::print(&render(&report))?;
    }
    let checks = report
        .interfaces
        .iter()
        .flat_map(|interface| &interface.checks)
        .chain(&report.checks);
    if checks
        .into_iter()
        .any(|check| check.status == CheckStatus::Failed)
    {
        return Err(Failure::silent(Exit::Failed));
    }
    Ok(())
}

fn render(report: &DoctorReport) -> String {
    let mut out = format!("{HEADING}this machine and this user{HEADING:#}\n");
    for check in &report.checks {
        out.push_str(&render_check(check));
    }
    for interface in &report.interfaces {
        out.push_str(&render_interface(interface));
    }
    if report.interfaces.is_empty() {
        out.push_str("\nno interface to look at; name one: `tidegate doctor eth0`\n");
    }
    out
}

fn render_check(check: &DoctorCheck) -> String {
    let (style, mark) = match check.status {
        CheckStatus::Ok => (GOOD, "ok"),
        CheckStatus::Warning => (WARN, "warning"),
        CheckStatus::Failed => (BAD, "failed"),
    };
    let mut out = format!(
        "  {style}{mark:<7}{style:#}  {:<18} {}\n",
        check.name, check.found
    );
    if let Some(remedy) = &check.remedy {
        out.push_str(&format!(
            "           {FAINT}remedy{FAINT:#}             {remedy}\n"
        ));
    }
    out
}

fn render_interface(interface: &InterfaceModes) -> String {
    let driver = interface.kernel_driver.as_deref().unwrap_or("unknown");
    let mut out = format!(
        "\n{HEADING}interface {}{HEADING:#}  (kernel driver {driver})\n",
        interface.interface
    );
    for check in &interface.checks {
        out.push_str(&render_check(check));
    }
    for probe in &interface.probes {
        let chosen = interface.chosen.as_ref() == Some(&probe.mode);
        let (style, mark) = match (probe.accepted, chosen) {
            (true, true) => (GOOD, "chosen"),
            (true, false) => (GOOD, "works"),
            (false, _) => (WARN, "refused"),
        };
        out.push_str(&format!("  {style}{mark:<7}{style:#}  {}\n", probe.mode));
        if let Some(reason) = &probe.reason {
            out.push_str(&format!("           {FAINT}{reason}{FAINT:#}\n"));
        }
    }
    out
}
