//! The Debian packages that some tests need, and their installation.

use std::path::Path;
use std::process::Command;

/// A tool that tests use, and the Debian package that has it.
struct Need {
    /// A file whose presence shows that the package is there.
    file: &'static str,
    package: &'static str,
    /// What is tested with it.
    purpose: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        file: "/usr/sbin/ip",
        package: "iproute2",
        purpose: "looks at links and namespaces from outside",
    },
    Need {
        file: "/usr/bin/ping",
        package: "iputils-ping",
        purpose: "real ICMP through the node",
    },
    Need {
        file: "/usr/sbin/ethtool",
        package: "ethtool",
        purpose: "offload settings seen by another program",
    },
    Need {
        file: "/usr/bin/tcpdump",
        package: "tcpdump",
        purpose: "a foreign reader of our captures",
    },
    Need {
        file: "/usr/bin/python3",
        package: "python3",
        purpose: "foreign programs that talk through the node",
    },
    Need {
        file: "/usr/bin/valgrind",
        package: "valgrind",
        purpose: "instruction counts of hot functions",
    },
    Need {
        file: "/usr/include/pcap.h",
        package: "libpcap-dev",
        purpose: "the libpcap forwarder that IO-8 compares with",
    },
    Need {
        file: "/usr/include/dpdk/rte_ethdev.h",
        package: "libdpdk-dev",
        purpose: "the driver of DPDK",
    },
    Need {
        file: "/usr/bin/pkg-config",
        package: "pkg-config",
        purpose: "finds DPDK",
    },
    Need {
        file: "/usr/bin/dpdk-testpmd",
        package: "dpdk-dev",
        purpose: "DPDK's testpmd as a yardstick",
    },
];

/// Installs what is missing where it may, says so, and returns one line for each need that stays unmet.
pub(crate) fn ensure() -> Vec<String> {
    let missing = missing();
    if missing.is_empty() {
        return Vec::new();
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if !is_root() {
        eprintln!(
            "xtask: not root, so these Debian packages are not installed: {}",
            packages.join(" ")
        );
    } else if !Path::new("/usr/bin/apt-get").exists() {
        eprintln!(
            "xtask: no apt-get here; please install: {}",
            packages.join(" ")
        );
    } else {
        println!(
            "xtask: installing Debian packages that the tests need: {}",
            packages.join(" ")
        );
        apt(&["update", "-q"]);
        let mut install = vec!["install", "-y", "-q", "--no-install-recommends"];
        install.extend(&packages);
        apt(&install);
    }
    self::missing()
        .iter()
        .map(|need| format!("package {} is missing ({})", need.package, need.purpose))
        .collect()
}

/// Returns the arguments that put DPDK into the bench programs, where it is installed.
pub(crate) fn dpdk_features() -> &'static [&'static str] {
    if Path::new("/usr/include/dpdk/rte_ethdev.h").exists() {
        &["--features", "tidegate-bench/dpdk"]
    } else {
        &[]
    }
}

/// Tells whether this process runs as root.
pub(crate) fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

fn missing() -> Vec<&'static Need> {
    NEEDS
        .iter()
        .filter(|need| !Path::new(need.file).exists())
        .collect()
}

/// Runs apt-get; a failure shows in the check that follows.
fn apt(arguments: &[&str]) {
    let done = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("xtask: apt-get {} failed", arguments.join(" "));
    }
}
