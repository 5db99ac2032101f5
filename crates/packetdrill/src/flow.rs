//! A connection's numbers: of the script, and on the wire.

use wire::tcp::Flags;

use crate::frame::WireSegment;
use crate::machine::pattern;
use crate::syntax::{Opt, Segment};

/// One connection. As in packetdrill, a SYN and the acknowledgement of one are absolute in a script, all else counts from
/// the SYN. The peer's SYN has the script's number on the wire, too; ours has what the stack chose.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) peer_port: u16,
    pub(crate) local_port: u16,
    /// Our first sequence number on the wire.
    first: Option<u32>,
    /// Our first sequence number in the script.
    script_first: u32,
    /// The peer's first sequence number.
    peer_first: Option<u32>,
    /// Our timestamps on the wire less those of the script.
    stamp_offset: Option<u32>,
    /// The first of our timestamps, while the script has not said what it calls it.
    first_stamp: Option<u32>,
}

impl Flow {
    pub(crate) const fn new(peer_port: u16, local_port: u16) -> Self {
        Self {
            peer_port,
            local_port,
            first: None,
            script_first: 0,
            peer_first: None,
            stamp_offset: None,
            first_stamp: None,
        }
    }

    /// Learns from our SYN or SYN-ACK.
    pub(crate) fn on_own_syn(&mut self, segment: &WireSegment) {
        if self.first != Some(segment.seq) {
            self.first = Some(segment.seq);
            self.stamp_offset = None;
            self.peer_first = None;
        }
        if segment.flags.contains(Flags::ACK) {
            self.peer_first = Some(segment.ack.wrapping_sub(1));
        }
        if let Some(Opt::Stamps(value, _)) = segment
            .options
            .iter()
            .find(|option| matches!(option, Opt::Stamps(..)))
            && self.stamp_offset.is_none()
        {
            self.first_stamp = Some(*value);
            self.stamp_offset = Some(*value);
        }
    }

    /// Learns from what the script calls our SYN and its timestamp.
    pub(crate) fn name(&mut self, wanted: &Segment) {
        if wanted.flags.contains(Flags::SYN) {
            self.script_first = wanted.seq;
        }
        let options = wanted.options.as_deref().unwrap_or_default();
        let named = options.iter().find_map(|option| match option {
            Opt::Stamps(value, _) => Some(*value),
            _ => None,
        });
        if let (Some(named), Some(first)) = (named, self.first_stamp) {
            self.stamp_offset = Some(first.wrapping_sub(named));
            self.first_stamp = None;
        }
    }

    fn base(&self) -> u32 {
        self.first.unwrap_or(0)
    }

    /// Returns the peer's segment as it goes on the wire.
    pub(crate) fn wire(&mut self, segment: &Segment) -> WireSegment {
        let is_syn = segment.flags.contains(Flags::SYN);
        if is_syn && self.peer_first.is_none() {
            self.peer_first = Some(segment.seq);
        }
        let mut ack = segment.ack;
        if segment.flags.contains(Flags::ACK) {
            let absolute = if is_syn { self.script_first } else { 0 };
            ack = ack.wrapping_add(self.base()).wrapping_sub(absolute);
        }
        let peer_first = self.peer_first.unwrap_or(0);
        let seq = if is_syn {
            segment.seq
        } else {
            segment.seq.wrapping_add(peer_first)
        };
        let options = segment.options.as_deref().unwrap_or_default();
        let options = options.iter().map(|option| match option {
            Opt::Sack(blocks) => Opt::Sack(
                blocks
                    .iter()
                    .map(|(start, end)| {
                        (
                            start.wrapping_add(self.base()),
                            end.wrapping_add(self.base()),
                        )
                    })
                    .collect(),
            ),
            Opt::Stamps(value, echo) => {
                let is_echo = *echo != 0 || self.stamp_offset.is_some() && !is_syn;
                let offset = self.stamp_offset.filter(|_| is_echo).unwrap_or(0);
                Opt::Stamps(*value, echo.wrapping_add(offset))
            }
            other => other.clone(),
        });
        let start = seq
            .wrapping_sub(self.peer_first.unwrap_or(seq))
            .wrapping_sub(u32::from(!is_syn));
        WireSegment {
            source_port: self.peer_port,
            destination_port: self.local_port,
            seq,
            ack,
            flags: segment.flags,
            window: segment.window.unwrap_or(0),
            urgent: segment.urgent,
            options: options.collect(),
            payload: (0..segment.bytes)
                .map(|at| pattern(start.wrapping_add(at)))
                .collect(),
        }
    }

    /// Returns our segment in the script's numbers.
    pub(crate) fn to_script(&self, segment: &WireSegment) -> Segment {
        let is_blind_reset = segment.flags.contains(Flags::RST) && segment.seq == 0;
        let is_syn = segment.flags.contains(Flags::SYN);
        let offset = if is_blind_reset {
            0
        } else if is_syn {
            self.base().wrapping_sub(self.script_first)
        } else {
            self.base()
        };
        let peer_first = match self.peer_first {
            Some(first) if !is_syn && !is_blind_reset => first,
            _ => 0,
        };
        let options = segment.options.iter().map(|option| match option {
            Opt::Stamps(value, echo) => {
                Opt::Stamps(value.wrapping_sub(self.stamp_offset.unwrap_or(0)), *echo)
            }
            Opt::Sack(blocks) => {
                let relative = |(start, end): &(u32, u32)| {
                    (start.wrapping_sub(peer_first), end.wrapping_sub(peer_first))
                };
                Opt::Sack(blocks.iter().map(relative).collect())
            }
            other => other.clone(),
        });
        let ack = if segment.flags.contains(Flags::ACK) {
            segment.ack.wrapping_sub(peer_first)
        } else {
            0
        };
        Segment {
            flags: segment.flags,
            seq: segment.seq.wrapping_sub(offset),
            bytes: segment.payload.len() as u32,
            ack,
            window: Some(segment.window),
            urgent: segment.urgent,
            options: Some(options.collect()),
        }
    }

    /// Returns where in the stream the data of our segment begins.
    pub(crate) fn data_offset(&self, segment: &WireSegment) -> u32 {
        let is_syn = segment.flags.contains(Flags::SYN);
        segment
            .seq
            .wrapping_sub(self.base())
            .wrapping_sub(u32::from(!is_syn))
    }

    /// Returns a segment of ours that an ICMP error may quote.
    pub(crate) fn own_segment(&self, seq: u32, bytes: u32) -> WireSegment {
        WireSegment {
            source_port: self.local_port,
            destination_port: self.peer_port,
            seq: seq.wrapping_add(self.base()),
            flags: Flags::ACK,
            payload: vec![0; bytes as usize],
            ..WireSegment::default()
        }
    }
}
