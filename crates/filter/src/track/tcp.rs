//! TCP as a middlebox sees it: connection state, and which segments can belong to it.
//!
//! Windows after van Rooij ("Real stateful TCP packet filtering in IP Filter", 2000): for each sender the highest
//! sequence number sent and the highest that its peer allowed bound the data (I, II) and the
//! acknowledgements (III, IV) that are plausible. Resets and SYNs after RFC 5961, window scale after RFC 7323,
//! what a connection's end means after RFC 7857 2 and RFC 6146 3.5.2.
//!
//! Everything here is a pure function of the state and a segment; [`super::record`] keeps the state in shared
//! words.

use wire::tcp::Flags;

use crate::packet::CtDirection;

mod segment;
#[cfg(test)]
mod tests;

pub use segment::Segment;

/// Acknowledgements this far below what was sent are too old (bound IV), bytes.
const ACK_WINDOW_MIN: u32 = 66_000;

/// The largest window scale (RFC 7323 2.3).
const SCALE_MAX: u8 = 14;

/// Where a TCP connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TcpState {
    /// Nothing was seen.
    #[default]
    None = 0,
    /// A SYN from the originator.
    SynSent = 1,
    /// SYNs from both sides (simultaneous open).
    SynSent2 = 2,
    /// SYN and SYN-ACK.
    SynReceived = 3,
    /// Open in both directions.
    Established = 4,
    /// One side has sent its FIN.
    FinWait = 5,
    /// Both sides have.
    LastAck = 6,
    /// Both FINs are acknowledged.
    TimeWait = 7,
    /// Reset. A valid segment opens it again (RFC 7857 2.2: the reset may have been forged).
    Closed = 8,
}

impl TcpState {
    /// Reads what `as u8` gave.
    pub const fn from_bits(bits: u8) -> Self {
        match bits {
            1 => Self::SynSent,
            2 => Self::SynSent2,
            3 => Self::SynReceived,
            4 => Self::Established,
            5 => Self::FinWait,
            6 => Self::LastAck,
            7 => Self::TimeWait,
            8 => Self::Closed,
            _ => Self::None,
        }
    }

    /// Returns the name that conntrack tools show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::SynSent => "SYN_SENT",
            Self::SynSent2 => "SYN_SENT2",
            Self::SynReceived => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Closed => "CLOSE",
        }
    }
}

bitflags::bitflags! {
    /// What is known of a connection beside its state.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TcpFlags: u16 {
        /// The originator was heard.
        const SEEN_ORIGINAL = 1 << 0;
        /// The other side was heard.
        const SEEN_REPLY = 1 << 1;
        /// The originator offered window scaling.
        const SCALE_ORIGINAL = 1 << 2;
        /// The other side did.
        const SCALE_REPLY = 1 << 3;
        /// The originator has sent its FIN.
        const FIN_ORIGINAL = 1 << 4;
        /// The other side has.
        const FIN_REPLY = 1 << 5;
        /// The originator's FIN is acknowledged.
        const FIN_ACKED_ORIGINAL = 1 << 6;
        /// The other side's FIN is.
        const FIN_ACKED_REPLY = 1 << 7;
        /// Picked up in mid-stream without window checks.
        const LIBERAL = 1 << 8;
        /// The originator sent a SYN into the open connection; `syn` is its sequence number.
        const CHALLENGED = 1 << 9;
        /// Picked up in mid-stream: the scales are not known.
        const PICKED_UP = 1 << 10;
        /// The originator has acknowledged something.
        const ACKED_ORIGINAL = 1 << 11;
        /// The other side has.
        const ACKED_REPLY = 1 << 12;
    }
}

/// One side, as a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// One past the highest sequence number that it sent.
    pub end: u32,
    /// One past the highest sequence number that its peer allowed.
    pub max_end: u32,
    /// Largest window that it advertised, bytes.
    pub max_window: u32,
    /// Highest acknowledgement that it sent.
    pub max_ack: u32,
    /// Its window scale.
    pub scale: u8,
}

/// A tracked TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Where it stands.
    pub state: TcpState,
    /// What else is known.
    pub flags: TcpFlags,
    /// Originator and responder.
    pub sides: [Sender; 2],
    /// The window scale that a SYN proxy announced in the responder's place.
    pub announced: u8,
    /// Sequence number of a SYN that came into the open connection.
    pub syn: u32,
}

