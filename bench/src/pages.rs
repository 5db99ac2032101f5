//! Which pages the tables of other crates lie on: those come from the C library's allocator, which asks for
//! huge pages only when it is told to before the program starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE: &str = "glibc.malloc.hugetlb=1";

/// Starts this program anew in its place with an allocator that asks for transparent huge pages, unless that
/// is so already. Says on the error output when it cannot.
pub fn huge_allocator() {
    let set = std::env::var(TUNABLES).unwrap_or_default();
    if set.contains(HUGE) {
        return;
    }
    let value = match set.as_str() {
        "" => HUGE.to_owned(),
        other => format!("{other}:{HUGE}"),
    };
    let error = match std::env::current_exe() {
        Ok(program) => Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(TUNABLES, value)
            .exec(),
        Err(error) => error,
    };
    eprintln!("the allocator stays on normal pages: {error}");
}

/// Percent of this process's memory that lies on huge pages now.
pub fn huge_percent() -> f64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kilobytes = |name: &str| {
        text.lines().find_map(|line| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse::<f64>()
                .ok()
        })
    };
    match (kilobytes("AnonHugePages:"), kilobytes("Rss:")) {
        (Some(huge), Some(all)) if all > 0.0 => huge * 100.0 / all,
        _ => f64::NAN,
    }
}
