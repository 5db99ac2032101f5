//! Which worker owns which name.

use alloc::sync::Arc;

use wire::ndn::lp::LpPacket;
use wire::ndn::{DecodeError, NameRef, Tlv, types};

use crate::hash::NameHasher;
use crate::pit::PendingFilter;

/// How names are spread over workers. All workers of a node have the same.
///
/// A name belongs to the worker that its keyed hash names, the implicit digest left out; the Interest and the
/// Data of one name thus meet on one worker, whoever received them, and no token is asked of applications.
/// A CanBePrefix Interest waits on the worker of its own name; Data finds it there by the
/// [`PendingFilter`].
#[derive(Clone, Debug)]
pub struct Partition {
    workers: u32,
    hasher: NameHasher,
    pending: Arc<PendingFilter>,
}

impl Partition {
    /// Spreads names over `workers` workers; `prefix_counters` sizes the [`PendingFilter`].
    ///
    /// # Panics
    /// If `workers` is 0 or more than 64.
    pub fn new(workers: usize, hasher: NameHasher, prefix_counters: usize) -> Self {
        assert!((1..=64).contains(&workers), "1 to 64 workers");
        Self {
            workers: workers as u32,
            hasher,
            pending: Arc::new(PendingFilter::new(prefix_counters)),
        }
    }

    /// Returns the number of workers.
    pub const fn workers(&self) -> usize {
        self.workers as usize
    }

    /// Returns the hash function of names.
    pub const fn hasher(&self) -> NameHasher {
        self.hasher
    }

    /// Returns the counters of pending CanBePrefix Interests.
    pub fn pending(&self) -> &PendingFilter {
        &self.pending
    }

    /// Returns the worker of a name's hash.
    pub const fn owner(&self, hash: u64) -> usize {
        (((hash >> 32) * self.workers as u64) >> 32) as usize
    }

    /// Returns the worker of a network packet: reads its name and hashes it.
    ///
    /// # Errors
    /// What is wrong with the outer element or the name.
    pub fn owner_of_packet(&self, packet: &[u8]) -> Result<usize, DecodeError> {
        let outer = Tlv::read(packet)?;
        let name = Tlv::read(outer.value)?;
        if name.tlv_type != types::NAME {
            return Err(DecodeError::Missing);
        }
        if self.workers == 1 {
            return Ok(0);
        }
        let (stem, _) = NameRef::new(name.value)?.split_implicit_digest();
        Ok(self.owner(self.hasher.hash(stem)))
    }

    /// Returns the worker of a whole link packet that is not a fragment of a larger one.
    ///
    /// # Errors
    /// As [`owner_of_packet`](Self::owner_of_packet).
    pub fn owner_of_frame(&self, frame: &[u8]) -> Result<usize, DecodeError> {
        let link = LpPacket::parse(frame)?;
        self.owner_of_packet(link.fragment.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ndn::name::Name;

    #[test]
    fn names_spread_evenly_and_digests_do_not_count() {
        let partition = Partition::new(3, NameHasher::new([7, 8]), 16);
        let hasher = partition.hasher();
        let mut counts = [0; 3];
        for number in 0..3000 {
            let name: Name = std::format!("/a/{number}").parse().unwrap();
            let owner = partition.owner(hasher.hash(name.as_ref()));
            counts[owner] += 1;
            let full = name.with_implicit_digest(&[9; 32]);
            let mut packet = [0; 100];
            let length = wire::ndn::InterestFields::new(full.as_ref())
                .encode(&mut packet)
                .unwrap();
            assert_eq!(partition.owner_of_packet(&packet[..length]), Ok(owner));
            assert_eq!(partition.owner_of_frame(&packet[..length]), Ok(owner));
        }
        assert!(counts.iter().all(|&count| count > 900), "{counts:?}");
        assert!(partition.owner_of_packet(&[5, 2, 8, 0]).is_err());
    }
}
