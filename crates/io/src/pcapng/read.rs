//! Reading of pcapng files.

use std::io::{self, Read};

use super::{
    BLOCK_MAX_BYTES, BYTE_ORDER_MAGIC, CaptureError, ENHANCED_PACKET, INTERFACE, OLD_PACKET,
    OPT_COMMENT, OPT_END, SECTION, SIMPLE_PACKET, padded,
};

/// An interface that a file describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadInterface {
    /// Its name, if the file tells it.
    pub name: Option<String>,
    /// What its frames start with (1: Ethernet).
    pub link_type: u16,
    /// The most bytes that were kept of a packet; 0: all.
    pub snap_bytes: u32,
    /// Units of a timestamp in a second.
    units_per_s: u64,
    /// Seconds to add to a timestamp.
    offset_s: i64,
}

impl ReadInterface {
    /// Converts a timestamp of this interface to nanoseconds since the epoch.
    fn nanoseconds(&self, timestamp: u64) -> u64 {
        let units = u128::from(self.units_per_s);
        let ns = u128::from(timestamp) * 1_000_000_000 / units;
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        i128::try_from(ns)
            .ok()
            .and_then(|ns| u64::try_from(ns + offset).ok())
            .unwrap_or(0)
    }
}

/// A packet that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPacket<'a> {
    /// The interface's number in its section; see [`Reader::interfaces`].
    pub interface: u32,
    /// Nanoseconds since the epoch; 0 for a simple packet block, which has no time.
    pub timestamp_ns: u64,
    /// The bytes that were kept.
    pub data: &'a [u8],
    /// How long the packet was, bytes.
    pub original_bytes: u32,
    /// Its first comment.
    pub comment: Option<String>,
}

/// Reads packets from a file of any byte order, with any number of sections and interfaces. Blocks that it
/// does not know are passed over.
#[derive(Debug)]
pub struct Reader<R: Read> {
    inner: R,
    offset: u64,
    big_endian: bool,
    interfaces: Vec<ReadInterface>,
    block: Vec<u8>,
}

/// The parts of a packet block, before it borrows from the reader.
struct Found {
    interface: u32,
    timestamp_ns: u64,
    data: core::ops::Range<usize>,
    original_bytes: u32,
    options: usize,
}

