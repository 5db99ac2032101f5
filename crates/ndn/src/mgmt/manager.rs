//! Dispatch: which Interest is which command, dataset or stream.

use alloc::string::String;
use alloc::vec::Vec;

use wire::Instant;
use wire::ndn::name::Name;
use wire::ndn::{Data, DataFields, Interest, NameRef};

use super::authorize::{Authorization, Denied};
use super::command::{Command, CommandError};
use super::control::Control;
use super::datasets::{self, FaceFilter};
use super::events::{self, FaceEventKind};
use super::prefix_announcement::PrefixAnnouncement;
use super::publish::{self, Published};
use super::response::ControlResponse;
use super::rib_commands;
use crate::face::{Face, FaceId};
use crate::forwarder::Learned;
use crate::rib::{FibUpdate, Rib, RibError, Route, origin};

/// The longest lifetime of a learned route (ms), as in NFD.
const LEARNED_MS_MAX: u64 = 600_000;

/// Sizes and texts of management.
#[derive(Clone, Debug)]
pub struct ManagementConfig {
    /// What ForwarderStatus says about the program.
    pub version: String,
    /// When the program started (Unix ms).
    pub start_unix_ms: u64,
    /// Routes that the RIB holds at most.
    pub routes: usize,
    /// Answer commands under `/localhop/nfd/rib` too: from other machines.
    pub localhop: bool,
}

/// The time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Of the engines.
    pub instant: Instant,
    /// Of the day (Unix ms).
    pub unix_ms: u64,
}

/// Answers management Interests.
#[derive(Debug)]
pub struct Management<A> {
    config: ManagementConfig,
    localhost: Name,
    localhop: Name,
    authorization: A,
    pub(super) rib: Rib,
    published: Published,
    next_event: u64,
    last_version: u64,
}

impl<A: Authorization> Management<A> {
    /// Makes one with an empty RIB.
    pub fn new(config: ManagementConfig, authorization: A) -> Self {
        let name = |uri: &str| uri.parse::<Name>().unwrap_or_default();
        Self {
            rib: Rib::new(config.routes),
            config,
            localhost: name("/localhost/nfd"),
            localhop: name("/localhop/nfd"),
            authorization,
            published: Published::default(),
            next_event: 0,
            last_version: 0,
        }
    }

    /// Returns the RIB.
    pub const fn rib(&self) -> &Rib {
        &self.rib
    }

    /// Adds a route that no command asked for, e.g. of the configuration.
    ///
    /// # Errors
    /// [`RibError`].
    pub fn add_route(
        &mut self,
        prefix: NameRef<'_>,
        route: Route,
        now: Instant,
        control: &mut impl Control,
    ) -> Result<(), RibError> {
        let mut updates = Vec::new();
        let added = self.rib.register(prefix, route, &mut updates);
        apply(&updates, now, control);
        added
    }

    /// Answers an Interest that came from `ingress`; `None` if nothing is to be said, as for an event that did
    /// not happen yet.
    pub fn handle(
        &mut self,
        now: Now,
        interest: &Interest<'_>,
        ingress: FaceId,
        control: &mut impl Control,
    ) -> Option<Vec<u8>> {
        let is_local = self.localhost.as_ref().is_prefix_of(&interest.name);
        let is_remote = self.config.localhop && self.localhop.as_ref().is_prefix_of(&interest.name);
        if !is_local && !is_remote {
            return None;
        }
        if let Some(packet) = self.published.find(interest) {
            return Some(packet.to_vec());
        }
        let mut components = interest.name.components().skip(2);
        let module = components.next()?.value;
        let verb = components.next()?.value;
        if is_local && let Some(content) = self.dataset(now, module, verb, control) {
            // A later segment that is no longer kept is not made again: its version is another.
            if interest.name.len() > 4 {
                return None;
            }
            return Some(self.publish(now, interest, &content));
        }
        if is_local && (module, verb) == (b"faces", b"query") {
            return Some(self.query(now, interest, control));
        }
        if (module, verb) == (b"faces", b"events") {
            return None;
        }
        let prefix = if is_local {
            &self.localhost
        } else {
            &self.localhop
        };
        let prefix = prefix.clone();
        let response = self.command(now, interest, &prefix, is_local, ingress, control);
        Some(publish::answer(interest.name, &response.encode(), false))
    }

    /// Publishes what happened to a face: give the packet to the forwarder as if it came from the internal
    /// face.
    pub fn face_event(&mut self, kind: FaceEventKind, face: &Face) -> Vec<u8> {
        let name = self
            .localhost
            .with_generic(b"faces")
            .with_generic(b"events");
        let name = name.with_sequence_num(self.next_event);
        self.next_event += 1;
        let content = events::encode(kind, face);
        let packet = publish::encode(&DataFields {
            freshness_ms: 1000,
            ..DataFields::new(name.as_ref(), &content)
        });
        self.published.keep(alloc::vec![packet.clone()]);
        packet
    }

    /// Takes routes over a face that is gone out of RIB and FIB.
    pub fn face_removed(&mut self, face: FaceId, now: Instant, control: &mut impl Control) {
        let mut updates = Vec::new();
        self.rib.remove_face(face, &mut updates);
        apply(&updates, now, control);
    }

