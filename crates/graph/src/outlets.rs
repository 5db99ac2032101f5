//! Where a node puts its frames: the inboxes of the next nodes, the drops, the consumed.

use io::{Batch, Frame, Pool, WorkerId};
use wire::DropReason;

use crate::node::{EdgeId, Node};

/// A queue of batches: the inbox of a node, or what a port is to send.
///
/// Frames are appended to the last batch, and batches leave whole. Batches are kept and used again, so that the steady state does not allocate.
#[derive(Debug)]
pub(crate) struct Lane {
    #[expect(
        clippy::vec_box,
        reason = "taking a batch moves a pointer and not its frames"
    )]
    batches: Vec<Box<Batch>>,
    head: usize,
    tail: usize,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Self {
            batches: (0..4).map(|_| Box::default()).collect(),
            head: 0,
            tail: 0,
        }
    }

    /// Returns how many frames wait.
    pub(crate) fn len(&self) -> usize {
        self.batches[self.head..=self.tail]
            .iter()
            .map(|batch| batch.len())
            .sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail && self.batches[self.head].is_empty()
    }

    #[inline]
    pub(crate) fn push(&mut self, frame: Frame) {
        if let Err(frame) = self.batches[self.tail].push(frame) {
            // A fresh batch has room.
            let _ = self.next_batch().push(frame);
        }
    }

    #[inline]
    pub(crate) fn push_all(&mut self, batch: &mut Batch) {
        self.batches[self.tail].append_from(batch);
        if !batch.is_empty() {
            self.next_batch().append_from(batch);
        }
    }

    /// Moves a whole boxed batch in: by its pointer, where the last batch here is empty.
    #[inline]
    pub(crate) fn push_box(&mut self, batch: &mut Box<Batch>) {
        let tail = &mut self.batches[self.tail];
        if tail.is_empty() {
            core::mem::swap::<Box<Batch>>(tail, batch);
        } else {
            self.push_all(batch);
        }
    }

    /// Returns an empty batch at the end, for a driver to fill.
    #[inline]
    pub(crate) fn fresh(&mut self) -> &mut Batch {
        if self.batches[self.tail].is_empty() {
            &mut self.batches[self.tail]
        } else {
            self.next_batch()
        }
    }

    #[cold]
    fn next_batch(&mut self) -> &mut Batch {
        self.tail += 1;
        if self.tail == self.batches.len() {
            self.batches.push(Box::default());
        }
        &mut self.batches[self.tail]
    }

    /// Returns the oldest batch, if it has frames.
    pub(crate) fn front_mut(&mut self) -> Option<&mut Batch> {
        self.front_box().map(|front| &mut **front)
    }

    #[inline]
    fn front_box(&mut self) -> Option<&mut Box<Batch>> {
        while self.batches[self.head].is_empty() {
            if self.head == self.tail {
                self.head = 0;
                self.tail = 0;
                return None;
            }
            self.head += 1;
        }
        Some(&mut self.batches[self.head])
    }

    /// Swaps the oldest batch into `current` (which is empty) and tells whether there was one.
    #[inline]
    pub(crate) fn pop_into(&mut self, current: &mut Box<Batch>) -> bool {
        debug_assert!(current.is_empty(), "the current batch was not emptied");
        let front: Option<&mut Box<Batch>> = self.front_box();
        match front {
            Some(front) => {
                // The boxes, not the batches in them.
                core::mem::swap::<Box<Batch>>(front, current);
                true
            }
            None => false,
        }
    }

    /// Takes the newest frame.
    pub(crate) fn pop_newest(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.batches[self.tail].pop() {
                return Some(frame);
            }
            if self.tail == self.head {
                return None;
            }
            self.tail -= 1;
        }
    }
}

/// Where a node puts its frames: one outlet an edge, and the drops.
///
/// A frame goes straight to the next node's inbox, and is moved once a node; a whole batch along one edge
/// ([`Outlets::push_all`]) is one copy of its handles.
#[derive(Debug)]
pub struct Outlets {
    /// Inbox of each node.
    pub(crate) lanes: Vec<Lane>,
    /// Node that each edge leads to, all nodes' edges one after the other.
    pub(crate) targets: Vec<u8>,
    /// Frames that went along each edge.
    pub(crate) edge_pkts: Vec<u64>,
    /// First edge of the node that runs.
    pub(crate) base: usize,
    /// Edge for what the node leaves in its batch.
    pub(crate) rest: Option<EdgeId>,
    /// There is no graph that would take what is left.
    standalone: bool,
    /// Nodes with frames in their inbox, a bit each.
    pub(crate) pending: u128,
    pub(crate) drops: Vec<(Frame, DropReason)>,
    pub(crate) consumed: Vec<Frame>,
    pub(crate) handoff: Vec<(WorkerId, Frame)>,
}