/// What connections are picked up in mid-stream (no SYN was seen).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pickup {
    /// None: such segments are invalid.
    None,
    /// Those whose both sides then keep within the windows that a scale of 14 allows.
    Strict,
    /// All; their windows are not checked.
    #[default]
    Loose,
}

/// Why a segment is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invalid {
    /// No TCP sends this set of flags.
    Flags,
    /// It starts no connection, and none is known.
    NoConnection,
    /// Data beyond what the receiver allowed (bound I).
    BeyondWindow,
    /// Data older than the receiver could still want (bound II).
    BeforeWindow,
    /// Acknowledges what was never sent (bound III).
    AckUnsent,
    /// Acknowledges what is long acknowledged (bound IV).
    AckOld,
    /// A reset outside of the window.
    ResetOutside,
    /// Does not fit the handshake.
    Handshake,
}

/// What to do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It belongs to the connection, whose state it may have changed.
    Valid,
    /// It may reach the receiver, who will judge it, but changes nothing (RFC 5961).
    Pass,
    /// It starts a new connection in place of this one, which is over.
    Reopen,
    /// It cannot belong to the connection.
    Invalid(Invalid),
}

/// Returns whether `a` lies after `b` in sequence space.
#[inline]
pub const fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

/// Returns the later of two in sequence space.
#[inline]
pub const fn later(a: u32, b: u32) -> u32 {
    if after(a, b) { a } else { b }
}

/// Checks the flags: the sets that some TCP sends (row 68; RFC 9293 3.10).
pub const fn are_legal(flags: Flags) -> bool {
    let ignored = Flags::PSH
        .union(Flags::URG)
        .union(Flags::ECE)
        .union(Flags::CWR)
        .union(Flags::AE);
    let (syn, ack) = (Flags::SYN.bits(), Flags::ACK.bits());
    let (rst, fin) = (Flags::RST.bits(), Flags::FIN.bits());
    let core = flags.bits() & !ignored.bits();
    core == syn
        || core == syn | ack
        || core == ack
        || core == ack | fin
        || core == rst
        || core == rst | ack
}

impl Tcp {
    /// Starts a connection with its first segment.
    ///
    /// # Errors
    /// If the segment starts none.
    pub fn start(segment: &Segment, pickup: Pickup) -> Result<Self, Invalid> {
        if !are_legal(segment.flags) {
            return Err(Invalid::Flags);
        }
        let mut tcp = Self::default();
        let is_syn = segment.flags.contains(Flags::SYN);
        if is_syn && !segment.flags.contains(Flags::ACK) {
            tcp.state = TcpState::SynSent;
            tcp.open_side(CtDirection::Original, segment);
            return Ok(tcp);
        }
        if pickup == Pickup::None || is_syn || segment.flags.intersects(Flags::RST | Flags::FIN) {
            return Err(Invalid::NoConnection);
        }
        tcp.state = TcpState::Established;
        tcp.flags = TcpFlags::PICKED_UP;
        if pickup == Pickup::Loose {
            tcp.flags |= TcpFlags::LIBERAL;
        }
        for side in &mut tcp.sides {
            side.scale = SCALE_MAX;
        }
        tcp.meet_side(CtDirection::Original, segment);
        Ok(tcp)
    }

    /// Judges a segment of the connection and takes it into account if it is valid.
    pub fn judge(&mut self, direction: CtDirection, segment: &Segment) -> Outcome {
        if !are_legal(segment.flags) {
            return Outcome::Invalid(Invalid::Flags);
        }
        if segment.flags.contains(Flags::SYN) {
            if segment.flags.contains(Flags::ACK) {
                self.syn_ack(direction, segment)
            } else {
                self.syn(direction, segment)
            }
        } else if segment.flags.contains(Flags::RST) {
            self.reset(direction, segment)
        } else {
            self.data(direction, segment)
        }
    }

    fn side(&self, direction: CtDirection) -> &Sender {
        &self.sides[direction as usize & 1]
    }

    fn peer(&self, direction: CtDirection) -> &Sender {
        &self.sides[1 - (direction as usize & 1)]
    }

