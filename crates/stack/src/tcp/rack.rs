//! Loss detection by time, and tail loss probes (RFC 8985).

use super::scoreboard::{Loss, Mark, Sent};
use super::seq::Seq;

/// Recoveries for which a widened reordering window lasts (RFC 8985 7.2).
const WINDOW_PERSIST: u8 = 16;
/// How long a least round-trip time counts, ns.
const MIN_RTT_LIFE_NS: u64 = 300_000_000_000;

/// What the newest delivered segment tells.
#[derive(Debug)]
pub(crate) struct Rack {
    /// When the newest delivered segment was sent, ns, and where it ends.
    sent_at: u64,
    end: Seq,
    pub(crate) rtt_ns: u64,
    pub(crate) min_rtt_ns: u64,
    min_rtt_at: u64,
    /// Highest sequence number that was delivered, now and before the acknowledgement that is being taken.
    fack: Seq,
    prior_fack: Seq,
    pub(crate) reordering_seen: bool,
    multiplier: u8,
    persist: u8,
    dsack_round: Option<Seq>,
    /// A tail loss probe is out: its end, and whether it was a retransmission.
    pub(crate) tail: Option<(Seq, bool)>,
}

impl Rack {
    pub(crate) const fn new(una: Seq) -> Self {
        Self {
            sent_at: 0,
            end: una,
            rtt_ns: 0,
            min_rtt_ns: 0,
            min_rtt_at: 0,
            fack: una,
            prior_fack: una,
            reordering_seen: false,
            multiplier: 1,
            persist: 0,
            dsack_round: None,
            tail: None,
        }
    }
    /// Begins an acknowledgement. One that covers a segment and reports another beyond a hole tells of no reordering: the
    /// peer delayed the first.
    pub(crate) fn begin(&mut self) {
        self.prior_fack = self.fack;
    }
    /// Hears that a segment was delivered (6.2 steps 1 to 3). `echo_is_older`: the timestamp echo shows that an
    /// earlier transmission was.
    pub(crate) fn on_delivered(&mut self, sent: &Sent, now_ns: u64, echo_is_older: bool) {
        let resent = sent.mark.contains(Mark::EVER_RESENT);
        let rtt = now_ns.saturating_sub(sent.sent_at);
        if resent && (echo_is_older || rtt < self.min_rtt_ns) {
            return;
        }
        if !resent {
            self.update_min_rtt(rtt, now_ns);
        }
        if sent_after(sent.sent_at, sent.end, self.sent_at, self.end) {
            self.sent_at = sent.sent_at;
            self.end = sent.end;
            self.rtt_ns = rtt;
        }
        if sent.end.after(self.fack) {
            self.fack = sent.end;
        } else if !resent && sent.end.before(self.prior_fack) {
            self.reordering_seen = true;
        }
    }
    /// Hears of a duplicate that the peer reported (6.2 step 4): the window was too narrow.
    pub(crate) fn on_dsack(&mut self, una: Seq, next: Seq) {
        if self.dsack_round.is_none_or(|round| una.at_or_after(round)) {
            self.dsack_round = Some(next);
            self.multiplier = self.multiplier.saturating_add(1).min(254);
            self.persist = WINDOW_PERSIST;
        }
    }
    /// Hears that a recovery ended.
    pub(crate) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }
    /// Returns the reordering window, ns (6.2 step 4).
    pub(crate) fn window_ns(&self, srtt_ns: u64, is_recovering: bool, sacked_segments: u32) -> u64 {
        if !self.reordering_seen && (is_recovering || sacked_segments >= 3) {
            return 0;
        }
        (self.min_rtt_ns / 4 * u64::from(self.multiplier)).min(srtt_ns)
    }
    /// Says of a segment whether it is lost (6.2 step 5); `wait` becomes the longest time until one could be.
    #[inline]
    pub(crate) fn verdict(&self, sent: &Sent, window_ns: u64, now_ns: u64, wait: &mut u64) -> Loss {
        if !sent_after(self.sent_at, self.end, sent.sent_at, sent.end) {
            // Segments that were sent once are in the order of their times: so are all that follow, unless resent.
            return if sent.mark.contains(Mark::EVER_RESENT) {
                Loss::No
            } else {
                Loss::End
            };
        }
        let due = sent.sent_at + self.rtt_ns + window_ns;
        if due <= now_ns {
            return Loss::Yes;
        }
        *wait = (*wait).max(due - now_ns);
        Loss::No
    }

    fn update_min_rtt(&mut self, rtt: u64, now_ns: u64) {
        if rtt > 0
            && (self.min_rtt_ns == 0
                || rtt <= self.min_rtt_ns
                || now_ns > self.min_rtt_at + MIN_RTT_LIFE_NS)
        {
            self.min_rtt_ns = rtt;
            self.min_rtt_at = now_ns;
        }
    }
}

/// RFC 8985 5.2: later time, or the same time and a later end.
fn sent_after(at: u64, end: Seq, other_at: u64, other_end: Seq) -> bool {
    at > other_at || at == other_at && end.after(other_end)
}
