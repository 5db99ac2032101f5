//! What the engine wants sent.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::InterfaceId;

/// Bytes that one emission may have.
pub(super) const EMISSION_BYTES: usize = 2048;

/// Which way an emission takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Forwarded, like a packet that came in: its TTL is decremented.
    Forward,
    /// Sent by the node itself.
    Output,
    /// To the node's own program that sent the packet which caused it.
    Local,
}

/// A packet to be sent, in an Ethernet frame whose addresses are still to be written.
#[derive(Debug)]
pub struct Emission {
    bytes: Box<[u8; EMISSION_BYTES]>,
    len: usize,
    /// Which way it takes.
    pub way: Way,
    /// The interface that the packet which caused it came by.
    pub iif: InterfaceId,
}

impl Emission {
    /// The frame.
    pub fn frame(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Emissions that wait; its memory is taken at start.
#[derive(Debug)]
pub struct Outbox {
    slots: Vec<Emission>,
    used: usize,
    /// Emissions that found no room.
    pub lost: u64,
}

impl Outbox {
    /// Makes room for `slots` emissions.
    pub fn new(slots: usize) -> Self {
        let slot = || Emission {
            bytes: Box::new([0; EMISSION_BYTES]),
            len: 0,
            way: Way::Output,
            iif: InterfaceId::NONE,
        };
        Self {
            slots: (0..slots).map(|_| slot()).collect(),
            used: 0,
            lost: 0,
        }
    }

    /// What waits.
    pub fn emissions(&self) -> &[Emission] {
        self.slots.get(..self.used).unwrap_or_default()
    }

    /// Forgets what waited: it was sent.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Writes an emission: `write` fills the buffer and returns its length, or `None` for nothing to send.
    /// Returns false, and counts it as lost, if there is no room.
    pub(crate) fn push(
        &mut self,
        way: Way,
        iif: InterfaceId,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(self.used) else {
            self.lost += 1;
            return false;
        };
        let Some(len) = write(&mut slot.bytes[..]) else {
            return false;
        };
        slot.len = len.min(EMISSION_BYTES);
        slot.way = way;
        slot.iif = iif;
        self.used += 1;
        true
    }

    /// The frame that was pushed last, to be changed in place.
    pub(crate) fn last_mut(&mut self) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(self.used.checked_sub(1)?)?;
        slot.bytes.get_mut(..slot.len)
    }

    /// Takes back the last emission.
    pub(crate) fn pop(&mut self) {
        self.used = self.used.saturating_sub(1);
    }
}
