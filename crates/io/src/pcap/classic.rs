//! Reading of files of the older pcap format (draft-ietf-opsawg-pcap).

use std::io::{self, Read};

use super::{CaptureError, CapturedPacket};
use crate::pcapng::read_exactly;

/// The longest record that is read, bytes.
const RECORD_MAX_BYTES: u32 = 1 << 20;

/// What the first four bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    big_endian: bool,
    /// Nanoseconds in the unit of a timestamp's fraction.
    unit_ns: u64,
}

impl Format {
    /// Recognises the magic number, read as little-endian.
    pub(super) fn from_magic(magic: u32) -> Option<Self> {
        let (big_endian, unit_ns) = match magic {
            0xa1b2_c3d4 => (false, 1000),
            0xd4c3_b2a1 => (true, 1000),
            0xa1b2_3c4d => (false, 1),
            0x4d3c_b2a1 => (true, 1),
            _ => return None,
        };
        Some(Self {
            big_endian,
            unit_ns,
        })
    }

    fn word(self, bytes: &[u8; 16], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    }
}

/// Reads a whole file and calls `each` with the link type and every packet.
pub(super) fn read(
    mut source: impl Read,
    format: Format,
    mut each: impl FnMut(u32, CapturedPacket<'_>) -> Result<(), CaptureError>,
) -> Result<(), CaptureError> {
    let mut header = [0; 24];
    source.read_exact(&mut header)?;
    let mut last = [0; 16];
    last.copy_from_slice(&header[8..]);
    // The upper bits of the last word are flags.
    let link = format.word(&last, 12) & 0xffff;
    let mut offset = 24;
    let mut data = Vec::new();
    loop {
        let mut record = [0; 16];
        match source.read(&mut record[..1]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        source.read_exact(&mut record[1..])?;
        let kept = format.word(&record, 8);
        if kept > RECORD_MAX_BYTES {
            return Err(CaptureError::Damaged {
                offset,
                what: "the record's length cannot be",
            });
        }
        data.clear();
        read_exactly(&mut source, kept as usize, &mut data)?;
        let seconds = u64::from(format.word(&record, 0));
        let fraction = u64::from(format.word(&record, 4));
        let packet = CapturedPacket {
            timestamp_ns: seconds * 1_000_000_000 + fraction * format.unit_ns,
            data: &data,
            original_bytes: format.word(&record, 12),
        };
        each(link, packet)?;
        offset += 16 + u64::from(kept);
    }
}
