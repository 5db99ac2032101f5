//! Commands of applications: opened, set, closed.

use std::net::SocketAddr;
use std::time::Duration;

use stack::{Algorithm, Error, Shutdown, TcpOption, UdpOption};
use wire::Instant;

use super::tcp::add_status;
use super::{Attached, HostNode, Kind, Place, remember};
use crate::area::{Slot, status, wait, word};
use crate::code::{self, operation, option};

/// How long a closed socket's data may stay unacknowledged (Linux gives orphans about as much).
const ORPHAN: Duration = Duration::from_secs(60);

impl HostNode {
    /// Does a slot's command, if there is a new one.
    pub(super) fn take_command(&mut self, attached: &Attached, place: Place, now: Instant) {
        let slot = attached.area.lanes[self.worker].slot(place.slot);
        let number = slot.get(word::COMMAND);
        let Some(socket) = self.socket(place) else {
            return;
        };
        if number == socket.answered || socket.is_closing {
            return;
        }
        socket.answered = number;
        let what = slot.get(word::OPERATION);
        if what == operation::CLOSE {
            self.close(attached, place, now);
            return;
        }
        let result = self.command(place, slot, what, now);
        slot.put(word::RESULT, result.err().map_or(0, code::of_error));
        slot.put(word::ANSWERED, number);
        // Who waits for an answer waits at the socket's own slot.
        slot.wake(wait::ANSWER);
    }

    fn command(
        &mut self,
        place: Place,
        slot: Slot<'_>,
        what: u64,
        now: Instant,
    ) -> Result<(), Error> {
        let argument = |at: usize| slot.get(word::ARGUMENTS + at);
        let address = slot.address(word::ARGUMENTS);
        let wakes = (argument(4) as usize, argument(5) as usize);
        let kind = self
            .socket(place)
            .map_or(Kind::Vacant, |socket| socket.kind);
        match (what, kind) {
            (operation::CONNECT, Kind::Vacant) => {
                let peer = address.ok_or(Error::InvalidInput)?;
                let handle = self.stack.tcp_connect(now, peer, None)?;
                self.place_tcp(place, handle);
                Ok(())
            }
            (operation::LISTEN, Kind::Vacant) => {
                let local = address.ok_or(Error::InvalidInput)?;
                let handle = self.stack.tcp_listen(local, argument(3) as usize)?;
                remember(&mut self.listeners, handle.to_u64(), place);
                self.open(place, slot, Kind::Listener(handle), wakes, local);
                Ok(())
            }
            (operation::BIND, Kind::Vacant) => {
                let local = address.ok_or(Error::InvalidInput)?;
                let handle = self.stack.udp_bind(local)?;
                remember(&mut self.udp, handle.to_u64(), place);
                let local = self.stack.udp_local(handle)?;
                self.open(place, slot, Kind::Udp(handle), wakes, local);
                Ok(())
            }
            (operation::SHUTDOWN, Kind::Tcp(handle)) => {
                let how = argument(0);
                if how & 1 != 0 {
                    self.stack.tcp_shutdown(now, handle, Shutdown::Read)?;
                }
                if how & 2 != 0
                    && let Some(socket) = self.socket(place)
                {
                    socket.is_finishing = true;
                }
                Ok(())
            }
            (operation::SET, Kind::Tcp(handle)) => {
                let option = tcp_option(argument(0), argument(1))?;
                self.stack.tcp_set(now, handle, option)
            }
            (operation::SET, Kind::Udp(handle)) => {
                let option = match argument(0) {
                    option::TTL => UdpOption::Ttl(argument(1) as u8),
                    option::GROUP_TTL => UdpOption::GroupTtl(argument(1) as u8),
                    _ => return Err(Error::InvalidInput),
                };
                self.stack.udp_set(handle, option)
            }
            (operation::SET_PEER, Kind::Udp(handle)) => {
                self.stack.udp_set(handle, UdpOption::Peer(address))
            }
            (operation::GROUP, Kind::Udp(handle)) => {
                let group = address.ok_or(Error::InvalidInput)?.ip();
                if argument(3) == 1 {
                    self.stack.udp_join(now, handle, group)
                } else {
                    self.stack.udp_leave(now, handle, group)
                }
            }
            _ => Err(Error::InvalidInput),
        }
    }

    fn open(
        &mut self,
        place: Place,
        slot: Slot<'_>,
        kind: Kind,
        wakes: (usize, usize),
        local: SocketAddr,
    ) {
        if let Some(socket) = self.socket(place) {
            socket.kind = kind;
            socket.wakes = wakes;
        }
        slot.put_address(word::LOCAL, Some(local));
        add_status(slot, status::CONNECTED);
    }

    /// The application is done with a socket; it goes once what it wrote is with the stack.
    pub(super) fn close(&mut self, attached: &Attached, place: Place, now: Instant) {
        let Some(socket) = self.socket(place) else {
            return;
        };
        socket.is_closing = true;
        match socket.kind {
            Kind::Vacant => self.release(attached, place, now),
            Kind::Listener(handle) => self.close_listener(attached, place, handle, now),
            // What follows sends what is left and sees that it is closing.
            Kind::Tcp(handle) => {
                let option = TcpOption::UserTimeout(Some(ORPHAN));
                let _ = self.stack.tcp_set(now, handle, option);
            }
            Kind::Udp(_) => {}
        }
    }
}

fn tcp_option(number: u64, value: u64) -> Result<TcpOption, Error> {
    Ok(match number {
        option::NO_DELAY => TcpOption::NoDelay(value != 0),
        option::TTL => TcpOption::Ttl(value as u8),
        option::KEEP_ALIVE_MS => TcpOption::KeepAlive((value != 0).then(|| {
            let idle = Duration::from_millis(value);
            (idle, idle.min(Duration::from_secs(75)), 9)
        })),
        option::CONGESTION => TcpOption::Congestion(match value {
            0 => Algorithm::Cubic,
            1 => Algorithm::Bbr,
            2 => Algorithm::NewReno,
            _ => return Err(Error::InvalidInput),
        }),
        _ => return Err(Error::InvalidInput),
    })
}
