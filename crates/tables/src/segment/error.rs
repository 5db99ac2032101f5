//! Why segments are refused.

use super::{NAME_BYTES, VERSION};
use std::io;
use std::path::PathBuf;

/// Why a segment, or an object in it, was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The operating system said no.
    #[error("{doing} {path}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Of which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system has not enough huge pages for a file in hugetlbfs.
    #[error(
        "{path} needs {wanted} free huge pages of {page_bytes} bytes: {source}; \
         raise /proc/sys/vm/nr_hugepages"
    )]
    HugePages {
        /// The file.
        path: PathBuf,
        /// Pages that the segment takes.
        wanted: usize,
        /// Bytes of each.
        page_bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no segment, or belongs to another user.
    #[error("{path} is not a memory segment of this user: {reason}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The segment was made by another version of this crate.
    #[error("segment version {found}, but this program reads version {VERSION}; restart its owner")]
    Version {
        /// What the header says.
        found: u64,
    },
    /// The objects in the segment have another layout.
    #[error(
        "segment layout {found:#018x}, but this program expects {expected:#018x}; restart its owner"
    )]
    Layout {
        /// What the header says.
        found: u64,
        /// What the caller gave.
        expected: u64,
    },
    /// Header or size do not add up.
    #[error("segment is torn: {0}; remove the file")]
    Torn(&'static str),
    /// The owner is dead.
    #[error("segment is stale: its owner (process {owner}) is gone; recover it or remove the file")]
    Stale {
        /// The process that owned it.
        owner: u64,
    },
    /// The owner is alive.
    #[error("segment is owned by process {owner}; stop it first")]
    Owned {
        /// The process that owns it.
        owner: u64,
    },
    /// There is no object of this name.
    #[error("segment has no object {0:?}")]
    NotFound(String),
    /// An object of this name exists.
    #[error("segment has an object {0:?} already; look it up")]
    Exists(String),
    /// The object has another shape than the caller asks for.
    #[error("object {name:?} has {len} items of {item_bytes} bytes, not what was asked for")]
    Shape {
        /// The object.
        name: String,
        /// Its number of items.
        len: u64,
        /// Bytes of an item.
        item_bytes: u64,
    },
    /// The name is empty, too long, or holds a zero byte.
    #[error("object name {0:?} is not 1 to {NAME_BYTES} bytes without zeros")]
    Name(String),
    /// No room for the object.
    #[error("segment is full: {wanted_bytes} bytes wanted, {free_bytes} free; make it larger")]
    Full {
        /// Bytes that the object takes.
        wanted_bytes: usize,
        /// Bytes that are left.
        free_bytes: usize,
    },
    /// The segment is attached read-only.
    #[error("segment is attached read-only")]
    ReadOnly,
}
