//! `tidegate rule diff`: what changes from one file of rules to another.

use std::path::Path;

use control::api::RuleChange;
use filter::lang::diff::diff;
use filter::lang::{Disk, Source};

use crate::cli::{Global, RuleDiffArgs};
use crate::exit::{Exit, Failure};
use crate::output::{self, BAD, FAINT, GOOD};

pub(crate) fn run(global: &Global, args: &RuleDiffArgs) -> Result<(), Failure> {
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let changes = diff(&old.model, &new.model).into_iter().map(|change| {
        let source = if change.added { &new } else { &old };
        let place = source.sources.place(change.span);
        RuleChange {
            added: change.added,
            place: change.place,
            text: change.text,
            file: place.file,
            line: place.line,
        }
    });
    let changes: Vec<RuleChange> = changes.collect();
    if global.json {
        return output::print_json(&changes);
    }
    let mut text = String::new();
    let mut place = "";
    for change in &changes {
        if change.place != place {
            text.push_str(&format!("{}\n", change.place));
            place = &change.place;
        }
        let (sign, style) = if change.added {
            ('+', GOOD)
        } else {
            ('-', BAD)
        };
        let at = format!("{FAINT}{}:{}{FAINT:#}", change.file, change.line);
        let what = change.text.trim_end().replace('\n', "\n      ");
        text.push_str(&format!("  {style}{sign} {what}{style:#}  {at}\n"));
    }
    output::print(&text)
}

/// Reads a file of rules.
fn read(path: &Path) -> Result<Source, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(
            Exit::of_file(&error),
            anyhow::Error::from(error).context(path.display().to_string()),
        )
    })?;
    let mut source = Source::default();
    match source.read(&path.to_string_lossy(), &text, &Disk::default()) {
        Ok(()) => Ok(source),
        Err(error) => Err(Failure::message(
            Exit::Failed,
            error.render(&source.sources).trim_end(),
        )),
    }
}
