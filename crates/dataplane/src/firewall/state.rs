//! The firewall's tables in a memory segment: a node that was killed or upgraded takes its connections over.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use filter::pipeline::{LAYOUT_VERSION, Recovery, Shared, SharedMemory, Sizes, TrackPolicy};
use tables::memory::{Memory, Source};
use tables::segment::{Segment, SegmentError};

/// How long the last owner may take to die: an upgrade starts the next node as soon as the last one ends.
const OWNER_PATIENCE: Duration = Duration::from_secs(2);

/// Words of the object that says whose tables these are.
pub(super) const IDENTITY: &str = "identity";
pub(super) const IDENTITY_WORDS: usize = 8;
pub(super) const IS_COMPLETE: usize = 6;

/// Why the tables cannot lie where the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another node has them.
    #[error(
        "the connections in {} belong to process {owner}, which runs (stop it, or write another `state` under `[firewall]`)",
        path.display()
    )]
    Owned {
        /// The file.
        path: PathBuf,
        /// The other node.
        owner: u64,
    },
    /// The nodes that share DPDK cannot share them.
    #[error(
        "cannot share connections with the nodes of group `{group}`: {source} (give all the same `connections` and `filtering` under `[firewall]`, or write `state = \"off\"`)"
    )]
    Shared {
        /// The group.
        group: String,
        /// Why not.
        source: io::dpdk::process::SharingError,
    },
    /// As many workers use the tables as may.
    #[error("the firewall's tables have no place for another worker")]
    Workers,
    /// Something else lies there.
    #[error("cannot keep connections in {}: {source} (name another file by `state` under `[firewall]`, or write `state = \"off\"`)", path.display())]
    Segment {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: SegmentError,
    },
}

/// What the node found where its connections are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateReport {
    /// The file.
    pub path: PathBuf,
    /// What was taken over, if anything was.
    pub taken_over: Option<Recovery>,
    /// Why what was there was not taken over.
    pub refused: Option<String>,
    /// How long that took, nanoseconds.
    pub took_ns: u64,
}

/// Makes the tables in the segment `path`, or takes over those that a node that is gone left there. What is a
/// segment but does not fit (other sizes, another version of the program, another boot of the machine) is
/// replaced, and the report says why; what is no segment, or a living node's, is left alone.
pub(super) fn open(
    path: &Path,
    sizes: &Sizes,
    policy: TrackPolicy,
    key: [u64; 4],
    now: wire::Instant,
) -> Result<(Shared, Segment, StateReport), StateError> {
    let start = Instant::now();
    let fault = |source| StateError::Segment {
        path: path.to_owned(),
        source,
    };
    let layout = layout_of(sizes);
    let (segment, refused) = match take_over(path, layout) {
        Ok(Some(segment)) => (segment, None),
        Ok(None) => (create(path, sizes, layout).map_err(fault)?, None),
        Err(Refusal::Replace(reason)) => {
            std::fs::remove_file(path).map_err(|source| {
                fault(SegmentError::System {
                    doing: "remove",
                    path: path.to_owned(),
                    source,
                })
            })?;
            (create(path, sizes, layout).map_err(fault)?, Some(reason))
        }
        Err(Refusal::Stop(SegmentError::Owned { owner })) => {
            return Err(StateError::Owned {
                path: path.to_owned(),
                owner,
            });
        }
        Err(Refusal::Stop(source)) => return Err(fault(source)),
    };
    let mut source = &segment;
    let identity: Memory<AtomicU64> = source.take(IDENTITY, IDENTITY_WORDS).map_err(fault)?;
    let memory = SharedMemory::from_source(&mut source, sizes).map_err(fault)?;
    let was_complete = identity[IS_COMPLETE].load(Ordering::Acquire) == 1;
    let key = if was_complete {
        core::array::from_fn(|word| identity[word].load(Ordering::Relaxed))
    } else {
        let boot = boot_id();
        let words = [key[0], key[1], key[2], key[3], boot[0], boot[1], 1];
        // The last word says that the others are there; a node killed before has stored no connection yet.
        for (word, value) in identity.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
        key
    };
    let (shared, recovery) = Shared::recover(sizes, policy, key, memory, now);
    let report = StateReport {
        path: path.to_owned(),
        taken_over: was_complete.then_some(recovery),
        refused,
        took_ns: start.elapsed().as_nanos() as u64,
    };
    Ok((shared, segment, report))
}