    fn has_seen(&self, direction: CtDirection) -> bool {
        self.flags
            .contains(flag(TcpFlags::SEEN_ORIGINAL, direction))
    }

    /// Notes a side's SYN: its first number, window and options.
    fn open_side(&mut self, direction: CtDirection, segment: &Segment) {
        let end = segment.end();
        self.flags |= flag(TcpFlags::SEEN_ORIGINAL, direction);
        self.flags.set(
            flag(TcpFlags::SCALE_ORIGINAL, direction),
            segment.scale.is_some(),
        );
        self.sides[direction as usize & 1] = Sender {
            end,
            max_end: end,
            max_window: u32::from(segment.window).max(1),
            max_ack: 0,
            scale: segment.scale.unwrap_or(0).min(SCALE_MAX),
        };
        self.flags -= flag(TcpFlags::ACKED_ORIGINAL, direction);
    }

    /// Notes a side from a segment in mid-stream.
    fn meet_side(&mut self, direction: CtDirection, segment: &Segment) {
        let scale = self.side(direction).scale;
        let window = (u32::from(segment.window) << scale).max(1);
        let end = segment.end();
        let allowed = if self.has_seen(direction.reversed()) {
            self.side(direction).max_end
        } else {
            end.wrapping_add(window)
        };
        self.flags |= flag(
            TcpFlags::SEEN_ORIGINAL | TcpFlags::ACKED_ORIGINAL,
            direction,
        );
        self.sides[direction as usize & 1] = Sender {
            end,
            max_end: allowed,
            max_window: window,
            max_ack: segment.acknowledgement,
            scale,
        };
        if !self.has_seen(direction.reversed()) {
            let peer = &mut self.sides[1 - (direction as usize & 1)];
            peer.end = segment.acknowledgement;
            peer.max_end = segment.acknowledgement.wrapping_add(window);
        }
    }

    fn syn(&mut self, direction: CtDirection, segment: &Segment) -> Outcome {
        match self.state {
            TcpState::SynSent if direction == CtDirection::Original => {
                // A retransmission, or a new attempt from the same port: its numbers count from now on.
                self.open_side(direction, segment);
                Outcome::Valid
            }
            TcpState::SynSent => {
                self.open_side(direction, segment);
                self.agree_on_scales();
                self.state = TcpState::SynSent2;
                Outcome::Valid
            }
            TcpState::SynSent2 | TcpState::SynReceived => {
                if segment.end() == self.side(direction).end {
                    Outcome::Valid
                } else {
                    self.challenge(direction, segment)
                }
            }
            // RFC 1122 4.2.2.13: a SYN above the old numbers may open the connection anew from TIME-WAIT.
            TcpState::TimeWait | TcpState::LastAck
                if !after(segment.sequence, self.side(direction).end)
                    && self.has_seen(direction) =>
            {
                self.challenge(direction, segment)
            }
            TcpState::TimeWait | TcpState::LastAck | TcpState::Closed | TcpState::None => {
                Outcome::Reopen
            }
            TcpState::Established | TcpState::FinWait => self.challenge(direction, segment),
        }
    }

    /// A SYN into an open connection (RFC 5961 4): the receiver answers with a challenge, or, if it knows
    /// nothing of the connection, with a SYN-ACK, which proves that it is a new one.
    fn challenge(&mut self, direction: CtDirection, segment: &Segment) -> Outcome {
        if direction == CtDirection::Original {
            self.flags |= TcpFlags::CHALLENGED;
            self.syn = segment.sequence;
        }
        Outcome::Pass
    }

