//! How a store is made, and what it says it cannot do.

use crate::evict::Policy;
use crate::hash::NameHash;
use tables::memory::Pages;

/// Which unsolicited packets (that no pending Interest asked for) are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnsolicitedPolicy {
    /// None: they are how caches are poisoned (the default, as in NFD).
    #[default]
    DropAll,
    /// Those from applications on this machine.
    AdmitLocal,
    /// Those from the network.
    AdmitNetwork,
    /// All.
    AdmitAll,
}

/// Where an unsolicited packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An application on this machine.
    Local,
    /// The network.
    Network,
}

impl UnsolicitedPolicy {
    pub(crate) const fn admits(self, origin: Origin) -> bool {
        matches!(
            (self, origin),
            (Self::AdmitAll, _)
                | (Self::AdmitLocal, Origin::Local)
                | (Self::AdmitNetwork, Origin::Network)
        )
    }

    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::DropAll => 0,
            Self::AdmitLocal => 1,
            Self::AdmitNetwork => 2,
            Self::AdmitAll => 3,
        }
    }

    pub(crate) const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::AdmitLocal,
            2 => Self::AdmitNetwork,
            3 => Self::AdmitAll,
            _ => Self::DropAll,
        }
    }
}

/// Sizes and choices of a store. All memory is taken when it is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Packets at most.
    pub packets: usize,
    /// Bytes of memory for packets, their headers and the name trie. Pages that were never used cost nothing.
    pub bytes: usize,
    /// Prefixes (inner nodes of the trie) that the lookup table has room for beside the packets.
    pub prefixes: usize,
    /// Workers that can join.
    pub workers: usize,
    /// Which packet leaves when room is needed.
    pub policy: Policy,
    /// The hash of names and its secret key.
    pub hash: NameHash,
    /// Which pages to ask for.
    pub pages: Pages,
    /// Tickets that a worker takes of a ring at once: 1 is the paper's FIFO, more keep workers off each
    /// other's lines. The order is first-in-first-out to within this times the workers.
    pub ticket_run: usize,
    /// Which unsolicited packets are admitted.
    pub unsolicited: UnsolicitedPolicy,
}

/// Bytes of the smallest store: it must have pages for its trie and for large packets at once.
pub(crate) const BYTES_MIN: usize = if cfg!(any(loom, shuttle)) {
    2 << 10
} else {
    4 << 20
};
/// Bytes of the largest store: places are numbers of 31 bits of 16 bytes.
pub(crate) const BYTES_MAX: usize = 32 << 30;

impl Config {
    /// Makes the configuration of a store of `packets` packets of about 1 KiB on `workers` workers, with the
    /// defaults for the rest.
    pub fn for_packets(packets: usize, workers: usize, hash: NameHash) -> Self {
        Self {
            packets,
            bytes: (packets * 1536).clamp(64 << 20, BYTES_MAX),
            prefixes: packets / 2,
            workers,
            policy: Policy::default(),
            hash,
            pages: Pages::Huge,
            ticket_run: (packets / (16 * workers.max(1))).clamp(1, 64),
            unsolicited: UnsolicitedPolicy::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.packets == 0 || self.packets > 1 << 30 {
            return Err(ConfigError::Packets(self.packets));
        }
        if self.bytes < BYTES_MIN || self.bytes > BYTES_MAX {
            return Err(ConfigError::Bytes(self.bytes));
        }
        if self.workers == 0 || self.workers > 1024 {
            return Err(ConfigError::Workers(self.workers));
        }
        if self.packets.saturating_add(self.prefixes) > 1 << 31 {
            return Err(ConfigError::Prefixes(self.prefixes));
        }
        Ok(())
    }
}

/// Why no store can be made so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No packet, or too many.
    #[error("a content store for {0} packets; give 1 to 1073741824")]
    Packets(usize),
    /// Too little memory, or more than places can name.
    #[error("a content store of {0} bytes; give 4 MiB to 32 GiB")]
    Bytes(usize),
    /// No worker, or too many.
    #[error("a content store for {0} workers; give 1 to 1024")]
    Workers(usize),
    /// Too many prefixes.
    #[error(
        "a content store for {0} prefixes; packets and prefixes together are 2147483648 at most"
    )]
    Prefixes(usize),
}

/// Why a packet was not stored. The packet itself may be forwarded all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The admit flag is off.
    #[error("admission is switched off")]
    NotAdmitted,
    /// No Interest asked for the packet and the policy does not admit it.
    #[error("unsolicited packet")]
    Unsolicited,
    /// The packet says that it is not to be cached.
    #[error("packet asks not to be cached")]
    NoCache,
    /// The packet is longer than 8,800 bytes, or empty.
    #[error("packet of no byte or more than 8800")]
    Length,
    /// The name has no component, or more than 256.
    #[error("name of no component or more than 256")]
    Components,
    /// The name does not lie in the packet.
    #[error("name does not lie in the packet")]
    NameOutside,
    /// No memory of the packet's size was free, and evicting did not free any: readers of other workers have
    /// not reported for long, or all that could go is of other sizes.
    #[error("no memory of the packet's size could be freed")]
    NoMemory,
    /// The lookup table has no slot for the packet or one of its prefixes.
    #[error("lookup table is full; make the store with more prefixes")]
    TableFull,
    /// No packet may be evicted: all are pinned.
    #[error("all packets are pinned")]
    NoVictim,
}
