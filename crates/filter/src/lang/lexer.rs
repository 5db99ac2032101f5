//! Tokens of the nft language.
//!
//! As in nft, the longest match wins: addresses of all kinds are words, names may hold `.`, `-` and `/`, and a
//! newline is a token, because it ends a statement.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::span::{LangError, Span};

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tok {
    /// A keyword, name, address or time.
    Word(String),
    /// A number, decimal or hexadecimal.
    Num(u64),
    /// A quoted string, without the quotes.
    Str(String),
    /// An operator or punctuation.
    Punct(&'static str),
    /// End of line (a semicolon is the punctuation `;`).
    Newline,
    /// End of the file.
    End,
}

/// A token and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub tok: Tok,
    /// Where it is.
    pub span: Span,
    /// White space precedes it.
    pub spaced: bool,
}

const PUNCT: &[&str] = &[
    "<<", ">>", "==", "!=", "<=", ">=", "&&", "||", "{", "}", "(", ")", "[", "]", ",", ";", ":",
    "=", "<", ">", "&", "|", "^", "-", "/", ".", "*", "@", "$", "!", "+",
];

/// Splits the text of file number `file` into tokens; the last is [`Tok::End`].
///
/// # Errors
/// An open quotation mark, or a character that nothing starts with.
pub fn lex(file: u32, text: &str) -> Result<Vec<Token>, LangError> {
    let mut lexer = Lexer {
        file,
        text,
        at: 0,
        tokens: Vec::new(),
    };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    file: u32,
    text: &'a str,
    at: usize,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn span(&self, bytes: usize) -> Span {
        Span {
            file: self.file,
            start: self.at as u32,
            end: (self.at + bytes) as u32,
        }
    }

    fn push(&mut self, tok: Tok, bytes: usize, spaced: bool) {
        let span = self.span(bytes);
        self.tokens.push(Token { tok, span, spaced });
        self.at += bytes;
    }

    fn run(&mut self) -> Result<(), LangError> {
        let mut spaced = true;
        loop {
            let rest = self.rest();
            let Some(first) = rest.chars().next() else {
                self.push(Tok::End, 0, true);
                return Ok(());
            };
            let continued = ["\\\n", "\\\r\n"].iter().find(|c| rest.starts_with(**c));
            if let Some(continued) = continued {
                self.at += continued.len();
                spaced = true;
                continue;
            }
            match first {
                '\n' => self.push(Tok::Newline, 1, true),
                c if c.is_whitespace() || c == '\u{feff}' => {
                    self.at += c.len_utf8();
                    spaced = true;
                    continue;
                }
                '#' => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                    continue;
                }
                '"' => self.quoted(rest, spaced)?,
                _ => self.token(rest, spaced)?,
            }
            spaced = false;
        }
    }

    fn quoted(&mut self, rest: &str, spaced: bool) -> Result<(), LangError> {
        let Some(end) = rest[1..].find('"') else {
            return Err(
                LangError::new(self.span(1), "a quoted string that does not end")
                    .remedy("close it with a quotation mark"),
            );
        };
        let inner = rest[1..=end].to_owned();
        self.push(Tok::Str(inner), end + 2, spaced);
        Ok(())
    }

    fn token(&mut self, rest: &str, spaced: bool) -> Result<(), LangError> {
        let tokens = [address(rest), number_or_time(rest), word(rest)];
        if let Some((tok, bytes)) = tokens.into_iter().flatten().next() {
            self.push(tok, bytes, spaced);
            return Ok(());
        }
        match PUNCT.iter().find(|punct| rest.starts_with(**punct)) {
            Some(punct) => {
                self.push(Tok::Punct(punct), punct.len(), spaced);
                Ok(())
            }
            None => {
                let bytes = rest.chars().next().map_or(1, char::len_utf8);
                Err(
                    LangError::new(self.span(bytes), "a character that no token starts with")
                        .remedy("remove it, or quote the text that it belongs to"),
                )
            }
        }
    }
}

fn run_of(text: &str, mut allowed: impl FnMut(char) -> bool) -> &str {
    let end = text.find(|c| !allowed(c)).unwrap_or(text.len());
    &text[..end]
}

