//! The thread beside the workers: management, faces that come and go, static routes.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::config::NdnRouteConfig;
use io::Doorbell;
use ndn::mgmt::{Control, FaceRefusal, FaceRequest, KeyRing, Management, Now};
use ndn::rib::{CHILD_INHERIT, Route, origin};
use ndn::{FaceId, Learned, Partition, Persistency};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use wire::Instant;
use wire::ndn::lp::LpPacket;
use wire::ndn::name::Name;
use wire::ndn::{Interest, NameRef};

use super::disk::DiskSync;
use super::kernel::Filling;
use super::keys::PublicKey;
use super::listen::Listener;
use super::many::Many;
use super::message::{Command, Event};
use super::websocket::Handshakes;

/// How often what failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// Looks for idle faces in the time that they may be idle.
const IDLE_LOOKS: u32 = 10;
/// The longest sleep.
const SLEEP: Duration = Duration::from_secs(1);
/// Faces that are made in one turn, and events that are handled.
const TURN: usize = 256;

/// Who asks the manager for the figures of the node.
pub(super) type Asked = Arc<Mutex<Vec<SyncSender<control::api::NdnInfo>>>>;

/// The manager.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) management: Management<KeyRing<PublicKey>>,
    pub(super) many: Many,
    pub(super) partition: Partition,
    pub(super) listeners: Vec<Listener>,
    /// Clients of those that are WebSockets, until they are faces.
    pub(super) handshakes: Handshakes,
    pub(super) events: Receiver<Event>,
    pub(super) bell: Arc<Doorbell>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) asked: Asked,
    /// Faces of the configuration that could not be made yet.
    pub(super) wanted_faces: Vec<FaceRequest>,
    /// Routes of the configuration that wait for their face.
    pub(super) wanted_routes: Vec<NdnRouteConfig>,
    /// Permanent faces whose link failed.
    pub(super) down: Vec<FaceId>,
    pub(super) retry_at: Instant,
    pub(super) idle: Duration,
    pub(super) idle_look_at: Instant,
    pub(super) disk: Option<DiskSync>,
}

