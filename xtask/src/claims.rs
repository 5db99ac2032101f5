//! `cargo xtask claims`: runs the programs behind `bench/claims.toml` and says which claims hold.
//!
//! A claim is one figure that README or docs give. It names the program that shows it, where the figure
//! is in the program's JSON, and the bound that it must keep. Programs are run once, however many claims
//! share them. A claim that does not hold is printed as such and never hidden.

mod plot;
mod render;
mod run;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::workspace;

pub(crate) use render::generated;

/// How `cargo xtask claims` runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Check only the claims whose id starts so, e.g. `io.` or `io.mem`.
    #[arg(default_value = "")]
    prefix: String,
    /// List the claims without running anything.
    #[arg(long)]
    list: bool,
    /// Judge the saved results of `bench/results` without running anything.
    #[arg(long)]
    saved: bool,
    /// Save the results to `bench/results`, from which the docs are generated.
    #[arg(long, conflicts_with = "saved")]
    save: bool,
    /// Write `docs/benchmarks.md` and its plots anew after the run.
    #[arg(long)]
    render: bool,
}

/// `bench/claims.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The claims, in the order of the docs.
    claim: Vec<Claim>,
}

/// One figure and its bound.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    /// Dotted id; the first part is the area: io, tables, cs, fw, tcp, ndn, kernel, dpdk.
    id: String,
    /// What the figure is, in one line.
    says: String,
    /// Program in `bench/src/programs` (or `tidegate`) and its arguments; it prints one JSON object.
    command: String,
    /// JSON pointer to the figure in the program's output.
    value: String,
    /// Unit of the figure.
    unit: String,
    /// Comparison and number, e.g. `>= 60`.
    bound: String,
    /// What it is measured against; `-` for an absolute bound.
    peer: String,
    /// JSON pointer to what the machine allows at most (an empty loop), in the same unit.
    #[serde(default)]
    limit: Option<String>,
    /// What must be there: `root`, or the name of a program on the PATH.
    #[serde(default)]
    needs: Vec<String>,
}

/// A comparison with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound {
    comparison: Comparison,
    number: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    AtLeast,
    AtMost,
    Equal,
}

impl Bound {
    fn parse(text: &str) -> Result<Self> {
        let (comparison, number) = text
            .trim()
            .split_once(' ')
            .with_context(|| format!("a bound is like `>= 60`, not `{text}`"))?;
        let comparison = match comparison {
            ">=" => Comparison::AtLeast,
            "<=" => Comparison::AtMost,
            "==" => Comparison::Equal,
            other => bail!("`{other}` is none of >=, <=, =="),
        };
        let number = number
            .trim()
            .parse()
            .with_context(|| format!("`{number}` is not a number"))?;
        Ok(Self { comparison, number })
    }

    fn holds(self, figure: f64) -> bool {
        match self.comparison {
            Comparison::AtLeast => figure >= self.number,
            Comparison::AtMost => figure <= self.number,
            Comparison::Equal => (figure - self.number).abs() < f64::EPSILON,
        }
    }
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// The figure keeps its bound.
    Held(f64),
    /// It does not.
    Broken(f64),
    /// There is no figure: the program is missing, failed, or did not print it.
    Missing(String),
    /// This machine lacks what the claim needs.
    Skipped(String),
}

impl Outcome {
    /// Judges a program's output.
    fn judge(claim: &Claim, output: &Value) -> Result<Self> {
        let bound = Bound::parse(&claim.bound)?;
        Ok(match output.pointer(&claim.value).map(figure) {
            Some(Some(figure)) if bound.holds(figure) => Self::Held(figure),
            Some(Some(figure)) => Self::Broken(figure),
            Some(None) => Self::Missing(format!("{} is not a number", claim.value)),
            None => Self::Missing(format!("the output has no {}", claim.value)),
        })
    }
}

/// Reads a figure: a number, or a truth as 1 or 0.
fn figure(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .or_else(|| value.as_bool().map(|truth| f64::from(u8::from(truth))))
}

