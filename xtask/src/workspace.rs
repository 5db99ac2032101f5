//! Where the workspace is and which files it has.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns the root of the workspace.
pub(crate) fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask lies directly below the workspace root")
}

/// Lists the files of the checkout that git tracks or would track, relative to the root, sorted.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root()?)
        .output()
        .context("git is needed to list the files of the checkout")?;
    ensure!(
        listing.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&listing.stderr)
    );
    let mut files: Vec<PathBuf> = String::from_utf8(listing.stdout)?
        .lines()
        .map(PathBuf::from)
        .collect();
    files.retain(|file| root().is_ok_and(|root| root.join(file).is_file()));
    files.sort();
    Ok(files)
}

/// Reads a file of the checkout.
pub(crate) fn read(file: &Path) -> Result<String> {
    let path = root()?.join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}
