//! Kernel sockets of one worker: streams, and datagrams in bursts.

use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use wire::ndn::{DecodeError, Tlv};

/// Bytes of the longest link packet.
pub(super) const FRAME_BYTES_MAX: usize = 9216;
/// Bytes that a stream reads before others have their turn.
pub(super) const READ_BUDGET: usize = 512 << 10;
/// Bytes that wait for a stream at most; what comes then is lost.
pub(super) const STREAM_QUEUE_MAX: usize = 4 << 20;
/// Datagrams that one system call receives or sends.
const BURST: usize = 64;

/// A connected stream. It is a file to read and to write, whether it is a Unix or a TCP socket.
#[derive(Debug)]
pub(super) struct Stream {
    socket: File,
    received: Vec<u8>,
    /// From where on `queued` is to be sent.
    sent: usize,
    queued: Vec<u8>,
    /// The kernel took less than it was offered: it says when there is room.
    pub(super) is_blocked: bool,
    /// It is among those that [`Stream::flush`] is to be called for.
    pub(super) is_dirty: bool,
}

/// What a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    Open,
    Ended,
}

impl Stream {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket: File::from(socket),
            received: Vec::new(),
            sent: 0,
            queued: Vec::new(),
            is_blocked: false,
            is_dirty: false,
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the bytes that wait to be sent.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued.len() - self.sent
    }

    /// Queues a link packet; false if too much waits.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        if self.queued_bytes() + frame.len() > STREAM_QUEUE_MAX {
            return false;
        }
        self.queued.extend_from_slice(frame);
        true
    }

    /// Gives the kernel what it takes.
    pub(super) fn flush(&mut self) -> StreamState {
        self.is_dirty = false;
        while self.sent < self.queued.len() {
            match self.socket.write(&self.queued[self.sent..]) {
                Ok(0) => return StreamState::Ended,
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    if self.sent > STREAM_QUEUE_MAX / 2 {
                        self.queued.drain(..self.sent);
                        self.sent = 0;
                    }
                    return StreamState::Open;
                }
                Err(_) => return StreamState::Ended,
            }
        }
        self.queued.clear();
        self.sent = 0;
        self.is_blocked = false;
        StreamState::Open
    }

    /// Reads what is there into the buffer, within a budget; takes the buffer out, for
    /// [`Stream::put_back`].
    pub(super) fn read(&mut self) -> (Vec<u8>, StreamState) {
        let mut buffer = core::mem::take(&mut self.received);
        let mut taken = 0;
        let mut length = buffer.len();
        let state = loop {
            if taken >= READ_BUDGET {
                break StreamState::Open;
            }
            let room = if taken == 0 { 16 << 10 } else { 128 << 10 };
            buffer.resize(length + room, 0);
            match self.socket.read(&mut buffer[length..]) {
                Ok(0) => break StreamState::Ended,
                Ok(got) => {
                    length += got;
                    taken += got;
                    if got < room {
                        // A later packet makes the socket ready again.
                        break StreamState::Open;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break StreamState::Open,
                Err(_) => break StreamState::Ended,
            }
        };
        buffer.truncate(length);
        (buffer, state)
    }

    /// Gives the buffer back, of which `used` bytes were link packets.
    pub(super) fn put_back(&mut self, mut buffer: Vec<u8>, used: usize) {
        buffer.drain(..used);
        self.received = buffer;
    }
}

/// Finds the next link packet in what a stream received.
///
/// # Errors
/// The rest is no link packet: the stream cannot be used any more.
pub(super) fn next_frame(bytes: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    match Tlv::read(bytes) {
        Ok(element) if element.bytes.len() > FRAME_BYTES_MAX => Err(DecodeError::TooLong),
        Ok(element) => Ok(Some(element.bytes)),
        Err(DecodeError::Truncated) if bytes.len() < FRAME_BYTES_MAX => Ok(None),
        Err(error) => Err(error),
    }
}

thread_local! {
    // The kernel's view of a burst: it holds pointers and stays on its thread. After a call it keeps the pointers and
    // the lengths of addresses of that call: so there is one to send, and one to receive for each kind of address.
    static SENT: RefCell<Headers> = RefCell::new(Headers::preallocate(BURST, None));
    static RECEIVED4: RefCell<Headers> = RefCell::new(Headers::preallocate(BURST, None));
    static RECEIVED6: RefCell<Headers> = RefCell::new(Headers::preallocate(BURST, None));
}

type Headers = MultiHeaders<SockaddrStorage>;

/// Room for a burst of received datagrams, shared by the sockets of a worker.
#[derive(Debug)]
pub(super) struct Burst {
    buffer: Vec<u8>,
}

impl Burst {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BURST * FRAME_BYTES_MAX],
        }
    }

    /// Datagrams that one call receives at most.
    pub(super) const DATAGRAMS: usize = BURST;

    /// Receives what is there, at most a burst; `take` gets senders and datagrams. Returns how many came.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        is_ipv6: bool,
        take: impl FnOnce(&[(SocketAddr, &[u8])]),
    ) -> usize {
        let flags = MsgFlags::MSG_DONTWAIT;
        let fd = socket.as_raw_fd();
        let buffer = &mut self.buffer;
        let headers = if is_ipv6 { &RECEIVED6 } else { &RECEIVED4 };
        headers.with_borrow_mut(|headers| {
            let mut places: Vec<[IoSliceMut<'_>; 1]> = buffer
                .chunks_exact_mut(FRAME_BYTES_MAX)
                .map(|place| [IoSliceMut::new(place)])
                .collect();
            // An error is one datagram's, e.g. that a peer's port is closed; the next call goes on.
            let Ok(results) = recvmmsg(fd, headers, &mut places, flags, None) else {
                return 0;
            };
            let mut count = 0;
            let mut datagrams = Vec::with_capacity(BURST);
            for message in results {
                count += 1;
                let sender = message.address.as_ref().and_then(address_of);
                if let (Some(sender), Some(datagram)) = (sender, message.iovs().next()) {
                    datagrams.push((sender, datagram));
                }
            }
            take(&datagrams);
            count
        })
    }
}

