//! CLOCK with two bits: the ring, in which a packet that was hit goes round again.

use super::{Context, Queues, ROUNDS_MAX, Replacement};
use crate::arena::Arena;
use crate::node::{Packet, state};

/// Hits that count.
const HITS_MAX: u64 = 3;

pub(super) struct Clock;

/// Takes one hit off; the caller holds the lock of the packet's state.
pub(super) fn take_hit(packet: Packet<'_>) -> bool {
    match packet.hits() {
        0 => false,
        hits => {
            packet.set_state(state::HITS, (hits - 1) << state::HITS_SHIFT);
            true
        }
    }
}

impl Replacement for Clock {
    fn admit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        queues.main.push(packet, &mut context.runs.main, queues.run)
    }

    fn touch(_: &Queues, _: &Arena, packet: Packet<'_>) {
        packet.count_hit(HITS_MAX);
    }

    fn victim<'a>(queues: &Queues, context: &mut Context<'a, '_>) -> Option<Packet<'a>> {
        for _ in 0..ROUNDS_MAX {
            let packet = queues.main.pop(context.arena)?;
            if !take_hit(packet) || !Self::admit(queues, context, packet) {
                return Some(packet);
            }
            packet.unlock(0, 0);
        }
        queues.main.pop(context.arena)
    }

    fn readmit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        Self::admit(queues, context, packet)
    }
}
