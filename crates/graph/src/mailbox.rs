//! Messages from the control side to a worker, and what comes back: acknowledgements, counters, captures.

use std::sync::Arc;

use io::{Doorbell, WorkerId};
use tables::ring::{Producer, spsc};

use crate::capture::{Filter, Tap, Tapped, tap};
use crate::counters::WorkerCounters;
use crate::handoff::Mesh;
use crate::idle::{IdleConfig, Mode};
use crate::node::Snapshot;

/// What the control side tells a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Give every node a new published configuration.
    Reload(Snapshot),
    /// Wait for packets by other rules: a mode a port, and the configuration of the machines.
    Idle(Box<(Vec<Mode>, IdleConfig)>),
    /// Turn the capture on, or off.
    Capture(Option<Filter>),
    /// Stop receiving, send what is inside, give all frames back, and end.
    Drain,
}

/// A command with its number.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) number: u64,
    pub(crate) command: Command,
}

/// Messages that wait at most.
const MAILBOX_DEPTH: usize = 64;
/// Capture records a worker has.
const RECORDS: usize = 1024;
/// Bytes of a frame that a capture record holds.
const RECORD_BYTES: usize = 2048;

/// The worker has too many messages that it has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {worker} does not read its messages (is its thread stopped or starved?)")]
pub struct MailboxFull {
    /// The worker.
    pub worker: WorkerId,
}

/// The control side's handle to a worker.
#[derive(Debug)]
pub struct WorkerHandle {
    id: WorkerId,
    messages: Producer<Message>,
    bells: Arc<[Doorbell]>,
    counters: Arc<WorkerCounters>,
    tapped: Tapped,
    sent: u64,
    /// Published configurations that the worker may still use, with the number of the message.
    published: Vec<(u64, Snapshot)>,
}

/// What [`connect`] makes for the worker.
#[derive(Debug)]
pub(crate) struct WorkerSide {
    pub(crate) messages: tables::ring::Consumer<Message>,
    pub(crate) tap: Tap,
}

pub(crate) fn connect(mesh: &Mesh, counters: &Arc<WorkerCounters>) -> (WorkerHandle, WorkerSide) {
    let (producer, consumer) = spsc(MAILBOX_DEPTH);
    let (tap, tapped) = tap(mesh.id(), RECORDS, RECORD_BYTES);
    let handle = WorkerHandle {
        id: mesh.id(),
        messages: producer,
        bells: Arc::clone(mesh.bells()),
        counters: Arc::clone(counters),
        tapped,
        sent: 0,
        published: Vec::new(),
    };
    (
        handle,
        WorkerSide {
            messages: consumer,
            tap,
        },
    )
}

impl WorkerHandle {
    /// Returns the worker's id.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns the worker's counters.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Gives every node of the worker a new published configuration; returns the message's number (see
    /// [`WorkerHandle::is_done`]). The previous one is freed here, not by the worker, once the worker has
    /// moved on.
    ///
    /// # Errors
    /// The worker does not read its messages.
    pub fn reload(&mut self, snapshot: Snapshot) -> Result<u64, MailboxFull> {
        let kept = Arc::clone(&snapshot);
        let number = self.send(Command::Reload(snapshot))?;
        let done = self.counters.acknowledged.get();
        // What the last acknowledged reload of a kind published is in use; what came before it is not.
        let kind = (*kept).type_id();
        let is_same = |other: &Snapshot| (**other).type_id() == kind;
        let published = &self.published;
        let in_use = published
            .iter()
            .rposition(|(n, old)| *n <= done && is_same(old));
        if let Some(in_use) = in_use.map(|at| published[at].0) {
            self.published
                .retain(|(n, old)| *n >= in_use || !is_same(old));
        }
        self.published.push((number, kept));
        Ok(number)
    }

    /// Lets the worker wait for packets by other rules, from its next pass on: a mode for each port, and
    /// the configuration of the idle machines, which start anew.
    ///
    /// # Errors
    /// The worker does not read its messages.
    pub fn set_idle(&mut self, modes: Vec<Mode>, config: IdleConfig) -> Result<u64, MailboxFull> {
        self.send(Command::Idle(Box::new((modes, config))))
    }

    /// Turns the capture on with a filter, or off.
    ///
    /// # Errors
    /// The worker does not read its messages.
    pub fn capture(&mut self, filter: Option<Filter>) -> Result<u64, MailboxFull> {
        self.send(Command::Capture(filter))
    }

    /// Tells the worker to stop receiving, to send what is inside, and to end.
    ///
    /// # Errors
    /// The worker does not read its messages.
    pub fn drain(&mut self) -> Result<u64, MailboxFull> {
        self.send(Command::Drain)
    }

    /// Tells whether the worker has acted on the message with this number.
    pub fn is_done(&self, number: u64) -> bool {
        self.counters.acknowledged.get() >= number
    }

    /// Returns the other end of the capture.
    pub fn captured(&mut self) -> &mut Tapped {
        &mut self.tapped
    }

    fn send(&mut self, command: Command) -> Result<u64, MailboxFull> {
        let number = self.sent + 1;
        self.messages
            .push(Message { number, command })
            .map_err(|_| MailboxFull { worker: self.id })?;
        self.sent = number;
        self.bells[self.id.index()].ring();
        Ok(number)
    }
}
