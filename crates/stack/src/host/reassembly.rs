//! Reassembly of fragments (RFC 791 3.2, RFC 8200 4.5): bounded in datagrams, bytes, pieces and time.

use alloc::vec::Vec;
use core::net::IpAddr;

use wire::{DropReason, LayoutFlags, ether_type, ethernet, ipv4, ipv6};

use crate::rx::Rx;
use crate::stack::Stack;

/// The most pieces of a datagram.
const PIECES_MAX: usize = 64;
/// How long a datagram waits for its pieces, ns (RFC 1122 3.3.2: 60 to 120 s; RFC 8200: 60 s).
const LIFE_NS: u64 = 60_000_000_000;

/// Which datagram a fragment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    identification: u32,
}

/// One fragment.
#[derive(Clone, Copy, Debug)]
struct Fragment<'a> {
    id: Id,
    offset: usize,
    more: bool,
    data: &'a [u8],
    /// Frame up to the data, of the first fragment.
    head: &'a [u8],
}

#[derive(Debug)]
struct Datagram {
    id: Id,
    data: Vec<u8>,
    pieces: Vec<(usize, usize)>,
    total: Option<usize>,
    head: Vec<u8>,
    until: u64,
}

/// Datagrams under way.
#[derive(Debug)]
pub(crate) struct Reassembly {
    datagrams: Vec<Datagram>,
    max: usize,
}

impl Reassembly {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            datagrams: Vec::new(),
            max: max.max(1),
        }
    }
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.datagrams.iter().map(|datagram| datagram.until).min()
    }
    /// Takes a fragment; returns the whole packet as a frame when it is the last one missing.
    fn take(
        &mut self,
        fragment: &Fragment<'_>,
        now_ns: u64,
    ) -> Result<Option<Vec<u8>>, DropReason> {
        let at = match self
            .datagrams
            .iter()
            .position(|datagram| datagram.id == fragment.id)
        {
            Some(at) => at,
            None => {
                let fresh = Datagram {
                    id: fragment.id,
                    data: Vec::new(),
                    pieces: Vec::new(),
                    total: None,
                    head: Vec::new(),
                    until: now_ns + LIFE_NS,
                };
                if self.datagrams.len() >= self.max {
                    self.datagrams.remove(0);
                }
                self.datagrams.push(fresh);
                self.datagrams.len() - 1
            }
        };
        let Some(datagram) = self.datagrams.get_mut(at) else {
            return Err(DropReason::FragmentMalformed);
        };
        match datagram.add(fragment) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some(self.datagrams.remove(at).into_frame())),
            Err(reason) => {
                // Overlaps are attacks or errors: the datagram is lost (RFC 5722).
                self.datagrams.remove(at);
                Err(reason)
            }
        }
    }
}

