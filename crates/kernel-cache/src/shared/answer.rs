//! The job of a program: frame in, reply in its place, or the frame unchanged.

use super::bounded::Word;
use super::frame::{self, FIRST_BYTES, WINDOW_BYTES, Window};
use super::hash::NameWords;
use super::interest::{self, Unserved};
use super::layout::{DATA_BYTES_MAX, Facts, NAME_WORDS, PORT_ROWS, PortRow};
use super::lookup::{self, Miss};
use super::reply::{self, LpHead};
use super::{Memory, Packet, Reply};

/// The shortest frame that leaves, bytes without the checksum (IEEE 802.3).
const FRAME_BYTES_MIN: usize = 60;

/// What became of a frame. Only of those from [`Outcome::Torn`] on is the frame changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// Passed on: not NDN.
    Other = 0,
    /// Passed on: NDN for another address or on a port without a row.
    Elsewhere,
    /// Passed on: not an Interest of the strict form.
    Malformed,
    /// Passed on: a Data packet.
    Data,
    /// Passed on: only the forwarder can answer.
    ForwarderOnly,
    /// Passed on: the name is too long or too deep.
    LongName,
    /// Passed on: link-protocol fields that the cache does not know, or a fragment.
    LinkField,
    /// Passed on: no such Data.
    Absent,
    /// Passed on: none that is fresh.
    Stale,
    /// Passed on: the walk was too long.
    Steps,
    /// Passed on: a writer was at work.
    Raced,
    /// Passed on: the reply would be longer than the port's frames.
    TooLong,
    /// Passed on: the frame cannot grow enough.
    NoRoom,
    /// Dropped: a writer changed the packet while it was copied. The Interest is sent again in time.
    Torn,
    /// Answered by the Data of that name.
    Exact,
    /// Answered by Data below the name.
    Prefix,
}

/// Number of outcomes.
pub const OUTCOMES: usize = Outcome::Prefix as usize + 1;

impl From<Unserved> for Outcome {
    #[inline(always)]
    fn from(why: Unserved) -> Self {
        match why {
            Unserved::Malformed => Self::Malformed,
            Unserved::Data => Self::Data,
            Unserved::ForwarderOnly => Self::ForwarderOnly,
            Unserved::LongName => Self::LongName,
            Unserved::LinkField => Self::LinkField,
        }
    }
}

impl From<Miss> for Outcome {
    #[inline(always)]
    fn from(why: Miss) -> Self {
        match why {
            Miss::Absent => Self::Absent,
            Miss::Stale => Self::Stale,
            Miss::Steps => Self::Steps,
            Miss::Raced => Self::Raced,
        }
    }
}

/// Room for one frame at a time.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Scratch {
    /// The start of the frame.
    pub window: Window,
    /// The name.
    pub words: NameWords,
    /// The link-protocol header of the reply.
    pub lp: LpHead,
    /// The frame's headers.
    pub link: frame::Link,
    /// The Interest.
    pub interest: interest::Interest,
    /// What answers it.
    pub found: lookup::Found,
    /// Length of the link-protocol header of the reply.
    pub lp_bytes: Word,
    /// A word for barriers.
    pub barrier: Word,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            window: [0; WINDOW_BYTES + 16],
            words: [0; NAME_WORDS],
            lp: [0; size_of::<LpHead>()],
            link: frame::Link::default(),
            interest: interest::Interest::default(),
            found: lookup::Found::default(),
            lp_bytes: Word::default(),
            barrier: Word::default(),
        }
    }
}

/// Returns the row of an interface.
#[inline(always)]
pub fn port_row(ifindex: u32) -> u32 {
    ifindex & (PORT_ROWS as u32 - 1)
}

/// Answers a frame that came in by the port, if the cache can.
#[inline(always)]
pub fn answer<M: Memory, P: Reply>(
    memory: &M,
    packet: &mut P,
    ifindex: u32,
    port: &PortRow,
    scratch: &mut Scratch,
) -> Outcome {
    match look_up(memory, packet, ifindex, port, scratch) {
        Ok(()) => send(memory, packet, port, scratch),
        Err(why) => why,
    }
}