    /// Makes a route of what the self-learning strategy found, or removes one that leads nowhere; true if
    /// the RIB changed. Whether the announcement's signature is trusted is the caller's decision.
    pub fn learned(
        &mut self,
        now: Instant,
        learned: &Learned<'_>,
        control: &mut impl Control,
    ) -> bool {
        match learned.announcement {
            Some(announcement) => {
                let parsed = Data::parse(announcement);
                let announcement = parsed.and_then(|data| PrefixAnnouncement::parse(&data));
                let Ok(mut announcement) = announcement else {
                    return false;
                };
                announcement.expiration_ms = announcement.expiration_ms.min(LEARNED_MS_MAX);
                let (_, route) = rib_commands::announced(&announcement, learned.face, now);
                rib_commands::add(&mut self.rib, &announcement.prefix, route, now, control)
                    .is_none()
            }
            None => {
                let Ok(interest) = Interest::parse(learned.packet) else {
                    return false;
                };
                let matched = self.rib.longest_match(interest.name);
                let Some(prefix) = matched.map(|(prefix, _)| prefix.clone()) else {
                    return false;
                };
                let mut updates = Vec::new();
                let origin = origin::PREFIX_ANNOUNCEMENT;
                let is_gone =
                    self.rib
                        .unregister(prefix.as_ref(), learned.face, origin, &mut updates);
                apply(&updates, now, control);
                is_gone
            }
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rib.poll_timeout()
    }

    /// Ends routes whose time has come.
    pub fn handle_timeout(&mut self, now: Instant, control: &mut impl Control) {
        let mut updates = Vec::new();
        self.rib.handle_timeout(now, &mut updates);
        apply(&updates, now, control);
    }

    /// Returns the content of a dataset, if there is one of that name.
    fn dataset(
        &self,
        now: Now,
        module: &[u8],
        verb: &[u8],
        control: &impl Control,
    ) -> Option<Vec<u8>> {
        Some(match (module, verb) {
            (b"faces", b"list") => datasets::faces(control, &FaceFilter::default(), now.instant),
            (b"faces", b"channels") => datasets::channels(control),
            (b"fib", b"list") => datasets::fib(control),
            (b"rib", b"list") => datasets::rib(&self.rib, now.instant),
            (b"strategy-choice", b"list") => datasets::strategies(control),
            (b"cs", b"info") => datasets::store(&control.store_info()),
            (b"status", b"general") => datasets::general(
                &control.status(),
                &self.config.version,
                self.config.start_unix_ms,
                now.unix_ms,
            ),
            _ => return None,
        })
    }

    fn publish(&mut self, now: Now, interest: &Interest<'_>, content: &[u8]) -> Vec<u8> {
        self.last_version = now.unix_ms.max(self.last_version + 1);
        let (stem, _) = interest.name.split_implicit_digest();
        self.published.dataset(stem, self.last_version, content)
    }

    fn query(&mut self, now: Now, interest: &Interest<'_>, control: &impl Control) -> Vec<u8> {
        let filter = interest.name.component(4);
        match filter.map(|component| FaceFilter::parse(component.value)) {
            Some(Ok(filter)) => {
                let content = datasets::faces(control, &filter, now.instant);
                self.publish(now, interest, &content)
            }
            _ => {
                let refusal = ControlResponse::new(400, "malformed filter");
                publish::answer(interest.name, &refusal.encode(), true)
            }
        }
    }

    fn command(
        &mut self,
        now: Now,
        interest: &Interest<'_>,
        prefix: &Name,
        is_local: bool,
        ingress: FaceId,
        control: &mut impl Control,
    ) -> ControlResponse {
        let command = match Command::parse(interest, prefix) {
            Ok(command) => command,
            Err(CommandError::Name) => return ControlResponse::new(501, "unknown command"),
            Err(CommandError::Parameters) => return ControlResponse::malformed(),
            Err(CommandError::Signature) => {
                return ControlResponse::new(403, "command is not signed");
            }
        };
        if !is_local && command.module != b"rib" {
            return ControlResponse::new(501, "unknown command");
        }
        match self.authorization.authorize(&command, now.unix_ms) {
            Ok(()) => {}
            Err(Denied::Signature) => {
                return ControlResponse::new(403, "signature does not verify");
            }
            Err(Denied::Privilege) => return ControlResponse::new(403, "authorization rejected"),
            Err(Denied::Replay) => return ControlResponse::new(403, "command is a replay"),
        }
        let parameters = &command.parameters;
        match (command.module, command.verb) {
            (b"rib", b"register") => {
                rib_commands::register(&mut self.rib, parameters, ingress, now.instant, control)
            }
            (b"rib", b"unregister") => {
                rib_commands::unregister(&mut self.rib, parameters, ingress, now.instant, control)
            }
            (b"rib", b"announce") => {
                rib_commands::announce(&mut self.rib, interest, ingress, now.instant, control)
            }
            (module, verb) => {
                super::commands::run(module, verb, parameters, ingress, now.instant, control)
            }
        }
    }
}

/// Makes the changes that the RIB needs.
pub(super) fn apply(updates: &[FibUpdate], now: Instant, control: &mut impl Control) {
    for update in updates {
        match update {
            FibUpdate::Add(name, face, cost) => {
                let hop = crate::fib::NextHop {
                    face: *face,
                    cost: *cost,
                };
                // A full FIB leaves the route in the RIB without a next hop; `fib/list` shows it.
                let _ = control.add_next_hop(name.as_ref(), hop, now);
            }
            FibUpdate::Remove(name, face) => control.remove_next_hop(name.as_ref(), *face),
        }
    }
}
