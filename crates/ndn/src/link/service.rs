//! What stands between a face's transport and the forwarder.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use wire::ndn::lp::{Fragments, LpHeader, LpPacket};
use wire::{DropReason, Instant};

use super::{CongestionMarker, Reassembler, ReassemblyConfig, Reliability, ReliabilityConfig};
use crate::face::FaceConfig;

/// Choices of a [`LinkService`].
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Bytes of the longest link packet; packets that are longer are cut.
    pub mtu: usize,
    /// Acknowledges and retransmits.
    pub reliability: Option<ReliabilityConfig>,
    /// Marks packets when the queue stays longer than so many bytes for so long.
    pub congestion: Option<(Duration, u64)>,
    /// Bounds of reassembly.
    pub reassembly: ReassemblyConfig,
}

impl LinkConfig {
    /// Takes from a face's configuration what concerns its link.
    pub fn of_face(config: &FaceConfig) -> Self {
        Self {
            mtu: config.mtu.map_or(usize::MAX, |mtu| mtu as usize),
            reliability: config.reliability.then(ReliabilityConfig::default),
            congestion: config.congestion_marking.then_some((
                config.congestion_interval,
                config.congestion_threshold_bytes,
            )),
            reassembly: ReassemblyConfig::default(),
        }
    }
}

/// What passed a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Link packets received.
    pub in_frames: u64,
    /// Link packets sent.
    pub out_frames: u64,
    /// Packets that reassembly gave up.
    pub reassembly_timeouts: u64,
    /// Packets that got a congestion mark here.
    pub marked: u64,
}

/// The link protocol of one face.
#[derive(Debug)]
pub struct LinkService {
    mtu: usize,
    reassembler: Reassembler,
    reliability: Option<Reliability>,
    marker: Option<CongestionMarker>,
    next_sequence: u64,
    counters: LinkCounters,
    acks: Vec<u64>,
    out: Vec<u8>,
    frame: Vec<u8>,
}

/// Bytes that a TxSequence takes: 3 of type, 1 of length, 8.
const TX_SEQUENCE_BYTES: usize = 12;
/// Bytes that an Ack takes.
const ACK_BYTES: usize = 12;
/// Link packets are not longer than this, whatever the MTU says.
const FRAME_BYTES_MAX: usize = 8800 + 200 + TX_SEQUENCE_BYTES;

impl LinkService {
    /// Makes the link protocol of a face; sequences start at `first`, which should be random.
    pub fn new(config: &LinkConfig, first: u64) -> Self {
        let reliability = config.reliability;
        Self {
            mtu: config.mtu,
            reassembler: Reassembler::new(config.reassembly),
            reliability: reliability.map(|config| Reliability::new(config, first)),
            marker: config
                .congestion
                .map(|(interval, bytes)| CongestionMarker::new(interval, bytes)),
            next_sequence: first,
            counters: LinkCounters::default(),
            acks: Vec::new(),
            out: vec![0; config.mtu.min(FRAME_BYTES_MAX)],
            frame: vec![0; config.mtu.min(FRAME_BYTES_MAX)],
        }
    }

    /// Returns what passed.
    pub const fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Returns the reliability, if the face has it.
    pub const fn reliability(&self) -> Option<&Reliability> {
        self.reliability.as_ref()
    }

