//! The log: a ring of segments, each with a header and records one after the other.
//!
//! | bytes of a segment's header | | bytes of a record's header | |
//! | --- | --- | --- | --- |
//! | 0..8 | magic and version | 0..4 | magic |
//! | 8..16 | sequence number | 4..8 | CRC-32 of all that follows |
//! | 16..24 | bytes of a segment | 8..16 | the segment's sequence number |
//! | 24..32 | number of segments | 16..24 | fresh until (Unix time, ns), 0 if never |
//! | 32..36 | CRC-32 of the above | 24..32 | 16 bits each: bytes of the packet, place and bytes of the name, kind |
//!
//! What was erased is noted in records of another kind, whose packet is the name or the prefix. Numbers are little-endian. A record's packet follows its header and is filled up to 16 bytes. What an earlier lap
//! left behind has another sequence number, so that it is never taken for a record of this one.

use core::ops::Range;
use wire::ndn::{NameRef, PACKET_BYTES_MAX};

const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"tdgtcs\x00\x01");

const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"tgR1");

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A packet.
    Packet,
    /// The packet of this name was erased.
    ErasedName,
    /// All packets below this prefix were erased.
    ErasedPrefix,
}

impl Kind {
    const fn of(number: usize) -> Option<Self> {
        match number {
            0 => Some(Self::Packet),
            1 => Some(Self::ErasedName),
            2 => Some(Self::ErasedPrefix),
            _ => None,
        }
    }
}

/// Bytes of a segment's header and what fills it up.
pub(super) const SEGMENT_HEADER_BYTES: usize = 64;
pub(super) const RECORD_HEADER_BYTES: usize = 32;
/// Records begin at multiples of this.
pub(super) const GRAIN_BYTES: u64 = 16;
/// Bytes of the longest record.
pub(super) const RECORD_BYTES_MAX: usize = record_bytes(PACKET_BYTES_MAX);

/// Bytes of a packet's record.
pub(super) const fn record_bytes(packet: usize) -> usize {
    (RECORD_HEADER_BYTES + packet).next_multiple_of(GRAIN_BYTES as usize)
}

/// Where a file's segments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) segment_bytes: u64,
    pub(super) segments: u64,
}

impl Geometry {
    /// The header of a segment.
    pub(super) fn header(self, sequence: u64) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        let words = [SEGMENT_MAGIC, sequence, self.segment_bytes, self.segments];
        for (to, word) in header.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32fast::hash(header.get(..32).unwrap_or_default());
        if let Some(to) = header.get_mut(32..36) {
            to.copy_from_slice(&crc.to_le_bytes());
        }
        header
    }

    /// The sequence number that a segment's header gives, if it is whole and of this geometry.
    pub(super) fn sequence(self, header: &[u8]) -> Option<u64> {
        let sequence = read_u64(header, 8)?;
        let expected = self.header(sequence);
        (header.get(..36) == expected.get(..36)).then_some(sequence)
    }
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u16(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(
        *bytes.get(at..)?.first_chunk()?,
    )))
}

/// A packet as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    /// The packet, in the bytes that were read.
    pub(super) packet: Range<usize>,
    /// The name, in the bytes that were read.
    pub(super) name: Range<usize>,
    pub(super) fresh_until_unix_ns: u64,
    /// Bytes of the record.
    pub(super) bytes: usize,
}

impl Record {
    /// Reads the record that `bytes` begin with, without a look at its checksum: for what this process wrote.
    pub(super) fn lengths(bytes: &[u8]) -> Option<Self> {
        let magic = u32::from_le_bytes(*bytes.first_chunk()?);
        let kind = Kind::of(read_u16(bytes, 30)?)?;
        let (packet, name_at, name) = (
            read_u16(bytes, 24)?,
            read_u16(bytes, 26)?,
            read_u16(bytes, 28)?,
        );
        let least = usize::from(kind == Kind::Packet);
        let is_sound = magic == RECORD_MAGIC
            && (least..=PACKET_BYTES_MAX).contains(&packet)
            && name_at + name <= packet
            && bytes.len() >= record_bytes(packet);
        is_sound.then(|| {
            let start = RECORD_HEADER_BYTES;
            Self {
                kind,
                packet: start..start + packet,
                name: start + name_at..start + name_at + name,
                fresh_until_unix_ns: read_u64(bytes, 16).unwrap_or(0),
                bytes: record_bytes(packet),
            }
        })
    }

