//! Builds the C side of the driver `dpdk`, if the feature asks for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    println!("cargo::rerun-if-changed=src/dpdk/shim.c");
    let found = pkg_config::Config::new()
        .atleast_version("22.11")
        .cargo_metadata(false)
        .probe("libdpdk");
    let library = found.unwrap_or_else(|error| {
        panic!(
            "feature `dpdk` needs DPDK 22.11 or newer, found by pkg-config as `libdpdk` (Debian: `apt install \
             libdpdk-dev pkg-config`): {error}"
        )
    });
    let mut build = cc::Build::new();
    build.file("src/dpdk/shim.c");
    // `rte_dev_dma_map` is experimental in 22.11 and as it is in later ones.
    build.define("ALLOW_EXPERIMENTAL_API", None);
    // As libdpdk's own flags have it.
    build.flag("-include").flag("rte_config.h");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        build.flag("-march=corei7");
    }
    // System headers: their warnings are not ours.
    for path in &library.include_paths {
        build.flag("-isystem").flag(path.display().to_string());
    }
    build.warnings(true).extra_warnings(false);
    build.compile("tidegate_dpdk");
    // The shim first, then what it needs; the drivers are plug-ins that DPDK loads when it starts.
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in [
        "rte_eal",
        "rte_ethdev",
        "rte_mempool",
        "rte_mbuf",
        "rte_ring",
        "rte_net",
    ] {
        println!("cargo::rustc-link-lib={name}");
    }
}