impl<R: Read> Reader<R> {
    /// Reads the first section header.
    ///
    /// # Errors
    /// The source cannot be read, or is not pcapng.
    pub fn new(inner: R) -> Result<Self, CaptureError> {
        let mut reader = Self {
            inner,
            offset: 0,
            big_endian: false,
            interfaces: Vec::new(),
            block: Vec::new(),
        };
        match reader.read_block()? {
            Some(SECTION) => Ok(reader),
            Some(other) => Err(CaptureError::UnknownFormat(other)),
            None => Err(CaptureError::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Returns the interfaces that the current section has described so far.
    pub fn interfaces(&self) -> &[ReadInterface] {
        &self.interfaces
    }

    /// Returns the next packet; `None` at the end.
    ///
    /// # Errors
    /// The source cannot be read, ends within a block, or contradicts itself.
    pub fn next_packet(&mut self) -> Result<Option<ReadPacket<'_>>, CaptureError> {
        let found = loop {
            let Some(kind) = self.read_block()? else {
                return Ok(None);
            };
            let found = match kind {
                INTERFACE => {
                    self.describe()?;
                    None
                }
                ENHANCED_PACKET | OLD_PACKET => Some(self.packet(kind)?),
                SIMPLE_PACKET => Some(self.simple_packet()?),
                _ => None,
            };
            if let Some(found) = found {
                break found;
            }
        };
        let comment = self
            .options(found.options)
            .find(|(code, _)| *code == OPT_COMMENT)
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        Ok(Some(ReadPacket {
            interface: found.interface,
            timestamp_ns: found.timestamp_ns,
            data: self.block.get(found.data).unwrap_or_default(),
            original_bytes: found.original_bytes,
            comment,
        }))
    }

    /// Reads the next block's body into `self.block` and returns its type; `None` at the end of the source.
    fn read_block(&mut self) -> Result<Option<u32>, CaptureError> {
        let mut head = [0; 8];
        if !fill(&mut self.inner, &mut head)? {
            return Ok(None);
        }
        let kind_bytes = [head[0], head[1], head[2], head[3]];
        // The section header's type reads the same in both orders.
        let is_section = u32::from_ne_bytes(kind_bytes) == SECTION;
        let mut magic = [0; 4];
        if is_section {
            self.inner.read_exact(&mut magic)?;
            self.big_endian = match u32::from_le_bytes(magic) {
                BYTE_ORDER_MAGIC => false,
                other if other.swap_bytes() == BYTE_ORDER_MAGIC => true,
                _ => return Err(self.damaged("the byte-order magic is neither order's")),
            };
            self.interfaces.clear();
        } else if self.offset == 0 {
            return Err(CaptureError::UnknownFormat(u32::from_le_bytes(kind_bytes)));
        }
        let kind = self.word(&head, 0).unwrap_or(0);
        let len = self.word(&head, 4).unwrap_or(0);
        if len < 12 || !len.is_multiple_of(4) || len > BLOCK_MAX_BYTES || (is_section && len < 28) {
            return Err(self.damaged("the block's length cannot be"));
        }
        let body = len as usize - 12;
        self.block.clear();
        if is_section {
            self.block.extend_from_slice(&magic);
        }
        read_exactly(
            &mut self.inner,
            body + 4 - self.block.len(),
            &mut self.block,
        )?;
        if self.word(&self.block, body) != Some(len) {
            return Err(self.damaged("the lengths at both ends of the block differ"));
        }
        self.block.truncate(body);
        self.offset += u64::from(len);
        Ok(Some(kind))
    }

    fn describe(&mut self) -> Result<(), CaptureError> {
        let short = || self.damaged_block("the interface description is too short");
        let link_type = self.half(&self.block, 0).ok_or_else(short)?;
        let snap_bytes = self.word(&self.block, 4).ok_or_else(short)?;
        let mut interface = ReadInterface {
            name: None,
            link_type,
            snap_bytes,
            units_per_s: 1_000_000,
            offset_s: 0,
        };
        for (code, value) in self.options(8) {
            match (code, value) {
                (2, name) => interface.name = Some(String::from_utf8_lossy(name).into_owned()),
                (9, [resolution, ..]) => {
                    let exponent = u32::from(resolution & 0x7f);
                    let units = if resolution & 0x80 != 0 {
                        2_u64.checked_pow(exponent)
                    } else {
                        10_u64.checked_pow(exponent)
                    };
                    interface.units_per_s =
                        units.ok_or_else(|| self.damaged_block("if_tsresol is too fine"))?;
                }
                (14, seconds) => {
                    if let Some(bytes) = seconds.first_chunk() {
                        interface.offset_s = if self.big_endian {
                            i64::from_be_bytes(*bytes)
                        } else {
                            i64::from_le_bytes(*bytes)
                        };
                    }
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Takes apart an enhanced packet block or its predecessor.
    fn packet(&self, kind: u32) -> Result<Found, CaptureError> {
        let short = || self.damaged_block("the packet block is too short");
        let interface = if kind == OLD_PACKET {
            self.half(&self.block, 0).map(u32::from)
        } else {
            self.word(&self.block, 0)
        };
        let interface = interface.ok_or_else(short)?;
        let word = |at| self.word(&self.block, at).ok_or_else(short);
        let timestamp = u64::from(word(4)?) << 32 | u64::from(word(8)?);
        let kept = word(12)? as usize;
        let original_bytes = word(16)?;
        if kept > self.block.len() - 20 {
            return Err(self.damaged_block("the packet is longer than its block"));
        }
        let described = self
            .interfaces
            .get(interface as usize)
            .ok_or_else(|| self.damaged_block("the packet's interface has not been described"))?;
        Ok(Found {
            interface,
            timestamp_ns: described.nanoseconds(timestamp),
            data: 20..20 + kept,
            original_bytes,
            options: 20 + padded(kept),
        })
    }

    fn simple_packet(&self) -> Result<Found, CaptureError> {
        let original_bytes = self
            .word(&self.block, 0)
            .ok_or_else(|| self.damaged_block("the packet block is too short"))?;
        let interface = self
            .interfaces
            .first()
            .ok_or_else(|| self.damaged_block("the packet's interface has not been described"))?;
        let mut kept = (original_bytes as usize).min(self.block.len() - 4);
        if interface.snap_bytes > 0 {
            kept = kept.min(interface.snap_bytes as usize);
        }
        Ok(Found {
            interface: 0,
            timestamp_ns: 0,
            data: 4..4 + kept,
            original_bytes,
            options: self.block.len(),
        })
    }

    /// Walks the options from an offset of the block; stops at the first that is not whole.
    fn options(&self, mut at: usize) -> impl Iterator<Item = (u16, &[u8])> {
        core::iter::from_fn(move || {
            let code = self.half(&self.block, at)?;
            let len = usize::from(self.half(&self.block, at + 2)?);
            let value = self.block.get(at + 4..at + 4 + len)?;
            at += 4 + padded(len);
            (code != OPT_END).then_some((code, value))
        })
    }

    fn word(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u32::from_be_bytes(*bytes)
        } else {
            u32::from_le_bytes(*bytes)
        })
    }

    fn half(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian {
            u16::from_be_bytes(*bytes)
        } else {
            u16::from_le_bytes(*bytes)
        })
    }

    /// Says what is wrong with the block that starts here.
    fn damaged(&self, what: &'static str) -> CaptureError {
        CaptureError::Damaged {
            offset: self.offset,
            what,
        }
    }

    /// Says what is wrong with the block that has just been read.
    fn damaged_block(&self, what: &'static str) -> CaptureError {
        CaptureError::Damaged {
            offset: self.offset.saturating_sub(self.block.len() as u64 + 12),
            what,
        }
    }
}

/// Fills the buffer; tells whether there was anything at all.
fn fill(inner: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match inner.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Appends exactly `len` bytes to `to`; takes no more memory than there are bytes to read, whatever `len`
/// says.
pub(crate) fn read_exactly(inner: &mut impl Read, len: usize, to: &mut Vec<u8>) -> io::Result<()> {
    let read = inner.take(len as u64).read_to_end(to)?;
    if read < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
