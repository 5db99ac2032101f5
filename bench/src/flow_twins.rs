//! Connection tables behind one interface: the lock-free flow map, and its twins under locks, in shards, and
//! one a worker. The twins are here only to be measured against.

use std::sync::{Mutex, MutexGuard, RwLock};

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use tables::flow_map::FlowMap;
use tables::memory::{Memory, Pages, prefetch};
use tables::quiescent::Domain;
use tables::signature::{Keyed, Session4, SessionKey};
use tables::slots::{SlotMemory, SlotWorker};

/// Packets that a worker handles at a time.
pub const BURST: usize = 32;

/// The key of packets of connection `n` in the direction of its first one.
pub fn original(n: usize) -> Session4 {
    Session4 {
        source: 0x0a00_0000 + n as u32,
        destination: 0x0808_0000 + (n % 4099) as u32,
        source_port: 1024 + (n % 60_000) as u16,
        destination_port: 443,
        protocol: 6,
    }
}

/// The key of packets that come back, to a translated address and port.
pub fn reply(n: usize) -> Session4 {
    Session4 {
        source: 0x0808_0000 + (n % 4099) as u32,
        destination: 0xc633_6400 + (n / 60_000) as u32,
        source_port: 443,
        destination_port: 1024 + (n % 60_000) as u16,
        protocol: 6,
    }
}

/// A connection table that workers share.
pub trait Twin: Sync {
    /// Joins as worker `index`.
    fn join(&self, index: usize) -> Box<dyn Handle + '_>;
}

/// A worker's handle.
pub trait Handle {
    /// Finds each packet's connection and moves its deadline; returns how many have one.
    fn packets(&mut self, keys: &[Session4], deadline: u64) -> usize;
    /// Inserts connection `n`, in both directions; false if a key is taken.
    fn insert(&mut self, n: usize, deadline: u64) -> bool;
    /// Removes connection `n`; false if it is not there.
    fn remove(&mut self, n: usize) -> bool;
    /// Ends a burst.
    fn end(&mut self) {}
}

/// The lock-free flow map.
#[derive(Debug)]
pub struct LockFree {
    flows: FlowMap<Session4>,
    batched: bool,
}

impl LockFree {
    /// Makes a map for `connections` and `workers`, looked up packet by packet or in batches.
    pub fn new(connections: usize, workers: usize, batched: bool) -> Self {
        let domain = Domain::new(workers);
        Self {
            flows: FlowMap::new(connections, Keyed::new([1, 2, 3, 4]), domain),
            batched,
        }
    }
}

struct LockFreeHandle<'a> {
    map: &'a LockFree,
    worker: SlotWorker,
}

impl Twin for LockFree {
    fn join(&self, _: usize) -> Box<dyn Handle + '_> {
        let worker = self.flows.join().expect("a place for every worker");
        Box::new(LockFreeHandle { map: self, worker })
    }
}

impl Handle for LockFreeHandle<'_> {
    fn packets(&mut self, keys: &[Session4], deadline: u64) -> usize {
        let flows = &self.map.flows;
        let mut found = [None; BURST];
        if self.map.batched {
            flows.find_batch(keys, &mut found[..keys.len()]);
        } else {
            for (found, key) in found.iter_mut().zip(keys) {
                *found = flows.find(key);
            }
        }
        found
            .iter()
            .flatten()
            .filter(|flow| flows.touch(flow.connection, deadline))
            .count()
    }
    fn insert(&mut self, n: usize, deadline: u64) -> bool {
        let (original, reply) = (original(n), reply(n));
        self.map
            .flows
            .insert(&mut self.worker, &original, Some(&reply), &[deadline])
            .is_ok()
    }
    fn remove(&mut self, n: usize) -> bool {
        let found = self.map.flows.find(&original(n));
        found.is_some_and(|flow| self.map.flows.remove(&mut self.worker, flow.connection))
    }
    fn end(&mut self) {
        self.worker.quiescent();
        self.map.flows.reclaim(&mut self.worker);
    }
}

