//! First in, first out (CS-5).

use super::{Context, Queues, Replacement};
use crate::arena::Arena;
use crate::node::Packet;

pub(super) struct Fifo;

impl Replacement for Fifo {
    fn admit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        queues.main.push(packet, &mut context.runs.main, queues.run)
    }

    fn touch(_: &Queues, _: &Arena, _: Packet<'_>) {}

    fn victim<'a>(queues: &Queues, context: &mut Context<'a, '_>) -> Option<Packet<'a>> {
        queues.main.pop(context.arena)
    }

    fn readmit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        Self::admit(queues, context, packet)
    }
}
