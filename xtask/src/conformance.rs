//! `docs/conformance.md`: what standards ask, each clause with the test that shows it, or the reason why not.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace;

/// A file of clauses, and what it is about.
const SPECIFICATIONS: [(&str, &str); 3] = [
    ("specs/tcp.toml", "TCP and UDP"),
    ("specs/firewall.toml", "Stateful firewall and translation"),
    ("specs/ndn.toml", "Named Data Networking"),
];

#[derive(Debug, Deserialize)]
struct Specification {
    clause: Vec<Clause>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clause {
    id: String,
    source: String,
    level: String,
    says: String,
    test: Option<String>,
    except: Option<String>,
}

/// Writes the document; a clause whose test is not there is an error.
pub(crate) fn document() -> Result<String> {
    let mut text = String::from(
        "# Conformance\n\n\
         Generated from `specs/*.toml` by `cargo xtask docs`; `cargo xtask tidy` checks that every test is there. \
         A clause has a test or a script that shows it, or says what is not kept, or not shown, and why.\n",
    );
    let mut sources = HashMap::new();
    for (file, about) in SPECIFICATIONS {
        let path = workspace::root()?.join(file);
        let read = std::fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
        let specification: Specification =
            toml::from_str(&read).with_context(|| file.to_owned())?;
        section(&mut text, about, &specification.clause, &mut sources)?;
    }
    Ok(text)
}

fn section(
    text: &mut String,
    about: &str,
    clauses: &[Clause],
    sources: &mut HashMap<String, String>,
) -> Result<()> {
    let tested = |clause: &&Clause| clause.test.is_some();
    let musts = || {
        clauses
            .iter()
            .filter(|clause| clause.level.starts_with("MUST"))
    };
    writeln!(
        text,
        "\n## {about}\n\n{} of {} clauses are shown by a test; of those that are a MUST, {} of {}.\n\n\
         | clause | source | level | requirement | shown by |\n| --- | --- | --- | --- | --- |",
        clauses.iter().filter(tested).count(),
        clauses.len(),
        musts().filter(tested).count(),
        musts().count(),
    )?;
    for clause in clauses {
        let id = &clause.id;
        let shown = match (&clause.test, &clause.except) {
            (Some(test), None) => shown_by(id, test, sources)?,
            (None, Some(reason)) => format!("not: {reason}"),
            _ => bail!("{id}: give `test`, or `except` with a reason"),
        };
        let cell = |text: &str| text.replace('|', "\\|");
        writeln!(
            text,
            "| {id} | {} | {} | {} | {} |",
            cell(&clause.source),
            clause.level,
            cell(&clause.says),
            cell(&shown)
        )?;
    }
    Ok(())
}

/// Returns the link to a test; fails if it is not there.
fn shown_by(id: &str, test: &str, sources: &mut HashMap<String, String>) -> Result<String> {
    if let Some((file, function)) = test.split_once("::") {
        check(id, file, function, sources)?;
        return Ok(format!("[`{function}`](../{file})"));
    }
    let script = Path::new(test);
    if script
        .extension()
        .is_none_or(|extension| extension != "pkt")
    {
        bail!("{id}: a test is file::function, or a script (.pkt)");
    }
    if !workspace::root()?.join(script).is_file() {
        bail!("{id}: there is no script {test}; name one that is there, or give `except`");
    }
    let short = script.with_extension("");
    let short: Vec<_> = short.iter().rev().take(2).collect();
    let short = short.iter().rev().collect::<PathBuf>();
    Ok(format!("[`{}`](../{test})", short.display()))
}

/// Fails if a file has no such test.
fn check(
    id: &str,
    file: &str,
    function: &str,
    sources: &mut HashMap<String, String>,
) -> Result<()> {
    if !sources.contains_key(file) {
        let path = workspace::root()?.join(file);
        let read = std::fs::read_to_string(path)
            .with_context(|| format!("{id}: its test's file {file} cannot be read"))?;
        sources.insert(file.to_owned(), read);
    }
    let head = format!("fn {function}(");
    let is_there = sources
        .get(file)
        .is_some_and(|source| source.contains(&head));
    if !is_there {
        bail!(
            "{id}: there is no test {function} in {file}; name one that is there, or give `except`"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_not_there_is_an_error() {
        let clause = |test: Option<&str>, except: Option<&str>| Clause {
            id: "x.1".into(),
            source: "RFC 0".into(),
            level: "MUST".into(),
            says: "a | b".into(),
            test: test.map(str::to_owned),
            except: except.map(str::to_owned),
        };
        let mut text = String::new();
        let here = "xtask/src/conformance.rs::a_test_that_is_not_there_is_an_error";
        let script = "crates/packetdrill/scripts/rfc9293/nagle.pkt";
        let good = [
            clause(Some(here), None),
            clause(Some(script), None),
            clause(None, Some("no code for it")),
        ];
        section(&mut text, "Tests", &good, &mut HashMap::new()).unwrap();
        assert!(
            text.contains("2 of 3 clauses")
                && text.contains("[`rfc9293/nagle`]")
                && text.contains("a \\| b"),
            "{text}"
        );
        for bad in [
            clause(Some("xtask/src/conformance.rs::no_such_test"), None),
            clause(Some("xtask/src/none.rs::no_such_test"), None),
            clause(Some("crates/packetdrill/scripts/none.pkt"), None),
            clause(Some("xtask/src/conformance.rs"), None),
            clause(None, None),
        ] {
            assert!(section(&mut text, "Tests", &[bad], &mut HashMap::new()).is_err());
        }
    }
}
