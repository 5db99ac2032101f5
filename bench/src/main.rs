//! `tidegate-bench PROGRAM [OPTIONS]`: the programs behind `bench/claims.toml`, in one binary so that they
//! are linked once. Each prints text, or with `--json` one object; `--help` after the name shows its options.

use std::process::{ExitCode, Termination};

use bench::allocations::Counting;

/// Counts allocations of every program, for those that claim to make none.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Declares the modules and the table of programs by name.
macro_rules! programs {
    ($($name:ident),* $(,)?) => {
        mod programs {
            $(pub(crate) mod $name;)*
        }

        /// Programs by name.
        const PROGRAMS: &[(&str, fn() -> ExitCode)] = &[
            $((stringify!($name), || programs::$name::main().report()),)*
        ];
    };
}

programs! {
    bad_input,
    cs_disk,
    cs_experiment,
    cs_hit_ratio,
    cs_latency,
    cs_limits,
    cs_nfd,
    cs_where,
    dpdk_forward,
    dpdk_null,
    exhaustion,
    fw_flood,
    fw_kernel,
    fw_mem,
    fw_restart,
    fw_rulesets,
    fw_shared,
    fw_takeover,
    fw_veth,
    graph_forward,
    icount,
    idle_policy,
    idle_transitions,
    io8_zero_loss,
    io_mem,
    io_xdp_forward,
    kernel_cache,
    ndn_mem,
    ndn_node,
    ndn_peer,
    restart,
    shared_writes,
    tables_counters,
    tables_flows,
    tables_kill,
    tables_lpm,
    tables_pools,
    tables_signature,
    tcp_loss,
    tcp_mem,
    tcp_veth,
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match PROGRAMS.iter().find(|(program, _)| *program == name) {
        Some((_, program)) => program(),
        None => {
            let names: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
            eprintln!(
                "usage: tidegate-bench PROGRAM [OPTIONS]\nprograms: {}",
                names.join(", ")
            );
            ExitCode::from(2)
        }
    }
}
