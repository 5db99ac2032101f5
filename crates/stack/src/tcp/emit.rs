//! Frames of segments: Ethernet, IP and TCP headers around data.

use core::net::{Ipv4Addr, Ipv6Addr};

use wire::tcp::{Flags, SackBlocks, TcpOption};
use wire::{Addresses, MacAddr, ether_type, ethernet, ip_protocol, ipv4, ipv6, tcp};

use super::seq::Seq;
use crate::sink::TxSink;

/// The most options a segment has here.
const OPTIONS_MAX: usize = 12;
/// "ECN-capable transport", ECT(0) (RFC 3168 5).
const ECT_0: u8 = 2;

/// A Fast Open cookie; empty: a request for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cookie {
    bytes: [u8; 16],
    len: u8,
}

impl Cookie {
    pub(crate) fn new(cookie: &[u8]) -> Self {
        let mut this = Self::default();
        for (to, from) in this.bytes.iter_mut().zip(cookie) {
            *to = *from;
            this.len += 1;
        }
        this
    }
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Where the segments of a connection go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) source_mac: MacAddr,
    pub(crate) destination_mac: MacAddr,
    pub(crate) addresses: Addresses,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) mtu: u16,
    pub(crate) fast_open: Option<Cookie>,
}

impl Path {
    /// Returns the length of the IP header.
    pub(crate) const fn ip_bytes(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => ipv4::HEADER_BYTES,
            Addresses::V6 { .. } => ipv6::HEADER_BYTES,
        }
    }
    /// Returns the largest segment's data on the link (RFC 9293 3.7.1).
    pub(crate) const fn mss(&self) -> u16 {
        self.mtu
            .saturating_sub((self.ip_bytes() + tcp::HEADER_BYTES) as u16)
    }
}

/// The fields of a header that differ from segment to segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    flags: Flags,
    seq: Seq,
    ack: Seq,
    window: u16,
    timestamps: Option<(u32, u32)>,
    rare: Rare,
    fast_open: Option<Cookie>,
    /// Mark the packet as ECN-capable.
    pub(crate) is_capable: bool,
}

/// The options that few segments have.
#[derive(Clone, Copy, Debug)]
enum Rare {
    None,
    Sack(SackBlocks),
    Syn(SynOptions),
}

/// What a SYN offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SynOptions {
    pub(crate) mss: u16,
    pub(crate) sack: bool,
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) scale: Option<u8>,
}

impl Header {
    pub(crate) const fn new(flags: Flags, seq: Seq, ack: Seq, window: u16) -> Self {
        Self {
            flags,
            seq,
            ack,
            window,
            timestamps: None,
            rare: Rare::None,
            fast_open: None,
            is_capable: false,
        }
    }
    /// Adds NOP, NOP, timestamps (RFC 7323 A).
    pub(crate) fn timestamps(&mut self, value: u32, echo: u32) {
        self.timestamps = Some((value, echo));
    }
    /// Adds NOP, NOP, SACK.
    pub(crate) fn sack(&mut self, blocks: &[(u32, u32)]) {
        if !blocks.is_empty() {
            self.rare = Rare::Sack(SackBlocks::new(blocks));
        }
    }
    /// Adds a SYN's options.
    pub(crate) fn syn_options(&mut self, offer: SynOptions) {
        self.rare = Rare::Syn(offer);
    }
    pub(crate) fn fast_open(&mut self, cookie: &Cookie) {
        self.fast_open = Some(*cookie);
    }
}

/// The options of a segment, in order.
#[derive(Debug)]
struct OptionList<'a> {
    options: [TcpOption<'a>; OPTIONS_MAX],
    count: usize,
}

impl<'a> OptionList<'a> {
    fn new(header: &'a Header) -> Self {
        let mut this = Self {
            options: [TcpOption::NoOperation; OPTIONS_MAX],
            count: 0,
        };
        if let Some((value, echo)) = header.timestamps {
            this.timestamps(value, echo);
        }
        match header.rare {
            Rare::None => {}
            Rare::Sack(blocks) => {
                this.count += 2;
                this.add(TcpOption::Sack(blocks));
            }
            Rare::Syn(offer) => this.syn(offer),
        }
        if let Some(cookie) = &header.fast_open {
            this.add(TcpOption::FastOpen(cookie.as_slice()));
            // Padded by NOPs, as Linux.
            let bytes = 2 + cookie.as_slice().len();
            this.count += bytes.next_multiple_of(4) - bytes;
            this.count = this.count.min(OPTIONS_MAX);
        }
        this
    }
    fn add(&mut self, option: TcpOption<'a>) {
        if let Some(slot) = self.options.get_mut(self.count) {
            *slot = option;
            self.count += 1;
        }
    }
    fn timestamps(&mut self, value: u32, echo: u32) {
        self.count += 2;
        self.add(TcpOption::Timestamps { value, echo });
    }
    /// Adds a SYN's options in Linux's order: MSS, SACK permitted and timestamps, NOP and window scale.
    fn syn(&mut self, offer: SynOptions) {
        self.add(TcpOption::MaximumSegmentSize(offer.mss));
        match (offer.timestamps, offer.sack) {
            (Some((value, echo)), true) => {
                self.add(TcpOption::SackPermitted);
                self.add(TcpOption::Timestamps { value, echo });
            }
            (Some((value, echo)), false) => self.timestamps(value, echo),
            (None, true) => {
                self.count += 2;
                self.add(TcpOption::SackPermitted);
            }
            (None, false) => {}
        }
        if let Some(shift) = offer.scale {
            self.count += 1;
            self.add(TcpOption::WindowScale(shift));
        }
    }
    fn as_slice(&self) -> &[TcpOption<'a>] {
        self.options.get(..self.count).unwrap_or_default()
    }
}

