//! What is wrong with a configuration, and how it is shown.

use std::fmt;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode,
    SourceSpan,
};
use serde::{Deserialize, Serialize};

/// Why a configuration was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read `{file}`")]
    Read {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file was read and is wrong.
    #[error("`{file}` has {}", count(problems.len()))]
    Invalid {
        /// The file.
        file: String,
        /// Its text.
        text: String,
        /// What is wrong: at least one, in the order of the file.
        problems: Vec<Problem>,
    },
}

/// One thing wrong in a configuration, wherever it came from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message} ({label}): {remedy}")]
pub struct Finding {
    /// Where, e.g. `route[2].via`; an index counts the tables of that name from 0.
    pub path: String,
    /// What is wrong: a lowercase fragment.
    pub message: String,
    /// What is said beside the place.
    pub label: String,
    /// What to do about it.
    pub remedy: String,
}

/// One thing wrong in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// What is wrong: a lowercase fragment.
    pub message: String,
    /// What is said beside the caret.
    pub label: String,
    /// What to do about it.
    pub remedy: String,
    /// Where the text begins that is wrong, bytes from the start of the file.
    pub offset_bytes: usize,
    /// How long it is, bytes.
    pub length_bytes: usize,
}

impl Problem {
    /// Describes what is wrong at `span` (bytes) of `text`.
    pub(super) fn new(
        text: &str,
        span: std::ops::Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
            label: label.into(),
            remedy: remedy.into(),
            offset_bytes: span.start,
            length_bytes: span.end.saturating_sub(span.start),
        }
    }
}

impl ConfigError {
    /// Returns what is wrong with the text; empty where the file could not be read.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Read { .. } => &[],
            Self::Invalid { problems, .. } => problems,
        }
    }

    /// Returns what to do where the file could not be read.
    pub fn read_remedy(&self) -> Option<String> {
        let Self::Read { file, source } = self else {
            return None;
        };
        Some(match source.kind() {
            std::io::ErrorKind::NotFound => format!(
                "write `{file}`; start from a file of the examples directory or from `man tidegate.toml`"
            ),
            std::io::ErrorKind::PermissionDenied => {
                format!("let this user read it: `chmod a+r {file}`")
            }
            std::io::ErrorKind::InvalidData => format!("save `{file}` as UTF-8 text"),
            std::io::ErrorKind::IsADirectory => {
                format!("name a file in it: `{file}/node.toml`")
            }
            _ => format!("see what `cat {file}` says"),
        })
    }

    /// Renders the error for a terminal of `width` columns: for each problem file, line, the source
    /// with a caret, the cause and the remedy.
    pub fn render(&self, color: bool, width: usize) -> String {
        let theme = if color {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_width(width.max(40));
        let mut out = String::new();
        match self {
            Self::Read { .. } => push_report(&handler, &mut out, &Unreadable(self)),
            Self::Invalid {
                file,
                text,
                problems,
            } => {
                let source = NamedSource::new(file, text.clone()).with_language("TOML");
                for problem in problems {
                    let shown = Shown {
                        problem,
                        source: &source,
                    };
                    push_report(&handler, &mut out, &shown);
                }
            }
        }
        out
    }
}

fn push_report(handler: &GraphicalReportHandler, out: &mut String, diagnostic: &dyn Diagnostic) {
    if !out.is_empty() {
        out.push('\n');
    }
    handler
        .render_report(out, diagnostic)
        .expect("writing to a string does not fail");
}

fn count(problems: usize) -> String {
    match problems {
        1 => "a problem".to_owned(),
        n => format!("{n} problems"),
    }
}

/// A problem with the text around it.
#[derive(Debug)]
struct Shown<'a> {
    problem: &'a Problem,
    source: &'a NamedSource<String>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.problem.remedy))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = SourceSpan::new(self.problem.offset_bytes.into(), self.problem.length_bytes);
        Some(Box::new(std::iter::once(
            LabeledSpan::new_primary_with_span(Some(self.problem.label.clone()), span),
        )))
    }
}

/// A file that could not be read.
#[derive(Debug)]
struct Unreadable<'a>(&'a ConfigError);

impl fmt::Display for Unreadable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unreadable<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self.0)
    }
}

impl Diagnostic for Unreadable<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0
            .read_remedy()
            .map(|remedy| Box::new(remedy) as Box<dyn fmt::Display>)
    }
}
