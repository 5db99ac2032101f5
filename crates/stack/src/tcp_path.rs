//! Where a connection's segments go: route, neighbour, and what happens while the neighbour is asked for.

use alloc::vec::Vec;

use crate::error::Error;
use crate::host::neighbour::{Resolved, Waiting};
use crate::stack::Stack;
use crate::tcp::emit::{Cookie, Path};
use crate::tcp::state::State;
use crate::tcp::tcb::Flag;

impl Stack {
    /// Returns the path of a connection; `None` if it has none now: then it waits, or has ended.
    pub(crate) fn tcp_path(&mut self, index: u32, now_ns: u64) -> Option<Path> {
        let tcb = self.tcp.tcbs.at_mut(index)?;
        let key = self.tcp.sessions.key(tcb.session)?;
        if tcb.neighbour == u32::MAX || tcb.route_epoch != self.addressing.epoch {
            let (peer, _) = key.peer();
            let (local, _) = key.local();
            let choice = self
                .addressing
                .choose(peer, Some(local))
                .filter(|_| self.addressing.is_ours(local));
            let neighbour =
                choice.and_then(|choice| self.neighbours.index(choice.next_hop, now_ns));
            let Some(neighbour) = neighbour else {
                self.no_path(index, Error::NetworkUnreachable, now_ns);
                return None;
            };
            tcb.neighbour = neighbour;
            tcb.route_epoch = self.addressing.epoch;
        }
        let neighbour = tcb.neighbour;
        let mac = match self.neighbours.resolve(neighbour, now_ns) {
            Resolved::Mac(mac) => mac,
            Resolved::Wait => {
                tcb.flags.insert(Flag::UNRESOLVED);
                self.neighbours.wait_connection(neighbour, index);
                return None;
            }
            Resolved::Failed => {
                self.no_path(index, Error::HostUnreachable, now_ns);
                return None;
            }
        };
        let settings = tcb.settings.as_deref().copied().unwrap_or_default();
        let fast_open = self.fast_open_cookie(index, &key);
        let ttl = settings.ttl.unwrap_or(64);
        let mut path = Path::new((self.mac, mac), &key, ttl, settings.tos, self.mtu);
        path.fast_open = fast_open;
        Some(path)
    }

    /// A connection that is being opened fails; another one goes on trying, and says so if it times out.
    pub(crate) fn no_path(&mut self, index: u32, error: Error, now_ns: u64) {
        if let Some((tcb, mut ctx)) = self.tcp.with(index, now_ns) {
            let gone = tcb.state == State::Closed && tcb.has(Flag::RESET_NOW);
            tcb.flags.remove(Flag::RESET_NOW | Flag::ACK_NOW);
            if tcb.state == State::SynSent {
                tcb.end(Some(error), &mut ctx);
            } else if !gone {
                tcb.flags.insert(Flag::SOFT_ERROR);
            }
        }
        self.tcp.settle_after(index, false, now_ns, &mut self.told);
    }

    /// Tells those who waited for neighbours that do not answer.
    pub(crate) fn fail_neighbours(&mut self, now_ns: u64) {
        let failed: Vec<(core::net::IpAddr, Waiting)> =
            core::mem::take(&mut self.neighbours.failed);
        for (_, waiting) in failed {
            for frame in waiting.frames {
                self.drop_frame(wire::DropReason::NeighbourUnresolved);
                self.queue.recycle(frame);
            }
            for index in waiting.connections {
                if let Some(tcb) = self.tcp.tcbs.at_mut(index) {
                    tcb.flags.remove(Flag::UNRESOLVED);
                }
                self.no_path(index, Error::HostUnreachable, now_ns);
            }
        }
    }

    fn fast_open_cookie(&self, index: u32, key: &crate::tcp::sessions::Key) -> Option<Cookie> {
        let tcb = self.tcp.tcbs.at(index)?;
        if !tcb.has(Flag::FAST_OPEN) || !tcb.has(Flag::SYN_NOW) {
            return None;
        }
        let (peer, _) = key.peer();
        if tcb.has(Flag::PASSIVE) {
            return Some(Cookie::new(&self.tcp.secrets.fast_open(peer)));
        }
        Some(
            self.tcp
                .fast_open_cookies
                .get(&peer)
                .copied()
                .unwrap_or_default(),
        )
    }
}
