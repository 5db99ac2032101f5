//! Places in rule files, and errors that name them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A stretch of text in one file of a [`SourceMap`], bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Which file.
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the stretch from the start of `self` to the end of `other`, which lies in the same file.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        if self.file == other.file && other.end > self.start {
            Self {
                end: other.end,
                ..self
            }
        } else {
            self
        }
    }
}

/// One rule file.
#[derive(Clone, Debug, Default)]
pub struct SourceFile {
    /// Its name, as it was given or included.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// All files that were read for one ruleset.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// Adds a file and returns its number.
    pub fn add(&mut self, name: &str, text: &str) -> u32 {
        self.files.push(SourceFile {
            name: name.to_owned(),
            text: text.to_owned(),
        });
        (self.files.len() - 1) as u32
    }

    /// Returns all files, in the order in which they were read.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Returns a file.
    pub fn file(&self, number: u32) -> Option<&SourceFile> {
        self.files.get(number as usize)
    }

    /// Returns the text of a span, empty if there is none.
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file)
            .and_then(|file| file.text.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
    }

    /// Returns file, line and column of a span's start.
    pub fn place(&self, span: Span) -> Place {
        let Some(file) = self.file(span.file) else {
            return Place::default();
        };
        let before = file.text.get(..span.start as usize).unwrap_or(&file.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            file: file.name.clone(),
            line: before.matches('\n').count() as u32 + 1,
            column: before.get(line_start..).unwrap_or("").chars().count() as u32 + 1,
        }
    }
}

/// Where something stands, for people: counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Column, characters.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What is wrong with a ruleset, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LangError {
    /// What is wrong: a fragment without full stop.
    pub message: String,
    /// Where.
    pub span: Span,
    /// One remedy, if there is one to name.
    pub remedy: Option<String>,
}

impl LangError {
    /// Makes an error.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            span,
            remedy: None,
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Renders the error with its place, the line, carets, and the remedy.
    pub fn render(&self, sources: &SourceMap) -> String {
        use fmt::Write;
        let place = sources.place(self.span);
        let mut out = String::new();
        let _ = writeln!(out, "{place}: {}", self.message);
        if let Some(line) = sources
            .file(self.span.file)
            .and_then(|file| file.text.lines().nth(place.line as usize - 1))
        {
            let column = place.column as usize;
            let rest = line.chars().count().saturating_sub(column - 1).max(1);
            let width = sources.text(self.span).chars().count().clamp(1, rest);
            let _ = writeln!(out, "  {line}");
            let _ = writeln!(out, "  {}{}", " ".repeat(column - 1), "^".repeat(width));
        }
        if let Some(remedy) = &self.remedy {
            let _ = writeln!(out, "  remedy: {remedy}");
        }
        out
    }
}

impl fmt::Display for LangError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for LangError {}
