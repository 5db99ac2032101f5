//! The nft language: text to a checked ruleset, and back.
//!
//! [`Source`] reads files to [`ast`] commands; [`Model`] applies them, as the kernel would, to a set of tables;
//! [`compile`] checks types and makes the [`Ruleset`] that workers evaluate. What is not
//! supported is an error that names it: nothing is ignored.

pub mod ast;
pub mod datatype;
pub mod diff;
pub mod files;
pub mod lexer;
mod lower;
pub mod model;
mod parser;
pub mod print;
pub mod selector;
pub mod span;
mod symbols;

use alloc::string::String;
use alloc::vec::Vec;

pub use files::{Disk, Files, Memory};
pub use lower::{Options, compile};
pub use model::Model;
pub use span::{LangError, Place, SourceMap, Span};

use crate::rules::Ruleset;

/// Rule files being read into a model.
#[derive(Debug, Default)]
pub struct Source {
    /// All files read so far.
    pub sources: SourceMap,
    /// The tables so far.
    pub model: Model,
    /// Variables given from outside (`nft -D name=value`).
    pub defines: Vec<(String, String)>,
}

impl Source {
    /// Reads the text of a file, and what it includes, and applies its commands.
    ///
    /// # Errors
    /// The first error of syntax, or the first command that cannot be applied; the model is unchanged then.
    pub fn read(&mut self, name: &str, text: &str, files: &dyn Files) -> Result<(), LangError> {
        let file = self.sources.add(name, text);
        let commands = parser::parse(&mut self.sources, file, files, &self.defines)?;
        self.model.apply(&commands)
    }

    /// Compiles the model.
    ///
    /// # Errors
    /// See [`compile`].
    pub fn compile(&self, options: Options) -> Result<Ruleset, Vec<LangError>> {
        compile(&self.model, &self.sources, options)
    }
}

/// Reads and compiles one text: for tests and small rulesets.
///
/// # Errors
/// What is wrong, rendered with its place.
pub fn load(text: &str, options: Options) -> Result<Ruleset, String> {
    let mut source = Source::default();
    let read = source.read("rules.nft", text, &Memory::default());
    read.map_err(|error| error.render(&source.sources))?;
    source.compile(options).map_err(|errors| {
        errors
            .iter()
            .map(|error| error.render(&source.sources))
            .collect()
    })
}