/// No table, but the lines of memory that a packet needs of the flow map, in batches: two of words and a
/// record, and for a reply one of words and a record more. What a flow map of this layout cannot beat.
#[derive(Debug)]
pub struct Lines {
    words: Memory<[AtomicU64; 8]>,
    records: Memory<[AtomicU64; 8]>,
    hash: Keyed,
}

impl Lines {
    /// Takes as much memory as a flow map for `connections`.
    pub fn new(connections: usize) -> Self {
        let buckets = SlotMemory::<Session4>::buckets_for(2 * connections);
        let slots = SlotMemory::<Session4>::records_in(buckets);
        let lines = Self {
            words: Memory::zeroed(buckets, Pages::Huge),
            records: Memory::zeroed(slots, Pages::Huge),
            hash: Keyed::new([9, 10, 11, 12]),
        };
        // Every page is the process's own: untouched ones are all one page of zeros.
        for line in lines.words.iter().chain(lines.records.iter()) {
            line[0].store(1, Ordering::Relaxed);
        }
        lines
    }

    /// Four numbers of lines: two of words and two of records.
    fn places(&self, key: &Session4) -> [usize; 4] {
        let hash = self.hash.hash_words(&key.to_words());
        let other = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = |bits: u64, lines: usize| ((bits >> 32) as usize * lines) >> 32;
        let (words, records) = (self.words.len(), self.records.len());
        [
            place(hash, words),
            place(other, words),
            place(hash << 32, records),
            place(other << 32, records),
        ]
    }
}

impl Twin for Lines {
    fn join(&self, _: usize) -> Box<dyn Handle + '_> {
        Box::new(self)
    }
}

impl Handle for &Lines {
    fn packets(&mut self, keys: &[Session4], _: u64) -> usize {
        let mut places = [[0; 4]; BURST];
        let read = |line: &[AtomicU64; 8]| line[0].load(Ordering::Relaxed);
        for (places, key) in places.iter_mut().zip(keys) {
            *places = self.places(key);
            prefetch(&self.words[places[0]]);
            prefetch(&self.words[places[1]]);
        }
        let mut sum = 0;
        for (places, _) in places.iter().zip(keys) {
            sum += read(&self.words[places[0]]) + read(&self.words[places[1]]);
            prefetch(&self.records[places[2]]);
        }
        for (places, key) in places.iter().zip(keys) {
            sum += read(&self.records[places[2]]);
            if key.source_port == 443 {
                prefetch(&self.words[places[3] / 8]);
                prefetch(&self.records[places[3]]);
            }
        }
        for (places, key) in places.iter().zip(keys) {
            if key.source_port == 443 {
                sum += read(&self.words[places[3] / 8]) + read(&self.records[places[3]]);
            }
        }
        std::hint::black_box(sum);
        keys.len()
    }
    fn insert(&mut self, _: usize, _: u64) -> bool {
        true
    }
    fn remove(&mut self, _: usize) -> bool {
        true
    }
}

/// What a connection's keys lead to: the original's to the connection, the reply's to the original.
#[derive(Debug)]
enum Record {
    Connection {
        reply: Session4,
        deadline: AtomicU64,
    },
    Reply {
        original: Session4,
    },
}

type Map = HashMap<Session4, Record, foldhash::fast::RandomState>;

fn map(records: usize) -> Map {
    Map::with_capacity_and_hasher(records, foldhash::fast::RandomState::default())
}

fn find<'a>(map: &'a Map, key: &Session4) -> Option<&'a AtomicU64> {
    match map.get(key)? {
        Record::Connection { deadline, .. } => Some(deadline),
        Record::Reply { original } => match map.get(original)? {
            Record::Connection { deadline, .. } => Some(deadline),
            Record::Reply { .. } => None,
        },
    }
}

fn touch(map: &Map, key: &Session4, deadline: u64) -> bool {
    find(map, key).is_some_and(|word| {
        if word.load(Ordering::Relaxed) != deadline {
            word.store(deadline, Ordering::Relaxed);
        }
        true
    })
}

fn insert(map: &mut Map, n: usize, deadline: u64) -> bool {
    let (original, reply) = (original(n), reply(n));
    if map.contains_key(&original) || map.contains_key(&reply) {
        return false;
    }
    map.insert(reply, Record::Reply { original });
    let deadline = AtomicU64::new(deadline);
    map.insert(original, Record::Connection { reply, deadline });
    true
}

