//! A worker's part of the engine: sorts the packets of a batch, and keeps the tables tidy between batches.

use alloc::sync::Arc;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use tables::flow_map::{Direction, Flow};
use tables::signature::{Session4, Session6};
use tables::slots::SlotWorker;
use wire::{DropReason, FlowKey, Instant, Layout, LayoutFlags, ip_protocol};

use super::connection::{self, ConnectionEvent};
use super::item::{BATCH_MAX, Environment, Fate, Item};
use super::logged::{LOGS_MAX, Logged};
use super::outbox::Outbox;
use super::recovery::mappings_of;
use super::rules::{Rules, Stage};
use super::shared::{FlowHandles, Join, Shared, Table};
use super::walk::Walk;
use crate::alg::expectation::ExpectationWorker;
use crate::alg::stream::Streams;
use crate::guard::GuardWorker;
use crate::nat::cgn::BlockEvent;
use crate::nat::mapping::NatWorker;
use crate::nat::rewrite::is_query;
use crate::packet::{CtDirection, CtState, Hook};
use crate::track::fragment::{self, Decision, Fragments};
use crate::track::key::{ConnectionKey, is_ipv4, unmapped};
use crate::track::record::{Life, Own, Record};
use crate::track::tcp::Segment;
use crate::track::timeout::Tick;
use crate::verdict::Effects;

/// Emissions that wait between two calls, at most.
const OUTBOX_SLOTS: usize = 2 * BATCH_MAX;

/// Connections that one sweep ends, at most: the next one goes on from there.
const ENDS_MAX: usize = 256;

/// Bytes that a helper reads at once: a packet, and the line before it.
const MESSAGE_BYTES: usize = 2048;

/// What a worker has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that belonged to a connection.
    pub hits: u64,
    /// Of those, packets whose verdict was replayed.
    pub replays: u64,
    /// Connections that were made.
    pub made: u64,
    /// Connections that ended (by time, or reopened).
    pub ended: u64,
    /// Packets that fitted no connection.
    pub invalid: u64,
    /// Connections that were refused because a table was full.
    pub refused: u64,
    /// Log statements that packets reached.
    pub logs: u64,
    /// Log statements that found no room.
    pub logs_lost: u64,
}

/// One worker; not shared between threads.
#[derive(Debug)]
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) flows: FlowHandles,
    pub(super) nat: NatWorker,
    pub(super) sources: SlotWorker,
    pub(super) expectations: ExpectationWorker,
    pub(super) streams: Streams,
    /// What a helper reads.
    pub(super) message: Vec<u8>,
    pub(super) fragments: Fragments,
    /// What the engine wants sent; the caller sends and clears it after each call.
    pub outbox: Outbox,
    pub(super) effects: Effects,
    random: u64,
    pub(super) index: u16,
    sweeps: [usize; 2],
    fragments_at: Tick,
    /// The guard in front of all state, if there is one.
    pub guard: Option<GuardWorker>,
    /// What was counted.
    pub tally: Tally,
    /// Somebody wants to know which connections are opened and end.
    pub watched: bool,
    /// Connections that were opened or ended while [`watched`](Self::watched), oldest first; to be taken by the caller.
    pub events: Vec<ConnectionEvent>,
    /// Events that found no room, as nobody had taken the earlier ones.
    pub events_lost: u64,
    /// Packets that reached `log` statements, oldest first; to be taken by the caller.
    pub logs: Vec<Logged>,
}

/// What a packet is, before any table is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// May have a connection, or start one.
    Flow,
    /// An ICMP error about another packet.
    Error,
    /// A fragment that holds no ports.
    LaterFragment,
    /// Not to be tracked: neighbour discovery and the like.
    Untracked,
    /// Neither query nor error of ICMP.
    Odd,
    /// Not IP.
    Other,
}

