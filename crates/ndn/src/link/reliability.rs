//! Link reliability (NDNLPv2, "link reliability"; NFD's LpReliability): acknowledgements, loss detection,
//! retransmission.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use wire::Instant;

/// Choices of [`Reliability`], with NFD's defaults.
#[derive(Clone, Copy, Debug)]
pub struct ReliabilityConfig {
    /// Retransmissions of a link packet before its network packet is given up.
    pub retx_max: u32,
    /// A link packet is lost when so many later ones were acknowledged.
    pub loss_threshold: u32,
    /// How long an acknowledgement waits for a packet to go with.
    pub idle_ack: Duration,
    /// Link packets that may be unacknowledged; more go without reliability.
    pub unacked_max: usize,
}

impl Default for ReliabilityConfig {
    fn default() -> Self {
        Self {
            retx_max: 3,
            loss_threshold: 3,
            idle_ack: Duration::from_millis(5),
            unacked_max: 4096,
        }
    }
}

/// A link packet that was sent and not acknowledged.
#[derive(Debug)]
struct Unacked {
    tx_sequence: u64,
    /// The network packet that it is of.
    packet: u64,
    /// The link packet, without TxSequence and acks.
    frame: Vec<u8>,
    sent: Instant,
    deadline: Instant,
    retx: u32,
    later_acks: u32,
}

/// The reliability of one face.
#[derive(Debug)]
pub struct Reliability {
    config: ReliabilityConfig,
    next_sequence: u64,
    next_packet: u64,
    /// By TxSequence.
    unacked: VecDeque<Unacked>,
    acks: VecDeque<u64>,
    ack_deadline: Option<Instant>,
    /// TxSequences that came lately, to know duplicates.
    seen: VecDeque<(u64, Instant)>,
    srtt: Option<Duration>,
    variance: Duration,
    /// Network packets that were given up.
    given_up: u64,
}

/// TxSequences that are remembered to know duplicates.
const SEEN_MAX: usize = 1024;
/// Acknowledgements that may wait to be sent.
const ACKS_MAX: usize = 4096;

impl Reliability {
    /// Starts with TxSequence `first`, which should be random.
    pub const fn new(config: ReliabilityConfig, first: u64) -> Self {
        Self {
            config,
            next_sequence: first,
            next_packet: 0,
            unacked: VecDeque::new(),
            acks: VecDeque::new(),
            ack_deadline: None,
            seen: VecDeque::new(),
            srtt: None,
            variance: Duration::ZERO,
            given_up: 0,
        }
    }

    /// Names a network packet whose fragments are sent next.
    pub const fn begin_packet(&mut self) -> u64 {
        self.next_packet = self.next_packet.wrapping_add(1);
        self.next_packet
    }

    /// Keeps a link packet that is sent now; returns its TxSequence, or `None` if too many are
    /// unacknowledged, so that it goes without.
    pub fn sent(&mut self, now: Instant, packet: u64, frame: &[u8]) -> Option<u64> {
        if self.unacked.len() >= self.config.unacked_max {
            return None;
        }
        self.keep(now, packet, frame.to_vec(), 0)
    }

    fn keep(&mut self, now: Instant, packet: u64, frame: Vec<u8>, retx: u32) -> Option<u64> {
        let tx_sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.unacked.push_back(Unacked {
            tx_sequence,
            packet,
            frame,
            sent: now,
            deadline: now + self.rto(),
            retx,
            later_acks: 0,
        });
        Some(tx_sequence)
    }

