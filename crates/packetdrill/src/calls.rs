//! The system calls of a script, on the handles of the stack.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use stack::{
    Algorithm, Error as StackError, Event, ListenerHandle, Ready, Shutdown, State, TcpHandle,
    TcpOption, UdpHandle,
};

use crate::error::Error;
use crate::machine::{Machine, PORT, pattern};
use crate::syntax::{Call, Value};

/// The largest read or write of a script.
const BYTES_MAX: usize = 64 << 20;

/// The application's side of a run.
#[derive(Debug)]
pub(crate) struct Calls {
    descriptors: HashMap<i64, Descriptor>,
    /// Port of the last listener.
    pub(crate) listening_port: u16,
    /// The connection that assertions are about.
    subject: Option<TcpHandle>,
    faulty: Vec<TcpHandle>,
    /// The peer gave a Fast Open cookie.
    pub(crate) has_cookie: bool,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            descriptors: HashMap::new(),
            listening_port: PORT,
            subject: None,
            faulty: Vec::new(),
            has_cookie: false,
        }
    }
}

/// What a descriptor is.
#[derive(Debug)]
struct Descriptor {
    kind: Kind,
    is_nonblocking: bool,
    is_datagram: bool,
    local: Option<SocketAddr>,
    /// Options as they were set, and handed on by a listener.
    options: Vec<(String, i64)>,
    /// `SO_LINGER` with a time of zero: close resets.
    resets: bool,
    /// Bytes written and read.
    written: u32,
    read: u32,
    /// What a write that blocks has written already.
    progress: usize,
    is_connected: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Fresh,
    Listener(ListenerHandle, bool),
    Tcp(TcpHandle),
    Udp(UdpHandle),
}

/// A call that has not returned.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) call: Call,
}

/// How a call went.
enum Outcome {
    Returned(i64),
    Failed(&'static str),
    Blocks,
}

impl From<StackError> for Outcome {
    fn from(error: StackError) -> Self {
        match error {
            StackError::WouldBlock => Self::Blocks,
            error => Self::Failed(errno(error)),
        }
    }
}

/// Numbers of errors, as Linux has them.
const ERRNOS: [(&str, i64); 16] = [
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EINVAL", 22),
    ("EPIPE", 32),
    ("EMSGSIZE", 90),
    ("EADDRINUSE", 98),
    ("EADDRNOTAVAIL", 99),
    ("ENETUNREACH", 101),
    ("ECONNABORTED", 103),
    ("ECONNRESET", 104),
    ("ENOTCONN", 107),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EHOSTUNREACH", 113),
];

const fn errno(error: StackError) -> &'static str {
    match error {
        StackError::WouldBlock => "EAGAIN",
        StackError::ConnectionRefused => "ECONNREFUSED",
        StackError::ConnectionReset => "ECONNRESET",
        StackError::ConnectionAborted => "ECONNABORTED",
        StackError::NotConnected => "ENOTCONN",
        StackError::TimedOut => "ETIMEDOUT",
        StackError::BrokenPipe => "EPIPE",
        StackError::AddrInUse => "EADDRINUSE",
        StackError::AddrNotAvailable => "EADDRNOTAVAIL",
        StackError::HostUnreachable => "EHOSTUNREACH",
        StackError::NetworkUnreachable => "ENETUNREACH",
        StackError::OutOfMemory => "ENOMEM",
        StackError::NotFound => "EBADF",
        StackError::FileTooLarge => "EMSGSIZE",
        StackError::PermissionDenied => "EACCES",
        _ => "EINVAL",
    }
}

