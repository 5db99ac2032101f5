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
    /// Its part in the kernel's packet path, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<NdnKernelInfo>,
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

/// The part of the content store in the kernel's packet path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdnKernelInfo {
    /// Where it answers.
    pub ports: Vec<NdnKernelPort>,
    /// Packets that it holds.
    pub packets: u64,
    /// Packets that it holds at most.
    pub capacity_packets: u64,
    /// Bytes of memory that it has.
    pub memory_bytes: u64,
    /// Interests that it answered.
    pub hits: u64,
    /// Interests that it looked up and passed on.
    pub misses: u64,
    /// What a run of a program took, ns on average, while `kernel.bpf_stats_enabled` was set; `None` if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ns: Option<u64>,
    /// Packets that the content store put into the kernel.
    pub promoted: u64,
    /// Packets that were taken out, as the content store had them no more.
    pub removed: u64,
    /// Packets that gave way to others.
    pub evicted: u64,
    /// Packets that the kernel does not take: too long, or with a name that it does not look up.
    pub refused: u64,
    /// What became of the frames that its programs saw; outcomes that never occurred are left out.
    pub outcomes: Vec<NdnKernelOutcome>,
}

/// A port or interface on which the kernel answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdnKernelPort {
    /// Name of the port, or of the interface of UDP sockets.
    pub name: String,
    /// Where the program stands: `xdp`, `xdp generic`, `tc`, or `af_xdp` in front of these sockets.
    pub mode: String,
    /// Why there.
    pub why: String,
}

/// A number of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdnKernelOutcome {
    /// Its name.
    pub outcome: String,
    /// What it means.
    pub text: String,
    /// Frames.
    pub frames: u64,
}
