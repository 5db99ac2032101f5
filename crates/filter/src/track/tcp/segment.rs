//! What the tracker reads of a segment.

use wire::tcp::{self, Flags, TcpOption};
use wire::{Layout, LayoutFlags, ip_protocol};

/// No-operation twice and timestamps: what nearly every segment with options carries.
const ONLY_TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];

/// A TCP segment: numbers, flags and the options that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement; meaningful with [`Flags::ACK`].
    pub acknowledgement: u32,
    /// Window as in the header, not scaled.
    pub window: u16,
    /// Flags.
    pub flags: Flags,
    /// Payload, bytes.
    pub payload_bytes: u32,
    /// Window scale, in a SYN that offers it.
    pub scale: Option<u8>,
    /// Right edge of the highest block that is selectively acknowledged, if above the acknowledgement.
    pub sack: Option<u32>,
}

impl Segment {
    /// Reads the segment of a frame whose layout says that it holds one; of a first fragment, as far as it goes.
    #[inline]
    pub fn read(layout: &Layout, frame: &[u8]) -> Option<Self> {
        if layout.protocol != ip_protocol::TCP || !layout.flags.contains(LayoutFlags::TRANSPORT) {
            return None;
        }
        let bytes = frame.get(layout.transport.into()..layout.payload.into())?;
        let (header, options) = bytes.split_first_chunk::<{ tcp::HEADER_BYTES }>()?;
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let mut segment = Self {
            sequence: word(tcp::SEQUENCE),
            acknowledgement: word(tcp::ACKNOWLEDGEMENT),
            window: u16::from_be_bytes([header[tcp::WINDOW], header[tcp::WINDOW + 1]]),
            flags: Flags::from_bits_truncate(u16::from_be_bytes([
                header[tcp::OFFSET_FLAGS],
                header[tcp::OFFSET_FLAGS + 1],
            ])),
            payload_bytes: u32::from(layout.end.saturating_sub(layout.payload)),
            scale: None,
            sack: None,
        };
        let timestamps_only = options.len() == 12 && options.starts_with(&ONLY_TIMESTAMPS);
        if !options.is_empty() && !timestamps_only {
            segment.read_options(options);
        }
        Some(segment)
    }

    #[inline(never)]
    fn read_options(&mut self, options: &[u8]) {
        let is_syn = self.flags.contains(Flags::SYN);
        for option in tcp::Options::new(options).map_while(Result::ok) {
            match option {
                TcpOption::WindowScale(scale) if is_syn => self.scale = Some(scale),
                TcpOption::Sack(blocks) => {
                    for &(_, right) in blocks.as_slice() {
                        let highest = self.sack.unwrap_or(self.acknowledgement);
                        if super::after(right, highest) {
                            self.sack = Some(right);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// One past the last sequence number: SYN and FIN take one each.
    #[inline]
    pub const fn end(&self) -> u32 {
        let marks = self.flags.contains(Flags::SYN) as u32 + self.flags.contains(Flags::FIN) as u32;
        self.sequence
            .wrapping_add(self.payload_bytes)
            .wrapping_add(marks)
    }

    /// The acknowledgement, if the segment has one.
    #[inline]
    pub const fn ack_if_set(&self) -> Option<u32> {
        if self.flags.contains(Flags::ACK) {
            Some(self.acknowledgement)
        } else {
            None
        }
    }
}
