//! The kernel's cache beside the content store that fills it: it never gives what the store would not.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use content_store::{Config, ContentStore, NameHash, NewData, Query, Worker};
use kernel_cache::shared::Memory;
use kernel_cache::shared::answer::{Scratch, answer};
use kernel_cache::shared::layout::{Bucket, Node, Slab};
use kernel_cache::{Arrays, Buffer, Cache, Mirror, Outcome, Promoted, Sizes, Watch};
use proptest::prelude::*;
use support::{
    Carrier, PORT_MAC, data_of, frame, interest_of, name, network_packet, port_row, reply_payload,
};
use wire::Instant;
use wire::ndn::Data;
use wire::ndn::name::Name;

/// Steps of a case and cases: 10^5 operations.
const STEPS: usize = 1000;
const CASES: u32 = 100;
/// Slots of the kernel's cache: fewer than there are names.
const SLOTS: u32 = 48;

/// The cache's memory with the clock of the test.
struct Clocked<'a> {
    arrays: &'a Arrays,
    now: Instant,
}

impl Memory for Clocked<'_> {
    fn config(&self) -> &kernel_cache::shared::layout::Config {
        self.arrays.config()
    }
    fn bucket(&self, index: u32) -> Option<&Bucket> {
        self.arrays.bucket(index)
    }
    fn node(&self, slot: u32) -> Option<&Node> {
        self.arrays.node(slot)
    }
    fn slab(&self, slot: u32) -> Option<&Slab> {
        self.arrays.slab(slot)
    }
    fn read_barrier(&self) {
        self.arrays.read_barrier();
    }
    fn now_ns(&self) -> u64 {
        self.now.as_ns()
    }
}

/// Asks the kernel's cache as its program does; returns the Data, if it gives one.
fn ask(memory: &impl Memory, request: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = Buffer::new(request, 4000);
    let port = port_row(1, PORT_MAC, 3000);
    let mut scratch = Box::<Scratch>::default();
    let outcome = answer(memory, &mut buffer, 1, &port, &mut scratch);
    let is_answer = matches!(outcome, Outcome::Exact | Outcome::Prefix);
    is_answer.then(|| network_packet(&reply_payload(Carrier::Ethernet, None, buffer.bytes())).0)
}

