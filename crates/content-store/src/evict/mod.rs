//! Which packet leaves when room is needed: one trait, five policies, two rings and three lists that they
//! share, so that the policy can change while the store runs.

mod clock;
mod fifo;
mod ghost;
mod list;
mod lru;
mod priority_fifo;
mod ring;
mod s3_fifo;

use crate::arena::Arena;
use crate::node::{Packet, state};
use crate::sync::atomic::Ordering;
use crate::sync::unmodelled::AtomicU64;
use ghost::Ghost;
use list::Lists;
use ring::{Ring, Run};
use tables::memory::Pages;

/// Which packet leaves when room is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Three queues: new packets pass a small one and stay if they are asked for twice there; names that were
    /// evicted lately skip it. Never below FIFO, first or near it whatever the popularity does: the default.
    #[default]
    S3Fifo,
    /// First in, first out: the ring of the paper (CS-5).
    Fifo,
    /// The ring, in which a packet goes round again once for each hit since the last time, up to 3.
    Clock,
    /// Least recently used, exact but for hits that find the list locked.
    Lru,
    /// NFD's: unsolicited packets first, then stale ones, then by age.
    PriorityFifo,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 5] = [
        Self::S3Fifo,
        Self::Fifo,
        Self::Clock,
        Self::Lru,
        Self::PriorityFifo,
    ];

    /// Returns the name that configuration and tables use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S3Fifo => "s3-fifo",
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::Lru => "lru",
            Self::PriorityFifo => "priority-fifo",
        }
    }

    /// Finds a policy by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    const fn number(self) -> u64 {
        match self {
            Self::S3Fifo => 0,
            Self::Fifo => 1,
            Self::Clock => 2,
            Self::Lru => 3,
            Self::PriorityFifo => 4,
        }
    }
}

/// Numbers of the rings.
const SMALL: u32 = 0;
const MAIN: u32 = 1;
/// Number of the first list in the state of the lists' packets.
const LISTS: u64 = 1;
/// Packets that an eviction passes over (sent round again) before it takes the next one as it is.
const ROUNDS_MAX: usize = 1024;

/// Packets that the small ring of S3-FIFO holds in a full store of `packets`: a tenth.
fn small_limit(packets: usize) -> usize {
    (packets / 10).max(1)
}

/// What a policy decides. The caller holds the lock of the packet's state, except for `touch`.
trait Replacement {
    /// Puts a new packet into a queue; false if there is no slot.
    fn admit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool;
    /// Notes a hit.
    fn touch(queues: &Queues, arena: &Arena, packet: Packet<'_>);
    /// Takes a packet out of its queue, to be evicted; returned with the lock of its state held.
    fn victim<'a>(queues: &Queues, context: &mut Context<'a, '_>) -> Option<Packet<'a>>;
    /// Puts a packet that must not be evicted back.
    fn readmit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool;
}

/// What the queues need to know at a call.
pub(crate) struct Context<'a, 'r> {
    pub(crate) arena: &'a Arena,
    pub(crate) runs: &'r mut Runs,
    pub(crate) now_ns: u64,
}

/// A worker's tickets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Runs {
    small: Run,
    main: Run,
}

/// The queues of a store.
#[derive(Debug)]
pub(crate) struct Queues {
    policy: AtomicU64,
    small: Ring,
    main: Ring,
    lists: Lists,
    ghost: Ghost,
    /// Packets that the small ring of S3-FIFO holds when the store is full.
    small_limit: AtomicU64,
    /// Tickets that a worker takes at once.
    run: u64,
}

macro_rules! dispatch {
    ($policy:expr, $call:ident ( $($argument:expr),* )) => {
        match $policy {
            0 => s3_fifo::S3Fifo::$call($($argument),*),
            2 => clock::Clock::$call($($argument),*),
            3 => lru::Lru::$call($($argument),*),
            4 => priority_fifo::PriorityFifo::$call($($argument),*),
            _ => fifo::Fifo::$call($($argument),*),
        }
    };
}