    /// Takes a link packet from `endpoint` (0 on a point-to-point face). `deliver` gets a network packet that
    /// is complete, `transmit` link packets that are to be sent again.
    ///
    /// # Errors
    /// Why the link packet was dropped.
    pub fn receive(
        &mut self,
        now: Instant,
        endpoint: u64,
        frame: &[u8],
        deliver: &mut impl FnMut(&LpHeader<'_>, &[u8]),
        transmit: &mut impl FnMut(&[u8]),
    ) -> Result<(), DropReason> {
        let packet = LpPacket::parse(frame).map_err(|error| error.drop_reason())?;
        self.counters.in_frames += 1;
        if let Some(reliability) = &mut self.reliability {
            let (out, sent) = (&mut self.out, &mut self.counters.out_frames);
            reliability.acknowledged(now, packet.acks(), &mut |sequence, frame| {
                if let Some(frame) = with_tx_sequence(frame, sequence, &[], out) {
                    *sent += 1;
                    transmit(frame);
                }
            });
            if let Some(sequence) = packet.header.tx_sequence
                && !reliability.received(now, sequence)
            {
                return Err(DropReason::NdnDuplicateFrame);
            }
        }
        if packet.fragment.is_none() {
            return Ok(());
        }
        // The reassembler keeps what it returns; the packet of one fragment is passed on as it came.
        if packet.header.frag_count.unwrap_or(1) == 1 && packet.header.frag_index == 0 {
            deliver(&packet.header, packet.fragment.unwrap_or_default());
            return Ok(());
        }
        if let Some((header, packet)) = self.reassembler.input(now, endpoint, &packet)? {
            deliver(&header, packet);
        }
        Ok(())
    }

    /// Sends a network packet: `transmit` gets its link packets. `queued_bytes` wait in the transport.
    ///
    /// # Errors
    /// [`DropReason::NdnMtu`] if it cannot be cut to fit.
    pub fn send(
        &mut self,
        now: Instant,
        header: &LpHeader<'_>,
        packet: &[u8],
        queued_bytes: u64,
        transmit: &mut impl FnMut(&[u8]),
    ) -> Result<(), DropReason> {
        let mut header = *header;
        if let Some(marker) = &mut self.marker
            && marker.is_due(queued_bytes, now)
        {
            header.congestion_mark = header.congestion_mark.max(1);
            self.counters.marked += 1;
        }
        // Nothing to add and nothing to cut: the packet is its own link packet.
        if self.reliability.is_none() && header.is_empty() && packet.len() <= self.mtu {
            self.counters.out_frames += 1;
            transmit(packet);
            return Ok(());
        }
        let reserved = match self.reliability {
            Some(_) => TX_SEQUENCE_BYTES,
            None => 0,
        };
        let mtu = self.mtu.min(FRAME_BYTES_MAX);
        let fragments = Fragments::new(header, packet, mtu, reserved, self.next_sequence);
        let mut fragments = fragments.map_err(|_| DropReason::NdnMtu)?;
        if fragments.count() > 1 {
            self.next_sequence = self.next_sequence.wrapping_add(fragments.count() as u64);
        }
        let number = self.reliability.as_mut().map(Reliability::begin_packet);
        while let Some(length) = fragments.next_into(&mut self.frame) {
            let length = length.map_err(|_| DropReason::NdnMtu)?;
            let frame = self.frame.get(..length).unwrap_or_default();
            self.counters.out_frames += 1;
            let (Some(reliability), Some(number)) = (&mut self.reliability, number) else {
                transmit(frame);
                continue;
            };
            let Some(sequence) = reliability.sent(now, number, frame) else {
                transmit(frame);
                continue;
            };
            // What room is left takes acknowledgements along.
            let room = mtu.saturating_sub(length + TX_SEQUENCE_BYTES + 16) / ACK_BYTES;
            reliability.take_acks(room, &mut self.acks);
            if let Some(frame) = with_tx_sequence(frame, sequence, &self.acks, &mut self.out) {
                transmit(frame);
            }
        }
        Ok(())
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let reliability = self
            .reliability
            .as_ref()
            .and_then(Reliability::poll_timeout);
        let all = [self.reassembler.poll_timeout(), reliability];
        all.into_iter().flatten().min()
    }

    /// Does what is due: sends again, sends acknowledgements that waited, gives fragments up.
    pub fn handle_timeout(&mut self, now: Instant, transmit: &mut impl FnMut(&[u8])) {
        self.counters.reassembly_timeouts += self.reassembler.handle_timeout(now) as u64;
        let Some(reliability) = &mut self.reliability else {
            return;
        };
        let (out, sent) = (&mut self.out, &mut self.counters.out_frames);
        reliability.handle_timeout(now, &mut |sequence, frame| {
            if let Some(frame) = with_tx_sequence(frame, sequence, &[], out) {
                *sent += 1;
                transmit(frame);
            }
        });
        while reliability.is_ack_due(now) {
            let room = self.mtu.min(1400).saturating_sub(16) / ACK_BYTES;
            reliability.take_acks(room.max(1), &mut self.acks);
            let idle = LpHeader::default().encode(&self.acks, &[], out);
            let Some(frame) = idle.ok().and_then(|length| out.get(..length)) else {
                return;
            };
            *sent += 1;
            transmit(frame);
        }
    }
}

/// Writes a link packet again, with a TxSequence and acks.
fn with_tx_sequence<'a>(
    frame: &[u8],
    sequence: u64,
    acks: &[u64],
    out: &'a mut [u8],
) -> Option<&'a [u8]> {
    let packet = LpPacket::parse(frame).ok()?;
    let header = LpHeader {
        tx_sequence: Some(sequence),
        ..packet.header
    };
    let fragment = packet.fragment.unwrap_or_default();
    let length = header.encode(acks, fragment, out).ok()?;
    out.get(..length)
}
