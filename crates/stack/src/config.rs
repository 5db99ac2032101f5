//! Sizes, timers and modules of a stack: fixed when it is made, except what a socket's options change.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use wire::{FlowKey, MacAddr};

/// Says whether a flow, as its packets arrive, reaches this worker.
pub type FlowOwner = Box<dyn Fn(&FlowKey) -> bool + Send>;

/// Everything that a [`Stack`](crate::Stack) is told when it is made.
pub struct StackConfig {
    /// The MAC address of the host.
    pub mac: MacAddr,
    /// The largest IP packet that the link takes, bytes (1,280 at least where IPv6 is used).
    pub mtu: u16,
    /// 256 random bits: keys of the session table, initial sequence numbers, SYN cookies and ports.
    pub seed: [u64; 4],
    /// Sizes of tables and buffers.
    pub limits: Limits,
    /// TCP.
    pub tcp: TcpConfig,
    /// Says whether a flow, as its packets arrive, reaches this worker; outgoing connections choose their
    /// port so that it does. `None`: every flow does.
    pub owns_flow: Option<FlowOwner>,
    /// Form a link-local IPv6 address, detect duplicates, solicit routers and take prefixes from them (SLAAC).
    pub ipv6_autoconfiguration: bool,
    /// Ask for an IPv4 address by DHCP.
    pub dhcp: bool,
    /// Check transport checksums of received packets; false where the NIC did.
    pub verify_checksums: bool,
}

impl StackConfig {
    /// Makes the default configuration of a host: MTU 1500, all of TCP, addresses set by hand.
    pub fn new(mac: MacAddr, seed: [u64; 4]) -> Self {
        Self {
            mac,
            mtu: 1500,
            seed,
            limits: Limits::default(),
            tcp: TcpConfig::default(),
            owns_flow: None,
            ipv6_autoconfiguration: false,
            dhcp: false,
            verify_checksums: true,
        }
    }
}

impl fmt::Debug for StackConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackConfig")
            .field("mac", &self.mac)
            .field("mtu", &self.mtu)
            .field("limits", &self.limits)
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}

/// Sizes of tables and buffers: what is full follows the policy that each field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// TCP sessions over IPv4; full: SYNs are dropped, connects fail.
    pub sessions_ipv4: u32,
    /// TCP sessions over IPv6; full: as above.
    pub sessions_ipv6: u32,
    /// Sessions in TIME_WAIT; full: the session ends without it (counted).
    pub time_wait: u32,
    /// Connections of any kind but TIME_WAIT; full: SYNs are dropped, connects fail.
    pub connections: u32,
    /// Listeners.
    pub listeners: u32,
    /// UDP sockets.
    pub udp_sockets: u32,
    /// Datagrams that wait in a UDP socket, each way; full: received ones are dropped, sends would block.
    pub udp_queue: u32,
    /// 4 KiB blocks of buffer memory for all TCP connections; full: received data is dropped, sends would block.
    pub buffer_blocks: u32,
    /// Neighbours; full: the oldest that is not in use goes.
    pub neighbours: u32,
    /// Packets of the host itself that wait to be sent; full: dropped.
    pub host_queue: u32,
    /// Datagrams in reassembly; full: the oldest goes.
    pub reassemblies: u32,
}

impl Default for Limits {
    /// A few thousand connections, 64 MiB of buffers at most.
    fn default() -> Self {
        Self {
            sessions_ipv4: 8192,
            sessions_ipv6: 4096,
            time_wait: 4096,
            connections: 8192,
            listeners: 64,
            udp_sockets: 256,
            udp_queue: 64,
            buffer_blocks: 16_384,
            neighbours: 256,
            host_queue: 256,
            reassemblies: 16,
        }
    }
}

