//! The machine that a figure was measured on.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// What every result carries, so that figures of different machines are not confused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The frequency governor; `none` where the machine shows none (most virtual machines).
    pub governor: String,
    /// The CPU tells that it is a virtual one.
    pub hypervisor: bool,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Load average over one minute when the result was written, times 100.
    pub load_percent: u64,
}

impl Machine {
    /// Looks at this machine.
    pub fn current() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split_once(':'))
                .map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let memory_kib = read("/proc/meminfo")
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0u64);
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let load: f64 = read("/proc/loadavg")
            .split_whitespace()
            .next()
            .and_then(|first| first.parse().ok())
            .unwrap_or(0.0);
        Self {
            cpu: field("model name"),
            // Not `available_parallelism`, which a pinned thread sees as one.
            cpus: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            governor: match governor.trim() {
                "" => "none".to_owned(),
                name => name.to_owned(),
            },
            hypervisor: field("flags").split(' ').any(|flag| flag == "hypervisor"),
            memory_mib: memory_kib / 1024,
            load_percent: (load * 100.0) as u64,
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

impl fmt::Display for Machine {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} CPUs{}, {} MiB, Linux {}, governor {}, load {:.2}",
            self.cpu,
            self.cpus,
            if self.hypervisor { " (virtual)" } else { "" },
            self.memory_mib,
            self.kernel,
            self.governor,
            self.load_percent as f64 / 100.0
        )
    }
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// There is no such CPU, or the caller may not use it.
pub fn pin_to_cpu(cpu: usize) -> std::io::Result<()> {
    crate::sys::pin_thread(0, cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_line_names_what_matters() {
        let machine = Machine::current();
        assert!(!machine.kernel.is_empty() && machine.cpus > 0 && machine.memory_mib > 0);
        assert_eq!(machine.to_string().lines().count(), 1);
    }
}