impl Datagram {
    fn add(&mut self, fragment: &Fragment<'_>) -> Result<bool, DropReason> {
        let (start, end) = (fragment.offset, fragment.offset + fragment.data.len());
        if self.pieces.contains(&(start, end)) {
            return Ok(false); // a duplicate
        }
        let overlaps = self.pieces.iter().any(|&(s, e)| start < e && s < end);
        let beyond = self
            .total
            .is_some_and(|total| end > total || !fragment.more && end != total);
        let short = !fragment.more && self.pieces.iter().any(|&(_, e)| e > end);
        if overlaps
            || beyond
            || short
            || self.pieces.len() >= PIECES_MAX
            || end > usize::from(u16::MAX)
        {
            return Err(DropReason::FragmentMalformed);
        }
        if !fragment.more {
            self.total = Some(end);
        }
        if start == 0 {
            self.head = fragment.head.to_vec();
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        if let Some(to) = self.data.get_mut(start..end) {
            to.copy_from_slice(fragment.data);
        }
        self.pieces.push((start, end));
        let have: usize = self.pieces.iter().map(|(s, e)| e - s).sum();
        Ok(self.total == Some(have) && !self.head.is_empty())
    }
    fn into_frame(self) -> Vec<u8> {
        let mut frame = self.head;
        frame.extend_from_slice(&self.data);
        frame
    }
}

impl Stack {
    pub(crate) fn receive_fragment(&mut self, rx: &Rx<'_>, now_ns: u64) -> Result<(), DropReason> {
        let (fragment, mut head) = if rx.layout.flags.contains(LayoutFlags::IPV4) {
            fragment_v4(rx).ok_or(DropReason::FragmentMalformed)?
        } else {
            fragment_v6(rx).ok_or(DropReason::FragmentMalformed)?
        };
        let data_end = fragment.offset + fragment.data.len();
        if fragment.more && fragment.data.len() % 8 != 0 || data_end > usize::from(u16::MAX) - 60 {
            return Err(DropReason::FragmentMalformed);
        }
        let whole = self.reassembly.take(
            &Fragment {
                head: &head,
                ..fragment
            },
            now_ns,
        )?;
        head.clear();
        let Some(mut frame) = whole else {
            return Ok(());
        };
        finish_lengths(&mut frame).ok_or(DropReason::FragmentMalformed)?;
        let layout = wire::parse(&frame)?;
        if layout.flags.contains(LayoutFlags::FRAGMENT) {
            return Err(DropReason::FragmentMalformed);
        }
        let session = self.session_of(&layout, &frame);
        self.receive(
            &Rx {
                frame: &frame,
                layout,
                session,
                source_mac: rx.source_mac,
            },
            now_ns,
        )
    }

    /// Forgets datagrams whose pieces did not come in time.
    pub(crate) fn expire_fragments(&mut self, now_ns: u64) {
        let before = self.reassembly.datagrams.len();
        self.reassembly
            .datagrams
            .retain(|datagram| datagram.until > now_ns);
        for _ in self.reassembly.datagrams.len()..before {
            self.drop_frame(DropReason::ReassemblyTimeout);
        }
    }
}

/// Reads an IPv4 fragment; the head is the frame's without fragment fields.
fn fragment_v4<'a>(rx: &Rx<'a>) -> Option<(Fragment<'a>, Vec<u8>)> {
    let network = usize::from(rx.layout.network);
    let view = ipv4::View::new(rx.frame.get(network..)?).ok()?;
    let header_end = network + ipv4::HEADER_BYTES + view.options_bytes().len();
    let mut head = link_head(rx, ether_type::IPV4);
    head.extend_from_slice(rx.frame.get(network..header_end)?);
    let at = ethernet::HEADER_BYTES + ipv4::FLAGS_FRAGMENT;
    head.get_mut(at..at + 2)?.fill(0);
    let id = Id {
        source: view.source().into(),
        destination: view.destination().into(),
        protocol: view.protocol(),
        identification: view.identification().into(),
    };
    let fragment = Fragment {
        id,
        offset: view.fragment_offset_bytes().into(),
        more: view.more_fragments(),
        data: view.payload(),
        head: &[],
    };
    Some((fragment, head))
}

/// Reads an IPv6 fragment; the head is the fixed header alone, whose next header is what was fragmented.
fn fragment_v6<'a>(rx: &Rx<'a>) -> Option<(Fragment<'a>, Vec<u8>)> {
    let network = usize::from(rx.layout.network);
    let (header, at) = ipv6::FragmentHeader::find(&rx.layout, rx.frame)?;
    let data = rx
        .frame
        .get(at + ipv6::FRAGMENT_HEADER_BYTES..usize::from(rx.layout.end))?;
    let mut head = link_head(rx, ether_type::IPV6);
    head.extend_from_slice(rx.frame.get(network..network + ipv6::HEADER_BYTES)?);
    *head.get_mut(ethernet::HEADER_BYTES + ipv6::NEXT_HEADER)? = header.next_header;
    let (source, destination) = rx.layout.ipv6_addresses(rx.frame)?;
    let id = Id {
        source: source.into(),
        destination: destination.into(),
        protocol: 0,
        identification: header.identification,
    };
    Some((
        Fragment {
            id,
            offset: header.offset_bytes.into(),
            more: header.more,
            data,
            head: &[],
        },
        head,
    ))
}

