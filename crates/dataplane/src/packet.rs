//! Small edits of packets in place: headers, MAC addresses.

use io::Frame;
use wire::{FlowKey, FlowSecret, MacAddr};

/// Bytes of an Ethernet header without tags.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options.
pub(crate) const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header without extensions.
pub(crate) const IPV6_BYTES: usize = 40;

/// Returns `N` bytes from `at` on, if they are there.
#[inline]
pub(crate) fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<&[u8; N]> {
    data.get(at..)?.first_chunk()
}

/// Returns `N` bytes from `at` on for writing, if they are there.
#[inline]
pub(crate) fn bytes_mut<const N: usize>(data: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    data.get_mut(at..)?.first_chunk_mut()
}

/// Returns the 16-bit big-endian number at `at`, or zero where the data ends.
#[inline]
pub(crate) fn be16(data: &[u8], at: usize) -> u16 {
    bytes::<2>(data, at).map_or(0, |b| u16::from_be_bytes(*b))
}

/// Returns the 32-bit big-endian number at a fixed place of a header.
#[inline]
pub(crate) const fn be32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Writes a 16-bit big-endian number, if there is room.
#[inline]
pub(crate) fn put_be16(data: &mut [u8], at: usize, value: u16) {
    if let Some(b) = bytes_mut::<2>(data, at) {
        *b = value.to_be_bytes();
    }
}

/// Gives the packet an Ethernet header right before its network header and cuts what is outside:
/// tags before, padding after. The layout follows.
#[inline]
pub(crate) fn set_ethernet(frame: &mut Frame, to: MacAddr, from: MacAddr, ether_type: u16) {
    let mut header = [0; ETHERNET_BYTES];
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&from.0);
    header[12..].copy_from_slice(&ether_type.to_be_bytes());
    put_ethernet(frame, &header);
}

/// As [`set_ethernet`], with a header that is made already.
#[inline]
pub(crate) fn put_ethernet(frame: &mut Frame, header: &[u8; ETHERNET_BYTES]) {
    let network = usize::from(frame.layout.network);
    let cut = network.saturating_sub(ETHERNET_BYTES);
    let end = usize::from(frame.layout.end);
    if cut != 0 || end != frame.len() {
        trim(frame, cut, end);
    }
    if let Some(place) = bytes_mut(frame.data_mut(), 0) {
        *place = *header;
    }
}

/// Cuts the frame to `cut..end` and moves the layout's offsets along.
#[cold]
fn trim(frame: &mut Frame, cut: usize, end: usize) {
    let end = end.min(frame.len());
    frame.set_range(frame.offset() + cut, end.saturating_sub(cut));
    let cut = cut as u16; // the network offset is at most 22
    let end = frame.len() as u16;
    let layout = &mut frame.layout;
    layout.network -= cut;
    layout.transport = layout.transport.saturating_sub(cut);
    layout.payload = layout.payload.saturating_sub(cut);
    layout.end = end;
    layout.vlan_tags = 0;
}

/// Turns a frame's MAC addresses around: it goes back to the station that it came from, until routing says
/// otherwise. What makes a packet does this, so that a capture never shows a header that nobody wrote.
#[inline]
pub(crate) fn turn_around(data: &mut [u8], own: MacAddr) {
    if let Some([to @ .., a, b, c, d, e, f]) = bytes_mut::<12>(data, 0) {
        *to = [*a, *b, *c, *d, *e, *f];
        [*a, *b, *c, *d, *e, *f] = own.0;
    }
}

/// Begins a frame that the node makes with the MAC addresses of the one that it is about, and the type.
#[inline]
pub(crate) fn begin_like(made: &mut Frame, about: &Frame, ether_type: u16) {
    if let (Some(header), Some(addresses)) = (
        bytes_mut::<ETHERNET_BYTES>(made.data_mut(), 0),
        bytes::<12>(about.data(), 0),
    ) {
        header[..12].copy_from_slice(addresses);
        header[12..].copy_from_slice(&ether_type.to_be_bytes());
    }
}

/// Writes the checksum of an IPv4 header into it.
pub(crate) fn set_ipv4_checksum(header: &mut [u8]) {
    put_be16(header, 10, 0);
    let sum = wire::checksum::checksum(header);
    put_be16(header, 10, sum);
}

/// Hashes the flow of a packet that has more than one way to go; fragments by address only, so that all
/// of a datagram go one way.
#[cold]
pub(crate) fn flow_hash(frame: &Frame, secret: &FlowSecret) -> u32 {
    if frame.flags.contains(io::FrameFlags::FLOW_HASH) {
        return frame.flow_hash;
    }
    // What has no key has one way: the first.
    FlowKey::from_layout(&frame.layout, frame.data())
        .map_or(0, |key| wire::flow_hash(&key, secret) as u32)
}
