//! Frames of segments: Ethernet, IP and TCP headers around data.

use wire::checksum::update_u16;
use wire::tcp::{Flags, SackBlocks, TcpOption};
use wire::{Addresses, MacAddr, ether_type, ethernet, ip_protocol, ipv4, ipv6, tcp};

use super::seq::Seq;
use super::sessions::Key;
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

/// The most that Ethernet and IP headers take.
const HEAD_BYTES: usize = ethernet::HEADER_BYTES + ipv6::HEADER_BYTES;
/// Ethernet and IPv4 headers.
const HEAD_V4_BYTES: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES;

/// Where the segments of a connection go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    addresses: Addresses,
    source_port: u16,
    destination_port: u16,
    mtu: u16,
    /// Ethernet and IP headers of a packet without payload: written once for all segments of a turn.
    head: [u8; HEAD_BYTES],
    pub(crate) fast_open: Option<Cookie>,
}

impl Path {
    /// Makes the path of a session's packets, from our MAC address to the next hop's.
    pub(crate) fn new(macs: (MacAddr, MacAddr), key: &Key, ttl: u8, tos: u8, mtu: u16) -> Self {
        let ((_, source_port), (_, destination_port)) = (key.local(), key.peer());
        let mut this = Self {
            addresses: key.addresses(),
            source_port,
            destination_port,
            mtu,
            head: [0; HEAD_BYTES],
            fast_open: None,
        };
        let tos = tos & 0xfc;
        let (ether, packet) = this.head.split_at_mut(ethernet::HEADER_BYTES);
        let (ether_type, written) = match this.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let mut repr = ipv4::Repr::new(source, destination, ip_protocol::TCP, 0);
                (repr.ttl, repr.tos, repr.dont_fragment) = (ttl, tos, true);
                (ether_type::IPV4, repr.emit(packet))
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let mut repr = ipv6::Repr::new(source, destination, ip_protocol::TCP, 0);
                (repr.hop_limit, repr.traffic_class) = (ttl, tos);
                (ether_type::IPV6, repr.emit(packet))
            }
        };
        let link = ethernet::Repr {
            destination: macs.1,
            source: macs.0,
            ether_type,
        };
        let is_whole = link.emit(ether).is_ok() && written.is_ok();
        debug_assert!(is_whole, "the head has room for both headers");
        this
    }
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
    let Some(segment) = emit_network(path, header.is_capable, segment_bytes, frame) else {
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
#[inline]
fn emit_network<'a>(
    path: &Path,
    is_capable: bool,
    payload_bytes: usize,
    frame: &'a mut [u8],
) -> Option<&'a mut [u8]> {
    const AT: usize = ethernet::HEADER_BYTES;
    let payload_bytes = u16::try_from(payload_bytes).ok()?;
    if matches!(path.addresses, Addresses::V4 { .. }) {
        let (head, segment) = frame.split_first_chunk_mut::<HEAD_V4_BYTES>()?;
        *head = *path.head.first_chunk()?;
        let no_payload = ipv4::HEADER_BYTES as u16;
        let total = payload_bytes.checked_add(no_payload)?;
        let mut sum = u16::from_be_bytes([head[AT + 10], head[AT + 11]]);
        sum = update_u16(sum, no_payload, total);
        head[AT + 2..AT + 4].copy_from_slice(&total.to_be_bytes());
        if is_capable {
            let first = u16::from_be_bytes([head[AT], head[AT + 1]]);
            sum = update_u16(sum, first, first | u16::from(ECT_0));
            head[AT + 1] |= ECT_0;
        }
        head[AT + 10..AT + 12].copy_from_slice(&sum.to_be_bytes());
        return Some(segment);
    }
    let (head, segment) = frame.split_first_chunk_mut::<HEAD_BYTES>()?;
    *head = path.head;
    head[AT + 4..AT + 6].copy_from_slice(&payload_bytes.to_be_bytes());
    if is_capable {
        head[AT + 1] |= ECT_0 << 4;
    }
    Some(segment)
}
