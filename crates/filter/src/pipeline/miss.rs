//! Packets that no connection is known for: the rules decide whether they start one, and how it is translated.

use tables::flow_map::FlowError;
use tables::slots::SlotRef;
use wire::tcp::Flags;
use wire::{DropReason, FlowKey, LayoutFlags, ip_protocol};

use super::config::FullPolicy;
use super::hit::halfway;
use super::inspect::{Expected, Passage, expected};
use super::item::{Fate, Item};
use super::rules::{Rules, Stage};
use super::shared::Table;
use super::walk::{Route, Walk, restore};
use super::worker::{Worker, port_of_destination, record_of, segment_of, source_id};
use crate::guard::Admission;
use crate::nat::mapping::{Endpoint, MappingError, MappingRequest, PortSpace};
use crate::nat::rewrite::rewrite;
use crate::packet::{CtDirection, CtState, CtStatus, CtView, HelperId, Hook, InterfaceId};
use crate::track::key::{is_ipv4, mapped, unmapped};
use crate::track::record::{Life, Own, Proxied, Start};
use crate::track::tcp::{Segment, Tcp};
use crate::track::timeout::Class;
use crate::verdict::{Changes, NatFlags, NatKind, NatRequest, RuleId, Verdict};

/// Source ports that an IPv6 translation tries.
const PORT_TRIES: u32 = 8;

/// A connection that is being made.
pub(super) struct Draft {
    /// As the packet came.
    pub(super) key: FlowKey,
    /// As it is to leave.
    target: FlowKey,
    pub(super) life: Life,
    pub(super) tcp: Option<Tcp>,
    ct: CtView,
    /// The source's mapping was made for it.
    is_new_mapping: bool,
    /// Another connection expects it.
    expected: Option<Expected>,
    /// Whether its sender is known to be there.
    pub(super) proof: Proof,
}

/// What is known of the sender of a packet that starts a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Proof {
    /// Nothing, and nobody asks, unless a rule does.
    None,
    /// Nothing, and the guard wants to know.
    Wanted,
    /// It has answered a cookie: the node has opened the connection for the server.
    Given(Opening),
}

/// What the node told a client in its server's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// The numbers.
    pub(super) given: Proxied,
    /// The window scale that was announced, unless the rule that asked announces another.
    pub(super) scale: u8,
    /// The client offered to scale windows.
    pub(super) scales: bool,
}

