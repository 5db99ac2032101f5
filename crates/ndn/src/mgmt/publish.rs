//! Data packets of management: answers, and datasets in segments.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use wire::ndn::name::Name;
use wire::ndn::{
    Component, Data, DataFields, DigestSigner, Interest, NameRef, PACKET_BYTES_MAX, content_type,
};

/// Bytes of content in a segment: with names of the length of ours a packet stays below 8,800 bytes.
const SEGMENT_BYTES: usize = 7600;
/// Datasets and events that are kept for later Interests.
const KEPT: usize = 32;
/// How long a dataset counts as fresh (ms), as in NFD.
const FRESHNESS_MS: u64 = 1000;

/// What was published lately.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// The segments of each dataset.
    sets: VecDeque<Vec<Vec<u8>>>,
}

/// Encodes a packet signed with DigestSha256.
pub(super) fn encode(fields: &DataFields<'_>) -> Vec<u8> {
    let mut out = vec![0; PACKET_BYTES_MAX];
    // What does not fit is not sent; names and contents of ours do.
    let length = fields.encode(&DigestSigner, &mut out).unwrap_or(0);
    out.truncate(length);
    out
}

/// Encodes an answer to a command or a query.
pub(super) fn answer(name: NameRef<'_>, content: &[u8], is_refusal: bool) -> Vec<u8> {
    let content_type = if is_refusal {
        content_type::NACK
    } else {
        content_type::BLOB
    };
    encode(&DataFields {
        content_type,
        freshness_ms: FRESHNESS_MS,
        ..DataFields::new(name, content)
    })
}

impl Published {
    /// Cuts a dataset into segments under `prefix` and a version, keeps them, and returns the first.
    pub(super) fn dataset(&mut self, prefix: NameRef<'_>, version: u64, content: &[u8]) -> Vec<u8> {
        let versioned = Name::from(prefix).with_version(version);
        let count = content.len().div_ceil(SEGMENT_BYTES).max(1);
        let last = versioned.with_segment(count as u64 - 1);
        let final_block: Option<Component<'_>> = last.components().last();
        let segments: Vec<Vec<u8>> = (0..count)
            .map(|number| {
                let start = number * SEGMENT_BYTES;
                let end = (start + SEGMENT_BYTES).min(content.len());
                let part = content.get(start..end).unwrap_or_default();
                let name = versioned.with_segment(number as u64);
                encode(&DataFields {
                    freshness_ms: FRESHNESS_MS,
                    final_block,
                    ..DataFields::new(name.as_ref(), part)
                })
            })
            .collect();
        let first = segments.first().cloned().unwrap_or_default();
        self.keep(segments);
        first
    }

    /// Keeps packets for later Interests.
    pub(super) fn keep(&mut self, packets: Vec<Vec<u8>>) {
        if self.sets.len() >= KEPT {
            self.sets.pop_front();
        }
        self.sets.push_back(packets);
    }

    /// Finds a packet that was published and answers the Interest by its whole name.
    pub(super) fn find(&self, interest: &Interest<'_>) -> Option<&[u8]> {
        let packets = self.sets.iter().rev().flatten();
        packets.map(Vec::as_slice).find(|packet| {
            Data::parse(packet).is_ok_and(|data| {
                data.name == interest.name.split_implicit_digest().0
                    && interest.matches_data(&data.name, || data.implicit_digest())
            })
        })
    }
}
