//! Runs a graph: each node with frames in its inbox, in order, a batch a call.

use std::sync::Arc;

use io::wait::PollSet;
use io::{Batch, PortId};
use wire::{DropReason, Instant};

use crate::capture::{Point, Tap};
use crate::counters::NodeCounters;
use crate::node::{Context, EdgeId, Node, Snapshot};
use crate::outlets::{Lane, Outlets};

/// One call in this many is timed.
const TIME_EVERY: u64 = 64;

/// Calls of nodes in one run, after which what is left waits for the next run: a graph with a cycle
/// never keeps a worker from its queues.
const CALLS_MAX: usize = 4096;

/// A place in the order of execution.
#[derive(Debug)]
pub(crate) enum Stage {
    /// A node.
    Node(Box<dyn Node>),
    /// The sending stage.
    Tx,
}

/// A checked graph of nodes, owned by one worker. Made by [`crate::GraphBuilder`].
#[derive(Debug)]
pub struct Graph {
    stages: Vec<Stage>,
    /// First edge of each stage.
    bases: Vec<usize>,
    /// Input stage of each port.
    inputs: Vec<u8>,
    outlets: Outlets,
    counters: Arc<[NodeCounters]>,
    /// When each node wants its timer.
    deadlines: Vec<Option<Instant>>,
    current: Box<Batch>,
    /// What each port is to send.
    tx: Vec<Lane>,
    calls: u64,
    /// Nodes that get work by other ways than frames and timers.
    polled: Vec<u8>,
    /// Reads a clock for the timing of nodes, nanoseconds.
    time: Option<fn() -> Instant>,
}

impl Graph {
    pub(crate) fn new(
        stages: Vec<Stage>,
        bases: Vec<usize>,
        inputs: Vec<u8>,
        outlets: Outlets,
        counters: Arc<[NodeCounters]>,
        ports: usize,
    ) -> Self {
        let is_polled = |stage: &Stage| matches!(stage, Stage::Node(node) if node.is_polled());
        let polled = (0_u8..)
            .zip(&stages)
            .filter(|(_, stage)| is_polled(stage))
            .map(|(index, _)| index)
            .collect();
        let mut graph = Self {
            polled,
            deadlines: vec![None; stages.len()],
            stages,
            bases,
            inputs,
            outlets,
            counters,
            current: Box::default(),
            tx: (0..ports).map(|_| Lane::new()).collect(),
            calls: 0,
            time: None,
        };
        for stage in 0..graph.stages.len() {
            graph.note_deadline(stage);
        }
        graph
    }

    /// Returns the nodes' counters, in the order of execution; the last is the tx stage.
    pub fn counters(&self) -> &Arc<[NodeCounters]> {
        &self.counters
    }

    /// Times one call in 64 of each node by this clock.
    pub fn set_time_source(&mut self, time: Option<fn() -> Instant>) {
        self.time = time;
    }

    /// Gives a port's input node a batch; `batch` is empty after. Run the graph next.
    #[inline]
    pub fn input(&mut self, port: PortId, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let stage = self.inputs[port.index()];
        self.outlets.pending |= 1 << stage;
        self.outlets.lanes[usize::from(stage)].push_all(batch);
    }

    /// Lets a driver fill an empty batch that goes to a port's input node; returns how many frames came.
    #[inline]
    pub(crate) fn receive(&mut self, port: PortId, rx: impl FnOnce(&mut Batch) -> usize) -> usize {
        let stage = self.inputs[port.index()];
        let pkts = rx(self.outlets.lanes[usize::from(stage)].fresh());
        if pkts > 0 {
            self.outlets.pending |= 1 << stage;
        }
        pkts
    }

    /// Runs nodes until no inbox has frames. What is to be sent waits for [`Graph::tx_lane`].
    #[inline]
    pub(crate) fn run(&mut self, cx: &mut Context<'_>, tap: &mut Tap) {
        for _ in 0..CALLS_MAX {
            if self.outlets.pending == 0 {
                return;
            }
            let stage = self.outlets.pending.trailing_zeros() as usize;
            if self.outlets.lanes[stage].pop_into(&mut self.current) {
                self.call(stage, cx, tap);
            } else {
                self.outlets.pending &= !(1 << stage);
            }
        }
    }