impl Manager {
    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
        self.retry();
        while !self.stop.load(Ordering::Acquire) {
            self.wait();
            self.accept();
            for _ in 0..TURN {
                let Ok(event) = self.events.try_recv() else {
                    break;
                };
                self.event(event);
            }
            self.promote();
            self.answer_asked();
            self.timers();
            self.announce();
        }
    }

    /// Sleeps until a client connects, a worker has something, or time is up.
    fn wait(&mut self) {
        let now = io::cpu::now();
        let due = [
            self.management.poll_timeout(),
            (!self.nothing_to_retry()).then_some(self.retry_at),
            Some(self.idle_look_at),
            self.disk.as_ref().map(|disk| disk.due),
            self.handshakes.poll_timeout(),
        ];
        let due = due.into_iter().flatten().min();
        let sleep = due
            .map_or(SLEEP, |due| due.saturating_since(now))
            .min(SLEEP);
        self.bell.prepare();
        // What came before the bell was listened to.
        if let Ok(event) = self.events.try_recv() {
            self.bell.cancel();
            return self.event(event);
        }
        if self.promote() {
            return self.bell.cancel();
        }
        let has_asked = !super::lock(&self.asked).is_empty();
        let mut fds: Vec<PollFd<'_>> = self
            .listeners
            .iter()
            .map(Listener::as_fd)
            .chain(self.handshakes.fds())
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        fds.push(PollFd::new(self.bell.as_fd(), PollFlags::POLLIN));
        let millis = if has_asked {
            0
        } else {
            sleep.as_micros().div_ceil(1000) as u16
        };
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, PollTimeout::from(millis));
        drop(fds);
        self.bell.cancel();
    }

    /// Puts into the kernel what is hot; true if something was.
    fn promote(&mut self) -> bool {
        self.many.kernel.as_mut().is_some_and(Filling::promote)
    }

    fn nothing_to_retry(&self) -> bool {
        self.wanted_faces.is_empty() && self.wanted_routes.is_empty() && self.down.is_empty()
    }

    fn accept(&mut self) {
        let now = io::cpu::now();
        for listener in &self.listeners {
            for _ in 0..TURN {
                let Some((config, stream)) = listener.accept() else {
                    break;
                };
                if listener.is_websocket() {
                    self.handshakes.begin(config, stream, now);
                } else if self.many.add_stream(config, stream, now).is_none() {
                    tracing::warn!("no room for another face; write a larger `faces` under [ndn]");
                }
            }
        }
        for (config, stream) in self.handshakes.poll(now) {
            if self.many.add_websocket(config, stream, now).is_none() {
                tracing::warn!("no room for another face; write a larger `faces` under [ndn]");
            }
        }
    }

    fn event(&mut self, event: Event) {
        let now = io::cpu::now();
        match event {
            Event::Interest(bytes) => self.interest(&bytes, now),
            Event::NewPeer(peer, frame) => {
                if self.many.add_peer(peer, frame, now).is_none() {
                    tracing::warn!("no room for another face; write a larger `faces` under [ndn]");
                }
            }
            Event::Closed(face) => {
                let known = self.many.faces.get(face);
                match known.map(|face| face.config.persistency) {
                    Some(Persistency::Permanent) => {
                        self.many.set_up(face, false);
                        self.down.push(face);
                        self.retry_at = now + RETRY;
                    }
                    Some(_) => {
                        self.many.destroy_face(face);
                    }
                    None => {}
                }
            }
            Event::Learned {
                face,
                announcement,
                packet,
            } => {
                let learned = Learned {
                    face,
                    announcement: announcement.as_deref(),
                    packet: &packet,
                };
                self.management.learned(now, &learned, &mut self.many);
            }
        }
        self.announce();
    }

    /// Answers a management Interest.
    fn interest(&mut self, bytes: &[u8], now: Instant) {
        let Ok(link) = LpPacket::parse(bytes) else {
            return;
        };
        let packet = link.fragment.unwrap_or_default();
        let Ok(interest) = Interest::parse(packet) else {
            return;
        };
        let ingress = FaceId(link.header.incoming_face.unwrap_or(0) as u32);
        // Datasets show counters, which the workers have.
        let module = interest.name.component(2).map(|module| module.value);
        if module.is_some_and(|module| matches!(module, b"faces" | b"status")) {
            self.many.refresh();
        }
        let now = Now {
            instant: now,
            unix_ms: unix_ms(),
        };
        let answer = self
            .management
            .handle(now, &interest, ingress, &mut self.many);
        if let Some(answer) = answer {
            self.publish(interest.name, answer);
        }
    }

    /// Gives a packet of management's to the worker that owns its name.
    fn publish(&self, name: NameRef<'_>, packet: Vec<u8>) {
        let (stem, _) = name.split_implicit_digest();
        let owner = self.partition.owner(self.partition.hasher().hash(stem));
        if let Some(worker) = self.many.workers.get(owner) {
            worker.send(Command::Input(packet));
        }
    }

    /// Tells those who listen what happened to faces; takes routes over faces that are gone away.
    fn announce(&mut self) {
        while !self.many.events.is_empty() {
            for (kind, face) in core::mem::take(&mut self.many.events) {
                tracing::debug!(face = %face.id, remote = face.config.remote_uri, ?kind, "face");
                let packet = self.management.face_event(kind, &face);
                if let Ok(data) = wire::ndn::Data::parse(&packet) {
                    let name = Name::from(data.name);
                    self.publish(name.as_ref(), packet);
                }
                if kind == ndn::mgmt::FaceEventKind::Destroyed {
                    let now = io::cpu::now();
                    self.down.retain(|down| *down != face.id);
                    self.management.face_removed(face.id, now, &mut self.many);
                }
            }
        }
    }

    fn timers(&mut self) {
        let now = io::cpu::now();
        if self.management.poll_timeout().is_some_and(|due| due <= now) {
            self.management.handle_timeout(now, &mut self.many);
        }
        if !self.nothing_to_retry() && self.retry_at <= now {
            self.retry();
        }
        if let Some(disk) = &mut self.disk {
            disk.poll(now);
        }
        if let Some(kernel) = &mut self.many.kernel {
            kernel.sweep(now);
        }
        if self.idle_look_at <= now {
            self.idle_look_at = now + self.idle / IDLE_LOOKS;
            self.close_idle(now);
        }
    }

    /// Makes the faces and routes of the configuration, and connects permanent faces, as far as that goes.
    fn retry(&mut self) {
        let now = io::cpu::now();
        self.retry_at = now + RETRY;
        let many = &mut self.many;
        self.down.retain(|&face| !many.reconnect(face));
        self.wanted_faces
            .retain(|request| match many.create_face(request, now) {
                Ok(_) | Err(FaceRefusal::Exists(_)) => false,
                Err(refusal) => {
                    let remote = &request.remote_uri;
                    tracing::warn!(remote, ?refusal, "the face cannot be made yet");
                    true
                }
            });
        let management = &mut self.management;
        self.wanted_routes.retain(|route| {
            let Some(face) = face_to(many, &route.face, now) else {
                tracing::warn!(
                    prefix = route.prefix,
                    face = route.face,
                    "the route has no face yet"
                );
                return true;
            };
            let new = Route {
                face,
                origin: origin::STATIC,
                cost: route.cost.into(),
                flags: CHILD_INHERIT,
                expires: None,
            };
            // The names were checked with the configuration.
            let prefix = route.prefix.parse::<Name>().unwrap_or_default();
            if let Err(error) = management.add_route(prefix.as_ref(), new, now, many) {
                tracing::error!(prefix = route.prefix, %error, "the route is not added");
            }
            false
        });
        self.announce();
    }

    /// Closes faces that a packet made and that carry none any more.
    fn close_idle(&mut self, now: Instant) {
        self.many.refresh();
        let idle: Vec<FaceId> = self
            .many
            .faces
            .iter()
            .filter(|face| {
                let uri = &face.config.remote_uri;
                face.config.persistency == Persistency::OnDemand
                    && (uri.starts_with("udp") || uri.starts_with("ether"))
                    && face.last_used + self.idle <= now
            })
            .map(|face| face.id)
            .collect();
        for face in idle {
            self.many.destroy_face(face);
        }
    }

    fn answer_asked(&mut self) {
        let asked = core::mem::take(&mut *super::lock(&self.asked));
        if asked.is_empty() {
            return;
        }
        self.many.refresh();
        let info = super::info::of(&self.many, self.management.rib());
        for reply in asked {
            // Who asked may have given up.
            let _ = reply.try_send(info.clone());
        }
    }
}

/// Finds the face of a FaceUri, or makes it.
fn face_to(many: &mut Many, uri: &str, now: Instant) -> Option<FaceId> {
    let request = FaceRequest {
        remote_uri: uri.to_owned(),
        local_uri: None,
        change: ndn::mgmt::FaceChange::default(),
    };
    match many.create_face(&request, now) {
        Ok(face) | Err(FaceRefusal::Exists(face)) => Some(face),
        Err(_) => None,
    }
}

pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
