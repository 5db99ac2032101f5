//! SYN cookies (RFC 4987 3.6): the first number of the SYN-ACK holds all that there is to know of a connection, so that
//! nothing is kept for it before the client has proved that it is there.
//!
//! ```text
//! number:    keyed hash (24) | time in steps of 64 s (5) | maximum segment size (3)
//! timestamp: milliseconds, but for the last five bits: SACK (1) | window scale (4)
//! ```
//! The hash is SipHash-1-3 with a secret key over addresses, ports, the client's first number, time and size. A guess is
//! right once in 2^23 packets (two steps of time are valid). Without timestamps, window scale and SACK are given up, as
//! the number has no room for them.

use tables::signature::SipHash13;
use wire::tcp::{Options, TcpOption};
use wire::{FlowKey, Instant};

/// Segment sizes that a cookie can say, ascending: what IPv4 and IPv6 over common links have.
const SIZES: [u16; 8] = [216, 536, 1220, 1300, 1360, 1400, 1440, 1460];
/// Length of a step of time.
const STEP_S: u64 = 64;

/// What a client offered in its SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Maximum segment size, bytes (536 without the option).
    pub size: u16,
    /// Window scale.
    pub scale: Option<u8>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// The value of its timestamp.
    pub timestamp: Option<u32>,
}

impl Offer {
    /// Reads the options of a SYN; what is malformed, and what follows it, was not offered.
    pub fn of_syn(options: Options<'_>) -> Self {
        let mut offer = Self {
            // RFC 9293 3.7.1: the size without the option.
            size: 536,
            ..Self::default()
        };
        for option in options.map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegmentSize(size) => offer.size = size,
                TcpOption::WindowScale(scale) => offer.scale = Some(scale),
                TcpOption::SackPermitted => offer.sack = true,
                TcpOption::Timestamps { value, .. } => offer.timestamp = Some(value),
                _ => {}
            }
        }
        offer
    }
}

/// Makes and checks cookies.
#[derive(Clone, Debug)]
pub struct Cookies {
    hash: SipHash13,
}

impl Cookies {
    /// Makes cookies under a secret key, which all workers share.
    pub fn new(hash: SipHash13) -> Self {
        Self { hash }
    }

    /// Returns the first number of a SYN-ACK, for a SYN of `key` whose own is `client`.
    pub fn make(&self, key: &FlowKey, client: u32, offer: &Offer, now: Instant) -> u32 {
        let size = SIZES
            .iter()
            .rposition(|size| *size <= offer.size)
            .unwrap_or(0) as u32;
        let step = (now.as_ns() / 1_000_000_000 / STEP_S) as u32 & 31;
        self.number(key, client, step, size)
    }

    /// Returns the timestamp of a SYN-ACK, which carries what the number has no room for.
    pub fn timestamp(offer: &Offer, now: Instant) -> u32 {
        let ms = (now.as_ns() / 1_000_000) as u32;
        let sack = u32::from(offer.sack) << 4;
        // 15 says that there is no scale; no scale is above 14 (RFC 7323 2.3).
        let scale = offer.scale.map_or(15, |scale| u32::from(scale.min(14)));
        ms & !31 | sack | scale
    }

    /// Checks the ACK of a cookie: `sequence` and `acknowledgement` as in its header, `echo` the timestamp that it
    /// echoes. Returns what the client had offered, or `None` if the ACK answers no cookie of the last two minutes.
    pub fn check(
        &self,
        key: &FlowKey,
        sequence: u32,
        acknowledgement: u32,
        echo: Option<u32>,
        now: Instant,
    ) -> Option<Offer> {
        let cookie = acknowledgement.wrapping_sub(1);
        let client = sequence.wrapping_sub(1);
        let (step, size) = (cookie >> 3 & 31, cookie & 7);
        let age = ((now.as_ns() / 1_000_000_000 / STEP_S) as u32).wrapping_sub(step) & 31;
        if age > 1 || self.number(key, client, step, size) != cookie {
            return None;
        }
        Some(Offer {
            size: *SIZES.get(size as usize)?,
            scale: echo
                .map(|echo| (echo & 15) as u8)
                .filter(|scale| *scale < 15),
            sack: echo.is_some_and(|echo| echo & 16 != 0),
            timestamp: echo,
        })
    }

    fn number(&self, key: &FlowKey, client: u32, step: u32, size: u32) -> u32 {
        let source = u128::from_be_bytes(key.source);
        let destination = u128::from_be_bytes(key.destination);
        let ports = u64::from(key.source_port) << 16 | u64::from(key.destination_port);
        let hash = self.hash.hash_words(&[
            (source >> 64) as u64,
            source as u64,
            (destination >> 64) as u64,
            destination as u64,
            ports << 32 | u64::from(client),
            u64::from(step << 3 | size),
        ]);
        (hash as u32) << 8 | step << 3 | size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::key::mapped;

    const KEY: FlowKey = FlowKey {
        source: mapped(0x0a00_0001),
        destination: mapped(0xc000_0201),
        source_port: 4000,
        destination_port: 80,
        protocol: 6,
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn row_86_a_cookie_carries_the_offer_and_nothing_else_passes() {
        let cookies = Cookies::new(SipHash13::new([7, 9]));
        for (size, told) in [(1460, 1460), (1459, 1440), (9000, 1460), (100, 216)] {
            let offer = Offer {
                size,
                scale: Some(7),
                sack: true,
                timestamp: Some(1),
            };
            let cookie = cookies.make(&KEY, 1234, &offer, at(1000));
            let stamp = Cookies::timestamp(&offer, at(1000));
            let check = |key: &FlowKey, sequence, ack: u32, seconds| {
                cookies.check(key, sequence, ack, Some(stamp), at(seconds))
            };
            let right = check(&KEY, 1235, cookie.wrapping_add(1), 1010).unwrap();
            assert_eq!((right.size, right.scale, right.sack), (told, Some(7), true));
            assert_eq!(check(&KEY, 1236, cookie.wrapping_add(1), 1010), None);
            assert_eq!(check(&KEY, 1235, cookie.wrapping_add(2), 1010), None);
            assert_eq!(
                check(&KEY.reversed(), 1235, cookie.wrapping_add(1), 1010),
                None
            );
            assert_eq!(check(&KEY, 1235, cookie.wrapping_add(1), 1200), None);
        }
    }

    #[test]
    fn a_guess_is_right_about_once_in_eight_millions() {
        let cookies = Cookies::new(SipHash13::new([7, 9]));
        let hits = (0..2_000_000_u32)
            .filter(|n| {
                let guess = n.wrapping_mul(0x9e37_79b9);
                cookies.check(&KEY, 1, guess, None, at(5000)).is_some()
            })
            .count();
        assert!(hits <= 4, "{hits}");
    }
}