/// Datagrams that wait to be sent by one socket.
#[derive(Debug)]
pub(super) struct Datagrams {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    to: Vec<Option<SockaddrStorage>>,
    /// The socket has an IPv6 address.
    pub(super) is_ipv6: bool,
    /// Datagrams that the kernel refused.
    refused: u64,
}

impl Datagrams {
    pub(super) fn new(is_ipv6: bool) -> Self {
        Self {
            is_ipv6,
            bytes: Vec::new(),
            ends: Vec::with_capacity(BURST),
            to: Vec::with_capacity(BURST),
            refused: 0,
        }
    }

    /// Queues a datagram; sends what waits if it is a burst.
    pub(super) fn push(&mut self, socket: &UdpSocket, to: &SockaddrStorage, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.ends.push(self.bytes.len());
        self.to.push(Some(*to));
        if self.ends.len() == BURST {
            self.flush(socket);
        }
    }

    /// Returns how many datagrams the kernel refused since the last call.
    pub(super) fn take_refused(&mut self) -> u64 {
        core::mem::take(&mut self.refused)
    }

    /// Sends what waits. What the kernel does not take is lost, as on any link.
    pub(super) fn flush(&mut self, socket: &UdpSocket) {
        if self.ends.is_empty() {
            return;
        }
        let mut start = 0;
        let slices: Vec<[IoSlice<'_>; 1]> = self
            .ends
            .iter()
            .map(|&end| {
                let datagram = &self.bytes[start..end];
                start = end;
                [IoSlice::new(datagram)]
            })
            .collect();
        let mut at = 0;
        while at < slices.len() {
            let flags = MsgFlags::MSG_DONTWAIT;
            let fd = socket.as_raw_fd();
            let no_control = [];
            let sent = SENT.with_borrow_mut(|headers| {
                let sent = sendmmsg(
                    fd,
                    headers,
                    &slices[at..],
                    &self.to[at..],
                    no_control,
                    flags,
                );
                sent.map_or(0, Iterator::count)
            });
            match sent {
                1.. => at += sent,
                // The first one is refused: too long, no route, no room.
                0 => {
                    at += 1;
                    self.refused += 1;
                }
            }
        }
        drop(slices);
        self.bytes.clear();
        self.ends.clear();
        self.to.clear();
    }
}

/// Translates an address of the standard library.
pub(super) fn storage(address: SocketAddr) -> SockaddrStorage {
    SockaddrStorage::from(address)
}

fn address_of(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddrV4::from(*v4).into());
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some(SocketAddrV6::from(*v6).into())
}
