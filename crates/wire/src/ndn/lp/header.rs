//! The header fields of a link packet.

use super::{PIT_TOKEN_BYTES_MAX, types};
use crate::emit::BufferTooShort;
use crate::ndn::DecodeError;
use crate::ndn::tlv::{Tlv, Writer, element_bytes, integer_bytes};
use crate::ndn::walk::{OrderedWalk, fixed};

/// Why an Interest is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NackReason {
    /// No reason is given, or one that is unknown here.
    None,
    /// The link is congested.
    Congestion,
    /// The nonce was seen before.
    Duplicate,
    /// No path leads to the Data.
    NoRoute,
}

impl NackReason {
    /// Returns the reason that a number stands for.
    pub const fn from_number(number: u64) -> Self {
        match number {
            50 => Self::Congestion,
            100 => Self::Duplicate,
            150 => Self::NoRoute,
            _ => Self::None,
        }
    }

    /// Returns the number on the wire; none for [`NackReason::None`].
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Congestion => Some(50),
            Self::Duplicate => Some(100),
            Self::NoRoute => Some(150),
        }
    }

    /// Returns the less severe of two, as a node that tried several next hops reports: congestion may pass,
    /// a duplicate may be answered elsewhere.
    pub fn less_severe(self, other: Self) -> Self {
        let rank = |reason: Self| reason.number().unwrap_or(u64::MAX);
        if rank(self) <= rank(other) {
            self
        } else {
            other
        }
    }
}

/// Header fields that occur at most once; `None` and zero are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LpHeader<'a> {
    /// Sequence number of the fragment.
    pub sequence: Option<u64>,
    /// Index of the fragment; 0 if absent.
    pub frag_index: u64,
    /// Number of fragments; `None` is 1.
    pub frag_count: Option<u64>,
    /// Opaque bytes of an Interest that its Data or Nack brings back.
    pub pit_token: Option<&'a [u8]>,
    /// The Interest in the fragment is refused.
    pub nack: Option<NackReason>,
    /// The face that the packet came from.
    pub incoming_face: Option<u64>,
    /// The face that the Interest should leave by.
    pub next_hop_face: Option<u64>,
    /// The Data should not be cached.
    pub no_cache: bool,
    /// Congestion; 0 is none.
    pub congestion_mark: u64,
    /// Sequence number for reliability.
    pub tx_sequence: Option<u64>,
    /// The Interest is not for discovery.
    pub non_discovery: bool,
    /// A prefix announcement: a Data packet.
    pub prefix_announcement: Option<&'a [u8]>,
}

