//! Where included files come from.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use std::path::{Path, PathBuf};

/// A source of files for `include`.
pub trait Files {
    /// Returns the files that `pattern` names (a path, or a glob of `*` and `?` in its last part), in order.
    ///
    /// # Errors
    /// If a path without wildcards names no file: why not.
    fn find(&self, pattern: &str, from: &str) -> Result<Vec<String>, String>;
    /// Reads a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, path: &str) -> Result<String, String>;
}

/// The file system. Relative paths are tried from the including file's folder, then from each of `folders`.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// Folders to search.
    pub folders: Vec<PathBuf>,
}

impl Files for Disk {
    fn find(&self, pattern: &str, from: &str) -> Result<Vec<String>, String> {
        let here = Path::new(from).parent().unwrap_or(Path::new("")).to_owned();
        let folders = core::iter::once(&here).chain(&self.folders);
        let is_glob = pattern.contains(['*', '?']);
        for folder in folders {
            let path = folder.join(pattern);
            if !is_glob {
                if path.is_file() {
                    return Ok(vec![path.to_string_lossy().into_owned()]);
                }
                continue;
            }
            let Some((parent, name)) = path.parent().zip(path.file_name()) else {
                continue;
            };
            let Ok(entries) = std::fs::read_dir(parent) else {
                continue;
            };
            let name = name.to_string_lossy();
            let mut found: Vec<String> = entries
                .flatten()
                .filter(|entry| {
                    entry.path().is_file() && glob(&name, &entry.file_name().to_string_lossy())
                })
                .map(|entry| entry.path().to_string_lossy().into_owned())
                .collect();
            found.sort();
            return Ok(found);
        }
        if is_glob {
            Ok(Vec::new())
        } else {
            Err("no such file".to_owned())
        }
    }

    fn read(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    }
}

/// Files in memory: for tests, and for rulesets that come over a socket.
#[derive(Clone, Debug, Default)]
pub struct Memory(pub BTreeMap<String, String>);

impl Files for Memory {
    fn find(&self, pattern: &str, _from: &str) -> Result<Vec<String>, String> {
        let found: Vec<String> = self
            .0
            .keys()
            .filter(|name| glob(pattern, name))
            .cloned()
            .collect();
        if found.is_empty() && !pattern.contains(['*', '?']) {
            return Err("no such file".to_owned());
        }
        Ok(found)
    }

    fn read(&self, path: &str) -> Result<String, String> {
        self.0
            .get(path)
            .cloned()
            .ok_or_else(|| format!("no file `{path}`"))
    }
}

/// Matches a name against a pattern of `*` and `?`.
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    let mut star = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, in_name));
                at += 1;
            }
            Some(c) if *c == '?' || name.get(in_name) == Some(c) => {
                at += 1;
                in_name += 1;
            }
            _ => match star {
                Some((after, matched)) => {
                    star = Some((after, matched + 1));
                    (at, in_name) = (after, matched + 1);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|c| *c == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        assert!(glob("*.nft", "a.nft") && glob("a?c*", "abcdef") && glob("*", ""));
        assert!(!glob("*.nft", "a.conf") && !glob("a?", "a"));
    }
}