impl Worker {
    /// Joins the tables. `index` is the worker's number, `seed` random.
    ///
    /// # Errors
    /// If as many workers as there may be have joined.
    pub fn new(shared: Arc<Shared>, index: u16, seed: u64) -> Result<Self, Join> {
        let flows = FlowHandles {
            v4: shared.flows4.join().ok_or(Join)?,
            v6: shared.flows6.join().ok_or(Join)?,
        };
        Ok(Self {
            flows,
            nat: shared.nat.join().ok_or(Join)?,
            sources: shared.sources.join().ok_or(Join)?,
            expectations: shared.expectations.join().ok_or(Join)?,
            streams: Streams::default(),
            message: Vec::with_capacity(MESSAGE_BYTES),
            fragments: Fragments::new(shared.policy.fragments, shared.hash),
            outbox: Outbox::new(OUTBOX_SLOTS),
            effects: Effects::default(),
            random: seed ^ u64::from(index) << 48 | 1,
            index,
            sweeps: [0; 2],
            fragments_at: Tick(0),
            guard: None,
            tally: Tally::default(),
            watched: false,
            events: Vec::with_capacity(connection::EVENTS_MAX),
            events_lost: 0,
            logs: Vec::with_capacity(LOGS_MAX),
            shared,
        })
    }

