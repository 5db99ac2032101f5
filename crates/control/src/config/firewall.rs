//! `[firewall]`: connection tracking and translation.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// `[firewall]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirewallConfig {
    /// Rules in nft syntax, as `nft -f` takes them; instead of `inside`. Relative to the configuration's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<PathBuf>,
    /// The port or bridge that connections may be opened from, without a file of rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// The source of what leaves by another interface is translated to that interface's address.
    #[serde(default = "yes")]
    pub masquerade: bool,
    /// Connections that the table is made for.
    #[serde(default = "default_connections")]
    pub connections: u32,
    /// Which packets from outside may use a mapping.
    #[serde(default)]
    pub filtering: FilteringConfig,
    /// Mappings get random ports (RFC 6056) rather than the inner ones.
    #[serde(default)]
    pub random_ports: bool,
    /// Where connections are kept for the next node: an absolute path, or `off`; or `dpdk`, where they are in memory
    /// that the nodes of the group share; see [`state_file`](Self::state_file).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// IPv6 hosts reach IPv4 servers under this prefix of 96 bits (NAT64); absent: not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat64: Option<String>,
    /// IPv4 addresses that stand for IPv6 hosts inside of the node.
    #[serde(default = "default_nat64_clients")]
    pub nat64_clients: String,
    /// `[firewall.nptv6]`: an IPv6 prefix inside is another one outside; absent: not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nptv6: Option<Nptv6Config>,
    /// `[firewall.guard]`: what is refused before any state is made; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardConfig>,
    /// `[firewall.cgn]`: subscribers share outer addresses; absent: ports are given one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgn: Option<CgnConfig>,
}

/// `[firewall.cgn]`: each subscriber (an inner IPv4 address) has ports in blocks, which are logged as a whole (RFC 6888,
/// RFC 7422).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CgnConfig {
    /// Ports of a block.
    pub block_ports: u16,
    /// Blocks of a subscriber, at most.
    pub blocks: u8,
    /// Lowest port that is given.
    pub first_port: u16,
    /// First and last subscriber: with `outer`, the ports of each are computed, and nothing is logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribers: Option<[Ipv4Addr; 2]>,
    /// First and last outer address, for `subscribers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outer: Option<[Ipv4Addr; 2]>,
}

impl Default for CgnConfig {
    fn default() -> Self {
        Self {
            block_ports: 512,
            blocks: 4,
            first_port: 1024,
            subscribers: None,
            outer: None,
        }
    }
}

/// `[firewall.nptv6]`: addresses of one prefix are those of another beyond a port (RFC 6296).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nptv6Config {
    /// The port or bridge that leads outside.
    pub port: String,
    /// The prefix inside.
    pub inside: String,
    /// The prefix outside, of the same length.
    pub outside: String,
}

/// `[firewall.guard]`; a threshold of 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Files of addresses and prefixes, one a line, from and to which nothing passes.
    pub blocklists: Vec<PathBuf>,
    /// Packets a second of a source.
    pub source_pkts_per_s: u64,
    /// Packets a second to a destination.
    pub destination_pkts_per_s: u64,
    /// New connections a second of a source.
    pub source_connections_per_s: u64,
    /// New connections a second to a destination, above which the sender of a SYN has to do what `challenge` says.
    pub destination_connections_per_s: u64,
    /// How the sender of a SYN shows then that it is there.
    pub challenge: ChallengeConfig,
    /// Endpoints that a source may ask for in vain within ten seconds.
    pub scan_endpoints: u64,
    /// How long a scanner is held off, seconds.
    pub hold_off_s: u32,
}

/// What the sender of a SYN does to get a connection while its destination is under attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChallengeConfig {
    /// It answers a SYN cookie; the node then opens the connection to the server (SYN proxy).
    #[default]
    Cookie,
    /// It sends the SYN twice.
    Retry,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            blocklists: Vec::new(),
            source_pkts_per_s: 0,
            destination_pkts_per_s: 0,
            source_connections_per_s: 0,
            destination_connections_per_s: 0,
            challenge: ChallengeConfig::default(),
            scan_endpoints: 0,
            hold_off_s: 60,
        }
    }
}

impl FirewallConfig {
    /// The memory segment in which connections outlive the process; `None` if they do not.
    pub fn state_file(&self) -> Option<&Path> {
        self.state
            .as_deref()
            .filter(|path| *path != Path::new("off") && !self.is_shared())
    }

    /// Tells whether the nodes that share DPDK share connections, too.
    pub fn is_shared(&self) -> bool {
        self.state.as_deref() == Some(Path::new("dpdk"))
    }
}

impl Default for FirewallConfig {
    fn default() -> Self {
        Self {
            rules: None,
            inside: None,
            masquerade: true,
            connections: default_connections(),
            filtering: FilteringConfig::default(),
            random_ports: false,
            state: None,
            nat64: None,
            nat64_clients: default_nat64_clients(),
            nptv6: None,
            guard: None,
            cgn: None,
        }
    }
}

const fn yes() -> bool {
    true
}

fn default_nat64_clients() -> String {
    "100.127.0.0/16".to_owned()
}

const fn default_connections() -> u32 {
    65_536
}

/// Which packets from outside may use a mapping (RFC 4787 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilteringConfig {
    /// Anyone's.
    EndpointIndependent,
    /// From addresses that the inner endpoint talks to.
    Address,
    /// From endpoints that it talks to.
    #[default]
    AddressAndPort,
}
