//! The SYN proxy (RFC 4987 3.6, 3.8): a SYN is answered by a cookie, without any state; who acknowledges it gets a
//! connection, and the node opens it to the server in the client's name.
//!
//! ```text
//! client            node                server
//!   SYN      ->
//!            <- SYN-ACK, cookie, window 0        nothing is kept
//!   ACK      ->     SYN             ->           the rules are asked as by the SYN; kept: the cookie
//!                                   <- SYN-ACK   kept: how the server's numbers differ from the cookie's
//!            <- ACK, window; ACK    ->
//! ```
//! From then on the server's sequence numbers, timestamps, selective acknowledgements and window scale are
//! translated in both directions. A lost SYN is sent again when the client probes the closed window.

use core::net::Ipv6Addr;
use core::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use tables::flow_map::Flow;
use tables::signature::SipHash13;
use wire::tcp::{ACKNOWLEDGEMENT, Flags, OPTIONS_BYTES_MAX, Options, SEQUENCE, TcpOption};
use wire::{Addresses, DropReason, FlowKey, Instant, Layout, LayoutFlags, ipv6, tcp};

use super::answer::{ETHERNET_BYTES, SegmentOut, addresses_of, write_segment, write_segment_back};
use super::hit::target_of;
use super::item::{Fate, Item};
use super::miss::{Draft, Opening, Proof, start_tcp};
use super::outbox::Way;
use super::rules::{Rules, Stage};
use super::shared::Table;
use super::walk::{Route, Walk, restore};
use super::worker::{Worker, direction_of, segment_of};
use crate::guard::cookie::{Cookies, Offer};
use crate::nat::rewrite::{rewrite, set_tcp_number, set_window, shift_timestamps};
use crate::packet::{CtDirection, CtState, CtStatus, CtView, FibQuery, Hook, InterfaceId};
use crate::track::record::{Own, Proxied, Record};
use crate::track::tcp::{Outcome, Segment, TcpState};
use crate::track::timeout::Class;
use crate::verdict::{Changes, Synproxy};

/// A cookie is good for two steps of 64 s; so long after the last one, no acknowledgement answers any.
const COOKIES_LAST_S: u64 = 128;
/// The window scale that is announced when no rule says one: that of most servers.
const SCALE: u8 = 7;
/// The longest SYN.
const SYN_BYTES_MAX: usize =
    ETHERNET_BYTES + ipv6::HEADER_BYTES + tcp::HEADER_BYTES + OPTIONS_BYTES_MAX;

/// What all workers know of handshakes that the node answers.
#[derive(Debug)]
pub(crate) struct Handshakes {
    cookies: Cookies,
    /// When a cookie was sent last, seconds.
    last_s: AtomicU64,
}

impl Handshakes {
    /// Derives the secret of the cookies from the tables' key.
    pub(crate) fn new(key: [u64; 4]) -> Self {
        let hash = SipHash13::new([
            key[0] ^ key[2].rotate_left(17),
            key[1] ^ key[3].rotate_left(17),
        ]);
        Self {
            cookies: Cookies::new(hash),
            last_s: AtomicU64::new(0),
        }
    }

    /// Tells whether a cookie may be on its way: only then are acknowledgements looked at, so that guesses have no
    /// chance in quiet times.
    fn is_expecting(&self, now: Instant) -> bool {
        // Relaxed: a hint of a time long past.
        let last = self.last_s.load(Ordering::Relaxed);
        last != 0 && seconds(now) <= last + COOKIES_LAST_S
    }

    pub(super) fn note(&self, now: Instant) {
        let now = seconds(now).max(1);
        if self.last_s.load(Ordering::Relaxed) != now {
            self.last_s.store(now, Ordering::Relaxed);
        }
    }
}

const fn seconds(now: Instant) -> u64 {
    now.as_ns() / 1_000_000_000
}

