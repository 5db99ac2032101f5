//! The Interests that the cache understands: a strict subset of packet format v0.3 and NDNLPv2.
//!
//! What is not in the subset is not refused: it is passed on, and user space decides.

use super::bounded::{Word, opaque};
use super::frame::{Window, byte, word};
use super::hash::{self, NameWords};
use super::layout::{COMPONENTS_MAX, NAME_BYTES_MAX, NAME_WORDS};

/// Why a packet is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Unserved {
    /// Not an Interest, or not of the strict form.
    Malformed = 0,
    /// A Data packet.
    Data,
    /// An Interest that only the forwarder can answer: digests, parameters, hints, no hops left.
    ForwarderOnly,
    /// A name longer or deeper than the cache's.
    LongName,
    /// A link-protocol field other than PIT token and congestion mark, or a fragment.
    LinkField,
}

/// An Interest that can be looked up, as offsets in the window.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Interest {
    /// Where the value of the name starts.
    pub name_at: Word,
    /// Its length, 1 to [`NAME_BYTES_MAX`].
    pub name_bytes: Word,
    /// 1 if the name may be a prefix of the Data's.
    pub can_be_prefix: Word,
    /// 1 if only fresh Data may answer.
    pub must_be_fresh: Word,
    /// Where the link-protocol header fields start that the reply repeats.
    pub lp_at: Word,
    /// Their length; 0 if there are none.
    pub lp_bytes: Word,
    /// 1 if the Interest came in an LpPacket.
    pub in_lp: Word,
    /// Where reading went on behind the name.
    at: Word,
    /// 1 if bytes may follow the packet.
    padded: Word,
}

const LP_PACKET: usize = 100;
const LP_FRAGMENT: usize = 80;
const LP_PIT_TOKEN: usize = 98;
const LP_CONGESTION_MARK: [usize; 3] = [253, 832 >> 8, 832 & 255];
/// The longest PIT token, bytes.
const PIT_TOKEN_BYTES_MAX: usize = 32;

/// A packet as it is read. What is added to `at` comes from the packet, so that the verifier knows nothing about it and
/// paths merge; it may be in a register.
struct Reader<'a> {
    window: &'a Window,
    out: &'a Interest,
    /// Where reading is.
    at: usize,
    /// Where what is read ends.
    end: usize,
}

impl Reader<'_> {
    #[inline(always)]
    fn left(&self) -> usize {
        self.end.wrapping_sub(self.at)
    }
    /// The byte `offset` behind where reading is.
    #[inline(always)]
    fn byte(&self, offset: usize) -> usize {
        byte(self.window, self.at + offset)
    }
    #[inline(always)]
    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }
    /// Reads a TLV header of a one-byte type; its value becomes what is read. `whole`: nothing may follow it.
    #[inline(always)]
    fn open(&mut self, whole: bool) -> Result<(), Unserved> {
        let first = self.byte(1);
        if first < 253 {
            self.skip(2);
            return self.narrow(first, whole);
        }
        let length = self.byte(2) << 8 | self.byte(3);
        if first != 253 || length < 253 {
            return Err(Unserved::Malformed);
        }
        self.skip(4);
        self.narrow(length, whole)
    }
    #[inline(always)]
    fn narrow(&mut self, length: usize, whole: bool) -> Result<(), Unserved> {
        let end = self.at + length;
        if end > self.end || whole && end != self.end {
            return Err(Unserved::Malformed);
        }
        self.end = end;
        Ok(())
    }
}

/// Reads the packet between `at` and `end` (at most [`super::frame::WINDOW_BYTES`] - 1). If `padded`, bytes may
/// follow the packet.
///
/// # Errors
/// Why it is passed on.
#[inline(always)]
pub fn parse(
    window: &Window,
    at: usize,
    end: usize,
    padded: bool,
    out: &Interest,
) -> Result<(), Unserved> {
    for word in [
        &out.can_be_prefix,
        &out.must_be_fresh,
        &out.lp_bytes,
        &out.in_lp,
    ] {
        word.store(0);
    }
    out.padded.store(u64::from(padded));
    let mut reader = Reader {
        window,
        out,
        at,
        end,
    };
    if reader.left() < 4 {
        return Err(Unserved::Malformed);
    }
    if reader.byte(0) == LP_PACKET {
        reader.open(out.padded.load() == 0)?;
        out.padded.store(0);
        out.in_lp.store(1);
        out.lp_at.store(reader.at as u64);
        link_fields(&mut reader)?;
        out.lp_bytes.store(reader.at as u64 - out.lp_at.load());
        reader.open(true)?;
        if reader.left() < 4 {
            return Err(Unserved::Malformed);
        }
    }
    match reader.byte(0) {
        5 => {}
        6 => return Err(Unserved::Data),
        _ => return Err(Unserved::Malformed),
    }
    reader.open(out.padded.load() == 0)?;
    network_packet(&mut reader)
}

