//! Capture files of the pcapng format (draft-ietf-opsawg-pcapng): writing with all the metadata that a
//! packet of this node has, and reading of what other tools wrote.
//!
//! ```
//! use io::pcapng::{InterfaceDescription, Packet, Reader, Section, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), &Section::default())?;
//! let eth = writer.add_interface(&InterfaceDescription::ethernet("rx"))?;
//! writer.write_packet(&Packet {
//!     comment: Some("dropped: ttl expired"),
//!     ..Packet::new(eth, 1_700_000_000_000_000_001, b"dddddd ssssss tt hello")
//! })?;
//! let file = writer.into_inner();
//!
//! let mut reader = Reader::new(file.as_slice())?;
//! let packet = reader.next_packet()?.ok_or("one packet")?;
//! assert_eq!(packet.timestamp_ns, 1_700_000_000_000_000_001);
//! assert_eq!(packet.comment.as_deref(), Some("dropped: ttl expired"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod read;
mod write;

use std::io;

pub(crate) use read::read_exactly;
pub use read::{ReadInterface, ReadPacket, Reader};
pub use write::{Direction, InterfaceDescription, Packet, Section, Verdict, Writer};

/// Section header block.
const SECTION: u32 = 0x0a0d_0d0a;
/// Interface description block.
const INTERFACE: u32 = 1;
/// Packet block (obsolete, still found in old files).
const OLD_PACKET: u32 = 2;
/// Simple packet block.
const SIMPLE_PACKET: u32 = 3;
/// Interface statistics block.
const STATISTICS: u32 = 5;
/// Enhanced packet block.
const ENHANCED_PACKET: u32 = 6;
/// Tells the byte order of a section.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Ends a list of options.
const OPT_END: u16 = 0;
/// A comment, in any block.
const OPT_COMMENT: u16 = 1;

/// Ethernet, as a link type of capture files.
pub const LINK_ETHERNET: u16 = 1;

/// The longest block that is read, bytes: a capture of one packet is far below it.
const BLOCK_MAX_BYTES: u32 = 16 << 20;

/// Why a capture file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened or read.
    #[error("cannot read the capture file")]
    Io(#[from] io::Error),
    /// It is not a capture file.
    #[error("not a pcap or pcapng file (it starts with {0:#010x})")]
    UnknownFormat(u32),
    /// Its frames are not Ethernet frames.
    #[error("the capture file holds frames of link type {0}, not Ethernet (1)")]
    LinkType(u32),
    /// A block contradicts itself.
    #[error("damaged capture file at byte {offset}: {what}")]
    Damaged {
        /// Where the block or record starts, bytes.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Length rounded up to what blocks and options are padded to.
const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}
