//! Segments against what can be wrong with them.

use super::*;

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(format!(
        "/dev/shm/tidegate-test-{}-{name}",
        std::process::id()
    ))
}

struct Removed(PathBuf);
impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn objects_are_found_by_name_and_shape() {
    let segment = Segment::heap(1 << 20, 1).unwrap();
    let a = segment.reserve::<AtomicU64>("a", 10).unwrap();
    let b = segment.reserve::<[AtomicU64; 8]>("b", 3).unwrap();
    a[9].store(7, Ordering::Relaxed);
    b[2][7].store(8, Ordering::Relaxed);
    assert_eq!(
        segment.lookup::<AtomicU64>("a").unwrap()[9].load(Ordering::Relaxed),
        7
    );
    assert_eq!(segment.view::<AtomicU64>("a").unwrap().get(9), 7);
    assert!(matches!(
        segment.reserve::<AtomicU64>("a", 1),
        Err(SegmentError::Exists(_))
    ));
    assert!(matches!(
        segment.lookup::<AtomicU64>("b"),
        Err(SegmentError::Shape { .. })
    ));
    assert!(matches!(
        segment.lookup::<AtomicU64>("c"),
        Err(SegmentError::NotFound(_))
    ));
    assert!(matches!(
        segment.reserve::<AtomicU64>("", 1),
        Err(SegmentError::Name(_))
    ));
    let full = segment.reserve::<AtomicU64>("large", 1 << 20);
    assert!(matches!(full, Err(SegmentError::Full { .. })));
    assert_eq!(
        segment.objects(),
        [("a".to_owned(), 80), ("b".to_owned(), 192)]
    );
    segment.reserve::<AtomicU64>("none", 0).unwrap();
}

#[test]
fn a_living_owner_is_attached_to_and_a_dead_one_recovered() {
    let path = scratch("owner");
    let _removed = Removed(path.clone());
    let owner = Segment::create(&path, 1 << 20, 9).unwrap();
    owner.reserve::<AtomicU64>("a", 1).unwrap()[0].store(3, Ordering::Relaxed);
    assert!(matches!(
        Segment::create(&path, 1, 9),
        Err(SegmentError::System { .. })
    ));
    assert!(matches!(
        Segment::recover(&path, 9),
        Err(SegmentError::Owned { .. })
    ));
    let reader = Segment::attach(&path, 9, Access::ReadOnly).unwrap();
    assert_eq!(reader.view::<AtomicU64>("a").unwrap().get(0), 3);
    assert!(matches!(
        reader.lookup::<AtomicU64>("a"),
        Err(SegmentError::ReadOnly)
    ));
    assert!(matches!(
        reader.reserve::<AtomicU64>("b", 1),
        Err(SegmentError::ReadOnly)
    ));
    let writer = Segment::attach(&path, 9, Access::ReadWrite).unwrap();
    writer.lookup::<AtomicU64>("a").unwrap()[0].store(4, Ordering::Relaxed);
    assert_eq!(reader.view::<AtomicU64>("a").unwrap().get(0), 4);
    assert!(matches!(
        Segment::attach(&path, 8, Access::ReadOnly),
        Err(SegmentError::Layout {
            found: 9,
            expected: 8
        })
    ));
    drop(owner);
    assert!(!reader.has_living_owner());
    let stale = Segment::attach(&path, 9, Access::ReadOnly);
    assert!(matches!(stale, Err(SegmentError::Stale { .. })));
    let heir = Segment::recover(&path, 9).unwrap();
    assert_eq!((heir.generation(), reader.generation()), (2, 2));
    assert_eq!(
        heir.lookup::<AtomicU64>("a").unwrap()[0].load(Ordering::Relaxed),
        4
    );
    heir.remove().unwrap();
}

#[test]
fn foreign_and_torn_files_are_refused() {
    let path = scratch("foreign");
    let _removed = Removed(path.clone());
    let refused = |path: &Path| Segment::attach(path, 9, Access::ReadOnly).unwrap_err();
    assert!(matches!(refused(&path), SegmentError::System { .. }));
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(refused(&path), SegmentError::Foreign { .. }));
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    assert!(matches!(refused(&path), SegmentError::Foreign { .. }));
    std::fs::remove_file(&path).unwrap();
    let segment = Segment::create(&path, 1 << 20, 9).unwrap();
    segment.reserve::<AtomicU64>("a", 5).unwrap();
    let image = std::fs::read(&path).unwrap();
    let with_word = |at: usize, value: u64| {
        let mut image = image.clone();
        image[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
        std::fs::write(&path, image).unwrap();
        refused(&path)
    };
    assert!(matches!(
        with_word(word::VERSION, 99),
        SegmentError::Version { found: 99 }
    ));
    assert!(matches!(with_word(word::SIZE, 5), SegmentError::Torn(_)));
    assert!(matches!(
        with_word(word::ENTRIES, 1 << 40),
        SegmentError::Torn(_)
    ));
    let offset_of_a = PAGE_BYTES / 8 + 3;
    assert!(matches!(
        with_word(offset_of_a, 1 << 40),
        SegmentError::Torn(_)
    ));
    std::fs::write(&path, &image[..image.len() / 2]).unwrap();
    assert!(matches!(refused(&path), SegmentError::Torn(_)));
    // A segment that was written back by `write` has no living owner, whatever it says.
    drop(segment);
    std::fs::write(&path, &image).unwrap();
    assert!(matches!(refused(&path), SegmentError::Stale { .. }));
}

#[test]
fn shared_memory_holds_a_segment_that_an_heir_takes_over() {
    let lock = scratch("shared-memory");
    let _removed = Removed(lock.clone());
    let bytes = 1 << 20;
    let mapping = crate::mapping::Mapping::anonymous(bytes).unwrap();
    // SAFETY: the mapping outlives all segments in it, and only they use it.
    let memory = unsafe { SharedMemory::new(mapping.start(), bytes) };
    let refused = Segment::attach_in(memory, &lock, 9);
    assert!(matches!(refused, Err(SegmentError::Foreign { .. })));
    let owner = Segment::create_in(memory, &lock, 9).unwrap();
    owner.reserve::<AtomicU64>("a", 5).unwrap()[3].store(7, Ordering::Relaxed);
    let second = Segment::create_in(memory, &lock, 9);
    assert!(
        matches!(second, Err(SegmentError::Owned { .. })),
        "{second:?}"
    );
    let other = Segment::attach_in(memory, &lock, 9).unwrap();
    assert_eq!(other.view::<AtomicU64>("a").unwrap().get(3), 7);
    assert!(matches!(
        Segment::recover_in(memory, &lock, 9),
        Err(SegmentError::Owned { .. })
    ));
    drop(owner);
    assert!(!other.has_living_owner());
    let heir = Segment::recover_in(memory, &lock, 9).unwrap();
    assert_eq!(heir.view::<AtomicU64>("a").unwrap().get(3), 7);
    assert_eq!(other.generation(), 2);
    drop((heir, other));
    let fresh = Segment::create_in(memory, &lock, 9).unwrap();
    assert!(fresh.objects().is_empty(), "a new one is empty");
    // SAFETY: as above.
    let small = unsafe { SharedMemory::new(mapping.start(), PAGE_BYTES) };
    let refused = Segment::create_in(small, &lock, 9);
    assert!(matches!(refused, Err(SegmentError::Foreign { .. })));
}
