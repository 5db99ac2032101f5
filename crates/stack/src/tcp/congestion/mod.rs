//! Congestion control: one trait, three algorithms.
//!
//! Loss detection and recovery (`recovery`, `rack`, `prr`) are apart: an algorithm hears of acknowledgements and of
//! congestion, and says how much may be in flight and how fast it may be sent.

mod bbr;
mod cubic;
mod hystart;
mod new_reno;

pub(crate) use bbr::Bbr;
pub(crate) use cubic::Cubic;
pub(crate) use new_reno::NewReno;

use crate::config::{Algorithm, Modules, TcpConfig};

/// What one acknowledgement says; times in ns, amounts in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// When it arrived.
    pub now_ns: u64,
    /// Newly acknowledged, cumulatively or selectively.
    pub delivered: u32,
    /// Round-trip time of the newest segment, 0 if none can be told.
    pub rtt_ns: u64,
    /// Least round-trip time of the connection's recent past, 0 if unknown.
    pub min_rtt_ns: u64,
    /// Smoothed round-trip time, 0 if unknown.
    pub srtt_ns: u64,
    /// In flight before the acknowledgement.
    pub prior_in_flight: u32,
    /// In flight after it.
    pub in_flight: u32,
    /// The acknowledgement number after it, for rounds.
    pub acknowledged: u32,
    /// The next sequence number to be sent, for rounds.
    pub next: u32,
    /// Delivery rate, bytes/s, 0 if unknown (draft-cheng-iccrg-delivery-rate).
    pub delivery_rate: u64,
    /// Bytes delivered in all when the newest acknowledged segment was sent, and now.
    pub prior_delivered: u64,
    /// Bytes delivered in all.
    pub total_delivered: u64,
    /// Bytes taken for lost by this acknowledgement.
    pub lost: u32,
    /// The rate was limited by the application, not by the network.
    pub app_limited: bool,
    /// The congestion window was the limit: it may grow.
    pub window_limited: bool,
    /// Loss recovery is under way, or the acknowledgement is no sign of room: the window does not grow.
    pub in_recovery: bool,
}

/// A congestion control algorithm. Windows are bytes.
pub trait CongestionControl: core::fmt::Debug {
    /// Hears of an acknowledgement of something new.
    fn on_ack(&mut self, ack: &Ack);
    /// Hears that recovery begins: reduces, once a window (RFC 5681 3.1). `in_flight` is what was before.
    fn on_congestion(&mut self, now_ns: u64, in_flight: u32);
    /// Hears of a retransmission timeout: the window becomes one segment.
    fn on_timeout(&mut self, now_ns: u64, in_flight: u32);
    /// Hears that the last reduction was spurious: takes it back.
    fn on_spurious(&mut self, now_ns: u64);
    /// Hears that recovery ended.
    fn on_recovered(&mut self, _now_ns: u64) {}
    /// Hears that sending begins again after a pause longer than the timeout (RFC 5681 4.1).
    fn on_idle_restart(&mut self, now_ns: u64, initial_window: u32);
    /// Hears that segments have another size from now on.
    fn set_mss(&mut self, mss: u32);
    /// Returns the congestion window.
    fn window(&self) -> u32;
    /// Returns the slow start threshold.
    fn threshold(&self) -> u32;
    /// Returns the rate to send at, bytes/s; `None` for as fast as the window allows.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    /// Says whether the window is set by the algorithm during recovery too (no PRR).
    fn owns_recovery(&self) -> bool {
        false
    }
}

/// The algorithm of a connection.
#[derive(Debug)]
pub(crate) enum Controller {
    NewReno(NewReno),
    Cubic(Cubic),
    Bbr(Bbr),
}

impl Controller {
    /// Makes an algorithm with the window and threshold that the connection has.
    pub(crate) fn new(
        algorithm: Algorithm,
        config: &TcpConfig,
        mss: u32,
        window: u32,
        threshold: u32,
    ) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(mss, window, threshold)),
            Algorithm::Cubic => {
                let hystart = config.modules.contains(Modules::HYSTART);
                Self::Cubic(Cubic::new(mss, window, threshold, hystart))
            }
            Algorithm::Bbr => Self::Bbr(Bbr::new(mss, window)),
        }
    }
    pub(crate) fn get(&self) -> &dyn CongestionControl {
        match self {
            Self::NewReno(this) => this,
            Self::Cubic(this) => this,
            Self::Bbr(this) => this,
        }
    }
    pub(crate) fn get_mut(&mut self) -> &mut dyn CongestionControl {
        match self {
            Self::NewReno(this) => this,
            Self::Cubic(this) => this,
            Self::Bbr(this) => this,
        }
    }
}
