//! Listeners: apart from the sessions, found by port; each has a backlog and a queue of connections to accept.

use alloc::collections::VecDeque;
use core::net::IpAddr;

use crate::event::Ready;

/// A socket in LISTEN.
#[derive(Debug)]
pub(crate) struct Listener {
    /// `None`: any address of the host.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    /// The most connections that wait to be accepted, and the most that are half open.
    pub(crate) backlog: usize,
    pub(crate) half_open: usize,
    /// Established, not accepted: index and generation of the connection.
    pub(crate) queue: VecDeque<(u32, u32)>,
    pub(crate) ready: Ready,
    pub(crate) is_told: bool,
    pub(crate) fast_open: bool,
}

impl Listener {
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < self.backlog
    }
}