    /// The tables that all workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes the records of port blocks that were given out or came back: what is to be logged (RFC 6888 REQ-13).
    pub fn take_block_events(&mut self) -> alloc::vec::Drain<'_, BlockEvent> {
        self.nat.events.drain(..)
    }

    /// Takes the number of such records that found no room.
    pub fn take_block_events_lost(&mut self) -> u64 {
        core::mem::take(&mut self.nat.events_lost)
    }

    /// Judges a batch of at most [`BATCH_MAX`] packets that came in, translates those that go on, and writes the
    /// fate of each to the same place of `fates`.
    pub fn process<R: Rules>(
        &mut self,
        env: &Environment<'_>,
        rules: &mut R,
        items: &mut [Item<'_>],
        fates: &mut [Fate],
    ) {
        self.batch(Hook::Prerouting, env, rules, items, fates);
    }

    /// Judges what the node itself sends, as [`process`](Self::process) what came in: it begins at the output hook, and
    /// its connections are tracked and translated as those of others are.
    pub fn output<R: Rules>(
        &mut self,
        env: &Environment<'_>,
        rules: &mut R,
        items: &mut [Item<'_>],
        fates: &mut [Fate],
    ) {
        self.batch(Hook::Output, env, rules, items, fates);
    }

    fn batch<R: Rules>(
        &mut self,
        first: Hook,
        env: &Environment<'_>,
        rules: &mut R,
        items: &mut [Item<'_>],
        fates: &mut [Fate],
    ) {
        let shared = Arc::clone(&self.shared);
        let mut keys = [FlowKey::default(); BATCH_MAX];
        let mut kinds = [Kind::Other; BATCH_MAX];
        let mut found = [None; BATCH_MAX];
        let mut keys4 = ArrayVec::<Session4, BATCH_MAX>::new();
        let mut keys6 = ArrayVec::<Session6, BATCH_MAX>::new();
        for ((item, key), kind) in items.iter().zip(&mut keys).zip(&mut kinds) {
            *kind = sort(item.frame, &item.layout, key);
            if matches!(kind, Kind::Flow) {
                if is_ipv4(key) {
                    let _ = keys4.try_push(Session4::from_flow(key));
                } else {
                    let _ = keys6.try_push(Session6::from_flow(key));
                }
            }
        }
        let mut found4 = [None; BATCH_MAX];
        shared.flows4.find_batch_pairs(&keys4, &mut found4);
        let mut found6 = [None; BATCH_MAX];
        if !keys6.is_empty() {
            shared.flows6.find_batch_pairs(&keys6, &mut found6);
        }
        let (mut next4, mut next6) = (found4.iter(), found6.iter());
        for ((key, kind), found) in keys.iter().zip(&kinds).zip(&mut found).take(items.len()) {
            if matches!(kind, Kind::Flow) {
                let next = if is_ipv4(key) { &mut next4 } else { &mut next6 };
                *found = next.next().copied().flatten();
            }
        }
        super::prepare::new_connections(&shared, &keys4, &found4);
        for (at, (item, fate)) in items.iter_mut().zip(fates).enumerate().take(BATCH_MAX) {
            let mut walk = Walk {
                env,
                rules,
                shared: &shared,
                tick: Tick::of(env.now),
                first,
            };
            *fate = self.one(&mut walk, item, kinds[at], &keys[at], found[at]);
        }
    }

    fn one<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        kind: Kind,
        key: &FlowKey,
        found: Option<Flow>,
    ) -> Fate {
        if let Some(guard) = &mut self.guard
            && !walk.is_own()
            && !matches!(kind, Kind::Other)
            && let Some(reason) = guard.check(key, walk.env.now)
        {
            return Fate::Drop(reason);
        }
        if walk.rules.has(Stage::Raw, walk.first)
            && let Some(fate) = self.raw(walk, item)
        {
            return fate;
        }
        match kind {
            Kind::Flow if is_ipv4(key) => self.flow::<R, Session4>(walk, item, key, found),
            Kind::Flow => self.flow::<R, Session6>(walk, item, key, found),
            Kind::Error if walk.is_own() => self.own_error(walk, item),
            Kind::Error => self.error(walk, item),
            Kind::LaterFragment => self.later_fragment(walk, item),
            Kind::Untracked => self.stateless(walk, item, key, CtState::UNTRACKED),
            Kind::Odd => self.stateless(walk, item, key, CtState::INVALID),
            Kind::Other => Fate::Accept,
        }
    }

    /// Judges a packet whose key may have a connection.
    pub(super) fn flow<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        found: Option<Flow>,
    ) -> Fate {
        let fragment = item.layout.flags.contains(LayoutFlags::FRAGMENT);
        let entry = if fragment {
            match self.fragments.first(&item.layout, item.frame, walk.tick) {
                Ok(entry) => Some(entry),
                Err(reason) => return Fate::Drop(reason),
            }
        } else {
            None
        };
        // An earlier packet of the batch may have made the connection.
        let found = found.or_else(|| K::flows(walk.shared).find(&K::from_flow(key)));
        let fate = found
            .and_then(|flow| self.hit::<R, K>(walk, item, key, flow))
            .unwrap_or_else(|| self.miss::<R, K>(walk, item, key));
        if let Some(entry) = entry {
            self.decide_fragments(walk, item, entry, fate);
        }
        fate
    }

    /// All fragments share the first one's fate, those that waited at once.
    fn decide_fragments<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &Item<'_>,
        entry: usize,
        fate: Fate,
    ) {
        let addresses = match fate {
            Fate::Accept => match FlowKey::from_layout(&item.layout, item.frame) {
                Some(now) => Ok((now.source, now.destination)),
                None => Err(DropReason::FragmentMalformed),
            },
            Fate::Drop(reason) => Err(reason),
            Fate::Consumed => Err(DropReason::FirewallRule),
        };
        let decision = Decision { addresses };
        self.fragments.decide(entry, decision);
        // As many as a datagram can have.
        for _ in 0..64 {
            let mut waited = false;
            let fragments = &mut self.fragments;
            let sent = self.outbox.push(item.way_on(), item.iif, |buffer| {
                let bytes = fragments.take_held(entry, buffer);
                waited = bytes.is_some();
                addresses.ok().and(bytes)
            });
            if !waited {
                break;
            }
            if sent && let Some(frame) = self.outbox.last_mut() {
                let readdressed = wire::parse(frame)
                    .is_ok_and(|layout| readdress(frame, &layout, &decision).is_ok());
                if !readdressed {
                    self.outbox.pop();
                }
            }
        }
        let _ = walk;
    }

    fn later_fragment<R: Rules>(&mut self, walk: &mut Walk<'_, R>, item: &mut Item<'_>) -> Fate {
        match self.fragments.later(&item.layout, item.frame, walk.tick) {
            fragment::Fate::Held => Fate::Consumed,
            fragment::Fate::Drop(reason) => Fate::Drop(reason),
            fragment::Fate::Decided(decision) => {
                match readdress(item.frame, &item.layout, &decision) {
                    Ok(()) => Fate::Accept,
                    Err(reason) => Fate::Drop(reason),
                }
            }
        }
    }

    /// A random word (SplitMix64: for ports and choices; cookies have a keyed hash of their own).
    pub(super) fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u32
    }

    /// Ends connections whose time has come, in a share of the tables, and frees what nobody holds any more: once a
    /// loop, with no packet in hand. `slots` slots of each table are looked at; with a hundredth of the slots every
    /// 100 ms, ends are at most 10 s late.
    pub fn maintain(&mut self, now: Instant, slots: usize) {
        let shared = Arc::clone(&self.shared);
        self.flows.v4.quiescent();
        self.flows.v6.quiescent();
        shared.flows4.reclaim(&mut self.flows.v4);
        shared.flows6.reclaim(&mut self.flows.v6);
        shared.sources.reclaim(&mut self.sources);
        shared.nat.maintain(&mut self.nat, slots, now);
        let tick = Tick::of(now);
        let expectations = &shared.expectations;
        expectations.maintain(&mut self.expectations, slots, tick, |inner| {
            shared.nat.release(inner, now);
        });
        self.sweep::<Session4>(&shared, 0, slots, tick, now);
        self.sweep::<Session6>(&shared, 1, slots, tick, now);
        if tick.since(self.fragments_at) >= 8 {
            self.fragments_at = tick;
            self.fragments.expire(tick);
        }
    }

    fn sweep<K: Table>(
        &mut self,
        shared: &Shared,
        family: usize,
        slots: usize,
        tick: Tick,
        now: Instant,
    ) {
        let flows = K::flows(shared);
        let Some(start) = self.sweeps.get(family).copied() else {
            return;
        };
        let end = (start + slots).min(flows.slots());
        let mut over = ArrayVec::<_, ENDS_MAX>::new();
        flows.expire(
            K::handle(&mut self.flows),
            start..end,
            |connection, values| {
                let word = values
                    .first()
                    .map_or(0, |word| word.load(core::sync::atomic::Ordering::Relaxed));
                if Life::from_word(word).deadline <= tick {
                    let _ = over.try_push((connection, word));
                }
                false
            },
        );
        for &(connection, word) in &over {
            self.end::<K>(shared, connection, word, now);
        }
        // More than fit at once: the same slots again.
        let next = if over.is_full() {
            start
        } else if end == flows.slots() {
            0
        } else {
            end
        };
        if let Some(place) = self.sweeps.get_mut(family) {
            *place = next;
        }
    }

    /// Ends a connection that was judged by its first word `judged`, and gives back what it held. Returns whether it
    /// was this worker that ended it.
    pub(super) fn end<K: Table>(
        &mut self,
        shared: &Shared,
        connection: tables::slots::SlotRef,
        judged: u64,
        now: Instant,
    ) -> bool {
        let flows = K::flows(shared);
        let keys = (flows.original_key(connection), flows.reply_key(connection));
        let noted = self.events.len();
        self.note::<K>(false, connection, now);
        if !flows.expire_one(K::handle(&mut self.flows), connection, judged) {
            // It was refreshed at this moment, or another worker ends it.
            self.events.truncate(noted);
            return false;
        }
        self.tally.ended += 1;
        if let (Some(original), Some(reply)) = keys {
            let life = Life::from_word(judged);
            self.give_back(shared, &life, &original.to_flow(), &reply.to_flow(), now);
        }
        true
    }

    /// Gives back the mappings and the count of a connection that ended, or was not made after all.
    pub(super) fn give_back(
        &mut self,
        shared: &Shared,
        life: &Life,
        original: &FlowKey,
        reply: &FlowKey,
        now: Instant,
    ) {
        if life.own.contains(Own::COUNTED) {
            let source = source_id(original);
            shared.sources.lower(&mut self.sources, source);
        }
        let [source, destination] = mappings_of(life, original, reply);
        if let Some((inner, outer)) = source {
            let remote = unmapped(reply.source);
            shared.nat.forbid(&mut self.nat, outer, remote);
            shared.nat.release(inner, now);
        }
        if let Some((inner, _)) = destination {
            shared.nat.release(inner, now);
        }
    }
}

