//! Sessions by their addresses and ports: a signature table for each family (TL-2 to TL-5), whose records hold where the
//! connection is, or all of a session in TIME_WAIT.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use tables::signature::{AddError, Keyed, Place, Session4, Session6, Shape, SignatureTable};
use wire::{Addresses, ip_protocol};

use super::seq::Seq;

/// Which record of which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRef {
    /// No session.
    Absent,
    V4(Place),
    V6(Place),
}

impl SessionRef {
    pub(crate) const NONE: Self = Self::Absent;
}

/// Both ends of a session, as its received packets name them: source is the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    V4(Session4),
    V6(Session6),
}

impl Key {
    pub(crate) fn new(
        peer: IpAddr,
        peer_port: u16,
        local: IpAddr,
        local_port: u16,
    ) -> Option<Self> {
        match (peer, local) {
            (IpAddr::V4(peer), IpAddr::V4(local)) => Some(Self::V4(Session4 {
                source: peer.to_bits(),
                destination: local.to_bits(),
                source_port: peer_port,
                destination_port: local_port,
                protocol: ip_protocol::TCP,
            })),
            (IpAddr::V6(peer), IpAddr::V6(local)) => Some(Self::V6(Session6 {
                source: peer.to_bits(),
                destination: local.to_bits(),
                source_port: peer_port,
                destination_port: local_port,
                protocol: ip_protocol::TCP,
            })),
            _ => None,
        }
    }
    pub(crate) fn peer(&self) -> (IpAddr, u16) {
        match self {
            Self::V4(key) => (IpAddr::V4(key.source.into()), key.source_port),
            Self::V6(key) => (IpAddr::V6(key.source.into()), key.source_port),
        }
    }
    pub(crate) fn local(&self) -> (IpAddr, u16) {
        match self {
            Self::V4(key) => (IpAddr::V4(key.destination.into()), key.destination_port),
            Self::V6(key) => (IpAddr::V6(key.destination.into()), key.destination_port),
        }
    }
    /// Returns the addresses of packets that we send.
    pub(crate) fn addresses(&self) -> Addresses {
        match self {
            Self::V4(key) => Addresses::V4 {
                source: key.destination.into(),
                destination: key.source.into(),
            },
            Self::V6(key) => Addresses::V6 {
                source: key.destination.into(),
                destination: key.source.into(),
            },
        }
    }
    /// Returns the key as words, for hashes.
    pub(crate) fn words(&self) -> [u64; 5] {
        match self {
            Self::V4(k) => [
                u64::from(k.source) << 32 | u64::from(k.destination),
                u64::from(k.source_port) << 16 | u64::from(k.destination_port),
                4,
                0,
                0,
            ],
            Self::V6(k) => [
                (k.source >> 64) as u64,
                k.source as u64,
                (k.destination >> 64) as u64,
                k.destination as u64,
                u64::from(k.source_port) << 16 | u64::from(k.destination_port),
            ],
        }
    }
}

/// What a session's record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No such session.
    Nothing,
    /// The connection at this index.
    Connection(u32),
    /// The session waits for old segments to die out.
    TimeWait(TimeWait),
}

/// A session in TIME_WAIT: it lives in the record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeWait {
    pub(crate) snd_nxt: Seq,
    pub(crate) rcv_nxt: Seq,
    pub(crate) ts_recent: u32,
    pub(crate) ts_offset: u32,
    pub(crate) has_timestamps: bool,
    pub(crate) window: u16,
    pub(crate) until_ns: u64,
    /// The end under which it is listed: tells its entry from those of earlier sessions at this place.
    pub(crate) listed_ns: u64,
}

const CONNECTION: u64 = 1;
const TIME_WAIT: u64 = 2;

/// All sessions of a worker.
#[derive(Debug)]
pub(crate) struct Sessions {
    v4: SignatureTable<Session4, Keyed>,
    v6: SignatureTable<Session6, Keyed>,
    /// Grows with every change: a place found before may be stale after.
    pub(crate) changes: u64,
}

