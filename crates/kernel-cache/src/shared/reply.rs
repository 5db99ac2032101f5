//! The reply in place of the Interest: addresses and ports swapped, lengths and checksums of the Data, the fields
//! of the link protocol repeated (NDNLPv2: a PIT token comes back with the Data).

use super::bounded::{Word, masked};
use super::frame::{IPV4, IPV6, Link, Window, byte, word};
use super::hash::word_mask;
use super::interest::Interest;

/// Bytes of a link-protocol header that are summed.
const LP_BYTES: usize = 64;
/// The link-protocol header of a reply, zeros behind it; a word may be written at its end.
pub type LpHead = [u8; LP_BYTES + 16];

const LP_PACKET: u8 = 100;
const LP_FRAGMENT: u8 = 80;
/// Time to live of a reply.
const HOP_LIMIT: u8 = 64;
const PROTOCOL_UDP: usize = 17;
const UDP_BYTES: usize = 8;

#[inline(always)]
fn put(window: &mut Window, at: usize, value: u8) {
    window[masked::<511>(at)] = value;
}

#[inline(always)]
fn put_pair(window: &mut Window, at: usize, value: usize) {
    put(window, at, (value >> 8) as u8);
    put(window, at + 1, value as u8);
}

#[inline(always)]
fn put_word(window: &mut Window, at: usize, value: u64) {
    let at = masked::<511>(at);
    let mut index = 0;
    while index < 8 {
        window[at + index] = (value >> (index * 8)) as u8;
        index += 1;
    }
}

/// Folds a sum to 16 bits.
#[inline(always)]
pub fn fold(sum: u64) -> u64 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// Swaps the bytes of a folded sum: the sum of the same bytes one place on.
#[inline(always)]
fn shifted(sum: u64) -> u64 {
    (sum & 0xff) << 8 | sum >> 8
}

/// The sum of a number's two bytes in the order of the wire, as little-endian words are summed.
#[inline(always)]
fn wire_sum(value: usize) -> u64 {
    shifted(value as u64 & 0xffff)
}

/// Sums `WORDS` words of the window from `at`.
#[inline(always)]
fn sum_words<const WORDS: usize>(window: &Window, at: usize) -> u64 {
    let mut sum = 0;
    let mut index = 0;
    while index < WORDS {
        let value = word(window, at + index * 8);
        sum += (value & 0xffff_ffff) + (value >> 32);
        index += 1;
    }
    sum
}

#[inline(always)]
fn number_bytes(value: usize) -> usize {
    if value < 253 { 1 } else { 3 }
}

/// Writes a TLV header to `end` and moves that on.
#[inline(always)]
fn put_header(lp: &mut LpHead, end: &Word, kind: u8, length: usize) {
    let place = masked::<63>(end.number());
    lp[place] = kind;
    if length < 253 {
        lp[place + 1] = length as u8;
        end.store(end.load() + 2);
        return;
    }
    lp[place + 1] = 253;
    lp[place + 2] = (length >> 8) as u8;
    lp[place + 3] = length as u8;
    end.store(end.load() + 4);
}

/// Clears the header.
#[inline(always)]
pub fn clear_lp(lp: &mut LpHead) {
    let mut index = 0;
    while index < lp.len() {
        lp[index] = 0;
        index += 1;
    }
}

/// Writes what stands before the Data in an LpPacket; its length becomes `lp_bytes`.
#[inline(always)]
pub fn write_lp(
    window: &Window,
    interest: &Interest,
    data_bytes: usize,
    lp: &mut LpHead,
    lp_bytes: &Word,
) {
    clear_lp(lp);
    let fragment_bytes = 1 + number_bytes(data_bytes) + data_bytes;
    put_header(
        lp,
        lp_bytes,
        LP_PACKET,
        interest.lp_bytes.number() + fragment_bytes,
    );
    // PIT token and congestion mark: at most 34 + 12 bytes.
    let mut index = 0;
    while index < 6 {
        let offset = index * 8;
        let fields_bytes = interest.lp_bytes.number();
        if offset >= fields_bytes {
            break;
        }
        let value =
            word(window, interest.lp_at.number() + offset) & word_mask(fields_bytes, offset);
        let place = masked::<63>(lp_bytes.number() + offset);
        let mut part = 0;
        while part < 8 {
            lp[place + part] = (value >> (part * 8)) as u8;
            part += 1;
        }
        index += 1;
    }
    lp_bytes.store(lp_bytes.load() + interest.lp_bytes.load());
    put_header(lp, lp_bytes, LP_FRAGMENT, data_bytes);
}