/// Checks the claims, prints a line for each, and tells whether all hold.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let claims = selected(&load()?, &options.prefix);
    ensure!(
        !claims.is_empty(),
        "no claim's id starts with `{}` (`cargo xtask claims --list` shows all)",
        options.prefix
    );
    if options.list {
        let lines = claims.iter().map(|claim| {
            let Claim {
                id,
                says,
                bound,
                unit,
                ..
            } = claim;
            format!("{id:<38} {says} ({bound} {unit})\n")
        });
        let text: String = lines.collect();
        // A reader that has gone (`| head`) has seen enough.
        let _ = std::io::stdout().write_all(text.as_bytes());
        return Ok(true);
    }
    let outputs = if options.saved {
        saved_outputs()?
    } else {
        run::programs(&claims, options.save)?
    };
    let strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    let mut counts = BTreeMap::new();
    for claim in &claims {
        let outcome = match run::unmet_need(claim) {
            Some(need) if !options.saved => Outcome::Skipped(need),
            _ => match outputs.get(&claim.command) {
                Some(Ok(output)) => Outcome::judge(claim, output)?,
                Some(Err(reason)) => Outcome::Missing(reason.clone()),
                None => Outcome::Missing("never run and saved".into()),
            },
        };
        let output = outputs.get(&claim.command).and_then(|o| o.as_ref().ok());
        println!("{}", line(claim, &outcome, output));
        *counts.entry(word(&outcome)).or_insert(0u32) += 1;
    }
    let count = |word| counts.get(word).copied().unwrap_or(0);
    println!(
        "{} claims: {} held, {} not held, {} without a figure, {} skipped",
        claims.len(),
        count(HELD),
        count(BROKEN),
        count(MISSING),
        count(SKIPPED)
    );
    if options.render {
        crate::docs::write()?;
    }
    let failed = count(BROKEN) + count(MISSING);
    Ok(failed == 0 && (count(SKIPPED) == 0 || !strict))
}

const HELD: &str = "held";
const BROKEN: &str = "NOT HELD";
const MISSING: &str = "NO FIGURE";
const SKIPPED: &str = "skipped";

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Held(_) => HELD,
        Outcome::Broken(_) => BROKEN,
        Outcome::Missing(_) => MISSING,
        Outcome::Skipped(_) => SKIPPED,
    }
}

fn line(claim: &Claim, outcome: &Outcome, output: Option<&Value>) -> String {
    let figure = match outcome {
        Outcome::Held(figure) | Outcome::Broken(figure) => {
            format!("{} {}", rounded(*figure), claim.unit)
        }
        Outcome::Missing(reason) => reason.clone(),
        Outcome::Skipped(need) => format!("needs {need}"),
    };
    let limit = limit(claim, output).map_or(String::new(), |limit| {
        format!(", this machine's limit {} {}", rounded(limit), claim.unit)
    });
    format!(
        "{:<9} {:<34} {figure} ({} {}{limit}): {}",
        word(outcome),
        claim.id,
        claim.bound,
        claim.unit,
        claim.says
    )
}

fn limit(claim: &Claim, output: Option<&Value>) -> Option<f64> {
    figure(output?.pointer(claim.limit.as_ref()?)?)
}

/// Writes a figure with three or four significant digits.
fn rounded(figure: f64) -> String {
    let magnitude = figure.abs();
    match magnitude {
        _ if magnitude == 0.0 => "0".into(),
        _ if magnitude >= 1000.0 || figure.fract() == 0.0 => format!("{figure:.0}"),
        _ if magnitude >= 100.0 => format!("{figure:.1}"),
        _ if magnitude >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}

/// Reads `bench/claims.toml` and checks it.
fn load() -> Result<Vec<Claim>> {
    let path = Path::new("bench/claims.toml");
    parse(&workspace::read(path)?).context("bench/claims.toml")
}

fn parse(text: &str) -> Result<Vec<Claim>> {
    let file: File = toml::from_str(text)?;
    let mut ids = std::collections::BTreeSet::new();
    for claim in &file.claim {
        let id = &claim.id;
        ensure!(ids.insert(id.clone()), "two claims are called {id}");
        ensure!(
            AREAS.iter().any(|area| id.starts_with(area)),
            "{id} starts with none of {}",
            AREAS.join(", ")
        );
        Bound::parse(&claim.bound).with_context(|| id.clone())?;
        ensure!(
            claim.value.starts_with('/'),
            "{id}: a JSON pointer starts with `/`, not `{}`",
            claim.value
        );
        ensure!(!claim.command.trim().is_empty(), "{id} has no command");
    }
    Ok(file.claim)
}

const AREAS: [&str; 8] = [
    "io.", "tables.", "cs.", "fw.", "tcp.", "ndn.", "kernel.", "dpdk.",
];

fn selected(claims: &[Claim], prefix: &str) -> Vec<Claim> {
    claims
        .iter()
        .filter(|claim| claim.id.starts_with(prefix))
        .cloned()
        .collect()
}

/// What each command printed, or why it printed nothing.
type Outputs = BTreeMap<String, Result<Value, String>>;

const RESULTS: &str = "bench/results";

/// Returns the file in which a command's result is saved.
fn result_file(command: &str) -> String {
    let name: String = command
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|part| !part.is_empty() && *part != "json")
        .collect::<Vec<_>>()
        .join("-");
    format!("{name}.json")
}

