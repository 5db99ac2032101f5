//! WebSocket faces (RFC 6455): a binary message is a link packet, as NFD's WebSocket channels have it. The manager
//! shakes hands, so that a slow client holds up nobody; the open connection is a worker's.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ndn::FaceConfig;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Bytes, Error, Message, WebSocket};
use wire::Instant;

use super::transport::{FRAME_BYTES_MAX, READ_BUDGET, STREAM_QUEUE_MAX, StreamState};

/// How long a client may take for its part of the handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Handshakes at once; the oldest goes when one more begins.
const HANDSHAKES_MAX: usize = 64;
/// Bytes of the longest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// A connection that does not block and gives no more than its turn's share.
#[derive(Debug)]
struct Socket {
    socket: File,
    /// Bytes that may still be read in this turn.
    budget: usize,
    written: u64,
}

impl Read for Socket {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let room = out.len().min(self.budget);
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let got = self.socket.read(&mut out[..room])?;
        self.budget -= got;
        Ok(got)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = self.socket.write(bytes)?;
        self.written += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Clients that are not done with the handshake.
#[derive(Debug, Default)]
pub(super) struct Handshakes(Vec<Pending>);

#[derive(Debug)]
struct Pending {
    due: Instant,
    config: FaceConfig,
    socket: Socket,
    /// What came of the request.
    request: Vec<u8>,
}

impl Handshakes {
    /// Begins with a client that connected.
    pub(super) fn begin(&mut self, config: FaceConfig, socket: OwnedFd, now: Instant) {
        if self.0.len() >= HANDSHAKES_MAX {
            self.0.remove(0);
        }
        self.0.push(Pending {
            due: now + PATIENCE,
            config,
            socket: Socket {
                socket: File::from(socket),
                budget: REQUEST_BYTES_MAX,
                written: 0,
            },
            request: Vec::new(),
        });
    }

    /// Goes on with all; returns those that are open. Who failed or took too long is gone.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<(FaceConfig, Box<WebStream>)> {
        let mut open = Vec::new();
        for mut pending in core::mem::take(&mut self.0) {
            let is_there = pending.receive();
            let answer = answer(&pending.request);
            let text = match &answer {
                Answer::None => "",
                Answer::Accept(text) => text,
                Answer::Refuse(text) => text,
            };
            // A new socket has room for it.
            let is_sent = pending.socket.write_all(text.as_bytes()).is_ok();
            match answer {
                Answer::Accept(_) if is_sent => {
                    open.push((pending.config, Box::new(WebStream::new(pending.socket))));
                }
                Answer::None if is_there && pending.due > now && pending.socket.budget > 0 => {
                    self.0.push(pending);
                }
                Answer::None | Answer::Accept(_) | Answer::Refuse(_) => {
                    tracing::debug!(remote = pending.config.remote_uri, "no WebSocket client");
                }
            }
        }
        open
    }

    /// Returns when the first one has taken too long.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().map(|pending| pending.due).min()
    }

    /// Returns what to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|pending| pending.socket.socket.as_fd())
    }
}

impl Pending {
    /// Reads what is there of the request; false if the client has gone.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 2048];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return false,
                Ok(got) => self.request.extend_from_slice(&bytes[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

/// What a request is answered with.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// Nothing yet.
    None,
    Accept(String),
    Refuse(&'static str),
}

const NOT_UNDERSTOOD: &str =
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const OTHER_VERSION: &str = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                             Sec-WebSocket-Version: 13\r\nContent-Length: 0\r\n\r\n";

/// Answers a client's opening handshake (RFC 6455, section 4.2). Bytes behind the request are none of a client that
/// waits for the answer as it must.
fn answer(request: &[u8]) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(used)) if used == request.len() => {}
        Ok(httparse::Status::Partial) => return Answer::None,
        Ok(_) | Err(_) => return Answer::Refuse(NOT_UNDERSTOOD),
    }
    let value = |name: &str| {
        let mut found = parsed.headers.iter();
        let header = found.find(|header| header.name.eq_ignore_ascii_case(name))?;
        str::from_utf8(header.value).ok().map(str::trim)
    };
    let has = |name: &str, wanted: &str| {
        let mut tokens = value(name).unwrap_or_default().split(',');
        tokens.any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    let is_upgrade = has("Upgrade", "websocket") && has("Connection", "Upgrade");
    let is_get = parsed.method == Some("GET") && parsed.version == Some(1);
    let key = value("Sec-WebSocket-Key").filter(|key| key.len() == 24);
    match key {
        Some(_) if value("Sec-WebSocket-Version") != Some("13") => Answer::Refuse(OTHER_VERSION),
        Some(key) if is_get && is_upgrade => Answer::Accept(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            accept_key(key)
        )),
        _ => Answer::Refuse(NOT_UNDERSTOOD),
    }
}

