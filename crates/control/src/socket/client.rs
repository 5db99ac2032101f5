//! The commands' side of the control socket.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::message;
use crate::api::{
    ApiError, Attachment, BridgeInfo, CaptureRequest, Event, NeighbourInfo, Reply, Request,
    RouteInfo, SessionFilter, SessionPage, SessionRequest, Stats,
};

/// How long a reply may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the node was not reached, or did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens there.
    #[error("no node answers on `{}`", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
    },
    /// This user may not open the socket.
    #[error("this user may not open `{}`", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// The node said no.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The node answered something else than was asked.
    #[error("the node answered out of turn; it is of another version")]
    Protocol,
    /// The connection broke.
    #[error("the connection to the node broke")]
    Io(#[from] io::Error),
}

impl ClientError {
    /// Returns what to do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::NotRunning { path } => Some(format!(
                "start one with `tidegate run`, or name its socket with `--socket` (tried `{}`)",
                path.display()
            )),
            Self::Refused { .. } => {
                Some("run the command as root, or join the socket's group".to_owned())
            }
            Self::Api(error) => error.remedy.clone(),
            Self::Protocol => Some("use the `tidegate` command of the node's version".to_owned()),
            Self::Io(_) => Some("see whether the node still runs: `tidegate stats`".to_owned()),
        }
    }
}

/// A connection to a node.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Connects to the node whose socket is at `path`.
    ///
    /// # Errors
    /// Nothing listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning {
                path: path.to_owned(),
            },
            io::ErrorKind::PermissionDenied => ClientError::Refused {
                path: path.to_owned(),
            },
            _ => ClientError::Io(error),
        })?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream })
    }

    /// Asks, and waits for the reply.
    ///
    /// # Errors
    /// The node refused ([`ClientError::Api`]), or the connection broke.
    pub fn request(&mut self, request: &Request) -> Result<Reply, ClientError> {
        message::write(&mut self.stream, request)?;
        match message::read(&mut self.stream, || true)? {
            Some(Reply::Error(error)) => Err(error.into()),
            Some(reply) => Ok(reply),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn stats(&mut self) -> Result<Stats, ClientError> {
        match self.request(&Request::Stats)? {
            Reply::Stats(stats) => Ok(*stats),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Reads the neighbour table.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn neighbours(&mut self) -> Result<Vec<NeighbourInfo>, ClientError> {
        match self.request(&Request::Neighbours)? {
            Reply::Neighbours(neighbours) => Ok(neighbours),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Reads the routing table.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn routes(&mut self) -> Result<Vec<RouteInfo>, ClientError> {
        match self.request(&Request::Routes)? {
            Reply::Routes(routes) => Ok(routes),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Reads the bridges with their stations.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn bridges(&mut self) -> Result<Vec<BridgeInfo>, ClientError> {
        match self.request(&Request::Bridges)? {
            Reply::Bridges(bridges) => Ok(bridges),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Watches the node: its counters every `interval`, and what happens in between.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn watch(mut self, interval: Duration) -> Result<Events, ClientError> {
        let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
        match self.request(&Request::Watch { interval_ms })? {
            Reply::Watching => {
                self.stream
                    .set_read_timeout(Some(interval.saturating_add(REPLY_TIMEOUT)))?;
                Ok(Events {
                    stream: self.stream,
                })
            }
            _ => Err(ClientError::Protocol),
        }
    }

    /// Reads a part of the firewall's connections.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn sessions(&mut self, what: SessionRequest) -> Result<SessionPage, ClientError> {
        match self.request(&Request::Sessions(what))? {
            Reply::Sessions(page) => Ok(page),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Ends connections of the firewall; returns how many.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn end_sessions(&mut self, which: SessionFilter) -> Result<u64, ClientError> {
        match self.request(&Request::EndSessions(which))? {
            Reply::SessionsEnded(count) => Ok(count),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Watches the firewall's connections: which are opened and end.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn session_events(mut self, which: SessionFilter) -> Result<Events, ClientError> {
        match self.request(&Request::SessionEvents(which))? {
            Reply::Watching => {
                self.stream.set_read_timeout(None)?;
                Ok(Events {
                    stream: self.stream,
                })
            }
            _ => Err(ClientError::Protocol),
        }
    }

    /// Asks for sockets of the node's host. They are there as long as what comes back is kept.
    ///
    /// # Errors
    /// As [`Client::request`]; the node has no host, or this user may not use it.
    pub fn attach(mut self) -> Result<(Attachment, Held), ClientError> {
        match self.request(&Request::Attach)? {
            Reply::Attached(attachment) => Ok((attachment, Held(self.stream))),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Captures packets; what comes back is a pcapng file, live.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn capture(mut self, what: CaptureRequest) -> Result<impl Read, ClientError> {
        match self.request(&Request::Capture(what))? {
            Reply::Capturing => {
                self.stream.set_read_timeout(None)?;
                Ok(self.stream)
            }
            _ => Err(ClientError::Protocol),
        }
    }
}

/// An open connection by which a program keeps what a node gave it.
#[derive(Debug)]
pub struct Held(UnixStream);

impl Held {
    /// Waits until the node closes the connection: it has stopped.
    pub fn wait(&self) {
        // Without the timeout, nothing but the end can come.
        let _ = self.0.set_read_timeout(None);
        while let Err(error) = (&self.0).read(&mut [0]) {
            if error.kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }

    /// Closes the connection; a thread that [waits](Self::wait) returns.
    pub fn close(&self) {
        // One that is closed already needs no more.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// What a watched node tells; ends when the node stops.
#[derive(Debug)]
pub struct Events {
    stream: UnixStream,
}

impl Iterator for Events {
    type Item = Result<Event, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        message::read(&mut self.stream, || true)
            .map_err(ClientError::from)
            .transpose()
    }
}