    fn syn_ack(&mut self, direction: CtDirection, segment: &Segment) -> Outcome {
        let peer = *self.peer(direction);
        match self.state {
            TcpState::SynSent if direction == CtDirection::Reply => {
                // With data in the SYN (RFC 7413), less than all of it may be acknowledged.
                let unsent = after(segment.acknowledgement, peer.end);
                let old = !after(
                    segment.acknowledgement,
                    peer.end.wrapping_sub(u16::MAX.into()),
                );
                if unsent || old {
                    return Outcome::Invalid(Invalid::Handshake);
                }
                self.open_side(direction, segment);
                self.agree_on_scales();
                self.greet(segment);
                Outcome::Valid
            }
            TcpState::SynSent2 => {
                if segment.acknowledgement != peer.end {
                    return Outcome::Invalid(Invalid::AckUnsent);
                }
                self.allow(direction, segment.acknowledgement, segment.window.into());
                self.state = TcpState::SynReceived;
                Outcome::Valid
            }
            TcpState::SynSent | TcpState::None => Outcome::Invalid(Invalid::Handshake),
            _ if direction == CtDirection::Reply
                && self.flags.contains(TcpFlags::CHALLENGED)
                && segment.acknowledgement == self.syn.wrapping_add(1) =>
            {
                self.begin_again(segment);
                Outcome::Valid
            }
            _ => match self.check_bounds(direction, segment) {
                Ok(()) => {
                    if self.state == TcpState::SynReceived {
                        self.allow(direction, segment.acknowledgement, segment.window.into());
                    }
                    Outcome::Valid
                }
                Err(bound) => Outcome::Invalid(bound),
            },
        }
    }

    /// Notes the responder's SYN-ACK: each side may send what the other's window allows.
    fn greet(&mut self, segment: &Segment) {
        let allowed = self.sides[0].max_window;
        let responder = &mut self.sides[1];
        responder.max_end = responder.end.wrapping_add(allowed);
        let window = segment.window.into();
        self.allow(CtDirection::Reply, segment.acknowledgement, window);
        self.state = TcpState::SynReceived;
    }

    /// The responder has answered the SYN that came into the open connection: it is another one.
    fn begin_again(&mut self, segment: &Segment) {
        let end = self.syn.wrapping_add(1);
        let scales = self.flags & TcpFlags::SCALE_ORIGINAL;
        let originator = Sender {
            end,
            max_end: end,
            ..self.sides[0]
        };
        self.sides[0] = originator;
        self.flags = scales | TcpFlags::SEEN_ORIGINAL;
        self.open_side(CtDirection::Reply, segment);
        self.agree_on_scales();
        // The client sees this handshake as the responder does it.
        self.announced = self.sides[1].scale;
        self.greet(segment);
    }

    /// RFC 7323 2.2: windows are scaled only if both SYNs offered it.
    fn agree_on_scales(&mut self) {
        if !self
            .flags
            .contains(TcpFlags::SCALE_ORIGINAL | TcpFlags::SCALE_REPLY)
        {
            self.sides[0].scale = 0;
            self.sides[1].scale = 0;
        }
    }

    fn reset(&mut self, direction: CtDirection, segment: &Segment) -> Outcome {
        let (sender, receiver) = (*self.side(direction), *self.peer(direction));
        let receiver_acked = flag(TcpFlags::ACKED_ORIGINAL, direction.reversed());
        let has_acked = self.flags.contains(receiver_acked);
        let exact = match self.state {
            TcpState::None => return Outcome::Invalid(Invalid::NoConnection),
            TcpState::SynSent if direction == CtDirection::Reply => {
                // RFC 9293 3.10.7.3: it acknowledges the SYN, or it is none of this connection.
                if segment.ack_if_set() != Some(receiver.end) {
                    return Outcome::Invalid(Invalid::ResetOutside);
                }
                true
            }
            // RFC 5961 3.2: exactly the next number that the receiver expects; which is what it
            // acknowledged, or, if all was delivered, what was sent.
            _ => {
                segment.sequence == sender.end || has_acked && segment.sequence == receiver.max_ack
            }
        };
        if exact {
            self.state = TcpState::Closed;
            return Outcome::Valid;
        }
        if self.flags.contains(TcpFlags::LIBERAL) {
            return Outcome::Pass;
        }
        let oldest = if has_acked {
            receiver.max_ack
        } else {
            sender.end
        };
        if after(oldest, segment.sequence) || after(segment.sequence, sender.max_end) {
            return Outcome::Invalid(Invalid::ResetOutside);
        }
        // The receiver answers with a challenge; if that is right, an exact reset follows.
        Outcome::Pass
    }