impl Call {
    fn argument(&self, at: usize) -> &Value {
        self.arguments.get(at).unwrap_or(&Value::Any)
    }
    fn number(&self, at: usize) -> Option<i64> {
        match self.argument(at) {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
    fn has(&self, at: usize, symbol: &str) -> bool {
        matches!(self.argument(at), Value::Symbols(symbols) if symbols.iter().any(|s| s == symbol))
    }
    fn text(&self, at: usize) -> &str {
        match self.argument(at) {
            Value::Symbols(symbols) => symbols.first().map_or("", String::as_str),
            _ => "",
        }
    }
}

impl Machine {
    /// Begins a call; returns it if it blocks.
    pub(crate) fn call(&mut self, call: &Call, line: usize) -> Result<Option<Blocked>, Error> {
        self.attempt(call, line, true)
    }
    /// Tries a call that blocked again.
    pub(crate) fn resume(
        &mut self,
        blocked: Blocked,
        line: usize,
    ) -> Result<Option<Blocked>, Error> {
        self.attempt(&blocked.call, line, false)
    }

    fn attempt(
        &mut self,
        call: &Call,
        line: usize,
        is_first: bool,
    ) -> Result<Option<Blocked>, Error> {
        let Some(outcome) = self.perform(call, is_first) else {
            return Err(Error::Unsupported {
                line,
                what: format!("{}{:?}", call.name, call.arguments),
            });
        };
        let is_nonblocking = call.has(3, "MSG_DONTWAIT")
            || call
                .number(0)
                .and_then(|fd| self.calls.descriptors.get(&fd))
                .is_some_and(|descriptor| descriptor.is_nonblocking);
        let (result, error) = match outcome {
            Outcome::Blocks if is_nonblocking => (-1, Some("EAGAIN")),
            Outcome::Blocks => return Ok(Some(Blocked { call: call.clone() })),
            Outcome::Failed(error) => (-1, Some(error)),
            Outcome::Returned(result) => (result, None),
        };
        let expected = match &call.result {
            Value::Number(expected) => *expected,
            _ => result,
        };
        let same_error = call
            .errno
            .as_deref()
            .is_none_or(|wanted| error == Some(wanted));
        if expected == result && same_error {
            return Ok(None);
        }
        let shown = |result: i64, error: Option<&str>| match error {
            Some(error) => format!("{result} {error}"),
            None => result.to_string(),
        };
        Err(Error::Mismatch {
            line,
            what: format!("{} returns something else", call.name),
            expected: shown(expected, call.errno.as_deref()),
            actual: shown(result, error),
        })
    }

    /// Notes what `poll` asks for later.
    pub(crate) fn hear(&mut self, event: Event) {
        match event {
            Event::Tcp(handle, ready) if ready.contains(Ready::ERROR) => {
                self.calls.faulty.push(handle);
            }
            Event::Listener(handle, _) => {
                for descriptor in self.calls.descriptors.values_mut() {
                    if let Kind::Listener(listener, ready) = &mut descriptor.kind
                        && *listener == handle
                    {
                        *ready = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// Performs a call; `None` if it is unknown here.
    fn perform(&mut self, call: &Call, is_first: bool) -> Option<Outcome> {
        if call.name == "socket" {
            return self.socket(call);
        }
        if call.name == "poll" {
            return self.poll(call);
        }
        let fd = call.number(0)?;
        if !self.calls.descriptors.contains_key(&fd) {
            return Some(Outcome::Failed("EBADF"));
        }
        match call.name.as_str() {
            "bind" => self.bind(fd, call),
            "listen" => self.listen(fd, call),
            "connect" => self.connect(fd, self.target(call.argument(1))?, is_first, 0),
            "accept" | "accept4" => self.accept(fd, call),
            "read" => self.receive(fd, call.number(2)?),
            "recv" | "recvfrom" => self.receive(fd, call.number(2)?),
            "write" => self.send(fd, call.number(2)?, is_first),
            "send" => self.send(fd, call.number(2)?, is_first),
            "sendmsg" => self.send(fd, message_bytes(call.argument(1))?, is_first),
            "sendto" if call.has(3, "MSG_FASTOPEN") => self.send_fast(fd, call, is_first),
            "sendto" => self.send_to(fd, call, is_first),
            "close" => self.close(fd),
            "shutdown" => self.shutdown(fd, call),
            "setsockopt" => self.set(fd, call),
            "getsockopt" => self.get(fd, call),
            "fcntl" => self.control(fd, call),
            "ioctl" => self.query(fd, call),
            _ => None,
        }
    }

    fn descriptor(&mut self, fd: i64) -> Option<&mut Descriptor> {
        self.calls.descriptors.get_mut(&fd)
    }
    fn kind(&self, fd: i64) -> Option<Kind> {
        Some(self.calls.descriptors.get(&fd)?.kind)
    }

    fn socket(&mut self, call: &Call) -> Option<Outcome> {
        let fd = match call.result {
            Value::Number(fd) => fd,
            _ => return None,
        };
        let descriptor = Descriptor {
            kind: Kind::Fresh,
            is_nonblocking: call.has(1, "SOCK_NONBLOCK"),
            is_datagram: call.has(1, "SOCK_DGRAM"),
            local: None,
            options: Vec::new(),
            resets: false,
            written: 0,
            read: 0,
            progress: 0,
            is_connected: false,
        };
        self.calls.descriptors.insert(fd, descriptor);
        Some(Outcome::Returned(fd))
    }

    /// Reads an address; `...` is where everything goes by default.
    fn target(&self, value: &Value) -> Option<SocketAddr> {
        match value {
            Value::Any => Some(self.peer_socket()),
            Value::Fields(_) => read_address(value),
            _ => None,
        }
    }

    fn bind(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        let local = match call.argument(1) {
            Value::Any => SocketAddr::new(self.any_local(), PORT),
            value => read_address(value)?,
        };
        let descriptor = self.descriptor(fd)?;
        descriptor.local = Some(local);
        if !descriptor.is_datagram {
            return Some(Outcome::Returned(0));
        }
        Some(match self.stack.udp_bind(local) {
            Ok(handle) => {
                self.descriptor(fd)?.kind = Kind::Udp(handle);
                Outcome::Returned(0)
            }
            Err(error) => error.into(),
        })
    }

    fn listen(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        let any = SocketAddr::new(self.any_local(), PORT);
        let local = self.descriptor(fd)?.local.unwrap_or(any);
        let backlog = call.number(1)?.max(0) as usize;
        Some(match self.stack.tcp_listen(local, backlog) {
            Ok(handle) => {
                self.calls.listening_port = local.port();
                self.descriptor(fd)?.kind = Kind::Listener(handle, false);
                Outcome::Returned(0)
            }
            Err(error) => error.into(),
        })
    }

    fn connect(
        &mut self,
        fd: i64,
        to: SocketAddr,
        is_first: bool,
        bytes: usize,
    ) -> Option<Outcome> {
        let now = self.time();
        match self.kind(fd)? {
            Kind::Udp(handle) => {
                let peer = stack::UdpOption::Peer(Some(to));
                return Some(match self.stack.udp_set(handle, peer) {
                    Ok(()) => Outcome::Returned(0),
                    Err(error) => error.into(),
                });
            }
            Kind::Fresh if self.descriptor(fd)?.is_datagram => {
                let local = SocketAddr::new(self.any_local(), 0);
                let bound = self.stack.udp_bind(local);
                return Some(match bound {
                    Ok(handle) => {
                        self.descriptor(fd)?.kind = Kind::Udp(handle);
                        return self.connect(fd, to, is_first, bytes);
                    }
                    Err(error) => error.into(),
                });
            }
            Kind::Fresh => {}
            Kind::Listener(..) => return Some(Outcome::Failed("EISCONN")),
            Kind::Tcp(handle) => return self.connect_again(fd, handle, is_first),
        }
        let local = self.descriptor(fd)?.local;
        let data: Vec<u8> = (0..bytes as u32).map(pattern).collect();
        let handle = match self.stack.tcp_connect_with(now, to, local, &data) {
            Ok(handle) => handle,
            Err(error) => return Some(error.into()),
        };
        self.calls.subject = Some(handle);
        let options = self.descriptor(fd)?.options.clone();
        for (name, value) in options {
            self.apply(handle, &name, value);
        }
        let descriptor = self.descriptor(fd)?;
        descriptor.kind = Kind::Tcp(handle);
        descriptor.written = bytes as u32;
        Some(if descriptor.is_nonblocking {
            Outcome::Failed("EINPROGRESS")
        } else {
            Outcome::Blocks
        })
    }

    /// Connects by Fast Open. Without a cookie a socket that does not block keeps nothing of the data.
    fn send_fast(&mut self, fd: i64, call: &Call, is_first: bool) -> Option<Outcome> {
        let to = self.target(call.argument(4))?;
        let bytes = call.number(2)?;
        let has_cookie = self.calls.has_cookie;
        let keeps = has_cookie || !self.descriptor(fd)?.is_nonblocking;
        let kept = if keeps {
            usize::try_from(bytes).ok()?
        } else {
            0
        };
        Some(match self.connect(fd, to, is_first, kept)? {
            Outcome::Returned(_) => Outcome::Returned(bytes),
            Outcome::Blocks | Outcome::Failed("EINPROGRESS") if has_cookie => {
                Outcome::Returned(bytes)
            }
            other => other,
        })
    }

    fn connect_again(&mut self, fd: i64, handle: TcpHandle, is_first: bool) -> Option<Outcome> {
        let state = self.stack.tcp_state(handle)?;
        let descriptor = self.descriptor(fd)?;
        let (is_connected, is_nonblocking) = (descriptor.is_connected, descriptor.is_nonblocking);
        Some(match state {
            State::SynSent | State::SynReceived if is_nonblocking && is_first => {
                Outcome::Failed("EALREADY")
            }
            State::SynSent | State::SynReceived => Outcome::Blocks,
            State::Closed => match self.stack.tcp_take_error(handle) {
                Ok(Some(error)) => error.into(),
                _ => Outcome::Failed("ECONNABORTED"),
            },
            _ if is_connected => Outcome::Failed("EISCONN"),
            _ => {
                descriptor.is_connected = true;
                Outcome::Returned(0)
            }
        })
    }

    fn accept(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        let Kind::Listener(listener, _) = self.kind(fd)? else {
            return Some(Outcome::Failed("EINVAL"));
        };
        let (handle, peer) = match self.stack.tcp_accept(listener) {
            Ok(accepted) => accepted,
            Err(error) => return Some(error.into()),
        };
        let new = match call.result {
            Value::Number(new) if new > 0 => new,
            _ => return Some(Outcome::Returned(i64::from(peer.port()))),
        };
        self.calls.subject = Some(handle);
        let descriptor = self.descriptor(fd)?;
        descriptor.kind = Kind::Listener(listener, false);
        let options = descriptor.options.clone();
        for (name, value) in &options {
            self.apply(handle, name, *value);
        }
        let accepted = Descriptor {
            kind: Kind::Tcp(handle),
            is_nonblocking: call.has(3, "SOCK_NONBLOCK"),
            is_datagram: false,
            local: None,
            options,
            resets: false,
            written: 0,
            read: 0,
            progress: 0,
            is_connected: true,
        };
        self.calls.descriptors.insert(new, accepted);
        Some(Outcome::Returned(new))
    }

    fn receive(&mut self, fd: i64, bytes: i64) -> Option<Outcome> {
        let mut buffer = vec![0; usize::try_from(bytes).ok()?.min(BYTES_MAX)];
        let now = self.time();
        match self.kind(fd)? {
            Kind::Tcp(handle) => {
                let received = match self.stack.tcp_recv(now, handle, &mut buffer) {
                    Ok(received) => received,
                    Err(error) => return Some(error.into()),
                };
                let descriptor = self.descriptor(fd)?;
                let first = descriptor.read;
                descriptor.read = first.wrapping_add(received as u32);
                let is_right = buffer[..received]
                    .iter()
                    .zip(first..)
                    .all(|(byte, at)| *byte == pattern(at));
                Some(if is_right {
                    Outcome::Returned(received as i64)
                } else {
                    Outcome::Failed("data that the peer did not send")
                })
            }
            Kind::Udp(handle) => Some(match self.stack.udp_recv_from(handle, &mut buffer) {
                Ok((received, _)) => Outcome::Returned(received as i64),
                Err(error) => error.into(),
            }),
            _ => Some(Outcome::Failed("ENOTCONN")),
        }
    }

    fn send(&mut self, fd: i64, bytes: i64, is_first: bool) -> Option<Outcome> {
        let bytes = usize::try_from(bytes).ok()?.min(BYTES_MAX);
        let now = self.time();
        let descriptor = self.descriptor(fd)?;
        let is_nonblocking = descriptor.is_nonblocking;
        // What the attempts before took of a call that blocks.
        let done = if is_first { 0 } else { descriptor.progress };
        let first = descriptor.written;
        match self.kind(fd)? {
            Kind::Tcp(handle) => {
                let data: Vec<u8> = (0..(bytes - done) as u32)
                    .map(|at| pattern(first.wrapping_add(at)))
                    .collect();
                let taken = match self.stack.tcp_send(now, handle, &data) {
                    Ok(taken) => taken,
                    Err(StackError::WouldBlock) if !is_nonblocking => 0,
                    Err(StackError::NotConnected) => {
                        let state = self.stack.tcp_state(handle);
                        let opening = matches!(state, Some(State::SynSent | State::SynReceived));
                        return Some(if opening {
                            Outcome::Blocks
                        } else {
                            Outcome::Failed("ENOTCONN")
                        });
                    }
                    Err(error) => return Some(error.into()),
                };
                let descriptor = self.descriptor(fd)?;
                descriptor.written = first.wrapping_add(taken as u32);
                descriptor.progress = done + taken;
                Some(if done + taken < bytes && !is_nonblocking {
                    Outcome::Blocks
                } else {
                    Outcome::Returned((done + taken) as i64)
                })
            }
            Kind::Udp(handle) => {
                let data: Vec<u8> = (0..bytes as u32).map(pattern).collect();
                Some(match self.stack.udp_send_to(handle, &data, None) {
                    Ok(()) => Outcome::Returned(bytes as i64),
                    Err(error) => error.into(),
                })
            }
            _ => Some(Outcome::Failed("EPIPE")),
        }
    }

    fn send_to(&mut self, fd: i64, call: &Call, is_first: bool) -> Option<Outcome> {
        let Kind::Udp(handle) = self.kind(fd)? else {
            return self.send(fd, call.number(2)?, is_first);
        };
        let bytes = u32::try_from(call.number(2)?).ok()?;
        let to = self.target(call.argument(4))?;
        let data: Vec<u8> = (0..bytes).map(pattern).collect();
        Some(match self.stack.udp_send_to(handle, &data, Some(to)) {
            Ok(()) => Outcome::Returned(bytes.into()),
            Err(error) => error.into(),
        })
    }

    fn close(&mut self, fd: i64) -> Option<Outcome> {
        let now = self.time();
        let descriptor = self.calls.descriptors.remove(&fd)?;
        let closed = match descriptor.kind {
            Kind::Fresh => Ok(()),
            Kind::Listener(handle, _) => self.stack.tcp_close_listener(now, handle),
            Kind::Udp(handle) => self.stack.udp_close(now, handle),
            Kind::Tcp(handle) => {
                if descriptor.resets {
                    self.stack.tcp_abort(now, handle).ok()?;
                }
                self.stack.tcp_close(now, handle)
            }
        };
        Some(match closed {
            Ok(()) => Outcome::Returned(0),
            Err(error) => error.into(),
        })
    }

    fn shutdown(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        let Kind::Tcp(handle) = self.kind(fd)? else {
            return Some(Outcome::Failed("ENOTCONN"));
        };
        let how = match call.text(1) {
            "SHUT_RD" => Shutdown::Read,
            "SHUT_WR" => Shutdown::Write,
            "SHUT_RDWR" => Shutdown::Both,
            _ => return None,
        };
        Some(match self.stack.tcp_shutdown(self.time(), handle, how) {
            Ok(()) => Outcome::Returned(0),
            Err(error) => error.into(),
        })
    }

    fn control(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        match call.text(1) {
            "F_GETFL" => {}
            "F_SETFL" => self.descriptor(fd)?.is_nonblocking = call.has(2, "O_NONBLOCK"),
            _ => return None,
        }
        // Of the flags that F_GETFL returns, scripts know O_RDWR and O_NONBLOCK by name only.
        Some(match (call.text(1), &call.result) {
            ("F_GETFL", Value::Number(flags)) => Outcome::Returned(*flags),
            _ => Outcome::Returned(0),
        })
    }

    fn query(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        let Kind::Tcp(handle) = self.kind(fd)? else {
            return None;
        };
        let info = self.stack.tcp_info(handle).ok()?;
        let value = match call.text(1) {
            "SIOCINQ" | "FIONREAD" => info.readable,
            "SIOCOUTQ" => info.queued,
            _ => return None,
        };
        compare(call.argument(2), i64::from(value))
    }

    fn set(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        let name = call.text(2).to_owned();
        let value = match call.argument(3) {
            Value::Array(values) => match values.first()? {
                Value::Number(value) => *value,
                Value::Symbols(symbols) if name == "IP_MTU_DISCOVER" => {
                    i64::from(symbols.is_empty())
                }
                _ => return None,
            },
            Value::Fields(fields) if name == "SO_LINGER" => {
                let mut numbers = fields.iter().map(|(_, value)| value.clone());
                self.descriptor(fd)?.resets =
                    numbers.next()? == Value::Number(1) && numbers.next()? == Value::Number(0);
                return Some(Outcome::Returned(0));
            }
            Value::Text(text) if name == "TCP_CONGESTION" => match text.as_str() {
                "reno" => 0,
                "cubic" => 1,
                "bbr" => 2,
                _ => return None,
            },
            _ => return None,
        };
        let known = matches!(
            name.as_str(),
            "SO_REUSEADDR" | "SO_REUSEPORT" | "TCP_FASTOPEN" | "IP_MTU_DISCOVER" | "TCP_QUICKACK"
        ) || option(&name, value, &[]).is_some()
            || KEEPALIVE.contains(&name.as_str());
        if !known {
            return None;
        }
        let descriptor = self.descriptor(fd)?;
        descriptor.options.retain(|(other, _)| *other != name);
        descriptor.options.push((name.clone(), value));
        if let Kind::Tcp(handle) = descriptor.kind {
            self.apply(handle, &name, value);
        }
        Some(Outcome::Returned(0))
    }

    /// Sets an option of a connection.
    fn apply(&mut self, handle: TcpHandle, name: &str, value: i64) {
        let options = self
            .calls
            .descriptors
            .values()
            .find(|descriptor| matches!(descriptor.kind, Kind::Tcp(other) if other == handle))
            .map(|descriptor| descriptor.options.clone())
            .unwrap_or_default();
        if let Some(option) = option(name, value, &options) {
            // Fails for a stale handle only, which the next call tells.
            let _ = self.stack.tcp_set(self.time(), handle, option);
        }
    }

    fn get(&mut self, fd: i64, call: &Call) -> Option<Outcome> {
        let name = call.text(2);
        let value = match (name, self.kind(fd)?) {
            ("SO_ERROR", Kind::Tcp(handle)) => match self.stack.tcp_take_error(handle) {
                Ok(error) => error.map_or(0, |error| number_of(errno(error))),
                Err(error) => return Some(error.into()),
            },
            ("TCP_MAXSEG", Kind::Tcp(handle)) => {
                self.stack.tcp_info(handle).ok()?.segment_bytes.into()
            }
            _ => {
                let descriptor = self.descriptor(fd)?;
                let set = descriptor.options.iter().find(|(other, _)| other == name);
                set.map_or(0, |(_, value)| *value)
            }
        };
        compare(call.argument(3), value)
    }

    fn poll(&mut self, call: &Call) -> Option<Outcome> {
        let Value::Array(entries) = call.argument(0) else {
            return None;
        };
        let mut ready = 0;
        let mut is_right = true;
        for entry in entries {
            let Value::Fields(fields) = entry else {
                return None;
            };
            let get = |name: &str| {
                let field = fields
                    .iter()
                    .find(|(other, _)| other.as_deref() == Some(name));
                field.map(|(_, value)| value.clone())
            };
            let Some(Value::Number(fd)) = get("fd") else {
                return None;
            };
            let asked = symbols(get("events"));
            let mut found = self.readiness(fd)?;
            found.retain(|name| {
                matches!(*name, "POLLERR" | "POLLHUP") || asked.iter().any(|a| a == name)
            });
            ready += i64::from(!found.is_empty());
            let mut wanted = symbols(get("revents"));
            wanted.sort_unstable();
            found.sort_unstable();
            is_right &= wanted == found;
        }
        let waits = ready == 0 && call.number(2) != Some(0) && call.result != Value::Number(0);
        Some(if waits {
            Outcome::Blocks
        } else if is_right {
            Outcome::Returned(ready)
        } else {
            Outcome::Failed("other events")
        })
    }

    fn readiness(&mut self, fd: i64) -> Option<Vec<&'static str>> {
        let mut found = Vec::new();
        match self.kind(fd)? {
            Kind::Listener(_, true) => found.push("POLLIN"),
            Kind::Tcp(handle) => {
                let state = self.stack.tcp_state(handle)?;
                let info = self.stack.tcp_info(handle).ok();
                let peer_closed = matches!(
                    state,
                    State::CloseWait
                        | State::LastAck
                        | State::Closing
                        | State::TimeWait
                        | State::Closed
                );
                if peer_closed || info.is_some_and(|info| info.readable > 0) {
                    found.push("POLLIN");
                }
                if peer_closed {
                    found.push("POLLRDHUP");
                }
                if !matches!(state, State::SynSent | State::SynReceived) {
                    found.push("POLLOUT");
                }
                if matches!(state, State::Closed | State::TimeWait) {
                    found.push("POLLHUP");
                }
                if self.calls.faulty.contains(&handle) {
                    found.push("POLLERR");
                }
            }
            _ => {}
        }
        Some(found)
    }

    /// Returns the connection that assertions are about.
    pub(crate) const fn subject(&self) -> Option<TcpHandle> {
        self.calls.subject
    }
}

/// Options that come in three parts.
const KEEPALIVE: [&str; 4] = [
    "SO_KEEPALIVE",
    "TCP_KEEPIDLE",
    "TCP_KEEPINTVL",
    "TCP_KEEPCNT",
];

/// Returns the stack's option of a name; `set` are all that the socket has.
fn option(name: &str, value: i64, set: &[(String, i64)]) -> Option<TcpOption> {
    let of = |name: &str| set.iter().find(|(other, _)| other == name).map(|(_, v)| *v);
    let bytes = || u32::try_from(value).ok();
    Some(match name {
        "TCP_NODELAY" => TcpOption::NoDelay(value != 0),
        "TCP_CORK" => TcpOption::Cork(value != 0),
        "TCP_USER_TIMEOUT" => {
            TcpOption::UserTimeout((value > 0).then(|| Duration::from_millis(value.unsigned_abs())))
        }
        "SO_RCVBUF" => TcpOption::ReceiveBuffer(bytes()?),
        "SO_SNDBUF" => TcpOption::SendBuffer(bytes()?),
        "IP_TTL" | "IPV6_UNICAST_HOPS" => TcpOption::Ttl(u8::try_from(value).ok()?),
        "IP_TOS" | "IPV6_TCLASS" => TcpOption::Tos(u8::try_from(value).ok()?),
        "TCP_CONGESTION" => TcpOption::Congestion(match value {
            0 => Algorithm::NewReno,
            1 => Algorithm::Cubic,
            _ => Algorithm::Bbr,
        }),
        _ if KEEPALIVE.contains(&name) && of("SO_KEEPALIVE") == Some(1) => {
            let seconds =
                |name, default| Duration::from_secs(of(name).unwrap_or(default).unsigned_abs());
            TcpOption::KeepAlive(Some((
                seconds("TCP_KEEPIDLE", 7200),
                seconds("TCP_KEEPINTVL", 75),
                u8::try_from(of("TCP_KEEPCNT").unwrap_or(9)).ok()?,
            )))
        }
        "SO_KEEPALIVE" if value == 0 && !set.is_empty() => TcpOption::KeepAlive(None),
        _ => return None,
    })
}

fn compare(wanted: &Value, actual: i64) -> Option<Outcome> {
    let wanted = match wanted {
        Value::Array(values) => values.first()?,
        other => other,
    };
    let is_same = match wanted {
        Value::Any => true,
        Value::Number(number) => *number == actual,
        Value::Symbols(symbols) => number_of(symbols.first()?) == actual,
        _ => return None,
    };
    Some(if is_same {
        Outcome::Returned(0)
    } else {
        Outcome::Failed("another value")
    })
}

fn number_of(name: &str) -> i64 {
    let known = ERRNOS.iter().find(|(other, _)| *other == name);
    known.map_or(0, |(_, number)| *number)
}

fn symbols(value: Option<Value>) -> Vec<String> {
    match value {
        Some(Value::Symbols(symbols)) => symbols,
        _ => Vec::new(),
    }
}

/// Returns the sum of `{msg_name(...)=..., msg_iov(2)=[{..., 100}, {..., 200}], msg_flags=0}`.
fn message_bytes(value: &Value) -> Option<i64> {
    let Value::Fields(fields) = value else {
        return None;
    };
    let mut names = fields.iter();
    let (_, vectors) = names.find(|(name, _)| name.as_deref() == Some("msg_iov"))?;
    let Value::Array(vectors) = vectors else {
        return None;
    };
    vectors
        .iter()
        .map(|vector| match vector {
            Value::Fields(parts) => match parts.last() {
                Some((_, Value::Number(bytes))) => Some(*bytes),
                _ => None,
            },
            _ => None,
        })
        .sum()
}

/// Reads `{sa_family = AF_INET, sin_port = htons(80), sin_addr = inet_addr("192.0.2.1")}`.
fn read_address(value: &Value) -> Option<SocketAddr> {
    let Value::Fields(fields) = value else {
        return None;
    };
    let (mut port, mut ip) = (0, None::<IpAddr>);
    for (_, value) in fields {
        match value {
            Value::Apply(name, arguments) => match (name.as_str(), arguments.as_slice()) {
                ("htons", [Value::Number(number)]) => port = u16::try_from(*number).ok()?,
                ("inet_addr" | "inet_pton", [.., Value::Text(text)]) => ip = text.parse().ok(),
                _ => return None,
            },
            Value::Symbols(_) => {}
            _ => return None,
        }
    }
    Some(SocketAddr::new(ip?, port))
}