impl<'a> LpHeader<'a> {
    /// Takes one field; returns a bit that tells fields apart, or `None` if it may repeat or was ignored.
    pub(super) fn take(&mut self, element: &Tlv<'a>) -> Result<Option<u32>, DecodeError> {
        let field = match element.tlv_type {
            types::SEQUENCE => {
                self.sequence = Some(u64::from_be_bytes(*fixed::<8>(element)?));
                1
            }
            types::FRAG_INDEX => {
                self.frag_index = element.integer()?;
                2
            }
            types::FRAG_COUNT => {
                self.frag_count = Some(element.integer()?);
                4
            }
            types::PIT_TOKEN => {
                if !(1..=PIT_TOKEN_BYTES_MAX).contains(&element.value.len()) {
                    return Err(DecodeError::ElementLength);
                }
                self.pit_token = Some(element.value);
                8
            }
            types::NACK => {
                self.nack = Some(nack_reason(element)?);
                16
            }
            types::INCOMING_FACE_ID => {
                self.incoming_face = Some(element.integer()?);
                32
            }
            types::NEXT_HOP_FACE_ID => {
                self.next_hop_face = Some(element.integer()?);
                64
            }
            types::CACHE_POLICY => {
                self.no_cache = cache_policy_is_no_cache(element)?;
                128
            }
            types::CONGESTION_MARK => {
                self.congestion_mark = element.integer()?;
                256
            }
            types::TX_SEQUENCE => {
                self.tx_sequence = Some(u64::from_be_bytes(*fixed::<8>(element)?));
                512
            }
            types::NON_DISCOVERY => {
                fixed::<0>(element)?;
                self.non_discovery = true;
                1024
            }
            types::PREFIX_ANNOUNCEMENT => {
                self.prefix_announcement = Some(element.value);
                2048
            }
            types::ACK => {
                fixed::<8>(element)?;
                return Ok(None);
            }
            other if types::is_ignorable(other) => return Ok(None),
            _ => return Err(DecodeError::Critical),
        };
        Ok(Some(field))
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how many bytes the fields take.
    pub fn fields_bytes(&self) -> usize {
        let eight = element_bytes(types::SEQUENCE, 8);
        let eight_wide = element_bytes(types::TX_SEQUENCE, 8);
        let integer = |tlv_type, value: u64| element_bytes(tlv_type, integer_bytes(value));
        let optional = |tlv_type, value: Option<u64>| value.map_or(0, |v| integer(tlv_type, v));
        let mut bytes = 0;
        bytes += self.sequence.map_or(0, |_| eight);
        bytes += match self.frag_count {
            Some(count) => {
                integer(types::FRAG_INDEX, self.frag_index) + integer(types::FRAG_COUNT, count)
            }
            None => 0,
        };
        bytes += self
            .pit_token
            .map_or(0, |token| element_bytes(types::PIT_TOKEN, token.len()));
        bytes += self.nack.map_or(0, |reason| {
            element_bytes(types::NACK, optional(types::NACK_REASON, reason.number()))
        });
        bytes += optional(types::INCOMING_FACE_ID, self.incoming_face);
        bytes += optional(types::NEXT_HOP_FACE_ID, self.next_hop_face);
        if self.no_cache {
            bytes += element_bytes(types::CACHE_POLICY, integer(types::CACHE_POLICY_TYPE, 1));
        }
        if self.congestion_mark > 0 {
            bytes += integer(types::CONGESTION_MARK, self.congestion_mark);
        }
        bytes += self.tx_sequence.map_or(0, |_| eight_wide);
        if self.non_discovery {
            bytes += element_bytes(types::NON_DISCOVERY, 0);
        }
        bytes += self.prefix_announcement.map_or(0, |data| {
            element_bytes(types::PREFIX_ANNOUNCEMENT, data.len())
        });
        bytes
    }

    /// Writes a link packet to the start of `out`: `acks` and the header fields in the order of their
    /// types, then `fragment` (none if empty). Without any field the fragment is written bare. Returns the
    /// length.
    ///
    /// # Errors
    /// [`BufferTooShort`].
    pub fn encode(
        &self,
        acks: &[u64],
        fragment: &[u8],
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut out = Writer::new(out);
        if self.is_empty() && acks.is_empty() && !fragment.is_empty() {
            out.bytes(fragment)?;
            return Ok(out.len());
        }
        let mut value_bytes = self.fields_bytes() + acks.len() * element_bytes(types::ACK, 8);
        if !fragment.is_empty() {
            value_bytes += element_bytes(types::FRAGMENT, fragment.len());
        }
        out.header(types::LP_PACKET, value_bytes)?;
        self.write_fields(acks, &mut out)?;
        if !fragment.is_empty() {
            out.element(types::FRAGMENT, fragment)?;
        }
        Ok(out.len())
    }

    fn write_fields(&self, acks: &[u64], out: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        if let Some(sequence) = self.sequence {
            out.element(types::SEQUENCE, &sequence.to_be_bytes())?;
        }
        if let Some(count) = self.frag_count {
            out.integer(types::FRAG_INDEX, self.frag_index)?;
            out.integer(types::FRAG_COUNT, count)?;
        }
        if let Some(token) = self.pit_token {
            out.element(types::PIT_TOKEN, token)?;
        }
        if let Some(reason) = self.nack {
            out.nested(types::NACK, |out| match reason.number() {
                Some(number) => out.integer(types::NACK_REASON, number),
                None => Ok(()),
            })?;
        }
        if let Some(face) = self.incoming_face {
            out.integer(types::INCOMING_FACE_ID, face)?;
        }
        if let Some(face) = self.next_hop_face {
            out.integer(types::NEXT_HOP_FACE_ID, face)?;
        }
        if self.no_cache {
            out.nested(types::CACHE_POLICY, |out| {
                out.integer(types::CACHE_POLICY_TYPE, 1)
            })?;
        }
        if self.congestion_mark > 0 {
            out.integer(types::CONGESTION_MARK, self.congestion_mark)?;
        }
        for ack in acks {
            out.element(types::ACK, &ack.to_be_bytes())?;
        }
        if let Some(sequence) = self.tx_sequence {
            out.element(types::TX_SEQUENCE, &sequence.to_be_bytes())?;
        }
        if self.non_discovery {
            out.element(types::NON_DISCOVERY, &[])?;
        }
        match self.prefix_announcement {
            Some(data) => out.element(types::PREFIX_ANNOUNCEMENT, data),
            None => Ok(()),
        }
    }
}

/// Reads a Nack field.
fn nack_reason(element: &Tlv<'_>) -> Result<NackReason, DecodeError> {
    let mut walk = OrderedWalk::new(element.value, &[types::NACK_REASON]);
    match walk.next()? {
        Some(reason) => reason.integer().map(NackReason::from_number),
        None => Ok(NackReason::None),
    }
}

/// Reads a CachePolicy field; a policy that is unknown here is as none.
fn cache_policy_is_no_cache(element: &Tlv<'_>) -> Result<bool, DecodeError> {
    let mut walk = OrderedWalk::new(element.value, &[types::CACHE_POLICY_TYPE]);
    match walk.next()? {
        Some(policy) => Ok(policy.integer()? == 1),
        None => Err(DecodeError::Missing),
    }
}
