//! What a node is: it takes a batch and hands each frame to one of its edges, or drops it with a reason.

use io::{Batch, Frame, Pool, WorkerId};
use wire::{DropReason, Instant};

/// One of a node's outgoing edges, in the order of [`Node::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeId(pub u8);

/// What a worker lends a node for one call.
#[derive(Debug)]
pub struct Context<'a> {
    /// The worker's time, read once a burst.
    pub now: Instant,
    /// The worker that runs the node.
    pub worker: WorkerId,
    /// The worker's frames.
    pub pool: &'a mut Pool,
}

/// A stage of packet processing, owned by one worker.
pub trait Node: Send + core::fmt::Debug {
    /// Returns the name that stats and traces show, e.g. `ip4-forward`.
    fn name(&self) -> &'static str;

    /// Returns the names of the outgoing edges; an [`EdgeId`] is an index into it.
    fn edges(&self) -> &'static [&'static str];

    /// Takes every frame of `batch` and gives each to an edge or drops it; `batch` is empty after.
    fn process(&mut self, cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets);

    /// Returns when [`Node::handle_timeout`] wants to be called next, if ever.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does what is due at `cx.now`; may send frames by `out`.
    fn handle_timeout(&mut self, _cx: &mut Context<'_>, _out: &mut Outlets) {}
}

/// Where a node puts its frames: one list an edge, and the drops.
#[derive(Debug, Default)]
pub struct Outlets {
    edges: Vec<Vec<Frame>>,
    drops: Vec<(Frame, DropReason)>,
}

impl Outlets {
    /// Sends a frame along an edge.
    pub fn push(&mut self, edge: EdgeId, frame: Frame) {
        self.edges[usize::from(edge.0)].push(frame);
    }

    /// Sends a whole batch along one edge: the fast case.
    pub fn push_all(&mut self, edge: EdgeId, batch: &mut Batch) {
        self.edges[usize::from(edge.0)].extend(batch.drain());
    }

    /// Drops a frame: it is counted by reason, shown to a capture, and returned to its pool.
    pub fn drop(&mut self, frame: Frame, reason: DropReason) {
        self.drops.push((frame, reason));
    }
}
