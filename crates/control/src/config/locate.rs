//! Where the values of a file are: byte ranges by path.

use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The place of each key and value of a file, by path, e.g. `port.0.addresses.1`.
#[derive(Debug, Default)]
pub(super) struct Places {
    values: HashMap<String, Range<usize>>,
    /// Byte range of the key or value, with its path.
    ranges: Vec<(Range<usize>, String)>,
}

impl Places {
    /// Maps `text`; empty where it is not TOML.
    pub(super) fn new(text: &str) -> Self {
        let mut places = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            places.table("", table.get_ref());
        }
        places
    }

    /// Returns the place of the value at `path`, or of the nearest value that it is part of.
    pub(super) fn of(&self, path: &str) -> Range<usize> {
        let mut path = path;
        loop {
            if let Some(range) = self.values.get(path) {
                return range.clone();
            }
            match path.rfind('.') {
                Some(dot) => path = &path[..dot],
                None => return 0..0,
            }
        }
    }

    /// Returns the path of the key or value that is exactly at `range`.
    pub(super) fn path_at(&self, range: &Range<usize>) -> Option<&str> {
        self.ranges
            .iter()
            .find(|(at, _)| at == range)
            .map(|(_, path)| path.as_str())
    }

    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let path = join(path, key.get_ref());
            self.ranges.push((key.span(), path.clone()));
            self.value(&path, value);
        }
    }

    fn value(&mut self, path: &str, value: &Spanned<DeValue<'_>>) {
        self.values.insert(path.to_owned(), value.span());
        self.ranges.push((value.span(), path.to_owned()));
        match value.get_ref() {
            DeValue::Table(table) => self.table(path, table),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&join(path, &index.to_string()), item);
                }
            }
            _ => {}
        }
    }
}

fn join(path: &str, part: &str) -> String {
    if path.is_empty() {
        part.to_owned()
    } else {
        format!("{path}.{part}")
    }
}