impl Worker {
    /// Asks the sender of a packet that the rules let start a connection for proof, if a rule or the guard wants one;
    /// of one that gave it, notes what it was told. The node's own host is no server to open a connection to: for it, a
    /// SYN has to come twice.
    pub(super) fn check_proof<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        draft: &mut Draft,
        route: Route,
        server: [u8; 16],
    ) -> Result<(), Fate> {
        let by_rule = self.effects.synproxy;
        match &draft.proof {
            Proof::Given(opening) => {
                let scale = by_rule.map_or(Some(opening.scale), |rule| rule.window_scale);
                if let Some(tcp) = &mut draft.tcp
                    && opening.scales
                {
                    tcp.announced = scale.unwrap_or(0);
                }
                draft.life.own |= Own::PROXIED;
                if route == Route::Local {
                    return Err(Fate::Drop(DropReason::GuardSynCookie));
                }
                Ok(())
            }
            Proof::Wanted if route == Route::Local => {
                let sequence = segment_of(item).map_or(0, |segment| segment.sequence);
                let guard = self.guard.as_mut();
                match guard.and_then(|guard| guard.check_retry(&draft.key, sequence, walk.env.now))
                {
                    Some(reason) => Err(Fate::Drop(reason)),
                    None => Ok(()),
                }
            }
            _ if route == Route::Local || draft.tcp.is_none() => Ok(()),
            Proof::None if by_rule.is_none() => Ok(()),
            _ => {
                let options = by_rule.unwrap_or_else(|| announcement(walk, server));
                Err(self.ask_for_proof(walk, item, &draft.key, &options))
            }
        }
    }

    /// Answers a SYN by a cookie, or drops what answers none: for a packet that is to prove its sender. `key` is what
    /// it looked like on the wire.
    pub(super) fn ask_for_proof<R: Rules>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        options: &Synproxy,
    ) -> Fate {
        restore(item, key);
        let dropped = Fate::Drop(DropReason::GuardSynCookie);
        let Some(segment) = segment_of(item) else {
            return dropped;
        };
        if segment.flags.contains(Flags::ACK) || !segment.flags.contains(Flags::SYN) {
            return dropped;
        }
        let offered = Offer::of_syn(options_of(&item.layout, item.frame));
        // Without timestamps, the cookie has no room for the others.
        let timestamp = offered.timestamp.filter(|_| options.timestamps);
        let offer = Offer {
            size: offered.size,
            scale: offered
                .scale
                .filter(|_| options.window_scale.is_some() && timestamp.is_some()),
            sack: offered.sack && options.sack && timestamp.is_some(),
            timestamp,
        };
        let now = walk.env.now;
        let handshakes = &walk.shared.handshakes;
        let announced = [
            (options.mss != 0).then_some(TcpOption::MaximumSegmentSize(options.mss)),
            offer.sack.then_some(TcpOption::SackPermitted),
            timestamp.map(|echo| TcpOption::Timestamps {
                value: Cookies::timestamp(&offer, now),
                echo,
            }),
            options
                .window_scale
                .filter(|_| offer.scale.is_some())
                .map(TcpOption::WindowScale),
        ];
        let announced: ArrayVec<TcpOption<'_>, 4> = announced.into_iter().flatten().collect();
        let answer = SegmentOut {
            flags: Flags::SYN | Flags::ACK,
            sequence: handshakes.cookies.make(key, segment.sequence, &offer, now),
            acknowledgement: segment.sequence.wrapping_add(1),
            // No data before the server is there.
            window: 0,
            options: &announced,
        };
        self.outbox.push(Way::Output, item.iif, |buffer| {
            write_segment_back(buffer, &item.layout, item.frame, &answer)
        });
        handshakes.note(now);
        dropped
    }

    /// Opens a connection to the server if a segment of no connection answers a cookie; `None` if it does not.
    pub(super) fn prove<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        segment: &Segment,
    ) -> Option<Fate> {
        if !walk.shared.handshakes.is_expecting(walk.env.now)
            || !segment.flags.contains(Flags::ACK)
            || segment.flags.intersects(Flags::SYN | Flags::RST)
            || item.layout.flags.contains(LayoutFlags::FRAGMENT)
        {
            return None;
        }
        let stamps = timestamps_of(&item.layout, item.frame);
        let offer = walk.shared.handshakes.cookies.check(
            key,
            segment.sequence,
            segment.acknowledgement,
            stamps.map(|(_, echo)| echo),
            walk.env.now,
        )?;
        let mut buffer = [0; SYN_BYTES_MAX];
        let first = segment.sequence.wrapping_sub(1);
        let value = stamps.map(|(value, _)| value);
        let bytes = write_syn(&mut buffer, item, first, segment.window, &offer, value)?;
        let frame = buffer.get_mut(..bytes)?;
        let layout = wire::parse(frame).ok()?;
        let mut syn = Item {
            frame,
            layout,
            iif: item.iif,
            mark: item.mark,
        };
        let opening = Opening {
            given: Proxied {
                timestamp: offer.timestamp.unwrap_or(0),
                sequence: segment.acknowledgement.wrapping_sub(1),
            },
            scale: SCALE,
            scales: offer.scale.is_some(),
        };
        let fate = self.open::<R, K>(walk, &mut syn, key, opening);
        Some(match fate {
            Fate::Accept if syn.layout.flags.contains(LayoutFlags::TRANSPORT) => {
                self.send_copy(item.iif, syn.frame);
                Fate::Consumed
            }
            other => other,
        })
    }

    /// Takes the SYN of a client that is there through the rules, as its first one was, and makes the connection.
    fn open<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        syn: &mut Item<'_>,
        key: &FlowKey,
        opening: Opening,
    ) -> Fate {
        let mut state = CtState::NEW;
        if walk.rules.has(Stage::Raw, Hook::Prerouting) {
            self.begin_walk();
            let mut ct = CtView {
                state: CtState::UNTRACKED,
                ..CtView::default()
            };
            let none = InterfaceId::NONE;
            let verdict = self.ask(walk, Stage::Raw, Hook::Prerouting, syn, none, &mut ct);
            if let Some(fate) = self.ended_by(walk, syn, key, verdict) {
                return fate;
            }
            if self.effects.changes.contains(Changes::NOTRACK) {
                // So the rules saw its first one.
                state = CtState::UNTRACKED;
            }
        }
        let Some(Ok(tcp)) = segment_of(syn).map(|segment| start_tcp(walk, &segment)) else {
            return Fate::Drop(DropReason::GuardSynCookie);
        };
        self.start::<R, K>(walk, syn, key, Some(tcp), state, Proof::Given(opening))
    }

    /// Judges a packet of a connection whose client is there and whose server has not answered yet; `None` if the
    /// connection is over.
    #[cold]
    pub(super) fn opening<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        flow: Flow,
        record: &Record<'_>,
    ) -> Option<Fate> {
        let segment = segment_of(item)?;
        let direction = direction_of(flow.direction);
        if direction == CtDirection::Original {
            if segment.flags.contains(Flags::SYN) {
                // A client that has forgotten its connection.
                self.end::<K>(
                    walk.shared,
                    flow.connection,
                    record.life_word(),
                    walk.env.now,
                );
                return None;
            }
            if segment.flags.contains(Flags::RST) {
                return Some(self.give_up::<R, K>(walk, item, flow, record, &segment));
            }
            self.ask_again::<R, K>(walk, item, key, flow, &segment);
            return Some(Fate::Consumed);
        }
        if segment.flags.contains(Flags::RST) {
            return Some(self.give_up::<R, K>(walk, item, flow, record, &segment));
        }
        Some(self.answered::<R, K>(walk, item, flow, record, &segment))
    }

    /// A side resets a connection that is not open yet: the other is told in the numbers that it knows.
    fn give_up<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        flow: Flow,
        record: &Record<'_>,
        segment: &Segment,
    ) -> Fate {
        let direction = direction_of(flow.direction);
        let (outcome, _) = record.judge_tcp(|tcp| tcp.judge(direction, segment));
        if outcome != Outcome::Valid {
            return Fate::Drop(DropReason::CtInvalid);
        }
        if direction == CtDirection::Reply {
            let next = record.proxied().sequence.wrapping_add(1);
            let _ = set_tcp_number(item.frame, &item.layout, SEQUENCE, next);
        }
        let deadline = walk.tick.after(walk.shared.limits.of(Class::TcpClosing));
        let alive = record.update_life(|life| {
            life.class = Class::TcpClosing;
            life.deadline = deadline;
        });
        let target = target_of::<K, R>(walk, flow).filter(|_| alive);
        match target {
            Some(target) if rewrite(item.frame, &item.layout, &target) => Fate::Accept,
            _ => Fate::Drop(DropReason::CtInvalid),
        }
    }

    /// The client is waiting: sends the server another SYN, if the cookie still says what the first one was.
    fn ask_again<R: Rules, K: Table>(
        &mut self,
        walk: &Walk<'_, R>,
        item: &mut Item<'_>,
        key: &FlowKey,
        flow: Flow,
        segment: &Segment,
    ) {
        let stamps = timestamps_of(&item.layout, item.frame);
        let cookies = &walk.shared.handshakes.cookies;
        // A probe of a closed window may begin one number below what is due (RFC 9293 3.8.4).
        let found = [segment.sequence, segment.sequence.wrapping_add(1)]
            .into_iter()
            .find_map(|sequence| {
                let echo = stamps.map(|(_, echo)| echo);
                let ack = segment.acknowledgement;
                let offer = cookies.check(key, sequence, ack, echo, walk.env.now)?;
                Some((sequence.wrapping_sub(1), offer))
            });
        let (Some((first, offer)), Some(target)) = (found, target_of::<K, R>(walk, flow)) else {
            return;
        };
        let value = stamps.map(|(value, _)| value);
        self.outbox.push(Way::Output, item.iif, |buffer| {
            let bytes = write_syn(buffer, item, first, segment.window, &offer, value)?;
            let frame = buffer.get_mut(..bytes)?;
            let layout = wire::parse(frame).ok()?;
            rewrite(frame, &layout, &target).then_some(bytes)
        });
    }

    /// The server has answered: notes how its numbers differ, and tells both sides that the connection is open.
    fn answered<R: Rules, K: Table>(
        &mut self,
        walk: &mut Walk<'_, R>,
        item: &mut Item<'_>,
        flow: Flow,
        record: &Record<'_>,
        segment: &Segment,
    ) -> Fate {
        let invalid = Fate::Drop(DropReason::CtInvalid);
        let given = record.proxied();
        // What the client sent: the window of its ACK was the SYN's.
        let window = u16::try_from(record.tcp().sides[0].max_window).unwrap_or(u16::MAX);
        let client = Segment {
            sequence: segment.acknowledgement,
            acknowledgement: segment.end(),
            window,
            flags: Flags::ACK,
            ..Segment::default()
        };
        let (is_open, tcp) = record.judge_tcp(|tcp| {
            tcp.judge(CtDirection::Reply, segment) == Outcome::Valid
                && tcp.judge(CtDirection::Original, &client) == Outcome::Valid
                && tcp.state == TcpState::Established
        });
        let stamps = timestamps_of(&item.layout, item.frame);
        let (Some(target), true) = (target_of::<K, R>(walk, flow), is_open) else {
            return invalid;
        };
        let differences = Proxied {
            timestamp: stamps.map_or(0, |(value, _)| given.timestamp.wrapping_sub(value)),
            sequence: given.sequence.wrapping_sub(segment.sequence),
        };
        if !record.set_proxied(given, differences) {
            // Another worker has done all this.
            return Fate::Consumed;
        }
        let deadline = walk.tick.after(walk.shared.limits.of(Class::TcpOpen));
        record.update_life(|life| {
            life.own |= Own::SHIFTED;
            life.status |= CtStatus::SEEN_REPLY | CtStatus::ASSURED;
            life.class = Class::TcpOpen;
            life.deadline = deadline;
        });
        let stamp = |value, echo| TcpOption::Timestamps { value, echo };
        let options = stamps.map(|(value, echo)| stamp(echo, value));
        let to_server = SegmentOut {
            flags: Flags::ACK,
            sequence: client.sequence,
            acknowledgement: client.acknowledgement,
            window,
            options: options.as_slice(),
        };
        self.outbox.push(Way::Output, item.iif, |buffer| {
            write_segment_back(buffer, &item.layout, item.frame, &to_server)
        });
        let options = stamps.map(|(_, echo)| stamp(given.timestamp, echo));
        let to_client = SegmentOut {
            flags: Flags::ACK,
            sequence: given.sequence.wrapping_add(1),
            acknowledgement: client.sequence,
            // The window of a SYN is not scaled.
            window: segment.window >> tcp.announced,
            options: options.as_slice(),
        };
        let ports = (target.source_port, target.destination_port);
        self.outbox.push(Way::Output, item.iif, |buffer| {
            let _ = rewrite(item.frame, &item.layout, &target);
            let addresses = addresses_of(&item.layout, item.frame)?;
            write_segment(buffer, &addresses, ports, &to_client)
        });
        Fate::Consumed
    }

    fn send_copy(&mut self, iif: InterfaceId, frame: &[u8]) {
        self.outbox.push(Way::Output, iif, |buffer| {
            buffer.get_mut(..frame.len())?.copy_from_slice(frame);
            Some(frame.len())
        });
    }
}

