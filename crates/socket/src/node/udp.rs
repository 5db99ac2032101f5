//! Datagrams between rings and stack.

use stack::{Error, UdpHandle};

use super::{Attached, HostNode, Place};
use crate::area::{wait, word};
use crate::code::{self, RECORD_BYTES};

impl HostNode {
    /// Moves datagrams that the application sent to the stack.
    pub(super) fn send_datagrams(&mut self, attached: &Attached, place: Place, handle: UdpHandle) {
        let slot = attached.area.lanes[self.worker].slot(place.slot);
        let ring = slot.transmit();
        let mut is_done = true;
        loop {
            let mut record = [0; RECORD_BYTES];
            if ring.peek(0, &mut record) < RECORD_BYTES {
                break;
            }
            let (bytes, to) = code::to_record(&record);
            if bytes > ring.capacity() {
                // Nonsense: all that is in the ring.
                ring.consume(ring.len());
                break;
            }
            let mut scratch = core::mem::take(&mut self.scratch);
            scratch.resize(bytes, 0);
            ring.peek(RECORD_BYTES, &mut scratch);
            let sent = self.stack.udp_send_to(handle, &scratch, to);
            self.scratch = scratch;
            match sent {
                Err(Error::WouldBlock) => {
                    is_done = false;
                    break;
                }
                Ok(()) => {}
                // As by a kernel, the next call brings it.
                Err(error) => {
                    slot.put(word::ERROR, code::of_error(error));
                    self.wake(attached, place, super::EVERYBODY);
                }
            }
            ring.consume(code::record_room(bytes));
        }
        if ring.room() >= ring.capacity() / 4 {
            self.wake(attached, place, wait::WRITERS);
        }
        if is_done && self.socket(place).is_some_and(|socket| socket.is_closing) {
            self.leaving.push_back(place);
            self.has_more = true;
        }
    }

    /// Moves received datagrams to the application.
    pub(super) fn receive_datagrams(
        &mut self,
        attached: &Attached,
        place: Place,
        handle: UdpHandle,
    ) {
        let slot = attached.area.lanes[self.worker].slot(place.slot);
        let ring = slot.receive();
        let mut got = false;
        loop {
            let kept = self.socket(place).and_then(|socket| socket.kept.take());
            let (from, data) = match kept {
                Some(kept) => kept,
                None => match self.stack.udp_recv(handle) {
                    Ok(datagram) => (datagram.from, datagram.data),
                    Err(Error::WouldBlock | Error::NotFound) => break,
                    Err(error) => {
                        slot.put(word::ERROR, code::of_error(error));
                        self.wake(attached, place, super::EVERYBODY);
                        break;
                    }
                },
            };
            let room = code::record_room(data.len());
            if ring.room() < room {
                slot.put(word::ROOM, 1);
                // SeqCst: as in `pump_in`.
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                let has_room = ring.room() >= room;
                if let Some(socket) = self.socket(place)
                    && room <= ring.capacity()
                {
                    socket.kept = Some((from, data));
                }
                if has_room {
                    continue;
                }
                break;
            }
            ring.put(0, &code::of_record(data.len(), Some(from)));
            ring.put(RECORD_BYTES, &data);
            ring.publish(room);
            got = true;
        }
        if got {
            self.wake(attached, place, wait::READERS);
        }
    }
}