/// Proves that the request was understood (RFC 6455, section 4.2.2).
fn accept_key(key: &str) -> String {
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let input = [key.as_bytes(), GUID].concat();
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &input);
    BASE64_STANDARD.encode(hash)
}

/// An open connection.
#[derive(Debug)]
pub(super) struct WebStream {
    web: WebSocket<Socket>,
    /// Bytes that were queued, and about as many as `written` says when all are sent.
    pushed: u64,
    is_broken: bool,
    /// The kernel took less than it was offered: it says when there is room.
    pub(super) is_blocked: bool,
    /// It is among those that [`WebStream::flush`] is to be called for.
    pub(super) is_dirty: bool,
}

impl WebStream {
    fn new(socket: Socket) -> Self {
        let limits = WebSocketConfig::default()
            .read_buffer_size(64 << 10)
            .max_message_size(Some(FRAME_BYTES_MAX))
            .max_frame_size(Some(FRAME_BYTES_MAX))
            .max_write_buffer_size(STREAM_QUEUE_MAX);
        Self {
            pushed: socket.written,
            web: WebSocket::from_raw_socket(socket, Role::Server, Some(limits)),
            is_broken: false,
            is_blocked: false,
            is_dirty: false,
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.web.get_ref().socket.as_fd()
    }

    /// Returns the bytes that wait to be sent.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.pushed.saturating_sub(self.web.get_ref().written)
    }

    /// Queues a link packet; false if too much waits.
    pub(super) fn push(&mut self, link_packet: &[u8]) -> bool {
        let message = Message::Binary(Bytes::copy_from_slice(link_packet));
        match self.web.write(message) {
            Ok(()) => {}
            // It is queued all the same.
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
            Err(Error::WriteBufferFull(_)) => return false,
            Err(_) => {
                self.is_broken = true;
                return false;
            }
        }
        self.pushed += link_packet.len() as u64;
        true
    }

    /// Gives the kernel what it takes.
    pub(super) fn flush(&mut self) -> StreamState {
        self.is_dirty = false;
        if self.is_broken {
            return StreamState::Ended;
        }
        match self.web.flush() {
            Ok(()) => {
                self.is_blocked = false;
                self.pushed = self.web.get_ref().written;
                StreamState::Open
            }
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                self.is_blocked = true;
                StreamState::Open
            }
            Err(_) => StreamState::Ended,
        }
    }

    /// Receives the messages that are there, within a turn's budget. Text is no link packet, which whoever parses it
    /// finds out; pings are answered.
    pub(super) fn read(&mut self) -> (Vec<Bytes>, StreamState) {
        self.web.get_mut().budget = READ_BUDGET;
        let mut messages = Vec::new();
        loop {
            match self.web.read() {
                Ok(Message::Binary(bytes)) => messages.push(bytes),
                Ok(Message::Text(text)) => messages.push(Bytes::from(text)),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_)) => {
                }
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    return (messages, StreamState::Open);
                }
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return (messages, StreamState::Ended),
            }
        }
    }

    /// Says goodbye.
    pub(super) fn close(&mut self) {
        // The other end may be gone already.
        let _ = self.web.close(None);
        let _ = self.web.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: &str, key: &str) -> String {
        format!(
            "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: {version}\r\n\r\n"
        )
    }

    #[test]
    fn the_handshake_of_the_rfc() {
        let whole = request("13", "dGhlIHNhbXBsZSBub25jZQ==");
        let Answer::Accept(answered) = answer(whole.as_bytes()) else {
            panic!("{:?}", answer(whole.as_bytes()));
        };
        let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
        assert!(
            answered.starts_with("HTTP/1.1 101 ") && answered.contains(accept),
            "{answered}"
        );
        for cut in 0..whole.len() {
            assert_eq!(answer(&whole.as_bytes()[..cut]), Answer::None, "{cut}");
        }
    }

    #[test]
    fn what_is_no_handshake_is_refused() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let other = request("8", key);
        assert_eq!(answer(other.as_bytes()), Answer::Refuse(OTHER_VERSION));
        let whole = request("13", key);
        for wrong in [
            whole.replace("GET", "POST"),
            whole.replace("Upgrade: websocket", "Upgrade: h2c"),
            whole.replace("keep-alive, Upgrade", "keep-alive"),
            whole.replace("HTTP/1.1", "HTTP/1.0"),
            request("13", "short"),
            format!("{whole}early"),
            "\u{16}\u{3}\u{1}".to_owned(),
        ] {
            assert_eq!(
                answer(wrong.as_bytes()),
                Answer::Refuse(NOT_UNDERSTOOD),
                "{wrong}"
            );
        }
    }
}