    fn data(&mut self, direction: CtDirection, segment: &Segment) -> Outcome {
        match self.state {
            TcpState::None => return Outcome::Invalid(Invalid::NoConnection),
            // RFC 5961 4.2: the responder still holds an old connection and challenges the SYN.
            TcpState::SynSent if direction == CtDirection::Reply => return Outcome::Pass,
            TcpState::SynSent | TcpState::SynSent2 => {
                return Outcome::Invalid(Invalid::Handshake);
            }
            _ => {}
        }
        if !self.has_seen(direction) {
            self.meet_side(direction, segment);
        }
        if let Err(bound) = self.check_bounds(direction, segment)
            && !self.flags.contains(TcpFlags::LIBERAL)
        {
            return Outcome::Invalid(bound);
        }
        self.take_data(direction, segment);
        Outcome::Valid
    }

    /// Checks the four bounds.
    fn check_bounds(&self, direction: CtDirection, segment: &Segment) -> Result<(), Invalid> {
        let (sender, receiver) = (self.side(direction), self.peer(direction));
        let end = segment.end();
        if after(end, sender.max_end) {
            return Err(Invalid::BeyondWindow);
        }
        let oldest = sender.end.wrapping_sub(receiver.max_window).wrapping_sub(1);
        if after(oldest, end) {
            return Err(Invalid::BeforeWindow);
        }
        if after(
            segment.sack.unwrap_or(segment.acknowledgement),
            receiver.end,
        ) {
            return Err(Invalid::AckUnsent);
        }
        let window = ACK_WINDOW_MIN.max(sender.max_window);
        if after(receiver.end.wrapping_sub(window), segment.acknowledgement) {
            return Err(Invalid::AckOld);
        }
        Ok(())
    }

    fn take_data(&mut self, direction: CtDirection, segment: &Segment) {
        let scale = self.side(direction).scale;
        let window = u32::from(segment.window) << scale;
        let sender = &mut self.sides[direction as usize & 1];
        sender.end = later(sender.end, segment.end());
        // Only of a picked up connection may that be more than was allowed.
        sender.max_end = later(sender.max_end, sender.end);
        self.allow(direction, segment.acknowledgement, window);
        if segment.flags.contains(Flags::FIN) {
            self.flags |= flag(TcpFlags::FIN_ORIGINAL, direction);
        }
        let receiver_fin = self
            .flags
            .contains(flag(TcpFlags::FIN_ORIGINAL, direction.reversed()));
        if receiver_fin && segment.acknowledgement == self.peer(direction).end {
            self.flags |= flag(TcpFlags::FIN_ACKED_ORIGINAL, direction.reversed());
        }
        self.advance();
    }

    /// Notes what a side acknowledges and allows.
    fn allow(&mut self, direction: CtDirection, ack: u32, window: u32) {
        let acked = flag(TcpFlags::ACKED_ORIGINAL, direction);
        let first = !self.flags.contains(acked);
        self.flags |= acked;
        let sender = &mut self.sides[direction as usize & 1];
        sender.max_window = sender.max_window.max(window);
        sender.max_ack = if first {
            ack
        } else {
            later(sender.max_ack, ack)
        };
        let receiver = &mut self.sides[1 - (direction as usize & 1)];
        // A closed window is probed with one byte (RFC 9293 3.8.6.1).
        receiver.max_end = later(receiver.max_end, ack.wrapping_add(window.max(1)));
    }

    fn advance(&mut self) {
        let both_fins = TcpFlags::FIN_ORIGINAL | TcpFlags::FIN_REPLY;
        let both_acked = TcpFlags::FIN_ACKED_ORIGINAL | TcpFlags::FIN_ACKED_REPLY;
        self.state = if self.flags.contains(both_fins | both_acked) {
            TcpState::TimeWait
        } else if self.flags.contains(both_fins) {
            TcpState::LastAck
        } else if self.flags.intersects(both_fins) {
            TcpState::FinWait
        } else if self.state == TcpState::SynReceived
            && !self.flags.contains(TcpFlags::ACKED_ORIGINAL)
        {
            TcpState::SynReceived
        } else {
            TcpState::Established
        };
    }
}

/// The flag of a direction: each pair lies side by side, the originator's first.
const fn flag(original: TcpFlags, direction: CtDirection) -> TcpFlags {
    TcpFlags::from_bits_retain(original.bits() << (direction as u16))
}