fn link_head(rx: &Rx<'_>, kind: u16) -> Vec<u8> {
    let mut head = rx.frame.get(..12).unwrap_or_default().to_vec();
    head.extend_from_slice(&kind.to_be_bytes());
    head
}

/// Writes length and checksum of the whole packet.
fn finish_lengths(frame: &mut [u8]) -> Option<()> {
    let packet = frame.get_mut(ethernet::HEADER_BYTES..)?;
    let length = u16::try_from(packet.len()).ok()?;
    if packet.first()? >> 4 == 6 {
        let payload = length.checked_sub(ipv6::HEADER_BYTES as u16)?;
        *packet.get_mut(ipv6::PAYLOAD_LENGTH..)?.first_chunk_mut()? = payload.to_be_bytes();
        return Some(());
    }
    *packet.get_mut(ipv4::TOTAL_LENGTH..)?.first_chunk_mut()? = length.to_be_bytes();
    *packet.get_mut(ipv4::CHECKSUM..)?.first_chunk_mut()? = [0, 0];
    let header = usize::from(packet.first()? & 0xf) * 4;
    let sum = wire::checksum::checksum(packet.get(..header)?);
    *packet.get_mut(ipv4::CHECKSUM..)?.first_chunk_mut()? = sum.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn id(identification: u32) -> Id {
        Id {
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
            protocol: 17,
            identification,
        }
    }

    proptest! {
        /// Pieces in any order, with duplicates: the datagram comes out whole, once.
        #[test]
        fn pieces_in_any_order(
            cuts in prop::collection::btree_set(1_usize..500, 0..20),
            last in 1_usize..9,
            order in any::<u64>(),
        ) {
            let mut edges = vec![0];
            edges.extend(cuts.iter().map(|cut| cut * 8));
            edges.push(500 * 8 + last);
            let data: Vec<u8> = (0..500 * 8 + last).map(|i| (i * 7) as u8).collect();
            let mut pieces: Vec<(usize, usize)> = edges.windows(2).map(|w| (w[0], w[1])).collect();
            let mut state = order;
            for at in (1..pieces.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(at, (state >> 33) as usize % (at + 1));
            }
            let mut table = Reassembly::new(2);
            let mut out = None;
            for (n, &(start, end)) in pieces.iter().enumerate() {
                let fragment = Fragment {
                    id: id(1), offset: start, more: end < data.len(), data: &data[start..end], head: &[9, 9],
                };
                prop_assert!(out.is_none());
                if n + 1 < pieces.len() {
                    prop_assert_eq!(table.take(&fragment, 0), Ok(None));
                    prop_assert_eq!(table.take(&fragment, 0), Ok(None));
                } else {
                    out = table.take(&fragment, 0).unwrap();
                }
            }
            let out = out.unwrap();
            prop_assert_eq!(&out[..2], &[9, 9]);
            prop_assert_eq!(&out[2..], &data[..]);
            prop_assert!(table.datagrams.is_empty());
        }
    }

    #[test]
    fn overlaps_are_refused_and_the_table_is_bounded() {
        let mut table = Reassembly::new(2);
        let fragment = |n, offset, more, data| Fragment {
            id: id(n),
            offset,
            more,
            data,
            head: &[1],
        };
        assert_eq!(table.take(&fragment(1, 0, true, &[1; 16]), 0), Ok(None));
        assert_eq!(
            table.take(&fragment(1, 8, false, &[2; 16]), 0),
            Err(DropReason::FragmentMalformed)
        );
        assert!(table.datagrams.is_empty());
        for n in 0..9 {
            assert_eq!(table.take(&fragment(n, 8, false, &[2; 16]), 0), Ok(None));
        }
        assert_eq!(table.datagrams.len(), 2);
        assert_eq!(
            table.take(&fragment(8, 16, true, &[2; 16]), 0),
            Err(DropReason::FragmentMalformed)
        );
    }
}
