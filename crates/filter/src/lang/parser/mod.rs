//! The parser: recursive descent over the tokens of a file and of what it includes.

mod command;
mod expression;
mod object;
mod statement;
mod table;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::ast::{Command, Expr, ExprKind, Name};
use super::files::Files;
use super::lexer::{Tok, Token, lex};
use super::span::{LangError, SourceMap, Span};

/// Files that one ruleset may include, repetitions counted.
const INCLUDES_MAX: usize = 1024;
/// Depth of nested expressions and blocks.
const DEPTH_MAX: usize = 64;

pub(super) type Parse<T> = Result<T, LangError>;

/// Parses a file that was added to `sources`, with what it includes from `files`.
///
/// # Errors
/// The first thing that is not nft syntax, or a file that cannot be included.
pub(super) fn parse(
    sources: &mut SourceMap,
    file: u32,
    files: &dyn Files,
    defines: &[(String, String)],
) -> Parse<Vec<Command>> {
    let text = sources
        .file(file)
        .map(|f| f.text.clone())
        .unwrap_or_default();
    let mut parser = Parser {
        tokens: lex(file, &text)?,
        at: 0,
        sources,
        files,
        included: 0,
        depth: 0,
        class_ids: false,
        scopes: vec![BTreeMap::new()],
    };
    for (name, value) in defines {
        parser.define_text(name, value)?;
    }
    parser.commands()
}

pub(super) struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    sources: &'a mut SourceMap,
    files: &'a dyn Files,
    included: usize,
    depth: usize,
    /// `1:11` is a class here, not a key and its data.
    class_ids: bool,
    scopes: Vec<BTreeMap<String, Expr>>,
}