    /// Takes the acknowledgements of a link packet; `resend` gets what is lost by them, with its new
    /// TxSequence.
    pub fn acknowledged(
        &mut self,
        now: Instant,
        acks: impl Iterator<Item = u64>,
        resend: &mut impl FnMut(u64, &[u8]),
    ) {
        for ack in acks {
            let place = self.unacked.iter().position(|u| u.tx_sequence == ack);
            let Some(acked) = place.and_then(|at| self.unacked.remove(at)) else {
                continue;
            };
            if acked.retx == 0 {
                self.measure(now.saturating_since(acked.sent));
            }
            let earlier = place.unwrap_or(0);
            for other in self.unacked.iter_mut().take(earlier) {
                other.later_acks += 1;
            }
        }
        let threshold = self.config.loss_threshold;
        self.retransmit(now, |unacked| unacked.later_acks >= threshold, resend);
    }

    /// Takes the TxSequence of a link packet that came: it will be acknowledged. False if it came before.
    pub fn received(&mut self, now: Instant, tx_sequence: u64) -> bool {
        if self.acks.len() < ACKS_MAX {
            self.acks.push_back(tx_sequence);
            self.ack_deadline.get_or_insert(now + self.config.idle_ack);
        }
        let horizon = self.rto() * 2;
        while let Some(&(_, when)) = self.seen.front() {
            if now.saturating_since(when) <= horizon && self.seen.len() < SEEN_MAX {
                break;
            }
            self.seen.pop_front();
        }
        let is_new = !self.seen.iter().any(|&(seen, _)| seen == tx_sequence);
        if is_new {
            self.seen.push_back((tx_sequence, now));
        }
        is_new
    }

    /// Takes up to `count` acknowledgements to send with a link packet.
    pub fn take_acks(&mut self, count: usize, out: &mut Vec<u64>) {
        out.clear();
        out.extend(self.acks.drain(..count.min(self.acks.len())));
        if self.acks.is_empty() {
            self.ack_deadline = None;
        }
    }

    /// True if acknowledgements waited long enough to be sent alone.
    pub fn is_ack_due(&self, now: Instant) -> bool {
        self.ack_deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Resends what was not acknowledged in time.
    pub fn handle_timeout(&mut self, now: Instant, resend: &mut impl FnMut(u64, &[u8])) {
        self.retransmit(now, |unacked| unacked.deadline <= now, resend);
    }

    /// Returns when something is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let resend = self.unacked.iter().map(|unacked| unacked.deadline).min();
        [resend, self.ack_deadline].into_iter().flatten().min()
    }

    /// Returns how many network packets were given up.
    pub const fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns how many link packets are unacknowledged.
    pub fn in_flight(&self) -> usize {
        self.unacked.len()
    }

    fn retransmit(
        &mut self,
        now: Instant,
        is_lost: impl Fn(&Unacked) -> bool,
        resend: &mut impl FnMut(u64, &[u8]),
    ) {
        // What is resent joins the end: only what is there now is looked at.
        let mut left = self.unacked.len();
        let mut at = 0;
        while left > 0 {
            left -= 1;
            if !self.unacked.get(at).is_some_and(&is_lost) {
                at += 1;
                continue;
            }
            let Some(lost) = self.unacked.remove(at) else {
                return;
            };
            if lost.retx >= self.config.retx_max {
                // Without one fragment the others are of no use.
                let before = self.unacked.len();
                self.unacked.retain(|other| other.packet != lost.packet);
                let gone = before - self.unacked.len();
                left = left.saturating_sub(gone);
                at = at.min(self.unacked.len());
                self.given_up += 1;
                continue;
            }
            resend(self.next_sequence, &lost.frame);
            self.keep(now, lost.packet, lost.frame, lost.retx + 1);
        }
    }

    fn measure(&mut self, rtt: Duration) {
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.variance = rtt / 2;
            }
            Some(srtt) => {
                self.variance = (self.variance * 3 + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((srtt * 7 + rtt) / 8);
            }
        }
    }

    /// RFC 6298, with ndn-cxx's bounds.
    fn rto(&self) -> Duration {
        match self.srtt {
            None => Duration::from_secs(1),
            Some(srtt) => {
                let rto = srtt + self.variance * 4;
                rto.clamp(Duration::from_millis(200), Duration::from_secs(60))
            }
        }
    }
}