impl Worker {
    /// Judges a packet that may start a connection.
    #[inline(never)]
    pub(super) fn miss<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
    ) -> Fate {
        // A packet to its own sender (the LAND attack) has no other direction.
        if key.reversed() == *key {
            return Fate::Drop(DropReason::CtInvalid);
        }
        let segment = segment_of(item);
        if let Some(segment) = &segment
            && !walk.is_own()
            && let Some(fate) = self.prove::<R, K>(walk, item, key, segment)
        {
            return fate;
        }
        let tcp = if key.protocol == ip_protocol::TCP {
            match segment.map(|segment| start_tcp(walk, &segment)) {
                Some(Ok(tcp)) => Some(tcp),
                _ => return self.stateless(walk, item, key, CtState::INVALID),
            }
        } else {
            None
        };
        let mut proof = Proof::None;
        if let Some(guard) = &mut self.guard
            && !walk.is_own()
        {
            let syn = segment.filter(|segment| segment.flags.contains(Flags::SYN));
            match guard.check_new(key, syn.map(|syn| syn.sequence), walk.env.now) {
                Admission::Open => {}
                Admission::Prove => proof = Proof::Wanted,
                Admission::Drop(reason) => return Fate::Drop(reason),
            }
        }
        self.start::<R, K>(walk, item, key, tcp, CtState::NEW, proof)
    }

    /// Takes a packet that starts a connection through the rules, which see it in `state`, and makes the connection.
    pub(super) fn start<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        tcp: Option<Tcp>,
        state: CtState,
        proof: Proof,
    ) -> Fate {
        self.begin_walk();
        let mut draft = Draft {
            key: *key,
            target: *key,
            life: Life {
                deadline: walk.tick,
                class: first_class(key.protocol, tcp.as_ref()),
                own: Own::empty(),
                status: CtStatus::CONFIRMED,
            },
            tcp,
            ct: CtView {
                state,
                tracked: true,
                original: *key,
                reply: key.reversed(),
                ..CtView::default()
            },
            is_new_mapping: false,
            proof,
            expected: expected(walk, key),
        };
        if let Some(expected) = &draft.expected {
            draft.life.status |= CtStatus::EXPECTED;
            draft.ct.status |= CtStatus::EXPECTED;
            draft.ct.state = CtState::RELATED;
            draft.ct.mark = expected.mark;
        }
        match self.draft::<R, K>(walk, item, &mut draft) {
            Ok(fate) => fate,
            Err(fate) => {
                self.give_back_draft(walk, &draft);
                if fate == Fate::Drop(DropReason::FirewallRule)
                    && !walk.is_own()
                    && let Some(guard) = &mut self.guard
                {
                    guard.refused(key, walk.env.now);
                }
                fate
            }
        }
    }

    /// Takes a draft through the hooks and makes it a connection; an error ends it.
    fn draft<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
    ) -> Result<Fate, Fate> {
        let key = draft.key;
        self.enter(walk, item, draft)?;
        let middle = halfway(&key, &draft.target);
        if middle != key && !rewrite(item.frame, &item.layout, &middle) {
            return Err(Fate::Drop(DropReason::TransportTruncated));
        }
        let route = walk.route(item, middle.destination);
        let oif = match route {
            Route::Local => InterfaceId::NONE,
            Route::Forward(oif) => oif,
            Route::None => {
                // No state for what goes nowhere: the node tells the sender about the packet as it came.
                restore(item, &key);
                return Err(Fate::Accept);
            }
        };
        draft.ct.reply = draft.target.reversed();
        draft.ct.status = draft.life.status;
        let ended = self.onward(walk, item, &key, middle.destination, &mut draft.ct);
        if let Some(fate) = ended {
            return Err(fate);
        }
        if !walk.is_own() {
            self.check_proof(walk, item, draft, route, middle.destination)?;
        }
        if route != Route::Local {
            self.leave(walk, item, draft, oif)?;
        }
        let is_proxied = matches!(draft.proof, Proof::Given(_));
        if self.effects.changes.contains(Changes::NOTRACK) && !is_proxied {
            restore(item, &key);
            return Err(Fate::Accept);
        }
        self.count(walk, item, draft)?;
        if let Some(expected) = &draft.expected {
            let expectations = &walk.shared.expectations;
            if !expectations.take(&mut self.expectations, &expected.found) {
                // Another packet was faster: this one may be of its connection, and is sent again.
                restore(item, &draft.key);
                return Err(Fate::Drop(DropReason::CtClash));
            }
            if expected.found.expectation.is_mapped {
                draft.life.own |= Own::MAPPED_DESTINATION;
            }
        }
        self.insert::<R, K>(walk, item, draft)
    }

    /// Prerouting or output: rules, then the translation of the destination.
    fn enter<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
    ) -> Result<(), Fate> {
        let key = draft.key;
        let to = &key.destination;
        let verdict = self.ask_first(walk, Stage::Filter, item, to, &mut draft.ct);
        if let Some(fate) = self.ended_by(walk, item, &key, verdict) {
            return Err(fate);
        }
        if let Some(expected) = draft.expected.filter(|expected| expected.follows) {
            (draft.target.destination, draft.target.destination_port) = expected.destination;
            if draft.target != draft.key {
                draft.life.status |= CtStatus::DNAT;
                draft.ct.status |= CtStatus::DNAT;
            }
            return Ok(());
        }
        if self.admit(walk, draft) {
            return Ok(());
        }
        let verdict = self.ask_first(walk, Stage::Nat, item, to, &mut draft.ct);
        match verdict {
            Verdict::Nat(request) => self.translate_destination(walk, item, draft, &request),
            verdict => match self.ended_by(walk, item, &key, verdict) {
                Some(fate) => Err(fate),
                None => Ok(()),
            },
        }
    }

    /// Lets a packet from outside in by a mapping of somebody inside, as the filtering allows (RFC 4787 5); a packet
    /// from inside to such an endpoint is a hairpin (RFC 4787 6): its source is to be translated as well.
    fn admit<R: Rules>(&mut self, walk: &Walk<'_, R>, draft: &mut Draft) -> bool {
        let key = &draft.key;
        let Some(space) = PortSpace::of(key.protocol).filter(|_| is_ipv4(key)) else {
            return false;
        };
        let nat = walk.shared.nat();
        let outer = Endpoint {
            address: unmapped(key.destination),
            port: port_of_destination(key),
            space,
        };
        if space == PortSpace::Icmp || nat.inner_of(outer).is_none() {
            return false;
        }
        let own = Endpoint {
            address: unmapped(key.source),
            port: key.source_port,
            space,
        };
        // A host inside is known to its peers by its outer address.
        let seen_as = nat.outer_of(own).map_or(own.address, |outer| outer.address);
        let Some(inner) = nat.admit(outer, seen_as) else {
            return false;
        };
        let request = MappingRequest {
            inner,
            first: outer.address,
            last: outer.address,
            ports: None,
            random: false,
        };
        let used = nat.acquire(&mut self.nat, &request, 0, walk.env.now);
        let used = used.map(|mapped| mapped.outer);
        if used != Ok(outer) {
            if used.is_ok() {
                nat.release(inner, walk.env.now);
            }
            return false;
        }
        draft.life.own |= Own::MAPPED_DESTINATION;
        draft.life.status |= CtStatus::DNAT;
        draft.ct.status |= CtStatus::DNAT;
        draft.target.destination = mapped(inner.address);
        draft.target.destination_port = inner.port;
        true
    }

    /// Translates the destination as a rule asks.
    fn translate_destination<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &Item<'_>,
        draft: &mut Draft,
        request: &NatRequest,
    ) -> Result<(), Fate> {
        let v4 = is_ipv4(&draft.key);
        let own = walk.env.interface(item.iif);
        let range = match (request.kind, request.addresses) {
            (NatKind::Redirect, _) => {
                let address = if v4 {
                    own.v4.map(mapped)
                } else {
                    own.v6.map(u128::to_be_bytes)
                };
                let address = address.ok_or(Fate::Drop(DropReason::NatNoPort))?;
                Some((address, address))
            }
            (NatKind::Destination, range) => range,
            // A source translation has no place here.
            _ => return Ok(()),
        };
        let choice = self.choice(walk, &draft.key, request.flags);
        if let Some(range) = range {
            let netmap = request.flags.contains(NatFlags::NETMAP);
            draft.target.destination = choose(range, &draft.key.destination, netmap, choice);
        }
        let has_ports = matches!(draft.key.protocol, ip_protocol::TCP | ip_protocol::UDP);
        if let Some((first, last)) = request.ports.filter(|_| has_ports) {
            let own = draft.key.destination_port;
            draft.target.destination_port = if (first..=last).contains(&own) {
                own
            } else {
                first + (choice % (u32::from(last.saturating_sub(first)) + 1)) as u16
            };
        }
        if draft.target != draft.key {
            draft.life.status |= CtStatus::DNAT;
            draft.ct.status |= CtStatus::DNAT;
        }
        Ok(())
    }

    /// Postrouting: the translation of the source.
    fn leave<R: Rules>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
        oif: InterfaceId,
    ) -> Result<(), Fate> {
        let key = draft.key;
        if let Some(expected) = draft.expected.filter(|expected| expected.follows) {
            let Some(source) = expected.source else {
                return Ok(());
            };
            let request = NatRequest {
                kind: NatKind::Source,
                flags: NatFlags::empty(),
                addresses: Some((source, source)),
                ports: None,
                rule: RuleId::POLICY,
            };
            return self.translate_source(walk, item, draft, &request, oif);
        }
        let hook = Hook::Postrouting;
        let verdict = self.ask(walk, Stage::Nat, hook, item, oif, &mut draft.ct);
        match verdict {
            Verdict::Nat(request) => {
                self.translate_source(walk, item, draft, &request, oif)?;
            }
            verdict => {
                if let Some(fate) = self.ended_by(walk, item, &key, verdict) {
                    return Err(fate);
                }
            }
        }
        let hairpin = draft.life.own.contains(Own::MAPPED_DESTINATION)
            && !draft.life.own.contains(Own::MAPPED)
            && walk.shared.policy.nat.hairpin
            && (oif == item.iif || self.is_inside(walk, &key));
        if hairpin {
            // RFC 4787 REQ-9a: the source that the inner host sees is an outer one.
            let outer = unmapped(key.destination);
            self.map_source(walk, item, draft, (outer, outer), None, false)?;
        }
        Ok(())
    }

    /// Tells whether the source is an inner endpoint with a mapping.
    fn is_inside<R: Rules>(&self, walk: &Walk<'_, R>, key: &FlowKey) -> bool {
        PortSpace::of(key.protocol).is_some_and(|space| {
            let own = Endpoint {
                address: unmapped(key.source),
                port: key.source_port,
                space,
            };
            walk.shared.nat().outer_of(own).is_some()
        })
    }

    fn translate_source<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
        request: &NatRequest,
        oif: InterfaceId,
    ) -> Result<(), Fate> {
        let v4 = is_ipv4(&draft.key);
        let out = walk.env.interface(oif);
        let range = match request.kind {
            NatKind::Masquerade => {
                let address = if v4 {
                    out.v4.map(mapped)
                } else {
                    out.v6.map(u128::to_be_bytes)
                };
                let address = address.ok_or(Fate::Drop(DropReason::NatNoPort))?;
                (address, address)
            }
            NatKind::Source => request
                .addresses
                .unwrap_or((draft.key.source, draft.key.source)),
            // A destination translation has no place here.
            _ => return Ok(()),
        };
        let random = request
            .flags
            .intersects(NatFlags::RANDOM | NatFlags::FULLY_RANDOM);
        let netmap = request.flags.contains(NatFlags::NETMAP);
        if v4 && !netmap && PortSpace::of(draft.key.protocol).is_some() {
            let range = (unmapped(range.0), unmapped(range.1));
            return self.map_source(walk, item, draft, range, request.ports, random);
        }
        let choice = self.choice(walk, &draft.key, request.flags);
        draft.target.source = choose(range, &draft.key.source, netmap, choice);
        let has_ports = matches!(draft.key.protocol, ip_protocol::TCP | ip_protocol::UDP);
        if let Some((first, last)) = request.ports.filter(|_| has_ports && !netmap) {
            let span = u32::from(last.saturating_sub(first)) + 1;
            draft.target.source_port = first + (self.random() % span) as u16;
        } else if random && has_ports {
            draft.target.source_port = 1024 + (self.random() % 64_512) as u16;
        }
        if draft.target != halfway(&draft.key, &draft.target) {
            draft.life.status |= CtStatus::SNAT;
        }
        Ok(())
    }

    /// Gives the source its endpoint-independent mapping.
    fn map_source<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
        (first, last): (u32, u32),
        ports: Option<(u16, u16)>,
        random: bool,
    ) -> Result<(), Fate> {
        let Some(space) = PortSpace::of(draft.key.protocol) else {
            return Ok(());
        };
        let request = MappingRequest {
            inner: Endpoint {
                address: unmapped(draft.key.source),
                port: draft.key.source_port,
                space,
            },
            first,
            last,
            ports,
            random,
        };
        let drawn = self.random();
        let nat = walk.shared.nat();
        let outer = match nat.acquire(&mut self.nat, &request, drawn, walk.env.now) {
            Ok(mapped) => {
                draft.is_new_mapping = mapped.is_new;
                mapped.outer
            }
            Err(error) => {
                self.tally.refused += 1;
                restore(item, &draft.key);
                // RFC 5508 REQ-8, RFC 6888 REQ-11: administratively prohibited.
                if error != MappingError::Busy {
                    self.answer_unreachable(walk.env, item, 13);
                }
                return Err(Fate::Drop(DropReason::NatNoPort));
            }
        };
        let remote = unmapped(draft.target.destination);
        nat.permit(&mut self.nat, outer, remote);
        draft.life.own |= Own::MAPPED;
        draft.life.status |= CtStatus::SNAT;
        draft.target.source = mapped(outer.address);
        draft.target.source_port = outer.port;
        Ok(())
    }

    /// A number that chooses among addresses: the same for a client if it is to keep its address.
    fn choice<R>(&mut self, walk: &Walk<'_, R>, key: &FlowKey, flags: NatFlags) -> u32 {
        if flags.contains(NatFlags::FULLY_RANDOM) {
            return self.random();
        }
        let source = u128::from_be_bytes(key.source);
        let port = if flags.contains(NatFlags::PERSISTENT) {
            0
        } else {
            u64::from(key.source_port)
        };
        let words = [(source >> 64) as u64, source as u64, port];
        walk.shared.hash.hash_words(&words) as u32
    }

    /// Counts the connection for its source.
    fn count<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
    ) -> Result<(), Fate> {
        let limit = walk.shared.policy.per_source;
        if limit == 0 {
            return Ok(());
        }
        let source = source_id(&draft.key);
        let raised = walk
            .shared
            .sources
            .raise(&mut self.sources, source, limit.into());
        if raised.is_err() {
            restore(item, &draft.key);
            return Err(Fate::Drop(DropReason::CtSourceLimit));
        }
        draft.life.own |= Own::COUNTED;
        Ok(())
    }

    /// Puts the connection into the table and lets its first packet go on, translated.
    fn insert<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
    ) -> Result<Fate, Fate> {
        if item.layout.flags.contains(LayoutFlags::FRAGMENT)
            && let Some(tcp) = &mut draft.tcp
        {
            tcp.flags |= crate::track::tcp::TcpFlags::LIBERAL;
        }
        draft.life.deadline = walk.tick.after(walk.shared.limits.of(draft.life.class));
        if draft.ct.helper != HelperId::NONE {
            draft.life.status |= CtStatus::HELPER;
        }
        let start = Start {
            life: draft.life,
            tcp: draft.tcp,
            mark: draft.ct.mark,
            zone: draft.ct.zone,
            helper: draft.ct.helper,
            proxied: match draft.proof {
                Proof::Given(opening) => Some(opening.given),
                Proof::None | Proof::Wanted => None,
            },
        };
        let (original_words, reply_words) = start.words();
        let flows = K::flows(walk.shared);
        let original = K::from_flow(&draft.key);
        for attempt in 0..PORT_TRIES {
            let reply = K::from_flow(&draft.target.reversed());
            let handle = K::handle(&mut self.flows);
            let made = flows.insert_pair(
                handle,
                &original,
                Some(&reply),
                &original_words,
                &reply_words,
            );
            match made {
                Ok(made) => {
                    self.tally.made += 1;
                    self.note::<K>(true, made, walk.env.now);
                    let done = draft.target == draft.key
                        || rewrite(item.frame, &item.layout, &draft.target);
                    if !done {
                        // The connection stays; its sender will try again.
                        return Ok(Fate::Drop(DropReason::TransportTruncated));
                    }
                    return Ok(self.inspect_first::<R, K>(walk, item, draft, made));
                }
                Err(FlowError::Exists(flow)) => {
                    // Another worker was faster: the packet is one of its connection.
                    if matches!(draft.proof, Proof::Given(_)) {
                        return Err(Fate::Consumed);
                    }
                    restore(item, &draft.key);
                    let key = draft.key;
                    let fate = self
                        .hit::<R, K>(walk, item, &key, flow)
                        .unwrap_or(Fate::Drop(DropReason::CtClash));
                    return Err(fate);
                }
                Err(FlowError::ReplyTaken) if self.can_retry(draft) && attempt + 1 < PORT_TRIES => {
                    draft.target.source_port = 1024 + (self.random() % 64_512) as u16;
                }
                Err(FlowError::ReplyTaken) => {
                    restore(item, &draft.key);
                    return Err(Fate::Drop(DropReason::CtClash));
                }
                Err(_) => return Err(self.refuse(walk, item, draft)),
            }
        }
        restore(item, &draft.key);
        Err(Fate::Drop(DropReason::CtClash))
    }

    /// Lets the helper of a new connection see the first packet.
    fn inspect_first<R: Rules, K: Table>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &Draft,
        connection: SlotRef,
    ) -> Fate {
        let is_helped =
            draft.life.status.contains(CtStatus::HELPER) && !draft.life.own.contains(Own::PROXIED);
        let record = record_of::<K>(walk.shared, connection);
        let Some(record) = record.filter(|_| is_helped) else {
            return Fate::Accept;
        };
        let passage = Passage {
            key: &draft.key,
            target: &draft.target,
            connection,
            record: &record,
            life: draft.life,
            direction: CtDirection::Original,
        };
        self.inspect::<R, K>(walk, item, &passage)
    }

    /// Tells whether another source port may be tried: a translated source without a mapping.
    fn can_retry(&self, draft: &Draft) -> bool {
        draft.life.status.contains(CtStatus::SNAT)
            && !draft.life.own.contains(Own::MAPPED)
            && matches!(draft.key.protocol, ip_protocol::TCP | ip_protocol::UDP)
    }

    /// The table is full.
    fn refuse<R: Rules>(&mut self, walk: &Walk<'_, R>, item: &mut Item<'_>, draft: &Draft) -> Fate {
        self.tally.refused += 1;
        restore(item, &draft.key);
        let untranslated = draft.target == draft.key;
        match walk.shared.policy.full {
            FullPolicy::PassUntracked if untranslated => Fate::Accept,
            FullPolicy::PassUntracked | FullPolicy::Refuse => Fate::Drop(DropReason::CtTableFull),
        }
    }

    fn give_back_draft<R: Rules>(&mut self, walk: &Walk<'_, R>, draft: &Draft) {
        let reply = draft.target.reversed();
        let mut life = draft.life;
        if draft.is_new_mapping
            && life.own.contains(Own::MAPPED)
            && let Some(space) = PortSpace::of(draft.key.protocol)
        {
            let endpoint = |address, port| Endpoint {
                address: unmapped(address),
                port,
                space,
            };
            let outer = endpoint(draft.target.source, draft.target.source_port);
            let inner = endpoint(draft.key.source, draft.key.source_port);
            let nat = walk.shared.nat();
            let remote = unmapped(draft.target.destination);
            nat.forbid(&mut self.nat, outer, remote);
            nat.cancel(&mut self.nat, inner, walk.env.now);
            life.own -= Own::MAPPED;
        }
        self.give_back(walk.shared, &life, &draft.key, &reply, walk.env.now);
    }
}