impl Queues {
    /// Makes the queues of a store of `packets` at most.
    pub(crate) fn new(packets: usize, policy: Policy, run: usize, pages: Pages) -> Self {
        // The main ring can hold all packets, the small one somewhat more than its tenth; both a sixteenth more,
        // and the holes that runs of tickets leave.
        let slots = |packets: usize| {
            if cfg!(any(loom, shuttle)) {
                packets + 4
            } else {
                packets + packets / 16 + 64 * run.max(1) + 64
            }
        };
        let small_limit = small_limit(packets);
        Self {
            policy: AtomicU64::new(policy.number()),
            small: Ring::new(SMALL, slots(small_limit), pages),
            main: Ring::new(MAIN, slots(packets), pages),
            lists: Lists::new(LISTS),
            ghost: Ghost::new(packets - packets / 10, pages),
            small_limit: AtomicU64::new(small_limit as u64),
            run: run.max(1) as u64,
        }
    }

    /// Bytes of rings and ghosts.
    pub(crate) fn bytes(&self) -> usize {
        self.small.bytes() + self.main.bytes() + self.ghost.bytes()
    }

    pub(crate) fn policy(&self) -> Policy {
        let number = self.policy.load(Ordering::Relaxed);
        let mut all = Policy::ALL.into_iter();
        all.find(|policy| policy.number() == number)
            .unwrap_or_default()
    }

    /// Changes the policy. Packets stay where they are; queues that the new policy does not use are emptied
    /// first when room is needed.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.number(), Ordering::Relaxed);
    }

    /// Tells the queues how many packets the store may hold.
    pub(crate) fn set_capacity(&self, packets: usize) {
        self.small_limit
            .store(small_limit(packets) as u64, Ordering::Relaxed);
    }

    /// Puts a new packet into a queue; the caller holds the lock of its state.
    #[inline]
    pub(crate) fn admit(&self, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        let policy = self.policy.load(Ordering::Relaxed);
        dispatch!(policy, admit(self, context, packet))
    }

    /// Notes a hit.
    #[inline]
    pub(crate) fn touch(&self, arena: &Arena, packet: Packet<'_>) {
        let policy = self.policy.load(Ordering::Relaxed);
        dispatch!(policy, touch(self, arena, packet));
    }

    /// Takes the packet that is to leave out of its queue, and returns it with the lock of its state held; `None`
    /// if there is none that may.
    pub(crate) fn victim<'a>(&self, context: &mut Context<'a, '_>) -> Option<Packet<'a>> {
        for _ in 0..ROUNDS_MAX {
            let policy = self.policy.load(Ordering::Relaxed);
            let foreign = self.foreign(policy, context.arena);
            let packet = match foreign {
                Some(packet) => packet,
                None => dispatch!(policy, victim(self, context))?,
            };
            if packet.state().load(Ordering::Relaxed) & state::PINNED == 0 {
                return Some(packet);
            }
            let _ = dispatch!(policy, readmit(self, context, packet));
            packet.unlock(0, 0);
        }
        None
    }

    /// A packet of a queue that the policy does not use.
    fn foreign<'a>(&self, policy: u64, arena: &'a Arena) -> Option<Packet<'a>> {
        let uses_lists = policy == Policy::Lru.number() || policy == Policy::PriorityFifo.number();
        if uses_lists {
            return match self.small.len() + self.main.len() {
                0 => None,
                _ => self.small.pop(arena).or_else(|| self.main.pop(arena)),
            };
        }
        if policy != Policy::S3Fifo.number() && self.small.len() > 0 {
            return self.small.pop(arena);
        }
        (0..list::LISTS)
            .find(|list| !self.lists.is_empty(*list))
            .and_then(|list| self.lists.pop(arena, list))
    }

    /// Takes a packet that is being removed out of its queue; the caller holds the lock of its state.
    pub(crate) fn forget(&self, arena: &Arena, packet: Packet<'_>) {
        if self.lists.list_of(packet).is_some() {
            self.lists.forget(arena, packet);
            return;
        }
        match packet.ring_position() {
            Some((SMALL, at)) => self.small.forget(packet, at),
            Some((_, at)) => self.main.forget(packet, at),
            None => {}
        }
    }

    /// Asks for the places in the ring from which packets will leave soon.
    #[inline]
    pub(crate) fn prefetch_ring(&self) {
        self.next_ring().prefetch();
    }

    /// The packet that is `from` behind the next one to leave, as far as that is known.
    pub(crate) fn peek_victim(&self, from: usize) -> crate::node::Node {
        self.next_ring().peek(from)
    }

    fn next_ring(&self) -> &Ring {
        let policy = self.policy.load(Ordering::Relaxed);
        let small = policy == Policy::S3Fifo.number()
            && self.small.len() as u64 >= self.small_limit.load(Ordering::Relaxed);
        if small { &self.small } else { &self.main }
    }
}
