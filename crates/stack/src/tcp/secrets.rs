//! Numbers that a stranger cannot guess: initial sequence numbers (RFC 6528), timestamp offsets, SYN cookies
//! (RFC 4987 3.6), Fast Open cookies (RFC 7413 4.1.2) and the order of ports (RFC 6056).

use core::net::IpAddr;

use tables::signature::SipHash13;

use super::seq::Seq;
use super::sessions::Key;

/// Maximum segment sizes that a cookie can tell, ascending.
const COOKIE_MSS: [u16; 8] = [216, 536, 1024, 1220, 1440, 1460, 4312, 8960];
/// A cookie's clock, ns: 64 s a tick, as Linux.
const COOKIE_TICK_NS: u64 = 64_000_000_000;
/// Ticks for which a cookie holds.
const COOKIE_LIFE: u64 = 2;

/// Keys drawn when the stack is made.
#[derive(Debug)]
pub(crate) struct Secrets {
    numbers: SipHash13,
    cookies: SipHash13,
    /// State of a generator for what need not be secret (SplitMix64).
    state: u64,
}

/// What a SYN cookie gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CookieTerms {
    pub(crate) mss: u16,
}

impl Secrets {
    pub(crate) fn new(seed: [u64; 4]) -> Self {
        let [a, b, c, d] = seed;
        Self {
            numbers: SipHash13::new([a, b]),
            cookies: SipHash13::new([c, d]),
            state: a ^ d.rotate_left(32),
        }
    }
    /// Returns the initial sequence number of a new session: a clock of 64 ns, and a keyed hash of its ends.
    pub(crate) fn initial(&self, key: &Key, now_ns: u64) -> Seq {
        let hash = self.numbers.hash_words(&key.words());
        Seq((hash as u32).wrapping_add((now_ns >> 6) as u32))
    }
    /// Returns the offset of a session's timestamps (RFC 7323 7.1).
    pub(crate) fn timestamp_offset(&self, key: &Key) -> u32 {
        let (peer, _) = key.peer();
        let (local, _) = key.local();
        let mut words = [0; 5];
        for (word, part) in words
            .iter_mut()
            .zip(address_words(peer).into_iter().chain(address_words(local)))
        {
            *word = part;
        }
        words[4] = 1;
        self.numbers.hash_words(&words) as u32
    }
    /// Returns where the search for a local port begins (RFC 6056 3.3.3).
    pub(crate) fn port_offset(&self, peer: IpAddr, peer_port: u16) -> u32 {
        let [a, b] = address_words(peer);
        self.numbers.hash_words(&[a, b, u64::from(peer_port), 2]) as u32
    }
    /// Returns a random number, not for secrets.
    pub(crate) fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Makes the sequence number of a SYN-ACK that remembers the SYN: 5 bits of time, 3 of MSS, 24 of hash.
    pub(crate) fn cookie(&self, key: &Key, peer_seq: Seq, mss: u16, now_ns: u64) -> Seq {
        let at = COOKIE_MSS
            .iter()
            .rposition(|&size| size <= mss)
            .unwrap_or(0) as u32;
        let tick = now_ns / COOKIE_TICK_NS;
        Seq((tick as u32 & 31) << 27 | at << 24 | self.cookie_hash(key, peer_seq, tick, at))
    }
    /// Checks the cookie that an acknowledgement brings back.
    pub(crate) fn check_cookie(
        &self,
        key: &Key,
        peer_seq: Seq,
        cookie: Seq,
        now_ns: u64,
    ) -> Option<CookieTerms> {
        let tick = now_ns / COOKIE_TICK_NS;
        let at = cookie.0 >> 24 & 7;
        let age = (tick as u32).wrapping_sub(cookie.0 >> 27) & 31;
        if u64::from(age) > COOKIE_LIFE {
            return None;
        }
        let made = tick.wrapping_sub(u64::from(age));
        let right = self.cookie_hash(key, peer_seq, made, at) == cookie.0 & 0xff_ffff;
        let mss = COOKIE_MSS.get(at as usize).copied()?;
        right.then_some(CookieTerms { mss })
    }
    /// Makes the Fast Open cookie of a client.
    pub(crate) fn fast_open(&self, peer: IpAddr) -> [u8; 8] {
        let [a, b] = address_words(peer);
        self.cookies.hash_words(&[a, b, 3]).to_le_bytes()
    }

    /// Makes an interface identifier (RFC 7217 5).
    pub(crate) fn interface_id(&self, network: u64, mac: u64, counter: u64) -> u64 {
        self.numbers.hash_words(&[network, mac, counter, 4])
    }

    fn cookie_hash(&self, key: &Key, peer_seq: Seq, tick: u64, at: u32) -> u32 {
        let [a, b, c, d, e] = key.words();
        let hash = self.cookies.hash_words(&[
            a,
            b,
            c,
            d,
            e,
            u64::from(peer_seq.0) << 32 | u64::from(at),
            tick,
        ]);
        hash as u32 & 0xff_ffff
    }
}

fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_come_back_and_die() {
        let secrets = Secrets::new([1, 2, 3, 4]);
        let key = |port| {
            Key::new(
                "192.0.2.1".parse().unwrap(),
                port,
                "192.0.2.2".parse().unwrap(),
                80,
            )
            .unwrap()
        };
        let now = 1_000_000_000_000;
        for (mss, told) in [(1460, 1460), (1459, 1440), (100, 216), (65_000, 8960)] {
            let cookie = secrets.cookie(&key(5), Seq(77), mss, now);
            let check = |key: &Key, seq, cookie, now| secrets.check_cookie(key, seq, cookie, now);
            assert_eq!(
                check(&key(5), Seq(77), cookie, now),
                Some(CookieTerms { mss: told })
            );
            assert!(check(&key(5), Seq(77), cookie, now + COOKIE_TICK_NS).is_some());
            assert_eq!(
                check(&key(5), Seq(77), cookie, now + 4 * COOKIE_TICK_NS),
                None
            );
            assert_eq!(check(&key(6), Seq(77), cookie, now), None);
            assert_eq!(check(&key(5), Seq(78), cookie, now), None);
            assert_eq!(check(&key(5), Seq(77), cookie.plus(1), now), None);
        }
    }
}
