//! The words of a connection in the shared table, and how workers change them.
//!
//! Five words lie in the original's record and five in the reply's: with keys and links 64 bytes each, so that an
//! IPv4 connection, translated or not, takes two cache lines (128 bytes). The translation needs no words: a packet
//! of one direction is rewritten to the reverse of the other direction's key.
//!
//! | word | original's record | reply's record |
//! | --- | --- | --- |
//! | 0 | deadline (32), timeout class (8), own flags (8), status (16) | originator: end (32), highest allowed (32) |
//! | 1 | replay of the original direction (32), of the reply direction (32) | originator: largest window (32), highest ack (32) |
//! | 2 | mark (32), zone (16), helper (16) | responder: end, highest allowed |
//! | 3 | originator's sequence numbers: position (32), offset before (16), after (16); without TCP, the helper's | responder: largest window, highest ack |
//! | 4 | responder's | challenged SYN (32), TCP flags (16), scales (4 + 4), announced scale (4), TCP state (4) |
//!
//! No lock: each field of a TCP sender only grows (in sequence space), so that workers that update one connection
//! at once merge by compare-and-swap and lose nothing; a segment that is judged by older values is judged as if it
//! had come a moment earlier. The state word is swapped as a whole: who loses judges again.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use tables::flow_map::EXPIRED;

use super::tcp::{Sender, Tcp, TcpFlags, TcpState, after, later};
use super::timeout::{Class, Tick};
use crate::packet::{CtStatus, HelperId};

/// Words of the caller in each record.
pub const WORDS: usize = 5;

bitflags::bitflags! {
    /// Flags of a connection that rules do not see.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Own: u8 {
        /// The connection uses a port mapping, which is given back at its end.
        const MAPPED = 1 << 0;
        /// The sequence numbers of a direction are shifted.
        const SHIFTED = 1 << 1;
        /// The node answered the handshake: word 4 is a [`Proxied`]. With [`SHIFTED`](Self::SHIFTED), the server has
        /// answered as well and the word says how its numbers differ; without, it is still to answer.
        const PROXIED = 1 << 2;
        /// The connection is counted for its source.
        const COUNTED = 1 << 3;
        /// Its reply key is of the other address family (NAT64).
        const NAT64 = 1 << 4;
        /// The mapping belongs to the responder's end (inbound through a mapping).
        const MAPPED_DESTINATION = 1 << 5;
        /// The source of a hairpinned connection has a mapping as well.
        const MAPPED_BOTH = 1 << 6;
    }
}

/// The first word: what every packet looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When the connection ends if no packet refreshes it.
    pub deadline: Tick,
    /// Which timeout holds.
    pub class: Class,
    /// Flags of ours.
    pub own: Own,
    /// Flags that rules see (the low 16 bits).
    pub status: CtStatus,
}

impl Life {
    /// Packs the word.
    pub const fn to_word(self) -> u64 {
        (self.deadline.0 as u64) << 32
            | (self.class as u64) << 24
            | (self.own.bits() as u64) << 16
            | (self.status.bits() & 0xffff) as u64
    }

    /// Unpacks it.
    pub const fn from_word(word: u64) -> Self {
        Self {
            deadline: Tick((word >> 32) as u32),
            class: Class::from_bits((word >> 24) as u8),
            own: Own::from_bits_retain((word >> 16) as u8),
            status: CtStatus::from_bits_retain(word as u32 & 0xffff),
        }
    }
}

/// A shift of sequence numbers by an ALG that changed the length of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    /// Numbers after this one (as the sender counts) are shifted by `after`, others by `before`.
    pub position: u32,
    /// Offset up to the position.
    pub before: i16,
    /// Offset beyond it.
    pub after: i16,
}

impl Shift {
    /// Returns what is added to a number that the sender uses.
    pub const fn offset_at(&self, number: u32) -> u32 {
        let offset = if after(number, self.position) {
            self.after
        } else {
            self.before
        };
        offset as i32 as u32
    }

