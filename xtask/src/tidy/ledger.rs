//! UNSAFE.md: how many unsafe blocks each file has, and why it has any.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::workspace;

const LEDGER: &str = "UNSAFE.md";
const MISSING_REASON: &str = "(say why)";

/// Returns a finding for each file whose count or reason in the ledger is wrong.
pub(super) fn check(files: &[PathBuf]) -> Result<Vec<String>> {
    let counted = count(files)?;
    let ledger = parse(&workspace::read(Path::new(LEDGER))?);
    let mut findings = Vec::new();
    for (file, blocks) in &counted {
        match ledger.get(file) {
            None => findings.push(format!("{LEDGER}: lacks {file} ({blocks} unsafe)")),
            Some((noted, _)) if noted != blocks => {
                findings.push(format!("{LEDGER}: {file} has {blocks} unsafe, not {noted}"));
            }
            Some((_, reason)) if reason == MISSING_REASON || reason.is_empty() => {
                findings.push(format!("{LEDGER}: {file} has no reason"));
            }
            Some(_) => {}
        }
    }
    for file in ledger.keys().filter(|file| !counted.contains_key(*file)) {
        findings.push(format!("{LEDGER}: {file} has no unsafe any more"));
    }
    Ok(findings)
}

/// Returns the ledger's text with today's counts, keeping the reasons that people wrote.
pub(crate) fn refreshed(files: &[PathBuf]) -> Result<String> {
    let old = workspace::read(Path::new(LEDGER))?;
    let ledger = parse(&old);
    let mut text: String = old.lines().take_while(|line| !line.starts_with('|')).fold(
        String::new(),
        |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        },
    );
    text.push_str("| file | unsafe | why |\n| --- | --- | --- |\n");
    for (file, blocks) in count(files)? {
        let reason = ledger
            .get(&file)
            .map_or(MISSING_REASON, |(_, reason)| reason);
        writeln!(text, "| `{file}` | {blocks} | {reason} |")?;
    }
    Ok(text)
}

/// Counts the unsafe blocks, functions and impls of each Rust file that has any.
fn count(files: &[PathBuf]) -> Result<BTreeMap<String, usize>> {
    let mut counted = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| super::is_rust(file) && !file.starts_with("xtask"))
    {
        let blocks = workspace::read(file)?.lines().map(unsafes).sum();
        if blocks > 0 {
            counted.insert(file.display().to_string(), blocks);
        }
    }
    Ok(counted)
}

/// Counts the unsafe blocks, functions and impls that start on a line.
fn unsafes(line: &str) -> usize {
    let code = super::code_of(line);
    ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
        .iter()
        .map(|form| code.matches(form).count())
        .sum()
}

/// Reads the rows `| file | blocks | reason |`.
fn parse(text: &str) -> BTreeMap<String, (usize, String)> {
    text.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.splitn(3, '|').map(str::trim);
            let file = cells.next()?.trim_matches('`').to_owned();
            let blocks = cells.next()?.parse().ok()?;
            let reason = cells.next()?.trim_end_matches('|').trim().to_owned();
            Some((file, (blocks, reason)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_in_code_counts_and_in_comments_does_not() {
        assert_eq!(unsafes("let x = unsafe { f() }; // unsafe { }"), 1);
        assert_eq!(unsafes("unsafe impl Send for X {}"), 1);
        assert_eq!(unsafes("#![forbid(unsafe_code)]"), 0);
    }

    #[test]
    fn rows_are_read() {
        let rows =
            parse("| file | unsafe | why |\n| --- | --- | --- |\n| `a.rs` | 3 | maps | memory |\n");
        assert_eq!(rows["a.rs"], (3, "maps | memory".to_owned()));
    }
}
