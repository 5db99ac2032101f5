//! What `tidegate demo` saw.

use serde::{Deserialize, Serialize};

use super::{StateTimes, Stats};

/// A whole run of the demo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemoReport {
    /// It ran as an ordinary user, inside a user namespace.
    pub user_namespace: bool,
    /// From the start of the program to the first packet that crossed the node, milliseconds.
    pub first_packet_ms: u64,
    /// What ran, in order.
    pub phases: Vec<DemoPhase>,
    /// The node's counters at the end.
    pub stats: Stats,
}

/// A part of the demo: one kind of traffic for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemoPhase {
    /// Its name: `quiet`, `ping`, `ping6`, `download`, `stream`, `strays`, `scan`, `flood`.
    pub name: String,
    /// How long it ran, nanoseconds.
    pub duration_ns: u64,
    /// What the programs at both ends saw.
    pub result: DemoResult,
    /// Packets that the node received.
    pub rx_pkts: u64,
    /// Packets that the node sent.
    pub tx_pkts: u64,
    /// Bytes that the node sent.
    pub tx_bytes: u64,
    /// Packets that the node dropped.
    pub dropped_pkts: u64,
    /// Time of the workers in each state, summed.
    pub time: StateTimes,
    /// CPU time of the workers, summed, nanoseconds.
    pub cpu_ns: u64,
    /// Sleeps that ended, all causes.
    pub wakeups: u64,
    /// Changes between polling and interrupts.
    pub flips: u64,
}

/// What the programs at both ends saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DemoResult {
    /// Nothing was sent.
    Quiet,
    /// Echo requests.
    Ping {
        /// Answers received.
        answered: u64,
        /// Half of the round trips were shorter.
        rtt_p50_ns: u64,
        /// The longest.
        rtt_max_ns: u64,
    },
    /// A TCP download whose every byte was compared.
    Download {
        /// Bytes received as they were sent.
        bytes: u64,
    },
    /// A UDP stream.
    Stream {
        /// Datagrams sent.
        sent_pkts: u64,
        /// Datagrams received.
        received_pkts: u64,
        /// Of these, out of order.
        reordered_pkts: u64,
    },
    /// A port scan from outside.
    Scan {
        /// SYNs sent.
        sent_pkts: u64,
        /// Packets that the firewall dropped meanwhile.
        stopped_pkts: u64,
    },
    /// A SYN flood from outside, beside a download.
    Flood {
        /// SYNs sent.
        sent_pkts: u64,
        /// Packets that the firewall dropped meanwhile.
        stopped_pkts: u64,
        /// Bytes that the client received meanwhile as they were sent.
        bytes: u64,
    },
    /// Datagrams that no router may deliver.
    Strays {
        /// Datagrams sent.
        sent_pkts: u64,
    },
}
