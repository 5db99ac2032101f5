//! The capture tap: copies of frames at receive, before each stage, at transmit and at drop, for the
//! control thread to write as pcapng.
//!
//! A tap costs one branch a batch while it is off. Records go round between two bounded rings: empty
//! ones to the worker, full ones to the control thread; where there is no empty one the copy is lost and
//! counted, the frame is not touched.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use io::{Frame, PortId, WorkerId};
use tables::ring::{Consumer, Producer, spsc};
use wire::{DropReason, Instant};

use crate::expression::Expression;

/// Where a frame was when it was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// As a port received it.
    Rx(PortId),
    /// As it entered a stage: an index into [`crate::Graph::counters`].
    Stage(u8),
    /// As a port is to send it.
    Tx(PortId),
    /// As a stage dropped it.
    Drop(u8, DropReason),
}

/// Which points to copy at. The default takes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Copy received frames.
    pub rx: bool,
    /// Copy frames to be sent.
    pub tx: bool,
    /// Copy frames that enter these stages, a bit each.
    pub stages: u128,
    /// Copy dropped frames.
    pub drops: bool,
    /// Only drops for this reason.
    pub reason: Option<DropReason>,
    /// Only frames received by this port (at [`Point::Tx`]: sent by it).
    pub port: Option<PortId>,
    /// Only frames for which the expression holds.
    pub expression: Option<Arc<Expression>>,
    /// Longest copy, bytes; 0 for whole frames.
    pub snap_bytes: u16,
}

impl Filter {
    /// Makes a filter that takes everything.
    pub fn everything() -> Self {
        Self {
            rx: true,
            tx: true,
            stages: u128::MAX,
            drops: true,
            ..Self::default()
        }
    }

    fn wants(&self, point: Point) -> bool {
        match point {
            Point::Rx(port) => self.rx && self.port.is_none_or(|wanted| wanted == port),
            Point::Tx(port) => self.tx && self.port.is_none_or(|wanted| wanted == port),
            Point::Stage(stage) => self.stages >> stage & 1 == 1,
            Point::Drop(_, reason) => {
                self.drops && self.reason.is_none_or(|wanted| wanted == reason)
            }
        }
    }
}

/// One copy of a frame.
#[derive(Debug)]
pub struct Record {
    /// Where it was.
    pub point: Point,
    /// The worker's time.
    pub at: Instant,
    /// The worker.
    pub worker: WorkerId,
    /// The port that received the frame.
    pub rx_port: PortId,
    /// Length of the frame, bytes; `data` may be shorter.
    pub frame_bytes: u16,
    /// The frame's first bytes.
    pub data: Vec<u8>,
}

/// The worker's end.
#[derive(Debug)]
pub struct Tap {
    filter: Option<Filter>,
    worker: WorkerId,
    empty: Consumer<Box<Record>>,
    full: Producer<Box<Record>>,
    lost: Arc<AtomicU64>,
}

/// The control thread's end.
#[derive(Debug)]
pub struct Tapped {
    empty: Producer<Box<Record>>,
    full: Consumer<Box<Record>>,
    lost: Arc<AtomicU64>,
}

/// Makes a tap of `records` records of up to `record_bytes` bytes each; it starts off.
pub fn tap(worker: WorkerId, records: usize, record_bytes: usize) -> (Tap, Tapped) {
    let (mut give_empty, take_empty) = spsc(records.max(1));
    let (give_full, take_full) = spsc(records.max(1));
    for _ in 0..records {
        let record = Box::new(Record {
            point: Point::Rx(PortId(0)),
            at: Instant::ZERO,
            worker,
            rx_port: PortId(0),
            frame_bytes: 0,
            data: Vec::with_capacity(record_bytes),
        });
        // The ring holds at least `records`.
        let _ = give_empty.push(record);
    }
    let lost = Arc::new(AtomicU64::new(0));
    (
        Tap {
            filter: None,
            worker,
            empty: take_empty,
            full: give_full,
            lost: Arc::clone(&lost),
        },
        Tapped {
            empty: give_empty,
            full: take_full,
            lost,
        },
    )
}

impl Tap {
    /// Turns the tap on with a filter, or off.
    pub fn set(&mut self, filter: Option<Filter>) {
        self.filter = filter;
    }

    /// Tells whether anything is to be copied.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.filter.is_some()
    }

    /// Copies the frames of a batch.
    #[cold]
    pub(crate) fn batch(&mut self, point: Point, at: Instant, frames: &[Frame]) {
        if self.filter.as_ref().is_some_and(|f| f.wants(point)) {
            for frame in frames {
                self.frame(point, at, frame);
            }
        }
    }

    /// Copies a frame.
    #[cold]
    pub(crate) fn frame(&mut self, point: Point, at: Instant, frame: &Frame) {
        let Some(filter) = &self.filter else { return };
        let by_port = matches!(point, Point::Stage(_) | Point::Drop(..));
        if !filter.wants(point) || by_port && filter.port.is_some_and(|port| port != frame.rx_port)
        {
            return;
        }
        let expression = filter.expression.as_deref();
        if expression.is_some_and(|expression| !expression.matches(frame.data())) {
            return;
        }
        let Some(mut record) = self.empty.pop() else {
            // The only writer.
            let lost = self.lost.load(Ordering::Relaxed) + 1;
            self.lost.store(lost, Ordering::Relaxed);
            return;
        };
        let snap = match filter.snap_bytes {
            0 => record.data.capacity(),
            bytes => record.data.capacity().min(usize::from(bytes)),
        };
        record.point = point;
        record.at = at;
        record.worker = self.worker;
        record.rx_port = frame.rx_port;
        record.frame_bytes = frame.len() as u16; // a slot is at most 32768 bytes
        record.data.clear();
        let data = frame.data();
        record.data.extend_from_slice(&data[..data.len().min(snap)]);
        // As many records exist as the ring holds, so there is room; a closed ring loses the record.
        let _ = self.full.push(record);
    }
}

impl Tapped {
    /// Gives each record that waits to `f`, oldest first, and the record back to the worker; returns how
    /// many there were.
    pub fn drain(&mut self, mut f: impl FnMut(&Record)) -> usize {
        let mut records = 0;
        while let Some(record) = self.full.pop() {
            f(&record);
            records += 1;
            // As many records exist as the ring holds.
            let _ = self.empty.push(record);
        }
        records
    }

    /// Returns how many copies were lost because no record was empty.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