/// Sums a link-protocol header.
#[inline(always)]
pub fn sum_lp(lp: &LpHead) -> u64 {
    let mut sum = 0;
    let mut index = 0;
    while index < LP_BYTES {
        sum += u64::from(u32::from_le_bytes([
            lp[index],
            lp[index + 1],
            lp[index + 2],
            lp[index + 3],
        ]));
        index += 4;
    }
    sum
}

/// Turns the headers in the window around for a payload of `payload_bytes` whose sum is `lp_sum`, of `lp_bytes`, and
/// `data_sum` behind it.
#[inline(always)]
pub fn turn(window: &mut Window, link: &Link, lp_bytes: usize, lp_sum: u64, data: (usize, u64)) {
    let (data_bytes, data_sum) = data;
    let mut index = 0;
    while index < 6 {
        window.swap(index, index + 6);
        index += 1;
    }
    let payload_sum = lp_sum
        + if lp_bytes & 1 == 1 {
            shifted(data_sum)
        } else {
            data_sum
        };
    let udp_bytes = UDP_BYTES + lp_bytes + data_bytes;
    let ip = link.ethernet_bytes.number();
    match link.carrier.load() {
        IPV4 => {
            put_pair(window, ip + 2, 20 + udp_bytes);
            put_pair(window, ip + 4, 0);
            put_pair(window, ip + 6, 0x4000); // one piece: no identification is needed (RFC 6864)
            put(window, ip + 8, HOP_LIMIT);
            put_pair(window, ip + 10, 0);
            let addresses = word(window, ip + 12);
            put_word(window, ip + 12, addresses.rotate_left(32));
            let first = sum_words::<1>(window, ip);
            let second = word(window, ip + 8) & 0xffff_ffff;
            let address_sum = (addresses & 0xffff_ffff) + (addresses >> 32);
            let checksum = !fold(first + second + address_sum) & 0xffff;
            put_pair(window, ip + 10, shifted(checksum) as usize);
            turn_udp(window, ip + 20, udp_bytes, address_sum + payload_sum);
        }
        IPV6 => {
            put_pair(window, ip + 4, udp_bytes);
            put(window, ip + 7, HOP_LIMIT);
            let source = [word(window, ip + 8), word(window, ip + 16)];
            let destination = [word(window, ip + 24), word(window, ip + 32)];
            let address_sum = sum_words::<4>(window, ip + 8);
            put_word(window, ip + 8, destination[0]);
            put_word(window, ip + 16, destination[1]);
            put_word(window, ip + 24, source[0]);
            put_word(window, ip + 32, source[1]);
            turn_udp(window, ip + 40, udp_bytes, address_sum + payload_sum);
        }
        _ => {}
    }
}

/// Turns the UDP header at `udp` around; `sum` is that of the addresses and the payload.
#[inline(always)]
fn turn_udp(window: &mut Window, udp: usize, udp_bytes: usize, sum: u64) {
    let ports = [
        byte(window, udp) as u8,
        byte(window, udp + 1) as u8,
        byte(window, udp + 2) as u8,
        byte(window, udp + 3) as u8,
    ];
    put(window, udp, ports[2]);
    put(window, udp + 1, ports[3]);
    put(window, udp + 2, ports[0]);
    put(window, udp + 3, ports[1]);
    put_pair(window, udp + 4, udp_bytes);
    let sum = sum
        + u64::from(u32::from_le_bytes(ports))
        + wire_sum(udp_bytes) * 2 // in the header and in the pseudo-header
        + wire_sum(PROTOCOL_UDP);
    let checksum = !fold(sum) & 0xffff;
    // 0 means "no checksum" (RFC 768), which IPv6 does not have.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    put_pair(window, udp + 6, shifted(checksum) as usize);
}
