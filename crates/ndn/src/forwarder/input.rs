//! Packets come in, alone or in bursts.

use smallvec::SmallVec;
use wire::ndn::lp::LpHeader;
use wire::ndn::{Data, Interest, types};
use wire::{DropReason, Instant};

use super::{Forwarder, Sink};
use crate::face::FaceId;
use crate::hash::PrefixHashes;
use crate::store::ContentStore;

/// Packets whose memory accesses are overlapped.
const TOGETHER: usize = 16;

/// A network packet that came by a face.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The face.
    pub face: FaceId,
    /// What the link header says.
    pub header: LpHeader<'a>,
    /// The Interest or Data.
    pub packet: &'a [u8],
}

/// What a packet is.
#[derive(Debug)]
enum Kind<'a> {
    Interest(Interest<'a>),
    Nack(Interest<'a>),
    Data(Data<'a>),
}

/// A packet that was read, with the hashes of its name.
#[derive(Debug)]
struct Prepared<'a, A> {
    kind: Kind<'a>,
    hashes: Hashes<A>,
}

/// The hashes of a packet's name.
#[derive(Debug)]
pub(super) struct Hashes<A> {
    /// Of the name without implicit digest.
    pub(super) whole: u64,
    /// What the content store keeps of the name.
    pub(super) stored: A,
    /// Of the prefixes that FIB and strategy choice look at, where they were needed already.
    pub(super) prefixes: Option<PrefixHashes>,
}

impl<C: ContentStore> Forwarder<C> {
    /// Takes a network packet from a face. The caller has made sure that the name is this worker's
    /// ([`Partition::owner_of_packet`](crate::Partition::owner_of_packet)).
    ///
    /// # Errors
    /// Why the packet was dropped; it is counted already.
    pub fn input(
        &mut self,
        now: Instant,
        face: FaceId,
        header: &LpHeader<'_>,
        packet: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let incoming = Incoming {
            face,
            header: *header,
            packet,
        };
        let prepared = self.prepare(&incoming);
        self.take(now, &incoming, prepared, sink)
    }

    /// Takes packets one after the other as [`input`](Self::input) does, with their accesses to memory overlapped:
    /// where tables are larger than caches, that is most of what a packet costs. `dropped` is told of each that is
    /// dropped, and why.
    pub fn input_burst(
        &mut self,
        now: Instant,
        packets: &[Incoming<'_>],
        sink: &mut impl Sink,
        mut dropped: impl FnMut(&Incoming<'_>, DropReason),
    ) {
        for burst in packets.chunks(TOGETHER) {
            // Each pass asks for the memory that the next one reads.
            let mut prepared: SmallVec<[_; TOGETHER]> = burst
                .iter()
                .map(|incoming| self.prepare(incoming))
                .collect();
            for packet in prepared.iter_mut().flatten() {
                self.look_closer(packet);
            }
            for packet in prepared.iter().flatten() {
                self.look_ahead(packet);
            }
            for (incoming, prepared) in burst.iter().zip(prepared) {
                if let Err(reason) = self.take(now, incoming, prepared, sink) {
                    dropped(incoming, reason);
                }
            }
        }
    }

    /// Reads a packet and hashes its name.
    #[inline]
    fn prepare<'a>(&self, incoming: &Incoming<'a>) -> Result<Prepared<'a, C::Ahead>, DropReason> {
        let packet = incoming.packet;
        let kind = match packet.first().map(|&first| u32::from(first)) {
            Some(types::INTEREST) => match Interest::parse(packet) {
                Ok(interest) if incoming.header.nack.is_some() => Kind::Nack(interest),
                Ok(interest) => Kind::Interest(interest),
                Err(error) => return Err(error.drop_reason()),
            },
            Some(types::DATA) => {
                Kind::Data(Data::parse(packet).map_err(|error| error.drop_reason())?)
            }
            _ => return Err(DropReason::NdnMalformed),
        };
        let name = match &kind {
            Kind::Interest(interest) | Kind::Nack(interest) => interest.name,
            Kind::Data(data) => data.name,
        };
        let stem = match &kind {
            Kind::Interest(_) | Kind::Nack(_) => name.split_implicit_digest().0,
            Kind::Data(_) => name,
        };
        let hashes = Hashes {
            whole: self.partition.hasher().hash(stem),
            stored: self.store.look_ahead(name),
            prefixes: None,
        };
        Ok(Prepared { kind, hashes })
    }

    /// Hashes what an Interest that the content store does not answer will need.
    #[inline]
    fn look_closer(&self, packet: &mut Prepared<'_, C::Ahead>) {
        let may_have = self.store.look_closer(&packet.hashes.stored);
        if let Kind::Interest(interest) = &packet.kind
            && !may_have
        {
            packet.hashes.prefixes = Some(self.prefixes_of_interest(interest));
        }
    }

    #[inline]
    fn look_ahead(&self, packet: &Prepared<'_, C::Ahead>) {
        self.pit.look_ahead(packet.hashes.whole);
        if let Some(prefixes) = &packet.hashes.prefixes {
            self.fib.look_ahead(prefixes);
        }
    }

    /// Hashes the prefixes of an Interest's name that FIB and strategy choice look at.
    pub(super) fn prefixes_of_interest(&self, interest: &Interest<'_>) -> PrefixHashes {
        let (stem, _) = interest.name.split_implicit_digest();
        let depths = self.fib.depths().and(self.choice.depths());
        self.partition.hasher().prefixes(stem, depths)
    }

    /// Lets a packet through its pipeline.
    fn take(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        prepared: Result<Prepared<'_, C::Ahead>, DropReason>,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let (face, header) = (incoming.face, &incoming.header);
        let result = match prepared {
            _ if self.faces.get(face).is_none() => Err(DropReason::NdnFaceDown),
            Err(reason) => Err(reason),
            Ok(Prepared { kind, hashes }) => match kind {
                Kind::Interest(interest) => {
                    self.interest(now, face, header, &interest, hashes, sink)
                }
                Kind::Nack(interest) => self.nack(now, face, header, &interest, hashes.whole, sink),
                Kind::Data(data) => self.data(now, face, header, &data, hashes.whole, sink),
            },
        };
        if let Err(reason) = result {
            self.counters.drop(reason);
        }
        result
    }
}
