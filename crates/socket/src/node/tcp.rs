//! Bytes of connections between rings and stack, and connections to accept.

use std::sync::atomic::{Ordering, fence};

use stack::{Error, ListenerHandle, Ready, Shutdown, TcpHandle};
use wire::Instant;

use super::{Attached, HostNode, Kind, Place, forget, remember};
use crate::area::{Lane, Slot, status, wait, word};
use crate::code;

/// Bytes of an accepted connection in a listener's ring.
pub(crate) const ACCEPTED_BYTES: usize = 8;

impl HostNode {
    pub(super) fn on_tcp(
        &mut self,
        lane: &Lane,
        attached: &Attached,
        place: Place,
        handle: TcpHandle,
        ready: Ready,
        now: Instant,
    ) {
        if ready.contains(Ready::CONNECTED) {
            self.tell_connected(lane, place, handle);
            self.wake(attached, place, wait::WRITERS);
        }
        if ready.intersects(Ready::WRITABLE | Ready::CONNECTED) {
            self.pump_out(lane, attached, place, handle, now);
        }
        if ready.intersects(Ready::READABLE | Ready::PEER_CLOSED | Ready::CLOSED | Ready::ERROR) {
            self.pump_in(lane, attached, place, handle, now);
        }
        if ready.intersects(Ready::CLOSED | Ready::ERROR) {
            // An error that no read could bring, as unread data fills the ring.
            if let Ok(Some(error)) = self.stack.tcp_take_error(handle) {
                self.fail(lane, attached, place, error);
            }
            self.pump_out(lane, attached, place, handle, now);
        }
    }

    /// Writes the ends of a connection to its slot.
    fn tell_connected(&self, lane: &Lane, place: Place, handle: TcpHandle) {
        let slot = lane.slot(place.slot);
        if let Ok(info) = self.stack.tcp_info(handle) {
            slot.put_address(word::LOCAL, Some(info.local));
            slot.put_address(word::PEER, Some(info.peer));
        }
        add_status(slot, status::CONNECTED);
    }

    /// Moves what the application wrote to the stack.
    pub(super) fn pump_out(
        &mut self,
        lane: &Lane,
        attached: &Attached,
        place: Place,
        handle: TcpHandle,
        now: Instant,
    ) {
        let slot = lane.slot(place.slot);
        let ring = slot.transmit();
        let mut wait_for_more = false;
        loop {
            let bytes = ring.len();
            if bytes == 0 {
                break;
            }
            let mut offset = 0;
            let sent = self.stack.tcp_send_with(now, handle, bytes, |room| {
                ring.peek(offset, room);
                offset += room.len();
            });
            match sent {
                Ok(sent) => {
                    ring.consume(sent);
                    if sent < bytes {
                        wait_for_more = true;
                        break;
                    }
                }
                Err(Error::WouldBlock | Error::NotConnected) => {
                    wait_for_more = true;
                    break;
                }
                Err(error) => {
                    if error != Error::BrokenPipe {
                        self.fail(lane, attached, place, error);
                    }
                    add_status(slot, status::BROKEN);
                    ring.consume(bytes);
                    self.wake(attached, place, wait::WRITERS);
                    break;
                }
            }
        }
        if ring.room() >= ring.capacity() / 4 {
            self.wake(attached, place, wait::WRITERS);
        }
        let Some(socket) = self.socket(place) else {
            return;
        };
        if wait_for_more {
            return;
        }
        let (is_closing, is_finishing) =
            (socket.is_closing, core::mem::take(&mut socket.is_finishing));
        if is_closing {
            self.close_tcp(attached, place, handle, now);
        } else if is_finishing {
            // A connection that is over needs no FIN.
            let _ = self.stack.tcp_shutdown(now, handle, Shutdown::Write);
        }
    }

    /// Gives the connection to the stack to end, and the slot back.
    fn close_tcp(&mut self, attached: &Attached, place: Place, handle: TcpHandle, now: Instant) {
        let ring = attached.area.lanes[self.worker].slot(place.slot).receive();
        // As a kernel: data that nobody read resets the connection (RFC 2525 2.17).
        if !ring.is_empty() {
            let _ = self.stack.tcp_abort(now, handle);
        }
        // A stale handle is over already.
        let _ = self.stack.tcp_close(now, handle);
        forget(&mut self.tcp, handle.to_u64());
        self.release(attached, place, now);
    }