/// The port that a packet's destination is known by: the identifier of an ICMP query goes both ways.
pub(super) const fn port_of_destination(flow: &FlowKey) -> u16 {
    if matches!(flow.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6) {
        flow.source_port
    } else {
        flow.destination_port
    }
}

/// What a source is counted by.
pub(super) fn source_id(flow: &FlowKey) -> u64 {
    if is_ipv4(flow) {
        Session4::from_flow(flow).source_id()
    } else {
        Session6::from_flow(flow).source_id()
    }
}

/// Direction as rules name it.
#[inline]
pub(super) const fn direction_of(direction: Direction) -> CtDirection {
    match direction {
        Direction::Original => CtDirection::Original,
        Direction::Reply => CtDirection::Reply,
    }
}

/// Writes the addresses that a datagram's first fragment got.
fn readdress(frame: &mut [u8], layout: &Layout, decision: &Decision) -> Result<(), DropReason> {
    let (source, destination) = decision.addresses?;
    let to = FlowKey {
        source,
        destination,
        ..FlowKey::default()
    };
    if crate::nat::rewrite::rewrite(frame, layout, &to) {
        Ok(())
    } else {
        Err(DropReason::FragmentMalformed)
    }
}

/// Sorts a packet and reads its key: of a first fragment as if it were whole.
#[inline]
fn sort(frame: &[u8], layout: &Layout, key: &mut FlowKey) -> Kind {
    let flags = layout.flags;
    let whole = Layout {
        flags: flags - LayoutFlags::FRAGMENT,
        ..*layout
    };
    let Some(read) = FlowKey::from_layout(&whole, frame) else {
        return Kind::Other;
    };
    *key = read;
    if flags.contains(LayoutFlags::LATER_FRAGMENT) {
        return Kind::LaterFragment;
    }
    if !matches!(layout.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6)
        || !flags.contains(LayoutFlags::TRANSPORT)
    {
        return Kind::Flow;
    }
    if flags.contains(LayoutFlags::ICMP_ERROR) {
        return Kind::Error;
    }
    match frame.get(usize::from(layout.transport)) {
        Some(&kind) if is_query(layout.protocol, kind) => Kind::Flow,
        // RFC 4890 4.3 and 4.4: neighbour discovery, multicast listeners, router renumbering; the kernel does not
        // track them either.
        Some(130..=137 | 141..=143 | 148 | 149 | 151..=153)
            if layout.protocol == ip_protocol::ICMPV6 =>
        {
            Kind::Untracked
        }
        _ => Kind::Odd,
    }
}

/// A TCP segment's view of a packet, `None` for other protocols.
pub(super) fn segment_of(item: &Item<'_>) -> Option<Segment> {
    Segment::read(&item.layout, item.frame)
}

/// The words of a connection, if it is still there.
pub(super) fn record_of<K: Table>(
    shared: &Shared,
    connection: tables::slots::SlotRef,
) -> Option<Record<'_>> {
    Record::new(K::flows(shared).pair(connection)?)
}
