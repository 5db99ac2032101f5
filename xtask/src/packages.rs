//! The Debian packages that some tests need, and their installation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace;

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
        file: "/usr/share/doc/python3-venv",
        package: "python3-venv",
        purpose: "an environment for python-ndn, a foreign client of the NDN forwarder",
    },
    Need {
        file: "/usr/bin/node",
        package: "nodejs",
        purpose: "runs NDNts, a foreign client of the NDN forwarder",
    },
    Need {
        file: "/usr/bin/npm",
        package: "npm",
        purpose: "installs NDNts",
    },
    Need {
        file: "/usr/bin/curl",
        package: "curl",
        purpose: "a foreign client of our HTTP server",
    },
    Need {
        file: "/usr/bin/wrk",
        package: "wrk",
        purpose: "short connections to our stack and to the kernel's",
    },
    Need {
        file: "/usr/bin/iperf3",
        package: "iperf3",
        purpose: "bulk data through two connections of our stack, both ways",
    },
    Need {
        file: "/usr/bin/redis-server",
        package: "redis-server",
        purpose: "a foreign server behind our stack",
    },
    Need {
        file: "/usr/bin/redis-benchmark",
        package: "redis-tools",
        purpose: "many small requests through our stack",
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
    Need {
        file: "/usr/lib/llvm-22/bin/llc",
        package: "llvm-22",
        purpose: "the kernel's programs are compiled and compared",
    },
    Need {
        file: "/usr/bin/qemu-system-x86_64",
        package: "qemu-system-x86",
        purpose: "the kernel's programs on other kernels",
    },
    Need {
        file: "/bin/busybox",
        package: "busybox-static",
        purpose: "the shell of these kernels",
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

/// The packages of a rustc that compiles for BPF, besides the one with its libraries. They are unpacked, not
/// installed, as they would displace another rustc.
const BPF_COMPILER: &[&str] = &["rustc-web", "libstd-rust-web-dev-bpf"];

/// Returns the package with the compiler's libraries, whose name has its version.
fn bpf_compiler_libraries() -> Option<String> {
    let depends = Command::new("apt-cache")
        .args(["depends", "libstd-rust-web-dev"])
        .output()
        .ok()?;
    String::from_utf8_lossy(&depends.stdout)
        .split_whitespace()
        .find(|word| word.starts_with("libstd-rust-web-1."))
        .map(str::to_owned)
}

/// A rustc for BPF.
#[derive(Debug)]
pub(crate) struct BpfCompiler {
    /// Where its `bin` and `lib` are.
    prefix: PathBuf,
}

impl BpfCompiler {
    /// Starts a command line of it.
    pub(crate) fn command(&self) -> Command {
        let libraries = [
            self.prefix.join("lib"),
            self.prefix
                .join(format!("lib/{}-linux-gnu", std::env::consts::ARCH)),
        ];
        let mut command = Command::new(self.prefix.join("bin/rustc"));
        command
            .arg("--sysroot")
            .arg(&self.prefix)
            .env(
                "LD_LIBRARY_PATH",
                std::env::join_paths(libraries).unwrap_or_default(),
            )
            // Inline assembly for BPF is not stable.
            .env("RUSTC_BOOTSTRAP", "1");
        command
    }
}

/// Returns the folder for what the compilation for BPF needs and makes.
pub(crate) fn bpf_folder() -> Result<PathBuf> {
    let folder = workspace::root()?.join("target/bpf");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Finds the compiler for BPF, or fetches it.
pub(crate) fn bpf_compiler() -> Result<BpfCompiler> {
    let folder = bpf_folder()?;
    let compiler = BpfCompiler {
        prefix: folder.join("debian/usr"),
    };
    if compiler.prefix.join("bin/rustc").exists() {
        return Ok(compiler);
    }
    println!("xtask: fetching Debian's {}", BPF_COMPILER.join(", "));
    let fetched = Command::new("apt-get")
        .args(["download", "-q"])
        .args(BPF_COMPILER)
        .args(bpf_compiler_libraries())
        .current_dir(&folder)
        .stdout(std::process::Stdio::null())
        .status();
    ensure!(
        fetched.is_ok_and(|status| status.success()),
        "apt-get download {} failed; the packages are in Debian 12 with its security updates",
        BPF_COMPILER.join(" ")
    );
    for entry in std::fs::read_dir(&folder)? {
        let package = entry?.path();
        if package
            .extension()
            .is_some_and(|extension| extension == "deb")
        {
            let unpacked = Command::new("dpkg")
                .arg("-x")
                .arg(&package)
                .arg(folder.join("debian"))
                .status();
            ensure!(
                unpacked.is_ok_and(|status| status.success()),
                "dpkg -x {} failed",
                package.display()
            );
            std::fs::remove_file(&package)?;
        }
    }
    Ok(compiler)
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
