//! `docs/benchmarks.md` and its plots, from the claims and the saved results.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{Claim, Outcome, Outputs, limit, load, plot, rounded, saved_outputs, word};

/// A table in a program's output.
#[derive(Debug, Deserialize)]
struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

/// Returns the generated files and what they must hold.
pub(crate) fn generated() -> Result<Vec<(PathBuf, String)>> {
    let claims = load()?;
    let outputs = saved_outputs()?;
    let mut files = Vec::new();
    let text = page(&claims, &outputs, &mut files)?;
    files.push(("docs/benchmarks.md".into(), text));
    Ok(files)
}

fn page(claims: &[Claim], outputs: &Outputs, plots: &mut Vec<(PathBuf, String)>) -> Result<String> {
    let mut text = String::from(
        "# Benchmarks\n\n\
         Generated from `bench/claims.toml` and `bench/results` by `cargo xtask docs`. To measure on your \
         machine: `cargo xtask claims` (as root; peers that are not installed are skipped and said so). \
         Every figure is a median of interleaved rounds; a ratio compares what ran in turns in the same \
         process or the same minute. A claim that does not hold stays in the list. How frame sizes are \
         counted, and what a virtual machine does to such figures: [benchmarking.md](benchmarking.md).\n\n\
         ## Claims\n\n\
         | claim | what | bound | measured | machine's limit | against | holds |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for claim in claims {
        let output = outputs.get(&claim.command).and_then(|o| o.as_ref().ok());
        let outcome = match output {
            Some(output) => Outcome::judge(claim, output)?,
            None => Outcome::Missing(String::new()),
        };
        let measured = match outcome {
            Outcome::Held(figure) | Outcome::Broken(figure) => rounded(figure),
            _ => "-".into(),
        };
        let limit = limit(claim, output).map_or("-".into(), rounded);
        writeln!(
            text,
            "| `{}` | {} | {} {} | {measured} | {limit} | {} | {} |",
            claim.id,
            claim.says,
            claim.bound,
            claim.unit,
            claim.peer,
            word(&outcome)
        )?;
    }
    text.push_str("\n## Results\n");
    let mut done = std::collections::BTreeSet::new();
    for claim in claims {
        if let Some(Ok(output)) = outputs.get(&claim.command)
            && done.insert(&claim.command)
        {
            result(&mut text, &claim.command, output, plots)?;
        }
    }
    if done.is_empty() {
        text.push_str("\nNone saved yet.\n");
    }
    Ok(text)
}

fn result(
    text: &mut String,
    command: &str,
    output: &Value,
    plots: &mut Vec<(PathBuf, String)>,
) -> Result<()> {
    writeln!(text, "\n### `{command}`\n")?;
    if let Some(machine) = output.pointer("/machine_line").and_then(Value::as_str) {
        writeln!(text, "On {machine}.\n")?;
    }
    if let Some(tables) = output.get("tables") {
        let tables: Vec<Table> = serde_json::from_value(tables.clone())
            .with_context(|| format!("the tables of {command}"))?;
        for table in &tables {
            write_table(text, table)?;
        }
    }
    if let Some(drawn) = output.get("plots") {
        let drawn: Vec<plot::Plot> = serde_json::from_value(drawn.clone())
            .with_context(|| format!("the plots of {command}"))?;
        for plot in &drawn {
            let name = format!("{}.svg", slug(&plot.title));
            writeln!(text, "![{}](plots/{name})\n", plot.title)?;
            plots.push((PathBuf::from("docs/plots").join(name), plot.svg()));
        }
    }
    let notes = output.get("notes").and_then(Value::as_array);
    for note in notes.into_iter().flatten().filter_map(Value::as_str) {
        writeln!(text, "- {note}")?;
    }
    Ok(())
}

fn write_table(text: &mut String, table: &Table) -> Result<()> {
    writeln!(text, "{}:\n", table.title)?;
    writeln!(text, "| {} |", table.columns.join(" | "))?;
    writeln!(text, "|{}", " --- |".repeat(table.columns.len()))?;
    for row in &table.rows {
        let cells: Vec<String> = row
            .iter()
            .map(|cell| match cell {
                Value::String(text) => text.clone(),
                Value::Null => "-".into(),
                other => super::figure(other).map_or_else(|| other.to_string(), rounded),
            })
            .collect();
        writeln!(text, "| {} |", cells.join(" | "))?;
    }
    text.push('\n');
    Ok(())
}

fn slug(title: &str) -> String {
    title
        .to_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_becomes_tables_and_plots() {
        let output = serde_json::json!({
            "machine_line": "a machine",
            "figures": {"x": 2.0},
            "tables": [{"title": "Rates", "columns": ["size", "pps"], "rows": [[64, 1234.5], [128, null]]}],
            "plots": [{"title": "Rates by size", "x": "size, bytes", "y": "Mpps",
                       "series": [{"name": "ours", "points": [[64.0, 1.0], [1518.0, 0.5]]}]}],
            "notes": ["one core only"]
        });
        let (mut text, mut plots) = (String::new(), Vec::new());
        result(&mut text, "x --json", &output, &mut plots).unwrap();
        assert!(text.contains("On a machine."));
        assert!(
            text.contains("| 64 | 1234 |") || text.contains("| 64 | 1235 |"),
            "{text}"
        );
        assert!(text.contains("| 128 | - |"));
        assert!(text.contains("(plots/rates-by-size.svg)"));
        assert!(text.ends_with("\n- one core only\n"), "{text}");
        assert_eq!(plots.len(), 1);
        assert!(plots[0].1.starts_with("<svg"));
    }
}
