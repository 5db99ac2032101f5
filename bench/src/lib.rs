//! What the programs behind `bench/claims.toml` share: options, interleaved rounds and medians, a
//! counting allocator, and the JSON that `cargo xtask claims` reads.
//!
//! A program measures its subjects in turns within one run ([`rounds`]), so that a disturbance of the
//! machine hits all of them, and reports medians and their ratios:
//!
//! ```
//! use bench::{Options, Report, median, rounds};
//!
//! let options = Options { rounds: 3, ..Options::default() };
//! let mut ours = || 2.0; // each call measures once, e.g. Mpps over half a second
//! let mut theirs = || 1.0;
//! let samples = rounds(options.rounds, &mut [&mut ours, &mut theirs]);
//! let mut report = Report::new("example");
//! report.figure("ours_mpps", median(&samples[0]));
//! report.figure("ratio", median(&samples[0]) / median(&samples[1]));
//! report.print(&options);
//! ```

#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
pub mod allocations;
pub mod chained;
pub mod cs;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod firewall;
pub mod flow_twins;
pub mod inject;
pub mod live;
pub mod live_frames;
pub mod load;
pub mod memory;
pub mod ndn_rig;
pub mod node;
pub mod pages;
mod report;
pub mod rte_hash;
mod sampling;
pub mod sessions;
pub mod shared_counters;
pub mod workers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use report::{Plot, Report, Series, Table};
pub use sampling::{median, rounds, spread};

/// Options that every program has.
#[derive(Clone, Debug, clap::Parser)]
pub struct Options {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Interleaved rounds; figures are medians over them.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Length of one measurement, milliseconds.
    #[arg(long, default_value_t = 500)]
    pub window_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            json: false,
            rounds: 5,
            window_ms: 500,
        }
    }
}

impl Options {
    /// Returns the length of one measurement.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }
}

/// Reads a program's options from the command line, behind the program's name; ends the process on a wrong one.
pub fn parse<T: clap::Parser>() -> T {
    T::parse_from(std::env::args().skip(1))
}

/// Finds the `tidegate` program beside the running one, where cargo puts both.
///
/// # Errors
/// It has not been built.
pub fn tidegate_program() -> Result<PathBuf> {
    let here = std::env::current_exe().context("who am I?")?;
    let program = here.with_file_name("tidegate");
    ensure!(
        program.is_file(),
        "{} is not there (cargo build --release -p tidegate)",
        program.display()
    );
    Ok(program)
}