/// Room that the lists of drops and of consumed frames start with: a batch and what a node may add.
const LIST_PKTS: usize = 2 * io::BATCH_MAX;

impl Outlets {
    pub(crate) fn new(nodes: usize, targets: Vec<u8>) -> Self {
        Self {
            lanes: (0..nodes).map(|_| Lane::new()).collect(),
            edge_pkts: vec![0; targets.len()],
            targets,
            base: 0,
            rest: None,
            standalone: false,
            pending: 0,
            drops: Vec::with_capacity(LIST_PKTS),
            consumed: Vec::with_capacity(LIST_PKTS),
            handoff: Vec::with_capacity(LIST_PKTS),
        }
    }

    /// Makes outlets for one node outside a graph, for its tests: take what it sent with
    /// [`Outlets::take`] and [`Outlets::take_drops`].
    pub fn standalone(node: &dyn Node) -> Self {
        let edges = node.edges().len();
        // More edges than an `EdgeId` can name cannot be pushed to either.
        let targets = (0..edges).map(|edge| edge as u8).collect();
        Self {
            standalone: true,
            ..Self::new(edges, targets)
        }
    }

    /// Sends a frame along an edge.
    ///
    /// # Panics
    /// If the node has no such edge (a mistake in the node, not in a packet).
    #[inline]
    pub fn push(&mut self, edge: EdgeId, frame: Frame) {
        let slot = self.base + usize::from(edge.0);
        let node = self.targets[slot];
        self.edge_pkts[slot] += 1;
        self.pending |= 1 << node;
        self.lanes[usize::from(node)].push(frame);
    }

    /// Sends a whole batch along one edge: the fast case.
    ///
    /// # Panics
    /// As [`Outlets::push`].
    #[inline]
    pub fn push_all(&mut self, edge: EdgeId, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let slot = self.base + usize::from(edge.0);
        let node = self.targets[slot];
        self.edge_pkts[slot] += batch.len() as u64;
        self.pending |= 1 << node;
        self.lanes[usize::from(node)].push_all(batch);
    }

    /// Sends what is in the node's batch along `edge`, as [`Outlets::push_all`] does, but once
    /// [`Node::process`] has returned: no frame is moved. The node leaves `batch`, which must be the one
    /// that it was given, alone from then on.
    #[inline]
    pub fn push_rest(&mut self, edge: EdgeId, batch: &mut Batch) {
        if self.standalone {
            self.push_all(edge, batch);
        } else {
            self.rest = Some(edge);
        }
    }

    /// Drops a frame: it is counted by reason, shown to a capture, and returned to its pool.
    #[inline]
    pub fn drop(&mut self, frame: Frame, reason: DropReason) {
        self.drops.push((frame, reason));
    }

    /// Ends a frame that did its work here (an answered ARP request, a segment taken by a session):
    /// it is counted and returned to its pool.
    #[inline]
    pub fn consume(&mut self, frame: Frame) {
        self.consumed.push(frame);
    }

    /// Sends a frame to another worker, where it enters at its port's input node with
    /// [`io::FrameFlags::HANDED_OFF`] set. Where that worker's ring is full it is dropped and counted.
    #[inline]
    pub fn hand_off(&mut self, worker: WorkerId, frame: Frame) {
        self.handoff.push((worker, frame));
    }

    /// Takes the frames that went along an edge, for tests of one node (see [`Outlets::standalone`]).
    pub fn take(&mut self, edge: EdgeId) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut batch = Box::default();
        let lane = &mut self.lanes[usize::from(edge.0)];
        while lane.pop_into(&mut batch) {
            frames.extend(batch.drain());
        }
        frames
    }

    /// Takes the drops, for tests of one node.
    pub fn take_drops(&mut self) -> Vec<(Frame, DropReason)> {
        core::mem::take(&mut self.drops)
    }

    /// Takes the consumed frames, for tests of one node.
    pub fn take_consumed(&mut self) -> Vec<Frame> {
        core::mem::take(&mut self.consumed)
    }

    /// Takes the frames for other workers, for tests of one node.
    pub fn take_handoff(&mut self) -> Vec<(WorkerId, Frame)> {
        core::mem::take(&mut self.handoff)
    }

    /// Frees every frame that is still inside; for the end of a test.
    pub fn free_all(&mut self, pool: &mut Pool) {
        for lane in &mut self.lanes {
            while let Some(batch) = lane.front_mut() {
                pool.free_batch(batch);
            }
        }
        self.pending = 0;
        self.drops.drain(..).for_each(|(frame, _)| pool.free(frame));
        self.consumed.drain(..).for_each(|frame| pool.free(frame));
        self.handoff
            .drain(..)
            .for_each(|(_, frame)| pool.free(frame));
    }
}