impl Sessions {
    pub(crate) fn new(v4: u32, v6: u32, key: [u64; 4]) -> Self {
        Self {
            v4: SignatureTable::new(Shape::for_sessions(v4.max(16)), Keyed::new(key)),
            v6: SignatureTable::new(Shape::for_sessions(v6.max(16)), Keyed::new(key)),
            changes: 0,
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
    pub(crate) fn find(&self, key: &Key) -> SessionRef {
        match key {
            Key::V4(key) => self.v4.find(key).map_or(SessionRef::Absent, SessionRef::V4),
            Key::V6(key) => self.v6.find(key).map_or(SessionRef::Absent, SessionRef::V6),
        }
    }
    /// Finds the sessions of a burst, memory accesses overlapped.
    pub(crate) fn find_batch_v4(&self, keys: &[Session4], places: &mut [Option<Place>]) {
        self.v4.find_batch(keys, places);
    }
    pub(crate) fn find_batch_v6(&self, keys: &[Session6], places: &mut [Option<Place>]) {
        self.v6.find_batch(keys, places);
    }
    pub(crate) fn get(&self, session: SessionRef) -> Found {
        let hot = self.hot(session);
        let word = |at: usize| hot.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let first = word(0);
        match first & 0xff {
            CONNECTION => Found::Connection((first >> 8) as u32),
            TIME_WAIT => Found::TimeWait(TimeWait {
                snd_nxt: Seq((word(1) >> 32) as u32),
                rcv_nxt: Seq(word(1) as u32),
                ts_recent: (word(2) >> 32) as u32,
                ts_offset: word(2) as u32,
                has_timestamps: first >> 8 & 1 == 1,
                window: (first >> 16) as u16,
                until_ns: word(3),
                listed_ns: word(4),
            }),
            _ => Found::Nothing,
        }
    }
    /// Returns both ends of a session.
    #[inline]
    pub(crate) fn key(&self, session: SessionRef) -> Option<Key> {
        match session {
            SessionRef::Absent => None,
            SessionRef::V4(place) => self.v4.session(place).map(Key::V4),
            SessionRef::V6(place) => self.v6.session(place).map(Key::V6),
        }
    }
    /// Adds a session of the connection at `index`; `None` if the table is full or has it.
    pub(crate) fn add(&mut self, key: &Key, index: u32) -> Option<SessionRef> {
        let session = match key {
            Key::V4(key) => self.v4.add(key).map(SessionRef::V4),
            Key::V6(key) => self.v6.add(key).map(SessionRef::V6),
        };
        let session = session.map_err(|_: AddError| ()).ok()?;
        self.changes += 1;
        self.set(session, &[CONNECTION | u64::from(index) << 8]);
        Some(session)
    }
    /// Turns a session into one in TIME_WAIT.
    pub(crate) fn wait(&mut self, session: SessionRef, wait: &TimeWait) {
        self.changes += 1;
        let first = TIME_WAIT | u64::from(wait.has_timestamps) << 8 | u64::from(wait.window) << 16;
        let numbers = u64::from(wait.snd_nxt.0) << 32 | u64::from(wait.rcv_nxt.0);
        let stamps = u64::from(wait.ts_recent) << 32 | u64::from(wait.ts_offset);
        self.set(
            session,
            &[first, numbers, stamps, wait.until_ns, wait.listed_ns],
        );
    }
    pub(crate) fn remove(&mut self, session: SessionRef) {
        self.changes += 1;
        match self.key(session) {
            Some(Key::V4(key)) => {
                self.v4.remove(&key);
            }
            Some(Key::V6(key)) => {
                self.v6.remove(&key);
            }
            None => {}
        }
    }
    /// Returns the bytes that the tables take for each session that they are sized for.
    pub(crate) fn index_bytes(&self) -> usize {
        self.v4.index_bytes() + self.v6.index_bytes()
    }

    #[inline]
    fn hot(&self, session: SessionRef) -> &[AtomicU64] {
        match session {
            SessionRef::Absent => &[],
            SessionRef::V4(place) => self.v4.hot(place),
            SessionRef::V6(place) => self.v6.hot(place),
        }
    }
    fn set(&self, session: SessionRef, words: &[u64]) {
        for (slot, word) in self.hot(session).iter().zip(words) {
            slot.store(*word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_a_connection_or_all_of_time_wait() {
        let mut sessions = Sessions::new(100, 100, [1, 2, 3, 4]);
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let (c, d): (IpAddr, IpAddr) = (
            "2001:db8::1".parse().unwrap(),
            "2001:db8::2".parse().unwrap(),
        );
        for (key, index) in [
            (Key::new(a, 1, b, 2).unwrap(), 7),
            (Key::new(c, 1, d, 2).unwrap(), u32::MAX),
        ] {
            let session = sessions.add(&key, index).unwrap();
            assert_eq!(sessions.find(&key), session);
            assert_eq!(sessions.get(session), Found::Connection(index));
            assert_eq!(sessions.key(session), Some(key));
            assert_eq!(sessions.add(&key, 9), None);
            let wait = TimeWait {
                snd_nxt: Seq(u32::MAX),
                rcv_nxt: Seq(3),
                ts_recent: u32::MAX - 1,
                ts_offset: 4,
                has_timestamps: true,
                window: 65_535,
                until_ns: u64::MAX,
                listed_ns: 6,
            };
            sessions.wait(session, &wait);
            assert_eq!(sessions.get(session), Found::TimeWait(wait));
            sessions.remove(session);
            assert_eq!(sessions.find(&key), SessionRef::Absent);
        }
        assert_eq!(Key::new(a, 1, c, 2), None);
        assert_eq!(sessions.len(), 0);
    }
}
