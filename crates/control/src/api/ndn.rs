//! The named-data forwarder.

use serde::{Deserialize, Serialize};

use super::DropInfo;

/// What the forwarder holds and what passed it, summed over workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdnInfo {
    /// Where it listens, as FaceUris.
    pub channels: Vec<String>,
    /// Faces, without the internal ones.
    pub faces: u64,
    /// Prefixes in the FIB.
    pub fib_prefixes: u64,
    /// Routes in the RIB.
    pub routes: u64,
    /// Pending Interests.
    pub pit_entries: u64,
    /// The content store.
    pub store: NdnStoreInfo,
    /// Interests received.
    pub in_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// Pending Interests that Data came for.
    pub satisfied: u64,
    /// Pending Interests that ended without Data.
    pub unsatisfied: u64,
    /// NDN packets dropped by reason; reasons that never occurred are left out.
    pub drops: Vec<DropInfo>,
}

/// The content store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdnStoreInfo {
    /// Packets that it holds.
    pub packets: u64,
    /// Packets that it holds at most.
    pub capacity_packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Which packet leaves when room is needed.
    pub policy: String,
    /// Interests that it answered.
    pub hits: u64,
    /// Interests that it did not answer.
    pub misses: u64,
    /// Its disk tier, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<NdnDiskInfo>,
}

/// The disk tier of the content store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdnDiskInfo {
    /// Packets that were there when the node started.
    pub recovered: u64,
    /// Segments with a torn or damaged end, which was cut.
    pub cut: u64,
    /// Packets written.
    pub written: u64,
    /// Packets not written, as the disk was behind or the index full.
    pub dropped: u64,
    /// Reads that found their packet.
    pub found: u64,
    /// Reads that did not.
    pub lost: u64,
    /// Operations on the file that failed.
    pub failed: u64,
    /// Memory of the index, bytes.
    pub index_bytes: u64,
}
