//! The start of a frame, copied into a window, and where the NDN packet is in it.

use super::bounded::{Word, masked};

/// Bytes of a frame that are looked at.
pub const WINDOW_BYTES: usize = 512;
/// The window with room for a word that starts at its last byte.
pub type Window = [u8; WINDOW_BYTES + 16];

/// Bytes with which a frame is told from others: Ethernet with a VLAN tag, IPv6, UDP.
pub const LINK_BYTES_MAX: usize = 18 + 40 + 8;
/// Bytes that are read first: all of most Interests, so that they are read once.
pub const FIRST_BYTES: usize = 128;
const _: () = assert!(FIRST_BYTES >= LINK_BYTES_MAX && FIRST_BYTES < WINDOW_BYTES);

/// Returns a byte of the window; the offset wraps at [`WINDOW_BYTES`].
#[inline(always)]
pub fn byte(window: &Window, at: usize) -> usize {
    usize::from(window[masked::<511>(at)])
}

/// Returns two bytes of the window in network order.
#[inline(always)]
pub fn pair(window: &Window, at: usize) -> usize {
    byte(window, at) << 8 | byte(window, at + 1)
}

/// Returns the little-endian word at `at`.
#[inline(always)]
pub fn word(window: &Window, at: usize) -> u64 {
    let at = masked::<511>(at);
    u64::from_le_bytes([
        window[at],
        window[at + 1],
        window[at + 2],
        window[at + 3],
        window[at + 4],
        window[at + 5],
        window[at + 6],
        window[at + 7],
    ])
}

/// What carries an NDN packet: Ethernet.
pub const ETHERNET: u64 = 0;
/// What carries an NDN packet: UDP over IPv4.
pub const IPV4: u64 = 1;
/// What carries an NDN packet: UDP over IPv6.
pub const IPV6: u64 = 2;

/// Where the NDN packet is.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Link {
    /// [`ETHERNET`], [`IPV4`] or [`IPV6`].
    pub carrier: Word,
    /// Bytes of the Ethernet header with its VLAN tag: 14 or 18.
    pub ethernet_bytes: Word,
    /// Where the packet starts.
    pub at: Word,
    /// Where it ends, or, over Ethernet, the frame.
    pub end: Word,
}

const ETHERTYPE_NDN: usize = 0x8624;
const ETHERTYPE_VLAN: usize = 0x8100;
const ETHERTYPE_IPV4: usize = 0x0800;
const ETHERTYPE_IPV6: usize = 0x86dd;
const PROTOCOL_UDP: usize = 17;
const NDN_PORT: usize = 6363;
const UDP_BYTES: usize = 8;

/// Finds the NDN packet of a frame of `length` bytes, whose first bytes the window has. False if it is not NDN, or IP
/// with options, extension headers or fragments.
#[inline(always)]
pub fn find(window: &Window, length: usize, link: &Link) -> bool {
    link.ethernet_bytes.store(14);
    let mut ethertype = pair(window, 12);
    if ethertype == ETHERTYPE_VLAN {
        link.ethernet_bytes.store(18);
        ethertype = pair(window, 16);
    }
    let ip = link.ethernet_bytes.number();
    match ethertype {
        ETHERTYPE_NDN => {
            link.carrier.store(ETHERNET);
            link.at.store(ip as u64);
            link.end.store(length as u64);
            return length >= ip;
        }
        ETHERTYPE_IPV4 => {
            link.carrier.store(IPV4);
            link.at.store(ip as u64 + 20 + UDP_BYTES as u64);
            link.end.store((ip + pair(window, ip + 2)) as u64);
            // Version 4 and five words of header; neither a later fragment nor a first one.
            if byte(window, ip) != 0x45
                || pair(window, ip + 6) & 0x3fff != 0
                || byte(window, ip + 9) != PROTOCOL_UDP
            {
                return false;
            }
        }
        ETHERTYPE_IPV6 => {
            link.carrier.store(IPV6);
            link.at.store(ip as u64 + 40 + UDP_BYTES as u64);
            link.end.store((ip + 40 + pair(window, ip + 4)) as u64);
            if byte(window, ip) >> 4 != 6 || byte(window, ip + 6) != PROTOCOL_UDP {
                return false;
            }
        }
        _ => return false,
    }
    let (at, end) = (link.at.number(), link.end.number());
    // The datagram fills the IP packet, which is whole.
    let udp = at - UDP_BYTES;
    at <= end
        && end <= length
        && pair(window, udp + 2) == NDN_PORT
        && udp + pair(window, udp + 4) == end
}
