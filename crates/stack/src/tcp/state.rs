//! The states of a connection (RFC 9293 3.3.2); LISTEN is [`Listener`](super::listener), apart.

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Over; the handle lives until it is closed.
    #[default]
    Closed,
    /// Our SYN is out.
    SynSent,
    /// Both SYNs are out, ours not acknowledged.
    SynReceived,
    /// Data flows.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed; the peer may still send.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we; our FIN is not acknowledged.
    LastAck,
    /// Over, waiting for old segments to die out.
    TimeWait,
}

impl State {
    /// Says whether both ends know of each other.
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::SynSent | Self::SynReceived)
    }
    /// Says whether the application may send (its FIN is not queued).
    pub const fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }
    /// Says whether the peer may send.
    pub const fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}
