//! The node's side of the control socket.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::message;
use crate::api::{ApiError, ErrorCode, Event, Reply, Request};

/// Owner and group may connect.
const SOCKET_MODE: u32 = 0o660;
/// The most clients at a time.
const CONNECTIONS_MAX: usize = 64;
/// How often a waiting thread looks whether the server stops.
const STOP_CHECK: Duration = Duration::from_millis(200);
/// How long a client may leave its receive buffer full before it is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Events that a slow watcher may be behind before it misses some.
const EVENTS_QUEUED: usize = 64;

/// Who asks: the credentials of the client's process when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Peer {
    /// Tells whether the client may change the node: it is root, or the node's own user. Whoever may
    /// open the socket (its group) may read and capture.
    pub fn may_change(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

/// What a [`Handler`] answers.
pub enum Answer {
    /// A reply; the connection goes on.
    Reply(Reply),
    /// pcapng bytes: called after [`Reply::Capturing`] was sent; the connection ends when it returns.
    Capture(CaptureRun),
    /// Events: called after [`Reply::Watching`] was sent; the connection ends when it returns.
    Events(CaptureRun),
    /// A reply, and what holds as long as the client keeps the connection: dropped when it ends.
    Hold(Reply, Box<dyn Send>),
}

/// Writes to the sink until it is closed or enough was written.
pub type CaptureRun = Box<dyn FnOnce(&mut Sink) -> io::Result<()> + Send>;

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => f.debug_tuple("Reply").field(reply).finish(),
            Self::Capture(_) => f.write_str("Capture"),
            Self::Events(_) => f.write_str("Events"),
            Self::Hold(reply, _) => f.debug_tuple("Hold").field(reply).finish(),
        }
    }
}

/// Answers requests; called from the threads of connections. [`Request::Watch`] is the server's own
/// business: it asks for [`Request::Stats`] again and again.
pub type Handler = dyn Fn(Request, Peer) -> Answer + Send + Sync;

/// Where the bytes of a capture go.
#[derive(Debug)]
pub struct Sink {
    stream: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Sink {
    /// Tells whether nobody reads any more: the client has gone, or the server stops.
    pub fn is_closed(&mut self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            return true;
        }
        // a client sends nothing during a capture: readable means closed
        let mut byte = [0];
        let closed = self.stream.set_nonblocking(true).is_err()
            || !matches!(self.stream.read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        closed || self.stream.set_nonblocking(false).is_err()
    }
}

impl Sink {
    /// Writes one event as a message.
    ///
    /// # Errors
    /// The client has gone, or reads too slowly.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        message::write(&mut self.stream, event)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Why the socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another node answers there.
    #[error("a node (process {pid}) answers on `{}` already", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The other node's process.
        pid: i32,
    },
    /// Something else has the name.
    #[error("`{}` exists and is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot open the control socket `{}`", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl BindError {
    /// Returns what to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::InUse { pid, .. } => format!(
                "stop it (`kill {pid}`), or give this node another `control_socket` under `[node]`"
            ),
            Self::NotASocket { path } => format!("remove it: `rm {}`", path.display()),
            Self::Io { path, .. } => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                format!(
                    "make `{}` writable for this user, or write another `control_socket` under `[node]`",
                    directory.display()
                )
            }
        }
    }
}

/// A control socket that is being served. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    inode: u64,
    shared: Arc<Shared>,
    acceptor: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: Arc<AtomicBool>,
    connections: AtomicUsize,
    watchers: Mutex<Vec<mpsc::SyncSender<Event>>>,
}

