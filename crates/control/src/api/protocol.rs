//! Requests and replies of the control socket.
//!
//! Each message is a 32-bit big-endian length and that many bytes of JSON. A connection carries
//! requests and replies in turn; after [`Request::Watch`] or [`Request::SessionEvents`] it carries [`Event`]s until
//! either side closes it, after [`Request::Capture`] and its reply [`Reply::Capturing`] it carries pcapng bytes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    BridgeInfo, DeniedConnection, NeighbourInfo, NodeInfo, RouteInfo, RuleInfo, SessionEvent,
    SessionFilter, SessionPage, SessionRequest, Stats, Timestamp,
};

/// Version of the protocol; a reply to [`Request::Hello`] names the server's.
pub const PROTOCOL_VERSION: u32 = 1;

/// The longest message that either side accepts, bytes.
pub const MAX_MESSAGE_BYTES: u32 = 16 << 20;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Who is there?
    Hello,
    /// All counters.
    Stats,
    /// The neighbour table.
    Neighbours,
    /// The routing table.
    Routes,
    /// The bridges with their stations.
    Bridges,
    /// The configuration in force, as TOML.
    Config,
    /// Reads the configuration file again and puts it in force, as SIGHUP does.
    Reload,
    /// [`Event`]s: the counters every `interval_ms`, and what happens in between.
    Watch {
        /// Milliseconds between two readings, at least 50.
        interval_ms: u32,
    },
    /// Packets as pcapng.
    Capture(CaptureRequest),
    /// The firewall's rules in force, with their counters.
    Rules,
    /// Puts a file of rules in force instead of those that are, until the configuration is read again.
    ApplyRules {
        /// The file, as the node sees it.
        path: PathBuf,
        /// Seconds after which the old rules come back unless [`Request::ConfirmRules`] comes first.
        confirm_s: Option<u32>,
    },
    /// Ends the wait of [`Request::ApplyRules`]: the new rules stay, or the old ones come back now.
    ConfirmRules {
        /// The new rules stay.
        keep: bool,
    },
    /// Live connections that a file of rules would not let start.
    DeniedConnections {
        /// The file, as the node sees it.
        path: PathBuf,
        /// They are ended, too.
        #[serde(default)]
        end: bool,
    },
    /// A part of the firewall's connections.
    Sessions(SessionRequest),
    /// Ends connections of the firewall.
    EndSessions(SessionFilter),
    /// [`Event::Session`]s, as connections are opened and end.
    SessionEvents(SessionFilter),
    /// A program wants sockets of the node's host. It has them as long as the connection is open.
    Attach,
}

/// What to capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureRequest {
    /// Where; empty: everywhere.
    pub points: Vec<CapturePoint>,
    /// Names of ports; empty: all.
    pub ports: Vec<String>,
    /// Only packets for which this holds, in the pcap filter language (a subset); empty: all.
    pub filter: String,
    /// Bytes of a packet to keep; 0: all.
    pub snap_bytes: u32,
    /// End after so many packets; 0: never.
    pub max_pkts: u64,
}

/// Where packets are captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapturePoint {
    /// As received.
    Rx,
    /// As handed to a port to send.
    Tx,
    /// As dropped, with the reason.
    Drop,
    /// As it enters each stage.
    Stages,
    /// As it enters one stage.
    Stage(String),
}

/// What the node answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", content = "data", rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello {
        /// The server's [`PROTOCOL_VERSION`].
        protocol: u32,
        /// The node.
        node: Box<NodeInfo>,
    },
    /// To [`Request::Stats`].
    Stats(Box<Stats>),
    /// To [`Request::Neighbours`].
    Neighbours(Vec<NeighbourInfo>),
    /// To [`Request::Routes`].
    Routes(Vec<RouteInfo>),
    /// To [`Request::Bridges`].
    Bridges(Vec<BridgeInfo>),
    /// To [`Request::Config`]: TOML.
    Config(String),
    /// To [`Request::Reload`]: the configuration is in force.
    Reloaded {
        /// Its number.
        generation: u64,
        /// What of it needs a restart and was not put in force.
        needs_restart: Vec<String>,
    },
    /// To [`Request::Rules`].
    Rules(Vec<RuleInfo>),
    /// To [`Request::ApplyRules`] and [`Request::ConfirmRules`]: rules are in force.
    RulesInForce {
        /// Number of the configuration.
        generation: u64,
        /// Their file.
        path: PathBuf,
        /// Seconds until the old rules come back.
        confirm_s: Option<u32>,
    },
    /// To [`Request::DeniedConnections`].
    DeniedConnections(Vec<DeniedConnection>),
    /// To [`Request::Watch`] and [`Request::SessionEvents`]: events follow.
    Watching,
    /// To [`Request::Capture`]: pcapng bytes follow.
    Capturing,
    /// To [`Request::Sessions`].
    Sessions(SessionPage),
    /// To [`Request::EndSessions`]: how many were ended.
    SessionsEnded(u64),
    /// To [`Request::Attach`]: the sockets are there until the connection ends.
    Attached(Attachment),
    /// The request was not carried out.
    Error(ApiError),
}

/// Where a program finds its sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The memory segment that the program and the workers share.
    pub segment: PathBuf,
    /// By worker: the Unix datagram socket on which a sleeping worker is woken.
    pub bells: Vec<PathBuf>,
    /// Sockets for each worker.
    pub sockets: u32,
    /// Bytes of a socket's ring, each way.
    pub ring_bytes: u32,
    /// The MAC address that the host's frames have before they are routed.
    pub mac: [u8; 6],
    /// Largest packet that the host sends, bytes.
    pub mtu: u16,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The class, from which the exit code follows.
    pub code: ErrorCode,
    /// What went wrong: a lowercase fragment.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// Class of an [`ApiError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// It was tried and failed.
    Failed,
    /// The request makes no sense.
    Usage,
    /// The client may not do this.
    Refused,
    /// What the request names does not exist.
    NotFound,
}

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// The counters.
    Stats(Box<Stats>),
    /// A configuration was put in force.
    Reloaded {
        /// When.
        at: Timestamp,
        /// Its number.
        generation: u64,
    },
    /// The node stops; the connection ends.
    Stopping {
        /// When.
        at: Timestamp,
    },
    /// A connection of the firewall was opened, or ended.
    Session(Box<SessionEvent>),
    /// So many events were lost, as they came faster than they were read.
    Lost(u64),
}
