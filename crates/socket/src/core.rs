//! What all sockets have in common: a slot, its mailbox, its rings, and waiting.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::area::{Slot, status, wait, word};
use crate::attachment::{Attachment, ended, lock};
use crate::code::{self, operation};

/// A socket of one worker. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) worker: usize,
    pub(crate) slot: usize,
    /// Number of the last command.
    commands: Mutex<u64>,
    /// One thread reads, one writes.
    pub(crate) reading: Mutex<()>,
    pub(crate) writing: Mutex<()>,
    pub(crate) options: Options,
}

/// What the application's side alone knows; nanoseconds, 0: none.
#[derive(Debug, Default)]
pub(crate) struct Options {
    read_timeout_ns: AtomicU64,
    write_timeout_ns: AtomicU64,
    pub(crate) nonblocking: AtomicBool,
    pub(crate) no_delay: AtomicBool,
    pub(crate) ttl: AtomicU64,
    pub(crate) read_closed: AtomicBool,
    pub(crate) write_closed: AtomicBool,
}

/// Bounds how long a wait goes without a look whether the other side is still there.
const LOOK: Duration = Duration::from_secs(1);

impl Socket {
    /// Makes a socket of a worker, with no command yet.
    pub(crate) fn new(attachment: &Arc<Attachment>, worker: usize) -> io::Result<Self> {
        let slot = attachment.take_slot(worker)?;
        Ok(Self::at(attachment, worker, slot))
    }

    /// Takes over a slot that a worker filled.
    pub(crate) fn at(attachment: &Arc<Attachment>, worker: usize, slot: usize) -> Self {
        let options = Options::default();
        options.ttl.store(64, Ordering::Relaxed);
        Self {
            attachment: Arc::clone(attachment),
            worker,
            slot,
            commands: Mutex::new(0),
            reading: Mutex::new(()),
            writing: Mutex::new(()),
            options,
        }
    }

    #[inline]
    pub(crate) fn shared(&self) -> Slot<'_> {
        self.attachment.area.lanes[self.worker].slot(self.slot)
    }

    #[inline]
    pub(crate) fn poke(&self) {
        self.attachment.poke(self.worker, self.slot);
    }

    fn has_ended(&self) -> bool {
        self.attachment.area.lanes[self.worker].has_ended()
    }

    /// Has the worker do something and waits for its answer.
    pub(crate) fn command(&self, what: u64, arguments: &[u64]) -> io::Result<()> {
        let mut number = lock(&self.commands);
        self.post(&mut number, what, arguments);
        let slot = self.shared();
        self.block_on(&[self], wait::ANSWER, None, || {
            let answered = slot.get(word::ANSWERED) == *number;
            answered.then(|| match code::to_error(slot.get(word::RESULT)) {
                None => Ok(()),
                Some(error) => Err(error.into()),
            })
        })
    }

    fn post(&self, number: &mut u64, what: u64, arguments: &[u64]) {
        let slot = self.shared();
        for (at, value) in (word::ARGUMENTS..).zip(arguments) {
            slot.put(at, *value);
        }
        slot.put(word::OPERATION, what);
        *number += 1;
        slot.put(word::COMMAND, *number);
        self.poke();
    }

    /// Calls `attempt` until it has a result, waiting in between at this socket for one of `bits`; after
    /// `timeout` the result is [`ErrorKind::WouldBlock`], as std's.
    pub(crate) fn block_on<T>(
        &self,
        of: &[&Socket],
        bits: u64,
        timeout: Option<Duration>,
        mut attempt: impl FnMut() -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(result) = attempt() {
                return result;
            }
            let seen = self.shared().prepare(bits);
            if let Some(result) = attempt() {
                return result;
            }
            if of.iter().any(|socket| socket.has_ended()) {
                return Err(ended());
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let length = left.map_or(LOOK, |left| left.min(LOOK));
            self.shared().block(seen, Some(length));
        }
    }

    /// Takes the error that waits in the socket.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let slot = self.shared();
        if slot.get(word::ERROR) == 0 {
            return None;
        }
        let number = slot.word(word::ERROR).swap(0, Ordering::AcqRel);
        code::to_error(number).map(io::Error::from)
    }

    #[inline]
    pub(crate) fn status(&self) -> u64 {
        self.shared().get(word::STATUS)
    }

    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        let address = self.shared().address(word::LOCAL);
        address.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// After taking bytes out of the receive ring: tells the worker if it waits for room and there is some.
    #[inline]
    pub(crate) fn after_read(&self) {
        // SeqCst: pairs with the fence in the worker's `pump_in`.
        fence(Ordering::SeqCst);
        let slot = self.shared();
        if slot.get(word::ROOM) == 0 {
            return;
        }
        let ring = slot.receive();
        // In large steps: half a ring, or all of it.
        if ring.capacity() - ring.len() >= ring.capacity() / 2 {
            slot.word(word::ROOM).store(0, Ordering::Relaxed);
            self.poke();
        }
    }

    pub(crate) fn read_timeout(&self) -> Option<Duration> {
        some_time(&self.options.read_timeout_ns)
    }
    pub(crate) fn write_timeout(&self) -> Option<Duration> {
        some_time(&self.options.write_timeout_ns)
    }
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_time(&self.options.read_timeout_ns, timeout)
    }
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_time(&self.options.write_timeout_ns, timeout)
    }

    /// Returns the time that a call may block for: none at all, some, or for ever.
    pub(crate) fn patience(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.options.nonblocking.load(Ordering::Relaxed) {
            Some(Duration::ZERO)
        } else {
            timeout
        }
    }

    /// Tells whether nothing more comes.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.status() & status::END != 0 || self.options.read_closed.load(Ordering::Relaxed)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut number = match self.commands.get_mut() {
            Ok(number) => *number,
            Err(poisoned) => *poisoned.into_inner(),
        };
        self.post(&mut number, operation::CLOSE, &[]);
    }
}

fn some_time(ns: &AtomicU64) -> Option<Duration> {
    match ns.load(Ordering::Relaxed) {
        0 => None,
        ns => Some(Duration::from_nanos(ns)),
    }
}

fn set_time(place: &AtomicU64, timeout: Option<Duration>) -> io::Result<()> {
    let ns = match timeout {
        // As std.
        Some(Duration::ZERO) => {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "a timeout of zero; use set_nonblocking",
            ));
        }
        Some(timeout) => u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
        None => 0,
    };
    place.store(ns, Ordering::Relaxed);
    Ok(())
}

/// Tries each address until one works, as std's functions that take several.
pub(crate) fn each<T>(
    addresses: impl std::net::ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(value) => return Ok(value),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(
            ErrorKind::InvalidInput,
            "could not resolve to any addresses",
        )
    }))
}

/// Words of a command that opens: address, a number, and the slot that is woken.
pub(crate) fn open_arguments(address: SocketAddr, number: u64, wakes: (usize, usize)) -> [u64; 6] {
    let [a, b, c] = code::of_address(Some(address));
    [a, b, c, number, wakes.0 as u64, wakes.1 as u64]
}