/// What is done.
#[derive(Clone, Debug)]
enum Step {
    Insert(Name, u8, u64),
    Erase(Name),
    Ask(Name, &'static str),
    Promote,
    Wait(u64),
    Sweep,
    Serve(bool),
}

fn names(depth: std::ops::Range<usize>) -> impl Strategy<Value = Name> {
    proptest::collection::vec(0..4_u8, depth).prop_map(|components| {
        components.iter().fold(Name::new(), |name, &component| {
            name.with_generic(&vec![component; 1 + 5 * usize::from(component)])
        })
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![Just(""), Just("p"), Just("f"), Just("pf")];
    let freshness_ms = prop_oneof![Just(0), Just(10), Just(1000)];
    prop_oneof![
        20 => (names(1..5), any::<u8>(), freshness_ms).prop_map(|(n, c, f)| Step::Insert(n, c, f)),
        2 => names(0..5).prop_map(Step::Erase),
        60 => (names(1..5), flags).prop_map(|(n, f)| Step::Ask(n, f)),
        30 => Just(Step::Promote),
        4 => (1..30_u64).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
        1 => Just(Step::Serve(false)),
        10 => Just(Step::Serve(true)),
    ]
}

/// The store, the kernel's cache, and what the store may give: all that was inserted and not erased or replaced.
struct Both {
    store: ContentStore,
    worker: Worker,
    mirror: Mirror,
    watch: Watch,
    allowed: BTreeMap<Name, (Vec<u8>, Instant)>,
    hot: VecDeque<Name>,
    now: Instant,
    answers: u64,
}

impl Both {
    fn new(packets: usize) -> Self {
        let config = Config::for_packets(packets, 2, NameHash::Keyed([1, 2]));
        let store = ContentStore::new(&config).expect("memory");
        let arrays = Arrays::private(Sizes {
            data: SLOTS,
            prefixes: 400,
        })
        .expect("memory");
        let mirror = Mirror::new(Cache::new(arrays), store.join().expect("a place"));
        Self {
            worker: store.join().expect("a place"),
            store,
            watch: mirror.watch(),
            mirror,
            allowed: BTreeMap::new(),
            hot: VecDeque::new(),
            now: Instant::from_ns(1_000_000_000),
            answers: 0,
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Insert(name, content, freshness_ms) => {
                let content = vec![content; 1 + usize::from(content)];
                let packet = data_of(name.as_ref(), &content, freshness_ms);
                let data = Data::parse(&packet).expect("Data");
                let new = NewData::new(&packet, data.name, freshness_ms);
                let is_in = self.worker.insert(&new, self.now).is_ok();
                self.watch.withdraw(&data.name);
                let until = self.now + std::time::Duration::from_millis(freshness_ms);
                if is_in {
                    self.allowed.insert(name, (packet, until));
                } else {
                    self.allowed.remove(&name);
                }
            }
            Step::Erase(prefix) => {
                self.worker.erase(prefix.as_ref(), usize::MAX);
                self.mirror.erase(&prefix.as_ref());
                self.allowed
                    .retain(|name, _| !prefix.as_ref().is_prefix_of(&name.as_ref()));
            }
            Step::Ask(name, flags) => self.ask(&name, flags)?,
            Step::Promote => {
                if let Some(name) = self.hot.pop_front() {
                    let is_there = self.worker.peek(name.as_ref()).is_some();
                    let done = self.mirror.promote(&name.as_ref());
                    prop_assert_eq!(is_there, done != Promoted::Gone, "{:?}", done);
                }
            }
            Step::Wait(ms) => self.now = self.now + std::time::Duration::from_millis(ms),
            Step::Sweep => {
                self.mirror.sweep(SLOTS);
                self.contains_only_what_the_store_has()?;
            }
            Step::Serve(serve) => {
                self.store.set_serve(serve);
                if !serve {
                    self.mirror.erase(&Name::new().as_ref());
                }
            }
        }
        self.worker.quiescent();
        Ok(())
    }

    fn ask(&mut self, name: &Name, flags: &str) -> Result<(), TestCaseError> {
        let memory = Clocked {
            arrays: self.mirror.cache().memory(),
            now: self.now,
        };
        let request = frame(Carrier::Ethernet, None, &interest_of(name.as_ref(), flags));
        if let Some(packet) = ask(&memory, &request) {
            self.answers += 1;
            let data = Data::parse(&packet).expect("Data");
            let found = Name::from(data.name);
            let allowed = self.allowed.get(&found);
            prop_assert_eq!(
                allowed.map(|(packet, _)| packet),
                Some(&packet),
                "{}",
                found
            );
            let is_fresh = allowed.is_some_and(|(_, until)| *until > self.now);
            prop_assert!(is_fresh || !flags.contains('f'), "{} is stale", found);
            let is_below = flags.contains('p') && name.as_ref().is_prefix_of(&found.as_ref());
            prop_assert!(*name == found || is_below, "{} for {}", found, name);
            prop_assert!(self.store.admit_and_serve().1, "nothing is served");
            return Ok(());
        }
        let query = Query {
            name: name.as_ref(),
            can_be_prefix: flags.contains('p'),
            must_be_fresh: flags.contains('f'),
        };
        if let Some(hit) = self.worker.lookup(&query, self.now) {
            let data = Data::parse(hit.packet()).expect("Data");
            if self.watch.is_missing(&data.name, hit.packet()) {
                self.hot.push_back(Name::from(data.name));
            }
        }
        Ok(())
    }

    /// Asks for every name that there was.
    fn contains_only_what_the_store_has(&mut self) -> Result<(), TestCaseError> {
        for name in self.allowed.keys() {
            let request = frame(Carrier::Ethernet, None, &interest_of(name.as_ref(), ""));
            let memory = Clocked {
                arrays: self.mirror.cache().memory(),
                now: self.now,
            };
            if let Some(packet) = ask(&memory, &request) {
                let hit = self.worker.peek(name.as_ref());
                prop_assert_eq!(
                    hit.map(|hit| hit.packet().to_vec()),
                    Some(packet),
                    "{}",
                    name
                );
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() })]
    #[test]
    fn the_kernel_gives_what_the_store_would_give(
        packets in prop_oneof![Just(24), Just(1000)],
        steps in proptest::collection::vec(steps(), STEPS),
    ) {
        let mut both = Both::new(packets);
        for step in steps {
            both.step(step)?;
        }
        prop_assert!(both.answers > 0, "no answers");
        both.store.set_serve(true);
        both.step(Step::Erase(Name::new()))?;
        prop_assert!(both.mirror.cache().is_clean());
    }
}

#[test]
fn a_packet_that_is_replaced_while_it_is_promoted_is_not_answered() {
    const ROUNDS: u64 = 5_000;
    let config = Config::for_packets(16, 2, NameHash::Keyed([1, 2]));
    let store = ContentStore::new(&config).expect("memory");
    let arrays = Arrays::private(Sizes::of(4)).expect("memory");
    let mut mirror = Mirror::new(Cache::new(arrays), store.join().expect("a place"));
    let (watch, memory) = (mirror.watch(), mirror.cache().share());
    let mut worker = store.join().expect("a place");
    let stop = AtomicBool::new(false);
    let asked = name("/hot");
    let now = Instant::from_ns(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                mirror.promote(&asked.as_ref());
            }
        });
        let request = frame(Carrier::Ethernet, None, &interest_of(asked.as_ref(), ""));
        let (mut answers, mut old) = (0, Vec::new());
        let mut round = 0;
        // Until there were so many answers: threads may have to take turns.
        while (round < ROUNDS || answers == 0) && round < 50 * ROUNDS {
            round += 1;
            let packet = data_of(asked.as_ref(), &round.to_le_bytes(), 0);
            let data = Data::parse(&packet).expect("Data");
            let _ = worker.insert(&NewData::new(&packet, data.name, 0), now);
            worker.quiescent();
            watch.withdraw(&data.name);
            let memory = Clocked {
                arrays: &memory,
                now,
            };
            for _ in 0..4 {
                if let Some(found) = ask(&memory, &request) {
                    let content = Data::parse(&found).expect("Data").content;
                    answers += 1;
                    if content != round.to_le_bytes() {
                        old.push((round, content.to_vec()));
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(old.is_empty(), "{old:?}");
        assert!(answers > 0);
    });
}
