//! Connections for listings, and their end by command: by the control thread, while the workers go on.

use core::ops::ControlFlow;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use control::api::{Event, SessionFilter, SessionInfo, SessionPage, SessionRequest, SessionTuple};
use control::socket::Sink;
use filter::packet::CtStatus;
use filter::pipeline::Connection;
use wire::FlowKey;

use super::Firewall;
use super::hub::lock;

/// Connections in one reply, at most: about 2 MB.
const PAGE: usize = 4096;
/// How often a watcher's connection is looked at.
const GONE_CHECK: Duration = Duration::from_millis(200);

impl Firewall {
    /// Lists a part of the connections. Those that are opened or end meanwhile may be missed.
    pub(crate) fn sessions(&self, request: &SessionRequest) -> SessionPage {
        let mut page = SessionPage::default();
        let place = usize::try_from(request.place).unwrap_or(usize::MAX);
        let next = self
            .tables
            .connections_from(place, ::io::cpu::now(), |connection| {
                let session = session_info(connection);
                page.seen += 1;
                if request.filter.matches(&session) {
                    page.matched += 1;
                    if !request.count_only {
                        page.sessions.push(session);
                    }
                }
                if page.sessions.len() < PAGE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
        page.next = next.map(|next| next as u64);
        page
    }

    /// Ends the connections that a filter names; returns how many.
    pub(crate) fn end_sessions(&self, filter: &SessionFilter) -> u64 {
        self.end_connections(|connection| filter.matches(&session_info(connection)))
    }

    /// Ends connections; returns how many.
    pub(crate) fn end_connections(&self, chosen: impl FnMut(&Connection) -> bool) -> u64 {
        let mut operator = lock(&self.hub.operator);
        operator.watched = self.hub.is_watched();
        let ended = operator.end_connections(::io::cpu::now(), chosen);
        self.hub.collect(&mut operator);
        ended as u64
    }

    /// Subscribes to connections that are opened and end.
    pub(crate) fn watch_sessions(&self, filter: SessionFilter) -> SessionWatch {
        SessionWatch(self.hub.watch(filter))
    }
}

/// A subscription to connections that are opened and end.
#[derive(Debug)]
pub struct SessionWatch(Receiver<Event>);

impl SessionWatch {
    /// Writes events until nobody reads any more.
    ///
    /// # Errors
    /// The client has gone.
    pub fn run(self, sink: &mut Sink) -> io::Result<()> {
        loop {
            match self.0.recv_timeout(GONE_CHECK) {
                Ok(event) => sink.event(&event)?,
                Err(RecvTimeoutError::Timeout) if !sink.is_closed() => {}
                Err(_) => return Ok(()),
            }
        }
    }
}

/// A connection in the types of the API.
pub(super) fn session_info(connection: &Connection) -> SessionInfo {
    let has = |flag| connection.status.contains(flag);
    SessionInfo {
        protocol: connection.original.protocol,
        original: tuple(&connection.original),
        reply: tuple(&connection.reply),
        state: connection.tcp.map(|state| state.name().to_owned()),
        answered: has(CtStatus::SEEN_REPLY),
        assured: has(CtStatus::ASSURED),
        snat: has(CtStatus::SNAT),
        dnat: has(CtStatus::DNAT),
        expected: has(CtStatus::EXPECTED),
        helper: connection.helper.map(|helper| helper.name().to_owned()),
        mark: connection.mark,
        zone: connection.zone,
        expires_ms: connection.expires_ms.into(),
    }
}

fn tuple(key: &FlowKey) -> SessionTuple {
    SessionTuple {
        source: address(key.source),
        destination: address(key.destination),
        source_port: key.source_port,
        destination_port: key.destination_port,
    }
}

/// An address as flow keys hold it.
pub(super) fn address(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}
