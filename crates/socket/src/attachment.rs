//! The application's side of an area: places for sockets, doorbells of workers, and the thread that wakes tasks.

use std::any::Any;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::task::Waker;

use io::ErrorKind;

use ::io::Doorbell;

use crate::area::Area;

/// How a worker that sleeps is woken.
#[derive(Debug)]
pub(crate) enum Bell {
    /// The doorbells of the workers of this process, by worker.
    Local(Arc<[Doorbell]>),
    /// Sockets to the workers of another process, by worker.
    Remote(Vec<UnixDatagram>),
}

/// Tasks that wait at a socket: who reads or accepts, and who writes or connects.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<[Option<Waker>; 2]>);

impl Tasks {
    /// Notes who is to be woken.
    pub(crate) fn set(&self, writer: bool, waker: &Waker) {
        let place = &mut lock(&self.0)[usize::from(writer)];
        if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *place = Some(waker.clone());
        }
    }

    fn wake(&self) {
        let tasks = core::mem::take(&mut *lock(&self.0));
        tasks.into_iter().flatten().for_each(Waker::wake);
    }
}

/// An application's connection to a host. Sockets keep it.
pub(crate) struct Attachment {
    pub(crate) area: Arc<Area>,
    bell: Bell,
    /// By worker and slot.
    tasks: Vec<Vec<Tasks>>,
    next_worker: AtomicUsize,
    waking: Once,
    /// What ends when the last socket and handle are gone.
    keeps: Option<Box<dyn Any + Send + Sync>>,
}

impl core::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Attachment")
            .field("workers", &self.area.lanes.len())
            .finish_non_exhaustive()
    }
}

/// Takes a lock of the application's side; nothing panics half-way through a change.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attachment {
    pub(crate) fn new(
        area: Arc<Area>,
        bell: Bell,
        keeps: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let tasks = area
            .lanes
            .iter()
            .map(|lane| (0..lane.sockets()).map(|_| Tasks::default()).collect())
            .collect();
        Self {
            area,
            bell,
            tasks,
            next_worker: AtomicUsize::new(0),
            waking: Once::new(),
            keeps,
        }
    }

    /// Returns how many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.area.lanes.len()
    }

    /// Chooses the worker of a new connection, in turn.
    pub(crate) fn next_worker(&self) -> usize {
        self.next_worker.fetch_add(1, Ordering::Relaxed) % self.workers()
    }

    /// Takes a place for a socket.
    pub(crate) fn take_slot(&self, worker: usize) -> io::Result<usize> {
        let lane = &self.area.lanes[worker];
        if lane.has_ended() {
            return Err(ended());
        }
        lane.free.take_one(0).ok_or_else(|| {
            io::Error::new(
                ErrorKind::QuotaExceeded,
                "all sockets of the host are in use; close some, or start it with more",
            )
        })
    }

    /// Tells a worker to look at a slot.
    #[inline]
    pub(crate) fn poke(&self, worker: usize, slot: usize) {
        if self.area.lanes[worker].poke(slot) {
            match &self.bell {
                Bell::Local(bells) => bells[worker].signal(),
                // A full one wakes it, too; that the node is gone is found out by who waits.
                Bell::Remote(bells) => drop(bells[worker].send(&[1])),
            }
        }
    }

    /// Returns the tasks that wait at a socket.
    pub(crate) fn tasks(&self, worker: usize, slot: usize) -> &Tasks {
        &self.tasks[worker][slot]
    }

    /// Starts the thread that wakes tasks, at the first use.
    pub(crate) fn start_waking(self: &Arc<Self>) {
        self.waking.call_once(|| {
            let weak = Arc::downgrade(self);
            let area = Arc::clone(&self.area);
            let thread = std::thread::Builder::new().name("socket-tasks".into());
            let started = thread.spawn(move || {
                loop {
                    area.lanes[0].wait_for_tasks(&area);
                    let Some(this) = weak.upgrade() else { return };
                    for (lane, tasks) in this.area.lanes.iter().zip(&this.tasks) {
                        lane.ready.take(|slot| {
                            if let Some(tasks) = tasks.get(slot) {
                                tasks.wake();
                            }
                        });
                    }
                    if area.lanes[0].has_ended() {
                        return;
                    }
                }
            });
            if started.is_err() {
                // Without it tasks would sleep for ever.
                self.area.lanes.iter().for_each(|lane| lane.end());
            }
        });
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        drop(self.keeps.take());
        self.area.lanes[0].ring_anyway();
    }
}

/// What every call returns once the host has stopped.
pub(crate) fn ended() -> io::Error {
    io::Error::new(
        ErrorKind::NotConnected,
        "the host of this socket has stopped",
    )
}
