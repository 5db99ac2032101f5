//! A received segment, its options taken apart once.

use wire::tcp::{Flags, SackBlocks, TcpOption, View};

use super::seq::Seq;

/// What the state machine needs of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) payload: &'a [u8],
    pub(crate) options: SegmentOptions<'a>,
    /// The packet was marked "congestion experienced".
    pub(crate) is_marked: bool,
}

/// The options that matter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentOptions<'a> {
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) sack: SackBlocks,
    pub(crate) mss: Option<u16>,
    pub(crate) scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) fast_open: Option<&'a [u8]>,
}

impl<'a> Segment<'a> {
    /// Reads a segment that passed validation.
    #[inline]
    pub(crate) fn new(view: &View<'a>, option_bytes: &'a [u8], is_marked: bool) -> Self {
        Self {
            seq: Seq(view.sequence()),
            ack: Seq(view.acknowledgement()),
            flags: view.flags(),
            window: view.window(),
            payload: view.payload(),
            options: SegmentOptions::parse(view, option_bytes),
            is_marked,
        }
    }
    /// Returns the sequence numbers that the segment takes: data, SYN and FIN.
    pub(crate) fn length(&self) -> u32 {
        let controls = self
            .flags
            .intersection(Flags::SYN | Flags::FIN)
            .bits()
            .count_ones();
        self.payload.len() as u32 + controls
    }
    pub(crate) fn end(&self) -> Seq {
        self.seq.plus(self.length())
    }
    pub(crate) const fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }
}

impl<'a> SegmentOptions<'a> {
    #[inline]
    fn parse(view: &View<'a>, bytes: &'a [u8]) -> Self {
        // What nearly all segments carry: NOP, NOP, timestamps (RFC 7323 A).
        if let &[1, 1, 8, 10, a, b, c, d, e, f, g, h] = bytes {
            let timestamps = Some((
                u32::from_be_bytes([a, b, c, d]),
                u32::from_be_bytes([e, f, g, h]),
            ));
            return Self {
                timestamps,
                ..Self::default()
            };
        }
        if bytes.is_empty() {
            return Self::default();
        }
        Self::parse_any(view)
    }

    fn parse_any(view: &View<'a>) -> Self {
        let mut options = Self::default();
        // A malformed option ends the walk; those before it count (RFC 9293 MUST-7).
        for option in view.options().map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegmentSize(mss) => options.mss = Some(mss),
                TcpOption::WindowScale(shift) => options.scale = Some(shift.min(14)),
                TcpOption::SackPermitted => options.sack_permitted = true,
                TcpOption::Sack(blocks) => options.sack = blocks,
                TcpOption::Timestamps { value, echo } => options.timestamps = Some((value, echo)),
                TcpOption::FastOpen(cookie) => options.fast_open = Some(cookie),
                _ => {}
            }
        }
        options
    }
}
