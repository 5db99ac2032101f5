//! Connections as those see them who ask about them: listings, events and explanations, not the data path.

use core::ops::ControlFlow;

use tables::signature::{Session4, Session6};
use tables::slots::{SlotRef, SlotWorker};
use wire::{FlowKey, Instant, ip_protocol};

use super::shared::{Shared, Table};
use super::worker::{Worker, record_of};
use crate::alg::Helper;
use crate::packet::{CtDirection, CtStatus};
use crate::track::key::is_ipv4;
use crate::track::tcp::TcpState;
use crate::track::timeout::{Tick, as_ms};

/// Events that wait to be taken, at most.
pub(super) const EVENTS_MAX: usize = 1024;

/// A connection at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Tuple of the original direction, before translation.
    pub original: FlowKey,
    /// Tuple of the reply direction, as it is expected to come back.
    pub reply: FlowKey,
    /// Its status.
    pub status: CtStatus,
    /// Where it stands, if it is TCP.
    pub tcp: Option<TcpState>,
    /// Its mark.
    pub mark: u32,
    /// Its zone.
    pub zone: u16,
    /// What inspects it.
    pub helper: Option<Helper>,
    /// Time until it ends if no packet comes, milliseconds.
    pub expires_ms: u32,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// It was opened; otherwise it ended.
    pub is_new: bool,
    /// The connection, as it was then.
    pub connection: Connection,
    /// When.
    pub at: Instant,
}

impl Connection {
    /// Reads a connection; `None` if it is gone. Words that workers change are each of some moment.
    pub(super) fn read<K: Table>(
        shared: &Shared,
        connection: SlotRef,
        now: Instant,
    ) -> Option<Self> {
        let record = record_of::<K>(shared, connection)?;
        let (life, labels, tcp) = (record.life(), record.labels(), record.tcp().state);
        let flows = K::flows(shared);
        // The keys are read last: each lookup says whether the connection is still the one it was.
        let reply = flows.reply_key(connection)?.to_flow();
        let original = flows.original_key(connection)?.to_flow();
        Some(Self {
            original,
            reply,
            status: life.status,
            tcp: (original.protocol == ip_protocol::TCP).then_some(tcp),
            mark: labels.0,
            zone: labels.1,
            helper: Helper::of(labels.2),
            expires_ms: as_ms(life.deadline.since(Tick::of(now))),
        })
    }
}

impl Shared {
    /// Finds the connection that a packet of this key belongs to, and the packet's direction.
    pub fn connection_of(&self, key: &FlowKey, now: Instant) -> Option<(Connection, CtDirection)> {
        if is_ipv4(key) {
            self.find_connection::<Session4>(key, now)
        } else {
            self.find_connection::<Session6>(key, now)
        }
    }

    fn find_connection<K: Table>(
        &self,
        key: &FlowKey,
        now: Instant,
    ) -> Option<(Connection, CtDirection)> {
        let flow = K::flows(self).find(&K::from_flow(key))?;
        let connection = Connection::read::<K>(self, flow.connection, now)?;
        Some((connection, super::worker::direction_of(flow.direction)))
    }

    /// Shows each connection to `see`: a pass over the tables. One that comes or goes meanwhile may be missed.
    pub fn each_connection(&self, now: Instant, mut see: impl FnMut(&Connection)) {
        self.connections_from(0, now, |connection| {
            see(connection);
            ControlFlow::Continue(())
        });
    }

    /// Shows connections to `see` from a place on that an earlier call gave (0 is the first one), until it says
    /// stop; returns where to go on, `None` at the end.
    pub fn connections_from(
        &self,
        place: usize,
        now: Instant,
        mut see: impl FnMut(&Connection) -> ControlFlow<()>,
    ) -> Option<usize> {
        let (first, second) = (self.flows4.slots(), self.flows6.slots());
        for at in place..first + second {
            let found = if at < first {
                self.read_at::<Session4>(at, now)
            } else {
                self.read_at::<Session6>(at - first, now)
            };
            if let Some(connection) = found
                && see(&connection).is_break()
            {
                return Some(at + 1);
            }
        }
        None
    }

    fn read_at<K: Table>(&self, slot: usize, now: Instant) -> Option<Connection> {
        let found = K::flows(self).connection_at(slot)?;
        let life = record_of::<K>(self, found)?.life();
        if life.deadline <= Tick::of(now) {
            return None;
        }
        Connection::read::<K>(self, found, now)
    }
}

impl Worker {
    /// Ends the connections that `chosen` says, as if their time had come; returns how many. Their mappings go into
    /// quarantine. For a worker that handles no packets.
    pub fn end_connections(
        &mut self,
        now: Instant,
        mut chosen: impl FnMut(&Connection) -> bool,
    ) -> usize {
        self.set_online();
        let ended =
            self.end_of::<Session4>(now, &mut chosen) + self.end_of::<Session6>(now, &mut chosen);
        self.set_offline();
        ended
    }

    fn end_of<K: Table>(
        &mut self,
        now: Instant,
        chosen: &mut impl FnMut(&Connection) -> bool,
    ) -> usize {
        let shared = alloc::sync::Arc::clone(&self.shared);
        let mut ended = 0;
        for slot in 0..K::flows(&shared).slots() {
            let Some(found) = K::flows(&shared).connection_at(slot) else {
                continue;
            };
            // A packet that refreshes it meanwhile changes the word: judged again.
            for _ in 0..8 {
                let Some(word) = record_of::<K>(&shared, found).map(|record| record.life_word())
                else {
                    break;
                };
                let connection = Connection::read::<K>(&shared, found, now);
                if !connection.is_some_and(|connection| chosen(&connection)) {
                    break;
                }
                if self.end::<K>(&shared, found, word, now) {
                    ended += 1;
                    break;
                }
            }
        }
        ended
    }

    /// Frees what [`end_connections`](Self::end_connections) removed, once the other workers have gone on; tells
    /// whether nothing is left to free.
    pub fn tidy(&mut self, now: Instant) -> bool {
        if self.handles().all(|handle| handle.retired() == 0) {
            return true;
        }
        self.set_online();
        self.maintain(now, 0);
        self.set_offline();
        self.handles().all(|handle| handle.retired() == 0)
    }

    fn handles(&self) -> impl Iterator<Item = &SlotWorker> {
        [&self.flows.v4, &self.flows.v6, &self.sources]
            .into_iter()
            .chain(self.expectations.handles())
            .chain(self.nat.handles())
    }

    /// Says that this worker holds nothing of the shared tables until [`set_online`](Self::set_online): nobody
    /// waits for it.
    pub fn set_offline(&self) {
        for handle in self.handles() {
            handle.participant().offline();
        }
    }

    /// Comes back after [`set_offline`](Self::set_offline).
    pub fn set_online(&self) {
        for handle in self.handles() {
            handle.participant().online();
        }
    }

    /// Notes that a connection was opened or ends, if somebody wants to know.
    pub(super) fn note<K: Table>(&mut self, is_new: bool, connection: SlotRef, now: Instant) {
        if !self.watched {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.events_lost += 1;
            return;
        }
        if let Some(connection) = Connection::read::<K>(&self.shared, connection, now) {
            self.events.push(ConnectionEvent {
                is_new,
                connection,
                at: now,
            });
        }
    }
}