pub(super) fn start_tcp<R: Rules>(
    walk: &Walk<'_, R>,
    segment: &Segment,
) -> Result<Tcp, crate::track::tcp::Invalid> {
    Tcp::start(segment, walk.shared.policy.pickup)
}

fn first_class(protocol: u8, tcp: Option<&Tcp>) -> Class {
    match (protocol, tcp) {
        (_, Some(tcp)) => Class::of_tcp(tcp.state),
        (ip_protocol::UDP, _) => Class::UdpOneWay,
        (ip_protocol::ICMP | ip_protocol::ICMPV6, _) => Class::Icmp,
        _ => Class::Other,
    }
}

/// Chooses an address of a range: by number, or the one with the same host bits.
fn choose(
    (first, last): ([u8; 16], [u8; 16]),
    old: &[u8; 16],
    netmap: bool,
    choice: u32,
) -> [u8; 16] {
    let (low, high) = (u128::from_be_bytes(first), u128::from_be_bytes(last));
    let Some(more) = high.checked_sub(low).filter(|more| *more > 0) else {
        return first;
    };
    if netmap {
        // An aligned block: the bits in which its ends differ are the host's.
        return (low | u128::from_be_bytes(*old) & (low ^ high)).to_be_bytes();
    }
    (low + u128::from(choice) % (more + 1)).to_be_bytes()
}
