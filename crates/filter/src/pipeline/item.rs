//! What goes in and what comes out.

use wire::{DropReason, Instant, Layout};

use super::outbox::Way;
use crate::packet::{Fib, InterfaceId};

/// Packets of one call, at most.
pub const BATCH_MAX: usize = 64;

/// One packet: a frame that passed [`wire::parse()`].
#[derive(Debug)]
pub struct Item<'a> {
    /// The frame, from the Ethernet header on. Is changed in place where it is translated.
    pub frame: &'a mut [u8],
    /// Its layout.
    pub layout: Layout,
    /// Interface it came by; [`InterfaceId::NONE`] for what the node sends.
    pub iif: InterfaceId,
    /// Its mark.
    pub mark: u32,
}

impl Item<'_> {
    /// The way of what goes on in its place.
    pub(super) fn way_on(&self) -> Way {
        if self.iif == InterfaceId::NONE {
            Way::Output
        } else {
            Way::Forward
        }
    }

    /// The way of an answer to its sender.
    pub(super) fn way_back(&self) -> Way {
        if self.iif == InterfaceId::NONE {
            Way::Local
        } else {
            Way::Output
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on (perhaps translated).
    Accept,
    /// It is dropped.
    Drop(DropReason),
    /// The engine has it: it was answered, or a copy waits or was put into the outbox.
    Consumed,
}

/// What the engine must know of an interface; [`InterfaceId`] is the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Its primary IPv4 address.
    pub v4: Option<u32>,
    /// Its primary IPv6 address.
    pub v6: Option<u128>,
}

/// What surrounds a call.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Monotonic time.
    pub now: Instant,
    /// Wall clock, nanoseconds since 1970 UTC.
    pub unix_ns: u64,
    /// The node's routes.
    pub fib: &'a dyn Fib,
    /// The node's interfaces, by id.
    pub interfaces: &'a [InterfaceFacts],
}

impl Environment<'_> {
    /// Returns what is known of an interface.
    pub fn interface(&self, id: InterfaceId) -> InterfaceFacts {
        self.interfaces
            .get(usize::from(id.0))
            .copied()
            .unwrap_or_default()
    }
}

impl core::fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Environment")
            .field("now", &self.now)
            .field("interfaces", &self.interfaces)
            .finish_non_exhaustive()
    }
}
