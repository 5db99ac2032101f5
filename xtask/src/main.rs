//! `cargo xtask`: the chores of the workspace.
#![forbid(unsafe_code)]

mod bpf;
mod claims;
mod conformance;
mod docs;
mod kernels;
mod packages;
mod soak;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The chores of the Tidegate workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Passes every level of tests; as root, installs the Debian packages that they need.
    Test(test::Options),
    /// Runs the property tests again and again, each time with another seed.
    Soak(soak::Options),
    /// Checks dependency direction, the unsafe ledger, file lengths, attributes, generated docs.
    Tidy,
    /// Writes the generated parts of the docs anew.
    Docs,
    /// Compiles the kernel's programs and writes the objects beside their source.
    Bpf(bpf::Options),
    /// Boots Debian's oldest and newest stock kernels under QEMU, and the kernel's programs in them.
    Kernels,
    /// Runs the programs behind `bench/claims.toml` and says which claims hold.
    Claims(claims::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Tidy => tidy::run(),
        Chore::Docs => docs::write(),
        Chore::Bpf(options) => bpf::run(&options),
        Chore::Kernels => kernels::run(),
        Chore::Claims(options) => claims::run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
