//! Starts DPDK's environment once a process, with arguments that the machine suggests.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use super::ffi;
use super::process::{Role, SharingError};
use crate::cpu;

/// Memory for DPDK's own structures where there are no huge pages, MiB.
const NO_HUGE_MIB: u32 = 64;

/// Free huge pages (2 MiB) below which DPDK is started without.
const HUGE_PAGES_MIN: u64 = 32;

/// How DPDK runs in this process.
#[derive(Clone, Debug)]
pub(super) struct Eal {
    /// Name and version.
    pub(super) version: String,
    /// DPDK's own structures lie in huge pages.
    pub(super) huge_pages: bool,
}

/// Whom this process shares DPDK with: nobody, unless it is said before DPDK starts.
static SHARING: OnceLock<Option<(String, Role)>> = OnceLock::new();

/// Says whom this process shares DPDK with.
pub(super) fn share(group: &str, role: Role) -> Result<(), SharingError> {
    let wanted = Some((group.to_owned(), role));
    match *SHARING.get_or_init(|| wanted.clone()) == wanted {
        true => Ok(()),
        false => Err(SharingError::Late),
    }
}

/// Returns what this process is to those that it shares DPDK with; `None`: it is alone.
pub(super) fn role() -> Option<Role> {
    SHARING
        .get()
        .and_then(|sharing| sharing.as_ref().map(|(_, role)| *role))
}

/// Starts DPDK, once; later calls return what the first one did.
pub(super) fn start() -> Result<&'static Eal, &'static str> {
    static STARTED: OnceLock<Result<Eal, String>> = OnceLock::new();
    STARTED.get_or_init(init).as_ref().map_err(String::as_str)
}

fn init() -> Result<Eal, String> {
    let sharing = SHARING.get_or_init(|| None).as_ref();
    let is_secondary = sharing.is_some_and(|(_, role)| *role == Role::Secondary);
    let huge_pages = is_secondary || free_huge_pages() >= HUGE_PAGES_MIN;
    if sharing.is_some() {
        can_share(huge_pages)?;
    }
    // DPDK pins the calling thread to its main lcore: all CPUs that the thread may use, so nothing changes.
    let cpus = cpu::allowed().unwrap_or_else(|_| vec![0]);
    let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let mut words = vec![
        "tidegate".to_owned(),
        format!("--lcores=0@({})", list.join(",")),
        "--no-telemetry".into(),
        // The addresses that devices use are those of the process: no need to know physical ones.
        "--iova-mode=va".into(),
        // Devices are plugged in by name when a port is opened; none is taken that was not asked for.
        "--allow=0000:00:00.0".into(),
        "--log-level=error".into(),
    ];
    // No files, no lock on the machine: a dead process leaves nothing behind.
    if let Some((group, role)) = sharing {
        words.push(format!("--file-prefix={group}"));
        words.push(format!("--proc-type={}", role.name()));
    } else if huge_pages {
        words.push("--in-memory".into());
    } else {
        words.push("--no-shconf".into());
        words.push(format!("--file-prefix=tidegate-{}", std::process::id()));
        words.push("--no-huge".into());
        words.push(format!("-m{NO_HUGE_MIB}"));
    }
    let words: Vec<CString> = words
        .into_iter()
        .map(CString::new)
        .collect::<Result<_, _>>()
        .map_err(|_| "an argument holds a zero byte".to_owned())?;
    // DPDK keeps pointers into its arguments: they live as long as the process.
    let words = words.leak();
    let mut pointers: Vec<*mut c_char> = words.iter().map(|w| w.as_ptr().cast_mut()).collect();
    pointers.push(core::ptr::null_mut());
    let pointers = pointers.leak();
    let count = words.len() as core::ffi::c_int;
    // SAFETY: `pointers` has `count` strings that end with a zero and a null at the end, all of which live
    // for ever; `OnceLock` makes this the only call.
    let error = unsafe { ffi::tg_eal_init(count, pointers.as_mut_ptr()) };
    if error != 0 {
        return Err(format!(
            "DPDK does not start: {} (its messages are above; --log-level is `error`)",
            ffi::error_text(error)
        ));
    }
    if !huge_pages {
        leave_no_directory();
    }
    Ok(Eal {
        version: ffi::version(),
        huge_pages,
    })
}

/// Removes the directory that DPDK makes for files which it was told not to write; one that is not empty stays.
fn leave_no_directory() {
    let places = [
        "/var/run".into(),
        std::env::var("XDG_RUNTIME_DIR").unwrap_or_default(),
        "/tmp".into(),
    ];
    for place in places {
        let _ = std::fs::remove_dir(format!("{place}/dpdk/tidegate-{}", std::process::id()));
    }
}

/// Says what is missing for several processes to share DPDK's memory.
fn can_share(huge_pages: bool) -> Result<(), String> {
    if !huge_pages {
        return Err(format!(
            "processes share memory in huge pages, and fewer than {HUGE_PAGES_MIN} are free (write a number to \
             /proc/sys/vm/nr_hugepages)"
        ));
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounted = |line: &str| line.split(' ').nth(2) == Some("hugetlbfs");
    match mounts.lines().any(mounted) {
        true => Ok(()),
        false => Err(
            "processes share memory in files on a hugetlbfs, and none is mounted (`mkdir -p /dev/hugepages && \
             mount -t hugetlbfs none /dev/hugepages`)"
                .to_owned(),
        ),
    }
}

/// Returns how many huge pages of the default size are free; 0 where the kernel does not tell.
fn free_huge_pages() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        return 0;
    };
    text.lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}
