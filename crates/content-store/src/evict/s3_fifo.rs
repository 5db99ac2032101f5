//! S3-FIFO (Yang et al., SOSP 2023): a small FIFO that filters packets which are asked for once, a main FIFO
//! with reinsertion, and the ghosts of names that left the small one.

use super::clock::take_hit;
use super::{Context, Queues, ROUNDS_MAX, Replacement};
use crate::arena::Arena;
use crate::node::{Packet, state};
use crate::sync::atomic::Ordering;

/// Hits that count.
const HITS_MAX: u64 = 3;

pub(super) struct S3Fifo;

impl Replacement for S3Fifo {
    fn admit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        // While the store fills, what the small queue has no room for goes to the main one.
        if queues.ghost.take(packet.bucket_part()) || !queues.small.has_room(queues.run) {
            queues.main.push(packet, &mut context.runs.main, queues.run)
        } else {
            queues
                .small
                .push(packet, &mut context.runs.small, queues.run)
        }
    }

    fn touch(_: &Queues, _: &Arena, packet: Packet<'_>) {
        packet.count_hit(HITS_MAX);
    }

    fn victim<'a>(queues: &Queues, context: &mut Context<'a, '_>) -> Option<Packet<'a>> {
        for _ in 0..ROUNDS_MAX {
            let limit = queues.small_limit.load(Ordering::Relaxed);
            if queues.small.len() as u64 >= limit
                && let Some(packet) = queues.small.pop(context.arena)
            {
                let stays = packet.hits() > 1;
                packet.set_state(state::HITS, 0);
                if !stays || !queues.main.push(packet, &mut context.runs.main, queues.run) {
                    queues.ghost.insert(packet.bucket_part());
                    return Some(packet);
                }
                packet.unlock(0, 0);
                continue;
            }
            let Some(packet) = queues.main.pop(context.arena) else {
                return queues.small.pop(context.arena);
            };
            if !take_hit(packet) || !queues.main.push(packet, &mut context.runs.main, queues.run) {
                return Some(packet);
            }
            packet.unlock(0, 0);
        }
        queues.main.pop(context.arena)
    }

    fn readmit(queues: &Queues, context: &mut Context<'_, '_>, packet: Packet<'_>) -> bool {
        queues.main.push(packet, &mut context.runs.main, queues.run)
    }
}
