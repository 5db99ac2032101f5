//! What the TOML reader and the schema say, in an operator's words.

use toml::de::Error;

use super::error::Problem;
use super::keys::{self, KeyDoc, TableDoc};
use super::locate::Places;

/// Describes a failure of reading `text`.
pub(super) fn explain(text: &str, error: &Error) -> Problem {
    let message = error.message();
    let span = error.span().unwrap_or(0..0);
    let places = Places::new(text);
    let path = places.path_at(&span).unwrap_or_default().to_owned();
    let (message, label, remedy) = if let Some((name, known)) = unknown(message, "unknown field") {
        unknown_key(&path, name, &known)
    } else if let Some((value, known)) = unknown(message, "unknown variant") {
        unknown_value(&path, value, &known)
    } else if let Some(name) = quoted(message, "missing field") {
        missing_key(&path, name)
    } else if let Some(kind) = message.strip_prefix("invalid type: ") {
        wrong_type(&path, kind)
    } else if let Some(kind) = message.strip_prefix("invalid value: ") {
        wrong_type(&path, kind)
    } else if let Some((_, key)) = keys::at_path(&path) {
        bad_value(text.get(span.clone()).unwrap_or_default(), message, key)
    } else {
        syntax(message)
    };
    Problem::new(text, span, message, label, remedy)
}

type Words = (String, String, String);

fn unknown_key(path: &str, name: &str, known: &[&str]) -> Words {
    let table = path
        .rsplit_once('.')
        .and_then(|(parent, _)| keys::table_of(parent));
    let place = table.map_or_else(|| "the file".to_owned(), TableDoc::header);
    let noun = if table.is_some() { "key" } else { "table" };
    let elsewhere = keys::TABLES.iter().find(|other| {
        table.is_none_or(|table| table.name != other.name)
            && other.keys.iter().any(|key| key.name == name)
    });
    let remedy = match (nearest(name, known), elsewhere) {
        (Some(meant), _) => format!("write `{meant}`"),
        (None, Some(other)) => format!("move it under `{}`", other.header()),
        (None, None) => format!("remove it; {place} takes {}", list(known)),
    };
    (
        format!("{place} has no {noun} `{name}`"),
        format!("not a {noun} of {place}"),
        remedy,
    )
}

fn unknown_value(path: &str, value: &str, known: &[&str]) -> Words {
    let key = keys::at_path(path).map_or("this key", |(_, key)| key.name);
    let remedy = match nearest(value, known) {
        Some(meant) => format!("write `{key} = \"{meant}\"`"),
        None => format!("write one of {}", list(known)),
    };
    (
        format!("`{value}` is not a value of `{key}`"),
        format!("not one of {}", list(known)),
        remedy,
    )
}

fn missing_key(path: &str, name: &str) -> Words {
    let table = keys::table_of(path);
    let header = table.map_or_else(|| "the file".to_owned(), TableDoc::header);
    let example = table
        .and_then(|table| table.keys.iter().find(|key| key.name == name))
        .map_or(name, |key| key.example);
    (
        format!("{header} lacks the key `{name}`"),
        format!("needs `{name}`"),
        format!("add a line such as `{example}` below it"),
    )
}

fn wrong_type(path: &str, found_and_expected: &str) -> Words {
    let found = found_and_expected
        .split_once(", expected")
        .map_or(found_and_expected, |(found, _)| found);
    // "integer `7`" and "string \"x\"" name the value; "map" and "sequence" only its kind
    let found = match (found.split_once(' '), found) {
        (Some((_, value)), _) => format!("`{}`", value.trim_matches('`')),
        (None, "map") => "a table".to_owned(),
        (None, "sequence") => "an array".to_owned(),
        (None, kind) => kind.to_owned(),
    };
    if let Some((_, key)) = keys::at_path(path) {
        let element = path
            .rsplit('.')
            .next()
            .is_some_and(|part| part.parse::<usize>().is_ok());
        let of = if element {
            format!("an element of `{}`", key.name)
        } else {
            format!("`{}`", key.name)
        };
        return (
            format!("{of} cannot be {found}"),
            format!("`{}` is: {}", key.name, key.kind),
            format!("write for example `{}`", key.example),
        );
    }
    match keys::table_of(path) {
        Some(table) => (
            format!("`{}` cannot be {found}", table.name),
            if table.many {
                "there may be many of these"
            } else {
                "this is one table"
            }
            .to_owned(),
            format!("write `{}` and its keys below", table.header()),
        ),
        None => syntax(found_and_expected),
    }
}

fn bad_value(written: &str, message: &str, key: &KeyDoc) -> Words {
    let message = if message == "invalid IP address syntax" {
        format!("`{}` is not an IP address", written.trim_matches('"'))
    } else {
        message.to_owned()
    };
    (
        message,
        format!("`{}` is: {}", key.name, key.kind),
        format!("write for example `{}`", key.example),
    )
}

fn syntax(message: &str) -> Words {
    let (cause, expected) = message
        .split_once(", expected ")
        .map_or((message, None), |(cause, expected)| (cause, Some(expected)));
    let (label, remedy) = match cause {
        "duplicate key" => (
            "given a second time".to_owned(),
            "keep one of the two; a table that may be given many times is written `[[name]]`"
                .to_owned(),
        ),
        "string values must be quoted" => (
            "text without quotes".to_owned(),
            "put the value in double quotes".to_owned(),
        ),
        "key with no value" => (
            "a value is missing".to_owned(),
            "write `key = value`, one a line".to_owned(),
        ),
        _ => match expected {
            Some(expected) => (
                format!("expected {expected}"),
                format!("write {expected} here"),
            ),
            None => (
                "the TOML reader stopped here".to_owned(),
                "see https://toml.io for the form of the file".to_owned(),
            ),
        },
    };
    (cause.to_owned(), label, remedy)
}

/// Splits "... `name`, expected `a` or `b`" into the name and what is known.
fn unknown<'a>(message: &'a str, what: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let mut quoted = message.strip_prefix(what)?.split('`').skip(1).step_by(2);
    let name = quoted.next()?;
    Some((name, quoted.collect()))
}

fn quoted<'a>(message: &'a str, what: &str) -> Option<&'a str> {
    message.strip_prefix(what)?.split('`').nth(1)
}

/// Returns the candidate that `written` was most likely meant to be.
pub(super) fn nearest<'a>(written: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let (score, best) = candidates
        .iter()
        .map(|candidate| {
            let score = strsim::damerau_levenshtein(&plain(written), &plain(candidate));
            (score, *candidate)
        })
        .min()?;
    (score <= 1 + written.chars().count() / 4).then_some(best)
}

/// Writes a list of names for people: "`a`, `b` or `c`".
pub(super) fn list(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [one] => format!("`{one}`"),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}