/// What the node announces to a client when the guard, not a rule, asks for proof: segments that the way to the
/// server takes.
fn announcement<R: Rules>(walk: &Walk<'_, R>, server: [u8; 16]) -> Synproxy {
    let answer = walk.env.fib.lookup(&FibQuery {
        address: server,
        mark: None,
        interface: None,
    });
    let mtu = if answer.mtu == 0 { 1500 } else { answer.mtu };
    let headers = if Ipv6Addr::from(server).to_ipv4_mapped().is_some() {
        40
    } else {
        60
    };
    Synproxy {
        // RFC 9293 3.7.1: at least the default.
        mss: mtu.saturating_sub(headers).max(536),
        window_scale: Some(SCALE),
        timestamps: true,
        sack: true,
    }
}

/// Translates the numbers of a segment of a connection whose handshake the node did.
#[cold]
pub(super) fn translate(item: &mut Item<'_>, record: &Record<'_>, direction: CtDirection) {
    let Some(segment) = segment_of(item) else {
        return;
    };
    let by = record.proxied();
    let (frame, layout) = (&mut *item.frame, &item.layout);
    // Each does nothing where the frame has no such field.
    if direction == CtDirection::Reply {
        let sequence = segment.sequence.wrapping_add(by.sequence);
        let _ = set_tcp_number(frame, layout, SEQUENCE, sequence);
        let _ = shift_timestamps(frame, layout, by.timestamp, 0);
        let tcp = record.tcp();
        let scale = tcp.sides[1].scale;
        if scale != tcp.announced && !segment.flags.contains(Flags::SYN) {
            let window = u32::from(segment.window) << scale >> tcp.announced;
            let _ = set_window(frame, layout, window.min(u16::MAX.into()) as u16);
        }
    } else {
        if segment.flags.contains(Flags::ACK) {
            let ack = segment.acknowledgement.wrapping_sub(by.sequence);
            let _ = set_tcp_number(frame, layout, ACKNOWLEDGEMENT, ack);
            crate::alg::sack::shift_blocks(frame, layout, |edge| edge.wrapping_sub(by.sequence));
        }
        let _ = shift_timestamps(frame, layout, 0, by.timestamp.wrapping_neg());
    }
}

