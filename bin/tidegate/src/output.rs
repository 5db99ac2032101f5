//! What commands print: data to stdout, talk to stderr, no pager.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Names of columns, and what asks for attention.
pub(crate) const HEADING: Style = Style::new().bold();
/// What is as it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What is worth a look.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// What is wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// What is there for completeness.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Writes `text` to stdout, with colours where they are wanted.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    finish(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Draws `text` over the terminal's picture. What does not fit is cut off, not wrapped.
pub(crate) fn draw(text: &str) -> Result<(), Failure> {
    let rows = crossterm::terminal::size().map_or(usize::MAX, |(_, rows)| usize::from(rows));
    let lines: Vec<_> = text.lines().take(rows.saturating_sub(1)).collect();
    // home and clear; wrapping off and on again; raw mode does not return the carriage by itself
    print(&format!(
        "\x1b[H\x1b[J\x1b[?7l{}\r\n\x1b[?7h",
        lines.join("\r\n")
    ))
}

/// Writes `value` to stdout as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_string(value).map_err(anyhow::Error::from)?;
    line.push('\n');
    let mut stdout = std::io::stdout().lock();
    finish(
        stdout
            .write_all(line.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// A reader that has gone (`| head`) is no failure.
pub(crate) fn finish(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(
            Exit::Failed,
            anyhow::Error::from(error).context("cannot write the output"),
        )),
        Ok(()) => Ok(()),
    }
}

/// Says on stderr why a command failed, and what to do.
pub(crate) fn report(failure: &Failure) {
    let Some(error) = &failure.error else {
        return;
    };
    let mut text = format!("{BAD}error:{BAD:#} {error:#}\n");
    if let Some(remedy) = &failure.remedy {
        text.push_str(&format!(" {GOOD}help:{GOOD:#} {remedy}\n"));
    }
    // nobody is left to tell if stderr is closed
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// Which side of its column a cell leans to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table in plain text, its columns as wide as they need to be.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    /// Makes a table; a name that begins with `>` heads a column of numbers.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let columns = columns
            .iter()
            .map(|name| match name.strip_prefix('>') {
                Some(name) => (name.to_owned(), Align::Right),
                None => ((*name).to_owned(), Align::Left),
            })
            .collect();
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.styled(cells.map(|cell| (cell, Style::new())));
    }

    /// Adds a row with colours.
    pub(crate) fn styled<const N: usize>(&mut self, cells: [(String, Style); N]) {
        debug_assert_eq!(N, self.columns.len(), "a cell a column");
        self.rows.push(cells.into());
    }

    /// Tells whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the table, each line indented by `indent` blanks.
    pub(crate) fn render(&self, indent: usize) -> String {
        let width = |index: usize, name: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            cells
                .map(|(cell, _)| cell.chars().count())
                .chain([name.chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<_> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, (name, _))| width(index, name))
            .collect();
        let mut out = String::new();
        let heading: Vec<_> = self
            .columns
            .iter()
            .map(|(name, _)| (name.clone(), HEADING))
            .collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = " ".repeat(indent);
            let cells = row.iter().zip(&widths).zip(&self.columns);
            let last = row.len().saturating_sub(1);
            for (index, (((cell, style), width), (_, align))) in cells.enumerate() {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                let cell = format!("{style}{cell}{style:#}");
                match align {
                    Align::Right => line.push_str(&format!("{pad}{cell}")),
                    Align::Left if index == last => line.push_str(&cell),
                    Align::Left => line.push_str(&format!("{cell}{pad}")),
                }
                if index < last {
                    line.push_str("  ");
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Writes a count or a rate for people: 950, 12.3 k, 4.56 M.
pub(crate) fn si(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 10e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    match unit {
        "" if value == value.trunc() || value >= 100.0 => format!("{value:.0}"),
        "" => format!("{value:.1}"),
        _ if value >= 100.0 => format!("{value:.0}{unit}"),
        _ if value >= 10.0 => format!("{value:.1}{unit}"),
        _ => format!("{value:.2}{unit}"),
    }
}

/// Writes a number of bytes for people, in powers of two.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value} B"),
        _ if scaled >= 100.0 => format!("{scaled:.0} {}", UNITS[unit]),
        _ => format!("{scaled:.1} {}", UNITS[unit]),
    }
}

/// Writes a bit rate for people.
pub(crate) fn bits_per_second(bytes_per_second: f64) -> String {
    let bits = si(bytes_per_second * 8.0);
    match bits.split_once(' ') {
        Some((number, unit)) => format!("{number} {unit}bit/s"),
        None => format!("{bits} bit/s"),
    }
}

/// Writes a share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p >= 99.95 => "100 %".to_owned(),
        p if p >= 10.0 => format!("{p:.0} %"),
        p if p >= 0.95 => format!("{p:.1} %"),
        p if p > 0.0 => format!("{p:.2} %"),
        _ => "0 %".to_owned(),
    }
}

/// Writes nanoseconds for people.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        10_000_000..10_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => {
            let s = ns / 1_000_000_000;
            match s {
                0..120 => format!("{s} s"),
                120..7200 => format!("{} min {} s", s / 60, s % 60),
                7200..172_800 => format!("{} h {} min", s / 3600, s % 3600 / 60),
                _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        assert_eq!(
            [0.0, 7.0, 7.25, 950.0, 9999.0, 12_345.0, 4_560_000.0, 2e9].map(si),
            ["0", "7", "7.2", "950", "9999", "12.3 k", "4.56 M", "2.00 G"]
        );
        assert_eq!(
            [0, 1023, 1536, 300 << 20].map(bytes),
            ["0 B", "1023 B", "1.5 KiB", "300 MiB"]
        );
        assert_eq!(
            [1.0, 0.123, 0.0123, 0.0001, 0.0].map(percent),
            ["100 %", "12 %", "1.2 %", "0.01 %", "0 %"]
        );
        assert_eq!(bits_per_second(125e6), "1.00 Gbit/s");
        assert_eq!(
            [999, 12_000, 30_000_000, 61_000_000_000, 7_300_000_000_000].map(duration),
            ["999 ns", "12 us", "30 ms", "61 s", "2 h 1 min"]
        );
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", ">pkts"]);
        table.row(["a".into(), "1".into()]);
        table.row(["longer".into(), "12345".into()]);
        let plain = anstream::adapter::strip_str(&table.render(1)).to_string();
        assert_eq!(plain, " name     pkts\n a           1\n longer  12345\n");
    }
}