    /// Moves what the stack received to the application.
    pub(super) fn pump_in(
        &mut self,
        lane: &Lane,
        attached: &Attached,
        place: Place,
        handle: TcpHandle,
        now: Instant,
    ) {
        let closing = self
            .socket(place)
            .is_none_or(|socket| socket.is_closing || socket.kind != Kind::Tcp(handle));
        if closing {
            return;
        }
        let slot = lane.slot(place.slot);
        let ring = slot.receive();
        let mut got = false;
        loop {
            if ring.room() == 0 {
                slot.put(word::ROOM, 1);
                // SeqCst: pairs with the fence in `Socket::after_read`: it sees the flag, or we see the room.
                fence(Ordering::SeqCst);
                if ring.room() == 0 {
                    break;
                }
            }
            match self
                .stack
                .tcp_recv_with(now, handle, |piece| ring.push(piece))
            {
                Ok(0) => {
                    if slot.get(word::STATUS) & status::END == 0 {
                        add_status(slot, status::END);
                        got = true;
                    }
                    break;
                }
                Ok(_) => got = true,
                Err(Error::WouldBlock | Error::NotConnected) => break,
                Err(error) => {
                    self.fail(lane, attached, place, error);
                    break;
                }
            }
        }
        if got {
            self.wake(attached, place, wait::READERS);
        }
    }

    /// Tells the application that its connection failed.
    fn fail(&self, lane: &Lane, attached: &Attached, place: Place, error: Error) {
        let slot = lane.slot(place.slot);
        slot.put(word::ERROR, code::of_error(error));
        add_status(slot, status::END | status::BROKEN | status::FAILED);
        self.wake(attached, place, super::EVERYBODY);
    }

    /// Gives established connections slots and tells the listener's application of them.
    pub(super) fn accept(
        &mut self,
        attached: &Attached,
        place: Place,
        listener: ListenerHandle,
        now: Instant,
    ) {
        let lane = &attached.area.lanes[self.worker];
        let ring = lane.slot(place.slot).receive();
        let mut got = false;
        while ring.room() >= ACCEPTED_BYTES {
            let hint = self.lanes[place.lane].as_ref().map_or(0, |lane| lane.hint);
            let Some(slot) = lane.free.take_one(hint) else {
                if let Some(Some(lane)) = self.lanes.get_mut(place.lane)
                    && !lane.starved.contains(&place.slot)
                {
                    lane.starved.push(place.slot);
                }
                break;
            };
            let Ok((handle, _)) = self.stack.tcp_accept(listener) else {
                lane.free.set(slot);
                break;
            };
            let accepted = Place {
                lane: place.lane,
                slot,
            };
            self.place_tcp(accepted, handle);
            self.tell_connected(lane, accepted, handle);
            ring.push(&(slot as u64).to_le_bytes());
            got = true;
            // What came before is told no more.
            self.pump_in(lane, attached, accepted, handle, now);
        }
        if got {
            self.wake(attached, place, wait::READERS);
        }
    }

    /// Notes that a connection belongs to a slot.
    pub(super) fn place_tcp(&mut self, place: Place, handle: TcpHandle) {
        remember(&mut self.tcp, handle.to_u64(), place);
        let worker = self.worker;
        if let Some(socket) = self.socket(place) {
            socket.kind = Kind::Tcp(handle);
            socket.wakes = (worker, place.slot);
        }
    }

    /// Ends a listener and the connections that nobody accepted.
    pub(super) fn close_listener(
        &mut self,
        attached: &Attached,
        place: Place,
        listener: ListenerHandle,
        now: Instant,
    ) {
        let _ = self.stack.tcp_close_listener(now, listener);
        forget(&mut self.listeners, listener.to_u64());
        let ring = attached.area.lanes[self.worker].slot(place.slot).receive();
        let mut record = [0; ACCEPTED_BYTES];
        while ring.pop(&mut record) == ACCEPTED_BYTES {
            let slot = usize::try_from(u64::from_le_bytes(record)).unwrap_or(usize::MAX);
            let accepted = Place {
                lane: place.lane,
                slot,
            };
            let kind = self.socket(accepted).map(|socket| socket.kind);
            if let Some(Kind::Tcp(handle)) = kind {
                let _ = self.stack.tcp_abort(now, handle);
                self.close_tcp(attached, accepted, handle, now);
            }
        }
        if let Some(Some(lane)) = self.lanes.get_mut(place.lane) {
            lane.starved.retain(|slot| *slot != place.slot);
        }
        self.release(attached, place, now);
    }
}

/// Adds to what the application sees; the worker alone writes the word.
pub(super) fn add_status(slot: Slot<'_>, bits: u64) {
    slot.put(word::STATUS, slot.get(word::STATUS) | bits);
}