impl Server {
    /// Opens the socket at `path` (mode 0660, its directory is made if missing) and answers with
    /// `handler` from now on. A socket that a dead node left behind is replaced.
    ///
    /// # Errors
    /// Another node answers there, or the system refuses.
    pub fn start(path: &Path, handler: Arc<Handler>) -> Result<Self, BindError> {
        let io_error = |source| BindError::Io {
            path: path.to_owned(),
            source,
        };
        refuse_if_taken(path)?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(io_error)?;
        }
        let listener = bind(path).map_err(io_error)?;
        let inode = fs::symlink_metadata(path).map_err(io_error)?.ino();
        let shared = Arc::new(Shared {
            stop: Arc::new(AtomicBool::new(false)),
            connections: AtomicUsize::new(0),
            watchers: Mutex::new(Vec::new()),
        });
        let acceptor = thread::Builder::new()
            .name("control".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || accept(&listener, &shared, &handler)
            })
            .map_err(io_error)?;
        Ok(Self {
            path: path.to_owned(),
            inode,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Tells all watchers. A watcher that is too slow misses it.
    pub fn publish(&self, event: &Event) {
        self.shared.watchers().retain(|watcher| {
            !matches!(
                watcher.try_send(event.clone()),
                Err(mpsc::TrySendError::Disconnected(_))
            )
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.watchers().clear();
        // wakes the acceptor; where that fails it is not waiting any more
        let _ = UnixStream::connect(&self.path);
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let deadline = Instant::now() + 2 * STOP_CHECK;
        while self.shared.connections.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Shared {
    fn watchers(&self) -> std::sync::MutexGuard<'_, Vec<mpsc::SyncSender<Event>>> {
        self.watchers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn refuse_if_taken(path: &Path) -> Result<(), BindError> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path) {
        Ok(stream) => Err(BindError::InUse {
            path: path.to_owned(),
            pid: peer(&stream).map_or(0, |peer| peer.pid),
        }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(source) => Err(BindError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Binds beside `path`, narrows the mode, then moves the socket to its name: nobody can connect
/// before the mode is right, and a socket left by a dead node is replaced in one step.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id() % 100_000));
    let beside = path.with_file_name(name);
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(SOCKET_MODE))
        .and_then(|()| fs::rename(&beside, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })?;
    Ok(listener)
}

fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(Peer {
        pid: credentials.pid.as_raw_nonzero().get(),
        uid: credentials.uid.as_raw(),
        gid: credentials.gid.as_raw(),
    })
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, handler: &Arc<Handler>) {
    for stream in listener.incoming() {
        if shared.stopping() {
            return;
        }
        let Ok(stream) = stream else {
            // out of descriptors: give clients time to go
            thread::sleep(STOP_CHECK);
            continue;
        };
        if shared.connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (shared_there, handler) = (Arc::clone(shared), Arc::clone(handler));
        let spawned = thread::Builder::new()
            .name("control-client".into())
            .spawn(move || {
                // an error ends this client's connection and nothing else
                let _ = serve(stream, &shared_there, &*handler);
                shared_there.connections.fetch_sub(1, Ordering::Relaxed);
            });
        if spawned.is_err() {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(mut stream: UnixStream, shared: &Shared, handler: &Handler) -> io::Result<()> {
    stream.set_read_timeout(Some(STOP_CHECK))?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let peer = peer(&stream)?;
    loop {
        let request = match message::read(&mut stream, || shared.stopping()) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => {
                let answer = usage(format!("not a request: {error}"));
                return message::write(&mut stream, &answer);
            }
        };
        match request {
            Request::Watch { interval_ms } if interval_ms < 50 => {
                let answer = usage(format!("{interval_ms} ms between readings is too short"));
                message::write(&mut stream, &answer)?;
            }
            Request::Watch { interval_ms } => {
                message::write(&mut stream, &Reply::Watching)?;
                let interval = Duration::from_millis(interval_ms.into());
                return watch(&mut stream, shared, handler, peer, interval);
            }
            request => match handler(request, peer) {
                Answer::Reply(reply) => message::write(&mut stream, &reply)?,
                Answer::Events(run) => {
                    message::write(&mut stream, &Reply::Watching)?;
                    let stop = Arc::clone(&shared.stop);
                    return run(&mut Sink { stream, stop });
                }
                Answer::Hold(reply, held) => {
                    message::write(&mut stream, &reply)?;
                    return hold(&mut stream, shared, held);
                }
                Answer::Capture(run) => {
                    message::write(&mut stream, &Reply::Capturing)?;
                    // a viewer may pause for long; the node counts what it misses meanwhile
                    stream.set_write_timeout(None)?;
                    let stop = Arc::clone(&shared.stop);
                    return run(&mut Sink { stream, stop });
                }
            },
        }
    }
}

/// Waits until the client goes, or the server stops.
fn hold(stream: &mut UnixStream, shared: &Shared, held: Box<dyn Send>) -> io::Result<()> {
    let mut byte = [0];
    while !shared.stopping() {
        match stream.read(&mut byte) {
            // It says nothing more: readable means gone.
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    drop(held);
    Ok(())
}

fn watch(
    stream: &mut UnixStream,
    shared: &Shared,
    handler: &Handler,
    peer: Peer,
    interval: Duration,
) -> io::Result<()> {
    let (sender, events) = mpsc::sync_channel(EVENTS_QUEUED);
    shared.watchers().push(sender);
    let mut next = Instant::now();
    while !shared.stopping() {
        match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(event) => message::write(stream, &event)?,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                next += interval;
                match handler(Request::Stats, peer) {
                    Answer::Reply(Reply::Stats(stats)) => {
                        message::write(stream, &Event::Stats(stats))?;
                    }
                    _ => return Ok(()),
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

fn usage(message: String) -> Reply {
    Reply::Error(ApiError {
        code: ErrorCode::Usage,
        message,
        remedy: Some("use the `tidegate` command of the node's own version".to_owned()),
    })
}
