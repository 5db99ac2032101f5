//! What a test needs from the machine: a missing need skips the test with a line that says so, except
//! under CI, where it fails.

/// Tells whether `met` holds; if not, prints `SKIPPED <test>: <what>`.
///
/// # Panics
/// If it does not hold and the environment variable `CI` is `true`: there, a skip is a failure.
pub fn need(test: &str, what: &str, met: bool) -> bool {
    if !met {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "{test} needs {what}"
        );
        println!("SKIPPED {test}: {what}");
    }
    met
}

/// Needs root (or a user namespace) where network namespaces can be made.
pub fn root(test: &str) -> bool {
    need(test, "root", crate::netns::is_root())
}

/// Needs a program on the `PATH`.
pub fn program(test: &str, name: &str) -> bool {
    need(test, name, find_program(name).is_some())
}

/// Finds a program on the `PATH` or in the directories for administrators.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}
