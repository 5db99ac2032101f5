//! The node as a whole.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    DropInfo, FirewallInfo, GraphNodeInfo, LinkInfo, NdnInfo, PortInfo, Timestamp, WorkerInfo,
};

/// Everything that is counted, read at one moment: the answer to `stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// When the counters were read.
    pub at: Timestamp,
    /// The process.
    pub node: NodeInfo,
    /// The workers, by id.
    pub workers: Vec<WorkerInfo>,
    /// The ports, by id.
    pub ports: Vec<PortInfo>,
    /// The impaired links, by id.
    #[serde(default)]
    pub links: Vec<LinkInfo>,
    /// The firewall, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<FirewallInfo>,
    /// The stages of the packet graph, summed over workers, in the order of the path.
    pub stages: Vec<GraphNodeInfo>,
    /// Drops summed over workers; reasons that never occurred are left out.
    pub drops: Vec<DropInfo>,
    /// The named-data forwarder, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ndn: Option<NdnInfo>,
}

/// The process that runs the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Name from the configuration.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// When the node started.
    pub started_at: Timestamp,
    /// Nanoseconds since the node started, on the monotonic clock.
    pub uptime_ns: u64,
    /// The configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// How many configurations were put in force, the first included.
    pub config_generation: u64,
    /// Idle mode of ports that do not choose their own: `hybrid`, `poll`, `interrupt`, `paper`.
    pub idle_mode: String,
    /// Latency that the idle policy may add, p99, microseconds.
    pub latency_budget_us: u32,
    /// Memory for frames.
    pub frames: FramesInfo,
}

/// Memory for frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramesInfo {
    /// Frames that each worker owns.
    pub per_worker: u32,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// Kind of pages in force, e.g. `huge 2 MiB` or `normal 4 KiB`.
    pub pages: String,
    /// Why better pages were refused, if they were.
    pub refused: Option<String>,
}