    /// Tells whether frames wait inside (only after a run that was cut short).
    pub(crate) fn has_pending(&self) -> bool {
        self.outlets.pending != 0
    }

    fn call(&mut self, stage: usize, cx: &mut Context<'_>, tap: &mut Tap) {
        let counters = &self.counters[stage];
        let pkts = self.current.len() as u64;
        counters.pkts.add(pkts);
        counters.batches.add(1);
        let Stage::Node(node) = &mut self.stages[stage] else {
            self.spread();
            self.finish(stage, cx, tap);
            return;
        };
        if tap.is_on() {
            tap.batch(Point::Stage(stage as u8), cx.now, &self.current);
        }
        self.outlets.base = self.bases[stage];
        self.calls += 1;
        match self.time {
            Some(time) if self.calls.is_multiple_of(TIME_EVERY) => {
                let start = time();
                node.process(cx, &mut self.current, &mut self.outlets);
                counters.timed_ns.add((time() - start).as_nanos() as u64);
                counters.timed_pkts.add(pkts);
            }
            _ => node.process(cx, &mut self.current, &mut self.outlets),
        }
        self.deadlines[stage] = node.poll_timeout();
        if let Some(edge) = self.outlets.rest.take() {
            self.send_rest(stage, edge);
        }
        debug_assert!(
            self.current.is_empty(),
            "node {} left frames",
            self.counters[stage].name
        );
        for frame in self.current.drain() {
            self.outlets.consumed.push(frame);
        }
        self.finish(stage, cx, tap);
    }

    /// Sends what a node left in its batch along the edge that it chose.
    #[inline]
    fn send_rest(&mut self, stage: usize, edge: EdgeId) {
        if self.current.is_empty() {
            return;
        }
        let slot = self.bases[stage] + usize::from(edge.0);
        let target = self.outlets.targets[slot];
        self.outlets.edge_pkts[slot] += self.current.len() as u64;
        self.outlets.pending |= 1 << target;
        self.outlets.lanes[usize::from(target)].push_box(&mut self.current);
    }

    /// The sending stage: frames to the lanes of their ports.
    #[inline]
    fn spread(&mut self) {
        let Some(first) = self.current.first() else {
            return;
        };
        let port = first.tx_port;
        if port.index() < self.tx.len() && self.current.iter().all(|frame| frame.tx_port == port) {
            self.tx[port.index()].push_box(&mut self.current);
            return;
        }
        for frame in self.current.drain() {
            match self.tx.get_mut(frame.tx_port.index()) {
                Some(lane) => lane.push(frame),
                None => self.outlets.drops.push((frame, DropReason::PortDown)),
            }
        }
    }

    /// Counts and frees what the node dropped or consumed; publishes its edges' counters.
    #[inline]
    fn finish(&mut self, stage: usize, cx: &mut Context<'_>, tap: &mut Tap) {
        let counters = &self.counters[stage];
        let base = self.bases[stage];
        for (edge, pkts) in counters.edges.iter().zip(&self.outlets.edge_pkts[base..]) {
            edge.pkts.set(*pkts);
        }
        if !self.outlets.consumed.is_empty() {
            counters
                .consumed_pkts
                .add(self.outlets.consumed.len() as u64);
            for frame in self.outlets.consumed.drain(..) {
                cx.pool.free(frame);
            }
        }
        for (frame, reason) in self.outlets.drops.drain(..) {
            counters.count_drop(reason, 1);
            if tap.is_on() {
                tap.frame(Point::Drop(stage as u8, reason), cx.now, &frame);
            }
            cx.pool.free(frame);
        }
    }

