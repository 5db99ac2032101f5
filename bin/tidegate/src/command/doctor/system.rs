//! Checks of the machine and of the user, interfaces aside.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use control::api::{CheckStatus, DoctorCheck};
use rustix::process::{Resource, getrlimit};

use crate::machine::{self, Capability, number, read};

/// The oldest kernel whose AF_XDP has all that the node uses (umem shared between interfaces), and the
/// one with busy polling by socket option.
const KERNEL_MIN: (u32, u32) = (5, 10);
const KERNEL_GOOD: (u32, u32) = (5, 11);
/// What locking is asked of an ordinary node: 8192 frames of 2048 bytes a worker, rings beside.
const MEMLOCK_GOOD_BYTES: u64 = 64 << 20;

/// Runs the checks, in the order in which they matter.
pub(super) fn checks() -> Vec<DoctorCheck> {
    vec![
        kernel_version(&read("/proc/sys/kernel/osrelease").unwrap_or_default()),
        capability(
            "cap_net_admin",
            machine::has(Capability::NetAdmin),
            "attaches XDP programs and configures interfaces",
        ),
        capability(
            "cap_net_raw",
            machine::has(Capability::NetRaw),
            "opens AF_XDP and AF_PACKET sockets",
        ),
        capability(
            "cap_bpf",
            machine::has(Capability::Bpf) || machine::has(Capability::SysAdmin),
            "loads the program that AF_XDP needs",
        ),
        memlock(),
        bpf_jit(),
        huge_pages(),
        cpus(),
        user_namespaces(),
        ndn_socket(Path::new("/run/nfd/nfd.sock")),
    ]
}

/// Tells whether a node with `[ndn]` can listen where applications of named data look.
fn ndn_socket(path: &Path) -> DoctorCheck {
    let name = "ndn_socket";
    let shown = path.display();
    if UnixStream::connect(path).is_ok() {
        return ok(name, format!("an NDN forwarder answers at {shown}"));
    }
    let directory = path.parent().filter(|directory| directory.exists());
    let directory = directory.unwrap_or(Path::new("/run"));
    let may_write = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok();
    if may_write {
        ok(name, format!("free: a node with [ndn] can make {shown}"))
    } else {
        not_ok(
            name,
            CheckStatus::Warning,
            format!("this user cannot make {shown}"),
            "run as root, or write another path under `unix` in [ndn] and in NDN_CLIENT_TRANSPORT",
        )
    }
}

/// Makes a check that is as it should be.
pub(super) fn ok(name: &str, found: impl Into<String>) -> DoctorCheck {
    DoctorCheck {
        name: name.to_owned(),
        status: CheckStatus::Ok,
        found: found.into(),
        remedy: None,
    }
}

/// Makes a check that is not, with what to do about it.
pub(super) fn not_ok(
    name: &str,
    status: CheckStatus,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> DoctorCheck {
    DoctorCheck {
        name: name.to_owned(),
        status,
        found: found.into(),
        remedy: Some(remedy.into()),
    }
}

fn kernel_version(release: &str) -> DoctorCheck {
    let name = "kernel_version";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return not_ok(
            name,
            CheckStatus::Warning,
            format!("`{release}` tells no version"),
            "see whether /proc is mounted",
        );
    };
    let version: (u32, u32) = (major, minor);
    if version >= KERNEL_GOOD {
        ok(name, release)
    } else if version >= KERNEL_MIN {
        not_ok(
            name,
            CheckStatus::Warning,
            format!("{release}: AF_XDP without busy polling"),
            "use Linux 5.11 or later",
        )
    } else {
        not_ok(
            name,
            CheckStatus::Failed,
            format!("{release}: AF_XDP cannot share frames between ports"),
            "use Linux 5.10 or later, or `driver = \"af_packet\"`",
        )
    }
}

