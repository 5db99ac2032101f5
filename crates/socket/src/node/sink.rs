//! Frames that the host sends: from the worker's pool, to an edge.

use graph::{EdgeId, Outlets};
use io::{Frame, FrameFlags, Pool, PortId};
use stack::TxSink;
use wire::LayoutFlags;

use super::Exit;

/// Takes up to so many frames from the host.
pub(super) struct Sink<'a> {
    pool: &'a mut Pool,
    out: &'a mut Outlets,
    left: usize,
    exit: Exit,
    sent: u32,
    reserved: Option<Frame>,
}

impl<'a> Sink<'a> {
    pub(super) fn new(pool: &'a mut Pool, out: &'a mut Outlets, left: usize, exit: Exit) -> Self {
        Self {
            pool,
            out,
            left,
            exit,
            sent: 0,
            reserved: None,
        }
    }

    /// Gives back what was reserved and not sent; returns how many frames were sent.
    pub(super) fn finish(mut self) -> u32 {
        if let Some(frame) = self.reserved.take() {
            self.pool.free(frame);
        }
        self.sent
    }
}

impl TxSink for Sink<'_> {
    #[inline]
    fn reserve(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.left == 0 {
            return None;
        }
        let mut frame = match self.reserved.take() {
            Some(frame) => frame,
            None => self.pool.alloc()?,
        };
        if !frame.set_len(bytes) {
            // Longer than a slot: the MTU is kept below that when the host is made.
            self.pool.free(frame);
            return None;
        }
        Some(self.reserved.insert(frame).data_mut())
    }

    #[inline]
    fn commit(&mut self) {
        let Some(mut frame) = self.reserved.take() else {
            return;
        };
        frame.flags |= FrameFlags::LOCAL;
        frame.tx_port = PortId(0);
        let edge = match self.exit {
            Exit::Port => 0,
            Exit::Router => match wire::parse(frame.data()) {
                Ok(layout) => {
                    frame.layout = layout;
                    u8::from(layout.flags.contains(LayoutFlags::IPV6))
                }
                Err(reason) => {
                    self.out.drop(frame, reason);
                    return;
                }
            },
        };
        if self.exit == Exit::Router && frame.layout.flags.contains(LayoutFlags::ARP) {
            // The node resolves neighbours; its host has one that it knows.
            self.pool.free(frame);
            return;
        }
        self.left -= 1;
        self.sent += 1;
        self.out.push(EdgeId(edge), frame);
    }
}