    /// Returns the earliest time at which a node wants its timer.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.iter().flatten().min().copied()
    }

    /// Calls the nodes whose timers are due.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>, tap: &mut Tap) {
        for stage in 0..self.stages.len() {
            if self.deadlines[stage].is_some_and(|due| due <= cx.now)
                && let Stage::Node(node) = &mut self.stages[stage]
            {
                self.outlets.base = self.bases[stage];
                node.handle_timeout(cx, &mut self.outlets);
                self.note_deadline(stage);
                self.finish(stage, cx, tap);
            }
        }
    }

    /// Lets the nodes that have work of their own do some; returns how much was done.
    #[inline]
    pub(crate) fn work(&mut self, cx: &mut Context<'_>, tap: &mut Tap) -> u32 {
        let mut done = 0;
        for index in 0..self.polled.len() {
            let stage = usize::from(self.polled[index]);
            if let Stage::Node(node) = &mut self.stages[stage]
                && node.has_work()
            {
                self.outlets.base = self.bases[stage];
                done += node.work(cx, &mut self.outlets);
                self.note_deadline(stage);
                self.finish(stage, cx, tap);
            }
        }
        done
    }

    /// Tells whether any node gets work by other ways than frames and timers.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        !self.polled.is_empty()
    }

    /// Prepares the nodes for a sleep; tells whether one has work.
    pub(crate) fn arm(&mut self, set: &mut PollSet) -> bool {
        let mut has_work = false;
        for stage in &self.polled {
            if let Stage::Node(node) = &mut self.stages[usize::from(*stage)] {
                has_work |= node.arm(set);
            }
        }
        has_work
    }

    /// Ends a sleep, or a preparation for one.
    pub(crate) fn disarm(&mut self) {
        for stage in &self.polled {
            if let Stage::Node(node) = &mut self.stages[usize::from(*stage)] {
                node.disarm();
            }
        }
    }

    /// Gives every node a new published configuration.
    pub(crate) fn reload(&mut self, cx: &mut Context<'_>, snapshot: &Snapshot, tap: &mut Tap) {
        for stage in 0..self.stages.len() {
            if let Stage::Node(node) = &mut self.stages[stage] {
                self.outlets.base = self.bases[stage];
                node.reload(cx, snapshot, &mut self.outlets);
                self.note_deadline(stage);
                self.finish(stage, cx, tap);
            }
        }
    }

    /// Has every node let go of the frames that it holds.
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>, tap: &mut Tap) {
        for stage in 0..self.stages.len() {
            if let Stage::Node(node) = &mut self.stages[stage] {
                self.outlets.base = self.bases[stage];
                node.stop(cx, &mut self.outlets);
                self.note_deadline(stage);
                self.finish(stage, cx, tap);
            }
        }
    }

    fn note_deadline(&mut self, stage: usize) {
        if let Stage::Node(node) = &self.stages[stage] {
            self.deadlines[stage] = node.poll_timeout();
        }
    }

    /// Returns what a port is to send.
    pub(crate) fn tx_lane(&mut self, port: PortId) -> &mut Lane {
        &mut self.tx[port.index()]
    }

    /// Returns the counters of the sending stage.
    pub(crate) fn tx_counters(&self) -> &NodeCounters {
        // The builder always adds the tx stage, and orders it last.
        &self.counters[self.counters.len() - 1]
    }

    /// Takes the frames that nodes sent to other workers.
    pub(crate) fn take_handoff(&mut self) -> std::vec::Drain<'_, (io::WorkerId, io::Frame)> {
        self.outlets.handoff.drain(..)
    }

    /// Tells whether nodes sent frames to other workers.
    pub(crate) fn has_handoff(&self) -> bool {
        !self.outlets.handoff.is_empty()
    }

    /// Drops every frame inside, counted as [`DropReason::Shutdown`]; returns how many.
    pub(crate) fn drop_all(&mut self, pool: &mut io::Pool) -> u64 {
        let mut dropped = 0;
        let inboxes = self.outlets.lanes.iter_mut().zip(self.counters.iter());
        let last = self.counters.len() - 1;
        let tx = self.tx.iter_mut().map(|lane| (lane, &self.counters[last]));
        for (lane, counters) in inboxes.chain(tx) {
            while let Some(batch) = lane.front_mut() {
                counters.count_drop(DropReason::Shutdown, batch.len() as u64);
                dropped += batch.len() as u64;
                pool.free_batch(batch);
            }
        }
        self.outlets.pending = 0;
        dropped
    }
}
