//! Why a packet was dropped: one table of reasons, from which the enum, counters and docs come.

/// How much a drop should worry an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Part of normal operation, e.g. a frame for another host.
    Info,
    /// A sender's mistake or a policy's decision, e.g. a bad checksum.
    Warning,
    /// This node lost what it should have kept, e.g. a full ring.
    Error,
}

macro_rules! drop_reasons {
    ($($variant:ident, $name:literal, $severity:ident, $text:literal, $source:literal;)+) => {
        /// Why a packet was dropped. Every reason has a counter; see `docs/drop-reasons.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = concat!($text, " (", $source, ").")] $variant,)+
        }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)+];
            /// How many reasons there are: the length of a counter array.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the snake_case name that metrics and JSON use.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }
            /// Returns how much the drop should worry an operator.
            pub const fn severity(self) -> Severity {
                match self { $(DropReason::$variant => Severity::$severity,)+ }
            }
            /// Returns one sentence without a full stop that says what happened.
            pub const fn text(self) -> &'static str {
                match self { $(DropReason::$variant => $text,)+ }
            }
            /// Returns the RFC section or paper id that asks for the drop.
            pub const fn source(self) -> &'static str {
                match self { $(DropReason::$variant => $source,)+ }
            }
        }
    };
}

drop_reasons! {
    EthernetTruncated, "ethernet_truncated", Warning, "The frame is shorter than an Ethernet header", "IEEE 802.3 3.2";
    EthernetSource, "ethernet_source", Warning, "The source MAC address is a group address", "IEEE 802.3 3.2.3";
    VlanTruncated, "vlan_truncated", Warning, "The frame ends inside a VLAN tag", "IEEE 802.1Q 9.4";
    VlanDepth, "vlan_depth", Warning, "The frame carries more than two VLAN tags", "IEEE 802.1Q 9.4";
    VlanUnknown, "vlan_unknown", Info, "The frame is tagged for a VLAN that the interface is not on", "IEEE 802.1Q 8.6";
    ArpMalformed, "arp_malformed", Warning, "The ARP packet is short or not for IPv4 over Ethernet", "RFC 826";
    Ipv4Truncated, "ipv4_truncated", Warning, "The packet is shorter than its IPv4 header", "RFC 1812 5.2.2";
    Ipv4Version, "ipv4_version", Warning, "The version field of an IPv4 packet is not 4", "RFC 1812 5.2.2";
    Ipv4HeaderLength, "ipv4_header_length", Warning, "The IPv4 header length is less than 20 bytes or runs past the packet", "RFC 1812 5.2.2";
    Ipv4TotalLength, "ipv4_total_length", Warning, "The IPv4 total length is less than the header or more than the frame holds", "RFC 1812 5.2.2";
    Ipv4Checksum, "ipv4_checksum", Warning, "The IPv4 header checksum is wrong", "RFC 1812 5.2.2";
    Ipv4Source, "ipv4_source", Warning, "The IPv4 source is not an address that may send", "RFC 1812 5.3.7";
    Ipv4Options, "ipv4_options", Warning, "The IPv4 options are malformed or not allowed", "RFC 1812 5.2.4";
    Ipv6Truncated, "ipv6_truncated", Warning, "The packet is shorter than its IPv6 header or its payload length", "RFC 8200 3";
    Ipv6Version, "ipv6_version", Warning, "The version field of an IPv6 packet is not 6", "RFC 8200 3";
    Ipv6Source, "ipv6_source", Warning, "The IPv6 source is not an address that may send", "RFC 4291 2.7";
    Ipv6ExtensionHeader, "ipv6_extension_header", Warning, "An IPv6 extension header is truncated or the chain is too long", "RFC 8200 4";
    FragmentMalformed, "fragment_malformed", Warning, "The fragment's offset or length is impossible", "RFC 791 3.2";
    FragmentTiny, "fragment_tiny", Warning, "The first fragment does not hold the whole transport header, or a later one overwrites it", "RFC 1858 3";
    TransportTruncated, "transport_truncated", Warning, "The packet ends inside its transport header", "RFC 9293 3.1";
    TransportLength, "transport_length", Warning, "A length field of the transport header contradicts the packet", "RFC 768";
    TransportChecksum, "transport_checksum", Warning, "The transport checksum is wrong", "RFC 1122 4.1.3.4";
    ReassemblyTimeout, "reassembly_timeout", Info, "The other fragments of a datagram for the node did not come in time", "RFC 8200 4.5";
    ReassemblyFull, "reassembly_full", Warning, "Too many fragments wait for the rest of their datagrams", "RFC 8900 3.7";
    ReassemblyOverlap, "reassembly_overlap", Warning, "Fragments of a datagram overlap, which ends it", "RFC 5722 4";
    ReassemblyDuplicate, "reassembly_duplicate", Info, "The fragment is there already", "RFC 8200 4.5";
    SocketQueueFull, "socket_queue_full", Warning, "The socket's receive queue is full", "RFC 1122 4.1.3";
    NeighbourDiscovery, "neighbour_discovery", Warning, "A neighbour discovery message fails its checks", "RFC 4861 7.1";
    TcpOptions, "tcp_options", Warning, "A TCP option has an impossible length", "RFC 9293 3.1";
    NotForUs, "not_for_us", Info, "The frame is addressed to another station", "IEEE 802.3 3.2";
    EtherTypeUnknown, "ethertype_unknown", Info, "No protocol here handles the EtherType", "IEEE 802.3 3.2.6";
    ProtocolUnknown, "protocol_unknown", Info, "No protocol here handles the IP protocol number", "RFC 1122 3.2.2.1";
    PortUnreachable, "port_unreachable", Info, "Nothing listens on the destination port", "RFC 1122 4.1.3.1";
    NoRoute, "no_route", Warning, "No route matches the destination", "RFC 1812 5.2.4.3";
    RouteBlackhole, "route_blackhole", Info, "The matching route discards", "RFC 1812 5.2.4.3";
    TtlExceeded, "ttl_exceeded", Info, "The TTL or hop limit reached zero", "RFC 1812 5.3.1";
    NeighbourUnresolved, "neighbour_unresolved", Warning, "The next hop did not answer ARP or neighbour solicitation", "RFC 1122 2.3.2.2";
    NeighbourQueueFull, "neighbour_queue_full", Warning, "Too many packets wait for the next hop's address", "RFC 1122 2.3.2.2";
    NeighbourTableFull, "neighbour_table_full", Error, "The neighbour table is full of neighbours in use", "RFC 1122 2.3.2";
    FragmentationNeeded, "fragmentation_needed", Info, "The packet exceeds the MTU and may not be fragmented", "RFC 1191 3";
    LinkLocalForward, "link_local_forward", Info, "A link-local, loopback or multicast address may not be forwarded", "RFC 1812 5.3.7";
    BridgeReserved, "bridge_reserved", Info, "The destination is a reserved bridge group address", "IEEE 802.1D 7.12.6";
    BridgeSamePort, "bridge_same_port", Info, "The destination lives on the port that the frame came from", "IEEE 802.1D 7.7";
    BridgeNoPort, "bridge_no_port", Info, "The bridge has no other port to flood to", "IEEE 802.1D 7.7";
    FrameTooLong, "frame_too_long", Warning, "The frame is longer than the outgoing port's MTU", "IEEE 802.3 3.2.7";
    NdnMalformed, "ndn_malformed", Warning, "The NDN packet breaks the rules of its format or of NDNLPv2", "NDN packet format 0.3";
    NdnTooLong, "ndn_too_long", Warning, "The NDN packet is longer than 8800 bytes", "NDN packet format 0.3";
    NdnFragment, "ndn_fragment", Warning, "The fragment of an NDN packet has an impossible index or count, or came twice", "NDNLPv2";
    NdnReassemblyFull, "ndn_reassembly_full", Warning, "Too many NDN packets wait for their other fragments", "NDNLPv2";
    NdnReassemblyTimeout, "ndn_reassembly_timeout", Warning, "Not all fragments of the NDN packet came in time", "NDNLPv2";
    NdnMtu, "ndn_mtu", Warning, "The NDN packet cannot be cut into fragments that fit the face's MTU", "NDNLPv2";
    NdnLinkLoss, "ndn_link_loss", Warning, "The link had no room for the packet, or it was not acknowledged after all retransmissions", "NDNLPv2";
    NdnDuplicateFrame, "ndn_duplicate_frame", Info, "The link packet was received before", "NDNLPv2";
    NdnFaceDown, "ndn_face_down", Warning, "The face does not exist or is down", "NFD developer's guide 2.1";
    NdnHopLimit, "ndn_hop_limit", Info, "The Interest's hop limit is used up", "NDN packet format 0.3";
    NdnScope, "ndn_scope", Warning, "A name of limited scope came from or would leave by a face outside of it", "NFD namespace management";
    NdnLoop, "ndn_loop", Info, "The Interest's nonce was seen before", "NFD developer's guide 4.2.2";
    NdnNoRoute, "ndn_no_route", Info, "No next hop may take the Interest", "NFD developer's guide 5.1";
    NdnSuppressed, "ndn_suppressed", Info, "The Interest was sent again too soon", "NFD developer's guide 5.1.2";
    NdnPitFull, "ndn_pit_full", Error, "The pending Interest table or its records are full", "NFD developer's guide 3.4";
    NdnUnsolicited, "ndn_unsolicited", Warning, "Nobody asked for the Data", "NFD developer's guide 4.3.2";
    NdnNackUnmatched, "ndn_nack_unmatched", Info, "The Nack answers no Interest that is pending", "NFD developer's guide 4.4.1";
    PortDown, "port_down", Warning, "The outgoing port is down", "RFC 1812 5.2.4.3";
    TxRingFull, "tx_ring_full", Error, "The outgoing queue took no more frames", "IO-5";
    HandoffRingFull, "handoff_ring_full", Error, "The ring to the owning worker is full", "IO-1";
    PoolExhausted, "pool_exhausted", Error, "The worker's frame pool is empty", "IO-2";
    RateLimited, "rate_limited", Info, "A rate limit refused to answer or to forward", "RFC 1812 4.3.2.8";
    PeerWorkerGone, "peer_worker_gone", Error, "The worker that owns the frame stopped", "IO-1";
    FragmentOverlap, "fragment_overlap", Warning, "A fragment overlaps another one of its datagram, or repeats it", "RFC 5722 4";
    FragmentStoreFull, "fragment_store_full", Error, "The table of fragmented datagrams, or a source's share of it, is full", "RFC 4787 11";
    CtInvalid, "ct_invalid", Warning, "The packet cannot belong to its connection, or starts none", "RFC 5961";
    CtTableFull, "ct_table_full", Error, "The connection table is full and the policy refuses new connections", "LF-4";
    CtSourceLimit, "ct_source_limit", Warning, "The source has as many connections as it may have", "RFC 6888 3 REQ-5";
    CtClash, "ct_clash", Warning, "The packet's reply direction belongs to another connection", "LF-4";
    FirewallRule, "firewall_rule", Info, "A rule or a chain's policy dropped the packet", "LF-1";
    NatNoPort, "nat_no_port", Error, "No mapping could be made for the packet's source", "RFC 5508 6 REQ-8";
    NatError, "nat_error", Warning, "An ICMP error quotes a packet of no mapping, or its checksum is wrong", "RFC 5508 4";
    GuardBlocklist, "guard_blocklist", Info, "The source or the destination is on the blocklist", "LF-4";
    GuardRate, "guard_rate", Warning, "A source or destination exceeds its packet or connection rate", "LF-4";
    GuardScan, "guard_scan", Warning, "The source is held off for scanning", "LF-4";
    GuardSynCookie, "guard_syn_cookie", Info, "The SYN was answered by a cookie, or the cookie that came back is wrong", "RFC 4987 3.6";
    AlgMalformed, "alg_malformed", Warning, "An inspected protocol's message cannot be translated", "LF-4";
    FaultInjected, "fault_injected", Info, "The fault engine was asked to lose the packet", "IO-8";
    LinkQueueFull, "link_queue_full", Info, "The impaired link holds as many packets as it may", "IO-8";
    Shutdown, "shutdown", Info, "The node stopped while the packet was inside", "IO-1";
}