bitflags::bitflags! {
    /// The parts of TCP that can be left out (IO-6). Each is one file or a few; RFC 9293 itself always stays.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Modules: u32 {
        /// Window scaling (RFC 7323 2).
        const WINDOW_SCALE = 1 << 0;
        /// Timestamps and PAWS (RFC 7323 3 to 5).
        const TIMESTAMPS = 1 << 1;
        /// Selective acknowledgements, both ways (RFC 2018, 2883, 6675).
        const SACK = 1 << 2;
        /// Loss detection by time, and tail loss probes (RFC 8985); needs SACK.
        const RACK_TLP = 1 << 3;
        /// Proportional rate reduction (RFC 6937).
        const PRR = 1 << 4;
        /// Undo of reductions that were spurious (RFC 3522, RFC 3708).
        const UNDO = 1 << 5;
        /// Pacing of what a congestion control gives a rate for.
        const PACING = 1 << 6;
        /// Slow start that ends before loss (RFC 9406), in CUBIC.
        const HYSTART = 1 << 7;
        /// Delayed acknowledgements (RFC 9293 3.8.6.3).
        const DELAYED_ACK = 1 << 8;
        /// SYN cookies when a backlog is full (RFC 4987 3.6).
        const SYN_COOKIES = 1 << 9;
        /// Explicit congestion notification asked for by our SYN (RFC 3168); answered in any case if set.
        const ECN = 1 << 10;
        /// Fast Open, both roles (RFC 7413).
        const FAST_OPEN = 1 << 11;
        /// Packetization layer path MTU discovery (RFC 4821).
        const PLPMTUD = 1 << 12;
        /// Growth of buffers with the bandwidth-delay product.
        const AUTOTUNING = 1 << 13;
    }
}

impl Default for Modules {
    /// All but ECN, Fast Open and PLPMTUD, as in Linux.
    fn default() -> Self {
        Self::all().difference(Self::ECN | Self::FAST_OPEN | Self::PLPMTUD)
    }
}

/// Which congestion control a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR (draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr,
}

/// TCP's modules and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Which parts are used.
    pub modules: Modules,
    /// The default congestion control.
    pub congestion: Algorithm,
    /// The initial window, segments (RFC 6928).
    pub initial_window: u32,
    /// The least retransmission timeout.
    pub rto_min: Duration,
    /// The largest retransmission timeout (RFC 6298 2.5).
    pub rto_max: Duration,
    /// How long an acknowledgement may be delayed (RFC 9293: less than 0.5 s).
    pub delayed_ack: Duration,
    /// Retransmissions of a SYN before connect fails.
    pub syn_retries: u8,
    /// Retransmissions of a SYN-ACK before the half-open session is forgotten.
    pub syn_ack_retries: u8,
    /// Retransmissions of data, or window probes without an answer, before the connection times out; 8 at most
    /// for one that the application has closed.
    pub retries: u8,
    /// How long TIME_WAIT lasts.
    pub time_wait: Duration,
    /// How long a closed socket waits for the peer's FIN.
    pub fin_wait_2: Duration,
    /// Receive buffer of a connection at first, bytes.
    pub receive_buffer: u32,
    /// To what autotuning may raise it, bytes.
    pub receive_buffer_max: u32,
    /// Send buffer of a connection at first, bytes.
    pub send_buffer: u32,
    /// To what autotuning may raise it, bytes.
    pub send_buffer_max: u32,
    /// First probe of keep-alive after this much silence.
    pub keepalive_idle: Duration,
    /// Time between probes.
    pub keepalive_interval: Duration,
    /// Probes without answer before the connection times out.
    pub keepalive_probes: u8,
    /// Idle time after which a connection gives its working memory back.
    pub trim_after: Duration,
    /// The first and the last port for outgoing connections.
    pub ephemeral_ports: (u16, u16),
}

impl Default for TcpConfig {
    /// Linux's values where Linux has one.
    fn default() -> Self {
        Self {
            modules: Modules::default(),
            congestion: Algorithm::default(),
            initial_window: 10,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            delayed_ack: Duration::from_millis(40),
            syn_retries: 6,
            syn_ack_retries: 5,
            retries: 15,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            receive_buffer: 131_072,
            receive_buffer_max: 6 << 20,
            send_buffer: 65_536,
            send_buffer_max: 4 << 20,
            keepalive_idle: Duration::from_secs(7200),
            keepalive_interval: Duration::from_secs(75),
            keepalive_probes: 9,
            trim_after: Duration::from_secs(1),
            ephemeral_ports: (32_768, 60_999),
        }
    }
}
