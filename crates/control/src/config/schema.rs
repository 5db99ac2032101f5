//! The keys of the file, as types.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::firewall::FirewallConfig;
use super::ndn::{NdnConfig, NdnFaceConfig, NdnKeyConfig, NdnRouteConfig, NdnStrategyConfig};

/// A whole configuration file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[node]`: the process and its workers.
    pub node: NodeConfig,
    /// `[idle]`: how workers wait for packets.
    pub idle: IdleConfig,
    /// `[dpdk]`: other nodes that share DPDK's ports and memory; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dpdk: Option<DpdkConfig>,
    /// `[[port]]`: the ports, in the order of their ids.
    pub port: Vec<PortConfig>,
    /// `[[bridge]]`: learning bridges over ports.
    pub bridge: Vec<BridgeConfig>,
    /// `[[link]]`: impaired links between two ports.
    pub link: Vec<LinkConfig>,
    /// `[[route]]`: static routes.
    pub route: Vec<RouteConfig>,
    /// `[[neighbour]]`: static neighbours.
    pub neighbour: Vec<NeighbourConfig>,
    /// `[firewall]`: the stateful firewall; absent: packets are forwarded without state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<FirewallConfig>,
    /// `[ndn]`: the named-data forwarder; absent: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ndn: Option<NdnConfig>,
    /// `[[ndn_face]]`: faces that are made at start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ndn_face: Vec<NdnFaceConfig>,
    /// `[[ndn_route]]`: static routes of names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ndn_route: Vec<NdnRouteConfig>,
    /// `[[ndn_strategy]]`: forwarding strategies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ndn_strategy: Vec<NdnStrategyConfig>,
    /// `[[ndn_key]]`: who may give commands.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ndn_key: Vec<NdnKeyConfig>,
    /// What files that this one names ask for and the node does not have: to be told, not to be written.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// The TCP/IP host for programs; `None` refuses TCP and UDP to the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostConfig>,
}

/// `[node]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Name shown in stats and metrics.
    pub name: String,
    /// CPUs to pin workers to, one worker each; empty: one worker on the first allowed CPU.
    pub cpus: Vec<u16>,
    /// Frames that each worker owns.
    pub frames_per_worker: u32,
    /// Bytes of a frame: a power of two from 2048 to 32768.
    pub frame_bytes: u32,
    /// `auto`, `require` or `never`.
    pub huge_pages: HugePagesConfig,
    /// Where the control socket is.
    pub control_socket: PathBuf,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: "tidegate".into(),
            cpus: Vec::new(),
            frames_per_worker: 8192,
            frame_bytes: 2048,
            huge_pages: HugePagesConfig::Auto,
            control_socket: "/run/tidegate/control.sock".into(),
        }
    }
}

/// Whether to use huge pages for frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugePagesConfig {
    /// Where there are any.
    #[default]
    Auto,
    /// Refuse to start without.
    Require,
    /// Not at all.
    Never,
}

/// `[dpdk]`: nodes on this machine that share ports, frames and tables (LF-2). One is the primary process, which
/// starts first and has a queue of each port for every guest; the others are guests, of one worker each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DpdkConfig {
    /// What the nodes have in common: DPDK's file prefix.
    pub group: String,
    /// Guests that may join this node, the primary.
    #[serde(default)]
    pub guests: u16,
    /// This node is the guest of that number; absent: it is the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<u16>,
}

/// `[idle]`: the hybrid interrupt/polling policy (IO-2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdleConfig {
    /// How workers wait.
    pub mode: IdleMode,
    /// `hybrid`: added latency that the operator accepts, p99, microseconds.
    pub latency_budget_us: u32,
    /// `paper`: length of the window, microseconds.
    pub window_us: u32,
    /// `paper`: W, packets in a window above which polling goes on.
    pub window_pkts: u32,
    /// `paper`: interrupts in a millisecond above which polling starts.
    pub interrupts_per_ms: u32,
}

impl Default for IdleConfig {
    fn default() -> Self {
        Self {
            mode: IdleMode::Hybrid,
            latency_budget_us: 100,
            window_us: 100,
            window_pkts: 4,
            interrupts_per_ms: 20,
        }
    }
}

/// How a worker waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleMode {
    /// Polls under load, naps or sleeps when idle, within the latency budget.
    #[default]
    Hybrid,
    /// Always polls.
    Poll,
    /// Sleeps whenever nothing is there.
    Interrupt,
    /// The plain six-transition policy of the paper.
    Paper,
}

