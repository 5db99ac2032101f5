//! Reassembly of fragments, bounded in packets, bytes and time.

use alloc::vec::Vec;
use core::time::Duration;

use wire::ndn::lp::{LpHeader, LpPacket};
use wire::ndn::{DecodeError, PACKET_BYTES_MAX};
use wire::{DropReason, Instant};

/// Bounds of a [`Reassembler`].
#[derive(Clone, Copy, Debug)]
pub struct ReassemblyConfig {
    /// Fragments of one packet, as in NFD.
    pub fragments_max: u64,
    /// Packets that may wait for fragments.
    pub packets_max: usize,
    /// How long they wait after the last fragment came, as in NFD.
    pub timeout: Duration,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self {
            fragments_max: 400,
            packets_max: 64,
            timeout: Duration::from_millis(500),
        }
    }
}

/// A packet of which some fragments came.
#[derive(Debug)]
struct Partial {
    endpoint: u64,
    /// Sequence of its first fragment.
    sequence: u64,
    /// Where each fragment is in `bytes`.
    parts: Vec<Option<(usize, usize)>>,
    missing: usize,
    bytes: Vec<u8>,
    /// Header fields of the first fragment, as a link packet without fragment.
    header: Vec<u8>,
    deadline: Instant,
}

/// Puts fragments of one face together.
#[derive(Debug)]
pub struct Reassembler {
    config: ReassemblyConfig,
    partials: Vec<Partial>,
    /// Buffers to use again.
    free: Vec<Partial>,
    whole: Vec<u8>,
    whole_header: Vec<u8>,
}

impl Reassembler {
    /// Makes an empty one.
    pub const fn new(config: ReassemblyConfig) -> Self {
        Self {
            config,
            partials: Vec::new(),
            free: Vec::new(),
            whole: Vec::new(),
            whole_header: Vec::new(),
        }
    }

    /// Takes a link packet with a fragment from `endpoint` (0 on a point-to-point face); returns the network
    /// packet and the header fields of its first fragment when it is complete.
    ///
    /// # Errors
    /// Why the fragment was dropped.
    pub fn input<'a>(
        &'a mut self,
        now: Instant,
        endpoint: u64,
        packet: &LpPacket<'a>,
    ) -> Result<Option<(LpHeader<'a>, &'a [u8])>, DropReason> {
        let fragment = packet.fragment.ok_or(DropReason::NdnFragment)?;
        let header = packet.header;
        let count = header.frag_count.unwrap_or(1);
        let index = header.frag_index;
        if index >= count || count > self.config.fragments_max {
            return Err(DropReason::NdnFragment);
        }
        if count == 1 {
            return Ok(Some((header, fragment)));
        }
        let sequence = header.sequence.ok_or(DropReason::NdnFragment)?;
        let sequence = sequence.wrapping_sub(index);
        let at = self.place(now, endpoint, sequence, count as usize)?;
        let partial = self.partials.get_mut(at).ok_or(DropReason::NdnFragment)?;
        let length = fragment.len();
        let part = partial.parts.get_mut(index as usize);
        let part = part.filter(|part| part.is_none());
        let part = part.ok_or(DropReason::NdnFragment)?;
        if partial.bytes.len() + length > PACKET_BYTES_MAX {
            self.drop_partial(at);
            return Err(DropReason::NdnTooLong);
        }
        *part = Some((partial.bytes.len(), length));
        partial.bytes.extend_from_slice(fragment);
        partial.deadline = now + self.config.timeout;
        partial.missing -= 1;
        if index == 0 {
            partial.keep_header(&header);
        }
        if partial.missing > 0 {
            return Ok(None);
        }
        self.complete(at)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.partials.iter().map(|partial| partial.deadline).min()
    }

    /// Drops packets whose time is over; returns how many.
    pub fn handle_timeout(&mut self, now: Instant) -> usize {
        let mut dropped = 0;
        let mut at = 0;
        while let Some(partial) = self.partials.get(at) {
            if partial.deadline <= now {
                self.drop_partial(at);
                dropped += 1;
            } else {
                at += 1;
            }
        }
        dropped
    }

    /// Returns how many packets wait.
    pub const fn len(&self) -> usize {
        self.partials.len()
    }

    /// True if none waits.
    pub const fn is_empty(&self) -> bool {
        self.partials.is_empty()
    }

    /// Finds or makes the place of a packet.
    fn place(
        &mut self,
        now: Instant,
        endpoint: u64,
        sequence: u64,
        count: usize,
    ) -> Result<usize, DropReason> {
        let known = self
            .partials
            .iter()
            .position(|partial| partial.endpoint == endpoint && partial.sequence == sequence);
        if let Some(at) = known {
            let partial = self.partials.get(at);
            if partial.is_none_or(|partial| partial.parts.len() != count) {
                return Err(DropReason::NdnFragment);
            }
            return Ok(at);
        }
        if self.partials.len() >= self.config.packets_max {
            return Err(DropReason::NdnReassemblyFull);
        }
        let mut partial = self.free.pop().unwrap_or_else(Partial::blank);
        partial.endpoint = endpoint;
        partial.sequence = sequence;
        partial.parts.clear();
        partial.parts.resize(count, None);
        partial.missing = count;
        partial.bytes.clear();
        partial.header.clear();
        partial.deadline = now + self.config.timeout;
        self.partials.push(partial);
        Ok(self.partials.len() - 1)
    }

    fn complete(&mut self, at: usize) -> Result<Option<(LpHeader<'_>, &[u8])>, DropReason> {
        let partial = self.partials.swap_remove(at);
        self.whole.clear();
        for &(start, length) in partial.parts.iter().flatten() {
            let part = partial.bytes.get(start..start + length);
            self.whole.extend_from_slice(part.unwrap_or_default());
        }
        self.whole_header.clear();
        self.whole_header.extend_from_slice(&partial.header);
        self.free.push(partial);
        let header = LpPacket::parse(&self.whole_header)
            .map_err(DecodeError::drop_reason)?
            .header;
        Ok(Some((header, &self.whole)))
    }

    fn drop_partial(&mut self, at: usize) {
        if at < self.partials.len() {
            let partial = self.partials.swap_remove(at);
            self.free.push(partial);
        }
    }
}

impl Partial {
    fn blank() -> Self {
        Self {
            endpoint: 0,
            sequence: 0,
            parts: Vec::new(),
            missing: 0,
            bytes: Vec::new(),
            header: Vec::new(),
            deadline: Instant::ZERO,
        }
    }

    fn keep_header(&mut self, header: &LpHeader<'_>) {
        let network = LpHeader {
            sequence: None,
            frag_index: 0,
            frag_count: None,
            tx_sequence: None,
            ..*header
        };
        self.header.resize(network.fields_bytes() + 8, 0);
        let length = network.encode(&[], &[], &mut self.header).unwrap_or(0);
        self.header.truncate(length);
    }
}
