//! Memory segments in reserved huge pages (LF-2). Needs root: it reserves pages for a moment and mounts
//! hugetlbfs.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tables::segment::{Access, Segment, SegmentError};

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
const PAGE_BYTES: usize = 2 << 20;
/// Pages that the test takes.
const PAGES: usize = 6;

fn number(path: &str) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn free_pages() -> usize {
    number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
}

fn skipped(why: &str) {
    let strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!strict, "segments_in_huge_pages needs {why}");
    println!("SKIPPED segments_in_huge_pages: {why}");
}

/// Gives the pages back.
struct Reserved(usize);

impl Reserved {
    fn more(pages: usize) -> Option<Self> {
        let before = number(RESERVED);
        std::fs::write(RESERVED, (before + pages).to_string()).ok()?;
        let reserved = Self(before);
        (free_pages() >= pages).then_some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = std::fs::write(RESERVED, self.0.to_string());
    }
}

/// Takes the mount away.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn hugetlbfs() -> nix::Result<Self> {
        let directory = tempfile::tempdir().expect("a directory to mount on");
        let kind = Some("hugetlbfs");
        mount(kind, directory.path(), kind, MsFlags::empty(), None::<&str>)?;
        Ok(Self(directory))
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.0.path()).map_or(0, Iterator::count)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

fn uses(segment: &Segment) {
    assert!(segment.has_huge_pages());
    assert_eq!(segment.size_bytes() % PAGE_BYTES, 0);
    // Beyond the first page.
    let words = segment.reserve::<AtomicU64>("words", 400_000).unwrap();
    assert!(words.has_huge_pages());
    assert_eq!(words[399_999].load(Ordering::Relaxed), 0);
    words[399_999].store(7, Ordering::Relaxed);
}

fn in_hugetlbfs(mounted: &Mounted) {
    let path = mounted.0.path().join("segment");
    let owner = Segment::create(&path, 3 << 20, 9).unwrap();
    uses(&owner);
    let reader = Segment::attach(&path, 9, Access::ReadOnly).unwrap();
    assert!(reader.has_huge_pages());
    assert_eq!(reader.view::<AtomicU64>("words").unwrap().get(399_999), 7);
    drop(owner);
    assert!(matches!(
        Segment::attach(&path, 9, Access::ReadOnly),
        Err(SegmentError::Stale { .. })
    ));
    let heir = Segment::recover(&path, 9).unwrap();
    let words = heir.lookup::<AtomicU64>("words").unwrap();
    assert_eq!(words[399_999].load(Ordering::Relaxed), 7);
    refused(Segment::create(&mounted.0.path().join("large"), 1 << 30, 9));
    assert_eq!(mounted.files(), 1, "a refused segment left a file");
    heir.remove().unwrap();
}

/// The error names what is missing and the remedy.
fn refused(made: Result<Segment, SegmentError>) {
    let error = made.expect_err("more pages than there are");
    assert!(
        matches!(
            error,
            SegmentError::HugePages {
                page_bytes: PAGE_BYTES,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("raise /proc/sys/vm/nr_hugepages")
    );
}

#[test]
fn segments_in_huge_pages() {
    if !Path::new(RESERVED).exists() {
        return skipped("huge pages in the kernel");
    }
    if !nix::unistd::geteuid().is_root() {
        return skipped("root");
    }
    refused(Segment::memfd_huge(
        "large",
        (free_pages() + 64) * PAGE_BYTES,
        9,
    ));
    let Some(_reserved) = Reserved::more(PAGES) else {
        return skipped("12 MiB of free memory in one piece each of 2 MiB");
    };
    uses(&Segment::memfd_huge("huge", 4 << 20, 9).unwrap());
    match Mounted::hugetlbfs() {
        Ok(mounted) => in_hugetlbfs(&mounted),
        Err(error) => skipped(&format!("a mount of hugetlbfs ({error})")),
    }
}
