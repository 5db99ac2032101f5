//! NFD's priority FIFO: unsolicited packets leave first, then stale ones, then fresh ones, each by age.
//!
//! NFD moves a packet to the stale queue by a timer; here each eviction moves up to eight stale packets from
//! the front of the fresh queue. Where all packets have one freshness period that is the same order.

use super::{Context, Queues, Replacement};
use crate::arena::Arena;
use crate::node::{Packet, state};
use crate::sync::atomic::Ordering;

const FRESH: usize = 0;
const UNSOLICITED: usize = 1;
const STALE: usize = 2;
/// Packets that an eviction moves to the stale queue at most.
const MOVES: usize = 8;

pub(super) struct PriorityFifo;

impl Replacement for PriorityFifo {
    fn admit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        let unsolicited = packet.state().load(Ordering::Relaxed) & state::UNSOLICITED != 0;
        let list = match packet.fresh_until_ns() > context.now_ns {
            _ if unsolicited => UNSOLICITED,
            true => FRESH,
            false => STALE,
        };
        queues.lists.push(context.arena, list, packet);
        true
    }

    fn touch(_: &Queues, _: &Arena, _: Packet<'_>) {}

    fn victim<'a>(queues: &Queues, context: &mut Context<'a, '_>) -> Option<Packet<'a>> {
        let arena = context.arena;
        if let Some(packet) = queues.lists.pop(arena, UNSOLICITED) {
            return Some(packet);
        }
        for _ in 0..MOVES {
            let Some(packet) = queues.lists.pop(arena, FRESH) else {
                break;
            };
            if packet.fresh_until_ns() > context.now_ns {
                if queues.lists.is_empty(STALE) {
                    return Some(packet);
                }
                queues.lists.push_front(arena, FRESH, packet);
                packet.unlock(0, 0);
                break;
            }
            queues.lists.push(arena, STALE, packet);
            packet.unlock(0, 0);
        }
        queues
            .lists
            .pop(arena, STALE)
            .or_else(|| queues.lists.pop(arena, FRESH))
    }

    fn readmit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        Self::admit(queues, context, packet)
    }
}