    /// Reads the record that `bytes` begin with; `None` unless it is whole and of the segment of this number.
    pub(super) fn read(bytes: &[u8], sequence: u64) -> Option<Self> {
        let record = Self::lengths(bytes)?;
        let crc = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
        let is_whole = read_u64(bytes, 8)? == sequence
            && crc32fast::hash(bytes.get(8..record.bytes)?) == crc
            && NameRef::new(bytes.get(record.name.clone())?).is_ok();
        is_whole.then_some(record)
    }

    /// Appends a record, without sequence number and checksum.
    pub(super) fn write(
        out: &mut Vec<u8>,
        packet: &[u8],
        name_at: usize,
        name_bytes: usize,
        fresh_until_unix_ns: u64,
    ) {
        let lengths = [packet.len(), name_at, name_bytes, Kind::Packet as usize];
        Self::put(out, packet, lengths, fresh_until_unix_ns);
    }

    /// Appends the record that a name or a prefix was erased.
    pub(super) fn write_erased(out: &mut Vec<u8>, kind: Kind, name: &[u8]) {
        Self::put(out, name, [name.len(), 0, name.len(), kind as usize], 0);
    }

    fn put(out: &mut Vec<u8>, packet: &[u8], lengths: [usize; 4], fresh: u64) {
        let end = out.len() + record_bytes(packet.len());
        out.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&fresh.to_le_bytes());
        for word in lengths {
            out.extend_from_slice(&(word as u16).to_le_bytes());
        }
        out.extend_from_slice(packet);
        out.resize(end, 0);
    }

    /// Gives the record that `bytes` begin with the number of its segment, and its checksum.
    pub(super) fn seal(bytes: &mut [u8], sequence: u64) -> Option<Self> {
        let record = Self::lengths(bytes)?;
        bytes
            .get_mut(8..16)?
            .copy_from_slice(&sequence.to_le_bytes());
        let crc = crc32fast::hash(bytes.get(8..record.bytes)?);
        bytes.get_mut(4..8)?.copy_from_slice(&crc.to_le_bytes());
        Some(record)
    }
}

/// True if a segment of some geometry begins here.
pub(super) fn is_segment(bytes: &[u8]) -> bool {
    read_u64(bytes, 0) == Some(SEGMENT_MAGIC)
}

/// True if what lies here gives itself for a record of this segment.
pub(super) fn claims_to_be_of(bytes: &[u8], sequence: u64) -> bool {
    let magic = bytes.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    magic == Some(RECORD_MAGIC) && read_u64(bytes, 8) == Some(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_or_is_refused_whatever_bit_flips() {
        let packet = b"\x06\x05\x07\x03\x08\x01a";
        let mut bytes = Vec::new();
        Record::write(&mut bytes, packet, 4, 3, 77);
        let sealed = Record::seal(&mut bytes, 9).unwrap();
        let read = Record::read(&bytes, 9).unwrap();
        assert_eq!(read, sealed);
        assert_eq!(&bytes[read.packet.clone()], packet);
        assert_eq!(
            (&bytes[read.name], read.fresh_until_unix_ns),
            (&packet[4..], 77)
        );
        assert_eq!(Record::read(&bytes, 8), None);
        for at in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[at / 8] ^= 1 << (at % 8);
            assert_eq!(Record::read(&broken, 9), None, "bit {at}");
            assert_eq!(Record::read(&bytes[..at / 8], 9), None);
        }
    }

    #[test]
    fn an_erasure_comes_back_and_is_no_packet() {
        let prefix = b"\x08\x01a";
        let mut bytes = Vec::new();
        Record::write_erased(&mut bytes, Kind::ErasedPrefix, prefix);
        let first = bytes.len();
        Record::write_erased(&mut bytes, Kind::ErasedPrefix, &[]);
        Record::seal(&mut bytes, 9).unwrap();
        Record::seal(&mut bytes[first..], 9).unwrap();
        let read = Record::read(&bytes, 9).unwrap();
        assert_eq!(
            (read.kind, &bytes[read.name]),
            (Kind::ErasedPrefix, &prefix[..])
        );
        let all = Record::read(&bytes[first..], 9).unwrap();
        assert_eq!((all.kind, all.name.len()), (Kind::ErasedPrefix, 0));
        assert!(claims_to_be_of(&bytes, 9));
    }

    #[test]
    fn a_segment_of_another_geometry_is_none() {
        let geometry = Geometry {
            segment_bytes: 1 << 20,
            segments: 4,
        };
        let header = geometry.header(5);
        assert_eq!(geometry.sequence(&header), Some(5));
        let other = Geometry {
            segments: 5,
            ..geometry
        };
        assert_eq!(other.sequence(&header), None);
        assert_eq!(geometry.sequence(&[0; 64]), None);
    }
}