/// What becomes of a file that is not taken over.
enum Refusal {
    /// It is ours, and of no use any more.
    Replace(String),
    /// It is not ours to touch.
    Stop(SegmentError),
}

/// Takes over the segment `path`; `None` if there is none.
fn take_over(path: &Path, layout: u64) -> Result<Option<Segment>, Refusal> {
    let deadline = Instant::now() + OWNER_PATIENCE;
    let segment = loop {
        match Segment::recover(path, layout) {
            Ok(segment) => break segment,
            Err(SegmentError::Owned { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(SegmentError::System { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            Err(SegmentError::Layout { .. }) => {
                return Err(Refusal::Replace(
                    "they are of another version of the program, or of tables of other sizes \
                     (`connections`, `filtering`)"
                        .into(),
                ));
            }
            Err(error @ (SegmentError::Version { .. } | SegmentError::Torn(_))) => {
                return Err(Refusal::Replace(error.to_string()));
            }
            Err(error) => return Err(Refusal::Stop(error)),
        }
    };
    let identity = segment.view::<AtomicU64>(IDENTITY).ok();
    let boot = boot_id();
    let other_boot = identity.is_some_and(|identity| {
        identity.len() == IDENTITY_WORDS
            && identity.get(IS_COMPLETE) == 1
            && [identity.get(4), identity.get(5)] != boot
    });
    if other_boot {
        // Deadlines are on a clock that begins with the boot.
        return Err(Refusal::Replace(
            "they are from before the last boot of the machine".into(),
        ));
    }
    Ok(Some(segment))
}

fn create(path: &Path, sizes: &Sizes, layout: u64) -> Result<Segment, SegmentError> {
    let identity = (IDENTITY_WORDS * 8).next_multiple_of(4096);
    let bytes = Segment::OVERHEAD_BYTES + identity + SharedMemory::segment_bytes(sizes);
    Segment::create(path, bytes, layout)
}

/// A number for everything that the objects' lengths and meaning depend on.
pub(super) fn layout_of(sizes: &Sizes) -> u64 {
    let words = [
        LAYOUT_VERSION as usize,
        sizes.connections4,
        sizes.connections6,
        sizes.sources,
        sizes.nat.mappings,
        sizes.nat.addresses,
        sizes.nat.permits,
        sizes.expectations,
    ];
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &word| {
        (hash ^ word as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

/// The kernel's random number of this boot; zeros where there is none.
fn boot_id() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    let number = u128::from_str_radix(&digits, 16).unwrap_or(0);
    [(number >> 64) as u64, number as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(connections: usize) -> Sizes {
        let mut sizes = Sizes {
            connections4: connections,
            connections6: 64,
            sources: 64,
            workers: 2,
            ..Sizes::default()
        };
        sizes.nat.mappings = connections;
        sizes
    }

    fn open_at(
        path: &Path,
        connections: usize,
    ) -> Result<(Shared, Segment, StateReport), StateError> {
        let policy = TrackPolicy::default();
        let now = wire::Instant::from_ns(1_000_000_000);
        open(path, &sizes(connections), policy, [1; 4], now)
    }

    #[test]
    fn what_fits_is_taken_over_and_what_does_not_is_replaced_or_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (_, segment, report) = open_at(&path, 128).unwrap();
        assert_eq!((report.taken_over, report.refused), (None, None));
        drop(segment);
        let (_, segment, report) = open_at(&path, 128).unwrap();
        assert_eq!(report.taken_over, Some(Recovery::default()));
        drop(segment);
        let (_, segment, report) = open_at(&path, 256).unwrap();
        assert!(report.refused.unwrap().contains("other sizes"));
        assert_eq!(report.taken_over, None);
        // As after a reboot.
        let identity = segment.lookup::<AtomicU64>(IDENTITY).unwrap();
        identity[4].store(7, Ordering::Relaxed);
        drop((segment, identity));
        let (_, segment, report) = open_at(&path, 256).unwrap();
        assert!(report.refused.unwrap().contains("boot"));
        drop(segment);
        std::fs::write(&path, [7; 100_000]).unwrap();
        let foreign = open_at(&path, 256).unwrap_err();
        assert!(foreign.to_string().contains("no header"), "{foreign}");
        assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
    }
}