fn remove(map: &mut Map, n: usize) -> bool {
    match map.remove(&original(n)) {
        Some(Record::Connection { reply, .. }) => map.remove(&reply).is_some(),
        _ => false,
    }
}

/// One reader-writer lock around a map, as the paper's twin; taken once a packet or once a burst.
#[derive(Debug)]
pub struct Locked {
    map: RwLock<Map>,
    once_a_burst: bool,
}

impl Locked {
    /// Makes a map for `connections`.
    pub fn new(connections: usize, once_a_burst: bool) -> Self {
        Self {
            map: RwLock::new(map(2 * connections)),
            once_a_burst,
        }
    }
}

impl Twin for Locked {
    fn join(&self, _: usize) -> Box<dyn Handle + '_> {
        Box::new(self)
    }
}

impl Handle for &Locked {
    fn packets(&mut self, keys: &[Session4], deadline: u64) -> usize {
        if self.once_a_burst {
            let map = self.map.read().expect("no panic inside");
            return keys.iter().filter(|key| touch(&map, key, deadline)).count();
        }
        keys.iter()
            .filter(|key| touch(&self.map.read().expect("no panic inside"), key, deadline))
            .count()
    }
    fn insert(&mut self, n: usize, deadline: u64) -> bool {
        insert(&mut self.map.write().expect("no panic inside"), n, deadline)
    }
    fn remove(&mut self, n: usize) -> bool {
        remove(&mut self.map.write().expect("no panic inside"), n)
    }
}

/// One mutex around a map, taken once a packet.
#[derive(Debug)]
pub struct Global(Mutex<Map>);

impl Global {
    /// Makes a map for `connections`.
    pub fn new(connections: usize) -> Self {
        Self(Mutex::new(map(2 * connections)))
    }
}

impl Twin for Global {
    fn join(&self, _: usize) -> Box<dyn Handle + '_> {
        Box::new(self)
    }
}

impl Handle for &Global {
    fn packets(&mut self, keys: &[Session4], deadline: u64) -> usize {
        keys.iter()
            .filter(|key| touch(&self.0.lock().expect("no panic inside"), key, deadline))
            .count()
    }
    fn insert(&mut self, n: usize, deadline: u64) -> bool {
        insert(&mut self.0.lock().expect("no panic inside"), n, deadline)
    }
    fn remove(&mut self, n: usize) -> bool {
        remove(&mut self.0.lock().expect("no panic inside"), n)
    }
}

/// Shards with a mutex each, chosen by the key's hash; a connection's two keys may lie in two of them.
#[derive(Debug)]
pub struct Sharded {
    shards: Vec<Mutex<Map>>,
    hash: Keyed,
}

impl Sharded {
    /// Makes `shards` maps for `connections` together.
    pub fn new(connections: usize, shards: usize) -> Self {
        let each = 2 * connections / shards;
        Self {
            shards: (0..shards)
                .map(|_| Mutex::new(map(each + each / 8)))
                .collect(),
            hash: Keyed::new([5, 6, 7, 8]),
        }
    }

    fn shard(&self, key: &Session4) -> usize {
        use tables::signature::SignatureFunction;
        self.hash.hash(key).bucket as usize % self.shards.len()
    }

    fn lock(&self, key: &Session4) -> MutexGuard<'_, Map> {
        self.shards[self.shard(key)]
            .lock()
            .expect("no panic inside")
    }

    /// Runs `f` with the shards of both keys locked, the lower one first.
    fn with_both<R>(
        &self,
        (a, b): (&Session4, &Session4),
        f: impl FnOnce(&mut Map, Option<&mut Map>) -> R,
    ) -> R {
        let (at_a, at_b) = (self.shard(a), self.shard(b));
        if at_a == at_b {
            return f(&mut self.lock(a), None);
        }
        let low = self.shards[at_a.min(at_b)].lock().expect("no panic inside");
        let high = self.shards[at_a.max(at_b)].lock().expect("no panic inside");
        let (mut of_a, mut of_b) = if at_a < at_b {
            (low, high)
        } else {
            (high, low)
        };
        f(&mut of_a, Some(&mut of_b))
    }
}

