//! `cargo xtask tidy`: the house rules that neither rustc nor clippy knows.

mod edges;
mod ledger;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{docs, workspace};

pub(crate) use ledger::refreshed as refreshed_ledger;

/// A Rust file should have about 800 lines; this is where "about" ends.
const FILE_LINES_MAX: usize = 900;

/// What must not be committed in Rust sources, and why.
const BANNED: &[(&str, &str)] = &[
    ("#[allow(", "use #[expect(..., reason = \"...\")]"),
    ("#![allow(", "use #![expect(..., reason = \"...\")]"),
    (
        "todo!(",
        "finish it, or return an error that says what is missing",
    ),
    (
        "unimplemented!(",
        "finish it, or return an error that says what is missing",
    ),
    (
        "#[ignore",
        "a test that needs something detects it and says so loudly",
    ),
    ("dbg!(", "use tracing"),
];

/// Runs all checks, prints each finding, and tells whether there was none.
pub(crate) fn run() -> Result<bool> {
    let files = workspace::files()?;
    let mut findings = Vec::new();
    findings.extend(edges::check()?);
    findings.extend(ledger::check(&files)?);
    for file in files.iter().filter(|file| is_rust(file)) {
        findings.extend(check_source(file, &workspace::read(file)?));
    }
    findings.extend(check_layout(&files)?);
    for (file, text) in docs::generated()? {
        if workspace::read(&file).unwrap_or_default() != text {
            findings.push(format!(
                "{}: is not what `cargo xtask docs` writes",
                file.display()
            ));
        }
    }
    for finding in &findings {
        println!("tidy: {finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to mend", files.len());
    }
    Ok(findings.is_empty())
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

/// Checks one source file: its length and what it must not hold.
fn check_source(file: &Path, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.push(format!(
            "{}: {lines} lines; split it (about 800)",
            file.display()
        ));
    }
    if file.starts_with("xtask/src/tidy.rs") {
        return findings; // the table of banned words itself
    }
    for (number, line) in text.lines().enumerate() {
        for (word, remedy) in BANNED {
            if code_of(line).contains(word) {
                findings.push(format!(
                    "{}:{}: `{word}`: {remedy}",
                    file.display(),
                    number + 1
                ));
            }
        }
    }
    findings
}

/// Returns a line without its `//` comment (a `//` inside a string cuts too much, which is harmless here).
fn code_of(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// Checks that every crate has its README and that the root README names the two commands.
fn check_layout(files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for manifest in files.iter().filter(|file| file.ends_with("Cargo.toml")) {
        let folder = manifest.parent().unwrap_or(Path::new(""));
        if folder.starts_with("crates") && !files.contains(&folder.join("README.md")) {
            findings.push(format!("{}: has no README.md", folder.display()));
        }
    }
    let readme = workspace::read(Path::new("README.md"))?;
    for command in ["cargo run --release -- demo", "cargo xtask test"] {
        if !readme.contains(command) {
            findings.push(format!("README.md: does not name `{command}`"));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_words_are_found_in_code_and_not_in_comments() {
        let found = check_source(Path::new("a.rs"), "fn f() { todo!() }\n// todo!( later\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.rs:1:"), "{found:?}");
    }

    #[test]
    fn long_files_are_found() {
        let text = "x\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(check_source(Path::new("a.rs"), &text).len(), 1);
        assert!(check_source(Path::new("a.rs"), "x\n").is_empty());
    }
}
