//! Dependency direction: the table of crates in ARCHITECTURE.md is the law.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::workspace;

/// Returns a finding for each crate that the table lacks and each dependency that it does not allow.
pub(super) fn check() -> Result<Vec<String>> {
    let allowed = parse(&workspace::read(Path::new("ARCHITECTURE.md"))?);
    let metadata = MetadataCommand::new()
        .manifest_path(workspace::root()?.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let name = short(&package.name);
        let Some(edges) = allowed.get(name) else {
            findings.push(format!(
                "ARCHITECTURE.md: the table of crates lacks `{name}`"
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let ours = dependency.path.is_some() && dependency.kind != DependencyKind::Development;
            if ours && !edges.contains(short(&dependency.name)) {
                findings.push(format!(
                    "{name} depends on {}, an edge that ARCHITECTURE.md does not have",
                    short(&dependency.name)
                ));
            }
        }
    }
    Ok(findings)
}

/// Returns a package's name as the table has it.
fn short(package: &str) -> &str {
    package.strip_prefix("tidegate-").unwrap_or(package)
}

/// Reads rows of the form ``| `crate` | purpose | deps, ... | ...`` between the two markers.
fn parse(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    text.lines()
        .skip_while(|line| !line.contains("<!-- crates -->"))
        .take_while(|line| !line.contains("<!-- /crates -->"))
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
            let name = cells.next()?.trim_matches('`').to_owned();
            let _purpose = cells.next()?;
            let edges = cells
                .next()?
                .split(',')
                .map(|edge| edge.trim().to_owned())
                .collect();
            Some((name, edges))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let table = "| `x` | y | z |\n<!-- crates -->\n| crate | purpose | depends on |\n| --- | --- | --- |\n| `io` | drivers | wire, tables | std |\n<!-- /crates -->\n";
        let edges = parse(table);
        assert_eq!(edges.len(), 1);
        assert_eq!(
            edges["io"],
            BTreeSet::from(["wire".to_owned(), "tables".to_owned()])
        );
    }
}
