//! What this machine and this user allow, read from /proc and /sys.

use std::fs;

/// Reads a small file of the kernel; `None` where there is none.
pub(crate) fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// Reads a number that the kernel shows.
pub(crate) fn number(path: &str) -> Option<u64> {
    read(path)?.parse().ok()
}

/// Says why an ordinary user may not make user namespaces, if that is so.
pub(crate) fn user_namespaces_forbidden() -> Option<&'static str> {
    if fs::metadata("/proc/self/ns/user").is_err() {
        Some("the kernel was built without user namespaces")
    } else if number("/proc/sys/user/max_user_namespaces") == Some(0) {
        Some("user.max_user_namespaces is 0")
    } else if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        Some("kernel.unprivileged_userns_clone is 0")
    } else if number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        Some("kernel.apparmor_restrict_unprivileged_userns is 1")
    } else {
        None
    }
}

/// Capabilities that the node asks for, with their numbers in capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// Configures interfaces, attaches XDP programs.
    NetAdmin = 12,
    /// Opens packet sockets.
    NetRaw = 13,
    /// Locks memory beyond the limit.
    IpcLock = 14,
    /// All that follows, on kernels before 5.8 also BPF.
    SysAdmin = 21,
    /// Loads BPF programs.
    Bpf = 39,
}

/// Tells whether this process has a capability in force.
pub(crate) fn has(capability: Capability) -> bool {
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask & (1 << capability as u32) != 0)
}