    /// Turns a number that the receiver of shifted data names into the sender's.
    pub const fn unshift(&self, number: u32) -> u32 {
        let beyond = number.wrapping_sub(self.after as i32 as u32);
        if after(beyond, self.position) {
            beyond
        } else {
            number.wrapping_sub(self.before as i32 as u32)
        }
    }

    const fn to_word(self) -> u64 {
        (self.position as u64) << 32 | (self.before as u16 as u64) << 16 | self.after as u16 as u64
    }

    const fn from_word(word: u64) -> Self {
        Self {
            position: (word >> 32) as u32,
            before: (word >> 16) as u16 as i16,
            after: word as u16 as i16,
        }
    }
}

/// The responder's numbers of a handshake that the node answered (SYN proxy): those that it gave the client in the
/// responder's place, until the server has answered; from then on, what is added to the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proxied {
    /// Of timestamps.
    pub timestamp: u32,
    /// Of sequence numbers.
    pub sequence: u32,
}

impl Proxied {
    const fn to_word(self) -> u64 {
        pair(self.timestamp, self.sequence)
    }

    const fn from_word(word: u64) -> Self {
        Self {
            timestamp: (word >> 32) as u32,
            sequence: word as u32,
        }
    }
}

/// Values that a new connection starts with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// First word.
    pub life: Life,
    /// TCP state, if it is TCP.
    pub tcp: Option<Tcp>,
    /// Mark.
    pub mark: u32,
    /// Zone.
    pub zone: u16,
    /// Helper.
    pub helper: HelperId,
    /// What the node answered the client, for proxied handshakes.
    pub proxied: Option<Proxied>,
}

impl Start {
    /// Packs both records' words.
    pub fn words(&self) -> ([u64; WORDS], [u64; WORDS]) {
        let original = [
            self.life.to_word(),
            0,
            u64::from(self.mark) << 32 | u64::from(self.zone) << 16 | u64::from(self.helper.0),
            0,
            self.proxied.map_or(0, Proxied::to_word),
        ];
        let reply = self.tcp.as_ref().map_or([0; WORDS], tcp_words);
        (original, reply)
    }
}

fn tcp_words(tcp: &Tcp) -> [u64; WORDS] {
    let [originator, responder] = &tcp.sides;
    [
        pair(originator.end, originator.max_end),
        pair(originator.max_window, originator.max_ack),
        pair(responder.end, responder.max_end),
        pair(responder.max_window, responder.max_ack),
        state_word(tcp),
    ]
}

const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

const fn state_word(tcp: &Tcp) -> u64 {
    (tcp.syn as u64) << 32
        | (tcp.flags.bits() as u64) << 16
        | (tcp.sides[0].scale as u64 & 15) << 12
        | (tcp.sides[1].scale as u64 & 15) << 8
        | (tcp.announced as u64 & 15) << 4
        | tcp.state as u64
}

fn tcp_of(words: &[u64; WORDS]) -> Tcp {
    let state = words[4];
    let sender = |at: usize, scale: u64| Sender {
        end: (words[at] >> 32) as u32,
        max_end: words[at] as u32,
        max_window: (words[at + 1] >> 32) as u32,
        max_ack: words[at + 1] as u32,
        scale: scale as u8 & 15,
    };
    Tcp {
        state: TcpState::from_bits(state as u8 & 15),
        flags: TcpFlags::from_bits_retain((state >> 16) as u16),
        sides: [sender(0, state >> 12), sender(2, state >> 8)],
        announced: (state >> 4) as u8 & 15,
        syn: (state >> 32) as u32,
    }
}

/// A connection's words in the table, for changes in place.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    original: &'a [AtomicU64; WORDS],
    reply: &'a [AtomicU64; WORDS],
}

impl<'a> Record<'a> {
    /// Views the caller's words of both records.
    #[inline]
    pub fn new((original, reply): (&'a [AtomicU64], &'a [AtomicU64])) -> Option<Self> {
        Some(Self {
            original: original.first_chunk()?,
            reply: reply.first_chunk()?,
        })
    }

