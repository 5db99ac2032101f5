//! What TCP counts.

/// Counters of TCP since the stack was made; names as in RFC 4022 and Linux's `TcpExt` where they have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpStats {
    /// Segments received.
    pub segments_in: u64,
    /// Segments sent, retransmissions included.
    pub segments_out: u64,
    /// Segments sent again.
    pub segments_resent: u64,
    /// Connections opened by connect.
    pub active_opens: u64,
    /// Connections accepted.
    pub passive_opens: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Resets that ended a connection.
    pub resets_in: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Recoveries without a timeout.
    pub recoveries: u64,
    /// Window reductions that were taken back as spurious.
    pub undos: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Window probes and keep-alives.
    pub peer_probes: u64,
    /// Challenge acknowledgements (RFC 5961).
    pub challenges: u64,
    /// Segments that would have been challenged, had one not been within half a second (RFC 5961 7).
    pub challenges_withheld: u64,
    /// Segments dropped by PAWS.
    pub paws: u64,
    /// Duplicates reported by the peer (RFC 2883).
    pub dsacks_in: u64,
    /// Segments that came out of order.
    pub out_of_order: u64,
    /// Received data for which there was no buffer.
    pub no_buffer: u64,
    /// SYNs answered by a cookie.
    pub cookies_sent: u64,
    /// Connections made of a cookie.
    pub cookies_accepted: u64,
    /// Acknowledgements whose cookie is wrong.
    pub cookies_failed: u64,
    /// SYNs dropped because a queue or table was full.
    pub backlog_drops: u64,
    /// Sessions that ended without TIME_WAIT, because there were too many.
    pub time_wait_overflow: u64,
    /// Sessions in TIME_WAIT that a new connection took over.
    pub time_wait_reused: u64,
    /// Window reductions for a congestion mark.
    pub ecn_reductions: u64,
    /// Connections whose SYN carried data that was taken.
    pub fast_opens: u64,
}