impl Twin for Sharded {
    fn join(&self, _: usize) -> Box<dyn Handle + '_> {
        Box::new(self)
    }
}

impl Handle for &Sharded {
    fn packets(&mut self, keys: &[Session4], deadline: u64) -> usize {
        let one = |key: &&Session4| {
            let original = match self.lock(key).get(*key) {
                Some(Record::Connection { deadline: word, .. }) => {
                    if word.load(Ordering::Relaxed) != deadline {
                        word.store(deadline, Ordering::Relaxed);
                    }
                    return true;
                }
                Some(Record::Reply { original }) => *original,
                None => return false,
            };
            touch(&self.lock(&original), &original, deadline)
        };
        keys.iter().filter(one).count()
    }
    fn insert(&mut self, n: usize, deadline: u64) -> bool {
        let (original, reply) = (original(n), reply(n));
        self.with_both((&original, &reply), |of_original, of_reply| {
            let taken = match &of_reply {
                Some(map) => map.contains_key(&reply),
                None => of_original.contains_key(&reply),
            };
            if taken || of_original.contains_key(&original) {
                return false;
            }
            let deadline = AtomicU64::new(deadline);
            of_original.insert(original, Record::Connection { reply, deadline });
            let record = Record::Reply { original };
            of_reply.unwrap_or(of_original).insert(reply, record);
            true
        })
    }
    fn remove(&mut self, n: usize) -> bool {
        let (original, reply) = (original(n), reply(n));
        self.with_both((&original, &reply), |of_original, of_reply| {
            of_original.remove(&original).is_some()
                && of_reply.unwrap_or(of_original).remove(&reply).is_some()
        })
    }
}

/// A map a worker: nothing is shared, and a connection belongs to the worker of its number.
#[derive(Debug)]
pub struct Own(Vec<Mutex<Map>>);

impl Own {
    /// Makes a map for each of `workers`, for `connections` together.
    pub fn new(connections: usize, workers: usize) -> Self {
        let maps = (0..workers).map(|_| Mutex::new(map(2 * connections / workers)));
        Self(maps.collect())
    }
}

struct OwnHandle<'a>(MutexGuard<'a, Map>);

impl Twin for Own {
    fn join(&self, index: usize) -> Box<dyn Handle + '_> {
        // Held as long as the worker runs: no packet takes a lock.
        Box::new(OwnHandle(self.0[index].lock().expect("no panic inside")))
    }
}

impl Handle for OwnHandle<'_> {
    fn packets(&mut self, keys: &[Session4], deadline: u64) -> usize {
        keys.iter()
            .filter(|key| touch(&self.0, key, deadline))
            .count()
    }
    fn insert(&mut self, n: usize, deadline: u64) -> bool {
        insert(&mut self.0, n, deadline)
    }
    fn remove(&mut self, n: usize) -> bool {
        remove(&mut self.0, n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_twins_answer_alike() {
        let twins: [Box<dyn Twin>; 7] = [
            Box::new(LockFree::new(100, 2, true)),
            Box::new(LockFree::new(100, 2, false)),
            Box::new(Locked::new(100, true)),
            Box::new(Locked::new(100, false)),
            Box::new(Global::new(100)),
            Box::new(Sharded::new(100, 8)),
            Box::new(Own::new(100, 2)),
        ];
        for (at, twin) in twins.iter().enumerate() {
            let mut handle = twin.join(0);
            assert!((0..20).all(|n| handle.insert(n, 1)), "{at}");
            assert!(!handle.insert(3, 1), "{at}");
            assert!(handle.remove(4) && !handle.remove(4), "{at}");
            handle.end();
            let keys: Vec<_> = (0..12)
                .flat_map(|n| [original(n * 2), reply(n * 2)])
                .collect();
            // 0, 2, 6 to 18: nine connections, both directions.
            assert_eq!(handle.packets(&keys, 2), 18, "{at}");
            assert!(handle.insert(4, 1), "{at}");
            assert_eq!(handle.packets(&keys, 3), 20, "{at}");
        }
    }
}