/// Writes a segment with `data_bytes` that `fill` copies; false if the sink is full or `fill` has no data.
#[inline]
pub(crate) fn emit<S: TxSink>(
    path: &Path,
    header: &Header,
    data_bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> bool,
    sink: &mut S,
) -> bool {
    if !matches!(header.rare, Rare::None) || header.fast_open.is_some() {
        return emit_any(path, header, data_bytes, fill, sink);
    }
    let plain = tcp::Plain {
        source_port: path.source_port,
        destination_port: path.destination_port,
        sequence: header.seq.0,
        acknowledgement: header.ack.0,
        flags: header.flags,
        window: header.window,
        timestamps: header.timestamps,
    };
    let emit = |segment: &mut [u8]| plain.emit(segment, &path.addresses).is_ok();
    emit_with(path, header, plain.bytes(), data_bytes, fill, emit, sink)
}

/// As [`emit`], for any options.
#[cold]
fn emit_any<S: TxSink>(
    path: &Path,
    header: &Header,
    data_bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> bool,
    sink: &mut S,
) -> bool {
    let options = OptionList::new(header);
    let repr = tcp::Repr {
        source_port: path.source_port,
        destination_port: path.destination_port,
        sequence: header.seq.0,
        acknowledgement: header.ack.0,
        flags: header.flags,
        window: header.window,
        urgent: 0,
        options: options.as_slice(),
    };
    let emit = |segment: &mut [u8]| repr.emit(segment, &path.addresses).is_ok();
    emit_with(path, header, repr.bytes(), data_bytes, fill, emit, sink)
}

#[inline]
fn emit_with<S: TxSink>(
    path: &Path,
    header: &Header,
    header_bytes: usize,
    data_bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> bool,
    emit: impl FnOnce(&mut [u8]) -> bool,
    sink: &mut S,
) -> bool {
    let segment_bytes = header_bytes + data_bytes;
    let Some(frame) = sink.reserve(ethernet::HEADER_BYTES + path.ip_bytes() + segment_bytes) else {
        return false;
    };
    let tos = path.tos & 0xfc | if header.is_capable { ECT_0 } else { 0 };
    let Some(segment) = emit_network(path, tos, segment_bytes, frame) else {
        return false;
    };
    let Some(data) = segment.get_mut(header_bytes..) else {
        return false;
    };
    if !fill(data) || !emit(segment) {
        return false;
    }
    sink.commit();
    true
}

/// Writes the Ethernet and IP headers; returns what follows them.
fn emit_network<'a>(
    path: &Path,
    tos: u8,
    payload_bytes: usize,
    frame: &'a mut [u8],
) -> Option<&'a mut [u8]> {
    let payload_bytes = u16::try_from(payload_bytes).ok()?;
    let (ether, packet) = frame.split_at_mut_checked(ethernet::HEADER_BYTES)?;
    let is_v4 = matches!(path.addresses, Addresses::V4 { .. });
    let ether_type = if is_v4 {
        ether_type::IPV4
    } else {
        ether_type::IPV6
    };
    let link = ethernet::Repr {
        destination: path.destination_mac,
        source: path.source_mac,
        ether_type,
    };
    link.emit(ether).ok()?;
    let bytes = match path.addresses {
        Addresses::V4 {
            source,
            destination,
        } => emit_ipv4(path, (source, destination), tos, payload_bytes, packet)?,
        Addresses::V6 {
            source,
            destination,
        } => emit_ipv6(path, (source, destination), tos, payload_bytes, packet)?,
    };
    packet.get_mut(bytes..)
}

fn emit_ipv4(
    path: &Path,
    ends: (Ipv4Addr, Ipv4Addr),
    tos: u8,
    payload_bytes: u16,
    packet: &mut [u8],
) -> Option<usize> {
    let mut repr = ipv4::Repr::new(ends.0, ends.1, ip_protocol::TCP, payload_bytes);
    repr.ttl = path.ttl;
    repr.tos = tos;
    repr.dont_fragment = true;
    repr.emit(packet).ok()
}

fn emit_ipv6(
    path: &Path,
    ends: (Ipv6Addr, Ipv6Addr),
    tos: u8,
    payload_bytes: u16,
    packet: &mut [u8],
) -> Option<usize> {
    let mut repr = ipv6::Repr::new(ends.0, ends.1, ip_protocol::TCP, payload_bytes);
    repr.hop_limit = path.ttl;
    repr.traffic_class = tos;
    repr.emit(packet).ok()
}
