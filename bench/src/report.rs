//! What a program prints: figures that claims point at, tables and plots that the docs show.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use lab::machine::Machine;

use crate::Options;

/// The result of one program.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The program's name.
    program: &'static str,
    machine: Machine,
    /// The machine in one line.
    machine_line: String,
    /// Single numbers, by name; a claim's pointer is `/figures/<name>`.
    figures: BTreeMap<String, f64>,
    tables: Vec<Table>,
    plots: Vec<Plot>,
    /// What a reader must know to judge the figures, e.g. what could not be measured here.
    notes: Vec<String>,
}

/// A table for the docs.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// One line, without a full stop.
    pub title: String,
    /// Headings, with units.
    pub columns: Vec<String>,
    /// Cells: numbers or strings; null is shown as a dash.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// Makes an empty table.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }
}

/// A line plot for the docs.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// Heading; also the file's name.
    pub title: String,
    /// The horizontal axis, with unit.
    pub x: String,
    /// The vertical axis, with unit.
    pub y: String,
    /// Logarithmic horizontal axis.
    pub log_x: bool,
    /// Logarithmic vertical axis.
    pub log_y: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line of a plot.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// Starts the report of `program` on this machine.
    pub fn new(program: &'static str) -> Self {
        let machine = Machine::current();
        Self {
            program,
            machine_line: machine.to_string(),
            machine,
            figures: BTreeMap::new(),
            tables: Vec::new(),
            plots: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a figure; its unit is the end of its name. A number that is not finite is left out, so that
    /// its claim has no figure rather than a wrong one.
    pub fn figure(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), value);
        }
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds a plot.
    pub fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Prints the report: one JSON object, or text.
    pub fn print(&self, options: &Options) {
        if options.json {
            println!("{}", json!(self));
        } else {
            print!("{}", self.text());
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{} on {}\n", self.program, self.machine_line);
        for table in &self.tables {
            text.push_str(&format!("\n{}\n", table.title));
            let rows: Vec<Vec<String>> = core::iter::once(table.columns.clone())
                .chain(table.rows.iter().map(|row| row.iter().map(cell).collect()))
                .collect();
            text.push_str(&align(&rows));
        }
        text.push('\n');
        for (name, value) in &self.figures {
            text.push_str(&format!("{name:<40} {value:.4}\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or(0.0))
        }
        other => other.to_string(),
    }
}

/// Sets columns right-aligned under each other.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$}  "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_what_the_claims_point_at() {
        let mut report = Report::new("x");
        report.figure("ratio", 1.5);
        report.figure("nothing", f64::NAN);
        let value = json!(report);
        assert_eq!(value.pointer("/figures/ratio"), Some(&json!(1.5)));
        assert_eq!(value.pointer("/figures/nothing"), None);
        assert!(value["machine_line"].as_str().unwrap().contains("Linux"));
    }

    #[test]
    fn text_lines_up() {
        let mut report = Report::new("x");
        let mut table = Table::new("Rates", &["size", "kpps"]);
        table.rows.push(vec![json!(64), json!(1234.5)]);
        table.rows.push(vec![json!(1518), Value::Null]);
        report.table(table);
        let text = report.text();
        assert!(
            text.contains("size      kpps\n  64  1234.500\n1518         -\n"),
            "{text}"
        );
    }
}
