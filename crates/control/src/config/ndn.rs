//! `[ndn]` and its tables: the named-data forwarder.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The port of NDN over UDP and TCP.
const NDN_PORT: u16 = 6363;

/// `[ndn]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NdnConfig {
    /// Unix sockets for applications; the first is where clients look.
    pub unix: Vec<PathBuf>,
    /// Where TCP is listened on.
    pub tcp: Vec<SocketAddr>,
    /// Where UDP is listened on.
    pub udp: Vec<SocketAddr>,
    /// Where WebSocket is listened on.
    pub websocket: Vec<SocketAddr>,
    /// Kernel interfaces with a UDP multicast face each.
    pub udp_multicast: Vec<String>,
    /// Ports with Ethernet faces.
    pub ethernet: Vec<String>,
    /// Packets in the content store.
    pub cache_packets: u32,
    /// Bytes of memory of the content store; 0: 1536 a packet.
    pub cache_bytes: u64,
    /// Which packet leaves the content store when room is needed.
    pub cache_policy: CachePolicy,
    /// File or device that packets go to which leave the content store's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_disk: Option<PathBuf>,
    /// Bytes of it.
    pub cache_disk_bytes: u64,
    /// Seconds after which what was written to it is synchronised; 0: the kernel decides.
    pub cache_disk_sync_s: u32,
    /// Seconds at most in which a node that stops writes what is in memory to it.
    pub cache_disk_stop_s: u32,
    /// Data that nobody asked for.
    pub unsolicited: UnsolicitedConfig,
    /// `[ndn.kernel_cache]`: the part of the content store in the kernel's packet path; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_cache: Option<KernelCacheConfig>,
    /// Pending Interests a worker.
    pub pit_entries: u32,
    /// Prefixes in the FIB.
    pub fib_prefixes: u32,
    /// Faces.
    pub faces: u32,
    /// Seconds after which an idle face that nobody asked for is closed.
    pub idle_s: u32,
    /// Registrations from other machines, under `/localhop/nfd`.
    pub localhop: bool,
    /// Producer regions of this node: forwarding hints that lead here have done their work.
    pub regions: Vec<String>,
    /// A configuration file of NFD that is read first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfd_conf: Option<PathBuf>,
}

impl Default for NdnConfig {
    fn default() -> Self {
        Self {
            unix: vec!["/run/nfd/nfd.sock".into(), "/run/nfd.sock".into()],
            tcp: both(NDN_PORT),
            udp: both(NDN_PORT),
            websocket: Vec::new(),
            udp_multicast: Vec::new(),
            ethernet: Vec::new(),
            cache_packets: 65_536,
            cache_bytes: 0,
            cache_policy: CachePolicy::default(),
            cache_disk: None,
            cache_disk_bytes: 1 << 30,
            cache_disk_sync_s: 5,
            cache_disk_stop_s: 10,
            unsolicited: UnsolicitedConfig::default(),
            kernel_cache: None,
            pit_entries: 65_536,
            fib_prefixes: 65_536,
            faces: 1024,
            idle_s: 600,
            localhop: false,
            regions: Vec::new(),
            nfd_conf: None,
        }
    }
}

/// All addresses of both versions.
fn both(port: u16) -> Vec<SocketAddr> {
    vec![
        (Ipv4Addr::UNSPECIFIED, port).into(),
        (Ipv6Addr::UNSPECIFIED, port).into(),
    ]
}

/// Which packet leaves the content store when room is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// Three queues; what is asked for again stays.
    #[default]
    S3Fifo,
    /// First in, first out.
    Fifo,
    /// First in, first out, with another round for what was asked for.
    Clock,
    /// Least recently used.
    Lru,
    /// NFD's: unsolicited, then stale, then by age.
    PriorityFifo,
}

/// What happens to Data that nobody asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsolicitedConfig {
    /// It is dropped.
    #[default]
    DropAll,
    /// It is cached if an application of this machine sent it.
    AdmitLocal,
    /// It is cached if another machine sent it.
    AdmitNetwork,
    /// It is cached.
    AdmitAll,
}

/// `[ndn.kernel_cache]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelCacheConfig {
    /// Ports of the node on which the kernel answers.
    pub ports: Vec<String>,
    /// Kernel interfaces on which it answers before the UDP sockets of the node.
    pub interfaces: Vec<String>,
    /// Packets in the kernel.
    pub packets: u32,
    /// Bytes of memory that bound them, too; 0: as many as they need.
    pub bytes: u64,
    /// Where the program stands.
    pub mode: KernelCacheMode,
}

impl Default for KernelCacheConfig {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            interfaces: Vec::new(),
            packets: 16_384,
            bytes: 0,
            mode: KernelCacheMode::default(),
        }
    }
}

/// Where the program of the cache in the kernel stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelCacheMode {
    /// In the driver where replies fit there, else at TC.
    #[default]
    Auto,
    /// In the driver, or behind it.
    Xdp,
    /// At TC.
    Tc,
}

/// `[[ndn_face]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NdnFaceConfig {
    /// FaceUri of the other end.
    pub remote: String,
    /// FaceUri of this end: which port an Ethernet face is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Stays although its link fails.
    #[serde(default)]
    pub permanent: bool,
    /// Bytes of the longest link packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Acknowledges and retransmits on the link.
    #[serde(default)]
    pub reliability: bool,
    /// Marks packets when the face's queue stays long.
    #[serde(default = "yes")]
    pub congestion_marking: bool,
}

/// `[[ndn_route]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NdnRouteConfig {
    /// The prefix.
    pub prefix: String,
    /// FaceUri of the next hop.
    pub face: String,
    /// Lower is better.
    #[serde(default)]
    pub cost: u32,
}

/// `[[ndn_strategy]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NdnStrategyConfig {
    /// The prefix.
    pub prefix: String,
    /// Name of the strategy, with parameters; a name of one component is one of NFD's.
    pub strategy: String,
}

/// `[[ndn_key]]`: who may give commands. Without a table, anyone who reaches the node's local faces may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NdnKeyConfig {
    /// A certificate (`ndnsec cert-dump`), or `any`.
    pub certificate: PathBuf,
    /// Modules of management: `faces`, `fib`, `rib`, `cs`, `strategy-choice`.
    pub modules: Vec<String>,
}

const fn yes() -> bool {
    true
}