impl Parser<'_> {
    fn peek(&self) -> &Tok {
        self.tokens
            .get(self.at)
            .map_or(&Tok::End, |token| &token.tok)
    }

    fn peek_at(&self, ahead: usize) -> &Tok {
        self.tokens
            .get(self.at + ahead)
            .map_or(&Tok::End, |token| &token.tok)
    }

    fn span(&self) -> Span {
        self.tokens
            .get(self.at)
            .map(|token| token.span)
            .unwrap_or_default()
    }

    /// Place of the token before the next one.
    fn last_span(&self) -> Span {
        self.at
            .checked_sub(1)
            .and_then(|at| self.tokens.get(at))
            .map(|token| token.span)
            .unwrap_or_default()
    }

    fn advance(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    fn is_punct(&self, punct: &str) -> bool {
        matches!(self.peek(), Tok::Punct(p) if *p == punct)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Tok::Word(w) if w == word)
    }

    fn word_at(&self, ahead: usize) -> Option<&str> {
        match self.peek_at(ahead) {
            Tok::Word(word) => Some(word),
            _ => None,
        }
    }

    fn eat_punct(&mut self, punct: &str) -> bool {
        let found = self.is_punct(punct);
        if found {
            self.advance();
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    fn expect_punct(&mut self, punct: &str) -> Parse<()> {
        if self.eat_punct(punct) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{punct}`")))
    }

    fn expect_word(&mut self, word: &str) -> Parse<()> {
        if self.eat_word(word) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{word}`")))
    }

    fn unexpected(&self, wanted: &str) -> LangError {
        let found = match self.peek() {
            Tok::Word(word) => format!("`{word}`"),
            Tok::Num(number) => format!("`{number}`"),
            Tok::Str(string) => format!("\"{string}\""),
            Tok::Punct(punct) => format!("`{punct}`"),
            Tok::Newline => "the end of the line".to_string(),
            Tok::End => "the end of the file".to_string(),
        };
        LangError::new(self.span(), format!("{found} where {wanted} is expected")).remedy(format!(
            "write {wanted} here, or see nft(8) for the statement"
        ))
    }

    fn skip_newlines(&mut self) {
        while matches!(self.peek(), Tok::Newline) {
            self.advance();
        }
    }

    fn at_separator(&self) -> bool {
        matches!(self.peek(), Tok::Newline | Tok::End) || self.is_punct(";") || self.is_punct("}")
    }

    /// Ends a statement: a newline or semicolon, or the closing brace that follows at once.
    fn end_statement(&mut self) -> Parse<()> {
        if self.is_punct("}") || matches!(self.peek(), Tok::End) {
            return Ok(());
        }
        if matches!(self.peek(), Tok::Newline) || self.is_punct(";") {
            self.advance();
            return Ok(());
        }
        Err(self.unexpected("the end of the statement"))
    }

    fn skip_separators(&mut self) {
        while matches!(self.peek(), Tok::Newline) || self.is_punct(";") {
            self.advance();
        }
    }

    /// A name: a word, a quoted string, a number or a variable that holds one.
    fn name(&mut self, what: &str) -> Parse<Name> {
        let span = self.span();
        let text = match self.peek() {
            Tok::Word(word) => word.clone(),
            Tok::Str(string) => string.clone(),
            Tok::Num(number) => number.to_string(),
            Tok::Punct("$") => {
                let value = self.variable()?;
                return match value.kind {
                    ExprKind::Word(text) | ExprKind::Str(text) => Ok(Name { text, span }),
                    ExprKind::Num(number) => Ok(Name {
                        text: number.to_string(),
                        span,
                    }),
                    _ => Err(
                        LangError::new(span, format!("the variable does not hold {what}"))
                            .remedy("define it as one word or string"),
                    ),
                };
            }
            _ => return Err(self.unexpected(what)),
        };
        self.advance();
        Ok(Name { text, span })
    }

    fn number(&mut self, what: &str) -> Parse<u64> {
        let span = self.span();
        match self.peek() {
            Tok::Num(number) => {
                let number = *number;
                self.advance();
                Ok(number)
            }
            Tok::Punct("$") => match self.variable()?.kind {
                ExprKind::Num(number) => Ok(number),
                _ => Err(
                    LangError::new(span, format!("the variable does not hold {what}"))
                        .remedy("define it as a number"),
                ),
            },
            _ => Err(self.unexpected(what)),
        }
    }

    fn number_in<T: TryFrom<u64>>(&mut self, what: &str) -> Parse<T> {
        let span = self.span();
        let number = self.number(what)?;
        T::try_from(number).map_err(|_| {
            LangError::new(span, format!("{number} is too large for {what}"))
                .remedy("use a smaller number")
        })
    }

    fn string(&mut self, what: &str) -> Parse<String> {
        Ok(self.name(what)?.text)
    }

    fn lookup(&self, name: &str) -> Option<&Expr> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// `$name`.
    fn variable(&mut self) -> Parse<Expr> {
        let span = self.span();
        self.expect_punct("$")?;
        let Tok::Word(name) = self.peek().clone() else {
            return Err(self.unexpected("the name of a variable"));
        };
        let span = span.to(self.span());
        self.advance();
        match self.lookup(&name) {
            Some(value) => Ok(Expr {
                kind: value.kind.clone(),
                span,
            }),
            None => Err(
                LangError::new(span, format!("the variable `{name}` is not defined"))
                    .remedy(format!("write `define {name} = ...` above")),
            ),
        }
    }

    fn define_text(&mut self, name: &str, value: &str) -> Parse<()> {
        let file = self.sources.add(&format!("(define {name})"), value);
        let tokens = core::mem::replace(&mut self.tokens, lex(file, value)?);
        let at = core::mem::replace(&mut self.at, 0);
        let value = self.define_value();
        self.tokens = tokens;
        self.at = at;
        let value = value?;
        if let Some(scope) = self.scopes.first_mut() {
            scope.insert(name.to_string(), value);
        }
        Ok(())
    }

    fn define_value(&mut self) -> Parse<Expr> {
        self.list_expr()
    }

    /// Runs `inner` where `1:11` is a class of traffic control.
    fn with_class_ids<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        self.class_ids = true;
        let result = inner(self);
        self.class_ids = false;
        result
    }

    /// What may stand in any block: `define`, `redefine`, `undefine`, `include`. True if there was one.
    fn common(&mut self) -> Parse<bool> {
        let Tok::Word(word) = self.peek().clone() else {
            return Ok(false);
        };
        match word.as_str() {
            "define" | "redefine" if matches!(self.peek_at(2), Tok::Punct("=")) => {
                self.advance();
                let name = self.name("the name of a variable")?;
                self.expect_punct("=")?;
                let value = self.define_value()?;
                self.end_statement()?;
                if let Some(scope) = self.scopes.last_mut() {
                    scope.insert(name.text, value);
                }
            }
            "undefine" => {
                self.advance();
                let name = self.name("the name of a variable")?;
                self.end_statement()?;
                if let Some(scope) = self.scopes.last_mut() {
                    scope.remove(&name.text);
                }
            }
            "include" => self.include()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn include(&mut self) -> Parse<()> {
        let start = self.span();
        self.advance();
        let pattern = self.name("a file name in quotation marks")?;
        let span = start.to(pattern.span);
        self.end_statement()?;
        let from = self
            .sources
            .file(span.file)
            .map(|file| file.name.clone())
            .unwrap_or_default();
        let found = self.files.find(&pattern.text, &from).map_err(|why| {
            LangError::new(span, format!("cannot include `{}`: {why}", pattern.text)).remedy(
                "give the path of a readable file, absolute or relative to the including file",
            )
        })?;
        let mut spliced = Vec::new();
        for path in found {
            self.included += 1;
            if self.included > INCLUDES_MAX {
                return Err(LangError::new(
                    span,
                    format!("more than {INCLUDES_MAX} files are included"),
                )
                .remedy("remove the file that includes itself"));
            }
            let text = self.files.read(&path).map_err(|why| {
                LangError::new(span, format!("cannot include `{path}`: {why}"))
                    .remedy("make the file readable")
            })?;
            let file = self.sources.add(&path, &text);
            let mut tokens = lex(file, &text)?;
            if let Some(end) = tokens.last_mut() {
                end.tok = Tok::Newline;
            }
            spliced.extend(tokens);
        }
        let at = self.at;
        self.tokens.splice(at..at, spliced);
        Ok(())
    }

    /// Runs `inner` one level deeper, and refuses texts that are nested too deep for the stack.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth >= DEPTH_MAX {
            return Err(LangError::new(
                self.span(),
                format!("nested deeper than {DEPTH_MAX} levels"),
            )
            .remedy("flatten the expression or block"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }
}