/// `[[port]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Name in this file, stats and captures.
    pub name: String,
    /// Which driver, with its own keys.
    #[serde(default)]
    pub driver: DriverConfig,
    /// Kernel interface (af_xdp, af_packet) or the one to create (tap); default: the port's name.
    #[serde(default)]
    pub interface: Option<String>,
    /// Addresses that the node answers on, with prefix length, e.g. `192.0.2.1/24`.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// MAC address; default: the interface's own.
    #[serde(default)]
    pub mac: Option<String>,
    /// Largest IP packet sent by this port, bytes; default: the interface's own.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Idle mode of this port, where it differs from `[idle]`.
    #[serde(default)]
    pub idle: Option<IdleMode>,
    /// File to replay or record (`pcap`).
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// PCI address or virtual device (`dpdk`).
    #[serde(default)]
    pub device: Option<String>,
}

/// A port's driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverConfig {
    /// AF_XDP where the kernel allows it, else AF_PACKET; the reason is reported.
    #[default]
    Auto,
    /// AF_XDP or an error.
    AfXdp,
    /// AF_PACKET with mapped rings.
    AfPacket,
    /// A TAP interface that the node creates.
    Tap,
    /// Capture files.
    Pcap,
    /// A device of DPDK (the cargo feature `dpdk`).
    Dpdk,
    /// Rings in this process (tests, benches).
    Mem,
}

/// `[[bridge]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeConfig {
    /// Name.
    pub name: String,
    /// Its ports.
    pub ports: Vec<String>,
    /// Addresses that the node answers on through the bridge.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Seconds after which a silent station is forgotten (IEEE 802.1D 7.9.2: 300).
    #[serde(default = "default_ageing_s")]
    pub ageing_s: u32,
}

const fn default_ageing_s() -> u32 {
    300
}

/// `[[link]]`: what one of two ports receives leaves by the other, impaired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Name.
    pub name: String,
    /// The two ports.
    pub ports: Vec<String>,
    /// Packets lost, of a million.
    #[serde(default)]
    pub drop_ppm: u32,
    /// Packets sent twice, of a million.
    #[serde(default)]
    pub duplicate_ppm: u32,
    /// Packets with one bit flipped, of a million.
    #[serde(default)]
    pub corrupt_ppm: u32,
    /// Packets, of a million, that others may overtake.
    #[serde(default)]
    pub reorder_ppm: u32,
    /// Most extra delay of a packet that others may overtake, microseconds.
    #[serde(default)]
    pub reorder_us: u32,
    /// Delay of every packet, microseconds.
    #[serde(default)]
    pub delay_us: u32,
    /// Most additional random delay, microseconds; keeps the order.
    #[serde(default)]
    pub jitter_us: u32,
    /// Bits a second in each direction; default: no limit.
    #[serde(default)]
    pub rate_bps: Option<u64>,
    /// Longest Ethernet payload that passes, bytes; default: no limit.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Packets on the link at once in each direction; beyond it new ones are lost.
    #[serde(default = "default_queue_pkts")]
    pub queue_pkts: u32,
    /// Where the pseudorandom numbers start: equal seeds and packets meet equal faults.
    #[serde(default)]
    pub seed: u32,
}

const fn default_queue_pkts() -> u32 {
    1024
}

/// `[[route]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Destination prefix, e.g. `0.0.0.0/0`.
    pub to: String,
    /// Next hop; without it the destination is on the link of `port`.
    #[serde(default)]
    pub via: Option<IpAddr>,
    /// Outgoing port or bridge; default: the one that reaches `via`.
    #[serde(default)]
    pub port: Option<String>,
    /// Discard what matches.
    #[serde(default)]
    pub blackhole: bool,
}

/// `[[neighbour]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourConfig {
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: String,
    /// The port or bridge that reaches it.
    pub port: String,
}

/// `[host]`: TCP and UDP for programs of this machine, on the node's own addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostConfig {
    /// Which of the node's addresses; empty: all.
    pub addresses: Vec<IpAddr>,
    /// Sockets of a program, for each worker.
    pub sockets: u32,
    /// Bytes of a socket's ring, each way; a power of two.
    pub ring_bytes: u32,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            sockets: 256,
            ring_bytes: 262_144,
        }
    }
}
