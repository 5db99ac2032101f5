//! Lists of site names, and NDN names made of them.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;

/// The list that comes with the programs: see `bench/data/README.md`.
const DEFAULT: &[u8] = include_bytes!("../../data/opendns-top-domains.txt.gz");
/// Labels that are put before sites when there are more files than sites.
const LABELS: &[&str] = &[
    "www", "static", "img", "cdn", "media", "api", "video", "news", "files", "mail", "shop", "m",
];

/// Names of sites, most popular first.
#[derive(Clone, Debug)]
pub struct Sites(Vec<String>);

impl Sites {
    /// Reads a list, one name a line, packed or not; without a path the one that comes with the programs.
    ///
    /// # Errors
    /// The file cannot be read or has no name.
    pub fn read(path: Option<&Path>) -> Result<Self> {
        let bytes = match path {
            Some(path) => std::fs::read(path)
                .with_context(|| format!("cannot read the names of {}", path.display()))?,
            None => DEFAULT.to_vec(),
        };
        let mut text = String::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            GzDecoder::new(&bytes[..])
                .read_to_string(&mut text)
                .context("the packed list of names is broken")?;
        } else {
            text = String::from_utf8(bytes).context("the list of names is not UTF-8")?;
        }
        let names = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let names: Vec<String> = names.map(str::to_owned).collect();
        ensure!(!names.is_empty(), "the list of names is empty");
        Ok(Self(names))
    }

    /// The name of the file of this number.
    pub fn file(&self, number: usize) -> String {
        let site = &self.0[number % self.0.len()];
        match number / self.0.len() {
            0 => site.clone(),
            round => match LABELS.get(round - 1) {
                Some(label) => format!("{label}.{site}"),
                None => format!("h{round}.{site}"),
            },
        }
    }
}

/// Appends a component with a type and length below 253.
pub fn push(name: &mut Vec<u8>, component_type: u8, value: &[u8]) {
    let value = &value[..value.len().min(252)];
    name.push(component_type);
    name.push(value.len() as u8);
    name.extend_from_slice(value);
}

/// Appends a segment number (type 50).
pub fn push_segment(name: &mut Vec<u8>, segment: u32) {
    match segment {
        0..=0xff => push(name, 50, &[segment as u8]),
        0x100..=0xffff => push(name, 50, &(segment as u16).to_be_bytes()),
        _ => push(name, 50, &segment.to_be_bytes()),
    }
}
