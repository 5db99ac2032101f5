//! Ports and their queues.

use serde::{Deserialize, Serialize};

/// A port of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Its id, in the order of the configuration.
    pub id: u16,
    /// Its name in the configuration.
    pub name: String,
    /// The driver in force: `af_xdp`, `af_packet`, `tap`, `pcap`, `mem`, `dpdk`.
    pub driver: String,
    /// The driver asked for: the same names, or `auto`.
    pub driver_asked: String,
    /// The mode in force, e.g. `native copy need_wakeup`.
    pub mode: String,
    /// Modes that were tried before and refused, each with its reason, in order.
    pub refused: Vec<String>,
    /// The kernel's interface, where there is one.
    pub interface: Option<String>,
    /// MAC address.
    pub mac: String,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Addresses that the node answers on, with prefix length.
    pub addresses: Vec<String>,
    /// The bridge that it belongs to, if any.
    pub bridge: Option<String>,
    /// The impaired link that it is an end of, if any.
    #[serde(default)]
    pub link: Option<String>,
    /// Idle mode: `hybrid`, `poll`, `interrupt`, `paper`.
    pub idle_mode: String,
    /// Whether it can send and receive now.
    pub up: bool,
    /// Its queues' counters, summed.
    pub counters: PortCounters,
    /// Its queues.
    pub queues: Vec<QueueInfo>,
    /// Counters that its driver keeps by names of its own (DPDK's extended statistics).
    #[serde(default)]
    pub driver_counters: Vec<DriverCounter>,
}

/// A counter that only the driver gives a meaning to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverCounter {
    /// The driver's name for it, e.g. `rx_q0_errors`.
    pub name: String,
    /// What it counted.
    pub value: u64,
}

/// A receive and a transmit queue of a port, owned by one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// Its number, from 0.
    pub id: u16,
    /// The worker that owns it.
    pub worker: u16,
    /// How it wakes its worker.
    pub interrupt: InterruptKind,
    /// Frames are not copied between the kernel and the pool.
    pub zero_copy: bool,
    /// The driver spreads flows over queues, so that software need not.
    pub rss: bool,
    /// Counters since it was opened.
    pub counters: PortCounters,
}

/// How a queue wakes its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptKind {
    /// It cannot.
    None,
    /// Its descriptor stays readable while packets wait.
    Level,
    /// Its descriptor becomes readable once for new packets.
    Edge,
}

/// Counters of a port or queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Packets received.
    pub rx_pkts: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    /// Packets that the driver or the kernel lost before the node saw them: ring full.
    pub rx_ring_full_pkts: u64,
    /// Packets lost for want of a free frame.
    pub rx_no_frame_pkts: u64,
    /// Frames that were longer than a slot or otherwise unusable.
    pub rx_invalid_pkts: u64,
    /// Packets sent.
    pub tx_pkts: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Packets that the kernel refused after the queue had taken them.
    pub tx_error_pkts: u64,
    /// System calls made to receive, to send or to kick.
    pub syscalls: u64,
}

impl PortCounters {
    /// Adds another queue's counters.
    pub fn add(&mut self, other: &Self) {
        self.rx_pkts += other.rx_pkts;
        self.rx_bytes += other.rx_bytes;
        self.rx_ring_full_pkts += other.rx_ring_full_pkts;
        self.rx_no_frame_pkts += other.rx_no_frame_pkts;
        self.rx_invalid_pkts += other.rx_invalid_pkts;
        self.tx_pkts += other.tx_pkts;
        self.tx_bytes += other.tx_bytes;
        self.tx_error_pkts += other.tx_error_pkts;
        self.syscalls += other.syscalls;
    }
}