fn capability(name: &str, present: bool, what: &str) -> DoctorCheck {
    if present {
        ok(name, format!("present: {what}"))
    } else {
        not_ok(
            name,
            CheckStatus::Failed,
            format!("absent: {what}"),
            "run as root, or by the systemd unit, which grants what is needed",
        )
    }
}

fn memlock() -> DoctorCheck {
    let name = "memlock";
    let Some(limit) = getrlimit(Resource::Memlock).current else {
        return ok(name, "unlimited");
    };
    let found = format!("{} may be locked", crate::output::bytes(limit));
    if machine::has(Capability::IpcLock) {
        ok(name, format!("{found}; CAP_IPC_LOCK lifts the limit"))
    } else if limit >= MEMLOCK_GOOD_BYTES {
        ok(name, found)
    } else {
        not_ok(
            name,
            CheckStatus::Warning,
            format!("{found}: too little for the frames of an AF_XDP port"),
            "raise it: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the unit",
        )
    }
}

fn bpf_jit() -> DoctorCheck {
    let name = "bpf_jit";
    match number("/proc/sys/net/core/bpf_jit_enable") {
        Some(0) => not_ok(
            name,
            CheckStatus::Warning,
            "off: the XDP program is interpreted",
            "`sysctl net.core.bpf_jit_enable=1`",
        ),
        Some(_) => ok(name, "on"),
        None => ok(name, "always on, or not shown to this user"),
    }
}

fn huge_pages() -> DoctorCheck {
    let name = "huge_pages";
    let directory = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    let (Some(total), Some(free)) = (
        number(&format!("{directory}/nr_hugepages")),
        number(&format!("{directory}/free_hugepages")),
    ) else {
        return ok(name, "the kernel has none; frames lie in normal pages");
    };
    let found = format!("{free} of {total} pages of 2 MiB are free");
    if free > 0 {
        ok(name, found)
    } else {
        not_ok(
            name,
            CheckStatus::Warning,
            format!("{found}; frames lie in normal pages"),
            "`sysctl vm.nr_hugepages=64` (before memory is fragmented)",
        )
    }
}

fn cpus() -> DoctorCheck {
    let name = "cpus";
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let isolated = read("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let isolation = if isolated.is_empty() {
        "none isolated".to_owned()
    } else {
        format!("isolated: {isolated}")
    };
    let found = format!("{allowed} allowed, {isolation}");
    if governor.as_deref() == Some("powersave") {
        not_ok(
            name,
            CheckStatus::Warning,
            format!("{found}, frequency governor powersave"),
            "`cpupower frequency-set -g performance`",
        )
    } else if allowed == 1 {
        not_ok(
            name,
            CheckStatus::Warning,
            format!("{found}: workers share it with everything else"),
            "give the machine a second CPU, or keep `mode = \"hybrid\"` under `[idle]`",
        )
    } else {
        ok(name, found)
    }
}

fn user_namespaces() -> DoctorCheck {
    let name = "user_namespaces";
    match machine::user_namespaces_forbidden() {
        None => ok(name, "allowed: an ordinary user can run the demo"),
        Some(reason) => not_ok(
            name,
            CheckStatus::Warning,
            format!("forbidden to ordinary users ({reason})"),
            match fs::metadata("/proc/sys/user/max_user_namespaces") {
                Ok(_) => "run the demo as root, or lift the named setting by sysctl",
                Err(_) => "run the demo as root",
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_judged() {
        let status = |release| kernel_version(release).status;
        assert_eq!(status("6.1.0-40-amd64"), CheckStatus::Ok);
        assert_eq!(status("5.11"), CheckStatus::Ok);
        assert_eq!(status("5.10.0-30-amd64"), CheckStatus::Warning);
        assert_eq!(status("4.19.0"), CheckStatus::Failed);
        assert_eq!(status("unknown"), CheckStatus::Warning);
    }

    #[test]
    fn whatever_is_not_ok_has_a_remedy() {
        for check in checks() {
            assert_eq!(
                check.status != CheckStatus::Ok,
                check.remedy.is_some(),
                "{check:?}"
            );
        }
    }
}
