//! Frames that the host itself sends: ARP, NDP, ICMP, IGMP, DHCP, resets, SYN cookies. Bounded; buffers are reused.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::sink::TxSink;

/// Frames to be sent, oldest first.
#[derive(Debug)]
pub(crate) struct HostQueue {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    max: usize,
    /// Frames that found no room.
    pub(crate) dropped: u64,
}

impl HostQueue {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            spare: Vec::new(),
            max,
            dropped: 0,
        }
    }
    /// Takes a buffer of `bytes` zeros.
    pub(crate) fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.resize(bytes, 0);
        frame
    }
    /// Queues a whole frame.
    pub(crate) fn push(&mut self, frame: Vec<u8>) {
        if self.frames.len() >= self.max {
            self.dropped += 1;
            self.recycle(frame);
            return;
        }
        self.frames.push_back(frame);
    }
    pub(crate) fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < self.max {
            self.spare.push(frame);
        }
    }
    /// Moves frames to the sink; false when it is full.
    pub(crate) fn flush<S: TxSink>(&mut self, sink: &mut S) -> bool {
        while let Some(frame) = self.frames.pop_front() {
            let Some(to) = sink.reserve(frame.len()) else {
                self.frames.push_front(frame);
                return false;
            };
            to.copy_from_slice(&frame);
            sink.commit();
            self.recycle(frame);
        }
        true
    }
}

/// One frame on its way to the queue.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    queue: &'a mut HostQueue,
    frame: Vec<u8>,
}

impl<'a> Slot<'a> {
    pub(crate) fn new(queue: &'a mut HostQueue) -> Self {
        let frame = queue.buffer(0);
        Self { queue, frame }
    }
}

impl TxSink for Slot<'_> {
    fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.frame.clear();
        self.frame.resize(bytes, 0);
        Some(&mut self.frame)
    }
    fn commit(&mut self) {
        let frame = core::mem::take(&mut self.frame);
        self.queue.push(frame);
    }
}