    /// Reads the first word.
    #[inline]
    pub fn life(&self) -> Life {
        Life::from_word(self.original[0].load(Ordering::Relaxed))
    }

    /// Changes the first word; writes only what differs. Returns false if the connection has expired: the
    /// packet belongs to none.
    #[inline]
    pub fn update_life(&self, mut change: impl FnMut(&mut Life)) -> bool {
        let word = &self.original[0];
        let mut old = word.load(Ordering::Relaxed);
        loop {
            if old == EXPIRED {
                return false;
            }
            let mut life = Life::from_word(old);
            change(&mut life);
            let new = life.to_word();
            // Relaxed: the word stands for itself; nothing is published by it.
            if new == old {
                return true;
            }
            match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// The first word as it is: what an expiry judges by.
    #[inline]
    pub fn life_word(&self) -> u64 {
        self.original[0].load(Ordering::Relaxed)
    }

    /// Reads the replay word of a direction.
    #[inline]
    pub fn replay(&self, direction: usize) -> u32 {
        (self.original[1].load(Ordering::Relaxed) >> (32 * (1 - (direction & 1)))) as u32
    }

    /// Notes that packets of a direction may be replayed.
    pub fn set_replay(&self, direction: usize, value: u32) {
        let shift = 32 * (1 - (direction & 1));
        let keep = !(u64::from(u32::MAX) << shift);
        let set = |word: u64| Some(word & keep | u64::from(value) << shift);
        let _ = self.original[1].fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// Reads mark, zone and helper.
    #[inline]
    pub fn labels(&self) -> (u32, u16, HelperId) {
        let word = self.original[2].load(Ordering::Relaxed);
        (
            (word >> 32) as u32,
            (word >> 16) as u16,
            HelperId(word as u16),
        )
    }

    /// Writes the mark.
    pub fn set_mark(&self, mark: u32) {
        let set = |word: u64| Some(word & 0xffff_ffff | u64::from(mark) << 32);
        let _ = self.original[2].fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// Reads the shift of a direction's sequence numbers.
    pub fn shift(&self, direction: usize) -> Shift {
        Shift::from_word(self.original[3 + (direction & 1)].load(Ordering::Relaxed))
    }

    /// Writes it.
    pub fn set_shift(&self, direction: usize, shift: Shift) {
        self.original[3 + (direction & 1)].store(shift.to_word(), Ordering::Relaxed);
    }

    /// Reads the numbers of a proxied handshake.
    pub fn proxied(&self) -> Proxied {
        // Acquire: who has seen the connection as shifted sees the differences (`set_proxied`).
        fence(Ordering::Acquire);
        Proxied::from_word(self.original[4].load(Ordering::Relaxed))
    }

    /// Writes the differences in place of the numbers `given` to the client; false if another worker has.
    pub fn set_proxied(&self, given: Proxied, differences: Proxied) -> bool {
        let (old, new) = (given.to_word(), differences.to_word());
        let swapped =
            self.original[4].compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        // Release: before the first word says that the connection is shifted.
        fence(Ordering::Release);
        swapped.is_ok()
    }

    /// Changes the word that a helper keeps of a connection without sequence numbers: the originator's shift.
    pub fn update_helper(&self, mut change: impl FnMut(u64) -> u64) {
        let set = |word| Some(change(word));
        // Relaxed: as in `update_life`.
        let _ = self.original[3].fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// Reads the TCP state.
    #[inline]
    pub fn tcp(&self) -> Tcp {
        tcp_of(&self.tcp_words())
    }

    #[inline]
    fn tcp_words(&self) -> [u64; WORDS] {
        core::array::from_fn(|at| self.reply[at].load(Ordering::Relaxed))
    }

    /// Lets `judge` look at the TCP state and change it; stores what changed.
    #[inline]
    pub fn judge_tcp<R>(&self, mut judge: impl FnMut(&mut Tcp) -> R) -> (R, Tcp) {
        let mut words = self.tcp_words();
        // Each loss is another worker's progress on this connection; after a few, the segment's numbers are
        // merged and its step of the state is left to the next one.
        for attempt in 0..4 {
            let before = tcp_of(&words);
            let mut tcp = before;
            let result = judge(&mut tcp);
            let new = state_word(&tcp);
            if new != words[4] {
                // Relaxed: as in `update_life`.
                let swapped = self.reply[4].compare_exchange(
                    words[4],
                    new,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if swapped.is_err() && attempt < 3 {
                    words = self.tcp_words();
                    continue;
                }
            }
            self.merge_side(0, &before.sides[0], &tcp.sides[0]);
            self.merge_side(2, &before.sides[1], &tcp.sides[1]);
            return (result, tcp);
        }
        // Not reached: the last attempt returns.
        let mut tcp = tcp_of(&words);
        let result = judge(&mut tcp);
        (result, tcp)
    }

    /// Stores what changed of a sender; where another worker was faster, the later number stays.
    #[inline]
    fn merge_side(&self, at: usize, before: &Sender, now: &Sender) {
        let numbers = |a: u64, b: u64| {
            let high = later((a >> 32) as u32, (b >> 32) as u32);
            pair(high, later(a as u32, b as u32))
        };
        let windows = |a: u64, b: u64| {
            let high = ((a >> 32) as u32).max((b >> 32) as u32);
            pair(high, later(a as u32, b as u32))
        };
        merge(
            &self.reply[at],
            pair(before.end, before.max_end),
            pair(now.end, now.max_end),
            numbers,
        );
        merge(
            &self.reply[at + 1],
            pair(before.max_window, before.max_ack),
            pair(now.max_window, now.max_ack),
            windows,
        );
    }
}

/// Swaps `old` for `new`, or for what `merge` makes of `new` and a rival's value.
#[inline]
fn merge(word: &AtomicU64, old: u64, new: u64, merge: impl Fn(u64, u64) -> u64) {
    if old == new {
        return;
    }
    let mut expected = old;
    let mut wanted = new;
    // Relaxed: as in `Record::update_life`.
    while let Err(now) =
        word.compare_exchange_weak(expected, wanted, Ordering::Relaxed, Ordering::Relaxed)
    {
        expected = now;
        wanted = if now == old { new } else { merge(now, new) };
        if wanted == now {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_everything() {
        let life = Life {
            deadline: Tick(0xdead_beef),
            class: Class::TcpClosing,
            own: Own::MAPPED | Own::PROXIED,
            status: CtStatus::ASSURED | CtStatus::SNAT,
        };
        assert_eq!(Life::from_word(life.to_word()), life);
        let shift = Shift {
            position: u32::MAX,
            before: -7,
            after: 1200,
        };
        assert_eq!(Shift::from_word(shift.to_word()), shift);
        let tcp = Tcp {
            state: TcpState::LastAck,
            flags: TcpFlags::FIN_REPLY | TcpFlags::ACKED_REPLY | TcpFlags::LIBERAL,
            sides: [
                Sender {
                    end: 1,
                    max_end: 2,
                    max_window: 3,
                    max_ack: 4,
                    scale: 14,
                },
                Sender {
                    end: u32::MAX,
                    max_end: 6,
                    max_window: 7,
                    max_ack: u32::MAX,
                    scale: 7,
                },
            ],
            announced: 9,
            syn: 77,
        };
        assert_eq!(tcp_of(&tcp_words(&tcp)), tcp);
    }

    #[test]
    fn rivals_merge_to_the_later_numbers() {
        let words: [AtomicU64; WORDS] = Default::default();
        let reply: [AtomicU64; WORDS] = Default::default();
        let record = Record::new((&words, &reply)).unwrap();
        record.judge_tcp(|tcp| {
            tcp.sides[0].end = 100;
            tcp.sides[0].max_end = 500;
            // A rival is faster with one number and slower with the other.
            reply[0].store(pair(300, 200), Ordering::Relaxed);
        });
        let side = record.tcp().sides[0];
        assert_eq!((side.end, side.max_end), (300, 500));
    }
}
