//! What crosses the boundary as words: operations, errors, addresses, records of datagrams.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use stack::Error;

use crate::area::Slot;

/// Operations of a command, with the words of their arguments.
pub(crate) mod operation {
    /// Peer (3 words).
    pub(crate) const CONNECT: u64 = 1;
    /// Local address (3), backlog, worker and slot that who accepts waits at.
    pub(crate) const LISTEN: u64 = 2;
    /// Local address (3), unused, worker and slot that who receives waits at.
    pub(crate) const BIND: u64 = 3;
    /// Nothing; there is no answer.
    pub(crate) const CLOSE: u64 = 4;
    /// 1: read, 2: write, 3: both.
    pub(crate) const SHUTDOWN: u64 = 5;
    /// Option, value.
    pub(crate) const SET: u64 = 6;
    /// Peer (3 words), or none.
    pub(crate) const SET_PEER: u64 = 7;
    /// Group (3 words), 1 to join, 0 to leave.
    pub(crate) const GROUP: u64 = 8;
}

/// Options of [`operation::SET`].
pub(crate) mod option {
    pub(crate) const NO_DELAY: u64 = 1;
    pub(crate) const TTL: u64 = 2;
    pub(crate) const GROUP_TTL: u64 = 3;
    /// Milliseconds of silence before the first probe; 0: off.
    pub(crate) const KEEP_ALIVE_MS: u64 = 4;
    /// 0: CUBIC, 1: BBR, 2: NewReno.
    pub(crate) const CONGESTION: u64 = 5;
}

/// The errors by number, from 1.
const ERRORS: [Error; 16] = [
    Error::WouldBlock,
    Error::ConnectionRefused,
    Error::ConnectionReset,
    Error::ConnectionAborted,
    Error::NotConnected,
    Error::TimedOut,
    Error::BrokenPipe,
    Error::AddrInUse,
    Error::AddrNotAvailable,
    Error::HostUnreachable,
    Error::NetworkUnreachable,
    Error::OutOfMemory,
    Error::InvalidInput,
    Error::NotFound,
    Error::FileTooLarge,
    Error::PermissionDenied,
];

/// Returns the number of an error.
pub(crate) fn of_error(error: Error) -> u64 {
    let at = ERRORS.iter().position(|other| *other == error);
    at.map_or(4, |at| at as u64 + 1)
}

/// Returns the error of a number; 0 is none.
pub(crate) fn to_error(number: u64) -> Option<Error> {
    let at = usize::try_from(number).ok()?.checked_sub(1)?;
    Some(*ERRORS.get(at).unwrap_or(&Error::ConnectionAborted))
}

/// Returns an address as words; `None` is zero.
pub(crate) fn of_address(address: Option<SocketAddr>) -> [u64; 3] {
    let Some(address) = address else {
        return [0; 3];
    };
    let (bits, is_v4) = match address.ip() {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped().to_bits(), 1),
        IpAddr::V6(ip) => (ip.to_bits(), 0),
    };
    [
        (bits >> 64) as u64,
        bits as u64,
        u64::from(address.port()) | is_v4 << 16 | 1 << 17,
    ]
}

/// Returns the address of three words.
pub(crate) fn to_address([high, low, rest]: [u64; 3]) -> Option<SocketAddr> {
    if rest >> 17 & 1 == 0 {
        return None;
    }
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    let ip = match ip.to_ipv4_mapped() {
        Some(v4) if rest >> 16 & 1 == 1 => IpAddr::V4(v4),
        _ => IpAddr::V6(ip),
    };
    Some(SocketAddr::new(ip, rest as u16))
}

impl Slot<'_> {
    pub(crate) fn put_address(&self, at: usize, address: Option<SocketAddr>) {
        for (word, value) in (at..).zip(of_address(address)) {
            self.put(word, value);
        }
    }
    pub(crate) fn address(&self, at: usize) -> Option<SocketAddr> {
        to_address([self.get(at), self.get(at + 1), self.get(at + 2)])
    }
}

/// Bytes of the header of a datagram in a ring: its length, then the address.
pub(crate) const RECORD_BYTES: usize = 32;

/// Returns the header of a datagram.
pub(crate) fn of_record(bytes: usize, address: Option<SocketAddr>) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    let words = [bytes as u64].into_iter().chain(of_address(address));
    for (to, word) in record.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    record
}

/// Reads the header of a datagram.
pub(crate) fn to_record(record: &[u8; RECORD_BYTES]) -> (usize, Option<SocketAddr>) {
    let mut words = record
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    let bytes = words.next().unwrap_or(0);
    let address = [(); 3].map(|()| words.next().unwrap_or(0));
    (
        usize::try_from(bytes).unwrap_or(usize::MAX),
        to_address(address),
    )
}

/// Returns the bytes that a datagram takes in a ring.
pub(crate) fn record_room(bytes: usize) -> usize {
    RECORD_BYTES + bytes.next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        for text in [
            "192.0.2.1:80",
            "[2001:db8::1]:65535",
            "0.0.0.0:0",
            "[::]:1",
            "[::ffff:1.2.3.4]:5",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(to_address(of_address(Some(address))), Some(address));
            let record = of_record(1234, Some(address));
            assert_eq!(to_record(&record), (1234, Some(address)));
        }
        assert_eq!(to_address(of_address(None)), None);
        for error in ERRORS {
            assert_eq!(to_error(of_error(error)), Some(error));
        }
        assert_eq!(to_error(0), None);
        assert_eq!(to_error(u64::MAX), Some(Error::ConnectionAborted));
    }
}
