//! What a node is: it takes a batch and hands each frame to one of its edges, or drops it with a reason.

use core::any::Any;
use std::sync::Arc;

use io::wait::PollSet;
use io::{Batch, Pool, WorkerId};
use wire::Instant;

use crate::outlets::Outlets;

/// One of a node's outgoing edges: an index into [`Node::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeId(pub u8);

/// A published configuration (forwarding tables, interface addresses, rules), read-only from then on.
///
/// The control thread keeps a reference until every worker has applied a later one, so that no
/// worker ever frees one.
pub type Snapshot = Arc<dyn Any + Send + Sync>;

/// What a worker lends a node for one call.
#[derive(Debug)]
pub struct Context<'a> {
    /// The worker's time, read once a burst.
    pub now: Instant,
    /// The worker that runs the node.
    pub worker: WorkerId,
    /// The worker's frames: take one to originate a packet. A frame that a node is done with goes to
    /// [`Outlets::consume`] or [`Outlets::drop`], which count it, rather than straight to the pool.
    pub pool: &'a mut Pool,
    /// Packets for which the transmit queues had no room at the end of the last pass. A node that originates
    /// packets at its own pace waits while there are any.
    pub held_pkts: usize,
}

/// A stage of packet processing, owned by one worker.
///
/// A node has no clock, socket, thread or lock; it gets the time by [`Context::now`]. It does not
/// allocate while it processes.
pub trait Node: Send + core::fmt::Debug {
    /// Returns the name that stats and traces show, e.g. `ip4-forward`; unique in a graph.
    fn name(&self) -> &str;

    /// Returns the names of the outgoing edges; an [`EdgeId`] is an index into it.
    fn edges(&self) -> &[&'static str];

    /// Takes every frame of `batch` and gives each to an edge, drops it or consumes it; `batch` is
    /// empty after, unless [`Outlets::push_rest`] says where what is left goes. Called with 1 to 64 frames.
    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets);

    /// Returns when [`Node::handle_timeout`] wants to be called next, if ever. Asked after each call of
    /// the other methods.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does what is due at `cx.now`; may send frames by `out`.
    fn handle_timeout(&mut self, _cx: &mut Context<'_>, _out: &mut Outlets) {}

    /// Tells whether the node gets work by other ways than frames and timers (rings of applications): then
    /// [`Node::has_work`], [`Node::arm`] and [`Node::disarm`] are called. Asked once, when the graph is built.
    fn is_polled(&self) -> bool {
        false
    }

    /// Tells whether there is such work. Asked in every pass: it costs a load or two.
    fn has_work(&self) -> bool {
        false
    }

    /// Does a bounded part of that work; may send frames by `out`. Returns how much, in packets or calls: it
    /// counts as received packets do for how the worker waits.
    fn work(&mut self, _cx: &mut Context<'_>, _out: &mut Outlets) -> u32 {
        0
    }

    /// Prepares to sleep: announces it to who brings work, adds descriptors by which that ends the sleep to
    /// `set`, then looks for work once more and tells whether there is some.
    fn arm(&mut self, _set: &mut PollSet) -> bool {
        false
    }

    /// Ends a sleep, or a preparation for one.
    fn disarm(&mut self) {}

    /// Lets go of every frame that the node holds: the worker ends. Frames sent by `out` still leave.
    fn stop(&mut self, _cx: &mut Context<'_>, _out: &mut Outlets) {}

    /// Takes a new published configuration. The node looks for the type that it knows
    /// (`snapshot.downcast_ref::<T>()`, or [`Arc::downcast`] on a clone) and ignores others.
    fn reload(&mut self, _cx: &mut Context<'_>, _snapshot: &Snapshot, _out: &mut Outlets) {}
}