/// Writes the SYN that a client's answer to a cookie stands for, from the client to its destination as it knows it;
/// returns the frame's length.
fn write_syn(
    buffer: &mut [u8],
    item: &Item<'_>,
    sequence: u32,
    window: u16,
    offer: &Offer,
    timestamp: Option<u32>,
) -> Option<usize> {
    let options = [
        Some(TcpOption::MaximumSegmentSize(offer.size)),
        offer.sack.then_some(TcpOption::SackPermitted),
        timestamp.map(|value| TcpOption::Timestamps { value, echo: 0 }),
        offer.scale.map(TcpOption::WindowScale),
    ];
    let options: ArrayVec<TcpOption<'_>, 4> = options.into_iter().flatten().collect();
    let addresses: Addresses = addresses_of(&item.layout, item.frame)?;
    let key = FlowKey::from_layout(&item.layout, item.frame)?;
    let segment = SegmentOut {
        flags: Flags::SYN,
        sequence,
        acknowledgement: 0,
        window,
        options: &options,
    };
    let ports = (key.source_port, key.destination_port);
    write_segment(buffer, &addresses, ports, &segment)
}

fn options_of<'a>(layout: &Layout, frame: &'a [u8]) -> Options<'a> {
    let start = usize::from(layout.transport) + tcp::HEADER_BYTES;
    Options::new(frame.get(start..layout.payload.into()).unwrap_or_default())
}

/// The timestamps of a segment: its own and the one that it echoes.
fn timestamps_of(layout: &Layout, frame: &[u8]) -> Option<(u32, u32)> {
    options_of(layout, frame)
        .map_while(Result::ok)
        .find_map(|option| match option {
            TcpOption::Timestamps { value, echo } => Some((value, echo)),
            _ => None,
        })
}