/// Finds what answers a frame that came in by the port.
///
/// # Errors
/// Why nothing does; the frame is to be passed on.
#[inline(always)]
pub fn look_up<M: Memory, P: Packet>(
    memory: &M,
    packet: &P,
    ifindex: u32,
    port: &PortRow,
    scratch: &mut Scratch,
) -> Result<(), Outcome> {
    let length = packet.length();
    let first = if length < FIRST_BYTES {
        length
    } else {
        FIRST_BYTES
    };
    // The shortest NDN frame has the Ethernet header and an Interest of one empty component.
    if first < 14 + 6 || !packet.load(&mut scratch.window, first) {
        return Err(Outcome::Other);
    }
    if !frame::find(&scratch.window, length, &scratch.link) {
        return Err(Outcome::Other);
    }
    let destination = frame::word(&scratch.window, 0) & 0xffff_ffff_ffff;
    if port.ifindex != ifindex || port.mac != destination {
        return Err(Outcome::Elsewhere);
    }
    let (at, end) = (scratch.link.at.number(), scratch.link.end.number());
    if end >= WINDOW_BYTES {
        // Padding is never that long: a long packet, so no plain Interest.
        return Err(if frame::byte(&scratch.window, at) == 6 {
            Outcome::Data
        } else {
            Outcome::LongName
        });
    }
    if end > first && !packet.load(&mut scratch.window, end) {
        return Err(Outcome::Other);
    }
    let padded = scratch.link.carrier.load() == frame::ETHERNET;
    if let Err(why) = interest::parse(&scratch.window, at, end, padded, &scratch.interest) {
        return Err(why.into());
    }
    let hash = interest::hash_name(
        &scratch.window,
        &scratch.interest,
        memory.config().seed,
        &mut scratch.words,
    );
    lookup::lookup(
        memory,
        &scratch.interest,
        &scratch.words,
        hash,
        &scratch.found,
    )
    .map_err(Outcome::from)
}

/// Writes the reply over the frame.
#[inline(always)]
fn send<M: Memory, P: Reply>(
    memory: &M,
    packet: &mut P,
    port: &PortRow,
    scratch: &mut Scratch,
) -> Outcome {
    let facts = Facts(scratch.found.facts.load());
    let data_bytes = facts.data_bytes();
    if data_bytes == 0 || data_bytes > DATA_BYTES_MAX {
        return Outcome::Raced;
    }
    scratch.lp_bytes.store(0);
    let mut lp_sum = 0;
    if scratch.interest.in_lp.load() != 0 {
        reply::write_lp(
            &scratch.window,
            &scratch.interest,
            data_bytes,
            &mut scratch.lp,
            &scratch.lp_bytes,
        );
        lp_sum = reply::sum_lp(&scratch.lp);
    }
    let at = scratch.link.at.number();
    let lp_bytes = scratch.lp_bytes.number();
    let reply_bytes = at + lp_bytes + data_bytes;
    let untagged_bytes = reply_bytes - (scratch.link.ethernet_bytes.number() - 14);
    if untagged_bytes > port.frame_bytes_max as usize {
        return Outcome::TooLong;
    }
    let padding_bytes = FRAME_BYTES_MIN.saturating_sub(reply_bytes);
    if !packet.resize(reply_bytes + padding_bytes) {
        return Outcome::NoRoom;
    }
    let Some(slab) = memory.slab(scratch.found.slot.load() as u32) else {
        return Outcome::Torn;
    };
    let data = (data_bytes, facts.data_sum());
    reply::turn(&mut scratch.window, &scratch.link, lp_bytes, lp_sum, data);
    let mut whole = packet.store_head(&scratch.window, at);
    if lp_bytes > 0 {
        whole &= packet.store_lp(at, &scratch.lp, lp_bytes);
    }
    whole &= packet.store_slab(at + lp_bytes, slab, facts.data_at(), data_bytes);
    if padding_bytes > 0 {
        reply::clear_lp(&mut scratch.lp);
        whole &= packet.store_lp(reply_bytes, &scratch.lp, padding_bytes);
    }
    if !whole || !lookup::still_there(memory, &scratch.found) {
        return Outcome::Torn;
    }
    if scratch.found.exact.load() != 0 {
        Outcome::Exact
    } else {
        Outcome::Prefix
    }
}
