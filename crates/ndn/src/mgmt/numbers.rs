//! TLV-TYPE numbers and bits of the management protocol (NFD wiki, "Management").

pub(super) const CONTROL_PARAMETERS: u32 = 104;
pub(super) const FACE_ID: u32 = 105;
pub(super) const URI: u32 = 114;
pub(super) const LOCAL_URI: u32 = 129;
pub(super) const ORIGIN: u32 = 111;
pub(super) const COST: u32 = 106;
pub(super) const CAPACITY: u32 = 131;
pub(super) const COUNT: u32 = 132;
pub(super) const FLAGS: u32 = 108;
pub(super) const MASK: u32 = 112;
pub(super) const STRATEGY: u32 = 107;
pub(super) const EXPIRATION_PERIOD: u32 = 109;
pub(super) const FACE_PERSISTENCY: u32 = 133;
pub(super) const BASE_CONGESTION_INTERVAL: u32 = 135;
pub(super) const DEFAULT_CONGESTION_THRESHOLD: u32 = 136;
pub(super) const MTU: u32 = 137;

pub(super) const CONTROL_RESPONSE: u32 = 101;
pub(super) const STATUS_CODE: u32 = 102;
pub(super) const STATUS_TEXT: u32 = 103;

/// The outer element of an entry of every dataset but ChannelStatus.
pub(super) const DATASET_ENTRY: u32 = 128;
/// Inside an entry of FIB or RIB.
pub(super) const DATASET_RECORD: u32 = 129;
pub(super) const CHANNEL_STATUS: u32 = 130;
pub(super) const FACE_SCOPE: u32 = 132;
pub(super) const LINK_TYPE: u32 = 134;
pub(super) const URI_SCHEME: u32 = 131;
pub(super) const FACE_QUERY_FILTER: u32 = 150;

pub(super) const N_IN_INTERESTS: u32 = 144;
pub(super) const N_IN_DATA: u32 = 145;
pub(super) const N_OUT_INTERESTS: u32 = 146;
pub(super) const N_OUT_DATA: u32 = 147;
pub(super) const N_IN_BYTES: u32 = 148;
pub(super) const N_OUT_BYTES: u32 = 149;
pub(super) const N_IN_NACKS: u32 = 151;
pub(super) const N_OUT_NACKS: u32 = 152;
pub(super) const N_SATISFIED: u32 = 153;
pub(super) const N_UNSATISFIED: u32 = 154;

pub(super) const NFD_VERSION: u32 = 128;
pub(super) const START_TIMESTAMP: u32 = 129;
pub(super) const CURRENT_TIMESTAMP: u32 = 130;
pub(super) const N_NAME_TREE_ENTRIES: u32 = 131;
pub(super) const N_FIB_ENTRIES: u32 = 132;
pub(super) const N_PIT_ENTRIES: u32 = 133;
pub(super) const N_MEASUREMENTS_ENTRIES: u32 = 134;
pub(super) const N_CS_ENTRIES: u32 = 135;

pub(super) const CS_HITS: u32 = 129;
pub(super) const CS_MISSES: u32 = 130;
/// Of ours: what is on disk. Even, and above 31, so that readers who do not know it pass over it.
pub(super) const CS_DISK: u32 = 64_000;
/// The elements in it, in [`DiskInfo`](crate::DiskInfo)'s order, by even numbers from this one.
pub(super) const CS_DISK_FIRST: u32 = 64_002;

pub(super) const FACE_EVENT_NOTIFICATION: u32 = 192;
pub(super) const FACE_EVENT_KIND: u32 = 193;

/// Bits of a face's flags.
pub(super) const FACE_LOCAL_FIELDS: u64 = 1;
pub(super) const FACE_RELIABILITY: u64 = 2;
pub(super) const FACE_CONGESTION_MARKING: u64 = 4;

/// Bits of the content store's flags.
pub(super) const CS_ADMIT: u64 = 1;
pub(super) const CS_SERVE: u64 = 2;
