//! Least recently used: a list, to whose end a hit moves the packet.

use super::{Context, Queues, Replacement};
use crate::arena::Arena;
use crate::node::Packet;

const USED: usize = 0;

pub(super) struct Lru;

impl Replacement for Lru {
    fn admit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        queues.lists.push(context.arena, USED, packet);
        true
    }

    fn touch(queues: &Queues, arena: &Arena, packet: Packet<'_>) {
        queues.lists.refresh(arena, packet);
    }

    fn victim<'a>(queues: &Queues, context: &mut Context<'a, '_>) -> Option<Packet<'a>> {
        let mut lists = 0..super::list::LISTS;
        lists.find_map(|list| queues.lists.pop(context.arena, list))
    }

    fn readmit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        Self::admit(queues, context, packet)
    }
}