/// IPv4, IPv6 and link-layer addresses.
fn address(rest: &str) -> Option<(Tok, usize)> {
    let quad = run_of(rest, |c| c.is_ascii_digit() || c == '.');
    let after = rest[quad.len()..].chars().next();
    if quad.parse::<core::net::Ipv4Addr>().is_ok()
        && after.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    {
        return Some((Tok::Word(quad.to_owned()), quad.len()));
    }
    let run = run_of(rest, |c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    let colons = run.matches(':').count();
    if colons < 2 && run.matches('.').count() < 3 {
        return None;
    }
    let mut candidate = run;
    while !candidate.is_empty() {
        let is_mac = candidate.split(':').count() == 6
            && candidate
                .split(':')
                .all(|part| matches!(part.len(), 1 | 2) && !part.contains('.'));
        let next = rest[candidate.len()..].chars().next();
        let ends = next.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        if ends
            && (is_mac
                || candidate.parse::<core::net::Ipv6Addr>().is_ok()
                || candidate.parse::<core::net::Ipv4Addr>().is_ok())
        {
            return Some((Tok::Word(candidate.to_owned()), candidate.len()));
        }
        if !candidate.ends_with(':') && !candidate.ends_with('.') {
            break;
        }
        candidate = &candidate[..candidate.len() - 1];
    }
    None
}

/// Numbers (`22`, `0x16`) and times (`1d2h`, `30s`).
fn number_or_time(rest: &str) -> Option<(Tok, usize)> {
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let digits = run_of(hex, |c| c.is_ascii_hexdigit());
        if let Ok(number) = u64::from_str_radix(digits, 16) {
            return Some((Tok::Num(number), digits.len() + 2));
        }
        // Longer than a number holds: an address or a label written as one word.
        return (!digits.is_empty()).then(|| {
            (
                Tok::Word(rest[..digits.len() + 2].to_owned()),
                digits.len() + 2,
            )
        });
    }
    let digits = run_of(rest, |c| c.is_ascii_digit());
    let run = run_of(rest, |c| c.is_ascii_alphanumeric() || c == '_');
    if run.len() > digits.len() {
        if parse_time(run).is_some() {
            return Some((Tok::Word(run.to_owned()), run.len()));
        }
        // An interface or object name that starts with a digit.
        let after = rest.as_bytes().get(digits.len()).copied().unwrap_or(b' ');
        if !matches!(after, b'k' | b'm' | b'g' | b'b') {
            let name = run_of(rest, |c| c.is_ascii_alphanumeric() || "_-.".contains(c));
            return Some((Tok::Word(name.to_owned()), name.len()));
        }
    }
    let number = digits.parse().ok()?;
    Some((Tok::Num(number), digits.len()))
}

/// Names and keywords; a `*` at the end makes a wildcard.
fn word(rest: &str) -> Option<(Tok, usize)> {
    let first = rest.chars().next()?;
    let second = rest.chars().nth(1).unwrap_or(' ');
    let starts = first.is_alphabetic()
        || first == '_'
        || (first == '.' && (second.is_alphanumeric() || second == '/'));
    let is_escaped_star = first == '\\' && second == '*';
    if !(starts || is_escaped_star) {
        return None;
    }
    let mut run = run_of(rest, |c| c.is_alphanumeric() || "/-_.\\".contains(c));
    // `saddr .` never comes without a space, but a name does not end with a dash or dot either.
    while run.len() > 1 && run.ends_with(['.', '\\']) {
        run = &run[..run.len() - 1];
    }
    let mut bytes = run.len();
    let mut text = run.replace('\\', "");
    if rest[bytes..].starts_with('*') || rest[bytes..].starts_with("\\*") {
        bytes += if rest[bytes..].starts_with('\\') {
            2
        } else {
            1
        };
        text.push('*');
    }
    Some((Tok::Word(text), bytes))
}

/// Reads a time such as `1d2h3m4s5ms`, milliseconds. A bare number is none.
pub fn parse_time(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = run_of(rest, |c| c.is_ascii_digit());
        let number: u64 = digits.parse().ok()?;
        rest = &rest[digits.len()..];
        let unit = run_of(rest, |c| c.is_ascii_lowercase());
        let scale = match unit {
            "w" => 7 * 86_400_000,
            "d" => 86_400_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        rest = &rest[unit.len()..];
        total = total.checked_add(number.checked_mul(scale)?)?;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn words(text: &str) -> Vec<String> {
        let tokens = lex(0, text).unwrap();
        tokens
            .iter()
            .map(|token| match &token.tok {
                Tok::Word(word) => word.clone(),
                Tok::Num(number) => format!("#{number}"),
                Tok::Str(string) => format!("'{string}'"),
                Tok::Punct(punct) => (*punct).to_owned(),
                Tok::Newline => "\\n".to_owned(),
                Tok::End => "$".to_owned(),
            })
            .collect()
    }

    #[test]
    fn addresses_names_and_numbers() {
        assert_eq!(
            words("ip saddr 10.0.0.0/8 . fe80::1-fe80::ff, 00:11:22:aa:bb:cc 22-25 0x10"),
            [
                "ip",
                "saddr",
                "10.0.0.0",
                "/",
                "#8",
                ".",
                "fe80::1",
                "-",
                "fe80::ff",
                ",",
                "00:11:22:aa:bb:cc",
                "#22",
                "-",
                "#25",
                "#16",
                "$"
            ]
        );
        assert_eq!(
            words("{ 22 : jump ssh-in, eth0.100, eth*, 1d2h, ::/0 : drop }"),
            [
                "{", "#22", ":", "jump", "ssh-in", ",", "eth0.100", ",", "eth*", ",", "1d2h", ",",
                "::", "/", "#0", ":", "drop", "}", "$"
            ]
        );
        assert_eq!(
            words("rate 10/second burst 5 packets # note\n100 mbytes/second"),
            [
                "rate",
                "#10",
                "/",
                "second",
                "burst",
                "#5",
                "packets",
                "\\n",
                "#100",
                "mbytes/second",
                "$"
            ]
        );
        assert_eq!(words("a \\\n b"), ["a", "b", "$"]);
    }

    #[test]
    fn errors_have_places() {
        let error = lex(0, "log prefix \"x").unwrap_err();
        assert_eq!((error.span.start, error.span.end), (11, 12));
        assert!(lex(0, "ip saddr ?").is_err());
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("1h30m"), Some(5_400_000));
        assert_eq!(parse_time("15"), None);
        assert_eq!(parse_time("3x"), None);
    }
}
