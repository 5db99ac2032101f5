//! The firewall's tables in DPDK's memory, where the nodes of a group have them in common (LF-2): the primary process
//! makes them, its guests look them up by name, and each goes on with them when another dies.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use control::config::DpdkConfig;
use filter::pipeline::{Coordination, Shared, SharedMemory, Sizes, TrackPolicy};
use io::dpdk::process::{self, SharingError};
use tables::memory::{Memory, Source};
use tables::segment::{Segment, SegmentError};

use super::state::{IDENTITY, IDENTITY_WORDS, IS_COMPLETE, StateError, StateReport, layout_of};

/// The memzone's name.
const ZONE: &str = "tidegate_firewall";
/// The word of [`IDENTITY`] that says for how many guests there are places.
const GUESTS: usize = 7;
/// Workers that a guest has, and the one that ends connections by command.
const GUEST_PLACES: usize = 2;
/// Bits of an epoch that say whose it is.
const PART_BITS: u32 = 6;
/// Bits of an epoch that the engine notes with a verdict.
const EPOCH_BITS: u32 = 20;

/// A process's place among those that have the tables in common.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Places of the primary process.
    primary_places: usize,
    guests: u16,
    /// This process; `None` is the primary.
    guest: Option<u16>,
}

impl Member {
    /// The places of a process among all participants.
    fn places_of(&self, guest: Option<u16>) -> Range<usize> {
        match guest {
            None => 0..self.primary_places,
            Some(guest) => {
                let start = self.primary_places + usize::from(guest) * GUEST_PLACES;
                start..start + GUEST_PLACES
            }
        }
    }

    fn participants(&self) -> usize {
        self.primary_places + usize::from(self.guests) * GUEST_PLACES
    }

    /// Makes the epoch of a generation of this process's rules and routes: no other process has the same, so that
    /// none replays a verdict that another's rules gave.
    pub(super) fn epoch(&self, generation: u64) -> u32 {
        let part = self.guest.map_or(0, |guest| u32::from(guest) + 1);
        let low = generation as u32 & ((1 << (EPOCH_BITS - PART_BITS)) - 1);
        part << (EPOCH_BITS - PART_BITS) | low
    }

    /// Frees the places of processes that have died. The primary looks after its guests; when it is dead, they look
    /// after each other.
    pub(super) fn bury_the_dead(&self, tables: &Shared, segment: &Segment) {
        let primary_lives = self.guest.is_none() || segment.has_living_owner();
        if !primary_lives {
            tables.evict(self.places_of(None));
        }
        if self.guest.is_none() || !primary_lives {
            for guest in (0..self.guests).filter(|guest| Some(*guest) != self.guest) {
                process::without_guest(guest, || tables.evict(self.places_of(Some(guest))));
            }
        }
    }
}

/// Makes the tables in DPDK's memory, or, as a guest, finds them there.
pub(super) fn open(
    dpdk: &DpdkConfig,
    sizes: &Sizes,
    policy: TrackPolicy,
    key: [u64; 4],
) -> Result<(Shared, Segment, StateReport, Member), StateError> {
    let start = Instant::now();
    let mut member = Member {
        primary_places: sizes.workers,
        guests: dpdk.guests,
        guest: dpdk.guest,
    };
    let (shared, segment) =
        open_as(&mut member, sizes, policy, key).map_err(|source| StateError::Shared {
            group: dpdk.group.clone(),
            source,
        })?;
    let report = StateReport {
        path: PathBuf::from(format!("dpdk:{}/{ZONE}", dpdk.group)),
        taken_over: None,
        refused: None,
        took_ns: start.elapsed().as_nanos() as u64,
    };
    Ok((shared, segment, report, member))
}

fn open_as(
    member: &mut Member,
    sizes: &Sizes,
    policy: TrackPolicy,
    key: [u64; 4],
) -> Result<(Shared, Segment), SharingError> {
    let layout = layout_of(sizes);
    let is_guest = member.guest.is_some();
    let segment = if is_guest {
        process::attach_segment(ZONE, layout)?
    } else {
        let identity = (IDENTITY_WORDS * 8).next_multiple_of(4096);
        let tables = SharedMemory::segment_bytes(sizes);
        let coordination = Coordination::segment_bytes(member.participants());
        let bytes = Segment::OVERHEAD_BYTES + identity + tables + coordination;
        process::create_segment(ZONE, bytes, layout)?
    };
    let mut source = &segment;
    let identity: Memory<AtomicU64> = source.take(IDENTITY, IDENTITY_WORDS)?;
    let key = if is_guest {
        // Acquire: pairs with the release store of the last word below.
        if identity[IS_COMPLETE].load(Ordering::Acquire) != 1 {
            // The primary opens its ports later, and without them no guest gets here.
            return Err(SegmentError::NotFound(IDENTITY.to_owned()).into());
        }
        member.guests = identity[GUESTS].load(Ordering::Relaxed) as u16;
        core::array::from_fn(|word| identity[word].load(Ordering::Relaxed))
    } else {
        for (word, value) in identity.iter().zip(key) {
            word.store(value, Ordering::Relaxed);
        }
        identity[GUESTS].store(member.guests.into(), Ordering::Relaxed);
        key
    };
    let memory = SharedMemory::from_source(&mut source, sizes)?;
    let coordination = Coordination::from_source(&mut source, member.participants())?;
    let places = member.places_of(member.guest);
    let shared = Shared::beside_others(policy, key, memory, coordination, places, io::cpu::now());
    if !is_guest {
        // Release: who sees it sees the key and all tables.
        identity[IS_COMPLETE].store(1, Ordering::Release);
    }
    Ok((shared, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_epochs_of_processes_are_apart() {
        let member = |guest| Member {
            primary_places: 3,
            guests: 2,
            guest,
        };
        let all = [None, Some(0), Some(1)].map(|guest| member(guest).places_of(guest));
        assert_eq!(all, [0..3, 3..5, 5..7]);
        assert_eq!(member(None).participants(), 7);
        let epochs = [None, Some(0), Some(62)].map(|guest| member(guest).epoch(1 << 14 | 5));
        assert_eq!(epochs, [5, 1 << 14 | 5, 63 << 14 | 5]);
        assert!(epochs.iter().all(|epoch| epoch >> EPOCH_BITS == 0));
    }
}