/// Reads all saved results.
fn saved_outputs() -> Result<Outputs> {
    let root = workspace::root()?;
    let mut outputs = Outputs::new();
    for claim in load()? {
        let path = root.join(RESULTS).join(result_file(&claim.command));
        if let Ok(text) = std::fs::read_to_string(&path) {
            let value = serde_json::from_str(&text)
                .with_context(|| format!("{} is not JSON", path.display()))?;
            outputs.insert(claim.command, Ok(value));
        }
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(bound: &str) -> Claim {
        Claim {
            id: "io.x".into(),
            says: "x".into(),
            command: "x --json".into(),
            value: "/figures/x".into(),
            unit: "Mpps".into(),
            bound: bound.into(),
            peer: "-".into(),
            limit: None,
            needs: Vec::new(),
        }
    }

    #[test]
    fn the_committed_file_parses() {
        assert!(!load().unwrap().is_empty());
    }

    #[test]
    fn a_figure_is_judged_by_its_bound() {
        let output = serde_json::json!({"figures": {"x": 60.0}});
        let judge = |bound| Outcome::judge(&claim(bound), &output).unwrap();
        assert_eq!(judge(">= 60"), Outcome::Held(60.0));
        assert_eq!(judge(">= 60.1"), Outcome::Broken(60.0));
        assert_eq!(judge("<= 60"), Outcome::Held(60.0));
        assert_eq!(judge("<= 59.9"), Outcome::Broken(60.0));
        assert_eq!(judge("== 60"), Outcome::Held(60.0));
        assert_eq!(judge("== 0"), Outcome::Broken(60.0));
        let absent = Outcome::judge(&claim(">= 1"), &serde_json::json!({})).unwrap();
        assert!(matches!(absent, Outcome::Missing(_)));
        let truth = serde_json::json!({"figures": {"x": true}});
        assert_eq!(
            Outcome::judge(&claim("== 1"), &truth).unwrap(),
            Outcome::Held(1.0)
        );
    }

    #[test]
    fn a_file_with_a_fault_is_refused_with_the_reason() {
        let row = |id: &str, bound: &str, value: &str| {
            format!(
                "[[claim]]\nid = \"{id}\"\nsays = \"s\"\ncommand = \"c\"\nvalue = \"{value}\"\n\
                 unit = \"u\"\nbound = \"{bound}\"\npeer = \"-\"\n"
            )
        };
        let fault = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(parse(&row("io.a", ">= 1", "/a")).is_ok());
        assert!(fault(&row("io.a", "> 1", "/a")).contains("none of >=, <=, =="));
        assert!(fault(&row("io.a", ">= one", "/a")).contains("not a number"));
        assert!(fault(&row("io.a", ">= 1", "a")).contains("starts with `/`"));
        assert!(fault(&row("xx.a", ">= 1", "/a")).contains("none of io."));
        let twice = row("io.a", ">= 1", "/a").repeat(2);
        assert!(fault(&twice).contains("two claims"));
        let unknown = row("io.a", ">= 1", "/a") + "extra = 1\n";
        assert!(fault(&unknown).contains("extra"));
    }

    #[test]
    fn a_line_shows_figure_bound_and_limit() {
        let mut claim = claim(">= 60");
        claim.limit = Some("/figures/empty".into());
        let output = serde_json::json!({"figures": {"x": 55.5, "empty": 58.0}});
        let outcome = Outcome::judge(&claim, &output).unwrap();
        let line = line(&claim, &outcome, Some(&output));
        assert!(line.starts_with("NOT HELD"), "{line}");
        assert!(
            line.contains("55.50 Mpps (>= 60 Mpps, this machine's limit 58 Mpps)"),
            "{line}"
        );
    }

    #[test]
    fn a_prefix_selects() {
        let mut other = claim(">= 1");
        other.id = "tables.y".into();
        let all = [claim(">= 1"), other];
        assert_eq!(selected(&all, "tables.").len(), 1);
        assert_eq!(selected(&all, "").len(), 2);
        assert_eq!(
            result_file("io_mem --json --rounds 5"),
            "io_mem-rounds-5.json"
        );
    }
}
