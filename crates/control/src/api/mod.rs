//! What the node tells about itself: the one schema behind every `--json`, the control socket and
//! the live displays.
//!
//! Keys are snake_case, counters are integers that only grow while the node runs, times are RFC 3339
//! ([`Timestamp`]) and durations are integers with their unit last in the name. A key is never
//! renamed or given another meaning; readers must ignore keys that they do not know.

mod demo;
mod drops;
mod firewall;
mod forwarding;
mod link;
mod ndn;
mod node;
mod port;
mod protocol;
mod report;
mod rules;
mod session;
mod worker;

pub use demo::{DemoPhase, DemoReport, DemoResult};
pub use drops::{DropInfo, DropSeverity};
pub use firewall::{FirewallInfo, FirewallState, GuardAttack, GuardInfo, TakenOver};
pub use forwarding::{
    BridgeInfo, NeighbourInfo, NeighbourState, RouteInfo, RouteKind, StationInfo,
};
pub use link::{LinkDirection, LinkInfo};
pub use ndn::{NdnDiskInfo, NdnInfo, NdnKernelInfo, NdnKernelOutcome, NdnKernelPort, NdnStoreInfo};
pub use node::{FramesInfo, NodeInfo, Stats};
pub use port::{DriverCounter, InterruptKind, PortCounters, PortInfo, QueueInfo};
pub use protocol::{
    ApiError, Attachment, CapturePoint, CaptureRequest, ErrorCode, Event, MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION, Reply, Request,
};
pub use report::{CheckReport, CheckStatus, DoctorCheck, DoctorReport, InterfaceModes, ModeProbe};
pub use rules::{
    ConnectionState, DeniedConnection, FlowChange, FlowOutcome, HookInfo, PacketExplanation,
    RuleChange, RuleInfo, RuleReference, TrialReport,
};
pub use session::{
    AddressRange, SessionChange, SessionEvent, SessionFilter, SessionInfo, SessionPage,
    SessionRequest, SessionTuple,
};
pub use worker::{BurstHistogram, EdgeInfo, GraphNodeInfo, StateTimes, WorkerInfo, WorkerState};

/// A point in time: RFC 3339 in UTC when serialised.
pub type Timestamp = jiff::Timestamp;