/// Reads up to the field "Fragment", which is the last one.
#[inline(always)]
fn link_fields(reader: &mut Reader<'_>) -> Result<(), Unserved> {
    if reader.byte(0) == LP_PIT_TOKEN {
        let length = reader.byte(1);
        if length == 0 || length > PIT_TOKEN_BYTES_MAX {
            return Err(Unserved::Malformed);
        }
        reader.skip(2 + length);
    }
    let mark = [reader.byte(0), reader.byte(1), reader.byte(2)];
    if mark == LP_CONGESTION_MARK {
        let length = reader.byte(3);
        if !matches!(length, 1 | 2 | 4 | 8) {
            return Err(Unserved::Malformed);
        }
        reader.skip(4 + length);
    }
    let left = reader.left();
    if left < 2 || left > reader.end {
        return Err(Unserved::Malformed);
    }
    if reader.byte(0) != LP_FRAGMENT {
        return Err(Unserved::LinkField);
    }
    Ok(())
}

/// Reads the value of an Interest.
#[inline(always)]
fn network_packet(reader: &mut Reader<'_>) -> Result<(), Unserved> {
    let out = reader.out;
    let end = reader.end;
    if reader.left() < 3 || reader.byte(0) != 7 {
        return Err(Unserved::Malformed);
    }
    reader.open(false)?;
    let name_bytes = reader.left();
    if name_bytes == 0 {
        return Err(Unserved::Malformed);
    }
    if name_bytes > NAME_BYTES_MAX {
        return Err(Unserved::LongName);
    }
    out.name_at.store(reader.at as u64);
    out.name_bytes.store(name_bytes as u64);
    components(reader)?;
    reader.end = end;
    // Paths through the name merge here: the verifier knows nothing about what comes out of memory.
    out.at.store(reader.at as u64);
    reader.at = out.at.number();
    fields(reader)
}

/// Checks the components of a name.
#[inline(always)]
fn components(reader: &mut Reader<'_>) -> Result<(), Unserved> {
    let mut left = COMPONENTS_MAX;
    while left > 0 {
        if reader.left() == 0 {
            return Ok(());
        }
        let kind = reader.byte(0);
        if kind <= 2 {
            // 0 is no type; 1 and 2 are digests.
            return Err(if kind == 0 {
                Unserved::Malformed
            } else {
                Unserved::ForwarderOnly
            });
        }
        if kind >= 253 {
            if kind != 253 || reader.byte(1) == 0 && reader.byte(2) < 253 {
                return Err(Unserved::Malformed);
            }
            reader.skip(2);
        }
        let length = reader.byte(1);
        if length >= 253 {
            return Err(Unserved::Malformed);
        }
        reader.skip(2 + length);
        if reader.at > reader.end {
            return Err(Unserved::Malformed);
        }
        left = opaque(left) - 1;
    }
    if reader.left() == 0 {
        Ok(())
    } else {
        Err(Unserved::LongName)
    }
}

/// Reads the fields behind the name, in their order.
#[inline(always)]
fn fields(reader: &mut Reader<'_>) -> Result<(), Unserved> {
    let out = reader.out;
    if reader.left() >= 2 && reader.byte(0) == 0x21 {
        if reader.byte(1) != 0 {
            return Err(Unserved::Malformed);
        }
        out.can_be_prefix.store(1);
        reader.skip(2);
    }
    if reader.left() >= 2 && reader.byte(0) == 0x12 {
        if reader.byte(1) != 0 {
            return Err(Unserved::Malformed);
        }
        out.must_be_fresh.store(1);
        reader.skip(2);
    }
    if reader.left() >= 6 && reader.byte(0) == 0x0a {
        if reader.byte(1) != 4 {
            return Err(Unserved::Malformed);
        }
        reader.skip(6);
    }
    if reader.left() >= 3 && reader.byte(0) == 0x0c {
        let length = reader.byte(1);
        if !matches!(length, 1 | 2 | 4 | 8) || reader.left() < 2 + length {
            return Err(Unserved::Malformed);
        }
        reader.skip(2 + length);
    }
    if reader.left() >= 3 && reader.byte(0) == 0x22 {
        if reader.byte(1) != 1 {
            return Err(Unserved::Malformed);
        }
        if reader.byte(2) == 0 {
            return Err(Unserved::ForwarderOnly);
        }
        reader.skip(3);
    }
    if reader.left() == 0 {
        Ok(())
    } else {
        Err(Unserved::ForwarderOnly)
    }
}

/// Copies the name out of the window as words and returns its hash.
#[inline(always)]
pub fn hash_name(window: &Window, interest: &Interest, seed: u64, words: &mut NameWords) -> u64 {
    let mut hash = hash::start(seed, interest.name_bytes.number());
    let mut index = 0;
    while index < NAME_WORDS {
        let offset = index * 8;
        let name_bytes = interest.name_bytes.number();
        if offset >= name_bytes {
            break;
        }
        let mut value = word(window, interest.name_at.number() + offset);
        if name_bytes - offset < 8 {
            value &= hash::word_mask(name_bytes, offset);
        }
        words[index] = value;
        hash = hash::step(hash, value);
        index += 1;
    }
    hash::finish(hash)
}
